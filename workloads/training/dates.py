"""Dates as tables write them, and the features that they become.

A date becomes its place in time (days, standardised), one feature for a missing one, its weekday
and its month. What isn't a date counts as missing. The exported graph computes the same, in 32-bit
floats, which hold every day of these years exactly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.training.numerals import ARABIC_DIGITS

FIRST_YEAR: Final = 1900
LAST_YEAR: Final = 2199
CENTURY_FROM: Final = 70
"""Years of two digits from here on are of the 20th century, below of the 21st, as POSIX's strptime
takes them within a year: https://pubs.opengroup.org/onlinepubs/9799919799/functions/strptime.html"""

SEPARATORS: Final = (".", "/", "-")
TIME_MARKS: Final = (" ", "T")
"""What may stand between a date and a time of the day, which is not used."""

PARTS: Final = 3
WEEKDAYS: Final = 7
MONTHS: Final = 12
WIDTH: Final = 2 + WEEKDAYS + MONTHS
"""Features of a date: place in time, missing, weekdays from Monday, months."""

_DIGITS: Final = "0123456789"
LATIN: Final = str.maketrans(ARABIC_DIGITS, _DIGITS)
"""For `str.translate`: Arabic digits as they are read here."""
_ARABIC: Final = str.maketrans(_DIGITS, ARABIC_DIGITS)
_DATE: Final = re.compile(
    r"(\d{1,2}|\d{4})([./-])(\d{1,2})\2(\d{1,2}|\d{4})"
    r"(?:([ T])\d{1,2}:\d{2}[\d:.,]*(?: ?[AaPp][Mm]|Z|[+-]\d\d:?\d\d)?)?",
    re.ASCII,
)


@dataclass(frozen=True)
class DateForm:
    """How a column writes its dates.

    Attributes:
        separator: one of `SEPARATORS`.
        order: ``ymd``, ``dmy`` or ``mdy``.
        time_mark: one of `TIME_MARKS`, or "" where no row has a time of the day.
        sure: whether the rows leave no other order.
    """

    separator: str
    order: str
    time_mark: str
    sure: bool


@dataclass(frozen=True)
class DateColumn:
    """A date: its form, and mean and scale of the training rows' days."""

    name: str
    separator: str
    order: str
    time_mark: str
    mean: float
    scale: float


def form_of(texts: Sequence[str]) -> DateForm | None:
    """Return the form that all of ``texts`` have; None where they aren't dates of one form.

    Where nothing tells day from month, the day is first, as the country writes it.
    """
    found = [_DATE.fullmatch(text.translate(LATIN)) for text in texts]
    matches = [match for match in found if match is not None]
    if not matches or len(matches) < len(found):
        return None
    separators = {match[2] for match in matches}
    marks = {match[5] for match in matches if match[5]}
    if len(separators) > 1 or len(marks) > 1:
        return None
    parts = [(int(match[1]), int(match[3]), int(match[4])) for match in matches]
    fitting = [
        order
        for order in ("ymd", "dmy", "mdy")
        if all(_is_date(dict(zip(order, part, strict=True))) for part in parts)
        and all(len(match[1]) == 4 for match in matches) == (order == "ymd")
        # "1.2.3" is a version or a section: a year has two digits at least.
        and (order == "ymd" or all(len(match[4]) >= 2 for match in matches))
    ]
    if not fitting:
        return None
    return DateForm(separators.pop(), fitting[0], marks.pop() if marks else "", len(fitting) == 1)


def _is_date(part: dict[str, int]) -> bool:
    year = full_year(part["y"])
    return 1 <= part["m"] <= MONTHS and 1 <= part["d"] <= 31 and FIRST_YEAR <= year <= LAST_YEAR


def full_year(year: int) -> int:
    """Return the year that two digits mean, by `CENTURY_FROM`; others as they are."""
    if year >= 100:
        return year
    return year + (1900 if year >= CENTURY_FROM else 2000)


@cache
def written_numbers() -> Mapping[str, float]:
    """Return every way in which a day, month or year may be written, and what it means.

    Two digits mean themselves; `years` makes a year of them.
    """
    ways: dict[str, float] = {}
    for value in (*range(100), *range(FIRST_YEAR, LAST_YEAR + 1)):
        for text in {str(value), f"{value:02d}"}:
            ways[text] = float(value)
            ways[text.translate(_ARABIC)] = float(value)
    return ways


def fit_date(name: str, texts: NDArray[Any], form: DateForm) -> DateColumn:
    """Learn mean and scale from the training rows; ``texts`` (rows,) are "" where missing."""
    column = DateColumn(name, form.separator, form.order, form.time_mark, 0.0, 1.0)
    days = _days(column, texts)[0].astype(np.float64)
    present = days[~np.isnan(days)]
    if len(present) == 0:
        return column
    scale = float(present.std()) or 1.0
    mean = float(np.float32(present.mean()))
    return DateColumn(name, form.separator, form.order, form.time_mark, mean, scale)


def date_features(column: DateColumn, texts: NDArray[Any]) -> NDArray[np.float32]:
    """Return the features (rows, `WIDTH`) of ``texts`` (rows,)."""
    days, month = _days(column, texts)
    missing = np.isnan(days)
    place = (days - np.float32(column.mean)) / np.float32(column.scale)
    # 719,468 of these days lie before 1970-01-01, a Thursday: with two more, Mondays are weeks.
    weekday = days + 2 - 7 * np.floor((days + 2) / 7)
    return np.concatenate(
        [
            np.where(missing, np.float32(0), place)[:, None],
            missing.astype(np.float32)[:, None],
            (weekday[:, None] == np.arange(WEEKDAYS)).astype(np.float32),
            (month[:, None] == np.arange(1, MONTHS + 1)).astype(np.float32),
        ],
        axis=1,
        dtype=np.float32,
    )


def _days(
    column: DateColumn, texts: NDArray[Any]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Days since 1 March of the year 0 and months, NaN where it isn't a date.

    The formula is Howard Hinnant's: https://howardhinnant.github.io/date_algorithms.html
    """
    ways = written_numbers()
    parts = np.full((len(texts), PARTS), np.nan, dtype=np.float32)
    for row, text in enumerate(texts):
        day = str(text).split(column.time_mark)[0] if column.time_mark else str(text)
        for place, part in enumerate(day.split(column.separator)[:PARTS]):
            parts[row, place] = ways.get(part, np.nan)
    year, month, day = (parts[:, column.order.index(part)] for part in "ymd")
    year = np.where(year < 100, year + np.where(year < CENTURY_FROM, 2000, 1900), year)
    valid = (month >= 1) & (month <= MONTHS) & (day >= 1) & (day <= 31) & (year >= FIRST_YEAR)
    late = (month <= 2).astype(np.float32)
    year = year.astype(np.float32) - late
    since = np.floor((153 * (month + 12 * late - 3) + 2) / 5) + day - 1
    days = 365 * year + np.floor(year / 4) - np.floor(year / 100) + np.floor(year / 400) + since
    nowhere = np.float32(np.nan)
    return (
        np.where(valid, days, nowhere).astype(np.float32),
        np.where(valid, month, nowhere).astype(np.float32),
    )
