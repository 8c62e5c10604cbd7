"""Two processes against one in training, in turns, through the command line."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

pytestmark = pytest.mark.benchmark_suite

_EPOCHS = 3
_ROUNDS = 3


def command(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "falaj.workloads.training", *arguments],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


class Trainer:
    """Trains the digits afresh each time; knows the rows it went through."""

    def __init__(self, folder: Path, width: int, batch_size: int) -> None:
        self._folder = folder
        self._options = ["--width", str(width), "--batch-size", str(batch_size)]
        made = command("dataset", "--source", "digits", "--output", str(folder), "--json")
        described = json.loads(made.splitlines()[-1])
        self._dataset = described["path"]
        self._rows = int(described["rows"]["train"])

    def rows_per_second(self, processes: int, threads: int) -> float:
        """Train once; return training rows per second, without start-up and evaluation."""
        output = self._folder / f"run-{processes}-{threads}"
        command(
            "run", "--dataset", self._dataset, "--output", str(output), "--device", "cpu",
            "--epochs", str(_EPOCHS), "--processes", str(processes), "--threads", str(threads),
            "--resume", "never", *self._options,
        )  # fmt: skip
        record = json.loads((output / "record.json").read_text(encoding="utf-8"))
        return self._rows * _EPOCHS / float(record["timings"]["training_seconds"])


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("width", "batch_size"), [(16, 64), (64, 256)])
def test_two_processes_against_one(
    tmp_path: Path, benchmark: BenchmarkFixture, width: int, batch_size: int
) -> None:
    """The default model, whose steps are shorter than the exchange of gradients; and a larger."""
    trainer = Trainer(tmp_path, width, batch_size)
    rates: dict[str, list[float]] = {"1 x 1": [], "1 x 2": [], "2 x 1": []}

    def peers() -> None:
        # Before each measured round, so that all see the same state of the machine.
        rates["1 x 1"].append(trainer.rows_per_second(processes=1, threads=1))
        rates["1 x 2"].append(trainer.rows_per_second(processes=1, threads=2))

    def two() -> None:
        rates["2 x 1"].append(trainer.rows_per_second(processes=2, threads=1))

    benchmark.pedantic(two, setup=peers, rounds=_ROUNDS, iterations=1)
    print(f"\nwidth {width}, batches of {batch_size}: training rows per second")
    one = statistics.median(rates["1 x 1"])
    for name, values in rates.items():
        rate = statistics.median(values)
        print(f"  {name} (processes x threads): {rate:8,.0f}, {rate / one:.2f} of one process")
    assert all(len(values) == _ROUNDS for values in rates.values())
