"""A form made of a manifest, what is read of it, and what is read of an answer."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.stacks.page.form import (
    MOST_FIELDS,
    MOST_SENT,
    MOST_SHOWN,
    OTHER,
    PASTED,
    RowError,
    answer_of,
    form_of,
    text_of,
    written,
)
from falaj.workloads.training.dates import date_features, fit_date
from falaj.workloads.training.dates import form_of as dates_of

FEATURES = [
    {"name": "city", "kind": "text"},
    {"name": "age", "kind": "numeric"},
    {"name": "since", "kind": "date", "form": {"separator": ".", "order": "dmy", "time_mark": ""}},
    {"name": "note", "kind": "words"},
]
STATISTICS = {
    "age": {"kind": "numeric", "minimum": 18.0, "maximum": 79.5, "edges": [20.0, 44.0, 70.0],
            "missing": 3},
    "city": {"kind": "text", "categories": {"دبي": 9, "<b>Ajman</b>": 3}, "others": 4},
    "note": {"kind": "text", "categories": {}, "others": 40},
}  # fmt: skip


def tensor(name: str, datatype: str = "FP32", *shape: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [-1, *(shape or (1,))], **more}


def manifest(*inputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "inputs": list(inputs), "dataset": {"features": FEATURES},
        "statistics": {"features": STATISTICS}, **more,
    }  # fmt: skip


TABLE = manifest(
    tensor("age", missing=True), tensor("note", "BYTES"), tensor("since", "BYTES"),
    tensor("city", "BYTES"),
)  # fmt: skip


def read(described: dict[str, Any], text: str, more: dict[str, str] | None = None) -> Any:
    """What the only field reads."""
    return form_of(described).read({"i0": text, **(more or {})})["inputs"][0]["data"]


def refused(described: dict[str, Any], text: str) -> str:
    with pytest.raises(RowError) as caught:
        read(described, text)
    assert list(caught.value.errors) == ["i0"]
    return str(caught.value)


def test_fields_are_in_the_order_of_the_columns_and_of_their_kinds() -> None:
    form = form_of(TABLE)
    assert [(each.name, each.kind) for each in form.fields] == [
        ("city", "choice"), ("age", "number"), ("since", "date"), ("note", "words"),
    ]  # fmt: skip
    assert form.fields[1].hint == "in training 18 to 79.5; missing in 3 rows"
    assert "4 rows of training had other values" in form.fields[0].hint


def test_what_stands_there_at_first_is_a_row_of_nobody() -> None:
    example = form_of(TABLE).example()
    assert example is not None
    assert {each["name"]: each["data"] for each in example["inputs"]} == {
        "city": ["دبي"], "age": [44.0], "since": [""], "note": [""],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12.0), (" 12.5 ", 12.5), ("12,5", 12.5), ("1.153,03", 1153.03), ("-3", -3.0),
        ("1,200.5", 1200.5), ("\u0661\u0662\u066b\u0665", 12.5), ("(35)", -35.0),
        ("1e3", 1000.0), ("", None),
        ("NaN", None),
    ],
)  # fmt: skip
def test_numbers_as_people_write_them(text: str, value: float | None) -> None:
    assert read(manifest(tensor("age", missing=True)), text) == [value]


@pytest.mark.parametrize("text", ["abc", "1.2.3.4x", "inf", "1e40", "--", "<script>", "1" * 400])
def test_what_is_no_number_is_refused(text: str) -> None:
    said = refused(manifest(tensor("age", missing=True)), text)
    assert "is no number" in said or "is too large" in said
    assert len(said) < 150


def test_a_number_that_has_to_be_there() -> None:
    assert "needs a number" in refused(manifest(tensor("age")), "")


@pytest.mark.parametrize(("datatype", "low", "high"), [("INT8", -128, 127), ("UINT16", 0, 65535)])
def test_whole_numbers_have_their_bounds(datatype: str, low: int, high: int) -> None:
    whole = manifest(tensor("n", datatype))
    assert read(whole, str(low)) == [low]
    assert read(whole, str(high)) == [high]
    for wrong in (low - 1, high + 1):
        assert f"{low} to {high}" in refused(whole, str(wrong))
    assert "no whole number" in refused(whole, "1.5")


def test_one_of_few_or_another() -> None:
    city = manifest(tensor("city", "BYTES"))
    assert read(city, "c1") == ["<b>Ajman</b>"]
    assert read(city, "") == [""]
    assert read(city, OTHER, {f"i0.{OTHER}": "العين"}) == ["العين"]
    for wrong in ("c2", "c-1", "دبي", "c" + "9" * 5000, "c²"):
        refused(city, wrong)


@pytest.mark.parametrize(
    "written_as", ["31.12.2025", "2025-12-31", "12/31/2025", "31.12.2025 10:30"]
)
def test_dates_are_sent_as_the_column_writes_them(written_as: str) -> None:
    """The training's own reading is the judge."""
    form = dates_of([written_as])
    assert form is not None
    described = {"name": "d", "kind": "date", "form": asdict(form)}
    given = {"inputs": [tensor("d", "BYTES")], "dataset": {"features": [described]}}
    (sent,) = read(given, "2025-12-31")
    column = fit_date("d", np.array([written_as], dtype=object), form)
    as_trained = date_features(column, np.array([written_as], dtype=object))
    assert np.array_equal(date_features(column, np.array([sent], dtype=object)), as_trained)
    assert "no date" in refused(given, "31 December")


