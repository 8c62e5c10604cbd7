"""The drawing as one SVG file: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from falaj.stacks.drawing.layout import (
    GAP,
    LINE,
    NAME,
    PAD,
    SMALL,
    Box,
    bottom,
    places,
    wrap,
)
from falaj.stacks.drawing.model import CONTAINERS, EDGE_KINDS, INTERNET, Node, Picture
from falaj.stacks.drawing.wording import (
    HALF,
    ITSELF,
    NOTHING,
    NOTHING_DRAWN,
    SECTIONS,
    Row,
    count,
    details,
    end,
    hidden,
    is_unsure,
    label,
    left_out,
    name,
    names,
    quiet_groups,
    rows,
    title,
    verdict,
    ways,
)
from falaj.stacks.lettering import clean

WIDTH: Final = 1280
_MARGIN: Final = 32.0
_ROOM: Final = WIDTH - 2 * _MARGIN
_SOURCE: Final = 380.0
_TARGET: Final = 420.0
_ARROW: Final = _ROOM - _SOURCE - _TARGET
_ROW: Final = 38.0
_LABEL: Final = 12.0
#: Lines of names in one end of a row, and of what is written on an arrow.
_MOST_NAMES, _MOST_LABELS, _MOST_WAYS = 30, 10, 12
_MARKS: Final = {
    "compute": {"pool", "machine", "tier", "workload", "add-on"},
    "store": {"store", "file system", "database", "registry", "volume", "records"},
    "key": {"key", "vault", "secret", "authority", "identity"},
    "door": {"balancer", "ingress", "endpoint", "gateway", "cluster", "names"},
}


@cache
def _style() -> str:
    return (Path(__file__).parent / "drawing.css").read_text(encoding="utf-8")


def draw(picture: Picture) -> str:
    """The whole drawing."""
    parts: list[str] = []
    y = _header(picture, parts)
    if picture.nodes:
        y = _heading(SECTIONS["places"], y, parts)
        boxes = places(picture, _MARGIN, y, _ROOM)
        for each in boxes:
            _box(picture, each, parts)
        y = max(bottom(boxes), y)
    for kind in EDGE_KINDS:
        found = rows(picture, picture.of_kind(kind))
        remark = quiet_groups(picture) if kind == "flow" else ""
        if found or remark:
            y = _heading(SECTIONS[kind], y + 3 * GAP, parts)
        if found:
            y = _rows(picture, found, y, parts)
        if remark:
            y = _paragraph(remark, "small", SMALL, y + (2 * GAP if found else 0), parts)
    for notice in filter(None, (hidden(picture), left_out(picture))):
        y = _paragraph(notice, "small", SMALL, y + 3 * GAP, parts)
    height = round(y + _MARGIN)
    return _document(picture, parts, height)


def _document(picture: Picture, parts: Sequence[str], height: int) -> str:
    counted = count(len(picture.nodes), "thing", "things")
    relations = count(len(picture.edges), "relation", "relations")
    exposure = "; ".join(ways(picture)) or verdict(picture)
    summary = f"{counted} and {relations} of {title(picture).lower()}. {exposure}"
    return "\n".join(
        (
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title desc" lang="en">',
            f'<title id="title">{_text(title(picture))}</title>',
            f'<desc id="desc">{_text(summary)}</desc>',
            f"<style>{escape(_style())}</style>",
            f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
            *parts,
            "</svg>",
            "",
        )
    )


def _text(content: str) -> str:
    return escape(clean(content))


def _write(x: float, y: float, content: str, style: str, anchor: str = "") -> str:
    placed = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}"{placed}>{_text(content)}</text>'


def _rect(x: float, y: float, w: float, h: float, style: str, *, corner: float = 6) -> str:
    return (
        f'<rect class="{style}" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" '
        f'rx="{corner:g}"/>'
    )


def _header(picture: Picture, parts: list[str]) -> float:
    y = _MARGIN + 12
    parts.append(_write(_MARGIN, y, "FALAJ", "brand"))
    for line in wrap(title(picture), 32, _ROOM, 3, bold=True):
        y += 38
        parts.append(_write(_MARGIN, y, line, "h1 serif"))
    y += 2 * GAP
    if not picture.nodes:
        message = NOTHING_DRAWN if picture.left_out else NOTHING
        return _paragraph(message, "lead", 14, y + LINE, parts)
    return _verdict(picture, y, parts)


def _verdict(picture: Picture, y: float, parts: list[str]) -> float:
    """What is open to the internet, before anything else."""
    found = ways(picture)
    state = "opened" if found else "unsure" if is_unsure(picture) else "closed"
    first = (
        f"Open to the internet: {count(len(found), 'way', 'ways')}" if found else verdict(picture)
    )
    shown = found[:_MOST_WAYS]
    if len(found) > _MOST_WAYS:
        shown.append(f"and {len(found) - _MOST_WAYS} more, below")
    lines = wrap(first, 17, _ROOM - 60, 3, bold=True)
    more = [line for each in shown for line in wrap(each, 14, _ROOM - 70, 2)]
    height = 2 * PAD + len(lines) * 24 + len(more) * 20
    parts.append(_rect(_MARGIN, y, _ROOM, height, f"panel {state}"))
    parts.append(_rect(_MARGIN, y, 7, height, f"bar {state}", corner=2))
    at = y + PAD + 16
    for line in lines:
        parts.append(_write(_MARGIN + 26, at, line, f"verdict {state} serif"))
        at += 24
    for line in more:
        parts.append(_write(_MARGIN + 26, at, line, "lead"))
        at += 20
    return y + height + GAP


def _heading(content: str, y: float, parts: list[str]) -> float:
    y += 2 * GAP
    parts.append(
        f'<line class="rule" x1="{_MARGIN:g}" x2="{WIDTH - _MARGIN:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
    )
    parts.append(_write(_MARGIN, y + 30, content, "h2 serif"))
    return y + 50


def _paragraph(content: str, style: str, size: float, y: float, parts: list[str]) -> float:
    for line in wrap(content, size, _ROOM, 20):
        parts.append(_write(_MARGIN, y, line, style))
        y += LINE + 2
    return y


def _mark(node: Node) -> str:
    if node.encryption == "none":
        return "unsafe"
    return next((mark for mark, kinds in _MARKS.items() if node.kind in kinds), "watch")


def _box(picture: Picture, box: Box, parts: list[str]) -> None:
    node = box.node
    states = [
        "elsewhere" if node.is_elsewhere else "",
        "open" if node.id in picture.opened else "",
    ]
    style = " ".join(filter(None, ("chip" if box.is_chip else "box", _class(node), *states)))
    whole = " · ".join((f"{node.kind} {label(node)}", *details(node), *box.warnings))
    parts.append(f"<g data-node={quoteattr(clean(node.id))}>")
    parts.append(f"<title>{_text(whole)}</title>")
    parts.append(_rect(box.x, box.y, box.w, box.h, style))
    left = box.x + PAD
    y = box.y + PAD + (8 if box.is_chip else 10)
    if box.is_chip:
        height = box.h - 2 * PAD + 6
        parts.append(_rect(left - 4, box.y + PAD - 3, 4, height, f"mark {_mark(node)}", corner=2))
        left += 8
    for number, line in enumerate(box.title):
        kind = "" if box.is_chip or number or node.kind == "area" else f"{node.kind} "
        kind_span = f'<tspan class="kind">{_text(kind)} </tspan>' if kind else ""
        size = "name" if box.is_chip else "title"
        parts.append(
            f'<text class="{size}" x="{left:.1f}" y="{y:.1f}" xml:space="preserve">{kind_span}'
            f"{_text(line)}</text>"
        )
        y += LINE + 1
    for line in box.lines:
        parts.append(_write(left, y, line, "small"))
        y += LINE
    for line in box.warnings:
        parts.append(_write(left, y, line, "warn"))
        y += LINE
    for each in box.inner:
        _box(picture, each, parts)
    parts.append("</g>")


def _class(node: Node) -> str:
    return node.kind if node.kind in CONTAINERS else ""


def _rows(picture: Picture, found: Sequence[Row], y: float, parts: list[str]) -> float:
    """Rows by their sources: the source's box beside all of its rows."""
    groups: list[list[Row]] = []
    for row in found:
        if groups and groups[-1][0].sources == row.sources:
            groups[-1].append(row)
        else:
            groups.append([row])
    for group in groups:
        y = _group(picture, group, y, parts) + 2 * GAP
    return y - 2 * GAP


