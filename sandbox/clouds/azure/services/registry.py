"""Microsoft.ContainerRegistry: registries, replicas, caches and tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, checks, invented, keys, known, naming, places
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.model import Problem

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


def _problems(ask: Ask) -> Iterator[Problem]:
    sku = ask.text("sku.name")
    if sku not in (None, "Premium"):
        for path, what in _PREMIUM.items():
            given = ask.at(f"{path}.status")
            if ask.is_given(path) and given not in ("disabled", "Disabled"):
                yield Problem(path, f"{what} needs the SKU Premium; given is {sku}")
        for path, value in (
            ("publicNetworkAccess", "Disabled"),
            ("zoneRedundancy", "Enabled"),
            ("dataEndpointEnabled", True),
        ):
            if ask.at(path) == value:
                yield Problem(path, f"{value} needs the SKU Premium; given is {sku}")
    region = ask.region
    if ask.text("zoneRedundancy") == "Enabled" and region and places.has_zones(region) is False:
        yield Problem(
            "zoneRedundancy",
            f"{places.display_name(region)} has no availability zones; leave it out",
        )
    if (
        ask.text("policies.exportPolicy.status") == "disabled"
        and ask.text("publicNetworkAccess") != "Disabled"
        and not (ask.is_given("publicNetworkAccess") and ask.text("publicNetworkAccess") is None)
    ):
        # Source: container-registry/data-loss-prevention.
        yield Problem(
            "publicNetworkAccess", "exports can be stopped only where it is Disabled; set it"
        )
    yield from checks.between(ask, "policies.retentionPolicy.days", 0, 365, "days")
    yield from checks.between(ask, "policies.softDeletePolicy.retentionDays", 1, 90, "days")
    if (
        ask.at("policies.retentionPolicy.status") == "enabled"
        and ask.at("policies.softDeletePolicy.status") == "enabled"
    ):
        yield Problem(
            "policies.softDeletePolicy", "doesn't go with the retention policy; choose one"
        )
    yield from _encryption(ask)
    for path, _ in ask.items("networkRuleSet.ipRules"):
        text = ask.text(f"{path}.iPAddressOrRange")
        if text and "/" in text:
            yield from checks.cidr(f"{path}.iPAddressOrRange", text)


def _encryption(ask: Ask) -> Iterator[Problem]:
    base = "encryption.keyVaultProperties"
    if ask.text("encryption.status") == "enabled":
        yield from checks.needs(ask, f"{base}.keyIdentifier", "name the key")
        yield from checks.needs(
            ask, f"{base}.identity", "give the client id of the identity that reads the key"
        )
        if ask.text("identity.type") == "SystemAssigned" or ask.is_absent("identity"):
            yield Problem(
                "identity",
                "an own key needs a user-assigned identity: the key must be "
                "readable before the registry exists",
            )
    yield from keys.address(f"{base}.keyIdentifier", ask.text(f"{base}.keyIdentifier"))
    yield from checks.guid(f"{base}.identity", ask.text(f"{base}.identity"))


def _conflicts(ask: Ask) -> Iterator[Problem]:
    path = "encryption.keyVaultProperties.keyIdentifier"
    yield from keys.usable(ask, path, ask.text(path))
    client = ask.text("encryption.keyVaultProperties.identity")
    names = ask.names("identity.userAssignedIdentities")
    if client and names and client not in {invented.guid("client", item) for item in names}:
        yield Problem(
            "encryption.keyVaultProperties.identity",
            "isn't the client id of one of the "
            "registry's own identities; take it from the identity's outputs",
        )


def _replication_problems(ask: Ask) -> Iterator[Problem]:
    region = ask.region
    if ask.text("zoneRedundancy") == "Enabled" and region and places.has_zones(region) is False:
        yield Problem(
            "zoneRedundancy",
            f"{places.display_name(region)} has no availability zones; leave it out",
        )


def _parent(ask: Ask) -> Ask | None:
    if ask.world is None or ask.id is None:
        return None
    made = known.by_id(ask.world, ask.id.rsplit("/", 2)[0])
    return Ask(REGISTRY, made.inputs, {}, ask.world, made.id) if made else None


def _replication_conflicts(ask: Ask) -> Iterator[Problem]:
    parent = _parent(ask)
    if parent is None:
        return
    if parent.text("sku.name") not in (None, "Premium"):
        yield Problem("registryName", "a replica needs a registry of the SKU Premium")
    if parent.region and parent.region == ask.region:
        yield Problem("location", "is the registry's own region; a replica is in another")


def _cache_problems(ask: Ask) -> Iterator[Problem]:
    source = ask.text("sourceRepository")
    if source and not _SOURCE.fullmatch(source):
        yield Problem(
            "sourceRepository",
            f"{source!r} isn't a repository with its registry, such as docker.io/library/busybox",
        )
    for name in ("sourceRepository", "targetRepository"):
        yield from checks.needs(ask, name, "a cache rule names both repositories")
    target = ask.text("targetRepository")
    if source and target and ("*" in source) != ("*" in target):
        yield Problem("targetRepository", "a wildcard must stand in both repositories or in none")
    credentials = ask.text("credentialSetResourceId")
    yield from checks.resource_id(
        "credentialSetResourceId",
        credentials,
        "Microsoft.ContainerRegistry/registries/credentialSets",
    )


def _cache_conflicts(ask: Ask) -> Iterator[Problem]:
    target, id = ask.text("targetRepository"), ask.id
    rules = ask.world.all("azure-native:containerregistry:CacheRule") if ask.world else ()
    for made in rules if id else ():
        if id is None or arm.same(made.id, id) or not arm.is_below(made.id, id.rsplit("/", 2)[0]):
            continue
        if target and made.inputs.get("targetRepository") == target:
            yield Problem(
                "targetRepository",
                f"{target!r} is filled by {made.id.rpartition('/')[2]!r} already; choose another",
            )


def _scope_map_problems(ask: Ask) -> Iterator[Problem]:
    for path, text in ask.texts("actions"):
        if not _ACTION.fullmatch(text):
            yield Problem(
                path, f"{text!r} isn't an action such as repositories/models/content/read"
            )


def _token_problems(ask: Ask) -> Iterator[Problem]:
    yield from checks.needs(ask, "scopeMapId", "say what the token may do")


def _outputs(ask: Ask) -> dict[str, Any]:
    name = (ask.id or "").rpartition("/")[2].lower()
    region = location(ask) or ""
    sku = ask.at("sku")
    found: dict[str, Any] = {
        "loginServer": f"{name}.azurecr.io",
        "creationDate": invented.MOMENT,
        "status": {
            "displayStatus": "Ready",
            "message": "The registry is ready.",
            "timestamp": invented.MOMENT,
        },
        "dataEndpointHostNames": [f"{name}.{region}.data.azurecr.io"]
        if ask.flag("dataEndpointEnabled")
        else [],
        "privateEndpointConnections": [],
        "adminUserEnabled": bool(ask.flag("adminUserEnabled")),
        "zoneRedundancy": ask.text("zoneRedundancy") or "Disabled",
    }
    if isinstance(sku, dict):
        found["sku"] = {**sku, "tier": sku.get("name")}
    return found


def _dated(ask: Ask) -> dict[str, Any]:
    del ask
    return {"creationDate": invented.MOMENT}


KINDS: Final = (
    Kind(
        REGISTRY,
        _PATH,
        name=naming.REGISTRY,
        is_global_name=True,
        # The key can be changed later, encryption can't be switched on or off
        # (container-registry/tutorial-enable-customer-managed-keys).
        replaces=frozenset({"encryption.status", "zoneRedundancy"}),
        problems=_problems,
        conflicts=_conflicts,
        outputs=_outputs,
    ),
    Kind(
        REPLICATION,
        f"{_PATH}/replications/{{replicationName}}",
        name=naming.REGISTRY,
        replaces=frozenset({"zoneRedundancy"}),
        problems=_replication_problems,
        conflicts=_replication_conflicts,
    ),
    Kind(
        "azure-native:containerregistry:CacheRule",
        f"{_PATH}/cacheRules/{{cacheRuleName}}",
        name=naming.NameRule(5, 50, r"[A-Za-z0-9-]*", "letters, digits and hyphens"),
        replaces=frozenset({"sourceRepository", "targetRepository"}),
        problems=_cache_problems,
        conflicts=_cache_conflicts,
        outputs=_dated,
    ),
    Kind(
        "azure-native:containerregistry:CredentialSet",
        f"{_PATH}/credentialSets/{{credentialSetName}}",
        name=naming.REGISTRY_ITEM,
        is_held_by_references=True,
        replaces=frozenset({"loginServer"}),
        outputs=_dated,
    ),
    Kind(
        "azure-native:containerregistry:ScopeMap",
        f"{_PATH}/scopeMaps/{{scopeMapName}}",
        name=naming.REGISTRY_ITEM,
        is_held_by_references=True,
        problems=_scope_map_problems,
        outputs=_dated,
    ),
    Kind(
        "azure-native:containerregistry:Token",
        f"{_PATH}/tokens/{{tokenName}}",
        name=naming.REGISTRY_ITEM,
        problems=_token_problems,
        outputs=_dated,
    ),
)
