"""What documents of others hold (JSON, YAML, objects of a cluster), read without trusting them.

`isinstance(value, dict)` leaves the type checker with keys and values that it knows nothing of.
The rest of the house has these in `wire/documents.py`, which workloads may not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard


def is_dictionary(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is an object of JSON, whose keys are text."""
    return isinstance(value, dict)


def is_sequence(value: object) -> TypeGuard[list[Any]]:
    """Whether it is a list."""
    return isinstance(value, list)


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def mapping(value: object) -> Mapping[str, Any]:
    """The value where it is a mapping, such as an object of JSON, else an empty one."""
    return value if _is_mapping(value) else {}
