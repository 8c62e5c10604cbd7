"""Disks, images and registries of Azure: who may take copies, and from where images come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    rule,
    text,
    violation,
)
from falaj.policies.reading.images import is_allowed, parse
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency.azure_targets import CONTROLS


@rule(
    "residency-azure-disk-export",
    "Disks and snapshots can't be downloaded over the Internet",
    Severity.HIGH,
    azure("compute:Disk", "compute:Snapshot"),
    CONTROLS,
    "Set networkAccessPolicy to DenyAll, or to AllowPrivate with a disk access, and "
    "publicNetworkAccess to Disabled.",
)
def disk_export(resource: Resource, view: View) -> Iterator[Finding]:
    """AllowAll and Enabled by default: a link then lets anyone, anywhere, copy the disk.

    https://learn.microsoft.com/azure/virtual-machines/disks-restrict-import-export-overview
    """
    del view
    policy = resource.get("networkAccessPolicy")
    public = resource.get("publicNetworkAccess")
    if text(policy).lower() in {"denyall", "allowprivate"}:
        return
    if is_unknown(policy):
        yield indeterminate("networkAccessPolicy", "whether it can be downloaded can't be seen")
    elif is_unknown(public):
        yield indeterminate("publicNetworkAccess", "whether it can be downloaded can't be seen")
    elif text(public).lower() != "disabled":
        given = text(policy) or "not given, and so AllowAll"
        yield violation(
            "networkAccessPolicy",
            f"it is {given}: a link lets anyone copy it; it must be DenyAll or AllowPrivate",
        )


@rule(
    "residency-azure-community-gallery",
    "Galleries aren't shared with the whole world",
    Severity.CRITICAL,
    azure("compute:Gallery"),
    CONTROLS,
    "Set sharingProfile.permissions to Private or Groups.",
)
def community_gallery(resource: Resource, view: View) -> Iterator[Finding]:
    """A community's images can be used by every subscription; galleries are private by default."""
    del view
    path = "sharingProfile.permissions"
    shared = resource.get(path)
    if is_unknown(shared):
        yield indeterminate(path, "with whom it is shared can't be seen")
    elif text(shared).lower() == "community":
        yield violation(path, "it is shared with every subscription of the world")


#: Microsoft's own registry, from which Azure's nodes get their system images whether a cache
#: names it or not; it is read only, and each region serves its own copy
#: (https://learn.microsoft.com/azure/container-registry/container-registry-client-firewall-rules).
_SYSTEM: Final = frozenset(("mcr.microsoft.com",))


@rule(
    "residency-azure-registry-cache",
    "Registries cache images of allowed registries only",
    Severity.HIGH,
    azure("containerregistry:CacheRule"),
    CONTROLS,
    "Import the images that you have reviewed, or name the registry in the setting "
    "allowedRegistries: a cache tells its source what runs here, and runs what the source says.",
)
def registry_cache(resource: Resource, view: View) -> Iterator[Finding]:
    """Where a cache gets its images."""
    path = "sourceRepository"
    source = resource.get(path)
    if is_unknown(source):
        yield indeterminate(path, "the registry that it caches can't be seen")
    elif text(source):
        image = parse(text(source))
        if image.host not in _SYSTEM and not is_allowed(image, view.settings):
            yield violation(path, f"it caches {image.host}, which is none of allowedRegistries")


RULES: Final[tuple[Rule, ...]] = (disk_export, community_gallery, registry_cache)
