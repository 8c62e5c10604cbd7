"""Parameters: ranges, defaults, and what makes a run another run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import hardware, launcher
from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.training.options import Requested, check
from falaj.workloads.training.snapshot import Dataset


@pytest.mark.parametrize(("option", "value"), [
    ("epochs", 0), ("batch_size", -1), ("learning_rate", 0.0), ("learning_rate", float("nan")),
    ("weight_decay", -0.1), ("patience", 0), ("gradient_clip", -1.0), ("seed", -1),
    ("processes", 0), ("width", 0), ("checkpoint_every", 0), ("threads", 0),
    ("label_smoothing", 0.9), ("precision", "float8"), ("device", "tpu"),
])  # fmt: skip
def test_values_out_of_range_are_refused(option: str, value: Any) -> None:
    with pytest.raises(WorkloadError, match=f"--{option.replace('_', '-')} is .*: allowed"):
        check(Requested(**{option: value}))


def test_defaults_are_in_range(mixed_dataset: Dataset) -> None:
    parameters = launcher.resolve(Requested(device="cpu"), mixed_dataset)
    check(Requested(**parameters.to_json()))
    assert parameters.precision == "float32"
    assert parameters.class_weights == "none"


def test_identity_is_of_what_changes_the_outcome(mixed_dataset: Dataset) -> None:
    parameters = launcher.resolve(Requested(device="cpu"), mixed_dataset)
    identity = parameters.identity(mixed_dataset.digest)
    same = replace(parameters, threads=7, processes=3, checkpoint_every=9)
    assert same.identity(mixed_dataset.digest) == identity
    others = [replace(parameters, seed=1).identity(mixed_dataset.digest), parameters.identity("")]
    assert identity not in others


def test_precision_that_the_hardware_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WorkloadError, match="float16 needs a GPU"):
        hardware.resolve_precision("float16", "cpu")
    monkeypatch.setattr(hardware, "cpu_flags", lambda: {"avx2"})
    with pytest.raises(WorkloadError, match="avx512_bf16"):
        hardware.resolve_precision("bfloat16", "cpu")
    monkeypatch.setattr(hardware, "cpu_flags", lambda: {"avx512_bf16"})
    assert hardware.resolve_precision("bfloat16", "cpu") == "bfloat16"


def test_more_gpus_than_there_are_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(WorkloadError, match="0 usable GPUs"):
        hardware.resolve_device("cuda", 1)
    assert hardware.resolve_device("auto", 1) == "cpu"


def test_reduced_precision_trains(
    train: Any, mixed_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch computes bfloat16 on every CPU; only on some is it fast.
    monkeypatch.setattr(hardware, "cpu_flags", lambda: {"avx512_bf16"})
    assert train(mixed_dataset, tmp_path / "run", epochs=30, precision="bfloat16") == 0
    record = load_trained(tmp_path / "run", None).record
    assert record["parameters"]["precision"] == "bfloat16"
    assert record["metrics"]["held_out"]["accuracy"] > 0.5
