"""Which inputs no longer hold: what the API server writes in its own way is no drift."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.sandbox.cluster.requests import drifted, with_texts

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("inputs", "wanted", "live", "expected"),
    [
        # A quantity in another notation, and what the API server adds.
        ({"cpu": "1000m"}, {"cpu": "1", "x": 1}, {"cpu": "1", "x": 1}, {"cpu": "1000m"}),
        # What others have added is in a dry run as well.
        ({"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2}, {"a": 1}),
        ({"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}, {"b": 2}, {"b": 2}),
        # Written but never read, such as stringData.
        ({"s": "x", "a": 1}, {"a": 1}, {"a": 2}, {"s": "x", "a": 2}),
        # Entries of a list by their key, in whatever order.
        (
            {"c": [{"name": "a", "v": 1}, {"name": "b", "v": 1}]},
            {"c": [{"name": "a", "v": 1}, {"name": "b", "v": 1}]},
            {"c": [{"name": "b", "v": 2}, {"name": "a", "v": 1}]},
            {"c": [{"name": "a", "v": 1}, {"name": "b", "v": 2}]},
        ),
        (
            {"c": [{"name": "a"}, {"name": "b"}]},
            {"c": [{"name": "a"}, {"name": "b"}]},
            {"c": [{"name": "b"}, {"name": "new"}]},
            {"c": [{"name": "b"}, {"name": "new"}]},
        ),
        ({"l": [1, 2]}, {"l": [1, 2]}, {"l": [1, 3]}, {"l": [1, 3]}),
        ({"l": [1, 2]}, {"l": [1, 2]}, {"l": [1]}, {"l": [1]}),
    ],
)
def test_only_what_changed_is_drift(inputs: Any, wanted: Any, live: Any, expected: Any) -> None:
    assert drifted(inputs, wanted, live) == expected


@given(VALUES, VALUES)
def test_what_is_as_wanted_has_not_drifted(inputs: Any, live: Any) -> None:
    assert drifted(inputs, live, live) is inputs


@given(VALUES, VALUES, VALUES)
def test_any_three_values_can_be_compared(inputs: Any, wanted: Any, live: Any) -> None:
    found = drifted(inputs, wanted, live)
    if isinstance(found, dict) and found is not live and isinstance(inputs, dict):
        assert set(found) <= set(inputs)


def encoded(**texts: str) -> dict[str, Any]:
    return {"data": {key: base64.b64encode(each.encode()).decode() for key, each in texts.items()}}


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        (encoded(user="a", password="b"), {"user": "a", "password": "b"}),
        (encoded(user="a", password="changed"), {"user": "a", "password": "changed"}),
        (encoded(user="a"), {"user": "a"}),
        # What others have added isn't ours.
        (encoded(user="a", password="b", more="c"), {"user": "a", "password": "b"}),
        ({}, {}),
        ({"data": {"user": "YQ==", "password": "/w=="}}, {"user": "a", "password": "\ufffd"}),
        (
            {"data": {"user": "YQ==", "password": "no base64"}},
            {"user": "a", "password": "no base64"},
        ),
    ],
)
def test_texts_of_a_secret_are_compared_with_what_was_made_of_them(
    live: dict[str, Any], expected: dict[str, Any]
) -> None:
    inputs = {"stringData": {"user": "a", "password": "b"}}
    wanted = {**encoded(user="a", password="b"), "type": "Opaque"}
    found = drifted(inputs, with_texts(inputs, wanted), with_texts(inputs, live))
    assert found == {"stringData": expected}


def test_data_of_a_secret_is_compared_beside_its_texts() -> None:
    inputs = {"stringData": {"a": "x"}, "data": {"b": "eQ=="}}
    wanted = encoded(a="x", b="y")
    live = encoded(a="x", b="z")
    found = drifted(inputs, with_texts(inputs, wanted), with_texts(inputs, live))
    assert found == {"stringData": {"a": "x"}, **encoded(b="z")}


@given(VALUES)
def test_other_objects_have_no_texts(found: Any) -> None:
    assert with_texts({"data": {}}, {"data": found}) == {"data": found}
