"""Small trained runs that the tests of optimisation share, made by the command lines.

A process imports torch for seconds, so the command lines are called in this one. As a process each
is run elsewhere: training by its tests of signals, optimisation for `optimised`.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from falaj.workloads.optimization import __main__ as optimization
from falaj.workloads.training import command as training
from falaj.workloads.training.stopping import StopRequest
from tests.made_once import made_once


@dataclass(frozen=True)
class Run:
    """A finished run and the snapshot that it was trained on."""

    path: Path
    dataset: Path


@dataclass(frozen=True)
class Done:
    """How a command line ended and what it said."""

    returncode: int
    stdout: str
    stderr: str


Optimise = Callable[..., Done]


def called(main: Callable[[list[str]], int], *arguments: str) -> Done:
    """Run a command line in this process, whose signal handlers stay as they are."""
    said, errors = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(errors),
    ):
        patch.setattr(StopRequest, "install", lambda _: None)
        status = main(list(arguments))
    return Done(status, said.getvalue(), errors.getvalue())


def trained(
    folder: Path, *source: str, epochs: int, model: str = "network", more: tuple[str, ...] = ()
) -> Run:
    made = called(training.main, "dataset", *source, "--output", str(folder), "--json")
    assert made.returncode == 0, made.stderr
    dataset = Path(json.loads(made.stdout.splitlines()[-1])["path"])
    run = called(
        training.main, "run", "--dataset", str(dataset), "--output", str(folder / "run"),
        "--epochs", str(epochs), "--device", "cpu", "--threads", "1", "--model", model,
        "--progress", "json", *more,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return Run(folder / "run", dataset)


def kept(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Run]) -> Run:
    """The run that ``make`` trains in a folder, once for all workers."""

    def train(folder: Path) -> None:
        (folder / "dataset.txt").write_text(str(make(folder).dataset), encoding="utf-8")

    folder = made_once(factory, name, train)
    return Run(folder / "run", Path((folder / "dataset.txt").read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return kept(
        tmp_path_factory, "digits", lambda folder: trained(folder, "--source", "digits", epochs=6)
    )


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

    def make(folder: Path) -> Run:
        write_customers(folder / "table.csv")
        source = ("--source", str(folder / "table.csv"), "--target", "churn")
        return trained(folder, *source, epochs=5)

    return kept(tmp_path_factory, "customers", make)


@pytest.fixture(scope="session")
def spending(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A regression on a table."""

    def make(folder: Path) -> Run:
        write_customers(folder / "table.csv")
        source = ("--source", str(folder / "table.csv"), "--target", "spend")
        return trained(folder, *source, "--task", "regression", epochs=5)

    return kept(tmp_path_factory, "spending", make)


@pytest.fixture(scope="session")
def optimise() -> Optimise:
    """Run the command line; returns what it did."""

    def run(run: Path, dataset: Path, output: Path, *more: str) -> Done:
        arguments = ("--run", str(run), "--dataset", str(dataset), "--output", str(output))
        return called(optimization.main, *arguments, *more)

    return run


@pytest.fixture(scope="session")
def optimised(digits: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits' output folder, made by a process."""

    def make(folder: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "falaj.workloads.optimization", "--run", str(digits.path),
             "--dataset", str(digits.dataset), "--output", str(folder / "output"), "--json"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (folder / "stdout.json").write_text(done.stdout, encoding="utf-8")

    return made_once(tmp_path_factory, "optimised", make) / "output"
