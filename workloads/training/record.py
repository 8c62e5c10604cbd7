"""The run's record: what was done with what, and what came of it. Written last."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
from pathlib import Path
from typing import Any, Final

from falaj.workloads import bounds
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import (
    read_bytes,
    read_json,
    storage_errors,
    write_atomic,
    write_json_atomic,
)
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import SUFFIX, read_artifact, write_artifact
from falaj.workloads.training.own_code import ARCHIVE

FORMAT = "falaj.run/1"
RECORD = "record.json"
PARAMETERS = "parameters.json"
METRICS = "metrics.jsonl"
TRACKING = "tracking.json"
"""What a tracking server has of the run."""
CHECKPOINT = "checkpoint"
MODEL = "model"
MODEL_FORMAT = "falaj.model/1"


def code_version() -> dict[str, str]:
    """Return the version of the distribution and the SHA-256 over the training code."""
    try:
        version = importlib.metadata.version("falaj")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    state = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        content = path.read_bytes()
        state.update(f"{path.name} {len(content)}\n".encode() + content)
    return {"version": version, "digest": state.hexdigest()}


def context_of(identity: str, role: str) -> bytes:
    """Return the role that a sealed file of a run is bound to: its checkpoint or its model."""
    return f"run:{identity}:{role}".encode()


def check_folder(output: Path, identity: str) -> None:
    """Refuse a folder in which another run, with other data, parameters or code, is kept.

    Raises:
        WorkloadError: says so, and how to go on.
    """
    path = output / PARAMETERS
    if path.exists() and read_json(path, "the parameters of the run").get("identity") != identity:
        raise WorkloadError(
            f"{output} holds a run with other data or parameters, or of other code (see {path}): "
            "choose another --output, or replace that run with --resume never"
        )


def begin(output: Path, identity: str, parameters: dict[str, Any], dataset: str) -> None:
    """Clear ``output`` of what an earlier run left and note what this one is."""
    with storage_errors(output):
        for name in (RECORD, METRICS, CHECKPOINT, MODEL, ARCHIVE, TRACKING):
            (output / name).unlink(missing_ok=True)
            (output / (name + SUFFIX)).unlink(missing_ok=True)
    remove_parts(output)
    value = {"identity": identity, "dataset": dataset, "parameters": parameters}
    write_json_atomic(output / PARAMETERS, value)


def add_metrics(output: Path, line: dict[str, Any]) -> None:
    """Add the figures of an epoch to the run's metrics."""
    path = output / METRICS
    with storage_errors(path), path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


def rewrite_metrics(output: Path, history: list[dict[str, Any]]) -> None:
    """Have the metrics be those of a checkpoint: what came after it comes again."""
    lines = "".join(json.dumps(line) + "\n" for line in history)
    write_atomic(output / METRICS, lines.encode())


def part_name(token: str, rank: int) -> str:
    """Return the file's name of a process's part of the checkpoint of this token."""
    return f"{CHECKPOINT}.{token}.{rank}"


def remove_parts(output: Path, but: str = "") -> None:
    """Remove the parts of checkpoints, but of the one of this token."""
    with storage_errors(output):
        for path in output.glob(f"{CHECKPOINT}.*.*"):
            if path.name.split(".")[1] != but:
                path.unlink(missing_ok=True)


def finished(output: Path) -> dict[str, Any] | None:
    """Return the record in ``output`` if its run has finished, else None."""
    path = output / RECORD
    return read_json(path, "the record of the run") if path.exists() else None


LANGUAGE: Final = bounds.LANGUAGE
"""The task of a model that learns from a text."""
#: The figure that a person asks for first, by task. That of texts stands first, as they have an
#: accuracy, too.
FIRST: Final = {
    LANGUAGE: "nats_per_character", "classification": "accuracy", "regression": "rmse",
}  # fmt: skip
#: Figures that are shares of 1, which people read in percent.
SHARES = ("accuracy", "balanced_accuracy", "macro_f1")


def figure(name: str, value: float) -> str:
    """Return a figure of a run as people read it."""
    return f"{100 * value:.2f} %" if name in SHARES else f"{value:.4g}"


def take_over(output: Path, identity: str, runs: Path, keyring: KeyRing | None) -> Path | None:
    """Copy a finished run of the same data, parameters and code to ``output``.

    Args:
        output: folder of the run that is asked for; it exists.
        identity: what both are named by.
        runs: folder that is looked through, to the trials of sweeps in it.
        keyring: that seals the files.

    Returns:
        Where the run is that was taken over; None where there is no such run whose files can be
        read.
    """
    for path in sorted(runs.glob(f"*/{RECORD}")) + sorted(runs.glob(f"*/*/{RECORD}")):
        found = path.parent
        # Another run's folder that can't be read is no reason not to train.
        with contextlib.suppress(WorkloadError, AttributeError, KeyError, TypeError):
            record = read_json(path, "the record of a run")
            if record.get("identity") != identity or record.get("code") != code_version():
                continue
            own = record["model"]["architecture"].get("own") is not None
            names = [MODEL, *([ARCHIVE] if own else [])]
            files = {
                name: read_artifact(found / name, keyring, context_of(identity, name))
                for name in names
            }
            plain = {
                name: read_bytes(found / name, "a file of a run") for name in (PARAMETERS, METRICS)
            }
            if (found / TRACKING).is_file():
                # The same training is one run of a tracking server.
                plain[TRACKING] = read_bytes(found / TRACKING, "what was tracked")
            for name, data in plain.items():
                write_atomic(output / name, data)
            for name, data in files.items():
                write_artifact(output / name, data, keyring, context_of(identity, name))
            write_json_atomic(output / RECORD, record)
            return found
    return None


def headline(record: dict[str, Any]) -> dict[str, Any]:
    """Return the figure of the held-out part that a person asks for first."""
    name = FIRST[record["task"]]
    return {"metric_name": name, name: record["metrics"]["held_out"][name]}
