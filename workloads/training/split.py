"""Stratified, shuffled splits that a seed and a content digest fix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

_TARGET_BINS = 10


def generator(*entropy: int) -> np.random.Generator:
    """Return the generator that ``entropy`` (non-negative integers) fixes."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def strata_of(labels: NDArray[np.generic], classification: bool) -> NDArray[np.int64]:
    """Return each row's stratum: its class, or its decile of a continuous target."""
    if classification:
        return labels.astype(np.int64)
    values = labels.astype(np.float64)
    edges = np.quantile(values, np.linspace(0, 1, _TARGET_BINS + 1)[1:-1])
    return np.searchsorted(edges, values, side="right").astype(np.int64)


def stratified(
    strata: NDArray[np.int64], fraction: float, random: np.random.Generator
) -> tuple[Indices, Indices]:
    """Split rows so that each stratum gives ``fraction`` of its rows to the second part.

    A stratum of one row stays in the first part; a larger one gives at least one row and keeps
    at least one. Both parts are shuffled.

    Args:
        strata: stratum of each row, shape (rows,).
        fraction: share of the second part, between 0 and 1.
        random: the source of the shuffle.

    Returns:
        The row numbers of the first and of the second part.
    """
    kept: list[Indices] = []
    given: list[Indices] = []
    for stratum in np.unique(strata):
        rows = random.permutation(np.flatnonzero(strata == stratum))
        count = len(rows)
        share = 0 if count == 1 else min(max(1, round(fraction * count)), count - 1)
        given.append(rows[:share])
        kept.append(rows[share:])
    first, second = np.concatenate(kept), np.concatenate(given)
    return random.permutation(first), random.permutation(second)
