"""What `typings/` says of libraries without types of their own: what it names is there."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "typings"
FILES = sorted(ROOT.rglob("*.pyi"))


def name_of(file: Path) -> str:
    """The module that a file describes."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def absent(tree: ast.AST, there: object, at: str) -> Iterator[str]:
    """What a description names that isn't there: definitions, parameters, attributes."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                found = getattr(there, name, None)
                if found is None:
                    yield f"{at}.{name}"
                elif isinstance(node, ast.ClassDef):
                    yield from absent(node, found, f"{at}.{name}")
                else:
                    try:
                        taken = inspect.signature(found).parameters
                    except ValueError:
                        continue  # written in another language, without names
                    if any(each.kind is each.VAR_KEYWORD for each in taken.values()):
                        continue
                    given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                    named = [each.arg for each in given if each.arg not in {*taken, "cls"}]
                    yield from (f"{at}.{name}({each})" for each in named)
            case ast.AnnAssign(target=ast.Name(id=name)) if isinstance(there, type):
                if not hasattr(there, name) and f"self.{name} = " not in inspect.getsource(there):
                    yield f"{at}.{name}"
            case ast.AnnAssign(target=ast.Name(id=name)) if not hasattr(there, name):
                yield f"{at}.{name}"
            case _:
                pass


def test_what_is_not_there_is_found() -> None:
    text = """
class JSONDecoder:
    parse_float: object
    parse_words: object
    def decode(self, s: str, words: bool) -> object: ...
def loads(s: str) -> object: ...
def speaks() -> None: ...
"""
    found = list(absent(ast.parse(text), importlib.import_module("json"), "json"))
    assert found == [
        "json.JSONDecoder.parse_words",
        "json.JSONDecoder.decode(words)",
        "json.speaks",
    ]


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_what_is_named_is_there(file: Path) -> None:
    name = name_of(file)
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert list(absent(tree, importlib.import_module(name), name)) == []
