"""Where boxes are on the page, and how wide the texts in them are.

Things stand in rows within what holds them, those beside each other.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from falaj.stacks.drawing.model import Node, Picture
from falaj.stacks.drawing.wording import details, holds, label, placed

# Widths of texts, without a font: never less than they will be.

_NARROW: Final = frozenset("iljtfrI.,:;'|!()[]{} -·/\\\"`")
_WIDE: Final = frozenset("mwMWQO@%&GDHNU")
#: Widths in parts of the font's size, of the widest of the families that are asked for.
_NARROW_EM, _WIDE_EM, _CAPITAL_EM = 0.42, 0.99, 0.74
_PLAIN_EM, _OTHER_EM, _FULL_EM = 0.65, 0.9, 1.1
_BOLD: Final = 1.09
#: Long words are broken after one of these, where that leaves not too short a line.
_BREAKS: Final = frozenset("-./:_,=@$")
_SHORTEST_LINE: Final = 0.4


def width(text: str, size: float, *, bold: bool = False) -> float:
    """Pixels that a text of a size takes at most."""
    em = sum(_em(each) for each in text)
    return em * size * (_BOLD if bold else 1)


def _em(letter: str) -> float:
    if unicodedata.category(letter) in {"Mn", "Me", "Cf"}:
        return 0
    if letter in _NARROW:
        return _NARROW_EM
    if letter in _WIDE:
        return _WIDE_EM
    if letter.isascii():
        return _CAPITAL_EM if letter.isupper() else _PLAIN_EM
    return _FULL_EM if unicodedata.east_asian_width(letter) in {"W", "F"} else _OTHER_EM


def fit(text: str, size: float, room: float, *, bold: bool = False) -> str:
    """A text in so many pixels, cut with an ellipsis where it is longer."""
    if width(text, size, bold=bold) <= room:
        return text
    kept = ""
    for each in text:
        if width(f"{kept}{each}…", size, bold=bold) > room:
            break
        kept += each
    return f"{kept.rstrip()}…"


def wrap(text: str, size: float, room: float, most: int, *, bold: bool = False) -> list[str]:
    """A text in lines of so many pixels; what doesn't fit into the last one is cut."""
    lines: list[str] = []
    line = ""
    for word in _pieces(text, size, room, bold=bold):
        longer = f"{line} {word}" if line else word
        if line and width(longer, size, bold=bold) > room:
            lines.append(line)
            line = word
        else:
            line = longer
    lines.append(line)
    if len(lines) > most:
        rest = " ".join(lines[most - 1 :])
        lines = [*lines[: most - 1], fit(rest, size, room, bold=bold)]
        if not lines[-1].endswith("…"):
            lines[-1] = fit(f"{rest} ………", size, room, bold=bold)
    return [each for each in lines if each]


def _pieces(text: str, size: float, room: float, *, bold: bool) -> Iterator[str]:
    for word in text.split():
        piece = ""
        for each in word:
            if piece and width(piece + each, size, bold=bold) > room:
                at = _break(piece)
                yield piece[:at]
                piece = piece[at:]
            piece += each
        yield piece


def _break(piece: str) -> int:
    """Where a piece of a word ends: after its last separator, or at its end."""
    last = max((at + 1 for at, each in enumerate(piece) if each in _BREAKS), default=0)
    return last if last >= len(piece) * _SHORTEST_LINE else len(piece)


#: Sizes in pixels.
NAME, SMALL, TITLE = 13.0, 11.5, 14.0
LINE: Final = 15.0
GAP: Final = 10.0
PAD: Final = 12.0
_CHIP_LEAST, _CHIP_MOST = 132.0, 330.0
_MARK: Final = 10.0
"""Room at a chip's left for the mark of its kind."""
_COLUMN: Final = 262.0
_TOP_COLUMN: Final = 380.0
_MOST_COLUMNS: Final = 4
_MOST_LINES: Final = 4
_MOST_WARNINGS: Final = 5
#: Boxes within each other; what is deeper stands in the last one.
_DEEPEST: Final = 7
_LEAST_INNER: Final = _CHIP_LEAST + 2 * PAD


@dataclass
class Box:
    """A node's place: a chip, or a box with others in it."""

    node: Node
    x: float = 0
    y: float = 0
    w: float = 0
    h: float = 0
    title: list[str] = field(default_factory=list[str])
    lines: list[str] = field(default_factory=list[str])
    """Small lines below the title."""
    warnings: list[str] = field(default_factory=list[str])
    """What of it is open to the internet."""
    inner: list[Box] = field(default_factory=list["Box"])

    @property
    def is_chip(self) -> bool:
        """Whether nothing is in it."""
        return not self.inner

    @property
    def head(self) -> float:
        """Height of its title and lines."""
        rows = len(self.lines) + len(self.warnings)
        return len(self.title) * (LINE + 1) + rows * LINE

    def move(self, x: float, y: float) -> None:
        """Set it down, with all that is in it."""
        for each in self.inner:
            each.move(each.x - self.x + x, each.y - self.y + y)
        self.x, self.y = x, y

    def walk(self) -> Iterator[Box]:
        """Itself and all that is in it."""
        yield self
        for each in self.inner:
            yield from each.walk()


