"""File systems for training: Azure NetApp Files and Azure Managed Lustre."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, kinds, naming, relations, resources, subnets
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.resources import location
from falaj.sandbox.clouds.azure.services import key_vault
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import (
    absent,
    all_of,
    any_of,
    equals,
    formed,
    given,
    is_on,
    longer_than,
    one_of,
    refused,
    required,
    when,
)
from falaj.sandbox.clouds.model import Problem

_TIB: Final = 1024**4
_GIB: Final = 1024**3
_ACCOUNT: Final = "Microsoft.NetApp/netAppAccounts/{accountName}"
# MiB/s for each TiB of quota. Source: azure-netapp-files/azure-netapp-files-service-levels.
_THROUGHPUT: Final = {"Standard": 16, "Premium": 64, "Ultra": 128}
_ITEM: Final = kinds.NameRule(
    1,
    64,
    r"[A-Za-z0-9][-A-Za-z0-9_]*",
    "letters, digits, hyphens and underscores, starting with a letter or digit",
)
# Capacities of each SKU in TiB: step and most. Source: azure-managed-lustre/create-file-system-
# resource-manager (file system type and size options).
_LUSTRE: Final = {
    "AMLFS-Durable-Premium-40": (48, 1536),
    "AMLFS-Durable-Premium-125": (16, 512),
    "AMLFS-Durable-Premium-250": (8, 256),
    "AMLFS-Durable-Premium-500": (4, 128),
}
# Longest prefix by capacity. Source: azure-managed-lustre/amlfs-prerequisites (network size).
_LUSTRE_SUBNETS: Final = ((16, 27), (40, 26), (92, 25), (196, 24), (1536, 23))


def _account_problems(inputs: Inputs) -> Iterator[Problem]:
    base = "encryption.keyVaultProperties"
    uri = f"{base}.keyVaultUri"
    yield from key_vault.vault_address(uri, inputs.optional_string(uri))


def _account_conflicts(resource: Resource) -> Iterator[Problem]:
    base = "encryption.keyVaultProperties"
    yield from key_vault.usable(
        resource,
        f"{base}.keyVaultUri",
        resource.optional_string(f"{base}.keyVaultUri"),
        key=resource.optional_string(f"{base}.keyName"),
    )


def _pool_problems(inputs: Inputs) -> Iterator[Problem]:
    size = inputs.number("size")
    if size is not None and (size % _TIB or not 1 <= size / _TIB <= 2048):
        yield Problem(
            "size",
            f"{size:g} bytes isn't allowed; allowed are whole tebibytes from 1 ({_TIB}) to 2048",
        )


def _volume_problems(inputs: Inputs) -> Iterator[Problem]:
    quota = inputs.number("usageThreshold")
    large = inputs.flag("isLargeVolume")
    low, high = (50 * 1024, 1024 * 1024) if large else (50, 100 * 1024)
    if quota is not None and not low <= quota / _GIB <= high:
        yield Problem(
            "usageThreshold",
            f"{quota:g} bytes isn't allowed; allowed are {low} GiB to {high // 1024} TiB",
        )
    protocols = inputs.strings("protocolTypes")
    for path, text in protocols:
        yield from checks.one_of(path, text, ("NFSv3", "NFSv4.1", "CIFS"))
    names = {text for _, text in protocols}
    if {"NFSv3", "NFSv4.1"} <= names:
        yield Problem("protocolTypes", "NFSv3 and NFSv4.1 don't go together; choose one")
    if inputs.flag("kerberosEnabled") and "NFSv3" in names:
        yield Problem("kerberosEnabled", "needs NFSv4.1")
    for path, _ in inputs.items("exportPolicy.rules"):
        for part in (inputs.optional_string(f"{path}.allowedClients") or "").split(","):
            if "/" in part:
                yield from checks.cidr(f"{path}.allowedClients", part.strip())


def _volume_conflicts(resource: Resource) -> Iterator[Problem]:
    where = location(resource)
    yield from subnets.fits(
        resource, "subnetId", where=where, delegated_to="Microsoft.Netapp/volumes", least=28
    )
    pool = resources.by_id(resource.world, resource.id.rsplit("/", 2)[0])
    level = resource.optional_string("serviceLevel")
    if pool is None:
        return
    asked = Inputs(pool.inputs)
    theirs = asked.optional_string("serviceLevel")
    if level and theirs and level != theirs:
        yield Problem(
            "serviceLevel", f"{level} isn't the pool's {theirs}; leave it out or say the same"
        )
    size, quota = asked.number("size"), resource.number("usageThreshold")
    taken = sum(
        Inputs(made.inputs).number("usageThreshold") or 0
        for made in resource.world.all("azure-native:netapp:CapacityPoolVolume")
        if made.id.lower().startswith(pool.id.lower() + "/")
        and made.id.lower() != resource.id.lower()
    )
    if size is not None and quota is not None and taken + quota > size:
        yield Problem(
            "usageThreshold",
            f"the pool has {size / _GIB:g} GiB, of which "
            f"{taken / _GIB:g} are taken; {quota / _GIB:g} GiB don't fit",
        )
    account = resources.by_id(resource.world, "/".join(resource.id.split("/")[:9]))
    own = Inputs(account.inputs) if account else None
    if (
        own
        and resource.optional_string("encryptionKeySource") == "Microsoft.KeyVault"
        and (own.optional_string("encryption.keySource") != "Microsoft.KeyVault")
    ):
        yield Problem(
            "encryptionKeySource", "the account has no own key; set its encryption first"
        )


def _lustre_problems(inputs: Inputs) -> Iterator[Problem]:
    sku, size = inputs.optional_string("sku.name"), inputs.number("storageCapacityTiB")
    if sku in _LUSTRE and size is not None:
        step, most = _LUSTRE[sku]
        if size % step or not step <= size <= most:
            yield Problem(
                "storageCapacityTiB",
                f"{size:g} isn't allowed for {sku}; allowed are multiples of {step} to {most} TiB",
            )
    key = inputs.optional_string("encryptionSettings.keyEncryptionKey.keyUrl")
    yield from key_vault.address("encryptionSettings.keyEncryptionKey.keyUrl", key, versioned=True)


def _lustre_conflicts(resource: Resource) -> Iterator[Problem]:
    size = resource.number("storageCapacityTiB")
    least = next((bits for most, bits in _LUSTRE_SUBNETS if size and size <= most), None)
    yield from subnets.fits(resource, "filesystemSubnet", where=location(resource), least=least)
    # Source: azure-managed-lustre/customer-managed-encryption-keys: same region, purge protection.
    path = "encryptionSettings.keyEncryptionKey.keyUrl"
    yield from key_vault.usable(
        resource, path, resource.optional_string(path), region=location(resource)
    )


def _pool_outputs(resource: Resource) -> dict[str, Any]:
    size = resource.number("size") or 4 * _TIB
    rate = _THROUGHPUT.get(resource.optional_string("serviceLevel") or "", 16)
    return {
        "poolId": naming.guid("pool", resource.id),
        "size": size,
        "totalThroughputMibps": rate * size / _TIB,
        "utilizedThroughputMibps": 0,
        "qosType": resource.optional_string("qosType") or "Auto",
        "encryptionType": resource.optional_string("encryptionType") or "Single",
    }


def _volume_outputs(resource: Resource) -> dict[str, Any]:
    id = resource.id
    address = subnets.address(resource.world, resource.optional_string("subnetId") or "", id)
    quota = resource.number("usageThreshold") or 0
    rate = _THROUGHPUT.get(resource.optional_string("serviceLevel") or "", 16)
    file_system = naming.guid("filesystem", id)
    return {
        "fileSystemId": file_system,
        "mountTargets": [
            {
                "fileSystemId": file_system,
                "ipAddress": address or "",
                "mountTargetId": naming.guid("mount", id),
                "smbServerFqdn": "",
            }
        ],
        "actualThroughputMibps": resource.number("throughputMibps") or rate * quota / _TIB,
        "encrypted": True,
        "effectiveNetworkFeatures": resource.optional_string("networkFeatures") or "Basic",
        "networkSiblingSetId": naming.guid("siblings", resource.optional_string("subnetId") or ""),
        "storageToNetworkProximity": "Default",
    }


def _lustre_outputs(resource: Resource) -> dict[str, Any]:
    address = subnets.address(
        resource.world, resource.optional_string("filesystemSubnet") or "", resource.id
    )
    sku, size = (
        resource.optional_string("sku.name") or "",
        resource.number("storageCapacityTiB") or 0,
    )
    rate = int(sku.rpartition("-")[2]) if sku in _LUSTRE else 0
    return {
        "clientInfo": {
            "mgsAddress": address or "",
            "mountCommand": f"mount -t lustre -o noatime,flock {address}@tcp:/lustrefs /amlfs",
            "lustreVersion": "2.15.5",
            "containerStorageInterface": {},
        },
        "health": {"state": "Available", "statusCode": "", "statusDescription": ""},
        "throughputProvisionedMBps": int(rate * size),
    }


KINDS: Final = (
    AzureKind(
        "azure-native:netapp:Account",
        _ACCOUNT,
        name=kinds.NameRule(1, 128, r"[A-Za-z0-9][-A-Za-z0-9_]*", _ITEM.text),
        is_held_by_children=True,
        rules=(
            when(
                equals("encryption.keySource", "Microsoft.KeyVault"),
                required(
                    "encryption.keyVaultProperties", "an own key is named by its vault and name",
                ),
                required("identity", "the account reads its key by a managed identity"),
            ),
            _account_problems,
        ),
        crosschecks=(_account_conflicts,),
    ),
    AzureKind(
        "azure-native:netapp:CapacityPool",
        f"{_ACCOUNT}/capacityPools/{{poolName}}",
        name=_ITEM,
        is_held_by_children=True,
        replaces=("serviceLevel", "encryptionType"),
        rules=(
            refused(
                "coolAccess", "doesn't go with double encryption; leave it out",
                all_of(equals("encryptionType", "Double"), is_on("coolAccess")),
            ),
            _pool_problems,
        ),
        computed=_pool_outputs,
    ),
    AzureKind(
        "azure-native:netapp:CapacityPoolVolume",
        f"{_ACCOUNT}/capacityPools/{{poolName}}/volumes/{{volumeName}}",
        name=kinds.NameRule(
            1, 64, r"[A-Za-z][-A-Za-z0-9_]*",
            "letters, digits, hyphens and underscores, starting with a letter",
        ),
        replaces=(
            "creationToken", "subnetId", "protocolTypes", "networkFeatures", "zones",
            "encryptionKeySource", "keyVaultPrivateEndpointResourceId", "securityStyle",
            "isLargeVolume", "kerberosEnabled", "proximityPlacementGroup", "snapshotId",
            "backupId", "ldapEnabled",
        ),
        rules=(
            formed(
                "creationToken", r"[A-Za-z][-A-Za-z0-9_]{0,79}",
                "isn't a path for mounting; allowed are 1 to 80 letters, digits, "
                "hyphens and underscores, starting with a letter",
            ),
            formed("unixPermissions", r"0?[0-7]{3}", "isn't a mode such as 0770"),
            checks.zones_of("zones"),
            # Source: azure-netapp-files/configure-customer-managed-keys (considerations).
            when(
                equals("encryptionKeySource", "Microsoft.KeyVault"),
                required(
                    "keyVaultPrivateEndpointResourceId",
                    "an own key is read over a private endpoint; give its id",
                ),
                refused(
                    "networkFeatures", "an own key needs Standard network features",
                    any_of(equals("networkFeatures", "Basic"), absent("networkFeatures")),
                ),
            ),
            _volume_problems,
        ),
        crosschecks=(_volume_conflicts,),
        computed=_volume_outputs,
    ),
    AzureKind(
        "azure-native:storagecache:AmlFilesystem",
        "Microsoft.StorageCache/amlFilesystems/{amlFilesystemName}",
        name=kinds.NameRule(
            2, 80, r"[A-Za-z0-9](?:[-A-Za-z0-9_]*[A-Za-z0-9])",
            "letters, digits, hyphens and underscores, starting and ending with a letter or digit",
        ),
        replaces=(
            "sku", "storageCapacityTiB", "filesystemSubnet", "zones", "encryptionSettings",
            "identity", "hsm",
        ),
        rules=(
            required("sku.name", f"choose one of {', '.join(_LUSTRE)}"),
            one_of("sku.name", tuple(_LUSTRE)),
            refused(
                "zones", "is missing: the file system is in one zone; name it", absent("zones[0]"),
            ),
            refused(
                "zones", "names several; the file system is in one zone", longer_than("zones", 1),
            ),
            formed(
                "maintenanceWindow.timeOfDayUTC", r"(?:[01]\d|2[0-3]):[0-5]\d",
                "isn't a time such as 22:00",
            ),
            refused(
                "identity",
                "is missing: the file system reads its key by a user-assigned identity",
                all_of(given("encryptionSettings.keyEncryptionKey"), absent("identity")),
            ),
            _lustre_problems,
        ),
        references=(relations.to("filesystemSubnet", subnets.TYPE),),
        crosschecks=(_lustre_conflicts,),
        computed=_lustre_outputs,
    ),
)  # fmt: skip
