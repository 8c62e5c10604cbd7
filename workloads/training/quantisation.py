"""Quantisation-aware training: a network learns with the roundings that 8 bits will bring.

Jacob and others, 2017, https://arxiv.org/abs/1712.05877. In the last part of a training each
convolution and linear layer computes with weights, inputs and outputs as 8 bits would have them,
and gradients go through the roundings as if there were none (Bengio, Léonard, Courville, 2013,
https://arxiv.org/abs/1308.3432). Weights are signed with a scale for each output, inputs and
outputs unsigned with one for all: as `falaj.workloads.optimization` exports them. The ranges of
inputs and outputs follow those of batches, and go into the export.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from falaj.workloads.training.image_networks import Convolution
from falaj.workloads.training.tensors import modules_of

_BEGINS: Final = 0.7
"""Share of the epochs."""
_FOLLOWING: Final = 0.02
"""Of each batch's least and most, in the ranges."""
_MOST: Final = 255
_MOST_OF_WEIGHTS: Final = 127
_LEAST_SCALE: Final = 1e-12
_BUFFERS: Final = ("taken", "given")

Ranges = dict[str, dict[str, tuple[float, float]]]
"""By a layer's name: of what it has ``taken`` and ``given``, the least and the most."""


def begins(epochs: int) -> int:
    """Return the epoch (from 0 on) of ``epochs`` from which on values are rounded."""
    return math.floor(_BEGINS * epochs)


def rounded(values: Tensor, ends: Tensor) -> Tensor:
    """Return values as 8 unsigned bits have them from the least to the most of ``ends`` (2,)."""
    scale = ((ends[1] - ends[0]) / _MOST).clamp(min=_LEAST_SCALE)
    zero = (-ends[0] / scale).round().clamp(0, _MOST).to(torch.int32)
    return torch.fake_quantize_per_tensor_affine(values.float(), scale, zero, 0, _MOST)


def rounded_weights(weight: Tensor) -> Tensor:
    """Return weights (outputs, …) as 8 signed bits have them, with a scale for each output."""
    most = weight.detach().float().abs().flatten(1).amax(1)
    scale = (most / _MOST_OF_WEIGHTS).clamp(min=_LEAST_SCALE)
    zero = torch.zeros_like(scale, dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(
        weight.float(), scale, zero, 0, -_MOST_OF_WEIGHTS, _MOST_OF_WEIGHTS
    )


class _Rounding(nn.Module):
    """What a layer's class becomes, so that its parameters keep their names and places."""

    is_rounding: bool

    def through(self, name: str, values: Tensor) -> Tensor:
        """Let values through as 8 bits have them; while something is learned, follow them."""
        if not self.is_rounding:
            return values
        ends = self.get_buffer(name)
        if self.training:
            with torch.no_grad():
                # Both ends: 0 is to be one of the numbers.
                seen = torch.stack([values.min().clamp(max=0), values.max().clamp(min=0)]).float()
                is_first = (ends == 0).all()
                ends.copy_(torch.where(is_first, seen, ends.lerp(seen, _FOLLOWING)))
        return rounded(values, ends.clone())


class _Linear(nn.Linear, _Rounding):
    def forward(self, input: Tensor) -> Tensor:
        if not self.is_rounding:
            return super().forward(input)
        taken = self.through("taken", input)
        return self.through(
            "given", functional.linear(taken, rounded_weights(self.weight), self.bias)
        )


class _Convolution(nn.Conv2d, _Rounding):
    def forward(self, input: Tensor) -> Tensor:
        if not self.is_rounding:
            return super().forward(input)
        made = self._conv_forward(
            self.through("taken", input), rounded_weights(self.weight), self.bias
        )
        return self.through("given", made)


class _Normalised(Convolution, _Rounding):  # pyright: ignore[reportIncompatibleVariableOverride]
    """A convolution whose normalisation is folded into it: what it gives is what that gives."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.is_rounding:
            return cast("Any", super()).forward(input)
        convolution, normalisation, *rest = self
        convolution = cast("nn.Conv2d", convolution)
        weight = rounded_weights(convolution.weight)
        made = convolution._conv_forward(self.through("taken", input), weight, convolution.bias)  # pyright: ignore[reportPrivateUsage]
        found = self.through("given", normalisation(made))
        for layer in rest:
            found = layer(found)
        return found


_ROUNDING: Final[dict[type[nn.Module], type[_Rounding]]] = {
    nn.Linear: _Linear, nn.Conv2d: _Convolution, Convolution: _Normalised,
}  # fmt: skip
_PLAIN: Final = {rounding: plain for plain, rounding in _ROUNDING.items()}


def prepare(module: nn.Module) -> None:
    """Have every convolution and linear layer of a network able to round, which none does yet."""
    inner = {
        id(layer[0]) for layer in module.modules() if type(layer) is Convolution
    }  # what is in one of these is rounded with it
    for layer in list(module.modules()):
        rounding = _ROUNDING.get(type(layer))
        if rounding is None or id(layer) in inner:
            continue
        for name in _BUFFERS:
            layer.register_buffer(name, torch.zeros(2))
        layer.__class__ = rounding  # pyright: ignore[reportAttributeAccessIssue]
        cast("_Rounding", layer).is_rounding = False


def switch(module: nn.Module, on: bool) -> None:
    """Have all layers round, or none."""
    for _, layer in _rounding(module):
        layer.is_rounding = on


@torch.no_grad()
def share_ranges(module: nn.Module, average: nn.Module) -> None:
    """Give the ranges of a network to the average of its weights: they are averages themselves."""
    pairs = zip(_rounding(module), _rounding(average), strict=True)
    for (_, source), (_, target) in pairs:
        for name in _BUFFERS:
            target.get_buffer(name).copy_(source.get_buffer(name))


def take_ranges(module: nn.Module) -> Ranges:
    """Make a network's layers what they were, and return the ranges that they had.

    A layer's name is that of what has the weight. What a network multiplies after training, as
    `models.TableNetwork.rescale`, gives other values than were followed: such a network names
    these layers in ``rescaled``, and what they have given isn't returned.
    """
    ranges: Ranges = {}
    later: tuple[str, ...] = getattr(module, "rescaled", ())
    for name, layer in list(_rounding(module)):
        place = f"{name}.0" if isinstance(layer, _Normalised) else name
        found: dict[str, tuple[float, float]] = {}
        for which in _BUFFERS:
            low, high = (float(end) for end in layer.get_buffer(which))
            if high > low and not (which == "given" and name in later):
                found[which] = (low, high)
            delattr(layer, which)
        ranges[place] = found
        del layer.is_rounding
        layer.__class__ = _PLAIN[type(layer)]  # pyright: ignore[reportAttributeAccessIssue]
    return ranges


def to_state(ranges: Ranges) -> dict[str, Any]:
    """Return ranges as a model's file has them."""
    return {name: {which: list(ends) for which, ends in of.items()} for name, of in ranges.items()}


def from_state(state: dict[str, Any]) -> Ranges:
    """Return what `to_state` was given."""
    return {
        name: {which: (float(low), float(high)) for which, (low, high) in of.items()}
        for name, of in state.items()
    }


def _rounding(module: nn.Module) -> Iterator[tuple[str, _Rounding]]:
    for name, layer in modules_of(module):
        if isinstance(layer, _Rounding):
            yield name, layer
