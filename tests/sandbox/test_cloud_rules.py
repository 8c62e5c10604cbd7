"""The vocabulary in which both clouds declare their checks: paths, unknowns, parts of lists."""

from __future__ import annotations

from typing import Any

import pytest

from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.kinds import (
    Rule,
    absent,
    all_of,
    any_of,
    between,
    distinct,
    equals,
    for_each,
    formed,
    given,
    is_off,
    is_on,
    longer_than,
    one_of,
    other_than,
    refused,
    required,
    when,
)
from falaj.wire import UNKNOWN


def paths(rule: Rule, values: dict[str, Any]) -> list[str]:
    return [problem.path for problem in rule(Inputs(values))]


@pytest.mark.parametrize(
    ("rule", "values", "wrong"),
    [
        (required("rules[].name", "why"), {"rules": [{"name": "a"}, {}]}, ["rules[1].name"]),
        (required("rules[].name", "why"), {"rules": [{"name": UNKNOWN}]}, []),
        (required("rules[].name", "why"), {"rules": UNKNOWN}, []),
        (required("a.b", "why"), {}, ["a.b"]),
        (required("a.b", "why"), {"a": UNKNOWN}, []),
        (between("pools[0].count", 1, 3), {"pools": [{"count": 4}]}, ["pools[0].count"]),
        (between("count", 1, 3), {"count": True}, []),
        (one_of("zones[]", ("1", "2")), {"zones": ["1", "3", UNKNOWN]}, ["zones[1]"]),
        (one_of('tags.a', ("x",)), {"tags": {"a.b": "y"}}, []),
        (formed("time", r"\d\d:\d\d", "isn't a time"), {"time": "noon"}, ["time"]),
        (formed("time", r"\d\d:\d\d", "isn't a time"), {"time": ""}, []),
        (distinct("names[]", "why"), {"names": ["a", "b", "a"]}, ["names[2]"]),
        (for_each("all[]", between("size", 0, 1)), {"all": [{}, {"size": 2}]}, ["all[1].size"]),
        (for_each("pools[]", between("size", 0, 1)), {"pools": [None, "x", UNKNOWN]}, []),
        (for_each("pools[]", refused("", "no", given("a"))), {"pools": [{"a": 1}]}, ["pools[0]"]),
    ],
)  # fmt: skip
def test_a_rule_speaks_of_what_is_surely_wrong(
    rule: Rule, values: dict[str, Any], wrong: list[str]
) -> None:
    assert paths(rule, values) == wrong


@pytest.mark.parametrize(
    ("condition", "holds", "fails"),
    [
        (given("a"), {"a": UNKNOWN}, {"a": None}),
        (absent("a", "b"), {}, {"b": UNKNOWN}),
        (is_on("a"), {"a": True}, {"a": UNKNOWN}),
        (is_off("a"), {}, {"a": UNKNOWN}),
        (equals("a", "x", "y"), {"a": "y"}, {"a": UNKNOWN}),
        (other_than("a", "x"), {"a": "y"}, {"a": UNKNOWN}),
        (other_than("a", "x"), {"a": "y"}, {}),
        (longer_than("a", 1), {"a": [1, 2]}, {"a": UNKNOWN}),
        (all_of(is_on("a"), is_on("b")), {"a": True, "b": True}, {"a": True}),
        (any_of(is_on("a"), is_on("b")), {"b": True}, {}),
    ],
)
def test_a_condition_holds_only_of_what_is_known(
    condition: Any, holds: dict[str, Any], fails: dict[str, Any]
) -> None:
    rule = when(condition, refused("at", "no", lambda _: True))
    assert paths(rule, holds) == ["at"]
    assert paths(rule, fails) == []


def test_a_part_knows_the_whole() -> None:
    whole = Inputs({"location": "uaenorth", "pools": [{"name": "a"}]}, {"x": 1}, "token")
    (part,) = whole.parts("pools[]")
    assert (part.parent, part.place, part.token, part.config) == (
        whole, "pools[0]", "token", {"x": 1},
    )  # fmt: skip
