"""Feature tables: what was known of whom a row is about, at the moment that the row is of.

Each row of a dataset gets, from each table, the latest row of its key that was known by then, and
nothing later: else a model learns from what it won't have when it is asked. This is what feature
stores call a point-in-time join.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from falaj.workloads.bounds import ENDINGS, FEATURES, FORMS
from falaj.workloads.documents import TwiceError, is_dictionary, is_sequence, parse_json
from falaj.workloads.errors import WorkloadError, some
from falaj.workloads.files import write_atomic
from falaj.workloads.training.moments import Moments, moments, texts_of
from falaj.workloads.training.numerals import ARABIC_DIGITS, PERSIAN_DIGITS, Mark
from falaj.workloads.training.tables import Column, decimal_mark, interpret, read_table

# Arrow makes these functions at import time and ships no types.
_compute: Any = pyarrow.compute
_arrow: Any = pa
_csv: Any = pyarrow.csv
_parquet: Any = pyarrow.parquet

_DAY: Final = 86_400_000_000
_HOUR: Final = 3_600_000_000
"""In microseconds, as times are."""
_NAME: Final = FORMS["features"]["table"]
_ALLOWED: Final = " or ".join(ENDINGS["tables"])
_KEYS: Final = ("source", "keys", "time", "columns", "withinDays", "delayHours")
_UNITS: Final = {"days": 1, "hours": 24, "minutes": 1_440, "seconds": 86_400}
"""Of which a day has so many."""
_WHOLE: Final = (r"^(-?(?:0|[1-9][0-9]*))\.0+$", r"\1")
"""A whole number as programs write it that know fractions only, and what it is a key as."""
_DECIMALS: Final = (r"^(-?[0-9]+\.[0-9]*[1-9])0+$", r"\1")
_TRUTH: Final = _arrow.array(["true", "false"])
_SHOWN: Final = 10
_SNAKE: Final = {"withinDays": "within_days", "delayHours": "delay_hours"}

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class FeatureTable:
    """One table, and how its rows are found.

    Attributes:
        name: of the table; its columns are the model's as ``NAME.COLUMN``.
        source: the .csv or .parquet file.
        keys: columns that the dataset has as well, by whose values rows are found.
        time: column that says from when a row holds; None: it always does, and each key has one.
        columns: what is taken; None: all others.
        within_days: how old a row may be; None: however old.
        delay_hours: how long after its time a row is known.
    """

    name: str
    source: Path
    keys: tuple[str, ...]
    time: str | None = None
    columns: tuple[str, ...] | None = None
    within_days: float | None = None
    delay_hours: float = 0


@dataclass(frozen=True)
class Features:
    """The tables of a dataset, and its column that says of which moment a row is."""

    time: str | None
    tables: tuple[FeatureTable, ...]

    @property
    def beside(self) -> dict[str, str]:
        """The dataset's columns by which rows are found, and why each is no feature itself."""
        keys = {key: "rows of feature tables are found by it" for each in self.tables
                for key in each.keys}  # fmt: skip
        return keys if self.time is None else {**keys, self.time: "it says when a row was so"}


@dataclass(frozen=True)
class Joined:
    """What a table gives to the rows of a dataset.

    Attributes:
        table: which one.
        columns: by ``NAME.COLUMN``, a pyarrow.ChunkedArray with a value, or null, for each row.
        mark: what the table writes before decimals.
        sha256: of its file.
        rows: that it has.
        found: rows of the dataset that one was found for.
        age_days: median age of what was found; None where the table has no time.
        nothing: why no row was found, in words; empty: one was.
        unsure: names of files of whose times nothing says which number is the day and which one
            the month.
    """

    table: FeatureTable
    columns: dict[str, Any]
    mark: Mark
    sha256: str
    rows: int
    found: int
    age_days: float | None
    nothing: str = ""
    unsure: tuple[str, ...] = ()

    @property
    def described(self) -> dict[str, Any]:
        """Where they come from, for the dataset's description."""
        return {
            "name": self.table.name, "file": self.table.source.name, "sha256": self.sha256,
            "rows": self.rows, "found": self.found,
        }  # fmt: skip

    @property
    def note(self) -> str:
        """What was found, in words."""
        total = len(next(iter(self.columns.values())))
        text = f"{self.table.name}: {self.found:,} of {total:,} rows got one of its {self.rows:,}"
        if self.nothing:
            return f"{text}: {self.nothing}"
        if self.age_days is not None:
            text += f", {_duration(self.age_days)} old (median)"
        if self.unsure:
            files = " and ".join(self.unsure)
            text += (
                f"; times of {files} are read with the day first, as nothing in them tells day "
                "from month"
            )
        return text


