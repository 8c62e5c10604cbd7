"""What may talk to what in a cloud, and what is open to the internet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    FindingKind,
    Resource,
    get,
    is_unknown,
    items,
    text,
)
from falaj.policies.model.values import is_false
from falaj.policies.reading.addresses import (
    CIDR_INPUTS,
    EVERY_PORT,
    PREFIX_LIST_INPUTS,
    Ports,
    is_open,
    network,
    port,
)
from falaj.policies.reading.azure_security_rules import GROUPS as AZURE_GROUPS
from falaj.policies.reading.azure_security_rules import SINGLE, SecurityRule, security_rules
from falaj.policies.reading.types import azure
from falaj.policies.rules import rules_of
from falaj.policies.rules.zero_trust.security_groups import ports_of_rule
from falaj.stacks.drawing.builder import EVERYTHING, Builder, Traffic
from falaj.stacks.drawing.kinds import AWS_SUBNETS, AZURE_SUBNETS, GROUPS, VNETS, VPCS, aws
from falaj.stacks.drawing.model import INTERNET, OPENNESS, End
from falaj.wire.documents import is_mapping

# AWS: security groups, load balancers, routes, endpoints.

_RULES: Final[Mapping[str, End]] = {
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": "in",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": "out",
}
_OLD_RULES: Final = aws("ec2/securityGroupRule")
_INLINE: Final[Mapping[str, End]] = {"ingress": "in", "egress": "out"}
_PEERS: Final = ("referencedSecurityGroupId", "sourceSecurityGroupId", "securityGroups")
_PREFIX_LISTS: Final = aws("ec2/managedPrefixList", "ec2/vpcEndpoint")
_BALANCERS: Final = aws("lb/loadBalancer", "alb/loadBalancer")
_LISTENERS: Final = aws("lb/listener", "alb/listener")
_TARGETS: Final = aws("lb/targetGroup", "alb/targetGroup")
_ATTACHMENTS: Final = aws("lb/targetGroupAttachment", "alb/targetGroupAttachment")
_TABLES: Final = aws("ec2/routeTable", "ec2/defaultRouteTable")
_ROUTES: Final = aws("ec2/route")
_ASSOCIATIONS: Final = aws("ec2/routeTableAssociation", "ec2/mainRouteTableAssociation")
_WAYS_OUT: Final = aws("ec2/internetGateway", "ec2/natGateway", "ec2/egressOnlyInternetGateway")


@dataclass(frozen=True)
class _Rule:
    """One rule of a security group."""

    group: str
    end: End
    given: Mapping[str, Any]
    resource: Resource


def aws_flows(builder: Builder, parts: Mapping[str, list[str]]) -> None:
    """Traffic that AWS's resources allow.

    Args:
        builder: the drawing.
        parts: nodes by the URN of what they are made from (`places.parts`).
    """
    groups(builder, parts)
    for rule in _rules(builder):
        _flow(builder, rule)
    _balancers(builder)
    _routes(builder)


def groups(builder: Builder, parts: Mapping[str, list[str]]) -> None:
    """The security groups with their members."""
    for each in builder.stack.of_kind(*sorted(GROUPS)):
        builder.stand_for(each, "group", text(each.get("description")))
    members: dict[str, dict[str, None]] = {}
    possible: dict[str, dict[str, None]] = {}
    for each in builder.stack.resources:
        if each.package != "aws" or each.kind in {*GROUPS, *_RULES, *_OLD_RULES}:
            continue
        owners = parts.get(each.urn, [])
        if each.urn in builder.nodes:
            owners = [each.urn]
        if not owners:
            continue
        found, others = builder.references.mentioned(each, GROUPS, "sg-")
        unsure = builder.references.unsure(each, GROUPS, "group")
        for id in [one.urn for one in found] + [_elsewhere(builder, each, one) for one in others]:
            listed = possible if id in unsure else members
            listed.setdefault(id, {}).update(dict.fromkeys(owners))
    for id, found in members.items():
        builder.change(id, members=tuple(sorted(found)))
    for id, found in possible.items():
        rest = set(found) - set(builder.nodes[id].members)
        builder.change(id, possible=tuple(sorted(rest)))


def _elsewhere(builder: Builder, resource: Resource, value: str) -> str:
    stack = builder.references.stack_of(resource, value)
    name = builder.references.given_name(value)
    owner = f"of stack {stack}" if stack else "not of this stack"
    label = name or value
    return builder.node(f"elsewhere:{value.lower()}", "group", label, owner, is_elsewhere=True)


def _rules(builder: Builder) -> Iterator[_Rule]:
    stack = builder.stack
    for kind, end in _RULES.items():
        for each in stack.of_kind(kind):
            for group in _groups_of(builder, each, "securityGroupId"):
                yield _Rule(group, end, each.properties, each)
    for each in stack.of_kind(*sorted(_OLD_RULES)):
        end = _INLINE.get(text(each.get("type")).lower(), "in")
        for group in _groups_of(builder, each, "securityGroupId"):
            yield _Rule(group, end, each.properties, each)
    for each in stack.of_kind(*sorted(GROUPS)):
        for key, end in _INLINE.items():
            for given in items(each.get(key)):
                known = given if is_mapping(given) else {"cidrBlocks": given}
                yield _Rule(each.urn, end, known, each)


def _groups_of(builder: Builder, resource: Resource, path: str) -> list[str]:
    found, others, is_certain = builder.meant(resource, path, GROUPS)
    ids = [each.urn for each in found]
    if ids and not is_certain:
        ids = [builder.choice(ids)]
    ids += [_elsewhere(builder, resource, each) for each in others]
    return ids or [builder.unseen("a security group")]


def _flow(builder: Builder, rule: _Rule) -> None:
    ports, seen = ports_of_rule(rule.given)
    protocol = next(
        (rule.given[key] for key in ("protocol", "ipProtocol") if rule.given.get(key) is not None),
        "-1",
    )
    known = "-1" if is_unknown(protocol) else protocol
    traffic = Traffic.of(known, (ports,) if ports else (), seen=seen)
    for peer in dict.fromkeys(_peers(builder, rule)):
        source, target = (peer, rule.group) if rule.end == "in" else (rule.group, peer)
        builder.flow(source, target, traffic, rule.resource.urn, end=rule.end)


def _peers(builder: Builder, rule: _Rule) -> Iterator[str]:
    """Ids of the nodes at the other end of a rule."""
    inline = rule.resource.kind in GROUPS
    for key in CIDR_INPUTS:
        for value in items(get(rule.given, key)):
            yield builder.unseen("addresses") if is_unknown(value) else builder.addresses(value)
    for key in _PEERS:
        given = get(rule.given, key)
        if given is ABSENT:
            continue
        if inline:
            yield from (_one_group(builder, rule.resource, each) for each in items(given))
        else:
            yield from _groups_of(builder, rule.resource, key)
    if get(rule.given, "self") is not ABSENT and not is_false(get(rule.given, "self")):
        yield rule.group
    for key in PREFIX_LIST_INPUTS:
        for value in items(get(rule.given, key)):
            yield _list(builder, rule.resource, value)


def _one_group(builder: Builder, resource: Resource, value: Any) -> str:
    if is_unknown(value):
        return builder.unseen("a security group")
    found = builder.references.named(value, GROUPS)
    return found.urn if found else _elsewhere(builder, resource, text(value) or "a group")


def _list(builder: Builder, resource: Resource, value: Any) -> str:
    """A list of ranges: one's own, or that of a service behind an endpoint by routes."""
    if is_unknown(value):
        found = [
            each
            for key in resource.dependencies
            for each in builder.references.origins(resource, key, _PREFIX_LISTS)
        ]
    else:
        one = builder.references.named(value, _PREFIX_LISTS)
        found = [one] if one else []
    if found and found[0].kind == "aws:ec2/managedPrefixList:ManagedPrefixList":
        ranges = [get(each, "cidr") for each in items(found[0].get("entries"))]
        if any(is_open(each) for each in ranges):
            return builder.internet()
        details = [text(each) for each in ranges if text(each)]
        return builder.node(f"list:{found[0].urn}", "list", found[0].name, *details)
    if found and found[0].urn in builder.nodes:
        return found[0].urn
    label = "ranges of a service" if is_unknown(value) else text(value) or "ranges"
    return builder.node(f"list:{label}", "list", label, "ranges of a service of the cloud")


