"""Between the engine's values and plain Python ones, with unknowns and secrets kept right.

The SDK's own decoder (``PropertyValue.unmarshal``, SDK 3.272) takes the marker of an unknown value
for an ordinary string, and its encoder has no way to write one; both are handled here.
Handlers see plain values, with `UNKNOWN` in the place of what the engine can't know yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from google.protobuf import struct_pb2

SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
SECRET: Final = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - marks one, is none
OUTPUT_VALUE: Final = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
ASSET: Final = "c44067f5952c0a294b673a41bacd8c17"
ARCHIVE: Final = "0def7320c3a5731c473e5ecbe6d01bc7"
REFERENCE: Final = "5cf8f73096256a8f31e491e813e4eb8e"
UNKNOWN_TEXT: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"

#: One for each kind of value that isn't known: pulumi/pulumi v3.255.0,
#: sdk/go/common/resource/plugin/rpc.go. The SDK for Python writes the one for texts only.
UNKNOWN_TEXTS: Final = frozenset(
    {
        UNKNOWN_TEXT,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",  # boolean
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",  # number
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",  # list
        "030794c1-ac77-496b-92df-f27374a8bd58",  # asset
        "e48ece36-62e2-4504-bad9-02848725956a",  # archive
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",  # object
    }
)


MASKED: Final = "[secret]"
"""What the engine shows, exports and tells its events for a secret that stays closed."""


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


def decode(struct: struct_pb2.Struct, *, assets: bool = False) -> tuple[Values, frozenset[str]]:
    """Plain values of a message, and the names of those that hold a secret somewhere.

    Args:
        assets: keep assets and archives, as mappings with their `SIGNATURE`.

    Raises:
        ValueError: there is an asset or an archive, and `assets` is false.
    """
    values: Values = {}
    secrets: set[str] = set()
    for key, item in struct.fields.items():
        value, secret = _decode(item, assets)
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


def _decode(item: struct_pb2.Value, assets: bool) -> tuple[Value, bool]:
    kind = item.WhichOneof("kind")
    if kind == "struct_value":
        return _decode_struct(item.struct_value, assets)
    if kind == "list_value":
        pairs = [_decode(entry, assets) for entry in item.list_value.values]
        return [value for value, _ in pairs], any(secret for _, secret in pairs)
    if kind == "string_value":
        text = item.string_value
        return (UNKNOWN if text in UNKNOWN_TEXTS else text), False
    if kind == "bool_value":
        return item.bool_value, False
    if kind == "number_value":
        number = item.number_value
        return (int(number) if number.is_integer() and abs(number) < 2**53 else number), False
    return None, False


def _decode_struct(struct: struct_pb2.Struct, assets: bool) -> tuple[Value, bool]:
    fields = struct.fields
    signature = fields[SIGNATURE].string_value if SIGNATURE in fields else ""
    if not signature or (assets and signature in (ASSET, ARCHIVE)):
        values, secrets = decode(struct, assets=assets)
        return values, bool(secrets)
    if signature == SECRET:
        return _decode(fields["value"], assets)[0], True
    if signature == OUTPUT_VALUE:
        # An output value without a value is one that isn't known yet.
        marked = "secret" in fields and fields["secret"].bool_value
        if "value" not in fields:
            return UNKNOWN, marked
        value, secret = _decode(fields["value"], assets)
        return value, secret or marked
    if signature == REFERENCE and assets and "id" in fields:
        return _decode(fields["id"], assets)  # a resource stands for its id
    raise ValueError("assets, archives and resource references are not allowed here")


def _encode(value: Value) -> struct_pb2.Value:  # noqa: PLR0911 - one for each kind
    if value is None:
        return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
    if isinstance(value, Unknown):
        return struct_pb2.Value(string_value=UNKNOWN_TEXT)
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


# What differs between a resource and what is wanted of it.

ChangeKind: TypeAlias = Literal["add", "delete", "update"]


@dataclass(frozen=True)
class PropertyChange:
    """One property that differs."""

    path: str
    kind: ChangeKind
    replaces: bool
    """Whether it takes a new resource."""
    is_input: bool = True
    """Whether an input changed, as opposed to an output that was found to differ."""
