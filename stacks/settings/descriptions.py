"""What each key means: the text below its field, in the settings or in a component's arguments.

Read from the source, and only where somebody asks: reading settings needs no description.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from falaj.stacks.settings.kinds import ALL
from falaj.stacks.settings.origins import by_keys, names_of
from falaj.stacks.settings.section import Section
from falaj.stacks.settings.shapes import Key, Keys, choices

_LITERAL: Final = re.compile(r"``([^`]+)``|`([^`]+)`")


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


@cache
def documented(kind: type) -> Mapping[str, str]:
    """The texts below the fields of a class, and of those that it is made from."""
    module = sys.modules.get(kind.__module__)
    node = _classes(str(module.__file__)).get(kind.__name__) if module else None
    if module is None or node is None:
        return {}
    found: dict[str, str] = {}
    # A TypedDict has forgotten what it is made from; its source has not.
    for base in node.bases:
        inherited = getattr(module, base.id, None) if isinstance(base, ast.Name) else None
        if isinstance(inherited, type):
            found |= documented(inherited)
    return found | dict(_fields(node))


def plain(text: str) -> str:
    """A docstring's text on one line, with quotes in place of its markup."""
    return _LITERAL.sub(lambda found: f"'{found[1] or found[2]}'", " ".join(text.split()))


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


@cache
def _classes(path: str) -> Mapping[str, ast.ClassDef]:
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, after in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            yield field.target.id, plain(inspect.cleandoc(after.value.value))
