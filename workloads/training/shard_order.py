"""The order of a streamed dataset's rows in an epoch: which row is where, without reading any.

An epoch's shards are permuted, and their rows, one shard behind the other, are dealt to `LANES`
lanes, each a stretch of as many rows as the others' but for one. A lane is gone through by windows
of a few shards, the rows of each in a permutation of their own. Row ``g`` of the epoch is the row
``g // LANES`` of lane ``g % LANES``.

All of it follows from seed, epoch and the shards' sizes. So any row's place is found without
going through those before it, a run that goes on needs no more than its number of steps, and any
number of processes that shares the lanes evenly learns from the same batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.randomness import generator

LANES: Final = 8
"""Stretches that an epoch is dealt to; processes share them, so their number divides it."""
SHARDS_OF_WINDOW: Final = 2
"""Of each lane these are in memory, and shuffled among each other: with all lanes, 16 shards."""

_STREAM: Final = 6  # of randomness below the run's seed, beside those of `batches` and `folds`


@dataclass(frozen=True)
class Piece:
    """Rows of a shard, from ``start`` to before ``stop``."""

    shard: int
    start: int
    stop: int


@dataclass(frozen=True)
class Window:
    """What of a lane is shuffled together.

    Attributes:
        first: place of its first row in the lane.
        pieces: its rows, in the shards' order.
        entropy: fixes their permutation.
    """

    first: int
    pieces: tuple[Piece, ...]
    entropy: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Return how many there are."""
        return sum(piece.stop - piece.start for piece in self.pieces)

    def order(self) -> NDArray[np.int64]:
        """Return the places of its rows, among those of its pieces, as they are learned from."""
        return generator(*self.entropy).permutation(self.rows)


class EpochOrder:
    """The order of one epoch.

    Args:
        rows: of each shard, each one at least.
        seed: the run's.
        epoch: from 0 on.
    """

    def __init__(self, rows: Sequence[int], seed: int, epoch: int) -> None:
        self._entropy = (seed, _STREAM, epoch)
        counts = np.asarray(rows, dtype=np.int64)
        self._shards = generator(*self._entropy).permutation(len(counts))
        self._ends = np.cumsum(counts[self._shards])

    @cached_property
    def rows(self) -> int:
        """Return how many rows the epoch has."""
        return int(self._ends[-1])

    def lane_rows(self, lane: int) -> int:
        """Return how many rows a lane has."""
        return (self.rows - lane + LANES - 1) // LANES

    def windows(self, lane: int) -> list[Window]:
        """Return the windows of a lane, in order."""
        begin = sum(self.lane_rows(each) for each in range(lane))
        pieces = self._pieces(begin, begin + self.lane_rows(lane))
        windows: list[Window] = []
        first = 0
        for place in range(0, len(pieces), SHARDS_OF_WINDOW):
            some = tuple(pieces[place : place + SHARDS_OF_WINDOW])
            windows.append(Window(first, some, (*self._entropy, 1 + lane, len(windows))))
            first += windows[-1].rows
        return windows

    def _pieces(self, begin: int, end: int) -> list[Piece]:
        """The rows from ``begin`` to before ``end`` of the permuted shards."""
        pieces: list[Piece] = []
        place = int(np.searchsorted(self._ends, begin, side="right"))
        while begin < end:
            stop = int(self._ends[place])
            before = int(self._ends[place - 1]) if place else 0
            last = min(stop, end)
            pieces.append(Piece(int(self._shards[place]), begin - before, last - before))
            begin, place = last, place + 1
        return pieces


def lanes_of(rank: int, processes: int) -> list[int]:
    """Return the lanes of a process.

    Raises:
        WorkloadError: so many processes can't share the lanes evenly.
    """
    if LANES % processes:
        allowed = ", ".join(str(each) for each in range(1, LANES + 1) if LANES % each == 0)
        raise WorkloadError(
            f"{processes} processes share the rows of a streamed dataset: allowed are {allowed}, "
            f"as its rows are dealt to {LANES} lanes, which each process has as many of"
        )
    return list(range(rank, LANES, processes))


def span(lane: int, begin: int, end: int) -> tuple[int, int]:
    """Return which rows of a lane are among the epoch's from ``begin`` to before ``end``."""
    return (begin - lane + LANES - 1) // LANES, (end - lane + LANES - 1) // LANES
