"""What Azure refuses whatever else exists: one wrong value at a time, in plausible inputs."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from falaj.sandbox.clouds.azure import MODEL, regions
from falaj.wire import UNKNOWN

ABSENT = object()
CONFIG = {"location": "uaenorth"}


def changed(inputs: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The inputs with one value put, or taken away."""
    result = copy.deepcopy(inputs)
    steps: list[Any] = [
        int(step[1:-1]) if step.startswith("[") else step
        for step in re.findall(r"[^.\[\]]+|\[\d+\]", path)
    ]
    target: Any = result
    for step in steps[:-1]:
        target = target.setdefault(step, {}) if isinstance(target, dict) else target[step]
    if value is ABSENT:
        del target[steps[-1]]
    else:
        target[steps[-1]] = value
    return result


# key of the samples, path that is changed, value, path of the problem (None: the same), words
WRONG: list[tuple[str, str, Any, str | None, str]] = [
    ("rg", "resourceGroupName", "ends.", None, "90 characters"),
    ("rg", "resourceGroupName", "r" * 91, None, "91 characters"),
    ("rg", "location", "uaenort", None, "did you mean uaenorth"),
    ("rg", "location", "global", None, "name a region"),
    ("zone", "location", "uaenorth", None, "'global' only"),
    ("rg", "tags", {f"t{i}": "x" for i in range(51)}, None, "at most 50"),
    ("rg", "tags", {"n" * 513: "x"}, ".*", "513 characters"),
    ("rg", "tags", {"n": "x" * 257}, ".*", "257 characters"),
    ("rg", "tags", {"a/b": "x"}, ".*", "leave it out"),
    ("rg", "tags", {"A": "x", "a": "y"}, None, "letter case"),
    ("vault", "tags", {f"t{i}": "x" for i in range(16)}, None, "at most 15"),
    ("vnet", "virtualNetworkName", "v", None, "2 to 64"),
    ("vnet", "virtualNetworkName", "net-", None, "2 to 64"),
    ("vnet", "addressSpace.addressPrefixes[0]", "10.0.0.1/16", None, "did you mean 10.0.0.0/16"),
    ("vnet", "addressSpace.addressPrefixes[0]", "10.0.0.0", None, "CIDR"),
    ("vnet", "addressSpace.addressPrefixes", [], None, "at least one block"),
    ("vnet", "addressSpace.addressPrefixes", ["10.0.0.0/16", "10.0.8.0/24"], ".*", "overlaps"),
    ("vnet2", "subnets[0].addressPrefix", "10.9.0.0/24", None, "isn't inside"),
    ("vnet2", "subnets[0].name", "bad name", None, "1 to 80"),
    ("nodes", "addressPrefix", "10.0.0.0/30", None, "too small"),
    ("nodes", "addressPrefix", ABSENT, None, "is missing"),
    ("AzureFirewallSubnet", "addressPrefix", "10.0.255.0/27", None, "/26 or larger"),
    ("AzureFirewallSubnet", "networkSecurityGroup", {"id": "x"}, None, "can't have"),
    ("control", "delegations[0].serviceName", "Microsoft.Web/serverFarmz", None, "isn't allowed"),
    ("rule", "priority", 99, None, "100 to 4096"),
    ("rule", "priority", 4097, None, "100 to 4096"),
    ("rule", "destinationPortRange", "443-80", None, "backwards"),
    ("rule", "destinationPortRange", "70000", None, "isn't a port"),
    ("rule", "destinationPortRange", "https", None, "isn't a port"),
    ("rule", "sourceAddressPrefix", "10.0.0.0/33", None, "CIDR"),
    ("rule", "sourceAddressPrefix", "10.0.0.1-10.0.0.9", None, "no address"),
    ("rule", "sourceAddressPrefix", ABSENT, None, "is missing"),
    ("rule", "sourceAddressPrefixes", ["10.0.0.0/8"], None, "give one of them"),
    ("nsg", "securityRules", [{"name": "a"}], r".*priority", "is missing"),
    ("route", "nextHopIpAddress", ABSENT, None, "is missing"),
    ("route", "nextHopType", "None", "nextHopIpAddress", "VirtualAppliance only"),
    ("route", "nextHopIpAddress", "10.0.0", None, "isn't an IP address"),
    ("peering", "remoteVirtualNetwork.id", "vnet2", None, "isn't a resource id"),
    ("endpoint", "subnet", ABSENT, r"subnet\.id", "is missing"),
    ("endpoint", "privateLinkServiceConnections[0].groupIds", ["blob"], ".*", "allowed: vault"),
    ("endpoint", "privateLinkServiceConnections[0].groupIds", [], ".*", "is missing"),
    ("endpoint", "privateLinkServiceConnections", [], None, "is missing"),
    ("zones", "privateDnsZoneConfigs", [], None, "is missing"),
    ("zone", "tags", {"falaj:owner": "it"}, ".*falaj:owner.*", "'falaj-owner'"),
    ("link", "tags", {"1st": "it"}, ".*1st.*", "drops it"),
    ("record", "recordType", "B", None, "isn't allowed"),
    ("record", "aRecords[0].ipv4Address", "10.0.0.256", None, "IPv4"),
    ("pip", "sku.name", "Basic", None, "Standard"),
    ("pip", "publicIPAllocationMethod", "Dynamic", None, "Static"),
    ("firewall", "ipConfigurations", [], None, "is missing"),
    ("firewall", "networkRuleCollections", [{}], None, "go together"),
    ("policy", "intrusionDetection", {"mode": "Deny"}, None, "Premium"),
    ("collection", "priority", 99, None, "100 to 65000"),
    ("collection", "ruleCollections[0].rules[0].targetFqdns", ["https://x.ae/"], ".*", "host"),
    ("app", "configuration.ingress", {"targetPort": 8443, "transport": "tcp",
     "allowInsecure": True}, "configuration.ingress.allowInsecure", "leave it out"),
    ("collection", "ruleCollections[0].rules[0].targetFqdns", [], ".*", "is missing"),
    ("gw", "sku.name", "WAF_Large", None, "retired"),
    ("gw", "sku.capacity", ABSENT, None, "is missing"),
    ("gw", "httpListeners[0].protocol", "Https", ".*sslCertificate", "is missing"),
    ("gw", "requestRoutingRules[0].priority", ABSENT, None, "is missing"),
    ("gw", "backendAddressPools[0].name", "other", ".*", "there is no 'pool'"),
    ("balancer", "sku.name", "Basic", None, "Standard"),
    ("balancer", "probes[0].protocol", "Http", ".*requestPath", "is missing"),
    ("flows", "format", {"version": 3}, r"format\.version", "allowed: 0, 1, 2"),
    ("vault", "vaultName", "1vault", None, "3 to 24"),
    ("vault", "vaultName", "va--ult", None, "3 to 24"),
    ("vault", "vaultName", "v" * 25, None, "3 to 24"),
    ("vault", "properties.enablePurgeProtection", False, None, "leave it out"),
    ("vault", "properties.softDeleteRetentionInDays", 6, None, "7 to 90"),
    ("vault", "properties.tenantId", "mine", None, "GUID"),
    ("vault", "properties.enableRbacAuthorization", False, ".*Policies", "missing"),
    ("key", "properties.keySize", 1024, None, "2048"),
    ("key", "properties.curveName", "P-256", None, "EC keys"),
    ("key", "properties.rotationPolicy", {"attributes": {"expiryTime": "P7D"}}, ".*", "28"),
    ("key", "properties.rotationPolicy", {"attributes": {"expiryTime": "2y"}}, ".*", "P2Y"),
    (
        "key",
        "properties.rotationPolicy",
        {
            "attributes": {"expiryTime": "P90D"},
            "lifetimeActions": [{"trigger": {"timeBeforeExpiry": "P85D"}}],
        },
        ".*",
        "shorter than the expiry",
    ),
    ("hsm", "properties.initialAdminObjectIds", [], None, "is missing"),
    ("secret", "properties.value", "x" * 25601, None, "25601 bytes"),
    ("federated", "issuer", "http://x", None, "https"),
    ("federated", "subject", "system:serviceaccount:trainer", None, "NAMESPACE:NAME"),
    ("federated", "audiences", ["a", "b"], None, "give one"),
    ("role", "assignableScopes", ["rg"], r".*\[0\]", "isn't a scope"),
    ("role", "permissions[0].actions", ["read"], ".*", "isn't an action"),
    ("role", "permissions[0].actions", [], r"permissions\[0\]", "allows nothing"),
    ("assignment", "roleDefinitionId", "Reader", None, "roleDefinitions/GUID"),
    ("assignment", "principalId", "me", None, "GUID"),
    ("assignment", "condition", "true", "conditionVersion", "2.0"),
    ("lock", "level", "NotSpecified", None, "CanNotDelete"),
    ("account", "accountName", "Data-sets", None, "lower-case letters and digits"),
    ("account", "accountName", "ab", None, "3 to 24"),
    ("account", "sku.name", "Premium_ZRS", None, "doesn't go with the kind"),
    ("account", "location", "uaecentral", r"sku\.name", "Standard_LRS"),
    ("account", "minimumTlsVersion", "TLS1_3", None, "TLS1_2"),
    ("account", "encryption.keyVaultProperties.keyName", ABSENT, None, "is missing"),
    ("account", "encryption.encryptionIdentity", ABSENT, ".*", "is missing"),
    ("account", "identity", ABSENT, None, "is missing"),
    ("account", "isSftpEnabled", True, None, "isHnsEnabled"),
    ("container", "containerName", "Audit", None, "lower-case"),
    ("container", "containerName", "$all", None, r"\$root"),
    ("blobs", "blobServicesName", "blobs", None, "only 'default'"),
    ("blobs", "deleteRetentionPolicy.days", 366, None, "1 to 365"),
    ("blobs", "restorePolicy", {"enabled": True, "days": 7}, r"changeFeed\.enabled", "needs it"),
    ("immutable", "immutabilityPeriodSinceCreationInDays", 0, None, "146000"),
    ("lifecycle", "policy.rules[0].definition.filters.blobTypes", ["blob"], ".*", "blockBlob"),
    ("share", "shareQuota", 0, None, "GiB"),
    ("share", "enabledProtocols", "SMB", "rootSquash", "NFS only"),
    ("pool", "size", 1000, None, "tebibytes"),
    ("volume", "usageThreshold", 1024**3, None, "50 GiB"),
    ("volume", "creationToken", "/x", None, "path for mounting"),
    ("volume", "protocolTypes", ["NFS"], ".*", "NFSv4.1"),
    ("lustre-fs", "sku.name", "AMLFS-250", None, "isn't allowed"),
    ("lustre-fs", "storageCapacityTiB", 10, None, "multiples of 8"),
    ("lustre-fs", "zones", ["1", "2"], None, "one zone"),
    ("disks", "activeKey.keyUrl", "https://vault-1.vault.azure.net/keys/disks", None, "version"),
    ("disks", "activeKey.keyUrl", "disks", None, "address of a key"),
    ("reservation", "sku.name", "Standard_NC24ads_A100_v4", None, "not sold|isn't sold|sold"),
    ("reservation", "sku.name", "Standard_D8s", None, "."),
    ("tier", "sku.name", "D8s_v6", None, "isn't a size"),
    ("tier", "upgradePolicy.mode", "Rolling", None, "health"),
    ("tier", "upgradePolicy", ABSENT, r"upgradePolicy\.mode", "is missing"),
    ("tier", "virtualMachineProfile.priority", "Spot", ".*evictionPolicy", "is missing"),
    ("tier", "virtualMachineProfile.evictionPolicy", "Delete", None, "Spot only"),
    ("tier", "zones", ["4"], r"zones\[0\]", "isn't allowed"),
    ("tier", "zones", ["1", "1"], None, "twice"),
    ("cluster", "resourceName", "-x", None, "1 to 63"),
    ("cluster", "dnsPrefix", "a.b", None, "54"),
    ("cluster", "dnsPrefix", ABSENT, None, "is missing"),
    ("cluster", "kubernetesVersion", "v1.34", None, "version"),
    ("cluster", "agentPoolProfiles", [], None, "is missing"),
    ("cluster", "agentPoolProfiles[0].mode", "User", None, "System"),
    ("cluster", "agentPoolProfiles[0].name", "sys-1", None, "1 to 12"),
    ("cluster", "networkProfile.networkDataplane", ABSENT, None, "cilium"),
    ("cluster", "networkProfile.networkPolicy", "calico", None, "choose cilium"),
    ("cluster", "networkProfile.podCidr", "10.200.0.0/14", None, "overlaps"),
    ("cluster", "networkProfile.dnsServiceIP", "10.0.0.10", None, "isn't inside"),
    ("cluster", "networkProfile.dnsServiceIP", "10.200.0.1", None, "first address"),
    ("cluster", "apiServerAccessProfile.enablePrivateCluster", False, ".*", "only"),
    ("cluster", "aadProfile", ABSENT, None, "Entra"),
    ("cluster", "oidcIssuerProfile.enabled", False, None, "workload identity"),
    ("cluster", "securityProfile", {"azureKeyVaultKms": {"enabled": True}}, ".*keyId", "missing"),
    ("gpu", "agentPoolName", "gpupool-h200", None, "1 to 12"),
    ("gpu", "vmSize", "Standard_NC24ads_A100_v4", None, "sold"),
    ("gpu", "vmSize", "Standard_D8s_v6", "gpuInstanceProfile", "no GPU with MIG"),
    ("gpu", "vmSize", "Standard_NV36ads_A10_v5", "gpuInstanceProfile", "no GPU with MIG"),
    ("gpu", "gpuInstanceProfile", "MIG1g.10gb", None, "MIG1g, MIG2g"),
    ("gpu", "scaleSetPriority", "Spot", "capacityReservationGroupID", "spot"),
    ("gpu", "scaleSetEvictionPolicy", "Delete", None, "Spot only"),
    ("gpu", "enableAutoScaling", True, "minCount", "needs it"),
    ("gpu", "minCount", 1, None, "enableAutoScaling only"),
    ("gpu", "maxPods", 9, None, "10 to 250"),
    ("gpu", "nodeTaints", ["gpu"], r"nodeTaints\[0\]", "taint"),
    ("gpu", "nodeLabels", {"kubernetes.azure.com/x": "y"}, ".*", "AKS's own"),
    ("gpu", "availabilityZones", ["uaenorth-1"], r".*\[0\]", "isn't allowed"),
    ("window", "configName", "weekly", None, "isn't allowed"),
    ("window", "maintenanceWindow.durationHours", 2, None, "4 to 24"),
    ("window", "maintenanceWindow.startTime", "2 am", None, "02:00"),
    ("environment", "workloadProfiles[0].workloadProfileType", "D6", None, "isn't allowed"),
    ("environment", "vnetConfiguration.infrastructureSubnetId", ABSENT, None, "is missing"),
    ("app", "containerAppName", "App", None, "2 to 32"),
    ("app", "template.containers[0].resources.memory", "3Gi", None, "4Gi"),
    ("app", "template.scale.minReplicas", 5, r".*maxReplicas", "less than"),
    ("app", "environmentId", ABSENT, None, "is missing"),
    ("registry", "registryName", "my-images", None, "5 to 50"),
    ("registry", "sku.name", "Basic", "encryption.*", "Premium"),
    ("registry", "encryption.keyVaultProperties.identity", "x", None, "GUID"),
    ("registry", "publicNetworkAccess", "Enabled", None, "exports"),
    ("replica", "zoneRedundancy", "Enabled", None, "no availability zones"),
    ("cache", "sourceRepository", "docker.io/library/*", "targetRepository", "wildcard"),
    ("map", "actions", ["pull"], r"actions\[0\]", "content/read"),
    ("logs", "retentionInDays", 7, None, "30 to 730"),
    ("logs", "workspaceName", "l", None, "4 to 63"),
    ("logs-cluster", "sku.capacity", 150, None, "isn't allowed"),
    ("table", "totalRetentionInDays", 800, None, "isn't allowed"),
    ("table", "totalRetentionInDays", 30, None, "less than"),
    ("diagnostics", "workspaceId", ABSENT, None, "is missing"),
    ("diagnostics", "logs[0].category", "AuditEvent", r"logs\[0\]", "either"),
    ("activity", "logs[0].category", "Admin", None, "isn't allowed"),
    ("people", "groupShortName", "x" * 13, None, "allowed: 0 to 12"),
    ("people", "location", "uaenorth", None, "no action groups"),
    ("people", "emailReceivers[0].emailAddress", "me", None, "e-mail"),
    ("scaling", "profiles[0].capacity.maximum", "0", None, "less than"),
    ("scaling", "profiles[0].capacity.default", "9", None, "isn't between"),
    ("scaling", "profiles[0].rules[0].scaleAction.cooldown", "5m", None, "PT5M"),
    ("alert", "condition.allOf[0].field", "caller", r"condition\.allOf", "category"),
    ("metric", "windowSize", "PT2M", None, "isn't allowed"),
    ("dcr", "dataFlows[0].destinations", ["elsewhere"], ".*", "there is no destination"),
    ("budget", "amount", 0, None, "more than 0"),
    ("budget", "timePeriod.startDate", "2026-12-02T00:00:00Z", None, "2026-12-01"),
    ("budget", "timePeriod.startDate", "December", None, "isn't a date"),
    ("budget", "timePeriod.endDate", "2026-11-01T00:00:00Z", None, "isn't after"),
    ("budget", "notifications.eighty.contactEmails", [], None, "is missing"),
    ("budget", "notifications.eighty.threshold", 1001, None, "1000 percent"),
    ("defender", "pricingName", "Container", None, "isn't allowed"),
]  # fmt: skip