def _duration(days: float) -> str:
    """Days in the largest unit of which there is one, or as 0 seconds.

    >>> _duration(1_277.5), _duration(0.25)
    ('1,278 days', '6 hours')
    """
    unit, count = next(
        ((unit, days * number) for unit, number in _UNITS.items() if days * number >= 1),
        ("seconds", 0.0),
    )
    return f"{count:,.0f} {unit}" if count >= 100 else f"{count:.3g} {unit}"


def features_of(given: object) -> Features:
    """Read the description of feature tables.

    Args:
        given: ``{"time": …, "tables": {NAME: {"source", "keys", "time", "columns", "withinDays",
            "delayHours"}}}``.

    Raises:
        WorkloadError: a key or value isn't one that is allowed.
    """
    found = _known(given, ("time", "tables"), "features")
    time = _optional_text(found, "time", "features")
    tables = found.get("tables")
    if not is_dictionary(tables) or not tables:
        raise WorkloadError(
            "features: tables: needs at least one table, by its name: "
            '{"payments": {"source": "payments.csv", "keys": ["customer"], "time": "paid_at"}}'
        )
    named = sorted(tables.items())
    return Features(time, tuple(_table_of(name, each, time) for name, each in named))


def parse(text: str) -> Features:
    """Read them from JSON.

    Raises:
        WorkloadError: it isn't JSON, or `features_of` refuses it.
    """
    try:
        return features_of(parse_json(text))
    except TwiceError as error:
        raise WorkloadError(f"features: {error}; allowed is once") from error
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"features: it isn't JSON: {error}") from error


def _table_of(name: str, given: object, time: str | None) -> FeatureTable:
    place = f"features.tables.{name}"
    if not _NAME.allows(name):
        raise WorkloadError(f"{place}: a table's name is {_NAME.rule}")
    found = _known(given, _KEYS, place)
    source, own = _optional_text(found, "source", place), _optional_text(found, "time", place)
    if source is None:
        raise WorkloadError(f"{place}: source is missing: the path of a {_ALLOWED} file")
    keys, columns = _texts(found, "keys", place), _texts(found, "columns", place)
    if not keys:
        raise WorkloadError(
            f"{place}: keys is missing: the columns by which its rows are found, such as "
            '["customer"]'
        )
    if own is not None and time is None:
        raise WorkloadError(
            f"{place}: its rows have a time ({own!r}), and features.time is missing: the column "
            "of the dataset that says of which moment a row is"
        )
    within, delay = (_number(found, key, place) for key in ("withinDays", "delayHours"))
    if own is None and (within is not None or delay):
        raise WorkloadError(
            f"{place}: withinDays and delayHours are of rows with a time: name its column (time), "
            "or leave them out"
        )
    return FeatureTable(name, Path(source), keys, own, columns, within, delay or 0)


def _known(given: object, allowed: tuple[str, ...], place: str) -> dict[str, Any]:
    if not is_dictionary(given):
        raise WorkloadError(f"{place}: given {given!r}; allowed is an object of {allowed}")
    for key in given:
        if key not in allowed:
            raise WorkloadError(f"{place}: {key!r} isn't known; allowed: {', '.join(allowed)}")
    return given


def _optional_text(found: Mapping[str, Any], key: str, place: str) -> str | None:
    value = found.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise WorkloadError(f"{place}: {key}: given {value!r}; allowed is a text that isn't empty")
    return value


def _texts(found: Mapping[str, Any], key: str, place: str) -> tuple[str, ...] | None:
    value = found.get(key)
    if value is None:
        return None
    if (
        not is_sequence(value)
        or not value
        or not all(isinstance(each, str) and each for each in value)
        or len(set(value)) < len(value)
    ):
        raise WorkloadError(
            f"{place}: {key}: given {value!r}; allowed is a list of names of columns, each once"
        )
    return tuple(cast("list[str]", value))


def _number(found: Mapping[str, Any], key: str, place: str) -> float | None:
    value, bound = found.get(key), FEATURES[_SNAKE[key]]
    if value is None:
        return None
    if not bound.allows(value):
        raise WorkloadError(f"{place}: {key}: given {value!r}; allowed: {bound.description}")
    return float(value)


