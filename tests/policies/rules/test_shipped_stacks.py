"""All shipped stacks meet all rules, without a waiver."""

from __future__ import annotations

import pytest

from falaj.policies.configuration import settings_of
from falaj.policies.model.judge import Judge
from falaj.policies.rules import all_rules
from tests.policies.shipped import SIX, stack_of
from tests.stacks.in_mocks import IN_CLUSTER, shipped


@pytest.mark.parametrize("name", [*SIX, *IN_CLUSTER])
def test_meets_every_rule(name: str) -> None:
    given = dict(shipped(name).get("falaj:policies", {}))
    given = {key: value for key, value in given.items() if key not in ("packs", "waivers")}
    judged = Judge(all_rules(), settings_of(given)).evaluate_stack(stack_of(name))
    found = [
        f"{each.rule.id}: {each.resource}: {one.path}: {one.reason}"
        for each in judged
        for one in each.findings
    ]
    assert not found, "\n".join(found)
