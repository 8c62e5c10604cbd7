"""All shipped stacks meet all rules, without a waiver."""

from __future__ import annotations

import pytest

from policies.model.judge import Judge
from policies.rules import all_rules
from tests.policies.shipped import SIX, stack_of


@pytest.mark.parametrize("name", SIX)
def test_meets_every_rule(name: str) -> None:
    judged = Judge(all_rules()).whole(stack_of(name))
    found = [
        f"{each.rule.id}: {each.resource}: {one.path}: {one.reason}"
        for each in judged
        for one in each.findings
    ]
    assert not found, "\n".join(found)
