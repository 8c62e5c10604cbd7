"""Azure's disks: whose key encrypts those of machines, scale sets, images, snapshots and clusters.

A disk takes a customer's key through a disk encryption set, or through Azure Disk Encryption with
a key of a vault. Without either the key is Microsoft's own
(https://learn.microsoft.com/azure/virtual-machines/disk-encryption).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from falaj.policies.model import Resource, View, get, is_true
from falaj.policies.model.values import Unknown
from falaj.policies.reading.types import azure
from falaj.policies.rules.encryption.azure_stores import keyed, modes_of
from falaj.policies.rules.encryption.demands import merged
from falaj.policies.rules.encryption.table import Part, Reader, State, Stores

#: Words for a disk's encryption.
_TYPES: Final[dict[str, State]] = {
    **modes_of("EncryptionAtRestWithCustomerKey", "EncryptionAtRestWithPlatformKey"),
    "encryptionatrestwithplatformandcustomerkeys": "customer key",
}
#: Of a disk in a machine's profile: its own set, that of a confidential machine, and the key of
#: Azure Disk Encryption.
_OF_MACHINES: Final = (
    "managedDisk.diskEncryptionSet.id",
    "managedDisk.securityProfile.diskEncryptionSet.id",
    "encryptionSettings.keyEncryptionKey.keyUrl",
    "encryptionSettings.diskEncryptionKey.secretUrl",
)
#: Types with a machine's storage profile, and where it is.
PROFILES: Final = {
    token: path
    for names, path in (
        (("compute:VirtualMachine", "compute:VirtualMachineScaleSetVM"), "storageProfile"),
        (("compute:VirtualMachineScaleSet",), "virtualMachineProfile.storageProfile"),
        (("azurefleet:Fleet",), "computeProfile.baseVirtualMachineProfile.storageProfile"),
        (
            ("computebulkactions:BulkAction",),
            "properties.computeProfile.virtualMachineProfile.storageProfile",
        ),
    )
    for token in azure(*names)
}

DISKS: Final = (
    *keyed(
        "compute:Disk",
        "encryption.diskEncryptionSetId", "securityProfile.secureVMDiskEncryptionSetId",
        "encryptionSettingsCollection.encryptionSettings.keyEncryptionKey.keyUrl",
        "encryptionSettingsCollection.encryptionSettings.diskEncryptionKey.secretUrl",
        mode="encryption.type", modes=_TYPES,
    ),
    # A snapshot has its disk's key: https://learn.microsoft.com/azure/virtual-machines/
    # disk-encryption#restrictions
    *keyed(
        "compute:Snapshot",
        "encryption.diskEncryptionSetId", "securityProfile.secureVMDiskEncryptionSetId",
        "encryptionSettingsCollection.encryptionSettings.keyEncryptionKey.keyUrl",
        "encryptionSettingsCollection.encryptionSettings.diskEncryptionKey.secretUrl",
        mode="encryption.type", modes=_TYPES, copies=("creationData.sourceResourceId",),
    ),
    *keyed(
        "compute:Image", "diskEncryptionSet.id", parts="storageProfile.osDisk",
        copies=("managedDisk.id", "snapshot.id"),
    ),
    *keyed(
        "compute:Image", "diskEncryptionSet.id", parts="storageProfile.dataDisks",
        copies=("managedDisk.id", "snapshot.id"),
    ),
    *keyed(
        "compute:Image", "storageProfile.osDisk.diskEncryptionSet.id",
        when="sourceVirtualMachine.id", copies=("sourceVirtualMachine.id",),
    ),
    *keyed(
        "compute:GalleryImageVersion",
        "encryption.osDiskImage.diskEncryptionSetId",
        "encryption.osDiskImage.securityProfile.secureVMDiskEncryptionSetId",
        parts="publishingProfile.targetRegions",
    ),
    *keyed(
        "compute:GalleryImageVersion", "diskEncryptionSetId",
        parts="publishingProfile.targetRegions.encryption.dataDiskImages",
    ),
    *(
        entry
        for name in sorted(PROFILES)
        for disks in ("osDisk", "dataDisks")
        for entry in keyed(
            name.removeprefix("azure-native:"), *_OF_MACHINES, parts=f"{PROFILES[name]}.{disks}",
            copies=("managedDisk.id", "vhd.uri"),
        )
    ),
    *keyed("containerservice:ManagedCluster", "diskEncryptionSetID"),
    *keyed("redhatopenshift:OpenShiftCluster", "masterProfile.diskEncryptionSetId"),
    *keyed(
        "redhatopenshift:OpenShiftCluster", "diskEncryptionSetId", parts="workerProfiles"
    ),
)  # fmt: skip


def _not_given(holder: str, block: str, key: str) -> Reader:
    """A reader for what Azure makes by itself: data without a block where its holder is given."""

    def read(resource: Resource, view: View) -> Iterator[Part]:
        held = resource.get(holder)
        if isinstance(held, Mapping) and not held.get(block):
            path = f"{holder}.{block}.{key}"
            why = f"{path} isn't given, and by default the key is the service's own"
            yield Part("service key", path, path, why, given=False)

    return read


def _settled(value: Any, path: Sequence[str]) -> Any:
    """Properties without what isn't turned on at a path: a block counts where its `enabled` is
    true, and nobody knows where that can't be seen."""
    if not isinstance(value, Mapping) or path[0] not in value:
        return value
    held: Any = value[path[0]]
    if len(path) > 1:
        return {**value, path[0]: _settled(held, path[1:])}
    switch = get(held, "enabled")
    if isinstance(switch, Unknown):
        return {**value, path[0]: switch}
    return value if is_true(switch) else {**value, path[0]: None}


def _where_on(entry: Stores) -> Reader:
    """A reader of an entry for which Azure Disk Encryption counts only where it is on."""
    holder = PROFILES.get(entry.type)
    path = f"{holder}.osDisk.encryptionSettings" if holder else "encryptionSettingsCollection"

    def read(resource: Resource, view: View) -> Iterator[Part]:
        settled = _settled(resource.properties, path.split("."))
        yield from entry.read(replace(resource, properties=settled), view)

    return read


#: Disks and images that are made although nobody describes them: a machine's disk for its
#: system, an image's copy in the gallery's own region.
_UNDESCRIBED: Final[dict[str, tuple[Reader, ...]]] = {
    **{
        token: (_not_given(path, "osDisk", _OF_MACHINES[0]),)
        for token, path in PROFILES.items()
        if not token.endswith("ScaleSetVM")
    },
    "azure-native:compute:GalleryImageVersion": (
        _not_given(
            "publishingProfile", "targetRegions", "encryption.osDiskImage.diskEncryptionSetId"
        ),
    ),
}
READERS: Final = merged(*({each.type: (_where_on(each),)} for each in DISKS), _UNDESCRIBED)
