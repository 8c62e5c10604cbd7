"""scikit-learn's digits: 1,797 scans of hand-written digits, inside the Python package."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST_PIXEL = 16.0
"""Each pixel counts the inked points of a 4x4 block of the 32x32 scan."""

SOURCE = "digits"
IMAGE = "image"
TARGET = "digit"


def load() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the images, (1797, 1, 8, 8) with pixels from 0 to 16, and the digits, (1797,)."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - half a second, only for digits

    bunch: Any = load_digits()
    images = np.asarray(bunch.images, dtype=np.float32)[:, None]
    return images, np.asarray(bunch.target, dtype=np.int64)
