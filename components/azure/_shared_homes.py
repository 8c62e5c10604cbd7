"""Azure Files: homes that people and jobs share."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import storage

from falaj.components.azure._groups import kept
from falaj.components.azure._names import compact
from falaj.components.azure._private_endpoint import Door, private_endpoint
from falaj.components.azure._storage import Account, storage_account
from falaj.components.specification.placed import Placed

_SHARE = "homes"
#: Days in which a deleted share can be had back.
_RETENTION_DAYS = 30


@dataclass(frozen=True)
class Homes:
    """Where homes stand, under which key, and how large they are."""

    key_id: pulumi.Input[str]
    identity_id: pulumi.Input[str]
    door: Door
    size_gib: int


def shared_homes(
    name: str, placed: Placed, homes: Homes, opts: pulumi.ResourceOptions
) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
    """Make an account for files, and a share of NFS 4.1 in it.

    The account asks for secure transfer, so that clients mount through TLS (the ``aznfs`` helper;
    ``encryptInTransit: "true"`` of the cluster's driver). NFS has no passwords: who reaches the
    endpoint may mount, and the network's rules let nodes alone reach it on that port.

    Returns:
        The share's id, and its address to mount.
    """
    stored = kept(opts, placed.retained)
    account = storage_account(
        f"{name}-homes-account",
        placed,
        Account(
            title=compact(placed, "storage", name, "homes"),
            group=homes.door.group,
            key_id=homes.key_id,
            identity_id=homes.identity_id,
            sku=storage.SkuName.PREMIUM_ZRS if placed.place.zones else storage.SkuName.PREMIUM_LRS,
            tags=placed.tags(name),
            kind=storage.Kind.FILE_STORAGE,
        ),
        stored,
    )
    service = storage.FileServiceProperties(
        f"{name}-homes-service",
        account_name=account.name,
        resource_group_name=homes.door.group,
        file_services_name="default",
        share_delete_retention_policy=storage.DeleteRetentionPolicyArgs(
            enabled=True, days=_RETENTION_DAYS
        ),
        opts=stored,
    )
    share = storage.FileShare(
        f"{name}-homes-share",
        share_name=_SHARE,
        account_name=account.name,
        resource_group_name=homes.door.group,
        enabled_protocols=storage.EnabledProtocols.NFS,
        root_squash=storage.RootSquashType.ROOT_SQUASH,
        share_quota=homes.size_gib,
        opts=pulumi.ResourceOptions.merge(stored, pulumi.ResourceOptions(depends_on=[service])),
    )
    private_endpoint(f"{name}-homes-endpoint", "file", account.id, homes.door, opts)
    address = account.name.apply(lambda own: f"{own}.file.core.windows.net:/{own}/{_SHARE}")
    return share.id, address
