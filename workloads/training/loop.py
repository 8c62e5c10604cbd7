"""The optimiser's side of training: steps, schedule, average of the weights, early stopping."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from falaj.workloads.errors import CodeError, some
from falaj.workloads.training import optimisers, pruning, quantisation
from falaj.workloads.training.batches import Batches
from falaj.workloads.training.compiling import Compilation, compile_in_place
from falaj.workloads.training.distillation import Distillation
from falaj.workloads.training.distributed import Team
from falaj.workloads.training.divergence import Watch
from falaj.workloads.training.language import IGNORED, counted
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.own_model import own_loss, own_optimizer
from falaj.workloads.training.pace import Pace
from falaj.workloads.training.pruning import Pruning
from falaj.workloads.training.record import LANGUAGE
from falaj.workloads.training.tensors import backward, frozen
from falaj.workloads.vocabulary import MOST_CHARACTERS


def classification(
    labels: NDArray[np.int64], predicted: NDArray[np.int64], classes: list[str]
) -> dict[str, Any]:
    """Compare class numbers.

    Args:
        labels: the truth, shape (rows,).
        predicted: the model's choice, shape (rows,).
        classes: the classes' names in the order of their numbers.

    Returns:
        ``accuracy``, ``balanced_accuracy`` (mean recall over the classes that occur),
        ``macro_f1`` (over the same), ``per_class`` {name: precision, recall, f1, support} and
        ``confusion`` (row: truth, column: prediction). A figure whose denominator is 0 is 0.
    """
    size = len(classes)
    confusion = np.zeros((size, size), dtype=np.int64)
    np.add.at(confusion, (labels, predicted), 1)
    hits = np.diag(confusion).astype(np.float64)
    support = confusion.sum(axis=1)
    recall = _ratio(hits, support)
    precision = _ratio(hits, confusion.sum(axis=0))
    f1 = _ratio(2 * precision * recall, precision + recall)
    occurs = support > 0
    per_class = {
        name: {
            "precision": float(precision[index]),
            "recall": float(recall[index]),
            "f1": float(f1[index]),
            "support": int(support[index]),
        }
        for index, name in enumerate(classes)
    }
    return {
        "rows": len(labels),
        "accuracy": float(hits.sum() / len(labels)),
        "balanced_accuracy": float(recall[occurs].mean()),
        "macro_f1": float(f1[occurs].mean()),
        "per_class": per_class,
        "confusion": confusion.tolist(),
    }


def regression(
    labels: NDArray[np.floating[Any]], predicted: NDArray[np.floating[Any]]
) -> dict[str, Any]:
    """Compare numbers in the target's own unit, both of shape (rows,).

    Returns:
        ``rmse``, ``mae``, ``r2`` (0 for a constant truth) and ``baseline_rmse``, that of always
        saying the truth's mean.
    """
    truth, guess = labels.astype(np.float64), predicted.astype(np.float64)
    squared = float(np.mean((guess - truth) ** 2))
    variance = float(np.var(truth))
    return {
        "rows": len(truth),
        "rmse": squared**0.5,
        "mae": float(np.mean(np.abs(guess - truth))),
        "r2": 1 - squared / variance if variance > 0 else 0.0,
        "baseline_rmse": variance**0.5,
    }


def _ratio(
    above: NDArray[np.floating[Any]], below: NDArray[np.generic]
) -> NDArray[np.floating[Any]]:
    bottom = below.astype(np.float64)
    return np.divide(above, bottom, out=np.zeros_like(bottom), where=bottom > 0)


_WARM_UP_SHARE = 0.05
_LAST_RATE_SHARE = 0.01
_AVERAGE_DECAY = 0.99

PRECISIONS = {
    "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16,
}  # fmt: skip


@dataclass
class Position:
    """How far a run has come; all of it is in the checkpoint.

    Attributes:
        epoch: the epoch under way, or the number of epochs when all are done.
        step: its next batch.
        loss: its sum of batch losses so far, as float64 on the CPU.
        gradient_norm: its sum of gradient norms so far, before clipping.
        best_loss: the lowest validation loss.
        best_epoch: the epoch that reached it.
        ended: why training is over, None while it isn't.
        seconds: time spent in training by all attempts.
        history: the epochs' metrics, which metrics.jsonl repeats.
        skipped: epochs that were left out, as the network learned nothing more before it is made
            smaller.
    """

    epoch: int = 0
    step: int = 0
    loss: float = 0.0
    gradient_norm: float = 0.0
    best_loss: float = math.inf
    best_epoch: int = -1
    ended: str | None = None
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    skipped: int = 0


class Optimisation:
    """The model in training, and everything that the next step depends on.

    Args:
        module: the fresh model, the same in every process.
        batches: this process's rows.
        parameters: the run's parameters.
        team: the processes of the run.
        task: ``classification``, ``regression`` or ``language``.
        distillation: mixes a teacher's answers into the loss. Default: nobody teaches.
        unsteady: names of frozen parameters that the module changes by itself as it learns.
        compilation: whether the module is compiled; the average of its weights isn't. Default: no.

    Attributes:
        kept: the numbers that stay as they are, by name, which no checkpoint has: the frozen
            parameters of a low-rank adaptation or of a team's own model.
    """

    def __init__(
        self,
        module: nn.Module,
        batches: Batches,
        parameters: Parameters,
        team: Team,
        task: str,
        *,
        distillation: Distillation | None = None,
        unsteady: frozenset[str] = frozenset(),
        compilation: Compilation | None = None,
    ) -> None:
        self.module = module.to(team.device)
        # What stays as it is stands once, and in no checkpoint.
        freezes = parameters.lora_rank > 0 or parameters.own is not None
        self.kept = {
            name: each
            for name, each in (frozen(self.module) if freezes else {}).items()
            if name not in unsteady
        }
        same = {id(each): each for each in self.kept.values()}
        self.average = copy.deepcopy(self.module, same).requires_grad_(False).eval()
        self.best = self._learned(self.average)
        # The optimiser holds the same ones: they needn't be looked for in each step.
        self._weights = list(self.module.parameters())
        followed = zip(self.average.parameters(), self._weights, strict=True)
        self._followed = [(ours, theirs) for ours, theirs in followed if ours is not theirs]
        # A team's own model may make itself new buffers.
        self._counts = parameters.own is not None or any(True for _ in self.module.buffers())
        if compilation is not None and compilation.used:
            compile_in_place(self.module, forgives=compilation.forgives)
        self._wrapped = team.wrap(self.module, parameters.compression)
        self._versions = self._versions_of_kept()  # the first process's were written over ours
        self._batches, self._parameters, self._team, self._task = batches, parameters, team, task
        self._distillation = distillation
        self._pruning = (
            Pruning(parameters.prune, parameters.epochs) if parameters.prune > 0 else None
        )
        self._optimiser, self._scheduler = optimiser_of(self.module, parameters, batches.steps)
        self.watch = Watch(self.module, parameters.learning_rate, parameters.gradient_clip)
        self.pace = Pace(team)
        self._is_watched = team.device.type == "cpu"
        # Only float16 has so few exponent bits that small gradients vanish without a scale.
        self._scaler = torch.amp.GradScaler(
            team.device.type, enabled=parameters.precision == "float16"
        )

    @property
    def learning_rate(self) -> float:
        """Return the rate of the next step."""
        return float(self._scheduler.get_last_lr()[0])

    def begin_epoch(self, epoch: int) -> None:
        """Do what is done at an epoch's begin, and again where a run goes on within one."""
        if self._pruning is not None:
            self._pruning.begin_epoch(epoch, self.module, self.average)
        if self._parameters.quantisation_aware:
            for module in (self.module, self.average):
                quantisation.switch(module, epoch >= quantisation.begins(self._parameters.epochs))

    @property
    def turns(self) -> int:
        """Return the epoch (from 0 on) at which the network begins to be made smaller; 0: none."""
        epochs = self._parameters.epochs
        if self._pruning is not None:
            return pruning.begins(epochs)
        return quantisation.begins(epochs) if self._parameters.quantisation_aware else 0

    @property
    def settles(self) -> int:
        """Return the epoch (from 0 on) before which the network isn't yet what it is to be."""
        epochs = self._parameters.epochs
        if self._parameters.quantisation_aware:
            return quantisation.begins(epochs)
        return pruning.settles(epochs) if self._pruning is not None else 0

    def turn(self) -> None:
        """Go on from the best weights so far and with the rate of the epoch of `turns`."""
        self._load(self.module, self.best)
        self._load(self.average, self.best)
        self._scheduler.last_epoch = self.turns * self._batches.steps - 1
        self._scheduler.step()

    def step(self, order: Any, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """Learn from one batch.

        Returns:
            The batch's loss and the gradient's norm before clipping, both float32 scalars on
            the device; the loss is this process's share of it.
        """
        total, norm = self._gradients(order, epoch, step)
        self._scaler.step(self._optimiser)
        self._scaler.update()
        self._scheduler.step()
        if self._pruning is not None:
            self._pruning.hold()
        self._follow()
        return total, norm

    def gradients(
        self, order: Any, epoch: int, step: int
    ) -> tuple[Tensor, dict[str, Tensor] | None]:
        """Compute a batch's clipped gradients, and learn nothing from them.

        Returns:
            The batch's loss, as `step` has it, and the gradients by name; None in place of them
            where float16 looks for its scale.
        """
        total, norm = self._gradients(order, epoch, step)
        is_searching = self._scaler.is_enabled() and not math.isfinite(float(norm))
        self._scaler.update()
        if is_searching:
            return total, None
        return total, {
            name: each.grad if each.grad is not None else torch.zeros_like(each)
            for name, each in self.module.named_parameters()
        }

    def go_to(self, share: float) -> None:
        """Let the rate be that of a place in the schedule, 0 (its beginning) to 1 (its end).

        For a process that does a part of the steps of a training, and not each of them.
        """
        total = self._parameters.epochs * self._batches.steps
        step = min(total, round(share * total))
        self._scheduler.last_epoch = step
        groups = zip(self._optimiser.param_groups, self._scheduler.base_lrs, strict=True)
        for group, peak in groups:
            group["lr"] = float(peak) * rate_share(step, total)

    def _gradients(self, order: Any, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """Compute a batch's clipped gradients; return its loss and their norm before clipping."""
        self.pace.begin_step()
        self._optimiser.zero_grad(set_to_none=True)
        shares = list(self._batches.shares(order, epoch, step))
        self.pace.has_rows()
        total = torch.zeros((), device=self._team.device)
        for index, share in enumerate(shares):
            with self._synchronised(index == len(shares) - 1):
                with mixed(self._parameters.precision, self._team.device.type):
                    outputs = self._wrapped(share.inputs)
                losses = module_losses(
                    self.module, outputs.float(), share.labels, self._task,
                    self._parameters.label_smoothing,
                )  # fmt: skip
                if self._distillation is not None:
                    losses = self._distillation.losses(
                        losses, share.inputs, outputs.float(), share.labels
                    )
                loss = (losses * share.weights).sum()
                if self._is_watched:
                    self.watch.loss(share.inputs, outputs, loss)
                if index == len(shares) - 1:
                    self.pace.exchanges()
                # The processes' gradients are averaged, their losses must add up.
                backward(self._scaler.scale(loss * self._team.processes))
            total += loss.detach()
        self._scaler.unscale_(self._optimiser)
        return total, self._clipped().detach()

    def _clipped(self) -> Tensor:
        """Clip the gradients; return their norm before that."""
        gradients = [each.grad for each in self._weights if each.grad is not None]
        norm = nn.utils.get_total_norm(gradients, foreach=True)
        # float16 meets infinite gradients while it looks for its scale.
        if self._is_watched and not self._scaler.is_enabled():
            self.watch.gradient(norm)
        limit = self._parameters.gradient_clip or math.inf
        nn.utils.clip_grads_with_norm_(self._weights, limit, norm, foreach=True)
        return norm

    def has_diverged(self, loss: Tensor, norm: Tensor) -> bool:
        """Whether a step's loss, of all processes, or its gradient's norm is no number.

        On a GPU it isn't asked, as that would wait for it at each step.
        """
        if not self._is_watched:
            return False
        is_searching = self._scaler.is_enabled()
        return not (math.isfinite(float(loss)) and (is_searching or math.isfinite(float(norm))))

    @contextlib.contextmanager
    def averaged(self) -> Generator[Callable[[Tensor], Tensor]]:
        """Give what answers with the averaged weights."""
        yield self.average

    def best_module(self, build: Callable[[], nn.Module]) -> nn.Module:
        """Return the module with the best weights so far.

        Args:
            build: makes a module with fresh weights, where none is at hand.
        """
        del build
        self._load(self.average, self.best)
        return self.average

    def keep_best(self) -> None:
        """Remember the averaged weights as the best so far."""
        self.best = self._learned(self.average)

    def _learned(self, module: nn.Module) -> dict[str, Tensor]:
        """A copy of the numbers by name, without those that stay as they are."""
        state = module.state_dict()
        return copied({name: each for name, each in state.items() if name not in self.kept})

    def _load(self, module: nn.Module, state: dict[str, Tensor]) -> None:
        module.load_state_dict({**self.kept, **state})
        self._versions = self._versions_of_kept()  # they were copied onto themselves

    def _versions_of_kept(self) -> dict[str, int]:
        """How often each of the numbers was written to."""
        return {name: each._version for name, each in self.kept.items()}

    def _check_kept(self) -> None:
        """Refuse frozen parameters of a team's own model that were changed after all."""
        changed = [
            name
            for name, each in self.kept.items()
            if each.requires_grad or each._version != self._versions[name]
        ]
        if changed:
            raise CodeError(
                f"the model's code changed {some(changed, 3)} after its first batch, which were "
                "frozen when it began: no checkpoint has them. Leave them to learn from the "
                "beginning (requires_grad_(True)), or make buffers of them (register_buffer)"
            )

    @property
    def optimised(self) -> list[str]:
        """Return the parameters' names in the order in which the optimiser counts them."""
        groups = optimised_names(self.module, self._optimiser)
        return [name for names in groups for name in names]

    def state(self) -> dict[str, Any]:
        """Return all of it for a checkpoint.

        Raises:
            CodeError: a team's own model changed what it had frozen.
        """
        self._check_kept()
        return {
            "module": self._learned(self.module),
            "average": self._learned(self.average),
            "best": self.best,
            "optimiser": self._optimiser.state_dict(),
            "optimised": self.optimised,
            "scheduler": self._scheduler.state_dict(),
            "scaler": self._scaler.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        self._load(self.module, state["module"])
        self._load(self.average, state["average"])
        self.best = state["best"]
        self._optimiser.load_state_dict(state["optimiser"])
        self._scheduler.load_state_dict(state["scheduler"])
        if "scaler" in state:  # a divided model has none
            self._scaler.load_state_dict(state["scaler"])

    def _synchronised(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Exchange gradients with the last part of a batch only."""
        if last or self._team.processes == 1:
            return contextlib.nullcontext()
        return cast("Any", self._wrapped).no_sync()

    @torch.no_grad()
    def _follow(self) -> None:
        """Let the average follow the weights, and what isn't learned but counted."""
        pairs = self._followed
        if self._counts:
            counted = zip(self.average.buffers(), self.module.buffers(), strict=True)
            pairs = [*pairs, *((ours, theirs) for ours, theirs in counted if ours is not theirs)]
        follow_weights(pairs, self._scheduler.last_epoch)
        if self._parameters.quantisation_aware:
            quantisation.share_ranges(self.module, self.average)


def follow_weights(pairs: Iterable[tuple[Tensor, Tensor]], done: int) -> None:
    """Let averages follow what they are of, faster in the beginning.

    Args:
        pairs: of an average and what it is of: a weight, or what isn't learned but counted, as by
            a batch normalisation.
        done: steps until now.
    """
    decay = min(_AVERAGE_DECAY, (1 + done) / (10 + done))
    for averaged, current in pairs:
        if averaged.is_floating_point():
            averaged.lerp_(current, 1 - decay)
        else:
            averaged.copy_(current)


def optimiser_of(
    module: nn.Module, parameters: Parameters, steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
    """Return the optimiser of a module, and what changes its rate in each step.

    Args:
        module: whose parameters are learned: of a team's own, by an optimiser of its own if it
            has one.
        parameters: the run's.
        steps: of an epoch.
    """
    rate, decay = parameters.learning_rate, parameters.weight_decay
    freezes = parameters.lora_rank > 0 or parameters.own is not None
    learned = [p for p in module.parameters() if p.requires_grad or not freezes]
    groups = [
        {"params": [p for p in learned if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in learned if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimiser = own_optimizer(module, rate, decay) or optimisers.AdamW(groups, lr=rate, fused=True)
    total = max(1, parameters.epochs * steps)
    return optimiser, torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: rate_share(step, total)
    )


def optimised_names(module: nn.Module, optimiser: torch.optim.Optimizer) -> list[list[str]]:
    """Return the parameters' names in each of an optimiser's groups, in its order."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    return [[names[id(each)] for each in group["params"]] for group in optimiser.param_groups]


def mixed(precision: str, device: str) -> torch.autocast:
    """Return the context in which a module computes in ``precision`` where that does no harm."""
    kind = PRECISIONS[precision]
    return torch.autocast(device, kind, enabled=kind != torch.float32)


def rate_share(step: int, total: int) -> float:
    """Return the share of the peak rate at ``step`` of ``total``: warm-up, then a cosine."""
    warm_up = max(1.0, _WARM_UP_SHARE * total)
    if step < warm_up:
        return (step + 1) / (warm_up + 1)
    passed = min(1.0, (step - warm_up) / max(1.0, total - warm_up))
    return _LAST_RATE_SHARE + (1 - _LAST_RATE_SHARE) * 0.5 * (1 + math.cos(math.pi * passed))


def row_losses(outputs: Tensor, labels: Tensor, task: str, smoothing: float) -> Tensor:
    """Return each row's loss (N,): cross-entropy, or squared error of the standardised target.

    Of a language model it is the mean cross-entropy of a window's tokens, in nats, but for those
    that are `IGNORED`; 0 where all are.
    """
    if task == LANGUAGE:
        losses = functional.cross_entropy(
            outputs.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none",
            label_smoothing=smoothing,
        ).view_as(labels)  # fmt: skip
        return losses.sum(1) / counted(labels)
    if task == "classification":
        return functional.cross_entropy(
            outputs, labels, reduction="none", label_smoothing=smoothing
        )
    return (outputs.squeeze(1) - labels) ** 2


def module_losses(
    module: nn.Module, outputs: Tensor, labels: Tensor, task: str, smoothing: float
) -> Tensor:
    """Return each row's loss (N,) by the method ``loss`` of a team's module, else `row_losses`."""
    own = own_loss(module)
    if own is not None:
        return own(outputs, labels)
    return row_losses(outputs, labels, task, smoothing)


PREDICTED_ROWS = 4_096
"""Asked at once of one of our models, which are small."""


@torch.no_grad()
def predict(
    module: Callable[[Tensor], Tensor], inputs: Tensor, rows: int = PREDICTED_ROWS
) -> Tensor:
    """Return the module's float32 outputs for all of ``inputs``, ``rows`` at a time."""
    parts = [module(inputs[start : start + rows]) for start in range(0, len(inputs), rows)]
    return torch.cat(parts)


_WINDOWS_AT_ONCE = 32
_NUMBERS_AT_ONCE = 1 << 26
"""That a language model may answer at once: one for every token of the vocabulary, at each place
of each window."""


def windows_at_once(context: int, size: int) -> int:
    """Return how many windows of ``context`` tokens are asked at once of a language model.

    Args:
        context: tokens of a window.
        size: tokens of the vocabulary.
    """
    return max(1, min(_WINDOWS_AT_ONCE, _NUMBERS_AT_ONCE // (context * size)))


@torch.no_grad()
def follow_rows(
    module: Callable[[Tensor], Tensor],
    inputs: Tensor,
    targets: Tensor,
    size: int = MOST_CHARACTERS,
) -> tuple[Tensor, Tensor]:
    """Judge a module on windows of tokens, as `follow`: each window's nats and hits (N,)."""
    nats: list[Tensor] = []
    hits: list[Tensor] = []
    some = windows_at_once(inputs.shape[1], size)
    for start in range(0, len(inputs), some):
        wanted = targets[start : start + some]
        outputs = module(inputs[start : start + some]).float()
        nats.append(row_losses(outputs, wanted, LANGUAGE, 0.0))
        hits.append((outputs.argmax(-1) == wanted).double().sum(1) / counted(wanted))
    return torch.cat(nats).double(), torch.cat(hits)


def follow(
    module: Callable[[Tensor], Tensor],
    inputs: Tensor,
    targets: Tensor,
    size: int = MOST_CHARACTERS,
) -> tuple[float, float]:
    """Judge a language model.

    Args:
        module: the model.
        inputs: windows of tokens (N, S).
        targets: those that follow each (N, S).
        size: tokens of the vocabulary, which says how much memory answers take. Default: the most
            that characters may be.

    Returns:
        The mean cross-entropy of a token, in nats, and the share of the tokens that were thought
        the likeliest.
    """
    nats, hits = follow_rows(module, inputs, targets, size)
    return float(nats.mean()), float(hits.mean())


def copied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors by name on the CPU, which nobody else changes."""
    return {name: tensor.detach().cpu().clone() for name, tensor in state.items()}
