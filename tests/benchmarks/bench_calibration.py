"""Log loss of held-out rows beside scikit-learn's own models, on five of its data sets."""

from __future__ import annotations

import csv
import json
import statistics
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pytest_benchmark.fixture import BenchmarkFixture
from sklearn import datasets as published
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.training.snapshot import Dataset, open_dataset
from tests.benchmarks.bench_training import command

pytestmark = pytest.mark.benchmark_suite

_SEEDS: Final = (0, 1, 2)
"""Of splits: the log loss of some forty rows depends on which these are."""
_MOST: Final = 1.05
"""Times the best peer's log loss."""


def _logistic() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2_000))


def _boosted() -> Any:
    return HistGradientBoostingClassifier(random_state=0)


_PEERS: Final[dict[str, Callable[[], Any]]] = {
    "logistic regression": _logistic,
    "boosted trees": _boosted,
    "boosted trees, calibrated": lambda: CalibratedClassifierCV(_boosted()),
    "logistic, calibrated": lambda: CalibratedClassifierCV(_logistic()),
}


def _table(name: str, path: Path) -> Path:
    """Write a data set as a table; of the diabetes' progress, whether it is above the median."""
    loaded: Any = getattr(published, f"load_{name}")()
    target = np.asarray(loaded.target)
    if name == "diabetes":
        target = (target > np.median(target)).astype(int)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow([*(str(each).replace(" ", "_") for each in loaded.feature_names), "class"])
        for row, label in zip(loaded.data.tolist(), target.tolist(), strict=True):
            writer.writerow([*row, f"c{label}"])
    return path


def _matrix(dataset: Dataset) -> NDArray[np.float64]:
    return np.stack(list(dataset.inputs.values()), axis=1)


class Compared:
    """Trains on one data set, split several times, and has the peers learn from the same rows."""

    def __init__(self, name: str, folder: Path) -> None:
        self._source = _table(name, folder / f"{name}.csv")
        self._folder = folder
        self.losses: dict[str, list[float]] = {}
        self.kept: list[str] = []

    def measure(self, seed: int) -> None:
        """Split, train through the command line, and note every model's log loss."""
        made = command(
            "dataset", "--source", str(self._source), "--target", "class", "--task",
            "classification", "--seed", str(seed), "--output", str(self._folder), "--json",
        )  # fmt: skip
        path = Path(json.loads(made.splitlines()[-1])["path"])
        run = self._folder / f"run-{seed}"
        command(
            "run", "--dataset", str(path), "--output", str(run), "--seed", str(seed), "--device",
            "cpu",
        )  # fmt: skip
        dataset, trained = open_dataset(path, None), load_trained(run, None)
        train, held_out = dataset.rows("train"), dataset.rows("held_out")
        assert trained.preprocessing is not None
        features = trained.preprocessing.transform(
            {key: values[held_out] for key, values in dataset.inputs.items()}
        )
        with torch.no_grad():
            logits = trained.module(torch.from_numpy(features)).double()
        self.kept.append(trained.record["model"]["choice"]["kept"])
        self._note("falaj", dataset, torch.softmax(logits, dim=1).numpy())
        matrix = _matrix(dataset)
        for name, make in _PEERS.items():
            learned = make().fit(matrix[train], dataset.labels[train])
            self._note(name, dataset, learned.predict_proba(matrix[held_out]))

    def _note(self, name: str, dataset: Dataset, chances: NDArray[np.float64]) -> None:
        labels = dataset.labels[dataset.rows("held_out")]
        loss = float(log_loss(labels, chances, labels=list(range(len(dataset.classes or ())))))
        self.losses.setdefault(name, []).append(loss)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "diabetes", "digits"])
def test_log_loss_beside_peers(tmp_path: Path, benchmark: BenchmarkFixture, name: str) -> None:
    """The mean over the splits is within 5 % of the best peer's."""
    compared = Compared(name, tmp_path)
    seeds = iter(_SEEDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        benchmark.pedantic(lambda: compared.measure(next(seeds)), rounds=len(_SEEDS), iterations=1)
    means = {each: statistics.fmean(losses) for each, losses in compared.losses.items()}
    ours, best = means.pop("falaj"), min(means.values())
    print(f"\n{name}: mean log loss of {len(_SEEDS)} splits (kept: {', '.join(compared.kept)})")
    print(f"  falaj {ours:.4f}, {ours / best:.2f} of the best peer's")
    for each, loss in means.items():
        print(f"  {each} {loss:.4f}")
    assert ours <= _MOST * best