def places(picture: Picture, x: float, y: float, room: float) -> list[Box]:
    """The boxes at the top: networks and clusters below each other, what is around in columns.

    Args:
        picture: what is drawn.
        x: left edge, in pixels.
        y: upper edge.
        room: width.
    """
    tops = placed(picture, "")
    large = [each for each in tops if each.kind in {"network", "cluster"}]
    found: list[Box] = []
    for each in large:
        box = _place(picture, each, room, 0)
        box.move(x, y)
        y = box.y + box.h + 2 * GAP
        found.append(box)
    rest = [each for each in tops if each.kind not in {"network", "cluster"}]
    columns = _columns(len(rest), room, _TOP_COLUMN)
    size = (room - (columns - 1) * 2 * GAP) / columns
    boxes = [_place(picture, each, size, 0) for each in rest]
    _in_columns(boxes, x, y, (columns, size, 2 * GAP))
    return [*found, *boxes]


def bottom(boxes: Sequence[Box]) -> float:
    """The lower edge of the lowest box; 0 without any."""
    return max((each.y + each.h for each in boxes), default=0)


def _place(picture: Picture, node: Node, room: float, depth: int) -> Box:
    return (
        _container(picture, node, room, depth)
        if holds(picture, node) and depth < _DEEPEST and room >= _LEAST_INNER
        else _chip(picture, node, room)
    )


def _chip(picture: Picture, node: Node, room: float) -> Box:
    most = min(room, _CHIP_MOST) - 2 * PAD - _MARK
    title = wrap(label(node), NAME, most, 2, bold=True)
    description = " · ".join((node.kind, *details(node)))
    lines = wrap(description, SMALL, most, _MOST_LINES)
    warnings = _warnings(picture, node, most)
    used = max(
        *(width(each, NAME, bold=True) for each in title),
        *(width(each, SMALL) for each in lines),
        *(width(each, SMALL, bold=True) for each in warnings),
        0,
    )
    box = Box(node, title=title, lines=lines, warnings=warnings)
    box.w = min(max(used + 2 * PAD + _MARK, _CHIP_LEAST), room)
    box.h = box.head + 2 * PAD - 6
    return box


def _warnings(picture: Picture, node: Node, room: float) -> list[str]:
    warnings = picture.opened.get(node.id, ())
    shown = [*warnings[:_MOST_WARNINGS]]
    if len(warnings) > _MOST_WARNINGS:
        shown.append(f"and {len(warnings) - _MOST_WARNINGS} more ways, below")
    return [line for each in shown for line in wrap(each, SMALL, room, 2, bold=True)]


def _container(picture: Picture, node: Node, room: float, depth: int) -> Box:
    inner = room - 2 * PAD
    kind = "" if node.kind == "area" else f"{node.kind} "
    named = wrap(label(node), TITLE, inner - width(kind, TITLE), 2, bold=True)
    box = Box(node, w=room, title=named)
    description = " · ".join(details(node))
    box.lines = wrap(description, SMALL, inner, 2) if description else []
    box.warnings = _warnings(picture, node, inner)
    children = placed(picture, node.id)
    boxes = [each for each in children if holds(picture, each)]
    boxed = {each.id for each in boxes}
    chips = [_place(picture, each, inner, _DEEPEST) for each in children if each.id not in boxed]
    top = PAD + box.head + (GAP if chips or boxes else 0)
    y = _in_rows(chips, PAD, top, inner)
    columns = _columns(len(boxes), inner, _COLUMN)
    size = (inner - (columns - 1) * GAP) / columns
    held = [_place(picture, each, size, depth + 1) for each in boxes]
    start = y + (GAP if chips and held else 0)
    end = _in_columns(held, PAD, start, (columns, size, GAP))
    box.inner = [*chips, *held]
    box.h = (end if held else y) + PAD
    return box


def _columns(number: int, room: float, least: float) -> int:
    fitting = int((room + GAP) // (least + GAP))
    return max(1, min(number, fitting, _MOST_COLUMNS))


def _in_rows(boxes: Sequence[Box], x: float, y: float, room: float) -> float:
    """Set boxes down like words; returns the lower edge."""
    left, height = x, 0.0
    for each in boxes:
        if left > x and left + each.w > x + room + 0.01:
            left, y, height = x, y + height + GAP, 0.0
        each.move(left, y)
        left += each.w + GAP
        height = max(height, each.h)
    return y + height


def _in_columns(
    boxes: Sequence[Box], x: float, y: float, columns: tuple[int, float, float]
) -> float:
    """Set each box down in the shortest column (number, width, gap); returns the lower edge."""
    number, size, gap = columns
    ends = [y] * number
    for each in boxes:
        column = ends.index(min(ends))
        each.move(x + column * (size + gap), ends[column])
        ends[column] += each.h + gap
    return max(ends) - gap if boxes else y
