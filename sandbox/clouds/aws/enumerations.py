"""The values that AWS takes where the SDK only says "a string"."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Final

from falaj.sandbox.clouds.kinds import Rule
from falaj.sandbox.clouds.rules import one_of

_FILE: Final = Path(__file__).parent / "data" / "enumerations.json"


@cache
def enumerations() -> dict[str, dict[str, list[str | int]]]:
    """For each type, the values of each path."""
    return json.loads(_FILE.read_text("utf-8"))["types"]


@cache
def enumeration_rules(token: str) -> tuple[Rule, ...]:
    """The rules that the table gives for a type."""
    return tuple(one_of(path, values) for path, values in enumerations().get(token, {}).items())
