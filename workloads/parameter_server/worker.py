"""A worker: computes updates of the newest weights on its rows, and sends them."""

from __future__ import annotations

import http.client
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from falaj.workloads.errors import LOST, STOPPED, WorkloadError
from falaj.workloads.federation.plan import check_fit
from falaj.workloads.federation.site import labels_of
from falaj.workloads.federation.transport import Line, Link
from falaj.workloads.parameter_server import frames
from falaj.workloads.parameter_server.assignment import Assignment
from falaj.workloads.parameter_server.frames import Entry, Feedback, Layout
from falaj.workloads.training import distributed, hardware
from falaj.workloads.training.batches import Augmentation, Batches, features, prepare
from falaj.workloads.training.layout import parts_of_batch
from falaj.workloads.training.loop import Optimisation
from falaj.workloads.training.options import Parameters, default_threads
from falaj.workloads.training.progress import Progress, finite_or_none
from falaj.workloads.training.randomness import generator
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.stopping import StopRequest
from falaj.workloads.training.tensors import tensor_of

_PAUSE_SECONDS = 0.5
_TELL_SECONDS = 5.0
_MOST_REFUSED = 5
_PART = 4  # a stream of randomness below the run's seed; the first are those of `batches`


@dataclass(frozen=True)
class Machine:
    """What of a training is the worker's own.

    Attributes:
        device: ``auto``, ``cpu`` or ``cuda``.
        precision: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
        threads: CPU threads; None: by the batch's size and the cores.
    """

    device: str
    precision: str
    threads: int | None

    def resolved(self, parameters: Parameters, context: int) -> Parameters:
        """The training's parameters with what this machine computes by.

        Args:
            parameters: of the training.
            context: of the rows (`Dataset.context`).

        Raises:
            WorkloadError: the hardware doesn't have what was asked for.
        """
        device = hardware.resolve_device(self.device, 1)
        return replace(
            parameters,
            device=device,
            precision=hardware.resolve_precision(self.precision, device),
            threads=self.threads or default_threads(1, parameters.batch_size * context),
        )


