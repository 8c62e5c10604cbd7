"""The server's run: judges, keeps and ends a training, and leaves it as `training` does."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from falaj.workloads.errors import STOPPED, WorkloadError
from falaj.workloads.parameter_server.assignment import Assignment
from falaj.workloads.parameter_server.listener import Listener
from falaj.workloads.parameter_server.weights import Ledger, Terms, Weights
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import checkpoint, hardware
from falaj.workloads.training import record as records
from falaj.workloads.training.batches import PreparedData
from falaj.workloads.training.finishing import Setting, finish, report_finished
from falaj.workloads.training.language import FAMILY
from falaj.workloads.training.launcher import only_run
from falaj.workloads.training.loop import (
    Position,
    copied,
    follow_rows,
    module_losses,
    predict,
    row_losses,
)
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.progress import Progress, Telemetry
from falaj.workloads.training.snapshot import Dataset, digest, make_folder
from falaj.workloads.training.stopping import StopRequest

_POLL_SECONDS: Final = 0.2
_LAST_WORD_SECONDS: Final = 3.0
"""Workers ask once more and are told that it is over."""


@dataclass(frozen=True)
class Training:
    """All that a server needs.

    Attributes:
        assignment: what the workers do.
        terms: how updates are taken.
        dataset: the rows by which the model is judged, and of ``shared`` rows learned.
        prepared: these as tensors.
        output: folder of the run.
        keyring: seals model and checkpoint; None leaves them plain.
        checkpoint_seconds: between checkpoints.
        target_loss: validation loss at which it ends; None: by epochs and patience alone.
    """

    assignment: Assignment
    terms: Terms
    dataset: Dataset
    prepared: PreparedData
    output: Path
    keyring: KeyRing | None
    checkpoint_seconds: float
    target_loss: float | None

    @property
    def parameters(self) -> Parameters:
        """Of the training."""
        return self.assignment.parameters

    @property
    def identity(self) -> str:
        """Names the run by its rows, parameters and terms."""
        named: dict[str, Any] = {
            "mode": self.terms.mode, "local_steps": self.assignment.local_steps,
            "gather": self.terms.gather, "staleness": self.terms.staleness,
            "power": self.terms.power, "outer_rate": self.terms.outer_rate,
            "outer_momentum": self.terms.outer_momentum, "rows": self.assignment.rows,
            "compression": self.assignment.compression, "top": self.assignment.top,
            "weights": self.assignment.weights, "total": self.terms.total,
        }  # fmt: skip
        if self.assignment.rows == "shared":  # of own rows a worker may be added
            named["parts"] = self.assignment.parts
        return digest({"run": self.parameters.identity(self.dataset.digest), "server": named})

    @property
    def epoch_batches(self) -> int:
        """Batches of an epoch, over all workers."""
        return max(1, self.terms.total // self.parameters.epochs)


def run(
    it: Training,
    serve: Callable[[Weights], Listener],
    stop: StopRequest,
    progress: Progress,
    resume: bool,
) -> int:
    """Serve until the training is over.

    Args:
        it: the training.
        serve: makes the listener, which this starts and ends.
        stop: ends it with a checkpoint.
        progress: tells the person.
        resume: whether to go on from a checkpoint; else the folder is begun afresh.

    Returns:
        0 done, 75 stopped: run it again to go on.
    """
    make_folder(it.output)
    if resume:
        records.check_folder(it.output, it.identity)
        done = records.finished(it.output)
        if done is not None:
            report_finished(done, it.output, progress)
            return 0
    with only_run(it.output):
        return _run(it, serve, stop, progress, resume)


def _run(
    it: Training,
    serve: Callable[[Weights], Listener],
    stop: StopRequest,
    progress: Progress,
    resume: bool,
) -> int:
    hardware.make_deterministic(it.parameters.seed, it.parameters.threads)
    weights = Weights(
        it.assignment.build(), it.parameters, it.terms, it.assignment.updates,
        it.assignment.answers,
    )  # fmt: skip
    found = None
    if resume:
        context = records.context_of(it.identity, records.CHECKPOINT)
        try:
            found = weights.restore(it.output, it.keyring, context)
        except checkpoint.DamagedFileError as error:
            progress.emit("start", f"{error}; starting from the beginning instead")
    if found is None:
        records.begin(it.output, it.identity, it.parameters.to_json(), it.dataset.digest)
    else:
        records.rewrite_metrics(it.output, found[0].history)
    listener = serve(weights)
    upkeep = _Upkeep(it, weights, listener, progress, found)
    thread = threading.Thread(target=listener.serve_forever, name="listener", daemon=True)
    thread.start()
    try:
        return upkeep.run(stop)
    finally:
        listener.shutdown()
        listener.server_close()


class _Upkeep:
    """Judges the model now and then, keeps it, and ends the training."""

    def __init__(
        self,
        it: Training,
        weights: Weights,
        listener: Listener,
        progress: Progress,
        found: tuple[Position, dict[str, Tensor] | None] | None,
    ) -> None:
        self._it, self._weights, self._listener, self._progress = it, weights, listener, progress
        self._position, self._best = found or (Position(), None)
        self._resumed = found is not None
        self._module = it.assignment.build().requires_grad_(False).eval()
        self._before = self._position.seconds
        self._began = self._kept = time.monotonic()
        self._pace = (self._began, weights.version)
        self._loss = 0.0
        self._named: set[tuple[str, str]] = set()

    def run(self, stop: StopRequest) -> int:
        """Until the training is over: 0, or 75 where it was asked to stop."""
        it, weights = self._it, self._weights
        host, port = self._listener.server_address[:2]
        what = f"going on from version {weights.version}" if self._resumed else "starting"
        shown = host.decode() if isinstance(host, bytes) else host
        self._progress.emit(
            "resume" if self._resumed else "start",
            f"{what}, {it.terms.mode}, listening on {shown}:{port} for "
            f"{len(self._listener.tokens)} workers",
            port=port, version=weights.version, batches=weights.done, total=it.terms.total,
        )  # fmt: skip
        telemetry = Telemetry()
        telemetry.start()
        try:
            while self._position.ended is None:
                if stop.asked():
                    self._save()
                    text = f"stopped at version {weights.version}: {stop.reason}"
                    self._progress.emit("stopped", text, version=weights.version)
                    return STOPPED
                with weights.changed:
                    weights.changed.wait(_POLL_SECONDS)
                self._tell_refused()
                self._judge_if_due()
                if time.monotonic() - self._kept >= it.checkpoint_seconds:
                    self._save()
            weights.end()
        finally:
            utilisation = telemetry.stop()
        self._leave(utilisation)
        until = time.monotonic() + _LAST_WORD_SECONDS
        while time.monotonic() < until and not stop.asked():
            time.sleep(_POLL_SECONDS)
        return 0

    def _judge_if_due(self) -> None:
        it, weights, position = self._it, self._weights, self._position
        done = min(weights.done, it.terms.total)
        epoch = done // it.epoch_batches
        is_over = done >= it.terms.total
        if epoch <= position.epoch and not is_over:
            return
        if is_over:
            weights.end()
        state = weights.judged()
        self._module.load_state_dict(state)
        loss, name, value = judged(self._module, it.prepared, it.dataset, it.parameters)
        if not math.isfinite(loss):
            raise WorkloadError(
                f"the model's loss is no number any more at version {weights.version}: use a "
                "lower --learning-rate"
            )
        position.epoch = min(epoch, it.parameters.epochs)
        if loss < position.best_loss:
            position.best_loss, position.best_epoch = loss, position.epoch - 1
            self._best = state
        if is_over:
            position.ended = "all epochs are done"
        elif it.target_loss is not None and loss <= it.target_loss:
            position.ended = f"a validation loss of {it.target_loss:g} is reached"
        elif position.epoch - 1 - position.best_epoch >= it.parameters.patience:
            position.ended = f"no lower validation loss in {it.parameters.patience} epochs"
        self._tell(loss, name, value)

    def _tell(self, loss: float, name: str, value: float) -> None:
        it, weights, position = self._it, self._weights, self._position
        losses = weights.taken_losses()
        self._loss = sum(losses) / len(losses) if losses else self._loss
        with weights.changed:
            staleness = sum((each.staleness for each in weights.ledgers.values()), Counter[int]())
            workers = sum(each.updates > 0 for each in weights.ledgers.values())
            updates = sum(each.updates for each in weights.ledgers.values())
            version = weights.version
        behind = sum(each * n for each, n in staleness.items()) / max(1, staleness.total())
        now = time.monotonic()
        rate = (version - self._pace[1]) / max(1e-9, now - self._pace[0])
        self._pace = (now, version)
        line = {
            "epoch": position.epoch, "version": version, "updates": updates, "loss": self._loss,
            "validation_loss": loss, f"validation_{name}": value, "mean_staleness": behind,
            "versions_per_second": rate, "workers": workers,
            "seconds": round(self._seconds(), 3),
        }  # fmt: skip
        position.history.append(line)
        records.add_metrics(it.output, line)
        self._progress.emit(
            "epoch",
            f"epoch {position.epoch}/{it.parameters.epochs}: loss {self._loss:.4f}, validation "
            f"{name} {records.figure(name, value)}, version {version} of {workers} worker(s), "
            f"{rate:.1f} a second, {behind:.1f} versions behind",
            epochs=it.parameters.epochs, metric_name=name, **line, **{name: value},
        )  # fmt: skip

    def _tell_refused(self) -> None:
        """Tell of each worker and reason once: the record has how often."""
        with self._weights.changed:
            found = {
                (worker, reason)
                for worker, each in self._weights.ledgers.items()
                for reason in each.refused
            }
        for worker, reason in sorted(found - self._named):
            self._named.add((worker, reason))
            text = f"an update of {worker} was refused: {reason}; the record counts further ones"
            self._progress.emit("refused", text, worker=worker, reason=reason)

    def _seconds(self) -> float:
        return self._before + time.monotonic() - self._began

    def _save(self) -> None:
        it = self._it
        self._position.seconds = self._seconds()
        context = records.context_of(it.identity, records.CHECKPOINT)
        self._weights.save(it.output, it.keyring, context, self._position, self._best)
        self._kept = time.monotonic()

    def _leave(self, utilisation: dict[str, Any]) -> None:
        it = self._it
        self._position.seconds = self._seconds()
        module = it.assignment.build()
        module.load_state_dict(self._best or copied(self._weights.module.state_dict()))
        setting = Setting(it.dataset, it.parameters, it.output, it.keyring, it.identity, False)
        with self._weights.changed:
            ledgers = dict(self._weights.ledgers)
            version = self._weights.version
        terms = {**vars(it.terms)}
        terms["staleness_bound"] = terms.pop("staleness")
        lineage = {
            "parameter_server": {
                **terms, "local_steps": it.assignment.local_steps,
                "rows": it.assignment.rows, "compression": it.assignment.compression,
                "top": it.assignment.top, "weights": it.assignment.weights, "versions": version,
                "workers": {name: each.to_json() for name, each in sorted(ledgers.items())},
                "staleness": _summed(ledgers), "strangers": dict(self._listener.strangers),
            }
        }  # fmt: skip
        record = finish(
            setting, it.prepared, module.eval(), self._position, utilisation, lineage=lineage
        )
        report_finished(record, it.output, self._progress)


def _summed(ledgers: Mapping[str, Ledger]) -> dict[str, int]:
    found = sum((each.staleness for each in ledgers.values()), Counter[int]())
    return {str(each): n for each, n in sorted(found.items())}


@torch.no_grad()
def judged(
    module: nn.Module, prepared: PreparedData, dataset: Dataset, parameters: Parameters
) -> tuple[float, str, float]:
    """A model's loss on the validation rows, and the name and value of their first figure."""
    inputs, labels, weights = prepared.validation
    name = records.FIRST[dataset.task]
    if dataset.family == FAMILY:
        nats, _ = follow_rows(module, inputs, labels, prepared.architecture.outputs)
        losses, value = nats, nats * prepared.tokens_a_character
    else:
        rows = parameters.batch_size if parameters.may_normalise else len(labels)
        outputs = predict(module, inputs, rows).float()
        losses = module_losses(module, outputs, labels, dataset.task, parameters.label_smoothing)
        if dataset.task == "classification":
            value = (outputs.argmax(1) == labels).double()
        else:
            value = row_losses(outputs, labels, dataset.task, 0.0)
    loss = float((losses * weights).sum() / weights.sum())
    figure = float(value.double().mean())
    if name == "rmse":
        figure = figure**0.5 * (prepared.target_scale or {"scale": 1.0})["scale"]
    return loss, name, figure
