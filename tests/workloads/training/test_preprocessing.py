"""The features' recipe: order, missing and unknown values, JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.training.models import (
    MAXIMUM_CATEGORIES,
    CategoricalColumn,
    NumericColumn,
    TablePreprocessing,
    fit,
)


def _texts(values: list[str]) -> Any:
    return np.array(values, dtype=object)


def test_absent_column_is_an_error() -> None:
    with pytest.raises(KeyError):
        fit({"x": np.array([1.0, 2.0])}).transform({"y": np.array([1.0])})


def test_features_are_numbers_first_then_blocks() -> None:
    inputs = {"c": _texts(["b", "a", "b", "a"]), "x": np.array([1.0, 3.0, np.nan, 5.0])}
    recipe = fit(inputs)
    assert recipe.numeric == [NumericColumn("x", 3.0, 3.0, pytest.approx((8 / 3) ** 0.5))]
    assert recipe.categorical == [CategoricalColumn("c", ["a", "b"])]
    features = recipe.transform(inputs)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features[:, 0], [-1.2247449, 0, 0, 1.2247449], rtol=1e-6)
    assert features[:, 1:].tolist() == [[0, 0, 1], [0, 1, 0], [0, 0, 1], [0, 1, 0]]


def test_unknown_and_missing_texts_share_the_first_feature() -> None:
    recipe = TablePreprocessing([], [CategoricalColumn("c", ["a"])])
    features = recipe.transform({"c": _texts(["", "new", "a"]).reshape(-1, 1)})
    assert features.tolist() == [[1, 0], [1, 0], [0, 1]]


def test_rare_texts_are_unknown_and_the_number_is_limited() -> None:
    values = [f"t{n:03}" for n in range(150) for _ in range(2 + (n < 60))] + ["once"]
    categories = fit({"c": _texts(values)}).categorical[0].categories
    assert len(categories) == MAXIMUM_CATEGORIES
    assert "once" not in categories
    assert {f"t{n:03}" for n in range(60)} <= set(categories)


def test_texts_that_differ_by_what_arrays_of_texts_lose_are_two() -> None:
    recipe = fit({"c": _texts(["a", "a", "a\0", "a\0"])})
    assert recipe.categorical[0].categories == ["a", "a\0"]
    assert recipe.transform({"c": _texts(["a\0"])}).tolist() == [[0, 0, 1]]


def test_constant_and_empty_columns_stay_finite() -> None:
    inputs = {"same": np.full(4, 1e9), "none": np.full(4, np.nan)}
    assert np.isfinite(fit(inputs).transform(inputs)).all()


_NUMBERS = st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=2, max_size=20)
_TEXTS = st.lists(st.text(max_size=3), min_size=2, max_size=20)


@given(numbers=_NUMBERS, texts=_TEXTS)
def test_json_carries_the_whole_recipe(numbers: list[float], texts: list[str]) -> None:
    size = min(len(numbers), len(texts))
    inputs = {"x": np.array(numbers[:size]), "c": _texts(texts[:size])}
    recipe = fit(inputs)
    again = TablePreprocessing.from_json(json.loads(json.dumps(recipe.to_json())))
    assert again == recipe
    features = again.transform(inputs)
    assert features.shape == (size, recipe.width)
    assert np.isfinite(features).all()
    assert (features[:, 1:].sum(axis=1) == 1).all()
