"""Changes of a stream's mean: found when another's ADWIN finds them, and seldom by chance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from falaj.workloads.inference.drift.streams import Adwin, PageHinkley

#: Where `river.drift.ADWIN` of river 0.26.1 (delta 0.002) finds the first change of these streams.
RIVER = {
    ("same", 0): None, ("errors", 0): 2111, ("level", 0): 2431,
    ("same", 1): None, ("errors", 1): 2143, ("level", 1): 2431,
    ("same", 2): None, ("errors", 2): 2175, ("level", 2): 2335,
    ("same", 3): None, ("errors", 3): 2207, ("level", 3): 2399,
}  # fmt: skip


def stream(kind: str, seed: int) -> NDArray[np.float64]:
    random = np.random.default_rng(seed)
    later = np.arange(4_000) >= 2_000
    if kind == "same":
        return (random.random(4_000) < 0.2) * 1.0
    if kind == "errors":
        return (random.random(4_000) < np.where(later, 0.25, 0.1)) * 1.0
    return np.clip(0.5 + 0.1 * random.normal(size=4_000) + 0.04 * later, 0, 1)


def first(detector: Adwin | PageHinkley, values: NDArray[np.float64]) -> int | None:
    return next((n for n, value in enumerate(values) if detector.update(float(value))), None)


@pytest.mark.parametrize(("kind", "seed"), RIVER)
def test_changes_are_found_where_river_finds_them(kind: str, seed: int) -> None:
    detector = Adwin()
    assert first(detector, stream(kind, seed)) == RIVER[kind, seed]
    assert detector.rose == (kind != "same")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=400))
def test_the_window_holds_the_sum_and_variance_of_its_newest_values(values: list[float]) -> None:
    detector = Adwin()
    for value in values:
        detector.update(value)
    newest = np.array(values[len(values) - detector.width :])
    assert 0 < detector.width <= len(values)
    assert detector.total == pytest.approx(newest.sum(), abs=1e-6)
    assert detector._variance == pytest.approx(newest.var() * len(newest), abs=1e-6)


def test_memory_grows_with_the_logarithm() -> None:
    detector = Adwin()
    random = np.random.default_rng(1)
    for value in random.random(20_000):
        detector.update(float(value))
    assert detector.width == 20_000
    assert sum(map(len, detector._rows)) < 90


def test_a_stream_that_is_as_ever_seldom_alarms() -> None:
    random = np.random.default_rng(2)
    alarms = sum(first(Adwin(), (random.random(3_000) < 0.3) * 1.0) is not None for _ in range(20))
    assert alarms <= 1


@pytest.mark.parametrize("rise", [0.5, 1.0])
def test_page_and_hinkley_find_a_mean_that_rises(rise: float) -> None:
    delays: list[int] = []
    for seed in range(10):
        values = np.random.default_rng(seed).normal(size=4_000)
        values[2_000:] += rise
        found = first(PageHinkley(), values)
        assert found is not None
        if found >= 2_000:
            delays.append(found - 2_000)
    assert len(delays) >= 9
    assert np.median(delays) < 150


def test_page_and_hinkley_are_quiet_where_nothing_moves() -> None:
    assert first(PageHinkley(), np.full(1_000, 3.0)) is None
    quiet = [first(PageHinkley(), np.random.default_rng(s).normal(size=1_000)) for s in range(20)]
    assert sum(each is not None for each in quiet) <= 3
