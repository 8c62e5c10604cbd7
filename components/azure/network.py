"""A private network: no way in, and no way out but a firewall that is asked for."""

from typing import Any

import pulumi
import pulumi_azure_native as azure_native
from pulumi_azure_native import network as azure

from falaj.components.azure._aliases import of_component
from falaj.components.azure._egress import Outlet, WayOut, keep_records, way_out
from falaj.components.azure._flow_logs import Records, flow_logs
from falaj.components.azure._groups import resource_group
from falaj.components.azure._names import titled
from falaj.components.azure._network_rules import FLOWS, OUTWARD, security_rules
from falaj.components.azure._private_endpoint import Door, private_endpoint, zone_names
from falaj.components.azure._subnets import (
    CONTAINERS,
    CONTROL_PLANE,
    DELEGATIONS,
    ENDPOINTS,
    NODES,
    SERVING,
    STORAGE,
)
from falaj.components.specification.network import NetworkArgs, check
from falaj.components.specification.placed import REGIONAL
from falaj.components.specification.property_names import engine_inputs

__all__ = ["Network", "NetworkArgs"]

_ROLES = (NODES, ENDPOINTS, STORAGE, SERVING, CONTROL_PLANE, CONTAINERS)
#: Roles whose machines may use the firewall.
_OUTWARD = (NODES, SERVING, CONTAINERS)


