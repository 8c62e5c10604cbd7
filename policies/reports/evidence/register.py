"""The register of a report: every resource once, with a number that the rest refers to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final, Literal, get_args

from falaj.components import catalogue
from falaj.policies.reports.result import CheckResult, Encryption, ResourceResult, StackResult

#: Whose key encrypts at rest, best first.
STATES: Final[tuple[Encryption, ...]] = get_args(Encryption)
#: Parts of the map, in their order.
Region = Literal["home", "elsewhere", "global", "unknown", "none"]
REGIONS: Final[tuple[Region, ...]] = get_args(Region)
GLOBAL, UNKNOWN = "global", "unknown"


@dataclass(frozen=True)
class Entry:
    """A resource with its number."""

    number: int
    stack: StackResult
    resource: ResourceResult


@dataclass(frozen=True)
class Group:
    """Entries of one stack in one place with one state of encryption."""

    place: str
    state: Encryption
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Column:
    """A place of the map, with the number of its resources by state."""

    place: str
    counts: dict[Encryption, int]

    @property
    def region(self) -> Region:
        """Which part of the map it belongs to."""
        return region_of(self.place)

    @property
    def total(self) -> int:
        """How many resources are there."""
        return sum(self.counts.values())


class Register:
    """All resources of a result, numbered by stack, place, encryption, type and name."""

    def __init__(self, result: CheckResult) -> None:
        self.entries = tuple(_numbered(result))

    @cached_property
    def by_stack(self) -> list[tuple[StackResult, list[Group]]]:
        """The entries of each stack, in groups."""
        found: list[tuple[StackResult, list[Group]]] = []
        for _, of_stack in groupby(self.entries, key=lambda each: id(each.stack)):
            entries = list(of_stack)
            groups = groupby(entries, lambda each: (each.resource.place, each.resource.encryption))
            found.append(
                (
                    entries[0].stack,
                    [Group(place, state, tuple(each)) for (place, state), each in groups],
                )
            )
        return found

    @cached_property
    def columns(self) -> list[Column]:
        """The places of the map: in the country, elsewhere, global, unknown, none."""
        return _columns(self.entries)

    @cached_property
    def columns_by_stack(self) -> list[tuple[StackResult, list[Column]]]:
        """The same for each stack."""
        return [
            (stack, _columns(entry for group in groups for entry in group.entries))
            for stack, groups in self.by_stack
        ]

    @cached_property
    def judged(self) -> dict[str, list[Entry]]:
        """The entries that each rule judged, by the rule's id."""
        found: dict[str, list[Entry]] = {}
        for each in self.entries:
            for rule in dict.fromkeys(each.resource.rules):
                found.setdefault(rule, []).append(each)
        return found

    @cached_property
    def number_of(self) -> dict[tuple[str, str], int]:
        """Numbers by the stack's name and the resource's URN."""
        return {(each.stack.name, each.resource.urn): each.number for each in self.entries}


def _columns(entries: Iterable[Entry]) -> list[Column]:
    found: dict[str, dict[Encryption, int]] = {}
    for each in entries:
        counts = found.setdefault(each.resource.place, dict.fromkeys(STATES, 0))
        counts[each.resource.encryption] += 1
    return [Column(place, found[place]) for place in sorted(found, key=_place_order)]


def _numbered(result: CheckResult) -> Iterator[Entry]:
    number = 0
    for stack in result.stacks:
        for resource in sorted(stack.resources, key=_resource_order):
            number += 1
            yield Entry(number, stack, resource)


def _resource_order(resource: ResourceResult) -> tuple[object, ...]:
    return (
        _place_order(resource.place), STATES.index(resource.encryption), resource.type,
        resource.name, resource.urn,
    )  # fmt: skip


def _place_order(place: str) -> tuple[int, str]:
    return REGIONS.index(region_of(place)), place


def region_of(place: str) -> Region:
    """The part of the map to which a place belongs."""
    if place in catalogue.PLACES:
        return "home"
    named: Mapping[str, Region] = {GLOBAL: "global", UNKNOWN: "unknown", "": "none"}
    return named.get(place, "elsewhere")


def ranges(numbers: Iterable[int]) -> str:
    """Numbers with neighbours drawn together, as 1 to 4 and 7."""
    parts: list[str] = []
    for _, group in groupby(enumerate(sorted(set(numbers))), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}\u2013{run[-1]}")
    return ", ".join(parts)
