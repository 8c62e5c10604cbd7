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

from tests.workloads.training.test_divided import text

TRAINING = [sys.executable, "-m", "falaj.workloads.training"]


def snapshot(source: str, output: Path) -> Path:
    """A snapshot's folder; fails at once where there is no GPU."""
    assert torch.cuda.is_available(), "no usable NVIDIA GPU: check the driver with nvidia-smi"
    made = subprocess.run(
        [*TRAINING, "dataset", "--source", source, "--output", str(output), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(json.loads(made.stdout.splitlines()[-1])["path"])


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of the digits."""
    return snapshot("digits", tmp_path_factory.mktemp("datasets"))


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of a text."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "text.txt").write_text(text())
    return snapshot(str(folder / "text.txt"), folder / "datasets")


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


def losses(output: Path) -> list[float]:
    lines = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    return [line[key] for line in lines for key in ("loss", "validation_loss")]


@pytest.mark.parametrize("more", [(), ("--recompute", "layers")])
def test_a_compiled_language_model_learns_the_same(
    words: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    """Which is what nobody has to ask for."""
    usual = ("--epochs", "3", "--precision", "float32", *more)
    plain = train(words, tmp_path / "plain", *usual, "--compile", "never")
    compiled = train(words, tmp_path / "compiled", *usual)
    assert not plain["compile"]["used"]
    assert compiled["compile"]["used"], compiled["compile"]
    assert losses(tmp_path / "compiled") == pytest.approx(losses(tmp_path / "plain"), abs=1e-3)


@pytest.mark.parametrize("compiles", ["never", "always"])
def test_every_gpu_has_a_part_of_a_language_model(
    words: Path, tmp_path: Path, compiles: str
) -> None:
    """A single GPU has all of it."""
    count = torch.cuda.device_count()
    parts = ("--processes", str(count), "--shard", str(count), "--batch-size", str(8 * count))
    usual = ("--epochs", "3", "--precision", "bfloat16")
    record = train(words, tmp_path / "run", *usual, *parts, "--compile", compiles)
    assert record["compile"]["used"] == (compiles == "always")
    train(words, tmp_path / "whole", *usual, *parts[4:], "--compile", "never")
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "whole"), abs=2e-2)


def test_gpu_figures_are_recorded(dataset: Path, tmp_path: Path) -> None:
    found = train(dataset, tmp_path / "run")["utilisation"]
    for figure in (
        "utilisation_percent", "temperature_celsius", "power_watts", "memory_mib", "clock_mhz",
    ):  # fmt: skip
        assert f"gpu0_{figure}" in found["mean"]
    assert len(found["by_gpu"]) == found["gpus"] > 0
    for each in found["by_gpu"]:
        assert 0 <= each["idle_share"] <= 1
        assert each["slowed_share"].keys() == {"power", "heat", "hardware"}
        assert each["xids"] == {}, each
        assert each["pcie_replays"] >= 0


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
