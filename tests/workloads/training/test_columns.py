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
from falaj.workloads.training.numerals import bare, readings, units
from falaj.workloads.training.tables import (
    MISSING_NUMBERS,
    Column,
    Excluded,
    decimal_mark,
    interpret,
    interpret_target,
    useless,
)


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


def test_times_of_a_zone_that_nobody_knows_are_refused() -> None:
    with pytest.raises(
        WorkloadError, match=r"'x' holds times .* Mars/Olympus .* write them in UTC"
    ):
        _column([1, 2], pa.timestamp("us", "Mars/Olympus"))


@pytest.mark.parametrize("values", [["", ""], ["NA", "nan"], [None, None]])
def test_columns_without_values_are_left_out(values: list[Any]) -> None:
    column = interpret("x", pa.chunked_array([pa.array(values, pa.string())]))
    assert column == Excluded("x", "every value is missing")


def test_days_of_parquet_are_dates() -> None:
    days = [datetime.date(2026, 1, 31), None, datetime.date(2025, 12, 1)]
    column = _column(days)
    assert column.kind == "date"
    assert column.values.tolist() == ["2026-01-31", "", "2025-12-01"]
    moments = [datetime.datetime(2026, 1, 31, 12, 5), None]
    assert _column(moments).values.tolist() == ["2026-01-31", ""]


def test_what_is_neither_is_left_out_with_its_type() -> None:
    column = interpret("x", pa.chunked_array([pa.array([[1], [2]])]))
    assert isinstance(column, Excluded)
    assert "list<" in column.reason


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
    ([*map(str, range(60)), "twelve"], "'twelve' is not"),
    ([chr(65 + n) * 300 for n in range(20)], "more than 256 characters"),
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


@pytest.mark.parametrize(("values", "wanted"), [
    (["1.153,03", "17", "-2,5"], [1153.03, 17, -2.5]),
    (["1,200.50", "AED 3", "3 د.إ"], [1200.5, 3, 3]),
    (["$5.5", "-$1,000", "(7)"], [5.5, -1000, -7]),
    (["12,5 %", "3,5٪", "-"], [12.5, 3.5, math.nan]),
    (["٣", "٢٤\u066b٣", "٢\u066c٢٢٢"], [3, 24.3, 2222]),
    (["1 153,03", "2\u202f000,5", "3\u00a0000"], [1153.03, 2000.5, 3000]),
    (["1'200.5", "7", "\u200e8"], [1200.5, 7, 8]),
])  # fmt: skip
def test_numbers_as_people_write_them(values: list[str], wanted: list[float]) -> None:
    column = _column(values)
    assert column.kind == "numeric"
    np.testing.assert_array_equal(column.values, wanted)
    assert column.note.startswith("read as numbers")


@pytest.mark.parametrize("values", [
    ["1,5", "1.5"], ["1.2.3", "4"], ["12,34,5", "1"], ["5 kg", "3 kg"], ["AED", "%"], ["1-2", "3"],
])  # fmt: skip
def test_what_only_looks_like_numbers_stays_text(values: list[str]) -> None:
    assert _column(values).kind == "text"


def test_a_file_with_decimal_commas_says_what_its_points_are() -> None:
    thousands = pa.chunked_array([pa.array(["1.153", "2.400", "17"])])
    clear = pa.chunked_array([pa.array(["0,5", "1,25", ""])])
    words = pa.chunked_array([pa.array(["a", "b", "c"])])
    assert decimal_mark([thousands, words]) == "."
    point = pa.chunked_array([pa.array(["AED 1,200.50"])])
    assert decimal_mark([thousands, point, clear]) == "."
    mark = decimal_mark([thousands, words, clear, clear, point])
    assert mark == ","
    column = interpret("x", thousands, mark)
    assert isinstance(column, Column)
    assert column.values.tolist() == [1153, 2400, 17]
    assert interpret("x", thousands, ".").values.tolist() == [1.153, 2.4, 17]  # pyright: ignore[reportAttributeAccessIssue]


@given(
    st.lists(
        st.one_of(
            st.from_regex(r"\A[+-]?[0-9]{1,5}([.,][0-9]{0,4})?\Z"),
            st.sampled_from(["", "n/a", " 0.5 ", "1.153", "1,153", "12.34", "1e5", "5 AED", "x"]),
        ),
        max_size=4,
    )
)
def test_the_mark_of_many_numbers_is_that_of_each(texts: list[str]) -> None:
    fitting = readings(
        bare(text.strip()) for text in texts if text.strip().lower() not in MISSING_NUMBERS
    )
    expected = "," if fitting == {","} else "."
    assert decimal_mark([pa.chunked_array([texts], pa.string())]) == expected
    point = pa.chunked_array([["0.5"]])
    comma = pa.chunked_array([["0,5"]])
    # What leaves it open counts for neither.
    both = decimal_mark([pa.chunked_array([texts], pa.string()), point, comma, comma])
    assert both == ("." if fitting == {"."} else ",")


def test_a_class_called_nan_is_a_missing_one() -> None:
    target = interpret_target(_column(["a", "nan", "b", "NULL", "a"]), "auto")
    assert target.classes == ["a", "b"]
    assert target.kept.tolist() == [True, False, True, False, True]


