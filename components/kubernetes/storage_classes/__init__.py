"""Storage classes of a cluster, each with a key of one's own."""

import pulumi

from falaj.components.kubernetes._objects import Manifest, declare, token
from falaj.components.kubernetes.storage_classes.arguments import (
    FILES,
    StorageClassesArgs,
    StorageClassesSpec,
    StorageCsiClassArgs,
    StorageFilesArgs,
    check,
)
from falaj.components.kubernetes.storage_classes.drivers import (
    azure_disk,
    ebs,
    file_classes,
    of_csi,
)
from falaj.components.specification.property_names import engine_inputs

__all__ = [
    "StorageClasses",
    "StorageClassesArgs",
    "StorageCsiClassArgs",
    "StorageFilesArgs",
    "check",
    "manifests",
]


class StorageClasses(pulumi.ComponentResource):
    """Storage classes of a cluster.

    ::

        classes = StorageClasses("storage", {
            "distribution": "eks", "region": "me-central-1", "registry": registry,
            "tenant": "platform", "owner": "ml@acme.example", "data_class": "restricted",
            "cost_center": "ai-42", "acknowledge_degraded": "2026-04-30",
            "disk_encryption_id": keys.disk_encryption_id,
            "files": {"file_system_id": file_system.file_system_id,
                      "mount_address": file_system.mount_address,
                      "size_gib": 4800, "namespaces": ["acme-training"]},
        })

    ``falaj-block`` is for the disks of single pods, and what claims get that name no class;
    ``falaj-files`` is shared by many. Drivers leave volumes unencrypted or take the provider's key
    by default; here no class is made without a key: EBS with the key's ARN, Azure disks with a
    disk encryption set, FSx as PERSISTENT_2 with a key, and on an existing cluster any driver
    whose parameters name one. Volumes are made where their pod is, in the zones that are allowed.

    In production what was claimed stays when its claim is deleted, until somebody removes it.
    """

    block_class: str
    """What claims get that name no class."""
    file_class: str | None
    """Name of the shared file system's class; None without."""

    def __init__(
        self, name: str, args: StorageClassesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check(name, args)
        super().__init__(token("StorageClasses"), name, engine_inputs(args), opts)
        declare(self, name, manifests(spec))
        self.block_class = spec.default_class
        shared = spec.files is not None or any(each.name == FILES for each in spec.classes)
        self.file_class = FILES if shared else None
        self.register_outputs({"blockClass": self.block_class, "fileClass": self.file_class})


def manifests(spec: StorageClassesSpec) -> list[Manifest]:
    """The classes of a cluster."""
    if spec.placed.distribution == "existing":
        return [each for given in spec.classes for each in of_csi(spec, given)]
    found = ebs(spec) if spec.placed.distribution == "eks" else azure_disk(spec)
    if spec.files is not None:
        found += file_classes(spec, spec.files)
    return found
