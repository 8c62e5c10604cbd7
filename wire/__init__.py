"""The engine's values in plain Python, for providers and policies alike; knows nobody."""

from __future__ import annotations

from falaj.wire.types import PROVIDER, STACK, STACK_REFERENCE
from falaj.wire.values import (
    ARCHIVE,
    ASSET,
    MASKED,
    OUTPUT_VALUE,
    REFERENCE,
    SECRET,
    SIGNATURE,
    UNKNOWN,
    UNKNOWN_TEXTS,
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
    "MASKED",
    "OUTPUT_VALUE",
    "PROVIDER",
    "REFERENCE",
    "SECRET",
    "SIGNATURE",
    "STACK",
    "STACK_REFERENCE",
    "UNKNOWN",
    "UNKNOWN_TEXTS",
    "Unknown",
    "Value",
    "Values",
    "decode",
    "encode",
    "has_unknown",
]
