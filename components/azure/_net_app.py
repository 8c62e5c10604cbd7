"""Azure NetApp Files: the fast file system of a training cluster."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import netapp

from falaj.components.azure._groups import kept
from falaj.components.azure._ids import key_identifier
from falaj.components.azure._names import titled
from falaj.components.azure._private_endpoint import endpoint_id
from falaj.components.azure._storage import vault_of
from falaj.components.specification.placed import REGIONAL, Placed
from falaj.components.specification.training_file_system import TrainingFileSystemSpec

_GIB = 1024**3
#: 128 MiB/s for each TiB, the most of the three levels:
#: https://learn.microsoft.com/azure/azure-netapp-files/azure-netapp-files-service-levels
_LEVEL = netapp.ServiceLevel.ULTRA
#: Above this a volume is of another kind ("large volume"), which is asked for apart:
#: https://learn.microsoft.com/azure/azure-netapp-files/large-volumes-requirements-considerations
_LARGE_GIB = 100 * 1024
#: Under which the volume is mounted.
_PATH = "training"
#: Who may mount: private addresses; the subnet's rules narrow it to the cluster's nodes.
_CLIENTS = "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16"


@dataclass(frozen=True)
class NetApp:
    """Where a volume stands and under which key."""

    group: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    network_id: pulumi.Input[str]
    key_ring_id: pulumi.Input[str]
    key_id: pulumi.Input[str]
    identity_id: pulumi.Input[str]


def net_app_volume(
    name: str,
    spec: TrainingFileSystemSpec,
    where: NetApp,
    opts: pulumi.ResourceOptions,
) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
    """Make an account, a capacity pool and a volume.

    Returns:
        The volume's id, and its address to mount by NFS 4.1.
    """
    placed = spec.placed
    stored = kept(opts, placed.retained)
    account = _account(name, placed, where, stored)
    pool = netapp.CapacityPool(
        f"{name}-pool",
        pool_name="training",
        account_name=account.name,
        resource_group_name=where.group,
        location=placed.region,
        service_level=_LEVEL,
        size=spec.capacity_gib * _GIB,
        qos_type=netapp.QosType.AUTO,
        # Data under a key of ours are encrypted once; twice is only with the platform's.
        encryption_type=netapp.EncryptionType.SINGLE,
        cool_access=False,
        tags=placed.tags(name),
        opts=stored,
    )
    door = pulumi.Output.all(where.network_id, where.key_ring_id).apply(
        lambda ids: endpoint_id(ids[0], ids[1])
    )
    volume = netapp.CapacityPoolVolume(
        f"{name}-volume",
        volume_name="training",
        creation_token=_PATH,
        account_name=account.name,
        pool_name=pool.name,
        resource_group_name=where.group,
        location=placed.region,
        zones=None if spec.zone == REGIONAL else [spec.zone],
        subnet_id=where.subnet_id,
        network_features=netapp.NetworkFeatures.STANDARD,
        service_level=_LEVEL,
        usage_threshold=spec.capacity_gib * _GIB,
        is_large_volume=spec.capacity_gib > _LARGE_GIB,
        protocol_types=["NFSv4.1"],
        security_style=netapp.SecurityStyle.UNIX,
        unix_permissions="0770",
        snapshot_directory_visible=False,
        encryption_key_source=netapp.EncryptionKeySource.MICROSOFT_KEY_VAULT,
        key_vault_private_endpoint_resource_id=door,
        export_policy=netapp.VolumePropertiesExportPolicyArgs(rules=[_export()]),
        tags=placed.tags(name),
        opts=stored,
    )
    address = volume.mount_targets.apply(
        lambda targets: f"{targets[0].ip_address}:/{_PATH}" if targets else ""
    )
    return volume.id, address


def _account(
    name: str, placed: Placed, where: NetApp, opts: pulumi.ResourceOptions
) -> netapp.Account:
    key = pulumi.Output.from_input(where.key_id)
    return netapp.Account(
        f"{name}-account",
        account_name=titled(placed, name),
        resource_group_name=where.group,
        location=placed.region,
        identity=netapp.ManagedServiceIdentityArgs(
            type=netapp.ManagedServiceIdentityType.USER_ASSIGNED,
            user_assigned_identities=[where.identity_id],
        ),
        encryption=netapp.AccountEncryptionArgs(
            key_source=netapp.KeySource.MICROSOFT_KEY_VAULT,
            identity=netapp.EncryptionIdentityArgs(user_assigned_identity=where.identity_id),
            key_vault_properties=netapp.KeyVaultPropertiesArgs(
                key_name=key.apply(lambda text: key_identifier(text).name),
                key_vault_uri=key.apply(vault_of),
                key_vault_resource_id=where.key_ring_id,
            ),
        ),
        tags=placed.tags(name),
        opts=opts,
    )


def _export() -> netapp.ExportPolicyRuleArgs:
    """NFS 4.1 only. Root stays root: jobs' volumes are prepared by the cluster as root."""
    return netapp.ExportPolicyRuleArgs(
        rule_index=1,
        allowed_clients=_CLIENTS,
        nfsv3=False,
        nfsv41=True,
        cifs=False,
        unix_read_only=False,
        unix_read_write=True,
        has_root_access=True,
        chown_mode=netapp.ChownMode.RESTRICTED,
        kerberos5_read_only=False,
        kerberos5_read_write=False,
        kerberos5i_read_only=False,
        kerberos5i_read_write=False,
        kerberos5p_read_only=False,
        kerberos5p_read_write=False,
    )
