"""What each column of a table is: a number, a text, or not usable and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from falaj.workloads.errors import WorkloadError

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
