"""Reading of a person's table: CSV in any named encoding, or Parquet, with clear refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.header import check_header, decode, names_of, not_parquet

MAXIMUM_BYTES = 2 << 30
"""A table is read into memory whole."""

_LONGEST_ROW_BYTES = 16 << 20


def read_table(path: Path, encoding: str | None = None) -> Any:
    """Read ``path`` (.csv or .parquet).

    Args:
        path: the file.
        encoding: the CSV file's encoding; None means UTF-8, or what its byte order mark says.

    Returns:
        A pyarrow.Table; every column of a CSV is text as it stands in the file.

    Raises:
        WorkloadError: the file is missing, empty, too large, of another kind, wrongly encoded,
            ragged, or its column names repeat.
    """
    suffix = path.suffix.lower()
    if suffix not in {".csv", ".parquet"}:
        raise WorkloadError(
            f"{path} has the extension {suffix or '(none)'!r}: a table is a .csv or .parquet file"
        )
    if not path.is_file():
        raise WorkloadError(f"there is no file {path}: give the path of a .csv or .parquet file")
    try:
        size = path.stat().st_size
        if size == 0:
            raise WorkloadError(f"{path} is empty: it needs a header line and rows")
        if size > MAXIMUM_BYTES:
            raise WorkloadError(
                f"{path} holds {size:,} bytes; at most {MAXIMUM_BYTES:,} are read: take a sample"
            )
        table = _read_parquet(path) if suffix == ".parquet" else _read_csv(path, encoding)
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror or error}") from error
    if table.num_rows == 0:
        raise WorkloadError(f"{path} has a header but no rows")
    return table


def _read_parquet(path: Path) -> Any:
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            check_header(file.schema_arrow.names, path)
            return file.read(use_threads=False)
    except pa.ArrowException as error:
        raise not_parquet(path, error) from error


def _read_csv(path: Path, encoding: str | None) -> Any:
    text = decode(path.read_bytes(), path, encoding)
    if not text.strip():
        raise WorkloadError(f"{path} holds only white space: it needs a header line and rows")
    if text.count('"') % 2:
        line = text.count("\n", 0, text.rindex('"')) + 1
        raise WorkloadError(
            f"{path} has an odd number of quotation marks (the last is in line {line:,}): one is "
            'never closed, and would swallow rows. Inside a quoted value write "" for "'
        )
    names, delimiter = names_of(text, path)
    # Arrow wants unique names; the caller sees columns without a name as "".
    ragged: list[Any] = []

    def remember(row: Any) -> str:
        ragged.append(row)
        return "skip"

    keys = [str(index) for index in range(len(names))]
    try:
        table = pacsv.read_csv(
            pa.BufferReader(text.strip("\r\n").encode("utf-8") + b"\n"),
            # One thread: only then does Arrow know the numbers of invalid rows.
            read_options=pacsv.ReadOptions(
                use_threads=False,
                column_names=keys,
                skip_rows_after_names=1,
                block_size=_LONGEST_ROW_BYTES,
            ),
            parse_options=pacsv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=remember
            ),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(keys, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise WorkloadError(f"{path} is not a readable CSV file: {reason}") from error
    if ragged:
        row = ragged[0]
        raise WorkloadError(
            f"{path}: {len(ragged):,} rows do not have the header's {row.expected_columns} "
            f"columns; the first is row {row.number} with {row.actual_columns}: "
            f"{row.text[:80]!r} (columns are separated by {delimiter!r}; a value that holds it "
            "must be quoted)"
        )
    return table.rename_columns(names)
