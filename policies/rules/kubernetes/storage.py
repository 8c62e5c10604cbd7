"""Volumes and backups: in allowed regions, with keys of one's own.

https://github.com/kubernetes-sigs/aws-ebs-csi-driver/blob/master/docs/parameters.md
https://github.com/kubernetes-sigs/azuredisk-csi-driver/blob/master/docs/driver-parameters.md
https://github.com/kubernetes-sigs/aws-fsx-csi-driver
https://github.com/vmware-tanzu/velero-plugin-for-aws/blob/main/backupstoragelocation.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.components.catalogue.clusters import (
    GEO_REPLICATION,
    PLACE_PARAMETERS,
    PROVIDER_KEYS,
    REPLICATION_PARAMETERS,
    STORAGE_DRIVERS,
    StorageDriver,
)
from falaj.components.catalogue.destinations import (
    BACKUP_ABROAD,
    BACKUP_AWS,
    BACKUP_AZURE,
    BACKUP_STORES,
    MOUNT_REGIONS,
    MOUNT_SERVERS,
    VOLUME_SERVERS,
)
from falaj.components.catalogue.region_names import place_named, region_in
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_path,
    format_value,
    get,
    is_true,
    is_unknown,
    items,
    rule,
    select,
    text,
)
from falaj.policies.reading.destinations import is_made_here, parsed_host
from falaj.policies.reading.kubernetes import Manifest, is_bundle, kinds, manifests
from falaj.policies.reading.services import may_reach, outside
from falaj.wire.documents import is_mapping, mapping

#: Types of keys, which have rules of their own.
_KEY: Final = re.compile(r"kms/|DiskEncryptionSet|keyvault:Key")


def _parameters(manifest: Manifest) -> dict[str, tuple[str, Any]]:
    """Parameters by their name in small letters (drivers don't tell them apart), with paths."""
    given = manifest.get("parameters")
    known: Mapping[Any, Any] = mapping(given)
    return {
        str(key).lower().removeprefix("csi.storage.k8s.io/"): (f"parameters.{key}", value)
        for key, value in known.items()
        if value is not None
    }


@rule(
    "kubernetes-storage-class-key",
    "Storage classes encrypt with a key of one's own",
    Severity.HIGH,
    kinds("storage.k8s.io:StorageClass"),
    ("iso27001:A.8.24", "uae-ia:T7.4.1", "uae-ia:T7.4.2", "pdpl:20", "gdpr:32", "cis-aws:6.1.1"),
    'EBS: set parameters encrypted: "true" and kmsKeyId to the key\'s full ARN. Azure disks: '
    "diskEncryptionSetID. FSx: kmsKeyId with deploymentType PERSISTENT_2. Azure files: "
    "storageAccount, of an account with a key of its own.",
)
def storage_class_key(resource: Resource, context: Context) -> Iterator[Finding]:
    """Volumes of the clouds aren't made without a key, nor with the provider's."""
    for manifest in manifests(resource):
        if manifest.kind != "StorageClass":
            continue
        provisioner = manifest.get("provisioner")
        if is_unknown(provisioner):
            yield manifest.indeterminate("provisioner", f"which driver it is {provisioner.reason}")
            continue
        driver = STORAGE_DRIVERS.get(text(provisioner))
        if driver is None or (manifest.is_patch and manifest.get("parameters") is ABSENT):
            continue
        if is_unknown(manifest.get("parameters")):
            reason = manifest.get("parameters").reason
            yield manifest.indeterminate("parameters", f"whether a key is named {reason}")
            continue
        yield from _demand(manifest, driver, resource, context)


def _demand(
    manifest: Manifest, driver: StorageDriver, resource: Resource, context: Context
) -> Iterator[Finding]:
    parameters = _parameters(manifest)
    name = text(manifest.get("provisioner"))
    if any(each in parameters for each in driver.instead):
        return
    if driver.switch:
        path, value = parameters.get(driver.switch, (f"parameters.{driver.switch}", ABSENT))
        if is_unknown(value):
            yield manifest.indeterminate(path, f"whether volumes are encrypted {value.reason}")
        elif not is_true(value):
            given = "isn't set, which is false" if value is ABSENT else f"is {format_value(value)}"
            yield manifest.violation(path, f"encrypted {given}")
    if not driver.key:
        wanted = driver.instead[0]
        yield manifest.violation(
            f"parameters.{wanted}",
            f"{name} makes what it needs with the provider's key, for {wanted} isn't set",
        )
        return
    path, value = parameters.get(driver.key, (f"parameters.{_SPELT[driver.key]}", ABSENT))
    if is_unknown(value):
        made_of = context.referred(resource, manifest.path(path))
        if not any(_KEY.search(each.kind) for each in made_of):
            yield manifest.indeterminate(path, f"the key {value.reason}")
    elif not text(value):
        yield manifest.violation(path, f"{name} is given no key, so that the provider's is used")
    elif any(each in text(value) for each in PROVIDER_KEYS):
        yield manifest.violation(path, f"{format_value(value)} is the provider's key")


_SPELT: Final = {
    "kmskeyid": "kmsKeyId",
    "diskencryptionsetid": "diskEncryptionSetID",
    "disk-encryption-kms-key": "disk-encryption-kms-key",
}
_PLACED: Final = kinds(
    "storage.k8s.io:StorageClass",
    "snapshot.storage.k8s.io:VolumeSnapshotClass",
    "core:PersistentVolume",
)
_ABROAD: Final = (
    "pdpl:22", "pdpl:23", "health-data:13", "cbuae-outsourcing:6.1", "iso27001:A.5.23",
    "uae-ia:T3.5.1",
)  # fmt: skip


@rule(
    "kubernetes-storage-abroad",
    "Volumes and snapshots stay in allowed regions",
    Severity.CRITICAL,
    _PLACED,
    _ABROAD,
    "Remove the place from the parameters, or name an allowed one; use a redundancy within the "
    "region (LRS, ZRS).",
)
def storage_abroad(resource: Resource, context: Context) -> Iterator[Finding]:
    """No parameter names a place abroad or copies to one; no server is elsewhere."""
    for manifest in manifests(resource):
        if manifest.kind in {"StorageClass", "VolumeSnapshotClass"}:
            for key, (path, value) in _parameters(manifest).items():
                yield from _parameter(manifest, key, path, value, context)
        elif manifest.kind == "PersistentVolume" and not manifest.group:
            for path, value in _servers(manifest):
                yield from _server(manifest, path, value, context)
            for key, (path, value) in _attributes(manifest).items():
                yield from _parameter(manifest, key.lower(), path, value, context)
            for path, key, value in _options(manifest):
                if key in MOUNT_REGIONS:
                    yield from _parameter(manifest, "region", path, value, context)


def _server(manifest: Manifest, path: str, value: Any, context: Context) -> Iterator[Finding]:
    if is_unknown(value):
        if not is_made_here(manifest, path, context):
            yield manifest.indeterminate(path, f"the server {value.reason}")
    elif text(value) and not may_reach(parsed_host(text(value)), context.settings):
        yield manifest.violation(path, outside(value))


#: Where volumes of Kubernetes' own kinds name their servers.
_SERVERS: Final = (
    "spec.nfs.server",
    "spec.iscsi.targetPortal",
    "spec.iscsi.portals",
    "spec.cephfs.monitors",
    "spec.rbd.monitors",
)
_ATTRIBUTES: Final = "spec.csi.volumeAttributes"
_OPTION: Final = re.compile(r"-*([a-z_-]+)[= ]+(\S+)")


def _servers(manifest: Manifest) -> Iterator[tuple[str, Any]]:
    """Hosts and addresses that a volume is mounted from, with their paths."""
    for at in _SERVERS:
        yield from select(manifest.body, at)
    if is_unknown(hidden := manifest.get(_ATTRIBUTES)):
        yield _ATTRIBUTES, hidden
    for key, (path, value) in _attributes(manifest).items():
        if key.lower() in VOLUME_SERVERS:
            yield path, value
    for path, key, value in _options(manifest):
        if key in MOUNT_SERVERS:
            yield path, value


def _attributes(manifest: Manifest) -> dict[str, tuple[str, Any]]:
    """What a CSI driver is told of a volume: by name, the path and the value."""
    found = manifest.get(_ATTRIBUTES)
    if not is_mapping(found):
        return {}
    at = ("spec", "csi", "volumeAttributes")
    return {str(key): (format_path((*at, str(key))), each) for key, each in found.items()}


def _options(manifest: Manifest) -> Iterator[tuple[str, str, str]]:
    """Options of mounting that have a value: the path, the option in small letters, its value."""
    for index, each in enumerate(items(manifest.get("spec.mountOptions"))):
        if found := _OPTION.match(text(each).lower()):
            yield f"spec.mountOptions[{index}]", found[1], found[2]


def _parameter(
    manifest: Manifest, key: str, path: str, value: Any, context: Context
) -> Iterator[Finding]:
    allowed = context.settings.allowed_places
    paired = context.settings.geo_redundancy == "paired"
    if key in REPLICATION_PARAMETERS:
        if is_unknown(value):
            yield manifest.indeterminate(path, f"the redundancy {value.reason}")
        elif text(value).upper().rpartition("_")[2] in GEO_REPLICATION and not paired:
            yield manifest.violation(path, f"{format_value(value)} copies to another region")
    elif key in PLACE_PARAMETERS:
        if is_unknown(value):
            yield manifest.indeterminate(path, f"the place {value.reason}")
            return
        for each in text(value).split(","):
            place = place_named(each.strip())
            if place and place not in allowed:
                yield manifest.violation(
                    path, f"{format_value(each)} isn't one of {', '.join(allowed)}"
                )
    elif (region := region_in(value)) and f"aws/{region}" not in allowed:
        yield manifest.violation(path, f"what it names is in {region}")


@rule(
    "kubernetes-volume-host-path",
    "Persistent volumes aren't folders of nodes",
    Severity.MEDIUM,
    kinds("core:PersistentVolume"),
    ("iso27001:A.8.22", "iso27001:A.8.9", "uae-ia:T5.2.2"),
    "Use a storage class, or a local volume with a disk of its own.",
)
def volume_host_path(resource: Resource, context: Context) -> Iterator[Finding]:
    """A claim to such a volume gives a pod its node's files, past the pod's own standards."""
    for manifest in manifests(resource):
        path = manifest.get("spec.hostPath")
        if manifest.kind == "PersistentVolume" and not manifest.group and path is not ABSENT:
            if is_unknown(path):
                yield manifest.indeterminate("spec.hostPath", f"a path of the node {path.reason}")
            else:
                yield manifest.violation("spec.hostPath", "the volume is a path of a node")


_LOCATIONS: Final = kinds(
    "velero.io:BackupStorageLocation", "velero.io:VolumeSnapshotLocation"
) | {"kubernetes:helm.sh/*:Release", "kubernetes:helm.sh/*:Chart"}


def _locations(resource: Resource) -> Iterator[tuple[Manifest, str, Any]]:
    """Each place for backups: the object, the path of its spec, and the spec."""
    for manifest in manifests(resource):
        if manifest.group == "velero.io" and manifest.kind.endswith("Location"):
            yield manifest, "spec", manifest.spec
    if resource.package == "kubernetes" and is_bundle(resource):
        chart = Manifest(resource, "helm.sh", "chart", resource.properties)
        for key in ("backupStorageLocation", "volumeSnapshotLocation"):
            path = f"values.configuration.{key}"
            for index, each in enumerate(items(chart.get(path))):
                yield chart, f"{path}[{index}]", each


@rule(
    "kubernetes-backup-abroad",
    "Backups of clusters stay in allowed regions",
    Severity.CRITICAL,
    _LOCATIONS,
    (
        "pdpl:22",
        "pdpl:23",
        "health-data:13",
        "cbuae-outsourcing:6.1",
        "uae-ia:T3.5.1",
        "iso27001:A.8.13",
    ),
    "Set config.region to an allowed region, or config.s3Url to a store of your own; on Azure "
    "config.storageAccountURI, with its host in allowedHosts.",
)
def backup_abroad(resource: Resource, context: Context) -> Iterator[Finding]:
    """The region is allowed, or the store or bucket is one's own."""
    for manifest, at, spec in _locations(resource):
        if is_unknown(spec):
            yield manifest.indeterminate(at, f"where backups go {spec.reason}")
        elif is_mapping(spec):
            yield from _place(manifest, at, spec, context)


def _place(
    manifest: Manifest, at: str, spec: Mapping[str, Any], context: Context
) -> Iterator[Finding]:
    given = spec.get("provider")
    provider = text(given).lower()
    if provider in BACKUP_ABROAD:
        yield manifest.violation(f"{at}.provider", f"{provider} has no region in the country")
        return
    stores = _stores(get(spec, "config"))
    for key, value in stores.items():
        yield from _server(manifest, f"{at}.config.{key}", value, context)
    region = get(spec, "config.region")
    if stores:
        return
    if is_unknown(given) and region is ABSENT:
        yield manifest.indeterminate(f"{at}.provider", "which cloud it is can't be known")
    elif is_unknown(region):
        yield manifest.indeterminate(f"{at}.config.region", f"the region {region.reason}")
    elif region is not ABSENT:
        if place_named(region) not in context.settings.allowed_places:
            yield manifest.violation(
                f"{at}.config.region",
                f"{format_value(region)} isn't one of "
                f"{', '.join(context.settings.allowed_places)}",
            )
    elif provider in (*BACKUP_AWS, *BACKUP_AZURE) and not manifest.is_patch:
        yield from _unplaced(manifest, at, spec, context)


def _stores(config: Any) -> dict[str, Any]:
    """Addresses of stores that a plugin is told of, whatever it calls them."""
    if not is_mapping(config):
        return {}
    return {
        str(key): each
        for key, each in config.items()
        if (key in BACKUP_STORES and (is_unknown(each) or text(each))) or "://" in text(each)
    }


def _unplaced(
    manifest: Manifest, at: str, spec: Mapping[str, Any], context: Context
) -> Iterator[Finding]:
    names = [get(spec, key) for key in ("objectStorage.bucket", "bucket", "config.storageAccount")]
    known = context.stack is not None and any(
        context.stack.called(each) for each in names if not is_unknown(each)
    )
    if not known:
        yield manifest.indeterminate(
            f"{at}.config.region", "no region is named, and the bucket isn't one of this stack"
        )


@rule(
    "kubernetes-backup-key",
    "Backups of clusters are encrypted with a key of one's own",
    Severity.HIGH,
    _LOCATIONS,
    ("iso27001:A.8.24", "iso27001:A.8.13", "uae-ia:T7.4.2", "pdpl:20", "gdpr:32"),
    "Set config.kmsKeyId to a key of the same region, or config.customerKeyEncryptionFile for "
    "stores of your own.",
)
def backup_key(resource: Resource, context: Context) -> Iterator[Finding]:
    """A location of AWS names its key; accounts of Azure have theirs."""
    for manifest, at, spec in _locations(resource):
        snapshots = "napshot" in at or manifest.kind == "VolumeSnapshotLocation"
        if snapshots or manifest.is_patch or text(get(spec, "provider")).lower() not in BACKUP_AWS:
            continue
        found = [
            get(spec, f"config.{key}")
            for key in ("kmsKeyId", "customerKeyEncryptionFile", "customerKeyEncryptionSecret")
        ]
        hidden = next((each for each in found if is_unknown(each)), None)
        path = f"{at}.config.kmsKeyId"
        if any(text(each) for each in found):
            continue
        if hidden is None:
            yield manifest.violation(path, "no key is named, so that the provider's is used")
        elif not context.referred(resource, manifest.path(path)):
            yield manifest.indeterminate(path, f"the key {hidden.reason}")


RULES: tuple[Rule, ...] = (
    storage_class_key,
    storage_abroad,
    volume_host_path,
    backup_abroad,
    backup_key,
)
