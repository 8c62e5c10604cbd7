"""Storage classes of a cluster, each with a key of one's own: arguments, checks and objects."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NotRequired, TypedDict, cast

import pulumi

from falaj.components.catalogue.clusters import ZONE_LABEL
from falaj.components.kubernetes._objects import Manifest, declare, metadata, token
from falaj.components.kubernetes._placed import (
    InCluster,
    InClusterArgs,
    check_in_cluster,
)
from falaj.components.kubernetes._validation import checked
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import OBJECT, Between, OneOf
from falaj.components.specification.property_names import engine_inputs
from falaj.components.specification.training_file_system import (
    DEFAULT_THROUGHPUT,
    NEWER_FSX_THROUGHPUTS,
)
from falaj.wire.documents import mapping

__all__ = [
    "StorageClasses",
    "StorageClassesArgs",
    "StorageCsiClassArgs",
    "StorageFilesArgs",
    "check",
    "manifests",
]


BLOCK: Final = "falaj-block"
FILES: Final = "falaj-files"
#: An alias would be resolved at the time of each use; the driver takes a full ARN.
_KMS_ARN: Final = re.compile(r"^arn:aws:kms:([a-z0-9-]+):\d{12}:key/[a-f0-9-]{36}$")
_KMS_LIKE: Final = re.compile(r"^arn:aws:kms:([a-z0-9-]+):")
_ENCRYPTION_SET: Final = re.compile(
    r"^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Compute"
    r"/diskEncryptionSets/[^/]+$",
    re.IGNORECASE,
)
#: Only redundancy within the region.
_SKUS: Final = OneOf(("Premium_LRS", "Premium_ZRS", "PremiumV2_LRS", "StandardSSD_LRS"))
#: ceph-csi's classes encrypt where both are set: github.com/ceph/ceph-csi/blob/devel/docs
_CEPH: Final = (".rbd.csi.ceph.com", ".cephfs.csi.ceph.com")
#: Drivers whose volumes are folders or disks of a node, or have no encryption of their own.
_UNPROTECTED: Final = ("kubernetes.io/no-provisioner", "rancher.io/local-path", "nfs.csi.k8s.io",
                       "smb.csi.k8s.io", "k8s.io/minikube-hostpath")  # fmt: skip


class StorageFilesArgs(TypedDict):
    """The file system that the jobs of several nodes share (EKS and AKS)."""

    file_system_id: NotRequired[pulumi.Input[str]]
    """One that exists, made with a key of one's own: ``TrainingFileSystem.file_system_id``.
    Default: on EKS a new one for each claim."""
    mount_address: NotRequired[pulumi.Input[str]]
    """``TrainingFileSystem.mount_address``: ``<host>@tcp:/<name>``, or ``<host>:/<path>`` of NFS.
    Needed with ``file_system_id``."""
    protocol: NotRequired[Annotated[str, OneOf(("lustre", "nfs")), Default("lustre")]]
    """How nodes mount it; NetApp Files on AKS by ``nfs``."""
    size_gib: NotRequired[Annotated[int, Between(1, 10_000_000)]]
    """Its size. Needed with ``file_system_id``."""
    namespaces: NotRequired[list[Annotated[str, OBJECT]]]
    """Namespaces that have it as the claim ``falaj-files``. Needed with ``file_system_id``."""
    subnet_id: NotRequired[pulumi.Input[str]]
    """EKS, new ones: subnet. Needed without ``file_system_id``."""
    security_group_id: NotRequired[pulumi.Input[str]]
    """EKS, new ones: security group that lets Lustre in. Needed without ``file_system_id``."""
    throughput_mb_s_per_tib: NotRequired[Annotated[int, NEWER_FSX_THROUGHPUTS, DEFAULT_THROUGHPUT]]
    """EKS, new ones: megabytes a second for each TiB."""


class StorageCsiClassArgs(TypedDict):
    """A class of an existing cluster."""

    provisioner: str
    """The CSI driver: ``rook-ceph.rbd.csi.ceph.com`` …"""
    parameters: dict[str, str]
    """The driver's parameters. Ceph: ``encrypted: "true"`` and ``encryptionKMSID``."""
    key_parameter: NotRequired[str]
    """Which of the parameters names the key, for drivers that aren't Ceph's. Needed for those,
    or ``evidence``."""
    evidence: NotRequired[str]
    """Where it is written that what the driver makes is encrypted with a key of one's own, as of
    an appliance: a document and its number. An annotation. Default: none."""
    shared: NotRequired[bool]
    """Whether several nodes have a volume at a time. Default: false; true for
    ``falaj-files``."""
    snapshot_parameters: NotRequired[dict[str, str]]
    """Parameters of the driver's snapshots. Default: it makes none."""


