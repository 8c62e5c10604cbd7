"""What the report shows: the register of resources, and by control its rules and outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final, Literal, get_args

from falaj.components import catalogue
from falaj.policies.controls import Control, Framework, by_control, controls, frameworks
from falaj.policies.reports.result import (
    CheckResult,
    Encryption,
    Outcome,
    ResourceResult,
    RuleRecord,
    StackResult,
)

# The register of a report: every resource once, with a number that the rest refers to.

#: Whose key encrypts at rest, best first.
ENCRYPTION_STATES: Final[tuple[Encryption, ...]] = get_args(Encryption)
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
        counts = found.setdefault(each.resource.place, dict.fromkeys(ENCRYPTION_STATES, 0))
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
        _place_order(resource.place), ENCRYPTION_STATES.index(resource.encryption), resource.type,
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


# Controls: the rules that serve each, what they judged, and what came out.

State = Literal["found", "undecided", "waived", "clear", "idle", "uncovered"]
#: All of them, worst first.
STATES: Final[tuple[State, ...]] = get_args(State)
#: Of rules and controls that prove nothing, as nothing was judged for them.
SILENT: Final[tuple[State, ...]] = ("idle", "uncovered")


@dataclass(frozen=True)
class RuleView:
    """A rule, what it judged and what it found."""

    rule: RuleRecord
    entries: Sequence[Entry]
    outcomes: Sequence[Outcome]

    @property
    def state(self) -> State:
        """What came out."""
        return _state(self.outcomes, len(self.entries))

    @property
    def types(self) -> list[tuple[str, int]]:
        """The types that it judged and how many of each, most first."""
        counts: dict[str, int] = {}
        for each in self.entries:
            counts[each.resource.type] = counts.get(each.resource.type, 0) + 1
        return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))

    @property
    def waivers(self) -> list[str]:
        """Ids of the waivers that covered findings."""
        return sorted({each.waiver.id for each in self.outcomes if each.waiver})

    def number(self, *statuses: str) -> int:
        """How many findings have one of these statuses."""
        return sum(1 for each in self.outcomes if each.status in statuses)


@dataclass(frozen=True)
class ControlView:
    """A control and the rules that serve it."""

    control: Control
    rules: Sequence[RuleView]
    numbers: Sequence[int]
    """Of the resources that at least one of the rules judged, in the register."""

    @property
    def judged(self) -> int:
        """How many resources at least one of the rules judged."""
        return len(self.numbers)

    @property
    def state(self) -> State:
        """What came out, of the worst rule."""
        if not self.rules:
            return "uncovered"
        outcomes = [each for rule in self.rules for each in rule.outcomes]
        return _state(outcomes, self.judged)

    @property
    def working(self) -> list[RuleView]:
        """The rules that judged something, those that found something first."""
        found = [each for each in self.rules if each.state != "idle"]
        return sorted(found, key=lambda each: (STATES.index(each.state), each.rule.id))

    @property
    def idle(self) -> list[RuleView]:
        """The rules for which the stacks hold nothing."""
        return [each for each in self.rules if each.state == "idle"]


@dataclass(frozen=True)
class FrameworkView:
    """A framework and its controls."""

    framework: Framework
    controls: Sequence[ControlView]

    @property
    def counts(self) -> list[tuple[State, int]]:
        """How many controls have each state; those without any are left out."""
        states = [each.state for each in self.controls]
        return [(key, states.count(key)) for key in STATES if key in states]

    @property
    def telling(self) -> list[ControlView]:
        """Controls for which something was judged."""
        return [each for each in self.controls if each.state not in SILENT]

    @property
    def silent(self) -> list[ControlView]:
        """The others."""
        return [each for each in self.controls if each.state in SILENT]


def rule_views(result: CheckResult, register: Register) -> list[RuleView]:
    """Every rule of a result, in its order; those it doesn't list but that found something too."""
    found: dict[str, list[Outcome]] = {}
    for stack in result.stacks:
        for outcome in stack.having("violation", "indeterminate", "advisory", "waived"):
            found.setdefault(outcome.rule, []).append(outcome)
    known = [
        *result.rules,
        *(result.rule(each[0]) for key, each in found.items() if key not in result.rule_by_id),
    ]
    return [
        RuleView(each, register.judged.get(each.id, ()), found.get(each.id, ())) for each in known
    ]


def framework_views(rules: Iterable[RuleView]) -> list[FrameworkView]:
    """Every framework with all of its controls."""
    serving = _serving(rules)
    return [
        FrameworkView(
            framework,
            [_control(each, serving[each.reference]) for each in controls(framework.key)],
        )
        for framework in frameworks()
    ]


def _serving(rules: Iterable[RuleView]) -> dict[str, tuple[RuleView, ...]]:
    known = {each.reference for each in controls()}
    # A result of another version may name controls that this one doesn't have.
    return by_control(
        (each, [one for one in each.rule.controls if one in known]) for each in rules
    )


def _control(control: Control, rules: Sequence[RuleView]) -> ControlView:
    judged = {entry.number for view in rules for entry in view.entries}
    return ControlView(control, rules, sorted(judged))


def _state(outcomes: Sequence[Outcome], judged: int) -> State:
    statuses = {each.status for each in outcomes}
    if "violation" in statuses:
        return "found"
    if statuses & {"indeterminate", "advisory"}:
        return "undecided"
    if "waived" in statuses:
        return "waived"
    return "clear" if judged else "idle"
