"""Snapshots: refusals, the fixed split, digests, sealing, damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from falaj.workloads.errors import WorkloadError
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.checkpoint import load_rows
from falaj.workloads.training.dataset import Source, build, write
from falaj.workloads.training.snapshot import Dataset, open_dataset


def test_absent_target_lists_the_columns(mixed: Path) -> None:
    with pytest.raises(WorkloadError, match=r"no column 'Churn' .*'customer', 'city', 'age'"):
        build(Source(str(mixed), "Churn"))


def test_target_must_be_named(mixed: Path) -> None:
    with pytest.raises(WorkloadError, match=r"--target.*'customer'"):
        build(Source(str(mixed)))


def test_target_without_values_is_refused(mixed: Path) -> None:
    with pytest.raises(WorkloadError, match="'note' can't be used: every value is missing"):
        build(Source(str(mixed), "note"))


def test_too_few_rows_are_refused(write_csv: Any) -> None:
    path = write_csv(["x", "y"], [[n * n, n % 2] for n in range(19)])
    with pytest.raises(WorkloadError, match="19 rows with a target; at least 20"):
        build(Source(str(path), "y"))


def test_no_usable_column_is_refused_with_reasons(write_csv: Any) -> None:
    path = write_csv(["id", "y"], [[n, n % 2] for n in range(40)])
    with pytest.raises(WorkloadError, match=r"no usable column .*'id': it numbers the rows"):
        build(Source(str(path), "y"))


@pytest.mark.parametrize("holdout", [0.0, 0.04, 0.51, 1.0, float("nan")])
def test_holdout_out_of_range_is_refused(mixed: Path, holdout: float) -> None:
    with pytest.raises(WorkloadError, match="--holdout"):
        build(Source(str(mixed), "churn", holdout=holdout))


def test_digits_have_their_own_target() -> None:
    with pytest.raises(WorkloadError, match="leave --target away"):
        build(Source("digits", "label"))


def test_rows_without_target_are_dropped_and_counted(write_csv: Any) -> None:
    rows = [[n * n % 13, ("", "a", "b")[n % 3]] for n in range(90)]
    description = build(Source(str(write_csv(["x", "y"], rows)), "y")).description
    assert description["rows"] == {"total": 60, "train": 48, "held_out": 12, "dropped": 30}
    assert "30 rows without a target were dropped" in description["notes"]


def test_class_with_a_single_row_is_trained_on_and_noted(write_csv: Any) -> None:
    rows = [[n * n % 13, "rare" if n == 0 else "ab"[n % 2]] for n in range(60)]
    dataset = build(Source(str(write_csv(["x", "y"], rows)), "y"))
    rare = (dataset.classes or []).index("rare")
    assert rare in dataset.labels[dataset.rows("train")]
    assert any("rare" in note for note in dataset.description["notes"])


def test_split_is_stratified_shuffled_and_fixed(mixed: Path) -> None:
    source = Source(str(mixed), "churn", seed=1)
    first, second = build(source), build(source)
    other = build(Source(str(mixed), "churn", seed=2))
    assert first.digest == second.digest != other.digest
    assert first.description["split_digest"] != other.description["split_digest"]
    whole = np.bincount(first.labels) / len(first.labels)
    held_out = first.labels[first.rows("held_out")]
    np.testing.assert_allclose(np.bincount(held_out) / len(held_out), whole, atol=0.03)


def test_description_says_what_was_found(mixed_dataset: Dataset) -> None:
    description = mixed_dataset.description
    kinds = {item["name"]: item["kind"] for item in description["features"]}
    assert kinds == {"city": "text", "age": "numeric", "income": "numeric", "owner": "text"}
    assert [item["name"] for item in description["excluded"]] == ["customer", "note"]
    age = description["statistics"]["features"]["age"]
    train = mixed_dataset.inputs["age"][mixed_dataset.rows("train")]
    assert age["mean"] == pytest.approx(np.nanmean(train))
    assert age["missing"] == int(np.isnan(train).sum()) > 0
    assert sum(age["shares"]) == pytest.approx(1)
    city = description["statistics"]["features"]["city"]
    assert sum(city["categories"].values()) + city["missing"] == description["rows"]["train"]


def test_snapshot_is_written_once_and_read_back(mixed_dataset: Dataset, tmp_path: Path) -> None:
    path = write(mixed_dataset, tmp_path, None)
    stamp = (path / "dataset.json").stat().st_mtime_ns
    assert write(mixed_dataset, tmp_path, None) == path
    assert (path / "dataset.json").stat().st_mtime_ns == stamp
    assert [item.name for item in tmp_path.iterdir() if item.is_dir()] == [path.name]
    assert path.name == mixed_dataset.digest[:16]
    again = open_dataset(path, None)
    for name, values in mixed_dataset.inputs.items():
        np.testing.assert_array_equal(again.inputs[name], values)
    assert (path / "data.parquet").stat().st_mode & 0o777 == 0o600


def test_rows_are_given_as_served_inputs(mixed_dataset: Dataset, tmp_path: Path) -> None:
    path = write(mixed_dataset, tmp_path, None)
    rows = load_rows(path, None, "held_out")
    count = mixed_dataset.description["rows"]["held_out"]
    assert rows.inputs["age"].shape == (count, 1)
    assert rows.inputs["age"].dtype == np.float32
    assert rows.inputs["city"].dtype == object
    assert "" in rows.inputs["city"]
    assert rows.labels.dtype == np.int64


@pytest.mark.parametrize("change", ["rows", "target", "classes", "digest"])
def test_changed_description_is_noticed(
    mixed_dataset: Dataset, tmp_path: Path, change: str
) -> None:
    path = write(mixed_dataset, tmp_path, None)
    description = json.loads((path / "dataset.json").read_text())
    description[change] = {"rows": {"train": 1}, "classes": ["x", "y"]}.get(change, "x")
    (path / "dataset.json").write_text(json.dumps(description))
    with pytest.raises(WorkloadError, match="was changed after it was made"):
        open_dataset(path, None)


def test_changed_rows_are_noticed_and_replaced(mixed_dataset: Dataset, tmp_path: Path) -> None:
    path = write(mixed_dataset, tmp_path, None)
    table = pq.read_table(path / "data.parquet")
    income = table.column("income").to_numpy().copy()
    income[5] += 1
    index = table.column_names.index("income")
    pq.write_table(table.set_column(index, "income", pa.array(income)), path / "data.parquet")
    with pytest.raises(WorkloadError, match="was changed after it was made"):
        open_dataset(path, None)
    write(mixed_dataset, tmp_path, None)
    assert open_dataset(path, None).digest == mixed_dataset.digest


def test_missing_or_foreign_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="dataset"):
        open_dataset(tmp_path, None)
    (tmp_path / "dataset.json").write_text("[1]")
    with pytest.raises(WorkloadError, match="not a description"):
        open_dataset(tmp_path, None)


def test_sealed_rows_need_their_key_ring(mixed_dataset: Dataset, tmp_path: Path) -> None:
    keyring = KeyRing.create(tmp_path / "keyring")
    path = write(mixed_dataset, tmp_path / "datasets", keyring)
    assert not (path / "data.parquet").exists()
    assert b"Dubai" not in (path / "data.parquet.sealed").read_bytes()
    assert open_dataset(path, keyring).digest == mixed_dataset.digest
    with pytest.raises(WorkloadError, match="key ring"):
        open_dataset(path, None)
    with pytest.raises(WorkloadError):
        open_dataset(path, KeyRing.create(tmp_path / "other"))


def test_swapped_sealed_rows_are_refused(mixed: Path, tmp_path: Path) -> None:
    keyring = KeyRing.create(tmp_path / "keyring")
    first = write(build(Source(str(mixed), "churn", seed=1)), tmp_path / "d", keyring)
    second = write(build(Source(str(mixed), "churn", seed=2)), tmp_path / "d", keyring)
    (first / "data.parquet.sealed").write_bytes((second / "data.parquet.sealed").read_bytes())
    with pytest.raises(WorkloadError):
        open_dataset(first, keyring)


def test_full_disk_leaves_nothing_behind(
    mixed_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(WorkloadError, match="no space left"):
        write(mixed_dataset, tmp_path / "d", None)
    assert list((tmp_path / "d").iterdir()) == []


def test_parquet_and_csv_give_the_same_rows(tmp_path: Path, write_csv: Any) -> None:
    rows = [[round(n * 0.37, 2), "ab"[n % 2], n % 3] for n in range(60)]
    path = write_csv(["x", "c", "y"], rows)
    columns = zip(*rows, strict=True)
    table = pa.table(dict(zip(["x", "c", "y"], map(list, columns), strict=True)))
    pq.write_table(table, tmp_path / "t.parquet")
    digests = {
        build(Source(str(source), "y")).description["content_digest"]
        for source in (path, tmp_path / "t.parquet")
    }
    assert len(digests) == 1


def test_digits_snapshot(tmp_path: Path) -> None:
    dataset = build(Source("digits"))
    assert dataset.description["rows"]["total"] == 1797
    path = datasets.write(dataset, tmp_path, None)
    rows = load_rows(path, None, "train")
    assert rows.inputs["image"].shape == (dataset.description["rows"]["train"], 1, 8, 8)
    assert rows.inputs["image"].dtype == np.float32
    assert (rows.inputs["image"].min(), rows.inputs["image"].max()) == (0.0, 16.0)
