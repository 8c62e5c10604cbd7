"""Reading of tables: every refusal says what is wrong, where, and what to do."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.header import MAXIMUM_COLUMNS
from falaj.workloads.training.tables import read_table


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"no file .*absent\.csv"):
        read_table(tmp_path / "absent.csv")


def test_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(WorkloadError, match="no file"):
        read_table(tmp_path / "folder.csv")


@pytest.mark.parametrize("name", ["table.xlsx", "table.json", "table"])
def test_other_kinds_are_refused(tmp_path: Path, name: str) -> None:
    path = _write(tmp_path / name, b"a,b\n1,2\n")
    with pytest.raises(WorkloadError, match=r"\.csv or \.parquet"):
        read_table(path)


@pytest.mark.parametrize(("content", "reason"), [
    (b"", "is empty"),
    (b"\n \n\n", "only white space"),
    (b"a,b\n", "a header but no rows"),
    (b"a,b", "a header but no rows"),
    (b"\xef\xbb\xbfa,b\r\n", "a header but no rows"),
])  # fmt: skip
def test_nothing_to_read(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(WorkloadError, match=reason):
        read_table(_write(tmp_path / "t.csv", content))


def test_wrong_encoding_names_byte_place_and_remedy(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.csv", "name,y\nsûr,1\n".encode("latin-1"))
    with pytest.raises(WorkloadError, match=r"0xfb at position 8 \(line 2\).*UTF-8.*--encoding"):
        read_table(path)


def test_named_encoding_is_used(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.csv", "city,y\nدبي,1\n".encode("windows-1256"))
    assert read_table(path, "windows-1256").column("city").to_pylist() == ["دبي"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_mark_tells_the_encoding(tmp_path: Path, encoding: str) -> None:
    path = _write(tmp_path / "t.csv", "city,y\nدبي,1\n".encode(encoding))
    table = read_table(path)
    assert table.column_names == ["city", "y"]
    assert table.column("city").to_pylist() == ["دبي"]


def test_parquet_with_texts_that_are_none_is_refused(tmp_path: Path) -> None:
    texts: Any = pa.array([b"a", b"\xff"]).view(pa.string())
    pq.write_table(pa.table({"x": texts}), tmp_path / "t.parquet")
    with pytest.raises(
        WorkloadError, match=r"the column 'x' of .*t.parquet is damaged: Invalid UT"
    ):
        read_table(tmp_path / "t.parquet")


def test_unknown_encoding_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.csv", b"a\n1\n")
    with pytest.raises(WorkloadError, match="unknown encoding 'klingon'"):
        read_table(path, "klingon")


def test_binary_file_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.csv", b"a,b\n1,\x002\n")
    with pytest.raises(WorkloadError, match="NUL character at position 6"):
        read_table(path)


def test_ragged_rows_are_counted_and_shown(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.csv", b"a,b\n1,2\n1,2,3\n4\n")
    with pytest.raises(WorkloadError, match=r"2 rows .*2 columns; the first is row 3 with 3"):
        read_table(path)


def test_unclosed_quote_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.csv", b'a,b\n1,"2\n3,4\n')
    with pytest.raises(WorkloadError, match=r"odd number of quotation marks .* line 2"):
        read_table(path)


def test_repeated_names_are_listed(tmp_path: Path) -> None:
    path = _write(tmp_path / "t.csv", b"x,y,x\n1,2,3\n")
    with pytest.raises(WorkloadError, match="more than once: 'x'"):
        read_table(path)


def test_ten_thousand_columns_are_refused_with_the_limit(tmp_path: Path) -> None:
    names = ",".join(f"c{index}" for index in range(10_000))
    path = _write(tmp_path / "t.csv", f"{names}\n{','.join('1' * 10_000)}\n".encode())
    with pytest.raises(WorkloadError, match=rf"10,000 columns; at most {MAXIMUM_COLUMNS:,}"):
        read_table(path)


def test_wide_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({f"c{index}": [1] for index in range(MAXIMUM_COLUMNS + 1)}), path)
    with pytest.raises(WorkloadError, match="1,001 columns"):
        read_table(path)


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="not a readable Parquet file"):
        read_table(_write(tmp_path / "t.parquet", b"PAR1 not really"))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_recognised(tmp_path: Path, delimiter: str) -> None:
    text = f'"a,b"{delimiter}c\n"1;2"{delimiter}3\n'
    table = read_table(_write(tmp_path / "t.csv", text.encode()))
    assert table.column_names == ["a,b", "c"]
    assert table.column("a,b").to_pylist() == ["1;2"]


def test_lines_that_end_by_a_carriage_return_alone(tmp_path: Path) -> None:
    table = read_table(_write(tmp_path / "t.csv", b"a,b\r1,x\r2,y\r"))
    assert table.column_names == ["a", "b"]
    assert table.column("b").to_pylist() == ["x", "y"]


_CELL = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=8)


@given(rows=st.lists(st.tuples(_CELL, _CELL), min_size=1, max_size=5))
def test_what_csv_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([("a", "b"), *rows])
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(buffer.getvalue().encode())
    table = read_table(path)
    assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == rows
