"""Keeps records of runs in an SQLite file that MLflow reads, with nobody to send them to.

The tables are MLflow's, as far as its revision 7f2a7d5fae7d (MLflow 2.4) has them: all of those
that runs need are there, and no later one. An MLflow that opens the file (``mlflow server
--backend-store-uri sqlite:////…``) misses its later tables, and brings the file to its own form by
its migrations; what is written here names the columns, and later forms have them all. A file of
MLflow's own may be named as well. MLflow's other local form, the folder ``mlruns``, is none for
new runs: from 3.13 on it opens that only when told so by a variable of the environment.

https://mlflow.org/docs/latest/self-hosting/architecture/backend-store, and the models of
mlflow/store/tracking/dbmodels.
"""

from __future__ import annotations

import math
import os
import sqlite3
import stat
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from falaj.workloads.training.tracking_store import (
    ATTEMPT,
    CONTEXT,
    TRAINED_ON,
    TrackingError,
    key_of,
    text_of,
)

_WAIT_SECONDS: Final = 15.0
"""For another one that writes."""
_REVISION: Final = "7f2a7d5fae7d"
_LARGEST: Final = 1.7976931348623157e308
"""What MLflow keeps for infinity."""

_KEY, _TAGGED = '"key" VARCHAR(250) NOT NULL', "value VARCHAR(5000)"
_OF_RUN: Final = "FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid)"
_OF_EXPERIMENT: Final = "FOREIGN KEY(experiment_id) REFERENCES experiments (experiment_id)"
_TIMES: Final = "creation_time BIGINT, last_updated_time BIGINT, description VARCHAR(5000)"
_FIGURE: Final = "is_nan BOOLEAN DEFAULT '0' NOT NULL, run_uuid VARCHAR(32) NOT NULL"
#: Migrations look for constraints by their names. Those of registered models stay empty.
_TABLES: Final[Mapping[str, str]] = {
    "alembic_version": (
        "version_num VARCHAR(32) NOT NULL, "
        "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)"
    ),
    "experiments": (
        "experiment_id INTEGER NOT NULL, name VARCHAR(256) NOT NULL, "
        "artifact_location VARCHAR(256), lifecycle_stage VARCHAR(32), creation_time BIGINT, "
        "last_update_time BIGINT, CONSTRAINT experiment_pk PRIMARY KEY (experiment_id), "
        "CONSTRAINT experiments_lifecycle_stage CHECK (lifecycle_stage IN ('active', 'deleted')), "
        "UNIQUE (name)"
    ),
    "experiment_tags": (
        f"{_KEY}, {_TAGGED}, experiment_id INTEGER NOT NULL, "
        f'CONSTRAINT experiment_tag_pk PRIMARY KEY ("key", experiment_id), {_OF_EXPERIMENT}'
    ),
    "runs": (
        "run_uuid VARCHAR(32) NOT NULL, name VARCHAR(250), source_type VARCHAR(20), "
        "source_name VARCHAR(500), entry_point_name VARCHAR(50), user_id VARCHAR(256), "
        "status VARCHAR(9), start_time BIGINT, end_time BIGINT, source_version VARCHAR(50), "
        "lifecycle_stage VARCHAR(20), artifact_uri VARCHAR(200), experiment_id INTEGER, "
        "deleted_time BIGINT, CONSTRAINT run_pk PRIMARY KEY (run_uuid), "
        "CONSTRAINT runs_lifecycle_stage CHECK (lifecycle_stage IN ('active', 'deleted')), "
        "CONSTRAINT source_type CHECK "
        "(source_type IN ('NOTEBOOK', 'JOB', 'LOCAL', 'UNKNOWN', 'PROJECT')), "
        f"{_OF_EXPERIMENT}, "
        "CHECK (status IN ('SCHEDULED', 'FAILED', 'FINISHED', 'RUNNING', 'KILLED'))"
    ),
    "tags": (
        f"{_KEY}, {_TAGGED}, run_uuid VARCHAR(32) NOT NULL, "
        f'CONSTRAINT tag_pk PRIMARY KEY ("key", run_uuid), {_OF_RUN}'
    ),
    "params": (
        f"{_KEY}, value VARCHAR(500) NOT NULL, run_uuid VARCHAR(32) NOT NULL, "
        f'CONSTRAINT param_pk PRIMARY KEY ("key", run_uuid), {_OF_RUN}'
    ),
    "metrics": (
        f"{_KEY}, value FLOAT NOT NULL, timestamp BIGINT NOT NULL, "
        f"step BIGINT DEFAULT '0' NOT NULL, {_FIGURE}, CONSTRAINT metric_pk "
        f'PRIMARY KEY ("key", timestamp, step, run_uuid, value, is_nan), {_OF_RUN}, '
        "CHECK (is_nan IN (0, 1))"
    ),
    "latest_metrics": (
        f"{_KEY}, value FLOAT NOT NULL, timestamp BIGINT, step BIGINT NOT NULL, {_FIGURE}, "
        f'CONSTRAINT latest_metric_pk PRIMARY KEY ("key", run_uuid), {_OF_RUN}, '
        "CHECK (is_nan IN (0, 1))"
    ),
    "datasets": (
        "dataset_uuid VARCHAR(36) NOT NULL, experiment_id INTEGER NOT NULL, "
        "name VARCHAR(500) NOT NULL, digest VARCHAR(36) NOT NULL, "
        "dataset_source_type VARCHAR(36) NOT NULL, dataset_source TEXT NOT NULL, "
        "dataset_schema TEXT, dataset_profile TEXT, "
        f"CONSTRAINT dataset_pk PRIMARY KEY (experiment_id, name, digest), {_OF_EXPERIMENT}"
    ),
    "inputs": (
        "input_uuid VARCHAR(36) NOT NULL, source_type VARCHAR(36) NOT NULL, "
        "source_id VARCHAR(36) NOT NULL, destination_type VARCHAR(36) NOT NULL, "
        "destination_id VARCHAR(36) NOT NULL, CONSTRAINT inputs_pk "
        "PRIMARY KEY (source_type, source_id, destination_type, destination_id)"
    ),
    "input_tags": (
        "input_uuid VARCHAR(36) NOT NULL, name VARCHAR(255) NOT NULL, "
        "value VARCHAR(500) NOT NULL, CONSTRAINT input_tags_pk PRIMARY KEY (input_uuid, name)"
    ),
    "registered_models": (
        f"name VARCHAR(256) NOT NULL, {_TIMES}, "
        "CONSTRAINT registered_model_pk PRIMARY KEY (name), UNIQUE (name)"
    ),
    "registered_model_tags": (
        f"{_KEY}, {_TAGGED}, name VARCHAR(256) NOT NULL, "
        'CONSTRAINT registered_model_tag_pk PRIMARY KEY ("key", name), '
        "FOREIGN KEY(name) REFERENCES registered_models (name) ON UPDATE CASCADE"
    ),
    "registered_model_aliases": (
        "alias VARCHAR(256) NOT NULL, version INTEGER NOT NULL, name VARCHAR(256) NOT NULL, "
        "CONSTRAINT registered_model_alias_pk PRIMARY KEY (name, alias), "
        "CONSTRAINT registered_model_alias_name_fkey FOREIGN KEY(name) "
        "REFERENCES registered_models (name) ON DELETE CASCADE ON UPDATE CASCADE"
    ),
    "model_versions": (
        f"name VARCHAR(256) NOT NULL, version INTEGER NOT NULL, {_TIMES}, user_id VARCHAR(256), "
        "current_stage VARCHAR(20), source VARCHAR(500), run_id VARCHAR(32), status VARCHAR(20), "
        "status_message VARCHAR(500), run_link VARCHAR(500), "
        "CONSTRAINT model_version_pk PRIMARY KEY (name, version), "
        "FOREIGN KEY(name) REFERENCES registered_models (name) ON UPDATE CASCADE"
    ),
    "model_version_tags": (
        f"{_KEY}, {_TAGGED}, name VARCHAR(256) NOT NULL, version INTEGER NOT NULL, "
        'CONSTRAINT model_version_tag_pk PRIMARY KEY ("key", name, version), '
        "FOREIGN KEY(name, version) REFERENCES model_versions (name, version) ON UPDATE CASCADE"
    ),
}
_INDEXES: Final[Mapping[str, str]] = {
    "index_datasets_dataset_uuid": "datasets (dataset_uuid)",
    "index_datasets_experiment_id_dataset_source_type": (
        "datasets (experiment_id, dataset_source_type)"
    ),
    "index_inputs_destination_type_destination_id_source_type": (
        "inputs (destination_type, destination_id, source_type)"
    ),
    "index_inputs_input_uuid": "inputs (input_uuid)",
    **{
        f"index_{table}_run_uuid": f"{table} (run_uuid)"
        for table in ("latest_metrics", "metrics", "params", "tags")
    },
}


