"""The drawing on a terminal: nested boxes of where things are, then who talks to whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from falaj.stacks.drawing.model import EDGE_KINDS, INTERNET, Node, Picture
from falaj.stacks.drawing.wording import (
    HALF,
    ITSELF,
    NOTHING,
    NOTHING_DRAWN,
    SECTIONS,
    Row,
    details,
    end,
    hidden,
    holds,
    label,
    left_out,
    name,
    names,
    placed,
    quiet_groups,
    rows,
    title,
    verdict,
    ways,
)
from falaj.stacks.lettering import columns, fit, isolated, pad, wrap

#: Nodes of one kind in one place that are named together, one after another.
_TOGETHER: Final = 4
#: Boxes are drawn within each other up to here; what is deeper stands in the last one.
_DEEPEST: Final = 6
_LEAST_INNER: Final = 24


def draw(picture: Picture, width: int) -> str:
    """The whole drawing."""
    if not picture.nodes:
        nothing = NOTHING_DRAWN if picture.left_out else NOTHING
        notices = (nothing, hidden(picture), left_out(picture))
        return "".join(f"{line}\n" for each in notices if each for line in wrap(each, width))
    lines = [*wrap(title(picture), width), *_internet(picture, width)]
    lines += ["", SECTIONS["places"].upper(), ""]
    for each in placed(picture, ""):
        lines += _node(picture, each, width, 0)
    for kind in EDGE_KINDS:
        found = rows(picture, picture.of_kind(kind))
        remark = quiet_groups(picture) if kind == "flow" else ""
        if found or remark:
            lines += ["", SECTIONS[kind].upper(), "", *_rows(picture, found, width)]
            gap = [""] if found and remark else []
            lines += [*gap, *(wrap(remark, width) if remark else [])]
    for notice in (hidden(picture), left_out(picture)):
        lines += ["", *wrap(notice, width)] if notice else []
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _internet(picture: Picture, width: int) -> Iterator[str]:
    open_ways = ways(picture)
    yield ""
    if not open_ways:
        yield from wrap(verdict(picture), width)
        return
    bar = "█" * width
    yield bar
    yield from wrap(f"OPEN TO THE INTERNET ({len(open_ways)})", width, "██ ", "██ ")
    for each in open_ways:
        yield from wrap(each, width, "██  · ", "██    ")
    yield bar


def _node(picture: Picture, node: Node, width: int, depth: int) -> list[str]:
    if holds(picture, node):
        return _box(picture, node, width, depth)
    return _leaf(picture, node, width)


def _box(picture: Picture, node: Node, width: int, depth: int) -> list[str]:
    """A container with what is in it."""
    heading = " · ".join((label(node), *details(node)))
    kind = "" if node.kind == "area" else f"{node.kind} "
    inner = width - 4
    room = width - 5 - columns(kind)
    head = f"┌ {kind}{isolated(fit(heading, room))} "
    lines = [head + "─" * max(width - columns(head) - 1, 0) + "┐"]
    content: list[str] = []
    if columns(heading) > room:
        content += wrap(heading, inner)
    content += _marks(picture, node, inner)
    children = placed(picture, node.id)
    deep = depth >= _DEEPEST or inner < _LEAST_INNER
    boxes = [] if deep else [each for each in children if holds(picture, each)]
    boxed = {each.id for each in boxes}
    content += _leaves(picture, [each for each in children if each.id not in boxed], inner)
    for each in boxes:
        content += _box(picture, each, inner, depth + 1)
    lines += [f"│ {_filled(line, inner)} │" for line in content]
    return [*lines, "└" + "─" * (width - 2) + "┘"]


def _filled(line: str, width: int) -> str:
    return line + " " * max(width - columns(line), 0)


def _leaves(picture: Picture, nodes: Sequence[Node], width: int) -> Iterator[str]:
    """Things without others in them; many of a kind are named in one paragraph."""
    kinds = dict.fromkeys(each.kind for each in nodes)
    for kind in kinds:
        same = [each for each in nodes if each.kind == kind]
        plain = [each for each in same if not picture.opened.get(each.id)]
        if len(plain) >= _TOGETHER:
            texts = [_with_details(each) for each in plain]
            yield from wrap(f"{kind} ({len(plain)}): {'; '.join(texts)}", width, "", "  ")
            same = [each for each in same if picture.opened.get(each.id)]
        for each in same:
            yield from _leaf(picture, each, width)


def _with_details(node: Node) -> str:
    listed = details(node)
    return f"{label(node)} ({', '.join(listed)})" if listed else label(node)


def _leaf(picture: Picture, node: Node, width: int) -> list[str]:
    listed = ", ".join(details(node))
    text = f"{node.kind} {label(node)}" + (f": {listed}" if listed else "")
    return [*wrap(text, width, "", "  "), *_marks(picture, node, width)]


def _marks(picture: Picture, node: Node, width: int) -> list[str]:
    marks = picture.opened.get(node.id, ())
    return [line for each in marks for line in wrap(f"OPEN {each}", width, "██ ", "██ ")]


def _rows(picture: Picture, found: Sequence[Row], width: int) -> Iterator[str]:
    """Rows by their sources: the source once, its targets below with an arrow each."""
    sources: tuple[str, ...] = ()
    for row in found:
        if row.sources != sources:
            if sources:
                yield ""
            sources = row.sources
            yield from _ends(picture, sources, width)
        yield from _row(picture, row, width)


def _ends(picture: Picture, ids: Sequence[str], width: int) -> Iterator[str]:
    if ids == (INTERNET,):
        yield "██ THE INTERNET"
        return
    if len(ids) == 1:
        name, who = end(picture, ids[0])
        yield from wrap(f"{name} ({who})" if who else name, width, "", "  ")
        return
    yield from wrap(f"{len(ids)} together: {names(picture, ids)}", width, "", "  ")


def _row(picture: Picture, row: Row, width: int) -> Iterator[str]:
    arrow = "  ██▶ " if row.is_open else "  ┄┄▶ " if row.is_half else "  ──▶ "
    targets = ", ".join(
        "THE INTERNET" if each == INTERNET else name(picture, each) for each in row.targets
    )
    targets = targets or ITSELF
    text = row.label + (f" ({HALF})" if row.is_half else "")
    room = (width - columns(arrow)) // 2
    if columns(targets) <= room and columns(text) <= width - columns(arrow) - room - 2:
        yield arrow + pad(targets, room) + "  " + isolated(text)
        return
    yield from wrap(targets, width, arrow, " " * columns(arrow))
    if text:
        yield from wrap(text, width, " " * (columns(arrow) + 2))
