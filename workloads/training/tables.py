"""A person's table: CSV in any named encoding, or Parquet; its columns, and the one to predict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.header import check_header, decode, names_of, not_parquet

MISSING_NUMBERS = ("", "na", "n/a", "nan", "null", "none", "?", "-")
"""What stands for a missing number, in any case. In a text column only "" is missing, so that
a category that happens to be called "NA" or "None" survives."""

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)

_IDENTIFIER_SHARE = 0.5
_IDENTIFIER_FLOOR = 20
_LARGEST_CATEGORY = 256
_FEW_STRAYS = 0.05

# Arrow makes these functions at import time and ships no types.
_compute: Any = pyarrow.compute

Values = NDArray[Any]


@dataclass(frozen=True)
class Column:
    """One usable column.

    Attributes:
        name: its name in the file.
        kind: ``numeric`` (float64, NaN where missing) or ``text`` (str objects, "" where missing).
        values: one value a row, shape (rows,).
    """

    name: str
    kind: str
    values: Values

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Return which rows have no value, shape (rows,)."""
        if self.kind == "numeric":
            return np.isnan(self.values)
        return np.asarray(self.values == "", dtype=np.bool_)


@dataclass(frozen=True)
class Excluded:
    """A column that is left out, and the reason in words."""

    name: str
    reason: str


def interpret(name: str, data: Any) -> Column | Excluded:
    """Return ``data`` (a pyarrow.ChunkedArray) as numbers or text, or why it is neither.

    Raises:
        WorkloadError: it holds infinite numbers, or numbers beyond 32-bit floats.
    """
    kind = data.type
    if pa.types.is_dictionary(kind):
        data = pa.chunked_array([chunk.dictionary_decode() for chunk in data.chunks])
        kind = data.type
    if len(data) == data.null_count or pa.types.is_null(kind):
        return Excluded(name, "every value is missing")
    if pa.types.is_boolean(kind):
        return _text(name, _compute.if_else(data, "true", "false"))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _written(name, data)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _numeric(name, _compute.cast(data, pa.float64(), safe=False))
    return Excluded(name, f"values of type {kind} are not supported: derive numbers or text first")


def useless(column: Column) -> str | None:
    """Return why ``column`` can't help a model as a feature, or None if it can."""
    if not column.name:
        return "the column has no name"
    present = column.values[~column.missing]
    distinct = len(np.unique(present))
    if distinct < 2 and not column.missing.any():
        return f"every value is {_shown(present[0])}"
    if column.kind == "numeric":
        return _useless_numbers(present, len(column.values))
    return _useless_texts(present)


def _useless_numbers(present: Values, rows: int) -> str | None:
    whole = bool(np.all(present == np.round(present)))
    if not whole or len(present) != rows or rows < _IDENTIFIER_FLOOR:
        return None
    consecutive = len(np.unique(present)) == rows == np.ptp(present) + 1
    return "it numbers the rows" if consecutive else None


def _useless_texts(present: Values) -> str | None:
    if max(map(len, present), default=0) > _LARGEST_CATEGORY:
        return f"it holds free text (values of more than {_LARGEST_CATEGORY} characters)"
    distinct = len(np.unique(present))
    if distinct > max(_IDENTIFIER_FLOOR, _IDENTIFIER_SHARE * len(present)):
        return (
            f"it looks like an identifier: {distinct:,} different texts in {len(present):,} rows"
            + _stray_hint(present)
        )
    return None


def _written(name: str, data: Any) -> Column | Excluded:
    trimmed = _compute.utf8_trim_whitespace(_compute.fill_null(data, ""))
    missing = _compute.is_in(
        _compute.utf8_lower(trimmed), value_set=pa.array(MISSING_NUMBERS, trimmed.type)
    )
    if _compute.all(missing).as_py():
        return Excluded(name, "every value is missing")
    try:
        numbers = _compute.cast(_compute.if_else(missing, None, trimmed), pa.float64())
    except pa.ArrowInvalid:
        return _text(name, trimmed)
    return _numeric(name, numbers)