class Learner:
    """Computes updates on a worker's rows.

    Args:
        assignment: of the server.
        dataset: the rows.
        machine: what they are computed with.

    Raises:
        WorkloadError: the rows aren't those that the server means, or the hardware lacks
            something.
    """

    def __init__(self, assignment: Assignment, dataset: Dataset, machine: Machine) -> None:
        self._assignment = assignment
        parameters = machine.resolved(assignment.parameters, dataset.context)
        hardware.make_deterministic(parameters.seed, parameters.threads)
        inputs, labels, weights, augmentation = _rows(assignment, dataset, parameters)
        team = distributed.join(parameters.device)
        self._batches = Batches(
            inputs.to(team.device), labels.to(team.device), weights,
            batch_size=parameters.batch_size, accumulation=parts_of_batch(parameters),
            augmentation=augmentation, seed=parameters.seed + assignment.part,
            rank=0, processes=1, is_even=parameters.may_normalise,
        )  # fmt: skip
        self._batch_rows = min(parameters.batch_size, len(labels))
        module = assignment.build()
        self.layout = Layout.of(module)
        self._optimisation = Optimisation(module, self._batches, parameters, team, assignment.task)
        self._epoch, self._step = 0, 0
        self._order: Any = None

    def begin_at(self, done: int) -> None:
        """Begin in another order of rows than who began earlier: after ``done`` batches."""
        self._epoch = done // (self._batches.steps * self._assignment.parts)

    def learn(
        self, weights: Mapping[str, Tensor], done: int, total: int, asked: Callable[[], bool]
    ) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Compute an update.

        Args:
            weights: of the model, float32 on the CPU.
            done: batches of all workers so far.
            total: batches of the whole training.
            asked: says when to stop.

        Returns:
            The update by tensor, and its number of batches and rows and its mean loss. None where
            it was asked to stop, or float16 looks for its scale.
        """
        module = self._optimisation.module
        state = module.state_dict()
        with torch.no_grad():
            for name, each in weights.items():
                state[name].copy_(each)
        self._optimisation.go_to(done / max(1, total))
        module.train()
        if self._assignment.mode == "local":
            count, losses = 0, 0.0
            while count < min(self._assignment.local_steps, max(1, total - done)):
                if asked():
                    return None
                losses += float(self._optimisation.step(*self._next())[0])
                count += 1
            found = {
                each.name: state[each.name].cpu() - weights[each.name]
                if each.learned
                else self._added(each, weights[each.name], count)
                for each in self.layout.entries
            }
        else:
            count = 1
            loss, gradients = self._optimisation.gradients(*self._next())
            if gradients is None:
                return None
            losses = float(loss)
            found = {
                each.name: gradients[each.name].cpu()
                if each.learned
                else self._added(each, weights[each.name], count)
                for each in self.layout.entries
            }
        figures = {
            "batches": count,
            "rows": count * self._batch_rows,
            "loss": finite_or_none(losses / count),
        }
        return found, figures

    def counted(self) -> dict[str, Tensor]:
        """What is counted and not learned, as the last batch left it."""
        state = self._optimisation.module.state_dict()
        return {e.name: state[e.name].cpu().clone() for e in self.layout.entries if not e.learned}

    def _added(self, entry: Entry, before: Tensor, batches: int) -> Tensor:
        """What batches added to what is counted."""
        now = self._optimisation.module.state_dict()[entry.name].cpu()
        return now - entry.keeps**batches * before

    def _next(self) -> tuple[Any, int, int]:
        """Order, epoch and step of the next batch."""
        if self._order is None or self._step >= self._batches.steps:
            if self._order is not None:
                self._epoch, self._step = self._epoch + 1, 0
            self._order = self._batches.order(self._epoch)
            self._optimisation.pace.begin_epoch()
        step, self._step = self._step, self._step + 1
        return self._order, self._epoch, step


def _rows(
    assignment: Assignment, dataset: Dataset, parameters: Parameters
) -> tuple[Tensor, Tensor, Any, Augmentation]:
    """Inputs, labels and weights of the rows that this worker learns from."""
    if assignment.rows == "own":
        check_fit(assignment, dataset, "server", "worker")
        inputs = features(dataset, "train", assignment.preprocessing)
        labels = labels_of(dataset, assignment.target_scale)
        recipe = assignment.preprocessing
        weights = np.ones(len(labels), dtype=np.float32)
        return inputs, labels, weights, Augmentation(recipe.blocks() if recipe else None)
    if dataset.digest != assignment.dataset:
        raise WorkloadError(
            f"the server's dataset is {assignment.dataset[:12]} and this one "
            f"{dataset.digest[:12]}: give all workers the same snapshot, or start the server "
            "with --rows own"
        )
    prepared = prepare(dataset, parameters)
    inputs, labels = prepared.fit
    order = generator(parameters.seed, _PART).permutation(len(labels))
    mine = np.sort(order[assignment.part :: assignment.parts])
    if len(mine) == 0:
        raise WorkloadError(
            f"{len(labels)} rows are too few for {assignment.parts} workers: name fewer"
        )
    index = tensor_of(mine)
    return inputs[index], labels[index], prepared.fit_weights[mine], prepared.augmentation


class _Ended(Exception):  # noqa: N818 - no error
    """The server says that the training is over."""


class Worker:
    """Takes part in a training until it is over.

    Args:
        link: how the server is reached.
        dataset: the rows.
        machine: what is computed with.
        stop: says when to stop.
        progress: tells the person.
    """

    def __init__(
        self, link: Link, dataset: Dataset, machine: Machine, stop: StopRequest, progress: Progress
    ) -> None:
        self._line, self._dataset, self._machine = Line(link), dataset, machine
        self._stop, self._progress = stop, progress
        self._sent, self._refused, self._in_succession = 0, 0, 0
        self._told = time.monotonic()

    def run(self) -> int:
        """Take part.

        Returns:
            0 done, 74 the server was lost for too long, 75 stopped.

        Raises:
            WorkloadError: the server refuses this worker or its updates, or its rows aren't meant.
        """
        try:
            assignment = Assignment.from_bytes(self._asked("GET", "/v1/assignment"))
            learner = Learner(assignment, self._dataset, self._machine)
            layout, coding = learner.layout, assignment.updates
            feedback = Feedback(layout, coding)
            where = "its own rows" if assignment.rows == "own" else (
                f"part {assignment.part + 1} of {assignment.parts}"
            )  # fmt: skip
            self._progress.emit("start", f"learning from {where}, {assignment.mode}")
            fields, weights = self._weights(assignment, layout, None)
            learner.begin_at(fields["done"])
            while True:
                found = learner.learn(weights, fields["done"], fields["total"], self._stop.asked)
                self._check()
                if found is None:
                    continue
                update, figures = found
                head = {
                    "base": fields["version"], "life": fields["life"],
                    "id": secrets.token_hex(16), **figures,
                }  # fmt: skip
                self._send(feedback, head, update)
                self._tell(fields["version"])
                fields, weights = self._weights(assignment, layout, (fields, weights))
        except _Ended:
            text = f"the training is over: {self._sent} updates sent, {self._refused} refused"
            self._progress.emit("finished", text, updates=self._sent, refused=self._refused)
            return 0
        except _Stopped:
            text = f"stopped after {self._sent} updates: {self._stop.reason}"
            self._progress.emit("stopped", text, updates=self._sent)
            return STOPPED
        except _Lost as error:
            self._progress.emit("lost", f"the server can't be reached: {error}")
            return LOST
        finally:
            self._line.close()

    def _check(self) -> None:
        if self._stop.asked():
            raise _Stopped

    def _tell(self, version: int) -> None:
        if time.monotonic() - self._told < _TELL_SECONDS:
            return
        self._told = time.monotonic()
        self._progress.emit(
            "updates",
            f"{self._sent} updates sent, {self._refused} refused, at version {version}",
            updates=self._sent, refused=self._refused, version=version,
        )  # fmt: skip

    def _weights(
        self,
        assignment: Assignment,
        layout: Layout,
        known: tuple[dict[str, Any], dict[str, Tensor]] | None,
    ) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The newest weights, with their version."""
        path = "/v1/weights"
        if known is not None:
            path += f"?version={known[0]['version']}&life={known[0]['life']}"
        data = self._asked("GET", path)
        if not data and known is not None:
            return known
        return frames.decode(data, frames.WEIGHTS, layout, assignment.answers)

    def _send(
        self, feedback: Feedback, head: Mapping[str, Any], update: Mapping[str, Tensor]
    ) -> None:
        """Send an update; what it left out is kept once it was taken."""
        message = feedback.encode(head, update)
        status, body = self._reached("POST", "/v1/update", message)
        if status == http.client.OK:
            self._sent, self._in_succession = self._sent + 1, 0
            feedback.taken()
            return
        answer = body[:500].decode(errors="replace")
        if status == http.client.GONE:
            raise _Ended
        self._refused += 1
        if status == http.client.CONFLICT:  # of weights that are too old
            return
        if status != http.client.UNPROCESSABLE_ENTITY:
            raise WorkloadError(f"the server refused: {status} {answer}")
        feedback.forget()
        self._in_succession += 1
        self._progress.emit("refused", f"the server refused an update: {answer}")
        if self._in_succession >= _MOST_REFUSED:
            raise WorkloadError(
                f"the server refused {_MOST_REFUSED} updates in succession, the last one as "
                f"{answer}"
            )

    def _asked(self, method: str, path: str) -> bytes:
        """The body of an answer; empty where there is nothing newer."""
        status, body = self._reached(method, path)
        if status == http.client.GONE:
            raise _Ended
        if status == http.client.NOT_MODIFIED:
            return b""
        if status != http.client.OK:
            answer = body[:500].decode(errors="replace")
            raise WorkloadError(f"the server refused: {status} {answer}")
        return body

    def _reached(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Ask until there is an answer: a link may break, and the server start again."""
        patience = self._line.link.patience_seconds
        since = time.monotonic()
        while True:
            self._check()
            try:
                status, data = self._line.ask(method, path, body)
                if status != http.client.TOO_MANY_REQUESTS:
                    return status, data
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, ssl.SSLCertVerificationError):
                    host = self._line.link.host
                    raise WorkloadError(f"{host} isn't the server: {error}") from error
                if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
                    raise WorkloadError(
                        f"the server doesn't take this worker's certificate: {error}"
                    ) from error
                if time.monotonic() - since > patience:
                    raise _Lost(str(error) or type(error).__name__) from error
            time.sleep(_PAUSE_SECONDS)


class _Stopped(Exception):  # noqa: N818 - no error
    """It was asked to stop."""


class _Lost(Exception):  # noqa: N818 - told by an exit status
    """The server can't be reached."""