class Database:
    """Runs in one file.

    Args:
        path: of the file; it is made, for its owner alone, where there is none.
        experiment: the name of what runs are kept under.
    """

    def __init__(self, path: Path, experiment: str) -> None:
        self._path, self._name = path, experiment

    def run_of(self, attempt: str, name: str, begun: int, tags: Mapping[str, Any]) -> str:
        """As `Store.run_of`."""
        with self._writing() as rows:
            experiment = self._experiment(rows)
            found = rows.execute(
                "SELECT runs.run_uuid FROM runs JOIN tags ON tags.run_uuid = runs.run_uuid "
                'WHERE runs.experiment_id = ? AND tags."key" = ? AND tags.value = ?',
                (experiment, ATTEMPT, attempt),
            ).fetchone()
            if found is not None:
                return str(found[0])
            run = uuid.uuid4().hex
            rows.execute(
                "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, "
                "user_id, status, start_time, source_version, lifecycle_stage, artifact_uri, "
                "experiment_id) VALUES (?, ?, 'JOB', 'falaj', '', '', 'RUNNING', ?, '', 'active', "
                "?, ?)",
                (
                    run,
                    name[:250],
                    begun,
                    f"{self._files}/{experiment}/{run}/artifacts",
                    experiment,
                ),
            )
            _add_tags(rows, run, {"mlflow.runName": name, ATTEMPT: attempt, **tags})
            return run

    def log_parameters(self, run: str, parameters: Mapping[str, Any]) -> None:
        """As `Store.log_parameters`."""
        with self._writing() as rows:
            for key, value in parameters.items():
                text = text_of(value)
                rows.execute(
                    'INSERT OR IGNORE INTO params ("key", value, run_uuid) VALUES (?, ?, ?)',
                    (key, text, run),
                )
                found = rows.execute(
                    'SELECT value FROM params WHERE "key" = ? AND run_uuid = ?', (key, run)
                ).fetchone()
                if found is None or found[0] != text:
                    raise TrackingError(f"run {run} has another value of the parameter {key!r}")

    def log_tags(self, run: str, tags: Mapping[str, Any]) -> None:
        """As `Store.log_tags`."""
        with self._writing() as rows:
            _add_tags(rows, run, tags)

    def log_figures(self, run: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """As `Store.log_figures`."""
        with self._writing() as tables:
            for each in rows:
                value, is_nan = _kept(float(each["value"]))
                figure = (each["key"], value, each["timestamp"], each["step"], is_nan, run)
                columns = '("key", value, timestamp, step, is_nan, run_uuid)'
                tables.execute(
                    f"INSERT OR IGNORE INTO metrics {columns} VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608 - names of columns
                    figure,
                )
                tables.execute(
                    f"INSERT INTO latest_metrics {columns} VALUES (?, ?, ?, ?, ?, ?) "  # noqa: S608
                    'ON CONFLICT ("key", run_uuid) DO UPDATE SET value = excluded.value, '
                    "timestamp = excluded.timestamp, step = excluded.step, "
                    "is_nan = excluded.is_nan WHERE (excluded.step, excluded.timestamp, "
                    "excluded.value) > (step, timestamp, value)",
                    figure,
                )

    def log_dataset(self, run: str, dataset: Mapping[str, str]) -> None:
        """As `Store.log_dataset`."""
        with self._writing() as rows:
            experiment = self._experiment(rows)
            named = (experiment, dataset["name"], dataset["digest"])
            rows.execute(
                "INSERT OR IGNORE INTO datasets (dataset_uuid, experiment_id, name, digest, "
                "dataset_source_type, dataset_source, dataset_profile) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (uuid.uuid4().hex, *named, dataset["source_type"], dataset["source"],
                 dataset["profile"]),
            )  # fmt: skip
            known = rows.execute(
                "SELECT dataset_uuid FROM datasets "
                "WHERE experiment_id = ? AND name = ? AND digest = ?",
                named,
            ).fetchone()[0]
            ends = (known, run)
            if rows.execute(
                "SELECT 1 FROM inputs WHERE source_type = 'DATASET' AND source_id = ? "
                "AND destination_type = 'RUN' AND destination_id = ?",
                ends,
            ).fetchone():
                return
            line = uuid.uuid4().hex
            rows.execute(
                "INSERT INTO inputs (input_uuid, source_type, source_id, destination_type, "
                "destination_id) VALUES (?, 'DATASET', ?, 'RUN', ?)",
                (line, *ends),
            )
            rows.execute(
                "INSERT INTO input_tags (input_uuid, name, value) VALUES (?, ?, ?)",
                (line, CONTEXT, TRAINED_ON),
            )

    def update(self, run: str, status: str, ended: int | None) -> None:
        """As `Store.update`."""
        with self._writing() as rows:
            changed = rows.execute(
                "UPDATE runs SET status = ?, end_time = ? WHERE run_uuid = ?", (status, ended, run)
            ).rowcount
            if not changed:
                raise TrackingError(f"run {run} isn't there any more")

    @property
    def _files(self) -> str:
        # MLflow wants a place of files for each run; none is put there.
        return (self._path.parent / "mlartifacts").as_uri()

    def _experiment(self, rows: sqlite3.Connection) -> int:
        found = rows.execute(
            "SELECT experiment_id, lifecycle_stage FROM experiments WHERE name = ?", (self._name,)
        ).fetchone()
        if found is None:
            # 0 is the one that MLflow makes by itself.
            number = 1 + rows.execute(
                "SELECT COALESCE(MAX(experiment_id), 0) FROM experiments"
            ).fetchone()[0]  # fmt: skip
            now = round(1000 * time.time())
            rows.execute(
                "INSERT INTO experiments (experiment_id, name, artifact_location, "
                "lifecycle_stage, creation_time, last_update_time) "
                "VALUES (?, ?, ?, 'active', ?, ?)",
                (number, self._name, f"{self._files}/{number}", now, now),
            )
            return number
        if found[1] != "active":
            raise TrackingError(
                f"experiment {self._name!r} was deleted there: restore it, or name another one"
            )
        return int(found[0])

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        """A connection whose changes are kept all together, or not at all.

        Raises:
            TrackingError: the file can't be made, read or written, or is of another kind.
        """
        try:
            self._make()
            # Opened each time: who writes ends while others do, and MLflow may bring the file to
            # a later form between.
            with closing(
                sqlite3.connect(self._path, timeout=_WAIT_SECONDS, isolation_level=None)
            ) as rows:
                rows.execute("BEGIN IMMEDIATE")
                try:
                    self._lay_out(rows)
                    yield rows
                except BaseException:
                    rows.execute("ROLLBACK")
                    raise
                rows.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise TrackingError(f"{self._path} can't be used: {error}") from None

    def _make(self) -> None:
        """Make the file for its owner alone; SQLite gives what it writes beside it the same mode.

        Raises:
            OSError: it can't be made.
            TrackingError: what is there is no file.
        """
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            if not stat.S_ISREG(self._path.stat().st_mode):
                raise TrackingError(f"{self._path} is no file") from None

    def _lay_out(self, rows: sqlite3.Connection) -> None:
        there = {
            name
            for (name,) in rows.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            )
        }
        if "alembic_version" in there and "runs" in there:
            return
        if there:
            raise TrackingError(
                f"{self._path} is a database of another program: name a new file, or one of "
                "MLflow's"
            )
        for name, columns in _TABLES.items():
            rows.execute(f"CREATE TABLE {name} ({columns})")
        for name, columns in _INDEXES.items():
            rows.execute(f"CREATE INDEX {name} ON {columns}")
        rows.execute("INSERT INTO alembic_version VALUES (?)", (_REVISION,))


def _add_tags(rows: sqlite3.Connection, run: str, tags: Mapping[str, Any]) -> None:
    for key, value in tags.items():
        rows.execute(
            'INSERT INTO tags ("key", value, run_uuid) VALUES (?, ?, ?) '
            'ON CONFLICT ("key", run_uuid) DO UPDATE SET value = excluded.value',
            (key_of(key), text_of(value), run),
        )


def _kept(value: float) -> tuple[float, bool]:
    """A figure as MLflow's tables have it, and whether it is no number."""
    if math.isnan(value):
        return 0.0, True
    return max(-_LARGEST, min(_LARGEST, value)), False
