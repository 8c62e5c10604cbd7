"""What `falaj check` makes of the engine's answers, without an engine."""

from __future__ import annotations

import json
import time
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from falaj.policies.model import Rule, Severity
from falaj.policies.reports.evidence import evidence
from falaj.policies.reports.junit import to_junit
from falaj.policies.reports.result import CheckResult, StackResult, read_result
from falaj.policies.reports.sarif import to_sarif
from falaj.policies.reports.summary import summarise
from falaj.sandbox.cloud import MADE_IN, MADE_UP, MARK
from falaj.sandbox.sdks import SDKS
from falaj.stacks.checking import check
from falaj.stacks.checking.check import begin, gathered, unknown_types
from falaj.stacks.checking.preview import (
    other_providers,
    require_judged,
    why,
    without_options,
)
from falaj.stacks.checking.recorded import check_file, judge_in_part
from falaj.stacks.checking.subject import Subject, subjects
from falaj.stacks.command.project import Project
from falaj.stacks.errors import SettingsError, StackError
from falaj.stacks.settings.source import from_project_and_stack

BUCKET = "aws:s3/bucket:Bucket"
PREFIX = "urn:pulumi:live::shop::"
PROVIDER = {
    "urn": f"{PREFIX}pulumi:providers:aws::uae",
    "type": "pulumi:providers:aws",
    "inputs": {"region": "me-central-1"},
}


def record(kind: str, **entry: Any) -> dict[str, Any]:
    return {"kind": kind, **entry}


PACK = record("pack", name="falaj-all")


def test_every_resource_is_judged_by_every_pack() -> None:
    require_judged({"u"}, [PACK, record("resource", urn="u")], 1)
    require_judged(set(), [PACK, PACK], 2)


@pytest.mark.parametrize(
    ("records", "packs", "said"),
    [
        ([], 1, "0 of 1 policy packs judged"),
        ([PACK], 2, "1 of 2 policy packs judged"),
        ([], 0, "falaj:policies.packs"),
        ([PACK], 1, "1 of 1 resources were not judged"),
        ([PACK, PACK, record("resource", urn="u")], 2, "not judged by every pack: u"),
        ([PACK, record("resource", urn="other")], 1, "not judged by every pack: u"),
    ],
)
def test_what_nobody_judged_is_not_clean(
    records: list[dict[str, Any]], packs: int, said: str
) -> None:
    with pytest.raises(StackError, match=said):
        require_judged({"u"}, records, packs)


def test_a_persons_options_for_the_engine_do_not_reach_the_check() -> None:
    given = {
        "PATH": "/bin",
        "PULUMI_HOME": "/home/p",
        "PULUMI_OPTION_TARGET": "urn:pulumi:dev::shop::aws:s3/bucket:Bucket::logs",
        "PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "true",
        "FALAJ_PHASE": "stores",
    }
    assert without_options(given) == {"PATH": "/bin", "PULUMI_HOME": "/home/p"}


def bucket(name: str = "a", **fields: Any) -> dict[str, Any]:
    state = {
        "urn": f"{PREFIX}{BUCKET}::{name}",
        "type": BUCKET,
        "custom": True,
        "provider": f"{PROVIDER['urn']}::i",
        "inputs": {"region": "eu-west-1"},
    }
    return state | fields


def judged(folder: Path, text: str) -> StackResult:
    path = folder / "export.json"
    path.write_text(text)
    return check_file(path, None, strict=True)


def exported(*resources: dict[str, Any]) -> str:
    return json.dumps({"version": 3, "deployment": {"resources": [PROVIDER, *resources]}})


def reports(stack: StackResult) -> CheckResult:
    """The result, written in every form and read back."""
    result = gathered(begin(), [stack])
    for text in (to_sarif(result), to_junit(result), summarise(result), evidence(result)):
        assert text.encode()
    return read_result(result.to_json())


@pytest.mark.parametrize(
    "odd",
    [
        {"parent": f"{PREFIX}{BUCKET}::a"},
        {"provider": 5, "parent": [], "sourcePosition": 3, "id": {}, "outputs": []},
        {"propertyDependencies": {"a": 5, "b": "urn", "region": [1]}},
        {"urn": f"{PREFIX}{BUCKET}::a\ud800", "inputs": {"region": "eu\udfff-west-1"}},
        {"inputs": {"region": "eu-west-1", "size": float("nan"), "most": float("inf")}},
        {"inputs": {"region": "\x1b[31meu-west-1\n::set-output name=x::y\x00"}},
        {"inputs": {}, "outputs": {"region": "eu-west-1"}, "external": True},
        {"outputs": 5},
        {"outputs": "__falajSandbox"},
        {"inputs": {"region": "eu-west-1" + "x" * 100_000}},
    ],
)
def test_an_odd_state_is_judged_and_reported(tmp_path: Path, odd: dict[str, Any]) -> None:
    stack = judged(tmp_path, exported(bucket(**odd)))
    assert not stack.errors
    assert "residency-aws-region" in {each.rule for each in stack.outcomes if each.fails}
    result = reports(stack)
    assert result.exit_code == 1
    assert max(len(each.reason) for each in result.stacks[0].outcomes) < 3_000


