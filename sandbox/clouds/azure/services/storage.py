"""Microsoft.Storage: accounts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, generated, keys, links, naming, places, results
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import (
    absent,
    all_of,
    between,
    equals,
    is_off,
    is_on,
    refused,
    when,
)

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


def _account_problems(inputs: Inputs) -> Iterator[Problem]:
    kind, sku = inputs.optional_string("kind"), inputs.optional_string("sku.name")
    if kind in _SKUS and sku and sku not in _SKUS[kind]:
        yield Problem(
            "sku.name",
            f"{sku} doesn't go with the kind {kind}; allowed are {', '.join(_SKUS[kind])}",
        )
    region = places.region(inputs)
    if sku and "ZRS" in sku and region and places.has_zones(region) is False:
        yield Problem(
            "sku.name",
            f"{sku} needs availability zones, which "
            f"{places.display_name(region)} doesn't have; choose Standard_LRS",
        )
    if inputs.is_given("accessTier") and kind in ("Storage", "FileStorage"):
        yield Problem("accessTier", f"doesn't go with the kind {kind}; leave it out")
    for path, _ in inputs.items("networkRuleSet.ipRules"):
        text = inputs.optional_string(f"{path}.iPAddressOrRange")
        if text and "/" in text:
            yield from checks.cidr(f"{path}.iPAddressOrRange", text)


def _encryption(inputs: Inputs) -> Iterator[Problem]:
    source = inputs.optional_string("encryption.keySource")
    base = "encryption.keyVaultProperties"
    if source == "Microsoft.Keyvault":
        for name in ("keyName", "keyVaultUri"):
            yield from checks.needs(
                inputs, f"{base}.{name}", "an own key is named by its vault's address and its name"
            )
        if inputs.is_absent("identity.type") or inputs.optional_string("identity.type") == "None":
            yield Problem(
                "identity",
                "is missing: the account reads its key by a managed identity; give it one",
            )
        own = inputs.optional_string(
            "encryption.encryptionIdentity.encryptionUserAssignedIdentity"
        )
        if inputs.optional_string("identity.type") == "UserAssigned" and inputs.is_absent(
            "encryption.encryptionIdentity.encryptionUserAssignedIdentity"
        ):
            yield Problem(
                "encryption.encryptionIdentity.encryptionUserAssignedIdentity",
                "is missing: name which of the account's identities reads the key",
            )
        names = [item.lower() for item in results.identity_names(inputs)]
        if own and names and own.lower() not in names:
            yield Problem(
                "encryption.encryptionIdentity.encryptionUserAssignedIdentity",
                "isn't among the account's own identities; add it to "
                "identity.userAssignedIdentities",
            )
    elif inputs.is_given(base) and source is not None:
        yield Problem(
            "encryption.keySource", f"{source} takes no key of a vault; set Microsoft.Keyvault"
        )
    uri = inputs.optional_string(f"{base}.keyVaultUri")
    if uri and keys.parse(uri) is None:
        yield Problem(
            f"{base}.keyVaultUri",
            f"{uri!r} isn't the address of a vault; it looks like https://NAME.vault.azure.net/",
        )


def _account_conflicts(resource: Resource) -> Iterator[Problem]:
    base = "encryption.keyVaultProperties"
    if resource.optional_string("encryption.keySource") == "Microsoft.Keyvault":
        # The vault may be in another region: storage/common/customer-managed-keys-overview.
        yield from keys.usable(
            resource,
            f"{base}.keyVaultUri",
            resource.optional_string(f"{base}.keyVaultUri"),
            key=resource.optional_string(f"{base}.keyName"),
        )


def _account_outputs(resource: Resource) -> dict[str, Any]:
    name = resource.id.rpartition("/")[2].lower()
    region, sku = location(resource), resource.optional_string("sku.name") or ""
    endpoints = {part: f"https://{name}.{part}.core.windows.net/" for part in _SERVICES}
    endpoints["web"] = f"https://{name}.z1.web.core.windows.net/"
    found: dict[str, Any] = {
        "primaryEndpoints": endpoints,
        "primaryLocation": region,
        "statusOfPrimary": "available",
        "creationTime": generated.MOMENT,
        "keyCreationTime": {"key1": generated.MOMENT, "key2": generated.MOMENT},
        "privateEndpointConnections": [],
        "sku": {"name": sku, "tier": "Premium" if sku.startswith("Premium") else "Standard"},
        "enableHttpsTrafficOnly": resource.at("enableHttpsTrafficOnly") is not False,
        "isHnsEnabled": resource.at("isHnsEnabled"),
    }
    if "GRS" in sku or "GZRS" in sku:
        pair = {"uaenorth": "uaecentral", "uaecentral": "uaenorth"}.get(region or "")
        found |= {"secondaryLocation": pair, "statusOfSecondary": "available"}
    return found


KINDS: Final = (
    AzureKind(
        ACCOUNT,
        PATH,
        name=naming.STORAGE_ACCOUNT,
        is_global_name=True,
        replaces=(
            "isHnsEnabled", "encryption.requireInfrastructureEncryption", "enableNfsV3",
            "immutableStorageWithVersioning.enabled", "dnsEndpointType", "extendedLocation",
        ),
        rules=(
            refused(
                "accessTier", "is missing: the kind BlobStorage needs one, such as Hot",
                all_of(absent("accessTier"), equals("kind", "BlobStorage")),
            ),
            refused(
                "minimumTlsVersion",
                "TLS1_3 isn't supported by the service as a minimum; choose TLS1_2",
                equals("minimumTlsVersion", "TLS1_3"),
            ),
            refused(
                "isSftpEnabled", "needs isHnsEnabled; set it too",
                all_of(is_on("isSftpEnabled"), is_off("isHnsEnabled")),
            ),
            when(
                is_on("enableNfsV3"),
                refused("enableNfsV3", "needs isHnsEnabled; set it too", is_off("isHnsEnabled")),
                refused(
                    "networkRuleSet.defaultAction",
                    "an account with NFS must be closed to the public; set Deny and allow subnets",
                    equals("networkRuleSet.defaultAction", "Allow"),
                ),
            ),
            _encryption,
            # Source: storage/blobs/immutable-version-level-worm-policies (hierarchical namespace).
            refused(
                "immutableStorageWithVersioning.enabled",
                "doesn't go with isHnsEnabled; choose one",
                all_of(is_on("immutableStorageWithVersioning.enabled"), is_on("isHnsEnabled")),
            ),
            between(
                "immutableStorageWithVersioning.immutabilityPolicy.immutabilityPeriodSinceCreationInDays",
                1, 146000, "days",
            ),
            _account_problems,
        ),
        references=(
            links.to(
                "networkRuleSet.virtualNetworkRules[].virtualNetworkResourceId",
                "Microsoft.Network/virtualNetworks/subnets",
            ),
        ),
        crosschecks=(_account_conflicts,),
        computed=_account_outputs,
    ),
)  # fmt: skip
