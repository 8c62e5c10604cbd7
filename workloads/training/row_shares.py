"""Which rows each process of a run has: of every batch, and of those that it is validated with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from falaj.workloads.training.batches import Batches, PreparedData
from falaj.workloads.training.distributed import Team
from falaj.workloads.training.layout import Grid, Layout, parts_of_batch
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.shards import Shards
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.streamed import StreamedBatches


@dataclass(frozen=True)
class RowShare:
    """One process's share of rows that several divide.

    Attributes:
        part: which one it is, from 0 on.
        parts: how many there are.
    """

    part: int
    parts: int

    @classmethod
    def of_process(cls, layout: Layout, grid: Grid | None, team: Team) -> RowShare:
        """The share of this process; those that have a model together have the same rows."""
        return cls(grid.row_part if grid else team.rank, layout.row_parts)

    def batches(
        self, dataset: Dataset, prepared: PreparedData, rows: tuple[Tensor, Tensor],
        parameters: Parameters, device: torch.device,
    ) -> Batches:  # fmt: skip
        """Return what gives its rows of each batch: those at hand, or those of streamed shards.

        Args:
            dataset: where they come from.
            prepared: how they are prepared.
            rows: inputs and labels of all that are learned from; of a streamed dataset unused.
            parameters: of the run.
            device: where they are learned from.
        """
        accumulation = parts_of_batch(parameters)
        if dataset.stream is None:
            return Batches(
                *rows, prepared.fit_weights,
                batch_size=parameters.batch_size, accumulation=accumulation,
                augmentation=prepared.augmentation, seed=parameters.seed,
                rank=self.part, processes=self.parts, is_even=parameters.may_normalise,
            )  # fmt: skip
        return StreamedBatches(
            Shards(dataset), prepared, device,
            batch_size=parameters.batch_size, accumulation=accumulation,
            seed=parameters.seed, rank=self.part, processes=self.parts,
            is_even=parameters.may_normalise, ahead=parameters.read_ahead,
        )  # fmt: skip

    def of(self, *every: Tensor) -> list[Tensor]:
        """Return its part of rows, as many as the others'; of the last tensor 0 for more."""
        rows = len(every[0])
        size = math.ceil(rows / self.parts)
        index = torch.arange(size, device=every[0].device) + size * self.part
        is_one = index < rows
        *others, counts = (each[index.clamp(max=rows - 1)] for each in every)
        return [*others, counts * is_one]
