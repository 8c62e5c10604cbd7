"""The language model: a decoder that says of each character which one follows.

Root mean square norms before each part, rotary positions, keys and values that two heads share,
gated units, and one matrix for characters in and out, as in Llama:
https://arxiv.org/abs/2307.09288, https://arxiv.org/abs/2104.09864 (positions),
https://arxiv.org/abs/2305.13245 (shared heads), https://arxiv.org/abs/2002.05202 (gated units).
"""

from __future__ import annotations

import math
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import checkpoint

from falaj.workloads.llama_form import ROTARY_BASE
from falaj.workloads.training.decoder_size import DEFAULT_SIZE, DecoderSize

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


class Remembering(nn.Module):
    """A decoder that takes keys and values of the tokens before, and gives those of its own.

    The decoder's answers in another order of sums: so it is exported.

    Args:
        decoder: a whole one.
    """

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.served = decoder.size.heads // decoder.size.key_value_heads
        # Its own, so that they keep their names.
        self.embedding, self.layers = decoder.embedding, decoder.layers
        self.norm, self.head = decoder.norm, decoder.head
        for name in ("cosines", "sines"):
            self.register_buffer(name, decoder.get_buffer(name), persistent=False)

    def forward(
        self, tokens: Tensor, positions: Tensor, filled: Tensor, past: list[Tensor]
    ) -> tuple[Tensor, ...]:
        """Return logits of what follows, and what is to be kept.

        Args:
            tokens: (N, S), int64, which with those before are at most as many as are looked back
                on.
            positions: (P,) int64, of those that are answered; -1 is the last one.
            filled: (1,) int64, tokens before.
            past: keys and values of each layer, (1 or N, heads, slots, size) each, of which the
                first ``filled`` slots count.

        Returns:
            Logits (N, P, characters); keys and values of each layer, (N, heads, S, size).
        """
        stream = self.embedding(tokens)
        length, slots = tokens.shape[1], past[0].shape[2]
        order = torch.arange(length)
        places = filled + order
        cosines, sines = (
            self.get_buffer(name).index_select(0, places) for name in ("cosines", "sines")
        )
        before = (torch.arange(slots) < filled)[None, :].expand(length, slots)
        # A row for each question, a column for each slot and for each given token.
        seen = torch.cat((before, order[None, :] <= order[:, None]), dim=1)
        hidden = ~seen.repeat(self.served, 1)
        kept: list[Tensor] = []
        for number, each in enumerate(self.layers.values()):
            layer = cast("Layer", each)
            attention = layer.attention
            questions, keys, values = attention.parts(layer.before(stream))
            questions, keys = (_rotated(part, cosines, sines) for part in (questions, keys))
            pasts = (past[2 * number], past[2 * number + 1])
            stream = stream + attention.found(questions, (keys, values), pasts, hidden)
            stream = stream + layer.units(layer.between(stream))
            kept += [keys, values]
        stream = self.norm(stream.index_select(1, positions))
        return self.head(stream, self.embedding.weight), *kept


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
            made: Tensor = cast("Any", checkpoint).checkpoint(
                self._added, stream, turn, use_reentrant=False
            )
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
        questions, keys, values = self.parts(stream)
        questions, keys = _turned(questions, turn), _turned(keys, turn)
        found = functional.scaled_dot_product_attention(
            questions,
            keys.repeat_interleave(self.served, dim=1),
            values.repeat_interleave(self.served, dim=1),
            is_causal=True,
        )
        return self.out(found.transpose(1, 2).flatten(2))

    def parts(self, stream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return questions, keys and values (N, heads, S, size) of (N, S, width)."""
        return (
            self._heads(self.questions(stream)),
            self._heads(self.keys(stream)),
            self._heads(self.values(stream)),
        )

    def found(
        self,
        questions: Tensor,
        own: tuple[Tensor, Tensor],
        past: tuple[Tensor, Tensor],
        hidden: Tensor,
    ) -> Tensor:
        """Return (N, S, width): what is found in the past and in the stream itself.

        Questions that share a head of keys are rows of one product with it, and the past is
        multiplied where it lies: neither is copied.

        Args:
            questions: (N, heads, S, size), turned.
            own: keys, turned, and values, (N, heads of keys, S, size).
            past: likewise (1 or N, heads of keys, slots, size).
            hidden: what doesn't count, (questions of a head of keys, slots + S).
        """
        length, slots = questions.shape[2], past[0].shape[2]
        asked = questions / math.sqrt(self.size)
        asked = _split(asked, 1, (-1, self.served)).flatten(2, 3)
        scores = torch.cat([asked @ keys.transpose(2, 3) for keys in (past[0], own[0])], dim=-1)
        shares = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
        found = shares[..., :slots] @ past[1] + shares[..., slots:] @ own[1]
        found = _split(found, 2, (self.served, length)).flatten(1, 2)
        return self.out(found.transpose(1, 2).flatten(2))

    def _heads(self, numbers: Tensor) -> Tensor:
        # As many as there are: of a part of the matrices, some of them.
        return _split(numbers, -1, (-1, self.size)).transpose(1, 2)


def _split(numbers: Tensor, dimension: int, sizes: tuple[int, int]) -> Tensor:
    """A dimension as two; -1 is as many as there are."""
    return cast("Tensor", numbers.unflatten(dimension, sizes))


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
    return _rotated(heads, turn[0][:length], turn[1][:length])


def _rotated(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn each pair of (N, heads, S, size) by angles (S, size / 2)."""
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)