@pytest.mark.parametrize(
    ("written_as", "shown"),
    [
        ("31.12.2025", "2025-12-31"),
        ("2025-12-31T10:30", "2025-12-31"),
        ("12/31/70", "1970-12-31"),
        ("٣١/١٢/٢٠٢٥", "2025-12-31"),
        ("31.02.2025", ""),
    ],
)
def test_a_date_is_at_first_the_most_frequent_one(written_as: str, shown: str) -> None:
    form = dates_of([written_as])
    assert form is not None
    described = {"name": "d", "kind": "date", "form": asdict(form)}
    counts = {"kind": "text", "categories": {"01.01.2001": 2, written_as: 7}, "others": 2037}
    given = {
        "inputs": [tensor("d", "BYTES")], "dataset": {"features": [described]},
        "statistics": {"features": {"d": {**counts, "missing": 5}}},
    }  # fmt: skip
    made = form_of(given)
    assert made.typical() == {"i0": shown}
    assert made.fields[0].hint == "missing in 5 rows"


def test_pictures_are_as_many_numbers_as_they_have_pixels() -> None:
    image = {"name": "image", "kind": "image", "largest": 16, "shape": [1, 8, 8]}
    given = {"inputs": [tensor("image", "FP32", 1, 8, 8)], "dataset": {"features": [image]}}
    (field,) = form_of(given).fields
    assert (field.kind, field.height, field.width, field.largest) == ("image", 8, 8, 16.0)
    example = form_of(given).example()
    assert example is not None
    assert example["inputs"][0]["shape"] == [1, 1, 8, 8]
    assert "63 numbers are given; needed are 64" in refused(given, " ".join(["1"] * 63))


def test_without_anything_but_tensors_there_is_a_form() -> None:
    bare = {"inputs": [tensor("x", "FP32", 3), tensor("t", "BYTES", 2), tensor("b", "BOOL")]}
    assert [each.kind for each in form_of(bare).fields] == ["numbers", "texts", "flag"]
    sent = form_of(bare).read({"i0": "1; 2,3", "i1": "a\r\nب", "i2": "true"})
    assert [each["data"] for each in sent["inputs"]] == [[1.0, 2.0, 3.0], ["a", "ب"], [True]]


@pytest.mark.parametrize(
    "described",
    [
        {},
        {"inputs": "no list"},
        {"inputs": [tensor("x", "FP32", -1)]},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": None}]},
        {"inputs": [tensor(f"x{n}") for n in range(MOST_FIELDS + 1)]},
        {"inputs": [tensor("b", "BOOL", 4)]},
    ],
)
def test_what_has_no_form_is_pasted(described: dict[str, Any]) -> None:
    form = form_of(described)
    assert form.pasted
    assert form.why
    row = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
    assert form.read({PASTED: orjson.dumps(row).decode()}) == row
    for wrong in ("", "[]", "{", '{"inputs": 1}', "[" * 100_000, '{"inputs": ["\\ud800"]}', "NaN"):
        with pytest.raises(RowError):
            form.read({PASTED: wrong})


