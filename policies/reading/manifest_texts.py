"""YAML texts as plain values, however they were written."""

from __future__ import annotations

from typing import Any, Final

import yaml

_MOST_NODES: Final = 200_000
_MOST_DEPTH: Final = 60


def _is_too_deep(value: str) -> bool:
    """Whether a text nests more than a manifest does: the parser in C would end the process."""
    depth = 0
    for event in yaml.parse(value, yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MOST_DEPTH:
            return True
    return False


def documents(value: object) -> list[Any] | None:
    """The documents of a YAML text as plain values; None where it can't be read."""
    if not isinstance(value, str):
        return None
    try:
        if _is_too_deep(value):
            return None
        loaded = list(yaml.load_all(value, yaml.CSafeLoader))
        return [_plain(each, [_MOST_NODES], 0) for each in loaded]
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError):
        return None


def _plain(value: Any, budget: list[int], depth: int) -> Any:
    """A copy that is JSON-like and finite: aliases of YAML may stand for more than memory holds.

    Raises ValueError where it is too large or too deep.
    """
    budget[0] -= 1
    if budget[0] < 0 or depth > _MOST_DEPTH:
        raise ValueError("more than a manifest may hold")
    if isinstance(value, dict):
        return {str(key): _plain(each, budget, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each, budget, depth + 1) for each in value]
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)
