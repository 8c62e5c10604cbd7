"""A private network: no way in, and no way out but a firewall that is asked for.

Security groups name every flow between roles once, and deny the rest. Every connection is
recorded.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_azure_native as azure_native
from pulumi_azure_native import managedidentity, network, storage

from falaj.components.azure._component import (
    compact,
    component_options,
    kept,
    resource_group,
    titled,
)
from falaj.components.azure._egress import (
    CONTAINER_TAGS,
    Outlet,
    WayOut,
    keep_records,
    way_out,
)
from falaj.components.azure._ids import (
    CONTAINERS,
    ENDPOINTS,
    NODES,
    SERVING,
    STORAGE,
)
from falaj.components.azure._network_watcher import Watcher, network_watcher
from falaj.components.azure._private_endpoint import (
    Door,
    api_server_zone,
    private_endpoint,
    zone_names,
)
from falaj.components.azure._roles import Grant, grant
from falaj.components.azure._storage import SKUS, Account, storage_account
from falaj.components.catalogue.clusters import PRIVATE_RANGES
from falaj.components.specification.address_plan import BALANCERS, CONTROL_PLANE
from falaj.components.specification.cluster import POD_CIDR
from falaj.components.specification.cpu_inference_tier import AZURE_PORTS
from falaj.components.specification.network import CLUSTER, NetworkArgs, NetworkSpec, check
from falaj.components.specification.placed import REGIONAL, Placed
from falaj.components.specification.property_names import engine_inputs

#: Services that a subnet is handed over to, by the subnet's name.
DELEGATIONS = {
    STORAGE: "Microsoft.Netapp/volumes",
    CONTROL_PLANE: "Microsoft.ContainerService/managedClusters",
    CONTAINERS: "Microsoft.App/environments",
}


def encryption(spec: NetworkSpec) -> network.VirtualNetworkEncryptionArgs | None:
    """Whether the network encrypts what machines send: where neither a cluster may stand nor a
    firewall.

    AKS refuses machines of generation 4 and later, and Falaj's are, where the network is encrypted
    and the API server stands in it
    (https://learn.microsoft.com/azure/aks/api-server-vnet-integration#limitations); Azure Firewall
    and encryption exclude one another, and the enforcement is the only one there is
    (https://learn.microsoft.com/azure/virtual-network/virtual-network-encryption-overview).
    """
    if spec.purpose == CLUSTER or spec.egress_domains:
        return None
    return network.VirtualNetworkEncryptionArgs(
        enabled=True,
        enforcement=network.VirtualNetworkEncryptionEnforcement.ALLOW_UNENCRYPTED,
    )


@dataclass(frozen=True)
class Records:
    """What flow logs need."""

    group: pulumi.Input[str]
    network_id: pulumi.Input[str]
    key_id: pulumi.Input[str]
    identity_id: pulumi.Input[str]
    days: int
    watcher: Watcher


def flow_logs(
    name: str, placed: Placed, records: Records, opts: pulumi.ResourceOptions
) -> storage.StorageAccount:
    """Record the network's connections; they are deleted after their days."""
    stored = kept(opts, placed.retained)
    account = storage_account(
        f"{name}-flows-account",
        placed,
        Account(
            title=compact(placed, "storage", name, "flows"),
            group=records.group,
            key_id=records.key_id,
            identity_id=records.identity_id,
            sku=SKUS["zone" if placed.place.zones else "local"],
            tags=placed.tags(name),
            trusted_services=True,
        ),
        stored,
    )
    storage.ManagementPolicy(
        f"{name}-flows-lifecycle",
        account_name=account.name,
        resource_group_name=records.group,
        management_policy_name="default",
        policy=storage.ManagementPolicySchemaArgs(rules=[_forget(records.days)]),
        opts=stored,
    )
    writer = managedidentity.UserAssignedIdentity(
        f"{name}-flows-writer",
        resource_name_=titled(placed, name, "flows"),
        resource_group_name=records.group,
        location=placed.region,
        tags=placed.tags(name),
        opts=opts,
    )
    allowed = grant(
        f"{name}-flows-write",
        Grant("Storage Blob Data Contributor", account.id, writer.principal_id),
        opts,
    )
    network.FlowLog(
        f"{name}-flow-log",
        flow_log_name=titled(placed, name, "flows"),
        network_watcher_name=records.watcher.name,
        resource_group_name=records.watcher.group,
        location=placed.region,
        target_resource_id=records.network_id,
        storage_id=account.id,
        enabled=True,
        format=network.FlowLogFormatParametersArgs(type=network.FlowLogFormatType.JSON, version=2),
        # The account has no keys to write with.
        identity=network.ManagedServiceIdentityArgs(
            type=network.ResourceIdentityType.USER_ASSIGNED, user_assigned_identities=[writer.id]
        ),
        tags=placed.tags(name),
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[allowed])),
    )
    return account


