"""The two looks agree: the first, at a resource alone, neither passes nor blocks too early."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from falaj.policies.model import Context, FindingKind, Resource, leaves
from falaj.policies.model.judge import Judgement, evaluate
from tests.each import for_each
from tests.policies.rules.test_rule_cases import CASES, RULES, Case, by_rule, hide

WHOLE = by_rule(each for each in CASES if each.stack is not None)


def seen_alone(case: Case, resource: Resource) -> Judgement:
    # What the engine knows when it asks about a resource that isn't made yet.
    bare = replace(resource, dependencies={}, outputs={}, id="")
    return evaluate(RULES[case.rule], bare, Context(case.settings))


def seen_whole(case: Case, resource: Resource) -> Judgement:
    assert case.stack is not None
    resources = tuple(
        resource if each.urn == resource.urn else each for each in case.stack.resources
    )
    context = Context(case.settings, replace(case.stack, resources=resources))
    return evaluate(RULES[case.rule], resource, context)


def variants(case: Case) -> Iterator[Resource]:
    """The resource as it is, and with each of its values unknown."""
    yield case.resource
    for path, _ in list(leaves(case.resource.properties)):
        if path:
            hidden = cast("Mapping[str, Any]", hide(case.resource.properties, path))
            yield replace(case.resource, properties=hidden)


@pytest.mark.parametrize("rule", WHOLE)
def test_what_is_clean_alone_stays_clean(rule: str) -> None:
    """The second look passes over it: a rule that needs the stack says so in the first."""
    for_each(WHOLE[rule], stays_clean)


def stays_clean(case: Case) -> None:
    for resource in variants(case):
        if not seen_alone(case, resource).findings:
            assert not seen_whole(case, resource).findings, resource


@pytest.mark.parametrize("rule", WHOLE)
def test_a_violation_in_the_first_look_is_none_that_the_stack_explains(rule: str) -> None:
    """It blocks at once."""
    for_each(WHOLE[rule], is_found_in_both_looks)


def is_found_in_both_looks(case: Case) -> None:
    found = {
        each.path
        for each in seen_alone(case, case.resource).findings
        if each.kind is FindingKind.VIOLATION
    }
    assert found <= {each.path for each in seen_whole(case, case.resource).findings}
