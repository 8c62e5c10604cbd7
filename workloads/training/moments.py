"""Times of rows, as tables have them: columns of times, or texts of dates and times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.dates import LATIN, TIME_MARKS, DateForm, form_of, full_year
from falaj.workloads.training.tables import MISSING_TEXTS

# Arrow makes these functions at import time and ships no types.
_compute: Any = pyarrow.compute
_arrow: Any = pa

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = 86_400_000_000
_MICROS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_LIKE: Final = "such as 2026-03-01 or 2026-03-01T09:30"
_CLOCK: Final = re.compile(
    r"(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?(?: ?([AaPp])[Mm])?(Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)


@dataclass(frozen=True)
class Moments:
    """Times of rows.

    Attributes:
        micros: microseconds since 1970, (rows,); of times without a zone as if they were UTC's.
        there: whether a row has one, (rows,).
        zoned: whether they say their zone.
    """

    micros: NDArray[np.int64]
    there: NDArray[np.bool_]
    zoned: bool


def moments(column: Any, what: str, *, ends: bool) -> Moments:
    """Read a column of times.

    Args:
        column: a pyarrow.ChunkedArray.
        what: the column, for messages.
        ends: whether a date without a time of the day stands for the end of the day rather than
            for its beginning. What is dated by a day is known when it has passed; what is asked on
            a day may be asked when it begins.

    Raises:
        WorkloadError: its values are no times, or only some of them say their zone.
    """
    if pa.types.is_dictionary(column.type):
        column = _compute.cast(column, column.type.value_type)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _written(texts_of(column), what, ends=ends)
    there = np.asarray(_compute.is_valid(column))
    if pa.types.is_date(kind):
        days = _compute.cast(_compute.cast(column, pa.date32()), _arrow.int32())
        micros = np.asarray(_compute.fill_null(days, 0)).astype(np.int64) * _DAY
        return Moments(micros + (_DAY if ends else 0), there, zoned=False)
    if pa.types.is_timestamp(kind):
        numbers = _compute.fill_null(_compute.cast(column, pa.int64()), 0)
        whole = np.asarray(numbers).astype(np.int64)
        if kind.unit != "ns":
            micros = whole * _MICROS[kind.unit]
        else:  # what is known within a microsecond is known after it
            micros = -(-whole // 1_000) if ends else whole // 1_000
        return Moments(micros, there, zoned=kind.tz is not None)
    raise WorkloadError(f"{what} is no time: its values are of type {kind}; write times, {_LIKE}")


def texts_of(column: Any) -> Any:
    """Values as texts without white space around them; null where one is missing.

    Args:
        column: a pyarrow.ChunkedArray.

    Raises:
        pyarrow.ArrowException: there are no texts of values of its type.
    """
    texts = _compute.utf8_trim_whitespace(_compute.cast(column, pa.string()))
    missing = _compute.is_in(_compute.utf8_lower(texts), value_set=pa.array(MISSING_TEXTS))
    return _compute.if_else(missing, None, texts)


def _written(texts: Any, what: str, *, ends: bool) -> Moments:
    different = [each for each in _compute.unique(texts).to_pylist() if each is not None]
    if not different:
        raise WorkloadError(f"{what} has no time in any row")
    form = form_of(different)
    if form is None:
        odd = next((each for each in different if form_of([each]) is None), different[0])
        raise WorkloadError(
            f"{what} isn't one of times that are all written alike: {odd!r}, {different[-1]!r}; "
            f"write all of them as dates or times, {_LIKE}"
        )
    read: dict[str, tuple[int, bool]] = {}
    for text in different:
        try:
            read[text] = _moment(text, form, ends=ends)
        except ValueError as error:
            raise WorkloadError(f"{what} has {text!r}, which is no time: {error}") from error
    zoned = {zone for text, (_, zone) in read.items() if ":" in text}
    if len(zoned) > 1:
        raise WorkloadError(
            f"{what} has times that say their zone and others that don't: write it in all or none"
        )
    every = texts.to_pylist()
    return Moments(
        np.array([0 if each is None else read[each][0] for each in every], np.int64),
        np.array([each is not None for each in every], np.bool_),
        zoned=True in zoned,
    )


def _moment(text: str, form: DateForm, *, ends: bool) -> tuple[int, bool]:
    """Microseconds of a text, and whether it says its zone.

    Raises:
        ValueError: there is no such day or time of the day.
    """
    plain = text.translate(LATIN)
    mark = next((each for each in TIME_MARKS if each in plain), None)
    date, _, clock = plain.partition(mark) if mark else (plain, "", "")
    parts = dict(zip(form.order, map(int, date.split(form.separator)), strict=True))
    found = datetime(full_year(parts["y"]), parts["m"], parts["d"], tzinfo=UTC)
    if not clock:
        return _micros(found + timedelta(days=1 if ends else 0)), False
    match = _CLOCK.fullmatch(clock)
    if match is None:
        raise ValueError("the time of the day isn't written as 09:30, 09:30:15 or 9:30 pm")
    hour, half = int(match[1]), match[5]
    if half is not None:
        if not 1 <= hour <= 12:
            raise ValueError("an hour before am or pm must be in 1..12")
        hour = hour % 12 + (12 if half in "pP" else 0)
    found = found.replace(hour=hour, minute=int(match[2]), second=int(match[3] or 0))
    nanoseconds = int((match[4] or "").ljust(9, "0"))
    micros = _micros(found) + (-(-nanoseconds // 1_000) if ends else nanoseconds // 1_000)
    zone = match[6]
    if zone is None or zone == "Z":
        return micros, zone is not None
    offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:])) // timedelta(microseconds=1)
    return micros + (offset if zone[0] == "-" else -offset), True


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
