"""Making of a dataset snapshot: read, check, split, describe, write once under its digest."""

from __future__ import annotations

import datetime
import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import TEMPORARY_PREFIX, storage_errors, write_json_atomic
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import artifact_path, write_artifact
from falaj.workloads.training import digits, snapshot, statistics
from falaj.workloads.training.columns import Column, Excluded, interpret, useless
from falaj.workloads.training.split import generator, strata_of, stratified
from falaj.workloads.training.storage import make_folder
from falaj.workloads.training.tables import read_table
from falaj.workloads.training.target import TASKS, interpret_target

MINIMUM_ROWS = 20
"""With fewer rows neither part of the split says anything."""

HOLDOUT_RANGE = (0.05, 0.5)


@dataclass(frozen=True)
class Source:
    """Where a dataset comes from and what is to be learned from it.

    Attributes:
        location: ``digits``, or the path of a .csv or .parquet file.
        target: the column to predict; digits have their own.
        task: ``auto``, ``classification`` or ``regression``.
        encoding: the CSV file's encoding; None means UTF-8 or its byte order mark's.
        seed: fixes the split, together with the content's digest.
        holdout: the share of rows that training never sees, 0.05 to 0.5.
    """

    location: str
    target: str | None = None
    task: str = "auto"
    encoding: str | None = None
    seed: int = 0
    holdout: float = 0.2


@dataclass(frozen=True)
class _Rows:
    """What a source gives before it is split."""

    inputs: dict[str, NDArray[Any]]
    labels: NDArray[Any]
    fields: dict[str, Any]


def build(source: Source) -> snapshot.Dataset:
    """Read, check and split ``source``; nothing is written.

    Raises:
        WorkloadError: an option is out of range, or the data can't be learned from.
    """
    _check_options(source)
    rows = _digits(source) if source.location == digits.SOURCE else _table(source)
    count = len(rows.labels)
    if count < MINIMUM_ROWS:
        raise WorkloadError(
            f"there are {count} rows with a target; at least {MINIMUM_ROWS} are needed, "
            "and some hundreds for a model of use"
        )
    content = snapshot.digest_rows(rows.inputs, rows.labels)
    classification = rows.fields["task"] == "classification"
    random = generator(source.seed, int(content[:16], 16))
    strata = strata_of(rows.labels, classification)
    train, held_out = stratified(strata, source.holdout, random)
    order = np.concatenate([train, held_out])
    inputs = {name: values[order] for name, values in rows.inputs.items()}
    labels = rows.labels[order]
    dropped = int(rows.fields.pop("dropped"))
    description = {
        "format": snapshot.FORMAT,
        **rows.fields,
        "rows": {
            "total": count, "train": len(train), "held_out": len(held_out), "dropped": dropped,
        },
        "seed": source.seed,
        "holdout": source.holdout,
        "content_digest": content,
        "stored_digest": snapshot.digest_rows(inputs, labels),
        "split_digest": hashlib.sha256(held_out.astype("<i8").tobytes()).hexdigest(),
        "statistics": _statistics(inputs, labels, rows.fields, len(train)),
        "notes": _notes(rows, dropped),
    }  # fmt: skip
    description["digest"] = snapshot.describe_identity(description)
    return snapshot.Dataset(description, inputs, labels)


def write(dataset: snapshot.Dataset, output: Path, keyring: KeyRing | None) -> Path:
    """Write ``dataset`` below ``output`` unless it is there already; return its folder.

    The folder is named by the first 16 digits of the digest and appears whole or not at all. A
    damaged or differently sealed folder of that name is replaced.

    Raises:
        StorageFullError: there is no space; nothing half written stays.
        WorkloadError: the folder can't be written.
    """
    final = output / dataset.digest[:16]
    if _is_whole(final, keyring):
        return final
    with storage_errors(make_folder(output)):
        stage = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=output))
    try:
        target = dataset.description["target"]
        data = snapshot.encode(dataset.inputs, dataset.labels, target)
        context = snapshot.context_of(dataset.digest)
        write_artifact(stage / snapshot.DATA, data, keyring, context)
        created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        description = {**dataset.description, "sealed": keyring is not None, "created": created}
        write_json_atomic(stage / snapshot.DESCRIPTION, description)
        with storage_errors(final):
            if final.exists():
                shutil.rmtree(final)
            stage.replace(final)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    return final


