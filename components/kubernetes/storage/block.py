"""Classes of disks: one for each platform, each with a key of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from falaj.components.kubernetes._metadata import metadata
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import ZONE_LABEL
from falaj.components.kubernetes.storage.arguments import BLOCK, CsiClass, StorageClassesSpec

_API: Final = "storage.k8s.io/v1"
_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
#: What nodes of AKS carry beside the usual label: azuredisk-csi-driver, docs/driver-parameters.md
_AZURE_ZONE: Final = "topology.disk.csi.azure.com/zone"
_FS_TYPE: Final = "csi.storage.k8s.io/fstype"
EVIDENCE: Final = "falaj.io/encryption-evidence"


def ebs(spec: StorageClassesSpec) -> list[Manifest]:
    """EBS. The driver's ``encrypted`` is false by default, and its key the provider's."""
    placed = spec.placed
    parameters = {
        "type": "gp3",
        "encrypted": "true",
        "kmsKeyId": spec.key,
        "iops": str(spec.iops),
        "throughput": str(spec.throughput_mib_s),
        _FS_TYPE: spec.file_system_type,
        "tagSpecification_1": f"falaj:tenant={placed.tenant}",
        "tagSpecification_2": f"falaj:cost-center={placed.cost_center}",
        "tagSpecification_3": f"falaj:data-class={placed.data_class}",
    }
    return [
        _class(spec, BLOCK, "ebs.csi.aws.com", parameters, zone=ZONE_LABEL),
        snapshots(spec, BLOCK, "ebs.csi.aws.com", {}),
    ]


def azure_disk(spec: StorageClassesSpec) -> list[Manifest]:
    """Azure disks: nobody exports them, and no address reaches them."""
    parameters = {
        "skuName": spec.disk_sku,
        "diskEncryptionSetID": spec.key,
        "networkAccessPolicy": "DenyAll",
        "publicNetworkAccess": "Disabled",
        # The driver compares it with the set's own; KeyRing's encrypts twice.
        "diskEncryptionType": (
            "EncryptionAtRestWithPlatformAndCustomerKeys"
            if spec.double_encryption
            else "EncryptionAtRestWithCustomerKey"
        ),
        # https://learn.microsoft.com/en-us/azure/aks/use-premium-v2-disks: it has no host cache.
        "cachingMode": "None" if spec.disk_sku == "PremiumV2_LRS" else "ReadOnly",
        _FS_TYPE: spec.file_system_type,
        "tags": f"falaj-tenant={spec.placed.tenant},falaj-data-class={spec.placed.data_class}",
    }
    return [
        _class(spec, BLOCK, "disk.csi.azure.com", parameters, zone=_AZURE_ZONE),
        # Incremental ones lie in the disk's own resource group and region, under its key.
        snapshots(spec, BLOCK, "disk.csi.azure.com", {"incremental": "true"}),
    ]


def of_csi(spec: StorageClassesSpec, given: CsiClass) -> list[Manifest]:
    """A class of an existing cluster, as it was given."""
    notes = {EVIDENCE: given.evidence} if given.evidence else {}
    found = [
        _class(
            spec,
            given.name,
            given.provisioner,
            given.parameters,
            notes=notes,
            immediate=given.shared,
        )
    ]
    if given.snapshot_parameters:
        found.append(snapshots(spec, given.name, given.provisioner, given.snapshot_parameters))
    return found


def snapshots(
    spec: StorageClassesSpec, name: str, driver: str, parameters: Mapping[str, str]
) -> Manifest:
    """The class of a driver's snapshots, which have their volume's key. Velero takes it by its
    label: https://velero.io/docs/main/csi/
    """
    return {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshotClass",
        "metadata": metadata(
            spec.placed, spec.name, name, labels={"velero.io/csi-volumesnapshot-class": "true"}
        ),
        "driver": driver,
        "deletionPolicy": spec.reclaim,
        **({"parameters": dict(parameters)} if parameters else {}),
    }


def _class(
    spec: StorageClassesSpec,
    name: str,
    provisioner: str,
    parameters: Mapping[str, Any],
    *,
    zone: str = "",
    notes: Mapping[str, str] | None = None,
    immediate: bool = False,
) -> Manifest:
    """A storage class.

    Args:
        spec: the component.
        name: the class' name.
        provisioner: its driver.
        parameters: the driver's.
        zone: label that the driver knows zones by; empty where volumes are in none.
        notes: further annotations.
        immediate: whether volumes are made before a pod wants them: those that any node mounts.
    """
    default = {_DEFAULT: "true" if name == spec.default_class else "false"}
    found: dict[str, Any] = {
        "apiVersion": _API,
        "kind": "StorageClass",
        "metadata": metadata(
            spec.placed, spec.name, name, annotations={**default, **(notes or {})}
        ),
        "provisioner": provisioner,
        "parameters": dict(parameters),
        "reclaimPolicy": spec.reclaim,
        "volumeBindingMode": "Immediate" if immediate else "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
    }
    if zone and spec.placed.zones:
        found["allowedTopologies"] = [
            {"matchLabelExpressions": [{"key": zone, "values": list(spec.placed.zones)}]}
        ]
    return found
