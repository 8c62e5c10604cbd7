"""The two model families: a compact convolutional network and a table network."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from falaj.workloads.errors import WorkloadError

_LAST_LAYER_START = 0.1

SMALLEST_SIDE = 6
"""Below, nothing is left after the pooling and the unpadded convolution."""


@dataclass(frozen=True)
class Architecture:
    """Everything that is needed to build the module again.

    Attributes:
        family: ``images`` or ``table``.
        shape: one row's input: (channels, height, width) or (features,).
        outputs: the number of classes, or 1 for a regression.
        width: channels of the first convolution, or units of a hidden layer.
        largest: the largest input value of images, which is scaled to 1.
    """

    family: str
    shape: tuple[int, ...]
    outputs: int
    width: int
    largest: float = 1.0

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Architecture:
        """Return what `to_json` wrote."""
        return cls(
            family=value["family"],
            shape=tuple(value["shape"]),
            outputs=value["outputs"],
            width=value["width"],
            largest=value["largest"],
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


def build(architecture: Architecture) -> nn.Module:
    """Return a module with fresh weights from torch's current random state.

    Raises:
        WorkloadError: the family is unknown or the images are too small.
    """
    if architecture.family == "images":
        return ConvolutionalNetwork(architecture)
    if architecture.family == "table":
        return TableNetwork(architecture)
    raise WorkloadError(f"unknown model family {architecture.family!r}: images or table")


def parameter_count(module: nn.Module) -> int:
    """Return how many numbers are learned."""
    return sum(parameter.numel() for parameter in module.parameters())


def _initialise(layers: nn.Sequential) -> None:
    """He initialisation before each ReLU; a small last layer, so that training starts unsure."""
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    with torch.no_grad():
        list(layers.parameters())[-2].mul_(_LAST_LAYER_START)
