"""The training rows in memory, their order, their augmentation and each process's share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from falaj.workloads.training.split import generator

# Streams of randomness below one seed; the augmentation's is also keyed by epoch and step, so
# that a resumed run, and any number of processes, draw the same.
_ORDER, _AUGMENTATION = 1, 2

_LARGEST_SHIFT = 1
_FORGOTTEN_SHARE = 0.03


@dataclass(frozen=True)
class Share:
    """What one process computes of one part of a batch.

    Attributes:
        inputs: (n, …) float32, augmented.
        labels: (n,) int64, or float32 for a regression.
        weights: (n,) each row's share of the batch's loss; the whole batch sums to 1.
    """

    inputs: Tensor
    labels: Tensor
    weights: Tensor


class Augmentation:
    """Random changes that don't change the truth: drawn for a whole batch, applied to a part.

    Args:
        blocks: for tables, where each categorical column's features begin and end: sometimes the
            text is replaced by the feature for unknown texts, which learns what to say then.
            None for images, which are shifted by up to a pixel each way.
    """

    def __init__(self, blocks: list[tuple[int, int]] | None) -> None:
        self._blocks = blocks

    def draw(self, random: np.random.Generator, rows: int) -> NDArray[np.int64]:
        """Return one line of random choices per row."""
        if self._blocks is None:
            return random.integers(0, 2 * _LARGEST_SHIFT + 1, (rows, 2))
        return (random.random((rows, len(self._blocks))) < _FORGOTTEN_SHARE).astype(np.int64)

    def apply(self, inputs: Tensor, draws: NDArray[np.int64]) -> Tensor:
        """Return changed ``inputs`` (n, …) by ``draws`` (n, …)."""
        if self._blocks is not None:
            return self._forget(inputs, draws)
        height, width = inputs.shape[-2:]
        chosen = torch.from_numpy(draws).to(inputs.device)
        padded = functional.pad(inputs, (_LARGEST_SHIFT,) * 4)
        rows = chosen[:, :1] + torch.arange(height, device=inputs.device)
        columns = chosen[:, 1:] + torch.arange(width, device=inputs.device)
        every = torch.arange(len(inputs), device=inputs.device)
        # Indexing by three index tensors around a slice puts the channels last.
        shifted = padded[every[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        return shifted.permute(0, 3, 1, 2).contiguous()

    def _forget(self, inputs: Tensor, draws: NDArray[np.int64]) -> Tensor:
        if not draws.any():
            return inputs
        changed = inputs.clone()
        forgotten = torch.from_numpy(draws.astype(bool)).to(inputs.device)
        for index, (start, end) in enumerate(self._blocks or []):
            rows = forgotten[:, index]
            changed[rows, start:end] = 0.0
            changed[rows, start] = 1.0
        return changed


class Batches:
    """Gives the shares of one process, in an order that seed and epoch fix.

    Args:
        inputs: (rows, …) float32 on the device.
        labels: (rows,) on the device.
        weights: (rows,) float32 weights of the rows, on the CPU.
        batch_size: rows of a batch over all processes; the last one of an epoch may be smaller.
        accumulation: parts that each batch is cut into.
        augmentation: the random changes.
        seed: the run's seed.
        rank: this process's number.
        processes: how many processes share each batch.
    """

    def __init__(
        self,
        inputs: Tensor,
        labels: Tensor,
        weights: NDArray[np.float32],
        *,
        batch_size: int,
        accumulation: int,
        augmentation: Augmentation,
        seed: int,
        rank: int,
        processes: int,
    ) -> None:
        self._inputs, self._labels, self._weights = inputs, labels, weights
        self._batch_size = min(batch_size, len(labels))
        self._accumulation = accumulation
        self._augmentation = augmentation
        self._seed, self._rank, self._processes = seed, rank, processes

    @property
    def steps(self) -> int:
        """Return the batches of an epoch."""
        return -(-len(self._labels) // self._batch_size)

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Return the rows of ``epoch`` in the order in which they are learned from."""
        return generator(self._seed, _ORDER, epoch).permutation(len(self._labels))

    def shares(self, order: NDArray[np.int64], epoch: int, step: int) -> Iterator[Share]:
        """Yield this process's share of each part of batch ``step``, never an empty one.

        A process without a row computes one at weight 0, so that all of them take part.
        """
        rows = order[step * self._batch_size : (step + 1) * self._batch_size]
        random = generator(self._seed, _AUGMENTATION, epoch, step)
        draws = self._augmentation.draw(random, len(rows))
        weights = self._weights[rows]
        weights = weights / weights.sum()
        positions = np.arange(len(rows))
        for part in np.array_split(positions, min(self._accumulation, len(rows))):
            mine = np.array_split(part, self._processes)[self._rank]
            own_weights = weights[mine]
            if len(mine) == 0:
                mine, own_weights = positions[:1], np.zeros(1, dtype=np.float32)
            index = torch.from_numpy(rows[mine]).to(self._inputs.device)
            yield Share(
                self._augmentation.apply(self._inputs[index], draws[mine]),
                self._labels[index],
                torch.from_numpy(own_weights).to(self._inputs.device),
            )


def class_weights(labels: NDArray[np.int64], classes: int, choice: str) -> NDArray[np.float32]:
    """Return the weight of each class in the loss, with mean 1 over the rows.

    Args:
        labels: the training rows' classes, shape (rows,).
        classes: how many classes there are.
        choice: ``balanced`` weighs inversely to the class's frequency, ``tempered`` inversely to
            its square root, which costs less accuracy; both at most ten times the mean. ``none``
            gives 1 to all.
    """
    if choice == "none":
        return np.ones(classes, dtype=np.float32)
    counts = np.bincount(labels, minlength=classes)
    power = 1.0 if choice == "balanced" else 0.5
    weights = np.minimum((len(labels) / (classes * np.maximum(counts, 1))) ** power, 10.0)
    return (weights / weights[labels].mean()).astype(np.float32)


def is_imbalanced(labels: NDArray[np.int64], classes: int) -> bool:
    """Return whether the largest class has more than three times the rows of the smallest."""
    counts = np.bincount(labels, minlength=classes)
    present = counts[counts > 0]
    return bool(present.max() > 3 * present.min())
