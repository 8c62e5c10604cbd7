"""How wide texts are, without a font: never less than they will be."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Final

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
