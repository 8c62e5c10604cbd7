"""Dotted keys: ``falaj:budget.monthlyUsd: 500`` is ``falaj:budget: {monthlyUsd: 500}``.

Prompts of ``pulumi new`` and lines of ``pulumi config set`` can only give keys at the top.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from falaj.stacks.errors import SettingsError


def nest(values: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """Put the values of dotted keys where they belong.

    Raises:
        SettingsError: a value is given twice, or a dotted key leads through a plain value.
    """
    nested: dict[str, Any] = {}
    # Shorter keys first: a whole section is there before a dotted key adds to it.
    for key in sorted(values, key=lambda name: name.count(".")):
        *path, last = key.split(".")
        section = nested
        for depth, part in enumerate(path):
            inner = section.setdefault(part, {})
            if not isinstance(inner, dict):
                through = ".".join(path[: depth + 1])
                raise SettingsError(
                    f"{namespace}:{key}: {namespace}:{through} is given as {inner!r}, a value "
                    "without keys below it\n  remove one of the two"
                )
            section = cast("dict[str, Any]", inner)
        if last in section:
            raise SettingsError(
                f"{namespace}:{key}: given twice, as a dotted key and inside a section\n"
                "  keep one of the two"
            )
        value = values[key]
        section[last] = _copy(value)
    return nested


def _copy(value: Any) -> Any:
    """A copy of sections, so that what belongs to the caller isn't changed."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in cast("dict[Any, Any]", value).items()}
    return value