def _forget(days: int) -> storage.ManagementPolicyRuleArgs:
    return storage.ManagementPolicyRuleArgs(
        name="forget",
        type=storage.RuleType.LIFECYCLE,
        enabled=True,
        definition=storage.ManagementPolicyDefinitionArgs(
            filters=storage.ManagementPolicyFilterArgs(blob_types=["blockBlob", "appendBlob"]),
            actions=storage.ManagementPolicyActionArgs(
                base_blob=storage.ManagementPolicyBaseBlobArgs(
                    delete=storage.DateAfterModificationArgs(
                        days_after_modification_greater_than=days
                    )
                )
            ),
        ),
    )


ANY = ("*",)
_HTTPS = ("443",)
_SERVICE = tuple(map(str, AZURE_PORTS))
#: Ports of an environment's machines, one of which its balancer chooses for each that an app
#: exposes; rules see both: https://learn.microsoft.com/azure/container-apps/firewall-integration
_TRANSLATED = "30000-32767"
_NFS = "2049"
#: https://learn.microsoft.com/azure/azure-managed-lustre/amlfs-prerequisites
_LUSTRE = ("988", "1019-1023")


@dataclass(frozen=True)
class Flow:
    """Traffic that is allowed: who opens a connection, to whom, on which ports."""

    source: str
    """A role, or one of Azure's service tags."""
    target: str
    ports: tuple[str, ...]
    protocol: network.SecurityRuleProtocol = network.SecurityRuleProtocol.TCP
    pods: bool = False
    """Whether nodes stand for their pods as well, which have addresses in an overlay. Rules see
    these wherever a pod is called; what a pod calls outside of the overlay sees its node's:
    https://learn.microsoft.com/azure/aks/concepts-network-azure-cni-overlay"""
    behind: str | None = None
    """Role of the machines behind the target's front ends. A balancer of AKS leaves the front
    end's address in what it passes on (floating IP), so that their rules see it, too:
    https://learn.microsoft.com/azure/aks/internal-lb"""


_ALL = network.SecurityRuleProtocol.ASTERISK
#: Azure's own address in every network: https://learn.microsoft.com/azure/virtual-network/
#: what-is-ip-address-168-63-129-16
_RESOLVER = "168.63.129.16"
_BALANCER = "AzureLoadBalancer"
#: All private ranges as one source: of networks that are joined to this one, by peering or a
#: private line.
JOINED = "joined-networks"

