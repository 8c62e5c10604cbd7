"""SARIF: valid against its schema, stable over runs, and what viewers need."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from falaj.policies.reports.result import CheckResult, Location, Revision, StackResult
from falaj.policies.reports.sarif import to_sarif
from tests.policies.reports.results import ARABIC, answered, clean, hostile, large, small

SCHEMA = Path(__file__).with_name("schemas") / "sarif-2.1.0-rtm.5.json"


@cache
def validator() -> Any:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    # Not at the top: it brings grammars, which each process of the tests would compile.
    import jsonschema

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
    broken = replace(small(), stacks=(StackResult("prod", "falaj", "nobody", errors=("no",)),))
    invocation = sarif(broken)["runs"][0]["invocations"][0]
    assert invocation["executionSuccessful"] is False
    assert invocation["exitCode"] == 2
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == "stack prod: no"
    assert sarif(clean())["runs"][0]["invocations"][0]["executionSuccessful"] is True


def test_what_answered_is_said_of_the_run_and_of_each_stack() -> None:
    run = sarif(answered("sandbox", "machine", "sandbox"))["runs"][0]
    assert run["properties"]["answeredBy"] == ["sandbox", "machine"]
    assert run["invocations"][0]["properties"]["answeredBy"] == ["sandbox", "machine"]
    assert [(each["name"], each["answeredBy"]) for each in run["properties"]["stacks"]] == [
        ("s0", "sandbox"), ("s1", "machine"), ("s2", "sandbox"),
    ]  # fmt: skip
    said = run["automationDetails"]["description"]["text"]
    assert said.startswith("falaj/s0: Sandbox: nothing real was looked at; falaj/s1: This machine")
    nothing = sarif(replace(small(), stacks=()))["runs"][0]
    assert nothing["automationDetails"]["description"]["text"] == "Nothing was checked."


def test_who_asked_and_with_what_stands_where_the_format_has_it() -> None:
    run = sarif(small())["runs"][0]
    invocation = run["invocations"][0]
    assert (invocation["account"], invocation["machine"]) == ("fatima", "ci-runner-7")
    commit = "9f2c41d0b7" + "ab" * 15
    assert invocation["properties"]["revision"]["commit"] == commit
    assert invocation["properties"]["pulumiVersions"] == ["3.272.0"]
    assert invocation["properties"]["pythonVersion"] == "3.11.2"
    assert invocation["properties"]["ci"]["url"].endswith("/-/jobs/4711")
    assert run["versionControlProvenance"] == [
        {
            "repositoryUri": "https://git.example.ae/platform/falaj",
            "revisionId": commit,
            "properties": {"changed": False},
        }
    ]
    assert run["tool"]["driver"]["version"] == "0.1.0"
    judged = run["properties"]["stacks"][0]["judged"]
    assert judged == {each.id: 5 for each in small().rules}
    lonely = sarif(clean())["runs"][0]
    assert "versionControlProvenance" not in lonely
    assert not {"ci", "revision"} & set(lonely["invocations"][0]["properties"])


def test_a_commit_of_another_repository_is_not_taken_for_the_runs_own() -> None:
    result = small()
    provenance = replace(result.provenance, revision=Revision("cd" * 20))
    run = sarif(replace(result, provenance=provenance))["runs"][0]
    assert "versionControlProvenance" not in run


@pytest.mark.parametrize("text", ["<b>\u202e\x00", 'https://x y/%zz["', "https://[", "a" * 9_000])
def test_whatever_comes_from_outside_it_stays_valid(text: str) -> None:
    assert [each.message for each in validator().iter_errors(sarif(hostile(text)))] == []


def test_advice_is_a_note() -> None:
    stack = small().stacks[0]
    advice = replace(stack.outcomes[0], kind="violation", status="advisory", waiver=None, note="")
    result = replace(small(), stacks=(replace(stack, outcomes=(advice,)),))
    (found,) = json.loads(to_sarif(result))["runs"][0]["results"]
    assert (found["kind"], found["level"]) == ("fail", "note")
