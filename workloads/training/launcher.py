"""Start of a run: opens the data, resolves the parameters, and trains here or in processes."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from falaj.workloads.bounds import DECODER, IMAGE_NETWORKS
from falaj.workloads.errors import HARDWARE, LOST, STOPPED, WorkloadError
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import artifact_path
from falaj.workloads.training import (
    batches,
    compiling,
    distributed,
    hardware,
    language,
    lora,
    tracking,
    tuning,
)
from falaj.workloads.training import record as records
from falaj.workloads.training import start as starts
from falaj.workloads.training.distillation import Teacher
from falaj.workloads.training.faults import code_of
from falaj.workloads.training.finishing import Setting, report_finished
from falaj.workloads.training.layout import check_layout
from falaj.workloads.training.opened import open_start_of, open_teacher_of, read_code
from falaj.workloads.training.options import (
    ALPHA_OF_A_RANK,
    DISTILLATION,
    LOW_RANK_RATE,
    Parameters,
    Requested,
    check_decoder,
    default_threads,
    family_defaults,
)
from falaj.workloads.training.own_code import OwnCode
from falaj.workloads.training.own_model import guarded
from falaj.workloads.training.progress import Progress, listening
from falaj.workloads.training.session import Session
from falaj.workloads.training.snapshot import Dataset, make_folder, open_dataset, open_keyring
from falaj.workloads.training.start import Start
from falaj.workloads.training.stopping import StopRequest
from falaj.workloads.training.tracking import Destination
from falaj.workloads.training.tracking_store import TrackingError
from falaj.workloads.training.tuned import Tuner
from falaj.workloads.training.tuning import StoppedError

_LOCK = ".lock"
STREAMED_CHECKPOINT_STEPS = 1_000
"""Between checkpoints within an epoch of a streamed dataset, whose epochs may be long."""
_WAIT_SECONDS = 10
"""For a run whose starter was killed: it writes a checkpoint and ends."""


def run(
    options: argparse.Namespace,
    requested: Requested,
    style: str,
    stop: StopRequest,
    arguments: list[str],
    *,
    fixed: frozenset[str] = frozenset(),
) -> int:
    """Train as the command line says.

    Args:
        options: the parsed command line (dataset, output, keyring, resume).
        requested: the parameters that were given.
        style: of the progress, ``json`` or ``text``.
        stop: says when to stop.
        arguments: the command line, for further processes.
        fixed: names of settings that were given, and that measuring leaves as they are.

    Returns:
        0, or one of `falaj.workloads.errors`.

    Raises:
        WorkloadError: the data, the parameters or the output folder can't be used.
    """
    output: Path = options.output
    if options.metrics is not None:
        listening(options.metrics)
    destination = tracking.of_options(options)
    keyring = open_keyring(options.keyring)
    code = read_code(requested, options.code_digest)
    dataset = open_dataset(options.dataset, keyring)
    teacher = open_teacher_of(requested, keyring, dataset)
    start = open_start_of(requested, keyring, dataset)
    parameters = resolve(requested, dataset, code, teacher, start)
    meeting = None
    if not distributed.is_member():
        meeting = distributed.from_environment(os.environ, parameters.processes)
    if meeting is None:  # of several machines, the processes know how many they are
        check_layout(parameters, dataset.family)
    identity = parameters.identity(dataset.digest)
    leads = distributed.is_leader()
    progress = Progress(style, leads, lambda: stop.ask("nobody reads the progress any more"))
    if options.resume == "auto":
        records.check_folder(output, identity)
        done = records.finished(output)
        if done is not None:
            report_finished(done, output, progress)
            _deliver(output, destination, progress)
            return 0
    make_folder(output)
    tuner = Tuner(options, stop, arguments, fixed)
    if not distributed.is_member():
        if meeting is not None:
            tuner.refuse_meeting()
            return distributed.take_part(arguments, meeting, stop)
        if _adopted(options, identity, keyring, progress):
            _deliver(output, destination, progress)
            return 0
    setting = Setting(
        dataset, parameters, output, keyring, identity, False, options.metrics, code, teacher,
        start,
    )  # fmt: skip
    try:
        tuned = _tuned(tuner, setting, progress, lambda: _resumes(options, keyring))
    except StoppedError:
        progress.emit("stopped", "stopped while settings were measured; run again to go on")
        return STOPPED
    if tuned is not None:
        taken = replace(requested, **tuner.taken(tuned))
        parameters = resolve(taken, dataset, code, teacher, start)
    if not distributed.is_member() and parameters.processes > 1:
        return distributed.launch(arguments, parameters.processes, stop)
    with only_run(output) if leads else contextlib.nullcontext():
        resume = _resumes(options, keyring)
        if leads and not resume:
            records.begin(output, identity, parameters.to_json(), dataset.digest)
        setting = replace(setting, parameters=parameters, resume=resume, tuning=tuned)
        with tracking.following(output, destination if leads else None, progress.emit):
            return _train(setting, stop, progress)


def _adopted(
    options: argparse.Namespace, identity: str, keyring: KeyRing | None, progress: Progress
) -> bool:
    """Take over what was trained before, where that is asked for; return whether it was there."""
    if options.adopt is None or options.resume != "auto":
        return False
    with only_run(options.output):
        found = records.take_over(options.output, identity, options.adopt, keyring)
    if found is None:
        return False
    progress.emit("resume", f"taken over from {found}, where it was trained before")
    report_finished(records.finished(options.output) or {}, options.output, progress)
    return True


def _tuned(
    tuner: Tuner, setting: Setting, progress: Progress, resumes: Callable[[], bool]
) -> dict[str, Any] | None:
    """What is taken of settings that were measured: before, or now where that is asked for."""
    if distributed.is_member():
        return tuner.found(resume=resumes())
    with only_run(setting.output):  # once a run that is ending has written its checkpoint
        if resumes():
            return tuner.found(resume=True)
        if not tuner.is_asked:
            (setting.output / tuning.FILE).unlink(missing_ok=True)
            return None
        found, words = tuner.take(setting.parameters, setting.dataset)
    progress.emit("tune", words, taken=found["taken"])
    return found


def _resumes(options: argparse.Namespace, keyring: KeyRing | None) -> bool:
    """Whether the run goes on from its checkpoint."""
    path = artifact_path(options.output / records.CHECKPOINT, keyring)
    return options.resume == "auto" and path.exists()


def tune(
    options: argparse.Namespace,
    requested: Requested,
    stop: StopRequest,
    arguments: list[str],
    *,
    fixed: frozenset[str],
) -> int:
    """Measure settings of a run, and tell which are better; trains nothing.

    Args:
        options: the parsed command line.
        requested: the parameters that were given.
        stop: says when to stop.
        arguments: the command line, for the process that measures.
        fixed: names of settings that were given, and stay.

    Raises:
        WorkloadError: the data, the parameters or the machine can't be used.
    """
    if distributed.is_member() or distributed.from_environment(os.environ, requested.processes):
        raise WorkloadError(
            "tune measures on one machine, and here a launcher or a cluster joins several "
            "processes: run it by itself on one of the machines"
        )
    keyring = open_keyring(options.keyring)
    code = read_code(requested, options.code_digest)
    dataset = open_dataset(options.dataset, keyring)
    teacher = open_teacher_of(requested, keyring, dataset)
    start = open_start_of(requested, keyring, dataset)
    parameters = resolve(requested, dataset, code, teacher, start)
    check_layout(parameters, dataset.family)
    return Tuner(options, stop, arguments, fixed).tell(parameters, dataset)


def _deliver(output: Path, destination: Destination | None, progress: Progress) -> None:
    if (
        destination is not None
        and distributed.is_leader()
        and not tracking.is_whole(output, destination)
    ):
        tracking.deliver(output, destination, progress.emit, at_end=True)


def track(output: Path, destination: Destination) -> str:
    """Send what a tracking server lacks of a run that nobody trains now; its identifier there.

    Raises:
        WorkloadError: there is no run, it is being trained, or the server didn't take it.
    """
    if not (output / records.PARAMETERS).is_file():
        raise WorkloadError(f"{output} holds no run: name the folder of one (--run)")
    with only_run(output):
        try:
            return tracking.sync(output, destination, tracking.KILLED)
        except TrackingError as error:
            raise WorkloadError(
                f"{destination.shown} doesn't have all of {output}: {error}"
            ) from error


def resolve(
    requested: Requested,
    dataset: Dataset,
    code: OwnCode | None = None,
    teacher: Teacher | None = None,
    start: Start | None = None,
) -> Parameters:
    """Fill in what was left open, by the dataset's family and size and by the hardware."""
    values = {name: getattr(requested, name) for name in Requested.__dataclass_fields__}
    values["start"] = ""
    if start is not None:
        starts.check_sizes(start, requested)
        values |= {**start.sizes, "model": start.model, "start": start.digest}
    lora.check_options(requested, start.architecture if start is not None else None)
    values["lora_rank"] = requested.lora_rank or 0
    if requested.lora_alpha is None:
        values["lora_alpha"] = float(ALPHA_OF_A_RANK * values["lora_rank"])
    if values["lora_rank"] and requested.learning_rate is None:
        values["learning_rate"] = LOW_RANK_RATE
    rows = int(dataset.description["rows"]["train"])
    values["checkpoint_steps"] = requested.checkpoint_steps or 0
    values["read_ahead"] = requested.read_ahead or 0
    values["code"] = code.digest if code is not None else ""
    own = code is not None
    values["teacher"] = teacher.digest if teacher is not None else ""
    is_smaller = teacher is not None or requested.prune > 0 or requested.quantisation_aware
    if is_smaller and dataset.family == "table" and values["model"] == "auto":
        values["model"] = "network"  # trees have no teacher and no units
    _check_prunable(requested, dataset)
    for name, default in DISTILLATION.items():
        if values[name] is None:
            values[name] = default
    _check_text(requested, dataset)
    _check_stream(requested, dataset, values)
    _check_pictures(requested, dataset)
    defaults = family_defaults(dataset.family, rows, own=own, model=values["model"])
    for name, default in defaults.items():
        if values[name] is None:
            values[name] = default
    values["processes"] = distributed.world_size(requested.processes)
    here = distributed.local_processes(requested.processes)
    # Each character of a window is a row of its matrices.
    size = values["batch_size"] * dataset.context
    for name in DECODER.keys() - defaults.keys():
        values[name] = 0
    values["threads"] = requested.threads or default_threads(here, size)
    values["device"] = hardware.resolve_device(requested.device, here)
    values["precision"] = hardware.resolve_precision(requested.precision, values["device"])
    if values["class_weights"] == "auto" or dataset.classes is None:
        labels = np.asarray(dataset.labels[dataset.rows("train")])
        # A table's probabilities are to fit its shares; weights would shift them.
        rare = dataset.family == "images" and batches.is_imbalanced(
            labels, len(dataset.classes or [])
        )
        values["class_weights"] = "tempered" if rare else "none"
    parameters = Parameters(**values)
    compiling.choose(parameters)  # what can't be is refused here
    if dataset.family == language.FAMILY:
        check_decoder(parameters)
    return parameters