def write_joined(
    source: Path, features: Features, output: Path, encoding: str | None = None
) -> list[str]:
    """Write a table with the columns that feature tables give, as a model takes them.

    Args:
        source: the table.
        features: the tables.
        output: a .csv or .parquet file, which appears whole or not at all.
        encoding: of a CSV; None: UTF-8, or what its byte order mark says.

    Returns:
        What was found, in words.

    Raises:
        WorkloadError: a file can't be read or written, or `join` refuses.
    """
    _check_output(output, source, features)
    rows = read_table(source, encoding)
    joined = join(rows, features, source, learns=False)
    for each in joined:
        for name, data in each.columns.items():
            column = interpret(name, data, each.mark)
            if isinstance(column, Column) and column.kind == "numeric":
                data = _arrow.array(column.values, from_pandas=True)  # noqa: PLW2901
            rows = rows.append_column(name, data)
    write_atomic(output, _written(rows, output))
    return [f"wrote {output}: {rows.num_rows:,} rows", *(each.note for each in joined)]


def _check_output(output: Path, source: Path, features: Features) -> None:
    """Refuse what couldn't be written, before files are read that may be large.

    Raises:
        WorkloadError: it is no table by its name, its folder isn't there, or it is what is read.
    """
    if output.suffix.lower() not in ENDINGS["tables"] or output.is_dir():
        raise WorkloadError(f"--output: given {output}; allowed: a {_ALLOWED} file")
    if not output.parent.is_dir():
        raise WorkloadError(
            f"--output: given {output}, but there is no folder {output.parent}: make it, or write "
            "elsewhere"
        )
    for path in (source, *(each.source for each in features.tables)):
        if output.exists() and path.exists() and output.samefile(path):
            raise WorkloadError(
                f"--output: given {output}, which is read here ({path}) and would be lost; "
                "allowed is another file"
            )


def _written(rows: Any, output: Path) -> bytes:
    """A table as its file has it.

    Raises:
        WorkloadError: the file's form has no room for values of a column.
    """
    write = _csv.write_csv if output.suffix.lower() == ".csv" else _parquet.write_table
    buffer = io.BytesIO()
    try:
        write(rows, buffer)
    except pa.ArrowException as error:
        unfit = [
            f"{name!r} ({rows.column(name).type})" for name in rows.column_names
            if not _fits(rows.select([name]), write)
        ]  # fmt: skip
        raise WorkloadError(
            f"{output}: a {output.suffix} file can't have the column {some(unfit, _SHOWN)}: "
            f"{error}; leave it out, or write another kind of file ({_ALLOWED})"
        ) from error
    return buffer.getvalue()


def _fits(rows: Any, write: Callable[[Any, io.BytesIO], object]) -> bool:
    try:
        write(rows, io.BytesIO())
    except pa.ArrowException:
        return False
    return True


@dataclass(frozen=True)
class _Side:
    """A table that is joined, with its place for messages."""

    rows: Any
    path: Path

    def column(self, name: str) -> Any:
        """The column of a name.

        Raises:
            WorkloadError: there is none.
        """
        if name not in self.rows.column_names:
            listed = ", ".join(map(repr, self.rows.column_names[:40]))
            raise WorkloadError(f"{self.path} has no column {name!r}; it has: {listed}")
        return self.rows.column(name)

    def moments(self, name: str, *, ends: bool) -> Moments:
        """Its column of times."""
        return moments(self.column(name), f"the column {name!r} of {self.path}", ends=ends)


def join(rows: Any, features: Features, path: Path, *, learns: bool = True) -> list[Joined]:
    """Return what each table gives to the rows of a dataset.

    Args:
        rows: the dataset, a pyarrow.Table.
        features: the tables.
        path: of the dataset, for messages.
        learns: whether a model learns from the rows. Default: True; else they may all be of whom
            nothing is known, as new customers are.

    Raises:
        WorkloadError: a file can't be read, a column isn't there or isn't a time, a key of a table
            without time has several rows, a table gives a column that the dataset has, or nothing
            of a table was known of any row that a model is to learn from.
    """
    asking = _Side(rows, path)
    wanted = asking.moments(features.time, ends=False) if features.time else None
    found: list[Joined] = []
    for table in features.tables:
        try:
            each = _joined(asking, wanted, table)
            if learns and each.nothing:
                raise WorkloadError(each.nothing)
            found.append(each)
        except WorkloadError as error:
            raise WorkloadError(f"features.tables.{table.name}: {error}") from error
    return found


