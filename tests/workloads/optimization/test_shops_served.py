"""Tables of small businesses, from the file to the graph that answers raw rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from falaj.workloads.optimization.comparison import open_session
from falaj.workloads.training.checkpoint import load_rows
from tests.workloads.optimization.conftest import Optimise, trained
from tests.workloads.shops import write_churn, write_tickets

pytestmark = [pytest.mark.thorough]


def test_customers_of_whom_few_leave(tmp_path: Path, optimise: Optimise) -> None:
    table = write_churn(tmp_path / "t.csv", rows=3_000)
    run = trained(tmp_path, "--source", str(table), "--target", "left", epochs=2, model="auto")
    record = json.loads((run.path / "record.json").read_text())
    assert record["model"]["choice"]["kept"] == "trees"
    done = optimise(run.path, run.dataset, tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    fields = json.loads((tmp_path / "out" / "fields.json").read_text())
    card, worth = fields["metrics"]["card"], fields["metrics"]["worth"]
    assert worth["model"]["log_loss"] < 0.85 * worth["baseline"]["log_loss"]
    said = card["calibration"]["yes"]
    assert said["mean_probability"] == pytest.approx(said["share"], abs=0.012)
    assert card["auc"] > 0.8


def test_tickets_are_answered_as_they_were_written(tmp_path: Path, optimise: Optimise) -> None:
    table = write_tickets(tmp_path / "t.csv")
    run = trained(tmp_path, "--source", str(table), "--target", "queue", epochs=12, model="auto")
    done = optimise(run.path, run.dataset, tmp_path / "out", "--quantise", "never", "--json")
    assert done.returncode == 0, done.stderr
    session = open_session((tmp_path / "out" / "model.onnx").read_bytes())
    texts = np.array([["الفاتورة فيها خطأ في المبلغ"], ["والسائق لم يأت بالشحنة"]], dtype=object)
    hours = np.array([[9.0], [np.nan]], dtype=np.float32)
    answers = session.run(["label"], {"text": texts, "hour": hours})[0]
    assert list(answers)[1] == "delivery"
    held_out = load_rows(run.dataset, None, "held_out")
    (labels,) = session.run(["label"], held_out.inputs)
    classes = json.loads(done.stdout)["worth"]
    assert classes["model"]["accuracy"] > 0.85
    assert len(labels) == len(held_out.labels)
