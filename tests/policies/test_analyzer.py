"""The analyzer, asked as the engine asks it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import analyzer_pb2 as messages

from falaj.policies.configuration import read_configuration, settings_of
from falaj.policies.model import (
    Context,
    Finding,
    PolicyError,
    Resource,
    Rule,
    Severity,
    indeterminate,
    is_unknown,
    violation,
)
from falaj.policies.outcome import read_records
from falaj.policies.rules.governance.tags import TAGS_RULE
from falaj.policies.server.analyzer import Analyzer, Pack
from falaj.policies.variables import RECORD_FOLDER

UNKNOWN_TEXT = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
TYPE = "aws:s3/bucket:Bucket"


def needs_key(resource: Resource, context: Context) -> Iterator[Finding]:
    """A key; an unknown one has to come from a key of the stack."""
    key = resource.get("key")
    if is_unknown(key):
        if not any(each.type == "aws:kms/key:Key" for each in context.referred(resource, "key")):
            yield indeterminate("key", "the key can't be known")
    elif key != "good":
        yield violation("key", "there is no key")


def fails(resource: Resource, context: Context) -> Iterator[Finding]:
    raise ZeroDivisionError
    yield violation("", "")


def rule(name: str, check: Any) -> Rule:
    return Rule(name, "encryption", name, Severity.HIGH, frozenset({TYPE}), (), "Give one.", check)


KEY = rule("encryption-key", needs_key)


def analyzer(*rules: Rule, config: dict[str, str] | None = None) -> Analyzer:
    made = Analyzer(Pack("falaj-test", "1.0.0", rules or (KEY,), Path()))
    made.ConfigureStack(
        messages.AnalyzerStackConfigureRequest(stack="dev", project="p", config=config or {}), None
    )
    return made


def struct(values: dict[str, Any]) -> struct_pb2.Struct:
    made = struct_pb2.Struct()
    made.update(values)
    return made


def request(**properties: Any) -> messages.AnalyzeRequest:
    return messages.AnalyzeRequest(type=TYPE, name="b", urn="urn:b", properties=struct(properties))


def stack(properties: dict[str, Any], made_from: str = "") -> messages.AnalyzeStackRequest:
    dependencies = {"key": messages.AnalyzerPropertyDependencies(urns=["urn:k"])}
    source = made_from or "aws:sns/topic:Topic"
    return messages.AnalyzeStackRequest(
        resources=[
            messages.AnalyzerResource(
                type=TYPE,
                name="b",
                urn="urn:b",
                properties=struct(properties),
                propertyDependencies=dependencies if made_from else {},
            ),
            messages.AnalyzerResource(type=source, name="k", urn="urn:k"),
        ]
    )


def said(response: messages.AnalyzeResponse) -> list[tuple[str, str, int]]:
    return [(each.policyName, each.urn, each.enforcementLevel) for each in response.diagnostics]


def test_certain_violation_is_mandatory_and_said_once() -> None:
    asked = analyzer()
    first = asked.Analyze(request(key="bad"), None)
    assert said(first) == [("encryption-key", "urn:b", messages.MANDATORY)]
    assert "key: there is no key. Give one." in first.diagnostics[0].message
    assert said(asked.AnalyzeStack(stack({"key": "bad"}), None)) == []


def two_sided(resource: Resource, context: Context) -> Iterator[Finding]:
    yield violation("region", "abroad")
    if context.stack is None:
        yield indeterminate("key", "needs the stack")
    else:
        yield violation("key", "no key")


def test_a_violation_beside_an_open_question_blocks_at_once_and_is_said_once() -> None:
    asked = analyzer(rule("encryption-two", two_sided))
    first = asked.Analyze(request(), None).diagnostics
    assert [each.message.partition(":")[0] for each in first] == ["region"]
    second = asked.AnalyzeStack(stack({}), None).diagnostics
    assert [each.message.partition(":")[0] for each in second] == ["key"]


def test_unknown_is_decided_by_what_it_is_made_from() -> None:
    asked = analyzer()
    assert said(asked.Analyze(request(key=UNKNOWN_TEXT), None)) == []
    assert said(asked.AnalyzeStack(stack({"key": UNKNOWN_TEXT}, "aws:kms/key:Key"), None)) == []


@pytest.mark.parametrize("made_from", ["", "aws:sns/topic:Topic"])
def test_unknown_from_nothing_that_we_see_fails(made_from: str) -> None:
    asked = analyzer()
    asked.Analyze(request(key=UNKNOWN_TEXT), None)
    found = asked.AnalyzeStack(stack({"key": UNKNOWN_TEXT}, made_from), None)
    assert said(found) == [("encryption-key", "urn:b", messages.MANDATORY)]
    assert found.diagnostics[0].message.startswith("INDETERMINATE: key: ")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"allowedServices": ["acmedns:index/record:Record"]}, "allowedServices: "),
        ({"allowedServices": {"*": "all"}}, "allowedServices"),
        ({"allowedServices": {"*:index/record:Record": "a"}}, "allowedServices"),
        ({"allowedServices": {"aws:*": "a"}}, "name its types one by one"),
        ({"allowedServices": {"aws-native:s3:*": "a"}}, "name its types one by one"),
        ({"allowedServices": {"azure-native:*:Names": "a"}}, "name its types one by one"),
        ({"allowedServices": {"acmedns:*": ""}}, "allowedServices.acmedns:*: "),
        ({"allowedServices": {"acmedns:*": None}}, "allowedServices.acmedns:*: "),
        ({"allowedServices": {"acmedns": "names"}}, "allowedServices"),
        ({"allowedAccounts": [123456789012]}, "allowedAccounts.0: Input should be a valid string"),
        ({"allowedAccounts": ["12345678901"]}, "expected an AWS account's 12 digits in quotes"),
        ({"allowedAccounts": ["*"]}, "allowedAccounts.0: "),
        ({"allowedHosts": ["https://models.example.ae"]}, "allowedHosts.0: "),
    ],
)
def test_an_entry_that_cant_be_read_blocks(given: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        settings_of(given)
    assert said in str(caught.value)


def test_accounts_are_those_of_both_clouds() -> None:
    given = ["012345678901", "00000000-1111-2222-3333-44444444444A", "a" * 64]
    assert settings_of({"allowedAccounts": given}).allowed_accounts == tuple(given)


def test_unknown_only_warns_where_nobody_is_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    asked = analyzer(config={"falaj:environment": "development"})
    asked.Analyze(request(key=UNKNOWN_TEXT), None)
    found = asked.AnalyzeStack(stack({"key": UNKNOWN_TEXT}), None)
    assert said(found) == [("encryption-key", "urn:b", messages.ADVISORY)]


def test_unknown_fails_in_ci_also_in_development(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    asked = analyzer(config={"falaj:environment": "development"})
    asked.Analyze(request(key=UNKNOWN_TEXT), None)
    found = asked.AnalyzeStack(stack({"key": UNKNOWN_TEXT}), None)
    assert said(found) == [("encryption-key", "urn:b", messages.MANDATORY)]


def test_resource_that_was_not_asked_about_is_judged_with_the_stack() -> None:
    found = analyzer().AnalyzeStack(stack({"key": "bad"}), None)
    assert said(found) == [("encryption-key", "urn:b", messages.MANDATORY)]


def test_rule_that_raises_fails_closed_and_stops_nobody_else() -> None:
    asked = analyzer(rule("encryption-defect", fails), KEY)
    assert [name for name, _, _ in said(asked.Analyze(request(key="bad"), None))] == [
        "encryption-key"
    ]
    found = asked.AnalyzeStack(stack({"key": "bad"}), None)
    assert said(found) == [("encryption-defect", "urn:b", messages.MANDATORY)]
    assert "ZeroDivisionError at test_analyzer.py:" in found.diagnostics[0].message


@pytest.mark.parametrize("level", [messages.ADVISORY, messages.DISABLED, messages.MANDATORY])
def test_a_rule_is_enforced_as_the_configuration_says(level: int) -> None:
    asked = analyzer()
    asked.Configure(
        messages.ConfigureAnalyzerRequest(
            policyConfig={
                "encryption-key": messages.PolicyConfig(enforcementLevel=cast(Any, level))
            }
        ),
        None,
    )
    found = said(asked.Analyze(request(key="bad"), None))
    assert found == ([] if level == messages.DISABLED else [("encryption-key", "urn:b", level)])


def test_every_rule_is_a_mandatory_policy() -> None:
    told = analyzer().GetAnalyzerInfo(empty_pb2.Empty(), None)
    levels = {each.name: each.enforcementLevel for each in told.policies}
    assert levels == {"settings": messages.MANDATORY, "encryption-key": messages.MANDATORY}
    schema = told.policies[0].configSchema.properties
    assert "allowedPlaces" in schema
    # The engine would hand defaults over as if somebody had chosen them.
    assert not any("default" in each.struct_value.fields for each in schema.fields.values())


class AbortedError(Exception):
    pass


class EngineContext:
    def abort(self, code: grpc.StatusCode, text: str) -> None:
        raise AbortedError(code, text)


@pytest.mark.parametrize(
    "config",
    [
        {"falaj:policies": json.dumps({"allowedPlaces": ["aws/eu-west-1"]})},
        {"falaj:policies": json.dumps({"alowedHosts": []})},
        {"falaj:policies": "5"},
        {"falaj:policies": json.dumps({"waivers": "missing.yaml"})},
        {"falaj:dataClass": "secret"},
        {"falaj:dataclass": "restricted"},
        {"falaj:Policies": "{}"},
        {"falaj:Policies.strict": "false"},
        {"falaj:policies.alowedHosts": "[]"},
        {"falaj:policies.": "{}"},
        {"falaj:policies.strict.deep": "false"},
        {"falaj:policies": json.dumps({"strict": True}), "falaj:policies.strict": "false"},
        {"falaj:dataClass.of": "public"},
    ],
)
def test_settings_that_cannot_be_used_block(config: dict[str, str]) -> None:
    asked = analyzer(config=config)
    with pytest.raises(AbortedError, match="FAILED_PRECONDITION"):
        asked.Analyze(request(key="good"), EngineContext())


def test_settings_may_stand_alone() -> None:
    """As `pulumi config set falaj:policies.strict false` writes them."""
    alone = {
        "falaj:policies": json.dumps({"allowedHosts": ["a.example.ae"]}),
        "falaj:policies.strict": "false",
        "falaj:policies.allowedSites": json.dumps(["abudhabi-dc1"]),
        "falaj:policies.waivers": "",
        "falaj:policies.packs": json.dumps(["zero_trust"]),
    }
    found = read_configuration({}, alone, Path()).settings
    assert not found.strict
    assert found.allowed_hosts == ("a.example.ae",)
    assert found.allowed_sites == ("abudhabi-dc1",)
    assert read_configuration({"strict": True}, alone, Path()).settings.strict


@pytest.mark.parametrize(
    "key",
    ["falaj:dataClass", "falaj:policies", "falaj:environment", "falaj:policies.strict"],
)
def test_settings_that_are_secrets_block(key: str) -> None:
    asked = analyzer()
    request_ = messages.AnalyzerStackConfigureRequest(
        config={key: "restricted", "own:token": "t"}, config_secret_keys=[key, "own:token"]
    )
    asked.ConfigureStack(request_, None)
    with pytest.raises(AbortedError, match=f"{key} is a secret"):
        asked.Analyze(request(key="good"), EngineContext())


def test_a_secret_of_the_programs_own_does_not_block() -> None:
    asked = analyzer()
    request_ = messages.AnalyzerStackConfigureRequest(
        config={"own:token": "t"}, config_secret_keys=["own:token"]
    )
    asked.ConfigureStack(request_, None)
    assert said(asked.Analyze(request(key="good"), EngineContext())) == []


def test_properties_too_deep_to_judge_block() -> None:
    value: Any = "x"
    for _ in range(400):
        value = {"a": value}
    with pytest.raises(AbortedError, match="nested deeper"):
        analyzer().Analyze(request(key=value), EngineContext())
    whole = messages.AnalyzeStackRequest(
        resources=[
            messages.AnalyzerResource(type=TYPE, urn="urn:b", properties=struct({"a": value}))
        ]
    )
    with pytest.raises(AbortedError, match="nested deeper"):
        analyzer().AnalyzeStack(whole, EngineContext())


def test_a_waived_finding_is_said_and_does_not_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record"
    record.mkdir()
    monkeypatch.setenv(RECORD_FOLDER, str(record))
    monkeypatch.setattr("falaj.policies.configuration.all_rules", lambda: (KEY,))
    (tmp_path / "waivers.yaml").write_text(
        "waivers:\n- {id: W-1, rule: encryption-key, urn: 'urn:b', reason: r, approver: a, "
        "expires: 2099-01-01}\n"
    )
    monkeypatch.setattr("falaj.policies.waivers.MOST_DAYS", 100_000)
    path = str(tmp_path / "waivers.yaml")
    asked = analyzer(config={"falaj:policies": json.dumps({"waivers": path})})
    found = asked.Analyze(request(key="bad"), None)
    assert said(found) == [("encryption-key", "urn:b", messages.ADVISORY)]
    assert "Waived until 2099-01-01 by a (W-1)" in found.diagnostics[0].message
    asked.AnalyzeStack(stack({"key": "bad"}), None)
    entries = [each for each in read_records(record) if each["kind"] == "resource"]
    assert [each["urn"] for each in entries] == ["urn:b", "urn:k"]
    outcome = entries[0]["outcomes"][0]
    assert (outcome["status"], outcome["waiver"]["id"]) == ("waived", "W-1")


def test_missing_tags_are_added_where_that_is_asked_for() -> None:
    tags = Rule(
        TAGS_RULE, "governance", "tags", Severity.LOW, frozenset({TYPE}), (), "Tag it.", needs_key
    )
    asked = analyzer(tags, config={"falaj:owner": "me@example.ae"})
    given = request(key=UNKNOWN_TEXT, tags={"falaj:tenant": "t"})
    assert not asked.Remediate(given, None).remediations
    level = messages.PolicyConfig(enforcementLevel=messages.REMEDIATE)
    asked.Configure(messages.ConfigureAnalyzerRequest(policyConfig={TAGS_RULE: level}), None)
    changed = asked.Remediate(given, None).remediations[0].properties
    assert dict(changed.fields["tags"].struct_value) == {
        "falaj:tenant": "t",
        "falaj:owner": "me@example.ae",
    }
    assert changed.fields["key"].string_value == UNKNOWN_TEXT
