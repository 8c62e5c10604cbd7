"""AWS's own description of its calls as a judge of what they are given.

The description is botocore's, the SDK's of AWS: which members a call has and needs, and which
values they take. `ParamValidator` judges types, required and unknown members and lower bounds, as
the SDK does before it sends a call; values of enumerations, patterns and upper bounds stand in the
description for the service alone, and are judged here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import botocore.session
from botocore.model import ListShape, MapShape, Shape, StringShape, StructureShape
from botocore.validate import ParamValidator

#: Names by which services' descriptions call the two halves of a tag.
_HALVES = (("Key", "Value"), ("key", "value"), ("TagKey", "TagValue"))
#: Classes of characters as Java writes them, beside those that Python has. Python's are a little
#: wider: what they refuse is refused by the service, too.
_CLASSES = (
    ("\\uD800\\uDC00-\\uDBFF\\uDFFF", "\\U00010000-\\U0010FFFF"),
    ("\\p{L}", "\\w"),
    ("\\p{N}", "\\d"),
    ("\\p{Z}", "\\s"),
    # This one stands by itself, not among others in brackets.
    ("\\p{Print}", "[ -~]"),
)


@cache
def _session() -> botocore.session.Session:
    return botocore.session.get_session()


@cache
def taken(name: str) -> StructureShape:
    """What a call takes, by the names of its service and itself: ``kms.CreateKey``."""
    service, _, call = name.partition(".")
    shape = _session().get_service_model(service).operation_model(call).input_shape
    assert isinstance(shape, StructureShape), f"{name} takes nothing"
    return shape


@cache
def _pattern(text: str) -> re.Pattern[str]:
    for java, python in _CLASSES:
        text = text.replace(java, python)
    # Java has flags anywhere, for the rest of their group.
    text = re.sub(r"^(\^?)(\(\?[a-z]\))", r"\2\1", text)
    return re.compile(re.sub(r"(?<=.)\(\?([a-z])\)([^()]*)", r"(?\1:\2)", text))


def _member(shape: StructureShape, name: str) -> str | None:
    """The member that a provider's name means: providers write plurals and cases of their own."""
    known = {each.lower(): each for each in shape.members}
    low = name.lower()
    for candidate in (low, low + "s", low.removesuffix("s"), low.removesuffix("es")):
        if candidate in known:
            return known[candidate]
    return None


@dataclass(frozen=True)
class _Leaf:
    """A provider's value, and where it stood."""

    path: str
    value: Any


def members(
    shape: StructureShape,
    values: Mapping[str, Any],
    names: Mapping[str, str],
    made: Mapping[str, Any],
    into: str = "",
) -> dict[str, Any]:
    """A provider's values in the form of a call's members.

    Members are found by name. What is called otherwise stands in names: the path of the member by
    the path of the value; an empty one puts the value's own members in its place. What isn't found
    keeps its name, for `problems` to report.

    Args:
        made: further values by the path of the member.
        into: the member into which all goes that names and made don't place.
    """
    tree: dict[str, Any] = {}
    _place(tree, shape, values, names, "", into=into)
    for path, value in made.items():
        # A path that no name stands for: these have the names of the call.
        _put(tree, path, _Leaf(f"={path}", value))
    return _filled(shape, tree, names)


def _place(
    tree: dict[str, Any],
    shape: StructureShape,
    values: Mapping[str, Any],
    names: Mapping[str, str],
    path: str,
    *,
    into: str = "",
) -> None:
    within = shape.members[into] if into else shape
    for name, value in values.items():
        here = f"{path}.{name}" if path else name
        target = names.get(here)
        if target == "":
            _place(tree, shape, value, names, here)
            continue
        if target is None:
            found = _member(within, name) or name
            target = f"{into}.{found}" if into else found
        _put(tree, target, _Leaf(here, value))


def _put(tree: dict[str, Any], path: str, leaf: _Leaf) -> None:
    *parents, last = path.split(".")
    for each in parents:
        tree = tree.setdefault(each, {})
    tree[last] = leaf


