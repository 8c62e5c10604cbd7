"""Reads YAML files into documents.

From the parser's events, not by a loader: what a loader makes has neither the second of two equal
keys nor a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import yaml

from falaj.stacks.settings.document import (
    MERGE,
    Alias,
    Document,
    Entry,
    Flaw,
    Items,
    Mapping,
    Node,
    Scalar,
    resolved,
)
from falaj.stacks.settings.scalars import read_plain

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


def _unread(path: Path, label: str, said: str) -> Document:
    return Document(path, label, "", None, (Flaw(0, said),))


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
    def __init__(self, offset: int, said: str) -> None:
        super().__init__(said)
        self.flaw = Flaw(offset, said)


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
    said = cast("Any", error)
    if isinstance(error, yaml.reader.ReaderError):
        at, why = int(said.position), f"the character {_shown(said.character)} is not allowed"
        return Flaw(at, why, line_as=_mended_line(text, at))
    # What isn't closed went wrong where it was opened.
    opened = str(said.context).startswith(_OPENED)
    mark = said.context_mark if opened else said.problem_mark or said.context_mark
    at = min(mark.index, len(text.rstrip())) if mark else 0
    start, line = _line_around(text, at)
    if "\t" in line[: len(line) - len(line.lstrip())] or text[at : at + 1] == "\t":
        why = "a tab; YAML is indented by spaces"
        return Flaw(start + line.index("\t"), why, line_as=_mended_line(text, at))
    words = " ".join(str(each) for each in (said.context, said.problem) if each)
    return Flaw(at, f"not valid YAML: {words}", line_as=_mended_line(text, at))


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
