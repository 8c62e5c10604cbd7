"""Rules of a team's own: tables that its settings name, and packages that offer rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import analyzer_pb2 as messages

from falaj.policies import rules as packs
from falaj.policies import team_rules
from falaj.policies.configuration import read_configuration
from falaj.policies.model import (
    UNKNOWN,
    Context,
    FindingKind,
    PolicyError,
    Resource,
    Rule,
    Severity,
    rule,
)
from falaj.policies.model.judge import evaluate
from falaj.policies.outcome import read_records
from falaj.policies.server.analyzer import Analyzer, Pack
from falaj.policies.team_rules import GROUP, installed_rules, read_rules
from falaj.policies.variables import RECORD_FOLDER
from tests.newcomer import documents
from tests.policies.test_analyzer import AbortedError, EngineContext

TOPIC = "aws:sns/topic:Topic"
ENTRY: dict[str, Any] = {
    "id": "governance-acme-topics-named",
    "title": "Topics say what they are for",
    "severity": "low",
    "types": [TOPIC],
    "controls": ["iso27001:A.8.24"],
    "remediation": "Set displayName.",
    "requirements": [{"path": "displayName", "denied": ["test"], "absent": "nobody knows it"}],
}


def table(folder: Path, *entries: Any) -> Path:
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"rules": list(entries)}))
    return file


def found(rule: Rule, kind: str = TOPIC, **properties: Any) -> list[tuple[str, FindingKind]]:
    resource = Resource(kind, "it", properties)
    assert rule.concerns(resource.kind)
    return [(each.path, each.kind) for each in evaluate(rule, resource, Context()).findings]


def test_a_table_is_a_rule_like_any_other(tmp_path: Path) -> None:
    (rule,) = read_rules(table(tmp_path, ENTRY), ())
    assert (rule.pack, rule.severity, rule.waivable) == ("governance", Severity.LOW, True)
    assert found(rule, displayName="orders") == []
    assert found(rule, displayName="Test") == [("displayName", FindingKind.VIOLATION)]
    assert found(rule) == [("displayName", FindingKind.VIOLATION)]
    assert found(rule, displayName=UNKNOWN) == [("displayName", FindingKind.INDETERMINATE)]


def test_rows_have_every_key_of_a_requirement(tmp_path: Path) -> None:
    rows = [
        {"path": "on", "allowed": [True], "default": False, "source": "their manual"},
        {"path": "days", "minimum": 7, "maximum": 30, "hint": "it has to be a month at most"},
        {
            "path": "mode",
            "denied": ["plain"],
            "each": "blocks",
            "only": {"path": "kind", "values": ["HTTP", 1]},
        },
    ]
    entry = ENTRY | {"types": ["aws:sns/*", "aws:sqs/queue:Queue"], "requirements": rows}
    (rule,) = read_rules(table(tmp_path, entry), ())
    assert found(rule) == [("on", FindingKind.VIOLATION)]
    assert found(rule, "aws:sqs/queue:Queue", on=True) == []
    assert found(rule, on="TRUE", days=31) == [("days", FindingKind.VIOLATION)]
    blocks = [{"kind": "http", "mode": "plain"}, {"kind": "tcp", "mode": "plain"}, {"kind": 1}]
    assert found(rule, on=True, blocks=blocks) == [("blocks[0].mode", FindingKind.VIOLATION)]
    assert found(rule, on=True, blocks=[UNKNOWN]) == [("blocks[0]", FindingKind.INDETERMINATE)]


def test_types_may_be_written_as_programs_write_them(tmp_path: Path) -> None:
    types = ["aws:sns:Topic", "azure-native:storage/v20240101:StorageAccount"]
    (rule,) = read_rules(table(tmp_path, ENTRY | {"types": types}), ())
    assert rule.types == {TOPIC, "azure-native:storage:StorageAccount"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"id": "acme-topics"}, "begins with its pack's name: residency-, encryption-"),
        ({"id": "governance-Acme"}, "isn't named properly"),
        ({"severity": "bad"}, "severity: Input should be 'critical'"),
        ({"types": []}, "types: "),
        ({"types": ["*"]}, "expected a type such as aws:s3/bucket:Bucket"),
        ({"controls": ["iso27001:A.99"]}, "given iso27001:A.99, expected references such as"),
        ({"requirements": []}, "requirements: "),
        ({"requirements": [{"path": "a"}]}, "requirements.1: nothing is demanded"),
        ({"requirements": [{"path": "a", "alowed": [1]}]}, "requirements.1.alowed: no such key"),
        ({"requirements": [{"path": "a", "allowed": "b"}]}, "requirements.1.allowed: "),
        ({"requirements": [{"path": "a", "only": {"path": "b"}, "allowed": ["c"]}]}, "values: "),
        ({"title": None}, "title: "),
        ({"checks": []}, "checks: no such key; allowed: id, title"),
    ],
)
def test_a_bad_rule_is_refused_with_what_is_allowed(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(PolicyError, match="rule 2: ") as caught:
        read_rules(table(tmp_path, ENTRY, ENTRY | {"id": "governance-two"} | changed), ())
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "[]", "rules: {}", "rules: []", "rules: [1]", "rules: [", "a: 1"]
)
def test_a_file_without_rules_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    with pytest.raises(PolicyError, match=r"rules\.yaml"):
        read_rules(file, ())


def test_an_id_is_one_rule_s(tmp_path: Path) -> None:
    file = table(tmp_path, ENTRY, ENTRY)
    with pytest.raises(PolicyError, match="governance-acme-topics-named is another rule's"):
        read_rules(file, ())
    taken = packs.all_rules()[0]
    file = table(tmp_path, ENTRY | {"id": taken.id})
    with pytest.raises(PolicyError, match=f"{taken.id} is another rule's"):
        read_configuration({"rules": [str(file)]}, {}, tmp_path)


def analyzer(file: Path, pack: str) -> Analyzer:
    made = Analyzer(Pack("falaj-test", "1.0.0", (), Path(), packs=(pack,)))
    config = {"falaj:policies": json.dumps({"rules": [str(file)]})}
    request = messages.AnalyzerStackConfigureRequest(stack="dev", project="p", config=config)
    made.ConfigureStack(request, None)
    return made


@pytest.mark.parametrize("pack", ["governance", "residency"])
def test_the_pack_of_a_rule_judges_by_it_and_records_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: str
) -> None:
    record = tmp_path / "record"
    record.mkdir()
    monkeypatch.setenv(RECORD_FOLDER, str(record))
    asked = analyzer(table(tmp_path, ENTRY), pack)
    request = messages.AnalyzeRequest(
        type=TOPIC, name="t", urn="urn:t", properties=struct_pb2.Struct()
    )
    own = ["governance-acme-topics-named"] if pack == "governance" else []
    known = asked.GetAnalyzerInfo(empty_pb2.Empty(), None).policies
    assert [each.name for each in known] == ["settings", *own]
    said = asked.Analyze(request, None).diagnostics
    assert [each.policyName for each in said] == own
    assert all(each.enforcementLevel == messages.MANDATORY for each in said)
    whole = messages.AnalyzerResource(type=TOPIC, name="t", urn="urn:t")
    asked.AnalyzeStack(messages.AnalyzeStackRequest(resources=[whole]), None)
    (entry,) = [each for each in read_records(record) if each["kind"] == "resource"]
    assert [each["rule"] for each in entry["outcomes"]] == own


def test_a_table_that_cant_be_used_blocks(tmp_path: Path) -> None:
    asked = analyzer(table(tmp_path, ENTRY | {"severity": "lowest"}), "governance")
    assert [each.name for each in asked.GetAnalyzerInfo(empty_pb2.Empty(), None).policies] == [
        "settings"
    ]
    request = messages.AnalyzeRequest(type=TOPIC, name="t", urn="urn:t")
    with pytest.raises(AbortedError, match="severity: Input should be 'critical'"):
        asked.Analyze(request, EngineContext())


def offered(rule: Resource, context: Context) -> Iterator[Any]:
    yield from ()


OFFERED = Rule(
    "encryption-acme-own", "encryption", "t", Severity.LOW, frozenset({TOPIC}), (), "r", offered
)
SEVERAL = [OFFERED]
NO_RULE = "rule"
UNKNOWN_CONTROL = Rule(
    "encryption-a", "encryption", "t", Severity.LOW, frozenset({TOPIC}), ("x:1",), "r", offered
)
TWICE = [OFFERED, OFFERED]
AS_PROGRAMS_WRITE_THEM = rule(
    "encryption-acme-spelt", "t", Severity.LOW,
    {"aws:sns:Topic", "azure-native:storage/v20230101:StorageAccount"}, (), "r",
)(offered)  # fmt: skip


@pytest.fixture
def offering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def offer(value: str) -> None:
        point = EntryPoint("acme", value, GROUP)
        monkeypatch.setattr(team_rules, "entry_points", lambda *, group: [point])  # pyright: ignore
        installed_rules.cache_clear()
        packs.rules_of.cache_clear()

    yield offer
    monkeypatch.undo()
    installed_rules.cache_clear()
    packs.rules_of.cache_clear()


@pytest.mark.parametrize("name", ["OFFERED", "SEVERAL"])
def test_a_package_offers_rules(offering: Any, name: str) -> None:
    before = len(packs.rules_of("encryption"))
    offering(f"{__name__}:{name}")
    assert packs.rules_of("encryption")[-1] is OFFERED
    assert len(packs.rules_of("encryption")) == before + 1
    assert OFFERED not in packs.rules_of("residency")
    assert OFFERED in packs.all_rules()


def test_types_of_a_package_s_rules_may_be_written_as_programs_write_them(offering: Any) -> None:
    offering(f"{__name__}:AS_PROGRAMS_WRITE_THEM")
    (found,) = installed_rules()
    assert found.types == {TOPIC, "azure-native:storage:StorageAccount"}


def test_the_documents_rule_judges() -> None:
    program: dict[str, Any] = {}
    exec(documents.other("team-rule", "python"), program)  # noqa: S102 - a page of ours
    (own,) = program["RULES"]
    kind = "aws:cloudwatch/logGroup:LogGroup"
    assert found(own, kind, name="/acme/orders") == []
    assert found(own, kind, name="orders") == [("name", FindingKind.VIOLATION)]
    assert found(own, kind) == [("name", FindingKind.VIOLATION)]
    assert found(own, kind, name=UNKNOWN) == [("name", FindingKind.INDETERMINATE)]


def test_the_documents_table_is_one(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(documents.other("team-table", "yaml"))
    (own,) = read_rules(file, ())
    versions = {"versioningConfiguration": {"status": "Suspended"}}
    (kind,) = own.types
    assert [each for _, each in found(own, kind, **versions)] == [FindingKind.VIOLATION]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("no.such.module:RULES", "can't be loaded: ModuleNotFoundError"),
        ("tests.policies.ending:RULES", "can't be loaded: SystemExit: 0"),
        (f"{__name__}:NO_SUCH", "can't be loaded: AttributeError"),
        (f"{__name__}:NO_RULE", "offers 'rule'; expected a Rule"),
        (f"{__name__}:UNKNOWN_CONTROL", "given x:1, expected references"),
        (f"{__name__}:TWICE", "encryption-acme-own is another rule's already"),
    ],
)
def test_a_package_that_offers_no_rule_is_refused(offering: Any, value: str, said: str) -> None:
    offering(value)
    with pytest.raises(PolicyError) as caught:
        packs.rules_of("encryption")
    assert said in str(caught.value)


TRUSTING = {
    "Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
    "Action": "sqs:SendMessage", "Resource": "*",
}  # fmt: skip
#: What the settings of the document let pass, by the rule that objects without them.
OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "residency-unjudged-package": ("acmedns:index/record:Record", {"name": "www"}),
    "residency-aws-unclassified": ("aws:iam/telepathy:Telepathy", {}),
    "residency-aws-outlet": (
        "aws:sns/topicSubscription:TopicSubscription",
        {"protocol": "https", "endpoint": "https://logs.example.ae/in"},
    ),
    "residency-aws-policy-sharing": (
        "aws:sqs/queuePolicy:QueuePolicy",
        {"policy": json.dumps({"Statement": [TRUSTING]})},
    ),
}


@pytest.mark.parametrize("given", ["by the stack", "by the pack", "nowhere"])
def test_the_documents_hosts_accounts_and_services_hold_in_a_plain_preview(given: str) -> None:
    settings = yaml.safe_load(documents.other("team-settings", "yaml"))["falaj:policies"]
    asked = Analyzer(Pack("falaj-residency", "1.0.0", packs.rules_of("residency"), Path()))
    if given == "by the pack":
        properties = struct_pb2.Struct()
        properties.update(settings)
        config = {"settings": messages.PolicyConfig(properties=properties)}
        asked.Configure(messages.ConfigureAnalyzerRequest(policyConfig=config), None)
    config = {"falaj:policies": json.dumps(settings)} if given == "by the stack" else {}
    request = messages.AnalyzerStackConfigureRequest(stack="dev", project="p", config=config)
    asked.ConfigureStack(request, None)
    home = struct_pb2.Struct()
    home.update({"region": "me-central-1", "allowedAccountIds": ["111122223333"]})
    aws = messages.AnalyzerProviderResource(type="pulumi:providers:aws", properties=home)
    whole: list[messages.AnalyzerResource] = []
    said: set[str] = set()
    for name, (kind, values) in OWN.items():
        properties = struct_pb2.Struct()
        properties.update(values)
        one: dict[str, Any] = {"type": kind, "name": name, "urn": f"urn:{name}"}
        one |= {"provider": aws} if kind.startswith("aws:") else {}
        alone = messages.AnalyzeRequest(**one, properties=properties)
        said |= {each.policyName for each in asked.Analyze(alone, None).diagnostics}
        whole.append(messages.AnalyzerResource(**one, properties=properties))
    last = asked.AnalyzeStack(messages.AnalyzeStackRequest(resources=whole), None)
    said |= {each.policyName for each in last.diagnostics}
    assert said == (set(OWN) if given == "nowhere" else set())
