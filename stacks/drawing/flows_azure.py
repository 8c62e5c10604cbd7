"""What may talk to what on Azure: security groups' rules, private endpoints, ways out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import ABSENT, Resource, get, is_unknown, items, text
from falaj.policies.model.values import is_false
from falaj.policies.reading.addresses import is_open, network
from falaj.policies.reading.azure_security_rules import (
    GROUPS,
    SINGLE,
    SecurityRule,
    security_rules,
)
from falaj.policies.reading.types import azure
from falaj.stacks.documents import is_mapping
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
    grounds = _Grounds.of(builder)
    for group in stack.of_kind(*sorted(GROUPS)):
        places = grounds.of_group(group)
        guarded.update(places)
        own = [*security_rules(group), *grounds.rules.get(group.urn, ())]
        for rule in [*own, *_defaults(own)]:
            _flow(grounds, group, rule, places)
    for subnet in stack.of_kind(*sorted(AZURE_SUBNETS)):
        if subnet.urn not in guarded and subnet.get("networkSecurityGroup") is ABSENT:
            _unguarded(builder, subnet)
    drawn = frozenset(
        stack.by_urn[node.urn].kind for node in builder.nodes.values() if node.urn in stack.by_urn
    )
    for each in stack.of_kind(*sorted(_ENDPOINTS)):
        for connection in items(each.get("privateLinkServiceConnections")):
            target = _linked(builder, each, connection, drawn)
            label = ", ".join(text(one) for one in items(get(connection, "groupIds")))
            if target and each.urn in builder.nodes:
                builder.edge("flow", each.urn, target, f"private link {label}".strip(), each.urn)


@dataclass(frozen=True)
class _Grounds:
    """What the rules of security groups are for."""

    builder: Builder
    subnets: Mapping[str, list[str]]
    """Ids of the subnets that a group is for, by the group's URN."""
    rules: Mapping[str, list[SecurityRule]]
    """Rules that are resources of their own, by the group's URN."""
    ranges: Mapping[str, str]
    """Ids of subnets, and else networks, by their ranges."""

    @classmethod
    def of(cls, builder: Builder) -> _Grounds:
        """The grounds of a stack whose subnets are drawn."""
        stack, at = builder.stack, builder.references.at
        subnets: dict[str, list[str]] = {}
        rules: dict[str, list[SecurityRule]] = {}
        ranges: dict[str, str] = {}
        for each in stack.of_kind(*sorted(AZURE_SUBNETS)):
            for group in at(each, "networkSecurityGroup", GROUPS)[0]:
                subnets.setdefault(group.urn, []).append(each.urn)
            for given in [*items(each.get("addressPrefix")), *items(each.get("addressPrefixes"))]:
                ranges.setdefault(str(network(given)), each.urn)
        for each in stack.of_kind(*sorted(VNETS)):
            for given in items(each.get("addressSpace.addressPrefixes")):
                ranges.setdefault(str(network(given)), each.urn)
        for each in stack.of_kind(*sorted(SINGLE)):
            for group in at(each, "networkSecurityGroupName", GROUPS)[0]:
                rules.setdefault(group.urn, []).extend(security_rules(each))
        return cls(builder, subnets, rules, ranges)

    def of_group(self, group: Resource) -> list[str]:
        """The subnets that a security group is for; itself, where it is for none."""
        return self.subnets.get(group.urn) or [
            self.builder.stand_for(group, "group", "security group of no subnet here")
        ]


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


def _flow(grounds: _Grounds, group: Resource, rule: SecurityRule, places: list[str]) -> None:
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
        sources = _side(grounds, group, rule, "source", [] if inward else places)
        targets = _side(grounds, group, rule, "destination", places if inward else [])
        for source in sources:
            for target in targets:
                grounds.builder.flow(source, target, traffic, group.urn)


def _side(
    grounds: _Grounds, group: Resource, rule: SecurityRule, side: str, own: list[str]
) -> list[str]:
    """The nodes at one side of a rule; at the group's own side everything is what it is for."""
    builder = grounds.builder
    keys = (f"{side}AddressPrefix", f"{side}AddressPrefixes", f"{side}s")
    values = [each for key in keys for each in items(get(rule.given, key))]
    groups = items(get(rule.given, f"{side}ApplicationSecurityGroups"))
    found: list[str] = []
    for value in values:
        given = get(value, "addressPrefix") if is_mapping(value) else value
        if is_unknown(given):
            found.append(builder.unseen("addresses"))
        elif own and (is_open(given) or text(given).lower() == "virtualnetwork"):
            found += own
        else:
            found += _named(grounds, group, text(given))
    for each in groups:
        name = text(get(each, "id")).rpartition("/")[2] or "application group"
        found.append(builder.node(f"list:{name}", "list", name, "application security group"))
    return list(dict.fromkeys(found)) or own or [builder.internet()]


def _named(grounds: _Grounds, group: Resource, said: str) -> list[str]:
    """A prefix or a service tag: the subnets that it is, else itself."""
    builder = grounds.builder
    if said.lower() == "virtualnetwork":
        networks = {_network_of(builder, each) for each in grounds.of_group(group)}
        known = sorted(each for each in networks if each)
        return known or [builder.node("tag:VirtualNetwork", "service", "VirtualNetwork")]
    wanted = network(said)
    if wanted is None:
        if is_open(said):
            return [builder.internet()]
        return [builder.node(f"tag:{said}", "service", said, "service tag of Azure")]
    own = grounds.ranges.get(str(wanted))
    return [own] if own else [builder.addresses(said)]


def _network_of(builder: Builder, id: str) -> str:
    node = builder.nodes[id]
    return node.container if node.kind == "subnet" else ""


def _unguarded(builder: Builder, subnet: Resource) -> None:
    """A subnet without a security group lets everything in from its network, and out."""
    container = builder.nodes[subnet.urn].container
    builder.flow(container, subnet.urn, EVERYTHING, subnet.urn)
    if not is_false(subnet.get("defaultOutboundAccess")):
        builder.flow(subnet.urn, builder.internet(), EVERYTHING, subnet.urn)


def _linked(builder: Builder, endpoint: Resource, connection: Any, drawn: frozenset[str]) -> str:
    """The node that a private endpoint leads to, or the service that a program names."""
    value = get(connection, "privateLinkServiceId")
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
