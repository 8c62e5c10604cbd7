"""Network security groups that let the world in, or let everything out to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    get,
    indeterminate,
    rule,
    text,
    violation,
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
from falaj.policies.reading.cidr import is_open
from falaj.policies.reading.ports import Ports
from falaj.policies.reading.types import azure

_CONTROLS: Final = ("uae-ia:T4.5.3", "iso27001:A.8.20", "iso27001:A.8.22", "nist-800-207:2")


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


def _unseen(resource: Resource, view: View, path: str, reason: str) -> Iterator[Finding]:
    made_from = view.referred(resource, path)
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
    _CONTROLS,
    "Allow the port from the private ranges that administrators come from, or delete the rule and "
    "use Azure Bastion, a private line or the platform's run command.",
)
def open_admin_ports(resource: Resource, view: View) -> Iterator[Finding]:
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
                yield from _unseen(resource, view, source.path, reason)
            else:
                reason = f"{_named(found)} lets the Internet reach {what}"
                yield (violation if certain else indeterminate)(source.path, reason)


@rule(
    "zero-trust-azure-open-inbound",
    "No security rule lets the Internet in",
    Severity.HIGH,
    TYPES,
    _CONTROLS,
    "Name the private ranges, service tags or application security groups that may connect. What "
    "is meant for the Internet belongs behind a gateway that checks each request.",
)
def open_inbound(resource: Resource, view: View) -> Iterator[Finding]:
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
            yield from _unseen(resource, view, source.path, reason)


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
def open_egress(resource: Resource, view: View) -> Iterator[Finding]:
    """Rules that allow what Azure's default rule for egress allows; the default itself isn't
    judged. Where routes lead everything to a firewall, rules have to let through what is sent
    there, and the firewall decides."""
    yield from _hidden(resource)
    for found, target, certain in _allowing(resource, "outbound", "destination"):
        if target.is_open:
            reason = f"{_named(found)} lets traffic out to the whole Internet"
            if view.stack is None:
                reason += ", unless routes lead to a firewall"
                yield indeterminate(target.path, reason)
            elif not _leads_to_firewall(resource, view):
                yield (violation if certain else indeterminate)(target.path, reason)
        elif not target.is_seen:
            reason = "where traffic may go can't be seen; it must not be the whole Internet"
            yield from _unseen(resource, view, target.path, reason)


_SUBNET: Final = azure("network:Subnet")
_ROUTES: Final = azure("network:RouteTable")


def _leads_to_firewall(resource: Resource, view: View) -> bool:
    """Whether every subnet with the group sends all that leaves to a firewall."""
    groups = [resource]
    if resource.kind not in GROUPS:
        groups = [
            each
            for kind in sorted(GROUPS)
            for each in (view.stack.of_kind(kind) if view.stack else [])
            if resource in children(view, each, TYPES, "networkSecurityGroupName")
        ]
    subnets = [
        each
        for group in groups
        for each in children(view, group, _SUBNET, "networkSecurityGroup.id")
    ]
    return bool(subnets) and all(_is_routed(each, view) for each in subnets)


def _is_routed(subnet: Resource, view: View) -> bool:
    for table in view.referred(subnet, "routeTable.id"):
        routes = [each for _, each in entries(table.get("routes"), "routes")]
        routes += [
            each.properties
            for each in children(view, table, azure("network:Route"), "routeTableName")
        ]
        if table.kind in _ROUTES and any(
            is_open(get(each, "addressPrefix"))
            and text(get(each, "nextHopType")).lower() == "virtualappliance"
            for each in routes
        ):
            return True
    return False


RULES: tuple[Rule, ...] = (open_admin_ports, open_inbound, open_egress)
