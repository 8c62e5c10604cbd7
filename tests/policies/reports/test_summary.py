"""The summary at the terminal."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from falaj.policies.reports.result import StackResult
from falaj.policies.reports.summary import summarise
from tests.policies.reports.results import ARABIC, clean, large, small


def test_it_says_what_where_and_what_to_change() -> None:
    text = summarise(small())
    for part in (
        "falaj/dev: 5 resources judged by 4 rules",
        "Sandbox: nothing real was looked at",
        "Nothing answered",
        "residency-aws-s3-replication (critical)",
        "x Bucket models  stacks/__main__.py:41",
        "rules[0].destination.bucket: the destination bucket is in eu-west-1",
        f"? Bucket {ARABIC}",
        "waived: W-2026-004 by ciso@example.ae until 2027-03-31",
        "(waiver W-2025-001 expired on 2026-01-31)",
        "could not be checked: the backend can't be reached",
        "2 stacks, 5 resources: 2 violations (x), 1 undecided, which fails (?), 1 warning (!),",
        "1 stack could not be checked (12.4 s)",
    ):
        assert part in text or part in " ".join(text.split()), part
    assert "nothing found" in summarise(clean())


def test_remediation_is_said_once_a_rule() -> None:
    assert summarise(large(3, 100)).count("Replicate to a bucket in me-central-1") == 1
    # Nothing has to change for what only warns or is waived.
    assert "Add the tags" not in summarise(small())


def test_failing_rules_come_first_and_the_worst_of_them() -> None:
    text = summarise(small()).partition("What to change")[0]
    places = [
        text.index(each)
        for each in ("residency-aws", "encryption-aws", "zero-trust-aws", "governance-")
    ]
    assert places == sorted(places)


@pytest.mark.parametrize("width", [10, 40, 72, 120])
def test_sentences_fit_the_terminal(width: int) -> None:
    for line in summarise(small(), width=width).splitlines():
        if len(line) > max(width, 40):
            # Titles of rules, resources and stacks stay on one line, as do long words.
            assert re.match(r" {0,2}\S|    [x?!-] | +\S+$", line), line


def test_no_colour_unless_asked() -> None:
    assert "\x1b" not in summarise(small())
    assert "\x1b[31mx\x1b[0m" in summarise(small(), colour=True)


def test_names_cannot_drive_the_terminal() -> None:
    stack = small().stacks[0]
    evil = replace(stack.resources[0], name="a\x1b[2Jb\u202ec\r\n")
    odd = replace(stack.outcomes[0], reason="x\x1b]0;t\x07")
    changed = replace(
        stack, resources=(evil, *stack.resources[1:]), outcomes=(odd, *stack.outcomes[1:])
    )
    text = summarise(replace(small(), stacks=(changed,)))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", text)


def test_long_lists_are_cut_and_counted() -> None:
    text = summarise(large(1, 1000), most=3)
    assert text.count("x Bucket") + text.count("x StorageAccount") + text.count("x Deploy") <= 12
    assert "and 47 more" in text


def test_what_is_cut_is_not_what_fails() -> None:
    text = summarise(small(), most=1)
    assert f"? Bucket {ARABIC}" in text
    assert "W-2026-004" not in text


def test_the_lines_of_an_error_stay_lines() -> None:
    error = "dev.yaml:1: no data class\n  add after line 2:\n    3 |   falaj:dataClass: internal"
    broken = StackResult("prod", "falaj", "nobody", errors=(error,))
    text = summarise(replace(small(), stacks=(broken,)), width=60)
    assert "      add after line 2:\n" in text
    assert "\n        3 |   falaj:dataClass: internal\n" in text
