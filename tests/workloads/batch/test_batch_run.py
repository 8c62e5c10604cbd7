"""Runs of the command: what comes out, sealed and plain, in each format, and the same again."""

from __future__ import annotations

import csv
import datetime
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from onnx import TensorProto

from falaj.workloads.training import dataset
from tests.workloads.batch.conftest import Batch
from tests.workloads.inference import models
from tests.workloads.inference.serving import Site

ROWS = [("1", "21.5", "Dubai"), ("2", "", "Sharjah"), ("3", "٣٠", "=1+1")]


def write_csv(path: Path, rows: list[tuple[str, ...]] = ROWS) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "age", "city"), *rows])
    return path


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_rows_of_a_csv_are_answered_in_order(tmp_path: Path, batch: Batch) -> None:
    table = write_csv(tmp_path / "in.csv")
    done = batch(table, "--output", tmp_path / "out.csv", "--keep", "id", "--plain")
    assert done.answer["rows"] == 3
    assert (tmp_path / "out.csv").read_text() == (
        "row,id,score,label\n1,1,21.5,Dubai\n2,2,40.0,Sharjah\n3,3,30.0,'=1+1\n"
    )
    assert done.answer["escaped"] == 1
    assert not (tmp_path / "out.csv.partial").exists()
    assert oct((tmp_path / "out.csv").stat().st_mode)[-3:] == "600"


def test_without_being_asked_predictions_are_sealed(
    tmp_path: Path, batch: Batch, published: Site
) -> None:
    ring = published.root / "keyring"
    table = write_csv(tmp_path / "in.csv")
    done = batch(table, "--output", tmp_path / "out.jsonl")
    sealed = tmp_path / "out.jsonl.sealed"
    assert done.answer["path"] == str(sealed)
    assert b"Dubai" not in sealed.read_bytes()
    opened = batch(sealed, "--output", tmp_path / "plain.jsonl", "--keyring", ring, name="open")
    assert opened.status == 0, opened.err
    rows = [json.loads(line) for line in (tmp_path / "plain.jsonl").read_text().splitlines()]
    assert rows == [
        {"row": 1, "score": 21.5, "label": "Dubai"},
        {"row": 2, "score": 40.0, "label": "Sharjah"},
        {"row": 3, "score": 30.0, "label": "=1+1"},
    ]
    changed = bytearray(sealed.read_bytes())
    changed[-1] ^= 1
    sealed.write_bytes(changed)
    refused = batch(sealed, "--output", tmp_path / "no", "--keyring", ring, name="open")
    assert refused.status == 2
    assert not (tmp_path / "no").exists()
    # Run again it is made anew, as what is there isn't what was written.
    assert batch(table, "--output", tmp_path / "out.jsonl").status == 2
    assert batch(table, "--output", tmp_path / "out.jsonl", "--overwrite").status == 0


def test_all_formats_say_the_same(tmp_path: Path, batch: Batch) -> None:
    table = write_csv(tmp_path / "in.csv")
    ages = [21.5, None, 30.0]
    cities = [row[2] for row in ROWS]
    (tmp_path / "in.jsonl").write_text(
        "\n".join(
            json.dumps({"city": city, "age": age, "id": str(i + 1)})
            for i, (age, city) in enumerate(zip(ages, cities, strict=True))
        )
    )
    pq.write_table(
        pa.table({"id": ["1", "2", "3"], "age": ages, "city": cities}), tmp_path / "in.parquet"
    )
    found = []
    for source in (table, tmp_path / "in.jsonl", tmp_path / "in.parquet"):
        for kind in ("csv", "jsonl", "parquet"):
            output = tmp_path / f"{source.suffix[1:]}-out.{kind}"
            done = batch(source, "--output", output, "--keep", "id", "--plain", "--raw-text")
            assert done.status == 0, done.err
            if kind == "csv":
                rows = [
                    (int(r["row"]), r["id"], float(r["score"]), r["label"])
                    for r in read_csv(output.read_text())
                ]
            elif kind == "jsonl":
                rows = [tuple(json.loads(line).values()) for line in output.open()]
            else:
                rows = [tuple(r.values()) for r in pq.read_table(output).to_pylist()]
            found.append(rows)
    assert all(each == found[0] for each in found)


def test_a_folder_is_read_in_order_of_names(tmp_path: Path, batch: Batch) -> None:
    folder = tmp_path / "in"
    (folder / "b").mkdir(parents=True)
    write_csv(folder / "b" / "2.csv", ROWS[1:2])
    write_csv(folder / "a.csv", ROWS[:1])
    (folder / "_SUCCESS").touch()
    (folder / "notes.txt").write_text("no rows")
    done = batch(folder, "--output", tmp_path / "out.csv", "--plain")
    assert "1 files of other kinds are left out" in done.err
    rows = read_csv((tmp_path / "out.csv").read_text())
    assert [(r["file"], r["label"]) for r in rows] == [("a.csv", "Dubai"), ("b/2.csv", "Sharjah")]


