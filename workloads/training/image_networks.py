"""Light networks of images: MobileNetV3-Small and EfficientNet-B0, for pictures of any size.

Both are of inverted residuals: a convolution of one pixel widens the channels, one of each channel
alone (depthwise) looks around, channels are weighed by what the whole picture has of them
(squeeze-and-excitation), and another of one pixel narrows them again.

The papers' networks halve a picture's sides five times, which leaves nothing of a small one: as
many of the first halvings are left out as it takes for the last map to be 2x2 at least
(`halvings`). A picture of 8x8 is halved by the last two of the five, one of 32x32 by the last
four.

Batches are normalised, as in the papers; PyTorch's exporter folds that into the convolutions. In
memory a pixel's channels lie together, whatever the order of the axes: a step on a processor then
takes half of the time (57 ms of 120 for 64 digits, on one core).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, cast

import torch
from torch import Tensor, nn

from falaj.workloads.bounds import IMAGE_NETWORKS
from falaj.workloads.training.linear import rescale_linear
from falaj.workloads.training.pruning import Group, Part, within

_STEP: Final = 8
"""Channels are a multiple of it, which processors and GPUs are fast with."""
_LEAST_KEPT: Final = 0.9
"""Of channels, rounding leaves so much at least."""
_LEAST_SIDE: Final = 2
_SQUEEZE: Final = 4
_EPSILON: Final = 1e-3
"""Of the normalisation: both papers' own, by their code."""
_DROPPED_BLOCKS: Final = 0.2
_DROPPED: Final = 0.2
_LAST_DEVIATION: Final = 0.01


