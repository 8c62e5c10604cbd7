"""Security groups and network access lists: what may come in and go out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    get,
    indeterminate,
    is_true,
    is_unknown,
    items,
    number,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.addresses import (
    CIDR_INPUTS,
    EVERY_PORT,
    PREFIX_LIST_INPUTS,
    Ports,
    are_open,
    is_open,
    ports_of_rule,
)
from falaj.policies.reading.azure_children import children, entries
from falaj.policies.reading.azure_security_rules import (
    GROUPS,
    TYPES,
    SecurityRule,
    Side,
    hidden_rules,
    security_rules,
)
from falaj.policies.reading.types import aws, aws_type, azure
from falaj.policies.rules.zero_trust.networks import CONTROLS
from falaj.wire.documents import is_mapping

# What AWS security groups let through to or from the world, in all forms of their rules.

SECURITY_GROUP: Final = aws_type("ec2/securityGroup")
DEFAULT_GROUP: Final = aws_type("ec2/defaultSecurityGroup")
GROUP_RULE: Final = aws_type("ec2/securityGroupRule")
INGRESS_RULE: Final = aws_type("vpc/securityGroupIngressRule")
EGRESS_RULE: Final = aws_type("vpc/securityGroupEgressRule")
_PREFIX_LIST: Final = aws_type("ec2/managedPrefixList")
_PREFIX_ENTRY: Final = aws_type("ec2/managedPrefixListEntry")

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


def openings(resource: Resource, context: Context, direction: str) -> Iterator[Opening]:
    """All that a resource lets through from the world (``ingress``) or to it (``egress``)."""
    for path, entry in _rules(resource, direction):
        if is_unknown(entry):
            if not _is_own(resource, context, path):
                yield Opening(path, "", False, EVERY_PORT, False, "it can't be known yet")
        elif is_mapping(entry):
            yield from _of_rule(resource, context, path, entry)


def _rules(resource: Resource, direction: str) -> Iterator[tuple[str, Any]]:
    if resource.kind in {SECURITY_GROUP, DEFAULT_GROUP}:
        given = resource.get(direction)
        if is_mapping(given):
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
    resource: Resource, context: Context, path: str, rule: Mapping[str, Any]
) -> Iterator[Opening]:
    ports, knows_ports = ports_of_rule(rule)
    base = f"{path}." if path else ""

    def opening(at: str, given: str, reason: str = "") -> Opening:
        return Opening(at, given, not reason, ports, knows_ports, reason)

    every: list[tuple[str, object]] = []
    for key in CIDR_INPUTS:
        given = get(rule, key)
        one = not isinstance(rule.get(key), list | tuple)
        for index, value in enumerate(items(given)):
            at = f"{base}{key}" if one else f"{base}{key}[{index}]"
            every.append((at, value))
            if is_open(value):
                yield opening(at, text(value))
            elif is_unknown(value) and not _is_own(resource, context, at):
                yield opening(at, "", "its addresses can't be known yet")
    if not any(is_open(value) for _, value in every) and are_open(each for _, each in every):
        yield opening(every[0][0], "many ranges, together much of the world")
    for key in PREFIX_LIST_INPUTS:
        for index, value in enumerate(items(get(rule, key))):
            one = not isinstance(rule.get(key), list | tuple)
            at = f"{base}{key}" if one else f"{base}{key}[{index}]"
            yield from _of_prefix_list(resource, context, at, value, opening)


def _of_prefix_list(
    resource: Resource, context: Context, at: str, value: object, opening: Any
) -> Iterator[Opening]:
    if context.stack is None:
        # AWS's own lists are never the world; whether this is one of the stack's, we see later.
        yield opening(at, "", "what the prefix list holds is known with the whole stack only")
        return
    referred = context.referred(resource, at)
    lists = [each for each in referred if each.kind == _PREFIX_LIST]
    for each in lists:
        entries = [get(one, "cidr") for one in items(each.get("entries"))]
        entries += [
            one.get("cidr") for one in context.stack.referring(each, _PREFIX_ENTRY, "prefixListId")
        ]
        if are_open(entries):
            yield opening(at, f"the prefix list {each.name!r}, which is the world")
        elif any(map(is_unknown, [each.get("entries"), *entries])):
            yield opening(at, "", f"entries of the prefix list {each.name!r} can't be known yet")
    if not referred and is_unknown(value):
        yield opening(at, "", "the prefix list can't be known yet")


def _is_own(resource: Resource, context: Context, path: str) -> bool:
    """Whether an unknown was made from a range of a network of one's own."""
    return any(each.kind in _OWN_RANGES for each in context.referred(resource, path))


