"""Texts of others on a terminal: without control sequences, measured in columns.

Names come from programs and clouds; they may hold anything.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

#: Control characters, and those that turn the direction of what follows.
_CONTROL: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
)
_ISOLATE: Final = ("\u2068", "\u2069")
_CUT: Final = "…"


def clean(text: object) -> str:
    """A text without control characters, on one line, that can be written as UTF-8."""
    printable = _CONTROL.sub(" ", str(text)).encode("utf-8", "replace").decode("utf-8")
    return " ".join(printable.split())


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: none for marks, two for wide letters."""
    return sum(_columns(each) for each in text)


def _columns(letter: str) -> int:
    if unicodedata.category(letter) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in {"W", "F"} else 1


def runs_left(text: str) -> bool:
    """Whether some of a text runs from right to left."""
    return any(unicodedata.bidirectional(each) in {"R", "AL", "AN"} for each in text)


def isolated(text: str) -> str:
    """A text that may stand beside others: what runs from right to left turns nothing else."""
    return text.join(_ISOLATE) if runs_left(text) else text


def fit(text: str, most: int) -> str:
    """A text in so many columns at most, cut with an ellipsis where it is longer."""
    if columns(text) <= most:
        return text
    kept, used = "", columns(_CUT)
    for each in text:
        used += _columns(each)
        if used > most:
            break
        kept += each
    return kept.rstrip() + _CUT if most > 0 else ""


def pad(text: str, most: int) -> str:
    """A text in exactly so many columns, cut or filled with spaces, isolated where needed."""
    found = fit(text, most)
    return isolated(found) + " " * (most - columns(found))


def wrap(text: str, most: int, first: str = "", then: str | None = None) -> list[str]:
    """A text in lines of so many columns.

    Args:
        text: words between spaces; one that is too long for a line is cut into pieces.
        most: columns of a line, the indent included.
        first: what the first line begins with.
        then: what the others begin with. Default: spaces, as wide as `first`.
    """
    rest = " " * columns(first) if then is None else then
    lines: list[str] = []
    line = ""
    for word in _pieces(text.split(), most - max(columns(first), columns(rest))):
        start = rest if lines else first
        if line and columns(start + line) + 1 + columns(word) > most:
            lines.append(start + isolated(line))
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, ((rest if lines else first) + isolated(line)).rstrip()]


def _pieces(words: Iterable[str], most: int) -> Iterator[str]:
    for word in words:
        piece, used = "", 0
        for each in word:
            if piece and used + _columns(each) > max(most, 4):
                yield piece
                piece, used = "", 0
            piece += each
            used += _columns(each)
        yield piece
