"""What pydantic refused, as findings: what was given, what is allowed, what would mend it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from falaj.components.nearest import nearest
from falaj.stacks.settings.given import Given
from falaj.stacks.settings.problems import (
    Action,
    Drop,
    Finding,
    Path,
    Put,
    Rename,
    format_value,
    is_secret,
)
from falaj.stacks.settings.scalars import decimal, written
from falaj.stacks.settings.shapes import (
    Anything,
    ByName,
    Either,
    Key,
    Keys,
    Number,
    Shape,
    at,
    below,
    choices,
    describe,
    example,
    key_of_model,
    keys_of,
    section_at,
    takes,
)
from falaj.stacks.settings.suggestions import closest, instead, meant

_PLAIN_TEXT = "settings are read before anything is decrypted: write it as plain text"


def refused(error: ValidationError, model: type[BaseModel], own: Any) -> list[Finding]:
    """One finding for each place that was refused.

    Args:
        error: what pydantic says.
        model: what the stack's values were to be.
        own: the values.
    """
    by_path: dict[Path, ErrorDetails] = {}
    for problem in error.errors(include_url=False, include_context=False):
        by_path.setdefault(_path(problem["loc"], model, own), problem)
    whole = Keys(model)
    found = {
        path: _finding(path, problem, model, own)
        for path, problem in by_path.items()
        # Of several shapes the one that got furthest was meant.
        if not (isinstance(at(whole, path), Either) and any(_is_below(e, path) for e in by_path))
    }
    return [
        each
        for each in _each_name_once(found.values())
        if by_path[each.path]["type"] != "missing" or each.path not in _misspelt(found.values())
    ]


def _misspelt(findings: Iterable[Finding]) -> set[Path]:
    """Keys that are there under the names that some findings correct: they aren't missing."""
    return {
        (*first.path[:-1], first.name)
        for each in findings
        if each.actions and isinstance(first := each.actions[0], Rename)
    }


def _each_name_once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Findings of which no two give keys of a section the same name."""
    taken: set[Path] = set()
    for each in findings:
        actions: list[Action] = []
        for action in each.actions:
            if isinstance(action, Rename) and (*action.path[:-1], action.name) in taken:
                continue
            actions.append(action)
        yield dataclasses.replace(each, actions=tuple(actions))
        if actions and isinstance(actions[0], Rename):
            taken.add((*actions[0].path[:-1], actions[0].name))


def _is_below(path: Path, other: Path) -> bool:
    return len(path) > len(other) and path[: len(other)] == other


def encrypted(own: Any, given: Given) -> list[Finding]:
    """Values that are encrypted in the file, or that the engine has decrypted."""
    paths = [path for path, key in given.own() if key in given.secrets]
    paths += [path for path in _secrets(own, ()) if path not in paths]
    return [Finding(path, f"given an encrypted value; {_PLAIN_TEXT}") for path in paths]


def _secrets(value: Any, path: Path) -> Iterator[Path]:
    if is_secret(value):
        yield path
    elif isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            yield from _secrets(inner, (*path, key))
    elif isinstance(value, list):
        for position, inner in enumerate(cast("list[Any]", value)):
            yield from _secrets(inner, (*path, position))


def unclear(given: Given, model: type[BaseModel]) -> list[Finding]:
    """What stands without quotes and is read as something else than it looks like.

    Keys that are no text, and keys of the engine's own level without a value: it hands on an
    empty text for them.
    """
    whole = Keys(model)
    found = [
        Finding(path, "the key is no text; put it in quotes", (Rename(path, key.text),), True)
        for path, key in given.key_scalars()
        if not key.quote
        and not isinstance(key.value, str)
        # Another name wouldn't make it a key where only certain ones are.
        and at(whole, (*path[:-1], key.text)) is not None
    ]
    tops = {path for path, _ in given.own()}
    for path, scalar in given.scalars():
        if scalar.value is None and path in tops:
            said = "given nothing; write a value, or leave the key out"
            found.append(Finding(path, said, (Drop(path),)))
        shape = at(whole, path)
        if shape is None or scalar.quote:
            continue
        numeric = any(isinstance(each, Number | Anything) for each in choices(shape))
        if scalar.unclear:
            number = decimal(scalar.text) if numeric else None
            value = scalar.text if number is None else number
            hint = _quotes(shape, scalar.text) if number is None else f"write {written(number)}"
            said = f"given {scalar.text} without quotes, {scalar.unclear}; {hint}"
        elif scalar.loses and not numeric:
            said = (
                f"given {scalar.text} without quotes, read as the number "
                f"{format_value(scalar.value)}; {_quotes(shape, scalar.text)}"
            )
            value = scalar.text
        else:
            continue
        if isinstance(value, str):
            value = next(iter(allowed_here(shape, (value, *meant(shape, value)))), value)
        found.append(Finding(path, said, (Put(path, value),)))
    return found


def _quotes(shape: Shape, text: str) -> str:
    """What to do about a text that lacks its quotes."""
    return "put it in quotes" if takes(shape, text) else f"allowed: {describe(shape)}"


def value_at(own: Any, path: Path) -> Any:
    """The value at a path of plain values; None where there is none."""
    here = own
    for part in path:
        if isinstance(here, dict):
            here = cast("dict[Any, Any]", here).get(part)
        elif isinstance(here, list) and isinstance(part, int) and 0 <= part < len(here):
            here = cast("list[Any]", here)[part]
        else:
            return None
    return here


def allowed_here(shape: Shape, values: Iterable[Any]) -> Iterator[Any]:
    """Those of some values that a shape really takes."""
    return (value for value in values if takes(shape, value))


def unknown_key(path: Path, model: type[BaseModel]) -> Finding:
    """A key that a section doesn't have."""
    names = [key.name for key in keys_of(model)]
    near = nearest(path[-1], names) or [name for name in [closest(path[-1], names)] if name]
    hint = f"; did you mean {near[0]}?" if near else ""
    actions: tuple[Action, ...] = (*(Rename(path, each) for each in near), Drop(path))
    said = f"unknown key{hint}\n  allowed here: {', '.join(sorted(names))}"
    return Finding(path, said, actions, at_key=True)


