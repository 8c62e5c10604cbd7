"""What becomes of a finding: the class of data decides whether a waiver may cover it."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from falaj.policies.configuration import Configuration, read_configuration
from falaj.policies.model import (
    EVERY,
    UNKNOWN,
    Context,
    Finding,
    Provider,
    Resource,
    Rule,
    Settings,
    Severity,
    indeterminate,
    violation,
)
from falaj.policies.model.judge import evaluate
from falaj.policies.outcome import Status, class_of, decide
from falaj.policies.rules.governance.tags import required_tags
from falaj.policies.waivers import Waiver, Waivers

BUCKET = "aws:s3/bucket:Bucket"
URN = "urn:pulumi:dev::shop::aws:s3/bucket:Bucket::logs"


def always(_: Resource, __: Context) -> Iterator[Finding]:
    yield violation("region", "abroad")


RULE = Rule("residency-all", "residency", "t", Severity.LOW, EVERY, (), "Change it.", always)
WAIVERS = Waivers(
    (Waiver("W-1", RULE.id, URN, "reason", "approver", datetime.date(2027, 1, 1)),),
    datetime.date(2026, 11, 21),
)
CONFIGURATION = Configuration(Settings(), WAIVERS)


def by_default(tags: Any) -> Provider:
    return Provider("pulumi:providers:aws", {"defaultTags": {"tags": tags}})


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        (Resource(BUCKET, "logs", {}), "internal"),
        (Resource(BUCKET, "logs", {"tags": {"falaj:data-class": "public"}}), "public"),
        (Resource(BUCKET, "logs", {"tags": {"falaj:data-class": "restricted"}}), "restricted"),
        (Resource(BUCKET, "logs", {"tags": {"falaj:data-class": " Restricted "}}), "restricted"),
        (Resource(BUCKET, "logs", {"tags": {"data-class": "top secret"}}), "restricted"),
        (Resource(BUCKET, "logs", {"tags": {"falaj:data-class": UNKNOWN}}), "restricted"),
        (Resource(BUCKET, "logs", {"tags": UNKNOWN}), "restricted"),
        (
            Resource(BUCKET, "l", {}, provider=by_default({"falaj:data-class": "restricted"})),
            "restricted",
        ),
        (Resource(BUCKET, "l", {}, provider=by_default({"data-class": "public"})), "public"),
        (
            Resource(
                "kubernetes:core/v1:ConfigMap",
                "c",
                {"metadata": {"labels": {"data-class": "public"}}},
            ),
            "public",
        ),
    ],
)
def test_class_of_data(resource: Resource, expected: str) -> None:
    assert class_of(resource, Settings(data_class="internal")) == expected


@pytest.mark.parametrize(
    ("tags", "status"),
    [
        ({"falaj:data-class": "confidential"}, Status.WAIVED),
        ({"falaj:data-class": "RESTRICTED"}, Status.VIOLATION),
        (UNKNOWN, Status.VIOLATION),
    ],
)
def test_residency_of_what_may_be_restricted_is_not_waived(tags: Any, status: Status) -> None:
    resource = Resource(BUCKET, "logs", {"tags": tags}, urn=URN)
    (decided,) = decide(evaluate(RULE, resource, Context()), CONFIGURATION)
    assert decided.status is status


def failing(_: Resource, __: Context) -> Iterator[Finding]:
    yield indeterminate("region", "it can't be seen")
    raise KeyError("region")


def ending(_: Resource, __: Context) -> Iterator[Finding]:
    yield indeterminate("region", "it can't be seen")
    raise SystemExit(0)


def test_a_rule_that_ends_the_program_has_failed() -> None:
    broken = dataclasses.replace(RULE, check=ending)
    (found,) = evaluate(broken, Resource(BUCKET, "logs", {}, urn=URN), Context()).findings
    assert "the rule itself failed (SystemExit at test_outcome.py:" in found.reason


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("advised", [frozenset[str](), frozenset({RULE.id})])
def test_a_rule_that_fails_never_passes(strict: bool, advised: frozenset[str]) -> None:
    broken = dataclasses.replace(RULE, check=failing)
    configuration = Configuration(Settings(strict=strict), Waivers(), advised=advised)
    resource = Resource(BUCKET, "logs", {}, urn=URN)
    (decided,) = decide(evaluate(broken, resource, Context()), configuration)
    assert decided.status is Status.INDETERMINATE
    assert "the rule itself failed (KeyError at test_outcome.py:" in decided.message
    (decided,) = decide(evaluate(broken, resource, Context()), CONFIGURATION)
    assert decided.status is Status.WAIVED


@pytest.mark.parametrize(
    ("stack_config", "given", "status"),
    [
        ({}, {}, Status.ADVISORY),
        ({"aws:region": "me-central-1"}, {"strict": True}, Status.ADVISORY),
        ({"falaj:blueprint": "{}"}, {}, Status.VIOLATION),
        ({"falaj:placement": "[]"}, {}, Status.VIOLATION),
        ({"falaj:policies": '{"requiredTags": ["owner"]}'}, {}, Status.VIOLATION),
        ({"falaj:policies.requiredTags": '["owner"]'}, {}, Status.VIOLATION),
        ({}, {"requiredTags": ["owner"]}, Status.VIOLATION),
    ],
)
def test_tags_are_advice_to_who_never_asked_for_them(
    stack_config: dict[str, str], given: dict[str, Any], status: Status, tmp_path: Path
) -> None:
    configuration = read_configuration(given, stack_config, tmp_path)
    judgement = evaluate(
        required_tags,
        Resource(BUCKET, "logs", {"tags": {"a": "b"}}, urn=URN),
        Context(configuration.settings),
    )
    (decided,) = decide(judgement, configuration)
    assert decided.status is status
