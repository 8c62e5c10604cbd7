"""A person's table: CSV in any named encoding, or Parquet; its columns, and the one to predict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from falaj.workloads.bounds import ENDINGS
from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.dates import DateForm, form_of
from falaj.workloads.training.header import (
    check_header,
    decode,
    names_of,
    not_parquet,
    odd_quotes,
    refuse_damaged,
)
from falaj.workloads.training.numerals import (
    Mark,
    are_codes,
    bare,
    most_used,
    number,
    readings,
    units,
)
from falaj.workloads.training.words import is_prose

MISSING_NUMBERS = ("", "na", "n/a", "nan", "null", "none", "?", "-")
"""What stands for a missing number, in any case."""

MISSING_TEXTS = ("", "nan", "null", "#n/a", "n/a")
"""What stands for a missing text, in any case: what programs write. A category that happens to be
called "NA" or "None" survives."""

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)

_PROGRAMS = r"^[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$"
_CLEAR_POINT = r"^[+-]?(0[0-9]*\.[0-9]+|[0-9]+\.([0-9]{1,2}|[0-9]{4,}))$"
"""No point of thousands: it stands behind a zero, or not before three digits."""
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
        kind: ``numeric`` (float64, NaN where missing); or, as str objects that are "" where
            missing, ``text`` (categories), ``date`` or ``words`` (free text).
        values: one value a row, shape (rows,).
        note: how it was read, in words, where that isn't plain.
        form: of a date, None else.
    """

    name: str
    kind: str
    values: Values
    note: str = ""
    form: DateForm | None = None

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


def decimal_mark(columns: Iterable[Any]) -> Mark:
    """Return what the columns (pyarrow.ChunkedArray) of one file write before decimals.

    One column may leave it open ("1.153" is a thousand or a little more than one): most of those
    that are clear decide. Where as many say the other, it is the point.
    """
    clear: Counter[Mark] = Counter()
    for data in columns:
        if not pa.types.is_string(data.type):
            continue
        if _has_points(data):
            clear["."] += 1
            continue
        fitting = readings(_distinct_numbers(data))
        if len(fitting) == 1:
            clear.update(fitting)
    return most_used(clear)


def _has_points(data: Any) -> bool:
    """Whether a text column has numbers as programs write them, and one that no comma fits.

    Where it isn't sure, `readings` is: this one needs no second for a million of them.
    """
    present = present_numbers(_compute.utf8_trim_whitespace(_compute.fill_null(data, "")))
    matches = _compute.match_substring_regex
    if not _compute.any(matches(present, _CLEAR_POINT)).as_py():
        return False
    return _compute.all(matches(present, _PROGRAMS)).as_py() is True


def interpret(name: str, data: Any, mark: Mark = ".") -> Column | Excluded:
    """Return ``data`` (a pyarrow.ChunkedArray) as numbers, text or dates, or why it is neither.

    Args:
        name: the column's.
        data: its values.
        mark: what the file writes before decimals; a column that is clear overrules it.

    Raises:
        WorkloadError: it holds infinite numbers, or numbers beyond 32-bit floats, or times of a
            zone that this machine doesn't know.
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
        return _written(name, data, mark)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _text(name, _compute.cast(_days(name, data), pa.string()))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _numeric(name, _compute.cast(data, pa.float64(), safe=False))
    return Excluded(name, f"values of type {kind} are not supported: derive numbers or text first")


def _days(name: str, data: Any) -> Any:
    """Days of dates or times, as their zone has them."""
    try:
        return _compute.cast(data, pa.date32(), safe=False)
    except pa.ArrowInvalid as error:
        raise WorkloadError(
            f"column {name!r} holds times whose days can't be told: {error}; write them in UTC"
        ) from error


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
    if column.kind == "long":
        return (
            f"it holds texts of more than {_LARGEST_CATEGORY} characters that have no words in "
            "common"
        )
    return _useless_texts(present) if column.kind == "text" else None


def _useless_numbers(present: Values, rows: int) -> str | None:
    whole = bool(np.all(present == np.round(present)))
    if not whole or len(present) != rows or rows < _IDENTIFIER_FLOOR:
        return None
    consecutive = len(np.unique(present)) == rows == np.ptp(present) + 1
    return "it numbers the rows" if consecutive else None


def _useless_texts(present: Values) -> str | None:
    distinct = len(np.unique(present))
    if distinct > max(_IDENTIFIER_FLOOR, _IDENTIFIER_SHARE * len(present)):
        return (
            f"it looks like an identifier: {distinct:,} different texts in {len(present):,} rows"
            + _stray_hint(present)
        )
    return None


def _distinct_numbers(data: Any) -> Iterator[str]:
    """The different values of a text column that aren't missing, as bare numbers."""
    trimmed = _compute.utf8_trim_whitespace(_compute.fill_null(data, ""))
    texts = _compute.unique(trimmed).to_pylist()
    return (bare(text) for text in texts if text.lower() not in MISSING_NUMBERS)