@described
class StorageClassesArgs(InClusterArgs):
    """Arguments of `StorageClasses`."""

    disk_encryption_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.disk_encryption_id``: the key's full ARN, or the id of a disk encryption set.
    Needed on ``eks`` and ``aks``."""
    files: NotRequired[StorageFilesArgs]
    """The shared file system on ``eks`` and ``aks``. Default: none."""
    classes: NotRequired[dict[Annotated[str, OBJECT], StorageCsiClassArgs]]
    """Classes of an ``existing`` cluster by name; ``falaj-block`` is the default one. Needed
    there."""
    default_class: NotRequired[Annotated[str, Default(BLOCK)]]
    """What claims get that name no class."""
    reclaim: NotRequired[Annotated[str, OneOf(("Delete", "Retain"))]]
    """What becomes of what was claimed. Default: ``Retain`` in production, else ``Delete``."""
    file_system_type: NotRequired[Annotated[str, OneOf(("ext4", "xfs")), Default("ext4")]]
    """Of disks."""
    iops: NotRequired[Annotated[int, Between(3000, 80_000), Default(3000)]]
    """EKS: operations a second of each disk; the fewest are what gp3 has without a further
    price."""
    throughput_mib_s: NotRequired[Annotated[int, Between(125, 2000), Default(125)]]
    """EKS: of each disk; the least is what gp3 has without a further price."""
    disk_sku: NotRequired[Annotated[str, _SKUS, Default("Premium_LRS")]]
    """AKS: kind of the disks."""
    double_encryption: NotRequired[Annotated[bool, Default(value=True)]]
    """AKS: whether the disk encryption set encrypts twice, with one's own key and the platform's,
    as `KeyRing`'s does. Not with ``PremiumV2_LRS``."""


@dataclass(frozen=True)
class CsiClass:
    """A class of an existing cluster, checked."""

    name: str
    provisioner: str
    parameters: dict[str, str]
    evidence: str
    shared: bool
    snapshot_parameters: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class StorageClassesSpec:
    """The arguments of `StorageClasses`, checked."""

    placed: InCluster
    name: str
    key: Any
    """Key or disk encryption set; None on an existing cluster."""
    files: Mapping[str, Any] | None
    classes: tuple[CsiClass, ...]
    default_class: str
    reclaim: str
    file_system_type: str
    iops: int
    throughput_mib_s: int
    disk_sku: str
    double_encryption: bool


