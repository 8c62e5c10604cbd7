"""Microsoft.Network: security groups and their rules, route tables and their routes."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, checks, existing, generated, naming
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Problem

RULE: Final = "azure-native:network:SecurityRule"

# Rules that Azure adds to each group, and that can't be removed.
# Source: virtual-network/network-security-groups-overview (default security rules).
_DEFAULTS: Final = (
    ("AllowVnetInBound", 65000, "Inbound", "Allow", "VirtualNetwork", "VirtualNetwork"),
    ("AllowAzureLoadBalancerInBound", 65001, "Inbound", "Allow", "AzureLoadBalancer", "*"),
    ("DenyAllInBound", 65500, "Inbound", "Deny", "*", "*"),
    ("AllowVnetOutBound", 65000, "Outbound", "Allow", "VirtualNetwork", "VirtualNetwork"),
    ("AllowInternetOutBound", 65001, "Outbound", "Allow", "*", "Internet"),
    ("DenyAllOutBound", 65500, "Outbound", "Deny", "*", "*"),
)
_TAG: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:\.[A-Za-z0-9]+)?")
_PORTS: Final = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
# Source: virtual-network/virtual-networks-udr-overview (next hop types).
_APPLIANCE: Final = "VirtualAppliance"


def ports(path: str, text: str) -> Iterator[Problem]:
    """A problem when the text isn't ``*``, a port, or a range of ports."""
    if text == "*":
        return
    matched = _PORTS.fullmatch(text)
    low = int(matched[1]) if matched else -1
    high = int(matched[2]) if matched and matched[2] else low
    if matched is None or high > 65535:
        yield Problem(path, f"{text!r} isn't a port; allowed are *, 443, 8000-8100 (to 65535)")
    elif low > high:
        yield Problem(path, f"{text!r} runs backwards; put the lower port first")


def _address(path: str, text: str) -> Iterator[Problem]:
    # An address prefix may be a block, one address, * or a service tag.
    if text == "*" or _TAG.fullmatch(text):
        return
    try:
        ipaddress.ip_address(text)
    except ValueError:
        if "-" in text or "/" not in text:
            yield Problem(
                path,
                f"{text!r} is no address; allowed are *, a block such as 10.0.0.0/16, an address, "
                "or a service tag such as VirtualNetwork",
            )
        else:
            yield from checks.cidr(path, text)


def rule(inputs: Inputs, path: str) -> Iterator[Problem]:
    """Problems of one rule, standing alone or in its group's list."""
    base = f"{path}." if path else ""
    number = inputs.number(f"{base}priority")
    if number is not None and (not 100 <= number <= 4096 or number != int(number)):
        yield Problem(f"{base}priority", f"{number:g} isn't allowed; allowed is 100 to 4096")
    if path:
        yield from checks.needs(inputs, f"{base}priority", "give each rule its own, 100 to 4096")
        name = inputs.optional_string(f"{base}name")
        if name:
            yield from naming.NETWORK.check(f"{base}name", name)
    for side in ("source", "destination"):
        for where, text in inputs.strings(f"{base}{side}PortRange"):
            yield from ports(where, text)
        for where, text in inputs.strings(f"{base}{side}PortRanges"):
            yield from ports(where, text)
        for where, text in inputs.strings(f"{base}{side}AddressPrefix"):
            yield from _address(where, text)
        many = inputs.strings(f"{base}{side}AddressPrefixes")
        for where, text in many:
            if text == "*" or _TAG.fullmatch(text):
                yield Problem(
                    where,
                    f"{text!r} can't stand in a list: a list takes blocks only; "
                    f"use {side}AddressPrefix",
                )
            else:
                yield from _address(where, text)
        yield from _one_way(inputs, base, side)


def _one_way(inputs: Inputs, base: str, side: str) -> Iterator[Problem]:
    kinds = ("AddressPrefix", "AddressPrefixes", "ApplicationSecurityGroups")
    given = [kind for kind in kinds if _is_filled(inputs, f"{base}{side}{kind}")]
    if len(given) > 1:
        yield Problem(
            f"{base}{side}{given[1]}", f"is given together with {side}{given[0]}; give one of them"
        )
    if not given:
        yield Problem(
            f"{base}{side}AddressPrefix",
            "is missing: say whom the rule is for, such as a block or VirtualNetwork",
        )
    if not any(_is_filled(inputs, f"{base}{side}Port{kind}") for kind in ("Range", "Ranges")):
        yield Problem(f"{base}{side}PortRange", "is missing: name a port, a range or *")


def _is_filled(inputs: Inputs, path: str) -> bool:
    value = inputs.at(path)
    return value is not None and value not in ("", [])


def _rule_problems(inputs: Inputs) -> Iterator[Problem]:
    yield from rule(inputs, "")


