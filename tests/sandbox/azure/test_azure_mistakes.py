"""Mistakes of meaning: each value is well formed, and a real subscription wouldn't take it, or
would take it and fail later.

Written before the rules that refuse them, from Microsoft's documentation and from reports of what
failed; none of them is a wrong type or a misspelt property, which the SDK's types find.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from falaj.sandbox.clouds.azure.role_names import meant
from falaj.sandbox.errors import SandboxError
from falaj.sandbox.inprocess import Sandbox
from tests.sandbox.azure.conftest import PARTS
from tests.sandbox.azure.samples import READER, REGION, Resource, Samples
from tests.sandbox.azure.test_azure_problems import ABSENT, changed

PERMISSION = "permissions[0].actions"
VMSS = "virtualMachineProfile"
POOL = "agentPoolProfiles[0]"
RULE = "profiles[0].rules[0]"
_ROLES = READER.rpartition("/")[0]

# what is meant; changes of samples in their order, the last of which is refused; words
Change = tuple[str, str, Any]
MISTAKES: dict[str, tuple[tuple[Change, ...], str]] = {
    # Names that look right
    "a category of logs that the resource hasn't": (
        (("diagnostics", "logs", [{"category": "AuditEvents", "enabled": True}]),),
        "AuditEvent",
    ),
    "a group of categories that there isn't": (
        (("diagnostics", "logs", [{"categoryGroup": "audits", "enabled": True}]),),
        "audit",
    ),
    "a category of another resource's": (
        (("diagnostics", "logs", [{"category": "kube-audit", "enabled": True}]),),
        "AuditEvent",
    ),
    "an action of a provider that there isn't": (
        (("role", PERMISSION, ["Microsoft.Storages/storageAccounts/read"]),),
        "Microsoft.Storage",
    ),
    "an action on a type that there isn't": (
        (("role", PERMISSION, ["Microsoft.Storage/storageAccount/read"]),),
        "storageAccounts",
    ),
    "an action on data among those on the resource": (
        (("role", PERMISSION,
          ["Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read"]),),
        "dataActions",
    ),
    "a verb that there isn't": (
        (("role", PERMISSION, ["Microsoft.Storage/storageAccounts/get"]),),
        "read, write, delete|read",
    ),
    "a role of Azure's with a digit wrong": (
        (("assignment", "roleDefinitionId",
          f"{_ROLES}/acdd72a7-3385-48ef-bd42-f606fba81ae8"),),
        "'Reader' is acdd72a7-3385-48ef-bd42-f606fba81ae7",
    ),
    "an eligibility for a role of Azure's with two digits changed over": (
        (("eligible", "roleDefinitionId",
          f"{_ROLES}/b24988ca-6180-42a0-ab88-20f7382dd24c"),),
        "'Contributor' is b24988ac-6180-42a0-ab88-20f7382dd24c",
    ),
    "an exported table that there isn't": (
        (("export", "tableNames", ["AzureActivities"]),),
        "AzureActivity",
    ),
    "a plan of Defender's that the service hasn't": (
        (("defender", "subPlan", "PerTransactions"),),
        "subPlan|no sub-plan|isn't allowed",
    ),
    "a private zone of another service": (
        (("zone", "privateZoneName", "privatelink.blob.core.windows.net"),
         ("link", "privateZoneName", "privatelink.blob.core.windows.net"),
         ("record", "privateZoneName", "privatelink.blob.core.windows.net"),
         ("zones", "privateDnsZoneGroupName", "default")),
        "privatelink.vaultcore.azure.net",
    ),
    "an audience of another service": (
        (("federated", "audiences", ["sts.amazonaws.com"]),),
        "api://AzureADTokenExchange",
    ),
    # Kubernetes
    "services' addresses within the network": (
        (("cluster", "networkProfile.serviceCidr", "10.0.128.0/20"),
         ("cluster", "networkProfile.dnsServiceIP", "10.0.128.10")),
        "10.0.0.0/16",
    ),
    "pods' addresses within the network": (
        (("cluster", "networkProfile.podCidr", "10.0.64.0/18"),),
        "10.0.0.0/16",
    ),
    "addresses of services that AKS keeps": (
        (("cluster", "networkProfile.serviceCidr", "172.31.0.0/16"),
         ("cluster", "networkProfile.dnsServiceIP", "172.31.0.10")),
        "172.31.0.0/16",
    ),
    "a version that AKS no longer takes": (
        (("cluster", "kubernetesVersion", "1.22"),),
        "1\\.",
    ),
    "a version that AKS hasn't yet": (
        (("cluster", "kubernetesVersion", "1.49"),),
        "1\\.",
    ),
    "a pool that is newer than its cluster": (
        (("gpu", "orchestratorVersion", "1.35"),),
        "1.34",
    ),
    "a pool that is much older than its cluster": (
        (("gpu", "orchestratorVersion", "1.30"),),
        "1.34",
    ),
    "the system on spot machines": (
        (("cluster", f"{POOL}.scaleSetPriority", "Spot"),),
        "System|system",
    ),
    "a system of no machine": (
        (("cluster", f"{POOL}.count", 0),),
        "at least|1 to",
    ),
    "the system on Windows": (
        (("cluster", f"{POOL}.osType", "Windows"),),
        "Linux",
    ),
    "the system on machines that are too small": (
        (("cluster", f"{POOL}.vmSize", "Standard_F1as_v6"),),
        "too small",
    ),
    "an ephemeral disk that is larger than its place": (
        (("gpu", "osDiskType", "Ephemeral"), ("gpu", "osDiskSizeGB", 4096)),
        "2048|ephemeral|Ephemeral",
    ),
    "a subnet of another service for nodes": (
        (("gpu", "vnetSubnetID", "{netapp}"),),
        "delegated",
    ),
    "a subnet that is too small for the nodes": (
        (("gpu", "vnetSubnetID", "{control}"),),
        "delegated|too small",
    ),
    "a pool in another network than its cluster": (
        (("gpu", "vnetSubnetID",
          "{rg}/providers/Microsoft.Network/virtualNetworks/vnet2/subnets/inline"),),
        "network",
    ),
    "reserved machines of another size": (
        (("gpu", "vmSize", "Standard_NC40ads_H100_v5"), ("gpu", "gpuInstanceProfile", ABSENT)),
        "reserv",
    ),
    "two maintenance windows in one": (
        (("window", "maintenanceWindow.schedule",
          {"weekly": {"dayOfWeek": "Saturday", "intervalWeeks": 1},
           "daily": {"intervalDays": 1}}),),
        "one of",
    ),
    "a window of another kind": (
        (("window", "configName", "default"),),
        "timeInWeek|maintenanceWindow",
    ),
    # Networks
    "two rules of one priority": (
        (("nsg", "securityRules", [{
            "name": "other", "priority": 100, "direction": "Inbound", "access": "Deny",
            "protocol": "*", "sourceAddressPrefix": "*", "sourcePortRange": "*",
            "destinationAddressPrefix": "*", "destinationPortRange": "*"}]),
         ("rule", "access", "Allow")),
        "priority",
    ),
    "networks that overlap, joined": (
        (("vnet2", "addressSpace.addressPrefixes", ["10.0.0.0/18"]),
         ("vnet2", "subnets[0].addressPrefix", "10.0.0.0/24"),
         ("peering", "virtualNetworkPeeringName", "to-vnet2")),
        "overlap",
    ),
    "a private endpoint in a subnet of another service": (
        (("endpoint", "subnet", {"id": "{netapp}"}),),
        "delegated",
    ),
    "a private endpoint of a part that the service hasn't": (
        (("endpoint", "privateLinkServiceConnections[0].groupIds", ["blob"]),),
        "vault",
    ),
    "a gateway among other things": (
        (("gw", "gatewayIPConfigurations", [{"name": "g", "subnet": {"id": "{nodes}"}}]),),
        "alone|only|of its own|subnet",
    ),
    "a firewall in another subnet": (
        (("firewall", "ipConfigurations[0].subnet", {"id": "{nodes}"}),),
        "AzureFirewallSubnet",
    ),
    "a firewall of a lower tier than its policy": (
        (("policy", "sku.tier", "Premium"), ("firewall", "sku.tier", "Standard")),
        "Premium",
    ),
    "two collections of one priority": (
        (("collection", "ruleCollections", [
            {"ruleCollectionType": "FirewallPolicyFilterRuleCollection", "name": name,
             "priority": 100, "action": {"type": "Allow"},
             "rules": [{"ruleType": "NetworkRule", "name": "dns", "sourceAddresses": ["*"],
                        "destinationAddresses": ["10.0.0.4"], "destinationPorts": ["53"],
                        "ipProtocols": ["UDP"]}]} for name in ("a", "b")]),),
        "priority",
    ),
    "names in rules of the network without a resolver": (
        (("collection", "ruleCollections[0].rules", [
            {"ruleType": "NetworkRule", "name": "out", "sourceAddresses": ["*"],
             "destinationFqdns": ["mcr.microsoft.com"], "destinationPorts": ["443"],
             "ipProtocols": ["TCP"]}]),),
        "proxy|dnsSettings",
    ),
    "logs of flows of a security group": (
        (("flows", "targetResourceId", "{nsg}"),),
        "retired|network security group|virtual network",
    ),
    "logs of flows into another region": (
        (("account", "location", "uaecentral"), ("account", "sku.name", "Standard_LRS"),
         ("flows", "enabled", True)),
        "uaecentral",
    ),
    # Machines
    "a balancer's pool that there isn't": (
        (("tier", f"{VMSS}.networkProfile.networkInterfaceConfigurations[0].ipConfigurations[0]"
          ".loadBalancerBackendAddressPools", [{"id": "{balancer}/backendAddressPools/other"}]),),
        "other",
    ),
    "a disk that ends before its image": (
        (("tier", f"{VMSS}.storageProfile.osDisk.diskSizeGB", 5000),),
        "4095",
    ),
    "premium disks on a machine without them": (
        (("tier", "sku.name", "Standard_D8_v5"),),
        "Premium|premium",
    ),
    "rules of scaling that contradict": (
        (("scaling", "profiles[0].rules", [
            {"metricTrigger": {
                "metricName": "Percentage CPU", "metricResourceUri": "{tier}",
                "operator": operator, "statistic": "Average", "threshold": threshold,
                "timeAggregation": "Average", "timeGrain": "PT1M", "timeWindow": "PT5M"},
             "scaleAction": {"cooldown": "PT5M", "direction": direction, "type": "ChangeCount",
                             "value": "1"}}
            for operator, threshold, direction in (
                ("GreaterThan", 40, "Increase"), ("LessThan", 60, "Decrease"))]),),
        "40|60",
    ),
    "a window that is shorter than its grain": (
        (("scaling", f"{RULE}.metricTrigger.timeWindow", "PT1M"),),
        "PT5M|5 minutes",
    ),
    # Containers
    "an app of another profile than its environment has": (
        (("app", "workloadProfileName", "D4"),),
        "Consumption",
    ),
    "an app that speaks TCP with rules of HTTP": (
        (("app", "configuration.ingress", {"targetPort": 8080, "external": False,
          "transport": "tcp", "exposedPort": 8443, "allowInsecure": True}),),
        "allowInsecure",
    ),
    "an app with an identity for images that it hasn't": (
        (("app", "configuration.registries",
          [{"server": "images1.azurecr.io", "identity": "{identity}"}]),),
        "identity",
    ),
    "an app with a secret that there isn't": (
        (("app", "template.containers[0].env", [{"name": "KEY", "secretRef": "absent"}]),),
        "absent",
    ),
    "an app with a volume that there isn't": (
        (("app", "template.containers[0].volumeMounts",
          [{"volumeName": "absent", "mountPath": "/x"}]),),
        "absent",
    ),
    "an environment in a subnet that is too small": (
        (("apps", "addressPrefix", "10.0.6.0/28"),
         ("environment", "environmentName", "environment")),
        "/27",
    ),
    "an environment in a subnet that isn't its own": (
        (("environment", "vnetConfiguration.infrastructureSubnetId", "{links}"),),
        "delegat",
    ),
    # Keys and rights
    "a key under hardware in a vault without": (
        (("vault", "properties.sku.name", "standard"), ("key", "properties.keySize", 4096)),
        "premium",
    ),
    "a key for disks in a vault that may be purged": (
        (("vault", "properties.enablePurgeProtection", ABSENT),
         ("account", "accountName", "datasets1")),
        "purge",
    ),
    "an operation that the key hasn't": (
        (("key", "properties.keyOps", ["encrypted"]),),
        "encrypt",
    ),
    "wrapping with a key that may not wrap": (
        (("key", "properties.keyOps", ["sign", "verify"]),
         ("account", "accountName", "datasets1")),
        "wrapKey",
    ),
    "two credentials for one account": (
        (("federated", "federatedIdentityCredentialResourceName", "trainer"),
         ("federated+", "federatedIdentityCredentialResourceName", "again")),
        "same issuer|already",
    ),
    "an encryption by an identity that isn't the account's": (
        (("account", "identity", {"type": "SystemAssigned"}),),
        "identity",
    ),
    # Storage
    "a volume that is larger than its pool": (
        (("volume", "usageThreshold", 8 * 1024**4),),
        "4 TiB|pool",
    ),
    "a volume in a subnet that isn't its service's": (
        (("volume", "subnetId", "{nodes}"),),
        "delegat",
    ),
    "fast files in a subnet that is too small": (
        (("lustre", "addressPrefix", "10.0.7.0/29"), ("lustre-fs", "storageCapacityTiB", 8)),
        "/2|addresses",
    ),
    "a volume of another level than its pool": (
        (("volume", "serviceLevel", "Ultra"),),
        "Premium",
    ),
    "images kept behind a registry of the basic tier": (
        (("registry", "sku.name", "Standard"), ("registry", "encryption", ABSENT),
         ("registry", "policies", ABSENT)),
        "Premium",
    ),
    "a life of blobs by last access without its record": (
        (("lifecycle", "policy.rules[0].definition.actions",
          {"baseBlob": {"delete": {"daysAfterLastAccessTimeGreaterThan": 30}}}),),
        "lastAccessTime",
    ),
}  # fmt: skip


class _DoneError(Exception):
    """The last changed sample was made, or refused."""

    def __init__(self, error: SandboxError | None) -> None:
        self.error = error


class _Mistaken(Samples):
    """Makes the samples with changes, up to the last changed one."""

    def __init__(self, sandbox: Sandbox, changes: tuple[Change, ...]) -> None:
        super().__init__(sandbox)
        self._changes = changes
        self._last = changes[-1][0]

    def add(self, key: str, token: str, **inputs: Any) -> Resource:
        own = inputs
        for name, path, value in self._changes:
            if name == key:
                own = changed(own, path, self._filled(value))
        if key == self._last:
            try:
                super().add(key, token, **own)
            except SandboxError as error:
                raise _DoneError(error) from None
            raise _DoneError(None)
        made = super().add(key, token, **own)
        if self._last == f"{key}+":
            again = next(change for change in self._changes if change[0] == self._last)
            try:
                super().add(self._last, token, **changed(own, again[1], again[2]))
            except SandboxError as error:
                raise _DoneError(error) from None
            raise _DoneError(None)
        return made

    def _filled(self, value: Any) -> Any:
        """A value with ids of samples for ``{name}``."""
        if isinstance(value, str):
            return re.sub(r"\{([\w-]+)\}", lambda found: self.id(found[1]), value)
        if isinstance(value, dict):
            return {key: self._filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._filled(item) for item in value]
        return value


def outcome(changes: tuple[Change, ...]) -> SandboxError | None:
    """What refuses the samples with those changes; those before the last changed one pass."""
    samples = _Mistaken(Sandbox("azure", config={"location": REGION}), changes)
    try:
        for part in PARTS:
            part(samples)
    except _DoneError as done:
        return done.error
    raise AssertionError(f"{changes[-1][0]} is no sample")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_meaning_is_refused(mistake: str) -> None:
    changes, words = MISTAKES[mistake]
    error = outcome(changes)
    assert error is not None, "was taken"
    assert re.search(words, str(error)), str(error)


@pytest.mark.parametrize(
    "role",
    [
        # Azure's own, one that nobody knows, and one of a row that Azure goes on with.
        "acdd72a7-3385-48ef-bd42-f606fba81ae7",
        "ACDD72A7-3385-48EF-BD42-F606FBA81AE7",
        "0f0f0f0f-1111-4222-8333-444444444444",
        "7f646f1b-fa08-80eb-a44b-edd6ce5c915c",
    ],
)
def test_a_role_that_may_exist_is_taken(role: str) -> None:
    assert outcome((("assignment", "roleDefinitionId", f"{_ROLES}/{role}"),)) is None


@pytest.mark.parametrize("role", ["", "Reader", f"{READER.rpartition('/')[2]}0"])
def test_a_role_that_is_no_guid_or_not_known_yet_is_no_slip(role: str) -> None:
    assert meant(role) is None
