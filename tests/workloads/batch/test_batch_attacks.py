"""Input that somebody broke, or made to break something."""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.batch import prediction
from falaj.workloads.batch.reading import CsvSource, open_sources
from falaj.workloads.errors import WorkloadError
from tests.workloads.batch.conftest import Batch
from tests.workloads.inference import models
from tests.workloads.inference.serving import Site


def parquet(**columns: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


GOOD = parquet(age=[1.0], city=["x"])
REFUSED: dict[str, tuple[str, bytes]] = {
    "nothing": ("csv", b""),
    "white space": ("csv", b" \n\n \t\n"),
    "a header alone": ("csv", b"age,city\n"),
    "a header without an end": ("csv", b"age,city"),
    "a mark alone": ("csv", b"\xef\xbb\xbf"),
    "half a mark": ("csv", b"\xef\xbb"),
    "columns twice": ("csv", b"age,age,city\n1,2,x\n"),
    "no names": ("csv", b",\n1,x\n"),
    "too few columns": ("csv", b"age\n1\n"),
    "names in another case": ("csv", b"Age,City\n1,x\n"),
    "a quote that is never closed": ("csv", b'age,city\n1,"x\n2,y\n'),
    "a quote in the last line": ("csv", b'age,city\n1,x\n2,"\n'),
    "a short row": ("csv", b"age,city\n1\n"),
    "a long row": ("csv", b"age,city\n1,x,y\n"),
    "a NUL": ("csv", b"age,city\n1,x\0y\n"),
    "a NUL in the header": ("csv", b"age,ci\0ty\n1,x\n"),
    "latin letters": ("csv", b"age,city\n1,caf\xe9\n"),
    "a cut letter": ("csv", b"age,city\n1,\xd8"),
    "utf-16 without a mark": ("csv", "age,city\n1,x\n".encode("utf-16-le")),
    "half of utf-16": ("csv", "age,city\n1,x\n".encode("utf-16")[:-1]),
    "text for a number": ("csv", b"age,city\nold,x\n"),
    "a formula for a number": ("csv", b"age,city\n=1+1,x\n"),
    "infinity": ("csv", b"age,city\ninf,x\n"),
    "minus infinity": ("csv", b"age,city\n-Infinity,x\n"),
    "beyond 32 bits": ("csv", b"age,city\n4e38,x\n"),
    "beyond 64 bits": ("csv", b"age,city\n1e999,x\n"),
    "hexadecimal": ("csv", b"age,city\n0x10,x\n"),
    "underscores": ("csv", b"age,city\n1_000,x\n"),
    "two marks": ("csv", b'age,city\n"1.2.3,4,5",x\n'),
    "two currencies": ("csv", b"age,city\nAED 5,x\nUSD 7,x\n"),
    "both marks": ("csv", b'age;city\n1.5;x\n1,5;x\n'),
    "binary": ("csv", bytes(range(256))),
    "parquet that says csv": ("csv", GOOD),
    "no object": ("jsonl", b"[1,2]\n"),
    "a pretty array": ("jsonl", b'[\n {"age": 1, "city": "x"}\n]\n'),
    "cut json": ("jsonl", b'{"age": 1, "city": "x'),
    "two objects in a line": ("jsonl", b'{"age":1,"city":"x"}{"age":1,"city":"x"}\n'),
    "NaN in json": ("jsonl", b'{"age": NaN, "city": "x"}\n'),
    "infinity in json": ("jsonl", b'{"age": 1e999, "city": "x"}\n'),
    "a huge whole number": ("jsonl", b'{"age": 1' + b"0" * 400 + b', "city": "x"}\n'),
    "true for a number": ("jsonl", b'{"age": true, "city": "x"}\n'),
    "a list for a number": ("jsonl", b'{"age": [1], "city": "x"}\n'),
    "an object for a number": ("jsonl", b'{"age": {}, "city": "x"}\n'),
    "a number for a text": ("jsonl", b'{"age": 1, "city": 5}\n'),
    "a list for a text": ("jsonl", b'{"age": 1, "city": ["x"]}\n'),
    "a key less in a row": ("jsonl", b'{"age": 1, "city": "x"}\n{"age": 1}\n'),
    "json in utf-16": ("jsonl", '{"age": 1, "city": "x"}'.encode("utf-16")),
    "half a surrogate": ("jsonl", b'{"age": 1, "city": "\\ud800"}\n'),
    "deep json": ("jsonl", b'{"age": ' + b"[" * 5_000 + b"]" * 5_000 + b', "city": "x"}'),
    "no parquet": ("parquet", b"PAR1 and more"),
    "cut parquet": ("parquet", GOOD[:-9]),
    "parquet without its middle": ("parquet", GOOD[:20] + b"\xff" * 40 + GOOD[60:]),
    "parquet of other columns": ("parquet", parquet(x=[1])),
    "parquet with a text": ("parquet", parquet(age=["old"], city=["x"])),
    "parquet with a structure": ("parquet", parquet(age=[{"a": 1}], city=["x"])),
    "parquet with infinity": ("parquet", parquet(age=[float("inf")], city=["x"])),
    "parquet with no UTF-8": ("parquet", parquet(
        age=[1.0], city=pa.array([b"\xff"]).view(pa.string()))),
    "parquet with times of no zone": ("parquet", parquet(
        age=[1.0], city=pa.array([1], pa.timestamp("us", "Mars/Olympus")))),
    "parquet with times of no year": ("parquet", parquet(
        age=[1.0], city=pa.array([2**61], pa.timestamp("us")))),
    "parquet without rows": ("parquet", parquet(age=pa.array([], pa.float64()),
                                                 city=pa.array([], pa.string()))),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_broken_files_are_refused_in_words(what: str, tmp_path: Path, batch: Batch) -> None:
    kind, content = REFUSED[what]
    (tmp_path / f"in.{kind}").write_bytes(content)
    ran = batch(tmp_path / f"in.{kind}", "--output", tmp_path / "out.csv", "--plain")
    assert ran.status == 2, ran.out
    last = ran.err.splitlines()[0]
    assert last.startswith("error: ")
    assert len(last) > 30
    assert "Traceback" not in ran.err
    assert sorted(each.name for each in tmp_path.iterdir()) == [f"in.{kind}"]


READ: dict[str, bytes] = {
    "a mark": b"\xef\xbb\xbfage,city\n1,x\n2,y\n",
    "utf-16": "age,city\n1,x\n2,y\n".encode("utf-16"),
    "returns alone": b"age,city\r1,x\r2,y\r",
    "returns and feeds": b"age,city\r\n1,x\r\n2,y",
    "empty lines": b"\n\nage,city\n\n1,x\n\n\n2,y\n\n",
    "semicolons": b"age;city\n1;x\n2;y\n",
    "tabs": b"age\tcity\n1\tx\n2\ty\n",
    "quotes": b'"age","city"\n"1","x"\n"2","y"\n',
    "spaces": b"age,city\n 1 , x\n2 ,y \n",
    "arabic digits": "age,city\n\u0661,x\n\u0662,y\n".encode(),
    "other order, more columns": b"id,city,note,age\n7,x,,1\n8,y,,2\n",
}


@pytest.mark.parametrize("what", READ)
def test_forms_of_one_table_give_one_answer(what: str, tmp_path: Path, batch: Batch) -> None:
    (tmp_path / "in.csv").write_bytes(READ[what])
    ran = batch(tmp_path / "in.csv", "--output", tmp_path / "out.csv", "--plain")
    assert ran.status == 0, ran.err
    assert (tmp_path / "out.csv").read_text() == "row,score,label\n1,1.0,x\n2,2.0,y\n"


def test_another_encoding_is_named(tmp_path: Path, batch: Batch) -> None:
    (tmp_path / "in.csv").write_bytes("age,city\n1,دبي\n".encode("windows-1256"))
    words = (tmp_path / "in.csv", "--output", tmp_path / "out.csv", "--plain")
    refused = batch(*words)
    assert "(line 2) is invalid" in refused.err
    assert batch(*words, "--encoding", "windows-1256").status == 0
    assert (tmp_path / "out.csv").read_text().endswith("1,1.0,دبي\n")
    assert "unknown encoding" in batch(*words, "--encoding", "utf-99").err
    (tmp_path / "in.csv").write_bytes(b"age,city\n" + b"1,dubai\n" * 140_000 + b"1,caf\xe9\n")
    assert "byte 0xe9 in line 140,002 is invalid" in batch(*words, "--overwrite").err


@pytest.mark.parametrize("cell", ["=1+1", "+cmd", "-x", "@sum", "\tx", "\uff1d1", "=HYPERLINK(1)"])
def test_formulas_get_an_apostrophe(cell: str, tmp_path: Path, batch: Batch) -> None:
    data = json.dumps({"age": 1, "city": "x", "note": cell, "=name": "y"}, ensure_ascii=False)
    (tmp_path / "in.jsonl").write_text(data + "\n", encoding="utf-8")
    words = (tmp_path / "in.jsonl", "--keep", "note", "--keep", "=name", "--plain")
    done = batch(*words, "--output", tmp_path / "out.csv")
    assert done.answer["escaped"] == 1
    text = (tmp_path / "out.csv").read_text(encoding="utf-8")
    assert "'" + cell in text
    assert text.startswith("row,note,'=name,")
    assert batch(*words, "--output", tmp_path / "raw.csv", "--raw-text").answer["escaped"] == 0
    assert "'" not in (tmp_path / "raw.csv").read_text(encoding="utf-8")
    batch(*words, "--output", tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text())["note"] == cell


@pytest.mark.parametrize("cell", ["-5", "+1.5", "-1,5", "-3e5", "-40%"])
def test_signed_numbers_stay_numbers(cell: str, tmp_path: Path, batch: Batch) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps({"age": 1, "city": "x", "n": cell}))
    words = (tmp_path / "in.jsonl", "--keep", "n", "--plain", "--output", tmp_path / "out.csv")
    assert batch(*words).answer["escaped"] == 0


def test_columns_are_named_that_lack_or_are_beside(tmp_path: Path, batch: Batch) -> None:
    (tmp_path / "in.csv").write_text("Age,note,city\n1,x,y\n")
    ran = batch(tmp_path / "in.csv", "--output", tmp_path / "out.csv")
    assert "lacks 1 of the model's 2 columns: 'age'" in ran.err
    assert "'Age', 'note'" in ran.err
    assert "is 'Age' meant for 'age'?" in ran.err
    (tmp_path / "in.csv").write_text("age,note,city\n1,x,y\n")
    ran = batch(tmp_path / "in.csv", "--output", tmp_path / "out.csv", "--keep", "notes")
    assert "--keep" in ran.err
    ran = batch(tmp_path / "in.csv", "--output", tmp_path / "out.csv")
    assert "columns that the model doesn't take: 'note'" in ran.err


def test_names_of_kept_columns_stay(tmp_path: Path, batch: Batch) -> None:
    (tmp_path / "in.csv").write_text("age,city,row,label,score\n1,x,7,old,low\n")
    done = batch(tmp_path / "in.csv", "--output", tmp_path / "o.csv", "--keep", "*", "--plain")
    assert done.answer["options"]["columns"] == [
        "input_row", "age", "city", "row", "label", "score", "predicted_score", "predicted_label",
    ]  # fmt: skip


def test_outputs_go_where_they_were_meant_to(tmp_path: Path, batch: Batch) -> None:
    (tmp_path / "in").mkdir()
    table = tmp_path / "in" / "in.csv"
    table.write_text("age,city\n1,x\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "partial.csv.partial").symlink_to(tmp_path / "in")
    cases = {
        table: "would be read as input",
        tmp_path / "in" / "out.csv": "would be read as input",
        tmp_path / "in" / ".." / "in" / "out.csv": "would be read as input",
        tmp_path / "link.csv": "symbolic link",
        tmp_path / "partial.csv": "symbolic link",
        tmp_path / "none" / "none" / "out.csv": "there is no folder",
        tmp_path / "in": "extension",
        tmp_path / "out.exe": "extension",
        tmp_path / "out": "extension",
    }
    for output, reason in cases.items():
        ran = batch(tmp_path / "in", "--output", output, "--plain")
        assert ran.status == 2, output
        assert reason in ran.err
    assert [each.name for each in (tmp_path / "in").iterdir()] == ["in.csv"]
    assert not (tmp_path / "elsewhere").exists()


def test_only_ordinary_files_are_read(tmp_path: Path, batch: Batch) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    output = ("--output", tmp_path / "out.csv")
    assert "no file of the kinds" in batch(folder, *output).err
    (folder / "secret.csv").symlink_to("/etc/passwd")
    assert "symbolic link" in batch(folder, *output).err
    os.mkfifo(tmp_path / "pipe.csv")
    assert "ordinary file" in batch(tmp_path / "pipe.csv", *output).err
    assert "cannot read" in batch(tmp_path / "none.csv", *output).err
    assert "address" in batch("s3://bucket/rows.csv", *output).err
    assert "extension" in batch("/dev/zero", *output).err


def test_a_file_that_changes_is_refused(
    tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "in.csv"
    table.write_text("age,city\n" + "1,x\n" * 5_000)
    usual = CsvSource.chunks

    def changing(self: CsvSource, columns: object) -> Iterator[object]:
        for number, chunk in enumerate(usual(self, columns)):  # type: ignore[arg-type]
            yield chunk
            if number == 0:
                with table.open("a") as file:
                    file.write("2,y\n")

    monkeypatch.setattr(CsvSource, "chunks", changing)
    ran = batch(table, "--output", tmp_path / "out.csv", "--plain")
    assert ran.status == 2
    assert "changed while it was read" in ran.err
    assert [each.name for each in tmp_path.iterdir()] == ["in.csv"]


def test_a_file_that_changes_between_the_readings_is_refused(
    tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "in.csv"
    table.write_text("age,city\n1,x\n")
    usual = prediction.Batch.survey

    def surveyed(self: prediction.Batch, *more: object) -> None:
        usual(self, *more)  # type: ignore[arg-type]
        kept = table.stat()
        table.write_text("age,city\n2,x\n")
        os.utime(table, ns=(kept.st_atime_ns, kept.st_mtime_ns))

    monkeypatch.setattr(prediction.Batch, "survey", surveyed)
    ran = batch(table, "--output", tmp_path / "out.csv", "--plain")
    assert "changed while it was read" in ran.err
    assert not (tmp_path / "out.csv").exists()


@contextmanager
def largest_file(size: int) -> Generator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("plain", [["--plain"], []])
def test_a_full_disk_leaves_what_was_done(
    plain: list[str], tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction, "PART_ROWS", 4_096)
    table = tmp_path / "in.csv"
    table.write_text("age,city\n" + "".join(f"{i},x\n" for i in range(20_000)))
    words = (table, "--output", tmp_path / "out.csv", *plain)
    with largest_file(100_000):  # a part has room, the output hasn't
        ran = batch(*words)
    assert ran.status == 2
    assert "no space left" in ran.err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.csv", "out.csv.partial"]
    done = batch(*words)
    assert done.answer["resumed_at"] == 20_000
    assert done.answer["rows"] == 20_000


def test_parts_of_another_job_are_not_gone_on_with(
    tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch, published: Site
) -> None:
    monkeypatch.setattr(prediction, "PART_ROWS", 4_096)
    table = tmp_path / "in.csv"
    table.write_text("age,city\n" + "".join(f"{i},x\n" for i in range(20_000)))
    words = (table, "--output", tmp_path / "out.csv")
    with largest_file(100_000):
        batch(*words)
    table.write_text("age,city\n" + "".join(f"{i},y\n" for i in range(20_000)))
    ran = batch(*words)
    assert ran.status == 2
    assert "parts of another job: input changed since" in ran.err
    assert "--restart" in ran.err
    part = tmp_path / "out.csv.partial" / "000000.part.sealed"
    assert part.is_file()
    (tmp_path / "out.csv.partial" / "000001.part.sealed").write_bytes(part.read_bytes())
    done = batch(*words, "--restart")
    assert done.answer["resumed_at"] == 0
    assert done.answer["rows"] == 20_000


def test_parts_that_were_swapped_are_not_used_but_made_again(
    tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction, "PART_ROWS", 4_096)
    table = tmp_path / "in.csv"
    table.write_text("age,city\n" + "".join(f"{i},x\n" for i in range(20_000)))
    words = (table, "--output", tmp_path / "out.csv")
    with largest_file(100_000):
        batch(*words)
    first, second = (tmp_path / "out.csv.partial" / f"00000{i}.part.sealed" for i in (0, 1))
    second.write_bytes(first.read_bytes())
    ran = batch(*words)
    assert "isn't what was written" in ran.err
    assert "the part 2 and those behind it are made again" in ran.err
    assert (ran.answer["resumed_at"], ran.answer["rows"]) == (4_096, 20_000)
    whole = batch(table, "--output", tmp_path / "whole.csv")
    assert ran.answer["sha256"] == whole.answer["sha256"]


def test_restricted_data_is_never_plain(tmp_path: Path, batch: Batch, published: Site) -> None:
    model = models.table()
    fields = {**models.fields(model, "restricted"), "data_class": "restricted"}
    published.publish(model, name="secret", fields=fields)
    (tmp_path / "in.csv").write_text("age,city\n1,x\n")
    words = (tmp_path / "in.csv", "--output", tmp_path / "out.csv")
    ran = batch(*words, "--plain", model="secret")
    assert "class 'restricted'" in ran.err
    assert batch(*words, model="secret").status == 0


def test_a_package_that_was_changed_predicts_nothing(
    tmp_path: Path, batch: Batch, published: Site
) -> None:
    published.publish(models.table(), name="broken")
    sealed = published.store.path("broken", 1) / "files" / "model.onnx.enc"
    content = bytearray(sealed.read_bytes())
    content[100] ^= 1
    sealed.write_bytes(content)
    (tmp_path / "in.csv").write_text("age,city\n1,x\n")
    ran = batch(tmp_path / "in.csv", "--output", tmp_path / "out.csv", model="broken")
    assert ran.status == 2
    assert "isn't what was signed" in ran.err


BYTES = st.one_of(
    st.binary(max_size=200),
    st.lists(
        st.sampled_from([b'"', b",", b"\n", b"\r", b";", b"1", b"x", b"\xd9\xa1", b"{", b"}",
                         b'{"age":', b'"city":', b"null", b"age,city", b"\x00", b"\xff\xfe"]),
        max_size=40,
    ).map(b"".join),
)  # fmt: skip


@given(data=BYTES, suffix=st.sampled_from([".csv", ".jsonl", ".parquet"]))
def test_any_bytes_are_rows_or_refused(
    data: bytes, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any{suffix}"
    path.write_bytes(data)
    try:
        (source,), _ = open_sources([path], None, None)
        header = source.header() or []
        columns = [name for name in header if name][:2]
        seen = 0
        for chunk in source.chunks(columns):
            assert len(chunk.rows) + len(chunk.bad) == chunk.count
            assert all(len(chunk.columns[name]) == len(chunk.rows) for name in columns)
            numbers = sorted([*chunk.rows, *(bad.row for bad in chunk.bad)])
            assert numbers == list(range(seen + 1, seen + chunk.count + 1))
            seen += chunk.count
    except WorkloadError as error:
        assert str(error)
    else:
        assert source.digest == hashlib.sha256(data).hexdigest()
