"""What a person probably meant by a name that doesn't exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

#: Above this, letters that differ are a slip of the pen.
ALIKE: Final = 0.6


def nearest(
    given: object, allowed: Iterable[str], *, most: int = 1, alike: float = ALIKE
) -> list[str]:
    """The names among ``allowed`` that are like ``given``, the likest first; empty where none is.

    Args:
        given: what was written, of any type.
        allowed: the names that exist.
        most: how many are wanted.
        alike: how like they have to be, from 0 to 1.
    """
    return difflib.get_close_matches(str(given), list(allowed), n=most, cutoff=alike)
