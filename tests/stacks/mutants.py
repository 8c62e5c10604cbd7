"""Wrong copies of a resource's inputs: one mistake in each, of the kinds that people make."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.sandbox.schema import types
from wire import Unknown

#: No service has a value like it.
NONSENSE = "falaj-nonsense"


@dataclass(frozen=True)
class Mutant:
    """A resource's inputs with one mistake."""

    kind: str
    """``misspelt``, ``missing``, ``type`` or ``enum``."""
    path: str
    inputs: dict[str, Any]


def mutants(
    inputs: Mapping[str, Any], shape: types.ObjectType, objects: Mapping[str, types.ObjectType]
) -> Iterator[Mutant]:
    """Every mutant of the inputs of a resource of that shape."""
    for path, key, kind, value in _mistakes(inputs, shape, objects, ()):
        changed = copy.deepcopy(dict(inputs))
        holder: Any = changed
        for step in path:
            holder = holder[step]
        if kind == "misspelt":
            holder[f"{key}x"] = holder.pop(key)
        elif kind == "missing":
            del holder[key]
        else:
            holder[key] = value
        shown = ".".join(map(str, (*path, key)))
        yield Mutant(kind, shown, changed)


Mistake = tuple[tuple[str | int, ...], str | int, str, Any]


def _mistakes(
    value: Mapping[str, Any],
    shape: types.ObjectType,
    objects: Mapping[str, types.ObjectType],
    path: tuple[str | int, ...],
) -> Iterator[Mistake]:
    for key, inner in value.items():
        found = shape.properties.get(key)
        if found is None or inner is None:
            continue
        yield path, key, "misspelt", None
        if found.required:
            yield path, key, "missing", None
        yield from _below(inner, found.type, objects, path, key)


def _below(
    value: Any,
    kind: types.Type,
    objects: Mapping[str, types.ObjectType],
    path: tuple[str | int, ...],
    key: str | int,
) -> Iterator[Mistake]:
    if isinstance(value, Unknown):
        return
    if isinstance(kind, types.Either):
        named = [member for member in kind.members if isinstance(member, types.Reference)]
        choices = [member for member in kind.members if isinstance(member, types.Choice)]
        if choices:
            kind = choices[0]
        elif isinstance(value, Mapping) and len(named) == 1:
            kind = named[0]
        else:
            return
    if isinstance(kind, types.Choice):
        yield path, key, "enum", NONSENSE
    elif isinstance(kind, types.Reference) and isinstance(value, Mapping):
        yield path, key, "type", NONSENSE
        yield from _mistakes(value, objects[kind.name], objects, (*path, key))
    elif isinstance(kind, types.ListOf) and isinstance(value, list):
        yield path, key, "type", NONSENSE
        for index, item in enumerate(value):
            yield from _below(item, kind.item, objects, (*path, key), index)
    elif isinstance(kind, types.MapOf) and isinstance(value, Mapping):
        yield path, key, "type", NONSENSE
    elif isinstance(kind, types.Scalar) and kind.kind in ("integer", "number", "boolean"):
        yield path, key, "type", {"not": "a scalar"}
    elif isinstance(kind, types.Scalar) and kind.kind == "string":
        yield path, key, "type", {"not": "a text"}
