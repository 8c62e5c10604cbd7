"""A YAML file with the place of everything in it, and what is wrong with the file itself.

Three parts: what a document is made of, how scalars are read and written, and the reader.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import yaml

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
    message: str
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


# Scalars. The engine reads YAML with Go's yaml.v3: ``no`` and ``on`` are text there, ``010`` is
# eight, and an unquoted date becomes a point in time that no setting takes. Other readers see
# other things, so what is read differently by different readers is refused, with the form that
# all read alike.

#: Numbers as everybody reads and writes them.
_PLAIN_WHOLE: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_PLAIN_FLOAT: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
# https://github.com/go-yaml/yaml/blob/v3/resolve.go: underscores are dropped, then strconv reads
# whole numbers with their prefix, and what matches is a float.
_GO_WHOLE: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|[1-9][0-9]*|0)")
_GO_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?")
_TRUTHS: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NOTHING: Final = frozenset(("", "~", "null", "Null", "NULL"))
#: Text that needs no quotes anywhere, in no version of YAML.
_BARE: Final = re.compile(r"[A-Za-z/](?:[A-Za-z0-9_./@+-]|:(?=[A-Za-z0-9/_])| (?=[A-Za-z0-9(]))*")
#: Words that YAML 1.1 or 1.2 takes for something else.
_TAKEN: Final = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
#: Line ends and what YAML doesn't print, within quotes.
_ESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")
_LARGEST: Final = 2**63


@dataclass(frozen=True)
class Plain:
    """What stands without quotes."""

    value: Any
    """As the engine reads it; a date as the text that it is."""
    unclear: str = ""
    """How it is read, where readers differ or it isn't what it looks like; else empty."""
    loses: bool = False
    """Whether the number, written as text again, isn't what stands there: ``1.30``."""


def read_plain(text: str) -> Plain:
    """A scalar without quotes and without a tag."""
    if text in _NOTHING:
        return Plain(None)
    if text in _TRUTHS:
        return Plain(_TRUTHS[text])
    if _DATE.fullmatch(text):
        return Plain(text, "read as a point in time")
    if text[:1] not in "+-.0123456789":
        return Plain(text)
    return _number(text)


def _number(text: str) -> Plain:
    if _PLAIN_WHOLE.fullmatch(text):
        whole = int(text)
        return Plain(whole, loses=not -_LARGEST <= whole < _LARGEST or text == "-0")
    if _PLAIN_FLOAT.fullmatch(text):
        found = float(text)
        return Plain(found, loses=repr(found) != text or found.is_integer())
    if _SPECIAL.fullmatch(text):
        return Plain(float(text.lower().replace(".", "")), "read as no finite number")
    bare = text.replace("_", "")
    if _GO_WHOLE.fullmatch(bare):
        # Python takes no bare leading zero for base eight.
        octal = re.sub(r"^([-+]?)0(?=[0-7])", r"\g<1>0o", bare)
        whole = int(octal, 0)
        return Plain(whole, f"read as the number {whole}")
    if _GO_FLOAT.fullmatch(bare):
        found = float(bare)
        whole_one = found.is_integer() and abs(found) < _LARGEST
        shown = int(found) if whole_one else found
        return Plain(shown, f"read as the number {shown}")
    return Plain(text)


def decimal(text: str) -> int | float | None:
    """The number that a person meant who wrote it in an unusual form: ``010`` is ten.

    None where there is none that can be written plainly.
    """
    bare = text.replace("_", "").removeprefix("+")
    try:
        return int(bare)
    except ValueError:
        found = read_plain(text).value
    finite = isinstance(found, int | float) and abs(found) < float("inf")
    return found if finite and found == found else None  # noqa: PLR0124 - no NaN


def written(value: Any, *, quote: str = "", in_flow: bool = False) -> str:
    """A value on one line, as YAML that every reader reads alike.

    Args:
        value: text, a number, a truth value, None, or a list or mapping of such.
        quote: the quotes that a text had before, ``'`` or ``"``; kept where it can have them.
        in_flow: whether it stands within brackets.
    """
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value).items()
        parts = (f"{written(key, in_flow=True)}: {written(v, in_flow=True)}" for key, v in entries)
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return "[" + ", ".join(written(each, in_flow=True) for each in items) + "]"
    if isinstance(value, str):
        return _text(value, quote, in_flow)
    if value is None:
        return "null"
    return json.dumps(value)


def _text(value: str, quote: str, in_flow: bool) -> str:
    if quote != "" or not bare_enough(value, in_flow=in_flow):
        printable = value.isprintable() and "\n" not in value
        if quote == "'" and printable:
            return "'" + value.replace("'", "''") + "'"
        text = json.dumps(value, ensure_ascii=False)
        return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return value


