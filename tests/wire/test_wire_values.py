"""Unknowns and secrets survive the way from and to the engine."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import struct_pb2
from hypothesis import given
from hypothesis import strategies as st
from pulumi.runtime import rpc

from wire.values import (
    OUTPUT_VALUE,
    SECRET,
    SIGNATURE,
    UNKNOWN,
    decode,
    encode,
    has_unknown,
)

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda f: not f.is_integer())
    | st.text()
    | st.just(UNKNOWN),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text().filter(lambda k: k != SIGNATURE), inner)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), PLAIN))
def test_plain_values_come_back(values: dict[str, Any]) -> None:
    values.pop(SIGNATURE, None)
    assert decode(encode(values)) == (values, frozenset())


def test_an_asset_is_refused() -> None:
    struct = struct_pb2.Struct()
    struct.update({"file": {SIGNATURE: "c44067f5952c0a294b673a41bacd8c17", "text": "x"}})
    with pytest.raises(ValueError, match="not allowed"):
        decode(struct)


def test_an_unknown_is_no_text() -> None:
    struct = struct_pb2.Struct()
    struct.update({"a": rpc.UNKNOWN, "b": ["x", rpc.UNKNOWN]})
    values, _ = decode(struct)
    assert values == {"a": UNKNOWN, "b": ["x", UNKNOWN]}
    assert encode(values) == struct
    assert has_unknown(values)


def test_an_unknown_has_no_truth() -> None:
    with pytest.raises(TypeError):
        bool(UNKNOWN)


def test_secrets_are_remembered_by_name() -> None:
    struct = struct_pb2.Struct()
    struct.update({"token": {SIGNATURE: SECRET, "value": "x"}, "open": "y"})
    values, secrets = decode(struct)
    assert (values, secrets) == ({"token": "x", "open": "y"}, {"token"})
    assert encode(values, secrets) == struct


def test_an_output_value_without_a_value_is_unknown() -> None:
    struct = struct_pb2.Struct()
    struct.update({"a": {SIGNATURE: OUTPUT_VALUE, "secret": True}})
    assert decode(struct) == ({"a": UNKNOWN}, {"a"})
