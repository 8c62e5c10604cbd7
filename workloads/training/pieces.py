"""What a process holds of a model's tensors, and where that lies in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from falaj.workloads.training.layout import TENSOR
from falaj.workloads.training.parts import OPTIMISER, Place


def local(tensor: Tensor) -> Tensor:
    """Return what this process holds of a tensor: the same memory."""
    with torch.no_grad():
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def place(tensor: Tensor) -> Place:
    """Return where this process's piece of a tensor lies in it."""
    if not isinstance(tensor, DTensor):
        return Place.of_all(tuple(tensor.shape))
    # What `torch.distributed.checkpoint` asks a tensor for its pieces.
    chunks: Any = getattr(tensor, "__create_chunk_list__")()  # noqa: B009 - else it is mangled
    if not chunks:
        return Place.of_all((0,) * tensor.ndim)
    return Place(tuple(chunks[0].offsets), tuple(chunks[0].sizes))


def is_first(tensor: Tensor, first: bool) -> bool:
    """Return whether no process before this one holds the same piece of a tensor.

    Args:
        tensor: a parameter or its gradient.
        first: whether this process is the first of those that divide matrices: of what isn't
            divided so, each of them has the same.
    """
    if not isinstance(tensor, DTensor):
        return first
    if TENSOR not in (tensor.device_mesh.mesh_dim_names or ()) and not first:
        return False
    coordinate = tensor.device_mesh.get_coordinate() or []
    return all(
        index == 0
        for index, placement in zip(coordinate, tensor.placements, strict=True)
        if placement.is_replicate()
    )


class Tensors:
    """What a module learns and counts, by name.

    Attributes:
        whole: parameters and buffers as the module has them.
        own: what this process holds of each: the same memory.
    """

    def __init__(self, module: nn.Module) -> None:
        self.whole: dict[str, Tensor] = dict(module.state_dict())
        learned = dict(module.named_parameters())
        self.whole |= {name: learned[name] for name in self.whole if name in learned}
        self.own = {name: local(each) for name, each in self.whole.items()}

    def places(self, pieces: Mapping[str, Tensor]) -> dict[str, Place]:
        """Return where pieces lie in the whole tensors.

        Args:
            pieces: what this process has, by the names of a checkpoint.
        """
        found: dict[str, Place] = {}
        for name, piece in pieces.items():
            whole = self._of(name)
            if whole is None or piece.shape != local(whole).shape:  # a count of steps, say
                found[name] = Place.of_all(tuple(piece.shape))
            else:
                found[name] = place(whole)
        return found

    def _of(self, name: str) -> Tensor | None:
        of, _, rest = name.partition("/")
        return self.whole.get(rest.rpartition("/")[0] if of == OPTIMISER else rest)