# Entries of AWS network ACLs, in both forms.

_SHELLS = (22, 3389)
_NOT_TCP = frozenset(("udp", "17"))


def acl_entries(resource: Resource) -> Iterator[tuple[str, Any]]:
    """Entries for traffic that comes in, with their paths; unknowns among them."""
    if resource.kind.endswith(":NetworkAclRule"):
        if not is_true(resource.get("egress")):
            yield "", resource.properties
        return
    given = resource.get("ingress")
    for index, each in enumerate(items(given)):
        if is_unknown(each) or is_mapping(each):
            single = is_unknown(given) or is_mapping(given)
            yield ("ingress" if single else f"ingress[{index}]"), each


def _action(entry: object) -> object:
    found = get(entry, "action")
    return found if is_unknown(found) or text(found) else get(entry, "ruleAction")


def opens_shells(entry: Mapping[str, Any]) -> bool:
    """Whether an entry allows the ports of shells, or may."""
    ports, knows = ports_of_rule(entry)
    action = _action(entry)
    allows = is_unknown(action) or text(action).lower() == "allow"
    return allows and (not knows or (ports is not None and any(each in ports for each in _SHELLS)))


def is_denied(entry: Mapping[str, Any], key: str, entries: Sequence[tuple[str, Any]]) -> bool:
    """Whether entries with lower numbers deny the world the ports of shells that this one is
    about."""
    own = number(get(entry, "ruleNo"))
    allowed, knows = ports_of_rule(entry)
    if not knows or allowed is None:
        return False
    left = {each for each in _SHELLS if each in allowed}
    for _, other in entries:
        if not is_mapping(other) or text(_action(other)).lower() != "deny":
            continue
        earlier = number(get(other, "ruleNo"))
        if own is None or earlier is None or earlier >= own or not is_open(get(other, key)):
            continue
        ports, knows = ports_of_rule(other)
        if knows and ports is not None and text(get(other, "protocol")).lower() not in _NOT_TCP:
            left -= {each for each in left if each in ports}
    return not left


# Security groups: nothing from the world, nothing to the world, nothing by default.

_VPC: Final = aws_type("ec2/vpc")
_FIREWALL: Final = aws_type("networkfirewall/firewall")
_INGRESS_TYPES: Final = frozenset((SECURITY_GROUP, DEFAULT_GROUP, GROUP_RULE, INGRESS_RULE))
_EGRESS_TYPES: Final = frozenset((SECURITY_GROUP, DEFAULT_GROUP, GROUP_RULE, EGRESS_RULE))


def _found(opening: Opening, reason: str) -> Finding:
    if not opening.is_certain:
        return indeterminate(opening.path, f"{opening.reason}; it mustn't be the world")
    return violation(opening.path, reason)


@rule(
    "zero-trust-aws-admin-port-open",
    "No administrative port is open to the world",
    Severity.HIGH,
    _INGRESS_TYPES,
    ("cis-aws:6.3", "cis-aws:6.4", "iso27001:A.8.20", "uae-ia:T4.5.3", "nist-800-207:2"),
    "Let in the security group or the private range of those who need the port. For shells use "
    "Systems Manager Session Manager, which needs no open port.",
)
def admin_port_open(resource: Resource, context: Context) -> Iterator[Finding]:
    """Openings to the world with SSH, RDP, databases and the like among their ports."""
    for each in openings(resource, context, "ingress"):
        if each.ports is None or not each.ports.admin:
            continue
        if each.is_certain and not each.knows_ports:
            yield indeterminate(
                each.path, f"{each.given} may come in at ports that can't be known yet"
            )
        else:
            clause = f"{each.given} may reach {each.ports}, and with it {each.ports.admin}"
            yield _found(each, f"{clause}; only known sources may")


