"""Small tables and runs for the tests of training."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from falaj.workloads.training import dataset as datasets
from falaj.workloads.training import distributed, launcher, shard_set
from falaj.workloads.training.distillation import open_teacher
from falaj.workloads.training.finishing import Setting
from falaj.workloads.training.options import Requested
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.session import Session
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.start import open_start
from falaj.workloads.training.stopping import StopRequest
from tests.workloads.training.tracking_server import Store, serving

WriteCsv = Callable[..., Path]
Train = Callable[..., int]


class StopAfter(StopRequest):
    """Asked to stop after so many looks."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    def asked(self) -> bool:
        self._looks -= 1
        return self._looks < 0


@pytest.fixture
def store() -> Store:
    """What the tracking server at ``server`` has."""
    return Store()


@pytest.fixture
def server(store: Store) -> Iterator[str]:
    """The address of a tracking server."""
    with serving(store) as url:
        yield url


@pytest.fixture
def write_csv(tmp_path: Path) -> WriteCsv:
    def write(header: list[str], rows: list[list[Any]], name: str = "table.csv") -> Path:
        path = tmp_path / name
        with path.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([header, *rows])
        return path

    return write


@pytest.fixture
def mixed_rows() -> list[list[Any]]:
    """120 customers: id, city, age (some missing), income, owner, empty, and the target churn."""
    random = np.random.default_rng(5)
    rows: list[list[Any]] = []
    for number in range(120):
        city = str(random.choice(["Dubai", "Sharjah", "العين", ""]))
        age = int(random.integers(18, 80))
        owner = bool(random.random() < 0.5)
        churn = (age > 50) != (city == "Dubai" and owner)
        shown = "" if random.random() < 0.1 else age
        income = round(float(random.lognormal(9, 0.5)), 2)
        rows.append([f"C{number}", city, shown, income, owner, "", "yes" if churn else "no"])
    return rows


MIXED_HEADER = ["customer", "city", "age", "income", "owner", "note", "churn"]


@pytest.fixture
def mixed(write_csv: WriteCsv, mixed_rows: list[list[Any]]) -> Path:
    return write_csv(MIXED_HEADER, mixed_rows)


@pytest.fixture
def mixed_dataset(mixed: Path) -> Dataset:
    return datasets.build(datasets.Source(str(mixed), "churn", seed=3))


@pytest.fixture
def train() -> Train:
    """Train in this process; returns the exit status."""

    def run(
        dataset: Dataset,
        output: Path,
        stop: StopRequest | None = None,
        teacher_run: Path | None = None,
        start_run: Path | None = None,
        **requested: Any,
    ) -> int:
        teacher = None if teacher_run is None else open_teacher(teacher_run, None, dataset)
        values: dict[str, Any] = {"device": "cpu", **requested}
        start = None if start_run is None else open_start(start_run, None, dataset)
        parameters = launcher.resolve(Requested(**values), dataset, None, teacher, start)
        identity = parameters.identity(dataset.digest)
        output.mkdir(exist_ok=True)
        resume = (output / "checkpoint").exists()
        setting = Setting(
            dataset, parameters, output, None, identity, resume, teacher=teacher, start=start
        )
        progress = Progress("json", True, lambda: None)
        return Session(setting, distributed.join("cpu"), stop or StopRequest(), progress).run()

    return run


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of a few rows or windows: that a few hundred rows, or a small text, have many."""
    monkeypatch.setattr(shard_set, "LEAST_SHARD", 2_000)