#: What the roles need. Names are resolved by the platform's own address, which no rule concerns.
FLOWS = (
    # Nodes and their pods: training exchanges over any port.
    Flow(NODES, NODES, ANY, _ALL, pods=True),
    Flow(_BALANCER, NODES, ANY),
    # Services of the cluster with a private address. Which ports and clients they have is said by
    # the rules that AKS keeps on the machines themselves, of what each service declares.
    Flow(JOINED, BALANCERS, ANY, behind=NODES),
    # The API server stands in the network: https://learn.microsoft.com/azure/aks/
    # api-server-vnet-integration. It calls kubelets and webhooks, on ports of pods' choosing.
    Flow(NODES, CONTROL_PLANE, ("443", "4443")),
    Flow(CONTROL_PLANE, NODES, ANY, pods=True),
    Flow(_BALANCER, CONTROL_PLANE, ("9988",)),
    # Its own parts, whichever they are: https://learn.microsoft.com/azure/aks/
    # outbound-rules-control-egress supports no blocked traffic within a subnet.
    Flow(CONTROL_PLANE, CONTROL_PLANE, ANY, _ALL),
    Flow(JOINED, CONTROL_PLANE, _HTTPS),
    Flow(CONTROL_PLANE, ENDPOINTS, _HTTPS),
    # Registry, vault, objects; and shared homes, which speak NFS.
    Flow(NODES, ENDPOINTS, (*_HTTPS, _NFS)),
    Flow(JOINED, ENDPOINTS, _HTTPS),
    Flow(NODES, STORAGE, (_NFS, *_LUSTRE)),
    Flow(STORAGE, NODES, _LUSTRE),
    Flow(STORAGE, STORAGE, ANY, _ALL),
    # Azure NetApp Files fetches its key.
    Flow(STORAGE, ENDPOINTS, _HTTPS),
    # Inference: from the cluster, and from networks that are joined to this one. The tier's own
    # rules narrow it.
    Flow(JOINED, SERVING, _SERVICE),
    Flow(_BALANCER, SERVING, ANY),
    Flow(SERVING, ENDPOINTS, _HTTPS),
    Flow(NODES, SERVING, _SERVICE),
    Flow(JOINED, CONTAINERS, (*_SERVICE, _TRANSLATED)),
    Flow(NODES, CONTAINERS, (*_SERVICE, _TRANSLATED)),
    Flow(CONTAINERS, CONTAINERS, ANY, _ALL),
    Flow(CONTAINERS, ENDPOINTS, _HTTPS),
    # Container Apps run on machines of the platform, which fetch the platform's images and tokens,
    # and send its logs. Our own images and secrets come from private endpoints. The source is that
    # of `_TRANSLATED`.
    Flow(_BALANCER, CONTAINERS, (_TRANSLATED,)),
    *(Flow(CONTAINERS, tag, _HTTPS) for tag in CONTAINER_TAGS),
    Flow(CONTAINERS, _RESOLVER, ("53",), _ALL),
)

#: With a firewall: what it lets through, it has to be sent. The routes leave no other way, and
#: there is no public address but the firewall's.
OUTWARD = (
    Flow(NODES, "Internet", _HTTPS),
    Flow(SERVING, "Internet", _HTTPS),
    Flow(CONTAINERS, "Internet", _HTTPS),
)


def security_rules(
    role: str,
    subnets: Mapping[str, ipaddress.IPv4Network],
    flows: Sequence[Flow],
) -> list[network.SecurityRuleArgs]:
    """The rules of a role's security group: its flows, then nothing, inwards and outwards.

    Args:
        role: whose group.
        subnets: address ranges by role.
        flows: all that is allowed in the network.
    """
    inward = [
        _rule(each, "from", each.source, subnets)
        for each in flows
        if role in (each.target, each.behind)
    ]
    outward = [_rule(each, "to", each.target, subnets) for each in flows if each.source == role]
    rules = [*_numbered(inward), *_numbered(outward)]
    return [*rules, _nothing_else("Inbound"), _nothing_else("Outbound")]


def _peers(name: str, flow: Flow, subnets: Mapping[str, ipaddress.IPv4Network]) -> list[str]:
    if name == JOINED:
        return list(PRIVATE_RANGES)
    if name == NODES and flow.pods:
        return [str(subnets[name]), POD_CIDR]
    return [str(subnets[name])] if name in subnets else [name]


def _rule(
    flow: Flow, direction: str, peer: str, subnets: Mapping[str, ipaddress.IPv4Network]
) -> network.SecurityRuleArgs:
    inbound = direction == "from"
    sources, targets = _peers(flow.source, flow, subnets), _peers(flow.target, flow, subnets)
    one_source, one_target = len(sources) == 1, len(targets) == 1
    return network.SecurityRuleArgs(
        name=f"{direction}-{peer.replace('.', '-')}",
        access=network.SecurityRuleAccess.ALLOW,
        direction=(
            network.SecurityRuleDirection.INBOUND
            if inbound
            else network.SecurityRuleDirection.OUTBOUND
        ),
        protocol=flow.protocol,
        source_address_prefix=sources[0] if one_source else None,
        source_address_prefixes=None if one_source else sources,
        source_port_range="*",
        destination_address_prefix=targets[0] if one_target else None,
        destination_address_prefixes=None if one_target else targets,
        destination_port_range=flow.ports[0] if len(flow.ports) == 1 else None,
        destination_port_ranges=list(flow.ports) if len(flow.ports) > 1 else None,
    )