def bare_enough(value: str, *, in_flow: bool = False) -> bool:
    """Whether a text needs no quotes."""
    if not _BARE.fullmatch(value) or value.lower() in _TAKEN:
        return False
    # Some readers split at a colon within brackets.
    return not (in_flow and ":" in value)


# Reading. From the parser's events, not by a loader: what a loader makes has neither the second of
# two equal keys nor a line.

#: What a person would write stays far below; it bounds what a wrong file can cost.
MOST_BYTES: Final = 256 * 1024
MOST_DEPTH: Final = 50
MOST_VALUES: Final = 100_000
_TAB: Final = "  "
_OPENED: Final = ("while parsing a flow", "while scanning a quoted")
_USUAL_INDENTS: Final = (2, 4, 0, 6)
#: Characters of a file in which slips are looked for: each guess reads all of it again.
_MOST_TRIED: Final = 20_000


def read(path: Path, label: str) -> Document:
    """A file; one that can't be read has flaws instead of a content.

    Raises:
        FileNotFoundError: there is none.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        return _unread(path, label, f"cannot be read: {error.strerror or error}")
    if len(raw) > MOST_BYTES:
        return _unread(
            path,
            label,
            f"has {len(raw)} bytes; allowed: at most {MOST_BYTES}, for settings",
        )
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8")
        flaw = Flaw(
            len(before), f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        )
        return Document(path, label, raw.decode("utf-8", "replace"), None, (flaw,))
    return parse(text, path, label)


def _unread(path: Path, label: str, message: str) -> Document:
    return Document(path, label, "", None, (Flaw(0, message),))


def parse(text: str, path: Path, label: str) -> Document:
    """The document of a text; see `read`."""
    builder = _Builder(text)
    try:
        builder.build()
    except yaml.YAMLError as error:
        builder.flaws.append(_broken(error, text))
    except _StopError as error:
        builder.flaws.append(error.flaw)
    readable = not any(flaw.fatal for flaw in builder.flaws)
    return Document(
        path, label, text, builder.root if readable else None,
        tuple(builder.flaws), frozenset(builder.anchored),
    )  # fmt: skip


class _StopError(Exception):
    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.flaw = Flaw(offset, message)


@dataclass
class _Open:
    """A mapping or list whose end wasn't met yet."""

    event: Any
    start: int
    parts: list[Node]


