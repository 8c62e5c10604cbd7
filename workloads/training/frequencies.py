"""How often each text of a column stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def frequencies(values: Iterable[str]) -> dict[str, int]:
    """How often each text stands, the most frequent first, then by the alphabet.

    Args:
        values: texts; "" is a missing one, which isn't counted.
    """
    # Not by an array of texts: NumPy's lose NULs at their end.
    counts = Counter(str(each) for each in values if each != "")
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))
