"""What each key means: the text below its field, in the settings or in a component's arguments.

Read from the source, and only where somebody asks: reading settings needs no description.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

from pydantic import BaseModel

from falaj.components.specification.described import documented, plain
from falaj.stacks.settings.kinds import ALL
from falaj.stacks.settings.origins import by_keys, names_of
from falaj.stacks.settings.section import Section
from falaj.stacks.settings.shapes import Key, Keys, choices


def description(model: type[BaseModel], key: Key) -> str:
    """What a key of a section means, as one paragraph of plain text; empty where nobody says."""
    return by_keys(names_of(*ALL.values()), _described(model, key))


def _described(model: type[BaseModel], key: Key) -> str:
    stated = model.model_fields[key.attribute].description
    if stated:
        return stated
    for source in _sources(model):
        if text := documented(source).get(key.attribute):
            return text
    section = next((each.model for each in choices(key.shape) if isinstance(each, Keys)), None)
    return purpose(section) if section else ""


def purpose(model: type[BaseModel]) -> str:
    """What a section is for: the first paragraph of its docstring."""
    return plain((inspect.getdoc(model) or "").partition("\n\n")[0])


def _sources(model: type[BaseModel]) -> Iterator[type]:
    """Where the texts of a section's fields are: its own before the component's."""
    for each in model.__mro__:
        if issubclass(each, BaseModel) and each is not BaseModel:
            yield each
    for each in model.__mro__:
        arguments = each.__dict__.get("described_by") if issubclass(each, Section) else None
        if isinstance(arguments, str):
            # Named by its path, so that a stack that needs no component loads none.
            module, _, name = arguments.rpartition(".")
            arguments = getattr(importlib.import_module(module), name)
        if arguments is not None:
            yield arguments
