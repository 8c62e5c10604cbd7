"""Regions and zones, the machine types sold in them, and the forms of names and addresses."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, TypeAlias

from falaj.components.catalogue import CatalogueError, place
from falaj.components.catalogue.place import Place
from falaj.sandbox.clouds.aws import kinds as t
from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.kinds import Rule
from falaj.sandbox.clouds.model import Problem, World
from falaj.wire import Unknown

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_WORDS: Final = {
    "north": "n",
    "south": "s",
    "east": "e",
    "west": "w",
    "central": "c",
    "northeast": "ne",
    "northwest": "nw",
    "southeast": "se",
    "southwest": "sw",
    "gov": "g",
}


@cache
def partitions() -> dict[str, tuple[str, ...]]:
    """The regions of each partition."""
    raw = t.load_table("regions")
    return {name: tuple(regions) for name, regions in raw.items() if name != "source"}


def known_region(region: str) -> bool:
    """Whether AWS has a region of that name."""
    return any(region in regions for regions in partitions().values())


def partition_of(region: str) -> str:
    """The partition of a region; ``aws`` for a name that isn't known."""
    for partition, regions in partitions().items():
        if region in regions:
            return partition
    return "aws"


def dns_suffix(region: str) -> str:
    """The domain of the region's endpoints."""
    return {
        "aws-cn": "amazonaws.com.cn",
        "aws-iso": "c2s.ic.gov",
        "aws-iso-b": "sc2s.sgov.gov",
        "aws-eusc": "amazonaws.eu",
    }.get(partition_of(region), "amazonaws.com")


def zone_ids(region: str) -> tuple[str, ...]:
    """The ids of the region's zones: the catalogue's, else three that are well-formed."""
    known = catalogued(region)
    if known is not None:
        return tuple(zone.id for zone in known.zones)
    return tuple(f"{_short(region)}-az{number}" for number in (1, 2, 3))


def zone_name(region: str, zone_id: str) -> str:
    """The sandbox account's name for a zone: letters in the order of the ids."""
    ids = zone_ids(region)
    if zone_id in ids:
        return region + _LETTERS[ids.index(zone_id)]
    number = re.search(r"az(\d+)$", zone_id)
    return region + _LETTERS[(int(number[1]) - 1) % 26 if number else 0]


def zone_id(region: str, name: str) -> str | None:
    """The id of the zone with that name; None when there is none."""
    for candidate in zone_ids(region):
        if zone_name(region, candidate) == name:
            return candidate
    return None


def zones_selling(region: str, instance_type: str) -> tuple[str, ...] | None:
    """Where a machine type is sold, by zone id; None where the catalogue doesn't know."""
    known = catalogued(region)
    if known is None or known.is_uncertain(instance_type):
        return None
    for machine in known.machines():
        if machine.name == instance_type:
            return tuple(machine.zone_ids)
    return ()


@cache
def catalogued(region: str) -> Place | None:
    """The catalogue's entry for a region; None for those that it doesn't hold."""
    try:
        return place("aws", region)
    except CatalogueError:
        return None


def _short(region: str) -> str:
    """The letters that begin a zone id: ``mec1`` for me-central-1, ``usgw1`` for us-gov-west-1."""
    first, *middle, number = region.split("-") if region.count("-") > 1 else (region, "1")
    return first + "".join(_WORDS.get(word, word[:1]) for word in middle) + number


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


def region_of(inputs: Inputs) -> str:
    """The resource's own region, else the provider's; empty when neither is known."""
    for source in (inputs.values, inputs.config):
        region = source.get("region")
        if isinstance(region, str):
            return region
        if isinstance(region, Unknown):
            return ""
    return ""


# Whether a machine type is sold in a region, a zone, or the zones of some subnets.


def sold(path: str, *, zone: str = "") -> Rule:
    """The machine type is sold in the region; in the zone, too, where that input is given.

    Regions that the catalogue doesn't hold sell everything, as far as it is known here.
    """

    def rule(inputs: Inputs) -> Iterator[Problem]:
        region = region_of(inputs)
        for where, machine in inputs.each(path):
            zones = zones_selling(region, machine) if isinstance(machine, str) else None
            if zones is None:
                continue
            if not zones:
                if not zone:
                    yield Problem(where, f"{machine!r} isn't sold in {region}; {_sold(region)}")
                continue
            given = inputs.string(zone) if zone else ""
            wanted = zone_id(region, given) or given
            if given and wanted not in zones:
                yield Problem(
                    where, f"{machine!r} isn't sold in {given}; it is sold in {', '.join(zones)}"
                )

    return rule


def sold_in_subnets(
    path: str, machine: str, subnet_ids: Sequence[str], world: World
) -> Iterator[Problem]:
    """The machine type is sold in at least one of the subnets' zones.

    A group with some zones that don't sell its type runs in the others; with none it never starts.
    """
    subnets = [made for id in subnet_ids if (made := world.by_id(t.SUBNET, id)) is not None]
    zones = {str(made.outputs.get("availabilityZoneId")): made.region for made in subnets}
    selling: set[str] = set()
    for zone, region in zones.items():
        known = zones_selling(region, machine)
        if known is None or zone in known:
            return
        selling |= set(known)
    if zones and selling:
        yield Problem(
            path,
            f"{machine!r} isn't sold in the subnets' zones ({', '.join(sorted(zones))}); it is "
            f"sold in {', '.join(sorted(selling))}: use subnets there",
        )


def _sold(region: str) -> str:
    known = catalogued(region)
    names = sorted({machine.family for machine in known.machines()}) if known is not None else []
    return "sold are sizes of " + ", ".join(names)
