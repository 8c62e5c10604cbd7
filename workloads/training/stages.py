"""A pipeline of processes that each have some of a language model's layers.

They work on the parts of a batch in turn, one forward, one backward:
https://arxiv.org/abs/2104.04473
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, distributed, nn

from falaj.workloads.training.batches import Batches, Share
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.layout import PIPELINE, Grid
from falaj.workloads.training.loop import mixed, module_losses
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.pieces import local
from falaj.workloads.training.record import LANGUAGE
from falaj.workloads.training.tensors import numbers_of


class Pipeline:
    """The turns of this process's layers in a pipeline of several.

    Args:
        module: the layers of this process.
        batches: its rows, in as many parts as there are turns.
        parameters: the run's parameters.
        grid: the processes of the run.
        outputs: characters of the vocabulary.
    """

    def __init__(
        self,
        module: nn.Module,
        batches: Batches,
        parameters: Parameters,
        grid: Grid,
        outputs: int,
    ) -> None:
        self._module, self._parameters, self._grid = module, parameters, grid
        self._batches, self._outputs = batches, outputs
        self._part, self._parts = grid.place(PIPELINE), grid.layout.pipeline
        # Only here: it imports compilers, which takes a second.
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B  # noqa: PLC0415

        self._group = grid.mesh.get_group(PIPELINE)
        stage = PipelineStage(module, self._part, self._parts, grid.team.device, group=self._group)
        self._schedule: Any = Schedule1F1B(
            stage, batches.parts, loss_fn=self._loss, scale_grads=False
        )
        self._ends = self._ends_group()

    @property
    def _is_last(self) -> bool:
        return self._part == self._parts - 1

    def learn(self, shares: list[Share]) -> Tensor:
        """Go through the parts of a batch; return this process's share of the loss."""
        rows, device = self._batches.most_rows, self._grid.team.device
        padded = [_padded(each, rows) for each in shares]
        while len(padded) < self._batches.parts:
            padded.append(_without_weight(padded[0]))
        losses: list[Tensor] = []
        with mixed(self._parameters.precision, device.type):
            if self._part == 0:
                self._schedule.step(torch.cat([each.inputs for each in padded]))
            elif self._is_last:
                self._schedule.step(
                    target=torch.cat([_packed(each) for each in padded]), losses=losses
                )
            else:
                self._schedule.step()
        self._add_ends()
        if not self._is_last:
            return torch.zeros((), device=device)
        return torch.stack([each.detach() for each in losses]).sum() / self._grid.layout.row_parts

    def _loss(self, outputs: Tensor, packed: Tensor) -> Tensor:
        labels, weights = packed[:, :-1], packed[:, -1].contiguous().view(torch.float64)
        losses = module_losses(
            self._module, outputs.float(), labels, LANGUAGE, self._parameters.label_smoothing
        )
        return (losses * weights.float()).sum() * self._grid.layout.row_parts

    def _ends_group(self) -> Any:
        """The group of the processes that have this one's part of the matrix of characters."""
        found = None
        ranks = self._grid.mesh.mesh.flatten(1)
        for first, last in zip(numbers_of(ranks[0]), numbers_of(ranks[-1]), strict=True):
            group = distributed.new_group([first, last])  # all processes make all of them
            if self._grid.team.rank in (first, last):
                found = group
        return found

    @torch.no_grad()
    def _add_ends(self) -> None:
        """Add up the gradients of the matrix that is in the first part and in the last one."""
        if self._ends is None:
            return
        weight = cast("Decoder", self._module).embedding.weight
        if weight.grad is not None:
            distributed.all_reduce(local(weight.grad), group=self._ends)

    @torch.no_grad()
    def answer(self, inputs: Tensor) -> Tensor:
        """Return the last part's answers in all parts, float32."""
        tensor = self._grid.layout.tensor
        width = self._parameters.width
        before = distributed.get_global_rank(self._group, max(self._part - 1, 0))
        after = distributed.get_global_rank(self._group, min(self._part + 1, self._parts - 1))
        last = distributed.get_global_rank(self._group, self._parts - 1)
        rows, length = inputs.shape
        if self._part == 0:
            given = inputs
        else:
            given = torch.empty((rows, length // tensor, width), device=inputs.device)
            distributed.recv(given, src=before, group=self._group)
        found: Tensor = self._module(given).float().contiguous()
        if not self._is_last:
            distributed.send(found, dst=after, group=self._group)
            found = torch.empty((rows, length, self._outputs), device=inputs.device)
        distributed.broadcast(found, src=last, group=self._group)
        return found


def _padded(share: Share, rows: int) -> Share:
    """Add rows without weight."""
    missing = rows - len(share.weights)
    if not missing:
        return share
    return Share(
        torch.cat((share.inputs, share.inputs[:1].expand(missing, *share.inputs.shape[1:]))),
        torch.cat((share.labels, share.labels[:1].expand(missing, *share.labels.shape[1:]))),
        torch.cat((share.weights, share.weights.new_zeros(missing))),
    )


def _without_weight(share: Share) -> Share:
    return Share(share.inputs, share.labels, torch.zeros_like(share.weights))


def _packed(share: Share) -> Tensor:
    """Labels (n, S) and after them each row's weight, whose bits are taken for a number: a
    schedule divides one tensor."""
    bits = share.weights.double().view(torch.int64)
    return torch.cat((share.labels, bits[:, None]), dim=1)
