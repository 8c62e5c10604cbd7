"""The engine's values in plain Python, for every provider that Falaj has; knows nobody."""

from __future__ import annotations

from falaj.wire.values import (
    ARCHIVE,
    ASSET,
    OUTPUT_VALUE,
    SECRET,
    SIGNATURE,
    UNKNOWN,
    Unknown,
    Value,
    Values,
    decode,
    encode,
    has_unknown,
)

__all__ = [
    "ARCHIVE",
    "ASSET",
    "OUTPUT_VALUE",
    "SECRET",
    "SIGNATURE",
    "UNKNOWN",
    "Unknown",
    "Value",
    "Values",
    "decode",
    "encode",
    "has_unknown",
]