def check(name: str, args: StorageClassesArgs) -> StorageClassesSpec:
    """Check the arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"StorageClasses {name!r}")
    given: Mapping[str, Any] = args
    errors.names(given, StorageClassesArgs)
    placed = check_in_cluster(given, errors)
    distribution = placed.distribution if placed else ""
    stated = checked(given, StorageClassesArgs, errors)
    classes = tuple(
        _csi_class(each, one, errors) for each, one in mapping(stated["classes"]).items()
    )
    _of_platform(distribution, given, errors)
    key: object = given.get("disk_encryption_id")
    if placed and key is not None:
        _key(placed, key, errors)
    files: Mapping[str, Any] | None = stated["files"]
    if files is not None:
        _check_files(distribution, files, errors)
    names = [each.name for each in classes] if distribution == "existing" else [BLOCK]
    default: str = stated["default_class"]
    if names and default not in names:
        errors.add("default_class", default, ", ".join(names))
    production = placed is not None and placed.environment == "production"
    sku: str = stated["disk_sku"]
    double: bool = stated["double_encryption"]
    # https://learn.microsoft.com/en-us/azure/virtual-machines/disk-encryption#restrictions
    if double and sku == "PremiumV2_LRS":
        errors.add(
            "disk_sku", sku, ", ".join(each for each in map(str, _SKUS.values) if each != sku),
            "or set double_encryption to false, with a disk encryption set to match",
        )  # fmt: skip
    errors.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return StorageClassesSpec(
        placed=placed,
        name=name,
        key=key,
        files=files,
        classes=classes,
        default_class=default,
        reclaim=stated["reclaim"] or ("Retain" if production else "Delete"),
        file_system_type=stated["file_system_type"],
        iops=stated["iops"],
        throughput_mib_s=stated["throughput_mib_s"],
        disk_sku=sku,
        double_encryption=double,
    )


def _of_platform(distribution: str, args: Mapping[str, Any], errors: ArgumentErrors) -> None:
    """Each platform has arguments of its own."""
    own = {
        "disk_encryption_id": ("eks", "aks"),
        "files": ("eks", "aks"),
        "classes": ("existing",),
        "iops": ("eks",),
        "throughput_mib_s": ("eks",),
        "disk_sku": ("aks",),
        "double_encryption": ("aks",),
    }
    for argument, platforms in own.items():
        if args.get(argument) is not None and distribution and distribution not in platforms:
            errors.say(
                argument,
                f"is for {' and '.join(platforms)}, but distribution is {distribution!r}; "
                "leave it out",
            )
    needed = "classes" if distribution == "existing" else "disk_encryption_id"
    if distribution and not args.get(needed):
        errors.say(needed, f"missing; no class is made without a key (on {distribution})")


def _key(placed: InCluster, value: object, errors: ArgumentErrors) -> None:
    if not isinstance(value, str):
        return  # An output: the key that the same program makes.
    if placed.distribution == "eks":
        found = _KMS_LIKE.match(value)
        if not _KMS_ARN.match(value):
            errors.add(
                "disk_encryption_id", value,
                "the full ARN of a key: arn:aws:kms:<region>:<account>:key/<id>",
            )  # fmt: skip
        if found and found.group(1) != placed.region:
            errors.add("disk_encryption_id", value, f"a key in {placed.region}")
    elif placed.distribution == "aks" and not _ENCRYPTION_SET.match(value):
        errors.add(
            "disk_encryption_id", value,
            "/subscriptions/…/providers/Microsoft.Compute/diskEncryptionSets/<name>",
        )  # fmt: skip


def _check_files(distribution: str, files: Mapping[str, Any], errors: ArgumentErrors) -> None:
    if files["file_system_id"] is not None:
        for key in ("mount_address", "size_gib", "namespaces"):
            if files[key] is None:
                errors.say(f"files.{key}", "missing; needed with file_system_id")
    elif distribution == "aks":
        errors.say(
            "files.file_system_id",
            "missing; on AKS the driver makes none with a key of one's own: use "
            "TrainingFileSystem.file_system_id",
        )
    else:
        for key in ("subnet_id", "security_group_id"):
            if files[key] is None:
                errors.say(f"files.{key}", "missing; needed without file_system_id")


def _csi_class(name: str, given: Mapping[str, Any], errors: ArgumentErrors) -> CsiClass:
    at = f"classes[{name!r}]"
    provisioner: str = given["provisioner"] or ""
    parameters: dict[str, str] = given["parameters"] or {}
    evidence: str = given["evidence"] or ""
    key: str | None = given["key_parameter"]
    if provisioner in _UNPROTECTED:
        errors.add(
            f"{at}.provisioner", provisioner, "drivers that encrypt what they keep",
            "as Rook-Ceph with encrypted and encryptionKMSID",
        )  # fmt: skip
    elif provisioner.endswith(_CEPH):
        if parameters.get("encrypted") != "true":
            errors.add(
                f"{at}.parameters.encrypted", parameters.get("encrypted"), 'the text "true"'
            )
        if not parameters.get("encryptionKMSID"):
            errors.say(
                f"{at}.parameters.encryptionKMSID",
                "missing; allowed: an entry of ceph-csi's KMS configuration, such as that of "
                "OpenBao",
            )
    elif key is not None:
        if not parameters.get(key):
            errors.add(
                f"{at}.key_parameter", key, f"one of parameters: {', '.join(parameters) or 'none'}"
            )
    elif not evidence:
        errors.say(
            f"{at}.key_parameter",
            f"missing; what proves that {provisioner or 'the driver'} encrypts with a key of "
            "one's own? Name the parameter with the key, or set evidence",
        )
    shared: bool = name == FILES if given["shared"] is None else given["shared"]
    return CsiClass(
        name, provisioner, parameters, evidence, shared, given["snapshot_parameters"] or {}
    )


# Disks have one class for each platform. The file system that the jobs of several nodes share is
# made by claim, or exists.

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
    if given["protocol"] == "nfs":
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
