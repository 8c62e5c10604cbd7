"""Microsoft.ContainerRegistry: registries, replicas, caches and tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import (
    arm,
    checks,
    existing,
    generated,
    keys,
    links,
    naming,
    places,
    results,
)
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import (
    absent,
    all_of,
    any_of,
    between,
    equals,
    formed,
    refused,
    required,
    texts,
    when,
)

REGISTRY: Final = "azure-native:containerregistry:Registry"
REPLICATION: Final = "azure-native:containerregistry:Replication"
_PATH: Final = "Microsoft.ContainerRegistry/registries/{registryName}"
# What a Premium registry alone has. Source: container-registry/container-registry-skus.
_PREMIUM: Final = {
    "encryption.keyVaultProperties": "an own key",
    "networkRuleSet": "network rules",
    "policies.retentionPolicy": "a retention policy",
    "policies.trustPolicy": "content trust",
    "policies.quarantinePolicy": "quarantine",
    "policies.exportPolicy": "an export policy",
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
            if inputs.is_given(path) and given not in ("disabled", "Disabled"):
                yield Problem(path, f"{what} needs the SKU Premium; given is {sku}")
        for path, value in (
            ("publicNetworkAccess", "Disabled"),
            ("zoneRedundancy", "Enabled"),
            ("dataEndpointEnabled", True),
        ):
            if inputs.at(path) == value:
                yield Problem(path, f"{value} needs the SKU Premium; given is {sku}")
    region = places.region(inputs)
    if (
        inputs.optional_string("zoneRedundancy") == "Enabled"
        and region
        and places.has_zones(region) is False
    ):
        yield Problem(
            "zoneRedundancy",
            f"{places.display_name(region)} has no availability zones; leave it out",
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
    yield from keys.address(
        f"{base}.keyIdentifier", inputs.optional_string(f"{base}.keyIdentifier")
    )


def _conflicts(resource: Resource) -> Iterator[Problem]:
    path = "encryption.keyVaultProperties.keyIdentifier"
    yield from keys.usable(resource, path, resource.optional_string(path))
    client = resource.optional_string("encryption.keyVaultProperties.identity")
    names = results.identity_names(resource)
    if client and names and client not in {generated.guid("client", item) for item in names}:
        yield Problem(
            "encryption.keyVaultProperties.identity",
            "isn't the client id of one of the "
            "registry's own identities; take it from the identity's outputs",
        )


def _replication_problems(inputs: Inputs) -> Iterator[Problem]:
    region = places.region(inputs)
    if (
        inputs.optional_string("zoneRedundancy") == "Enabled"
        and region
        and places.has_zones(region) is False
    ):
        yield Problem(
            "zoneRedundancy",
            f"{places.display_name(region)} has no availability zones; leave it out",
        )


def _parent(resource: Resource) -> Inputs | None:
    made = existing.by_id(resource.world, resource.id.rsplit("/", 2)[0])
    return Inputs(made.inputs) if made else None


def _replication_conflicts(resource: Resource) -> Iterator[Problem]:
    parent = _parent(resource)
    if parent is None:
        return
    if parent.optional_string("sku.name") not in (None, "Premium"):
        yield Problem("registryName", "a replica needs a registry of the SKU Premium")
    if places.region(parent) and places.region(parent) == places.region(resource):
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
        if arm.same(made.id, id) or not arm.is_below(made.id, id.rsplit("/", 2)[0]):
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
        "creationDate": generated.MOMENT,
        "status": {
            "displayStatus": "Ready",
            "message": "The registry is ready.",
            "timestamp": generated.MOMENT,
        },
        "dataEndpointHostNames": [f"{name}.{region}.data.azurecr.io"]
        if resource.flag("dataEndpointEnabled")
        else [],
        "privateEndpointConnections": [],
        "adminUserEnabled": bool(resource.flag("adminUserEnabled")),
        "zoneRedundancy": resource.optional_string("zoneRedundancy") or "Disabled",
    }
    if isinstance(sku, dict):
        found["sku"] = {**sku, "tier": sku.get("name")}
    return found


def _dated(inputs: Inputs) -> dict[str, Any]:
    del inputs
    return {"creationDate": generated.MOMENT}


KINDS: Final = (
    AzureKind(
        REGISTRY,
        _PATH,
        name=naming.REGISTRY,
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
                    "encryption.keyVaultProperties.identity",
                    "give the client id of the identity that reads the key",
                ),
                refused(
                    "identity",
                    "an own key needs a user-assigned identity: the key must be "
                    "readable before the registry exists",
                    any_of(equals("identity.type", "SystemAssigned"), absent("identity")),
                ),
            ),
            texts("encryption.keyVaultProperties.identity", checks.guid),
            _encryption,
            _problems,
        ),
        crosschecks=(_conflicts,),
        computed=_outputs,
    ),
    AzureKind(
        REPLICATION,
        f"{_PATH}/replications/{{replicationName}}",
        name=naming.REGISTRY,
        replaces=("zoneRedundancy",),
        rules=(_replication_problems,),
        crosschecks=(_replication_conflicts,),
    ),
    AzureKind(
        "azure-native:containerregistry:CacheRule",
        f"{_PATH}/cacheRules/{{cacheRuleName}}",
        name=naming.NameRule(5, 50, r"[A-Za-z0-9-]*", "letters, digits and hyphens"),
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
            links.to(
                "credentialSetResourceId", "Microsoft.ContainerRegistry/registries/credentialSets",
            ),
        ),
        crosschecks=(_cache_conflicts,),
        computed=_dated,
    ),
    AzureKind(
        "azure-native:containerregistry:CredentialSet",
        f"{_PATH}/credentialSets/{{credentialSetName}}",
        name=naming.REGISTRY_ITEM,
        is_held_by_references=True,
        replaces=("loginServer",),
        computed=_dated,
    ),
    AzureKind(
        "azure-native:containerregistry:ScopeMap",
        f"{_PATH}/scopeMaps/{{scopeMapName}}",
        name=naming.REGISTRY_ITEM,
        is_held_by_references=True,
        rules=(_scope_map_problems,),
        computed=_dated,
    ),
    AzureKind(
        "azure-native:containerregistry:Token",
        f"{_PATH}/tokens/{{tokenName}}",
        name=naming.REGISTRY_ITEM,
        rules=(required("scopeMapId", "say what the token may do"),),
        computed=_dated,
    ),
)  # fmt: skip
