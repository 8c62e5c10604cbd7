"""What later stages read: a finished run's model and a dataset's rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import read_json
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import checkpoint, models
from falaj.workloads.training import record as records
from falaj.workloads.training.preprocessing import TablePreprocessing
from falaj.workloads.training.rows import Rows, load_rows

__all__ = ["Rows", "Trained", "load_rows", "load_trained"]


@dataclass(frozen=True)
class Trained:
    """A finished run's model.

    Attributes:
        family: ``images`` or ``table``.
        task: ``classification`` or ``regression``.
        module: in evaluation mode; takes one float32 tensor: raw images (N, C, H, W), or the
            preprocessed features (N, F); gives logits (N, classes) or standardised values (N, 1).
        preprocessing: the table's recipe, None for images.
        classes: the names of the classes, None for a regression.
        target: {"mean", "scale"} that bring a regression's output to real units, else None.
        record: the content of record.json.
    """

    family: str
    task: str
    module: nn.Module
    preprocessing: TablePreprocessing | None
    classes: list[str] | None
    target: dict[str, float] | None
    record: dict[str, Any]


def load_trained(run_dir: Path, keyring: KeyRing | None) -> Trained:
    """Read a finished run.

    Raises:
        WorkloadError: the run hasn't finished, or its files are missing, damaged or sealed with
            other keys.
    """
    record = read_json(run_dir / records.RECORD, "the record of a finished run")
    if record.get("format") != records.FORMAT or record.get("status") != "finished":
        raise WorkloadError(f"{run_dir} holds no finished run: train it first")
    try:
        return _trained(run_dir, record, keyring)
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        # The files' digests hold, but the record was edited, or another version wrote it.
        raise WorkloadError(
            f"the run in {run_dir} is damaged: its record lacks what its model needs; "
            "train it again"
        ) from error


def _trained(run_dir: Path, record: dict[str, Any], keyring: KeyRing | None) -> Trained:
    path = run_dir / records.MODEL
    context = records.context_of(record["identity"], records.MODEL)
    state = checkpoint.load(path, keyring, context)
    if state.get("identity") != record["identity"]:
        raise WorkloadError(f"{path} belongs to another run than {run_dir / records.RECORD}")
    architecture = models.Architecture.from_json(json.loads(state["architecture"]))
    module = models.build(architecture)
    module.load_state_dict(state["state"])
    recipe = record["preprocessing"]
    if "digest" not in record["dataset"]:
        raise KeyError("dataset.digest")
    return Trained(
        family=record["family"],
        task=record["task"],
        module=module.eval().requires_grad_(False),
        preprocessing=TablePreprocessing.from_json(recipe) if recipe is not None else None,
        classes=record["classes"],
        target=record["target"],
        record=record,
    )
