"""From a dataset snapshot to tensors: fit and validation rows, preprocessing, target scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import preprocessing
from falaj.workloads.training.batches import Augmentation, class_weights
from falaj.workloads.training.models import Architecture
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.preprocessing import TablePreprocessing
from falaj.workloads.training.snapshot import Dataset, Part
from falaj.workloads.training.split import generator, strata_of, stratified

_VALIDATION = 3  # stream of randomness below the run's seed
_COPIES = 3  # the features, their fit and validation parts, and what making them takes
_VALIDATION_SHARE = {"images": 0.1, "table": 0.15}


@dataclass(frozen=True)
class Materials:
    """What a run learns from and is judged by. Tensors are on the CPU.

    Attributes:
        architecture: the model that fits the data.
        preprocessing: the table's recipe; None for images.
        target_scale: {"mean", "scale"} of a regression's target; None for classes.
        fit: inputs and labels of the rows that are learned from.
        fit_weights: the weight of each fit row in the loss, mean 1.
        validation: inputs, labels and weights of the rows that decide when to stop.
        augmentation: the random changes of fit rows.
    """

    architecture: Architecture
    preprocessing: TablePreprocessing | None
    target_scale: dict[str, float] | None
    fit: tuple[Tensor, Tensor]
    fit_weights: NDArray[np.float32]
    validation: tuple[Tensor, Tensor, Tensor]
    augmentation: Augmentation


def prepare(dataset: Dataset, parameters: Parameters) -> Materials:
    """Cut the validation rows from the training part and make tensors of both.

    The held-out part is not looked at: preprocessing and target scale come from the training
    part alone.
    """
    rows = dataset.rows("train")
    labels = dataset.labels[rows]
    classification = dataset.task == "classification"
    recipe = None
    if dataset.family == "table":
        recipe = preprocessing.fit({name: v[rows] for name, v in dataset.inputs.items()})
        _check_memory(len(labels), recipe.width)
    inputs = features(dataset, "train", recipe)
    scale = None if classification else _scale(labels)
    targets = _targets(labels, scale)
    weights = np.ones(len(labels), dtype=np.float32)
    if classification:
        count = len(dataset.classes or [])
        weights = class_weights(labels, count, parameters.class_weights)[labels]
    fit, validation = stratified(
        strata_of(labels, classification),
        _VALIDATION_SHARE[dataset.family],
        generator(parameters.seed, _VALIDATION),
    )
    if len(validation) == 0:  # every class has but one training row: nothing else is left
        validation = fit
    fit_index, validation_index = torch.from_numpy(fit), torch.from_numpy(validation)
    largest = float(dataset.description["features"][0].get("largest", 1.0))
    return Materials(
        architecture=Architecture(
            family=dataset.family,
            shape=tuple(inputs.shape[1:]),
            outputs=len(dataset.classes) if dataset.classes is not None else 1,
            width=parameters.width,
            largest=largest,
        ),
        preprocessing=recipe,
        target_scale=scale,
        fit=(inputs[fit_index], targets[fit_index]),
        fit_weights=weights[fit],
        validation=(
            inputs[validation_index],
            targets[validation_index],
            torch.from_numpy(weights[validation]),
        ),
        augmentation=Augmentation(recipe.blocks() if recipe is not None else None),
    )


def features(dataset: Dataset, part: Part, recipe: TablePreprocessing | None) -> Tensor:
    """Return the module's inputs for ``part``: images (N, C, H, W) or features (N, F)."""
    rows = dataset.rows(part)
    if recipe is None:
        (name,) = dataset.inputs
        return torch.from_numpy(np.array(dataset.inputs[name][rows], dtype=np.float32))
    return torch.from_numpy(recipe.transform({n: v[rows] for n, v in dataset.inputs.items()}))


def _check_memory(rows: int, width: int) -> None:
    """Refuse features that would not fit: a killed process tells nobody why."""
    needed = _COPIES * rows * width * 4
    available = psutil.virtual_memory().available
    if needed > available:
        raise WorkloadError(
            f"{rows:,} training rows of {width:,} features need about {needed / 2**30:.1f} GiB "
            f"of memory, and {available / 2**30:.1f} GiB are free: take a sample of the rows, or "
            "leave out columns with many different texts"
        )


def _scale(labels: NDArray[Any]) -> dict[str, float]:
    values = labels.astype(np.float64)
    return {"mean": float(values.mean()), "scale": float(values.std()) or 1.0}


def _targets(labels: NDArray[Any], scale: dict[str, float] | None) -> Tensor:
    if scale is None:
        return torch.from_numpy(np.array(labels, dtype=np.int64))
    standard = (labels.astype(np.float64) - scale["mean"]) / scale["scale"]
    return torch.from_numpy(standard.astype(np.float32))
