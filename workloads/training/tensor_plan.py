"""Tensor parallelism: which matrix is divided how, of the language model or of a team's own.

Questions, keys, values and the first matrices of the gated units are divided by what they make,
the ones after them by what they take, so that each pair exchanges once. Between them, norms and
the stream are divided by position (sequence parallelism):
https://arxiv.org/abs/1909.08053, https://arxiv.org/abs/2205.05198
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
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

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.own_model import ALIKE, COLWISE, guarded

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


@torch.no_grad()
def divide_own(module: nn.Module, plan: Mapping[str, str], mesh: DeviceMesh, rows: Tensor) -> None:
    """Divide the matrices of a team's own model, and see that it answers as it did.

    Args:
        module: whole, the same in every process.
        plan: as `own_model.own_tensor_plan` returns it.
        mesh: the processes that divide them.
        rows: of the dataset, the same ones in every process, shape (N, *inputs).

    Raises:
        WorkloadError: divided, it fails or answers otherwise.
    """
    name = type(module).__name__
    module.eval()
    before: Tensor = module(rows.clone())
    parallelize_module(
        module, mesh,
        {each: ColwiseParallel() if word == COLWISE else RowwiseParallel()
         for each, word in plan.items()},
    )  # fmt: skip
    hint = (
        "what follows a colwise one has a part of its columns, up to a rowwise one that takes "
        "them: shapes between them are taken of the tensors (size(-1), -1), not of the options"
    )
    with guarded(f"{name} can't be run divided as tensor_plan() says ({hint})"):
        after: Tensor = module(rows.clone())
    allowed = ALIKE * max(1.0, float(before.abs().max()))
    if after.shape != before.shape or float((after - before).abs().max()) > allowed:
        raise WorkloadError(
            f"{name} answers otherwise when it is divided as tensor_plan() says: {hint}; a "
            "softmax, a norm or a sum over all columns can't stand there"
        )
    module.train()
