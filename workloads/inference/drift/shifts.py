"""Whether two counts of the same cells come from the same values: how far apart, and by chance?

Everything is computed from counts, so that no value has to be kept. A distance alone calls small
samples different, and a test alone calls large ones different that hardly are: what is reported is
beyond both limits.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[Any]

LEAST_PSI: Final = 0.1
"""Below it the population stability index is called stable (Siddiqi, Credit Risk Scorecards)."""
LEAST_KS: Final = 0.1
"""As a shift of a quarter of a standard deviation makes it of normal values."""
LEAST_V: Final = 0.1
"""Below it an association is called negligible (Cohen, Statistical Power Analysis, 7.2)."""
LEAST_MISSING: Final = 0.02
"""Share of rows by which more or fewer have no value."""
LEAST_CELL: Final = 5.0
"""Rows that a cell has to be expected to have in a window; rarer ones are put together."""
_SMOOTHING: Final = 0.5
_NOTHING: Final = 1e-12
"""Of a sum: what doesn't count beside it."""


@lru_cache(maxsize=4096)
def chi_square_quantile(chance: float, freedom: int) -> float:
    """Return what a chi-square value exceeds with ``chance``.

    Of whole degrees of freedom the tail is a finite sum (Abramowitz, Stegun, 26.4.4, 26.4.5),
    whose inverse is found by halving: exact but for rounding.

    Args:
        chance: above 0, below 1.
        freedom: degrees of freedom, 1 or more.
    """
    low, high = 0.0, 1.0
    while chi_square_tail(high, freedom) > chance:
        low, high = high, high * 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if chi_square_tail(middle, freedom) > chance:
            low = middle
        else:
            high = middle
    return high


def chi_square_tail(value: float, freedom: int) -> float:
    """Return the chance that a chi-square value exceeds ``value``."""
    half = value / 2
    if half <= 0:
        return 1.0
    odd = freedom % 2
    total = math.erfc(math.sqrt(half)) if odd else 0.0
    for step in range(freedom // 2):
        power = step + 0.5 * odd
        total += math.exp(power * math.log(half) - half - math.lgamma(power + 1))
    return min(1.0, total)


class Shift(NamedTuple):
    """How far a window is from the reference; None where it can't be told.

    Attributes:
        psi: population stability index.
        psi_limit: beyond which it counts.
        ks: largest difference of the cumulated shares at the cells' edges.
        ks_limit: beyond which it counts.
        is_over: whether one of the figures is over its limit.
    """

    psi: float | None = None
    psi_limit: float | None = None
    ks: float | None = None
    ks_limit: float | None = None
    is_over: bool = False


NONE: Final = Shift()


def of_numbers(reference: Counts, window: Counts, chance: float) -> Shift:
    """Compare two histograms over the same edges.

    The index is about (1/n + 1/m) times a chi-square value of bins - 1 degrees of freedom where
    nothing has changed (Yurdakul, Naranjo, Statistical Properties of the Population Stability
    Index, 2020), and for the other figure the limit is Kolmogorov's and Smirnov's, which bins only
    make stricter.

    Args:
        reference: rows by bin.
        window: rows by bin.
        chance: of a false alarm of each figure.
    """
    m, n = float(reference.sum()), float(window.sum())
    if m == 0 or n == 0 or len(reference) < 2:
        return NONE
    both = 1 / n + 1 / m
    psi = _psi(reference, window)
    psi_limit = max(LEAST_PSI, chi_square_quantile(chance, len(reference) - 1) * both)
    ks = float(np.abs(np.cumsum(window) / n - np.cumsum(reference) / m).max())
    ks_limit = max(LEAST_KS, math.sqrt(-math.log(chance / 2) / 2 * both))
    return Shift(psi, psi_limit, ks, ks_limit, psi > psi_limit or ks > ks_limit)


def of_categories(reference: Counts, window: Counts, chance: float) -> Shift:
    """Compare the rows of each category; the last cell is of all that aren't listed.

    Beside the index decides a chi-square test of the two samples, where Cramér's V says that it is
    worth telling. V is that of the two samples weighed alike: it doesn't shrink where the
    reference has many rows.

    Args:
        reference: rows by category.
        window: rows by category.
        chance: of a false alarm of each figure.
    """
    m, n = float(reference.sum()), float(window.sum())
    if m == 0 or n == 0 or len(reference) < 2:
        return NONE
    reference, window = _put_together(reference, window)
    both, freedom = 1 / n + 1 / m, max(1, len(reference) - 1)
    psi = _psi(reference, window)
    psi_limit = max(LEAST_PSI, chi_square_quantile(chance, freedom) * both)
    p, q = reference / m, window / n
    pooled = (reference + window) / (m + n)
    some = pooled > 0
    square = float(((q - p)[some] ** 2 / pooled[some]).sum()) / both
    v = math.sqrt(float(((q - p)[some] ** 2 / (2 * (q + p)[some])).sum()))
    differs = square > chi_square_quantile(chance, freedom) and v > LEAST_V
    return Shift(psi, psi_limit, is_over=psi > psi_limit or differs)


def is_other_share(reference: tuple[int, int], window: tuple[int, int], chance: float) -> bool:
    """Tell whether shares differ, by Fisher's exact test and by more than `LEAST_MISSING`.

    Exact, as what goes missing is rare: of a few rows the normal approximation alarms many times
    as often as it says.

    Args:
        reference: rows that have it, and all rows.
        window: likewise.
        chance: of a false alarm.
    """
    if reference[1] == 0 or window[1] == 0:
        return False
    if abs(window[0] / window[1] - reference[0] / reference[1]) <= LEAST_MISSING:
        return False
    return _share_tail(reference, window) <= chance / 2


def _share_tail(reference: tuple[int, int], window: tuple[int, int]) -> float:
    """The chance that of all rows that have it at least so many are in the window, or at most.

    It is that of drawing the window's rows from both together (hypergeometric), summed from what
    was found away from what is expected.
    """
    (a, m), (b, n) = reference, window
    having = a + b

    def ways(of: int, some: int) -> float:
        return math.lgamma(of + 1) - math.lgamma(some + 1) - math.lgamma(of - some + 1)

    term = math.exp(ways(n, b) + ways(m, a) - ways(m + n, having))
    total = 0.0
    if b * m > a * n:
        while term > total * _NOTHING:
            total += term
            term *= (n - b) * a / ((b + 1) * (m - a + 1))
            a, b = a - 1, b + 1
    else:
        while term > total * _NOTHING:
            total += term
            term *= b * (m - a) / ((n - b + 1) * (a + 1))
            a, b = a + 1, b - 1
    return total


def _psi(reference: Counts, window: Counts) -> float:
    p = (reference + _SMOOTHING) / (reference.sum() + _SMOOTHING * len(reference))
    q = (window + _SMOOTHING) / (window.sum() + _SMOOTHING * len(window))
    return float(((q - p) * np.log(q / p)).sum())


def _put_together(reference: Counts, window: Counts) -> tuple[Counts, Counts]:
    """Join the cells in which a window of this size can't be expected to have rows enough.

    The cell of what isn't listed stays alone: a value that was never there is the finding.
    """
    expected = reference[:-1] / reference.sum() * window.sum()
    rare = expected < LEAST_CELL
    if rare.sum() < 2:
        return reference, window

    def joined(counts: Counts) -> Counts:
        listed = counts[:-1]
        return np.concatenate([listed[~rare], [listed[rare].sum()], counts[-1:]])

    return joined(reference), joined(window)
