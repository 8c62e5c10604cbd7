"""What AWS security groups let through to or from the world, in all forms of their rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import Resource, View, get, is_unknown, items, text
from falaj.policies.reading.cidr import are_open, is_open
from falaj.policies.reading.ports import EVERY_PORT, Ports, ports_of_rule
from falaj.policies.reading.types import aws_type

SECURITY_GROUP: Final = aws_type("ec2/securityGroup")
DEFAULT_GROUP: Final = aws_type("ec2/defaultSecurityGroup")
GROUP_RULE: Final = aws_type("ec2/securityGroupRule")
INGRESS_RULE: Final = aws_type("vpc/securityGroupIngressRule")
EGRESS_RULE: Final = aws_type("vpc/securityGroupEgressRule")
_PREFIX_LIST: Final = aws_type("ec2/managedPrefixList")
_PREFIX_ENTRY: Final = aws_type("ec2/managedPrefixListEntry")

#: Which key of an inline or single rule holds sources or destinations.
_ADDRESSES: Final = ("cidrBlocks", "ipv6CidrBlocks", "cidrIpv4", "cidrIpv6")
_LISTS: Final = ("prefixListIds", "prefixListId")
#: Resources whose outputs are single addresses or a network's own ranges, never the world.
_OWN_RANGES: Final = frozenset(
    aws_type(each)
    for each in (
        "ec2/vpc", "ec2/defaultVpc", "ec2/subnet", "ec2/defaultSubnet", "ec2/eip",
        "ec2/natGateway", "ec2/instance", "ec2/networkInterface", "ec2/vpcIpamPoolCidr",
        "ec2/vpcIpamPoolCidrAllocation", "ec2/vpcIpv4CidrBlockAssociation",
        "ec2/vpcIpv6CidrBlockAssociation", "ec2/vpcPeeringConnection", "ec2/vpnConnection",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Opening:
    """A source or destination that is the world, or may be."""

    path: str
    given: str
    is_certain: bool
    ports: Ports | None
    """Ports that it is about; None for protocols without ports."""
    knows_ports: bool
    reason: str = ""
    """Why it isn't certain."""


def openings(resource: Resource, view: View, direction: str) -> Iterator[Opening]:
    """All that a resource lets through from the world (``ingress``) or to it (``egress``)."""
    for path, rule in _rules(resource, direction):
        if is_unknown(rule):
            if not _is_own(resource, view, path):
                yield Opening(path, "", False, EVERY_PORT, False, "it can't be known yet")
        elif isinstance(rule, Mapping):
            yield from _of_rule(resource, view, path, rule)


def _rules(resource: Resource, direction: str) -> Iterator[tuple[str, Any]]:
    if resource.kind in {SECURITY_GROUP, DEFAULT_GROUP}:
        given = resource.get(direction)
        if isinstance(given, Mapping):
            yield direction, given
        else:
            for index, each in enumerate(items(given)):
                yield (direction if is_unknown(given) else f"{direction}[{index}]"), each
    elif resource.kind == GROUP_RULE:
        kind = resource.get("type")
        if is_unknown(kind) or text(kind).lower() == direction:
            yield "", resource.properties
    elif (resource.kind == INGRESS_RULE) == (direction == "ingress"):
        yield "", resource.properties


def _of_rule(
    resource: Resource, view: View, path: str, rule: Mapping[str, Any]
) -> Iterator[Opening]:
    ports, knows_ports = ports_of_rule(rule)
    base = f"{path}." if path else ""

    def opening(at: str, given: str, reason: str = "") -> Opening:
        return Opening(at, given, not reason, ports, knows_ports, reason)

    every: list[tuple[str, object]] = []
    for key in _ADDRESSES:
        given = get(rule, key)
        one = not isinstance(rule.get(key), list | tuple)
        for index, value in enumerate(items(given)):
            at = f"{base}{key}" if one else f"{base}{key}[{index}]"
            every.append((at, value))
            if is_open(value):
                yield opening(at, text(value))
            elif is_unknown(value) and not _is_own(resource, view, at):
                yield opening(at, "", "its addresses can't be known yet")
    if not any(is_open(value) for _, value in every) and are_open(each for _, each in every):
        yield opening(every[0][0], "many ranges, together much of the world")
    for key in _LISTS:
        for index, value in enumerate(items(get(rule, key))):
            one = not isinstance(rule.get(key), list | tuple)
            at = f"{base}{key}" if one else f"{base}{key}[{index}]"
            yield from _of_prefix_list(resource, view, at, value, opening)


def _of_prefix_list(
    resource: Resource, view: View, at: str, value: object, opening: Any
) -> Iterator[Opening]:
    if view.stack is None:
        # AWS's own lists are never the world; whether this is one of the stack's, we see later.
        yield opening(at, "", "what the prefix list holds is known with the whole stack only")
        return
    referred = view.referred(resource, at)
    lists = [each for each in referred if each.kind == _PREFIX_LIST]
    for each in lists:
        entries = [get(one, "cidr") for one in items(each.get("entries"))]
        entries += [
            one.get("cidr") for one in view.stack.referring(each, _PREFIX_ENTRY, "prefixListId")
        ]
        if are_open(entries):
            yield opening(at, f"the prefix list {each.name!r}, which is the world")
        elif any(map(is_unknown, [each.get("entries"), *entries])):
            yield opening(at, "", f"entries of the prefix list {each.name!r} can't be known yet")
    if not referred and is_unknown(value):
        yield opening(at, "", "the prefix list can't be known yet")


def _is_own(resource: Resource, view: View, path: str) -> bool:
    """Whether an unknown was made from a range of a network of one's own."""
    return any(each.kind in _OWN_RANGES for each in view.referred(resource, path))
