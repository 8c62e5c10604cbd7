"""The file system that the jobs of several nodes share: new ones by claim, or one that exists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import pulumi

from falaj.components.kubernetes._metadata import metadata
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.storage.arguments import FILES, StorageClassesSpec
from falaj.components.kubernetes.storage.block import EVIDENCE

_FSX: Final = "fsx.csi.aws.com"
_AZURE_LUSTRE: Final = "azurelustre.csi.azure.com"
#: What learn.microsoft.com/en-us/azure/azure-netapp-files/performance-linux-mount-options says.
_NFS_OPTIONS: Final = ("nfsvers=4.1", "hard", "rsize=262144", "wsize=262144", "nconnect=8")


def classes(spec: StorageClassesSpec, given: Mapping[str, Any]) -> list[Manifest]:
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
