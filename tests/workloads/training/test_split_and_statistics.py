"""Splits and the statistics of the training part, by their properties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from falaj.workloads.training import dataset
from falaj.workloads.training.dataset import strata_of, stratified
from falaj.workloads.training.randomness import generator


@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=80),
    st.floats(0.05, 0.5),
    st.integers(0, 2**63 - 1),
)
def test_split_is_a_partition_fair_to_each_stratum(
    labels: list[int], fraction: float, seed: int
) -> None:
    strata = np.array(labels, dtype=np.int64)
    first, second = stratified(strata, fraction, generator(seed))
    assert sorted([*first, *second]) == list(range(len(labels)))
    for stratum in set(labels):
        size = labels.count(stratum)
        given_away = int((strata[second] == stratum).sum())
        assert given_away == 0 if size == 1 else 1 <= given_away <= size - 1
        assert abs(given_away - fraction * size) <= 1
    again = stratified(strata, fraction, generator(seed))
    assert [part.tolist() for part in again] == [first.tolist(), second.tolist()]


def test_continuous_targets_are_split_by_deciles() -> None:
    values = np.random.default_rng(1).lognormal(size=500)
    strata = strata_of(values, classification=False)
    assert np.bincount(strata).tolist() == [50] * 10


@given(st.lists(st.floats(-1e9, 1e9) | st.just(float("nan")), min_size=1, max_size=50))
def test_numbers_are_described(values: list[float]) -> None:
    array = np.array(values)
    found = dataset.of_numbers(array)
    present = array[~np.isnan(array)]
    assert found["count"] + found["missing"] == len(values)
    if len(present):
        assert sum(found["shares"]) == pytest.approx(1)
        assert len(found["shares"]) == len(found["edges"]) + 1
        assert found["minimum"] == present.min()
        assert found["edges"] == sorted(set(found["edges"]))


@given(st.lists(st.sampled_from(["", "a", "b"]) | st.text(max_size=2), min_size=1, max_size=300))
@example(["\x00"])
@example(["a\x00", "a"])
def test_texts_are_described(values: list[str]) -> None:
    array: Any = np.array(values, dtype=object)
    found = dataset.of_texts(array)
    assert found["missing"] == values.count("")
    assert sum(found["categories"].values()) + found["others"] == found["count"]
    assert len(found["categories"]) <= 100
    assert all(values.count(name) == count for name, count in found["categories"].items())
