"""Classes by the platforms' drivers, each with a key of one's own.

Disks, one class for each platform; and the file system that the jobs of several nodes share: new
ones by claim, or one that exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import pulumi

from falaj.components.kubernetes._objects import Manifest, metadata
from falaj.components.kubernetes._placed import ZONE_LABEL
from falaj.components.kubernetes.storage_classes.arguments import (
    BLOCK,
    FILES,
    CsiClass,
    StorageClassesSpec,
)

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


_FSX: Final = "fsx.csi.aws.com"
_AZURE_LUSTRE: Final = "azurelustre.csi.azure.com"
#: What learn.microsoft.com/en-us/azure/azure-netapp-files/performance-linux-mount-options says.
_NFS_OPTIONS: Final = ("nfsvers=4.1", "hard", "rsize=262144", "wsize=262144", "nconnect=8")


def file_classes(spec: StorageClassesSpec, given: Mapping[str, Any]) -> list[Manifest]:
    """The class ``falaj-files``, and volumes and claims of a file system that exists."""
    if given.get("file_system_id") is None:
        return [_dynamic(spec, given)]
    found = [_static(spec)]
    for namespace in given["namespaces"]:
        found += _volume(spec, given, str(namespace))
    return found


def _dynamic(spec: StorageClassesSpec, given: Mapping[str, Any]) -> Manifest:
    """FSx for Lustre. The driver's default is SCRATCH_1, which takes no key and keeps one copy."""
    placed = spec.placed
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": metadata(placed, spec.name, FILES),
        "provisioner": _FSX,
        "parameters": {
            "deploymentType": "PERSISTENT_2",
            "kmsKeyId": spec.key,
            "subnetId": given["subnet_id"],
            "securityGroupIds": given["security_group_id"],
            "perUnitStorageThroughput": str(given["throughput_mb_s_per_tib"]),
            "dataCompressionType": "LZ4",
            "fileSystemTypeVersion": "2.15",
            "extraTags": f"falaj:tenant={placed.tenant},falaj:data-class={placed.data_class}",
        },
        "reclaimPolicy": spec.reclaim,
        "volumeBindingMode": "Immediate",
        "mountOptions": ["flock"],
    }


def _static(spec: StorageClassesSpec) -> Manifest:
    """A class that makes nothing: claims and quotas go by its name."""
    notes = {EVIDENCE: "TrainingFileSystem: made with the key of its KeyRing"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": metadata(spec.placed, spec.name, FILES, annotations=notes),
        "provisioner": "kubernetes.io/no-provisioner",
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "Immediate",
    }


def _volume(spec: StorageClassesSpec, given: Mapping[str, Any], namespace: str) -> list[Manifest]:
    """A volume of the file system for one namespace, and the claim that it is kept for."""
    name = f"{namespace}-files"
    size = {"storage": f"{given['size_gib']}Gi"}
    volume: dict[str, Any] = {
        "capacity": size,
        "accessModes": ["ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": FILES,
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "name": FILES,
            "namespace": namespace,
        },
        **_source(spec.placed.distribution, given, name),
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": metadata(spec.placed, spec.name, name),
            "spec": volume,
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata(spec.placed, spec.name, FILES, namespace),
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": FILES,
                "volumeName": name,
                "resources": {"requests": size},
            },
        },
    ]


def _source(distribution: str, given: Mapping[str, Any], name: str) -> dict[str, Any]:
    address = given["mount_address"]
    if given.get("protocol", "lustre") == "nfs":
        return {
            "mountOptions": list(_NFS_OPTIONS),
            "nfs": {
                "server": _with(address, lambda text: text.partition(":/")[0]),
                "path": _with(address, lambda text: "/" + text.partition(":/")[2]),
            },
        }
    host = _with(address, lambda text: text.partition("@")[0])
    mounted = _with(address, lambda text: text.partition(":/")[2])
    if distribution == "eks":
        driver, attributes = _FSX, {"dnsname": host, "mountname": mounted}
    else:
        driver, attributes = _AZURE_LUSTRE, {"mgs-ip-address": host, "fs-name": mounted}
    # Each volume has a handle of its own, or one mount is taken for the other.
    handle = given["file_system_id"] if distribution == "eks" else name
    return {
        "mountOptions": ["flock"],
        "csi": {"driver": driver, "volumeHandle": handle, "volumeAttributes": attributes},
    }


def _with(value: object, change: Callable[[str], str]) -> Any:
    """``change`` of a text, now or when it is known."""
    if isinstance(value, pulumi.Output):
        return cast("pulumi.Output[str]", value).apply(change)
    return change(str(value))
