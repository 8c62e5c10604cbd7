"""Who may talk to whom inside a network: every flow once, and nothing else."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pulumi_azure_native import network

from falaj.components.azure._subnets import (
    CONTAINERS,
    CONTROL_PLANE,
    ENDPOINTS,
    NODES,
    SERVING,
    STORAGE,
)
from falaj.components.specification.cluster import POD_CIDR

ANY = ("*",)
_HTTPS = ("443",)
_SERVICE = ("443", "8443")
_NFS = "2049"
#: https://learn.microsoft.com/azure/azure-managed-lustre/amlfs-prerequisites
_LUSTRE = ("988", "1019-1023")
#: Private ranges: from networks that are joined to this one, by peering or a private line.
_PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")


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


_ALL = network.SecurityRuleProtocol.ASTERISK
_BALANCER = "AzureLoadBalancer"
#: Ranges of `_PRIVATE` as one source.
JOINED = "joined-networks"

#: What the roles need. Names are resolved by the platform's own address, which no rule concerns.
FLOWS = (
    # Nodes and their pods: training exchanges over any port.
    Flow(NODES, NODES, ANY, _ALL, pods=True),
    Flow(_BALANCER, NODES, ANY),
    # The API server stands in the network: https://learn.microsoft.com/azure/aks/
    # api-server-vnet-integration. It calls kubelets and webhooks, on ports of pods' choosing.
    Flow(NODES, CONTROL_PLANE, ("443", "4443")),
    Flow(CONTROL_PLANE, NODES, ANY, pods=True),
    Flow(_BALANCER, CONTROL_PLANE, ("9988",)),
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
    Flow(JOINED, CONTAINERS, _SERVICE),
    Flow(NODES, CONTAINERS, _SERVICE),
    Flow(CONTAINERS, CONTAINERS, ANY, _ALL),
    Flow(CONTAINERS, ENDPOINTS, _HTTPS),
    # Container Apps run on machines of the platform, which fetch the platform's images and tokens:
    # https://learn.microsoft.com/azure/container-apps/firewall-integration
    Flow(_BALANCER, CONTAINERS, ("30000-32767",)),
    Flow(CONTAINERS, "MicrosoftContainerRegistry", _HTTPS),
    Flow(CONTAINERS, "AzureFrontDoor.FirstParty", _HTTPS),
    Flow(CONTAINERS, "AzureActiveDirectory", _HTTPS),
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
    inward = [_rule(each, "from", each.source, subnets) for each in flows if each.target == role]
    outward = [_rule(each, "to", each.target, subnets) for each in flows if each.source == role]
    rules = [*_numbered(inward), *_numbered(outward)]
    return [*rules, _nothing_else("Inbound"), _nothing_else("Outbound")]


def _peers(name: str, flow: Flow, subnets: Mapping[str, ipaddress.IPv4Network]) -> list[str]:
    if name == JOINED:
        return list(_PRIVATE)
    if name == NODES and flow.pods:
        return [str(subnets[name]), POD_CIDR]
    return [str(subnets[name])] if name in subnets else [name]


def _rule(
    flow: Flow, word: str, peer: str, subnets: Mapping[str, ipaddress.IPv4Network]
) -> network.SecurityRuleArgs:
    inbound = word == "from"
    sources, targets = _peers(flow.source, flow, subnets), _peers(flow.target, flow, subnets)
    one_source, one_target = len(sources) == 1, len(targets) == 1
    return network.SecurityRuleArgs(
        name=f"{word}-{peer.replace('.', '-')}",
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