def _joined(asking: _Side, wanted: Moments | None, table: FeatureTable) -> Joined:
    own = _Side(read_table(table.source), table.source)
    taken = {f"{table.name}.{name}": name for name in _taken(own, table)}
    for name in taken:
        if name in asking.rows.column_names:
            raise WorkloadError(
                f"{asking.path} has a column {name!r}, as the feature table {table.name} gives "
                "one: name one of both otherwise"
            )
    codes, own_codes = _codes(asking, own, table.keys)
    ages, unsure = None, list[str]()
    if wanted is None or table.time is None:
        _check_one(own, own_codes, table.keys)
        always = np.zeros(max(len(codes), len(own_codes)), np.int64)
        chosen = latest(own_codes, always[: len(own_codes)], codes, always[: len(codes)])
    else:
        held = own.moments(table.time, ends=True)
        _check_zones((asking, wanted), (own, held))
        unsure = [
            side.path.name for side, times in ((asking, wanted), (own, held)) if not times.sure
        ]
        usable = np.flatnonzero(held.there)
        known = held.micros[usable] + round(table.delay_hours * _HOUR)
        asked = np.where(wanted.there, codes, -1)
        chosen = latest(own_codes[usable], known, asked, wanted.micros)
        chosen = np.where(chosen < 0, -1, usable[chosen])
        ages = wanted.micros - held.micros[chosen]
        if table.within_days is not None:
            chosen = np.where(ages <= table.within_days * _DAY, chosen, -1)
    with table.source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    found = chosen >= 0
    nothing = "" if found.any() else _nothing_found((asking, codes), (own, own_codes), table)
    index = _arrow.array(chosen, pa.int64(), mask=~found)
    return Joined(
        table,
        {name: own.column(column).take(index) for name, column in taken.items()},
        decimal_mark(own.rows.columns),
        digest,
        own.rows.num_rows,
        int(found.sum()),
        None if ages is None or nothing else float(np.median(ages[found])) / _DAY,
        nothing,
        tuple(unsure),
    )


def _check_zones(one: tuple[_Side, Moments], other: tuple[_Side, Moments]) -> None:
    if one[1].zoned == other[1].zoned:
        return
    (zoned, _), (plain, _) = (one, other) if one[1].zoned else (other, one)
    raise WorkloadError(
        f"the times of {zoned.path} say their zone, and those of {plain.path} don't, so that it "
        "is open which comes first: write all of them with a zone, as in 2026-03-01T09:30+04:00, "
        "or none"
    )


def latest(codes: Integers, times: Integers, wanted: Integers, moments: Integers) -> Integers:
    """Return for each wanted key the row of it that is the latest by the moment, or -1.

    Of rows of one key and time it is the last.

    Args:
        codes: keys of the rows, shape (rows,).
        times: from when each is known, shape (rows,).
        wanted: keys that are looked for, negative ones in vain, shape (asked,).
        moments: by when, shape (asked,).
    """
    rows, asked = len(codes), len(wanted)
    # Rows come before those who ask at the same moment: what is known by then counts.
    order = np.lexsort((
        np.arange(rows + asked),
        np.repeat([0, 1], [rows, asked]),
        np.concatenate([times, moments]),
        np.concatenate([codes, wanted]),
    ))  # fmt: skip
    is_row = order < rows
    place = np.maximum.accumulate(np.where(is_row, np.arange(rows + asked), -1))
    last = np.where(place >= 0, order[np.maximum(place, 0)], -1)[~is_row]
    who = order[~is_row] - rows
    same = (last >= 0) & (wanted[who] >= 0)
    same[same] = codes[last[same]] == wanted[who][same]
    found = np.full(asked, -1, np.int64)
    found[who] = np.where(same, last, -1)
    return found


def _taken(own: _Side, table: FeatureTable) -> list[str]:
    """Names of the columns that a table gives."""
    for name in (*table.keys, *(table.columns or ()), *([table.time] if table.time else ())):
        own.column(name)
    beside = {*table.keys, table.time}
    names = own.rows.column_names if table.columns is None else table.columns
    taken = [name for name in names if name and name not in beside]
    if not taken:
        raise WorkloadError(f"{own.path} has no column beside its keys and its time to take")
    return taken