@rule(
    "zero-trust-aws-ingress-open",
    "No security group lets the world in",
    Severity.HIGH,
    _INGRESS_TYPES,
    ("iso27001:A.8.20", "iso27001:A.8.22", "uae-ia:T4.5.3", "nist-800-207:2"),
    "Name the callers: their security group, a private range, or a prefix list of known "
    "addresses.",
)
def ingress_open(resource: Resource, context: Context) -> Iterator[Finding]:
    """Openings to the world at ports that aren't administrative ones."""
    for each in openings(resource, context, "ingress"):
        if each.ports is None or not each.ports.admin or not each.knows_ports:
            ports_text = "every port" if each.ports is None else str(each.ports)
            ports_text = ports_text if each.knows_ports else "some port"
            yield _found(each, f"{each.given} may reach {ports_text}; only known sources may")


@rule(
    "zero-trust-aws-egress-open",
    "No security group lets out to the whole world",
    Severity.MEDIUM,
    _EGRESS_TYPES,
    ("iso27001:A.8.20", "iso27001:A.8.12", "uae-ia:T4.5.3", "nist-800-207:2"),
    "Name the destinations: security groups, prefix lists of gateway endpoints, private ranges. "
    "What has to reach the internet goes through a Network Firewall that lets through named "
    "domains.",
)
def egress_open(resource: Resource, context: Context) -> Iterator[Finding]:
    """Openings to the world, unless the network's own firewall stands in the way."""
    found = list(openings(resource, context, "egress"))
    if not found:
        return
    if context.stack is None:
        for each in found:
            reason = each.reason or f"{each.given} is the world"
            yield indeterminate(
                each.path, f"{reason}; whether a firewall is in the way, the whole stack says"
            )
    elif not _is_behind_firewall(resource, context):
        for each in found:
            yield _found(
                each,
                f"traffic to {each.given} may leave; only named destinations may be reached, or "
                "a Network Firewall has to be in the way",
            )


def _is_behind_firewall(resource: Resource, context: Context) -> bool:
    if context.stack is None:
        return False
    firewalls = context.stack.of_kind(_FIREWALL)
    if not firewalls:
        return False
    groups = (
        [resource]
        if resource.kind in {SECURITY_GROUP, DEFAULT_GROUP}
        else [
            each
            for each in context.referred(resource, "securityGroupId")
            if each.kind in {SECURITY_GROUP, DEFAULT_GROUP}
        ]
    )
    return any(_share_network(group, each, context) for group in groups for each in firewalls)


def _share_network(one: Resource, other: Resource, context: Context) -> bool:
    if text(one.get("vpcId")) and text(one.get("vpcId")) == text(other.get("vpcId")):
        return True
    networks = {each.urn for each in context.referred(one, "vpcId") if each.kind == _VPC}
    return any(each.urn in networks for each in context.referred(other, "vpcId"))


@rule(
    "zero-trust-aws-default-security-group",
    "A network's default security group lets nothing through",
    Severity.MEDIUM,
    {DEFAULT_GROUP, _VPC},
    ("iso27001:A.8.20", "iso27001:A.8.9", "uae-ia:T4.5.3", "nist-800-207:2"),
    "Declare aws.ec2.DefaultSecurityGroup for the VPC with empty ingress and egress, and give "
    "every workload a group of its own.",
)
def default_security_group(resource: Resource, context: Context) -> Iterator[Finding]:
    """What lands in the default group talks to all others of it, and to the world."""
    if resource.kind == _VPC:
        if context.stack is None:
            yield indeterminate("", "whether its default group is emptied, the whole stack says")
        elif not context.stack.referring(resource, DEFAULT_GROUP, "vpcId"):
            yield violation(
                "",
                "AWS's default security group of this network lets its members talk to each "
                "other and to the world; it has to be declared without rules",
            )
        return
    for key in ("ingress", "egress"):
        given = resource.get(key)
        if is_unknown(given):
            yield indeterminate(key, "its rules can't be known yet; it must have none")
        elif given is not ABSENT and items(given):
            yield violation(key, f"the default group has {key} rules; it must have none")


