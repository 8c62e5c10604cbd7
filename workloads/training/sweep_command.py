"""The command lines of a sweep: one trial, several at a time on one machine, and the outcome."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from falaj.workloads.errors import WorkloadError
from falaj.workloads.statuses import STOPPED
from falaj.workloads.training.stopping import StopRequest

_PRUNERS = ("median", "hyperband", "none")
_POLL_SECONDS = 0.2


def add(commands: Any) -> None:
    """Add the commands ``trial``, ``sweep`` and ``study``."""
    trial = commands.add_parser("trial", help="do one trial of a sweep")
    _add_common(trial)
    trial.add_argument("--index", type=int, help="number of the trial (default: of the pod)")
    sweep = commands.add_parser("sweep", help="do trials side by side on this machine")
    _add_common(sweep)
    sweep.add_argument("--trials", type=int, default=20, help="how many (default 20)")
    sweep.add_argument("--parallel", type=int, default=1, help="at a time (default 1)")
    study = commands.add_parser("study", help="tell how the trials of a sweep ended")
    study.add_argument("--dataset", type=Path, required=True, help="the snapshot's folder")
    study.add_argument("--output", type=Path, required=True, help="folder of the sweep")


def _add_common(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("--dataset", type=Path, required=True, help="a snapshot's folder")
    option(
        "--output", type=Path, required=True, help="folder of the sweep; each trial has its own"
    )
    option(
        "--search", action="append", default=[], metavar="NAME=VALUES",
        help="learning_rate=1e-4..1e-1:log, width=8|16|32 …; may be given more than once",
    )  # fmt: skip
    option("--seed", type=int, default=0, help="of the runs, and the first of the sampler's")
    option("--pruner", choices=_PRUNERS, default="median", help="ends bad trials early")
    option(
        "run_options", nargs="*", metavar="-- RUN OPTION",
        help="after --: options of every run, as --epochs 20",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run one of the three commands."""
    from falaj.workloads.training import trial  # noqa: PLC0415 - optuna takes a second to import

    if options.command == "study":
        if not (options.output / trial.JOURNAL).exists():
            raise WorkloadError(f"{options.output} holds no study: there is no {trial.JOURNAL}")
        study = trial.open_study(options.output, options.dataset, 0, "none")
        print(json.dumps(trial.summary(study), indent=2))
        return 0
    _refuse_ours(options.run_options)
    stop = StopRequest()
    stop.install()
    if options.command == "trial":
        return trial.run(options, options.run_options, stop)
    for name in ("trials", "parallel"):
        if getattr(options, name) < 1:
            raise WorkloadError(f"--{name} is {getattr(options, name)}: allowed is 1 or more")
    return _side_by_side(options, stop)


def _side_by_side(options: argparse.Namespace, stop: StopRequest) -> int:
    """Start trials as processes of their own; return 0, 75, or the worst status of a trial."""
    waiting = list(range(options.trials))
    running: list[subprocess.Popen[bytes]] = []
    codes: set[int] = set()
    while waiting or running:
        for process in [each for each in running if each.poll() is not None]:
            running.remove(process)
            codes.add(process.returncode)
        if stop.asked():
            waiting.clear()
            for process in running:
                process.terminate()
        while waiting and len(running) < options.parallel:
            running.append(subprocess.Popen(_trial(options, waiting.pop(0))))
        time.sleep(_POLL_SECONDS)
    if stop.asked():
        return STOPPED
    return max(codes, default=0)


def _trial(options: argparse.Namespace, index: int) -> list[str]:
    return [
        sys.executable, "-m", "falaj.workloads.training", "trial", "--index", str(index),
        "--dataset", str(options.dataset), "--output", str(options.output),
        "--seed", str(options.seed), "--pruner", options.pruner,
        *(part for text in options.search for part in ("--search", text)),
        "--", *options.run_options,
    ]  # fmt: skip


def _refuse_ours(words: list[str]) -> None:
    for word in words:
        if word.partition("=")[0] in ("--dataset", "--output", "--progress", "--json", "--seed"):
            raise WorkloadError(f"{word} is an option of the sweep: leave it out after --")
