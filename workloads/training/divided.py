"""A model in training that no process holds whole: FSDP, tensor and pipeline parallelism.

Weights, gradients and the optimiser's numbers are divided by `fully_shard` (FSDP2), the matrices
of a language model's layers by `tensor_plan`, its layers by `stages`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import warnings
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import checkpoint
from falaj.workloads.training.batches import Batches, Share
from falaj.workloads.training.compiling import Compilation, compile_in_place
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.divergence import Watch
from falaj.workloads.training.layout import DATA, PIPELINE, SHARD, TENSOR, Grid
from falaj.workloads.training.loop import (
    PRECISIONS,
    copied,
    follow_weights,
    mixed,
    module_losses,
    optimised_names,
    optimiser_of,
)
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.own_model import own_tensor_plan
from falaj.workloads.training.pace import Pace
from falaj.workloads.training.parts import (
    AVERAGE,
    BEST,
    MODULE,
    OPTIMISER,
    Place,
    Source,
    Writer,
    named,
    without_parameters,
)
from falaj.workloads.training.pieces import Tensors, is_first, local, place
from falaj.workloads.training.stages import Pipeline
from falaj.workloads.training.tensor_plan import divide, divide_own
from falaj.workloads.training.tensors import backward

_ROUNDING: Final = 1e-6
"""Added to a norm that gradients are divided by, as `torch.nn.utils.clip_grad_norm_` does."""


class DividedOptimisation:
    """The part of the model in training that this process holds; the others have the rest.

    All processes call each method, as most of them exchange something.

    Args:
        module: the fresh model, whole and the same in every process; it becomes a part of it.
        batches: this process's rows.
        parameters: the run's parameters.
        grid: the processes of the run.
        task: ``classification``, ``regression`` or ``language``.
        outputs: numbers that it answers with.
        compilation: whether its layers are compiled. Default: they aren't.
        sample: some rows, the same ones in all processes, by which it is seen that a team's own
            module answers divided as it did.

    Attributes:
        turns: as `Optimisation.turns` and ``settles``: it isn't made smaller.
        settles: likewise.
    """

    turns = settles = 0

    def __init__(
        self,
        module: nn.Module,
        batches: Batches,
        parameters: Parameters,
        grid: Grid,
        *,
        task: str,
        outputs: int,
        compilation: Compilation | None = None,
        sample: Tensor | None = None,
    ) -> None:
        self._batches, self._parameters, self._grid, self._task = batches, parameters, grid, task
        self._team = team = grid.team
        _quieten()
        self.module = _divided(module.to(team.device), parameters, grid, compilation, sample)
        self._tensors = Tensors(self.module)
        self._average = {name: each.clone() for name, each in self._tensors.own.items()}
        self._best = copied(self._average)
        self._optimiser, self._scheduler = optimiser_of(self.module, parameters, batches.steps)
        self.watch = Watch(
            self.module, parameters.learning_rate, parameters.gradient_clip, is_divided=True
        )
        self.pace = Pace(team)
        self._is_watched = team.device.type == "cpu"
        self._groups = self._groups_of_all()
        self._pipeline = (
            Pipeline(self.module, batches, parameters, grid, outputs)
            if grid.layout.pipeline > 1
            else None
        )
        learned = dict(self.module.named_parameters())
        self._counted = [t for name, t in self._tensors.own.items() if name not in learned]

    @property
    def learning_rate(self) -> float:
        """Return the rate of the next step."""
        return float(self._scheduler.get_last_lr()[0])

    def step(self, order: Any, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """Learn from one batch.

        Returns:
            This process's share of the batch's loss, and the whole gradient's norm before
            clipping, both float32 scalars on the device.
        """
        self.pace.begin_step()
        self._optimiser.zero_grad(set_to_none=True)
        shares = list(self._batches.shares(order, epoch, step))
        self.pace.has_rows()
        learn = self._learn if self._pipeline is None else self._pipeline.learn
        total = learn(shares)
        norm = self._clipped()
        self._optimiser.step()
        self._scheduler.step()
        for each in self._counted:  # what isn't learned but counted is the first process's
            distributed.broadcast(each, src=0)
        self._follow()
        return total / self._grid.layout.tensor, norm

    def _learn(self, shares: list[Share]) -> Tensor:
        total = torch.zeros((), device=self._team.device)
        for index, share in enumerate(shares):
            is_last = index == len(shares) - 1
            if isinstance(self.module, FSDPModule):
                self.module.set_is_last_backward(is_last)
                self.module.set_requires_gradient_sync(is_last)
            with mixed(self._parameters.precision, self._team.device.type):
                outputs = self.module(share.inputs)
            losses = module_losses(
                self.module, outputs.float(), share.labels, self._task,
                self._parameters.label_smoothing,
            )  # fmt: skip
            loss = (losses * share.weights).sum()
            # The processes' gradients are averaged, their losses must add up.
            backward(loss * self._grid.layout.row_parts)
            total += loss.detach()
        return total

    @torch.no_grad()
    def _clipped(self) -> Tensor:
        """Clip the gradients; return the norm of all of them before that."""
        gradients = {
            name: each.grad
            for name, each in self.module.named_parameters()
            if each.grad is not None
        }
        squared = torch.zeros((), dtype=torch.float64, device=self._team.device)
        if self._grid.is_first_copy:
            # The matrix of characters is in the first and in the last part of a pipeline.
            twice = "embedding.weight" if self._grid.place(PIPELINE) else ""
            is_alone = self._grid.place(TENSOR) == 0
            for name, each in gradients.items():
                if name != twice and is_first(each, is_alone):
                    squared += local(each).double().square().sum()
        # One sum over all of them is the same in all, to the last bit.
        norm = self._team.sum(squared).sqrt().float()
        if self._parameters.gradient_clip:
            share = (self._parameters.gradient_clip / (norm + _ROUNDING)).clamp(max=1.0)
            for each in gradients.values():
                local(each).mul_(share)
        return norm

    def has_diverged(self, loss: Tensor, norm: Tensor) -> bool:
        """Whether a step's loss, of all processes, or its gradient's norm is no number.

        On a GPU it isn't asked, as that would wait for it at each step.
        """
        return self._is_watched and not (math.isfinite(float(loss)) and math.isfinite(float(norm)))

    @contextlib.contextmanager
    def averaged(self) -> Generator[Callable[[Tensor], Tensor]]:
        """Give what answers with the averaged weights, the same in all parts of a copy.

        Every process asks it as often, of as many rows.
        """
        self.module.eval()
        self._exchange(self._average)
        try:
            yield self.module if self._pipeline is None else self._pipeline.answer
        finally:
            self._exchange(self._average)
            self.module.train()

    @torch.no_grad()
    def _exchange(self, others: dict[str, Tensor]) -> None:
        """Exchange the weights with ``others``."""
        for each in self.module.modules():
            if isinstance(each, FSDPModule):
                each.reshard()  # whole copies are of the weights before
        for name, tensor in self._tensors.own.items():
            kept = tensor.clone()
            tensor.copy_(others[name])
            others[name] = kept

    def keep_best(self) -> None:
        """Remember the averaged weights as the best so far."""
        self._best = copied(self._average)

    def best_module(self, build: Callable[[], nn.Module]) -> nn.Module:
        """Return a whole module with the best weights so far, which ends the training.

        Args:
            build: makes a module with fresh weights.

        Returns:
            It, in the leader's process; in the others their own part.
        """
        self._exchange({name: each.to(self._team.device) for name, each in self._best.items()})
        found = _gathered(self._tensors, self._grid)
        if not self._team.leads:
            return self.module
        # On the device that has room for a part of the training there is now some for the whole.
        self._optimiser.state.clear()
        self._average.clear()
        module = build()
        module.load_state_dict(found)
        return module.to(self._team.device).requires_grad_(False).eval()

    def begin_checkpoint(self, writer: Writer, moment: dict[str, Any]) -> None:
        """Have a checkpoint written; ``moment`` is what of one isn't of the optimisation."""
        common = {
            "groups": without_parameters(self._optimiser.param_groups),
            "names": self._groups,
            "scheduler": self._scheduler.state_dict(),
        }
        pieces = self._pieces() if self._grid.is_first_copy else None
        writer.begin(pieces, self._tensors.places(pieces or {}), common, moment)

    def _pieces(self) -> dict[str, Tensor]:
        """This process's pieces of tensors by name, as `parts` keeps them, on the CPU."""
        found = named(MODULE, self._tensors.own) | named(AVERAGE, self._average)
        for name, parameter in self.module.named_parameters():
            values: dict[str, Any] = self._optimiser.state.get(parameter, {})
            for key, value in values.items():
                if isinstance(value, Tensor):
                    _check_form(name, key, value, parameter)
                    found[f"{OPTIMISER}/{name}/{key}"] = local(value)
        # The best ones are on the CPU, and replaced rather than changed.
        return copied(found) | named(BEST, self._best)

    def _groups_of_all(self) -> list[list[str]]:
        """The names in each of the optimiser's groups, of all parts of a pipeline."""
        own = optimised_names(self.module, self._optimiser)
        collected = [json.loads(each) for each in self._team.collect(json.dumps(own).encode())]
        return [
            list(dict.fromkeys(name for groups in collected for name in groups[index]))
            for index in range(len(own))
        ]

    def read(self, source: Source) -> dict[str, Tensor]:
        """Return this process's pieces of a checkpoint, by their names.

        Raises:
            WorkloadError: they can't be read, or it is one of another model.
        """
        wanted: dict[str, Place | None] = {}
        for of in (MODULE, AVERAGE, BEST):
            for name, whole in self._tensors.whole.items():
                key = f"{of}/{name}"
                if source.shapes.get(key) != tuple(whole.shape):
                    raise WorkloadError(f"the checkpoint doesn't have {name} of this form")
                wanted[key] = place(whole)
        for key, shape in source.shapes.items():
            of, _, rest = key.partition("/")
            whole = self._tensors.whole.get(rest.rpartition("/")[0])
            if of == OPTIMISER and whole is not None:
                wanted[key] = place(whole) if shape == tuple(whole.shape) else None
        return source.read(wanted)

    @torch.no_grad()
    def restore(self, pieces: dict[str, Tensor], common: dict[str, Any]) -> None:
        """Go on from what `read` returned, and a checkpoint's plain values."""
        for of, into in ((MODULE, self._tensors.own), (AVERAGE, self._average),
                         (BEST, self._best)):  # fmt: skip
            for name, tensor in into.items():
                tensor.copy_(pieces[f"{of}/{name}"])
        parameters = dict(self.module.named_parameters())
        for key, piece in pieces.items():
            of, _, rest = key.partition("/")
            if of != OPTIMISER:
                continue
            name, _, what = rest.rpartition("/")
            parameter, value = parameters[name], piece
            if piece.shape == local(parameter).shape:
                value = torch.zeros_like(parameter, dtype=piece.dtype, requires_grad=False)
                local(value).copy_(piece)
            self._optimiser.state[parameter][what] = value
        for group, kept in zip(self._optimiser.param_groups, common["groups"], strict=True):
            group.update(kept)
        self._scheduler.load_state_dict(common["scheduler"])

    @torch.no_grad()
    def _follow(self) -> None:
        """Let the average follow the weights, and what isn't learned but counted."""
        pairs = ((self._average[name], each) for name, each in self._tensors.own.items())
        follow_weights(pairs, self._scheduler.last_epoch)


