"""Microsoft.Storage: accounts, and what they hold: containers, shares, policies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, kinds, naming, regions, relations, resources
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.resources import location
from falaj.sandbox.clouds.azure.services import key_vault
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import (
    absent,
    all_of,
    between,
    equals,
    is_off,
    is_on,
    refused,
    required,
    when,
)
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.vendor import MADE_AT

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
    region = regions.region_of(inputs)
    if sku and "ZRS" in sku and region and regions.has_zones(region) is False:
        yield Problem(
            "sku.name",
            f"{sku} needs availability zones, which "
            f"{regions.display_name(region)} doesn't have; choose Standard_LRS",
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
            yield from required(
                f"{base}.{name}", "an own key is named by its vault's address and its name"
            )(inputs)
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
        names = [item.lower() for item in resources.identity_names(inputs)]
        has_none = inputs.optional_string("identity.type") == "SystemAssigned"
        if own and (names or has_none) and own.lower() not in names:
            yield Problem(
                "encryption.encryptionIdentity.encryptionUserAssignedIdentity",
                "isn't among the account's own identities; add it to "
                "identity.userAssignedIdentities",
            )
    elif inputs.is_given(base) and source is not None:
        yield Problem(
            "encryption.keySource", f"{source} takes no key of a vault; set Microsoft.Keyvault"
        )
    uri = f"{base}.keyVaultUri"
    yield from key_vault.vault_address(uri, inputs.optional_string(uri))


def _account_conflicts(resource: Resource) -> Iterator[Problem]:
    base = "encryption.keyVaultProperties"
    if resource.optional_string("encryption.keySource") == "Microsoft.Keyvault":
        # The vault may be in another region: storage/common/customer-managed-keys-overview.
        yield from key_vault.usable(
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
        "creationTime": MADE_AT,
        "keyCreationTime": {"key1": MADE_AT, "key2": MADE_AT},
        "privateEndpointConnections": [],
        "sku": {"name": sku, "tier": "Premium" if sku.startswith("Premium") else "Standard"},
        "enableHttpsTrafficOnly": resource.at("enableHttpsTrafficOnly") is not False,
        "isHnsEnabled": resource.at("isHnsEnabled"),
        # Resource Manager says nothing of these where no copy is elsewhere, and none failed over.
        "lastGeoFailoverTime": "",
        "secondaryLocation": "",
        "statusOfSecondary": "",
    }
    if "GRS" in sku or "GZRS" in sku:
        pair = {"uaenorth": "uaecentral", "uaecentral": "uaenorth"}.get(region or "")
        found |= {"secondaryLocation": pair, "statusOfSecondary": "available"}
    return found


_PREFIXES: Final = re.compile(r"(?!-)[a-z0-9-]{3,63}(?<!-)|\$root|\$web|\$logs")


def _container_problems(inputs: Inputs) -> Iterator[Problem]:
    name = inputs.optional_string("containerName")
    if name and not name.startswith("$"):
        yield from kinds.CONTAINER.check("containerName", name)
    elif name and name not in ("$root", "$web", "$logs"):
        yield Problem(
            "containerName",
            f"{name!r} isn't allowed; with a dollar there are $root, $web and $logs only",
        )


def _container_conflicts(resource: Resource) -> Iterator[Problem]:
    account = _account(resource)
    if account is None:
        return
    if resource.optional_string("publicAccess") in ("Blob", "Container") and (
        account.at("allowBlobPublicAccess") in (None, False)
    ):
        yield Problem("publicAccess", "the account doesn't allow public access; set None")
    if resource.flag("immutableStorageWithVersioning.enabled") and account.flag("isHnsEnabled"):
        yield Problem(
            "immutableStorageWithVersioning",
            "doesn't go with the account's isHnsEnabled; use a container's policy instead",
        )
    scope = resource.optional_string("defaultEncryptionScope")
    if scope and scope != "$account-encryption-key":
        parent = resource.id.split("/blobServices/")[0]
        if not resources.exists(resource.world, f"{parent}/encryptionScopes/{scope}"):
            yield Problem(
                "defaultEncryptionScope",
                f"the account has no encryption scope {scope!r}; make it first",
            )


def _account(resource: Resource) -> Inputs | None:
    segments = resource.id.split("/")
    made = resources.by_id(resource.world, "/".join(segments[:9]))
    return Inputs(made.inputs) if made else None


def _service_problems(inputs: Inputs) -> Iterator[Problem]:
    if inputs.flag("restorePolicy.enabled"):
        yield from required("restorePolicy.days", "say for how many days")(inputs)
        # Source: storage/blobs/point-in-time-restore-overview (prerequisites).
        for needed in (
            "isVersioningEnabled",
            "changeFeed.enabled",
            "deleteRetentionPolicy.enabled",
        ):
            if inputs.at(needed) in (None, False):
                yield Problem(needed, "restorePolicy needs it; set it to true")
        kept, back = (
            inputs.number("deleteRetentionPolicy.days"),
            inputs.number("restorePolicy.days"),
        )
        if kept is not None and back is not None and back >= kept:
            yield Problem(
                "restorePolicy.days",
                f"{back:g} must be less than the {kept:g} days of deleteRetentionPolicy",
            )


def _service_conflicts(resource: Resource) -> Iterator[Problem]:
    account = _account(resource)
    if account and account.flag("isHnsEnabled"):
        for path in ("isVersioningEnabled", "changeFeed.enabled", "restorePolicy.enabled"):
            if resource.flag(path):
                # Source: storage/blobs/storage-feature-support-in-storage-accounts.
                yield Problem(path, "doesn't go with the account's isHnsEnabled; leave it out")


def _lifecycle_problems(inputs: Inputs) -> Iterator[Problem]:
    rules = inputs.items("policy.rules")
    if not 1 <= len(rules) <= 100 and isinstance(inputs.at("policy.rules"), list):
        yield Problem("policy.rules", f"{len(rules)} rules are given; allowed are 1 to 100")
    names: set[str] = set()
    for path, _ in rules:
        name = inputs.optional_string(f"{path}.name")
        if name and not re.fullmatch(r"[A-Za-z0-9-]{1,256}", name):
            yield Problem(
                f"{path}.name", f"{name!r} isn't allowed; allowed are letters, digits and hyphens"
            )
        if name in names:
            yield Problem(f"{path}.name", f"{name!r} is used twice; give each rule its own name")
        names.add(name or "")
        actions = f"{path}.definition.actions"
        if all(
            inputs.is_absent(f"{actions}.{part}") for part in ("baseBlob", "snapshot", "version")
        ):
            yield Problem(actions, "is empty: say what happens to baseBlob, snapshot or version")
        kinds = f"{path}.definition.filters.blobTypes"
        for where, text in inputs.strings(kinds):
            yield from checks.one_of(where, text, ("blockBlob", "appendBlob"))
        yield from required(kinds, "name blockBlob or appendBlob")(inputs)
        for where, text in inputs.strings(f"{path}.definition.filters.prefixMatch"):
            if not _PREFIXES.fullmatch(text.split("/")[0]):
                yield Problem(where, f"{text!r} must start with the name of a container")


def _tracked_access(resource: Resource) -> Iterator[Problem]:
    """What goes by last access needs the record of it (storage/blobs/lifecycle-management)."""
    parent = resource.id.rsplit("/", 2)[0]
    tracked = any(
        naming.is_below(made.id, parent)
        and Inputs(made.inputs).at("lastAccessTimeTrackingPolicy.enable") not in (None, False)
        for made in resource.world.all("azure-native:storage:BlobServiceProperties")
    )
    for path, _ in resource.items("policy.rules"):
        for action in ("delete", "tierToCool", "tierToCold", "tierToArchive", "tierToHot"):
            where = (
                f"{path}.definition.actions.baseBlob.{action}.daysAfterLastAccessTimeGreaterThan"
            )
            if resource.is_given(where) and not tracked:
                yield Problem(
                    where,
                    "needs lastAccessTimeTrackingPolicy.enable on the account's blob service; set "
                    "it (and let this resource depend on it)",
                )


def _share_problems(inputs: Inputs) -> Iterator[Problem]:
    if (
        inputs.optional_string("enabledProtocols") != "NFS"
        and inputs.is_given("rootSquash")
        and not (
            inputs.is_given("enabledProtocols")
            and inputs.optional_string("enabledProtocols") is None
        )
    ):
        yield Problem("rootSquash", "goes with enabledProtocols NFS only")


def _share_conflicts(resource: Resource) -> Iterator[Problem]:
    account = _account(resource)
    if account is None:
        return
    is_premium = account.optional_string("kind") == "FileStorage"
    if resource.optional_string("enabledProtocols") == "NFS" and not is_premium:
        yield Problem("enabledProtocols", "NFS needs an account of the kind FileStorage")
    quota = resource.number("shareQuota")
    if (
        is_premium
        and quota is not None
        and quota < 100
        and "V2" not in (account.optional_string("sku.name") or "")
    ):
        yield Problem("shareQuota", f"{quota:g} GiB is too small; premium shares start at 100 GiB")
    tier = resource.optional_string("accessTier")
    if tier == "Premium" and not is_premium:
        yield Problem("accessTier", "Premium needs an account of the kind FileStorage")
    if tier in ("Hot", "Cool", "TransactionOptimized") and is_premium:
        yield Problem("accessTier", f"{tier} doesn't go with the kind FileStorage; leave it out")


def _scope_problems(inputs: Inputs) -> Iterator[Problem]:
    yield from key_vault.address(
        "keyVaultProperties.keyUri", inputs.optional_string("keyVaultProperties.keyUri")
    )


def _scope_conflicts(resource: Resource) -> Iterator[Problem]:
    uri = resource.optional_string("keyVaultProperties.keyUri")
    yield from key_vault.usable(resource, "keyVaultProperties.keyUri", uri)


def _container_blockers(resource: Resource) -> Iterator[Problem]:
    policies = "azure-native:storage:BlobContainerImmutabilityPolicy"
    for made in resource.world.all(policies):
        if naming.is_below(made.id, resource.id) and made.outputs.get("state") == "Locked":
            yield Problem(
                "",
                "its immutability policy is locked; it can go when all that it holds "
                "is past its time",
            )


def _container_outputs(inputs: Inputs) -> dict[str, Any]:
    return {
        "lastModifiedTime": MADE_AT,
        "leaseState": "Available",
        "leaseStatus": "Unlocked",
        "hasImmutabilityPolicy": False,
        "hasLegalHold": False,
        "publicAccess": inputs.optional_string("publicAccess") or "None",
        # Of leases that there are, and of what was deleted.
        "leaseDuration": "",
        "deletedTime": "",
        "version": "",
    }


def _policy_outputs(inputs: Inputs) -> dict[str, Any]:
    del inputs
    return {"state": "Unlocked"}


def _stamped(inputs: Inputs) -> dict[str, Any]:
    del inputs
    return {"lastModifiedTime": MADE_AT}


def _scope_outputs(inputs: Inputs) -> dict[str, Any]:
    return {"creationTime": MADE_AT, **_stamped(inputs)}


KINDS: Final = (
    AzureKind(
        ACCOUNT,
        PATH,
        name=kinds.STORAGE_ACCOUNT,
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
            relations.to(
                "networkRuleSet.virtualNetworkRules[].virtualNetworkResourceId",
                "Microsoft.Network/virtualNetworks/subnets",
            ),
        ),
        crosschecks=(_account_conflicts,),
        computed=_account_outputs,
    ),
    AzureKind(
        "azure-native:storage:BlobContainer",
        f"{PATH}/blobServices/default/containers/{{containerName}}",
        rules=(_container_problems,),
        crosschecks=(_container_conflicts,),
        delete_blockers=(_container_blockers,),
        computed=_container_outputs,
    ),
    AzureKind(
        "azure-native:storage:BlobServiceProperties",
        f"{PATH}/blobServices/{{blobServicesName}}",
        name=kinds.only("default"),
        rules=(
            between("deleteRetentionPolicy.days", 1, 365, "days"),
            when(
                is_on("deleteRetentionPolicy.enabled"),
                required("deleteRetentionPolicy.days", "say for how many days"),
            ),
            between("containerDeleteRetentionPolicy.days", 1, 365, "days"),
            when(
                is_on("containerDeleteRetentionPolicy.enabled"),
                required("containerDeleteRetentionPolicy.days", "say for how many days"),
            ),
            between("changeFeed.retentionInDays", 1, 146000, "days"),
            _service_problems,
        ),
        crosschecks=(_service_conflicts,),
    ),
    AzureKind(
        "azure-native:storage:FileServiceProperties",
        f"{PATH}/fileServices/{{fileServicesName}}",
        name=kinds.only("default"),
        rules=(between("shareDeleteRetentionPolicy.days", 1, 365, "days"),),
    ),
    AzureKind(
        "azure-native:storage:BlobContainerImmutabilityPolicy",
        f"{PATH}/blobServices/default/containers/{{containerName}}/immutabilityPolicies/"
        "{immutabilityPolicyName}",
        name=kinds.only("default"),
        rules=(
            between("immutabilityPeriodSinceCreationInDays", 1, 146000, "days"),
            refused(
                "allowProtectedAppendWritesAll",
                "goes without allowProtectedAppendWrites; set one of them",
                all_of(
                    is_on("allowProtectedAppendWrites"), is_on("allowProtectedAppendWritesAll"),
                ),
            ),
        ),
        computed=_policy_outputs,
    ),
    AzureKind(
        "azure-native:storage:ManagementPolicy",
        f"{PATH}/managementPolicies/{{managementPolicyName}}",
        name=kinds.only("default"),
        rules=(_lifecycle_problems,),
        crosschecks=(_tracked_access,),
        computed=_stamped,
    ),
    AzureKind(
        "azure-native:storage:FileShare",
        f"{PATH}/fileServices/default/shares/{{shareName}}",
        name=kinds.CONTAINER,
        replaces=("enabledProtocols",),
        rules=(between("shareQuota", 1, 262144, "GiB"), _share_problems),
        crosschecks=(_share_conflicts,),
        computed=_stamped,
    ),
    AzureKind(
        "azure-native:storage:EncryptionScope",
        f"{PATH}/encryptionScopes/{{encryptionScopeName}}",
        name=kinds.NameRule(
            3, 63, r"[A-Za-z0-9](?:-?[A-Za-z0-9])*",
            "letters, digits and single hyphens, starting and ending with a letter or digit",
        ),
        replaces=("requireInfrastructureEncryption",),
        rules=(
            when(
                equals("source", "Microsoft.KeyVault"),
                required("keyVaultProperties.keyUri", "give the key's address"),
            ),
            _scope_problems,
        ),
        crosschecks=(_scope_conflicts,),
        computed=_scope_outputs,
    ),
)  # fmt: skip
