"""From a file's columns to a model's inputs: numbers as people write them, texts, tensors.

What the server would refuse of a request is refused of a row, for the same reasons.
"""

from __future__ import annotations

import datetime
import decimal
import difflib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from falaj.workloads.documents import is_sequence
from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference.protocol.oip import TensorSpec
from falaj.workloads.training.dates import DateColumn, date_features, form_of
from falaj.workloads.training.numerals import Mark, bare, number, readings, units
from falaj.workloads.training.tables import MISSING_NUMBERS, MISSING_TEXTS, present_numbers

# Arrow makes these functions at import time and ships no types.
_compute: Any = pyarrow.compute

Refusals = dict[int, str]
"""Reasons by the position of the value."""

_KEPT_READINGS: Final = 1 << 16
_MARK_NAMES: Final[Mapping[Mark, str]] = {".": "decimal points", ",": "decimal commas"}
_EXACT: Final = 1 << 53
_UNSAID: Final = "its value"
_FLAGS: Final[Mapping[Any, bool]] = {True: True, False: False, "true": True, "false": False}


class Numbers:
    """How one column of one file is read as numbers.

    Args:
        name: the column's.
        spec: the model's input.
        mark: what stands before decimals; None: what the column's texts say.
        shows: whether reasons say what a value is. Default: they do.
    """

    def __init__(
        self, name: str, spec: TensorSpec, mark: Mark | None, *, shows: bool = True
    ) -> None:
        self.name = name
        self._spec = spec
        self._shows = shows
        self._given = mark
        self._mark: Mark = mark or "."
        self._known: dict[str, frozenset[Mark]] = {}
        self.clear: Counter[Mark] = Counter()
        self._first: dict[Mark, str] = {}
        self.is_open = False
        """Whether a value says another number by each mark."""
        self._units: set[str] = set()

    def survey(self, values: Sequence[Any]) -> Refusals:
        """Learn from some values how they are written; return those that can't be read at all."""
        plain = _plain(values, "float64")
        usual = plain is not None and bool(np.isfinite(plain[~np.isnan(plain)]).all())
        if self._given is not None:
            if not usual:
                self._learn(values)
            return self.read(values)[1]
        if plain is not None and usual:
            if not self.clear["."]:
                self._learn(values)
            return self._unfit(plain)
        self._learn(values)
        return self._each(values, None)[1]

    def settle(self, most: Mark) -> None:
        """Decide for a decimal mark, after all values were surveyed.

        Args:
            most: what most columns of the file have, for a column that leaves it open.

        Raises:
            WorkloadError: the column has both marks, or different units.
        """
        if len(self._units) > 1:
            raise WorkloadError(
                f"the numbers of column {self.name!r} have different units "
                f"({', '.join(sorted(self._units))}): convert them"
            )
        if self._given is not None:
            return
        if self.clear["."] and self.clear[","]:
            raise WorkloadError(
                f"column {self.name!r} has numbers with decimal points{self._like('.')} and "
                f"with decimal commas{self._like(',')}: say which it has (--decimal point, "
                "--decimal comma), and the others are bad rows"
            )
        self._mark = most
        for mark in self.clear:
            self._mark = mark

    def read(self, values: Sequence[Any]) -> tuple[NDArray[np.float64], Refusals]:
        """The numbers, float64 (rows,), NaN where missing; and the values that can't be used."""
        # With decimal commas whole numbers are still plain; "1.153" isn't.
        plain = _plain(values, "float64" if self._mark == "." else "int64")
        if plain is not None and np.isfinite(plain[~np.isnan(plain)]).all():
            return plain, self._unfit(plain)
        return self._each(values, self._mark)

    def _like(self, mark: Mark) -> str:
        return f" ({self._first[mark]!r})" if self._shows else ""

    def _learn(self, values: Sequence[Any]) -> None:
        for value in values:
            if not isinstance(value, str):
                continue
            text = value.strip()
            if text.lower() in MISSING_NUMBERS:
                continue
            fitting = self._readings(text)
            if len(fitting) == 1:
                (mark,) = fitting
                self.clear[mark] += 1
                self._first.setdefault(mark, text)
            elif fitting and ("." in text or "," in text):
                self.is_open = True

    def _readings(self, text: str) -> frozenset[Mark]:
        found = self._known.get(text)
        if found is None:
            found = frozenset(readings([bare(text)]))
            if found:
                self._units |= units([text])
            if len(self._known) >= _KEPT_READINGS:
                self._known.clear()
            self._known[text] = found
        return found

    def _each(
        self, values: Sequence[Any], mark: Mark | None
    ) -> tuple[NDArray[np.float64], Refusals]:
        found = np.full(len(values), np.nan)
        refused: Refusals = {}
        for index, value in enumerate(values):
            read = self._one(value, mark)
            if isinstance(read, str):
                refused[index] = f"column {self.name!r}: {read}"
            else:
                found[index] = read
        return found, self._unfit(found) | refused

    def _one(self, value: Any, mark: Mark | None) -> float | str:
        if value is None:
            return math.nan
        if isinstance(value, str):
            return self._written(value.strip(), mark)
        if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
            return f"{_shown(value, shows=self._shows)} isn't a number"
        # Whole numbers of JSON and Parquet have no bound of their own.
        # What isn't a number isn't above it either.
        return (
            f"{_shown(value, shows=self._shows)} is too large"
            if abs(value) > _LARGEST
            else float(value)
        )

    def _written(self, text: str, mark: Mark | None) -> float | str:
        if text.lower() in MISSING_NUMBERS:
            return math.nan
        fitting = self._readings(text)
        if not fitting:
            return f"{_shown(text, shows=self._shows)} isn't a number"
        chosen = mark or ("." if "." in fitting else ",")
        if chosen not in fitting:
            return f"{_shown(text, shows=self._shows)} isn't a number with {_MARK_NAMES[chosen]}"
        return number(bare(text), chosen)

    def _unfit(self, found: NDArray[np.float64]) -> Refusals:
        """Numbers that the input can't hold, and missing ones that it doesn't take."""
        missing = np.isnan(found)
        refused: Refusals = {}
        if not self._spec.missing and missing.any():
            for index in np.flatnonzero(missing):
                refused[int(index)] = (
                    f"column {self.name!r}: a value is missing, and the model doesn't say that "
                    "it takes that"
                )
        kind = self._spec.dtype
        with np.errstate(invalid="ignore"):
            if kind.kind == "f":
                low, high = float(np.finfo(kind).min), float(np.finfo(kind).max)
                beyond = (found < low) | (found > high)
            else:
                low, high = (max(np.iinfo(kind).min, -_EXACT), min(np.iinfo(kind).max, _EXACT))
                beyond = (found < low) | (found > high) | (found != np.round(found))
        for index in np.flatnonzero(beyond & ~missing):
            whole = "" if kind.kind == "f" else "whole numbers "
            what = f"{found[index]:g}" if self._shows else _UNSAID
            refused[int(index)] = (
                f"column {self.name!r}: {what} isn't among the {whole}from {low:g} to "
                f"{high:g} that the model takes"
            )
        return refused


