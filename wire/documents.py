"""What documents of others hold (JSON of the engine, state, YAML), read without trusting them.

`isinstance(value, Mapping)` leaves the type checker with keys and values that it knows nothing of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether it is a mapping; in these documents keys are text."""
    return isinstance(value, Mapping)


def is_dictionary(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is a mapping that may be changed."""
    return isinstance(value, dict)


def is_sequence(value: object) -> TypeGuard[list[Any]]:
    """Whether it is a list."""
    return isinstance(value, list)


def mapping(value: object) -> Mapping[str, Any]:
    """The value where it is a mapping, else an empty one."""
    return value if is_mapping(value) else {}


def sequence(value: object) -> list[Any]:
    """The value where it is a list, else an empty one."""
    return value if is_sequence(value) else []
