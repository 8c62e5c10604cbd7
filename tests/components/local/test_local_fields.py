"""Inputs are refused with the key, what was given and what is allowed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from falaj.components.local.arguments import PATH
from falaj.components.local.machine import InvalidInputsError
from falaj.components.local.provider.fields import Field, check
from falaj.components.local.provider.resources import HANDLERS
from falaj.components.local.provider.resources.inference_service import (
    InferenceServiceHandler,
)
from falaj.components.specification.limits import Between, OneOf, TextRule
from falaj.wire.values import UNKNOWN

TABLE = {
    "count": Field("whole", required=True, limit=Between(1, 9)),
    "rate": Field("number", default=0.5, limit=Between(0, math.inf)),
    "mode": Field("text", limit=OneOf(("slow", "fast"))),
    "place": Field("path", limit=PATH),
    "on": Field("flag"),
    "names": Field("texts", limit=TextRule("^[a-z]+$", "small letters", "a")),
    "ports": Field("wholes", limit=Between(1, math.inf)),
    "scopes": Field("lists", limit=OneOf(("predict", "admin"))),
}


@pytest.mark.parametrize(
    ("given", "key", "words"),
    [
        ({}, "count", "missing; give a whole number"),
        ({"count": "3"}, "count", "given '3'; allowed: a whole number from 1 to 9"),
        ({"count": True}, "count", "given True; allowed: a whole number"),
        ({"count": 1.5}, "count", "given 1.5; allowed: a whole number"),
        ({"count": 0}, "count", "given 0; allowed: a whole number from 1 to 9"),
        ({"count": 10}, "count", "from 1 to 9"),
        ({"count": 1, "rate": -0.1}, "rate", "given -0.1; allowed: a number of at least 0"),
        ({"count": 1, "rate": float("nan")}, "rate", "given nan"),
        ({"count": 1, "mode": "quick"}, "mode", "given 'quick'; allowed: slow, fast"),
        ({"count": 1, "place": "here"}, "place", "given 'here'; allowed: an absolute path"),
        ({"count": 1, "on": "true"}, "on", "given 'true'; allowed: true or false"),
        ({"count": 1, "names": "a"}, "names", "given 'a'; allowed: a list of texts"),
        ({"count": 1, "names": ["a", "B"]}, "names", "a list of texts of small letters"),
        ({"count": 1, "ports": [0]}, "ports", "given [0]; allowed: a list of whole numbers"),
        ({"count": 1, "scopes": {"a": "b"}}, "scopes", "a map from names to lists of texts"),
        (
            {"count": 1, "scopes": {"a": ["root"]}},
            "scopes",
            "given {'a': ['root']}; allowed: a map from names to lists of texts out of predict",
        ),
        ({"count": 1, "cuont": 2}, "cuont", "did you mean 'count'?"),
        ({"count": 1, "zzz": 2}, "zzz", "unknown input 'zzz'; allowed: count, mode, names"),
    ],
)
def test_refusals(given: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(InvalidInputsError) as caught:
        check(TABLE, given)
    reasons = {refusal.property: refusal.reason for refusal in caught.value.errors}
    assert words in reasons[key]


def test_every_refusal_is_told_at_once() -> None:
    with pytest.raises(InvalidInputsError) as caught:
        check(TABLE, {"count": 0, "rate": "x", "zzz": 1})
    assert {refusal.property for refusal in caught.value.errors} == {"count", "rate", "zzz"}


def test_defaults_fill_in_and_none_is_left_out() -> None:
    assert check(TABLE, {"count": 3, "mode": None}) == {"count": 3, "rate": 0.5}


def test_unknowns_pass() -> None:
    given = {"count": UNKNOWN, "names": ["a", UNKNOWN], "place": UNKNOWN}
    assert check(TABLE, given) == {**given, "rate": 0.5}


@pytest.mark.parametrize(
    ("grpc", "body", "is_refused"),
    [
        ({}, 255 * 2**20, False), ({}, 255 * 2**20 + 1, True),
        ({"grpc": False}, 2**30, False), ({"grpc": UNKNOWN}, 2**30, False),
        ({}, UNKNOWN, False),
    ],
)  # fmt: skip
def test_with_grpc_a_body_is_one_that_it_takes(
    grpc: dict[str, Any], body: Any, is_refused: bool
) -> None:
    handler = InferenceServiceHandler()
    required = [key for key, field in handler.table.items() if field.required]
    given = {**dict.fromkeys(required, UNKNOWN), **grpc, "maxBodyBytes": body}
    if not is_refused:
        assert handler.check(given, {})["maxBodyBytes"] == body
        return
    with pytest.raises(InvalidInputsError) as caught:
        handler.check(given, {})
    (refusal,) = caught.value.errors
    assert refusal.property == "maxBodyBytes"
    assert "allowed: a whole number from 1024 to 267386880 where grpc is true" in refusal.reason


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.type_name)
def test_tables_are_consistent(handler: Any) -> None:
    # An output that shares an input's name would look like a change of the input.
    assert not handler.table.keys() & handler.outputs.keys()
    for entry in handler.table.values():
        assert not (entry.required and entry.default is not None)
