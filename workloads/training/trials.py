"""Trials of a sweep side by side on this machine, and the table that people see of them."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from optuna.trial import FrozenTrial, TrialState

from falaj.workloads.documents import is_dictionary
from falaj.workloads.errors import FAULT, REFUSED, STOPPED, WorkloadError
from falaj.workloads.training import record as records
from falaj.workloads.training import sweep, tracking
from falaj.workloads.training.gpu_watch import watched
from falaj.workloads.training.progress import duration, written
from falaj.workloads.training.snapshot import make_folder
from falaj.workloads.training.stopping import StopRequest
from falaj.workloads.training.sweep_tracking import BROKEN_OFF, RUNS, Best, SweepTracking
from falaj.workloads.training.tracking import Destination

_POLL_SECONDS: Final = 0.2
_FAILURES: Final = 3
"""After so many that didn't begin to train, and none that did, no more are started: they'd fail by
the same."""
_ENDED: Final[Mapping[TrialState, str]] = {
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "cut short",
    TrialState.FAIL: "failed",
}
_OTHERS: Final = {
    "linear": "a linear model did as well as the network",
    "trees": "trees did better than the network",
}
_COLUMNS: Final[Mapping[str, int]] = {
    "trial": 5, "ended": 13, "figure": 19, "best": 4, "epochs": 6, "time": 12,
}  # fmt: skip
"""Widths of the columns before those of the parameters."""
_WIDTH: Final = 10
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class _Running:
    """A trial that runs: its process, who reads what it says, and its place among the others."""

    process: subprocess.Popen[str]
    reader: threading.Thread
    slot: int

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None


class Trials:
    """Starts the trials of a sweep that haven't ended, and tells how each ends.

    Args:
        options: of the command ``sweep``.
        stop: says when to end early; the same command then goes on.
        destination: the tracking server that gets them; None: none does.

    Raises:
        WorkloadError: what is searched can't be read, or the folder can't be used.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        stop: StopRequest,
        destination: Destination | None = None,
    ) -> None:
        self._options, self._stop = options, stop
        self._searched = list(sweep.spaces(options.search))
        folder = make_folder(options.output)
        self._study = sweep.open_study(folder, options.dataset, options.seed, options.pruner)
        self._metric = sweep.metric_name(options.dataset)
        self._in_json = options.progress == "json"
        self._processes = _processes(options.run_options)
        self._gpus = visible_gpus()
        self._running: dict[int, _Running] = {}
        self._says: dict[int, str] = {}
        self._codes: dict[int, int] = {}
        self._have_begun: set[int] = set()
        self._printing = threading.Lock()
        self._status = _Status(self._printing)
        self._tracking: SweepTracking | None = None
        if destination is not None:
            told = {
                "pruner": options.pruner, "seed": options.seed, "metric": self._metric,
                **{f"search.{name}": text.partition("=")[2].strip()
                   for name, text in zip(self._searched, options.search, strict=True)},
            }  # fmt: skip
            self._tracking = SweepTracking(folder, destination, self._metric, told)

    def run(self) -> int:
        """Do the trials; return 0, 75 when stopped, or the worst status of a trial."""
        before = self._ended()
        self._say_heading(len(before))
        for index in sorted(before):
            self._say_trial(index, before[index])
            self._note(index, before[index].state.name.lower())
        if self._tracking is not None:
            self._tracking.begin()
        waiting = [each for each in range(self._options.trials) if each not in before]
        while waiting or self._running:
            for index in [i for i, each in self._running.items() if each.is_over]:
                self._end(index)
            if self._stop.asked():
                waiting.clear()
                for each in self._running.values():
                    each.process.terminate()
            if self._is_hopeless():
                waiting.clear()
            while waiting and len(self._running) < self._options.parallel:
                self._start(waiting.pop(0))
            self._say_status(self._options.trials - len(waiting) - len(self._running))
            self._say_tracked()
            time.sleep(_POLL_SECONDS)
        if self._tracking is not None:
            self._tracking.end(self._outcome())
            self._say_tracked()
        self._say_end()
        if self._stop.asked():
            return STOPPED
        return max(self._codes.values(), default=0)

    def _note(self, index: int, state: str) -> None:
        """Have the tracking server told what a trial does, and which one is the best."""
        if self._tracking is None:
            return
        self._tracking.note(index, state)
        best = sweep.summary(self._study)["best"]
        if best is not None:
            self._tracking.note_best(Best(best["trial"], best["value"], best["parameters"]))

    def _outcome(self) -> str:
        """What a tracking server is told of the sweep as a whole."""
        if self._stop.asked():
            return tracking.KILLED
        is_done = any(each.state == TrialState.COMPLETE for each in self._ended().values())
        return tracking.FINISHED if is_done else tracking.FAILED

    def _say_tracked(self) -> None:
        while self._tracking is not None and not self._tracking.says.empty():
            event, message = self._tracking.says.get()
            if self._in_json:
                self._print(json.dumps({"event": event, "message": message}, ensure_ascii=False))
            else:
                self._print_text(message)

    def _ended(self) -> dict[int, FrozenTrial]:
        """The trials of this sweep that have ended, by their number."""
        return {
            int(each.user_attrs["index"]): each
            for each in self._study.get_trials(deepcopy=False)
            if each.state in sweep.ENDED and "index" in each.user_attrs
            and int(each.user_attrs["index"]) < self._options.trials
        }  # fmt: skip

    def _is_hopeless(self) -> bool:
        """Whether what was tried was refused, without a trial that trained."""
        refused = sum(code == REFUSED for code in self._codes.values())
        return (
            refused >= _FAILURES
            and not self._have_begun
            and not any(each.state != TrialState.FAIL for each in self._ended().values())
        )

    # -- processes --------------------------------------------------------------------------------

    def _start(self, index: int) -> None:
        taken = {each.slot for each in self._running.values()}
        slot = next(each for each in range(self._options.parallel) if each not in taken)
        process = subprocess.Popen(
            self._command(index), stdout=subprocess.PIPE, text=True, env=self._environment(slot)
        )
        reader = threading.Thread(target=self._read, args=(index, process), daemon=True)
        reader.start()
        self._says[index] = "starts"
        self._note(index, RUNS)
        self._running[index] = _Running(process, reader, slot)

    def _command(self, index: int) -> list[str]:
        options = self._options
        return [
            sys.executable, "-m", "falaj.workloads.training", "trial", "--index", str(index),
            "--dataset", str(options.dataset), "--output", str(options.output),
            "--seed", str(options.seed), "--pruner", options.pruner,
            *(part for text in options.search for part in ("--search", text)),
            "--", *self._threads(), *options.run_options,
        ]  # fmt: skip

    def _threads(self) -> list[str]:
        """A share of the cores for each process, where trials share them and nobody said more."""
        words = self._options.run_options
        if self._options.parallel == 1 or any(each.startswith("--threads") for each in words):
            return []
        share = (os.cpu_count() or 1) // (self._options.parallel * self._processes)
        return ["--threads", str(max(share, 1))]

    def _environment(self, slot: int) -> dict[str, str]:
        """GPUs of its own for a trial, where there are enough for all that run at a time."""
        share = len(self._gpus) // self._options.parallel
        if self._options.parallel == 1 or share < self._processes:
            return dict(os.environ)
        own = self._gpus[slot * share : (slot + 1) * share]
        return {**os.environ, _VISIBLE: ",".join(own)}

    def _read(self, index: int, process: subprocess.Popen[str]) -> None:
        """Take what a trial says, line by line, to its end."""
        for line in process.stdout or ():
            try:
                event: Any = json.loads(line)
            except ValueError:
                continue
            if not is_dictionary(event) or event.get("event") == sweep.STANDING:
                continue
            self._have_begun.add(index)
            if self._in_json:
                self._print(json.dumps({"trial": index, **event}, ensure_ascii=False))
            elif event.get("event") == "epoch":
                self._says[index] = f"epoch {event['epoch']} of {event['epochs']}"

    def _end(self, index: int) -> None:
        ended = self._running.pop(index)
        ended.reader.join()
        process = ended.process
        self._says.pop(index)
        # What a signal ended may be tried again, as what no status of ours stands for.
        self._codes[index] = process.returncode if process.returncode >= 0 else FAULT
        trial = self._ended().get(index)
        self._note(index, BROKEN_OFF if trial is None else trial.state.name.lower())
        if trial is not None:
            self._say_trial(index, trial)
        elif self._in_json:
            stopped = {"trial": index, "event": "trial", "state": "stopped"}
            self._print(json.dumps({**stopped, "status": self._codes[index]}))
        elif not self._stop.asked():
            self._print_text(
                f"trial {index} ended with status {self._codes[index]}, and goes on when the same "
                "command is run again"
            )

    # -- what is said -----------------------------------------------------------------------------

    def _say_heading(self, before: int) -> None:
        count, parallel = self._options.trials, self._options.parallel
        gone_on = f"; {before} have ended before" if before else ""
        self._print_text(
            f"{count} trials, {parallel} at a time, judged by the {self._metric} on validation "
            f"rows{gone_on}"
        )
        names = [*_COLUMNS, *self._searched]
        self._print_text(self._row(self._metric if each == "figure" else each for each in names))

    def _say_trial(self, index: int, trial: FrozenTrial) -> None:
        is_best = (
            trial.state == TrialState.COMPLETE and self._study.best_trial.number == trial.number
        )
        if self._in_json:
            event = {
                "trial": index, "event": "trial", "state": trial.state.name.lower(),
                self._metric: trial.value, "best": is_best, "parameters": trial.params,
            }  # fmt: skip
            self._print(json.dumps(event, ensure_ascii=False))
            return
        value = trial.value
        if value is None and trial.intermediate_values:
            value = trial.intermediate_values[max(trial.intermediate_values)]
        took = trial.duration
        self._print_text(
            self._row(
                (
                    str(index),
                    _ENDED[trial.state] + (f" ({other})" if (other := self._other(index)) else ""),
                    "-" if value is None else records.figure(self._metric, value),
                    "*" if is_best else "",
                    str(len(trial.intermediate_values)),
                    "-" if took is None else duration(took.total_seconds()),
                    *(_shown(trial.params.get(name)) for name in self._searched),
                )
            )
        )

    def _other(self, index: int) -> str:
        """What of a table was kept in place of the network, which alone has the parameters."""
        try:
            record = records.finished(sweep.trial_folder(self._options.output, index)) or {}
        except WorkloadError:
            return ""
        kept = record.get("model", {}).get("choice", {}).get("kept")
        return kept if kept in _OTHERS else ""

    def _row(self, cells: Iterable[str]) -> str:
        widths = [*_COLUMNS.values(), *(max(len(each), _WIDTH) for each in self._searched)]
        padded = (cell.ljust(wide) for cell, wide in zip(cells, widths, strict=True))
        return "  ".join(padded).rstrip()

    def _say_status(self, done: int) -> None:
        if self._says and not self._in_json:
            running = ", ".join(f"trial {i} {says}" for i, says in sorted(self._says.items()))
            self._status.show(f"{done} of {self._options.trials} ended; {running}")

    def _say_end(self) -> None:
        summary = sweep.summary(self._study)
        if self._in_json:
            self._print(json.dumps({"event": sweep.STANDING, **summary}, ensure_ascii=False))
            return
        best, ended = summary["best"], self._ended()
        if best is not None:
            parameters = ", ".join(f"{k} {_shown(v)}" for k, v in best["parameters"].items())
            value = records.figure(self._metric, best["value"])
            self._print_text(f"best: trial {best['trial']}, {self._metric} {value}: {parameters}")
        for name, reason in _OTHERS.items():
            if count := sum(self._other(index) == name for index in ended):
                self._print_text(
                    f"in {count} of {len(ended)} {reason}: what is searched changes the network "
                    "alone"
                )
        left = self._options.trials - len(ended)
        if self._is_hopeless():
            count = len(self._codes)
            self._print_text(f"stopped after {count} trials, which failed: see what is said above")
        elif left:
            self._print_text(f"{left} trials are left: the same command goes on with them")

    def _print_text(self, line: str) -> None:
        if not self._in_json:
            self._print(line)

    def _print(self, line: str) -> None:
        self._status.clear()
        with self._printing:
            if not written(sys.stdout, line):
                self._stop.ask("nobody reads any more what trials say")