class Network(pulumi.ComponentResource):
    """A private network in one region of the country.

    A virtual network with subnets by role, which span the region's zones. Each has a security
    group that names every flow which the role needs and denies the rest, inwards and outwards; no
    machine has a public address or Azure's default way out. Private DNS zones lead to the private
    endpoints of storage, vault, registry and monitor. Every connection is recorded, in a storage
    account under our key. Traffic between machines that can do it is encrypted by the network.

    With ``egress_domains`` there is a firewall: HTTPS to these domains leaves through it, and
    nothing else. Its public address is the only one. For ``restricted`` data it is of the tier
    Premium and searches for intrusions. Azure's firewall and encryption by the network exclude one
    another, so that encryption is left to TLS then.

    Pods that use a `WorkloadIdentity` sign in at ``login.microsoftonline.com``: name it in
    ``egress_domains`` where there are such.

    Example:
        ``network = Network("network", {"region": "uaenorth", "tenant": "bank", "owner":
        "it@bank.ae", "data_class": "confidential", "cost_center": "42", "log_key_id":
        keys.key_ids["logs"], "key_identity_id": keys.key_identity_id, "key_ring_id":
        keys.key_ring_id}, opts)``

    Makes: a resource group, a virtual network, six subnets with a security group each, private
    DNS zones with links, an identity, a storage account with its private endpoint and a flow log;
    a private endpoint of the vault with ``key_ring_id``; a firewall, its policy, subnet, address
    and routes with ``egress_domains``. The records are protected and retained in ``production``.
    """

    network_id: pulumi.Output[str]
    """Id of the virtual network, known once its DNS zones are linked."""
    node_subnet_ids: pulumi.Output[dict[str, str]]
    """Subnet of nodes by zone: the same for every zone."""
    endpoint_subnet_ids: pulumi.Output[dict[str, str]]
    """Subnet of private endpoints by zone: the same for every zone."""
    storage_subnet_ids: pulumi.Output[dict[str, str]]
    """Subnet of Azure NetApp Files by zone: the same for every zone."""
    serving_subnet_ids: pulumi.Output[dict[str, str]]
    """Subnet of inference machines by zone: the same for every zone."""
    security_group_ids: pulumi.Output[dict[str, str]]
    """Network security groups by role: ``control-plane``, ``nodes``, ``endpoints``, ``storage``,
    ``serving``."""
    zones: list[str]
    """Zones in use."""

    def __init__(
        self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("azure", name, args)
        super().__init__(
            "falaj-azure:index:Network", name, engine_inputs(args), of_component(opts)
        )
        self._spec = spec
        self._name = name
        self._tags = spec.placed.tags(name)
        self._opts = pulumi.ResourceOptions(parent=self)
        self.zones = list(spec.zones)
        self._ranges = {role: spec.plan.subnet(REGIONAL, role) for role in _ROLES}
        # It holds the records of connections.
        self._group = resource_group(name, spec.placed, self._opts, stateful=True)
        self._vnet = self._virtual_network()
        way = self._way_out()
        groups = {role: self._security_group(role) for role in _ROLES}
        subnets = self._subnets(groups, way.routes if way else None)
        links = self._private_zones()
        ready: list[pulumi.Resource] = [*subnets.values(), *links]
        self.network_id = pulumi.Output.all(
            self._vnet.id, *(each.id for each in subnets.values()), *(each.id for each in links)
        ).apply(lambda found: found[0])
        opts_ready = pulumi.ResourceOptions.merge(
            self._opts, pulumi.ResourceOptions(depends_on=ready)
        )
        account = flow_logs(
            name,
            spec.placed,
            Records(
                self._group.name,
                self._vnet.id,
                args["log_key_id"],
                args.get("key_identity_id", ""),
                spec.flow_log_days,
            ),
            self._opts,
        )
        if way:
            keep_records(name, way, account.id, self._opts)
        door = Door(
            self.network_id,
            subnets[ENDPOINTS].id,
            self._group.name,
            spec.placed.region,
            self._tags,
        )
        private_endpoint(f"{name}-flows-endpoint", "blob", account.id, door, opts_ready)
        key_ring = args.get("key_ring_id")
        if key_ring is not None:
            private_endpoint(f"{name}-keys-endpoint", "vault", key_ring, door, opts_ready)
        self.node_subnet_ids = self._by_zone(subnets[NODES])
        self.endpoint_subnet_ids = self._by_zone(subnets[ENDPOINTS])
        self.storage_subnet_ids = self._by_zone(subnets[STORAGE])
        self.serving_subnet_ids = self._by_zone(subnets[SERVING])
        outward = {role: groups[role].id for role in _ROLES if role != CONTAINERS}
        self.security_group_ids = pulumi.Output.all(**outward)
        self.register_outputs(
            {
                "networkId": self.network_id,
                "nodeSubnetIds": self.node_subnet_ids,
                "endpointSubnetIds": self.endpoint_subnet_ids,
                "storageSubnetIds": self.storage_subnet_ids,
                "servingSubnetIds": self.serving_subnet_ids,
                "securityGroupIds": self.security_group_ids,
                "zones": self.zones,
            }
        )

    def _virtual_network(self) -> azure.VirtualNetwork:
        placed = self._spec.placed
        return azure.VirtualNetwork(
            f"{self._name}-vnet",
            virtual_network_name=titled(placed, self._name),
            resource_group_name=self._group.name,
            location=placed.region,
            address_space=azure.AddressSpaceArgs(address_prefixes=[self._spec.cidr]),
            # https://learn.microsoft.com/azure/virtual-network/virtual-network-encryption-overview:
            # the only enforcement there is; not together with Azure Firewall.
            encryption=None
            if self._spec.egress_domains
            else azure.VirtualNetworkEncryptionArgs(
                enabled=True,
                enforcement=azure.VirtualNetworkEncryptionEnforcement.ALLOW_UNENCRYPTED,
            ),
            enable_ddos_protection=False,
            tags=self._tags,
            opts=self._opts,
        )

    def _way_out(self) -> WayOut | None:
        if not self._spec.egress_domains:
            return None
        outlet = Outlet(
            self._group.name,
            self._vnet,
            self._spec.plan,
            self._spec.zones,
            self._spec.egress_domains,
            self._tags,
        )
        return way_out(self._name, self._spec.placed, outlet, self._opts)

    def _security_group(self, role: str) -> azure.NetworkSecurityGroup:
        flows = (*FLOWS, *OUTWARD) if self._spec.egress_domains else FLOWS
        return azure.NetworkSecurityGroup(
            f"{self._name}-{role}-rules",
            network_security_group_name=titled(self._spec.placed, self._name, role),
            resource_group_name=self._group.name,
            location=self._spec.placed.region,
            security_rules=security_rules(role, self._ranges, flows),
            tags=self._tags,
            opts=self._opts,
        )

    def _subnets(
        self, groups: dict[str, azure.NetworkSecurityGroup], routes: azure.RouteTable | None
    ) -> dict[str, azure.Subnet]:
        """One after the other: Azure changes one thing of a network at a time."""
        made: dict[str, azure.Subnet] = {}
        for role in _ROLES:
            before = list(made.values())[-1:] or ([routes] if routes else [])
            settings: dict[str, Any] = {}
            if role in DELEGATIONS:
                settings["delegations"] = [
                    azure.DelegationArgs(name=role, service_name=DELEGATIONS[role])
                ]
            if routes is not None and role in _OUTWARD:
                settings["route_table"] = azure.RouteTableArgs(id=routes.id)
            if role == ENDPOINTS:
                # Otherwise rules don't concern private endpoints.
                settings["private_endpoint_network_policies"] = (
                    azure.VirtualNetworkPrivateEndpointNetworkPolicies.ENABLED
                )
            made[role] = azure.Subnet(
                f"{self._name}-{role}",
                subnet_name=role,
                virtual_network_name=self._vnet.name,
                resource_group_name=self._group.name,
                address_prefix=str(self._ranges[role]),
                default_outbound_access=False,
                network_security_group=azure.NetworkSecurityGroupArgs(id=groups[role].id),
                opts=pulumi.ResourceOptions.merge(
                    self._opts, pulumi.ResourceOptions(depends_on=before)
                ),
                **settings,
            )
        return made

    def _private_zones(self) -> list[azure_native.privatedns.VirtualNetworkLink]:
        """Where private endpoints get their names from. DNS has no region."""
        links: list[azure_native.privatedns.VirtualNetworkLink] = []
        for zone_name in zone_names(self._spec.placed.region):
            zone = azure_native.privatedns.PrivateZone(
                f"{self._name}-{zone_name}",
                private_zone_name=zone_name,
                resource_group_name=self._group.name,
                location="global",
                tags=self._tags,
                opts=self._opts,
            )
            links.append(
                azure_native.privatedns.VirtualNetworkLink(
                    f"{self._name}-{zone_name}-link",
                    virtual_network_link_name="network",
                    private_zone_name=zone.name,
                    resource_group_name=self._group.name,
                    location="global",
                    registration_enabled=False,
                    virtual_network=azure_native.privatedns.SubResourceArgs(id=self._vnet.id),
                    tags=self._tags,
                    opts=self._opts,
                )
            )
        return links

    def _by_zone(self, subnet: azure.Subnet) -> pulumi.Output[dict[str, str]]:
        return subnet.id.apply(lambda found: dict.fromkeys(self._spec.zones, found))
