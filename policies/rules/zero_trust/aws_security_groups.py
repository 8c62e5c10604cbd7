"""Security groups: nothing from the world, nothing to the world, nothing by default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    items,
    rule,
    text,
    violation,
)
from falaj.policies.reading.types import aws_type
from falaj.policies.rules.zero_trust._aws_openings import (
    DEFAULT_GROUP,
    EGRESS_RULE,
    GROUP_RULE,
    INGRESS_RULE,
    SECURITY_GROUP,
    Opening,
    openings,
)

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
def admin_port_open(resource: Resource, view: View) -> Iterator[Finding]:
    """Openings to the world with SSH, RDP, databases and the like among their ports."""
    for each in openings(resource, view, "ingress"):
        if each.ports is None or not each.ports.admin:
            continue
        if each.is_certain and not each.knows_ports:
            yield indeterminate(
                each.path, f"{each.given} may come in at ports that can't be known yet"
            )
        else:
            said = f"{each.given} may reach {each.ports}, and with it {each.ports.admin}"
            yield _found(each, f"{said}; only known sources may")


@rule(
    "zero-trust-aws-ingress-open",
    "No security group lets the world in",
    Severity.HIGH,
    _INGRESS_TYPES,
    ("iso27001:A.8.20", "iso27001:A.8.22", "uae-ia:T4.5.3", "nist-800-207:2"),
    "Name the callers: their security group, a private range, or a prefix list of known "
    "addresses.",
)
def ingress_open(resource: Resource, view: View) -> Iterator[Finding]:
    """Openings to the world at ports that aren't administrative ones."""
    for each in openings(resource, view, "ingress"):
        if each.ports is None or not each.ports.admin or not each.knows_ports:
            said = "every port" if each.ports is None else str(each.ports)
            said = said if each.knows_ports else "some port"
            yield _found(each, f"{each.given} may reach {said}; only known sources may")


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
def egress_open(resource: Resource, view: View) -> Iterator[Finding]:
    """Openings to the world, unless the network's own firewall stands in the way."""
    found = list(openings(resource, view, "egress"))
    if not found:
        return
    if view.stack is None:
        for each in found:
            reason = each.reason or f"{each.given} is the world"
            yield indeterminate(
                each.path, f"{reason}; whether a firewall is in the way, the whole stack says"
            )
    elif not _is_behind_firewall(resource, view):
        for each in found:
            yield _found(
                each,
                f"traffic to {each.given} may leave; only named destinations may be reached, or "
                "a Network Firewall has to be in the way",
            )


def _is_behind_firewall(resource: Resource, view: View) -> bool:
    if view.stack is None:
        return False
    firewalls = view.stack.of_kind(_FIREWALL)
    if not firewalls:
        return False
    groups = (
        [resource]
        if resource.kind in {SECURITY_GROUP, DEFAULT_GROUP}
        else [
            each
            for each in view.referred(resource, "securityGroupId")
            if each.kind in {SECURITY_GROUP, DEFAULT_GROUP}
        ]
    )
    return any(_share_network(group, each, view) for group in groups for each in firewalls)


def _share_network(one: Resource, other: Resource, view: View) -> bool:
    if text(one.get("vpcId")) and text(one.get("vpcId")) == text(other.get("vpcId")):
        return True
    networks = {each.urn for each in view.referred(one, "vpcId") if each.kind == _VPC}
    return any(each.urn in networks for each in view.referred(other, "vpcId"))


@rule(
    "zero-trust-aws-default-security-group",
    "A network's default security group lets nothing through",
    Severity.MEDIUM,
    {DEFAULT_GROUP, _VPC},
    ("iso27001:A.8.20", "iso27001:A.8.9", "uae-ia:T4.5.3", "nist-800-207:2"),
    "Declare aws.ec2.DefaultSecurityGroup for the VPC with empty ingress and egress, and give "
    "every workload a group of its own.",
)
def default_security_group(resource: Resource, view: View) -> Iterator[Finding]:
    """What lands in the default group talks to all others of it, and to the world."""
    if resource.kind == _VPC:
        if view.stack is None:
            yield indeterminate("", "whether its default group is emptied, the whole stack says")
        elif not view.stack.referring(resource, DEFAULT_GROUP, "vpcId"):
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


RULES: tuple[Rule, ...] = (admin_port_open, ingress_open, egress_open, default_security_group)