_LARGEST: Final = float(np.finfo(np.float64).max)


def _plain(values: Sequence[Any], kind: str) -> NDArray[np.float64] | None:
    """Numbers as programs write them, NaN where missing; None where not all are."""
    try:
        texts = pa.array(values, pa.string())
    except pa.ArrowException:
        return _typed(values)
    trimmed = _compute.utf8_trim_whitespace(_compute.fill_null(texts, ""))
    try:
        cast = _compute.cast(_compute.cast(present_numbers(trimmed), kind), "float64", safe=False)
    except pa.ArrowException:
        return None
    return np.array(_compute.fill_null(cast, math.nan).to_numpy(zero_copy_only=False))


def _typed(values: Sequence[Any]) -> NDArray[np.float64] | None:
    """Numbers that are some already."""
    types = set(map(type, values))
    if not types <= {int, float, decimal.Decimal, type(None)}:
        return None
    try:
        return np.array([math.nan if v is None else v for v in values], dtype=np.float64)
    except OverflowError:
        return None


class Texts:
    """A column of one file that is read as texts.

    Args:
        name: the column's.
        shows: whether reasons say what a value is. Default: they do.
        form: how the model has learned dates of the column, as its manifest says it. Default:
            as Parquet's are learned, the year first.
    """

    def __init__(
        self, name: str, *, shows: bool = True, form: Mapping[str, Any] | None = None
    ) -> None:
        self.name = name
        self._shows = shows
        self._form = form or {}

    def read(self, values: Sequence[Any]) -> tuple[NDArray[Any], Refusals]:
        """The texts, object (rows,), "" where missing; and the values that can't be used."""
        found = np.empty(len(values), dtype=object)
        refused: Refusals = {}
        for index, value in enumerate(values):
            text = _worded(value, self._form)
            if isinstance(text, str):
                text = text.strip()
                found[index] = "" if text.lower() in MISSING_TEXTS else text
                continue
            found[index] = ""
            if value is not None:
                refused[index] = (
                    f"column {self.name!r}: {_shown(value, shows=self._shows)} isn't text, which "
                    "the model takes"
                )
        return found, refused


