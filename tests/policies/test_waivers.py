"""Waivers: what they may cover, and what they never do."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from falaj.policies.model import (
    EVERY,
    Context,
    Finding,
    PolicyError,
    Resource,
    Rule,
    Severity,
    violation,
)
from falaj.policies.waivers import Waivers, read_waivers

TODAY = datetime.date(2026, 11, 21)
URN = "urn:pulumi:dev::falaj::aws:s3/bucket:Bucket::logs"


def check(_: Resource, __: Context) -> Iterator[Finding]:
    yield violation("", "always")


def made(name: str, *, waivable: bool = True) -> Rule:
    return Rule(
        name,
        name.split("-", maxsplit=1)[0],
        "t",
        Severity.LOW,
        EVERY,
        (),
        "Change it.",
        check,
        waivable,
    )


RESIDENCY, KEYS, FIRM = (
    made("residency-copies"),
    made("encryption-keys"),
    made("encryption-firm", waivable=False),
)
BUCKET = Resource("aws:s3/bucket:Bucket", "logs", {}, urn=URN)


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "id": "W-1",
        "rule": "encryption-keys",
        "urn": "urn:pulumi:*::falaj::aws:s3/bucket:Bucket::logs",
        "reason": "moves to a new key in January",
        "approver": "ciso@example.ae",
        "expires": datetime.date(2027, 3, 31),
    } | changes


def read(tmp_path: Path, *entries: Any, today: datetime.date = TODAY) -> Waivers:
    path = tmp_path / "waivers.yaml"
    path.write_text(yaml.safe_dump({"waivers": list(entries)}))
    return read_waivers(path, [RESIDENCY, KEYS, FIRM], today)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rule": "encryption-*"}, "no rule; one rule a waiver"),
        ({"rule": ["encryption-keys", "residency-copies"]}, "expected a text"),
        ({"urn": "*"}, "names resources"),
        ({"urn": "urn:pulumi:dev::falaj::aws:s3/bucket:Bucket::*"}, "names resources"),
        ({"reason": " "}, "reason"),
        ({"approver": None}, "approver"),
        ({"expires": "soon"}, "expected a date"),
        ({"expires": datetime.datetime(2027, 1, 1)}, "expected a date"),
        ({"expires": datetime.date(2028, 1, 1)}, "at most 366 days"),
        ({"expires": "2028-01-01"}, "at most 366 days"),
        ({"more": 1}, "exactly the keys"),
    ],
)
def test_waiver_that_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError, match="waiver 1") as caught:
        read(tmp_path, entry(**changes))
    assert said in str(caught.value)


def test_a_date_in_quotation_marks_is_a_date(tmp_path: Path) -> None:
    """As programs write it that keep texts apart from dates."""
    quoted, plain = read(tmp_path, entry(expires="2027-03-31")), read(tmp_path, entry())
    assert quoted == plain


@pytest.mark.parametrize("text", ["", "waivers: 5", "- a", "waivers: [x]", "\x00", "{"])
def test_file_that_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "waivers.yaml"
    path.write_text(text)
    with pytest.raises(PolicyError, match=r"waivers\.yaml"):
        read_waivers(path, [KEYS], TODAY)


def test_all_problems_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"waiver 1: rule.*waiver 2: reason"):
        read(tmp_path, entry(rule="x"), entry(reason=""))


def test_same_id_twice(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="W-1 is given twice"):
        read(tmp_path, entry(), entry())


def test_covers_its_rule_and_resource_alone(tmp_path: Path) -> None:
    waivers = read(tmp_path, entry())
    ruling = waivers.ruling(KEYS, BUCKET, "confidential")
    assert ruling.waiver is not None
    assert ruling.waiver.id == "W-1"
    other = Resource("aws:s3/bucket:Bucket", "other", {}, urn=URN.replace("logs", "other"))
    assert waivers.ruling(KEYS, other, "confidential").waiver is None
    assert waivers.ruling(RESIDENCY, BUCKET, "confidential").waiver is None


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("urn:*::l?gs", "logs", True),
        ("urn:*::[!x]*", "logs", False),
        ("urn:*::[a-z]*", "logs", False),
        ("urn:*::logs[0]", "logs[0]", True),
        ("urn:*::logs[0]", "logs0", False),
        ("urn:*::logs", "logs-archive", False),
        ("urn:*::.ogs", "logs", False),
        ("urn:*::LOGS", "logs", False),
    ],
)
def test_only_stars_and_question_marks_are_special(
    tmp_path: Path, pattern: str, name: str, covered: bool
) -> None:
    waivers = read(tmp_path, entry(urn=pattern))
    resource = Resource("aws:s3/bucket:Bucket", name, {}, urn=URN.replace("logs", name))
    assert (waivers.ruling(KEYS, resource, "public").waiver is not None) is covered


def test_last_day_counts_and_the_next_does_not(tmp_path: Path) -> None:
    last = datetime.date(2027, 3, 31)
    assert read(tmp_path, entry(), today=last).ruling(KEYS, BUCKET, "public").waiver
    ruling = read(tmp_path, entry(), today=last + datetime.timedelta(1)).ruling(
        KEYS, BUCKET, "public"
    )
    assert ruling.waiver is None
    assert "expired on 2027-03-31" in ruling.note


@pytest.mark.parametrize("data_class", ["public", "internal", "confidential"])
def test_residency_of_other_data_can_be_waived(tmp_path: Path, data_class: str) -> None:
    waivers = read(tmp_path, entry(rule="residency-copies"))
    assert waivers.ruling(RESIDENCY, BUCKET, data_class).waiver


def test_residency_of_restricted_data_never(tmp_path: Path) -> None:
    ruling = read(tmp_path, entry(rule="residency-copies")).ruling(RESIDENCY, BUCKET, "restricted")
    assert ruling.waiver is None
    assert "residency of restricted data" in ruling.note


def test_rule_that_cannot_be_waived(tmp_path: Path) -> None:
    ruling = read(tmp_path, entry(rule="encryption-firm")).ruling(FIRM, BUCKET, "public")
    assert ruling.waiver is None
    assert "can't be waived" in ruling.note


def test_expired_one_does_not_hide_a_valid_one(tmp_path: Path) -> None:
    old = entry(id="W-0", expires=datetime.date(2026, 1, 1))
    ruling = read(tmp_path, old, entry()).ruling(KEYS, BUCKET, "public")
    assert ruling.waiver is not None
    assert ruling.waiver.id == "W-1"
