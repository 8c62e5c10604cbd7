"""Tensor parallelism of the language model: which matrix is divided how.

Questions, keys, values and the first matrices of the gated units are divided by what they make,
the ones after them by what they take, so that each pair exchanges once. Between them, norms and
the stream are divided by position (sequence parallelism):
https://arxiv.org/abs/1909.08053, https://arxiv.org/abs/2205.05198
"""

from __future__ import annotations

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInputOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from falaj.workloads.training.decoder import Decoder

_POSITIONS = Shard(1)


def divide(decoder: Decoder, mesh: DeviceMesh) -> None:
    """Divide the matrices of a decoder, or of a part of one, among the processes of ``mesh``."""
    plan: dict[str, ParallelStyle] = {}
    if decoder.is_first or decoder.is_last:
        plan["embedding"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=_POSITIONS)
    for number in decoder.layers:
        layer = f"layers.{number}"
        for norm in ("before", "between"):
            plan[f"{layer}.{norm}"] = SequenceParallel(use_local_output=False)
        for name in ("attention.questions", "attention.keys", "attention.values", "units.gate",
                     "units.up"):  # fmt: skip
            plan[f"{layer}.{name}"] = ColwiseParallel(input_layouts=_POSITIONS)
        for name in ("attention.out", "units.down"):
            plan[f"{layer}.{name}"] = RowwiseParallel(output_layouts=_POSITIONS)
    if decoder.is_last:
        plan["norm"] = SequenceParallel(use_local_output=False)
        plan["head"] = PrepareModuleInputOutput(
            input_layouts=(_POSITIONS, None),
            desired_input_layouts=(Replicate(), None),
            output_layouts=Shard(-1),
            desired_output_layouts=Replicate(),
        )
    parallelize_module(decoder, mesh, plan)
