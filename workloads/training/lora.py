"""Low-rank adaptation: matrices stay as they are, and the product of two thin ones is learned.

Hu, Shen, Wallis, Allen-Zhu, Li, Wang, Wang, Chen, 2021, https://arxiv.org/abs/2106.09685. In the
end the products are added to the matrices, so that nothing later knows of them.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from falaj.workloads.bounds import CHOICES
from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import language
from falaj.workloads.training.decoder import gated_units
from falaj.workloads.training.models import Architecture
from falaj.workloads.training.options import Parameters, Requested
from falaj.workloads.training.tensors import modules_of

_MATRICES: Final = {
    "attention": ("attention.questions", "attention.keys", "attention.values", "attention.out"),
    "units": ("units.gate", "units.up", "units.down"),
}
_USUAL: Final = CHOICES["training"]["lora_matrices"].default


class LowRank(nn.Module):
    """A linear layer that stays as it is, and what is learned beside it.

    Args:
        base: without a bias.
        rank: of what is added.
        alpha: which divided by the rank multiplies it.
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.base = base
        self.scale = alpha / rank
        self.lora_a = nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, stream: Tensor) -> Tensor:
        """Return (N, S, out) of (N, S, in): ``x Wᵀ + alpha / rank · x Aᵀ Bᵀ``."""
        added = functional.linear(functional.linear(stream, self.lora_a), self.lora_b)
        return self.base(stream) + self.scale * added

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """Return the layer with what was learned added to its matrix."""
        weight = self.base.weight + self.scale * (self.lora_b @ self.lora_a)
        self.base.weight = nn.Parameter(weight, requires_grad=False)
        return self.base


def check_options(requested: Requested, start: Architecture | None) -> None:
    """Refuse low ranks where there is nothing that they could be added to.

    Args:
        requested: what a person asked for.
        start: what the weights are of that the training begins with; None: it begins with none.

    Raises:
        WorkloadError: names the option, what was given and what is allowed.
    """
    rank = requested.lora_rank
    if rank is None:
        for option, given in (
            ("--lora-alpha", requested.lora_alpha is not None),
            ("--lora-matrices", requested.lora_matrices != _USUAL),
        ):
            if given:
                raise WorkloadError(
                    f"{option} is of low-rank adaptation: name its rank as well (--lora-rank), or "
                    "leave it out"
                )
        return
    if start is None:
        raise WorkloadError(
            f"--lora-rank {rank} adds to weights that are there: name what it begins with "
            "(--start), or leave it out"
        )
    if start.family != language.FAMILY:
        raise WorkloadError(
            f"--lora-rank {rank} is of Falaj's language model, and this dataset is no text: leave "
            "it out; --start alone learns all weights"
        )
    most = _most_rank(start, requested.lora_matrices)
    if rank > most:
        raise WorkloadError(
            f"--lora-rank is {rank}: allowed is 1 to {most}, the shorter side of the smallest "
            f"matrix that is added to (--lora-matrices {requested.lora_matrices})"
        )


def _most_rank(start: Architecture, matrices: str) -> int:
    size, width = start.decoder, start.width
    sides = {
        "attention": width // size.heads * size.key_value_heads,
        "units": min(width, gated_units(width)),
    }
    return min(sides[each] for each in _chosen(matrices))


def _chosen(matrices: str) -> tuple[str, ...]:
    return (matrices,) if matrices in _MATRICES else tuple(_MATRICES)


def add(module: nn.Module, parameters: Parameters) -> None:
    """Have nothing of a decoder be learned but what is added to the matrices of its layers."""
    module.requires_grad_(False)
    rank, alpha = parameters.lora_rank, parameters.lora_alpha
    for layer in module.get_submodule("layers").children():
        for part in _chosen(parameters.lora_matrices):
            for name in _MATRICES[part]:
                base = layer.get_submodule(name)
                if not isinstance(base, nn.Linear):
                    raise TypeError(f"{name} is no linear layer")
                layer.set_submodule(name, LowRank(base, rank, alpha))


def merge(module: nn.Module) -> None:
    """Make of a module that `add` changed one of the form that it had before."""
    for name, each in [*modules_of(module)]:
        if isinstance(each, LowRank):
            module.set_submodule(name, each.merged())


def to_json(module: nn.Module, parameters: Parameters) -> dict[str, Any]:
    """Return what a record says of it, before `merge`."""
    sizes = {name: each.numel() for name, each in module.named_parameters()}
    learned = sum(size for name, size in sizes.items() if ".lora_" in name)
    return {
        "rank": parameters.lora_rank,
        "alpha": parameters.lora_alpha,
        "matrices": parameters.lora_matrices,
        "parameters": learned,
        "share": learned / (sum(sizes.values()) - learned),
    }
