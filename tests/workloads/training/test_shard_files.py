"""Shards as others write them: refused by file and record, else read a part at a time."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import shard_files
from falaj.workloads.training.shard_files import blocks
from falaj.workloads.training.shard_folder import find
from tests.examples import examples


def parquet(path: Path, columns: Mapping[str, Any]) -> Path:
    pq.write_table(pa.table(dict(columns)), path)
    return path


def tar(path: Path, files: list[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def special(path: Path, kind: bytes) -> Path:
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("1.cls")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    return path


def png(colour: int = 7, side: int = 8, mode: str = "L") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, (side, side), colour).save(buffer, "PNG")
    return buffer.getvalue()


def lines(path: Path, *records: str) -> Path:
    path.write_text("\n".join(records) + "\n")
    return path


def refused(path: Path) -> str:
    with pytest.raises(WorkloadError) as caught:
        list(blocks(path))
    return str(caught.value)


def cut(path: Path, less: int) -> Path:
    path.write_bytes(path.read_bytes()[:-less])
    return path


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda d: [], "nothing"),
        (lambda d: [lines(d / "a.jsonl", "{}"), (d / "b.txt").write_text("x")], "b.txt"),
        (lambda d: [lines(d / "a.jsonl", "{}"), (d / "b.tar").write_text("x")], ".jsonl, .tar"),
        (lambda d: [(d / "a.parquet").touch()], "a.parquet is empty (0 bytes)"),
        (lambda d: [(d / "a.parquet").symlink_to("/etc/passwd")], "is no file, but a link"),
        (lambda d: [(d / "a.parquet").mkdir()], "is no file, but a link, a folder"),
    ],
)
def test_a_folder_that_is_none_of_shards(
    tmp_path: Path, make: Callable[[Path], Any], words: str
) -> None:
    make(tmp_path)
    with pytest.raises(WorkloadError) as caught:
        find(tmp_path)
    assert words in str(caught.value)


def test_notes_of_other_programs_are_left_out(tmp_path: Path) -> None:
    for name in ("_SUCCESS", ".crc", "b.jsonl", "a.jsonl"):
        lines(tmp_path / name, "{}")
    assert [each.name for each in find(tmp_path)] == ["a.jsonl", "b.jsonl"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda d: cut(parquet(d / "a.parquet", {"x": [1.0] * 99}), 9),
            "shard a.parquet can't be",
        ),
        (lambda d: cut(tar(d / "a.tar", [("1.json", b"{}" * 900)]), 9_000), "a.tar can't be read"),
        (lambda d: cut(tar(d / "a.tar", [("1.json", b"{}")]), 10_000), "a.tar can't be read"),
        (lambda d: cut(tar(d / "a.tar", [("1.json", b"{}")]), 9_216), "its end is missing"),
        (
            lambda d: lines(d / "a.tar", "no tar"),
            "a.tar can't be read, it is cut short or damaged",
        ),
        (lambda d: lines(d / "a.arrow", "no arrow"), "a.arrow can't be read"),
        (
            lambda d: parquet(d / "a.parquet", {"x": [1.0]}).rename(d / "b.arrow"),
            "b.arrow can't be read",
        ),
        (
            lambda d: lines(d / "a.jsonl", '{"a":1}', "{"),
            "record 2 of the shard a.jsonl isn't JSON",
        ),
        (lambda d: lines(d / "a.jsonl", '{"a":NaN}'), "record 1 of the shard a.jsonl isn't JSON"),
        (
            lambda d: lines(d / "a.jsonl", "[1]"),
            "record 1 of the shard a.jsonl isn't a JSON object",
        ),
        (
            lambda d: lines(d / "a.jsonl", '{"a":1}', '{"b":1}'),
            "record 2 of the shard a.jsonl lacks",
        ),
        (
            lambda d: lines(d / "a.jsonl", '{"a":1}', '{"a":null}', '{"a":"x"}'),
            "'a' of the shard a.jsonl is numeric in record 1 and text in record 3",
        ),
        (
            lambda d: tar(d / "a.tar", [("/etc/1.cls", b"x")]),
            "'/etc/1.cls' in the shard a.tar leads",
        ),
        (
            lambda d: tar(d / "a.tar", [("../1.cls", b"x")]),
            "'../1.cls' in the shard a.tar leads out",
        ),
        (lambda d: tar(d / "a.tar", [("a\\1.cls", b"x")]), "leads out of it"),
        (lambda d: tar(d / "a.tar", [("1\n.cls", b"x")]), "leads out of it"),
        (lambda d: special(d / "a.tar", tarfile.SYMTYPE), "is a link or a device"),
        (lambda d: special(d / "a.tar", tarfile.LNKTYPE), "is a link or a device"),
        (lambda d: special(d / "a.tar", tarfile.CHRTYPE), "is a link or a device"),
        (lambda d: special(d / "a.tar", tarfile.FIFOTYPE), "is a link or a device"),
        (lambda d: tar(d / "a.tar", [("noending", b"x")]), "has no name or no ending"),
        (lambda d: tar(d / "a.tar", [("1.json", b"{}"), ("1.json", b"{}")]), "'1.json' twice"),
        (
            lambda d: tar(d / "a.tar", [("1.json", b"{}"), ("2.json", b"{}"), ("1.cls", b"x")]),
            "'1' twice, with others in between",
        ),
        (
            lambda d: tar(d / "a.tar", [("1.png", png())]),
            "record 1 (1) of the shard a.tar has .png",
        ),
        (
            lambda d: tar(d / "a.tar", [("1.png", png()), ("1.jpg", png()), ("1.cls", b"x")]),
            "needed are one picture",
        ),
        (
            lambda d: tar(d / "a.tar", [("1.png", png()), ("1.cls", b"\xff")]),
            "the class of record 1",
        ),
        (
            lambda d: tar(
                d / "a.tar", [("1.png", png()), ("1.cls", b"x"), ("2.json", b'{"a": 1}')]
            ),
            "has records with pictures and others without",
        ),
    ],
)
def test_what_is_wrong_is_told_by_shard_and_record(
    tmp_path: Path, make: Callable[[Path], Path], words: str
) -> None:
    assert words in refused(make(tmp_path))


def test_names_of_columns_that_are_there_twice(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(table, tmp_path / "a.parquet")
    assert "occur more than once: 'a'" in refused(tmp_path / "a.parquet")


def test_a_record_that_is_larger_than_any_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_files, "LARGEST_RECORD", 1 << 20)
    big = b'{"a": "' + b"x" * (1 << 20) + b'"}'
    assert "has 1,048,585 bytes" in refused(tar(tmp_path / "a.tar", [("1.json", big)]))
    assert "line 1 of the shard a.jsonl" in refused(lines(tmp_path / "a.jsonl", big.decode()))


@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrow-stream", "jsonl", "tar"])
def test_all_forms_are_read_alike(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_files, "BLOCK_ROWS", 2)
    records = [
        {"age": 3.5, "city": "دبي", "flag": True, "all": None, "list": [1]},
        {"age": None, "city": None, "flag": False, "all": None, "list": [2]},
        {"age": 1, "city": "x", "flag": None, "all": None, "list": []},
    ]
    path = tmp_path / f"a.{kind.partition('-')[0]}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    elif kind.startswith("arrow"):
        table = pa.Table.from_pylist(records)
        make = pa.ipc.new_stream if kind.endswith("stream") else pa.ipc.new_file
        with make(path, table.schema) as writer:
            writer.write_table(table)
    elif kind == "jsonl":
        lines(path, *(json.dumps(each, ensure_ascii=False) for each in records))
    else:
        tar(path, [(f"d/{n}.json", json.dumps(each).encode()) for n, each in enumerate(records)])
    found = [each for each in blocks(path) if each.rows]
    assert [(each.first, each.rows, each.shard) for each in found] == [
        (1, 2, path.name), (3, 1, path.name),
    ]  # fmt: skip
    age, city, flag, empty, other = found[0].columns.values()
    assert np.array_equal(age.values, [3.5, np.nan], equal_nan=True)
    assert (city.kind, list(city.values)) == ("text", ["دبي", ""])
    assert list(flag.values) == [1, 0]
    assert (empty.kind, other.kind) == ("empty", "neither numbers nor texts")


def test_a_shard_without_rows_is_read(tmp_path: Path) -> None:
    assert [each.rows for each in blocks(parquet(tmp_path / "a.parquet", {"x": []}))] == [0]
    assert [each.rows for each in blocks(tar(tmp_path / "b.tar", []))] == [0]


def test_pictures_and_their_classes(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", [("1.png", png(3)), ("1.cls", b"cat\n"), ("2.cls", b"dog"),
                                    ("2.PNG", png(9))])  # fmt: skip
    (found,) = blocks(path)
    assert list(found.columns[".cls"].values) == ["cat", "dog"]
    assert shard_files.picture(found.pictures[1], 8, "it").tolist() == [[[9] * 8] * 8] * 3
    with pytest.raises(WorkloadError, match="the picture of it can't be read: no picture"):
        shard_files.picture(b"none", 8, "it")


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 10_239), st.integers(0, 255), st.integers(0, 10_239))
def test_damaged_tars_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, less: int, byte: int, at: int
) -> None:
    """Whatever is done to a tar, it is read or refused in words, by no other error."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("1.json", "2.json"):
            member = tarfile.TarInfo(name)
            member.size = 8
            archive.addfile(member, io.BytesIO(b'{"a": 1}'))
    data = bytearray(buffer.getvalue())
    data[at % len(data)] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.tar"
    for content in (bytes(data), bytes(data[:-less])):
        path.write_bytes(content)
        try:
            rows = sum(each.rows for each in blocks(path))
        except WorkloadError:
            continue
        finally:
            path.unlink()
        assert rows <= 2
