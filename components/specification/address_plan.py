"""Private addresses: which of them each zone and role of a network gets, and ranges to let in."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from falaj.components.catalogue.clusters import PRIVATE_RANGES
from falaj.components.specification.argument_errors import ArgumentErrors

PRIVATE = tuple(map(ipaddress.IPv4Network, PRIVATE_RANGES))


def private_ranges(
    args: Mapping[str, Any], argument: str, errors: ArgumentErrors
) -> tuple[str, ...]:
    """An optional list of private IPv4 ranges; empty where it is absent."""
    if args.get(argument) is None:
        return ()
    given = errors.texts(argument, args[argument])
    if not given:
        errors.add(
            argument,
            args[argument],
            "at least one private range, or no such argument",
        )
    for position, text in enumerate(given):
        at = f"{argument}[{position}]"
        try:
            network = ipaddress.IPv4Network(text)
        except ValueError as error:
            errors.add(at, text, f"an IPv4 range such as 10.0.0.0/16 ({error})")
            continue
        if not any(network.subnet_of(private) for private in PRIVATE):
            allowed = ", ".join(map(str, PRIVATE))
            errors.add(at, text, f"a range inside {allowed}", "nothing public is let in")
    return given


NODES = "nodes"
ENDPOINTS = "endpoints"
STORAGE = "storage"
SERVING = "serving"
CONTROL_PLANE = "control-plane"
CONTAINERS = "containers"
FIREWALL = "firewall"
OUTLET = "outlet"
#: Front ends of a cluster's load balancers, on Azure; on AWS they stand among the nodes.
BALANCERS = "balancers"

#: Sixteenths of a zone's block. Half is for nodes, whose pods have addresses of the network too.
#: The least network (/22, up to four zones) leaves 16 addresses for a sixteenth, the least that
#: AWS takes (https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html); undivided it
#: leaves 64, the least of Azure's firewall (https://learn.microsoft.com/azure/firewall/firewall-faq).
SHARES = {
    NODES: 8,
    ENDPOINTS: 2,
    STORAGE: 1,
    SERVING: 1,
    CONTROL_PLANE: 1,
    CONTAINERS: 1,
    FIREWALL: 1,
    OUTLET: 1,
}
_PARTS = 16
#: Roles that take the part of another, which their cloud's networks don't have: Azure's firewall
#: sends on from a public address, and needs no outlet beside its own subnet.
_INSTEAD = {BALANCERS: OUTLET}


@dataclass(frozen=True)
class AddressPlan:
    """Subnets of a network by zone and role; they never overlap and all lie inside.

    Give it all zones of the region, not only those in use: a zone that is added later takes
    addresses that were kept for it, and no subnet moves (which would replace what is in it).
    """

    network: ipaddress.IPv4Network
    zones: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raises ValueError for no zone, a zone named twice or a network without room."""
        if not self.zones or len(set(self.zones)) != len(self.zones):
            raise ValueError(f"zones {self.zones!r}: at least one is needed, each only once")
        if self.network.num_addresses < self._blocks * _PARTS:
            raise ValueError(f"{self.network} has no room for {len(self.zones)} zones")

    @property
    def _blocks(self) -> int:
        """Zones, rounded up to a power of two; three zones keep a quarter free for a fourth."""
        return 1 << (len(self.zones) - 1).bit_length()

    def block(self, zone: str) -> ipaddress.IPv4Network:
        """All addresses of a zone. Raises KeyError for a zone that isn't planned."""
        if zone not in self.zones:
            raise KeyError(f"{zone!r} is none of {', '.join(self.zones)}")
        size = self.network.num_addresses // self._blocks
        return _range(self.network, self.zones.index(zone) * size, size)

    def subnet(self, zone: str, role: str) -> ipaddress.IPv4Network:
        """Addresses of a role in a zone. Raises KeyError for a zone or role that isn't planned."""
        block = self.block(zone)
        part = block.num_addresses // _PARTS
        before = 0
        for name, share in SHARES.items():
            if name == _INSTEAD.get(role, role):
                return _range(block, before * part, share * part)
            before += share
        raise KeyError(f"{role!r} is none of {', '.join(SHARES)}")

    def subnets(self) -> dict[tuple[str, str], ipaddress.IPv4Network]:
        """All subnets by zone and role."""
        return {(zone, role): self.subnet(zone, role) for zone in self.zones for role in SHARES}


def overlapping(networks: list[ipaddress.IPv4Network]) -> bool:
    """Whether any two of the networks share an address."""
    return any(a.overlaps(b) for a, b in pairwise(sorted(networks)))


def _range(whole: ipaddress.IPv4Network, offset: int, size: int) -> ipaddress.IPv4Network:
    prefix = 32 - (size.bit_length() - 1)
    return ipaddress.IPv4Network((int(whole.network_address) + offset, prefix))