# Network ACLs: no shells from the world.


@rule(
    "zero-trust-aws-network-acl-open",
    "No network ACL opens shells to the world",
    Severity.MEDIUM,
    aws("ec2/networkAcl", "ec2/defaultNetworkAcl", "ec2/networkAclRule"),
    ("cis-aws:6.3", "iso27001:A.8.20", "uae-ia:T4.5.3", "nist-800-207:2"),
    "Allow named ranges to the ports of shells, or none; ports of answers begin above 3389 if "
    "the list of ports is cut in two.",
)
def network_acl_open(resource: Resource, context: Context) -> Iterator[Finding]:
    """Entries that allow SSH or RDP from everywhere, unless an earlier one denies it."""
    entries = list(acl_entries(resource))
    for path, each in entries:
        if is_unknown(each):
            yield indeterminate(path, "its entries can't be known yet")
            continue
        for key in ("cidrBlock", "ipv6CidrBlock"):
            for _, cidr in select(each, key):
                at = f"{path}.{key}" if path else key
                if is_unknown(cidr) and opens_shells(each):
                    yield indeterminate(at, "its addresses can't be known yet")
                elif is_open(cidr) and opens_shells(each) and not is_denied(each, key, entries):
                    yield violation(at, f"{text(cidr)} may reach SSH or RDP; name who may")


# Network security groups that let the world in, or let everything out to it.


def _named(found: SecurityRule) -> str:
    name = text(get(found.given, "name")) or text(get(found.given, "securityRuleName"))
    return f"rule {name!r}" if name else "the rule"


def _allowing(
    resource: Resource, direction: str, side: str
) -> Iterator[tuple[SecurityRule, Side, bool]]:
    """Rules that let traffic through, with the side in question, and whether that is certain."""
    for found in security_rules(resource):
        if found.allows and found.may_be(direction):
            yield found, getattr(found, side), found.is_access_seen


#: An address that is made from one of these, and can't be known yet, is no world.
_OF_NETWORKS: Final = ("azure-native:network:", "azure-native:compute:")


def _unseen(resource: Resource, context: Context, path: str, reason: str) -> Iterator[Finding]:
    made_from = context.referred(resource, path)
    if not made_from or not all(each.kind.startswith(_OF_NETWORKS) for each in made_from):
        yield indeterminate(path, reason)


def _hidden(resource: Resource) -> Iterator[Finding]:
    for path in hidden_rules(resource):
        yield indeterminate(path, "the rule can't be seen, so nobody knows who is let in or out")


@rule(
    "zero-trust-azure-open-admin-ports",
    "No administrative or database port is open to the Internet",
    Severity.HIGH,
    TYPES,
    CONTROLS,
    "Allow the port from the private ranges that administrators come from, or delete the rule and "
    "use Azure Bastion, a private line or the platform's run command.",
)
def open_admin_ports(resource: Resource, context: Context) -> Iterator[Finding]:
    """SSH, RDP, WinRM, SMB, databases and their like."""
    yield from _hidden(resource)
    for found, source, certain in _allowing(resource, "inbound", "source"):
        if not found.has_ports or (source.is_seen and not source.is_open):
            continue
        ports = found.ports
        admin = next((each.admin for each in ports or () if each.admin), "")
        if ports is None and source.is_open:
            reason = f"{_named(found)} is open to the Internet, and its ports can't be seen"
            yield indeterminate(found.ports_path, reason)
        elif ports is None or admin:
            what = f"port {admin}" if admin else "ports that can't be seen"
            if not source.is_seen:
                reason = f"who may reach {what} can't be seen; it must not be the Internet"
                yield from _unseen(resource, context, source.path, reason)
            else:
                reason = f"{_named(found)} lets the Internet reach {what}"
                yield (violation if certain else indeterminate)(source.path, reason)