def _check_text(requested: Requested, dataset: Dataset) -> None:
    """Refuse what a language model has no use for, and what it alone has."""
    if dataset.family != language.FAMILY:
        for name in DECODER:
            given = getattr(requested, name)
            if given is not None:
                raise WorkloadError(
                    f"--{name.replace('_', '-')} {given} is of Falaj's language model, and this "
                    "dataset is no text: leave it out; other networks have a --width"
                )
        return
    if requested.code is not None:
        raise WorkloadError(
            f"--model {requested.model}: models of your own learn from images and tables, and "
            "this dataset is a text; leave --model and --code out"
        )
    if requested.class_weights not in ("auto", "none"):
        raise WorkloadError(
            f"--class-weights {requested.class_weights} is of classifications, and this dataset "
            "is a text: use auto or none"
        )


def _check_stream(requested: Requested, dataset: Dataset, values: dict[str, Any]) -> None:
    """Refuse what has to be known of all rows before one is learned from, and choose none."""
    if dataset.stream is None:
        if requested.read_ahead is not None:
            raise WorkloadError(
                f"--read-ahead {requested.read_ahead} is of datasets that are read while they are "
                "learned from, and the rows of this one are in memory: leave it out"
            )
        return
    if requested.class_weights not in ("auto", "none"):
        raise WorkloadError(
            f"--class-weights {requested.class_weights} needs the classes of all rows in memory, "
            "and this dataset is streamed: use auto or none; a loss of a model of your own may "
            "weigh classes"
        )
    values["class_weights"] = "none"
    values["checkpoint_steps"] = requested.checkpoint_steps or STREAMED_CHECKPOINT_STEPS
    if values["model"] == "auto":
        values["model"] = "network"  # trees need all rows at once