class _Builder:
    """Makes nodes from events; no recursion, so that no file is too deep for it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root: Node | None = None
        self.flaws: list[Flaw] = []
        self.anchored: set[int] = set()
        self._anchors: dict[str, Node | None] = {}
        self._sizes: dict[int, int] = {}
        self._total = 0
        self._open: list[_Open] = []

    def build(self) -> None:
        documents = 0
        for event in yaml.parse(self.text, yaml.SafeLoader):
            # Every event that was read from a text has a mark.
            at = cast("yaml.Mark", event.start_mark).index
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _StopError(at, "a second document starts here; allowed: one in a file")
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                if len(self._open) >= MOST_DEPTH:
                    raise _StopError(at, f"nested deeper than {MOST_DEPTH} levels")
                if event.anchor is not None:
                    self._anchors[event.anchor] = None  # known, but not whole
                self._open.append(_Open(event, self._after_properties(event), []))
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                self._close(event)
            elif isinstance(event, yaml.ScalarEvent):
                self._add(self._scalar(event), event.anchor)
            elif isinstance(event, yaml.AliasEvent):
                self._add(self._alias(event), None)

    def _add(self, node: Node, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = node
            self.anchored.add(node.start)
        size = self._sizes.get(id(node), 1)
        self._total += 1
        if self._total > MOST_VALUES or size > MOST_VALUES:
            raise _StopError(
                node.start, f"more than {MOST_VALUES} values, with what aliases repeat"
            )
        if self._open:
            self._open[-1].parts.append(node)
        else:
            self.root = node

    def _close(self, event: Any) -> None:
        opened = self._open.pop()
        start, parts, in_flow = opened.start, opened.parts, bool(opened.event.flow_style)
        end = event.end_mark.index if in_flow else max([start, *(each.end for each in parts)])
        node: Node
        if isinstance(opened.event, yaml.MappingStartEvent):
            node = self._mapping(start, end, parts, in_flow)
        else:
            node = Items(start, end, tuple(parts), in_flow)
        self._sizes[id(node)] = 1 + sum(self._sizes.get(id(each), 1) for each in parts)
        self._refuse_tag(opened.event, start)
        self._add(node, opened.event.anchor)

    def _mapping(self, start: int, end: int, parts: list[Node], in_flow: bool) -> Mapping:
        entries: list[Entry] = []
        merged: list[Entry] = []
        met: dict[str, Entry] = {}
        for key, value in zip(parts[::2], parts[1::2], strict=True):
            named = resolved(key)
            if not isinstance(named, Scalar):
                raise _StopError(key.start, "a list or mapping as a key; allowed: text")
            if isinstance(key, Alias):
                named = Scalar(key.start, key.end, named.value, named.text, "*")
            entry = Entry(named, value)
            if named.text == MERGE and not named.quote:
                merged += self._merged(value)
            elif named.text in met:
                pair = met[named.text], entry
                self.flaws.append(Flaw(named.start, "given twice", twice=pair, fatal=False))
                continue
            else:
                met[named.text] = entry
            entries.append(entry)
        return Mapping(start, end, tuple(entries), in_flow, tuple(merged))

    def _merged(self, value: Node) -> Iterator[Entry]:
        inner = resolved(value)
        for each in inner.items if isinstance(inner, Items) else (inner,):
            source = resolved(each)
            if not isinstance(source, Mapping):
                raise _StopError(value.start, "<< takes over no mapping; allowed: <<: *ANCHOR")
            yield from source.by_name.values()

    def _alias(self, event: Any) -> Alias:
        start, end = event.start_mark.index, event.end_mark.index
        if event.anchor not in self._anchors:
            raise _StopError(
                start, f"*{event.anchor} repeats nothing: no &{event.anchor} before it"
            )
        target = self._anchors[event.anchor]
        if target is None:
            raise _StopError(start, f"*{event.anchor} repeats what it stands in itself")
        node = Alias(start, end, target)
        self._sizes[id(node)] = self._sizes.get(id(target), 1)
        return node

    def _scalar(self, event: Any) -> Scalar:
        start, end = self._after_properties(event), event.end_mark.index
        text, quote = str(event.value), cast("str | None", event.style) or ""
        self._refuse_tag(event, start)
        if quote in ("|", ">"):
            end = start + len(self.text[start:end].rstrip())
        if quote or event.tag is not None:
            return Scalar(start, end, text, text, quote)
        found = read_plain(text)
        return Scalar(start, end, found.value, text, "", found.unclear, found.loses)

    def _refuse_tag(self, event: Any, start: int) -> None:
        if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            raise _StopError(start, f"the tag {event.tag!r} is not taken; write the value alone")

    def _after_properties(self, event: Any) -> int:
        """Where the value itself starts, after its anchor and tag."""
        at, end = event.start_mark.index, event.end_mark.index
        while at < end and self.text[at] in "&!":
            while at < end and not self.text[at].isspace():
                at += 1
            while at < end and self.text[at].isspace():
                at += 1
        return at


def _broken(error: yaml.YAMLError, text: str) -> Flaw:
    """What the parser said, in words for people, with the line as it should be where it shows."""
    detail = cast("Any", error)
    if isinstance(error, yaml.reader.ReaderError):
        at, why = int(detail.position), f"the character {_shown(detail.character)} is not allowed"
        return Flaw(at, why, line_as=_mended_line(text, at))
    # What isn't closed went wrong where it was opened.
    opened = str(detail.context).startswith(_OPENED)
    mark = detail.context_mark if opened else detail.problem_mark or detail.context_mark
    at = min(mark.index, len(text.rstrip())) if mark else 0
    start, line = _line_around(text, at)
    if "\t" in line[: len(line) - len(line.lstrip())] or text[at : at + 1] == "\t":
        why = "a tab; YAML is indented by spaces"
        return Flaw(start + line.index("\t"), why, line_as=_mended_line(text, at))
    reason = " ".join(str(each) for each in (detail.context, detail.problem) if each)
    return Flaw(at, f"not valid YAML: {reason}", line_as=_mended_line(text, at))


def _line_around(text: str, at: int) -> tuple[int, str]:
    start = text.rfind("\n", 0, at) + 1
    return start, text[start:].split("\n", 1)[0].rstrip("\r")


def _mended_line(text: str, at: int) -> str | None:
    """The line of a place as the file could be read with it; None where no slip is found."""
    if len(text) > _MOST_TRIED:
        return None
    start, line = _line_around(text, at)
    bare = line.strip()
    before = [each for each in text[:start].splitlines() if each.strip()]
    indents = [len(each) - len(each.lstrip()) for each in reversed(before)]
    candidates = [
        "".join(each for each in line if each.isprintable() or each == "\t"),
        line.replace("\t", _TAB),
        *(f"{' ' * indent}{bare}" for indent in dict.fromkeys([*indents[:3], *_USUAL_INDENTS])),
        *(f"{line}{close}" for close in ("}", "]", '"', "'", "]}", "}}")),
    ]
    for each in dict.fromkeys(candidates):
        if each != line and _can_be_parsed(text[:start] + each + text[start + len(line) :]):
            return each
    return None


def _can_be_parsed(text: str) -> bool:
    try:
        _Builder(text).build()
    except (yaml.YAMLError, _StopError):
        return False
    return True


def _shown(character: Any) -> str:
    return f"U+{character if isinstance(character, int) else ord(character):04X}"