def _numbered(rules: list[network.SecurityRuleArgs]) -> list[network.SecurityRuleArgs]:
    for position, rule in enumerate(rules):
        rule.priority = 100 + 10 * position
    return rules


def _nothing_else(direction: str) -> network.SecurityRuleArgs:
    """Before Azure's own last rules, which let the whole network in and everything out."""
    return network.SecurityRuleArgs(
        name=f"nothing-else-{direction.lower()}",
        priority=4096,
        access=network.SecurityRuleAccess.DENY,
        direction=network.SecurityRuleDirection(direction),
        protocol=_ALL,
        source_address_prefix="*",
        source_port_range="*",
        destination_address_prefix="*",
        destination_port_range="*",
    )


__all__ = ["Network", "NetworkArgs"]

_ROLES = (NODES, ENDPOINTS, STORAGE, SERVING, CONTROL_PLANE, CONTAINERS, BALANCERS)
#: Roles whose groups nobody but their subnets asks for.
_INNER = (CONTAINERS, BALANCERS)
#: Roles whose machines may use the firewall.
_FIREWALL_ROLES = (NODES, SERVING, CONTAINERS)


class Network(pulumi.ComponentResource):
    """A private network in one region of the country.

    A virtual network with subnets by role, which span the region's zones. Each has a security
    group that names every flow which the role needs and denies the rest, inwards and outwards; no
    machine has a public address or Azure's default way out. Private DNS zones lead to the private
    endpoints of storage, vault, registry and monitor, and to clusters' API servers, these from
    networks that are joined as well (``joined_network_ids``). Every connection is recorded, in a
    storage account under our key.

    With ``purpose: serving`` the network encrypts traffic between machines that can do it. Where a
    cluster may stand it can't: AKS refuses its machines there, and encryption is left to TLS.

    With ``egress_domains`` there is a firewall: HTTPS to these domains leaves through it, what
    Container Apps need of their platform from the subnet of these alone, and nothing else. Its
    public address is the only one. For ``restricted`` data it is of the tier Premium and searches
    for intrusions. Azure's firewall and encryption by the network exclude one another, so that
    encryption is left to TLS then, too.

    Pods that use a `WorkloadIdentity` sign in at ``login.microsoftonline.com``: name it in
    ``egress_domains`` where there are such.

    Example:
        ``network = Network("network", {"region": "uaenorth", "tenant": "bank", "owner":
        "it@bank.ae", "data_class": "confidential", "cost_center": "42", "log_key_id":
        keys.key_ids["logs"], "key_identity_id": keys.key_identity_id, "key_ring_id":
        keys.key_ring_id}, opts)``

    Makes: a resource group, a virtual network, seven subnets with a security group each, private
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
            "falaj-azure:index:Network", name, engine_inputs(args), component_options(opts)
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
                network_watcher(
                    spec.network_watcher_id,
                    spec.placed.region,
                    self._vnet.id,
                    pulumi.InvokeOptions(parent=self),
                ),
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
        outward = {role: groups[role].id for role in _ROLES if role not in _INNER}
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

    def _virtual_network(self) -> network.VirtualNetwork:
        placed = self._spec.placed
        return network.VirtualNetwork(
            f"{self._name}-vnet",
            virtual_network_name=titled(placed, self._name),
            resource_group_name=self._group.name,
            location=placed.region,
            address_space=network.AddressSpaceArgs(address_prefixes=[self._spec.cidr]),
            encryption=encryption(self._spec),
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

    def _security_group(self, role: str) -> network.NetworkSecurityGroup:
        flows = (*FLOWS, *OUTWARD) if self._spec.egress_domains else FLOWS
        return network.NetworkSecurityGroup(
            f"{self._name}-{role}-rules",
            network_security_group_name=titled(self._spec.placed, self._name, role),
            resource_group_name=self._group.name,
            location=self._spec.placed.region,
            security_rules=security_rules(role, self._ranges, flows),
            tags=self._tags,
            opts=self._opts,
        )

    def _subnets(
        self, groups: dict[str, network.NetworkSecurityGroup], routes: network.RouteTable | None
    ) -> dict[str, network.Subnet]:
        """One after the other: Azure changes one thing of a network at a time."""
        made: dict[str, network.Subnet] = {}
        for role in _ROLES:
            before = list(made.values())[-1:] or ([routes] if routes else [])
            settings: dict[str, Any] = {}
            if role in DELEGATIONS:
                settings["delegations"] = [
                    network.DelegationArgs(name=role, service_name=DELEGATIONS[role])
                ]
            if routes is not None and role in _FIREWALL_ROLES:
                settings["route_table"] = network.RouteTableArgs(id=routes.id)
            if role == ENDPOINTS:
                # Otherwise rules don't concern private endpoints.
                settings["private_endpoint_network_policies"] = (
                    network.VirtualNetworkPrivateEndpointNetworkPolicies.ENABLED
                )
            made[role] = network.Subnet(
                f"{self._name}-{role}",
                subnet_name=role,
                virtual_network_name=self._vnet.name,
                resource_group_name=self._group.name,
                address_prefix=str(self._ranges[role]),
                # Not of subnets that a service stands in, which has its own:
                # https://learn.microsoft.com/azure/virtual-network/ip-services/
                # default-outbound-access
                default_outbound_access=None if role in DELEGATIONS else False,
                network_security_group=network.NetworkSecurityGroupArgs(id=groups[role].id),
                opts=pulumi.ResourceOptions.merge(
                    self._opts, pulumi.ResourceOptions(depends_on=before)
                ),
                **settings,
            )
        return made

    def _private_zones(self) -> list[azure_native.privatedns.VirtualNetworkLink]:
        """Where private endpoints and API servers get their names from. DNS has no region."""
        spec = self._spec
        links = [
            self._link(f"{self._name}-{zone_name}-link", self._zone(zone_name), self._vnet.id)
            for zone_name in zone_names(spec.placed.region)
        ]
        if spec.purpose != CLUSTER:
            return links
        # AKS would make it in the cluster's second group, where a lock keeps everybody from
        # linking it to joined networks: nobody would find the API server from there.
        zone_name = api_server_zone(spec.placed.region)
        zone = self._zone(zone_name)
        links.append(self._link(f"{self._name}-{zone_name}-link", zone, self._vnet.id))
        for position, joined in enumerate(spec.joined_network_ids):
            title = f"{self._name}-{zone_name}-joined-{position}"
            links.append(self._link(title, zone, joined, f"joined-{position}"))
        return links

    def _zone(self, zone_name: str) -> azure_native.privatedns.PrivateZone:
        return azure_native.privatedns.PrivateZone(
            f"{self._name}-{zone_name}",
            private_zone_name=zone_name,
            resource_group_name=self._group.name,
            location="global",
            tags=self._tags,
            opts=self._opts,
        )

    def _link(
        self,
        name: str,
        zone: azure_native.privatedns.PrivateZone,
        network_id: pulumi.Input[str],
        title: str = "network",
    ) -> azure_native.privatedns.VirtualNetworkLink:
        return azure_native.privatedns.VirtualNetworkLink(
            name,
            virtual_network_link_name=title,
            private_zone_name=zone.name,
            resource_group_name=self._group.name,
            location="global",
            registration_enabled=False,
            virtual_network=azure_native.privatedns.SubResourceArgs(id=network_id),
            tags=self._tags,
            opts=self._opts,
        )

    def _by_zone(self, subnet: network.Subnet) -> pulumi.Output[dict[str, str]]:
        return subnet.id.apply(lambda found: dict.fromkeys(self._spec.zones, found))
