"""Microsoft.App and ContainerRegistry: container apps, and registries of images."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import (
    checks,
    kinds,
    naming,
    regions,
    relations,
    resources,
    subnets,
)
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.resources import location
from falaj.sandbox.clouds.azure.services import key_vault
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import (
    absent,
    all_of,
    any_of,
    between,
    equals,
    formed,
    is_on,
    refused,
    required,
    texts,
    when,
)
from falaj.sandbox.clouds.model import Made, Problem
from falaj.sandbox.clouds.vendor import MADE_AT
from falaj.wire import Unknown
from falaj.wire.documents import is_dictionary

ENVIRONMENT: Final = "azure-native:app:ManagedEnvironment"
_ENVIRONMENT_TYPE: Final = "Microsoft.App/managedEnvironments"
# Source: container-apps/workload-profiles-overview (profile types).
_PROFILES: Final = (
    "Consumption",
    "D4",
    "D8",
    "D16",
    "D32",
    "E4",
    "E8",
    "E16",
    "E32",
    "Consumption-GPU-NC8as-T4",
    "Consumption-GPU-NC24-A100",
    "NC24-A100",
    "NC48-A100",
    "NC96-A100",
    "Flex",
)
_CONSUMPTION: Final = "Consumption"
_MEMORY: Final = re.compile(r"(\d+(?:\.\d+)?)Gi")


def _environment_problems(inputs: Inputs) -> Iterator[Problem]:
    for path, _ in inputs.items("workloadProfiles"):
        kind = inputs.optional_string(f"{path}.workloadProfileType")
        yield from checks.one_of(f"{path}.workloadProfileType", kind, _PROFILES)
        low, high = inputs.number(f"{path}.minimumCount"), inputs.number(f"{path}.maximumCount")
        if kind and kind.startswith(_CONSUMPTION) and (low is not None or high is not None):
            yield Problem(
                path, f"{kind} scales by itself; leave minimumCount and maximumCount out"
            )
        if low is not None and high is not None and low > high:
            yield Problem(f"{path}.maximumCount", f"{high:g} is less than minimumCount {low:g}")
        name = inputs.optional_string(f"{path}.name")
        if name and not re.fullmatch(r"[A-Za-z0-9-]{1,15}", name):
            yield Problem(
                f"{path}.name",
                f"{name!r} isn't allowed; allowed are 1 to 15 letters, digits and hyphens",
            )
    region = regions.region_of(inputs)
    if inputs.flag("zoneRedundant"):
        if region and regions.has_zones(region) is False:
            yield Problem(
                "zoneRedundant",
                f"{regions.display_name(region)} has no availability zones; leave it out",
            )
        yield from required(
            "vnetConfiguration.infrastructureSubnetId", "zone redundancy needs an own subnet"
        )(inputs)


def _environment_conflicts(resource: Resource) -> Iterator[Problem]:
    # Source: container-apps/networking (subnet): /27 and a delegation with workload profiles, /23
    # and none without them.
    profiles = resource.is_given("workloadProfiles")
    yield from subnets.fits(
        resource,
        "vnetConfiguration.infrastructureSubnetId",
        where=location(resource),
        delegated_to="Microsoft.App/environments" if profiles else None,
        least=27 if profiles else 23,
    )


def _app_problems(inputs: Inputs) -> Iterator[Problem]:
    names: set[str] = set()
    for path, _ in inputs.items("template.containers"):
        yield from _container(inputs, path)
        name = inputs.optional_string(f"{path}.name")
        if name in names:
            yield Problem(f"{path}.name", f"{name!r} is used twice")
        names.add(name or "")
    low = inputs.number("template.scale.minReplicas")
    high = inputs.number("template.scale.maxReplicas")
    if low is not None and high is not None and low > high:
        yield Problem("template.scale.maxReplicas", f"{high:g} is less than minReplicas {low:g}")
    yield from _named_parts(inputs)
    weights = [
        inputs.number(f"{path}.weight")
        for path, _ in inputs.items("configuration.ingress.traffic")
    ]
    if weights and None not in weights and sum(item or 0 for item in weights) != 100:
        yield Problem("configuration.ingress.traffic", "the weights must add up to 100")


def _named_parts(inputs: Inputs) -> Iterator[Problem]:
    """Secrets, volumes and identities that a container or a registry names are the app's."""
    secrets = {
        inputs.optional_string(f"{path}.name") for path, _ in inputs.items("configuration.secrets")
    }
    volumes = {
        inputs.optional_string(f"{path}.name") for path, _ in inputs.items("template.volumes")
    }
    for kind in ("containers", "initContainers"):
        for path, _ in inputs.items(f"template.{kind}"):
            for item, _ in inputs.items(f"{path}.env"):
                name = inputs.optional_string(f"{item}.secretRef")
                if name and name not in secrets and not _is_hidden(inputs, "secrets"):
                    yield Problem(
                        f"{item}.secretRef",
                        f"there is no secret {name!r}; add it to configuration.secrets",
                    )
            for item, _ in inputs.items(f"{path}.volumeMounts"):
                name = inputs.optional_string(f"{item}.volumeName")
                if name and name not in volumes:
                    yield Problem(
                        f"{item}.volumeName",
                        f"there is no volume {name!r}; add it to template.volumes",
                    )
    own = {each.lower() for each in resources.identity_names(inputs)}
    for path, _ in inputs.items("configuration.registries"):
        name = inputs.optional_string(f"{path}.identity")
        if (
            name
            and name.startswith("/")
            and name.lower() not in own
            and (inputs.is_absent("identity") or own)
        ):
            yield Problem(
                f"{path}.identity",
                "isn't among the app's own identities; add it to identity.userAssignedIdentities",
            )


