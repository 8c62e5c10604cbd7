"""Cross-validation of a table: folds of its training rows, and a network that learns from some.

The held-out rows are in no fold. In each, the recipe of the columns, the scale of the target and
the rows that say when to stop come from the other folds alone, as they do of a whole run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from falaj.workloads.training import models
from falaj.workloads.training.batches import Batches, PreparedData
from falaj.workloads.training.dataset import Indices, strata_of
from falaj.workloads.training.distributed import Team
from falaj.workloads.training.loop import Optimisation, predict, row_losses
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.randomness import generator
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.tensors import own_randomness, seed

FOLDS: Final = ((1_000, 5), (4_000, 3))
"""Up to so many training rows so many folds; of more rows, the validation rows say enough, and
learning from all of them again would take too long. With 5 folds training takes up to five times
as long, with 3 up to three times: `race` says who is learned for how many."""

_STREAM: Final = 4  # of randomness below the run's seed


class Stopped(Exception):  # noqa: N818 - no error: somebody asked for it
    """Somebody asked to stop while networks of folds were learning."""


def count(rows: int) -> int:
    """Return how many folds ``rows`` training rows are cut into; 0: none."""
    return next((folds for most, folds in FOLDS if rows <= most), 0)


def assign(strata: Indices, folds: int, random: np.random.Generator) -> Indices:
    """Return each row's fold, (rows,), from 0 on; -1: it is in none, and learned from in all.

    Each stratum is spread over the folds as evenly as it can be, and so are all rows. The row of a
    stratum that has no other is in no fold: nothing would be known of it.

    Args:
        strata: of each row, (rows,).
        folds: how many.
        random: the source of the shuffle.
    """
    found = np.full(len(strata), -1, dtype=np.int64)
    begun = 0
    for stratum in np.unique(strata):
        rows = random.permutation(np.flatnonzero(strata == stratum))
        if len(rows) > 1:
            found[rows] = (np.arange(len(rows)) + begun) % folds
            begun += len(rows)
    return found


def split(dataset: Dataset, folds: int, seed: int) -> Iterator[tuple[Indices, Dataset]]:
    """Cut the training rows into folds.

    Args:
        dataset: whose held-out rows are left out.
        folds: how many.
        seed: of the run.

    Yields:
        The training rows of a fold, by number, and a dataset of which they are what is held out,
        and the other training rows what is learned from. A fold without a row is left out.
    """
    labels = dataset.labels[dataset.rows("train")]
    strata = strata_of(labels, dataset.task == "classification")
    of = assign(strata, folds, generator(seed, _STREAM))
    for fold in range(folds):
        judged, others = np.flatnonzero(of == fold), np.flatnonzero(of != fold)
        if not len(judged):
            continue
        order = np.concatenate([others, judged])
        rows = {"total": len(order), "train": len(others), "held_out": len(judged)}
        yield (
            judged,
            replace(
                dataset,
                description={**dataset.description, "rows": rows},
                inputs={name: values[order] for name, values in dataset.inputs.items()},
                labels=dataset.labels[order],
            ),
        )


def learn_network(
    prepared: PreparedData,
    parameters: Parameters,
    task: str,
    device: torch.device,
    is_stopped: Callable[[], bool],
) -> nn.Module:
    """Train a table's network as a run does, but in this process alone, and without checkpoints.

    Args:
        prepared: the rows.
        parameters: of the run, which makes nothing smaller and has no teacher.
        task: ``classification`` or ``regression``.
        device: that it learns on.
        is_stopped: whether to stop.

    Returns:
        The averaged weights of the epoch that was best on the validation rows, on the CPU, in
        evaluation mode.

    Raises:
        Stopped: it was asked to.
    """
    with own_randomness([]):
        seed(parameters.seed)
        module = models.build(prepared.architecture)
    inputs, labels = (tensor.to(device) for tensor in prepared.fit)
    batches = Batches(
        inputs, labels, prepared.fit_weights,
        batch_size=parameters.batch_size, accumulation=1, augmentation=prepared.augmentation,
        seed=parameters.seed, rank=0, processes=1,
    )  # fmt: skip
    alone = replace(parameters, processes=1, accumulation=1)
    optimisation = Optimisation(module, batches, alone, Team(0, 1, device), task)
    judged = tuple(tensor.to(device) for tensor in prepared.validation)
    best_loss, best_epoch = math.inf, -1
    for epoch in range(parameters.epochs):
        order = batches.order(epoch)
        for step in range(batches.steps):
            if is_stopped():
                raise Stopped
            optimisation.step(order, epoch, step)
        loss = _loss(optimisation, judged, task, parameters.label_smoothing)
        if loss < best_loss:
            best_loss, best_epoch = loss, epoch
            optimisation.keep_best()
        elif epoch - best_epoch >= parameters.patience:
            break
    return optimisation.best_module(lambda: module).cpu().eval()


def _loss(
    optimisation: Optimisation, judged: tuple[Tensor, ...], task: str, smoothing: float
) -> float:
    """The averaged weights' loss on the validation rows."""
    inputs, labels, weights = judged
    with optimisation.averaged() as answers:
        outputs = predict(answers, inputs).float()
    losses = row_losses(outputs, labels, task, smoothing)
    return float((losses * weights).sum() / weights.sum())