def test_the_same_again_does_nothing(tmp_path: Path, batch: Batch) -> None:
    table = write_csv(tmp_path / "in.csv")
    words = (table, "--output", tmp_path / "out.csv", "--plain")
    assert batch(*words).answer["already"] is False
    before = (tmp_path / "out.csv").stat().st_ino
    again = batch(*words)
    assert again.answer["already"] is True
    assert (tmp_path / "out.csv").stat().st_ino == before
    write_csv(table, ROWS[:1])
    refused = batch(*words)
    assert refused.status == 2
    assert "--overwrite" in refused.err
    assert batch(*words, "--overwrite").answer["rows"] == 1


def test_a_dry_run_writes_nothing(tmp_path: Path, batch: Batch) -> None:
    table = write_csv(tmp_path / "in.csv")
    done = batch(table, "--output", tmp_path / "out.csv", "--dry-run")
    assert done.answer["rows"] == 3
    assert done.answer["columns"] == ["row", "score", "label"]
    assert [each.name for each in tmp_path.iterdir()] == ["in.csv"]


def test_bad_rows_are_refused_or_set_aside(tmp_path: Path, batch: Batch) -> None:
    rows = [*ROWS, ("4", "old", "Dubai"), ("5", "1e39", "Dubai"), ("6", "7", "A", "B")]
    table = write_csv(tmp_path / "in.csv", rows)
    words = (table, "--output", tmp_path / "out.csv", "--plain")
    refused = batch(*words)
    assert refused.status == 2
    assert "3 of 6 rows can't be predicted" in refused.err
    for part in ("line 5: column 'age': 'old'", "line 6: ", "line 7: it has 4 values"):
        assert part in refused.err
    assert [each.name for each in tmp_path.iterdir()] == ["in.csv"]
    done = batch(*words, "--skip-bad-rows")
    assert (done.answer["rows"], done.answer["bad_rows"]) == (3, 3)
    beside = tmp_path / done.answer["bad_rows_file"]
    bad = [json.loads(line) for line in beside.open()]
    assert [each["line"] for each in bad] == [5, 6, 7]
    assert bad[0]["values"] == {"age": "old", "city": "Dubai"}


def test_numbers_with_decimal_commas(tmp_path: Path, batch: Batch) -> None:
    path = tmp_path / "in.csv"
    path.write_text("age;city\n1.234,5;Dubai\n7;Al Ain\nAED 2,25;Dubai\n")
    done = batch(path, "--output", tmp_path / "out.csv", "--plain")
    assert done.status == 0, done.err
    rows = read_csv((tmp_path / "out.csv").read_text())
    assert [float(r["score"]) for r in rows] == [1234.5, 7.0, 2.25]
    path.write_text("age;city\n1.5;Dubai\n1,5;Dubai\n")
    refused = batch(path, "--output", tmp_path / "other.csv", "--plain")
    assert "--decimal" in refused.err
    done = batch(
        path, "--output", tmp_path / "other.csv", "--plain", "--decimal", "comma",
        "--skip-bad-rows",
    )  # fmt: skip
    assert (done.answer["rows"], done.answer["bad_rows"]) == (1, 1)


def test_tensors_come_as_columns_or_lists(tmp_path: Path, batch: Batch) -> None:
    values = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
    header = ",".join(f"input_{index}" for index in range(4))
    (tmp_path / "in.csv").write_text(
        "\n".join([header, *(",".join(map(str, row)) for row in values.tolist())])
    )
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"input": row}) + "\n" for row in values.tolist())
    )
    texts = []
    for source in ("in.csv", "in.jsonl"):
        done = batch(
            tmp_path / source, "--output", tmp_path / f"{source}.out.csv", "--plain", model="mlp"
        )
        assert done.status == 0, done.err
        texts.append((tmp_path / f"{source}.out.csv").read_text())
    assert texts[0] == texts[1]
    assert texts[0].splitlines()[0] == "row,probabilities_0,probabilities_1,probabilities_2"
    (tmp_path / "in.jsonl").write_text('{"input": [1, 2, [3]]}\n{"input": 4}\n')
    refused = batch(tmp_path / "in.jsonl", "--output", tmp_path / "x.csv", model="mlp")
    assert "the model takes 4" in refused.err
    assert "2 of 2 rows" in refused.err


def test_shares_together_are_the_whole(tmp_path: Path, batch: Batch) -> None:
    rows = [(str(i), str(i), "Dubai") for i in range(9_000)]
    table = write_csv(tmp_path / "in.csv", rows)
    batch(table, "--output", tmp_path / "all.csv", "--plain")
    lines = []
    for share in range(4):
        output = tmp_path / f"share-{share}.csv"
        done = batch(table, "--output", output, "--plain", "--shard", f"{share}/4")
        assert done.status == 0, done.err
        lines += output.read_text().splitlines()[1:]
    assert lines == (tmp_path / "all.csv").read_text().splitlines()[1:]
    assert len(lines) == 9_000


