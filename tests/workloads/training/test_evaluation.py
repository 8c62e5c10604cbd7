"""The figures, against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.training import loop


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_classification_figures(pairs: list[tuple[int, int]]) -> None:
    from sklearn import metrics

    labels, predicted = np.array(pairs, dtype=np.int64).T
    figures = loop.classification(labels, predicted, ["a", "b", "c", "d"])
    every = range(4)
    assert figures["accuracy"] == pytest.approx(metrics.accuracy_score(labels, predicted))
    precision, recall, f1, support = metrics.precision_recall_fscore_support(
        labels, predicted, labels=every, zero_division=0
    )
    for index, name in enumerate("abcd"):
        found = figures["per_class"][name]
        assert found["precision"] == pytest.approx(precision[index])
        assert found["recall"] == pytest.approx(recall[index])
        assert found["f1"] == pytest.approx(f1[index])
        assert found["support"] == support[index]
    confusion = metrics.confusion_matrix(labels, predicted, labels=every)
    assert figures["confusion"] == confusion.tolist()


def test_regression_figures() -> None:
    from sklearn import metrics

    labels, predicted = np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 3.0])
    figures = loop.regression(labels, predicted)
    assert figures["rmse"] == pytest.approx((2 / 3) ** 0.5)
    assert figures["mae"] == pytest.approx(2 / 3)
    assert figures["r2"] == pytest.approx(metrics.r2_score(labels, predicted))
    assert figures["baseline_rmse"] == pytest.approx(np.std(labels))


def test_constant_truth_has_no_r2() -> None:
    assert loop.regression(np.ones(3), np.zeros(3))["r2"] == 0.0