def _is_hidden(inputs: Inputs, name: str) -> bool:
    """Whether a list of the configuration isn't known yet."""
    path = f"configuration.{name}"
    return inputs.is_given(path) and not inputs.items(path)


def _container(inputs: Inputs, path: str) -> Iterator[Problem]:
    yield from required(f"{path}.image", "name the image")(inputs)
    name = inputs.optional_string(f"{path}.name")
    if name and not re.fullmatch(r"[a-z0-9](?:[-a-z0-9]{0,44}[a-z0-9])?", name):
        yield Problem(
            f"{path}.name",
            f"{name!r} isn't allowed; allowed are 1 to 46 lower-case letters, digits and hyphens",
        )
    cpu, memory = (
        inputs.number(f"{path}.resources.cpu"),
        inputs.optional_string(f"{path}.resources.memory"),
    )
    size = _MEMORY.fullmatch(memory) if memory else None
    if memory and size is None:
        yield Problem(f"{path}.resources.memory", f"{memory!r} isn't a size such as 2Gi")
    if cpu is None or size is None or inputs.is_given("workloadProfileName"):
        return
    # Source: container-apps/containers (configuration): 0.25 to 4 processors in steps of 0.25,
    # with twice as many GiB.
    if cpu * 4 != int(cpu * 4) or not 0.25 <= cpu <= 4:
        yield Problem(
            f"{path}.resources.cpu",
            f"{cpu:g} isn't allowed; allowed are 0.25 to 4 in steps of 0.25",
        )
    elif float(size[1]) != cpu * 2:
        yield Problem(
            f"{path}.resources.memory",
            f"{memory} doesn't go with {cpu:g} processors; it must be {cpu * 2:g}Gi",
        )