def test_a_state_is_what_a_file_says(tmp_path: Path) -> None:
    stack = judged(tmp_path, exported(bucket()))
    assert (stack.answered_by, stack.state_written) == ("exported-state", None)
    assert stack.pulumi_version == ""
    assert reports(stack).provenance.revision is None


@pytest.mark.parametrize("outputs", [{MARK: MADE_UP}, {"a": 1, MARK: MADE_IN}])
def test_a_state_of_the_sandbox_is_not_taken_for_a_real_one(
    tmp_path: Path, outputs: dict[str, Any]
) -> None:
    stack = judged(tmp_path, exported(bucket("real"), bucket("made", outputs=outputs)))
    assert stack.answered_by == "sandbox-state"
    assert "nothing real was looked at" in summarise(reports(stack))


def test_a_state_that_cannot_be_judged_was_answered_by_nobody(tmp_path: Path) -> None:
    assert judged(tmp_path, "{").answered_by == "nobody"


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ({"time": "2025-02-03T04:05:06.123456789+04:00"}, "2025-02-03T00:05:06"),
        ({"time": "2025-02-03T04:05:06Z"}, "2025-02-03T04:05:06"),
        ({"time": "0001-01-01T00:00:00Z"}, None),
        ({"time": "9999-12-31T23:59:59-14:00"}, None),
        ({"time": "1970-01-01T00:00:00+14:00"}, None),
        ({"time": "2025-02-03T04:05:06"}, None),
        ({"time": "yesterday"}, None),
        ({"time": 5}, None),
        ({"time": ["2025"]}, None),
        ({}, None),
        (None, None),
        ("2025", None),
    ],
)
def test_a_state_says_when_it_was_written(
    tmp_path: Path, manifest: Any, expected: str | None
) -> None:
    document = json.loads(exported(bucket()))
    document["deployment"]["manifest"] = manifest
    stack = judged(tmp_path, json.dumps(document))
    assert not stack.errors
    written = stack.state_written
    assert (written and written.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")) == expected


def shop(folder: Path) -> Subject:
    (folder / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    (folder / "Pulumi.live.yaml").write_text("config: {}\n")
    (subject,) = subjects(Project.find(folder), [])
    return subject


def test_what_a_program_declared_before_it_failed_is_judged(tmp_path: Path) -> None:
    """By what is certain of each alone: what would follow, such as a block of public access, may
    only be missing."""
    subject = shop(tmp_path)
    resources, outcomes = judge_in_part(
        [PROVIDER, bucket()], subject, strict=True, folder=tmp_path
    )
    assert [each.name for each in resources] == ["uae", "a"]
    assert "residency-aws-region" in {each.rule for each in outcomes if each.fails}
    assert {each.kind for each in outcomes} == {"violation"}
    whole = {each.rule for each in judged(tmp_path, exported(bucket())).outcomes}
    assert whole > {each.rule for each in outcomes}
    root = {"urn": f"{PREFIX}pulumi:pulumi:Stack::shop", "type": "pulumi:pulumi:Stack"}
    assert judge_in_part([root], subject, strict=True, folder=tmp_path) == ((), ())


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([{"type": "pulumi:providers:aws"}, {"type": BUCKET, "custom": True}], []),
        ([{"type": "pulumi:pulumi:StackReference", "custom": True}], []),
        ([{"type": "acme:index:Shop", "custom": False}, {"type": "pulumi:pulumi:Stack"}], []),
        ([{"type": "pulumi:providers:random"}], ["random"]),
        ([{"type": "pulumi-python:dynamic:Resource", "custom": True}], ["pulumi-python"]),
        ([{"type": "command:local:Command", "custom": True}, {}], ["command"]),
        ([{"type": "a\ud800:b:C", "custom": True}], ["a\ufffd"]),
    ],
)
def test_providers_that_are_not_the_sandboxs(
    states: list[dict[str, Any]], expected: list[str]
) -> None:
    assert other_providers(states) == expected
    assert other_providers(states, {*SDKS, "random", "command"}) == [
        each for each in expected if each not in ("random", "command")
    ]


def test_what_a_program_writes_to_standard_error_is_the_reason_where_there_is_no_other() -> None:
    diagnostics = [
        {"severity": "info#err", "message": "error: the Pulumi SDK: No module named 'pulumi'\n"},
        {"severity": "warning", "message": "made up"},
    ]
    told = why({"diagnostics": diagnostics, "config": {"a": "b"}}, '{"config": {"a": "b"}}')
    assert "No module named 'pulumi'" in told
    assert "config" not in told
    assert "`pulumi install`" in told