def _balancers(builder: Builder) -> None:
    """From load balancers to what they send to."""
    stack, references = builder.stack, builder.references
    backends: dict[str, list[str]] = {}
    for each in stack.resources:
        if each.package != "aws" or each.urn not in builder.nodes:
            continue
        for target in references.mentioned(each, _TARGETS, ":targetgroup/")[0]:
            backends.setdefault(target.urn, []).append(each.urn)
    for each in stack.of_kind(*sorted(_ATTACHMENTS)):
        for target in references.at(each, "targetGroupArn", _TARGETS)[0]:
            machines = aws("ec2/instance")
            found = references.at(each, "targetId", machines)[0]
            backends.setdefault(target.urn, []).extend(one.urn for one in found)
    for each in stack.of_kind(*sorted(_LISTENERS)):
        listening = port(each.get("port"))
        for balancer in references.at(each, "loadBalancerArn", _BALANCERS)[0]:
            for target in references.mentioned(each, _TARGETS, ":targetgroup/")[0]:
                for backend in dict.fromkeys(backends.get(target.urn, ())):
                    if balancer.urn in builder.nodes and backend in builder.nodes:
                        traffic = _forwarded(target)
                        builder.flow(balancer.urn, backend, traffic, each.urn, target.urn)
            if listening is not None and balancer.urn in builder.nodes:
                node = builder.nodes[balancer.urn]
                detail = f"listens on {text(each.get('protocol')).lower() or 'tcp'} {listening}"
                if detail not in node.details:
                    builder.change(node.id, details=(*node.details, detail))


