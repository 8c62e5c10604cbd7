"""What a network security group lets through, by Azure's own order of its rules.

https://learn.microsoft.com/azure/virtual-network/network-security-groups-overview
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from tests.components.azure.conftest import Deployed


def rules_of(made: Deployed, role: str, network: str = "net") -> Sequence[Mapping[str, Any]]:
    """The rules of the group of a role's subnet."""
    found: Sequence[Mapping[str, Any]] = made.named(f"{network}-{role}-rules").inputs[
        "securityRules"
    ]
    return found


def allows(
    rules: Sequence[Mapping[str, Any]],
    direction: str,
    *,
    source: str,
    target: str,
    port: int,
    protocol: str = "Tcp",
) -> bool:
    """Whether the first rule that speaks of a connection allows it.

    Args:
        rules: of one group.
        direction: ``Inbound`` or ``Outbound``.
        source: an address or a service tag.
        target: the same.
        port: that is called.
        protocol: ``Tcp`` or ``Udp``.
    """
    for rule in sorted(rules, key=lambda each: int(each["priority"])):
        if (
            rule["direction"] == direction
            and rule["protocol"] in ("*", protocol)
            and _is_in(source, rule, "source")
            and _is_in(target, rule, "destination")
            and any(_is_port(port, each) for each in _listed(rule, "destinationPortRange"))
        ):
            return bool(rule["access"] == "Allow")
    raise AssertionError("every group ends with a rule for all that is left")


def _listed(rule: Mapping[str, Any], name: str) -> list[str]:
    several = f"{name}es" if name.endswith("Prefix") else f"{name}s"
    return list(rule.get(several) or [rule[name]])


def _is_in(end: str, rule: Mapping[str, Any], side: str) -> bool:
    ranges = _listed(rule, f"{side}AddressPrefix")
    if "*" in ranges or end in ranges:
        return True
    try:
        address = ipaddress.ip_address(end)
    except ValueError:
        return False
    return any(address in ipaddress.ip_network(each) for each in ranges if "/" in each)


def _is_port(port: int, allowed: str) -> bool:
    if allowed == "*":
        return True
    low, _, high = allowed.partition("-")
    return int(low) <= port <= int(high or low)
