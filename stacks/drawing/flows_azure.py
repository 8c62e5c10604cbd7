"""What may talk to what on Azure: security groups' rules, private endpoints, ways out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.policies.model import ABSENT, Resource, get, is_unknown, items, text
from falaj.policies.model.values import is_false
from falaj.policies.reading.azure_security_rules import (
    GROUPS,
    SINGLE,
    SecurityRule,
    security_rules,
)
from falaj.policies.reading.azure_types import azure
from falaj.policies.reading.cidr import is_open, network
from falaj.stacks.drawing.builder import Builder
from falaj.stacks.drawing.kinds import AZURE_SUBNETS, VNETS
from falaj.stacks.drawing.model import End
from falaj.stacks.drawing.traffic import EVERYTHING, Traffic

_ENDPOINTS: Final = azure("network:PrivateEndpoint")
_ENDS: Final[Mapping[str, End]] = {"inbound": "in", "outbound": "out"}
#: What every security group allows unless a rule of it says otherwise
#: (https://learn.microsoft.com/azure/virtual-network/network-security-groups-overview).
_DEFAULTS: Final = (
    ("inbound", 65000, "VirtualNetwork", "VirtualNetwork"),
    ("inbound", 65001, "AzureLoadBalancer", "*"),
    ("outbound", 65000, "VirtualNetwork", "VirtualNetwork"),
    ("outbound", 65001, "*", "Internet"),
)


def flows(builder: Builder) -> None:
    """Traffic that Azure's resources allow."""
    stack = builder.stack
    guarded: set[str] = set()
    for group in stack.of_kind(*sorted(GROUPS)):
        places = _places(builder, group)
        guarded.update(places)
        own = list(security_rules(group))
        for each in stack.of_kind(*sorted(SINGLE)):
            if any(one.urn == group.urn for one in _group_of(builder, each)):
                own += security_rules(each)
        for rule in [*own, *_defaults(own)]:
            _flow(builder, group, rule, places)
    for subnet in stack.of_kind(*sorted(AZURE_SUBNETS)):
        if subnet.urn not in guarded and subnet.get("networkSecurityGroup") is ABSENT:
            _unguarded(builder, subnet)
    for each in stack.of_kind(*sorted(_ENDPOINTS)):
        for connection in items(each.get("privateLinkServiceConnections")):
            target = _linked(builder, each, connection)
            label = ", ".join(text(one) for one in items(get(connection, "groupIds")))
            if target and each.urn in builder.nodes:
                builder.edge("flow", each.urn, target, f"private link {label}".strip(), each.urn)


def _group_of(builder: Builder, rule: Resource) -> list[Resource]:
    return builder.references.at(rule, "networkSecurityGroupName", GROUPS)[0]


def _places(builder: Builder, group: Resource) -> list[str]:
    """The subnets that a security group is for; itself, where it is for none that is drawn."""
    found = [
        each.urn
        for each in builder.stack.of_kind(*sorted(AZURE_SUBNETS))
        if each.urn in builder.nodes
        and any(
            one.urn == group.urn
            for one in builder.references.at(each, "networkSecurityGroup", GROUPS)[0]
        )
    ]
    return found or [builder.stand_for(group, "group", "security group of no subnet here")]


def _defaults(own: list[SecurityRule]) -> Iterator[SecurityRule]:
    for direction, priority, source, destination in _DEFAULTS:
        rule = SecurityRule(
            "",
            {
                "access": "Allow",
                "direction": direction,
                "priority": priority,
                "protocol": "*",
                "sourceAddressPrefix": source,
                "sourcePortRange": "*",
                "destinationAddressPrefix": destination,
                "destinationPortRange": "*",
            },
        )
        if not any(each.overrules(rule) for each in own):
            yield rule


