"""Properties as rules see them: plain values, unknowns included, read without ever raising.

A resource's properties are mappings, lists, texts, numbers, booleans and None. What can't be known
(a preview) or can't be read (an encrypted secret of an exported state) is an `Unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeGuard

from falaj.wire.documents import is_mapping

Path = tuple[str | int, ...]
#: Letters of a value that a reason repeats.
_LONGEST: Final = 100
#: What is neither a mapping nor a list, and is told at once: most values are.
_SCALARS: Final = (str, bytes, int, float, type(None))


class Unknown:
    """A value that is there, but not to be seen; `reason` completes the sentence "it …"."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __repr__(self) -> str:
        return f"Unknown({self.reason!r})"

    def __bool__(self) -> bool:
        raise TypeError("an unknown value is neither true nor false: test for it first")


class Absent:
    """The one value that stands for a property that isn't given (or is null)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False


UNKNOWN: Final = Unknown("can't be known during preview")
REDACTED: Final = Unknown("is a secret that can't be read here")
ABSENT: Final = Absent()


def is_unknown(value: object) -> TypeGuard[Unknown]:
    """Whether a value can't be seen."""
    return isinstance(value, Unknown)


def holds_unknown(value: Any) -> bool:
    """Whether a value can't be seen, or has such a value at any depth."""
    if isinstance(value, _SCALARS):
        return False
    if is_mapping(value):
        return any(holds_unknown(each) for each in value.values())
    if is_list(value):
        return any(holds_unknown(each) for each in value)
    return isinstance(value, Unknown)


def is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether a value is a list, which a text is not."""
    return not isinstance(value, _SCALARS) and isinstance(value, Sequence)


def is_true(value: object) -> bool:
    """Whether a value says yes: True, or a text that providers read as one."""
    return value is True or (isinstance(value, str) and value.strip().lower() == "true")


def is_false(value: object) -> bool:
    """Whether a value says no in so many words; absence is neither."""
    return value is False or (isinstance(value, str) and value.strip().lower() == "false")


def text(value: object) -> str:
    """The value where it is a text, without space around it; empty for anything else."""
    return value.strip() if isinstance(value, str) else ""


def scalar(value: object) -> str:
    """A value as it is compared: ``true``, ``12``, ``disabled``; empty for what is no scalar.

    In lower case and without space around it.
    """
    if isinstance(value, bool | int | float):
        return str(value).lower()
    return text(value).lower()


def format_value(value: object) -> str:
    """A value as a reason names it, never more than a person reads. Not for what may be secret."""
    if isinstance(value, Unknown):
        return "unknown"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        given = " ".join(value.split()) or "empty"
        return given if len(given) <= _LONGEST else given[: _LONGEST - 1] + "…"
    if is_mapping(value) or is_list(value):
        return "a mapping" if is_mapping(value) else "a list"
    return str(value)[:_LONGEST]


def number(value: object) -> float | None:
    """The value where it is a number, or a text of one; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return None
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def items(value: object) -> list[Any]:
    """The value as a list: itself where it is one, nothing where absent, else one item."""
    if is_list(value):
        return list(value)
    return [] if value is None or value is ABSENT else [value]


def get(value: object, path: str) -> Any:
    """What is at a path of keys (``a.b``), or ABSENT; an Unknown where one is met on the way.

    A list of exactly one item is read through: SDKs differ in whether such a property is a list.
    """
    here: Any = value
    for key in path.split("."):
        if is_list(here) and len(here) == 1:
            here = here[0]
        if isinstance(here, Unknown):
            return here
        here = here.get(key, ABSENT) if is_mapping(here) else ABSENT
    return ABSENT if here is None else here


def select(value: object, path: str, *, absent: bool = False) -> Iterator[tuple[str, Any]]:
    """Every value at a path of keys, through all lists on the way, with its own path.

    Args:
        value: properties, or a part of them.
        path: keys with dots, as ``rules.destination.bucket``; lists are gone through wherever
            they stand, so none is written.
        absent: also yield ``(path, ABSENT)`` for each parent that lacks the last key; a parent
            that isn't there either yields nothing, unless it is the value itself.

    Yields:
        Paths as ``rules[0].destination.bucket`` with the value; an Unknown that is met on the way
        is yielded with its own, shorter path.
    """
    yield from _select(value, path.split("."), (), absent)


def _select(here: Any, keys: Sequence[str], path: Path, absent: bool) -> Iterator[tuple[str, Any]]:
    if isinstance(here, Unknown):
        yield format_path(path), here
    elif is_list(here):
        for index, each in enumerate(here):
            yield from _select(each, keys, (*path, index), absent)
    elif not keys:
        if here is not None:
            yield format_path(path), here
        elif absent:
            yield format_path(path), ABSENT
    elif is_mapping(here):
        key, rest = keys[0], keys[1:]
        if here.get(key) is not None:
            yield from _select(here[key], rest, (*path, key), absent)
        elif absent and not rest:
            yield format_path((*path, key)), ABSENT


def leaves(value: object, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value that holds no other, with its path; unknowns and empty holders included."""
    if is_mapping(value) and value:
        for key, each in value.items():
            yield from leaves(each, (*path, str(key)))
    elif is_list(value) and len(value):
        for index, each in enumerate(value):
            yield from leaves(each, (*path, index))
    else:
        yield path, value


_PLAIN_KEY: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")


def format_path(path: Path) -> str:
    """A path as people read it: ``rules[0].destination``, ``tags["falaj:owner"]``."""
    path_text = ""
    for part in path:
        if isinstance(part, int):
            path_text += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            path_text += f".{part}" if path_text else part
        else:
            path_text += f'["{part}"]'
    return path_text
