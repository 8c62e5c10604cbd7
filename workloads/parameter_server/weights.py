"""The server's model: versioned weights, the optimiser, what is taken and what is refused.

``asynchronous``: an update is the gradient of a batch at the weights of some version. Its
staleness is how many versions the weights have moved since. More than a bound is refused; less
counts less, by (1 + staleness)^-power of the learning rate: power 1 is Zhang et al.,
"Staleness-aware Async-SGD", arXiv:1511.05950; any power the polynomial of Xie, Koyejo, Gupta,
"Asynchronous Federated Optimization", arXiv:1903.03934. It is the rate that is scaled, as AdamW's
step doesn't depend on its gradients' scale.

``local``: an update is what a worker's own steps changed; the mean of gathered changes is the
negative gradient of an outer step with Nesterov's momentum (Douillard et al., "DiLoCo",
arXiv:2311.08105), each change scaled by its staleness as in FedBuff (Nguyen et al.,
arXiv:2106.06639). DiLoCo's workers wait for each other and take a momentum of 0.9; of workers
that don't wait so much does harm (Liu et al., arXiv:2401.09135), so that half of it is usual here.

In both, what is counted and not learned, as a batch normalisation's means, counts the batches of
all workers, as if they had gone through one after the other: an update has what its batches added,
and what they left of what was before follows from their number. (Differences added up would make
variances negative, where several workers have seen the same beginning.)
"""

from __future__ import annotations

import copy
import secrets
import statistics
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from falaj.workloads.errors import WorkloadError
from falaj.workloads.federation.updates import MessageError
from falaj.workloads.parameter_server import frames
from falaj.workloads.parameter_server.frames import Coding, Layout
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import artifact_path
from falaj.workloads.training import checkpoint, optimisers
from falaj.workloads.training import record as records
from falaj.workloads.training.loop import Position, copied, follow_weights, optimiser_of
from falaj.workloads.training.options import Parameters

STALE: Final = "stale"
EARLIER: Final = "of an earlier start"
NOT_FINITE: Final = "not finite"
EXPLODING: Final = "exploding"
DAMAGED: Final = "damaged"
TOO_OFTEN: Final = "too often"
_USUAL: Final = 64
_KNOWN_AFTER: Final = 8


