"""Unknowns and secrets survive the way from and to the engine."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import struct_pb2
from hypothesis import given
from hypothesis import strategies as st
from pulumi.runtime import rpc

from falaj.wire.values import (
    ARCHIVE,
    ASSET,
    OUTPUT_VALUE,
    REFERENCE,
    SECRET,
    SIGNATURE,
    UNKNOWN,
    UNKNOWN_TEXT,
    decode,
    encode,
    has_unknown,
)

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
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


def test_unknown_of_any_kind_is_unknown() -> None:
    for text in (
        UNKNOWN_TEXT,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
    ):
        message = struct_pb2.Struct()
        message.update({"a": [text]})
        assert decode(message)[0] == {"a": [UNKNOWN]}
    assert rpc.UNKNOWN == UNKNOWN_TEXT


def test_assets_are_kept_where_they_are_wanted() -> None:
    message = struct_pb2.Struct()
    asset = {SIGNATURE: ASSET, "text": "x"}
    archive = {SIGNATURE: ARCHIVE, "assets": {"a": asset}}
    message.update({"code": archive, "list": [asset]})
    with pytest.raises(ValueError, match="assets, archives"):
        decode(message)
    values, secrets = decode(message, assets=True)
    assert values == {"code": archive, "list": [asset]}
    assert not secrets
    assert encode(values) == message


def test_reference_to_a_resource_stands_for_its_id() -> None:
    message = struct_pb2.Struct()
    message.update({"vpc": {SIGNATURE: REFERENCE, "urn": "u", "id": "vpc-1"}})
    assert decode(message, assets=True)[0] == {"vpc": "vpc-1"}
    with pytest.raises(ValueError, match="resource references"):
        decode(message)
