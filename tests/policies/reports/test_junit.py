"""JUnit, as a parser of CI systems' results reads it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from junitparser import Error, Failure, JUnitXml, Skipped

from falaj.policies.reports.junit import MOST_LISTED, to_junit
from falaj.policies.reports.result import CheckResult, Revision
from tests.policies.reports.results import (
    ARABIC,
    HOSTILE,
    answered,
    clean,
    hostile,
    large,
    small,
)


def parsed(result: CheckResult) -> Any:
    return JUnitXml.fromstring(to_junit(result).encode())


def case(result: CheckResult, rule: str) -> Any:
    return next(each for suite in parsed(result) for each in suite if each.name.startswith(rule))


def test_totals_are_those_of_the_cases() -> None:
    for result in (small(), clean(), large(2, 60)):
        read = parsed(result)
        before = (read.tests, read.failures, read.errors, read.skipped)
        read.update_statistics()
        assert (read.tests, read.failures, read.errors, read.skipped) == before
        for suite in read:
            assert suite.tests == sum(1 for _ in suite)


def test_suites_are_stacks_and_cases_are_rules() -> None:
    read = parsed(large(3, 40))
    assert [each.name for each in read] == [f"falaj/stack-{number}" for number in range(3)]
    assert {sum(1 for _ in each) for each in read} == {4}


def test_a_finding_is_a_failure_with_what_to_change() -> None:
    found = case(small(), "residency-aws-s3-replication")
    (failure,) = found.result
    assert isinstance(failure, Failure)
    assert failure.type == "critical"
    assert failure.message.startswith("1 of 5 resources: the destination bucket is in eu-west-1")
    assert "stacks/__main__.py:41" in failure.text
    assert failure.text.endswith("Replicate to a bucket in me-central-1, or remove the rule.")
    assert found._elem.attrib["file"] == "stacks/__main__.py"


def test_what_cannot_be_known_fails_and_is_named() -> None:
    (failure,) = case(small(), "encryption-aws-storage-key").result
    assert isinstance(failure, Failure)
    assert f"[indeterminate] aws:s3/bucket:Bucket '{ARABIC}'" in failure.text


def test_what_is_waived_is_skipped() -> None:
    stack = small().stacks[0]
    kept = tuple(each for each in stack.outcomes if each.status == "waived")
    found = case(replace(small(), stacks=(replace(stack, outcomes=kept),)), "encryption-")
    (skipped,) = found.result
    assert isinstance(skipped, Skipped)
    assert skipped.message == "1 waived: W-2026-004 by ciso@example.ae until 2027-03-31"


def test_what_only_warns_passes() -> None:
    found = case(small(), "governance-required-tags")
    assert found.is_passed
    assert HOSTILE in found.system_out


def test_a_stack_that_could_not_be_checked_is_an_error() -> None:
    (suite,) = (each for each in parsed(small()) if each.name == "falaj/prod")
    (found,) = suite
    assert isinstance(found.result[0], Error)
    assert found.result[0].message == "the backend can't be reached"


def test_long_lists_are_cut_and_say_so() -> None:
    result = large(1, 2 * 40 * MOST_LISTED)
    (failure,) = case(result, "residency-aws-s3-replication").result
    assert failure.text.count("a-resource-with") == MOST_LISTED
    assert "more\n" in failure.text


def test_what_xml_cannot_hold_is_replaced() -> None:
    stack = small().stacks[0]
    odd = replace(stack.outcomes[0], reason="a\x00b\ud800c\x1b[31m<&\"']]>")
    result = replace(small(), stacks=(replace(stack, outcomes=(odd,)),))
    (failure,) = case(result, "residency-").result
    assert "a\ufffdb\ufffdc\ufffd[31m<&\"']]>" in failure.text


def properties(suite: Any) -> dict[str, str]:
    return {each.name: each.value for each in suite.properties()}


def test_suites_say_what_answered_who_asked_and_from_which_commit() -> None:
    first, second = parsed(small())
    said = properties(first)
    commit = "9f2c41d0b7" + "ab" * 15
    for name, value in {
        "answeredBy": "sandbox",
        "answer": "Sandbox: nothing real was looked at",
        "user": "fatima",
        "host": "ci-runner-7",
        "commit": commit,
        "workingTree": "clean",
        "falaj": "0.1.0",
        "pulumi": "3.272.0",
        "python": "3.11.2",
        "started": "2026-11-21T09:30:00+00:00",
        "ci.system": "GitLab CI/CD",
        "ci.run": "4711",
        "ci.commit": commit,
    }.items():
        assert said[name] == value
    assert first.hostname == "ci-runner-7"
    assert properties(second)["answeredBy"] == "nobody"


def test_a_mixture_says_so_for_each_suite() -> None:
    suites = parsed(answered("sandbox", "machine", "exported-state", "sandbox-and-others"))
    assert [properties(each)["answeredBy"] for each in suites] == [
        "sandbox", "machine", "exported-state", "sandbox-and-others",
    ]  # fmt: skip


def test_what_is_not_known_is_left_out() -> None:
    (suite,) = parsed(clean())
    assert not {"commit", "workingTree", "ci.system", "pulumi"} & set(properties(suite))
    revision = Revision("", problem="fatal: dubious ownership")
    result = clean()
    (suite,) = parsed(replace(result, provenance=replace(result.provenance, revision=revision)))
    assert properties(suite)["commitUnknown"] == "fatal: dubious ownership"
    assert not {"commit", "workingTree"} & set(properties(suite))


def test_whatever_comes_from_outside_it_stays_xml() -> None:
    text = "a\x00b\ud800<&\"']]>\u202e" + "w" * 5_000
    suite = next(iter(parsed(hostile(text))))
    assert properties(suite)["user"].startswith("a\ufffdb\ufffd<&\"']]>")
