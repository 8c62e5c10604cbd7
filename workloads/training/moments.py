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
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_SECONDS: Final = 86_400
_YEARS: Final = (datetime.min.year, datetime.max.year)
_SECONDS: Final = tuple(
    each.replace(tzinfo=UTC).timestamp() for each in (datetime.min, datetime.max)
)
"""Of the times that are taken. Others are numbers of another unit, and too large for microseconds
at last."""
_MOST_OFFSET: Final = timedelta(hours=24)
_LIKE: Final = "such as 2026-03-01 or 2026-03-01T09:30"
_ISO: Final = r"^(?:19|20|21)\d\d-\d\d-\d\d{}\d\d:\d\d(:\d\d(\.\d{{1,6}})?)?(Z|[+-]\d\d:?\d\d)?$"
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
        sure: whether it is plain which number is the day and which one the month.
    """

    micros: NDArray[np.int64]
    there: NDArray[np.bool_]
    zoned: bool
    sure: bool = True


def moments(column: Any, what: str, *, ends: bool) -> Moments:
    """Read a column of times.

    Args:
        column: a pyarrow.ChunkedArray.
        what: the column, for messages.
        ends: whether a date without a time of the day stands for the end of the day rather than
            for its beginning. What is dated by a day is known when it has passed; what is asked on
            a day may be asked when it begins.

    Raises:
        WorkloadError: its values are no times, or only some of them say their zone, or there is
            none in any row.
    """
    if pa.types.is_dictionary(column.type):
        column = _compute.cast(column, column.type.value_type)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _written(texts_of(column), what, ends=ends)
    is_date = pa.types.is_date(kind)
    if is_date or pa.types.is_timestamp(kind):
        there = np.asarray(_compute.is_valid(column))
        if not there.any():
            raise _none_there(what)
        if is_date:
            column = _compute.cast(_compute.cast(column, pa.date32()), _arrow.int32())
        whole = np.asarray(_compute.fill_null(_compute.cast(column, pa.int64()), 0))
        _check_years(
            whole * float(_DAY_SECONDS) if is_date else whole / _PER_SECOND[kind.unit], what
        )
        if is_date:
            return Moments(whole * _DAY + (_DAY if ends else 0), there, zoned=False)
        if kind.unit != "ns":
            micros = whole * _MICROS[kind.unit]
        else:  # what is known within a microsecond is known after it
            micros = -(-whole // 1_000) if ends else whole // 1_000
        return Moments(micros, there, zoned=kind.tz is not None)
    raise WorkloadError(f"{what} is no time: its values are of type {kind}; write times, {_LIKE}")


def _none_there(what: str) -> WorkloadError:
    return WorkloadError(f"{what} has no time in any row")


def _check_years(seconds: NDArray[np.float64], what: str) -> None:
    beyond = (seconds < _SECONDS[0]) | (seconds > _SECONDS[1])
    if beyond.any():
        first, last = _YEARS
        raise WorkloadError(
            f"{what} has a time in row {int(np.argmax(beyond)) + 1:,} that is in none of the "
            f"years {first} to {last}: are its numbers of another unit than its type says?"
        )


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
    if texts.null_count == len(texts):
        raise _none_there(what)
    plain = _iso(texts)
    if plain is not None:
        return plain
    encoded = _compute.dictionary_encode(texts).combine_chunks()
    different: list[str] = encoded.dictionary.to_pylist()
    form = form_of(different)
    if form is None:
        odd = next((each for each in different if form_of([each]) is None), different[0])
        raise WorkloadError(
            f"{what} isn't one of times that are all written alike: {odd!r}, {different[-1]!r}; "
            f"write all of them as dates or times, {_LIKE}"
        )
    micros, zones = np.zeros(len(different), np.int64), set[bool]()
    for place, text in enumerate(different):
        try:
            micros[place], zoned = _moment(text, form, ends=ends)
        except ValueError as error:
            raise WorkloadError(f"{what} has {text!r}, which is no time: {error}") from error
        if ":" in text:
            zones.add(zoned)
    if len(zones) > 1:
        raise WorkloadError(
            f"{what} has times that say their zone and others that don't: write it in all or none"
        )
    there = np.asarray(_compute.is_valid(texts))
    rows = np.asarray(_compute.fill_null(encoded.indices, 0))
    return Moments(np.where(there, micros[rows], 0), there, True in zones, form.sure)


def _iso(texts: Any) -> Moments | None:
    """Times as programs write them, of which there may be millions; None: `_moment` reads them.

    It takes fewer than that one, and those as that one does.
    """
    for mark in TIME_MARKS:
        if not _compute.all(_compute.match_substring_regex(texts, _ISO.format(mark))).as_py():
            continue
        for zone in (None, "UTC"):
            try:
                found = _compute.cast(texts, pa.timestamp("us", zone))
            except pa.ArrowInvalid:  # no such day, or a zone in some rows alone
                continue
            micros = np.asarray(_compute.fill_null(_compute.cast(found, pa.int64()), 0))
            there = np.asarray(_compute.is_valid(texts))
            return Moments(micros, there, zoned=zone is not None)
    return None


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
    away = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    if away >= _MOST_OFFSET or int(zone[-2:]) >= 60:
        raise ValueError(f"there is no zone {zone}")
    offset = away // timedelta(microseconds=1)
    return micros + (offset if zone[0] == "-" else -offset), True


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
