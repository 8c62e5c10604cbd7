"""Microsoft.Storage: accounts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, invented, keys, naming, places
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.model import Problem

ACCOUNT: Final = "azure-native:storage:StorageAccount"
PATH: Final = "Microsoft.Storage/storageAccounts/{accountName}"
_SERVICES: Final = ("blob", "file", "queue", "table", "dfs", "web")

# Which redundancy each kind of account takes.
# Source: storage/common/storage-account-overview (types of storage accounts).
_SKUS: Final = {
    "BlockBlobStorage": ("Premium_LRS", "Premium_ZRS"),
    "FileStorage": (
        "Premium_LRS",
        "Premium_ZRS",
        "PremiumV2_LRS",
        "PremiumV2_ZRS",
        "StandardV2_LRS",
        "StandardV2_GRS",
        "StandardV2_ZRS",
        "StandardV2_GZRS",
    ),
    "BlobStorage": ("Standard_LRS", "Standard_GRS", "Standard_RAGRS"),
    "Storage": ("Standard_LRS", "Standard_GRS", "Standard_RAGRS", "Standard_ZRS"),
    "StorageV2": (
        "Standard_LRS",
        "Standard_GRS",
        "Standard_RAGRS",
        "Standard_ZRS",
        "Standard_GZRS",
        "Standard_RAGZRS",
        "Premium_LRS",
    ),
}


def _account_problems(ask: Ask) -> Iterator[Problem]:
    kind, sku = ask.text("kind"), ask.text("sku.name")
    if kind in _SKUS and sku and sku not in _SKUS[kind]:
        yield Problem(
            "sku.name",
            f"{sku} doesn't go with the kind {kind}; allowed are {', '.join(_SKUS[kind])}",
        )
    region = ask.region
    if sku and "ZRS" in sku and region and places.has_zones(region) is False:
        yield Problem(
            "sku.name",
            f"{sku} needs availability zones, which "
            f"{places.display_name(region)} doesn't have; choose Standard_LRS",
        )
    if ask.is_given("accessTier") and kind in ("Storage", "FileStorage"):
        yield Problem("accessTier", f"doesn't go with the kind {kind}; leave it out")
    if ask.is_absent("accessTier") and kind == "BlobStorage":
        yield Problem("accessTier", "is missing: the kind BlobStorage needs one, such as Hot")
    if ask.text("minimumTlsVersion") == "TLS1_3":
        yield Problem(
            "minimumTlsVersion",
            "TLS1_3 isn't supported by the service as a minimum; choose TLS1_2",
        )
    if ask.flag("isSftpEnabled") and ask.at("isHnsEnabled") in (None, False):
        yield Problem("isSftpEnabled", "needs isHnsEnabled; set it too")
    if ask.flag("enableNfsV3"):
        if ask.at("isHnsEnabled") in (None, False):
            yield Problem("enableNfsV3", "needs isHnsEnabled; set it too")
        if ask.at("networkRuleSet.defaultAction") == "Allow":
            yield Problem(
                "networkRuleSet.defaultAction",
                "an account with NFS must be closed to the public; set Deny and allow subnets",
            )
    yield from _encryption(ask)
    yield from _immutability(ask)
    for path, _ in ask.items("networkRuleSet.virtualNetworkRules"):
        yield from checks.resource_id(
            f"{path}.virtualNetworkResourceId",
            ask.text(f"{path}.virtualNetworkResourceId"),
            "Microsoft.Network/virtualNetworks/subnets",
        )
    for path, _ in ask.items("networkRuleSet.ipRules"):
        text = ask.text(f"{path}.iPAddressOrRange")
        if text and "/" in text:
            yield from checks.cidr(f"{path}.iPAddressOrRange", text)


def _encryption(ask: Ask) -> Iterator[Problem]:
    source = ask.text("encryption.keySource")
    base = "encryption.keyVaultProperties"
    if source == "Microsoft.Keyvault":
        for name in ("keyName", "keyVaultUri"):
            yield from checks.needs(
                ask, f"{base}.{name}", "an own key is named by its vault's address and its name"
            )
        if ask.is_absent("identity.type") or ask.text("identity.type") == "None":
            yield Problem(
                "identity",
                "is missing: the account reads its key by a managed identity; give it one",
            )
        own = ask.text("encryption.encryptionIdentity.encryptionUserAssignedIdentity")
        if ask.text("identity.type") == "UserAssigned" and ask.is_absent(
            "encryption.encryptionIdentity.encryptionUserAssignedIdentity"
        ):
            yield Problem(
                "encryption.encryptionIdentity.encryptionUserAssignedIdentity",
                "is missing: name which of the account's identities reads the key",
            )
        names = [item.lower() for item in ask.names("identity.userAssignedIdentities")]
        if own and names and own.lower() not in names:
            yield Problem(
                "encryption.encryptionIdentity.encryptionUserAssignedIdentity",
                "isn't among the account's own identities; add it to "
                "identity.userAssignedIdentities",
            )
    elif ask.is_given(base) and source is not None:
        yield Problem(
            "encryption.keySource", f"{source} takes no key of a vault; set Microsoft.Keyvault"
        )
    uri = ask.text(f"{base}.keyVaultUri")
    if uri and keys.parse(uri) is None:
        yield Problem(
            f"{base}.keyVaultUri",
            f"{uri!r} isn't the address of a vault; it looks like https://NAME.vault.azure.net/",
        )


def _immutability(ask: Ask) -> Iterator[Problem]:
    base = "immutableStorageWithVersioning"
    if ask.flag(f"{base}.enabled") and ask.flag("isHnsEnabled"):
        # Source: storage/blobs/immutable-version-level-worm-policies (hierarchical namespace).
        yield Problem(f"{base}.enabled", "doesn't go with isHnsEnabled; choose one")
    yield from checks.between(
        ask, f"{base}.immutabilityPolicy.immutabilityPeriodSinceCreationInDays", 1, 146000, "days"
    )


def _account_conflicts(ask: Ask) -> Iterator[Problem]:
    base = "encryption.keyVaultProperties"
    if ask.text("encryption.keySource") == "Microsoft.Keyvault":
        # The vault may be in another region: storage/common/customer-managed-keys-overview.
        yield from keys.usable(
            ask,
            f"{base}.keyVaultUri",
            ask.text(f"{base}.keyVaultUri"),
            key=ask.text(f"{base}.keyName"),
        )


def _account_outputs(ask: Ask) -> dict[str, Any]:
    name = (ask.id or "").rpartition("/")[2].lower()
    region, sku = location(ask), ask.text("sku.name") or ""
    endpoints = {part: f"https://{name}.{part}.core.windows.net/" for part in _SERVICES}
    endpoints["web"] = f"https://{name}.z1.web.core.windows.net/"
    found: dict[str, Any] = {
        "primaryEndpoints": endpoints,
        "primaryLocation": region,
        "statusOfPrimary": "available",
        "creationTime": invented.MOMENT,
        "keyCreationTime": {"key1": invented.MOMENT, "key2": invented.MOMENT},
        "privateEndpointConnections": [],
        "sku": {"name": sku, "tier": "Premium" if sku.startswith("Premium") else "Standard"},
        "enableHttpsTrafficOnly": ask.at("enableHttpsTrafficOnly") is not False,
        "isHnsEnabled": ask.at("isHnsEnabled"),
    }
    if "GRS" in sku or "GZRS" in sku:
        pair = {"uaenorth": "uaecentral", "uaecentral": "uaenorth"}.get(region or "")
        found |= {"secondaryLocation": pair, "statusOfSecondary": "available"}
    return found


KINDS: Final = (
    Kind(
        ACCOUNT,
        PATH,
        name=naming.STORAGE_ACCOUNT,
        is_global_name=True,
        replaces=frozenset(
            {
                "isHnsEnabled",
                "encryption.requireInfrastructureEncryption",
                "enableNfsV3",
                "immutableStorageWithVersioning.enabled",
                "dnsEndpointType",
                "extendedLocation",
            }
        ),
        problems=_account_problems,
        conflicts=_account_conflicts,
        outputs=_account_outputs,
    ),
)
