"""Between the engine's values and plain Python ones, with unknowns and secrets kept right.

The SDK's own decoder (``PropertyValue.unmarshal``, SDK 3.272) takes the marker of an unknown value
for an ordinary string, and its encoder has no way to write one; both are handled here.
Handlers see plain values, with `UNKNOWN` in the place of what the engine can't know yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast

from google.protobuf import struct_pb2
from pulumi.runtime import rpc

SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
SECRET: Final = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - marks one, is none
OUTPUT_VALUE: Final = "d0e6a833031e9bbcd3f4e8bde6ca49a4"


class Unknown:
    """The one value that stands for what is known only after the deployment."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        raise TypeError("an unknown value is neither true nor false: test for it first")


UNKNOWN: Final = Unknown()

Value: TypeAlias = (
    "bool | int | float | str | Unknown | Sequence[Value] | Mapping[str, Value] | None"
)
Values: TypeAlias = "dict[str, Value]"


def decode(struct: struct_pb2.Struct) -> tuple[Values, frozenset[str]]:
    """Plain values of a message, and the names of those that hold a secret somewhere.

    Raises:
        ValueError: a value is of a kind that no resource here takes (an asset, an archive).
    """
    values: Values = {}
    secrets: set[str] = set()
    for key, item in struct.fields.items():
        value, secret = _decode(item)
        values[key] = value
        if secret:
            secrets.add(key)
    return values, frozenset(secrets)


def encode(
    values: Mapping[str, Value], secrets: frozenset[str] = frozenset()
) -> struct_pb2.Struct:
    """A message of plain values; those named in `secrets` are marked as secret."""
    fields = {
        key: _as_secret(_encode(value)) if key in secrets else _encode(value)
        for key, value in values.items()
    }
    return struct_pb2.Struct(fields=fields)


def has_unknown(value: Value) -> bool:
    """Whether the value is unknown, or holds something unknown."""
    if isinstance(value, Unknown):
        return True
    if isinstance(value, str):
        return False
    if isinstance(value, Mapping):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, Sequence):
        return any(has_unknown(item) for item in value)
    return False


def _decode(item: struct_pb2.Value) -> tuple[Value, bool]:
    kind = item.WhichOneof("kind")
    if kind == "struct_value":
        return _decode_struct(item.struct_value)
    if kind == "list_value":
        pairs = [_decode(entry) for entry in item.list_value.values]
        return [value for value, _ in pairs], any(secret for _, secret in pairs)
    if kind == "string_value":
        return (UNKNOWN if item.string_value == rpc.UNKNOWN else item.string_value), False
    if kind == "bool_value":
        return item.bool_value, False
    if kind == "number_value":
        number = item.number_value
        return (int(number) if number.is_integer() and abs(number) < 2**53 else number), False
    return None, False


def _decode_struct(struct: struct_pb2.Struct) -> tuple[Value, bool]:
    fields = struct.fields
    if SIGNATURE not in fields:
        values, secrets = decode(struct)
        return values, bool(secrets)
    signature = fields[SIGNATURE].string_value
    if signature == SECRET:
        return _decode(fields["value"])[0], True
    if signature == OUTPUT_VALUE:
        # An output value without a value is one that isn't known yet.
        marked = "secret" in fields and fields["secret"].bool_value
        if "value" not in fields:
            return UNKNOWN, marked
        value, secret = _decode(fields["value"])
        return value, secret or marked
    raise ValueError("assets, archives and resource references are not allowed here")


def _encode(value: Value) -> struct_pb2.Value:  # noqa: PLR0911 - one for each kind
    if value is None:
        return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
    if isinstance(value, Unknown):
        return struct_pb2.Value(string_value=rpc.UNKNOWN)
    if isinstance(value, bool):
        return struct_pb2.Value(bool_value=value)
    if isinstance(value, int | float):
        return struct_pb2.Value(number_value=value)
    if isinstance(value, str):
        return struct_pb2.Value(string_value=value)
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Value]", value)
        return struct_pb2.Value(struct_value=encode(mapping))
    return struct_pb2.Value(
        list_value=struct_pb2.ListValue(values=[_encode(entry) for entry in value])
    )


def _as_secret(value: struct_pb2.Value) -> struct_pb2.Value:
    fields = {SIGNATURE: struct_pb2.Value(string_value=SECRET), "value": value}
    return struct_pb2.Value(struct_value=struct_pb2.Struct(fields=fields))
