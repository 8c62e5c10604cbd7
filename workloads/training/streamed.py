"""Batches of a dataset that lies in shards: read ahead by a thread, a few shards in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from falaj.workloads.training.ahead import Ahead
from falaj.workloads.training.batches import Batches, PreparedData, Share, targets_of
from falaj.workloads.training.language import FAMILY, following
from falaj.workloads.training.models import TablePreprocessing
from falaj.workloads.training.shard_order import LANES, EpochOrder, Window, lanes_of, span
from falaj.workloads.training.shards import Shards
from falaj.workloads.training.tensors import tensor_of

_AHEAD_ROWS: Final = 8_192
_AHEAD_BYTES: Final = 16 << 20
_LEAST_AHEAD, _MOST_AHEAD = 2, 64
"""Batches that wait for being learned from: as many as have so many rows and bytes, within
bounds."""
_NUMBER_BYTES: Final = 4
_TOKEN_BYTES: Final = 2 * 8
"""Of a number of a row, and of a token with the one that follows it."""

Rows = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class _Made:
    """This process's rows of a batch.

    Attributes:
        places: of the rows in the batch, ascending, (n,).
        inputs: (n, …).
        labels: (n,).
    """

    epoch: int
    step: int
    places: NDArray[np.int64]
    inputs: Tensor
    labels: Tensor


class Lane:
    """Gives the rows of one lane of an epoch in order; one window is in memory."""

    def __init__(self, windows: list[Window], read: _Reader) -> None:
        self._windows, self._read = windows, read
        self._next = 0
        self._held: tuple[Window, NDArray[np.int64], Rows] | None = None

    def rows(self, start: int, stop: int) -> Iterator[Rows]:
        """Yield the rows from ``start`` to before ``stop``, which are behind those before."""
        while start < stop:
            window, order, (inputs, labels) = self._window_of(start)
            last = min(stop, window.first + window.rows)
            chosen = order[start - window.first : last - window.first]
            yield inputs[chosen], labels[chosen]
            start = last

    def _window_of(self, place: int) -> tuple[Window, NDArray[np.int64], Rows]:
        held = self._held
        while held is None or place >= held[0].first + held[0].rows:
            window = self._windows[self._next]
            self._next += 1
            if place < window.first + window.rows:
                self._held = held = None  # before the next is read: both needn't be in memory
                held = self._held = (window, window.order(), self._read.window(window))
        return held


class _Reader:
    """Reads windows, as a model learns from them."""

    def __init__(
        self,
        shards: Shards,
        recipe: TablePreprocessing | None,
        scale: dict[str, float] | None,
        *,
        is_text: bool,
    ) -> None:
        self._shards, self._recipe, self._scale = shards, recipe, scale
        self._is_text = is_text

    def window(self, window: Window) -> Rows:
        """Return inputs (n, …), of pictures and texts as they lie there, and labels (n,)."""
        parts = [self._piece(each.shard, each.start, each.stop) for each in window.pieces]
        inputs, labels = zip(*parts, strict=True)
        return np.concatenate(inputs), np.concatenate(labels)

    def learned(self, inputs: NDArray[Any], labels: NDArray[Any]) -> Rows:
        """Return rows of windows in the form that a batch has."""
        if self._is_text:
            tokens = inputs.astype(np.int64)
            return tokens, following(tokens, labels)
        return inputs.astype(np.float32, copy=False), labels

    def _piece(self, shard: int, start: int, stop: int) -> Rows:
        inputs, labels = self._shards.read(shard)
        inputs = {name: values[start:stop] for name, values in inputs.items()}
        if self._recipe is None:
            (matrix,) = inputs.values()
        else:
            matrix = self._recipe.transform(inputs)
        return matrix, targets_of(labels[start:stop], self._scale)


class StreamedBatches(Batches):
    """As `Batches`, of rows that are read while others are learned from.

    Args:
        shards: the rows.
        prepared: what fits them; its ``fit`` are rows that are at hand.
        device: that shares are on.
        batch_size, accumulation, seed, rank, processes, is_even: as of `Batches`.
        ahead: batches that wait for being learned from, at most. Default (0): as many as have
            8,192 rows and 16 MiB, 2 to 64.

    Attributes:
        ahead: likewise.

    Raises:
        WorkloadError: so many processes can't share the rows.
    """

    def __init__(
        self,
        shards: Shards,
        prepared: PreparedData,
        device: torch.device,
        *,
        batch_size: int,
        accumulation: int,
        seed: int,
        rank: int,
        processes: int,
        is_even: bool,
        ahead: int = 0,
    ) -> None:
        # A process without a row computes one at weight 0: one that is at hand.
        super().__init__(
            prepared.fit[0][:1].to(device), prepared.fit[1][:1].to(device),
            np.ones(1, dtype=np.float32), batch_size=batch_size, accumulation=accumulation,
            augmentation=prepared.augmentation, seed=seed, rank=rank, processes=processes,
            is_even=is_even, count=sum(shards.rows),
        )  # fmt: skip
        self._device = device
        self._lanes = lanes_of(rank, processes)
        self._counts = shards.rows
        is_text = prepared.architecture.family == FAMILY
        self._reader = _Reader(
            shards, prepared.preprocessing, prepared.target_scale, is_text=is_text
        )
        rows = max(1, self._batch_size // self._processes)
        row_bytes = math.prod(prepared.architecture.shape)
        row_bytes *= _TOKEN_BYTES if is_text else _NUMBER_BYTES
        wanted = min(_AHEAD_ROWS, _AHEAD_BYTES // row_bytes)
        self.ahead = ahead or min(max(wanted // rows, _LEAST_AHEAD), _MOST_AHEAD)
        self._ahead: Ahead[_Made] | None = None
        self._due = (-1, -1)

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Return none: what is learned from when is known where it is read."""
        del epoch
        return np.empty(0, dtype=np.int64)

    def shares(self, order: NDArray[np.int64], epoch: int, step: int) -> Iterator[Share]:
        """As `Batches.shares`.

        Raises:
            WorkloadError: a shard is missing or damaged; names it.
        """
        del order
        made = self._get(epoch, step)
        begin, end = self.bounds(step)
        rows = end - begin
        draws = self._draws(epoch, step, rows)
        weight = np.float32(1) / np.float32(rows)
        for part in np.array_split(np.arange(rows), min(self._accumulation, rows)):
            first, last = np.searchsorted(made.places, (part[0], part[-1] + 1))
            if first == last:
                yield Share(
                    self._augmentation.apply(self._inputs, draws[:1]), self._labels,
                    torch.zeros(1, device=self._device),
                )  # fmt: skip
                continue
            inputs = made.inputs[first:last].to(self._device, non_blocking=True)
            yield Share(
                self._augmentation.apply(inputs, draws[made.places[first:last]]),
                made.labels[first:last].to(self._device, non_blocking=True),
                torch.full((int(last - first),), float(weight), device=self._device),
            )

    def close(self) -> None:
        """Read no further."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def _get(self, epoch: int, step: int) -> _Made:
        """This process's rows of a batch; where others were expected, they are read anew."""
        if self._ahead is None or self._due != (epoch, step):
            self.close()
            self._ahead = Ahead(self._walk(epoch, step), self.ahead)
        made = self._ahead.next()
        self._due = (epoch, step + 1) if step + 1 < self.steps else (epoch + 1, 0)
        return made

    def _walk(self, epoch: int, step: int) -> Iterator[_Made]:
        """Yield the batches from one on, through all epochs that follow."""
        while True:
            order = EpochOrder(self._counts, self._seed, epoch)
            lanes = {each: Lane(order.windows(each), self._reader) for each in self._lanes}
            for at in range(step, self.steps):
                yield self._make(lanes, epoch, at)
            epoch, step = epoch + 1, 0

    def _make(self, lanes: dict[int, Lane], epoch: int, step: int) -> _Made:
        begin, end = self.bounds(step)
        places = np.concatenate([
            np.arange(start * LANES + number, stop * LANES + number, LANES) - begin
            for number in lanes
            for start, stop in [span(number, begin, end)]
        ])  # fmt: skip
        found = [
            rows for number, lane in lanes.items() for rows in lane.rows(*span(number, begin, end))
        ]
        if not found:
            return _Made(epoch, step, places, self._inputs[:0].cpu(), self._labels[:0].cpu())
        inputs, labels = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.argsort(places)
        inputs, labels = self._reader.learned(inputs[order], labels[order])
        return _Made(epoch, step, places[order], self._pinned(inputs), self._pinned(labels))

    def _pinned(self, values: NDArray[Any]) -> Tensor:
        """A tensor that a GPU fetches while it computes."""
        tensor = tensor_of(values)
        return tensor.pin_memory() if self._device.type == "cuda" else tensor
