"""For each control: the rules that serve it, what they judged, and what came out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from falaj.policies.controls import Control, Framework, by_control, controls, frameworks
from falaj.policies.reports.evidence.register import Entry, Register
from falaj.policies.reports.result import CheckResult, Outcome, RuleRecord

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