def test_a_language_model_is_asked_for_a_text() -> None:
    given = {"name": "tokens", "datatype": "INT64", "shape": [-1, -1], "context": 128}
    form = form_of(manifest(given, task="language", model="notes"))
    assert form.example() is None
    asked = form.read({"prompt": "a\r\nb", "max_tokens": "7", "temperature": "0,5"})
    assert asked == {"model": "notes", "prompt": "a\nb", "max_tokens": 7, "temperature": 0.5}
    with pytest.raises(RowError) as wrong:
        form.read({"max_tokens": "7.5", "temperature": ""})
    assert set(wrong.value.errors) == {"max_tokens", "temperature"}


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"choices": None}, {"choices": []}, {"choices": [{}]}, {"choices": [[1]]},
     {"choices": [{"text": 1}]}],
)  # fmt: skip
def test_what_is_no_text_is_no_answer(document: Any) -> None:
    assert text_of(document, {"prompt": "a"}) is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip
KEYS = ["inputs", "dataset", "statistics", "classes", "outputs", "name", "datatype", "shape",
        "data", "features", "form", "kind", "categories", "edges", "role"]  # fmt: skip
documents = st.recursive(
    anything,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=30,
)


@given(described=st.dictionaries(st.sampled_from(KEYS), documents, max_size=8), text=st.text())
def test_no_manifest_and_no_text_break_it(described: dict[str, Any], text: str) -> None:
    form = form_of(described)
    form.example()
    try:
        row = form.read({**form.typical(), "i0": text, PASTED: text})
    except RowError as error:
        assert error.errors
    else:
        assert len(written(row)) <= MOST_SENT + 40


@given(answer=documents, described=documents)
def test_no_answer_breaks_it(answer: object, described: object) -> None:
    answer_of(answer, described if isinstance(described, dict) else {})


def answer(*outputs: tuple[str, list[Any]], **more: Any) -> dict[str, Any]:
    return {"model_version": "3", "outputs": [
        {"name": name, "datatype": "FP32", "shape": [1, len(data)], "data": data}
        for name, data in outputs], **more}  # fmt: skip


def test_classes_come_the_likeliest_first() -> None:
    found = answer_of(answer(("probabilities", [0.1, 0.7, 0.2]), ("label", ["b"])),
                      {"classes": ["a", "b", "c"]})  # fmt: skip
    assert found is not None
    assert [(each.name, each.width) for each in found.shares] == [("b", 70), ("c", 20), ("a", 10)]
    assert (found.value, found.version, found.others) == ("b", "3", ())


def test_outputs_are_known_by_their_role_and_not_by_their_name() -> None:
    described = {"outputs": [{"name": "predicted_label", "role": "label"}]}
    found = answer_of(answer(("predicted_label", ["gold"])), described)
    assert found is not None
    assert found.value == "gold"


def test_a_value_of_a_regression() -> None:
    found = answer_of(answer(("prediction", [1234567.25])), {})
    assert found is not None
    assert found.value == "1,234,567.25"
    assert found.shares == ()


def test_what_is_no_probability_is_shown_and_draws_nothing_wide() -> None:
    found = answer_of(answer(("probabilities", [5.0, -1.0])), {})
    assert found is not None
    assert [each.width for each in found.shares] == [100, 0]
    odd = answer_of(answer(("probabilities", ["<b>", None])), {})
    assert odd is not None
    assert odd.shares == ()
    assert odd.others == (("probabilities", "<b>, not a number"),)


def test_many_classes_and_values_are_counted() -> None:
    found = answer_of(answer(("probabilities", [1 / 1000] * 1000), ("x", [1] * 5000)), {})
    assert found is not None
    assert (len(found.shares), found.more) == (MOST_SHOWN, 1000 - MOST_SHOWN)
    assert found.others[0][1].endswith("(5,000 values)")
    assert not math.isnan(found.shares[0].probability)


@pytest.mark.parametrize("wrong", [None, [], {}, {"outputs": 3}, "x"])
def test_what_is_no_answer(wrong: object) -> None:
    assert answer_of(wrong, {}) is None
