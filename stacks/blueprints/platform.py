"""What makes a cluster a place for AI workloads: add-ons, storage, queues, tenants, admission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from falaj.stacks.blueprints.in_cluster import InClusterParts
from falaj.stacks.settings.platform import PlatformSettings, asked_addons


def declare(settings: PlatformSettings, parts: InClusterParts) -> None:
    """Register the resources of a platform stack and export what workloads need."""
    components, options = parts.components, parts.options
    addons = asked_addons(settings.installation)
    platform = components.Platform(
        "platform", parts.args(settings.installation, images=True, addons=addons), options
    )
    # Queues, tenants and the gateway are objects of kinds that the add-ons define.
    after = pulumi.ResourceOptions.merge(options, _after(parts, platform))
    made = [platform]
    if settings.storage is not None:
        made.append(components.StorageClasses("storage", _storage(settings, parts), after))
    if settings.queues is not None:
        made.append(components.GpuQueues("queues", parts.args(settings.queues), after))
    if settings.gateway is not None:
        made.append(components.Gateway("falaj", parts.args(settings.gateway, images=True), after))
    tenants = {
        name: components.Tenant(name, parts.args(section, tenant=name), after)
        for name, section in settings.tenants.items()
    }
    # Last, and so first to go: what the cluster refuses never stands in the way of its own
    # platform's making or ending.
    components.Residency(
        "residency",
        _residency(settings, parts),
        pulumi.ResourceOptions.merge(options, _after(parts, *made, *tenants.values())),
    )
    parts.export("region", parts.common["region"])
    parts.export("distribution", parts.common["distribution"])
    parts.export("tenants", {name: made.namespaces for name, made in tenants.items()})


def _residency(settings: PlatformSettings, parts: InClusterParts) -> dict[str, Any]:
    """Arguments of the admission: what the stack makes and its packs allow, the cluster takes."""
    packs, storage = settings.policies, settings.storage
    classes: Mapping[str, Any] = {}
    if storage is not None:
        classes = storage.model_dump(exclude_none=True).get("classes") or {}
    allowed = {
        "allowed_registries": packs.allowed_registries,
        "allowed_hosts": packs.allowed_hosts,
        "storage_classes": sorted(classes) or None,
    }
    given = {key: each for key, each in allowed.items() if each is not None}
    return {**given, **parts.args(settings.residency)}


def _after(parts: InClusterParts, *resources: pulumi.Resource) -> pulumi.ResourceOptions:
    """Options of what waits for ``resources``; a validation has nothing to wait for."""
    waits = list(resources) if parts.unknown is None else []
    return pulumi.ResourceOptions(depends_on=waits)


def _storage(settings: PlatformSettings, parts: InClusterParts) -> dict[str, Any]:
    """Arguments of the classes, with the key and the file system of the stack of the cluster."""
    given = parts.args(settings.storage)
    if settings.cluster is None:
        return given
    if "disk_encryption_id" not in given:
        given["disk_encryption_id"] = parts.of_cluster("diskEncryptionId")
    files = given.get("files")
    if files and "subnet_id" not in files and "file_system_id" not in files:
        given["files"] = {
            **files,
            "file_system_id": parts.of_cluster("fileSystemId"),
            "mount_address": parts.of_cluster("mountAddress"),
        }
    return given
