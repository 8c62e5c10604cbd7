"""A sweep: what it tries, and one trial of it.

Trials run side by side, on one machine or many, and know each other through the study's journal
alone: a file on a file system that all of them write to. A trial that is killed and started again
with the same number goes on; one that fails is told to the study and fails alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from falaj.workloads.bounds import CHOICES, DECODER, TRAINING
from falaj.workloads.errors import LOST, REFUSED, STOPPED, WorkloadError
from falaj.workloads.files import read_json, storage_errors, write_json_atomic
from falaj.workloads.training import record as records
from falaj.workloads.training import tracking
from falaj.workloads.training.options import Requested
from falaj.workloads.training.own_code import check_options
from falaj.workloads.training.progress import written
from falaj.workloads.training.snapshot import DESCRIPTION, make_folder
from falaj.workloads.training.stopping import StopRequest
from falaj.workloads.training.sweep_tracking import trial_folder

TUNABLE = (
    "learning_rate", "weight_decay", "batch_size", "width", "label_smoothing", "gradient_clip",
    "class_weights", *DECODER, "lora_rank", "lora_alpha",
)  # fmt: skip
"""Parameters that change what is learned, and not only how fast."""

_WHOLE = frozenset(
    each.name for each in fields(Requested) if "int" in str(each.type) and each.name in TUNABLE
)
_NUMBER = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_WHOLE_NUMBER = re.compile(r"^[+-]?\d+$")
_OWN = "option."
"""What the name of an option of a team's own model begins with."""
_CLASS_WEIGHTS = CHOICES["training"]["class_weights"]
_RANGE = re.compile(rf"^({_NUMBER})\.\.({_NUMBER})(:log)?$")
_SAY = "name=low..high, name=low..high:log or name=one|two|three"


def spaces(texts: Sequence[str]) -> dict[str, BaseDistribution]:
    """Return Optuna's distributions by the parameter's name.

    Args:
        texts: each as ``learning_rate=1e-4..1e-1:log`` or ``width=8|16|32``.

    Raises:
        WorkloadError: a text can't be read, names no parameter that is learned from, or leaves
            the parameter's allowed range.
    """
    found: dict[str, BaseDistribution] = {}
    for text in texts:
        name, _, values = text.partition("=")
        name = name.strip().removeprefix("--").replace("-", "_")
        if name not in TUNABLE and not _is_own(name):
            raise WorkloadError(
                f"--search {text!r}: allowed are {', '.join(TUNABLE)}, and {_OWN}NAME of a model "
                f"of one's own, as {_SAY}"
            )
        if name in found:
            raise WorkloadError(f"--search names {name} twice: give each parameter once")
        found[name] = _space(name, values.strip(), text)
    if not found:
        raise WorkloadError(f"--search is missing: say what is tried, as {_SAY}")
    return found


def _is_own(name: str) -> bool:
    """Whether it is an option of a team's own model, whose meaning and bounds are its own."""
    own = name.removeprefix(_OWN)
    return own != name and own.isascii() and own.isidentifier()


def _space(name: str, values: str, text: str) -> BaseDistribution:
    if range_ := _RANGE.match(values):
        return _interval(name, range_[1], range_[2], bool(range_[3]), text)
    choices = [each.strip() for each in values.split("|")]
    if not all(choices) or len(set(choices)) != len(choices):
        raise WorkloadError(f"--search {text!r} can't be read: allowed is {_SAY}")
    found = [_value(name, each, text) for each in choices]
    if len(found) == 1:
        raise WorkloadError(f"--search {text!r} names one value: give two or more, as {_SAY}")
    return CategoricalDistribution(found)


def _interval(name: str, low: str, high: str, log: bool, text: str) -> BaseDistribution:
    if name == "class_weights":
        raise WorkloadError(f"--search {text!r}: allowed are {'|'.join(_CLASS_WEIGHTS.words)}")
    least, most = _number(name, low, text), _number(name, high, text)
    if not least < most or (log and least <= 0):
        raise WorkloadError(
            f"--search {text!r}: the first number must be the smaller one, and above 0 with :log"
        )
    if isinstance(least, int) and isinstance(most, int):
        return IntDistribution(least, most, log=log)
    return FloatDistribution(least, most, log=log)


