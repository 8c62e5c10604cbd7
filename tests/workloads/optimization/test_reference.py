"""What a package says of its model's answers on held-out rows, as a server reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from falaj.workloads.inference.drift import reference as served
from falaj.workloads.optimization import reference
from tests.workloads.optimization.conftest import Optimise, Run


def test_answers_of_classes_are_described() -> None:
    random = np.random.default_rng(0)
    answers = random.dirichlet([1, 1, 1], 200)
    labels = np.array([random.choice(3, p=row) for row in answers])
    found = reference.outputs(answers, labels, ["a", "b", "c"])
    assert sum(found["counts"].values()) == found["confidence"]["count"] == 200
    assert list(found["counts"].values()) == np.bincount(answers.argmax(axis=1)).tolist()
    assert found["log_loss"] == pytest.approx(-np.log(answers[np.arange(200), labels]).mean())
    assert sum(rows for _, _, rows in found["calibration"]) == 200
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_answers_of_few_rows_and_of_numbers_are_described() -> None:
    few = reference.outputs(np.array([[0.2, 0.8]]), np.array([0]), ["a", "b"])
    assert few["calibration"] == [[0.8, 0.0, 1]]
    numbers = reference.outputs(np.array([[1.0], [3.0]]), np.array([2.0, 3.0]), None)
    assert numbers["rmse"] == pytest.approx(np.sqrt(0.5))
    assert numbers["count"] == 2


@pytest.mark.thorough
@pytest.mark.slow
def test_packages_of_pictures_and_tables_have_a_reference(
    optimised: Path, customers: Run, optimise: Optimise, tmp_path: Path
) -> None:
    made = optimise(customers.path, customers.dataset, tmp_path / "table", "--accept", "any")
    assert made.returncode == 0, made.stderr
    for folder, pictures in ((optimised, True), (tmp_path / "table", False)):
        fields: dict[str, Any] = json.loads((folder / "fields.json").read_text())
        found = served.read(served.part_of(fields))
        assert found.is_known
        assert found.level is not None
        assert found.mix is not None
        assert found.log_loss is not None
        assert len(found.features) == (11 if pictures else len(fields["inputs"]))
