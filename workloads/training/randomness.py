"""Numbers that are drawn: the same ones wherever the same is asked for."""

from __future__ import annotations

import numpy as np


def generator(*entropy: int) -> np.random.Generator:
    """Return the generator that ``entropy`` (non-negative integers) fixes."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
