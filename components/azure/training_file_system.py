"""Fast files for training, and homes beside them."""

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import keyvault, netapp, storage, storagecache

from falaj.components.azure._component import (
    compact,
    component_options,
    kept,
    resource_group,
    titled,
)
from falaj.components.azure._ids import NODES, key_identifier, resource_id, subnet_id
from falaj.components.azure._private_endpoint import Door, endpoint_id, private_endpoint
from falaj.components.azure._storage import Account, storage_account, vault_of
from falaj.components.catalogue.clusters import PRIVATE_RANGES
from falaj.components.specification.placed import REGIONAL, Placed
from falaj.components.specification.property_names import engine_inputs
from falaj.components.specification.training_file_system import (
    NETAPP,
    TrainingFileSystemArgs,
    TrainingFileSystemSpec,
    check,
)

# Azure Managed Lustre, where the catalogue says that it is sold.

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


# Azure NetApp Files: the fast file system of a training cluster.

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
_CLIENTS = ",".join(PRIVATE_RANGES)


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


# Azure Files: homes that people and jobs share.

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


__all__ = ["TrainingFileSystem", "TrainingFileSystemArgs"]


class TrainingFileSystem(pulumi.ComponentResource):
    """A fast file system for training, and shared homes, under a key of ours.

    Azure NetApp Files of the level Ultra (128 MiB/s for each TiB), in the zone of the GPUs,
    mounted by NFS 4.1; or Azure Managed Lustre, where the catalogue says that it is sold: in the
    country that is unknown, and so refused. Homes are a premium share of Azure Files, spread over
    the region's zones, mounted by NFS 4.1 through TLS.

    NetApp's NFS is not encrypted on its way between volume and node (that would take Kerberos with
    a domain of Active Directory); it stays inside the network, where only nodes may reach it. The
    vault's endpoint that a `Network` makes with ``key_ring_id`` is what NetApp fetches the key
    through.

    Example:
        ``files = TrainingFileSystem("files", {"region": "uaenorth", "tenant": "bank", "owner":
        "it@bank.ae", "data_class": "confidential", "cost_center": "42", "data_key_id":
        keys.key_ids["data"], "key_identity_id": keys.key_identity_id, "key_ring_id":
        keys.key_ring_id, "network_id": network.network_id, "storage_subnet_ids":
        network.storage_subnet_ids, "endpoint_subnet_id": network.endpoint_subnet_ids["1"],
        "security_group_id": network.security_group_ids["storage"]}, opts)``

    Makes: a resource group; an account, a capacity pool and a volume of NetApp Files; unless
    ``homes`` is false, a storage account, a share, a private endpoint with names. In
    ``production`` what holds data is protected and retained. The subnet has the security group
    already, so that ``security_group_id`` changes nothing here.
    """

    file_system_id: pulumi.Output[str]
    """Id of the volume or file system."""
    mount_address: pulumi.Output[str]
    """Address to mount it by."""
    homes_id: pulumi.Output[str | None]
    """Id of the share of homes; None without."""
    homes_address: pulumi.Output[str | None]
    """Address to mount homes by; None without."""

    def __init__(
        self, name: str, args: TrainingFileSystemArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("azure", name, args)
        super().__init__(
            "falaj-azure:index:TrainingFileSystem",
            name,
            engine_inputs(args),
            component_options(opts),
        )
        self._args = args
        self._opts = pulumi.ResourceOptions(parent=self)
        placed = spec.placed
        group = resource_group(name, placed, self._opts, stateful=True)
        self.file_system_id, self.mount_address = self._fast(name, spec, group.name)
        nothing: str | None = None
        self.homes_id = pulumi.Output.from_input(nothing)
        self.homes_address = pulumi.Output.from_input(nothing)
        if spec.homes:
            door = Door(
                args["network_id"],
                args.get("endpoint_subnet_id", ""),
                group.name,
                placed.region,
                placed.tags(name),
            )
            homes = Homes(
                args["data_key_id"], args.get("key_identity_id", ""), door, spec.homes_gib
            )
            share, address = shared_homes(name, placed, homes, self._opts)
            self.homes_id = share.apply(_maybe)
            self.homes_address = address.apply(_maybe)
        self.register_outputs(
            {
                "fileSystemId": self.file_system_id,
                "mountAddress": self.mount_address,
                "homesId": self.homes_id,
                "homesAddress": self.homes_address,
            }
        )

    def _fast(
        self, name: str, spec: TrainingFileSystemSpec, group: pulumi.Input[str]
    ) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
        args = self._args
        identity, key_ring = args.get("key_identity_id", ""), args.get("key_ring_id", "")
        if spec.service == NETAPP:
            subnets = pulumi.Output.from_input(args["storage_subnet_ids"])
            where = NetApp(
                group=group,
                subnet_id=subnets.apply(lambda found: found[spec.zone]),
                network_id=args["network_id"],
                key_ring_id=key_ring,
                key_id=args["data_key_id"],
                identity_id=identity,
            )
            return net_app_volume(name, spec, where, self._opts)
        lustre = Lustre(
            group=group,
            subnet_id=subnet_id(args["network_id"], NODES),
            key_ring_id=key_ring,
            key_url=self._current_key(),
            identity_id=identity,
        )
        return managed_lustre(name, spec, lustre, self._opts)

    def _current_key(self) -> pulumi.Output[str]:
        vault = pulumi.Output.from_input(self._args.get("key_ring_id", "")).apply(
            lambda text: resource_id(text, "Microsoft.KeyVault/vaults")
        )
        key = pulumi.Output.from_input(self._args["data_key_id"])
        return keyvault.get_key_output(
            key_name=key.apply(lambda text: key_identifier(text).name),
            resource_group_name=vault.apply(lambda found: found.group),
            vault_name=vault.apply(lambda found: found.name),
            opts=pulumi.InvokeOutputOptions(parent=self),
        ).key_uri_with_version


def _maybe(text: str) -> str | None:
    return text