class UpdateRefused(WorkloadError):  # noqa: N818 - what it is, not an error of the server's
    """An update isn't taken.

    Args:
        reason: one of this module's.
        text: the same for people.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class TrainingEnded(WorkloadError):  # noqa: N818 - no error
    """The training is over: no update is taken any more."""


@dataclass(frozen=True)
class Terms:
    """How updates are taken.

    Attributes:
        mode: ``asynchronous`` or ``local``.
        total: batches of the whole training, over all workers.
        gather: updates of one step.
        staleness: most versions that an update may be behind.
        power: by which staleness counts less; 0: it doesn't.
        explosion: how many times the usual norm of updates is refused.
        outer_rate: learning rate of the outer step, of ``local``.
        outer_momentum: its Nesterov momentum.
    """

    mode: str
    total: int
    gather: int
    staleness: int
    power: float
    explosion: float
    outer_rate: float
    outer_momentum: float

    def share(self, staleness: int) -> float:
        """What an update of this staleness counts."""
        return (1 + staleness) ** -self.power


@dataclass
class Ledger:
    """What one worker did.

    Attributes:
        updates: how many of it were taken.
        batches: that these were made of.
        rows: likewise.
        refused: how many weren't, by reason.
        staleness: how many updates had which.
        received: bytes of it.
        sent: bytes to it.
        last: the id of its last update that was taken.
    """

    updates: int = 0
    batches: int = 0
    rows: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    staleness: Counter[int] = field(default_factory=Counter[int])
    received: int = 0
    sent: int = 0
    last: str = ""

    def to_json(self) -> dict[str, Any]:
        """What the record says of it."""
        values = {k: v for k, v in vars(self).items() if k not in {"last", "refused", "staleness"}}
        return {
            **values,
            "refused": dict(sorted(self.refused.items())),
            "staleness": {str(each): n for each, n in sorted(self.staleness.items())},
        }

    def state(self) -> dict[str, Any]:
        """All of it, for a checkpoint."""
        return {**vars(self), "refused": dict(self.refused), "staleness": dict(self.staleness)}

    @classmethod
    def from_state(cls, value: dict[str, Any]) -> Ledger:
        """What `state` returned."""
        refused, staleness = Counter[Any](value["refused"]), Counter[Any](value["staleness"])
        whole: dict[str, Any] = {**value, "refused": refused, "staleness": staleness}
        return cls(**whole)


@dataclass(frozen=True)
class _Update:
    tensors: Mapping[str, Tensor]
    share: float
    batches: int


class Weights:
    """The model that threads of a server share.

    Args:
        module: with fresh weights.
        parameters: of the training.
        terms: how updates are taken.
        updates: what updates travel as.
        answers: what the model travels as.

    Attributes:
        changed: guards all of it; notified of each update.
        version: how many steps the model has done.
        done: batches of the updates that were taken.
        life: names this start of the server: versions of an earlier one may never have been kept.
        ledgers: what each worker did.
    """

    def __init__(
        self, module: nn.Module, parameters: Parameters, terms: Terms, updates: Coding,
        answers: Coding,
    ) -> None:  # fmt: skip
        self.module, self.terms = module, terms
        self.layout = Layout.of(module)
        self.updates, self.answers = updates, answers
        self.average = copy.deepcopy(module).requires_grad_(False).eval()
        self.changed = threading.Condition()
        self.life = secrets.token_hex(16)
        self.version = self.done = 0
        self.ended = False
        self.losses: list[float] = []
        self.ledgers: dict[str, Ledger] = {}
        self._gathered: list[_Update] = []
        self._norms: deque[float] = deque(maxlen=_USUAL)
        self._message: tuple[int, bytes] | None = None
        self._parameters = dict(module.named_parameters())
        state = module.state_dict()
        self._counted = [
            (each, state[each.name]) for each in self.layout.entries if not each.learned
        ]
        self._begin_norm, _ = frames.norm(module.state_dict(), self.layout)
        steps = max(1, terms.total // terms.gather)
        self._scheduler: torch.optim.lr_scheduler.LambdaLR | None = None
        if terms.mode == "local":
            self._optimiser: torch.optim.Optimizer = optimisers.SGD(
                module.parameters(), lr=terms.outer_rate, momentum=terms.outer_momentum,
                nesterov=terms.outer_momentum > 0,
            )  # fmt: skip
        else:
            self._optimiser, self._scheduler = optimiser_of(
                module, replace(parameters, epochs=1), steps
            )

    def ledger(self, worker: str) -> Ledger:
        """What a worker did; hold `changed` for it."""
        return self.ledgers.setdefault(worker, Ledger())

    def message(self, worker: str, version: int, life: str) -> bytes | None:
        """The model as a frame; None where the worker's is the newest.

        Args:
            worker: who asks.
            version: that it has.
            life: of the server that it has it from.

        Raises:
            TrainingEnded: nothing is learned any more.
        """
        with self.changed:
            self._check_open()
            if version == self.version and life == self.life:
                return None
            if self._message is None or self._message[0] != self.version:
                fields = {
                    "version": self.version, "life": self.life, "done": self.done,
                    "total": self.terms.total,
                }  # fmt: skip
                data = frames.encode(
                    frames.WEIGHTS, fields, self.module.state_dict(), self.layout, self.answers
                )
                self._message = (self.version, data)
            data = self._message[1]
            self.ledger(worker).sent += len(data)
            return data

    def take(self, worker: str, data: bytes) -> int:
        """Take a worker's update; return the version that there is then.

        An update that was taken before, whose answer was lost, is taken once.

        Raises:
            UpdateRefused: says why not.
            TrainingEnded: nothing is learned any more.
        """
        try:
            fields, tensors = frames.decode(data, frames.UPDATE, self.layout, self.updates)
            if fields["loss"] is None:
                raise frames.NotFiniteError("the loss")
            length, widest = frames.norm(tensors, self.layout)
        except MessageError as error:
            reason = NOT_FINITE if isinstance(error, frames.NotFiniteError) else DAMAGED
            raise self.refused(worker, reason, str(error), len(data)) from error
        with self.changed:
            self._check_open()
            ledger = self.ledger(worker)
            if fields["id"] == ledger.last:
                return self.version
            staleness = self._staleness(worker, fields, len(data))
            limit = self._limit()
            if length > limit:
                text = (
                    f"the update's norm is {length:.3g}, more than {limit:.3g}, which is "
                    f"{self.terms.explosion:g} times the usual one; most of it is in {widest}"
                )
                raise self.refused(worker, EXPLODING, text, len(data))
            self._norms.append(length)
            self.losses.append(float(fields["loss"]))
            ledger.updates += 1
            ledger.batches += fields["batches"]
            ledger.rows += fields["rows"]
            ledger.received += len(data)
            ledger.staleness[staleness] += 1
            ledger.last = fields["id"]
            self.done += fields["batches"]
            self._gathered.append(_Update(tensors, self.terms.share(staleness), fields["batches"]))
            if len(self._gathered) >= self.terms.gather:
                self._step()
            self.changed.notify_all()
            return self.version

    def refused(self, worker: str, reason: str, text: str, size: int = 0) -> UpdateRefused:
        """Count what wasn't taken; the error that says so."""
        with self.changed:
            ledger = self.ledger(worker)
            ledger.refused[reason] += 1
            ledger.received += size
            self.changed.notify_all()
        return UpdateRefused(reason, text)

    def end(self) -> None:
        """Take nothing any more; what is gathered makes a last step."""
        with self.changed:
            if self._gathered and not self.ended:
                self._step()
            self.ended = True

    def taken_losses(self) -> list[float]:
        """The losses of updates since this was asked for last."""
        with self.changed:
            found, self.losses = self.losses, []
            return found

    def judged(self) -> dict[str, Tensor]:
        """A copy of the weights that are judged: asynchronous ones averaged over their steps."""
        with self.changed:
            source = self.module if self.terms.mode == "local" else self.average
            return copied(source.state_dict())

    def save(
        self, path: Path, keyring: KeyRing | None, context: bytes, position: Position,
        best: Mapping[str, Tensor] | None,
    ) -> None:  # fmt: skip
        """Write a checkpoint; updates are taken meanwhile, but for the moment of the copy."""
        with self.changed:
            state = {
                "module": copied(self.module.state_dict()),
                "average": copied(self.average.state_dict()),
                "optimiser": copy.deepcopy(self._optimiser.state_dict()),
                "scheduler": self._scheduler.state_dict() if self._scheduler else None,
                "version": self.version,
                "done": self.done - sum(each.batches for each in self._gathered),
                "norms": list(self._norms),
                "ledgers": {name: each.state() for name, each in self.ledgers.items()},
                "position": {**vars(position), "history": list(position.history)},
                "best": dict(best) if best is not None else None,
            }
        checkpoint.save(path / records.CHECKPOINT, state, keyring, context)

    def restore(
        self, path: Path, keyring: KeyRing | None, context: bytes
    ) -> tuple[Position, dict[str, Tensor] | None] | None:
        """Go on from a checkpoint; None where there is none.

        Raises:
            WorkloadError: it is damaged, or sealed with other keys.
        """
        if not artifact_path(path / records.CHECKPOINT, keyring).exists():
            return None
        state = checkpoint.load(path / records.CHECKPOINT, keyring, context)
        self.module.load_state_dict(state["module"])
        self.average.load_state_dict(state["average"])
        self._optimiser.load_state_dict(state["optimiser"])
        if self._scheduler is not None:
            self._scheduler.load_state_dict(state["scheduler"])
        self.version, self.done = int(state["version"]), int(state["done"])
        self._norms.extend(state["norms"])
        self.ledgers = {name: Ledger.from_state(each) for name, each in state["ledgers"].items()}
        return Position(**state["position"]), state["best"]

    def _check_open(self) -> None:
        if self.ended or self.done >= self.terms.total:
            raise TrainingEnded("the training has ended")

    def _staleness(self, worker: str, fields: Mapping[str, Any], size: int) -> int:
        if fields["life"] != self.life:
            text = "the update is of weights from before the server's restart: fetch new ones"
            raise self.refused(worker, EARLIER, text, size)
        staleness = self.version - fields["base"]
        if staleness < 0 or fields["batches"] < 1:
            text = f"the update is of version {fields['base']}; the newest is {self.version}"
            raise self.refused(worker, DAMAGED, text, size)
        if staleness > self.terms.staleness:
            text = (
                f"the update is {staleness} versions behind, and at most {self.terms.staleness} "
                "are allowed: fetch new weights"
            )
            raise self.refused(worker, STALE, text, size)
        return staleness

    def _limit(self) -> float:
        """The largest norm that is taken: by the usual one, once some are known."""
        usual = (
            statistics.median(self._norms)
            if len(self._norms) >= _KNOWN_AFTER
            else max(1.0, self._begin_norm)
        )
        return self.terms.explosion * usual

    def _step(self) -> None:
        """One step with all that is gathered."""
        gathered, self._gathered = self._gathered, []
        shares = [each.share for each in gathered]
        whole = sum(shares)
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                summed = sum(
                    (each.tensors[name] * each.share for each in gathered),
                    torch.zeros_like(parameter),
                )
                local = self.terms.mode == "local"
                parameter.grad = -summed / len(gathered) if local else summed / whole
            for entry, counted in self._counted:
                for each in gathered:
                    counted.mul_(entry.keeps**each.batches).add_(each.tensors[entry.name])
        if self._scheduler is None:
            self._optimiser.step()
        else:
            for group, rate in zip(
                self._optimiser.param_groups, self._scheduler.get_last_lr(), strict=True
            ):
                group["lr"] = float(rate) * whole / len(gathered)
            self._optimiser.step()
            self._scheduler.step()
            averaged = [*self.average.parameters(), *self.average.buffers()]
            current = [*self.module.parameters(), *self.module.buffers()]
            with torch.no_grad():
                follow_weights(zip(averaged, current, strict=True), self._scheduler.last_epoch)
        self._optimiser.zero_grad(set_to_none=True)
        self.version += 1


class Allowance:
    """How often one worker may ask: so many requests a second, and one at a time.

    Args:
        a_second: requests; as many may come at once after a pause.
    """

    def __init__(self, a_second: int) -> None:
        self._rate = float(a_second)
        self._left, self._seen = float(a_second), time.monotonic()
        self._guard, self._busy = threading.Lock(), False

    def begin(self) -> bool:
        """Begin a request; whether it is allowed. Each that is has its `end`."""
        with self._guard:
            now = time.monotonic()
            self._left = min(self._rate, self._left + (now - self._seen) * self._rate)
            self._seen = now
            if self._busy or self._left < 1:
                return False
            self._left -= 1
            self._busy = True
            return True

    def end(self) -> None:
        """The request is done."""
        with self._guard:
            self._busy = False
