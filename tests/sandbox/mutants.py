"""Small mistakes in a resource's inputs, as people make them: to count which ones are caught."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from falaj.sandbox import property_types
from falaj.sandbox.schema import Tables
from falaj.wire import SIGNATURE, Unknown

MISSPELT = "misspelt property"
MISSING = "missing required property"
WRONG_CHOICE = "wrong value of a list"
WRONG_TYPE = "wrong type"


@dataclass(frozen=True)
class Mutant:
    """Inputs with one mistake: of which kind, and at which property."""

    kind: str
    path: str
    inputs: Mapping[str, Any]


def mutants(tables: Tables, token: str, inputs: Mapping[str, Any]) -> Iterator[Mutant]:
    """Every mutant of a resource's inputs, at any depth; free keys (tags) have no spelling."""
    found = tables.resource(token)
    assert found is not None, token
    for kind, steps, change in _object(tables, found.inputs, inputs, ()):
        mutated = copy.deepcopy(dict(inputs))
        place: Any = mutated
        for step in steps[:-1]:
            place = place[step]
        change(place, steps[-1])
        yield Mutant(kind, "/".join(map(str, steps)), mutated)


def _misspell(place: Any, key: Any) -> None:
    # The last two letters change places; doubled where that would change nothing.
    swapped = key[:-2] + key[-1] + key[-2]
    place[swapped if swapped != key else key + key[-1]] = place.pop(key)


def _drop(place: Any, key: Any) -> None:
    del place[key]


def _to(value: Any) -> Any:
    def change(place: Any, key: Any) -> None:
        place[key] = value

    return change


def _object(
    tables: Tables,
    kind: property_types.ObjectType,
    given: Mapping[str, Any],
    steps: tuple[Any, ...],
) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    for name, value in given.items():
        known = kind.properties.get(name)
        if known is None or value is None or name.startswith("__"):
            continue
        where = (*steps, name)
        yield MISSPELT, where, _misspell
        if known.required:
            yield MISSING, where, _drop
        yield from _value(tables, known.type, value, where)


def _value(
    tables: Tables, kind: property_types.Type, value: Any, steps: tuple[Any, ...]
) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    if isinstance(value, Unknown) or kind == property_types.ANY:
        return
    match kind:
        case property_types.Choice(_, _, is_open):
            if not is_open:
                yield WRONG_CHOICE, steps, _to(f"{value}x")
            yield WRONG_TYPE, steps, _to([])
        case property_types.Scalar("string"):
            yield WRONG_TYPE, steps, _to(5)
        case property_types.Scalar():
            yield WRONG_TYPE, steps, _to("five")
        case property_types.ListOf(item):
            yield WRONG_TYPE, steps, _to("one")
            for index, entry in enumerate(value):
                yield from _value(tables, item, entry, (*steps, index))
        case property_types.MapOf(item):
            yield WRONG_TYPE, steps, _to("one")
            for key, entry in value.items():
                yield from _value(tables, item, entry, (*steps, key))
        case property_types.Reference(name) if (
            isinstance(value, Mapping) and SIGNATURE not in value
        ):
            yield WRONG_TYPE, steps, _to("one")
            yield from _object(tables, tables.objects[name], value, steps)
        case _:
            pass