def _finding(path: Path, problem: ErrorDetails, model: type[BaseModel], own: Any) -> Finding:
    whole = Keys(model)
    if problem["type"] == "extra_forbidden":
        return unknown_key(path, section_at(whole, path[:-1]) or model)
    key = _key(whole, path)
    shape = at(whole, path) or Anything()
    if problem["type"] == "missing":
        value = key.example if key and key.example else example(shape, str(path[-1]))
        return Finding(path, f"missing; allowed: {describe(shape)}", (Put(path, value),))
    named = at(whole, path[:-1])
    if problem["loc"][-1] == "[key]":
        return _wrong_name(path, cast("ByName", named))
    given = value_at(own, path)
    values = allowed_here(shape, instead(key, shape, given, str(path[-1])))
    actions: list[Action] = [Put(path, value) for value in values]
    if isinstance(path[-1], int) or (key is not None and not key.required):
        actions.append(Drop(path))
    near = next(iter(allowed_here(shape, meant(shape, given))), None)
    hint = f"; did you mean {near}?" if isinstance(near, str) and isinstance(given, str) else ""
    return Finding(
        path, f"given {format_value(given)}; allowed: {describe(shape)}{hint}", tuple(actions)
    )


def _wrong_name(path: Path, named: ByName) -> Finding:
    """A name of an entry, such as a pool's, that isn't of the form."""
    names = list(allowed_here(named.names, instead(None, named.names, path[-1])))
    return Finding(
        path,
        f"given the name {format_value(path[-1])}; allowed: {describe(named.names)}",
        tuple(Rename(path, str(name)) for name in names),
        at_key=True,
    )


def _key(whole: Shape, path: Path) -> Key | None:
    """The key that a path ends in; None for entries by name and for items."""
    section = section_at(whole, path[:-1]) if isinstance(path[-1], str) else None
    return key_of_model(section, str(path[-1])) if section else None


def _path(loc: Iterable[int | str], model: type[BaseModel], own: Any) -> Path:
    """Where the values have it: pydantic adds the names of branches, and marks wrong names."""
    path: Path = ()
    shape: Shape | None = Keys(model)
    for part in loc:
        if part == "[key]":
            continue
        inner = below(shape, part) if shape is not None else None
        here = value_at(own, path)
        known = inner is not None and (
            isinstance(part, int) or _written(shape, part) or not isinstance(shape, Keys)
        )
        present = isinstance(here, dict) and part in here
        if known or present:
            path = (*path, part if present else _written(shape, part) or part)
            shape = inner
    return path


def _written(shape: Shape | None, part: int | str) -> str:
    """A key as it is written, where pydantic says Python's name."""
    section = section_at(shape, ()) if shape is not None else None
    key = key_of_model(section, part) if section and isinstance(part, str) else None
    return key.name if key else ""