def _numeric(name: str, data: Any) -> Column:
    values = np.asarray(_compute.fill_null(data, np.nan).to_numpy(), dtype=np.float64)
    beyond = np.abs(values) > LARGEST_FLOAT32  # NaN compares false
    if beyond.any():
        row = int(np.flatnonzero(beyond)[0])
        raise WorkloadError(
            f"column {name!r} holds {int(beyond.sum()):,} infinite or too large numbers; the "
            f"first is {values[row]} in row {row + 1}: allowed is up to {LARGEST_FLOAT32:.4g} "
            "either way. Replace them, or leave the cells empty (missing)"
        )
    return Column(name, "numeric", values)


def _text(name: str, data: Any) -> Column:
    values = np.asarray(_compute.fill_null(data, "").to_pylist(), dtype=object)
    return Column(name, "text", values)


def _stray_hint(present: Values) -> str:
    """Say so when a text column is nearly all numbers, or numbers with decimal commas."""
    strays = [value for value in present if not _is_number(value)]
    if all(_is_number(value.replace(",", ".")) for value in strays):
        return "; its numbers are written with decimal commas: write decimal points"
    if len(strays) <= _FEW_STRAYS * len(present):
        return f"; nearly all are numbers, but {_shown(strays[0])} is not: mend those rows"
    return ""


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else f"{value:g}"


TASKS = ("auto", "classification", "regression")

MAXIMUM_CLASSES = 1_000
_FEW_WHOLE_NUMBERS = 20
"""A numeric target with up to this many different whole numbers is taken for classes."""


@dataclass(frozen=True)
class Target:
    """The labels of the rows that have one.

    Attributes:
        task: ``classification`` or ``regression``.
        labels: int64 class numbers or float64 values, shape (rows kept,).
        classes: the classes' names in order, None for a regression.
        kept: which rows of the table have a target, shape (rows,).
    """

    task: str
    labels: NDArray[np.generic]
    classes: list[str] | None
    kept: NDArray[np.bool_]


def interpret_target(column: Column, task: str) -> Target:
    """Decide the task and number the classes.

    With ``auto`` a text target, and one of up to 20 different whole numbers, is classified;
    any other number is regressed.

    Raises:
        WorkloadError: the target is constant, looks like an identifier, or is text where a
            regression was asked for.
    """
    kept = ~column.missing
    present = column.values[kept]
    name = column.name
    if len(present) == 0:
        raise WorkloadError(f"the target column {name!r} has no value in any row")
    distinct, counts = np.unique(present, return_counts=True)
    if len(distinct) < 2:
        raise WorkloadError(
            f"the target column {name!r} is constant: every row says {distinct[0]!r}; there is "
            "nothing to learn. Choose another target, or rows with different values"
        )
    whole = column.kind == "numeric" and bool(np.all(distinct == np.round(distinct)))
    chosen = task
    if task == "auto":
        few = whole and len(distinct) <= _FEW_WHOLE_NUMBERS
        chosen = "classification" if column.kind == "text" or few else "regression"
    if chosen == "regression":
        if column.kind == "text":
            raise WorkloadError(
                f"the target column {name!r} holds text ({distinct[0]!r}, for instance), which "
                "can't be regressed: use --task classification, or a target of numbers"
            )
        return Target(chosen, present.astype(np.float64), None, kept)
    _check_classes(name, distinct, counts)
    classes = [_class_name(value) for value in distinct]
    return Target(chosen, np.searchsorted(distinct, present).astype(np.int64), classes, kept)


def _check_classes(name: str, distinct: NDArray[np.generic], counts: NDArray[np.integer]) -> None:
    single = int((counts == 1).sum())
    if single > 0.5 * int(counts.sum()) or len(distinct) == single:
        raise WorkloadError(
            f"the target column {name!r} has {len(distinct):,} different values in "
            f"{int(counts.sum()):,} rows, {single:,} of them once only: it looks like an "
            "identifier. Choose another target, or --task regression for a measured number"
        )
    if len(distinct) > MAXIMUM_CLASSES:
        raise WorkloadError(
            f"the target column {name!r} has {len(distinct):,} classes; at most "
            f"{MAXIMUM_CLASSES:,} are allowed: group them, or use --task regression for numbers"
        )


def _class_name(value: object) -> str:
    if isinstance(value, str):
        return value
    number = float(str(value))
    return str(int(number)) if number.is_integer() else repr(number)


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