class _Status:
    """A line at the end that is written anew, where somebody looks at a terminal."""

    def __init__(self, printing: threading.Lock) -> None:
        self._is_seen = sys.stderr.isatty() and sys.stdout.isatty()
        self._printing, self._shown = printing, ""

    def show(self, line: str) -> None:
        """Write ``line`` in place of the one before."""
        if self._is_seen and line != self._shown:
            width = os.get_terminal_size(sys.stderr.fileno()).columns - 1
            with self._printing:
                sys.stderr.write(f"\r\x1b[K{line[:width]}")
                sys.stderr.flush()
            self._shown = line

    def clear(self) -> None:
        """Take it away, for a line that stays."""
        if self._shown:
            with self._printing:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
            self._shown = ""


def visible_gpus() -> list[str]:
    """Return what trials may use of this machine's GPUs, as CUDA names them."""
    if (given := os.environ.get(_VISIBLE)) is not None:
        return [each.strip() for each in given.split(",") if each.strip()]
    return [str(index) for index in range(len(watched()))]


def _processes(words: Sequence[str]) -> int:
    """Of each trial's run, as its options say; what can't be read is for the run to refuse."""
    found = 1
    for word, following in pairwise([*words, ""]):
        name, equals, value = word.partition("=")
        text = value if equals else following
        if name == "--processes" and text.isdecimal():
            found = max(int(text), 1)
    return found


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
