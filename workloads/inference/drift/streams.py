"""Whether the mean of a stream has changed, told as soon as it can be.

ADWIN keeps a window of the newest values that shrinks to its newer part where its two parts
differ.
Bifet, Gavaldà, Learning from Time-Changing Data with Adaptive Windowing, SDM 2007:
https://doi.org/10.1137/1.9781611972771.42

The Page-Hinkley test sums up how far values are above their mean. Page, Continuous Inspection
Schemes, Biometrika 41, 1954: https://doi.org/10.1093/biomet/41.1-2.100
"""

from __future__ import annotations

import math
from typing import Final

_BUCKETS: Final = 5
"""Of each size, before the two oldest are joined."""
_EVERY: Final = 32
"""Values between two looks for a change."""
_LEAST: Final = 5
"""Values that each part has to have."""
_GRACE: Final = 10
"""Values before the first look."""


class Adwin:
    """A window over values from 0 to 1, in memory of the order of its size's logarithm.

    Args:
        delta: chance of a false alarm at a look. Default: 0.002.
    """

    def __init__(self, delta: float = 0.002) -> None:
        self._delta = delta
        # By power of two, the newest first: [sum, variance times size] of 2**index values.
        self._rows: list[list[tuple[float, float]]] = [[]]
        self.width = 0
        self.total = 0.0
        self._variance = 0.0  # sum of squared distances from the mean
        self._seen = 0
        self.rose = False
        """Whether the mean was higher after the newest change."""

    @property
    def mean(self) -> float:
        """The mean of the window; 0 of an empty one."""
        return self.total / self.width if self.width else 0.0

    def update(self, value: float) -> bool:
        """Take a value; tell whether the mean has changed."""
        if self.width:
            self._variance += self.width * (value - self.mean) ** 2 / (self.width + 1)
        self.width += 1
        self.total += value
        self._rows[0].insert(0, (value, 0.0))
        self._compress()
        self._seen += 1
        if self._seen % _EVERY or self.width <= _GRACE:
            return False
        return self._shrink()

    def _compress(self) -> None:
        for index, row in enumerate(self._rows):
            if len(row) <= _BUCKETS:
                return
            size = float(2**index)
            (newer, newer_variance), (older, older_variance) = row[-2:]
            del row[-2:]
            between = size / 2 * ((newer - older) / size) ** 2
            joined = (newer + older, newer_variance + older_variance + between)
            if index + 1 == len(self._rows):
                self._rows.append([])
            self._rows[index + 1].insert(0, joined)

    def _shrink(self) -> bool:
        """Drop the oldest values while some cut leaves two parts that differ."""
        changed = False
        while (newer_is_higher := self._cut()) is not None:
            changed, self.rose = True, newer_is_higher
            self._drop_oldest()
        return changed

    def _cut(self) -> bool | None:
        """Tell of the first cut that shows a change whether the newer part is higher."""
        variance = self._variance / self.width
        spread = math.log(2 * math.log(self.width) / self._delta)
        old, old_total = 0, 0.0
        for index in range(len(self._rows) - 1, -1, -1):
            for total, _ in reversed(self._rows[index]):
                old += 2**index
                old_total += total
                new = self.width - old
                if new < _LEAST:
                    return None
                if old < _LEAST:
                    continue
                gap = (self.total - old_total) / new - old_total / old
                part = 1 / (old - _LEAST + 1) + 1 / (new - _LEAST + 1)
                limit = math.sqrt(2 * part * variance * spread) + 2 / 3 * part * spread
                if abs(gap) > limit:
                    return gap > 0
        return None

    def _drop_oldest(self) -> None:
        index = len(self._rows) - 1
        total, variance = self._rows[index].pop()
        size = 2**index
        self.width -= size
        self.total -= total
        mean = total / size
        self._variance -= variance + size * self.width * (mean - self.mean) ** 2 / (
            size + self.width
        )
        self._variance = max(0.0, self._variance)
        while len(self._rows) > 1 and not self._rows[-1]:
            self._rows.pop()


class PageHinkley:
    """Tells of a mean that rises, of values in units of their own standard deviation.

    Args:
        delta: what a value may be above the mean, in standard deviations. Default: 0.25, half of
            the smallest rise that is to be found.
        threshold: of the sum. Default: 25.
        least: values before the first alarm. Default: 30.
    """

    def __init__(self, delta: float = 0.25, threshold: float = 25.0, least: int = 30) -> None:
        self._delta, self._threshold, self._least = delta, threshold, least
        self._restart()

    def _restart(self) -> None:
        self._count, self.mean, self._squares = 0, 0.0, 0.0
        self._sum = 0.0

    def update(self, value: float) -> bool:
        """Take a value; tell whether the mean has risen. Then it starts anew."""
        self._count += 1
        before = value - self.mean
        spread = math.sqrt(self._squares / (self._count - 1)) if self._count > 2 else 0.0
        step = before / spread if spread > 0 else 0.0
        self.mean += before / self._count
        self._squares += before * (value - self.mean)
        # Never below 0: the same as the distance from the least sum so far.
        self._sum = max(0.0, self._sum + step - self._delta)
        if self._count <= self._least or self._sum <= self._threshold:
            return False
        self._restart()
        return True
