"""A resource as it is asked for, with access to its values that never fails.

Inputs come from people: a property may be missing, unknown as yet, or of another type than the
service takes. The sandbox's type check speaks of types; here such a value reads as absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, TypeAlias, cast

from falaj.sandbox.clouds.model import Made, Properties, World
from falaj.wire import Unknown

_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True)
class Inputs:
    """The inputs of one resource, or of a part of it, with its provider's settings."""

    values: Properties
    config: Properties = field(default_factory=dict[str, Any])
    token: str = ""
    parent: Inputs | None = None
    """The inputs that these are a part of."""
    place: str = ""
    """The path at which they stand there."""

    def at(self, path: str) -> Any:
        """The value at a path such as ``rules[0].name``, be it unknown; None when absent."""
        value: Any = self.values
        for key, index in _STEP.findall(path):
            if isinstance(value, Unknown):
                return value
            if key:
                value = as_map(value).get(key)
            else:
                items = as_list(value)
                value = items[int(index)] if int(index) < len(items) else None
        return value

    def each(self, path: str) -> Iterator[tuple[str, Any]]:
        """Every known value at a path such as ``ingress[].fromPort``, with its exact path."""
        for where, value in _walk(self.values, path.split("."), ""):
            if not isinstance(value, Unknown):
                yield where, value

    def expand(self, path: str) -> Iterator[str]:
        """The exact paths of one in which ``[]`` stands for every item of a list."""
        head, marker, rest = path.partition("[]")
        if not marker:
            yield path
            return
        for where, _ in self.items(head):
            yield from self.expand(f"{where}{rest}")

    def get(self, path: str, default: Any = None) -> Any:
        """The known value at a path, the first where there are several; else the default."""
        return next((value for _, value in self.each(path)), default)

    def optional_string(self, path: str) -> str | None:
        """The known text at a path; None when it is absent, empty or of another type."""
        value = self.get(path)
        return value if isinstance(value, str) and value else None

    def string(self, path: str) -> str:
        """The known text at a path; empty when there is none."""
        return self.optional_string(path) or ""

    def number(self, path: str) -> float | None:
        """The known number at a path; None when it is absent or of another type."""
        value = self.get(path)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return value

    def flag(self, path: str) -> bool | None:
        """The known boolean at a path; None when it is absent or of another type."""
        value = self.get(path)
        return value if isinstance(value, bool) else None

    def items(self, path: str) -> list[tuple[str, Any]]:
        """The path and value of each item of a list; empty when there is no list."""
        return [(f"{path}[{index}]", item) for index, item in enumerate(as_list(self.at(path)))]

    def strings(self, path: str) -> list[tuple[str, str]]:
        """The path and value of each text in a list, or of the one text there."""
        value = self.at(path)
        if isinstance(value, str):
            return [(path, value)]
        return [(where, item) for where, item in self.items(path) if isinstance(item, str)]

    def keys(self, path: str) -> list[str]:
        """The keys of a mapping; empty when there is no mapping."""
        return [str(key) for key in as_map(self.at(path))]

    def mapping(self, path: str) -> dict[str, Any]:
        """The mapping at a path; empty when there is none."""
        return dict(as_map(self.at(path)))

    def is_given(self, path: str) -> bool:
        """Whether there is surely a value, known or not; below an unknown one nothing is sure."""
        return any(True for _ in _walk(self.values, path.split("."), ""))

    def is_absent(self, path: str) -> bool:
        """Whether there is surely no value."""
        return self.at(path) is None

    def parts(self, path: str) -> Iterator[Self]:
        """Each known object at a path, as inputs of its own; a list's items at ``rules[]``."""
        for where, value in self.each(path):
            if isinstance(value, Mapping):
                part = cast("Mapping[str, Any]", value)
                yield replace(self, values=part, parent=self, place=where)


@dataclass(frozen=True, kw_only=True)
class Resource(Inputs):
    """A resource among all that exists."""

    world: World
    id: str
    """The resource's own id; empty for a new one whose id can't be told yet."""

    @classmethod
    def of(cls, made: Made, world: World) -> Resource:
        """A resource that exists, as it was asked for."""
        return cls(made.inputs, token=made.token, world=world, id=made.id)


Condition: TypeAlias = Callable[[Inputs], bool]


def as_list(value: object) -> Sequence[Any]:
    """The value when it is a list, else nothing."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return cast("Sequence[Any]", value)
    return ()


def as_texts(value: object) -> list[str]:
    """The value when it is a text, or the texts of a list."""
    if isinstance(value, str):
        return [value]
    return [item for item in as_list(value) if isinstance(item, str)]


def as_map(value: object) -> Mapping[str, Any]:
    """The value when it is a map, else nothing."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    return {}


def joined(place: str, path: str) -> str:
    """The path of what stands at `path` below a place."""
    return f"{place}.{path}" if place and path else place or path


def _walk(value: object, steps: list[str], at: str) -> Iterator[tuple[str, Any]]:
    """What stands at a path, be it unknown; below an unknown value there is nothing."""
    if value is None or (isinstance(value, Unknown) and steps):
        return
    if not steps:
        yield at, value
        return
    name, bracket, index = steps[0].partition("[")
    inner = as_map(value).get(name) if name else value
    where = joined(at, name)
    if not bracket:
        yield from _walk(inner, steps[1:], where)
        return
    items = as_list(inner)
    chosen = range(len(items)) if index == "]" else (int(index.removesuffix("]")),)
    for number in chosen:
        if number < len(items):
            yield from _walk(items[number], steps[1:], f"{where}[{number}]")
    for key, item in as_map(inner).items() if index == "]" else ():
        yield from _walk(item, steps[1:], joined(where, str(key)))