def _value(name: str, text: str, whole: str) -> int | float | str:
    if _is_own(name):
        return text
    if name == "class_weights":
        if text not in _CLASS_WEIGHTS.words:
            raise WorkloadError(
                f"--search {whole!r}: allowed are {', '.join(_CLASS_WEIGHTS.words)}"
            )
        return text
    return _number(name, text, whole)


def _number(name: str, text: str, whole: str) -> int | float:
    if _is_own(name):
        given = int(text) if _WHOLE_NUMBER.match(text) else float(text)
        check_options({name.removeprefix(_OWN): given})
        return given
    try:
        number = int(text) if name in _WHOLE else float(text)
    except ValueError:
        kind = "whole numbers" if name in _WHOLE else "numbers"
        raise WorkloadError(f"--search {whole!r}: {name} takes {kind}, not {text!r}") from None
    bound = TRAINING[name]
    if not bound.allows(number):
        raise WorkloadError(f"--search {whole!r}: {name} is allowed from {bound.description}")
    return number


JOURNAL = "study.journal"
STANDING = "study"
"""The event by which each trial that ends tells how the study stands: the last one, how it ended.
Nothing else has to run in a cluster to learn it."""
INDEX = "JOB_COMPLETION_INDEX"
"""Variable of Kubernetes: the trial's number, where ``--index`` doesn't say it."""
ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
"""How a trial ended; it isn't done again."""
_TRIAL = "trial.json"


def run(options: argparse.Namespace, arguments: Sequence[str], stop: StopRequest) -> int:
    """Do one trial.

    Args:
        options: the command line: dataset, output, search, index, seed, epochs, pruner.
        arguments: of the run, beside those that are searched.
        stop: notices a request to stop, which the run gets too.

    Returns:
        0 when the trial was done or pruned, 75 when stopped (start it again to go on), else the
        status of the run that failed.
    """
    index = _index(options)
    searched = spaces(options.search)
    folder = trial_folder(make_folder(options.output), index)
    make_folder(folder)
    study = open_study(options.output, options.dataset, options.seed + index, options.pruner)
    trial = _resumed(study, folder / _TRIAL)
    if trial is None:
        trial = study.ask(searched)
        trial.set_user_attr("index", index)
        write_json_atomic(folder / _TRIAL, {"number": trial.number, "parameters": trial.params})
    elif isinstance(trial, FrozenTrial):
        print(f"trial {index} is done already: {trial.state.name.lower()}")
        return 0
    command = [
        sys.executable, "-m", "falaj.workloads.training", "run", "--dataset", str(options.dataset),
        "--output", str(folder), "--seed", str(options.seed), *arguments,
        *_options(trial.params), *_tags(options.output, index, arguments), "--progress", "json",
    ]  # fmt: skip
    code = _follow(study, trial, command, folder, stop)
    if code == 0:
        print(json.dumps({"event": STANDING, **summary(study)}), flush=True)
    return code


def _tags(sweep: Path, index: int, arguments: Sequence[str]) -> list[str]:
    """What tells runs of a sweep on a tracking server, where each trial is sent by itself."""
    if not any(each.startswith("--tracking") for each in arguments):
        return []
    return [
        "--tracking-tag", f"{tracking.SWEEP}={sweep.name}",
        "--tracking-tag", f"{tracking.TRIAL}={index}",
    ]  # fmt: skip


def metric_name(dataset: Path) -> str:
    """Return what trials on a snapshot are judged by, on validation rows."""
    description = read_json(dataset / DESCRIPTION, "the description of the dataset")
    return records.FIRST[description["task"]]