def deep(levels: int) -> str:
    return exported(bucket(inputs={"a": 0})).replace("0", '{"a":' * levels + "0" + "}" * levels)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", deep(300), deep(50_000), '{"version": 3, "deployment": {"resources": 1}}'],
)
def test_a_state_that_cannot_be_judged_is_an_error_of_its_own(tmp_path: Path, text: str) -> None:
    stack = judged(tmp_path, text)
    assert not stack.resources
    assert "export.json" in stack.errors[0]
    assert reports(stack).exit_code == 2


def test_ten_times_the_resources_take_about_ten_times_as_long(tmp_path: Path) -> None:
    """All of one name, so that everything could refer to everything."""

    def seconds(number: int) -> float:
        resources = [
            bucket(f"b{i}", inputs={"bucket": "same", "name": "same"}) for i in range(number // 2)
        ]
        kind = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
        resources += [
            bucket(urn=f"{PREFIX}{kind}::p{i}", type=kind, inputs={"bucket": "same"})
            for i in range(number // 2)
        ]
        text = exported(*resources)
        began = time.process_time()
        assert len(judged(tmp_path, text).resources) == number + 1
        return time.process_time() - began

    seconds(50)
    few = seconds(200)
    assert seconds(2_000) < 40 * few


def test_keys_without_a_namespace_are_the_programs_own(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text(
        "name: shop\nruntime: python\nconfig:\n  own: hello\n  other: {value: 5}\n"
        "  third: {type: string, default: d}\n  aws:region: {value: me-central-1}\n"
    )
    stack = tmp_path / "Pulumi.dev.yaml"
    stack.write_text("config:\n  own: mine\n  shop:last: true\n")
    found = from_project_and_stack(stack, tmp_path, namespace="shop")
    assert found == {
        "shop:own": "mine", "shop:other": 5, "shop:third": "d", "shop:last": True,
        "aws:region": "me-central-1",
    }  # fmt: skip
    # In a stack of Falaj's own it is a mistake.
    with pytest.raises(SettingsError, match="falaj:own"):
        from_project_and_stack(stack, tmp_path)


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ('Preview failed: unknown stack "organization/net/prod"', "no stacks of others"),
        ("Preview failed: resource 'old' does not exist", "reads or imports"),
    ],
)
def test_what_the_sandbox_lacks_is_said_with_a_way_out(said: str, hint: str) -> None:
    diagnostics = [{"severity": "error", "message": said}, {"severity": "info", "message": "no"}]
    told = why({"diagnostics": diagnostics}, "printed")
    assert said in told
    assert hint in told
    assert "falaj check --state FILE" in told
    assert "--state" not in why({"diagnostics": [{"severity": "error", "message": "x"}]}, "")
    assert why(None, "") == "it could not be previewed:\nthe engine failed and said nothing"


@pytest.mark.parametrize("templates", [False, True])
def test_a_project_without_stacks_says_how_to_make_one(tmp_path: Path, templates: bool) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    if templates:
        (tmp_path / "stacks" / "templates").mkdir(parents=True)
        (tmp_path / "stacks" / "templates" / "local.yaml").touch()
    with pytest.raises(StackError, match="falaj new" if templates else "pulumi stack init"):
        subjects(Project.find(tmp_path), [])


def own_rule(*types: str) -> Rule:
    """A rule of a team's own for some types."""
    return Rule(
        "governance-acme-it", "governance", "It is so", Severity.LOW, frozenset(types), (),
        "Make it so.", lambda resource, context: iter(()),
    )  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [
        BUCKET,
        "*",
        "aws:s3/*",
        "azure-native:network:Zone",
        "kubernetes:apps/v1:Deployment",
        "kubernetes:*:Deployment",
        "acme:app:Thing",
    ],
)
def test_a_type_that_something_has_is_no_mistake(kind: str) -> None:
    assert list(unknown_types([own_rule(kind)], {"acme:app:Thing"})) == []


@pytest.mark.parametrize(
    "kind", ["aws:s3/bukket:Bukket", "asw:s3/bucket:Bucket", "aws:s4/*", "acme:app:Thing"]
)
def test_a_type_that_nothing_has_is_warned_of(kind: str) -> None:
    (warning,) = unknown_types([own_rule(BUCKET, kind)], {"random:index/randomId:RandomId"})
    assert "governance-acme-it" in warning
    assert f"the type {kind}," in warning


def test_a_type_whose_sdk_is_not_installed_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check, "_types_of", lambda package: None)
    assert list(unknown_types([own_rule("aws:s3/bukket:Bukket")], ())) == []
