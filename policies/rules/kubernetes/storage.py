"""Storage: volumes with keys of one's own, in allowed regions.

https://github.com/kubernetes-sigs/aws-ebs-csi-driver/blob/master/docs/parameters.md
https://github.com/kubernetes-sigs/azuredisk-csi-driver/blob/master/docs/driver-parameters.md
https://github.com/kubernetes-sigs/aws-fsx-csi-driver
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.components.catalogue.clusters.storage_drivers import (
    COPIES,
    DRIVERS,
    GEO,
    PLACES,
    PROVIDERS_OWN,
    Driver,
)
from falaj.components.catalogue.region_names import place_named, region_in
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_value,
    is_true,
    is_unknown,
    rule,
    select,
    text,
)
from falaj.policies.reading.kubernetes import Manifest, kinds, manifests
from falaj.policies.reading.services import may_reach

#: Types of keys, which have rules of their own.
_KEY: Final = re.compile(r"kms/|DiskEncryptionSet|keyvault:Key")


def _parameters(manifest: Manifest) -> dict[str, tuple[str, Any]]:
    """Parameters by their name in small letters (drivers don't tell them apart), with paths."""
    given = manifest.get("parameters")
    known: Mapping[Any, Any] = given if isinstance(given, Mapping) else {}
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
        driver = DRIVERS.get(text(provisioner))
        if driver is None or (manifest.is_patch and manifest.get("parameters") is ABSENT):
            continue
        if is_unknown(manifest.get("parameters")):
            reason = manifest.get("parameters").reason
            yield manifest.indeterminate("parameters", f"whether a key is named {reason}")
            continue
        yield from _demand(manifest, driver, resource, context)


def _demand(
    manifest: Manifest, driver: Driver, resource: Resource, context: Context
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
    elif any(each in text(value) for each in PROVIDERS_OWN):
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
            for at in _SERVERS:
                for path, value in select(manifest.body, at):
                    if is_unknown(value):
                        yield manifest.indeterminate(path, f"the server {value.reason}")
                    elif text(value) and not may_reach(value, context.settings):
                        yield manifest.violation(
                            path, f"{format_value(value)} is neither private, nor in an allowed "
                            "region, "
                            "nor one of allowedHosts"
                        )  # fmt: skip


_SERVERS: Final = (
    "spec.nfs.server",
    "spec.csi.volumeAttributes.server",
    "spec.iscsi.targetPortal",
)


def _parameter(
    manifest: Manifest, key: str, path: str, value: Any, context: Context
) -> Iterator[Finding]:
    allowed = context.settings.allowed_places
    paired = context.settings.geo_redundancy == "paired"
    if key in COPIES:
        if is_unknown(value):
            yield manifest.indeterminate(path, f"the redundancy {value.reason}")
        elif text(value).upper().rpartition("_")[2] in GEO and not paired:
            yield manifest.violation(path, f"{format_value(value)} copies to another region")
    elif key in PLACES:
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


RULES: tuple[Rule, ...] = (storage_class_key, storage_abroad, volume_host_path)