def present_numbers(trimmed: Any) -> Any:
    """Texts of numbers, without white space around them: null where one is missing."""
    missing = _compute.is_in(
        _compute.utf8_lower(trimmed), value_set=pa.array(MISSING_NUMBERS, trimmed.type)
    )
    return _compute.if_else(missing, None, trimmed)


def _written(name: str, data: Any, mark: Mark) -> Column | Excluded:
    trimmed = _compute.utf8_trim_whitespace(_compute.fill_null(data, ""))
    present = present_numbers(trimmed)
    if present.null_count == len(present):
        return Excluded(name, "every value is missing")
    written = [each for each in _compute.unique(present).to_pylist() if each is not None]
    if are_codes(written):
        text = _text(name, trimmed)
        return replace(text, note="read as codes, not as numbers, for the zeros before them")
    # With decimal commas whole numbers are still plain; "1.153" isn't.
    try:
        plain = _compute.cast(present, pa.float64() if mark == "." else pa.int64())
        return _numeric(name, _compute.cast(plain, pa.float64(), safe=False))
    except pa.ArrowInvalid:
        pass
    fitting = readings(map(bare, written))
    if not fitting:
        return _text(name, trimmed)
    if len(different := units(written)) > 1:
        return Excluded(
            name,
            f"its numbers have different units ({', '.join(sorted(different))}): convert them",
        )
    chosen = mark if mark in fitting else fitting.pop()
    values = [None if each is None else number(bare(each), chosen) for each in present.to_pylist()]
    note = "numbers with decimal commas" if chosen == "," else "numbers as people write them"
    column = _numeric(name, pa.chunked_array([pa.array(values, pa.float64())]))
    return Column(name, "numeric", column.values, f"read as {note}")


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
    data = _compute.fill_null(data, "")
    missing = _compute.is_in(
        _compute.utf8_lower(data), value_set=pa.array(MISSING_TEXTS, data.type)
    )
    values = np.asarray(_compute.if_else(missing, "", data).to_pylist(), dtype=object)
    present = sorted(set(values.tolist()) - {""})
    form = form_of(present)
    if form is not None:
        doubt = "" if form.sure else ", the day first, as nothing in it tells day from month"
        return Column(name, "date", values, f"read as dates{doubt}", form)
    many = len(present) > max(_IDENTIFIER_FLOOR, _IDENTIFIER_SHARE * int((values != "").sum()))
    long = any(len(each) > _LARGEST_CATEGORY for each in present)
    if (many or long) and is_prose(present):
        return Column(name, "words", values, "read as free text, by its words")
    if long:
        return Column(name, "long", values)
    return Column(name, "text", values)


def _stray_hint(present: Values) -> str:
    """Say so when a text column is nearly all numbers, or dates."""
    for what, fits in (("numbers", _is_number), ("dates", _is_date)):
        strays = [value for value in present if not fits(value)]
        if not strays:
            return f"; all are {what}, but not written in one way: mend those rows"
        if len(strays) <= _FEW_STRAYS * len(present):
            return f"; nearly all are {what}, but {_shown(strays[0])} is not: mend those rows"
    return ""


def _is_number(value: str) -> bool:
    return bool(readings([bare(value)])) and not are_codes([value])


def _is_date(value: str) -> bool:
    return form_of([value]) is not None


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else f"{value:g}"


MAXIMUM_CLASSES = 1_000
FEW_WHOLE_NUMBERS = 20
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
            f"the target column {name!r} is constant: every row says {_shown(distinct[0])}; "
            "there is nothing to learn. Choose another target, or rows with different values"
        )
    whole = column.kind == "numeric" and bool(np.all(distinct == np.round(distinct)))
    chosen = task
    if task == "auto":
        few = whole and len(distinct) <= FEW_WHOLE_NUMBERS
        chosen = "classification" if column.kind != "numeric" or few else "regression"
    if chosen == "regression":
        if column.kind != "numeric":
            raise WorkloadError(
                f"the target column {name!r} holds text ({_shown(distinct[0])}, for instance), "
                "which can't be regressed: use --task classification, or a target of numbers"
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
    if suffix not in ENDINGS["tables"]:
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
            table: Any = file.read(use_threads=False)
    except pa.ArrowException as error:
        raise not_parquet(path, error) from error
    for name in table.column_names:
        refuse_damaged(table.column(name), f"the column {name!r} of {path}")
    return table


def _read_csv(path: Path, encoding: str | None) -> Any:
    text = decode(path.read_bytes(), path, encoding)
    if not text.strip():
        raise WorkloadError(f"{path} holds only white space: it needs a header line and rows")
    if text.count('"') % 2:
        line = text.count("\n", 0, text.rindex('"')) + 1
        raise odd_quotes(path, line)
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
