"""8-bit models against float ones: one row at a time, one thread, in turns, in the same run."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from falaj.workloads.optimization.comparison import (
    needs_reduced_range,
    open_session,
    score,
)
from falaj.workloads.optimization.export import CALIBRATION_ROWS, assemble, export_module, quantise
from falaj.workloads.optimization.pipeline import serving_of
from falaj.workloads.processor import relevant_cpu_flags
from falaj.workloads.training.checkpoint import load_rows, load_trained
from falaj.workloads.training.snapshot import pick_rows

pytestmark = pytest.mark.benchmark_suite

_CALLS = 30  # a round stays below a scheduler's time slice
_ROUNDS = 300


@dataclass(frozen=True)
class Candidate:
    """One of the two models."""

    run: Callable[[], None]
    accuracy: float
    size: int


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    made = command("dataset", "--source", "digits", "--output", str(folder), "--json")
    return Path(json.loads(made.splitlines()[-1])["path"])


def command(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "falaj.workloads.training", *arguments],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def candidates(dataset: Path, run: Path) -> dict[str, Candidate]:
    """Make both models from a trained run, as the command line does."""
    trained = load_trained(run, None)
    train, held_out = (load_rows(dataset, None, part) for part in ("train", "held_out"))
    serving = serving_of(trained, held_out)
    core = export_module(trained.module, serving.shape)
    rows = train.inputs["image"][pick_rows(len(train.labels), CALIBRATION_ROWS)]
    small = quantise(core, rows, needs_reduced_range(relevant_cpu_flags()))
    one = {"image": held_out.inputs["image"][:1]}
    made: dict[str, Candidate] = {}
    for name, inner in (("float", core), ("int8", small)):
        data = assemble(inner, serving).SerializeToString()
        accuracy = score(data, serving, held_out.inputs, held_out.labels)
        made[name] = Candidate(repeat(open_session(data), one), accuracy, len(data))
    return made


def repeat(session: Any, feed: dict[str, Any]) -> Callable[[], None]:
    def call() -> None:
        for _ in range(_CALLS):
            session.run(None, feed)

    return call


@pytest.mark.timeout(600)
@pytest.mark.parametrize("width", [16, 64])
def test_int8_against_float(
    dataset: Path, tmp_path: Path, benchmark: BenchmarkFixture, width: int
) -> None:
    """Width 16 is what is trained by default; 64 shows where arithmetic begins to count."""
    run = tmp_path / "run"
    command(
        "run", "--dataset", str(dataset), "--output", str(run), "--epochs", "8",
        "--width", str(width), "--device", "cpu",
    )  # fmt: skip
    made = candidates(dataset, run)
    for candidate in made.values():
        candidate.run()
    floats: list[float] = []

    def peer() -> None:
        # Before each measured round, so that both see the same state of the machine.
        started = time.perf_counter()
        made["float"].run()
        floats.append(time.perf_counter() - started)

    benchmark.pedantic(made["int8"].run, setup=peer, rounds=_ROUNDS, iterations=1)
    times = {
        "float": statistics.median(floats) / _CALLS * 1e6,
        "int8": benchmark.stats.stats.median / _CALLS * 1e6,
    }
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"\nwidth {width}, one row, one thread; {load}; {' '.join(relevant_cpu_flags())}")
    for name, item in made.items():
        print(
            f"  {name:>5}: {times[name]:7.1f} µs, {item.size:9,} bytes, "
            f"held-out accuracy {100 * item.accuracy:.2f} %"
        )
    print(f"  int8 takes {times['int8'] / times['float']:.2f} of float's time")
    assert made["int8"].size < made["float"].size
