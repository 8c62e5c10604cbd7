"""Results: exit codes, and JSON that comes back as it went."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

import pytest

from falaj.policies.model import PolicyError
from falaj.policies.reports.result import (
    SCHEMA,
    AnsweredBy,
    CheckResult,
    count,
    read_result,
)
from tests.policies.reports.results import answered, clean, hostile, large, small


@pytest.mark.parametrize(
    "result",
    [small(), clean(), large(2, 50), answered(*get_args(AnsweredBy)), hostile("<\u202e\x00>")],
    ids=["small", "clean", "large", "all sources", "hostile"],
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
        '{"schema": 5}',
        '{"schema": ["falaj.check/2"]}',
        "[" * 100_000,
        small().to_json().replace('"sandbox"', '"cloud"'),
        small().to_json().replace('"started":"2026-11-21T09:30:00Z"', '"started":"2026-11-21"'),
        small()
        .to_json()
        .replace('"started":"2026-11-21T09:30:00Z"', '"started":"0001-01-01T00:00:00+14:00"'),
        small().to_json().replace('"answered_by":"sandbox",', ""),
        small().to_json().replace('"user":"fatima",', ""),
        f'{{"schema": "{SCHEMA}"}}',
        small().to_json().replace('"status":"violation"', '"status":"fine"'),
        small().to_json().replace('"packs":', '"pack":'),
    ],
)
def test_what_is_no_result_is_refused(text: str) -> None:
    with pytest.raises(PolicyError, match="the report"):
        read_result(text, "the report")


def test_a_result_of_an_older_version_is_refused_by_its_version() -> None:
    """It doesn't say what answered: to guess would be to misread it."""
    older = (
        '{"schema":"falaj.check/1","started":"2026-11-21T09:30:00Z",'
        '"finished":"2026-11-21T09:30:12Z","tool_version":"0.1.0","packs":[],'
        '"stacks":[{"name":"dev","project":"falaj","source":"preview"}]}'
    )
    with pytest.raises(PolicyError) as raised:
        read_result(older, "old.json")
    said = str(raised.value)
    assert "old.json was written by another version of Falaj" in said
    assert "given falaj.check/1; allowed: falaj.check/2" in said
    assert "run `falaj check` again" in said


def test_each_stack_says_in_its_json_what_answered() -> None:
    document = json.loads(answered("sandbox", "backend", "nobody").to_json())
    assert [each["answered_by"] for each in document["stacks"]] == ["sandbox", "backend", "nobody"]
    assert document["provenance"]["user"] == "fatima"


def test_versions_of_the_engine_are_those_that_were_asked() -> None:
    one, two = answered("sandbox", "exported-state").stacks
    asked = replace(one, pulumi_version="3.255.0")
    assert replace(clean(), stacks=(asked, two)).pulumi_versions == ["3.255.0"]
    assert replace(clean(), stacks=(two,)).pulumi_versions == []


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
