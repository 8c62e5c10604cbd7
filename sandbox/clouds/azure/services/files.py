"""File systems for training: Azure NetApp Files and Azure Managed Lustre."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, invented, keys, known, naming, subnets
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.model import Problem

_TIB: Final = 1024**4
_GIB: Final = 1024**3
_ACCOUNT: Final = "Microsoft.NetApp/netAppAccounts/{accountName}"
# MiB/s for each TiB of quota. Source: azure-netapp-files/azure-netapp-files-service-levels.
_THROUGHPUT: Final = {"Standard": 16, "Premium": 64, "Ultra": 128}
_ITEM: Final = naming.NameRule(
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


def _account_problems(ask: Ask) -> Iterator[Problem]:
    base = "encryption.keyVaultProperties"
    if ask.text("encryption.keySource") == "Microsoft.KeyVault":
        yield from checks.needs(ask, base, "an own key is named by its vault and name")
        yield from checks.needs(ask, "identity", "the account reads its key by a managed identity")
    uri = ask.text(f"{base}.keyVaultUri")
    if uri and keys.parse(uri) is None:
        yield Problem(
            f"{base}.keyVaultUri",
            f"{uri!r} isn't the address of a vault; it looks like https://NAME.vault.azure.net/",
        )


def _account_conflicts(ask: Ask) -> Iterator[Problem]:
    base = "encryption.keyVaultProperties"
    yield from keys.usable(
        ask,
        f"{base}.keyVaultUri",
        ask.text(f"{base}.keyVaultUri"),
        key=ask.text(f"{base}.keyName"),
    )


def _pool_problems(ask: Ask) -> Iterator[Problem]:
    size = ask.number("size")
    if size is not None and (size % _TIB or not 1 <= size / _TIB <= 2048):
        yield Problem(
            "size",
            f"{size:g} bytes isn't allowed; allowed are whole tebibytes from 1 ({_TIB}) to 2048",
        )
    if ask.text("encryptionType") == "Double" and ask.flag("coolAccess"):
        yield Problem("coolAccess", "doesn't go with double encryption; leave it out")


def _volume_problems(ask: Ask) -> Iterator[Problem]:
    quota = ask.number("usageThreshold")
    large = ask.flag("isLargeVolume")
    low, high = (50 * 1024, 1024 * 1024) if large else (50, 100 * 1024)
    if quota is not None and not low <= quota / _GIB <= high:
        yield Problem(
            "usageThreshold",
            f"{quota:g} bytes isn't allowed; allowed are {low} GiB to {high // 1024} TiB",
        )
    token = ask.text("creationToken")
    if token and not re.fullmatch(r"[A-Za-z][-A-Za-z0-9_]{0,79}", token):
        yield Problem(
            "creationToken",
            f"{token!r} isn't a path for mounting; allowed are 1 to 80 "
            "letters, digits, hyphens and underscores, starting with a letter",
        )
    protocols = ask.texts("protocolTypes")
    for path, text in protocols:
        yield from checks.one_of(path, text, ("NFSv3", "NFSv4.1", "CIFS"))
    names = {text for _, text in protocols}
    if {"NFSv3", "NFSv4.1"} <= names:
        yield Problem("protocolTypes", "NFSv3 and NFSv4.1 don't go together; choose one")
    if ask.flag("kerberosEnabled") and "NFSv3" in names:
        yield Problem("kerberosEnabled", "needs NFSv4.1")
    mode = ask.text("unixPermissions")
    if mode and not re.fullmatch(r"0?[0-7]{3}", mode):
        yield Problem("unixPermissions", f"{mode!r} isn't a mode such as 0770")
    yield from checks.zones("zones", ask)
    for path, _ in ask.items("exportPolicy.rules"):
        for part in (ask.text(f"{path}.allowedClients") or "").split(","):
            if "/" in part:
                yield from checks.cidr(f"{path}.allowedClients", part.strip())
    if ask.text("encryptionKeySource") == "Microsoft.KeyVault":
        yield from checks.needs(
            ask,
            "keyVaultPrivateEndpointResourceId",
            "an own key is read over a private endpoint; give its id",
        )
        if ask.text("networkFeatures") == "Basic" or ask.is_absent("networkFeatures"):
            # Source: azure-netapp-files/configure-customer-managed-keys (considerations).
            yield Problem("networkFeatures", "an own key needs Standard network features")


def _volume_conflicts(ask: Ask) -> Iterator[Problem]:
    where = location(ask)
    yield from subnets.fits(
        ask, "subnetId", where=where, delegated_to="Microsoft.Netapp/volumes", least=28
    )
    if ask.world is None or ask.id is None:
        return
    pool = known.by_id(ask.world, ask.id.rsplit("/", 2)[0])
    level = ask.text("serviceLevel")
    if pool is None:
        return
    asked = Ask(pool.token, pool.inputs, {})
    if level and asked.text("serviceLevel") and level != asked.text("serviceLevel"):
        yield Problem(
            "serviceLevel",
            f"{level} isn't the pool's {asked.text('serviceLevel')}; leave it out or say the same",
        )
    size, quota = asked.number("size"), ask.number("usageThreshold")
    taken = sum(
        Ask(made.token, made.inputs, {}).number("usageThreshold") or 0
        for made in ask.world.all("azure-native:netapp:CapacityPoolVolume")
        if made.id.lower().startswith(pool.id.lower() + "/") and made.id.lower() != ask.id.lower()
    )
    if size is not None and quota is not None and taken + quota > size:
        yield Problem(
            "usageThreshold",
            f"the pool has {size / _GIB:g} GiB, of which "
            f"{taken / _GIB:g} are taken; {quota / _GIB:g} GiB don't fit",
        )
    account = known.by_id(ask.world, "/".join(ask.id.split("/")[:9]))
    own = Ask("", account.inputs, {}) if account else None
    if (
        own
        and ask.text("encryptionKeySource") == "Microsoft.KeyVault"
        and (own.text("encryption.keySource") != "Microsoft.KeyVault")
    ):
        yield Problem(
            "encryptionKeySource", "the account has no own key; set its encryption first"
        )


def _lustre_problems(ask: Ask) -> Iterator[Problem]:
    sku, size = ask.text("sku.name"), ask.number("storageCapacityTiB")
    yield from checks.needs(ask, "sku.name", f"choose one of {', '.join(_LUSTRE)}")
    yield from checks.one_of("sku.name", sku, _LUSTRE)
    if sku in _LUSTRE and size is not None:
        step, most = _LUSTRE[sku]
        if size % step or not step <= size <= most:
            yield Problem(
                "storageCapacityTiB",
                f"{size:g} isn't allowed for {sku}; allowed are multiples of {step} to {most} TiB",
            )
    if ask.is_absent("zones[0]"):
        yield Problem("zones", "is missing: the file system is in one zone; name it")
    if len(ask.items("zones")) > 1:
        yield Problem("zones", "names several; the file system is in one zone")
    time = ask.text("maintenanceWindow.timeOfDayUTC")
    if time and not re.fullmatch(r"(?:[01]\d|2[0-3]):[0-5]\d", time):
        yield Problem("maintenanceWindow.timeOfDayUTC", f"{time!r} isn't a time such as 22:00")
    key = ask.text("encryptionSettings.keyEncryptionKey.keyUrl")
    yield from keys.address("encryptionSettings.keyEncryptionKey.keyUrl", key, versioned=True)
    if ask.is_given("encryptionSettings.keyEncryptionKey") and ask.is_absent("identity"):
        yield Problem(
            "identity", "is missing: the file system reads its key by a user-assigned identity"
        )
    yield from checks.resource_id("filesystemSubnet", ask.text("filesystemSubnet"), subnets.TYPE)


def _lustre_conflicts(ask: Ask) -> Iterator[Problem]:
    size = ask.number("storageCapacityTiB")
    least = next((bits for most, bits in _LUSTRE_SUBNETS if size and size <= most), None)
    yield from subnets.fits(ask, "filesystemSubnet", where=location(ask), least=least)
    # Source: azure-managed-lustre/customer-managed-encryption-keys: same region, purge protection.
    path = "encryptionSettings.keyEncryptionKey.keyUrl"
    yield from keys.usable(ask, path, ask.text(path), region=location(ask))


def _pool_outputs(ask: Ask) -> dict[str, Any]:
    size = ask.number("size") or 4 * _TIB
    rate = _THROUGHPUT.get(ask.text("serviceLevel") or "", 16)
    return {
        "poolId": invented.guid("pool", ask.id or ""),
        "size": size,
        "totalThroughputMibps": rate * size / _TIB,
        "utilizedThroughputMibps": 0,
        "qosType": ask.text("qosType") or "Auto",
        "encryptionType": ask.text("encryptionType") or "Single",
    }


def _volume_outputs(ask: Ask) -> dict[str, Any]:
    id = ask.id or ""
    address = subnets.address(ask.world, ask.text("subnetId") or "", id)
    quota = ask.number("usageThreshold") or 0
    rate = _THROUGHPUT.get(ask.text("serviceLevel") or "", 16)
    file_system = invented.guid("filesystem", id)
    return {
        "fileSystemId": file_system,
        "mountTargets": [
            {
                "fileSystemId": file_system,
                "ipAddress": address or "",
                "mountTargetId": invented.guid("mount", id),
                "smbServerFqdn": "",
            }
        ],
        "actualThroughputMibps": ask.number("throughputMibps") or rate * quota / _TIB,
        "encrypted": True,
        "effectiveNetworkFeatures": ask.text("networkFeatures") or "Basic",
        "networkSiblingSetId": invented.guid("siblings", ask.text("subnetId") or ""),
        "storageToNetworkProximity": "Default",
    }


def _lustre_outputs(ask: Ask) -> dict[str, Any]:
    address = subnets.address(ask.world, ask.text("filesystemSubnet") or "", ask.id or "")
    sku, size = ask.text("sku.name") or "", ask.number("storageCapacityTiB") or 0
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
    Kind(
        "azure-native:netapp:Account",
        _ACCOUNT,
        name=naming.NameRule(1, 128, r"[A-Za-z0-9][-A-Za-z0-9_]*", _ITEM.text),
        is_held_by_children=True,
        problems=_account_problems,
        conflicts=_account_conflicts,
    ),
    Kind(
        "azure-native:netapp:CapacityPool",
        f"{_ACCOUNT}/capacityPools/{{poolName}}",
        name=_ITEM,
        is_held_by_children=True,
        replaces=frozenset({"serviceLevel", "encryptionType"}),
        problems=_pool_problems,
        outputs=_pool_outputs,
    ),
    Kind(
        "azure-native:netapp:CapacityPoolVolume",
        f"{_ACCOUNT}/capacityPools/{{poolName}}/volumes/{{volumeName}}",
        name=naming.NameRule(
            1,
            64,
            r"[A-Za-z][-A-Za-z0-9_]*",
            "letters, digits, hyphens and underscores, starting with a letter",
        ),
        replaces=frozenset(
            {
                "creationToken",
                "subnetId",
                "protocolTypes",
                "networkFeatures",
                "zones",
                "encryptionKeySource",
                "keyVaultPrivateEndpointResourceId",
                "securityStyle",
                "isLargeVolume",
                "kerberosEnabled",
                "proximityPlacementGroup",
                "snapshotId",
                "backupId",
                "ldapEnabled",
            }
        ),
        problems=_volume_problems,
        conflicts=_volume_conflicts,
        outputs=_volume_outputs,
    ),
    Kind(
        "azure-native:storagecache:AmlFilesystem",
        "Microsoft.StorageCache/amlFilesystems/{amlFilesystemName}",
        name=naming.NameRule(
            2,
            80,
            r"[A-Za-z0-9](?:[-A-Za-z0-9_]*[A-Za-z0-9])",
            "letters, digits, hyphens and underscores, starting and ending with a letter or digit",
        ),
        replaces=frozenset(
            {
                "sku",
                "storageCapacityTiB",
                "filesystemSubnet",
                "zones",
                "encryptionSettings",
                "identity",
                "hsm",
            }
        ),
        problems=_lustre_problems,
        conflicts=_lustre_conflicts,
        outputs=_lustre_outputs,
    ),
)
