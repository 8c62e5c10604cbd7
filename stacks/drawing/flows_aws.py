"""What may talk to what on AWS: security groups, load balancers, routes, endpoints."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import ABSENT, Resource, get, is_unknown, items, text
from falaj.policies.model.values import is_false
from falaj.policies.reading.addresses import EVERY_PORT, Ports, is_open, port
from falaj.policies.rules.zero_trust.security_groups import ports_of_rule
from falaj.stacks.documents import is_mapping
from falaj.stacks.drawing.builder import Builder
from falaj.stacks.drawing.kinds import AWS_SUBNETS, GROUPS, VPCS, aws
from falaj.stacks.drawing.model import End
from falaj.stacks.drawing.traffic import Traffic

_RULES: Final[Mapping[str, End]] = {
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": "in",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": "out",
}
_OLD_RULES: Final = aws("ec2/securityGroupRule")
_INLINE: Final[Mapping[str, End]] = {"ingress": "in", "egress": "out"}
_ADDRESSES: Final = ("cidrBlocks", "ipv6CidrBlocks", "cidrIpv4", "cidrIpv6")
_PEERS: Final = ("referencedSecurityGroupId", "sourceSecurityGroupId", "securityGroups")
_LISTS: Final = ("prefixListIds", "prefixListId")
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


def flows(builder: Builder, parts: Mapping[str, list[str]]) -> None:
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
    said = "-1" if is_unknown(protocol) else protocol
    traffic = Traffic.of(said, (ports,) if ports else (), seen=seen)
    for peer in dict.fromkeys(_peers(builder, rule)):
        source, target = (peer, rule.group) if rule.end == "in" else (rule.group, peer)
        builder.flow(source, target, traffic, rule.resource.urn, end=rule.end)


def _peers(builder: Builder, rule: _Rule) -> Iterator[str]:
    """Ids of the nodes at the other end of a rule."""
    inline = rule.resource.kind in GROUPS
    for key in _ADDRESSES:
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
    for key in _LISTS:
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
        said = [text(each) for each in ranges if text(each)]
        return builder.node(f"list:{found[0].urn}", "list", found[0].name, *said)
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
                said = f"listens on {text(each.get('protocol')).lower() or 'tcp'} {listening}"
                if said not in node.details:
                    builder.change(node.id, details=(*node.details, said))


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
