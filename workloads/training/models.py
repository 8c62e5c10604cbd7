"""The models of images, tables and texts, and the features that a table's columns become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import image_networks, linear, own_model
from falaj.workloads.training.dates import WIDTH, DateColumn, DateForm, date_features, fit_date
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.decoder_size import DEFAULT_SIZE, DecoderSize
from falaj.workloads.training.frequencies import frequencies
from falaj.workloads.training.language import FAMILY
from falaj.workloads.training.linear import TableLinear, rescale_linear
from falaj.workloads.training.own_code import OwnCode, OwnModel
from falaj.workloads.training.pruning import Group, Part, narrow
from falaj.workloads.training.trees import TableTrees
from falaj.workloads.training.words import WordsColumn, fit_words, word_features

_LAST_LAYER_START = 0.1

SMALLEST_SIDE = 6
"""Below, nothing is left after the pooling and the unpadded convolution."""


@dataclass(frozen=True)
class Architecture:
    """Everything that is needed to build the module again.

    Attributes:
        family: ``images``, ``table`` or ``text``.
        shape: one row's input: (channels, height, width), (features,) or (characters,).
        outputs: the number of classes or characters, or 1 for a regression.
        width: channels of the first convolution, units of a hidden layer, or numbers between a
            decoder's layers.
        largest: the largest input value of images, which is scaled to 1.
        trees: of a table's `TableTrees`; 0 for a network.
        nodes: the most of one of them.
        own: the class of a team's own, which takes the place of all that; None: one of ours.
        network: of images, the name of a light one (`image_networks.NETWORKS`); empty:
            `ConvolutionalNetwork`. Of a table `linear.NAME` for a linear model.
        decoder: how many layers and heads a text's decoder has.
        widths: units of each of the network's groups (`pruning`), of which some were taken out;
            empty: none was.
        factor: what the answers of a team's own model are multiplied by (`Tempered`).
    """

    family: str
    shape: tuple[int, ...]
    outputs: int
    width: int
    largest: float = 1.0
    trees: int = 0
    nodes: int = 0
    own: OwnModel | None = None
    network: str = ""
    decoder: DecoderSize = DEFAULT_SIZE
    widths: tuple[int, ...] = ()
    factor: float = 1.0

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        values = asdict(self)
        if not self.widths:
            del values["widths"]
        if not self.network:
            del values["network"]  # federations had their names before there was a choice
        if self.decoder == DEFAULT_SIZE:
            del values["decoder"]
        if self.factor == 1:
            del values["factor"]
        return values

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Architecture:
        """Return what `to_json` wrote."""
        return cls(
            family=value["family"],
            shape=tuple(value["shape"]),
            outputs=value["outputs"],
            width=value["width"],
            largest=value["largest"],
            trees=value["trees"],
            nodes=value["nodes"],
            # Not in what earlier versions wrote.
            own=OwnModel(**value["own"]) if value.get("own") else None,
            network=value.get("network", ""),
            decoder=DecoderSize(**value.get("decoder", {})),
            widths=tuple(value.get("widths", ())),
            factor=float(value.get("factor", 1.0)),
        )


class ConvolutionalNetwork(nn.Module):
    """Three convolutions and a linear layer: 15,338 parameters for 8x8 digits at width 16.

    There is no batch normalisation: its statistics would make two processes differ from one,
    and at this depth it gains nothing.

    Args:
        architecture: the family must be ``images``.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        channels, height, width = architecture.shape
        if min(height, width) < SMALLEST_SIDE:
            raise WorkloadError(
                f"images are {height}x{width}: at least {SMALLEST_SIDE}x{SMALLEST_SIDE} is needed"
            )
        first, second = architecture.width, 2 * architecture.width
        self.scale = 1.0 / architecture.largest
        self.layers = nn.Sequential(
            nn.Conv2d(channels, first, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(second, second, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(second * (height // 2 - 2) * (width // 2 - 2), architecture.outputs),
        )
        _initialise(self.layers)

    def forward(self, images: Tensor) -> Tensor:
        """Return the classes' logits (N, classes) of raw images (N, channels, height, width)."""
        return self.layers(images * self.scale)

    rescaled = ("layers.8",)
    """The layers whose outputs `rescale` changes."""

    def rescale(self, factor: float) -> None:
        """Multiply the outputs by ``factor``."""
        rescale_linear(cast("nn.Linear", self.layers[-1]), factor)

    def groups(self) -> list[Group]:
        """Return the channels of each convolution."""
        first, second, third, last = (
            cast("nn.Conv2d | nn.Linear", self.layers[place]) for place in (0, 3, 5, 8)
        )
        channels = [int(layer.weight.shape[0]) for layer in (first, second, third)]
        span = last.weight.shape[1] // channels[-1]
        return [
            Group(channels[0], (Part("layers.0", 0), Part("layers.3", 1))),
            Group(channels[1], (Part("layers.3", 0), Part("layers.5", 1))),
            Group(channels[2], (Part("layers.5", 0), Part("layers.8", 1, span))),
        ]


class TableNetwork(nn.Module):
    """Two hidden layers beside a straight linear path, over preprocessed features.

    The first layer's columns for a one-hot block are that category's embedding.

    Args:
        architecture: the family must be ``table``.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        (features,) = architecture.shape
        width = architecture.width
        self.deep = nn.Sequential(
            nn.Linear(features, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, architecture.outputs),
        )
        self.straight = nn.Linear(features, architecture.outputs, bias=False)
        _initialise(self.deep)
        nn.init.zeros_(self.straight.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (N, classes) or standardised values (N, 1) of features (N, F)."""
        return self.deep(features) + self.straight(features)

    def groups(self) -> list[Group]:
        """Return the units of each hidden layer."""
        units = [cast("nn.Linear", self.deep[place]).out_features for place in (0, 2)]
        return [
            Group(units[0], (Part("deep.0", 0), Part("deep.2", 1))),
            Group(units[1], (Part("deep.2", 0), Part("deep.4", 1))),
        ]

    rescaled = ("deep.4", "straight")
    """The layers whose outputs `rescale` changes."""

    def rescale(self, factor: float, shift: Tensor) -> None:
        """Multiply the outputs by ``factor`` and add ``shift`` (outputs,) to them."""
        rescale_linear(cast("nn.Linear", self.deep[-1]), factor, shift)
        with torch.no_grad():
            self.straight.weight.mul_(factor)


class Tempered(nn.Module):
    """A team's own model whose answers are multiplied by a factor.

    Where a network of ours has it in the weights of its last layer, nobody but its code knows
    which layer of this one that is.

    Args:
        module: the model.
        factor: above 0.
    """

    def __init__(self, module: nn.Module, factor: float) -> None:
        super().__init__()
        self.module, self.factor = module, factor

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the model's logits (N, classes), multiplied."""
        return self.module(inputs) * self.factor


def exported_of(module: nn.Module, own: OwnModel | None) -> nn.Module:
    """Return what is exported of a module: itself, or of a team's own as `own_model.merged`."""
    if isinstance(module, Tempered):
        return Tempered(own_model.merged(module.module, own), module.factor).eval()
    return own_model.merged(module, own)


def untempered(
    architecture: Architecture, state: dict[str, Tensor]
) -> tuple[Architecture, dict[str, Tensor]]:
    """Return architecture and numbers of what is in a `Tempered`; others as they are."""
    if architecture.factor == 1:
        return architecture, state
    inner = {name.removeprefix("module."): tensor for name, tensor in state.items()}
    return replace(architecture, factor=1.0), inner


def build(architecture: Architecture, code: OwnCode | None = None) -> nn.Module:
    """Return a module with fresh weights from torch's current random state.

    Args:
        architecture: what it is.
        code: that a model of a team's own is in. Default: it is one of ours.

    Raises:
        WorkloadError: the family or the network is unknown, the images are too small, or a team's
            own model can't be made.
    """
    module = _build(architecture, code)
    if architecture.widths:
        narrow(module, architecture.widths)
    return module


def _build(architecture: Architecture, code: OwnCode | None) -> nn.Module:
    if architecture.own is not None:
        if code is None:
            raise WorkloadError(
                f"{architecture.own.name} is a team's own model: its code is missing"
            )
        made = own_model.build(code, architecture.own, architecture.shape, architecture.outputs)
        return made if architecture.factor == 1 else Tempered(made, architecture.factor)
    if architecture.family == "table":
        return _build_table(architecture)
    if architecture.network:
        make = image_networks.NETWORKS.get(architecture.network)
        if make is None:
            known = ", ".join(image_networks.NETWORKS)
            raise WorkloadError(f"unknown network {architecture.network!r}: {known}")
        return make(
            architecture.shape, architecture.outputs, architecture.width, architecture.largest
        )
    if architecture.family == "images":
        return ConvolutionalNetwork(architecture)
    if architecture.family == FAMILY:
        (context,) = architecture.shape
        return Decoder(context, architecture.outputs, architecture.width, architecture.decoder)
    raise WorkloadError(f"unknown model family {architecture.family!r}: images, table or text")


def _build_table(architecture: Architecture) -> nn.Module:
    (features,) = architecture.shape
    if architecture.network == linear.NAME:
        return TableLinear(features, architecture.outputs)
    if architecture.trees:
        return TableTrees(architecture.trees, architecture.nodes, architecture.outputs)
    return TableNetwork(architecture)


def parameter_count(module: nn.Module) -> int:
    """Return how many numbers are learned; of trees, thresholds and what leaves say."""
    learned = [*module.parameters()]
    if isinstance(module, TableTrees):
        learned = [module.get_buffer("threshold"), module.get_buffer("value")]
    return sum(tensor.numel() for tensor in learned)


def _initialise(layers: nn.Sequential) -> None:
    """He initialisation before each ReLU; a small last layer, so that training starts unsure."""
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    with torch.no_grad():
        list(layers.parameters())[-2].mul_(_LAST_LAYER_START)


# From a table's raw columns to the features that the model sees, fixed by the training part.

MAXIMUM_CATEGORIES = 100
"""The most frequent texts of a column get a feature each; the rest share one."""

_LEAST_ROWS_OF_A_CATEGORY = 2
_FLOAT32_ROUNDING = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class NumericColumn:
    """A number: missing ones become ``fill`` (the median), then (value - mean) / scale."""

    name: str
    fill: float
    mean: float
    scale: float


@dataclass(frozen=True)
class CategoricalColumn:
    """A text: one-hot over ``categories``, before them one feature for missing and unknown."""

    name: str
    categories: list[str]


@dataclass(frozen=True)
class TablePreprocessing:
    """The features' recipe; the exported graph computes the same.

    The features are, in this order: every numeric column, standardised; then for each
    categorical column one feature for missing or unknown texts followed by one for each of its
    categories; then those of each date (`dates.date_features`) and of each free text
    (`words.word_features`).
    """

    numeric: list[NumericColumn]
    categorical: list[CategoricalColumn]
    dates: list[DateColumn] = field(default_factory=list[DateColumn])
    words: list[WordsColumn] = field(default_factory=list[WordsColumn])

    @property
    def columns(self) -> list[NumericColumn | CategoricalColumn | DateColumn | WordsColumn]:
        """Return the columns in the order of the features."""
        return [*self.numeric, *self.categorical, *self.dates, *self.words]

    @property
    def width(self) -> int:
        """Return F, the number of features."""
        words = sum(item.width + 1 for item in self.words)
        return self._plain_width + WIDTH * len(self.dates) + words

    @property
    def _plain_width(self) -> int:
        """Features of numeric and categorical columns, which come first."""
        return len(self.numeric) + sum(len(item.categories) + 1 for item in self.categorical)

    def blocks(self) -> list[tuple[int, int]]:
        """Return where each categorical column's features begin and end."""
        blocks: list[tuple[int, int]] = []
        start = len(self.numeric)
        for item in self.categorical:
            blocks.append((start, start + len(item.categories) + 1))
            start = blocks[-1][1]
        return blocks

    def transform(self, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return the features (rows, F), computed in 32-bit floats.

        Args:
            inputs: each column by name, (rows,) or (rows, 1): float with NaN where missing, or
                text with "" where missing, as it stands in the table.

        Raises:
            KeyError: a column is missing.
        """
        first = inputs[self.columns[0].name]
        features = np.zeros((len(first), self.width), dtype=np.float32)
        for index, column in enumerate(self.numeric):
            values = inputs[column.name].reshape(-1).astype(np.float32)
            filled = np.where(np.isnan(values), np.float32(column.fill), values)
            features[:, index] = (filled - np.float32(column.mean)) / np.float32(column.scale)
        every = np.arange(len(first))
        for column, (start, _) in zip(self.categorical, self.blocks(), strict=True):
            position = {text: index + 1 for index, text in enumerate(column.categories)}
            texts = inputs[column.name].reshape(-1)
            found = np.array([position.get(text, 0) for text in texts], dtype=np.int64)
            features[every, start + found] = 1.0
        start = self._plain_width
        made = [date_features(item, inputs[item.name].reshape(-1)) for item in self.dates]
        made += [word_features(item, inputs[item.name].reshape(-1)) for item in self.words]
        for each in made:
            features[:, start : start + each.shape[1]] = each
            start += each.shape[1]
        return features

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TablePreprocessing:
        """Return what `to_json` wrote."""
        return cls(
            [NumericColumn(**item) for item in value["numeric"]],
            [CategoricalColumn(**item) for item in value["categorical"]],
            [DateColumn(**item) for item in value["dates"]],
            [WordsColumn(**item) for item in value["words"]],
        )


def fit(
    inputs: Mapping[str, NDArray[Any]],
    described: Sequence[Mapping[str, Any]] = (),
    *,
    raw_numbers: bool = False,
) -> TablePreprocessing:
    """Learn the recipe from the training part.

    Args:
        inputs: each column, (rows,): floats with NaN, or text objects with "", where missing.
        described: the columns' ``name`` and ``kind`` in dataset.json, and of dates their ``form``.
            Default: texts are categories.
        raw_numbers: whether numbers stay as they are, and missing ones become 0.
    """
    numeric: list[NumericColumn] = []
    categorical: list[CategoricalColumn] = []
    dates: list[DateColumn] = []
    words: list[WordsColumn] = []
    columns = {each["name"]: each for each in described}
    for name, values in inputs.items():
        kind = columns.get(name, {}).get("kind")
        if kind == "words":
            words.append(fit_words(name, values))
        elif kind == "date":
            dates.append(fit_date(name, values, DateForm(**columns[name]["form"])))
        elif values.dtype == object:
            categorical.append(CategoricalColumn(name, _categories(values)))
        elif raw_numbers:
            numeric.append(NumericColumn(name, 0.0, 0.0, 1.0))
        else:
            numeric.append(_number(name, values.astype(np.float64)))
    return TablePreprocessing(numeric, categorical, dates, words)


def _number(name: str, values: NDArray[np.float64]) -> NumericColumn:
    present = values[~np.isnan(values)]
    if len(present) == 0:  # the file had values, but none fell into the training part
        return NumericColumn(name, 0.0, 0.0, 1.0)
    mean, scale = float(present.mean()), float(present.std())
    # What 32-bit floats can't tell from a constant is rounding: don't blow that up.
    steady = scale <= _FLOAT32_ROUNDING * abs(mean) or np.float32(scale) == 0
    return NumericColumn(name, float(np.median(present)), mean, 1.0 if steady else scale)


def _categories(values: NDArray[Any]) -> list[str]:
    counts = frequencies(values)
    frequent = [name for name, count in counts.items() if count >= _LEAST_ROWS_OF_A_CATEGORY]
    return sorted(frequent[:MAXIMUM_CATEGORIES])
