"""Azure Managed Lustre, where the catalogue says that it is sold."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import storagecache

from falaj.components.azure._groups import kept
from falaj.components.azure._names import titled
from falaj.components.specification.placed import REGIONAL
from falaj.components.specification.training_file_system import TrainingFileSystemSpec

_GIB_PER_TIB = 1024


@dataclass(frozen=True)
class Lustre:
    """Where a file system stands and under which key."""

    group: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    """Not a delegated one: the servers have addresses among the nodes."""
    key_ring_id: pulumi.Input[str]
    key_url: pulumi.Input[str]
    """Identifier of a key's version: Managed Lustre takes no other, and doesn't follow a newer."""
    identity_id: pulumi.Input[str]


def managed_lustre(
    name: str, spec: TrainingFileSystemSpec, where: Lustre, opts: pulumi.ResourceOptions
) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
    """Make a file system.

    Returns:
        Its id, and its address to mount.
    """
    placed = spec.placed
    made = storagecache.AmlFilesystem(
        f"{name}-lustre",
        aml_filesystem_name=titled(placed, name),
        resource_group_name=where.group,
        location=placed.region,
        sku=storagecache.SkuNameArgs(name=f"AMLFS-Durable-Premium-{spec.throughput_mbs_per_tib}"),
        storage_capacity_ti_b=spec.capacity_gib / _GIB_PER_TIB,
        zones=None if spec.zone == REGIONAL else [spec.zone],
        filesystem_subnet=where.subnet_id,
        identity=storagecache.AmlFilesystemIdentityArgs(
            type=storagecache.AmlFilesystemIdentityType.USER_ASSIGNED,
            user_assigned_identities=[where.identity_id],
        ),
        encryption_settings=storagecache.AmlFilesystemEncryptionSettingsArgs(
            key_encryption_key=storagecache.KeyVaultKeyReferenceArgs(
                key_url=where.key_url,
                source_vault=storagecache.KeyVaultKeyReferenceSourceVaultArgs(
                    id=where.key_ring_id
                ),
            )
        ),
        # By night in the country's weekend: 23:00 UTC is 03:00 of the next day there.
        maintenance_window=storagecache.AmlFilesystemMaintenanceWindowArgs(
            day_of_week=storagecache.MaintenanceDayOfWeekType.SATURDAY, time_of_day_utc="23:00"
        ),
        tags=placed.tags(name),
        opts=kept(opts, placed.retained),
    )
    address = made.client_info.apply(
        lambda info: f"{info.mgs_address}@tcp0:/lustrefs" if info else ""
    )
    return made.id, address
