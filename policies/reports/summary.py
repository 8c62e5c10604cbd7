"""Findings for people at a terminal: by stack and rule, and what to change, once a rule."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Final

from falaj.policies.reports.result import (
    SEVERITIES,
    CheckResult,
    Outcome,
    RuleRecord,
    StackResult,
    Status,
    count,
)
from falaj.policies.reports.wording import Wording

#: Resources listed for one rule of one stack, where nobody says how many.
MOST_LISTED: Final = 8
NARROWEST: Final = 40
_MARKS: Final[dict[Status, str]] = {
    "violation": "x", "indeterminate": "?", "advisory": "!", "waived": "-",
}  # fmt: skip
_WORDS: Final[dict[Status, tuple[str, str]]] = {
    "violation": ("violation", "violations"),
    "indeterminate": ("undecided, which fails", "undecided, which fail"),
    "advisory": ("warning", "warnings"),
    "waived": ("waived", "waived"),
}
_COLOURS: Final[dict[Status, str]] = {
    "violation": "31", "indeterminate": "35", "advisory": "33", "waived": "36",
}  # fmt: skip
# Names come from programs and clouds: they could hold a terminal's control sequences.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def summarise(
    result: CheckResult, *, width: int = 100, colour: bool = False, most: int = MOST_LISTED
) -> str:
    """A result as text.

    Args:
        result: what was found.
        width: columns of the terminal, 40 or more.
        colour: whether to use the terminal's colours.
        most: findings listed for one rule of one stack; those left out are counted.
    """
    writer = _Writer(max(width, NARROWEST), colour)
    lines: list[str] = []
    for stack in result.stacks:
        lines += [*_stack(result, stack, writer, most), ""]
    changes = list(_changes(result, writer))
    if changes:
        lines += [writer.strong("What to change"), *changes, ""]
    lines += writer.wrap(_verdict(result))
    return "\n".join(lines) + "\n"


class _Writer:
    def __init__(self, width: int, colour: bool) -> None:
        self.width = width
        self.colour = colour

    def strong(self, text: str) -> str:
        return self.paint(text, "1")

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text

    def wrap(self, text: str, indent: int = 0, first: str | None = None) -> list[str]:
        start = " " * indent if first is None else first
        return textwrap.wrap(
            _clean(text), self.width, initial_indent=start, subsequent_indent=" " * indent,
            # A long ARN or URN stays whole, so that it can be copied.
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip


def _stack(result: CheckResult, stack: StackResult, writer: _Writer, most: int) -> Iterator[str]:
    title = f"{stack.project}/{stack.name}" if stack.project else stack.name
    yield (
        f"{writer.strong(_clean(title))}: {_number(len(stack.resources), 'resource')} judged by "
        f"{_number(len(stack.judged), 'rule')}"
    )
    yield from writer.wrap(_answered(stack), 4, "  ")
    if stack.not_modelled:
        names = ", ".join(stack.not_modelled)
        yield from writer.wrap(f"not modelled, judged by their inputs only: {names}", 4, "  ")
    how = "not wholly checked" if stack.resources else "could not be checked"
    for error in stack.errors:
        first, *rest = error.splitlines() or [""]
        yield from writer.wrap(f"{how}: {first}", 4, "  ")
        for line in rest:
            # Lines of a file that are to be written keep their indent.
            indent = 4 + len(line) - len(line.lstrip())
            yield from writer.wrap(line.strip(), indent, " " * indent)
    by_rule: dict[str, list[Outcome]] = {}
    for outcome in stack.having("violation", "indeterminate", "advisory", "waived"):
        by_rule.setdefault(outcome.rule, []).append(outcome)
    if not by_rule and not stack.errors:
        yield "  nothing found"
    for outcomes in sorted(by_rule.values(), key=_weight):
        rule = result.rule(outcomes[0])
        yield from _rule(stack, rule, outcomes, writer, most)


def _answered(stack: StackResult) -> str:
    headline = Wording("en").plain(f"headline.{stack.answered_by}")
    others = ", ".join(stack.other_providers)
    return f"{headline} ({others})" if others else headline


def _weight(outcomes: list[Outcome]) -> tuple[bool, int, str]:
    first = outcomes[0]
    rank = SEVERITIES.index(first.severity)
    return not any(each.fails for each in outcomes), rank, first.rule


def _rule(
    stack: StackResult, rule: RuleRecord, outcomes: list[Outcome], writer: _Writer, most: int
) -> Iterator[str]:
    yield f"  {writer.strong(rule.id)} ({rule.severity})"
    yield from writer.wrap(rule.title, 4)
    # What is cut must not be what fails.
    for each in sorted(outcomes, key=lambda one: not one.fails)[:most]:
        resource = stack.resource(each)
        mark = writer.paint(_MARKS[each.status], _COLOURS[each.status])
        where = f"  {_clean(str(resource.source))}" if resource.source else ""
        kind = resource.type.rpartition(":")[2] or resource.type
        yield f"    {mark} {_clean(kind)} {_clean(resource.name)}{where}"
        path = f"{each.path}: " if each.path else ""
        note = f" ({each.note})" if each.note else ""
        yield from writer.wrap(f"{path}{each.reason}{note}", 6)
        if each.waiver:
            waiver = each.waiver
            waived = f"{waiver.id} by {waiver.approver} until {waiver.expires}: {waiver.reason}"
            yield from writer.wrap(f"waived: {waived}", 6)
    if len(outcomes) > most:
        yield f"    and {len(outcomes) - most} more"


def _changes(result: CheckResult, writer: _Writer) -> Iterator[str]:
    failing = [each for stack in result.stacks for each in stack.outcomes if each.fails]
    numbers: dict[str, int] = {}
    for each in failing:
        numbers[each.rule] = numbers.get(each.rule, 0) + 1
    by_rule = {each.rule: result.rule(each) for each in failing}
    for rule in sorted(by_rule.values(), key=lambda each: (_rank(each), each.id)):
        if rule.remediation:
            yield f"  {rule.id} ({numbers[rule.id]})"
            yield from writer.wrap(rule.remediation, 4)


def _rank(rule: RuleRecord) -> int:
    return SEVERITIES.index(rule.severity)


def _verdict(result: CheckResult) -> str:
    counts = count(each for stack in result.stacks for each in stack.outcomes)
    tally = ", ".join(
        f"{number} {_WORDS[status][number != 1]} ({_MARKS[status]})"
        for status, number in counts.items()
        if number
    )
    broken = sum(1 for each in result.stacks if each.errors)
    resources = sum(len(each.resources) for each in result.stacks)
    seconds = (result.finished - result.started).total_seconds()
    parts = [
        f"{_number(len(result.stacks), 'stack')}, {_number(resources, 'resource')}: "
        f"{tally or 'no findings'}"
    ]
    if broken:
        parts.append(f"{_number(broken, 'stack')} could not be checked")
    return f"{'; '.join(parts)} ({seconds:.1f} s)"


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _clean(text: str) -> str:
    return _CONTROL.sub(" ", text)
