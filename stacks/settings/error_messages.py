"""What a stack says and may not: what was given, what is allowed, what would mend it.

Loaded only where something is refused: most runs need none of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from falaj.components.catalogue.own_models import OWN_MODEL
from falaj.components.nearest import nearest
from falaj.stacks.settings.corrections import instead, meant
from falaj.stacks.settings.document import decimal, written
from falaj.stacks.settings.given import Given
from falaj.stacks.settings.problems import (
    Action,
    Drop,
    Finding,
    Put,
    Rename,
    format_value,
)
from falaj.stacks.settings.problems import Path as KeyPath
from falaj.stacks.settings.shapes import (
    AnyValue,
    ByName,
    Choice,
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
from falaj.stacks.settings.suggestions import closest
from falaj.wire.documents import is_sequence


def refused(error: ValidationError, model: type[BaseModel], own: Any) -> list[Finding]:
    """One finding for each place that was refused.

    Args:
        error: what pydantic says.
        model: what the stack's values were to be.
        own: the values.
    """
    by_path: dict[KeyPath, ErrorDetails] = {}
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


def _misspelt(findings: Iterable[Finding]) -> set[KeyPath]:
    """Keys that are there under the names that some findings correct: they aren't missing."""
    return {
        (*first.path[:-1], first.name)
        for each in findings
        if each.actions and isinstance(first := each.actions[0], Rename)
    }


def _each_name_once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Findings of which no two give keys of a section the same name."""
    taken: set[KeyPath] = set()
    for each in findings:
        actions: list[Action] = []
        for action in each.actions:
            if isinstance(action, Rename) and (*action.path[:-1], action.name) in taken:
                continue
            actions.append(action)
        yield dataclasses.replace(each, actions=tuple(actions))
        if actions and isinstance(actions[0], Rename):
            taken.add((*actions[0].path[:-1], actions[0].name))


def _is_below(path: KeyPath, other: KeyPath) -> bool:
    return len(path) > len(other) and path[: len(other)] == other


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
            message = "given nothing; write a value, or leave the key out"
            found.append(Finding(path, message, (Drop(path),)))
        shape = at(whole, path)
        if shape is None or scalar.quote:
            continue
        numeric = any(isinstance(each, Number | AnyValue) for each in choices(shape))
        if scalar.unclear:
            number = decimal(scalar.text) if numeric else None
            value = scalar.text if number is None else number
            hint = _quotes(shape, scalar.text) if number is None else f"write {written(number)}"
            message = f"given {scalar.text} without quotes, {scalar.unclear}; {hint}"
        elif scalar.loses and not numeric:
            message = (
                f"given {scalar.text} without quotes, read as the number "
                f"{format_value(scalar.value)}; {_quotes(shape, scalar.text)}"
            )
            value = scalar.text
        else:
            continue
        if isinstance(value, str):
            value = next(iter(allowed_here(shape, (value, *meant(shape, value)))), value)
        found.append(Finding(path, message, (Put(path, value),)))
    return found


def _quotes(shape: Shape, text: str) -> str:
    """What to do about a text that lacks its quotes."""
    return "put it in quotes" if takes(shape, text) else f"allowed: {describe(shape)}"


def value_at(own: Any, path: KeyPath) -> Any:
    """The value at a path of plain values; None where there is none."""
    here = own
    for part in path:
        if isinstance(here, Mapping):
            here = cast("Mapping[Any, Any]", here).get(part)
        elif is_sequence(here) and isinstance(part, int) and 0 <= part < len(here):
            here = here[part]
        else:
            return None
    return here


def allowed_here(shape: Shape, values: Iterable[Any]) -> Iterator[Any]:
    """Those of some values that a shape really takes."""
    return (value for value in values if takes(shape, value))


_IN_PODS: Final = frozenset({"trainingJobs", "sweeps", "pipelines"})
"""Sections in which people expect the keys that ``training`` has on one machine."""


def unknown_key(path: KeyPath, model: type[BaseModel]) -> Finding:
    """A key that a section doesn't have."""
    names = [key.name for key in keys_of(model)]
    if path[0] in _IN_PODS and path[-1] in OWN_MODEL:
        message = (
            "unknown key; a folder of code is trained on one machine (falaj:training) and doesn't "
            "travel to pods: build an image with your model and its program, and name them as "
            f"image and program of a training job\n  allowed here: {', '.join(sorted(names))}"
        )
        return Finding(path, message, (Drop(path),), at_key=True)
    near = nearest(path[-1], names) or [name for name in [closest(path[-1], names)] if name]
    hint = f"; did you mean {near[0]}?" if near else ""
    actions: tuple[Action, ...] = (*(Rename(path, each) for each in near), Drop(path))
    message = f"unknown key{hint}\n  allowed here: {', '.join(sorted(names))}"
    return Finding(path, message, actions, at_key=True)


def _finding(path: KeyPath, problem: ErrorDetails, model: type[BaseModel], own: Any) -> Finding:
    whole = Keys(model)
    if problem["type"] == "extra_forbidden":
        return unknown_key(path, section_at(whole, path[:-1]) or model)
    key = _key(whole, path)
    shape = at(whole, path) or AnyValue()
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


def _wrong_name(path: KeyPath, named: ByName) -> Finding:
    """A name of an entry, such as a pool's, that isn't of the form."""
    names = list(allowed_here(named.names, instead(None, named.names, path[-1])))
    return Finding(
        path,
        f"given the name {format_value(path[-1])}; allowed: {describe(named.names)}",
        tuple(Rename(path, str(name)) for name in names),
        at_key=True,
    )


def _key(whole: Shape, path: KeyPath) -> Key | None:
    """The key that a path ends in; None for entries by name and for items."""
    section = section_at(whole, path[:-1]) if isinstance(path[-1], str) else None
    return key_of_model(section, str(path[-1])) if section else None


def _path(loc: Iterable[int | str], model: type[BaseModel], own: Any) -> KeyPath:
    """Where the values have it: pydantic adds the names of branches, and marks wrong names."""
    path: KeyPath = ()
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


def wrong_choice(
    key: str, value: Any, allowed: tuple[str, ...], where: str = "", likeliest: str = ""
) -> Finding:
    """A word that isn't one of the allowed ones.

    Args:
        key: of the settings.
        value: as it was given; None where it wasn't.
        allowed: the words.
        where: what is said after ``allowed``.
        likeliest: what is proposed where none is near. Default: the first.
    """
    near = closest(value, allowed) if value else None
    hint = f"; did you mean {near}?" if near else ""
    message = f"given {format_value(value)}; allowed{where}: {describe(Choice(allowed))}{hint}"
    return Finding((key,), message, (Put((key,), near or likeliest or allowed[0]),))