def test_messages_have_no_representations_of_numpy() -> None:
    for values in (["3", "3"], ["x", "x"], ["2.5", "2.5"]):
        with pytest.raises(WorkloadError) as refused:
            interpret_target(_column(values), "auto")
        assert "np." not in str(refused.value)


@pytest.mark.parametrize(("values", "order"), [
    (["31.12.2025", "01.02.2024"], "dmy"),
    (["12/31/25", "1/2/24"], "mdy"),
    (["2025-12-31", "2024-02-01T10:00:00Z"], "ymd"),
    (["٣١/١٢/٢٠٢٥", "1/2/2024"], "dmy"),
])  # fmt: skip
def test_dates_of_one_form(values: list[str], order: str) -> None:
    column = _column([*values, ""])
    assert column.kind == "date"
    assert column.form is not None
    assert (column.form.order, column.form.sure) == (order, True)


def test_a_date_that_may_be_two_says_which_was_taken() -> None:
    assert _column(["01.02.2024", "03.04.2024"]).note.endswith("tells day from month")


@pytest.mark.parametrize("values", [
    ["31.12.2025", "2025-12-31"], ["13/13/2024", "1/1/2024"], ["1.2.3", "192.168.1"],
    ["12/31/2025", "31/12/2025"],
])  # fmt: skip
def test_what_only_looks_like_dates_stays_text(values: list[str]) -> None:
    assert _column(values).kind == "text"


def test_prose_is_read_by_its_words_and_identifiers_are_not() -> None:
    prose = [f"please send invoice {n} of the order again" for n in range(60)]
    assert _column(prose).kind == "words"
    assert useless(_column(prose)) is None
    names = [f"user{n} family{n}" for n in range(60)]
    assert "looks like an identifier" in (useless(_column(names)) or "")


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


@pytest.mark.parametrize(
    "cells",
    [
        ["E11", "E311", "E44"],
        ["SR-101", "SR-102"],
        ["050 123 456", "050 123 457"],
        ["00501", "10001", ""],
        ["\u0660\u0660\u0665\u0660\u0661", "\u0661\u0660\u0660\u0660\u0661"],
        ["1.2.3", "1.2.4"],
        [
            "\u06f2\u06f0\u06f2\u06f4/\u06f0\u06f5/\u06f0\u06f1",
            "\u06f2\u06f0\u06f2\u06f4/\u06f0\u06f5/\u06f0\u06f2",
        ],
    ],
)
def test_names_made_of_digits_are_texts(cells: list[str]) -> None:
    column = _column(cells)
    assert (column.kind, column.values.tolist()) == ("text", cells)


def test_a_zero_before_the_mark_says_which_it_is() -> None:
    assert _column(["0,123", "0,456", "1,789"]).values.tolist() == [0.123, 0.456, 1.789]
    comma = interpret("x", pa.chunked_array([["0.123", "1.789"]]), ",")
    assert isinstance(comma, Column)
    assert comma.values.tolist() == [0.123, 1.789]
    # Zeros before months, and before some of different lengths, are padding.
    assert _column(["01", "12"]).values.tolist() == [1, 12]
    assert _column(["007", "1500"]).values.tolist() == [7, 1500]


def test_amounts_in_several_currencies_are_no_numbers() -> None:
    column = interpret("x", pa.chunked_array([["USD 5", "7 د.إ", "3"]]))
    assert isinstance(column, Excluded)
    assert "different units (AED, USD)" in column.reason
    assert units(["Dhs. 5", "AED 7", "٨ درهم", "9"]) == {"AED"}
    assert _column(["Dhs. 5", "AED 7", "٨ درهم", "9"]).values.tolist() == [5, 7, 8, 9]


def test_arabic_marks_and_brackets_mean_one_thing_only() -> None:
    arabic = "\u0661\u066c\u0660\u0660\u0660\u066b\u0661\u0665\u0663"
    for mark in (".", ","):
        column = interpret("x", pa.chunked_array([[arabic, "\u0667\u066b"]]), mark)
        assert isinstance(column, Column)
        assert column.values.tolist() == [1000.153, 7]
    cells = ["AED (1,200.50)", "(7 AED)", "(AED 3)", "AED 5"]
    assert _column(cells).values.tolist() == [-1200.5, -7, -3, 5]


@pytest.mark.parametrize(
    ("cells", "hint"),
    [
        (
            [f"{each}.5" if each % 2 else f"{each},75" for each in range(60)],
            "all are numbers, but",
        ),
        ([f"1.1.{1950 + each}" for each in range(60)] + ["13/2024"], "'13/2024' is not"),
        ([f"1.1.{1950 + each}" for each in range(60)] + ["1/1/2024"], "all are dates, but not"),
    ],
)
def test_what_is_nearly_numbers_or_dates_says_which_row_is_not(
    cells: list[str], hint: str
) -> None:
    assert hint in str(useless(_column(cells)))


def test_telephones_are_no_numbers_that_are_written_in_two_ways() -> None:
    numbers = [f"05{each:08d}" for each in range(60)]
    assert str(useless(_column(numbers))).endswith("60 different texts in 60 rows")
