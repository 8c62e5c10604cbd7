"""From a dataset snapshot to tensors in memory, and to the batches of each process."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import language, models
from falaj.workloads.training.dataset import strata_of, stratified
from falaj.workloads.training.models import Architecture, TablePreprocessing
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.randomness import generator
from falaj.workloads.training.snapshot import Dataset, Part
from falaj.workloads.training.tensors import tensor_of

# Streams of randomness below one seed; the augmentation's is also keyed by epoch and step, so
# that a resumed run, and any number of processes, draw the same.
_ORDER, _AUGMENTATION = 1, 2

_LARGEST_SHIFT = 1
_FORGOTTEN_SHARE = 0.03


@dataclass(frozen=True)
class Share:
    """What one process computes of one part of a batch.

    Attributes:
        inputs: (n, …) float32, augmented; characters (n, S) int64 of a text.
        labels: (n,) int64, or float32 for a regression; (n, S) int64 of a text.
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
        chosen = tensor_of(draws).to(inputs.device)
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
        forgotten = tensor_of(draws.astype(bool)).to(inputs.device)
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
        is_even: whether all batches have as many rows, up to one, instead of a last one that may
            have a single row, of which a batch normalisation learns nothing. Default: False.
        count: of an epoch's rows. Default: those of ``labels``.
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
        is_even: bool = False,
        count: int | None = None,
    ) -> None:
        self._is_even = is_even
        self._inputs, self._labels, self._weights = inputs, labels, weights
        self._count = len(labels) if count is None else count
        self._batch_size = min(batch_size, self._count)
        self._accumulation = accumulation
        self._augmentation = augmentation
        self._seed, self._rank, self._processes = seed, rank, processes

    @property
    def steps(self) -> int:
        """Return the batches of an epoch."""
        return -(-self._count // self._batch_size)

    @property
    def parts(self) -> int:
        """Return the parts that a batch is cut into, if it has as many rows."""
        return self._accumulation

    @property
    def most_rows(self) -> int:
        """Return the rows of the largest share."""
        part = math.ceil(self._batch_size / self._accumulation)
        return math.ceil(part / self._processes)

    @property
    def least_rows(self) -> int:
        """Return the rows of the smallest share, which is of the smallest batch."""
        whole, steps = self._count, self.steps
        rows = whole // steps if self._is_even else whole - (steps - 1) * self._batch_size
        return max(1, rows // min(self._accumulation, rows) // self._processes)

    def bounds(self, step: int) -> tuple[int, int]:
        """Return where in the order of an epoch batch ``step`` begins and ends."""
        if self._is_even:
            # As `numpy.array_split`: the first ones have a row more.
            least, more = divmod(self._count, self.steps)
            begin = step * least + min(step, more)
            return begin, begin + least + (step < more)
        begin = step * self._batch_size
        return begin, min(begin + self._batch_size, self._count)

    def close(self) -> None:
        """Let go of what reads rows; these are in memory, which nothing reads."""

    def _draws(self, epoch: int, step: int, rows: int) -> NDArray[np.int64]:
        """The random choices of a batch's rows."""
        random = generator(self._seed, _AUGMENTATION, epoch, step)
        return self._augmentation.draw(random, rows)

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Return the rows of ``epoch`` in the order in which they are learned from."""
        return generator(self._seed, _ORDER, epoch).permutation(len(self._labels))

    def shares(self, order: NDArray[np.int64], epoch: int, step: int) -> Iterator[Share]:
        """Yield this process's share of each part of batch ``step``, never an empty one.

        A process without a row computes one at weight 0, so that all of them take part.
        """
        rows = order[slice(*self.bounds(step))]
        draws = self._draws(epoch, step, len(rows))
        weights = self._weights[rows]
        weights = weights / weights.sum()
        positions = np.arange(len(rows))
        for part in np.array_split(positions, min(self._accumulation, len(rows))):
            mine = np.array_split(part, self._processes)[self._rank]
            own_weights = weights[mine]
            if len(mine) == 0:
                mine, own_weights = positions[:1], np.zeros(1, dtype=np.float32)
            index = tensor_of(rows[mine]).to(self._inputs.device)
            yield Share(
                self._augmentation.apply(self._inputs[index], draws[mine]),
                self._labels[index],
                tensor_of(own_weights).to(self._inputs.device),
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


_VALIDATION = 3  # stream of randomness below the run's seed
_COPIES = 3  # the features, their fit and validation parts, and what making them takes
_OF_ANSWERS = 3  # answers, their logarithms, and the gradient
_OF_WEIGHTS = 5  # weights, gradient, two moments, and the averaged weights
_VALIDATION_SHARE = {"images": 0.1, "table": 0.15, language.FAMILY: 0.1}


@dataclass(frozen=True)
class PreparedData:
    """What a run learns from and is judged by. Tensors are on the CPU.

    Attributes:
        architecture: the model that fits the data.
        preprocessing: the table's recipe; None for images.
        target_scale: {"mean", "scale"} of a regression's target; None for classes.
        fit: inputs and labels of the rows that are learned from.
        fit_weights: the weight of each fit row in the loss, mean 1.
        validation: inputs, labels and weights of the rows that decide when to stop.
        augmentation: the random changes of fit rows.
        tokens_a_character: of the validation rows of a text.
    """

    architecture: Architecture
    preprocessing: TablePreprocessing | None
    target_scale: dict[str, float] | None
    fit: tuple[Tensor, Tensor]
    fit_weights: NDArray[np.float32]
    validation: tuple[Tensor, Tensor, Tensor]
    augmentation: Augmentation
    tokens_a_character: float = 1.0


def prepare(
    dataset: Dataset,
    parameters: Parameters,
    *,
    recipe: TablePreprocessing | None = None,
    scale: dict[str, float] | None = None,
    raw_numbers: bool = False,
) -> PreparedData:
    """Cut the validation rows from the training part and make tensors of both.

    The held-out part is not looked at: preprocessing and target scale come from the training
    part alone.

    Args:
        dataset: the rows.
        parameters: of the run.
        recipe: of a table, that its model has learned with before. Default: it is fitted.
        scale: of a regression's target, likewise.
        raw_numbers: whether a table's numbers come to the model as they are.
    """
    if dataset.family == language.FAMILY:
        return _prepare_text(dataset, parameters)
    if (stream := dataset.stream) is not None:
        described = stream["recipe"]
        recipe = recipe or (TablePreprocessing.from_json(described) if described else None)
        scale = scale or stream["scale"]
    rows = dataset.rows("train")
    labels = dataset.labels[rows]
    classification = dataset.task == "classification"
    if dataset.family == "table":
        inputs = {name: values[rows] for name, values in dataset.inputs.items()}
        recipe = recipe or models.fit(
            inputs, dataset.description["features"], raw_numbers=raw_numbers
        )
        _check_memory(
            _COPIES * len(labels) * recipe.width * 4,
            f"{len(labels):,} training rows of {recipe.width:,} features",
            "take a sample of the rows, or leave out columns with many different texts",
        )
    matrix = features(dataset, "train", recipe)
    scale = None if classification else scale or _scale(labels)
    targets = tensor_of(targets_of(labels, scale))
    weights = np.ones(len(labels), dtype=np.float32)
    if classification:
        count = len(dataset.classes or [])
        weights = class_weights(labels, count, parameters.class_weights)[labels]
    fit, validation = stratified(
        strata_of(labels, classification),
        _VALIDATION_SHARE[dataset.family],
        generator(parameters.seed, _VALIDATION),
    )
    if stream is not None:  # the others are in shards
        fit = validation = np.arange(len(labels))
    if len(validation) == 0:  # every class has but one training row: nothing else is left
        validation = fit
    fit_index, validation_index = tensor_of(fit), tensor_of(validation)
    largest = float(dataset.description["features"][0].get("largest", 1.0))
    return PreparedData(
        architecture=Architecture(
            family=dataset.family,
            shape=tuple(matrix.shape[1:]),
            outputs=len(dataset.classes) if dataset.classes is not None else 1,
            width=parameters.width,
            largest=largest,
            own=parameters.own,
            network=parameters.light_network,
        ),
        preprocessing=recipe,
        target_scale=scale,
        fit=(matrix[fit_index], targets[fit_index]),
        fit_weights=weights[fit],
        validation=(
            matrix[validation_index],
            targets[validation_index],
            tensor_of(weights[validation]),
        ),
        augmentation=Augmentation(recipe.blocks() if recipe is not None else None),
    )


def _prepare_text(dataset: Dataset, parameters: Parameters) -> PreparedData:
    count = len(dataset.labels[dataset.rows("train")]) * dataset.context
    vocabulary = dataset.vocabulary
    assert vocabulary is not None  # noqa: S101 - it is a text
    # Tokens and what follows them, twice: in order, and as fit and validation parts.
    _check_memory(4 * count * 8, f"{count:,} {vocabulary.unit}", "take a part of the text")
    if parameters.device == "cpu":
        _check_vocabulary(vocabulary.size, dataset.context, parameters)
    tokens, targets = windows(dataset, "train")
    fit, validation = stratified(
        np.zeros(len(tokens), dtype=np.int64),
        _VALIDATION_SHARE[dataset.family],
        generator(parameters.seed, _VALIDATION),
    )
    if dataset.stream is not None:  # the others are in shards
        fit = validation = np.arange(len(tokens))
    fit_index, validation_index = tensor_of(fit), tensor_of(validation)
    return PreparedData(
        architecture=Architecture(
            family=dataset.family,
            shape=tuple(tokens.shape[1:]),
            outputs=len(dataset.classes or []),
            width=parameters.width,
            decoder=parameters.decoder,
        ),
        preprocessing=None,
        target_scale=None,
        fit=(tokens[fit_index], targets[fit_index]),
        fit_weights=np.ones(len(fit), dtype=np.float32),
        validation=(
            tokens[validation_index], targets[validation_index], torch.ones(len(validation)),
        ),
        augmentation=Augmentation([]),
        tokens_a_character=language.tokens_a_character(
            vocabulary, targets[validation_index].numpy()
        ),
    )  # fmt: skip


def _check_vocabulary(size: int, context: int, parameters: Parameters) -> None:
    """Refuse what one process wouldn't have the memory for, whatever the layers take."""
    parts = parameters.processes * parameters.accumulation
    answered = max(1, parameters.batch_size // parts) * context
    matrix = size * parameters.width // (parameters.shard * parameters.tensor)
    _check_memory(
        4 * size * answered * _OF_ANSWERS + 4 * matrix * _OF_WEIGHTS,
        f"{size:,} tokens, a matrix of the width {parameters.width:,} and a number for each at "
        f"{answered:,} places of a step",
        "take a smaller --vocabulary, --context, --width or --batch-size, or more --accumulation",
    )


def windows(dataset: Dataset, part: Part) -> tuple[Tensor, Tensor]:
    """Return a text's windows (N, S), and what is learned after each token (N, S)."""
    tokens = np.array(dataset.inputs[language.TOKENS][dataset.rows(part)], dtype=np.int64)
    return tensor_of(tokens), tensor_of(dataset.wanted(part))


def features(dataset: Dataset, part: Part, recipe: TablePreprocessing | None) -> Tensor:
    """Return the module's inputs for ``part``: images (N, C, H, W) or features (N, F)."""
    rows = dataset.rows(part)
    if recipe is None:
        (name,) = dataset.inputs
        return tensor_of(np.array(dataset.inputs[name][rows], dtype=np.float32))
    return tensor_of(recipe.transform({n: v[rows] for n, v in dataset.inputs.items()}))


def _check_memory(needed: int, what: str, hint: str) -> None:
    """Refuse what would not fit: a killed process tells nobody why."""
    available = psutil.virtual_memory().available
    if needed > available:
        raise WorkloadError(
            f"{what} need about {needed / 2**30:.1f} GiB of memory, and "
            f"{available / 2**30:.1f} GiB are free: {hint}"
        )


def _scale(labels: NDArray[Any]) -> dict[str, float]:
    values = labels.astype(np.float64)
    return {"mean": float(values.mean()), "scale": float(values.std()) or 1.0}


def targets_of(labels: NDArray[Any], scale: dict[str, float] | None) -> NDArray[Any]:
    """Return what is learned of labels (N,): class numbers, or values in standard units.

    Args:
        labels: as they are in a dataset.
        scale: {"mean", "scale"} of a regression's target; None: they are classes.
    """
    if scale is None:
        return np.array(labels, dtype=np.int64)
    standard = (labels.astype(np.float64) - scale["mean"]) / scale["scale"]
    return standard.astype(np.float32)
