"""Every region that AWS has, and the zones and machine types of those that the catalogue knows.

A region outside the country is a real region: the sandbox answers for it as AWS would, so that it
is the components and the policies that refuse it, and their refusal can be tested.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Final

from falaj.components.catalogue import CatalogueError, place
from falaj.components.catalogue.place import Place

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
    raw = json.loads((Path(__file__).parent / "data" / "regions.json").read_text("utf-8"))
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
    if known is None:
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
