"""Small trained runs that the tests of optimisation share, made with the real command line."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@dataclass(frozen=True)
class Run:
    """A finished run and the snapshot that it was trained on."""

    path: Path
    dataset: Path


Optimise = Callable[..., "subprocess.CompletedProcess[str]"]


def module(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, check=False
    )


def trained(folder: Path, *source: str, epochs: int, model: str = "network") -> Run:
    made = module(
        "falaj.workloads.training", "dataset", *source, "--output", str(folder), "--json"
    )
    assert made.returncode == 0, made.stderr
    dataset = Path(json.loads(made.stdout.splitlines()[-1])["path"])
    run = module(
        "falaj.workloads.training", "run", "--dataset", str(dataset),
        "--output", str(folder / "run"), "--epochs", str(epochs), "--device", "cpu",
        "--threads", "1", "--model", model, "--progress", "json",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return Run(folder / "run", dataset)


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(tmp_path_factory.mktemp("digits"), "--source", "digits", epochs=6)


def write_customers(path: Path) -> None:
    """300 customers; a column is called like an output, texts and numbers are missing."""
    random = np.random.default_rng(11)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["label", "مدينة", "age", "falaj/core", "churn", "spend"])
        for _ in range(300):
            city = str(random.choice(["دبي", "Sharjah", "Al Ain", ""]))
            age = int(random.integers(18, 80))
            churn = (age > 50) != (city == "دبي")
            writer.writerow([
                str(random.choice(["gold", "silver"])), city,
                "" if random.random() < 0.2 else age, round(float(random.normal(1e4, 300)), 2),
                "نعم" if churn else "no", round(500_000 + 800 * age + float(random.normal()), 2),
            ])  # fmt: skip


@pytest.fixture(scope="session")
def customers(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A classification of a table."""
    folder = tmp_path_factory.mktemp("customers")
    write_customers(folder / "table.csv")
    source = ("--source", str(folder / "table.csv"), "--target", "churn")
    return trained(folder, *source, epochs=5)


@pytest.fixture(scope="session")
def spending(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A regression on a table."""
    folder = tmp_path_factory.mktemp("spending")
    write_customers(folder / "table.csv")
    source = ("--source", str(folder / "table.csv"), "--target", "spend")
    return trained(folder, *source, "--task", "regression", epochs=5)


@pytest.fixture(scope="session")
def optimise() -> Optimise:
    """Run the command line; returns what it did."""

    def run(run: Path, dataset: Path, output: Path, *more: str) -> Any:
        return module(
            "falaj.workloads.optimization", "--run", str(run), "--dataset", str(dataset),
            "--output", str(output), *more,
        )  # fmt: skip

    return run


@pytest.fixture(scope="session")
def optimised(digits: Run, optimise: Optimise, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits' output folder."""
    output = tmp_path_factory.mktemp("optimised") / "output"
    done = optimise(digits.path, digits.dataset, output, "--json")
    assert done.returncode == 0, done.stderr
    (output.parent / "stdout.json").write_text(done.stdout, encoding="utf-8")
    return output