def _group(picture: Picture, group: Sequence[Row], y: float, parts: list[str]) -> float:
    ids = group[0].sources
    heading, who = _source(picture, ids)
    drawn = [_end_lines(picture, row) for row in group]
    labels = [_label(row) for row in group]
    heights = [
        max(_ROW, len(names) * LINE + 14, len(lines) * LINE + 22)
        for names, lines in zip(drawn, labels, strict=True)
    ]
    total = sum(heights) + (len(heights) - 1) * GAP
    needed = len(heading) * (LINE + 1) + len(who) * LINE + 18
    # A tall source makes its last row taller, so that rows stay within it.
    heights[-1] += max(needed - total, 0)
    total = sum(heights) + (len(heights) - 1) * GAP
    everybody = ids == (INTERNET,)
    style = "end everybody" if everybody else "end"
    parts.append(_rect(_MARGIN, y, _SOURCE, total, style))
    at = y + 20
    for line in heading:
        parts.append(_write(_MARGIN + PAD, at, line, "warn" if everybody else "name"))
        at += LINE + 1
    for line in who:
        parts.append(_write(_MARGIN + PAD, at, line, "small"))
        at += LINE
    for row, names_of, lines, height in zip(group, drawn, labels, heights, strict=True):
        parts += _row(row, (names_of, lines), y, height)
        y += height + GAP
    return y - GAP


