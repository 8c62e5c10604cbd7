"""Rules of Kubernetes on their own fixtures with any one part replaced: none raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from falaj.policies.model import REDACTED, UNKNOWN, Context, Stack, is_list
from falaj.policies.rules import rules_of
from tests.each import for_each
from tests.policies.cases import Case, read_cases

FOLDER = Path(__file__).resolve().parents[3] / "policies" / "rules" / "kubernetes"
RULES = {each.id: each for each in rules_of("kubernetes")}
CASES = [case for file in sorted(FOLDER.glob("*.cases.yaml")) for case in read_cases(file)]
ODD: tuple[Any, ...] = (
    None, True, -1, 1e308, "", "*", "a:b/c@d", [], {}, [[]], [{}], {"": None}, [None, 3], UNKNOWN,
    REDACTED, [UNKNOWN], {"name": UNKNOWN, "key": []}, {"matchLabels": UNKNOWN},
)  # fmt: skip


def damaged(value: Any, odd: Any) -> Iterator[Any]:
    """The value with each of its parts replaced, one at a time."""
    yield odd
    if isinstance(value, Mapping):
        for key, each in value.items():
            for other in damaged(each, odd):
                yield {**value, key: other}
    elif is_list(value):
        for index, each in enumerate(value):
            for other in damaged(each, odd):
                yield [*value[:index], other, *value[index + 1 :]]


@pytest.mark.parametrize("rule", sorted(RULES))
def test_no_part_matters(rule: str) -> None:
    cases = [each for each in CASES if each.rule == rule]
    assert cases

    def survives(odd: Any) -> None:
        for case in cases:
            for properties in damaged(dict(case.resource.properties), odd):
                if isinstance(properties, Mapping):
                    judge(case, properties)

    for_each(ODD, survives)


def judge(case: Case, properties: Mapping[str, Any]) -> None:
    resource = replace(case.resource, properties=properties)
    others = case.stack.resources[1:] if case.stack else ()
    for context in (Context(case.settings), Context(case.settings, Stack((resource, *others)))):
        for found in RULES[case.rule].check(resource, context):
            assert found.reason
        for other in others:
            list(RULES[case.rule].check(other, context))
