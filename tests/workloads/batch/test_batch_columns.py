"""Numbers of a batch are read as training reads those of a table."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.batch.columns import Numbers, Texts
from falaj.workloads.batch.reading import CsvSource
from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference.protocol.oip import TensorSpec
from falaj.workloads.training.tables import Column, decimal_mark, interpret, read_table

POINT = st.sampled_from(
    ["1", "-2.5", "1.153", "1,200.50", "3e4", "(7)", "AED 12", "", "NA", " 8 "]
)
COMMA = st.sampled_from(["1", "-2,5", "1.153,03", "0,125", "(7,5)", "AED 12", "", "?", "\u0663"])
COLUMNS = st.one_of(
    st.lists(POINT, min_size=1, max_size=12), st.lists(COMMA, min_size=1, max_size=12)
)
SPEC = TensorSpec("x", "FP32", (-1, 1), missing=True)


def write(path: Path, *columns: list[str]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow([f"c{index}" for index in range(len(columns))])
        writer.writerows(zip(*columns, strict=True))
    return path


@given(values=COLUMNS)
def test_a_column_of_numbers_is_the_one_that_training_saw(
    values: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = write(tmp_path_factory.mktemp("columns") / "t.csv", ["a"] * len(values), values)
    table = read_table(path)
    trained = interpret("c1", table.column("c1"), decimal_mark(table.columns))
    (chunk,) = CsvSource(path, "t.csv").chunks(["c1"])
    texts = list(chunk.columns["c1"])
    assert texts == [each.as_py() for each in table.column("c1")]
    read = Numbers("c1", SPEC, None)
    assert read.survey(texts) == {}
    read.settle(".")
    found, refused = read.read(texts)
    assert refused == {}
    if isinstance(trained, Column) and trained.kind == "numeric":
        assert np.array_equal(found, trained.values, equal_nan=True)


@given(values=st.lists(st.text(max_size=6).filter(lambda text: "\0" not in text), max_size=8))
def test_any_text_is_read_or_refused_and_never_a_wrong_number(values: list[str]) -> None:
    read = Numbers("x", SPEC, None)
    try:
        refused = read.survey(values)
        read.settle(".")
    except WorkloadError:
        return
    found, bad = read.read(values)
    assert set(bad) == set(refused)
    assert len(found) == len(values)
    assert np.isfinite(found[~np.isnan(found)]).all()
    texts, none = Texts("x").read(values)
    assert none == {}
    assert all(text == text.strip() for text in texts)


@pytest.mark.parametrize(
    ("datatype", "good", "bad"),
    [
        ("INT8", ["-128", "127", "3.0"], ["128", "1.5", "", "x"]),
        ("UINT64", ["0", "9007199254740992"], ["-1", "9007199254740994"]),
        ("FP16", ["65504", "-1"], ["65505", "1e9"]),
        ("FP64", ["1e300"], ["1e999", "inf", "-inf"]),
    ],
)
def test_inputs_take_what_they_can_hold(datatype: str, good: list[str], bad: list[str]) -> None:
    spec = TensorSpec("x", datatype, (-1, 1))
    for values, expected in ((good, set[int]()), (bad, set(range(len(bad))))):
        read = Numbers("x", spec, None)
        read.survey(values)
        read.settle(".")
        assert set(read.read(values)[1]) == expected


def test_marks_are_told_by_all_values_and_by_the_rest_of_the_file() -> None:
    open_column = Numbers("x", SPEC, None)
    open_column.survey(["1.153", "7"])
    open_column.settle(",")
    assert open_column.read(["1.153"])[0].tolist() == [1153.0]
    clear = Numbers("x", SPEC, None)
    clear.survey(["7"] * 5_000)
    clear.survey(["1,5"])
    clear.settle(".")
    assert clear.read(["1.153"])[0].tolist() == [1153.0]
    both = Numbers("x", SPEC, None)
    both.survey(["1.5", "1,5"])
    with pytest.raises(WorkloadError, match="--decimal point"):
        both.settle(".")