def _filled(shape: Shape | None, tree: Mapping[str, Any], names: Mapping[str, str]) -> Any:
    known = shape.members if isinstance(shape, StructureShape) else {}
    return {
        name: _arranged(known.get(name), each.value, names, each.path)
        if isinstance(each, _Leaf)
        else _filled(known.get(name), each, names)
        for name, each in tree.items()
    }


def _arranged(shape: Shape | None, value: Any, names: Mapping[str, str], path: str) -> Any:
    if isinstance(shape, StructureShape):
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if not isinstance(value, Mapping):
            # Attributes of EC2 that are on or off (AttributeBooleanValue).
            return {"Value": value} if list(shape.members) == ["Value"] else value
        tree: dict[str, Any] = {}
        _place(tree, shape, value, names, path)
        return _filled(shape, tree, names)
    if isinstance(shape, ListShape):
        member = shape.member
        if isinstance(value, Mapping) and isinstance(member, StructureShape):
            for key, half in _HALVES:
                if {key, half} == set(member.members):
                    return [{key: name, half: text} for name, text in value.items()]
        # A list of one at most is a value by itself to the provider.
        several = value if isinstance(value, list) else [value]
        return [_arranged(member, each, names, path) for each in several]
    if isinstance(shape, MapShape) and isinstance(value, list):
        # Each entry has its key beside its value.
        value = {each["key"]: next(each[name] for name in each if name != "key") for each in value}
    if isinstance(shape, MapShape) and isinstance(value, Mapping):
        return {key: _arranged(shape.value, each, names, path) for key, each in value.items()}
    return _scalar(shape, value)


def _scalar(shape: Shape | None, value: Any) -> Any:
    """Providers hold some numbers and truths as texts, and some texts as numbers."""
    kind = shape.type_name if shape else ""
    if isinstance(shape, StringShape) and isinstance(value, bool):
        return {True: "ENABLED", False: "DISABLED"}[value] if "ENABLED" in shape.enum else value
    if kind == "boolean" and value in ("true", "false"):
        return value == "true"
    if kind in ("integer", "long") and isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        return int(value)
    if kind in ("float", "double") and isinstance(value, str):
        return float(value)
    if kind == "string" and isinstance(value, int):
        return str(value)
    return value


def problems(name: str, given: Mapping[str, Any]) -> list[str]:
    """All that AWS's description of a call says against these members; none if it takes them."""
    shape = taken(name)
    report = ParamValidator().validate(given, shape)
    lines = report.generate_report().splitlines() if report.has_errors() else []
    return [f"{name}: {each}" for each in [*lines, *_values(shape, given, "")]]


def _values(shape: Shape, value: Any, path: str) -> Iterator[str]:
    if isinstance(shape, StructureShape) and isinstance(value, Mapping):
        for name, each in value.items():
            if name in shape.members:
                yield from _values(shape.members[name], each, f"{path}.{name}")
    elif isinstance(shape, ListShape) and isinstance(value, list):
        yield from _upper(shape, len(value), path, "members")
        for index, each in enumerate(value):
            yield from _values(shape.member, each, f"{path}[{index}]")
    elif isinstance(shape, MapShape) and isinstance(value, Mapping):
        yield from _upper(shape, len(value), path, "keys")
        for key, each in value.items():
            yield from _values(shape.key, key, f"{path} (key: {key})")
            yield from _values(shape.value, each, f"{path}.{key}")
    elif isinstance(shape, StringShape) and isinstance(value, str):
        yield from _upper(shape, len(value), path, "characters")
        if shape.enum and value not in shape.enum:
            yield f"{path} is {value!r}, which is none of {', '.join(sorted(shape.enum))}"
        pattern = shape.metadata.get("pattern")
        if pattern and not _pattern(pattern).fullmatch(value):
            yield f"{path} is {json.dumps(value)[:80]}, which {pattern} doesn't match"
    elif isinstance(value, int | float):
        yield from _upper(shape, value, path, "")


def _upper(shape: Shape, size: float, path: str, unit: str) -> Iterator[str]:
    most = shape.metadata.get("max")
    if most is not None and size > most:
        yield f"{path} has {size} {unit}".rstrip() + f", of which {most} are the most"
