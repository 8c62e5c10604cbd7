"""What reports of several replicas say together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.watching.replicas import together
from falaj.workloads.watching.report import STATES, Report, read_report
from tests.stacks.watching.reports import report, row


def read(document: dict[str, Any]) -> Report:
    return read_report(json.dumps(document).encode(), "shop")


def saying(*states: str, version: int = 1) -> list[Report]:
    return [read(report(each, version)) for each in states]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (("ok",), "ok"),
        (("drifted",), "drifted"),
        (("drifted", "ok"), "ok"),
        (("drifted", "drifted"), "drifted"),
        (("drifted", "drifted", "ok"), "drifted"),
        (("drifted", "ok", "ok"), "ok"),
        # Those that began anew judge nothing yet.
        (("drifted", "collecting", "collecting"), "drifted"),
        (("collecting", "collecting"), "collecting"),
        (("no reference", "no reference"), "no reference"),
        (("no reference", "collecting"), "collecting"),
    ],
)
def test_more_than_half_of_those_that_judge_have_to_say_so(
    states: tuple[str, ...], expected: str
) -> None:
    assert together(saying(*states)).state == expected


def test_different_parts_that_drift_by_chance_are_no_drift() -> None:
    one = report("drifted", features=[row("age", "drifted"), row("city")])
    other = report("drifted", features=[row("age"), row("city", "drifted")])
    assert together([read(one), read(other)]).state == "ok"


def test_what_drifted_has_the_figures_of_the_fullest_replica_and_how_many_say_so() -> None:
    few = report("drifted", features=[row("age", "drifted", psi=0.3)], since=20.0)
    many = report(
        "drifted", features=[row("age", "drifted", psi=0.7)], since=30.0,
        window={"filled": 900},
    )  # fmt: skip
    found = together([read(few), read(many), *saying("ok")])
    assert (found.drifted, found.since, found.filled) == (("input age",), 20.0, 412 + 900 + 412)
    assert found.features[0].figures["psi"] == 0.7
    assert found.features[0].figures["replicas"] == 2
    assert found.features[0].figures["of_replicas"] == 3


def test_a_late_latency_is_no_drift_of_the_model() -> None:
    slow = report(latency={"state": "drifted"})
    found = together([read(slow), read(slow)])
    assert (found.state, found.latency) == ("ok", "drifted")


def test_labels_drift_as_inputs_do() -> None:
    wrong = report("drifted", features=[], labels={"state": "drifted"})
    assert together([read(wrong)]).drifted == ("labels",)


def test_during_a_rollout_the_version_that_most_serve_counts() -> None:
    found = together([*saying("drifted", version=2), *saying("ok", "ok", version=1)])
    assert (found.version, found.state) == (1, "ok")
    assert together([*saying("ok", version=2), *saying("drifted", version=1)]).version == 2


@given(st.lists(st.tuples(st.sampled_from(STATES), st.integers(1, 3)), min_size=1, max_size=9))
def test_the_order_of_replicas_means_nothing(states: list[tuple[str, int]]) -> None:
    given_ = [read(report(state, version)) for state, version in states]
    one, other = together(given_), together(given_[::-1])
    assert (one.version, one.state, one.drifted) == (other.version, other.state, other.drifted)
    assert one.episode == other.episode
