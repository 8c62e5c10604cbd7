"""What arguments mean: the texts below the fields of their classes, read from the source."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, SupportsIndex, TypeVar, is_typeddict

from falaj.components.specification.arguments import SameAs, arguments_of, needed_of

_LITERAL: Final = re.compile(r"``([^`]+)``|`([^`]+)`")
_WRAPPERS: Final = ("NotRequired", "Required")
_WIDTH: Final = 88
_IN: Final = "    "
_Kind = TypeVar("_Kind")


def described(kind: _Kind) -> _Kind:
    """Give a class of arguments a docstring that has each of them, for `help` and `pydoc`.

    A `TypedDict` shows only names and types there, cut to a line. The source is read when somebody
    asks for the text.
    """
    text = inspect.cleandoc(getattr(kind, "__doc__", None) or "")
    # Classes have no such setting for the checker; every class takes one.
    setattr(kind, "__doc__", _Text(text, kind))  # noqa: B010
    return kind


class _Text(str):
    """A docstring that is longer where it is shown: `inspect.cleandoc` asks for its tabs first."""

    __slots__ = ("_kind",)
    _kind: Any

    def __new__(cls, text: str, kind: Any) -> _Text:
        made = super().__new__(cls, text)
        made._kind = kind
        return made

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        lines = [str(self), ""]
        needs = needed_of(self._kind) if is_typeddict(self._kind) else ()
        for name, each in _fields(self._kind).items():
            needed = ", needed" if name in needs else ""
            lines.append(f"{name}: {each.type}{needed}")
            lines += textwrap.wrap(
                _with_rule(self._kind, name, each.text), _WIDTH,
                initial_indent=_IN, subsequent_indent=_IN, break_on_hyphens=False,
                break_long_words=False,
            )  # fmt: skip
        return "\n".join(lines).expandtabs(tabsize)


@dataclass(frozen=True)
class _Field:
    type: str
    """As the source has it: the object would show what stands behind ``Input``."""
    text: str


def documented(kind: type) -> Mapping[str, str]:
    """The texts below the fields of a class, and of those that it is made from."""
    return {name: each.text for name, each in _fields(kind).items() if each.text}


def explained(kind: type) -> Mapping[str, str]:
    """As `documented`, with what each argument allows and what it is when it is left out."""
    return {name: _with_rule(kind, name, text) for name, text in documented(kind).items()}


def _with_rule(kind: type, name: str, text: str) -> str:
    argument = arguments_of(kind).get(name) if is_typeddict(kind) else None
    return f"{text} {argument.rule}".strip() if argument else text


@cache
def _fields(kind: type) -> Mapping[str, _Field]:
    module = sys.modules.get(kind.__module__)
    node = _classes(str(module.__file__)).get(kind.__name__) if module else None
    if module is None or node is None:
        return {}
    found: dict[str, _Field] = {}
    # A TypedDict has forgotten what it is made from; its source has not.
    for base in node.bases:
        inherited = getattr(module, base.id, None) if isinstance(base, ast.Name) else None
        if isinstance(inherited, type):
            found |= _fields(inherited)
    for name, own in _own_fields(node):
        # An argument that is stated again, with another default, means the same.
        found[name] = own if own.text or name not in found else replace(own, text=found[name].text)
    if is_typeddict(kind):
        stated = arguments_of(kind)
        for name in {name for name, _ in _own_fields(node)}:
            if (same := stated[name].same_as) is not None:
                found[name] = replace(found[name], text=told_with(same, found[name].text))
    return found


def told_with(same: SameAs, further: str) -> str:
    """What an argument means that is stated elsewhere, and what else is said of it here."""
    return f"{documented(same.arguments)[same.name]} {further}".strip()


def plain(text: str) -> str:
    """A docstring's text on one line, with quotes in place of its markup."""
    return _LITERAL.sub(lambda found: f"'{found[1] or found[2]}'", " ".join(text.split()))


@cache
def _classes(path: str) -> Mapping[str, ast.ClassDef]:
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _own_fields(node: ast.ClassDef) -> Iterator[tuple[str, _Field]]:
    for field, after in itertools.zip_longest(node.body, node.body[1:]):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        text = ""
        if (
            isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            text = plain(inspect.cleandoc(after.value.value))
        yield field.target.id, _Field(ast.unparse(_Bare().visit(field.annotation)), text)


class _Bare(ast.NodeTransformer):
    """An annotation without what is told in words: limits, and whether it is needed."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        inner: ast.expr | None = None
        match node:
            case ast.Subscript(ast.Name("Annotated"), ast.Tuple([first, *_])):
                inner = first
            case ast.Subscript(ast.Name(name), only) if name in _WRAPPERS:
                inner = only
            case _:
                pass
        if inner is not None:
            return self.visit(inner)
        self.generic_visit(node)
        return node