def _flow(builder: Builder, group: Resource, rule: SecurityRule, places: list[str]) -> None:
    if not rule.allows:
        return
    protocol = get(rule.given, "protocol")
    ports = rule.ports
    named = "*" if is_unknown(protocol) else text(protocol) or "*"
    without = not rule.has_ports
    traffic = Traffic.of(named, () if without else ports or (), seen=ports is not None)
    for direction, end in _ENDS.items():
        if not rule.may_be(direction):
            continue
        inward = end == "in"
        sources = _side(builder, group, rule, "source", [] if inward else places)
        targets = _side(builder, group, rule, "destination", places if inward else [])
        for source in sources:
            for target in targets:
                builder.flow(source, target, traffic, group.urn)


def _side(
    builder: Builder, group: Resource, rule: SecurityRule, side: str, own: list[str]
) -> list[str]:
    """The nodes at one side of a rule; at the group's own side everything is what it is for."""
    keys = (f"{side}AddressPrefix", f"{side}AddressPrefixes", f"{side}s")
    values = [each for key in keys for each in items(get(rule.given, key))]
    groups = items(get(rule.given, f"{side}ApplicationSecurityGroups"))
    found: list[str] = []
    for value in values:
        given = get(value, "addressPrefix") if isinstance(value, Mapping) else value
        if is_unknown(given):
            found.append(builder.unseen("addresses"))
        elif own and (is_open(given) or text(given).lower() == "virtualnetwork"):
            found += own
        else:
            found += _named(builder, group, text(given), own)
    for each in groups:
        name = text(get(each, "id")).rpartition("/")[2] or "application group"
        found.append(builder.node(f"list:{name}", "list", name, "application security group"))
    return list(dict.fromkeys(found)) or own or [builder.internet()]


def _named(builder: Builder, group: Resource, said: str, own: list[str]) -> list[str]:
    """A prefix or a service tag: the subnets that it is, else itself."""
    if said.lower() == "virtualnetwork":
        networks = {_network_of(builder, each) for each in _places(builder, group)}
        known = sorted(each for each in networks if each)
        return known or [builder.node("tag:VirtualNetwork", "service", "VirtualNetwork")]
    wanted = network(said)
    if wanted is None:
        if is_open(said):
            return [builder.internet()]
        return [builder.node(f"tag:{said}", "service", said, "service tag of Azure")]
    for each in builder.stack.of_kind(*sorted(AZURE_SUBNETS)):
        prefixes = [*items(each.get("addressPrefix")), *items(each.get("addressPrefixes"))]
        same = any(network(one) == wanted for one in prefixes)
        if same and each.urn in builder.nodes:
            return [each.urn]
    for each in builder.stack.of_kind(*sorted(VNETS)):
        prefixes = items(each.get("addressSpace.addressPrefixes"))
        if any(network(one) == wanted for one in prefixes):
            return [each.urn]
    return [builder.addresses(said)]


def _network_of(builder: Builder, id: str) -> str:
    node = builder.nodes[id]
    return node.container if node.kind == "subnet" else ""


def _unguarded(builder: Builder, subnet: Resource) -> None:
    """A subnet without a security group lets everything in from its network, and out."""
    container = builder.nodes[subnet.urn].container
    builder.flow(container, subnet.urn, EVERYTHING, subnet.urn)
    if not is_false(subnet.get("defaultOutboundAccess")):
        builder.flow(subnet.urn, builder.internet(), EVERYTHING, subnet.urn)


def _linked(builder: Builder, endpoint: Resource, connection: Any) -> str:
    """The node that a private endpoint leads to, or the service that a program names."""
    value = get(connection, "privateLinkServiceId")
    drawn = {
        builder.stack.by_urn[node.urn].kind
        for node in builder.nodes.values()
        if node.urn and node.id != endpoint.urn
    }
    if is_unknown(value):
        found = builder.references.origins(endpoint, "privateLinkServiceConnections", drawn)
        met = [each for each in found if each.urn in builder.nodes]
        return builder.choice(each.urn for each in met) if met else ""
    one = builder.references.named(value, drawn)
    if one is not None and one.urn in builder.nodes:
        return one.urn
    name = text(value).rpartition("/")[2]
    kind = text(value).rpartition("/")[0].rpartition("/")[2]
    return builder.node(f"linked:{text(value).lower()}", "service", name, kind) if name else ""