def _quieten() -> None:
    """Drop what PyTorch says to its developers of what is done here on purpose."""
    # That what a matrix of characters gives is a view: nothing changes it.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
    # That a weight that is put together as training ends takes two exchanges.
    logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)


def _divided(
    module: nn.Module, parameters: Parameters, grid: Grid, compilation: Compilation | None,
    sample: Tensor | None,
) -> nn.Module:  # fmt: skip
    """Leave of a whole module what this process holds."""
    with torch.no_grad():
        for each in module.state_dict().values():
            distributed.broadcast(each, src=0)
    layout = grid.layout
    if isinstance(module, Decoder):
        if layout.pipeline > 1:
            module.keep(grid.place(PIPELINE), layout.pipeline)
        if layout.tensor > 1:
            divide(module, grid.mesh[TENSOR])
    elif layout.tensor > 1 and sample is not None:
        plan = own_tensor_plan(module, layout.tensor)
        divide_own(module, plan, grid.mesh[TENSOR], sample)
    mesh = grid.mesh[DATA, SHARD] if layout.data > 1 else grid.mesh[SHARD]
    kind = PRECISIONS[parameters.precision]
    options: dict[str, Any] = {
        "mesh": mesh,
        # In a pipeline, gathering again for each part of a batch costs more than it saves.
        "reshard_after_forward": layout.pipeline == 1,
    }
    if kind != torch.float32:
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=torch.float32)
    layers = list(_layers(module))
    if compilation is not None and compilation.used:
        compile_in_place(module, layers, forgives=compilation.forgives)
    for each in layers:
        fully_shard(each, **options)
    fully_shard(module, **options)
    return module


