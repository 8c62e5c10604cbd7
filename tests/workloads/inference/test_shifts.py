"""Distances and tests between counts, against SciPy and by what they promise of chance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from falaj.workloads.inference.drift import shifts

COUNTS = st.lists(st.integers(0, 5_000), min_size=2, max_size=40)


@given(st.integers(1, 400), st.floats(1e-12, 0.9999))
def test_quantiles_of_chi_square_are_scipys(freedom: int, chance: float) -> None:
    found = shifts.chi_square_quantile(chance, freedom)
    assert found == pytest.approx(stats.chi2.isf(chance, freedom), rel=1e-6, abs=1e-9)


@given(COUNTS, st.data())
def test_figures_are_finite_whatever_is_counted(reference: list[int], data: st.DataObject) -> None:
    size = len(reference)
    window = data.draw(st.lists(st.integers(0, 5_000), min_size=size, max_size=size))
    for compare in (shifts.of_numbers, shifts.of_categories):
        found = compare(np.array(reference), np.array(window), 1e-4)
        figures = [found.psi, found.psi_limit, found.ks, found.ks_limit]
        assert all(each is None or np.isfinite(each) for each in figures)
        if not any(reference) or not any(window):
            assert found == shifts.NONE


@given(COUNTS)
def test_the_same_counts_never_differ(counts: list[int]) -> None:
    same = np.array(counts)
    assert not shifts.of_numbers(same, same, 1e-3).is_over
    assert not shifts.of_categories(same, same, 1e-3).is_over


def test_chance_alone_is_told_as_seldom_as_is_said() -> None:
    random = np.random.default_rng(5)
    chance, draws = 0.01, 2_000
    shares = np.full(10, 0.1)
    categories = np.array([0.5, 0.3, 0.19, 0.01, 0.0])
    for n, m in ((200, 400), (1_000, 20_000)):
        over = other = 0
        for _ in range(draws):
            over += shifts.of_numbers(
                random.multinomial(m, shares), random.multinomial(n, shares), chance
            ).is_over
            other += shifts.of_categories(
                random.multinomial(m, categories), random.multinomial(n, categories), chance
            ).is_over
        # Two figures each: at most their sum, and three standard errors.
        most = 2 * chance + 3 * np.sqrt(2 * chance / draws)
        assert over / draws < most
        assert other / draws < most


@pytest.mark.parametrize(("shift", "finds"), [(0.0, 0.0), (0.5, 1.0), (1.0, 1.0)])
def test_a_shift_of_half_a_deviation_is_found_in_every_window(shift: float, finds: float) -> None:
    random = np.random.default_rng(6)
    made_from = random.normal(size=5_000)
    edges = np.quantile(made_from, np.linspace(0, 1, 11)[1:-1])
    reference = np.bincount(np.searchsorted(edges, made_from), minlength=10)
    found = [
        shifts.of_numbers(
            reference,
            np.bincount(np.searchsorted(edges, random.normal(shift, size=1_000)), minlength=10),
            0.001 / 30,
        ).is_over
        for _ in range(50)
    ]
    assert np.mean(found) == finds


def test_a_category_that_was_never_there_is_found_and_one_row_of_it_is_not() -> None:
    reference = np.array([5_000, 3_000, 2_000, 0])
    some = np.array([480, 290, 180, 50])
    one = np.array([499, 300, 200, 1])
    assert shifts.of_categories(reference, some, 1e-4).is_over
    assert not shifts.of_categories(reference, one, 1e-4).is_over


def test_many_rare_categories_are_put_together() -> None:
    random = np.random.default_rng(7)
    shares = np.append(1 / np.arange(1, 101), 0)
    shares /= shares.sum()
    over = [
        shifts.of_categories(
            random.multinomial(3_000, shares), random.multinomial(200, shares), 1e-3
        ).is_over
        for _ in range(300)
    ]
    assert np.mean(over) < 0.01


@given(st.integers(0, 1_000), st.integers(0, 1_000), st.integers(0, 1_000), st.integers(0, 1_000))
def test_shares_differ_by_a_fiftieth_at_least(a: int, b: int, c: int, d: int) -> None:
    reference, window = (min(a, b), max(a, b)), (min(c, d), max(c, d))
    if shifts.is_other_share(reference, window, 1e-3):
        assert abs(reference[0] / reference[1] - window[0] / window[1]) > 0.02


@pytest.mark.parametrize("rows", [20, 40, 100, 200])
def test_small_windows_in_which_nothing_changed_alarm_no_more_often_than_is_said(
    rows: int,
) -> None:
    """1,000 windows of each share, each against a reference of its own."""
    drawn, chance, shares = np.random.default_rng(rows), 0.01, (0.002, 0.005, 0.01, 0.02, 0.05)
    alarms = {
        share: sum(
            shifts.is_other_share(
                (int(drawn.binomial(2_000, share)), 2_000),
                (int(drawn.binomial(rows, share)), rows),
                chance,
            )
            for _ in range(1_000)
        )
        for share in shares
    }
    assert sum(alarms.values()) <= 1_000 * chance * len(shares), alarms
    # By chance the best of tests alarms somewhat oftener in some thousand windows.
    assert max(alarms.values()) <= 1_000 * chance * 1.5, alarms


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 60), st.integers(0, 60))
def test_the_chance_of_a_share_is_scipys(m: int, n: int, a: int, b: int) -> None:
    a, b = min(a, m), min(b, n)
    drawn = stats.hypergeom(m + n, a + b, n)
    chance = float(drawn.sf(b - 1) if b * m > a * n else drawn.cdf(b))
    is_far = abs(b / n - a / m) > shifts.LEAST_MISSING
    for limit in (0.5 * chance, 0.999 * chance, 1.001 * chance, 2 * chance):
        assert shifts.is_other_share((a, m), (b, n), 2 * limit) == (is_far and chance <= limit)


def test_a_column_that_goes_missing_is_found() -> None:
    assert shifts.is_other_share((0, 1_000), (1_000, 1_000), 1e-4)
    assert shifts.is_other_share((100, 1_000), (200, 1_000), 1e-4)
    assert not shifts.is_other_share((100, 1_000), (115, 1_000), 1e-4)
    assert not shifts.is_other_share((0, 0), (5, 5), 1e-4)
