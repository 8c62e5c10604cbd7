"""Fast files for training, and homes beside them."""

import pulumi
from pulumi_azure_native import keyvault

from falaj.components.azure._aliases import of_component
from falaj.components.azure._groups import resource_group
from falaj.components.azure._ids import key_identifier, resource_id
from falaj.components.azure._managed_lustre import Lustre, managed_lustre
from falaj.components.azure._net_app import NetApp, net_app_volume
from falaj.components.azure._private_endpoint import Door
from falaj.components.azure._shared_homes import Homes, shared_homes
from falaj.components.azure._subnets import NODES, subnet_id
from falaj.components.specification.property_names import engine_inputs
from falaj.components.specification.training_file_system import (
    NETAPP,
    TrainingFileSystemArgs,
    TrainingFileSystemSpec,
    check,
)

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
            "falaj-azure:index:TrainingFileSystem", name, engine_inputs(args), of_component(opts)
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
