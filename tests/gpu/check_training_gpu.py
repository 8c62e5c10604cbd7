"""Training on an NVIDIA GPU; run by `make test-gpu`, never skipped: without a GPU it fails."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

TRAINING = [sys.executable, "-m", "falaj.workloads.training"]


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of the digits; fails at once where there is no GPU."""
    assert torch.cuda.is_available(), "no usable NVIDIA GPU: check the driver with nvidia-smi"
    output = tmp_path_factory.mktemp("datasets")
    made = subprocess.run(
        [*TRAINING, "dataset", "--source", "digits", "--output", str(output), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(json.loads(made.stdout.splitlines()[-1])["path"])


def train(dataset: Path, output: Path, *options: str) -> dict[str, Any]:
    """Train on the GPU and return the run's record."""
    command = [*TRAINING, "run", "--dataset", str(dataset), "--output", str(output)]
    done = subprocess.run(
        [*command, "--device", "cuda", *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads((output / "record.json").read_text())


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_digits_in_every_precision(dataset: Path, tmp_path: Path, precision: str) -> None:
    record = train(dataset, tmp_path / "run", "--precision", precision)
    assert record["parameters"]["device"] == "cuda"
    assert record["parameters"]["precision"] == precision
    assert record["metrics"]["held_out"]["accuracy"] >= 0.98


def test_gpu_figures_are_recorded(dataset: Path, tmp_path: Path) -> None:
    text = json.dumps(train(dataset, tmp_path / "run")["utilisation"])
    for figure in ("utilisation_percent", "temperature_celsius", "power_watts", "memory_mib"):
        assert f"gpu0_{figure}" in text


def test_stopped_run_resumes(dataset: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    command = [*TRAINING, "run", "--dataset", str(dataset), "--output", str(output)]
    process = subprocess.Popen(
        [*command, "--device", "cuda", "--progress", "json"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line).get("epoch", 0) >= 2:
            process.send_signal(signal.SIGTERM)
            break
    process.stdout.read()
    assert process.wait(timeout=60) == 75
    resumed = train(dataset, output)
    whole = train(dataset, tmp_path / "whole")
    assert resumed["metrics"]["held_out"] == whole["metrics"]["held_out"]
