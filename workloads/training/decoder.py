"""The language model: a decoder that says of each character which one follows.

Root mean square norms before each part, rotary positions, keys and values that two heads share,
gated units, and one matrix for characters in and out, as in Llama:
https://arxiv.org/abs/2307.09288, https://arxiv.org/abs/2104.09864 (positions),
https://arxiv.org/abs/2305.13245 (shared heads), https://arxiv.org/abs/2002.05202 (gated units).
"""

from __future__ import annotations

import math
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from falaj.workloads.training.decoder_size import DEFAULT_SIZE, DecoderSize

ROTARY_BASE: Final = 10_000.0
"""Of the positions' frequencies."""
_DEVIATION: Final = 0.02
_GATED: Final = 8
"""The gated units' number is a multiple of this, about 8/3 of the width."""


class Decoder(nn.Module):
    """The model in training.

    Args:
        context: characters that are looked back on at most.
        characters: of the vocabulary.
        width: of the stream between the layers, that fits ``size`` (`DecoderSize.misfits`).
        size: of its layers. Default: that of a run that asks for none.
    """

    def __init__(
        self, context: int, characters: int, width: int, size: DecoderSize = DEFAULT_SIZE
    ) -> None:
        super().__init__()
        self.context, self.size = context, size
        self.is_first = self.is_last = True
        """Whether it takes characters, and whether it answers: what of a pipeline might not."""
        self.embedding = nn.Embedding(characters, width)
        # By number, so that a part of them keeps its names.
        self.layers = nn.ModuleDict({str(each): Layer(width, size) for each in range(size.layers)})
        self.norm = nn.RMSNorm(width)
        self.head = Head()
        angles = torch.outer(torch.arange(context).float(), _frequencies(width // size.heads))
        # No part of what is learned: made again from the architecture.
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                is_last = name.endswith(("out.weight", "down.weight"))
                share = math.sqrt(2 * size.layers) if is_last else 1.0
                nn.init.normal_(parameter, std=_DEVIATION / share)

    def keep(self, part: int, parts: int) -> None:
        """Become one part of a pipeline, which passes on (N, S, width) instead of logits.

        The matrix of characters stays with the first part and with the last one.

        Args:
            part: from 0.
            parts: at most as many as there are layers.
        """
        layers = len(self.layers)
        sizes = [layers // parts + (each < layers % parts) for each in range(parts)]
        start = sum(sizes[:part])
        for number in range(layers):
            if not start <= number < start + sizes[part]:
                del self.layers[str(number)]
        self.is_first, self.is_last = part == 0, part == parts - 1
        if not self.is_last:
            del self.norm
        if not (self.is_first or self.is_last):
            del self.embedding

    def recompute(self) -> None:
        """Keep of a forward pass what goes into the layers alone, and compute the rest again."""
        for layer in self.layers.values():
            cast("Layer", layer).is_recomputed = True

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """Return logits of what follows.

        Args:
            tokens: characters (N, S), int64, at most as many in a row as are looked back on; of
                a part that isn't the first, what the one before it returned.
            positions: (P,) int64, of those in a row that are answered. Default: all.

        Returns:
            (N, P, characters).
        """
        turn = (self.get_buffer("cosines"), self.get_buffer("sines"))
        stream = self.embedding(tokens) if self.is_first else tokens
        for layer in self.layers.values():
            stream = layer(stream, turn)
        if not self.is_last:
            return stream
        if positions is not None:
            stream = stream.index_select(1, positions)
        return self.head(self.norm(stream), self.embedding.weight)


class Head(nn.Module):
    """Logits by the matrix of characters, which isn't this module's own."""

    def forward(self, stream: Tensor, weight: Tensor) -> Tensor:
        """Return (N, P, characters) of (N, P, width) and (characters, width)."""
        return functional.linear(stream, weight)


class Layer(nn.Module):
    """Attention and gated units, each added to the stream."""

    def __init__(self, width: int, size: DecoderSize) -> None:
        super().__init__()
        self.before = nn.RMSNorm(width)
        self.between = nn.RMSNorm(width)
        self.attention = _Attention(width, size)
        self.units = _GatedUnits(width)
        self.is_recomputed = False
        """Whether what is in it is computed again, going back, instead of kept."""

    def forward(self, stream: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        """Return (N, S, width) of as much, and of the angles of all positions."""
        if self.is_recomputed and torch.is_grad_enabled():
            made: Tensor = checkpoint(self._added, stream, turn, use_reentrant=False)
            return made
        return self._added(stream, turn)

    def _added(self, stream: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        stream = stream + self.attention(self.before(stream), turn)
        return stream + self.units(self.between(stream))


class _Attention(nn.Module):
    def __init__(self, width: int, size: DecoderSize) -> None:
        super().__init__()
        self.size = width // size.heads
        self.served = size.heads // size.key_value_heads
        self.questions = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, size.key_value_heads * self.size, bias=False)
        self.values = nn.Linear(width, size.key_value_heads * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, stream: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        questions = _turned(self._heads(self.questions(stream)), turn)
        keys = _turned(self._heads(self.keys(stream)), turn)
        values = self._heads(self.values(stream))
        found = functional.scaled_dot_product_attention(
            questions,
            keys.repeat_interleave(self.served, dim=1),
            values.repeat_interleave(self.served, dim=1),
            is_causal=True,
        )
        return self.out(found.transpose(1, 2).flatten(2))

    def _heads(self, numbers: Tensor) -> Tensor:
        # As many as there are: of a part of the matrices, some of them.
        return numbers.unflatten(-1, (-1, self.size)).transpose(1, 2)


class _GatedUnits(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        units = gated_units(width)
        self.gate = nn.Linear(width, units, bias=False)
        self.up = nn.Linear(width, units, bias=False)
        self.down = nn.Linear(units, width, bias=False)

    def forward(self, stream: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(stream)) * self.up(stream))


def gated_units(width: int) -> int:
    """Return how many there are in each layer of a width."""
    return _GATED * max(1, round(8 * width / 3 / _GATED))


def _frequencies(size: int) -> Tensor:
    return ROTARY_BASE ** (-torch.arange(0, size, 2).float() / size)


def _turned(heads: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each pair of (N, heads, S, size) by its position's angles (all, size / 2)."""
    length = heads.shape[2]
    cosines, sines = turn[0][:length], turn[1][:length]
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)
