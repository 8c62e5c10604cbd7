"""The report itself: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import ceil
from typing import Any, Final, cast

from jinja2 import Environment, FunctionLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from falaj.policies.reports.evidence.views import (
    ENCRYPTION_STATES,
    SILENT,
    FrameworkView,
    Register,
    RuleView,
    framework_views,
    ranges,
    region_of,
    rule_views,
)
from falaj.policies.reports.result import (
    SEVERITIES,
    AnsweredBy,
    CheckResult,
    Outcome,
    ResourceResult,
    StackResult,
    count,
)
from falaj.policies.reports.wording import Language, Wording, isolated, shown

# What answered when the stacks were judged: the band at the top.


@dataclass(frozen=True)
class Answer:
    """One source, and the stacks for which it answered."""

    answered_by: AnsweredBy
    stacks: Sequence[StackResult]

    @property
    def is_record(self) -> bool:
        """Whether a state was judged, which is as old as it says."""
        return self.answered_by in ("sandbox-state", "exported-state", "backend")


@dataclass(frozen=True)
class Answers:
    """All sources of a result."""

    each: Sequence[Answer]
    """In the order of the stacks; nobody where nothing was checked."""

    @property
    def only(self) -> AnsweredBy | None:
        """The one that answered for all that was checked; None where several did."""
        # What could not be checked makes of one source no mixture.
        found: list[AnsweredBy] = [
            each.answered_by for each in self.each if each.answered_by != "nobody"
        ]
        if not found:
            return "nobody"
        return found[0] if len(found) == 1 else None


def answers(result: CheckResult) -> Answers:
    """What answered for the stacks of a result."""
    found = [
        Answer(source, [each for each in result.stacks if each.answered_by == source])
        for source in result.answered_by
    ]
    return Answers(found or [Answer("nobody", ())])


#: Squares in one cell of the map; beyond, a square stands for more than one resource.
MOST_SQUARES: Final = 60
#: Rows of findings that stand open; the rest can be unfolded.
MOST_OPEN: Final = 25
#: Names that are spelled out beside a rule; beyond, their numbers in the register are.
MOST_NAMED: Final = 6
#: Digits of a commit where it is only mentioned.
_SHORT_COMMIT: Final = 12
#: What ends a text of CSS, or the style around it.
_ENDS_STYLE: Final = re.compile(r'["\\<>&\x00-\x1f\x7f]')


@dataclass(frozen=True)
class Finding:
    """A finding, where it is, and its resource's number in the register."""

    outcome: Outcome
    stack: StackResult
    resource: ResourceResult
    number: int | None


def evidence(result: CheckResult, *, language: Language = "en", signed_by: str = "") -> str:
    """The report of a result.

    Args:
        result: what was found.
        language: of the page's own words. What rules and their catalogue say stays English.
        signed_by: fingerprint of the key that will sign the page, SHA-256 as hexadecimal digits.
            Default: nobody signs it.

    The same result gives the same text. Nothing in it runs or is fetched: a policy in the page
    forbids all but its own style.
    """
    words = Wording(language)
    register = Register(result)
    rules = rule_views(result, register)
    findings = list(_findings(result, register))
    environment = _environment(language)
    given: dict[str, Any] = {
        "result": result,
        "answers": answers(result),
        "register": register,
        "frameworks": framework_views(rules),
        "telling": [each for each in rules if each.state not in SILENT],
        "silent": [each for each in rules if each.state in SILENT],
        "violations": _by_rule(rules, findings, "violation"),
        "undecided": _by_rule(rules, findings, "indeterminate", "advisory"),
        "waived": _waivers(findings),
        "totals": count(each.outcome for each in findings),
        "verdict": _verdict(result, words),
        "scale": _scale(register),
        "seconds": f"{(result.finished - result.started).total_seconds():.1f}",
        "signed_by": signed_by,
    }
    style = _file("report.css") + environment.get_template("paper.css").render(given)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    # Our own files, in which texts from outside are texts of CSS.
    given |= {"style": Markup(style), "style_digest": digest}  # noqa: S704
    return environment.get_template("report.html").render(given)


@cache
def _environment(language: Language) -> Environment:
    words = Wording(language)
    found = Environment(
        loader=FunctionLoader(_file),
        autoescape=select_autoescape(["html"], ["css"], default=True),
        undefined=StrictUndefined, finalize=_visible, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    # jinja2 takes the types of its own globals for those of all.
    names = cast("dict[str, Any]", found.globals)
    names.update(
        t=words, count=count, encryption=ENCRYPTION_STATES, ranges=ranges, region_of=region_of,
        isolated=isolated, most_open=MOST_OPEN, most_named=MOST_NAMED,
    )  # fmt: skip
    found.filters["moment"] = words.moment
    found.filters["thousands"] = lambda number: f"{number:,}"
    found.filters["short"] = lambda kind: str(kind).rpartition(":")[2] or str(kind)
    found.filters["short_commit"] = lambda commit: str(commit)[:_SHORT_COMMIT]
    found.filters["breakable"] = _breakable
    found.filters["isolated"] = isolated
    found.filters["css"] = _css
    return found


def _visible(value: object) -> object:
    return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _breakable(kind: str) -> Markup:
    """A type that may be broken after its parts, and nowhere else before that."""
    return Markup("<wbr>").join(re.split(r"(?<=[:/])", shown(kind)))


def _css(text: str) -> str:
    """A text as CSS writes it, which can't end the style that it stands in."""
    quoted = _ENDS_STYLE.sub(lambda found: f"\\{ord(found[0]):x} ", shown(text))
    return f'"{quoted}"'


def _file(name: str) -> str:
    return resources.files(__package__ or "").joinpath(name).read_text("utf-8")


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


def _verdict(result: CheckResult, words: Wording) -> tuple[str, Markup]:
    """A state, and the sentence that says it."""
    stacks = len(result.stacks)
    broken = sum(1 for each in result.stacks if each.errors)
    if result.exit_code == 1:
        n = sum(1 for each in result.stacks if any(one.fails for one in each.outcomes))
        if broken:
            return "found", words("verdict.found-and-broken", n=n, all=stacks, broken=broken)
        return "found", words("verdict.found", n=n, all=stacks)
    if result.exit_code == 2:
        if not result.stacks:
            return "undecided", words("verdict.nothing")
        return "undecided", words("verdict.broken", n=broken, all=stacks)
    undecided = sum(1 for stack in result.stacks for each in stack.outcomes if not each.waiver)
    if undecided:
        return "undecided", words("verdict.undecided", n=undecided)
    return "clear", words("verdict.clear")


__all__ = ["Finding", "FrameworkView", "evidence"]