def test_a_sealed_snapshot_is_opened_and_its_predictions_are_sealed(
    tmp_path: Path, batch: Batch, published: Site
) -> None:
    rows = [(str(i), str(i % 7 + i / 10), f"city {i % 3}") for i in range(60)]
    table = write_csv(tmp_path / "t.csv", rows)
    built = dataset.build(dataset.Source(str(table), target="city"))
    kept = dataset.write(built, tmp_path / "sets", published.keyring)
    model = models.echo({"age": TensorProto.FLOAT})
    fields = models.fields(model, "echo")
    fields["inputs"][0]["missing"] = True
    published.publish(model, name="echo", fields=fields)
    words = (kept, "--output", tmp_path / "out.jsonl", "--keep", "city")
    assert "is sealed" in batch(*words, "--plain", model="echo").err
    done = batch(*words, model="echo")
    assert done.answer["rows"] == 60
    assert done.answer["input"][0]["sha256"] == built.digest
    opened = tmp_path / "plain.jsonl"
    ring = published.root / "keyring"
    batch(done.answer["path"], "--output", opened, "--keyring", ring, name="open")
    found = [json.loads(line) for line in opened.open()]
    assert {each["city"] for each in found} == {"city 0", "city 1", "city 2"}
    assert [each["age_out"] for each in found] == pytest.approx(built.inputs["age"].tolist())


def test_every_kind_of_answer_is_written_in_every_format(
    tmp_path: Path, batch: Batch, published: Site
) -> None:
    types: dict[str, int] = {
        "half": TensorProto.FLOAT16, "double": TensorProto.DOUBLE, "big": TensorProto.UINT64,
        "small": TensorProto.INT8, "flag": TensorProto.BOOL, "text": TensorProto.STRING,
    }  # fmt: skip
    published.publish(models.echo(types), name="kinds")
    row = {
        "half": 0.5, "double": 0.1, "big": 2**53, "small": -7, "flag": True, "text": "=x",
    }  # fmt: skip
    (tmp_path / "in.jsonl").write_text(json.dumps(row) + "\n")
    words = (tmp_path / "in.jsonl", "--plain", "--output")
    expected = {"row": 1, **{f"{name}_out": value for name, value in row.items()}}
    assert batch(*words, tmp_path / "o.jsonl", model="kinds").status == 0
    assert json.loads((tmp_path / "o.jsonl").read_text()) == expected
    assert batch(*words, tmp_path / "o.parquet", model="kinds").status == 0
    assert pq.read_table(tmp_path / "o.parquet").to_pylist() == [expected]
    assert batch(*words, tmp_path / "o.csv", model="kinds").status == 0
    line = (tmp_path / "o.csv").read_text().splitlines()[1]
    assert line == "1,0.5,0.1,9007199254740992,-7,true,'=x"


def test_dates_and_categories_of_parquet(tmp_path: Path, batch: Batch) -> None:
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "age": pa.array([1, 2], pa.decimal128(5, 2)),
            "city": pa.array(["x", "y"]).dictionary_encode(),
            "at": pa.array([when, None], pa.timestamp("ns", "UTC")),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    words = (tmp_path / "in.parquet", "--plain", "--keep", "at", "--output", tmp_path / "o.jsonl")
    assert batch(*words).status == 0
    found = [json.loads(line) for line in (tmp_path / "o.jsonl").open()]
    assert [each["label"] for each in found] == ["x", "y"]
    assert found[0]["at"].startswith("2026-01-02 03:04:05")
    assert found[1]["at"] is None
    dated = pa.table({"age": [1.0], "city": [when.date()]})
    pq.write_table(dated, tmp_path / "dated.parquet")
    batch(tmp_path / "dated.parquet", "--plain", "--output", tmp_path / "d.jsonl")
    assert json.loads((tmp_path / "d.jsonl").read_text())["label"] == "2026-01-02"


def test_all_columns_have_to_be_in_all_files(tmp_path: Path, batch: Batch) -> None:
    (tmp_path / "a.csv").write_text("age,city,id\n1,x,7\n")
    (tmp_path / "b.csv").write_text("age,city\n1,x\n")
    words = (tmp_path / "a.csv", tmp_path / "b.csv", "--output", tmp_path / "o.csv", "--plain")
    refused = batch(*words, "--keep", "*")
    assert refused.status == 2
    assert "b.csv has no column 'id'" in refused.err
    assert batch(*words).answer["rows"] == 2


def test_what_an_overwritten_output_left_beside_goes(tmp_path: Path, batch: Batch) -> None:
    table = write_csv(tmp_path / "in.csv", [*ROWS, ("4", "old", "x")])
    words = (table, "--output", tmp_path / "out.csv", "--plain", "--skip-bad-rows")
    batch(*words)
    assert (tmp_path / "out.csv.bad-rows.jsonl").exists()
    write_csv(table)
    # Parts of another job don't stand in the way of a run that replaces.
    (tmp_path / "out.csv.partial").mkdir()
    (tmp_path / "out.csv.partial" / "job.json").write_text('{"format": "another"}')
    (tmp_path / "out.csv.partial" / ".tmp-left").write_text("of a run that was killed")
    assert batch(*words).status == 2
    assert batch(*words, "--overwrite").answer["rows"] == 3
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "in.csv", "out.csv", "out.csv.json",
    ]  # fmt: skip