def problems(all_samples: Any, key: str, inputs: dict[str, Any]) -> list[tuple[str, str]]:
    found = MODEL.problems(all_samples.made[key].token, inputs, CONFIG)
    return [(problem.path, problem.reason) for problem in found]


@pytest.mark.parametrize(
    "case", WRONG, ids=[f"{case[0]}-{case[1]}-{index}" for index, case in enumerate(WRONG)]
)
def test_a_wrong_value_is_refused_by_its_path(
    all_samples: Any, case: tuple[str, str, Any, str | None, str]
) -> None:
    key, path, value, where, words = case
    inputs = changed(all_samples.made[key].inputs, path, value)
    found = problems(all_samples, key, inputs)
    pattern = where or re.escape(path)
    assert any(re.fullmatch(pattern, at) and re.search(words, reason) for at, reason in found), (
        found
    )


def test_what_the_samples_was_made_of_is_right(all_samples: Any) -> None:
    for key, resource in all_samples.made.items():
        assert problems(all_samples, key, resource.inputs) == []


def every_path(value: Any, before: str = "") -> list[str]:
    found = [before] if before else []
    if isinstance(value, dict):
        for name, item in value.items():
            if re.fullmatch(r"\w+", name):
                found += every_path(item, f"{before}.{name}" if before else name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += every_path(item, f"{before}[{index}]")
    return found


def test_unknown_values_are_no_problem(all_samples: Any) -> None:
    for key, resource in all_samples.made.items():
        for path in every_path(resource.inputs):
            found = problems(all_samples, key, changed(resource.inputs, path, UNKNOWN))
            assert [pair for pair in found if pair[0].startswith(path)] == [], (key, path)


def test_each_problem_says_what_to_do(all_samples: Any) -> None:
    for key, path, value, _, _ in WRONG:
        inputs = changed(all_samples.made[key].inputs, path, value)
        for _, reason in problems(all_samples, key, inputs):
            assert len(reason) > 15
            assert "Traceback" not in reason


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"location": "mars"}, "isn't a region"),
        ({"subscriptionId": "main"}, "GUID"),
        ({"tenantId": "x"}, "GUID"),
    ],
)
def test_wrong_settings_of_the_provider_are_refused(given: dict[str, str], words: str) -> None:
    assert any(words in problem.reason for problem in MODEL.check_configuration(given))