def _texts_of(column: Any) -> Any:
    """Values of a key as texts, each in one form; null where one is missing.

    17.0 and 17 in Arabic digits are 17, truth values are in small letters, and letters that
    Unicode can say in several ways are said in one (its normal form C).
    """
    if pa.types.is_floating(column.type):
        column = _compute.if_else(_compute.is_nan(column), None, column)
        whole = _compute.cast(column, pa.int64(), safe=False)
        back = _compute.cast(whole, column.type, safe=False)
        column = column if _compute.all(_compute.equal(back, column)).as_py() is False else whole
    texts = _compute.utf8_normalize(texts_of(column), form="NFC")
    for digits in (ARABIC_DIGITS, PERSIAN_DIGITS):
        if _compute.any(_compute.match_substring_regex(texts, f"[{digits}]")).as_py():
            for value, digit in enumerate(digits):
                texts = _compute.replace_substring(texts, digit, str(value))
    if pa.types.is_decimal(column.type):  # 2.50, as another file may have it as 2.5
        texts = _compute.replace_substring_regex(texts, *_DECIMALS)
    texts = _compute.replace_substring_regex(texts, *_WHOLE)
    lower = _compute.utf8_lower(texts)
    return _compute.if_else(_compute.is_in(lower, value_set=_TRUTH), lower, texts)


def _codes(asking: _Side, own: _Side, keys: Sequence[str]) -> tuple[Integers, Integers]:
    """Numbers of the keys of both, the same for the same key; -1 where a part of one is missing.

    A number in one file and its digits in the other are the same key.
    """
    count = asking.rows.num_rows
    whole = np.zeros(count + own.rows.num_rows, np.int64)
    missing = whole < 0
    for name in keys:
        texts = [_key(side, name) for side in (asking, own)]
        both = _arrow.chunked_array(
            [chunk for each in texts for chunk in each.chunks], pa.string()
        )
        coded = _compute.dictionary_encode(both).combine_chunks().indices
        part = np.asarray(_compute.fill_null(coded, -1)).astype(np.int64)
        missing |= part < 0
        # Of all parts so far, numbered anew, so that no product of their counts overflows.
        whole = np.unique(whole * (part.max() + 2) + part, return_inverse=True)[1]
    whole = np.where(missing, -1, whole)
    return whole[:count], whole[count:]


def _key(side: _Side, name: str) -> Any:
    column = side.column(name)
    try:
        return _texts_of(column)
    except (pa.ArrowException, NotImplementedError) as error:
        raise WorkloadError(
            f"the column {name!r} of {side.path} is no key: its values are of type {column.type}"
        ) from error


def _shown(side: _Side, keys: Sequence[str], row: int) -> str:
    """The key of a row as it is compared."""
    return ", ".join(f"{name} {_key(side, name)[row].as_py()!r}" for name in keys)


def _check_one(own: _Side, codes: Integers, keys: Sequence[str]) -> None:
    """Refuse several rows of one key where nothing says which one holds."""
    rows = np.flatnonzero(codes >= 0)
    _, first, counts = np.unique(codes[rows], return_index=True, return_counts=True)
    several = np.flatnonzero(counts > 1)
    if len(several):
        shown = _shown(own, keys, int(rows[first[several[0]]]))
        raise WorkloadError(
            f"{own.path} has several rows of {shown}, and nothing says which one holds: name the "
            "column that says from when (time), or keep one of each"
        )


def _nothing_found(
    asking: tuple[_Side, Integers], own: tuple[_Side, Integers], table: FeatureTable
) -> str:
    (rows, codes), (side, own_codes) = asking, own
    shared = int(np.isin(codes[codes >= 0], own_codes).sum())
    if shared:
        most = f" and is at most {table.within_days:g} days old" if table.within_days else ""
        return (
            f"{shared:,} rows of {rows.path} have a key of {side.path}, and for none of them it "
            f"has a row that was known by then{most}: look at time, withinDays and delayHours"
        )
    for each, of_it in (own, asking):
        if not (of_it >= 0).any():
            named = ", ".join(map(repr, table.keys))
            return f"no row of {each.path} has a key: {named} has no value in any"
    one, other = (
        _shown(each, table.keys, int(np.argmax(of_it >= 0))) for each, of_it in (own, asking)
    )
    return (
        f"no row of {side.path} has a key of {rows.path}: there is {one} in the one and {other} "
        "in the other; write keys alike in both"
    )