def make_divisible(value: float) -> int:
    """Return the multiple of 8 nearest to ``value``, never less than nine tenths of it."""
    nearest = max(_STEP, int(value + _STEP / 2) // _STEP * _STEP)
    return nearest if nearest >= _LEAST_KEPT * value else nearest + _STEP


def halvings(side: int, most: int) -> int:
    """Return how often a picture's side is halved, so that 2 are left of it, at most ``most``."""
    count = 0
    while count < most and (side + 1) // 2 >= _LEAST_SIDE:
        side = (side + 1) // 2
        count += 1
    return count


class Convolution(nn.Sequential):
    """A convolution, the normalisation of its channels over the batch, and the activation.

    Args:
        inputs: channels that come in.
        outputs: channels that go out.
        kernel: its side, an odd number of pixels.
        stride: 2 halves the sides, 1 keeps them.
        groups: as many as there are channels make it one of each channel alone.
        activation: None: what comes out stays as it is.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        groups: int = 1,
        activation: Callable[[], nn.Module] | None = None,
    ) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(
                inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False
            ),
            nn.BatchNorm2d(outputs, eps=_EPSILON),
        ]  # fmt: skip
        if activation is not None:
            layers.append(activation())
        super().__init__(*layers)


class SqueezeExcitation(nn.Module):
    """Weighs each channel by what the whole picture has of all of them.

    Hu, Shen, Albanie, Sun, Wu, 2017, https://arxiv.org/abs/1709.01507.

    Args:
        channels: of what is weighed.
        squeezed: between the two layers that say the weights.
        activation: between them.
        gate: makes weights from 0 to 1.
    """

    def __init__(
        self,
        channels: int,
        squeezed: int,
        activation: Callable[[], nn.Module],
        gate: Callable[[], nn.Module],
    ) -> None:
        super().__init__()
        self.weigh = nn.Sequential(
            nn.Conv2d(channels, squeezed, 1),
            activation(),
            nn.Conv2d(squeezed, channels, 1),
            gate(),
        )

    def forward(self, maps: Tensor) -> Tensor:
        """Return ``maps`` (N, channels, height, width), weighed."""
        return maps * self.weigh(maps.mean((2, 3), keepdim=True))


class Drop(nn.Module):
    """Leaves out, while something is learned, what rows have, and makes up for it in others.

    What is drawn depends on the run's seed and the step. Each use takes one number from torch's
    state, however many rows there are: processes with one row more or less go on with the same
    state, so that a run of several is resumed as it would have gone on.

    Args:
        share: of what is left out.
        whole: all that a row has (stochastic depth: Huang, Sun, Liu, Sedra, Weinberger, 2016,
            https://arxiv.org/abs/1603.09382), else each number by itself (dropout).
    """

    def __init__(self, share: float, *, whole: bool) -> None:
        super().__init__()
        self.share, self.whole = share, whole

    def forward(self, values: Tensor) -> Tensor:
        """Return ``values`` (N, …), of which some are 0 while something is learned."""
        if not self.training or not self.share:
            return values
        shape = (len(values), *(1 if self.whole else size for size in values.shape[1:]))
        random = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        kept = torch.rand(shape, generator=random) >= self.share
        return values * kept.to(values.device, values.dtype) / (1 - self.share)


@dataclass(frozen=True)
class Squeeze:
    """How blocks weigh channels: see `SqueezeExcitation`.

    Attributes:
        of_inputs: whether as many are between the layers as a quarter of a block's inputs, else of
            its widened channels, rounded by `make_divisible`.
        activation: between the layers.
        gate: makes weights.
    """

    of_inputs: bool
    activation: Callable[[], nn.Module]
    gate: Callable[[], nn.Module]

    def layer(self, inputs: int, expanded: int) -> SqueezeExcitation:
        """The layer of a block."""
        squeezed = (
            max(1, inputs // _SQUEEZE)
            if self.of_inputs
            else make_divisible(expanded / _SQUEEZE)
        )  # fmt: skip
        return SqueezeExcitation(expanded, squeezed, self.activation, self.gate)


class InvertedResidual(nn.Module):
    """Widens, looks around, weighs and narrows; what came in is added where the shape stays.

    Sandler, Howard, Zhu, Zhmoginov, Chen, 2018, https://arxiv.org/abs/1801.04381.

    Args:
        inputs: channels that come in.
        expanded: channels between; as many as come in: they aren't widened.
        outputs: channels that go out.
        kernel: side of what looks around.
        stride: 2 halves the sides.
        activation: of all but the last convolution.
        squeeze: how channels are weighed; None: they aren't.
        dropped: the share of rows for which the block is left out while something is learned.
    """

    def __init__(
        self,
        inputs: int,
        expanded: int,
        outputs: int,
        kernel: int,
        stride: int,
        *,
        activation: Callable[[], nn.Module],
        squeeze: Squeeze | None,
        dropped: float = 0.0,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        self.is_widened = expanded != inputs
        if self.is_widened:
            layers.append(Convolution(inputs, expanded, activation=activation))
        layers.append(
            Convolution(
                expanded, expanded, kernel, stride=stride, groups=expanded, activation=activation
            )
        )
        if squeeze is not None:
            layers.append(squeeze.layer(inputs, expanded))
        layers.append(Convolution(expanded, outputs))
        self.layers = nn.Sequential(*layers)
        self.is_added = stride == 1 and inputs == outputs
        self.drop = Drop(dropped if self.is_added else 0.0, whole=True)

    def forward(self, maps: Tensor) -> Tensor:
        """Return maps (N, outputs, …) of maps (N, inputs, …)."""
        made = self.layers(maps)
        return maps + self.drop(made) if self.is_added else made

    def groups(self) -> list[Group]:
        """Return the widened channels, which nobody else has; none where they aren't widened."""
        if not self.is_widened:
            return []
        parts: list[Part] = []
        for place, layer in enumerate(self.layers):
            name = f"layers.{place}"
            if isinstance(layer, SqueezeExcitation):
                parts += [
                    Part(f"{name}.weigh.0", 1, counts=False),
                    Part(f"{name}.weigh.2", 0, counts=False),
                ]
            elif place < len(self.layers) - 1:
                parts += [
                    Part(f"{name}.0", 0, counts=False), Part(f"{name}.1", 0, counts=place == 1),
                ]  # fmt: skip
        last = cast("Convolution", self.layers[-1])
        taken = cast("nn.Conv2d", last[0]).in_channels
        return [Group(taken, (*parts, Part(f"layers.{len(self.layers) - 1}.0", 1)))]


class ImageNetwork(nn.Module):
    """What both networks have: convolutions, the mean over the picture, and what says the class.

    Args:
        convolutions: from images to maps.
        head: from each map's mean to logits; its last layer is linear.
        largest: the largest input value, which is scaled to 1.
    """

    def __init__(self, convolutions: nn.Sequential, head: nn.Sequential, largest: float) -> None:
        super().__init__()
        self.scale = 1.0 / largest
        self.convolutions, self.head = convolutions, head
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
            elif isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight)
                nn.init.zeros_(layer.bias)
        nn.init.normal_(cast("nn.Linear", head[-1]).weight, std=_LAST_DEVIATION)
        self.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        """Return the classes' logits (N, classes) of raw images (N, channels, height, width)."""
        images = (images * self.scale).contiguous(memory_format=torch.channels_last)
        return self.head(self.convolutions(images).mean((2, 3)))

    @property
    def rescaled(self) -> tuple[str, ...]:
        """The layers whose outputs `rescale` changes."""
        return (f"head.{len(self.head) - 1}",)

    def rescale(self, factor: float) -> None:
        """Multiply the outputs by ``factor``."""
        rescale_linear(cast("nn.Linear", self.head[-1]), factor)

    def groups(self) -> list[Group]:
        """Return the channels between each block's layers, and those before the last layers."""
        found = [
            within(f"convolutions.{place}", group)
            for place, block in enumerate(self.convolutions)
            if isinstance(block, InvertedResidual)
            for group in block.groups()
        ]
        linear = [place for place, layer in enumerate(self.head) if isinstance(layer, nn.Linear)]
        name = f"convolutions.{len(self.convolutions) - 1}"
        last = cast("nn.Linear", self.head[linear[0]]).in_features
        made_by = (Part(f"{name}.0", 0, counts=False), Part(f"{name}.1", 0))
        found.append(Group(last, (*made_by, Part(f"head.{linear[0]}", 1))))
        for made, taken in pairwise(linear):
            units = cast("nn.Linear", self.head[made]).out_features
            found.append(Group(units, (Part(f"head.{made}", 0), Part(f"head.{taken}", 1))))
        return found


class _Strides:
    """Gives the strides of a network's halvings in their order, the first left out if need be."""

    def __init__(self, side: int, halved: int) -> None:
        self._left_out = halved - halvings(side, halved)

    def next(self, stride: int) -> int:
        if stride == 1:
            return 1
        self._left_out -= 1
        return 1 if self._left_out >= 0 else stride


_MOBILE_SQUEEZE: Final = Squeeze(False, nn.ReLU, nn.Hardsigmoid)
#: Kernel, widened and outgoing channels, whether channels are weighed, activation, stride.
_MOBILE: Final[tuple[tuple[int, int, int, bool, Callable[[], nn.Module], int], ...]] = (
    (3, 16, 16, True, nn.ReLU, 2),
    (3, 72, 24, False, nn.ReLU, 2),
    (3, 88, 24, False, nn.ReLU, 1),
    (5, 96, 40, True, nn.Hardswish, 2),
    (5, 240, 40, True, nn.Hardswish, 1),
    (5, 240, 40, True, nn.Hardswish, 1),
    (5, 120, 48, True, nn.Hardswish, 1),
    (5, 144, 48, True, nn.Hardswish, 1),
    (5, 288, 96, True, nn.Hardswish, 2),
    (5, 576, 96, True, nn.Hardswish, 1),
    (5, 576, 96, True, nn.Hardswish, 1),
)
_MOBILE_LAST, _MOBILE_HEAD = 576, 1_024
_HALVED: Final = 5


def mobilenet(shape: tuple[int, ...], outputs: int, width: int, largest: float) -> ImageNetwork:
    """MobileNetV3-Small: Howard and others, 2019, https://arxiv.org/abs/1905.02244, table 2.

    Args:
        shape: (channels, height, width) of an image.
        outputs: the number of classes.
        width: channels of the first convolution, 16 in the paper; all others follow.
        largest: the largest input value.

    Returns:
        A network with fresh weights from torch's current random state.
    """
    strides = _Strides(min(shape[1:]), _HALVED)
    scaled = _scaled(width, "mobilenet")
    channels = make_divisible(width)
    layers: list[nn.Module] = [
        Convolution(shape[0], channels, 3, stride=strides.next(2), activation=nn.Hardswish)
    ]
    for kernel, expanded, out, is_weighed, activation, stride in _MOBILE:
        layers.append(
            InvertedResidual(
                channels, scaled(expanded), scaled(out), kernel, strides.next(stride),
                activation=activation, squeeze=_MOBILE_SQUEEZE if is_weighed else None,
            )
        )  # fmt: skip
        channels = scaled(out)
    last, wide = scaled(_MOBILE_LAST), scaled(_MOBILE_HEAD)
    layers.append(Convolution(channels, last, activation=nn.Hardswish))
    head = nn.Sequential(
        nn.Linear(last, wide), nn.Hardswish(), Drop(_DROPPED, whole=False),
        nn.Linear(wide, outputs),
    )  # fmt: skip
    return ImageNetwork(nn.Sequential(*layers), head, largest)


_EFFICIENT_SQUEEZE: Final = Squeeze(True, nn.SiLU, nn.Sigmoid)
#: Widening, kernel, first block's stride, outgoing channels, blocks.
_EFFICIENT: Final = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
_EFFICIENT_LAST: Final = 1_280


def efficientnet(shape: tuple[int, ...], outputs: int, width: int, largest: float) -> ImageNetwork:
    """EfficientNet-B0: Tan, Le, 2019, https://arxiv.org/abs/1905.11946, table 1.

    Blocks are left out of some rows' way while something is learned: the i-th of n in
    0.2 i / n of them.

    Args:
        shape: (channels, height, width) of an image.
        outputs: the number of classes.
        width: channels of the first convolution, 32 in the paper; all others follow.
        largest: the largest input value.

    Returns:
        A network with fresh weights from torch's current random state.
    """
    strides = _Strides(min(shape[1:]), _HALVED)
    scaled = _scaled(width, "efficientnet")
    channels = make_divisible(width)
    layers: list[nn.Module] = [
        Convolution(shape[0], channels, 3, stride=strides.next(2), activation=nn.SiLU)
    ]
    blocks, done = sum(stage[-1] for stage in _EFFICIENT), 0
    for widening, kernel, stride, out, count in _EFFICIENT:
        for place in range(count):
            layers.append(
                InvertedResidual(
                    channels, widening * channels, scaled(out), kernel,
                    strides.next(stride if place == 0 else 1), activation=nn.SiLU,
                    squeeze=_EFFICIENT_SQUEEZE, dropped=_DROPPED_BLOCKS * done / blocks,
                )
            )  # fmt: skip
            channels, done = scaled(out), done + 1
    last = scaled(_EFFICIENT_LAST)
    layers.append(Convolution(channels, last, activation=nn.SiLU))
    head = nn.Sequential(Drop(_DROPPED, whole=False), nn.Linear(last, outputs))
    return ImageNetwork(nn.Sequential(*layers), head, largest)


def _scaled(width: int, name: str) -> Callable[[int], int]:
    """What a number of channels of the paper's is, with so many of the first convolution."""
    factor = width / IMAGE_NETWORKS[name]
    return lambda channels: make_divisible(channels * factor)


NETWORKS: Final[dict[str, Callable[[tuple[int, ...], int, int, float], ImageNetwork]]] = {
    "mobilenet": mobilenet,
    "efficientnet": efficientnet,
}
"""By the word that a training's ``--model`` takes."""