def _worded(value: Any, form: Mapping[str, Any]) -> Any:
    """Truth values and dates as training reads those of Parquet: dates without their times."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime):
        value = value.date()  # where the column's time zone has it
    if isinstance(value, datetime.date):
        parts = dict(zip("ymd", value.isoformat().split("-"), strict=True))
        order = str(form.get("order", "ymd"))
        return str(form.get("separator", "-")).join(parts[each] for each in order)
    return value


def _flags(name: str, values: Sequence[Any], *, shows: bool) -> tuple[NDArray[Any], Refusals]:
    read = [_FLAGS.get(v.strip().lower() if isinstance(v, str) else _hashed(v)) for v in values]
    refused = {
        index: f"column {name!r}: {_shown(values[index], shows=shows)} isn't true or false"
        for index, each in enumerate(read)
        if each is None
    }
    return np.array([bool(each) for each in read]), refused


def _hashed(value: Any) -> Any:
    return value if isinstance(value, bool) else None


class Input:
    """One input of the model, of one file.

    Args:
        spec: the input.
        header: names of the file's columns; None where they aren't known before.
        mark: as `Numbers` takes it.
        shows: whether reasons say what a value is. Default: they do.
        form: as `Texts` takes it.

    Raises:
        WorkloadError: rows of such an input can't be made of columns.
    """

    def __init__(
        self,
        spec: TensorSpec,
        header: Sequence[str] | None,
        mark: Mark | None,
        *,
        shows: bool = True,
        form: Mapping[str, Any] | None = None,
    ) -> None:
        self.spec = spec
        self._form = form
        self._strange = ""
        self._is_dated = form is None
        self._shows = shows
        inner = spec.shape[1:]
        if spec.shape[:1] != (-1,) or -1 in inner:
            raise WorkloadError(
                f"the model's input {spec.name!r} has the shape {list(spec.shape)}: only models "
                "whose first size alone is free (-1) answer files of rows"
            )
        self.width = math.prod(inner)
        apart = header is not None and spec.name not in header and self.width > 1
        self.columns = (
            [f"{spec.name}_{index}" for index in range(self.width)] if apart else [spec.name]
        )
        self._listed = self.width > 1 and not apart
        self.numbers = (
            []
            if spec.datatype in {"BYTES", "BOOL"}
            else [Numbers(name, spec, mark, shows=shows) for name in self.columns]
        )

    def survey(self, columns: Mapping[str, Sequence[Any]]) -> Refusals:
        """What of some rows can't be used, as far as it is known before `Numbers.settle`."""
        if self._listed:
            return self._lists(columns[self.spec.name])[1]
        if not self.numbers:
            found, refused = self.read(columns)
            self._learn_dates(found.reshape(-1))
            return refused
        refused: Refusals = {}
        for each in self.numbers:
            refused |= each.survey(columns[each.name])
        return refused

    def _learn_dates(self, texts: NDArray[Any]) -> None:
        form, present = self._form, texts[texts != ""]
        if self._is_dated or form is None or not len(present):
            return
        mark, order = str(form.get("time_mark", "")), str(form.get("order", "ymd"))
        column = DateColumn(self.spec.name, str(form.get("separator", "-")), order, mark, 0.0, 1.0)
        self._is_dated = bool((date_features(column, present)[:, 1] == 0).any())
        if not self._is_dated and not self._strange:
            dates = (text for text in present if form_of([text]) is not None)
            self._strange = next(dates, "")

    def settle(self) -> None:
        """Refuse dates that the model can't tell from missing ones, after all were surveyed.

        Raises:
            WorkloadError: the column has dates, and none in the form that the model has learned.
        """
        if self._is_dated or not self._strange or self._form is None:
            return
        letters = {"d": "DD", "m": "MM", "y": "YYYY"}
        wanted = str(self._form.get("separator", "-")).join(
            letters[each] for each in str(self._form.get("order", "ymd"))
        )
        raise WorkloadError(
            f"column {self.spec.name!r} has dates such as "
            f"{_shown(self._strange, shows=self._shows)}, none in the form {wanted} that the "
            "model has learned, which would all count as missing: write them so"
        )

    def read(self, columns: Mapping[str, Sequence[Any]]) -> tuple[NDArray[Any], Refusals]:
        """The input's array, first size rows; and which rows can't be used."""
        if self._listed:
            return self._lists(columns[self.spec.name])
        refused: Refusals = {}
        parts: list[NDArray[Any]] = []
        for index, name in enumerate(self.columns):
            part, bad = self._read_one(index, columns[name])
            refused |= bad
            parts.append(part)
        return self._shaped(np.stack(parts, axis=1), refused), refused

    def _read_one(self, index: int, values: Sequence[Any]) -> tuple[NDArray[Any], Refusals]:
        """Values of the column at ``index``."""
        if self.numbers:
            return self.numbers[index].read(values)
        name = self.columns[index]
        if self.spec.datatype == "BOOL":
            return _flags(name, values, shows=self._shows)
        return Texts(name, shows=self._shows, form=self._form).read(values)

    def _lists(self, values: Sequence[Any]) -> tuple[NDArray[Any], Refusals]:
        """A list a row, nested or flat."""
        flat: list[Any] = []
        refused: Refusals = {}
        for index, value in enumerate(values):
            row = _flattened(value)
            if row is None or len(row) != self.width:
                count = "no list" if row is None else f"{len(row)} values"
                refused[index] = (
                    f"column {self.spec.name!r}: {count}, the model takes {self.width}"
                )
                row = [None] * self.width
            flat.extend(row)
        read, bad = self._read_one(0, flat)
        for position, reason in bad.items():
            refused.setdefault(position // self.width, reason)
        return self._shaped(read.reshape(len(values), self.width), refused), refused

    def _shaped(self, found: NDArray[Any], refused: Refusals) -> NDArray[Any]:
        if refused and self.numbers:
            found[list(refused)] = 0  # what isn't used still has to fit
        return found.astype(self.spec.dtype).reshape(len(found), *self.spec.shape[1:])


def _flattened(value: Any) -> list[Any] | None:
    if not is_sequence(value):
        return None
    if not any(is_sequence(each) for each in value):
        return value
    found: list[Any] = []
    for each in value:
        inner = _flattened(each)
        if inner is None:
            return None
        found += inner
    return found


def _shown(value: Any, *, shows: bool) -> str:
    if not shows:
        return _UNSAID
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def check_columns(where: str, header: Sequence[str], inputs: Sequence[Input]) -> list[str]:
    """Refuse a file that lacks columns of the model; return those that it doesn't use.

    Raises:
        WorkloadError: names what is missing, what is there beside, and which may be meant.
    """
    wanted = [name for each in inputs for name in each.columns]
    used = set(wanted)
    beside = [name for name in header if name and name not in used]
    missing = [name for name in wanted if name not in header]
    if not missing:
        return beside
    folded = {name.casefold(): name for name in beside}
    hints: list[str] = []
    for name in missing[:3]:
        near = difflib.get_close_matches(name.casefold(), folded, n=1)
        if near:
            hints.append(f"is {folded[near[0]]!r} meant for {name!r}?")
    shown = ", ".join(map(repr, beside[:20])) + (", …" if len(beside) > 20 else "")
    lists = ", ".join(map(repr, missing[:20])) + (", …" if len(missing) > 20 else "")
    raise WorkloadError(
        f"{where} lacks {len(missing):,} of the model's {len(wanted):,} columns: {lists}; it has "
        f"beside: {shown or 'none'}. {' '.join(hints) or 'Is it the right model?'}"
    )
