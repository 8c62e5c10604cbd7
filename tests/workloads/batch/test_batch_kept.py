"""What a batch keeps of its input, and what it leaves on the disk."""

from __future__ import annotations

import datetime
import decimal
import json
import os
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from falaj.workloads.batch import prediction
from falaj.workloads.batch.columns import Numbers, Texts
from falaj.workloads.batch.parts import Parts
from falaj.workloads.batch.reading import CHUNK_ROWS, ParquetSource
from falaj.workloads.inference.protocol.oip import TensorSpec
from falaj.workloads.training.tables import Column, interpret
from tests.workloads.batch.conftest import Batch
from tests.workloads.inference import models
from tests.workloads.inference.serving import Site


@pytest.mark.parametrize("zone", [None, "Asia/Dubai"])
def test_dates_of_parquet_are_those_that_training_saw(zone: str | None, tmp_path: Path) -> None:
    where = ZoneInfo(zone) if zone else None
    times = [datetime.datetime(2024, 1, 2, 1, 30, tzinfo=where),
             datetime.datetime(24, 1, 2, 5, tzinfo=where)]  # fmt: skip
    table = pa.table({"when": pa.array(times, pa.timestamp("us", zone))})
    pq.write_table(table, tmp_path / "t.parquet")
    (chunk,) = ParquetSource(tmp_path / "t.parquet", "t").chunks(["when"])
    trained = interpret("when", table.column("when"))
    assert isinstance(trained, Column)
    found, refused = Texts("when").read(chunk.columns["when"])
    assert refused == {}
    assert found.tolist() == trained.values.tolist()


def test_a_missing_number_beside_an_infinite_one_is_only_missing() -> None:
    spec = TensorSpec("x", "FP32", (-1, 1), missing=True)
    found, refused = Numbers("x", spec, None).read([float("nan"), float("inf"), 1.0])
    assert list(refused) == [1]
    assert np.isnan(found[0])