def _forwarded(target: Resource) -> Traffic:
    found = port(target.get("port"))
    protocol = text(target.get("protocol")).lower()
    ports = (Ports(found, found),) if found is not None else (EVERY_PORT,)
    return Traffic.of("udp" if protocol == "udp" else "tcp", ports)


def _routes(builder: Builder) -> None:
    """Routes to and from everybody, by what they lead through."""
    stack, references = builder.stack, builder.references
    subnets = _subnets_of_tables(builder)
    for each in stack.of_kind(*sorted(_ROUTES)):
        for table in references.at(each, "routeTableId", _TABLES)[0]:
            places = subnets.get(table.urn, ())
            _route(builder, each, table, each.properties, places)
    for table in stack.of_kind(*sorted(_TABLES)):
        for given in items(table.get("routes")):
            if is_mapping(given):
                _route(builder, table, table, given, subnets.get(table.urn, ()))


def _route(
    builder: Builder,
    resource: Resource,
    table: Resource,
    given: Mapping[str, Any],
    subnets: Collection[str],
) -> None:
    keys = ("cidrBlock", "ipv6CidrBlock", "destinationCidrBlock", "destinationIpv6CidrBlock")
    if not any(is_open(get(given, key)) for key in keys):
        return
    through = builder.references.mentioned(resource, _WAYS_OUT, "-")[0]
    keys = ("gatewayId", "natGatewayId", "egressOnlyGatewayId")
    named = [key for key in keys if get(given, key) is not ABSENT]
    label = "route through " + (
        ", ".join(sorted(each.name for each in through)) or (named[0] if named else "a gateway")
    )
    for place in _places_of(builder, table, subnets):
        builder.edge("flow", place, builder.internet(), label, resource.urn)
        if any(each.kind == "aws:ec2/internetGateway:InternetGateway" for each in through):
            builder.edge("flow", builder.internet(), place, label, resource.urn)


def _subnets_of_tables(builder: Builder) -> dict[str, list[str]]:
    """URNs of the subnets that route tables are for, by the table's URN."""
    found: dict[str, list[str]] = {}
    for each in builder.stack.of_kind(*sorted(_ASSOCIATIONS)):
        subnets = builder.references.at(each, "subnetId", AWS_SUBNETS)[0]
        for table in builder.references.at(each, "routeTableId", _TABLES)[0]:
            found.setdefault(table.urn, []).extend(one.urn for one in subnets)
    return found


def _places_of(builder: Builder, table: Resource, subnets: Collection[str]) -> list[str]:
    """The subnets that a route table is for, else its network."""
    found = list(subnets)
    if not found:
        found = [one.urn for one in builder.references.at(table, "vpcId", VPCS)[0]]
    return [each for each in dict.fromkeys(found) if each in builder.nodes] or [
        builder.node(f"routes:{table.urn}", "other", table.name, "route table")
    ]


# Azure: security groups' rules, private endpoints, ways out.

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


def azure_flows(builder: Builder) -> None:
    """Traffic that Azure's resources allow."""
    stack = builder.stack
    guarded: set[str] = set()
    grounds = _Grounds.of(builder)
    for group in stack.of_kind(*sorted(AZURE_GROUPS)):
        places = grounds.of_group(group)
        guarded.update(places)
        own = [*security_rules(group), *grounds.rules.get(group.urn, ())]
        for rule in [*own, *_defaults(own)]:
            _azure_flow(grounds, group, rule, places)
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
            for group in at(each, "networkSecurityGroup", AZURE_GROUPS)[0]:
                subnets.setdefault(group.urn, []).append(each.urn)
            for given in [*items(each.get("addressPrefix")), *items(each.get("addressPrefixes"))]:
                ranges.setdefault(str(network(given)), each.urn)
        for each in stack.of_kind(*sorted(VNETS)):
            for given in items(each.get("addressSpace.addressPrefixes")):
                ranges.setdefault(str(network(given)), each.urn)
        for each in stack.of_kind(*sorted(SINGLE)):
            for group in at(each, "networkSecurityGroupName", AZURE_GROUPS)[0]:
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