def _layers(module: nn.Module) -> Iterable[nn.Module]:
    """The modules in the outermost lists of a module: each is gathered when it is its turn."""
    for child in module.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict | nn.Sequential):
            yield from (each for each in child.children() if any(True for _ in each.parameters()))
        else:
            yield from _layers(child)


def _check_form(name: str, key: str, value: Tensor, parameter: Tensor) -> None:
    """Refuse an optimiser of a team's own whose numbers can't be put together again."""
    if value.numel() > 1 and value.shape != parameter.shape:
        raise WorkloadError(
            f"the optimiser keeps {key} of {name} in another form ({list(value.shape)}) than the "
            f"weights ({list(parameter.shape)}), which a checkpoint of a divided model can't: use "
            "one that keeps a number for each weight, as AdamW does, or leave --shard out"
        )


def _gathered(tensors: Tensors, grid: Grid) -> dict[str, Tensor]:
    """The whole tensors of all parts of a pipeline, on the leader's CPU; elsewhere nothing."""
    team, found = grid.team, dict[str, Tensor]()
    part = grid.place(PIPELINE)
    speaks = team.rank == grid.leader_of(part)
    for name, tensor in tensors.whole.items():
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if speaks:
            found[name] = whole.detach().cpu()
    for other in range(1, grid.layout.pipeline):
        if team.leads:
            data = team.receive(grid.leader_of(other))
            found |= checkpoint.decode(data, Path(f"part {other} of the model"))
        elif speaks and part == other:
            team.send(checkpoint.encode(found), 0)
    return found
