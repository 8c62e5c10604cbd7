"""A YAML file with the place of everything in it, and what is wrong with the file itself."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

#: Where in a document something is: keys of mappings, positions in lists.
Way: TypeAlias = tuple[str | int, ...]
#: The key under which a mapping takes over others.
MERGE: Final = "<<"


@dataclass(frozen=True, eq=False)
class Node:
    """A part of the file: offsets in its text, of the value without the space around it."""

    start: int
    end: int

    @property
    def data(self) -> Any:
        """The value as plain Python."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Scalar(Node):
    """Text, a number, a truth value or nothing."""

    value: Any
    text: str
    """What stands in the file, without its quotes."""
    quote: str = ""
    """``'`` or ``"``; ``|`` or ``>`` for a block; empty where it stands bare."""
    unclear: str = ""
    """How the engine reads it, where it isn't what it looks like."""
    loses: bool = False
    """Whether it is a number that isn't the same once it is text again: ``1.30``."""

    @property
    def data(self) -> Any:
        """The value as the engine reads it."""
        return self.value


@dataclass(frozen=True, eq=False)
class Entry:
    """A key and its value."""

    key: Scalar
    value: Node

    @property
    def name(self) -> str:
        """The key as text."""
        return self.key.text


@dataclass(frozen=True, eq=False)
class Mapping(Node):
    """Values by key; of two equal keys the first counts."""

    entries: tuple[Entry, ...]
    in_flow: bool
    """Whether it is written in braces."""
    merged: tuple[Entry, ...] = ()
    """What it takes over by ``<<`` from others, and doesn't say itself."""

    @cached_property
    def by_name(self) -> dict[str, Entry]:
        """Entries by key."""
        found: dict[str, Entry] = {}
        for entry in (*self.entries, *self.merged):
            found.setdefault(entry.name, entry)
        found.pop(MERGE, None)
        return found

    @property
    def data(self) -> dict[str, Any]:
        """The values by key."""
        return {name: entry.value.data for name, entry in self.by_name.items()}


@dataclass(frozen=True, eq=False)
class Items(Node):
    """A list."""

    items: tuple[Node, ...]
    in_flow: bool
    """Whether it is written in brackets."""

    @property
    def data(self) -> list[Any]:
        """The values in their order."""
        return [each.data for each in self.items]


@dataclass(frozen=True, eq=False)
class Alias(Node):
    """What stands elsewhere in the file, under an anchor."""

    target: Node

    @property
    def data(self) -> Any:
        """The anchor's value."""
        return self.target.data


@dataclass(frozen=True)
class Flaw:
    """Something wrong with the file itself."""

    offset: int
    said: str
    twice: tuple[Entry, Entry] | None = None
    """Two entries of one mapping with the same key, the second of which doesn't count."""
    line_as: str | None = None
    """What the whole line should be instead."""
    fatal: bool = True
    """Whether the file can't be read because of it."""


@dataclass(frozen=True, eq=False)
class Document:
    """A file that was read."""

    path: Path
    label: str
    """The path as a person writes it."""
    text: str
    root: Node | None
    """None for an empty file, and for one that can't be read."""
    flaws: tuple[Flaw, ...] = ()
    anchored: frozenset[int] = field(default=frozenset())
    """Offsets at which values with an anchor start."""

    @property
    def is_readable(self) -> bool:
        """Whether what it says is known."""
        return not any(flaw.fatal for flaw in self.flaws)

    @cached_property
    def _starts(self) -> list[int]:
        """Offsets at which lines start; lines end as editors see it."""
        found = [0]
        for offset, letter in enumerate(self.text):
            if letter == "\n" or (letter == "\r" and self.text[offset + 1 : offset + 2] != "\n"):
                found.append(offset + 1)
        return found

    def line(self, offset: int) -> int:
        """The line of an offset, from 1."""
        return bisect_right(self._starts, offset)

    def line_start(self, offset: int) -> int:
        """Where the line of an offset starts."""
        return self._starts[self.line(offset) - 1]

    def line_end(self, offset: int) -> int:
        """Where the line of an offset ends, before the end of line itself."""
        line = self.line(offset)
        end = self._starts[line] if line < len(self._starts) else len(self.text)
        return len(self.text[:end].rstrip("\r\n")) if end > offset else end

    def place(self, offset: int) -> str:
        """``path:line``."""
        return f"{self.label}:{self.line(offset)}"

    def entry(self, way: Way) -> Entry | None:
        """The entry that a way leads to; None where there is none, or it ends in a list."""
        if not way or not isinstance(way[-1], str):
            return None
        inside = resolved(self.node(way[:-1]))
        return inside.by_name.get(way[-1]) if isinstance(inside, Mapping) else None

    def way_to(self, offset: int) -> Way:
        """The way to the innermost mapping or list that an offset lies in."""
        here, way = self.root, ()
        while True:
            below = next(
                (
                    (step, node)
                    for step, node in _children(here)
                    if node.start <= offset < node.end and not isinstance(node, Scalar | Alias)
                ),
                None,
            )
            if below is None:
                return way
            way, here = (*way, below[0]), below[1]

    def node(self, way: Way) -> Node | None:
        """The value that a way leads to, None where there is none."""
        here = self.root
        for step in way:
            here = resolved(here)
            if isinstance(here, Mapping) and isinstance(step, str):
                entry = here.by_name.get(step)
                here = entry.value if entry else None
            elif isinstance(here, Items) and isinstance(step, int):
                here = here.items[step] if 0 <= step < len(here.items) else None
            else:
                return None
        return here


def resolved(node: Node | None) -> Node | None:
    """A value itself, where it is an alias."""
    return node.target if isinstance(node, Alias) else node


def _children(node: Node | None) -> Iterator[tuple[str | int, Node]]:
    if isinstance(node, Mapping):
        yield from ((entry.name, entry.value) for entry in node.entries)
    elif isinstance(node, Items):
        yield from enumerate(node.items)


def walk(node: Node | None, way: Way = ()) -> Iterator[tuple[Way, Entry | None, Node]]:
    """Everything at and below a value: its way, its entry where it has a key, the value."""
    if node is not None:
        yield from _walk(node, way, None)


def _walk(node: Node, way: Way, entry: Entry | None) -> Iterator[tuple[Way, Entry | None, Node]]:
    yield way, entry, node
    inner = resolved(node)
    if isinstance(inner, Mapping):
        for name, each in inner.by_name.items():
            yield from _walk(each.value, (*way, name), each)
    elif isinstance(inner, Items):
        for position, item in enumerate(inner.items):
            yield from _walk(item, (*way, position), None)
