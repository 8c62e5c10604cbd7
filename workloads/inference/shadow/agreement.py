"""Whether two versions answer the same: row by row, of each output.

A row of probabilities agrees where the same class is the likeliest; another number where it is
within `TOLERANCE` of the other one's size; a whole number, a truth value or a text where it is
equal. NaN is NaN's equal. A row of a request agrees where all its outputs do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.documents import is_dictionary, is_sequence
from falaj.workloads.inference.protocol.oip import Array

TOLERANCE: Final = 0.1
"""Of a number's size: about what a bucket of `falaj.workloads.inference.drift.answers` is wide."""
_SMALLEST: Final = 1e-6
"""Numbers that are nearer to each other than this agree, whatever their size."""


@dataclass(frozen=True)
class Compared:
    """What two versions' answers to one request came to.

    Attributes:
        rows: of the request.
        agreed: rows of which all outputs agree.
        outputs: rows that agree, by output.
        differences: by output of floating-point numbers, the sum over rows of the mean absolute
            difference of a row's finite numbers.
    """

    rows: int
    agreed: int
    outputs: Mapping[str, int]
    differences: Mapping[str, float]


def compare(
    names: Sequence[str],
    stable: Sequence[Array],
    shadow: Sequence[Array],
    *,
    rows: int,
    distributions: frozenset[str],
) -> Compared:
    """Compare two versions' answers to one request.

    Args:
        names: of the outputs.
        stable: the outputs of the version that serves, in this order.
        shadow: likewise of the other one.
        rows: of the request.
        distributions: names of outputs that are probabilities of classes.

    Raises:
        ValueError: an output has another shape in one of both.
    """
    together = np.ones(rows, dtype=bool)
    outputs: dict[str, int] = {}
    differences: dict[str, float] = {}
    for name, one, other in zip(names, stable, shadow, strict=True):
        if one.shape != other.shape:
            raise ValueError(f"'{name}' has the shape {list(one.shape)} in one version, and "
                             f"{list(other.shape)} in the other")  # fmt: skip
        whole = not one.shape or one.shape[0] != rows
        # An output that has no row for each of the request's stands for all of them.
        sizes = (1, one.size) if whole else (rows, math.prod(one.shape[1:]))
        first, second = one.reshape(sizes), other.reshape(sizes)
        same = _agree(first, second, is_distribution=name in distributions)
        together &= same
        outputs[name] = int(np.broadcast_to(same, rows).sum())
        if one.dtype.kind == "f":
            apart = _apart(first, second)
            differences[name] = float(np.broadcast_to(apart, rows).sum())
    return Compared(rows, int(together.sum()), outputs, differences)


def _agree(first: Array, second: Array, *, is_distribution: bool) -> NDArray[np.bool_]:
    """For each row, whether it agrees."""
    if first.dtype.kind != "f":
        return _all(np.asarray(first == second, dtype=bool))
    if is_distribution and first.shape[1] > 1:
        return np.asarray(first.argmax(axis=1) == second.argmax(axis=1), dtype=bool)
    one, other = first.astype(np.float64), second.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(one - other) <= np.maximum(
            _SMALLEST, TOLERANCE * np.maximum(np.abs(one), np.abs(other))
        )
    finite = np.isfinite(one) & np.isfinite(other)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    return _all(np.where(finite, near, same))


def _all(cells: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return np.asarray(np.all(cells, axis=1), dtype=bool)


def _apart(first: Array, second: Array) -> NDArray[np.float64]:
    """For each row, the mean absolute difference of what is finite in both; 0 without any."""
    one, other = first.astype(np.float64), second.astype(np.float64)
    both = np.isfinite(one) & np.isfinite(other)
    with np.errstate(over="ignore"):
        apart = np.abs(np.where(both, one, 0.0) - np.where(both, other, 0.0))
        total = np.minimum(apart, np.finfo(np.float64).max / max(1, apart.size)).sum(axis=1)
    return np.asarray(total / np.maximum(1, both.sum(axis=1)), dtype=np.float64)


def distributions_of(outputs: object) -> frozenset[str]:
    """Names of the outputs that a manifest says are probabilities of classes."""
    entries = outputs if is_sequence(outputs) else []
    return frozenset(
        str(each["name"])
        for each in entries
        if is_dictionary(each) and each.get("role") == "probabilities" and "name" in each
    )
