"""Operations on properties: defaults, nulls, and what differs between two sets of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeGuard

from falaj.sandbox import property_types
from falaj.sandbox.checker import join
from falaj.sandbox.clouds.model import Properties
from falaj.wire import UNKNOWN, Unknown
from falaj.wire.documents import is_mapping, is_sequence
from falaj.wire.values import ChangeKind, PropertyChange


def filled(given: Properties, defaults: Properties) -> dict[str, Any]:
    """What is given, with defaults where nothing is, at any depth of objects."""
    result = dict(given)
    for name, value in defaults.items():
        own = given.get(name)
        if own is None:
            result[name] = value
        elif is_mapping(own) and is_mapping(value):
            result[name] = filled(own, value)
    return result


def leaves(values: Properties, path: str = "") -> dict[str, str]:
    """Every value that is no object, in a comparable form, by its path."""
    found: dict[str, str] = {}
    for name, value in values.items():
        where = f"{path}/{name}"
        if is_mapping(value):
            found |= leaves(value, where)
        else:
            found[where] = repr(value)
    return found


def without_nulls(values: Properties) -> dict[str, Any]:
    """Properties without those that are null, at any depth: to a service they aren't there."""
    return {name: _inside(value) for name, value in values.items() if value is not None}


def _inside(value: Any) -> Any:
    if is_mapping(value):
        return without_nulls(value)
    if is_sequence(value):
        return [_inside(entry) for entry in value]
    return value


def plausible(kind: property_types.Type, text: str) -> Any:
    """A value for an output that always has one, where the model gives none."""
    found: Any = None
    match kind:
        case property_types.Choice(_, values, _):
            found = values[0]
        case property_types.ListOf():
            found = []
        case property_types.MapOf() | property_types.Reference():
            found = {}
        case property_types.Scalar("boolean"):
            found = False
        case property_types.Scalar("integer" | "number"):
            found = 0
        case property_types.Scalar("string"):
            found = text
        case _:
            pass
    return found


def previewed(inputs: Properties) -> dict[str, Any]:
    """Inputs as a preview gives them back: a list of identities is a mapping in outputs.

    It is the one property that azure-native's SDK takes in another form than it gives it, in
    every type that has an ``identity``; who the identities are is known once they are there.
    """
    found = dict(inputs)
    identity = inputs.get("identity")
    if is_mapping(identity) and is_sequence(identity.get("userAssignedIdentities")):
        found["identity"] = {**identity, "userAssignedIdentities": UNKNOWN}
    return found


# Differences, property by property.

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
    elif is_mapping(old) and is_mapping(new):
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