def _group_problems(inputs: Inputs) -> Iterator[Problem]:
    taken: dict[tuple[str, float], str] = {}
    for path, item in inputs.items("securityRules"):
        if not isinstance(item, Mapping):
            continue
        yield from rule(inputs, path)
        direction, number = (
            inputs.optional_string(f"{path}.direction"),
            inputs.number(f"{path}.priority"),
        )
        if direction is None or number is None:
            continue
        if (direction.lower(), number) in taken:
            yield Problem(
                f"{path}.priority",
                f"{number:g} is taken by "
                f"{taken[direction.lower(), number]} in the same direction; choose another",
            )
        taken.setdefault((direction.lower(), number), path)


def _rule_conflicts(resource: Resource) -> Iterator[Problem]:
    world, id = resource.world, resource.id
    number, direction = resource.number("priority"), resource.optional_string("direction")
    if number is None or direction is None:
        return
    group = id.rsplit("/", 2)[0]
    for made in world.all(RULE):
        if arm.same(made.id, id) or not arm.is_below(made.id, group):
            continue
        other = Inputs(made.inputs)
        if (other.number("priority"), (other.optional_string("direction") or "").lower()) == (
            number,
            direction.lower(),
        ):
            yield Problem(
                "priority",
                f"{number:g} is taken by {made.id.rpartition('/')[2]!r} in "
                "the same direction; choose another",
            )
    parent = existing.by_id(world, group)
    declared = Inputs(parent.inputs) if parent else None
    for path, _ in declared.items("securityRules") if declared else ():
        if declared is None or arm.same(
            f"{group}/securityRules/{declared.optional_string(f'{path}.name')}", id
        ):
            continue
        if (
            declared.number(f"{path}.priority"),
            declared.optional_string(f"{path}.direction"),
        ) == (
            number,
            direction,
        ):
            yield Problem(
                "priority",
                f"{number:g} is taken by a rule of the group itself in the "
                "same direction; choose another",
            )


def route(inputs: Inputs, path: str) -> Iterator[Problem]:
    """Problems of one route, standing alone or in its table's list."""
    base = f"{path}." if path else ""
    prefix = inputs.optional_string(f"{base}addressPrefix")
    if prefix and not _TAG.fullmatch(prefix):
        yield from checks.cidr(f"{base}addressPrefix", prefix)
    hop, address = (
        inputs.optional_string(f"{base}nextHopType"),
        inputs.at(f"{base}nextHopIpAddress"),
    )
    if hop == _APPLIANCE and address is None:
        yield Problem(
            f"{base}nextHopIpAddress", "is missing: a route to an appliance needs its address"
        )
    if hop not in (None, _APPLIANCE) and address is not None:
        yield Problem(
            f"{base}nextHopIpAddress", f"goes with nextHopType {_APPLIANCE} only; given is {hop}"
        )
    if isinstance(address, str):
        try:
            ipaddress.ip_address(address)
        except ValueError:
            yield Problem(f"{base}nextHopIpAddress", f"{address!r} isn't an IP address")


def _route_problems(inputs: Inputs) -> Iterator[Problem]:
    yield from route(inputs, "")


def _table_problems(inputs: Inputs) -> Iterator[Problem]:
    for path, item in inputs.items("routes"):
        if isinstance(item, Mapping):
            yield from route(inputs, path)


def _group_outputs(resource: Resource) -> dict[str, Any]:
    id = resource.id
    defaults = [
        {
            "id": f"{id}/defaultSecurityRules/{name}",
            "name": name,
            "priority": priority,
            "direction": direction,
            "access": access,
            "protocol": "*",
            "sourceAddressPrefix": source,
            "sourcePortRange": "*",
            "destinationAddressPrefix": target,
            "destinationPortRange": "*",
            "provisioningState": "Succeeded",
        }
        for name, priority, direction, access, source, target in _DEFAULTS
    ]
    return {"defaultSecurityRules": defaults, "resourceGuid": generated.guid("guid", id)}


KINDS: Final = (
    AzureKind(
        "azure-native:network:NetworkSecurityGroup",
        "Microsoft.Network/networkSecurityGroups/{networkSecurityGroupName}",
        name=naming.NETWORK,
        is_held_by_references=True,
        rules=(_group_problems,),
        computed=_group_outputs,
    ),
    AzureKind(
        RULE,
        "Microsoft.Network/networkSecurityGroups/{networkSecurityGroupName}/securityRules/"
        "{securityRuleName}",
        name=naming.NETWORK,
        inline=("securityRules", "name"),
        rules=(_rule_problems,),
        crosschecks=(_rule_conflicts,),
    ),
    AzureKind(
        "azure-native:network:ApplicationSecurityGroup",
        "Microsoft.Network/applicationSecurityGroups/{applicationSecurityGroupName}",
        name=naming.NETWORK,
        is_held_by_references=True,
    ),
    AzureKind(
        "azure-native:network:RouteTable",
        "Microsoft.Network/routeTables/{routeTableName}",
        name=naming.NETWORK,
        is_held_by_references=True,
        rules=(_table_problems,),
    ),
    AzureKind(
        "azure-native:network:Route",
        "Microsoft.Network/routeTables/{routeTableName}/routes/{routeName}",
        name=naming.NETWORK,
        inline=("routes", "name"),
        rules=(_route_problems,),
    ),
)  # fmt: skip
