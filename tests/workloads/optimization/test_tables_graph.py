"""A table's preprocessing in the graph against `TablePreprocessing.transform`."""

from __future__ import annotations

import datetime
from dataclasses import asdict
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper

from falaj.workloads.optimization.comparison import open_session
from falaj.workloads.optimization.export import ML_DOMAIN, ML_OPSET, build_inputs, free_prefix
from falaj.workloads.training.dates import DateForm, date_features, fit_date
from falaj.workloads.training.models import (
    CategoricalColumn,
    NumericColumn,
    TablePreprocessing,
    fit,
)
from tests.examples import examples


def features(preprocessing: TablePreprocessing, inputs: dict[str, NDArray[Any]]) -> Any:
    """Run the graph's preprocessing alone."""
    values, part, result = build_inputs(preprocessing, "batch")
    output = helper.make_tensor_value_info(
        result, TensorProto.FLOAT, ["batch", preprocessing.width]
    )
    model = helper.make_model(
        helper.make_graph(part.nodes, "features", values, [output], part.initializers),
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(ML_DOMAIN, ML_OPSET)],
        ir_version=10,
    )
    onnx.checker.check_model(model, full_check=True)
    return open_session(model.SerializeToString()).run(None, inputs)[0]


# Texts as UTF-8 carries them: no halves of surrogate pairs, and no NUL, which ends a C string.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
floats = st.floats(width=32, allow_infinity=False, min_value=-1e6, max_value=1e6)
scales = st.floats(1e-3, 1e6)


@st.composite
def recipes(draw: st.DrawFn) -> TablePreprocessing:
    names = draw(st.lists(texts.filter(bool), min_size=1, max_size=6, unique=True))
    count = draw(st.integers(0, len(names)))
    numeric = [NumericColumn(n, draw(floats), draw(floats), draw(scales)) for n in names[:count]]
    categorical = [
        CategoricalColumn(n, sorted(draw(st.sets(texts.filter(bool), max_size=5))))
        for n in names[count:]
    ]
    return TablePreprocessing(numeric, categorical)


@st.composite
def recipes_and_rows(draw: st.DrawFn) -> tuple[TablePreprocessing, dict[str, NDArray[Any]]]:
    recipe = draw(recipes())
    rows = draw(st.integers(1, 5))
    inputs: dict[str, NDArray[Any]] = {}
    for column in recipe.numeric:
        values = st.one_of(floats, st.just(float("nan")))
        drawn = draw(st.lists(values, min_size=rows, max_size=rows))
        inputs[column.name] = np.array(drawn, dtype=np.float32)[:, None]
    for column in recipe.categorical:
        known = st.sampled_from(["", *column.categories])
        drawn = draw(st.lists(st.one_of(known, texts), min_size=rows, max_size=rows))
        inputs[column.name] = np.array(drawn, dtype=object)[:, None]
    return recipe, inputs


@given(recipes_and_rows())
@settings(max_examples=examples(150))
def test_the_graph_computes_what_training_computed(
    drawn: tuple[TablePreprocessing, dict[str, NDArray[Any]]],
) -> None:
    recipe, inputs = drawn
    np.testing.assert_array_equal(features(recipe, inputs), recipe.transform(inputs))


def test_missing_and_unknown_share_the_first_feature_of_a_text_column() -> None:
    recipe = TablePreprocessing([], [CategoricalColumn("city", ["Al Ain", "دبي"])])
    rows = np.array([["دبي"], [""], ["Muscat"], ["Al Ain"]], dtype=object)
    wanted = [[0, 0, 1], [1, 0, 0], [1, 0, 0], [0, 1, 0]]
    assert features(recipe, {"city": rows}).tolist() == wanted


def test_a_missing_number_becomes_the_median() -> None:
    recipe = TablePreprocessing([NumericColumn("age", 40.0, 30.0, 5.0)], [])
    rows = np.array([[np.nan], [35.0]], dtype=np.float32)
    assert features(recipe, {"age": rows}).tolist() == [[2.0], [1.0]]


def test_a_recipe_that_was_fitted_agrees_on_other_rows() -> None:
    random = np.random.default_rng(2)
    table = {
        "amount": random.lognormal(5, 3, 200),
        "constant": np.full(200, 7.0),
        "kind": random.choice(["a", "b", "", "ج"], 200).astype(object),
        "always one": np.full(200, "x", dtype=object),
    }
    recipe = fit({name: values[:100] for name, values in table.items()})
    inputs = {
        name: (values if values.dtype == object else values.astype(np.float32))[100:, None]
        for name, values in table.items()
    }
    np.testing.assert_array_equal(features(recipe, inputs), recipe.transform(inputs))


