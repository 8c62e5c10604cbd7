"""Rules about addresses, ports and zones."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TypeAlias

from falaj.sandbox.clouds.aws.naming import region_of
from falaj.sandbox.clouds.aws.regions import catalogued, known_region, zone_ids, zone_name
from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.kinds import Rule
from falaj.sandbox.clouds.model import Problem

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def network(text: object) -> Network | None:
    """The network that a text names; None for anything else."""
    if not isinstance(text, str) or "/" not in text:
        return None
    try:
        return ipaddress.ip_network(text, strict=True)
    except ValueError:
        return None


def inside(part: Network, whole: Network) -> bool:
    """Whether one network lies within another."""
    first, last = int(part.network_address), int(part.broadcast_address)
    return (
        part.version == whole.version
        and int(whole.network_address) <= first
        and last <= int(whole.broadcast_address)
    )


def cidr(path: str, *, version: int = 4, largest: int = 0, smallest: int = 128) -> Rule:
    """A network in CIDR notation with no host bits set, its prefix within the bounds."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        for where, value in inputs.each(path):
            if not isinstance(value, str):
                continue
            found = network(value)
            if found is None or found.version != version:
                yield Problem(where, f"{value!r} is no IPv{version} network; {_mended(value)}")
            elif not largest <= found.prefixlen <= smallest:
                yield Problem(
                    where,
                    f"{value!r} has a prefix of /{found.prefixlen}; "
                    f"allowed: /{largest} to /{min(smallest, found.max_prefixlen)}",
                )

    return rule


def address(path: str) -> Rule:
    """An IPv4 or IPv6 address."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        for where, value in inputs.each(path):
            if isinstance(value, str):
                try:
                    ipaddress.ip_address(value)
                except ValueError:
                    yield Problem(where, f"{value!r} is no IP address; give one such as 10.0.0.4")

    return rule


def zone(path: str, *, by: str = "id") -> Rule:
    """A zone of the region, by its id or its name; in regions that the catalogue knows."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        region = region_of(inputs)
        if catalogued(region) is None:
            return
        ids = zone_ids(region)
        allowed = ids if by == "id" else tuple(zone_name(region, item) for item in ids)
        for where, value in inputs.each(path):
            if isinstance(value, str) and value not in allowed:
                yield Problem(
                    where, f"{value!r} is no zone of {region}; allowed: {', '.join(allowed)}"
                )

    return rule


def region_name(path: str) -> Rule:
    """A region that AWS has, wherever it lies."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        for where, value in inputs.each(path):
            if isinstance(value, str) and not known_region(value):
                yield Problem(where, f"{value!r} is no AWS region; give one such as me-central-1")

    return rule


def _mended(value: str) -> str:
    try:
        return f"host bits are set; did you mean {ipaddress.ip_network(value, strict=False)}?"
    except ValueError:
        return "give one in CIDR notation such as 10.0.0.0/16 or fd00::/56"
