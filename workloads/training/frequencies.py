"""How often each text of a column stands."""

from __future__ import annotations

from collections import Counter
from typing import Any

from numpy.typing import NDArray


def frequencies(values: NDArray[Any]) -> dict[str, int]:
    """How often each text stands, the most frequent first, then by the alphabet.

    Args:
        values: texts, shape (rows,), "" where missing, which isn't counted.
    """
    # Not by an array of texts: NumPy's lose NULs at their end.
    counts = Counter(str(each) for each in values if each != "")
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))