def test_right_settings_pass_in_either_spelling_of_the_region() -> None:
    for region in ("uaenorth", "UAE North", "uaecentral", "westeurope"):
        assert MODEL.check_configuration({"location": region}) == []


def test_a_zone_is_refused_where_the_region_has_none(all_samples: Any) -> None:
    inputs = {**all_samples.made["near"].inputs, "location": "UAE Central", "zones": ["1"]}
    found = problems(all_samples, "near", inputs)
    assert [at for at, _ in found] == ["zones"]


def test_machines_of_other_regions_are_not_the_sandboxs_to_refuse(all_samples: Any) -> None:
    inputs = {**all_samples.made["tier"].inputs, "location": "westeurope"}
    inputs["sku"] = {"name": "Standard_NC24ads_A100_v4"}
    assert problems(all_samples, "tier", inputs) == []


@pytest.mark.parametrize(
    ("size", "taken"),
    [("Standard_B2s", True), ("Standard_DS2_v2", True), ("Standard_D9s_v5", False),
     ("Standard_NC9_v9", False), ("Standard_D8s_v5", True)],
)  # fmt: skip
def test_sizes_of_series_that_the_catalogue_lacks_are_taken(size: str, taken: bool) -> None:
    assert (list(regions.sold("vmSize", "uaenorth", size)) == []) is taken
