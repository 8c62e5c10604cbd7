"""The coordinator: serves the rounds, and leaves a finished run as training does."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falaj.workloads.errors import WorkloadError
from falaj.workloads.federation import updates
from falaj.workloads.federation.plan import Plan, Task, task_of
from falaj.workloads.federation.rounds import Rounds, Rules
from falaj.workloads.federation.server import TRAFFIC, Server
from falaj.workloads.files import write_json_atomic
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.statuses import LOST, STOPPED
from falaj.workloads.training import launcher
from falaj.workloads.training import record as records
from falaj.workloads.training.batches import PreparedData, prepare
from falaj.workloads.training.loop import Position
from falaj.workloads.training.options import Parameters, Requested
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.session import Setting, evaluate, finish, report_finished
from falaj.workloads.training.snapshot import Dataset, digest, make_folder
from falaj.workloads.training.stopping import StopRequest

PRIVACY = "privacy.json"
DELTA = 1e-5
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Federation:
    """All that a coordinator needs.

    Attributes:
        task: what is learned.
        dataset: the reference rows, on which the model is judged.
        prepared: the reference rows as tensors.
        parameters: of a run on the reference rows, for its record.
        rules: when a round is over.
        output: folder of the run.
        keyring: seals model and state; None leaves them plain.
        patience: how many times a round may pass its time with too few sites.
    """

    task: Task
    dataset: Dataset
    prepared: PreparedData
    parameters: Parameters
    rules: Rules
    output: Path
    keyring: KeyRing | None
    patience: int

    @property
    def identity(self) -> str:
        """Names the federation by its reference rows and its task."""
        return digest({"federation": self.task.to_bytes().decode(), "rows": self.dataset.digest})


def federation(
    dataset: Dataset,
    plan: Plan,
    rules: Rules,
    *,
    output: Path,
    keyring: KeyRing | None,
    patience: int,
) -> Federation:
    """Set a federation up from reference rows and a plan."""
    requested = Requested(
        epochs=plan.rounds * plan.epochs, batch_size=plan.batch_size, seed=plan.seed,
        learning_rate=plan.learning_rate, device="cpu", precision="float32",
    )  # fmt: skip
    parameters = launcher.resolve(requested, dataset)
    prepared = prepare(dataset, parameters)
    task = task_of(dataset, prepared, plan)
    return Federation(task, dataset, prepared, parameters, rules, output, keyring, patience)


def run(
    it: Federation,
    serve: Callable[[Task, Rounds, Path], Server],
    stop: StopRequest,
    progress: Progress,
) -> int:
    """Serve until all rounds are done.

    Args:
        it: the federation.
        serve: makes the server, which this starts and ends.
        stop: ends it after the current round's state, which is on disk.
        progress: tells the person.

    Returns:
        0 done, 74 too few sites came, 75 stopped: run it again to go on.
    """
    make_folder(it.output)
    records.check_folder(it.output, it.identity)
    done = records.finished(it.output)
    if done is not None:
        report_finished(done, it.output, progress)
        return 0
    described = {"identity": it.identity, "federation": json.loads(it.task.to_bytes())}
    write_json_atomic(it.output / records.PARAMETERS, described)
    rounds = Rounds(it.task, it.rules, it.output, it.keyring)
    server = serve(it.task, rounds, it.output / TRAFFIC)
    thread = threading.Thread(target=server.serve_forever, name="federation", daemon=True)
    thread.start()
    host, port = server.server_address[:2]
    what = "going on from" if rounds.resumed else "starting at"
    progress.emit(
        "start", f"{what} round {rounds.number + 1}, listening on {host}:{port}",
        round=rounds.number, port=port,
    )  # fmt: skip
    started = time.monotonic()
    try:
        position = _all_rounds(it, rounds, stop, progress)
        if isinstance(position, int):
            return position
        position.seconds = time.monotonic() - started
        _leave(it, rounds, position, progress)
        stop_at = time.monotonic() + _LAST_WORD_SECONDS
        while time.monotonic() < stop_at and not stop.asked():
            time.sleep(_POLL_SECONDS)  # sites ask once more and are told that it is done
    finally:
        server.shutdown()
        server.server_close()
    return 0


#: A site asks for the round twice a second.
_LAST_WORD_SECONDS = 3.0


def _all_rounds(
    it: Federation, rounds: Rounds, stop: StopRequest, progress: Progress
) -> Position | int:
    position, misses = Position(), 0
    began = time.monotonic()
    while rounds.open() is not None:
        if stop.asked():
            progress.emit("stopped", f"stopped in round {rounds.number + 1}: {stop.reason}")
            return STOPPED
        ready = rounds.wait(_POLL_SECONDS)
        timed_out = time.monotonic() - began > it.rules.seconds
        closed = rounds.close(timed_out=timed_out) if ready or timed_out else None
        if closed is None:
            if timed_out:
                misses, began = misses + 1, time.monotonic()
                text = f"round {rounds.number + 1}: fewer than {it.rules.least} site(s) answered"
                progress.emit("waiting", text, missed=misses)
                if misses > it.patience:
                    return LOST
            continue
        misses, began = 0, time.monotonic()
        _judge(it, rounds, position, closed, progress)
    position.epoch = it.task.plan.rounds
    position.ended = "all rounds are done"
    return position


def _module(it: Federation, rounds: Rounds) -> Any:
    module = it.task.build()
    module.load_state_dict(dict(rounds.model))
    return module.eval()


def _judge(
    it: Federation, rounds: Rounds, position: Position, closed: dict[str, Any], progress: Progress
) -> None:
    figures = evaluate(it.dataset, it.prepared, _module(it, rounds))
    name = "accuracy" if it.dataset.task == "classification" else "rmse"
    value = float(figures[name])
    if not math.isfinite(closed["loss"]):
        raise WorkloadError("the sites' loss is no longer a number: use a lower --learning-rate")
    if closed["loss"] < position.best_loss:
        position.best_loss, position.best_epoch = closed["loss"], closed["round"] - 1
    position.history.append({**closed, name: value})
    progress.emit(
        "round",
        f"round {closed['round']}/{it.task.plan.rounds}: {len(closed['sites'])} site(s), loss "
        f"{closed['loss']:.4f}, reference {name} {value:.4g}",
        **closed, metric_name=name, **{name: value},
    )  # fmt: skip


def _leave(it: Federation, rounds: Rounds, position: Position, progress: Progress) -> None:
    setting = Setting(it.dataset, it.parameters, it.output, it.keyring, it.identity, False)
    spent = updates.privacy_spent(it.task.plan.rounds, it.rules.noise, DELTA)
    privacy = {
        "protects": "each site as a whole", "clip": it.task.plan.clip, "noise": it.rules.noise,
        "rounds": it.task.plan.rounds, "delta": DELTA, "epsilon": spent,
    }  # fmt: skip
    write_json_atomic(it.output / PRIVACY, privacy)
    record = finish(setting, it.prepared, _module(it, rounds), position, {})
    report_finished(record, it.output, progress)
