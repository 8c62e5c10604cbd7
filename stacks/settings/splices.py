"""Changes of a file's text that leave all else in it as it is: comments, blank lines, quotes.

Values are cut out and put in by their offsets. Libraries that write a whole document again lay out
what nobody touched anew, and lose the comment above the key that follows a removed one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, cast

from falaj.stacks.errors import StackError
from falaj.stacks.settings.document import (
    Document,
    Entry,
    Items,
    Mapping,
    Node,
    Scalar,
    Way,
    parse,
    resolved,
    written,
)

_STEP: Final = "  "
_LINE_END: Final = re.compile(r"\r\n|\n|\r")


class SpliceError(StackError):
    """A change that this file's layout doesn't allow; the message says why."""


@dataclass(frozen=True)
class Edit:
    """Lines that take the place of others."""

    first: int
    """The first line that goes, from 1."""
    last: int
    """The last one; before ``first`` where nothing goes and lines are put in before it."""
    lines: tuple[str, ...]
    """What stands there instead, without ends of lines."""

    @property
    def inserts(self) -> bool:
        """Whether no line goes."""
        return self.last < self.first


def difference(before: str, after: str) -> Edit:
    """The lines in which two texts differ."""
    old, new = lines_of(before), lines_of(after)
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return Edit(head + 1, len(old) - tail, tuple(new[head : len(new) - tail]))


def lines_of(text: str) -> list[str]:
    """The lines as editors count them, without their ends."""
    found = _LINE_END.split(text)
    return found if found[-1] else found[:-1]


def reread(document: Document, text: str) -> Document:
    """A changed text as a document."""
    return parse(text, document.path, document.label)


def put(document: Document, way: Way, value: Any) -> str:
    """The text with a value in its place; sections that lead there are made.

    Args:
        document: the file.
        way: where the value belongs. A position in a list is at most its length.
        value: plain Python.

    Raises:
        SpliceError: the way leads through a plain value, or past the end of a list.
    """
    node = document.node(way)
    if node is not None and way:
        return _replaced(document, way, node, value)
    parent = resolved(document.node(way[:-1]))
    last = way[-1]
    if isinstance(parent, Mapping) and isinstance(last, str):
        return _inserted(document, parent, last, value)
    if isinstance(parent, Items) and last == len(parent.items):
        return _appended(document, way[:-1], parent, value)
    if isinstance(parent, Items):
        raise SpliceError(
            f"{last} is no position in a list of {len(parent.items)}; allowed: 0 to "
            f"{len(parent.items)}"
        )
    if parent is not None and parent.data is not None:
        raise SpliceError(f"{written(parent.data)} has nothing below it")
    if isinstance(last, int) and last != 0:
        raise SpliceError(f"{last} is no position in a list that isn't there; allowed: 0")
    made = {last: value} if isinstance(last, str) else [value]
    if len(way) > 1:
        return put(document, way[:-1], made)
    head = document.text and document.text.rstrip() + _newline(document)
    return head + _newline(document).join(_block(cast("dict[str, Any]", made), "")) + "\n"


def drop(document: Document, way: Way) -> str:
    """The text without an entry or an item.

    Raises:
        SpliceError: there is none.
    """
    parent = resolved(document.node(way[:-1])) if way else None
    last = way[-1] if way else ""
    if isinstance(parent, Mapping) and isinstance(last, str) and last in parent.by_name:
        return drop_entry(document, way[:-1], parent, parent.by_name[last])
    if isinstance(parent, Items) and isinstance(last, int) and 0 <= last < len(parent.items):
        return _without_item(document, way[:-1], parent, last)
    raise SpliceError(f"{last} is not there")


def drop_entry(document: Document, way: Way, mapping: Mapping, entry: Entry) -> str:
    """The text without an entry of the mapping that ``way`` leads to."""
    spans = [(each.key.start, _end(each)) for each in mapping.entries]
    mine = (entry.key.start, _end(entry))
    if [mine] == spans and way:
        return put(document, way, {})
    if [mine] == spans and mapping.in_flow:
        return _spliced(document, mapping.start, mapping.end, "{}")
    return _cut(document, sorted({*spans, mine}), mine, in_flow=mapping.in_flow)


def rename(document: Document, way: Way, name: str) -> str:
    """The text with another key before the same value.

    Raises:
        SpliceError: there is no such key.
    """
    entry = document.entry(way)
    if entry is None:
        raise SpliceError(f"{way[-1] if way else ''} is not there")
    quote = entry.key.quote if entry.key.quote in "'\"" else ""
    return _spliced(document, entry.key.start, entry.key.end, written(name, quote=quote))


def _spliced(document: Document, start: int, end: int, text: str) -> str:
    return document.text[:start] + text + document.text[end:]


def _newline(document: Document) -> str:
    return "\r\n" if "\r\n" in document.text else "\n"


def _end(entry: Entry) -> int:
    return max(entry.key.end, entry.value.end)


def _colon(document: Document, entry: Entry) -> int:
    """Where the value of an entry may start; after its colon, which flow mappings can lack."""
    at = entry.key.end
    while document.text[at : at + 1].isspace():
        at += 1
    return at + 1 if document.text[at : at + 1] == ":" else -1


def _replaced(document: Document, way: Way, node: Node, value: Any) -> str:
    entry = document.entry(way)
    text = document.text
    start = node.start
    if entry is not None:
        colon = _colon(document, entry)
        if colon < 0:
            return _spliced(document, entry.key.end, entry.key.end, f": {written(value)}")
        below = "\n" in text[colon : node.start] or node.start == node.end
        if below:
            anchor = text[colon : node.start].strip() if node.start > colon else ""
            anchor = anchor if anchor.startswith("&") and "\n" not in anchor else ""
            new = _new(document, entry, value)
            label = anchor and f" {anchor}"
            label += new if new[:1] in "\r\n" else f" {new}"
            return _spliced(document, colon, max(colon, node.end), label)
    quote = node.quote if isinstance(node, Scalar) and node.quote in "'\"" else ""
    in_flow = _in_flow(document, way)
    return _spliced(document, start, node.end, written(value, quote=quote, in_flow=in_flow))


def _new(document: Document, entry: Entry, value: Any) -> str:
    """A value that had no place on its key's line: sections in lines of their own."""
    indent = _indent(document, entry)
    if isinstance(value, dict) and value and indent is not None:
        lines = _block(cast("dict[str, Any]", value), indent + _STEP)
        return _newline(document) + _newline(document).join(lines)
    return written(value)