def test_decimal_numbers_that_are_kept_stay_exact(tmp_path: Path, batch: Batch) -> None:
    number = decimal.Decimal("12345678901234567890")
    table = pa.table({
        "age": pa.array([decimal.Decimal("2.50"), None], pa.decimal128(9, 2)), "city": ["x", "y"],
        "id": pa.array([number, decimal.Decimal(7)], pa.decimal128(38, 0)),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "in.parquet")
    words = (tmp_path / "in.parquet", "--plain", "--keep", "id")
    assert batch(*words, "--output", tmp_path / "o.csv").status == 0
    rows = (tmp_path / "o.csv").read_text().splitlines()
    assert rows[1:] == [f"1,{number},2.5,x", "2,7,40.0,y"]
    assert batch(*words, "--output", tmp_path / "o.jsonl").status == 0
    kept = [json.loads(line)["id"] for line in (tmp_path / "o.jsonl").open()]
    assert kept == [str(number), "7"]


def test_what_a_killed_run_left_behind_its_record_is_removed(
    tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.csv").write_text("age,city\n1,x\n")
    words = (tmp_path / "in.csv", "--output", tmp_path / "out.csv", "--plain")
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "discard", lambda _: None)
        assert batch(*words).status == 0
    assert (tmp_path / "out.csv.partial").is_dir()
    assert batch(*words).answer["already"] is True
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["in.csv", "out.csv", "out.csv.json"]


@pytest.mark.parametrize("plain", [["--plain"], []])
@pytest.mark.parametrize("damage", ["cut", "short", "changed", "empty"])
def test_a_part_that_cannot_be_opened_is_made_again(
    plain: list[str], damage: str, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "".join(f"{number},x\n" for number in range(3 * CHUNK_ROWS))
    (tmp_path / "in.csv").write_text(f"age,city\n{rows}")
    monkeypatch.setattr(prediction, "PART_ROWS", 1)
    whole = batch(tmp_path / "in.csv", "--output", tmp_path / "whole.csv", "--plain").answer
    words = (tmp_path / "in.csv", "--output", tmp_path / "out.csv", *plain)
    kill(batch, monkeypatch, *words)
    names = sorted((tmp_path / "out.csv.partial").glob("0*.part*"))
    assert len(names) == 3
    if damage == "cut":
        names[1].write_bytes(names[1].read_bytes()[:5])
    elif damage == "short":
        names[1].write_bytes(names[1].read_bytes()[:-100])
    elif damage == "changed":
        names[1].write_bytes(b"\xff" * 200)
    else:
        names[1].write_bytes(b"")
    ran = batch(*words)
    assert "the part 2 and those behind it are made again" in ran.out + ran.err
    assert ran.answer["resumed_at"] == CHUNK_ROWS
    assert ran.answer["sha256"] == whole["sha256"]


@pytest.mark.parametrize("plain", [["--plain"], []])
@pytest.mark.parametrize("place", [0, 1])
def test_a_part_that_the_disk_does_not_give_stops_the_run_and_stays(
    plain: list[str], place: int, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be read the next time; a folder is what can't be read as root either."""
    rows = "".join(f"{number},x\n" for number in range(3 * CHUNK_ROWS))
    (tmp_path / "in.csv").write_text(f"age,city\n{rows}")
    monkeypatch.setattr(prediction, "PART_ROWS", 1)
    words = (tmp_path / "in.csv", "--output", tmp_path / "out.csv", *plain)
    kill(batch, monkeypatch, *words)
    names = sorted((tmp_path / "out.csv.partial").glob("0*.part*"))
    away = tmp_path / "away"
    names[place].rename(away)
    names[place].mkdir()
    ran = batch(*words)
    assert ran.status == 2
    assert f"{names[place]}: Is a directory: what an earlier run has done is kept" in ran.err
    assert "run again, or give --restart to begin anew" in ran.err
    assert sorted((tmp_path / "out.csv.partial").glob("0*.part*")) == names
    names[place].rmdir()
    away.rename(names[place])
    assert batch(*words).answer["resumed_at"] == 3 * CHUNK_ROWS


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b'{"format": "falaj.batch/1"}', b"[]"])
def test_a_job_that_cannot_be_read_says_how_to_begin_anew(
    damage: bytes, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.csv").write_text("age,city\n1,x\n")
    words = (tmp_path / "in.csv", "--output", tmp_path / "out.csv", "--plain")
    kill(batch, monkeypatch, *words)
    job = tmp_path / "out.csv.partial" / "job.json"
    job.write_bytes(damage)
    ran = batch(*words)
    assert ran.status == 2
    assert str(tmp_path / "out.csv.partial") in ran.err
    assert "--restart" in ran.err
    assert job.read_bytes() == damage
    assert batch(*words, "--restart").answer["resumed_at"] == 0


def test_a_finished_output_is_not_replaced_by_another_job_that_is_restarted(
    tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run of the first was killed once its output was whole, and left its folder."""
    (tmp_path / "in.csv").write_text("age,city\n1,x\n")
    (tmp_path / "other.csv").write_text("age,city\n2,y\n")
    end = ("--output", tmp_path / "out.csv", "--plain")
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "discard", lambda _: None)
        assert batch(tmp_path / "in.csv", *end).status == 0
    kept = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
    ran = batch(tmp_path / "other.csv", *end, "--restart")
    assert ran.status == 2
    assert f"{tmp_path / 'out.csv'} is there already" in ran.err
    assert "--overwrite" in ran.err
    assert {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()} == kept
    # Of the same job it is what that job writes again.
    assert batch(tmp_path / "in.csv", *end, "--restart").answer["already"] is False
    assert batch(tmp_path / "other.csv", *end, "--restart").status == 2
    assert batch(tmp_path / "other.csv", *end, "--restart", "--overwrite").status == 0
    assert (tmp_path / "out.csv").read_text().splitlines()[1:] == ["1,2.0,y"]


def kill(batch: Batch, monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> None:
    """Run a batch that ends once its parts are there, before it writes its output."""

    def killed(_: Parts) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Parts, "results", killed)
        with pytest.raises(KeyboardInterrupt):
            batch(*words)


@pytest.mark.parametrize(("first", "second"), [([], ["--plain"]), (["--plain"], [])])
def test_a_sealed_output_keeps_its_record_when_a_plain_one_is_asked_for(
    first: list[str], second: list[str], tmp_path: Path, batch: Batch
) -> None:
    (tmp_path / "in.csv").write_text("age,city\n1,x\n")
    words = (tmp_path / "in.csv", "--output", tmp_path / "out.csv")
    assert batch(*words, *first).status == 0
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    refused = batch(*words, *second)
    assert refused.status == 2
    assert "--overwrite" in refused.err
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
    assert batch(*words, *second, "--overwrite").status == 0
    output = "out.csv" if second else "out.csv.sealed"
    assert {each.name for each in tmp_path.iterdir()} == {"in.csv", output, "out.csv.json"}


def test_what_was_plain_is_shredded_once_it_is_sealed(tmp_path: Path, batch: Batch) -> None:
    (tmp_path / "in.csv").write_text("age,city\n1,x\nold,y\n")
    words = (tmp_path / "in.csv", "--output", tmp_path / "out.csv", "--skip-bad-rows")
    assert batch(*words, "--plain").answer["bad_rows"] == 1
    plain = [tmp_path / "out.csv", tmp_path / "out.csv.bad-rows.jsonl"]
    held = [each.open("rb") for each in plain]
    said = [each.read_bytes() for each in plain]
    assert batch(*words, "--overwrite").status == 0
    for path, file, before in zip(plain, held, said, strict=True):
        with file:
            after = file.read()
        assert not path.exists()
        assert len(after) == len(before)
        assert after != before


def test_a_plain_output_with_another_name_is_left_under_that(tmp_path: Path, batch: Batch) -> None:
    (tmp_path / "in.csv").write_text("age,city\n1,x\n")
    words = (tmp_path / "in.csv", "--output", tmp_path / "out.csv")
    assert batch(*words, "--plain").status == 0
    said = (tmp_path / "out.csv").read_bytes()
    (tmp_path / "backup.csv").hardlink_to(tmp_path / "out.csv")
    assert batch(*words, "--overwrite").status == 0
    assert not (tmp_path / "out.csv").exists()
    assert (tmp_path / "backup.csv").read_bytes() == said


def test_a_plain_output_of_another_user_is_removed(
    tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder that both may write to; only its owner may write the file itself."""
    (tmp_path / "in.csv").write_text("age,city\n1,x\n")
    words = (tmp_path / "in.csv", "--output", tmp_path / "out.csv")
    assert batch(*words, "--plain").status == 0
    said = (tmp_path / "out.csv").read_bytes()
    owner = os.geteuid()
    with (tmp_path / "out.csv").open("rb") as held:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        assert batch(*words, "--overwrite").status == 0
        assert held.read() == said
    assert not (tmp_path / "out.csv").exists()


def test_what_a_plain_run_left_is_shredded_by_a_sealed_one(
    tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.csv").write_text("age,city\n1,x\n")
    words = (tmp_path / "in.csv", "--output", tmp_path / "out.csv")
    kill(batch, monkeypatch, *words, "--plain")
    folder = tmp_path / "out.csv.partial"
    (folder / ".tmp-out").write_text("1,2.5,x\n")
    left = [folder / "000000.part", folder / ".tmp-out"]
    held = [each.open("rb") for each in left]
    said = [each.read_bytes() for each in left]
    assert batch(*words, "--overwrite").status == 0
    assert not folder.exists()
    for file, before in zip(held, said, strict=True):
        with file:
            assert file.read() != before


@pytest.mark.parametrize("cell", ["Fatima-784", "1,5;2.5"])
def test_messages_say_nothing_that_restricted_rows_hold(
    cell: str, tmp_path: Path, batch: Batch, published: Site
) -> None:
    model = models.table()
    fields = {**models.fields(model, "restricted"), "data_class": "restricted"}
    published.publish(model, name="secrets", fields=fields)
    rows = "".join(f'"{each}",x\n' for each in cell.split(";"))
    (tmp_path / "in.csv").write_text(f"age,city\n{rows}")
    words = (tmp_path / "in.csv", "--output", tmp_path / "out.csv")
    ran = batch(*words, model="secrets")
    assert ran.status == 2
    assert "'age'" in ran.err
    assert not any(each in ran.err + ran.out for each in cell.split(";"))
    assert cell.split(";", maxsplit=1)[0] in batch(*words).err


def test_dates_that_parquet_knows_are_written_as_the_model_has_learned_them(
    tmp_path: Path, batch: Batch, published: Site
) -> None:
    model = models.table()
    form = {"separator": "/", "order": "dmy", "time_mark": "", "sure": True}
    fields = models.fields(model, "dated")
    fields["dataset"] = {
        **fields.get("dataset", {}), "features": [{"name": "city", "kind": "date", "form": form}]
    }  # fmt: skip
    published.publish(model, name="dated", fields=fields)
    days = [datetime.date(2024, 5, 6), None]
    table = pa.table({"age": [1.0, 2.0], "city": pa.array(days, pa.date32())})
    pq.write_table(table, tmp_path / "in.parquet")
    done = batch(tmp_path / "in.parquet", "--output", tmp_path / "o.csv", "--plain", model="dated")
    assert done.status == 0, done.err
    assert (tmp_path / "o.csv").read_text().splitlines()[1:] == ["1,1.0,06/05/2024", "2,2.0,"]
    words = (tmp_path / "new.csv", "--output", tmp_path / "n.csv", "--plain")
    (tmp_path / "new.csv").write_text("age,city\n1,2024-05-06\n2,unknown\n3,\n")
    ran = batch(*words, model="dated")
    assert ran.status == 2
    assert "such as '2024-05-06', none in the form DD/MM/YYYY" in ran.err
    # What isn't a date at all counts as missing, as the server takes it.
    (tmp_path / "new.csv").write_text("age,city\n1,06/05/2024\n2,unknown\n3,2024-05-06\n")
    assert batch(*words, model="dated").status == 0


def test_columns_that_the_model_does_not_take_tell_the_decimal_mark(
    tmp_path: Path, batch: Batch
) -> None:
    (tmp_path / "in.csv").write_text("age;city;price\n1.153;x;2,5\n2.200;y;3,75\n")
    words = (tmp_path / "in.csv", "--output", tmp_path / "o.csv", "--plain")
    assert batch(*words).status == 0
    assert (tmp_path / "o.csv").read_text().splitlines()[1:] == ["1,1153.0,x", "2,2200.0,y"]
