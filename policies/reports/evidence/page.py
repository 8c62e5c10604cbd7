"""The report itself: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from math import ceil
from typing import Any, Final, cast

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from falaj.policies.reports.evidence.coverage import (
    STATES,
    FrameworkView,
    RuleView,
    framework_views,
    rule_views,
)
from falaj.policies.reports.evidence.register import STATES as ENCRYPTION
from falaj.policies.reports.evidence.register import Register, place_name, ranges
from falaj.policies.reports.result import (
    SEVERITIES,
    CheckResult,
    Outcome,
    ResourceResult,
    StackResult,
    count,
)

#: Squares in one cell of the map; beyond, a square stands for more than one resource.
MOST_SQUARES: Final = 60
#: Rows of findings that stand open; the rest can be unfolded.
MOST_OPEN: Final = 25
#: Names that are spelled out beside a rule; beyond, their numbers in the register are.
MOST_NAMED: Final = 6


@dataclass(frozen=True)
class Finding:
    """A finding, where it is, and its resource's number in the register."""

    outcome: Outcome
    stack: StackResult
    resource: ResourceResult
    number: int | None


def evidence(result: CheckResult, *, title: str = "Evidence of residency and encryption") -> str:
    """The report of a result.

    Args:
        result: what was found.
        title: the report's title.

    The same result gives the same text. Nothing in it runs or is fetched: a policy in the page
    forbids all but its own style.
    """
    register = Register(result)
    rules = rule_views(result, register)
    findings = list(_findings(result, register))
    style = _file("report.css")
    given: dict[str, Any] = {
        "title": title,
        "result": result,
        "register": register,
        "frameworks": framework_views(rules),
        "rules": rules,
        "violations": _by_rule(rules, findings, "violation"),
        "undecided": _by_rule(rules, findings, "indeterminate", "advisory"),
        "waived": _waivers(findings),
        "totals": count(each.outcome for each in findings),
        "verdict": _verdict(result),
        "scale": _scale(register),
        "style": Markup(style),  # noqa: S704 - our own file
        "style_digest": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        "seconds": (result.finished - result.started).total_seconds(),
    }
    return _environment().get_template("report.html").render(given)


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FunctionLoader(_file), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    # jinja2 takes the types of its own globals for those of all.
    names = cast("dict[str, Any]", found.globals)
    names.update(
        count=count, encryption=ENCRYPTION, states=STATES, ranges=ranges, place_name=place_name,
        most_open=MOST_OPEN, most_named=MOST_NAMED,
    )  # fmt: skip
    found.filters["moment"] = _moment
    found.filters["thousands"] = lambda number: f"{number:,}"
    found.filters["short"] = lambda kind: str(kind).rpartition(":")[2] or str(kind)
    found.filters["breakable"] = _breakable
    return found


def _breakable(kind: str) -> Markup:
    """A type that may be broken after its parts, and nowhere else before that."""
    return Markup("<wbr>").join(re.split(r"(?<=[:/])", kind))


def _file(name: str) -> str:
    return resources.files(__package__ or "").joinpath(name).read_text("utf-8")


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0")


def _findings(result: CheckResult, register: Register) -> list[Finding]:
    return [
        Finding(each, stack, stack.resource(each), register.number_of.get((stack.name, each.urn)))
        for stack in result.stacks
        for each in stack.having("violation", "indeterminate", "advisory", "waived")
    ]


def _by_rule(
    rules: list[RuleView], findings: list[Finding], *statuses: str
) -> list[tuple[RuleView, list[Finding]]]:
    grouped: dict[str, list[Finding]] = {}
    for each in findings:
        if each.outcome.status in statuses:
            grouped.setdefault(each.outcome.rule, []).append(each)
    views = {each.rule.id: each for each in rules}
    # Findings come worst first from each stack; the worst rules of all stacks go first.
    found = [(views[key], each) for key, each in grouped.items()]
    return sorted(
        found, key=lambda pair: (SEVERITIES.index(pair[0].rule.severity), pair[0].rule.id)
    )


def _waivers(findings: list[Finding]) -> list[tuple[Any, str, list[Finding]]]:
    """Waivers with the rule and the findings that each covered, those that end first, first."""
    grouped: dict[tuple[str, str], list[Finding]] = {}
    for each in findings:
        if each.outcome.waiver:
            grouped.setdefault((each.outcome.waiver.id, each.outcome.rule), []).append(each)
    found = [(each[0].outcome.waiver, rule, each) for (_, rule), each in grouped.items()]
    return sorted(found, key=lambda row: (row[0].expires if row[0] else "", row[1]))


def _scale(register: Register) -> int:
    """How many resources a square of the map stands for."""
    most = max(
        (
            number
            for each in register.columns
            for state, number in each.counts.items()
            if state != "not-applicable"
        ),
        default=0,
    )
    return max(1, ceil(most / MOST_SQUARES))


def _verdict(result: CheckResult) -> tuple[str, str]:
    """A state, and the sentence that says it."""
    broken = sum(1 for each in result.stacks if each.errors)
    if result.exit_code == 1:
        tail = f", and {broken} could not be checked" if broken else ""
        failing = sum(1 for each in result.stacks if any(one.fails for one in each.outcomes))
        return "found", f"{failing} of {len(result.stacks)} stacks violate rules{tail}."
    if result.exit_code == 2:
        if not result.stacks:
            return "undecided", "Nothing was checked."
        return "undecided", f"{broken} of {len(result.stacks)} stacks could not be checked."
    undecided = sum(1 for stack in result.stacks for each in stack.outcomes if not each.waiver)
    if undecided:
        return "undecided", f"No rule is violated, but {undecided} findings could not be decided."
    return "clear", "No rule is violated in any stack that was checked."


__all__ = ["Finding", "FrameworkView", "evidence"]
