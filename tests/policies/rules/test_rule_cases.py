"""Every rule against the fixtures beside it, and against its fixtures with values hidden."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import pytest

from falaj.policies.model import UNKNOWN, Context, FindingKind, format_path, leaves
from falaj.policies.model.judge import evaluate
from falaj.policies.model.values import Path
from falaj.policies.rules import all_rules
from tests.each import for_each
from tests.policies.cases import Case, read_cases
from tests.policies.mutations import put

FOLDER = FilePath(__file__).resolve().parents[3] / "policies" / "rules"
RULES = {each.id: each for each in all_rules()}
CASES = [case for file in sorted(FOLDER.rglob("*.cases.yaml")) for case in read_cases(file)]


def by_rule(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """Cases by the rule that they are of: one test a rule."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.rule, []).append(case)
    return found


ALL = by_rule(CASES)
NAMED = by_rule(each for each in CASES if each.outcome == "violating" and each.at)


def judge(case: Case) -> tuple[Any, ...]:
    return evaluate(RULES[case.rule], case.resource, Context(case.settings, case.stack)).findings


@pytest.mark.parametrize("rule", ALL)
def test_cases(rule: str) -> None:
    for_each(ALL[rule], is_judged_as_it_says)


def is_judged_as_it_says(case: Case) -> None:
    rule, found = RULES[case.rule], judge(case)
    assert rule.concerns(case.resource.kind) or rule.is_walker
    if case.outcome == "passing":
        assert not found
        return
    kind = FindingKind.VIOLATION if case.outcome == "violating" else FindingKind.INDETERMINATE
    named = [each for each in found if each.kind is kind]
    assert named, found
    if case.at is not None:
        assert case.at in {each.path for each in named}
    for each in named:
        assert each.reason
        assert not each.reason.endswith(".")


def test_every_rule_has_cases_and_every_case_a_rule() -> None:
    outcomes: dict[str, set[str]] = {}
    for case in CASES:
        outcomes.setdefault(case.rule, set()).add(case.outcome)
    assert set(outcomes) == set(RULES)
    lacking = {
        rule: sorted({"violating", "passing"} - seen)
        for rule, seen in outcomes.items()
        if not {"violating", "passing"} <= seen
    }
    assert not lacking


def hide(value: Any, path: Path) -> Any:
    """The value with what is at the path unknown."""
    return put(value, path, UNKNOWN)


@pytest.mark.parametrize("rule", NAMED)
def test_what_is_hidden_never_passes(rule: str) -> None:
    """The value that makes it a violation, unknown: still a finding of some kind."""
    for_each(NAMED[rule], is_found_while_hidden)


def is_found_while_hidden(case: Case) -> None:
    named = [path for path, _ in leaves(case.resource.properties)]
    for path in named:
        if format_path(path) == case.at or format_path(path).startswith(
            (f"{case.at}.", f"{case.at}[")
        ):
            hidden = replace(case.resource, properties=hide(case.resource.properties, path))
            others = case.stack.resources[1:] if case.stack else ()
            stack = replace(case.stack, resources=(hidden, *others)) if case.stack else None
            found = evaluate(RULES[case.rule], hidden, Context(case.settings, stack)).findings
            assert found, f"{format_path(path)} unknown passes"