def _azure_flow(grounds: _Grounds, group: Resource, rule: SecurityRule, places: list[str]) -> None:
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


def _named(grounds: _Grounds, group: Resource, prefix: str) -> list[str]:
    """A prefix or a service tag: the subnets that it is, else itself."""
    builder = grounds.builder
    if prefix.lower() == "virtualnetwork":
        networks = {_network_of(builder, each) for each in grounds.of_group(group)}
        known = sorted(each for each in networks if each)
        return known or [builder.node("tag:VirtualNetwork", "service", "VirtualNetwork")]
    wanted = network(prefix)
    if wanted is None:
        if is_open(prefix):
            return [builder.internet()]
        return [builder.node(f"tag:{prefix}", "service", prefix, "service tag of Azure")]
    own = grounds.ranges.get(str(wanted))
    return [own] if own else [builder.addresses(prefix)]


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


# Openings: rules of firewalls are drawn one by one; services, balancers and control planes are
# open by a switch. Which switch that is, the packs know: what violates one of these rules is drawn
# as open.

#: Rules by pack, and whether what they find lets everybody in (else: lets out to everybody).
_OPENING_RULES: Final[Mapping[str, Mapping[str, bool]]] = {
    "zero_trust": {
        "zero-trust-aws-public-load-balancer": True,
        "zero-trust-aws-public-address": True,
        "zero-trust-aws-elastic-address": True,
        "zero-trust-aws-public-subnet": True,
        "zero-trust-aws-public-data-store": True,
        "zero-trust-aws-public-service": True,
        "zero-trust-aws-public-http-api": True,
        "zero-trust-aws-beanstalk-public": True,
        "zero-trust-aws-bucket-website": True,
        "zero-trust-aws-bucket-public-acl": True,
        "zero-trust-aws-open-allow-list": True,
        "zero-trust-aws-eks-public-endpoint": True,
        "zero-trust-azure-open-firewall-rule": True,
        "zero-trust-azure-open-address-list": True,
        "zero-trust-azure-aks-private-api": True,
        "zero-trust-azure-aks-node-addresses": True,
        "zero-trust-azure-web-app-public": True,
        "zero-trust-azure-public-access": True,
        "zero-trust-azure-public-telemetry": True,
        "zero-trust-azure-public-machine": True,
        "zero-trust-azure-public-frontend": True,
        "zero-trust-azure-public-container-app": True,
        "zero-trust-azure-public-environment": True,
        "zero-trust-azure-anonymous-blobs": True,
        "zero-trust-azure-static-website": True,
        "zero-trust-azure-firewall-open": False,
    },
    "kubernetes": {
        "kubernetes-public-load-balancer": True,
        "kubernetes-public-gateway": True,
    },
}


def openings(builder: Builder, parts: Mapping[str, list[str]]) -> None:
    """Edges from and to the internet for what is open by its own settings.

    Args:
        builder: the drawing.
        parts: nodes by the URN of what they are made from.
    """
    context = Context(stack=builder.stack)
    for pack, wanted in _OPENING_RULES.items():
        for rule in rules_of(pack):
            inward = wanted.get(rule.id)
            if inward is None:
                continue
            for each in builder.stack.resources:
                if not rule.concerns(each.kind):
                    continue
                checked = list(rule.check(each, context))
                if any(one.kind is FindingKind.INDETERMINATE for one in checked):
                    builder.hide(OPENNESS, each)
                found = [one for one in checked if one.kind is FindingKind.VIOLATION]
                for reason in dict.fromkeys(f"{one.path}: {one.reason}" for one in found):
                    _edge(builder, parts, each, reason, inward=inward)


def _edge(
    builder: Builder,
    parts: Mapping[str, list[str]],
    resource: Resource,
    reason: str,
    *,
    inward: bool,
) -> None:
    nodes = builder.standing_for(resource)
    nodes = nodes or parts.get(resource.urn, []) or _owners(builder, resource)
    for id in nodes:
        ends = (builder.internet(), id) if inward else (id, builder.internet())
        builder.edge("flow", *ends, reason, resource.urn)


def _owners(builder: Builder, resource: Resource) -> list[str]:
    """The nodes of what a setting belongs to: what it was made from, else itself."""
    urns = dict.fromkeys(each for found in resource.dependencies.values() for each in found)
    owners = [urn for urn in urns if urn in builder.nodes and urn != INTERNET]
    same = [
        id
        for id, node in builder.nodes.items()
        if node.kind == "ingress" and node.urn and resource.package == "kubernetes"
    ]
    return (
        owners or same or [builder.stand_for(resource, "other", resource.type.rpartition(":")[2])]
    )