def test_a_text_column_without_known_texts_is_always_unknown() -> None:
    recipe = TablePreprocessing([], [CategoricalColumn("id", [])])
    rows = np.array([["a"], [""]], dtype=object)
    assert features(recipe, {"id": rows}).tolist() == [[1.0], [1.0]]


DATES = {
    "plain": (DateForm(".", "dmy", "", True), ["31.12.2025", "1.2.24", "٣١.2.2025", "29.02.2024"]),
    "with a time": (
        DateForm("-", "ymd", "T", True), ["2025-12-31T10:00", "1970-01-01T00:00Z", "2024-02-29"],
    ),
}  # fmt: skip
ODD = ["", "x", "1.2", "99.99.2025", "1.2.x.4 5", "2025-13-01T1", "T", "...", "0-0-0", "\n"]


@pytest.mark.parametrize("name", DATES)
def test_dates_are_the_same_in_the_graph(name: str) -> None:
    form, written = DATES[name]
    texts = np.array([*written, *ODD], dtype=object)
    described = [{"name": "day", "kind": "date", "form": asdict(form)}]
    recipe = fit({"day": texts}, described)
    wanted = recipe.transform({"day": texts})
    np.testing.assert_array_equal(features(recipe, {"day": texts[:, None]}), wanted)
    for row, text in enumerate(texts):  # no other row lengthens what its text is cut into
        alone = np.array([[text]], dtype=object)
        np.testing.assert_array_equal(features(recipe, {"day": alone})[0], wanted[row])
    missing = wanted[len(written) :, 1]
    assert missing.all()
    assert not wanted[: len(written), 1].any()


@pytest.mark.parametrize(
    "day", ["1900-01-01", "1999-12-31", "2000-02-29", "2026-03-01", "2100-02-28"]
)
def test_a_day_s_weekday_and_month_are_the_calendar_s(day: str) -> None:
    truth = datetime.date.fromisoformat(day)
    column = fit_date("d", np.array([day], dtype=object), DateForm("-", "ymd", "", True))
    (row,) = date_features(column, np.array([day], dtype=object))
    assert row[2 : 2 + 7].argmax() == truth.weekday()
    assert row[2 + 7 :].argmax() + 1 == truth.month
    apart = date_features(column, np.array(["1970-01-01"], dtype=object))[0, 0] * column.scale
    assert apart == (datetime.date(1970, 1, 1) - truth).days


def test_words_are_the_same_in_the_graph() -> None:
    written = [
        "الفاتورة مرتفعة.", "فاتورة الشهر؟", "Hello bill\nnow", "hello  BILL\r\n", "",
        "شحنة متأخرة", "الشحنة\tمتأخرة now", "وبالفاتورة!", "un\u00a0known", "   ",
    ]  # fmt: skip
    texts = np.array(written, dtype=object)
    recipe = fit({"t": texts}, [{"name": "t", "kind": "words"}])
    wanted = recipe.transform({"t": texts})
    np.testing.assert_array_equal(features(recipe, {"t": texts[:, None]}), wanted)
    for row, text in enumerate(texts):
        alone = np.array([[text]], dtype=object)
        np.testing.assert_array_equal(features(recipe, {"t": alone})[0], wanted[row])
    # Two forms of one word are one feature; a text of none that is known says so.
    assert (wanted[0] * wanted[1])[:-1].sum() == 1
    assert wanted[4, -1] == 1


def test_a_form_that_no_training_row_has_is_known() -> None:
    texts = np.array(["فاتورة قديمة", "فاتورة جديدة"] * 3, dtype=object)
    recipe = fit({"t": texts}, [{"name": "t", "kind": "words"}])
    new = np.array([["والفاتورة؟"]], dtype=object)
    assert features(recipe, {"t": new})[0, -1] == 0


def test_texts_without_a_word_that_recurs() -> None:
    texts = np.array(["a b", "c d", ""], dtype=object)
    recipe = fit({"t": texts}, [{"name": "t", "kind": "words"}])
    assert features(recipe, {"t": texts[:, None]}).tolist() == [[1.0]] * 3
    assert recipe.transform({"t": texts}).tolist() == [[1.0]] * 3


@pytest.mark.parametrize("names", [["age"], ["falaj/x"], ["falaj/", "_falaj/x"]])
def test_inner_names_cannot_be_a_column(names: list[str]) -> None:
    prefix = free_prefix(names)
    assert not any(name.startswith(prefix) for name in names)
