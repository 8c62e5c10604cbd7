"""What columns are taken for, and what is left out and why."""

from __future__ import annotations

import datetime
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.tables import Column, Excluded, interpret, interpret_target, useless


def _column(values: list[Any], kind: pa.DataType | None = None) -> Column:
    column = interpret("x", pa.chunked_array([pa.array(values, kind)]))
    assert isinstance(column, Column)
    return column


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e39"])
def test_numbers_beyond_float32_are_refused_with_their_row(cell: str) -> None:
    with pytest.raises(WorkloadError, match=r"'x' holds 1 infinite .* in row 2"):
        _column(["1", cell, "2"])


def test_infinite_parquet_numbers_are_refused() -> None:
    with pytest.raises(WorkloadError, match="infinite"):
        _column([1.0, math.inf])


@pytest.mark.parametrize("values", [["", ""], ["NA", "nan"], [None, None]])
def test_columns_without_values_are_left_out(values: list[Any]) -> None:
    column = interpret("x", pa.chunked_array([pa.array(values, pa.string())]))
    assert column == Excluded("x", "every value is missing")


def test_dates_are_left_out_with_their_type() -> None:
    day = datetime.date(2026, 1, 1)
    column = interpret("x", pa.chunked_array([pa.array([day, day])]))
    assert isinstance(column, Excluded)
    assert "date32" in column.reason


def test_missing_numbers_in_many_spellings() -> None:
    column = _column(["1", " 2.5 ", "", "NA", "null", "?", "NaN", "-"])
    assert column.kind == "numeric"
    np.testing.assert_array_equal(column.values[:2], [1.0, 2.5])
    assert column.missing.tolist() == [False] * 2 + [True] * 6


def test_text_keeps_categories_called_none() -> None:
    column = _column(["None", "NA", "red", ""])
    assert column.kind == "text"
    assert column.missing.tolist() == [False, False, False, True]


def test_parquet_types() -> None:
    assert _column([True, False, None]).values.tolist() == ["true", "false", ""]
    assert _column([1, None], pa.int8()).kind == "numeric"
    dictionary = pa.chunked_array([pa.array(["a", None, "b"]).dictionary_encode()])
    column = interpret("x", dictionary)
    assert isinstance(column, Column)
    assert column.values.tolist() == ["a", "", "b"]


@pytest.mark.parametrize(("values", "reason"), [
    ([f"id{n}" for n in range(60)], "looks like an identifier"),
    ([f"{n},5" for n in range(60)], "decimal commas"),
    ([*map(str, range(60)), "twelve"], "'twelve' is not"),
    (["text " * 100, "b"] * 10, "free text"),
    ([str(n + 7) for n in range(60)], "numbers the rows"),
    (["3"] * 10, "every value is 3"),
    (["same"] * 10, "every value is 'same'"),
])  # fmt: skip
def test_useless_columns_have_a_reason(values: list[str], reason: str) -> None:
    assert reason in (useless(_column(values)) or "")


def test_column_without_a_name_is_left_out() -> None:
    assert useless(Column("", "numeric", np.array([1.0, 5.0]))) == "the column has no name"


@pytest.mark.parametrize("values", [["1.5", "2", "7"] * 10, ["a", "b"] * 10, ["1", ""] * 10])
def test_useful_columns_stay(values: list[str]) -> None:
    assert useless(_column(values)) is None


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_written_numbers_are_read_back(values: list[float]) -> None:
    np.testing.assert_array_equal(_column([repr(value) for value in values]).values, values)


def test_constant_target_is_refused() -> None:
    with pytest.raises(WorkloadError, match="constant: every row says 'a'"):
        interpret_target(_column(["a", "a", ""]), "auto")


def test_identifier_as_target_is_refused() -> None:
    with pytest.raises(WorkloadError, match="looks like an identifier"):
        interpret_target(_column([f"id{n}" for n in range(50)]), "auto")


def test_text_is_not_regressed() -> None:
    with pytest.raises(WorkloadError, match="can't be regressed"):
        interpret_target(_column(["a", "b"] * 5), "regression")


def test_too_many_classes_are_refused() -> None:
    with pytest.raises(WorkloadError, match="1,001 classes; at most 1,000"):
        interpret_target(_column([str(n) for n in range(1001)] * 2), "classification")


@pytest.mark.parametrize(("values", "task", "classes"), [
    (["10", "9", "10", "9"], "classification", ["9", "10"]),
    (["yes", "no"] * 2, "classification", ["no", "yes"]),
    (["True", "False"] * 2, "classification", ["False", "True"]),
    (["0.5", "1.5"] * 2, "regression", None),
    ([str(n) for n in range(30)], "regression", None),
])  # fmt: skip
def test_task_is_decided_by_the_target(
    values: list[str], task: str, classes: list[str] | None
) -> None:
    target = interpret_target(_column(values), "auto")
    assert (target.task, target.classes) == (task, classes)


def test_labels_are_class_numbers_of_rows_with_a_target() -> None:
    target = interpret_target(_column(["b", "", "a", "b"]), "auto")
    assert target.labels.tolist() == [1, 0, 1]
    assert target.kept.tolist() == [True, False, True, True]
