"""What crosses between sites: the model's tensors and nothing else.

An update is what a site's training changed, as float32 tensors of exactly the model's names and
shapes. Whatever is more, less, bigger or not a number is refused, on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import checkpoint

_OVERHEAD_BYTES = 64 * 1024
_WHERE = Path("the message")


class MessageError(WorkloadError):
    """A message isn't what it has to be."""


@dataclass(frozen=True)
class Update:
    """What one site learned in a round.

    Attributes:
        tensors: change of each of the model's tensors, float32.
        rows: rows that it learned from, which it counts by; 0 where all sites count the same.
        loss: mean loss of the last epoch, for people to look at.
    """

    tensors: Mapping[str, Tensor]
    rows: int
    loss: float


def encode(tensors: Mapping[str, Tensor], **numbers: float) -> bytes:
    """The bytes of tensors and a few numbers: no code, with a digest before them."""
    state = {name: tensor.detach().cpu().float().contiguous() for name, tensor in tensors.items()}
    return checkpoint.encode({"tensors": state, "numbers": dict(numbers)})


def decode(data: bytes, like: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, float]]:
    """What `encode` was given.

    Args:
        data: the message.
        like: the model's tensors, whose names and shapes it must have.

    Raises:
        MessageError: it is damaged, or holds something else than these tensors and numbers.
    """
    if len(data) > largest(like):
        raise MessageError(f"the message has {len(data):,} bytes: at most {largest(like):,}")
    try:
        state = checkpoint.decode(data, _WHERE)
        tensors, numbers = dict(state["tensors"]), dict(state["numbers"])
        extra = set(state) - {"tensors", "numbers"}
    except (WorkloadError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise MessageError(f"the message can't be read: {error}") from error
    if extra or set(tensors) != set(like):
        raise MessageError("the message holds something else than the model's tensors")
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or tensor.shape != like[name].shape:
            raise MessageError(f"{name} isn't a tensor of the model's shape")
        if tensor.dtype != torch.float32 or not bool(torch.isfinite(tensor).all()):
            raise MessageError(f"{name} holds something else than finite float32 numbers")
    if not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers.values()):
        raise MessageError("a number of the message is none")
    return tensors, {str(name): float(value) for name, value in numbers.items()}


def largest(like: Mapping[str, Tensor]) -> int:
    """Most bytes that a message of the model's tensors can have."""
    return sum(4 * each.numel() + 1024 for each in like.values()) + _OVERHEAD_BYTES


def clipped(tensors: Mapping[str, Tensor], norm: float) -> dict[str, Tensor]:
    """``tensors`` shortened to a common L2 norm of at most ``norm``; 0 leaves them as they are."""
    length = math.sqrt(sum(float(each.double().square().sum()) for each in tensors.values()))
    share = min(1.0, norm / length) if norm and length else 1.0
    return {name: each * share for name, each in tensors.items()}


def mean(updates: Sequence[Update]) -> dict[str, Tensor]:
    """Federated averaging (arXiv:1602.05629): each site counts by its rows, or all the same."""
    rows = [update.rows for update in updates]
    total = sum(rows)
    shares = [each / total for each in rows] if total else [1 / len(updates)] * len(updates)
    names = updates[0].tensors
    return {
        name: torch.stack(
            [u.tensors[name].double() * s for u, s in zip(updates, shares, strict=True)]
        ).sum(0).float()
        for name in names
    }  # fmt: skip


def noised(
    tensors: Mapping[str, Tensor], deviation: float, generator: torch.Generator
) -> dict[str, Tensor]:
    """``tensors`` with Gaussian noise of this standard deviation in each number."""
    return {
        name: each + deviation * torch.randn(each.shape, generator=generator)
        for name, each in tensors.items()
    }


def privacy_spent(rounds: int, noise: float, delta: float) -> float | None:
    """Epsilon, at ``delta``, of what all rounds together tell of any one site.

    The Gaussian mechanism of multiplier ``noise`` is 1/(2 noise²)-zCDP, which adds up over rounds;
    from there to (epsilon, delta): Bun and Steinke, arXiv:1605.02065, propositions 1.3 and 1.6.
    None without noise: nothing is promised.
    """
    if noise <= 0:
        return None
    rho = rounds / (2 * noise * noise)
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def numbers_of(message: Mapping[str, Any]) -> tuple[int, float]:
    """Rows and loss of an update's numbers.

    Raises:
        MessageError: one is missing, or there are others.
    """
    if set(message) != {"rows", "loss"} or not 0 <= message["rows"] <= 2**53:
        raise MessageError("an update has the numbers rows and loss")
    return int(message["rows"]), float(message["loss"])
