"""Every key that a stack file may hold: what it means, what it takes, what it is without.

Made from the settings themselves and the texts below their fields, so that nothing is said twice.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from pydantic import BaseModel

from falaj.components.nearest import nearest
from falaj.components.specification.arguments import SameAs
from falaj.components.specification.described import documented, plain, told_with
from falaj.stacks.errors import StackError
from falaj.stacks.settings.load import ALL
from falaj.stacks.settings.origins import by_keys, names_of
from falaj.stacks.settings.problems import NAMESPACE
from falaj.stacks.settings.section import Section
from falaj.stacks.settings.shapes import (
    NAME,
    ByName,
    Items,
    Key,
    Keys,
    choices,
    describe,
    keys_of,
    shown_default,
)

# Descriptions: the text below a key's field, in the settings or in a component's arguments. They
# are read from the source, and only where somebody asks: reading settings needs none.


def description(model: type[BaseModel], key: Key) -> str:
    """What a key of a section means, as one paragraph of plain text; empty where nobody says."""
    return by_keys(names_of(*ALL.values()), _described(model, key))


def _described(model: type[BaseModel], key: Key) -> str:
    field = model.model_fields[key.attribute]
    if field.description:
        return field.description
    same = next((each for each in field.metadata if isinstance(each, SameAs)), None)
    for source in _sources(model, key.attribute):
        if text := documented(source).get(key.attribute):
            return told_with(same, text) if same and issubclass(source, Section) else text
    if same is not None:
        return told_with(same, "")
    section = next((each.model for each in choices(key.shape) if isinstance(each, Keys)), None)
    return purpose(section) if section else ""


def purpose(model: type[BaseModel]) -> str:
    """What a section is for: the first paragraph of its docstring."""
    return plain((inspect.getdoc(model) or "").partition("\n\n")[0])


def _sources(model: type[BaseModel], field: str) -> Iterator[type]:
    """Where the text of a section's field may be: its own before the component's."""
    for each in model.__mro__:
        if issubclass(each, BaseModel) and each is not BaseModel:
            yield each
    for each in model.__mro__:
        has_it = issubclass(each, Section) and field in each.model_fields
        arguments = each.__dict__.get("described_by") if has_it else None
        if isinstance(arguments, str):
            # Named by its path, so that a stack that needs no component loads none.
            module, _, name = arguments.rpartition(".")
            arguments = getattr(importlib.import_module(module), name)
        if arguments is not None:
            yield arguments


_INDEX: Final = re.compile(r"\[\d*\]")


@dataclass(frozen=True)
class Row:
    """One key."""

    path: tuple[str, ...]
    """Its parts; `NAME` stands for a name that the stack chooses, ``[]`` ends a list."""
    kinds: tuple[str, ...]
    """Kinds of stacks that have it."""
    meaning: str
    allowed: str
    default: str
    """Empty where leaving it out means more than a value; the meaning says what, then."""
    required: bool
    by_name: bool = False
    """Whether values stand below it by names of the stack's own, which may have dots."""

    @property
    def key(self) -> str:
        """The key as it is written: ``falaj:gpuPools.NAME.maxNodes``."""
        return f"{NAMESPACE}:{'.'.join(self.path)}"


def rows(asked: str = "") -> list[Row]:
    """Keys in the order of the kinds of stacks, each once.

    Args:
        asked: a kind of stack (``smb``), a key (``falaj:gpuPools.h200.maxNodes``), or any part of
            one (``gpuPools``, ``maxNodes``). A word that is both means the kind; a key is told
            from it by its namespace (``falaj:cluster``). Default: all.

    Raises:
        StackError: nothing matches; the message has what is near.
    """
    everything = _all()
    if not asked:
        return list(everything)
    if asked in ALL:
        return [row for row in everything if asked in row.kinds]
    parts = tuple(_INDEX.sub("[]", asked).removeprefix(f"{NAMESPACE}:").casefold().split("."))
    whole = asked.startswith(f"{NAMESPACE}:")
    found = [row for row in everything if _is_at(row, parts, 0)]
    if not found and whole:
        found = [
            row for row in everything if row.by_name and _is_at(row, parts[: len(row.path)], 0)
        ]
    if not found and not whole:
        found = [
            row
            for row in everything
            if any(_is_at(row, parts, start) for start in range(1, len(row.path)))
        ]
    if not found and not whole:
        found = [row for row in everything if asked.casefold() in row.key.casefold()]
    if not found:
        raise StackError(_nothing(asked))
    return found


def _is_at(row: Row, parts: tuple[str, ...], start: int) -> bool:
    """Whether a key has these parts one after another; what is below them belongs to them."""
    there = row.path[start : start + len(parts)]
    return len(there) == len(parts) and all(
        part in (own.casefold(), own.casefold().removesuffix("[]")) or (own == NAME and start == 0)
        for part, own in zip(parts, there, strict=True)
    )


def _nothing(asked: str) -> str:
    parts = dict.fromkeys(part for row in _all() for part in row.path if part != NAME)
    known = {each.casefold(): each for each in (*ALL, *parts)}
    last = asked.rpartition(".")[2].rpartition(":")[2]
    near = nearest(last.casefold(), known, most=3, alike=0.7)
    hint = f"; did you mean {' or '.join(known[each] for each in near)}?" if near else ""
    return (
        f"no key or kind of stack is called '{asked}'{hint}\n"
        f"  kinds of stacks: {', '.join(ALL)}; falaj settings lists all keys"
    )


@cache
def _all() -> tuple[Row, ...]:
    found: dict[tuple[tuple[str, ...], str, str, str], Row] = {}
    for kind, model in ALL.items():
        for row in _rows(model, (), kind):
            same = (row.path, row.meaning, row.allowed, row.default)
            before = found.get(same)
            found[same] = row if before is None else replace(before, kinds=(*before.kinds, kind))
    return tuple(found.values())


def _rows(model: type[BaseModel], prefix: tuple[str, ...], kind: str) -> Iterator[Row]:
    for key in keys_of(model):
        path = (*prefix, key.name)
        yield Row(
            path, (kind,), description(model, key), describe(key.shape),
            shown_default(key.default), key.required, _holds_values_by_name(key),
        )  # fmt: skip
        for section, way in sections_below(key, path):
            yield from _rows(section, way, kind)


def _holds_values_by_name(key: Key) -> bool:
    for shape in choices(key.shape):
        inner = shape
        while isinstance(inner, ByName):
            inner = inner.of
        if inner is not shape and not any(isinstance(each, Keys) for each in choices(inner)):
            return True
    return False


def sections_below(
    key: Key, path: tuple[str, ...]
) -> Iterator[tuple[type[BaseModel], tuple[str, ...]]]:
    """The sections that a key leads to, and their paths."""
    for shape in choices(key.shape):
        way = path
        inner = shape
        while isinstance(inner, ByName | Items):
            way = (*way, NAME) if isinstance(inner, ByName) else (*way[:-1], f"{way[-1]}[]")
            inner = inner.of
        for each in choices(inner):
            if isinstance(each, Keys):
                yield each.model, way
