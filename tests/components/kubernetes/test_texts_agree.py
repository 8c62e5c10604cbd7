"""Texts of arguments in a cluster say the bounds and defaults that their checks have.

Arguments of the clouds' components, and most in a cluster, have both in their annotation, and
nowhere else (tests/stacks/test_stated_once.py). The others are checked by calls such as
``errors.whole("replicas", given.get("replicas", 2), 2, 50)``, and their texts say the same to
readers: where both are plain, this holds them together.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import falaj.components.kubernetes

FOLDER = Path(falaj.components.kubernetes.__file__).parent
_NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
_BETWEEN = re.compile(rf"{_NUMBER} to {_NUMBER}")
_DEFAULT = re.compile(rf"Default: (?:``)?{_NUMBER}(?=``|[.;])")


@dataclass
class Stated:
    """What the code of one room says of its arguments, by name."""

    bounds: dict[str, set[tuple[float, float]]] = field(default_factory=lambda: defaultdict(set))
    defaults: dict[str, set[float]] = field(default_factory=lambda: defaultdict(set))
    texts: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def plain(text: str) -> float:
    return float(text.replace(",", ""))


def value(node: ast.expr, constants: dict[str, object]) -> float | None:
    found = node.value if isinstance(node, ast.Constant) else None
    if isinstance(node, ast.Name):
        found = constants.get(node.id)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return float(found) if is_number else None


def name_in(call: ast.Call) -> str:
    """The argument that a call is about; empty where it names none."""
    first = call.args[0] if call.args else None
    return str(first.value) if isinstance(first, ast.Constant) else ""


def read(tree: ast.Module, into: Stated) -> None:
    constants: dict[str, object] = {
        each.target.id: each.value.value
        for each in tree.body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and isinstance(each.value, ast.Constant)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="whole" | "number") | ast.Name(id="number")):
                numbers = [found for each in node.args[1:] if (found := value(each, constants))
                           is not None]  # fmt: skip
                if name_in(node) and len(numbers) > 1:
                    into.bounds[name_in(node)].add((numbers[-2], numbers[-1]))
            case ast.BoolOp(op=ast.Or(), values=[ast.Call(func=ast.Attribute(attr="get")) as got,
                                                 other]):  # fmt: skip
                if (found := value(other, constants)) is not None:
                    into.defaults[name_in(got)].add(found)
            case ast.ClassDef():
                into.texts += described(node)
            case _:
                pass
        match node:
            case ast.Call(func=ast.Attribute(attr="get"), args=[_, other]):
                if (found := value(other, constants)) is not None:
                    into.defaults[name_in(node)].add(found)
            case _:
                pass


def described(kind: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Names and texts of a class's fields."""
    for one, text in zip(kind.body, kind.body[1:], strict=False):
        match one, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(value=str(said))):
                yield name, " ".join(said.split())
            case _:
                pass


def differences(stated: Stated) -> tuple[int, list[str]]:
    """How many texts were held to their check, and those that differ from it."""
    held, found = 0, list[str]()
    for name, text in stated.texts:
        bounds = {(plain(low), plain(high)) for low, high in _BETWEEN.findall(text)}
        if bounds and stated.bounds.get(name):
            held += 1
            if not bounds & stated.bounds[name]:
                found.append(f"{name}: {text!r}, checked for {sorted(stated.bounds[name])}")
        default = _DEFAULT.search(text)
        if default and stated.defaults.get(name):
            held += 1
            if plain(default[1]) not in stated.defaults[name]:
                found.append(f"{name}: {text!r}, taken as {sorted(stated.defaults[name])}")
    return held, found


def rooms() -> dict[str, Stated]:
    """A package's modules speak of one component; add-ons stand in one package, each alone."""
    found: dict[str, Stated] = defaultdict(Stated)
    for path in sorted(FOLDER.rglob("*.py")):
        parts = path.relative_to(FOLDER).parts
        room = parts[0] if parts[0] != "addons" else "/".join(parts)
        read(ast.parse(path.read_text(encoding="utf-8")), found[room])
    return found


def test_texts_say_what_checks_do() -> None:
    problems = [problem for each in rooms().values() for problem in differences(each)[1]]
    assert problems == []


def test_a_text_that_says_another_bound_or_default_is_found() -> None:
    stated = Stated()
    read(
        ast.parse(
            "class GatewayArgs(TypedDict):\n"
            "    replicas: NotRequired[int]\n"
            '    """Fewest proxies, 2 to 50. Default: 2."""\n'
            "    most: NotRequired[int]\n"
            '    """Most proxies, 1 to 1,000. Default: 10."""\n'
            'errors.whole("replicas", given.get("replicas", 3), 2, 60)\n'
            'number("most", given.get("most") or 10, 1, 1_000, errors)\n'
        ),
        stated,
    )
    held, found = differences(stated)
    assert held == 4
    assert [each.partition(":")[0] for each in found] == ["replicas", "replicas"]
