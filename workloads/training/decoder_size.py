"""How large a language model's layers are, and which numbers of them go together."""

from __future__ import annotations

from dataclasses import dataclass

from falaj.workloads.bounds import DECODER, NUMBERS_OF_A_TURN

DECODER_WIDTH = 128
"""Of a run that asks for none."""


@dataclass(frozen=True)
class Misfit:
    """A number that doesn't go with the others.

    Attributes:
        name: of a run's parameter, as in ``key_value_heads``.
        given: its value.
        allowed: the values that do, as in "multiples of 8, twice its heads".
        near: one of these that is close to ``given``.
    """

    name: str
    given: int
    allowed: str
    near: int


@dataclass(frozen=True)
class DecoderSize:
    """How many layers a decoder has, and what each has; the defaults are those of a run.

    Attributes:
        layers: one after the other.
        heads: of questions, in each layer.
        key_value_heads: of keys and values; each serves ``heads / key_value_heads`` of the others.
    """

    layers: int = int(DECODER["layers"].usual)
    heads: int = int(DECODER["heads"].usual)
    key_value_heads: int = int(DECODER["key_value_heads"].usual)

    def misfits(self, width: int, tensor: int = 1, pipeline: int = 1) -> list[Misfit]:
        """Return what can't be made, in this order: heads, width, and parts of a division.

        Args:
            width: of the stream between the layers.
            tensor: processes that divide the heads of each layer.
            pipeline: processes that divide the layers.
        """
        found: list[Misfit] = []
        heads, shared = self.heads, self.key_value_heads
        if heads % shared:
            found.append(Misfit(
                "key_value_heads", shared, f"a number that divides {heads}, the heads",
                _divisor_below(heads, shared),
            ))  # fmt: skip
        step = NUMBERS_OF_A_TURN * heads
        if width % step:
            near = max(step, round(width / step) * step)
            found.append(Misfit(
                "width", width,
                f"multiples of {step}, as a language model has {heads} heads, for instance {near}",
                near,
            ))  # fmt: skip
        if shared % tensor:
            found.append(Misfit(
                "tensor", tensor,
                f"a number that divides {shared}, the heads of keys and values",
                _divisor_below(shared, tensor),
            ))  # fmt: skip
        if pipeline > self.layers:
            found.append(Misfit(
                "pipeline", pipeline, f"1 to {self.layers}, as many as there are layers",
                self.layers,
            ))  # fmt: skip
        return found


DEFAULT_SIZE = DecoderSize()


def _divisor_below(number: int, most: int) -> int:
    return next(each for each in range(min(number, most), 0, -1) if number % each == 0)