def _secrets(inputs: Inputs) -> Iterator[Problem]:
    known_names: set[str] = set()
    for path, _ in inputs.items("configuration.secrets"):
        name = inputs.optional_string(f"{path}.name")
        known_names.add(name or "")
        if name and not re.fullmatch(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?", name):
            yield Problem(
                f"{path}.name",
                f"{name!r} isn't allowed; allowed are lower-case "
                "letters, digits, hyphens and periods",
            )
        if inputs.is_given(f"{path}.keyVaultUrl"):
            yield from required(
                f"{path}.identity", "say which identity reads the vault ('system' or an id)"
            )(inputs)
    for path, _ in inputs.items("configuration.registries"):
        secret = inputs.optional_string(f"{path}.passwordSecretRef")
        if secret and secret not in known_names:
            yield Problem(
                f"{path}.passwordSecretRef",
                f"there is no secret {secret!r}; add it to configuration.secrets",
            )
        if inputs.is_absent(f"{path}.identity") and inputs.is_absent(f"{path}.username"):
            yield Problem(path, "has neither an identity nor a username; give one")


def _app_conflicts(resource: Resource) -> Iterator[Problem]:
    id = resource.optional_string("environmentId") or resource.optional_string(
        "managedEnvironmentId"
    )
    made = resources.by_id(resource.world, id) if id else None
    if made is None:
        return
    region, place = location(resource), resources.region_of(made)
    if region and place and region != place:
        yield Problem(
            "location", f"{region} isn't the environment's {place}; they must be the same"
        )
    environment = Inputs(made.inputs)
    wanted = resource.optional_string("workloadProfileName")
    names = {
        environment.optional_string(f"{path}.name")
        for path, _ in environment.items("workloadProfiles")
    }
    if wanted and wanted not in names and not (wanted == _CONSUMPTION and not names):
        listed = ", ".join(sorted(item for item in names if item)) or "none"
        yield Problem(
            "workloadProfileName", f"the environment has no profile {wanted!r}; it has {listed}"
        )


def _environment_outputs(resource: Resource) -> dict[str, Any]:
    id, region = resource.id, location(resource) or "unknown"
    label = f"sandbox-{naming.digest(8, id)}"
    subnet = resource.optional_string("vnetConfiguration.infrastructureSubnetId")
    address = subnets.address(resource.world, subnet, id) if subnet else None
    name = id.rpartition("/")[2]
    reference = naming.parse(id)
    group = reference.group if reference else ""
    return {
        "defaultDomain": f"{label}.{region}.azurecontainerapps.io",
        "staticIp": address or "203.0.113.1",
        "eventStreamEndpoint": f"https://{region}.azurecontainerapps.dev{id}/eventstream",
        "customDomainConfiguration": resource.get(
            "customDomainConfiguration",
            {"customDomainVerificationId": naming.digest(64, "domain", id)},
        ),
        "infrastructureResourceGroup": resource.optional_string("infrastructureResourceGroup")
        or f"ME_{name}_{group}_{region}",
        "privateEndpointConnections": [],
    }


def _app_outputs(resource: Resource) -> dict[str, Any]:
    id = resource.id
    name = id.rpartition("/")[2]
    environment = resource.optional_string("environmentId") or resource.optional_string(
        "managedEnvironmentId"
    )
    made = resources.by_id(resource.world, environment) if environment else None
    domain = Inputs(made.outputs).optional_string("defaultDomain") if made else None
    suffix = resource.optional_string("template.revisionSuffix") or naming.digest(7, id)
    revision = f"{name}--{suffix}"
    found: dict[str, Any] = {
        "latestRevisionName": revision,
        "latestReadyRevisionName": revision,
        "runningStatus": "Running",
        "customDomainVerificationId": naming.digest(64, "domain", id),
        "outboundIpAddresses": ["203.0.113.1"],
        "eventStreamEndpoint": f"https://{location(resource)}.azurecontainerapps.dev{id}/eventstream",
    }
    if domain and resource.is_given("configuration.ingress"):
        part = "" if resource.flag("configuration.ingress.external") else ".internal"
        found["latestRevisionFqdn"] = f"{revision}{part}.{domain}"
        configuration, ingress = resource.at("configuration"), resource.at("configuration.ingress")
        if is_dictionary(configuration) and is_dictionary(ingress):
            found["configuration"] = {
                **configuration,
                "ingress": {**ingress, "fqdn": f"{name}{part}.{domain}"},
            }
    return found


REGISTRY: Final = "azure-native:containerregistry:Registry"
REPLICATION: Final = "azure-native:containerregistry:Replication"
_PATH: Final = "Microsoft.ContainerRegistry/registries/{registryName}"
# What a Premium registry alone has. Source: container-registry/container-registry-skus.
_EXPORT: Final = "policies.exportPolicy"
_PREMIUM: Final = {
    "encryption.keyVaultProperties": "an own key",
    "networkRuleSet": "network rules",
    "policies.retentionPolicy": "a retention policy",
    "policies.trustPolicy": "content trust",
    "policies.quarantinePolicy": "quarantine",
    _EXPORT: "an export policy that says no",
}
_SOURCE: Final = re.compile(r"[a-z0-9.-]+(?::\d+)?(?:/[a-z0-9._*/-]+)+")
_ACTION: Final = re.compile(
    r"repositories/[^/\s].*/(?:content|metadata)/(?:read|write|delete)"
    r"|gateway/[^/]+/(?:config|message)/(?:read|write)"
)


def _problems(inputs: Inputs) -> Iterator[Problem]:
    sku = inputs.optional_string("sku.name")
    if sku not in (None, "Premium"):
        for path, what in _PREMIUM.items():
            given = inputs.at(f"{path}.status")
            # Every registry lets its images be exported, and the SDK's class says so by itself.
            harmless = "enabled" if path == _EXPORT else "disabled"
            if isinstance(given, Unknown):
                continue
            if inputs.is_given(path) and str(given).lower() != harmless:
                yield Problem(path, f"{what} needs the SKU Premium; given is {sku}")
        for path, value in (
            ("publicNetworkAccess", "Disabled"),
            ("zoneRedundancy", "Enabled"),
            ("dataEndpointEnabled", True),
        ):
            if inputs.at(path) == value:
                yield Problem(path, f"{value} needs the SKU Premium; given is {sku}")
    region = regions.region_of(inputs)
    if (
        inputs.optional_string("zoneRedundancy") == "Enabled"
        and region
        and regions.has_zones(region) is False
    ):
        yield Problem(
            "zoneRedundancy",
            f"{regions.display_name(region)} has no availability zones; leave it out",
        )
    if (
        inputs.optional_string("policies.exportPolicy.status") == "disabled"
        and inputs.optional_string("publicNetworkAccess") != "Disabled"
        and not (
            inputs.is_given("publicNetworkAccess")
            and inputs.optional_string("publicNetworkAccess") is None
        )
    ):
        # Source: container-registry/data-loss-prevention.
        yield Problem(
            "publicNetworkAccess", "exports can be stopped only where it is Disabled; set it"
        )
    for path, _ in inputs.items("networkRuleSet.ipRules"):
        text = inputs.optional_string(f"{path}.iPAddressOrRange")
        if text and "/" in text:
            yield from checks.cidr(f"{path}.iPAddressOrRange", text)


def _encryption(inputs: Inputs) -> Iterator[Problem]:
    base = "encryption.keyVaultProperties"
    yield from key_vault.address(
        f"{base}.keyIdentifier", inputs.optional_string(f"{base}.keyIdentifier")
    )


_KEY_IDENTITY: Final = "encryption.keyVaultProperties.identity"
#: What stands for the registry's system-assigned identity. Source: azure-cli, command module acr,
#: rotate_key: a "reserved word on ACR service".
_SYSTEM: Final = "system"


def _conflicts(resource: Resource) -> Iterator[Problem]:
    path = "encryption.keyVaultProperties.keyIdentifier"
    uri = resource.optional_string(path)
    yield from key_vault.usable(resource, path, uri)
    client = resource.optional_string(_KEY_IDENTITY)
    names = resources.identity_names(resource)
    if (
        client not in (None, _SYSTEM)
        and names
        and client not in {naming.guid("client", item) for item in names}
    ):
        yield Problem(
            _KEY_IDENTITY,
            "isn't the client id of one of the "
            "registry's own identities; take it from the identity's outputs",
        )
    found = key_vault.parse(uri) if uri else None
    holder = key_vault.vault(resource.world, found) if found else None
    if holder is not None and client is not None and key_vault.is_closed(holder):
        yield from _past_the_firewall(client, holder)


def _past_the_firewall(client: str, vault: Made) -> Iterator[Problem]:
    """Only a registry's system-assigned identity counts as a service that Azure vouches for.

    Sources: github.com/MicrosoftDocs/azure-docs/issues/61015 and 61064, github.com/Azure/acr/
    issues/523; container-registry/container-registry-customer-managed-keys, "Advanced scenario:
    Key Vault firewall".
    """
    name = vault.id.rpartition("/")[2]
    if not key_vault.trusts_services(vault):
        yield Problem(
            "encryption.keyVaultProperties.keyIdentifier",
            f"Failed to access KeyId: the firewall of the vault {name!r} lets no service in that "
            "Azure vouches for; set its networkAcls.bypass to AzureServices",
        )
    elif client != _SYSTEM:
        yield Problem(
            _KEY_IDENTITY,
            f"Failed to access KeyId: the vault {name!r} is closed to the network, and who asks "
            "is not a trusted service: a registry gets past a firewall as its system-assigned "
            "identity only. Make it with a key of another vault that is open, grant its own "
            "identity this key, then give it this key with identity: system",
        )


def _identity(path: str, text: str | None) -> Iterator[Problem]:
    if text != _SYSTEM:
        yield from checks.guid(path, text)


def _replication_problems(inputs: Inputs) -> Iterator[Problem]:
    region = regions.region_of(inputs)
    if (
        inputs.optional_string("zoneRedundancy") == "Enabled"
        and region
        and regions.has_zones(region) is False
    ):
        yield Problem(
            "zoneRedundancy",
            f"{regions.display_name(region)} has no availability zones; leave it out",
        )


def _parent(resource: Resource) -> Inputs | None:
    made = resources.by_id(resource.world, resource.id.rsplit("/", 2)[0])
    return Inputs(made.inputs) if made else None


def _replication_conflicts(resource: Resource) -> Iterator[Problem]:
    parent = _parent(resource)
    if parent is None:
        return
    if parent.optional_string("sku.name") not in (None, "Premium"):
        yield Problem("registryName", "a replica needs a registry of the SKU Premium")
    if regions.region_of(parent) and regions.region_of(parent) == regions.region_of(resource):
        yield Problem("location", "is the registry's own region; a replica is in another")


def _cache_problems(inputs: Inputs) -> Iterator[Problem]:
    source = inputs.optional_string("sourceRepository")
    target = inputs.optional_string("targetRepository")
    if source and target and ("*" in source) != ("*" in target):
        yield Problem("targetRepository", "a wildcard must stand in both repositories or in none")


def _cache_conflicts(resource: Resource) -> Iterator[Problem]:
    target, id = resource.optional_string("targetRepository"), resource.id
    rules = resource.world.all("azure-native:containerregistry:CacheRule")
    for made in rules:
        if naming.same(made.id, id) or not naming.is_below(made.id, id.rsplit("/", 2)[0]):
            continue
        if target and made.inputs.get("targetRepository") == target:
            yield Problem(
                "targetRepository",
                f"{target!r} is filled by {made.id.rpartition('/')[2]!r} already; choose another",
            )


def _scope_map_problems(inputs: Inputs) -> Iterator[Problem]:
    for path, text in inputs.strings("actions"):
        if not _ACTION.fullmatch(text):
            yield Problem(
                path, f"{text!r} isn't an action such as repositories/models/content/read"
            )


def _outputs(resource: Resource) -> dict[str, Any]:
    name = resource.id.rpartition("/")[2].lower()
    region = location(resource) or ""
    sku = resource.at("sku")
    found: dict[str, Any] = {
        "loginServer": f"{name}.azurecr.io",
        "creationDate": MADE_AT,
        "status": {
            "displayStatus": "Ready",
            "message": "The registry is ready.",
            "timestamp": MADE_AT,
        },
        "dataEndpointHostNames": [f"{name}.{region}.data.azurecr.io"]
        if resource.flag("dataEndpointEnabled")
        else [],
        "privateEndpointConnections": [],
        "adminUserEnabled": bool(resource.flag("adminUserEnabled")),
        "zoneRedundancy": resource.optional_string("zoneRedundancy") or "Disabled",
    }
    if is_dictionary(sku):
        found["sku"] = {**sku, "tier": sku.get("name")}
    return found


def _dated(inputs: Inputs) -> dict[str, Any]:
    del inputs
    return {"creationDate": MADE_AT}


KINDS: Final = (
    AzureKind(
        ENVIRONMENT,
        f"{_ENVIRONMENT_TYPE}/{{environmentName}}",
        name=kinds.NameRule(
            2, 60, r"[A-Za-z][-A-Za-z0-9]*[A-Za-z0-9]",
            "letters, digits and hyphens, starting with a letter, ending with a letter or digit",
        ),
        is_held_by_references=True,
        # The forced replacements of pulumi-azure-native (reports/forceNewTypes.json).
        replaces=(
            "vnetConfiguration", "zoneRedundant", "infrastructureResourceGroup",
            "customDomainConfiguration.dnsSuffix", "availabilityZones",
        ),
        rules=(
            when(
                is_on("vnetConfiguration.internal"),
                required(
                    "vnetConfiguration.infrastructureSubnetId",
                    "an internal environment needs a subnet",
                ),
            ),
            when(
                equals("appLogsConfiguration.destination", "log-analytics"),
                required(
                    "appLogsConfiguration.logAnalyticsConfiguration.customerId",
                    "log-analytics needs it",
                ),
                required(
                    "appLogsConfiguration.logAnalyticsConfiguration.sharedKey",
                    "log-analytics needs it",
                ),
            ),
            texts("appLogsConfiguration.logAnalyticsConfiguration.customerId", checks.guid),
            _environment_problems,
        ),
        references=(relations.to("vnetConfiguration.infrastructureSubnetId", subnets.TYPE),),
        crosschecks=(_environment_conflicts,),
        computed=_environment_outputs,
    ),
    AzureKind(
        "azure-native:app:ContainerApp",
        "Microsoft.App/containerApps/{containerAppName}",
        name=kinds.NameRule(
            2, 32, r"[a-z](?:-?[a-z0-9])*",
            "lower-case letters, digits and single "
            "hyphens, starting with a letter, ending with a letter or digit",
        ),
        replaces=("environmentId", "managedEnvironmentId", "extendedLocation"),
        rules=(
            refused(
                "environmentId", "is missing: name the environment that the app runs in",
                absent("environmentId", "managedEnvironmentId"),
            ),
            refused(
                "template.containers", "is missing: an app needs a container",
                absent("template.containers[0]"),
            ),
            between("template.scale.minReplicas", 0, 1000),
            between("template.scale.maxReplicas", 1, 1000),
            between("configuration.ingress.targetPort", 1, 65535),
            when(
                equals("configuration.ingress.transport", "tcp"),
                between("configuration.ingress.exposedPort", 1, 65535),
                # Source: github.com/microsoft/azure-container-apps/issues/375 (2022-10-17). The
                # SDK's class says false by itself.
                refused(
                    "configuration.ingress.allowInsecure",
                    "goes with HTTP only; leave it out with the transport tcp",
                    is_on("configuration.ingress.allowInsecure"),
                ),
            ),
            _secrets,
            _app_problems,
        ),
        references=(
            relations.to(
                "environmentId", _ENVIRONMENT_TYPE, "Microsoft.App/connectedEnvironments",
            ),
            relations.to(
                "managedEnvironmentId", _ENVIRONMENT_TYPE, "Microsoft.App/connectedEnvironments",
            ),
        ),
        crosschecks=(_app_conflicts,),
        computed=_app_outputs,
    ),
    AzureKind(
        "azure-native:app:ManagedEnvironmentsStorage",
        f"{_ENVIRONMENT_TYPE}/{{environmentName}}/storages/{{storageName}}",
        name=kinds.NameRule(2, 32, r"[A-Za-z0-9-]+", "letters, digits and hyphens"),
    ),
    AzureKind(
        REGISTRY,
        _PATH,
        name=kinds.REGISTRY,
        is_global_name=True,
        # The key can be changed later, encryption can't be switched on or off
        # (container-registry/tutorial-enable-customer-managed-keys).
        replaces=("encryption.status", "zoneRedundancy"),
        rules=(
            between("policies.retentionPolicy.days", 0, 365, "days"),
            between("policies.softDeletePolicy.retentionDays", 1, 90, "days"),
            refused(
                "policies.softDeletePolicy", "doesn't go with the retention policy; choose one",
                all_of(
                    equals("policies.retentionPolicy.status", "enabled"),
                    equals("policies.softDeletePolicy.status", "enabled"),
                ),
            ),
            when(
                equals("encryption.status", "enabled"),
                required("encryption.keyVaultProperties.keyIdentifier", "name the key"),
                required(
                    _KEY_IDENTITY,
                    "give the client id of the identity that reads the key",
                ),
                refused(
                    "identity",
                    "an own key needs a user-assigned identity: the key must be "
                    "readable before the registry exists",
                    any_of(equals("identity.type", "SystemAssigned"), absent("identity")),
                ),
            ),
            texts(_KEY_IDENTITY, _identity),
            refused(
                "identity.type",
                "has to have SystemAssigned: the key is read as the registry's own identity",
                all_of(equals(_KEY_IDENTITY, _SYSTEM), equals("identity.type", "UserAssigned")),
            ),
            _encryption,
            _problems,
        ),
        creation_rules=(
            refused(
                _KEY_IDENTITY,
                "the key must be readable before the registry exists, which has no identity of "
                "its own then: make it with a user-assigned one and a key of a vault that is "
                "open, and move it to this key afterwards (falaj up does both)",
                equals(_KEY_IDENTITY, _SYSTEM),
            ),
        ),
        crosschecks=(_conflicts,),
        computed=_outputs,
    ),
    AzureKind(
        REPLICATION,
        f"{_PATH}/replications/{{replicationName}}",
        name=kinds.REGISTRY,
        replaces=("zoneRedundancy",),
        rules=(_replication_problems,),
        crosschecks=(_replication_conflicts,),
    ),
    AzureKind(
        "azure-native:containerregistry:CacheRule",
        f"{_PATH}/cacheRules/{{cacheRuleName}}",
        name=kinds.NameRule(5, 50, r"[A-Za-z0-9-]*", "letters, digits and hyphens"),
        replaces=("sourceRepository", "targetRepository"),
        rules=(
            formed(
                "sourceRepository", _SOURCE,
                "isn't a repository with its registry, such as docker.io/library/busybox",
            ),
            required("sourceRepository", "a cache rule names both repositories"),
            required("targetRepository", "a cache rule names both repositories"),
            _cache_problems,
        ),
        references=(
            relations.to(
                "credentialSetResourceId", "Microsoft.ContainerRegistry/registries/credentialSets",
            ),
        ),
        crosschecks=(_cache_conflicts,),
        computed=_dated,
    ),
    AzureKind(
        "azure-native:containerregistry:CredentialSet",
        f"{_PATH}/credentialSets/{{credentialSetName}}",
        name=kinds.REGISTRY_ITEM,
        is_held_by_references=True,
        replaces=("loginServer",),
        computed=_dated,
    ),
    AzureKind(
        "azure-native:containerregistry:ScopeMap",
        f"{_PATH}/scopeMaps/{{scopeMapName}}",
        name=kinds.REGISTRY_ITEM,
        is_held_by_references=True,
        rules=(_scope_map_problems,),
        computed=_dated,
    ),
    AzureKind(
        "azure-native:containerregistry:Token",
        f"{_PATH}/tokens/{{tokenName}}",
        name=kinds.REGISTRY_ITEM,
        rules=(required("scopeMapId", "say what the token may do"),),
        computed=_dated,
    ),
)  # fmt: skip
