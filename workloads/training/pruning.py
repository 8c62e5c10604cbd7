"""Structured pruning: hidden units and channels that matter least are taken out of a network.

While it learns, more and more of them are held at 0, on the schedule of Zhu and Gupta, 2017
(https://arxiv.org/abs/1710.01878), and the others learn to do without. In the end they are cut
out: matrices get smaller, and the answers stay the same.

A unit matters as much as the product of the norms of what makes it and of what is made of it,
which stays the same where the one is multiplied and the other divided. What a normalisation
undoes doesn't count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

_BEGINS: Final = 0.1
_SETTLES: Final = 0.4
"""Shares of the epochs."""
_STEP: Final = 8
"""Units are kept in multiples of it where they come in such, which processors are fast with."""


@dataclass(frozen=True)
class Part:
    """What one layer has of each of a group's units.

    Attributes:
        layer: its name in the network.
        axis: 0: the layer gives the units, 1: it takes them.
        span: numbers along the axis that a unit has.
        counts: whether the norm of these numbers says how much a unit matters.
    """

    layer: str
    axis: int
    span: int = 1
    counts: bool = True


@dataclass(frozen=True)
class Group:
    """Units that lie beside each other, each of which can be taken out of all parts.

    Attributes:
        units: how many.
        parts: of layers.
    """

    units: int
    parts: tuple[Part, ...]


@runtime_checkable
class Prunable(Protocol):
    """A network that says which units it can do without."""

    def groups(self) -> list[Group]:
        """Return the groups, of which each part is of one group along an axis."""
        ...


def kept_of(units: int, share: float) -> int:
    """Return how many of ``units`` are left, where at most a ``share`` of them is taken out."""
    left = units - math.floor(share * units)
    if units % _STEP == 0 and units > _STEP:
        left = math.ceil(left / _STEP) * _STEP
    return max(1, left)


def share_at(epoch: int, epochs: int, share: float) -> float:
    """Return the share that is held at 0 in an epoch (from 0 on) of ``epochs``."""
    begin, end = begins(epochs), settles(epochs)
    if epoch >= end:
        return share
    if epoch < begin:
        return 0.0
    return share * (1 - (1 - (epoch - begin) / (end - begin)) ** 3)


def begins(epochs: int) -> int:
    """Return the epoch (from 0 on) from which on something is held at 0."""
    return math.floor(_BEGINS * epochs)


def settles(epochs: int) -> int:
    """Return the epoch (from 0 on) from which on all of the share is held at 0."""
    return math.floor(_SETTLES * epochs)


class Pruning:
    """Holds units of a network at 0.

    Args:
        share: of each group's units that is taken out in the end, at most.
        epochs: of the run.
    """

    def __init__(self, share: float, epochs: int) -> None:
        self._share, self._epochs = share, epochs
        self._held: list[tuple[Tensor, Tensor]] = []

    def begin_epoch(self, epoch: int, module: nn.Module, average: nn.Module) -> None:
        """Choose what is held at 0 in an epoch, by the averaged weights, and hold it there.

        What was held before is so again: it is 0, and nothing matters less.
        """
        share = share_at(epoch, self._epochs, self._share)
        kept = kept_units(average, share)
        self._held = list(_masks(module, kept))
        self.hold()
        for tensor, mask in _masks(average, kept):
            tensor.mul_(mask)

    @torch.no_grad()
    def hold(self) -> None:
        """Set what is held at 0 to 0 again, after a step."""
        for tensor, mask in self._held:
            tensor.mul_(mask)


@torch.no_grad()
def kept_units(module: nn.Module, share: float) -> list[Tensor]:
    """Return of each group which units are kept, in their order (int64), the first of equals."""
    found: list[Tensor] = []
    for group in groups_of(module):
        matters = torch.ones(group.units, dtype=torch.float64)
        for part in group.parts:
            if part.counts:
                weight = _parameters(module, part)[0].detach().double().cpu()
                rows = weight.movedim(part.axis, 0).reshape(group.units, -1)
                matters *= cast("Any", rows).norm(dim=1)
        order = torch.argsort(matters, descending=True, stable=True)
        found.append(order[: kept_of(group.units, share)].sort().values)
    return found


@torch.no_grad()
def cut(module: nn.Module, kept: Sequence[Tensor]) -> None:
    """Take out of a network, in its place, all units but those that are kept of each group."""
    for group, units in zip(groups_of(module), kept, strict=True):
        for part in group.parts:
            index = (units[:, None] * part.span + torch.arange(part.span)).flatten()
            _cut_layer(module.get_submodule(part.layer), part.axis, index)


def narrow(module: nn.Module, widths: Sequence[int]) -> None:
    """Make a fresh network as small as one of these ``widths`` is, one for each group."""
    cut(module, [torch.arange(width) for width in widths])


def widths_of(module: nn.Module) -> tuple[int, ...]:
    """Return how many units each group has."""
    return tuple(group.units for group in groups_of(module))


def groups_of(module: nn.Module) -> list[Group]:
    """Return the groups of a network that has some, whose names are the module's own."""
    return cast("Prunable", module).groups()


def within(name: str, group: Group) -> Group:
    """Return a group of a part of a network as one of the network."""
    parts = tuple(replace(part, layer=f"{name}.{part.layer}") for part in group.parts)
    return replace(group, parts=parts)


def _masks(module: nn.Module, kept: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Every parameter with units that aren't kept, and what it is multiplied with."""
    for group, units in zip(groups_of(module), kept, strict=True):
        if len(units) == group.units:
            continue
        for part in group.parts:
            for tensor in _parameters(module, part):
                mask = torch.zeros(group.units, dtype=tensor.dtype)
                mask[units] = 1
                shape = [1] * tensor.ndim
                shape[part.axis] = -1
                mask = mask.repeat_interleave(part.span).view(shape)
                yield tensor.detach(), mask.to(tensor.device)


def _parameters(module: nn.Module, part: Part) -> list[Tensor]:
    """A layer's numbers that are of units: what takes them has no bias for them."""
    layer = module.get_submodule(part.layer)
    weight, bias = cast("Tensor", layer.weight), cast("Tensor | None", layer.bias)
    return [weight] if part.axis == 1 or bias is None else [weight, bias]


def _cut_layer(layer: nn.Module, axis: int, index: Tensor) -> None:
    size = len(index)
    for name, tensor in [*layer.named_parameters(), *layer.named_buffers()]:
        # Of one number, as a count of batches, each unit has the same.
        if tensor.ndim <= axis or (axis == 1 and name != "weight"):
            continue
        smaller = tensor.index_select(axis, index.to(tensor.device)).clone()
        if isinstance(tensor, nn.Parameter):
            setattr(layer, name, nn.Parameter(smaller, requires_grad=tensor.requires_grad))
        else:
            setattr(layer, name, smaller)
    if isinstance(layer, nn.Linear):
        setattr(layer, ("out_features", "in_features")[axis], size)
    elif isinstance(layer, nn.Conv2d):
        if layer.groups > 1:  # one convolution of each channel alone
            layer.groups = layer.in_channels = layer.out_channels = size
        else:
            setattr(layer, ("out_channels", "in_channels")[axis], size)
    elif isinstance(layer, nn.BatchNorm2d):
        layer.num_features = size
