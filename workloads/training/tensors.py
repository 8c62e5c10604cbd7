"""Calls of torch whose own types leave parameters open, with types.

Source of what they do: torch's documentation of the functions that they call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_torch: Any = torch


def tensor_of(array: NDArray[Any]) -> Tensor:
    """A tensor of the array's shape and kind of number, which shares its memory."""
    return _torch.from_numpy(array)


def seed(number: int) -> None:
    """Seed torch's own generators of random numbers, on all devices."""
    _torch.manual_seed(number)


def own_randomness(devices: Sequence[int] | None = None) -> AbstractContextManager[None]:
    """Leave torch's generators after the block as they were before it.

    Args:
        devices: whose generators beside the CPU's. Default: all GPUs'.
    """
    return _torch.random.fork_rng(devices=devices)


def backward(loss: Tensor) -> None:
    """Add a loss's gradients to those of the parameters that it comes from; `loss` is a scalar."""
    cast("Any", loss).backward()


def step_by(optimiser: torch.optim.Optimizer) -> None:
    """Change parameters by their gradients."""
    cast("Any", optimiser).step()


def numbers_of(tensor: Tensor) -> list[Any]:
    """The numbers of a tensor as Python's own; lists of lists where it has more dimensions."""
    return cast("Any", tensor).tolist()


def modules_of(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """A module and all below it, each once, with its path; empty for the module itself."""
    return cast("Any", module).named_modules()


def frozen(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that aren't learned, by all names that a state has for them.

    Those that are tied to others have several.
    """
    state = module.state_dict(keep_vars=True).items()
    return {
        name: each
        for name, each in state
        if isinstance(each, nn.Parameter) and not each.requires_grad
    }
