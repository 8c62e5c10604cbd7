"""How a model's answers are spread: counts by which two versions of it can be compared.

Of the output that has one value for each row (a label, a prediction) each value is counted in one
of a fixed number of buckets. Metrics are read by more people than answers are: a bucket tells
neither a text nor a number, and there are never more of them. What two versions answer to the same
kind of requests falls into the same buckets.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from falaj.workloads.inference.protocol.oip import Array, TensorSpec

BUCKETS: Final = 64
_PER_OCTAVE: Final = 8
"""Buckets between a number and its double: each about a tenth wide."""
_NEGATIVE: Final = BUCKETS // 2
_FEW: Final = 8
"""Up to so many values are quicker one by one than by NumPy."""


def counted(outputs: Sequence[TensorSpec]) -> str | None:
    """The name of the output whose values are counted; None where none has one for each row.

    A class goes before a number: beside a label stands a probability, of another kind.
    """
    single = [each for each in outputs if each.shape in ((-1,), (-1, 1))]
    single.sort(key=lambda each: each.datatype.startswith("FP"))
    return single[0].name if single else None


def bucket(value: Any) -> int:
    """The bucket of one value: of numbers by their size, of whole ones and texts by themselves."""
    if type(value) is int:
        return value % BUCKETS
    if type(value) is float:
        if value == 0 or not math.isfinite(value):
            return 0
        fraction, exponent = math.frexp(abs(value))
        place = exponent * _PER_OCTAVE + int((2 * fraction - 1) * _PER_OCTAVE)
        return (place + _NEGATIVE * (value < 0)) % BUCKETS
    if isinstance(value, str):
        return zlib.crc32(value.encode()) % BUCKETS
    return int(value) % BUCKETS


def count(values: Array, into: list[int]) -> None:
    """Count every value of an output into its bucket."""
    if values.size <= _FEW or values.dtype == object:
        for value in values.ravel().tolist():
            into[bucket(value)] += 1
        return
    found = np.bincount(_buckets(values.ravel()), minlength=BUCKETS)
    for place in np.flatnonzero(found).tolist():
        into[place] += int(found[place])


def _buckets(values: Array) -> Array:
    """As `bucket`, of many numbers."""
    if values.dtype.kind != "f":
        return (values % BUCKETS if values.dtype != bool else values).astype(np.int64)
    wide = values.astype(np.float64)
    some = np.isfinite(wide) & (wide != 0)
    fractions, exponents = np.frexp(np.abs(np.where(some, wide, 1.0)))
    places = exponents * _PER_OCTAVE + ((2 * fractions - 1) * _PER_OCTAVE).astype(np.int64)
    return np.where(some, (places + _NEGATIVE * (wide < 0)) % BUCKETS, 0)
