"""Runs go into a file in MLflow's form, once, whatever breaks off.

MLflow 3.17.2 opened files that were written so, brought them to its own form, and showed the same
runs, figures and data sets; they were written on.
"""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.training import record as records
from falaj.workloads.training import tracking, tracking_database
from falaj.workloads.training.command import main
from falaj.workloads.training.tracking import PARENT, Destination, Nested, is_whole, sync
from falaj.workloads.training.tracking_database import Database
from falaj.workloads.training.tracking_store import TrackingError
from tests.workloads.training.test_tracking import RECORD


@pytest.fixture
def run(tmp_path: Path) -> Path:
    output = tmp_path / "run"
    output.mkdir()
    records.begin(output, "1d" * 32, {"epochs": 2, "options": {"a": "b" * 900}}, "cb1f" * 16)
    _epoch(output, 1, 1.0)
    return output


def _epoch(output: Path, epoch: int, loss: float) -> None:
    records.add_metrics(output, {"epoch": epoch, "loss": loss, "seconds": 1.5 * epoch})


def _finish(output: Path) -> None:
    (output / records.MODEL).write_bytes(b"weights")
    (output / records.RECORD).write_text(json.dumps(RECORD))


def _rows(path: Path, question: str, *given: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as rows:
        return rows.execute(question, given).fetchall()


def _all(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as rows:
        return list(rows.iterdump())


def test_a_file_beside_a_server_or_with_what_is_of_one(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, file = ["track", "--run", str(run)], ["--tracking-file", str(run / "mlflow.db")]
    for more, said in (
        ([], "missing: --tracking with the address of a server, or --tracking-file"),
        ([*file, "--tracking", "http://127.0.0.1:1"], "two places for the same run"),
        ([*file, "--tracking-secret", "x"], "--tracking-secret is of a tracking server"),
        (["--tracking-file", str(run)], "allowed is a file in a folder that is there"),
        (["--tracking-file", str(run / "none" / "a.db")], "allowed is a file in a folder"),
        ([*file, "--tracking-experiment", "a'b"], "--tracking-experiment"),
    ):
        assert main([*words, *more]) == 2
        assert said in capsys.readouterr().err
    assert not (run / "mlflow.db").exists()


def test_what_is_no_file_of_runs_is_left_as_it_is(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mlflow.db"
    path.write_bytes(b"no database, but more than a hundred bytes of something else" * 9)
    before = path.read_bytes()
    with pytest.raises(TrackingError, match="file is not a database"):
        sync(run, Destination.of_file(path))
    assert path.read_bytes() == before
    path.unlink()
    with closing(sqlite3.connect(path)) as rows:
        rows.execute("CREATE TABLE orders (number INTEGER)")
    with pytest.raises(TrackingError, match="of another program: name a new file"):
        sync(run, Destination.of_file(path))
    assert _rows(path, "SELECT name FROM sqlite_master") == [("orders",)]
    path.unlink()
    monkeypatch.setattr(tracking_database, "_WAIT_SECONDS", 0)
    destination = Destination.of_file(path)
    sync(run, destination)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        _finish(run)
        with pytest.raises(TrackingError, match="database is locked"):
            sync(run, destination)
    assert not is_whole(run, destination)


def test_a_run_is_there_as_it_goes_and_once(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    destination = Destination.of_file(path, "churn")
    destination.check()
    name = sync(run, destination)
    assert path.stat().st_mode & 0o777 == 0o600
    assert _rows(path, "SELECT status, end_time FROM runs") == [("RUNNING", None)]
    _epoch(run, 2, math.nan)
    _finish(run)
    assert sync(run, destination) == name
    ((found, status, seconds),) = _rows(
        path, "SELECT run_uuid, status, end_time - start_time FROM runs"
    )
    assert (found, status, seconds) == (name, "FINISHED", 3500)
    params = dict(_rows(path, 'SELECT "key", value FROM params'))
    assert (params["epochs"], len(params["options"])) == ("2", 500)
    figures = "SELECT step, value, is_nan FROM {} WHERE \"key\" = 'loss' ORDER BY step"
    assert _rows(path, figures.format("metrics")) == [(1, 1.0, 0), (2, 0.0, 1)]
    assert _rows(path, figures.format("latest_metrics")) == [(2, 0.0, 1)]
    tags = dict(_rows(path, 'SELECT "key", value FROM tags'))
    assert (tags["mlflow.runName"], tags["falaj.code.digest"]) == ("run", "c0de")
    assert tags["falaj.environment.cpu_flags"] == "avx avx2"
    used = (
        "SELECT datasets.name, digest, input_tags.value, experiments.name FROM inputs "
        "JOIN datasets ON dataset_uuid = source_id JOIN input_tags USING (input_uuid) "
        "JOIN experiments USING (experiment_id) WHERE destination_id = ?"
    )
    assert _rows(path, used, name) == [("churn.csv", ("cb1f" * 16)[:36], "training", "churn")]
    before = _all(path)
    assert sync(run, destination) == name
    # What was sent isn't noted: it is found, and nothing is there twice.
    noted = json.loads((run / records.TRACKING).read_text())
    fresh = {key: noted[key] for key in ("attempt", "begun", "server", "experiment")}
    (run / records.TRACKING).write_text(json.dumps({**fresh, "epoch": 0, "status": ""}))
    assert sync(run, destination) == name
    assert _all(path) == before
    path.unlink()
    assert not is_whole(run, destination)
    sync(run, destination)
    assert _rows(path, "SELECT status FROM runs") == [("FINISHED",)]


@pytest.mark.parametrize("steps", range(6))
def test_whatever_breaks_off_a_run_is_whole_afterwards(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    _finish(run)
    destination, left = Destination.of_file(tmp_path / "mlflow.db"), [steps]
    real = Database._lay_out  # pyright: ignore[reportPrivateUsage]

    def breaking(self: Database, rows: sqlite3.Connection) -> None:
        real(self, rows)
        if not left[0]:
            raise sqlite3.OperationalError("disk I/O error")
        left[0] -= 1

    monkeypatch.setattr(Database, "_lay_out", breaking)
    with pytest.raises(TrackingError, match="disk I/O error"):
        sync(run, destination)
    left[0] = -1
    name = sync(run, destination)
    path = tmp_path / "mlflow.db"
    assert _rows(path, "SELECT run_uuid, status FROM runs") == [(name, "FINISHED")]
    assert _rows(path, "SELECT COUNT(*) FROM metrics WHERE \"key\" = 'loss'") == [(1,)]


def test_a_run_below_another_in_a_file_that_mlflow_has_brought_to_a_later_form(
    run: Path, tmp_path: Path
) -> None:
    path = tmp_path / "mlflow.db"
    destination = Destination.of_file(path)
    outer = destination.store().run_of("a" * 32, "sweep", 1000, tracking.SOURCE)
    with closing(sqlite3.connect(path)) as rows:
        rows.execute("ALTER TABLE experiments ADD COLUMN workspace VARCHAR(63) DEFAULT 'default'")
        rows.execute("ALTER TABLE inputs ADD COLUMN step BIGINT DEFAULT '0' NOT NULL")
        rows.execute("CREATE TABLE trace_info (request_id VARCHAR(50) NOT NULL)")
        rows.execute("UPDATE alembic_version SET version_num = 'dc11669786a5'")
        rows.commit()
    _finish(run)
    name = sync(run, destination, nested=Nested(outer, {"falaj.trial": 3}, {"falaj.ended": "x"}))
    tags = dict(_rows(path, 'SELECT "key", value FROM tags WHERE run_uuid = ?', name))
    assert (tags[PARENT], tags["falaj.trial"], tags["falaj.ended"]) == (outer, "3", "x")
    with closing(sqlite3.connect(path)) as rows:
        rows.execute("UPDATE experiments SET lifecycle_stage = 'deleted'")
        rows.commit()
    with pytest.raises(TrackingError, match="was deleted there: restore it"):
        destination.store().run_of("b" * 32, "run", 1000, {})


@given(st.floats())
def test_every_figure_can_be_kept(value: float) -> None:
    kept, is_nan = tracking_database._kept(value)  # pyright: ignore[reportPrivateUsage]
    assert is_nan == math.isnan(value)
    assert math.isfinite(kept)
    assert math.isnan(value) or math.isinf(value) or kept == value
