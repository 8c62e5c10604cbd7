"""What differs between a resource's inputs and the wanted ones, property by property."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeGuard

from falaj.sandbox.checker import join
from falaj.wire import Unknown
from falaj.wire.values import ChangeKind, PropertyChange

_INDEX: Final = re.compile(r"\[\d+\]")


def compare(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    replacements: Collection[str] = frozenset(),
    ignored: Collection[str] = frozenset(),
) -> list[PropertyChange]:
    """Every property that differs, at the greatest depth where the difference can be told.

    Args:
        replacements: paths without indices (``rules.port``), a change at or below which replaces.
        ignored: paths of changes that don't count, as `ignore_changes` names them.
    """
    return [
        PropertyChange(path, kind, any(_is_at(_plain(path), each) for each in replacements))
        for path, kind in _objects(old, new, "")
        if not any(_is_at(path, each) or _is_at(_plain(path), each) for each in ignored)
    ]


def _objects(
    old: Mapping[str, Any], new: Mapping[str, Any], path: str
) -> Iterable[tuple[str, ChangeKind]]:
    for name in sorted({*old, *new}):
        if not name.startswith("__"):
            yield from _values(old.get(name), new.get(name), join(path, name))


def _values(old: Any, new: Any, path: str) -> Iterable[tuple[str, ChangeKind]]:
    if isinstance(old, Unknown) or isinstance(new, Unknown):
        yield path, "add" if old is None else "update"
    elif old is None or new is None:
        if old is not new:
            yield path, "add" if old is None else "delete"
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _objects(old, new, path)
    elif is_list(old) and is_list(new):
        for index in range(max(len(old), len(new))):
            before = old[index] if index < len(old) else None
            after = new[index] if index < len(new) else None
            yield from _values(before, after, f"{path}[{index}]")
    elif isinstance(old, bool) != isinstance(new, bool) or old != new:
        yield path, "update"


def is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """Whether it is a list, and no text, which is a sequence as well."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def _plain(path: str) -> str:
    return _INDEX.sub("", path)


def _is_at(path: str, place: str) -> bool:
    """Whether `path` is `place`, or inside it."""
    return path == place or path.startswith((f"{place}.", f"{place}["))
