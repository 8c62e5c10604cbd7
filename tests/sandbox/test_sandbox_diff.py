"""Differences are told at their paths, with what replaces and what is ignored."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.sandbox.properties import compare
from falaj.wire import UNKNOWN
from falaj.wire.values import ChangeKind, PropertyChange


@pytest.mark.parametrize(
    ("old", "new", "path", "kind"),
    [
        ({"a": 1}, {"a": 2}, "a", "update"),
        ({"a": 1}, {"a": True}, "a", "update"),
        ({"a": 1}, {}, "a", "delete"),
        ({}, {"a": 1}, "a", "add"),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "a.b[1]", "update"),
        ({"a": [1]}, {"a": [1, 2]}, "a[1]", "add"),
        ({"a": [1, 2]}, {"a": [1]}, "a[1]", "delete"),
        ({"t": {"x.y": 1}}, {"t": {"x.y": 2}}, 't["x.y"]', "update"),
        ({"a": {"b": 1}}, {"a": "text"}, "a", "update"),
        ({"a": 1}, {"a": UNKNOWN}, "a", "update"),
        ({}, {"a": UNKNOWN}, "a", "add"),
        ({"a": UNKNOWN}, {"a": UNKNOWN}, "a", "update"),
    ],
)
def test_difference_is_told_at_its_path(old: Any, new: Any, path: str, kind: ChangeKind) -> None:
    assert compare(old, new) == [PropertyChange(path, kind, replaces=False)]


def test_null_is_absent_and_the_engines_own_properties_do_not_count() -> None:
    assert compare({"a": None, "__defaults": []}, {"b": None}) == []


def test_replacement_at_or_below_a_path() -> None:
    old = {"spec": {"selector": {"a": 1}, "replicas": 1}, "specs": 1, "rules": [{"port": 1}]}
    new = {"spec": {"selector": {"a": 2}, "replicas": 2}, "specs": 2, "rules": [{"port": 2}]}
    found = {
        change.path: change.replaces
        for change in compare(old, new, {"spec.selector", "rules.port"})
    }
    assert found == {
        "spec.selector.a": True,
        "spec.replicas": False,
        "specs": False,
        "rules[0].port": True,
    }


def test_ignored_changes_do_not_count() -> None:
    old = {"tags": {"a": 1, "b": 1}, "list": [{"x": 1}], "size": 1}
    new = {"tags": {"a": 2, "b": 2}, "list": [{"x": 2}], "size": 2}
    assert [change.path for change in compare(old, new, (), {"tags.a", "list", "sizes"})] == [
        "size",
        "tags.b",
    ]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
PROPERTIES = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)


@given(values=PROPERTIES)
def test_nothing_differs_from_itself(values: dict[str, Any]) -> None:
    assert compare(values, values) == []


@given(old=PROPERTIES, new=PROPERTIES)
def test_any_two_compare_both_ways_at_the_same_paths(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    there = {change.path for change in compare(old, new)}
    back = {change.path for change in compare(new, old)}
    assert there == back