def _check_prunable(requested: Requested, dataset: Dataset) -> None:
    """Refuse to take units out of what isn't known to do without, or to round in it."""
    for given, is_given in (
        (f"--prune {requested.prune:g}", requested.prune > 0),
        ("--quantisation-aware", requested.quantisation_aware),
    ):
        if is_given and requested.code is not None:
            raise WorkloadError(
                f"{given} is of Falaj's own networks, and what is in {requested.model} only its "
                "code knows: leave it out, or have the model do that itself by an option of its "
                "own (--option)"
            )
        if is_given and dataset.family == language.FAMILY:
            raise WorkloadError(
                f"{given} is of networks of images and tables, and this dataset is a text: leave "
                "it out; a smaller --width makes the model smaller, and may learn from a larger "
                "--teacher"
            )


def _check_pictures(requested: Requested, dataset: Dataset) -> None:
    """Refuse a network of images where there are none."""
    if requested.model in IMAGE_NETWORKS and dataset.family != "images":
        raise WorkloadError(
            f"--model {requested.model} learns from images, and this dataset is a "
            f"{dataset.family}: leave --model out, or use auto or network"
        )


def _train(setting: Setting, stop: StopRequest, progress: Progress) -> int:
    try:
        team = distributed.join(setting.parameters.device)
        is_own = setting.code is not None or (setting.teacher and setting.teacher.is_own)
        with guarded() if is_own else contextlib.nullcontext():
            session = Session(setting, team, stop, progress)
            if setting.code is not None and team.leads and not setting.resume:
                session.try_export()
            return session.run()
    except RuntimeError as error:  # PyTorch's are all of that kind
        code = code_of(error)
        if code == HARDWARE:
            print(f"a GPU of this machine failed: {error}", file=sys.stderr)
            return HARDWARE
        if code == LOST:
            print(f"another process of the run was lost: {error}", file=sys.stderr)
            return LOST
        raise
    finally:
        distributed.leave()


@contextlib.contextmanager
def only_run(output: Path) -> Generator[None, None, None]:
    """Keep two runs from writing to one folder.

    Raises:
        WorkloadError: another one does, and doesn't end soon.
    """
    lock = filelock.FileLock(output / _LOCK)
    try:
        lock.acquire(timeout=_WAIT_SECONDS)
    except filelock.Timeout:
        raise WorkloadError(
            f"another run is training in {output}: wait for it, or choose another --output"
        ) from None
    try:
        yield
    finally:
        lock.release()