@rule(
    "zero-trust-azure-open-inbound",
    "No security rule lets the Internet in",
    Severity.HIGH,
    TYPES,
    CONTROLS,
    "Name the private ranges, service tags or application security groups that may connect. What "
    "is meant for the Internet belongs behind a gateway that checks each request.",
)
def open_inbound(resource: Resource, context: Context) -> Iterator[Finding]:
    """Every port but the administrative ones, which have a rule of their own."""
    yield from _hidden(resource)
    for found, source, certain in _allowing(resource, "inbound", "source"):
        others = _other_ports(found)
        if not others or (source.is_seen and not source.is_open):
            continue
        if source.is_seen:
            reason = f"{_named(found)} lets the Internet reach {others}"
            yield (violation if certain else indeterminate)(source.path, reason)
        else:
            reason = f"who may reach {others} can't be seen; it must not be the Internet"
            yield from _unseen(resource, context, source.path, reason)


def _other_ports(found: SecurityRule) -> str:
    if not found.has_ports:
        return "the machines (a protocol without ports)"
    ports = found.ports
    if ports is None:
        return "ports that can't be seen"
    others = [each for each in ports if not _is_one_admin_port(each)]
    return str(others[0]) if others else ""


def _is_one_admin_port(ports: Ports) -> bool:
    return ports.first == ports.last and bool(ports.admin)


@rule(
    "zero-trust-azure-open-egress",
    "No security rule lets everything out to the Internet",
    Severity.MEDIUM,
    TYPES,
    ("uae-ia:T4.5.3", "iso27001:A.8.12", "iso27001:A.8.20", "nist-800-207:2"),
    "Name the ranges or service tags that are needed, and deny the rest; let named domains out "
    "through Azure Firewall.",
)
def open_egress(resource: Resource, context: Context) -> Iterator[Finding]:
    """Rules that allow what Azure's default rule for egress allows; the default itself isn't
    judged. Where routes lead everything to a firewall, rules have to let through what is sent
    there, and the firewall decides."""
    yield from _hidden(resource)
    for found, target, certain in _allowing(resource, "outbound", "destination"):
        if target.is_open:
            reason = f"{_named(found)} lets traffic out to the whole Internet"
            if context.stack is None:
                reason += ", unless routes lead to a firewall"
                yield indeterminate(target.path, reason)
            elif not _leads_to_firewall(resource, context):
                yield (violation if certain else indeterminate)(target.path, reason)
        elif not target.is_seen:
            reason = "where traffic may go can't be seen; it must not be the whole Internet"
            yield from _unseen(resource, context, target.path, reason)


_SUBNET: Final = azure("network:Subnet")
_ROUTES: Final = azure("network:RouteTable")


def _leads_to_firewall(resource: Resource, context: Context) -> bool:
    """Whether every subnet with the group sends all that leaves to a firewall."""
    groups = [resource]
    if resource.kind not in GROUPS:
        groups = [
            each
            for kind in sorted(GROUPS)
            for each in (context.stack.of_kind(kind) if context.stack else [])
            if resource in children(context, each, TYPES, "networkSecurityGroupName")
        ]
    subnets = [
        each
        for group in groups
        for each in children(context, group, _SUBNET, "networkSecurityGroup.id")
    ]
    return bool(subnets) and all(_is_routed(each, context) for each in subnets)


def _is_routed(subnet: Resource, context: Context) -> bool:
    for table in context.referred(subnet, "routeTable.id"):
        routes = [each for _, each in entries(table.get("routes"), "routes")]
        routes += [
            each.properties
            for each in children(context, table, azure("network:Route"), "routeTableName")
        ]
        if table.kind in _ROUTES and any(
            is_open(get(each, "addressPrefix"))
            and text(get(each, "nextHopType")).lower() == "virtualappliance"
            for each in routes
        ):
            return True
    return False


RULES: tuple[Rule, ...] = (
    admin_port_open,
    ingress_open,
    egress_open,
    default_security_group,
    network_acl_open,
    open_admin_ports,
    open_inbound,
    open_egress,
)
