"""Backups of a cluster's objects and volumes: in allowed regions, with a key of one's own.

https://github.com/vmware-tanzu/velero-plugin-for-aws/blob/main/backupstoragelocation.md
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.components.catalogue.region_names import place_named
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_value,
    get,
    is_unknown,
    items,
    rule,
    text,
)
from falaj.policies.reading.kubernetes import Manifest, is_bundle, kinds, manifests
from falaj.policies.reading.services import may_reach

_LOCATIONS: Final = kinds(
    "velero.io:BackupStorageLocation", "velero.io:VolumeSnapshotLocation"
) | {"kubernetes:helm.sh/*:Release", "kubernetes:helm.sh/*:Chart"}
_AWS: Final = frozenset({"aws", "velero.io/aws"})
#: Where plugins are told a store's own address.
_STORES: Final = ("s3Url", "storageAccountURI")
_FOREIGN: Final = frozenset({"gcp", "velero.io/gcp", "alibabacloud", "digitalocean"})


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
        elif isinstance(spec, Mapping):
            yield from _place(manifest, at, spec, context)


def _place(
    manifest: Manifest, at: str, spec: Mapping[str, Any], context: Context
) -> Iterator[Finding]:
    key = next((each for each in _STORES if get(spec, f"config.{each}") is not ABSENT), _STORES[0])
    url, region = get(spec, f"config.{key}"), get(spec, "config.region")
    provider = text(spec.get("provider")).lower()
    if provider in _FOREIGN:
        yield manifest.violation(f"{at}.provider", f"{provider} has no region in the country")
    elif is_unknown(url):
        yield manifest.indeterminate(f"{at}.config.{key}", f"the store {url.reason}")
    elif text(url):
        if not may_reach(url, context.settings):
            yield manifest.violation(
                f"{at}.config.{key}",
                f"{format_value(url)} is neither private, in an allowed region nor one of "
                "allowedHosts",
            )
    elif is_unknown(spec.get("provider")) and region is ABSENT:
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
    elif provider in _AWS | {"azure", "velero.io/azure"} and not manifest.is_patch:
        yield from _unplaced(manifest, at, spec, context)


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
        if snapshots or manifest.is_patch or text(get(spec, "provider")).lower() not in _AWS:
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


RULES: tuple[Rule, ...] = (backup_abroad, backup_key)
