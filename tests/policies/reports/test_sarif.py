"""SARIF: valid against its schema, stable over runs, and what viewers need."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from falaj.policies.reports.result import CheckResult, Location, StackResult
from falaj.policies.reports.sarif import to_sarif
from tests.policies.reports.results import ARABIC, clean, large, small

SCHEMA = Path(__file__).with_name("schemas") / "sarif-2.1.0-rtm.5.json"


@cache
def validator() -> Any:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    checker = jsonschema.Draft4Validator.FORMAT_CHECKER
    return jsonschema.Draft4Validator(schema, format_checker=checker)


def sarif(result: CheckResult) -> Any:
    return json.loads(to_sarif(result))


@pytest.mark.parametrize(
    "result",
    [
        small(),
        clean(),
        large(2, 60),
        replace(small(), rules=()),
        replace(small(), stacks=()),
        replace(small(), stacks=(replace(small().stacks[0], resources=()),)),
    ],
    ids=["small", "clean", "large", "no rules", "no stacks", "no resources"],
)
def test_it_is_valid(result: CheckResult) -> None:
    document = sarif(result)
    assert document["version"] == "2.1.0"
    assert [each.message for each in validator().iter_errors(document)] == []


def test_the_schema_refuses_what_is_wrong() -> None:
    document = sarif(small())
    document["runs"][0]["results"][0]["level"] = "catastrophe"
    assert not validator().is_valid(document)


def test_results_point_at_their_rules() -> None:
    run = sarif(replace(small(), rules=small().rules[1:]))["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert len({each["id"] for each in rules}) == len(rules)
    for each in run["results"]:
        assert rules[each["ruleIndex"]]["id"] == each["ruleId"]


def test_rules_carry_severity_and_controls() -> None:
    first = sarif(small())["runs"][0]["tool"]["driver"]["rules"][0]
    assert first["properties"]["controls"][0] == "pdpl:22"
    assert float(first["properties"]["security-severity"]) > 9.0
    assert first["defaultConfiguration"] == {"level": "error"}
    assert first["help"]["text"].startswith("Replicate to")
    assert first["fullDescription"]["text"].startswith(
        "S3 replicates inside of the country only. R"
    )
    assert "Controls: pdpl:22, pdpl:23" in first["help"]["markdown"]
    assert "helpUri" not in first
    assert len(first["properties"]["tags"]) <= 20


def test_locations_are_where_the_program_declared_it() -> None:
    found = sarif(small())["runs"][0]["results"]
    first = found[0]["locations"][0]
    assert first["physicalLocation"]["artifactLocation"]["uri"] == "stacks/__main__.py"
    assert first["physicalLocation"]["region"] == {"startLine": 41}
    assert [each["kind"] for each in first["logicalLocations"]] == ["resource", "property"]
    by_key = next(each for each in found if "admin-port" in each["ruleId"])["locations"][0]
    assert "falaj:ingress" in by_key["message"]["text"]
    unknown = next(each for each in found if ARABIC in each["message"]["text"])["locations"][0]
    assert unknown["physicalLocation"]["artifactLocation"]["uri"] == "Pulumi.yaml"
    assert "region" not in unknown["physicalLocation"]


def test_files_are_written_as_uris() -> None:
    stack = small().stacks[0]
    moved = replace(stack.resources[0], source=Location("my stacks/100%.py", 3))
    result = replace(small(), stacks=(replace(stack, resources=(moved, *stack.resources[1:])),))
    found = sarif(result)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert found["artifactLocation"]["uri"] == "my%20stacks/100%25.py"


def test_waived_findings_are_suppressed_and_others_are_not() -> None:
    found = sarif(small())["runs"][0]["results"]
    suppressed = [each for each in found if each.get("suppressions")]
    assert [each["properties"]["status"] for each in suppressed] == ["waived"]
    (suppression,) = suppressed[0]["suppressions"]
    assert suppression["status"] == "accepted"
    assert suppression["properties"]["approver"] == "ciso@example.ae"
    assert suppression["properties"]["expires"] == "2027-03-31"


def test_what_only_warns_is_open() -> None:
    (found,) = (each for each in sarif(small())["runs"][0]["results"] if each["kind"] != "fail")
    assert found["properties"]["status"] == "advisory"
    assert (found["kind"], found["level"]) == ("open", "none")


def test_fingerprints_stay_when_lines_move() -> None:
    before = [each["fingerprints"] for each in sarif(small())["runs"][0]["results"]]
    assert len({json.dumps(each) for each in before}) == len(before)
    stack = small().stacks[0]
    moved = tuple(
        replace(each, source=replace(each.source, line=each.source.line + 9))
        if each.source
        else each
        for each in stack.resources
    )
    later = replace(small(), stacks=(replace(stack, resources=moved), *small().stacks[1:]))
    assert [each["fingerprints"] for each in sarif(later)["runs"][0]["results"]] == before


def test_a_stack_that_could_not_be_checked_is_a_notification() -> None:
    broken = replace(small(), stacks=(StackResult("prod", "falaj", "live", errors=("no",)),))
    invocation = sarif(broken)["runs"][0]["invocations"][0]
    assert invocation["executionSuccessful"] is False
    assert invocation["exitCode"] == 2
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == "stack prod: no"
    assert sarif(clean())["runs"][0]["invocations"][0]["executionSuccessful"] is True
