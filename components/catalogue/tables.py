"""Plain tables for terminals: as wide as the terminal, long cells wrapped, unknown said."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

UNKNOWN = "unknown"
_GAP = 2
# Below this a column of prose is unreadable; names of machines are longer and never broken.
_LEAST = 12


@dataclass(frozen=True)
class Column:
    """A column: the key of its values, and its heading."""

    key: str
    heading: str
    right: bool = False
    """Whether values stand on the right, as numbers do."""


def text(value: object) -> str:
    """A value for people: None is ``unknown``, lists are joined, booleans are yes and no."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Decimal):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        return ", ".join(text(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
    return str(value)


def terminal_width() -> int | None:
    """Columns of the terminal; None where the output is none, so that nothing is wrapped."""
    return shutil.get_terminal_size(fallback=(0, 0)).columns or None


def render(
    columns: Sequence[Column], rows: Sequence[Mapping[str, object]], width: int | None
) -> str:
    """The table; with a width, long cells are wrapped until it fits, as far as words allow."""
    cells = [[column.heading for column in columns]]
    cells += [[text(row.get(column.key)) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if width is not None:
        widths = _fit(cells, widths, width)
    lines: list[str] = []
    for number, row in enumerate(cells):
        lines += _lines(columns, row, widths)
        if number == 0:
            lines.append((" " * _GAP).join("-" * each for each in widths))
    return "\n".join(line.rstrip() for line in lines)


def _fit(cells: list[list[str]], widths: list[int], width: int) -> list[int]:
    """Narrow the widest columns until the table fits or every one is as narrow as its words."""
    least = [
        min(wide, max(_LEAST, *(len(word) for cell in column for word in cell.split() or [""])))
        for wide, column in zip(widths, zip(*cells, strict=True), strict=True)
    ]
    fitted = list(widths)
    while sum(fitted) + _GAP * (len(fitted) - 1) > width:
        room = [(fitted[i] - least[i], fitted[i], i) for i in range(len(fitted))]
        spare = [entry for entry in room if entry[0] > 0]
        if not spare:
            break
        fitted[max(spare, key=lambda entry: entry[1])[2]] -= 1
    return fitted


def _lines(columns: Sequence[Column], row: list[str], widths: list[int]) -> list[str]:
    wrapped = [
        textwrap.wrap(cell, wide, break_long_words=False, break_on_hyphens=False) or [""]
        for cell, wide in zip(row, widths, strict=True)
    ]
    return [
        (" " * _GAP).join(
            (part[i] if i < len(part) else "").rjust(wide)
            if column.right
            else (part[i] if i < len(part) else "").ljust(wide)
            for column, part, wide in zip(columns, wrapped, widths, strict=True)
        )
        for i in range(max(map(len, wrapped)))
    ]
