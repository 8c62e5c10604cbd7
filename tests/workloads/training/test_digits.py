"""The promise about the digits: 98 % on rows that training never saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.checkpoint import load_trained


@pytest.mark.thorough
@pytest.mark.slow
def test_digits_reach_98_percent(train: Any, tmp_path: Path) -> None:
    dataset = datasets.build(datasets.Source("digits", seed=0))
    assert train(dataset, tmp_path / "run") == 0
    record = load_trained(tmp_path / "run", None).record
    held_out = record["metrics"]["held_out"]
    assert held_out["rows"] == 359
    assert held_out["accuracy"] >= 0.98
    assert all(figures["recall"] > 0.9 for figures in held_out["per_class"].values())


@pytest.mark.slow
def test_breast_cancer_table_is_learned(train: Any, write_csv: Any, tmp_path: Path) -> None:
    from sklearn.datasets import load_breast_cancer

    data: Any = load_breast_cancer()
    names = data.target_names[data.target]
    rows = [[*values, name] for values, name in zip(data.data.tolist(), names, strict=True)]
    path = write_csv([*data.feature_names, "diagnosis"], rows)
    dataset = datasets.build(datasets.Source(str(path), "diagnosis"))
    assert train(dataset, tmp_path / "run") == 0
    held_out = load_trained(tmp_path / "run", None).record["metrics"]["held_out"]
    # Of 113 rows a share of 95 % has a standard error of 2 points; always benign is right in 63 %.
    assert held_out["accuracy"] >= 0.93
