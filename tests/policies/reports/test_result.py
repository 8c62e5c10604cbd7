"""Results: exit codes, and JSON that comes back as it went."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from falaj.policies.model import PolicyError
from falaj.policies.reports.result import SCHEMA, CheckResult, count, read_result
from tests.policies.reports.results import clean, large, small


@pytest.mark.parametrize(
    "result", [small(), clean(), large(2, 50)], ids=["small", "clean", "large"]
)
def test_json_comes_back(result: CheckResult) -> None:
    assert read_result(result.to_json()) == result
    # Written again by another tool, in another order.
    again = json.dumps(json.loads(result.to_json()), indent=1, sort_keys=True)
    assert read_result(again) == result


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": "falaj.check/0"}',
        f'{{"schema": "{SCHEMA}"}}',
        small().to_json().replace('"status":"violation"', '"status":"fine"'),
        small().to_json().replace('"packs":', '"pack":'),
    ],
)
def test_what_is_no_result_is_refused(text: str) -> None:
    with pytest.raises(PolicyError, match="the report"):
        read_result(text, "the report")


def test_exit_codes() -> None:
    assert clean().exit_code == 0
    # A violation is certain even where another stack could not be checked.
    assert small().exit_code == 1
    broken = replace(small(), stacks=small().stacks[1:])
    assert broken.exit_code == 2
    assert replace(clean(), stacks=()).exit_code == 2


@pytest.mark.parametrize(
    ("statuses", "code"),
    [({"violation"}, 1), ({"indeterminate"}, 1), ({"advisory"}, 0), ({"waived"}, 0)],
)
def test_which_statuses_fail(statuses: set[str], code: int) -> None:
    stack = small().stacks[0]
    kept = tuple(each for each in stack.outcomes if each.status in statuses)
    assert replace(small(), stacks=(replace(stack, outcomes=kept),)).exit_code == code


def test_findings_are_counted_and_sorted() -> None:
    stack = small().stacks[0]
    assert count(stack.outcomes) == {
        "violation": 2, "indeterminate": 1, "advisory": 1, "waived": 1,
    }  # fmt: skip
    assert [each.severity for each in stack.having("violation", "indeterminate")] == [
        "critical", "high", "high",
    ]  # fmt: skip


def test_a_finding_about_an_unlisted_resource_keeps_its_name() -> None:
    stack = replace(small().stacks[0], resources=())
    found = stack.resource(stack.outcomes[3])
    assert (found.type, found.name) == ("aws:ec2/securityGroup:SecurityGroup", "door")