def _indent(document: Document, entry: Entry) -> str | None:
    """Blanks up to a key's column; None where it stands within braces or after another."""
    before = document.text[document.line_start(entry.key.start) : entry.key.start]
    return " " * len(before) if not before.strip(" -") else None


def _in_flow(document: Document, way: Way) -> bool:
    for length in range(len(way)):
        node = resolved(document.node(way[:length]))
        if isinstance(node, Mapping | Items) and node.in_flow:
            return True
    return False


def _block(value: dict[str, Any], indent: str) -> list[str]:
    """A section, a line for each key."""
    lines: list[str] = []
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            lines.append(f"{indent}{written(key)}:")
            lines += _block(cast("dict[str, Any]", inner), indent + _STEP)
        else:
            lines.append(f"{indent}{written(key)}: {written(inner)}")
    return lines


def _inserted(document: Document, mapping: Mapping, key: str, value: Any) -> str:
    if mapping.in_flow:
        new = f"{written(key, in_flow=True)}: {written(value, in_flow=True)}"
        return _into_flow(document, mapping, [_end(each) for each in mapping.entries], new)
    last = max(mapping.entries, key=_end)
    indent = _indent(document, mapping.entries[0])
    if indent is None:
        raise SpliceError("what it belongs into is written in a way that isn't extended here")
    at = document.line_end(max(_end(last) - 1, last.key.start))
    lines = _block({key: value}, indent)
    newline = _newline(document)
    return _spliced(document, at, at, newline + newline.join(lines))


def _appended(document: Document, way: Way, items: Items, value: Any) -> str:
    if items.in_flow:
        new = written(value, in_flow=True)
        return _into_flow(document, items, [each.end for each in items.items], new)
    first, last = items.items[0], items.items[-1]
    dash = document.text.rindex("-", 0, max(first.start, 1))
    column = dash - document.line_start(dash)
    at = document.line_end(max(last.end - 1, last.start))
    return _spliced(document, at, at, f"{_newline(document)}{' ' * column}- {written(value)}")


def _into_flow(document: Document, node: Node, ends: list[int], new: str) -> str:
    if not ends:
        return _spliced(document, node.start + 1, node.end - 1, new)
    return _spliced(document, max(ends), max(ends), f", {new}")


def _without_item(document: Document, way: Way, items: Items, position: int) -> str:
    if len(items.items) == 1:
        return put(document, way, [])
    if items.in_flow:
        spans = [(each.start, each.end) for each in items.items]
    else:
        spans = [
            (document.text.rindex("-", 0, max(each.start, 1)), max(each.end, each.start))
            for each in items.items
        ]
    return _cut(document, spans, spans[position], in_flow=items.in_flow)


def _cut(
    document: Document, spans: list[tuple[int, int]], mine: tuple[int, int], *, in_flow: bool
) -> str:
    """The text without one of several neighbours."""
    position = spans.index(mine)
    following = spans[position + 1][0] if position + 1 < len(spans) else None
    if in_flow:
        if following is not None:
            return _spliced(document, mine[0], following, "")
        return _spliced(document, spans[position - 1][1], mine[1], "")
    before = document.text[document.line_start(mine[0]) : mine[0]]
    if before.strip() and following is not None:
        # The first key of a list's item: the next one takes its place after the dash.
        return _spliced(document, mine[0], following, "")
    start = document.line_start(mine[0])
    end = document.line_end(max(mine[1] - 1, mine[0]))
    after = document.text[end:]
    rest = after[2:] if after.startswith("\r\n") else after[1:]
    if not after:
        # The last line of a file without an end of line.
        return document.text[:start].rstrip("\r\n")
    return document.text[:start] + rest
