"""Sends a sweep to a tracking server: a run of its own, and each trial's as one nested in it.

Trials know nothing of it: who does them side by side sends what lies in their folders, as they go
and once more at the end. What a server that was away lacks is sent when the same sweep is asked
for again. MLflow's pages nest runs by a tag of the inner one:
https://mlflow.org/docs/latest/ml/traditional-ml/tutorials/hyperparameter-tuning/part1-child-runs/
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import write_json_atomic
from falaj.workloads.training import record as records
from falaj.workloads.training import tracking
from falaj.workloads.training.tracking import Destination, Nested
from falaj.workloads.training.tracking_store import TrackingError

EVERY_SECONDS: Final = 5.0
RUNS, BROKEN_OFF, FAILED = "running", "stopped", "fail"
"""What a trial does, or how it ended, beside the names of Optuna's states."""
_STATUS: Final = {RUNS: tracking.RUNNING, FAILED: tracking.FAILED}
"""Of a trial's run that has no record; of any other it is `tracking.KILLED`."""


@dataclass(frozen=True)
class Best:
    """The best trial by now: its number, its figure and what was tried in it."""

    trial: int
    value: float
    parameters: Mapping[str, Any]


class SweepTracking:
    """What a sweep has to send, and who sends it.

    Args:
        folder: of the sweep.
        destination: the server.
        metric: what trials are judged by.
        parameters: of the sweep, as they don't change.
    """

    def __init__(
        self, folder: Path, destination: Destination, metric: str, parameters: Mapping[str, Any]
    ) -> None:
        self.says: SimpleQueue[tuple[str, str]] = SimpleQueue()
        """Events and messages for people, as they come."""
        self._folder, self._destination = folder, destination
        self._metric, self._parameters = metric, parameters
        self._trials: dict[int, str] = {}
        self._best: Best | None = None
        self._runs: dict[int, str] = {}
        self._whole: set[int] = set()
        self._has_told = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)

    def note(self, trial: int, state: str) -> None:
        """Take what a trial does now: `RUNS`, `BROKEN_OFF`, or how it ended."""
        self._trials[trial] = state

    def note_best(self, best: Best | None) -> None:
        """Take the best trial by now."""
        self._best = best

    def begin(self) -> None:
        """Send from now on what there is, beside what else is done."""
        self._thread.start()

    def end(self, status: str) -> None:
        """Send the rest, and tell whether the server has all.

        Args:
            status: of the sweep's run.
        """
        self._ended.set()
        # It is in a request at most, which has an end.
        self._thread.join()
        self._has_told = False
        if self._deliver(status):
            shown = self._destination.shown
            self.says.put(("tracked", f"{shown} has this sweep and its trials"))

    def _work(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            self._deliver(tracking.RUNNING)

    def _deliver(self, status: str) -> bool:
        try:
            self.send(status)
        except (TrackingError, WorkloadError) as error:
            if not self._has_told:
                self._has_told = True
                self.says.put((
                    "untracked",
                    f"{self._destination.shown} doesn't have all of this sweep: {error}; its "
                    "trials are kept, and sent when the same sweep is asked for again",
                ))  # fmt: skip
            return False
        return True

    def send(self, status: str) -> None:
        """Send what the server lacks.

        Args:
            status: of the sweep's run.

        Raises:
            TrackingError: the server didn't take all of it; what it took is noted.
            WorkloadError: files of a trial can't be used.
        """
        store = self._destination.store()
        began = round(1000 * time.time())
        state = tracking.noted(self._folder, self._destination, lambda: began)

        def note(**found: Any) -> None:
            state.update(found)
            write_json_atomic(self._folder / records.TRACKING, state)

        note()
        if "run" not in state:
            tags = {tracking.SWEEP: self._folder.name, **tracking.SOURCE}
            note(run=store.run_of(state["attempt"], self._folder.name, state["begun"], tags))
        run: str = state["run"]
        if not state.get("parameters"):
            store.log_parameters(run, self._parameters)
            note(parameters=True)
        failure = self._send_trials(run)
        best = self._best
        if best is not None and best.trial in self._runs:
            known = {
                "falaj.best.trial": best.trial, "falaj.best.run": self._runs[best.trial],
                f"falaj.best.{self._metric}": best.value,
                **{f"falaj.best.{name}": each for name, each in best.parameters.items()},
            }  # fmt: skip
            if state.get("best") != known:
                store.log_tags(run, known)
                note(best=known)
        if failure is not None:
            raise failure
        if state["status"] != status:
            ended = None if status == tracking.RUNNING else round(1000 * time.time())
            store.update(run, status, ended)
            note(status=status)

    def _send_trials(self, run: str) -> TrackingError | WorkloadError | None:
        """Send each trial; one that can't be keeps no other back. Returns why, of the first."""
        failure: TrackingError | WorkloadError | None = None
        for trial, state in sorted(dict(self._trials).items()):
            folder = trial_folder(self._folder, trial)
            if trial in self._whole or not (folder / records.PARAMETERS).is_file():
                continue
            nested = Nested(run, {tracking.TRIAL: trial}, {"falaj.trial.ended": state})
            status = _STATUS.get(state, tracking.KILLED)
            try:
                self._runs[trial] = tracking.sync(folder, self._destination, status, nested)
            except (TrackingError, WorkloadError) as error:
                failure = failure or error
                continue
            if state not in (RUNS, BROKEN_OFF):
                self._whole.add(trial)
        return failure


def trial_folder(sweep: Path, index: int) -> Path:
    """Return the folder of a trial's run."""
    return sweep / f"trial-{index}"