def open_study(folder: Path, dataset: Path, seed: int, pruner: str) -> optuna.Study:
    """Return the study in ``folder``, made where there is none.

    Args:
        folder: of the sweep.
        dataset: snapshot, whose task says what is better.
        seed: of the sampler, another one for each trial.
        pruner: ``median``, ``hyperband`` or ``none``.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    description = read_json(dataset / DESCRIPTION, "the description of the dataset")
    better = "maximize" if records.FIRST[description["task"]] in records.SHARES else "minimize"
    pruners: dict[str, BasePruner] = {
        "median": MedianPruner(n_startup_trials=4, n_warmup_steps=2),
        "hyperband": HyperbandPruner(),
        "none": NopPruner(),
    }
    with storage_errors(folder):
        backend = JournalFileBackend(str(folder / JOURNAL))
    return optuna.create_study(
        storage=JournalStorage(backend),
        study_name=str(description["digest"]),
        load_if_exists=True,
        direction=better,
        # Trials that run at the same time don't try the same.
        sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True, n_startup_trials=4),
        pruner=pruners[pruner],
    )


def summary(study: optuna.Study) -> dict[str, Any]:
    """Return how the trials ended and the best of them, with its parameters as arguments."""
    trials = study.get_trials(deepcopy=False)
    done = [each for each in trials if each.state == TrialState.COMPLETE]
    best = study.best_trial if done else None
    return {
        "trials": {state.name.lower(): sum(each.state == state for each in trials)
                   for state in TrialState},
        "direction": study.direction.name.lower(),
        "best": None if best is None else {
            "trial": best.user_attrs["index"], "value": best.value, "parameters": best.params,
            "arguments": _options(best.params),
        },
    }  # fmt: skip


def _follow(
    study: optuna.Study, trial: Trial, command: Sequence[str], folder: Path, stop: StopRequest
) -> int:
    """Run ``command``, tell the study of each epoch, and end it early where that is worth it."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    lines: Iterable[str] = process.stdout or ()
    watching = threading.Event()
    threading.Thread(target=_pass_on, args=(stop, process, watching), daemon=True).start()
    pruned = False
    for line in lines:
        event: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "epoch":
            figure = event[event["metric_name"]]  # null where it is no number
            trial.report(math.nan if figure is None else float(figure), int(event["epoch"]))
            if not pruned and trial.should_prune():
                pruned = True
                process.terminate()
        if not written(sys.stdout, line.rstrip("\n")):
            process.terminate()  # nobody is there any more who started this; it goes on later
    code = process.wait()
    watching.set()
    if pruned and code in (STOPPED, 0):
        study.tell(trial, state=TrialState.PRUNED)
        return 0
    if code == 0:
        study.tell(trial, _score(folder))
        return 0
    if code == REFUSED:  # what would come again; all else may be tried once more
        study.tell(trial, state=TrialState.FAIL)
        return code
    return code if code > 0 else LOST


def _pass_on(stop: StopRequest, process: subprocess.Popen[str], ended: threading.Event) -> None:
    while not ended.wait(0.2):
        if stop.asked() and process.poll() is None:
            process.terminate()
            return


def _score(folder: Path) -> float:
    """The figure on the validation rows of the model that was kept."""
    record = read_json(folder / records.RECORD, "the record of the run")
    epoch = record["metrics"]["validation"]["epoch"]
    lines = (folder / records.METRICS).read_text(encoding="utf-8").splitlines()
    line = next(each for each in map(json.loads, lines) if each["epoch"] == epoch)
    name = records.FIRST[record["task"]]
    return float(line[f"validation_{name}"])


def _resumed(study: optuna.Study, path: Path) -> Trial | FrozenTrial | None:
    if not path.exists():
        return None
    number = int(read_json(path, "the trial's parameters")["number"])
    frozen = study.get_trials(deepcopy=False)[number]
    if frozen.state in ENDED:
        return frozen
    # Optuna has no public name for the id that a trial goes on with.
    return Trial(study, frozen._trial_id)  # pyright: ignore[reportPrivateUsage]


def _index(options: argparse.Namespace) -> int:
    text = str(options.index) if options.index is not None else os.environ.get(INDEX, "")
    if not text.isdecimal():
        raise WorkloadError(
            f"which trial this is, is missing: give --index, or the variable {INDEX}, as a whole "
            f"number from 0; given {text!r}"
        )
    return int(text)


def _options(parameters: Mapping[str, object]) -> list[str]:
    """Parameters as options of a run."""
    words: list[str] = []
    for name, value in parameters.items():
        if _is_own(name):
            words += ["--option", f"{name.removeprefix(_OWN)}={value}"]
        else:
            words += ["--" + name.replace("_", "-"), str(value)]
    return words