def _source(picture: Picture, ids: Sequence[str]) -> tuple[list[str], list[str]]:
    room = _SOURCE - 2 * PAD
    if len(ids) == 1:
        named, who = end(picture, ids[0])
        return (
            wrap(named, NAME, room, 5, bold=True),
            wrap(who, SMALL, room, _MOST_NAMES) if who else [],
        )
    return (
        wrap(f"{len(ids)} together", NAME, room, 1, bold=True),
        _counted(wrap(names(picture, ids), SMALL, room, _MOST_NAMES), len(ids)),
    )


def _counted(lines: list[str], number: int) -> list[str]:
    """Lines of names; where they were cut, the last one says of how many."""
    if lines and lines[-1].endswith("…"):
        lines[-1] = f"… {number} in all"
    return lines


def _end_lines(picture: Picture, row: Row) -> list[str]:
    named = (
        ITSELF
        if row.is_within
        else ", ".join(
            "The internet" if each == INTERNET else name(picture, each) for each in row.targets
        )
    )
    lines = wrap(named, NAME, _TARGET - 2 * PAD, _MOST_NAMES, bold=True)
    return _counted(lines, len(row.targets))


def _label(row: Row) -> list[str]:
    text = row.label + (f" ({HALF})" if row.is_half else "")
    return wrap(text, _LABEL, _ARROW - 40, _MOST_LABELS, bold=row.is_open) if text else []


def _row(
    row: Row, texts: tuple[Sequence[str], Sequence[str]], y: float, height: float
) -> Iterator[str]:
    """An arrow with what is written on it, and the box that it leads to."""
    named, lines = texts
    openly = " openly" if row.is_open else ""
    half = " half" if row.is_half else ""
    start, stop = _MARGIN + _SOURCE, _MARGIN + _SOURCE + _ARROW
    middle = y + height / 2 + (len(lines) * LINE / 2 if lines else 0)
    middle = min(middle, y + height - 8)
    yield (
        f'<line class="line{openly}{half}" x1="{start + 4:.1f}" x2="{stop - 10:.1f}" '
        f'y1="{middle:.1f}" y2="{middle:.1f}"/>'
    )
    yield f'<path class="head{openly}" d="M{stop - 12:.1f} {middle - 5:.1f}l11 5l-11 5z"/>'
    at = middle - 6 - (len(lines) - 1) * LINE
    for line in lines:
        yield _write((start + stop) / 2, at, line, f"label{openly}", "middle")
        at += LINE
    style = "end everybody" if row.targets == (INTERNET,) else "end"
    yield _rect(stop, y, _TARGET, height, style)
    at = y + height / 2 - (len(named) - 1) * (LINE + 1) / 2 + 4.5
    for line in named:
        yield _write(stop + PAD, at, line, "name")
        at += LINE + 1