def _check_options(source: Source) -> None:
    low, high = HOLDOUT_RANGE
    if not low <= source.holdout <= high:
        raise WorkloadError(f"--holdout is {source.holdout}: allowed is {low} to {high}")
    if not 0 <= source.seed < 2**63:
        raise WorkloadError(f"--seed is {source.seed}: allowed is 0 to 2^63 - 1")
    if source.task not in TASKS:
        raise WorkloadError(f"--task is {source.task!r}: allowed are {', '.join(TASKS)}")


def _digits(source: Source) -> _Rows:
    if source.target not in {None, digits.TARGET}:
        raise WorkloadError(
            f"the digits have one target, {digits.TARGET!r}, not {source.target!r}: "
            "leave --target away"
        )
    if source.task == "regression":
        raise WorkloadError("the digits are classified: use --task auto or classification")
    images, labels = digits.load()
    fields = {
        "source": {"kind": digits.SOURCE, "name": "scikit-learn digits"},
        "family": "images",
        "task": "classification",
        "target": digits.TARGET,
        "classes": [str(digit) for digit in range(10)],
        "features": [
            {"name": digits.IMAGE, "kind": "image", "shape": list(images.shape[1:]),
             "largest": digits.LARGEST_PIXEL},
        ],
        "excluded": [],
        "dropped": 0,
    }  # fmt: skip
    return _Rows({digits.IMAGE: images}, labels, fields)


def _table(source: Source) -> _Rows:
    path = Path(source.location)
    table = read_table(path, source.encoding)
    names = list(table.column_names)
    listed = ", ".join(repr(name) for name in names[:40]) + (", …" if len(names) > 40 else "")
    if source.target is None:
        raise WorkloadError(f"name the column to predict (--target); {path} has: {listed}")
    if source.target not in names:
        raise WorkloadError(f"{path} has no column {source.target!r} to predict; it has: {listed}")
    column = interpret(source.target, table.column(source.target))
    if isinstance(column, Excluded):
        raise WorkloadError(f"the target column {source.target!r} can't be used: {column.reason}")
    target = interpret_target(column, source.task)
    features, excluded = _features(table, source.target, target.kept)
    if not features:
        reasons = "; ".join(f"{item.name!r}: {item.reason}" for item in excluded[:10])
        raise WorkloadError(f"{path} has no usable column beside the target ({reasons or 'none'})")
    fields = {
        "source": {"kind": path.suffix.lower().lstrip("."), "name": path.name},
        "family": "table",
        "task": target.task,
        "target": source.target,
        "classes": target.classes,
        "features": [{"name": item.name, "kind": item.kind, "shape": [1]} for item in features],
        "excluded": [{"name": item.name, "reason": item.reason} for item in excluded],
        "dropped": int((~target.kept).sum()),
    }
    return _Rows({item.name: item.values for item in features}, target.labels, fields)


def _features(
    table: Any, target: str, kept: NDArray[np.bool_]
) -> tuple[list[Column], list[Excluded]]:
    features: list[Column] = []
    excluded: list[Excluded] = []
    for name, data in zip(table.column_names, table.columns, strict=True):
        if name == target:
            continue
        column = interpret(name, data.filter(kept))
        if isinstance(column, Column):
            reason = useless(column)
            if reason is None:
                features.append(column)
                continue
            column = Excluded(name, reason)
        excluded.append(column)
    return features, excluded


def _statistics(
    inputs: dict[str, NDArray[Any]], labels: NDArray[Any], fields: dict[str, Any], train: int
) -> dict[str, Any]:
    features = {
        name: statistics.of_texts(values[:train])
        if values.dtype == object
        else statistics.of_numbers(values[:train])
        for name, values in inputs.items()
    }
    target = (
        statistics.of_classes(labels[:train], fields["classes"])
        if fields["classes"] is not None
        else statistics.of_numbers(labels[:train])
    )
    return {"features": features, "target": target}


def _notes(rows: _Rows, dropped: int) -> list[str]:
    notes: list[str] = []
    if dropped:
        notes.append(f"{dropped:,} rows without a target were dropped")
    for item in rows.fields["excluded"]:
        notes.append(f"column {item['name']!r} was left out: {item['reason']}")
    if rows.fields["classes"] is not None:
        counts = np.bincount(rows.labels)
        single = [rows.fields["classes"][index] for index in np.flatnonzero(counts == 1)]
        if single:
            notes.append(
                f"classes with a single row are trained on but not measured: {', '.join(single)}"
            )
    return notes


def _is_whole(path: Path, keyring: KeyRing | None) -> bool:
    if not artifact_path(path / snapshot.DATA, keyring).exists():
        return False
    try:
        snapshot.open_dataset(path, keyring)
    except WorkloadError:
        return False
    return True
