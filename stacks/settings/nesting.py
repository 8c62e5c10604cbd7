"""Dotted keys: ``falaj:budget.monthlyUsd: 500`` is ``falaj:budget: {monthlyUsd: 500}``.

Prompts of ``pulumi new`` and lines of ``pulumi config set`` can only give keys at the top.
"""

from __future__ import annotations

from typing import Any, cast

from falaj.stacks.settings.given import Given
from falaj.stacks.settings.problems import Drop, Finding, Path, format_value, key_of


def nest(given: Given) -> tuple[dict[str, Any], list[Finding]]:
    """Falaj's own values with those of dotted keys where they belong; and what contradicts.

    A value that is given twice counts as the section says.
    """
    nested: dict[str, Any] = {}
    found: list[Finding] = []
    # Shorter keys first: a whole section is there before a dotted key adds to it.
    for path, key in sorted(given.own(), key=lambda pair: len(pair[0])):
        problem = _add(nested, path, given.values[key])
        if problem:
            found.append(Finding(path, problem + _lines(given, path), (Drop(path),), at_key=True))
    return nested, found


def _add(nested: dict[str, Any], path: Path, value: Any) -> str:
    """Put a value where it belongs; returns why it can't be, else nothing."""
    *way, last = path
    section = nested
    for depth, part in enumerate(way):
        inner = section.setdefault(str(part), {})
        if inner is None:
            inner = section[str(part)] = {}
        if not isinstance(inner, dict):
            return (
                f"{key_of(path[: depth + 1])} is given as {format_value(inner)}, a value without "
                "keys below it; remove one of the two"
            )
        section = cast("dict[str, Any]", inner)
    if str(last) in section:
        return "given twice, as a dotted key and inside a section; keep one of the two"
    section[str(last)] = _copy(value)
    return ""


def _lines(given: Given, path: Path) -> str:
    """Which lines contradict each other, where files say them."""
    places = [
        home.document.place(home.offset)
        for length in range(1, len(path))
        if (home := given.home(path[:length]))
    ]
    return f" (the other is at {places[0]})" if places else ""


def _copy(value: Any) -> Any:
    """A copy of sections, so that what belongs to the caller isn't changed."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [_copy(item) for item in cast("list[Any]", value)]
    return value
