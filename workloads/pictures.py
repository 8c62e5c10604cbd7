"""A few numbers that say how a picture looks: by them the pictures of two times are compared.

A picture has as many values as pixels, and each alone says little: turned by some degrees it keeps
its mean, and its ink moves between its parts. So a picture stands for the mean of its values,
their spread, and the mean of each of nine parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

IMAGE: Final = "image"
"""The column of pictures in a snapshot, and the input of a model of them."""

CLASS: Final = "class"
"""What is predicted of pictures that have no column of their own: the class of each."""

_PARTS: Final = 3
"""Rows of parts, and columns."""


def fields_of(shape: Sequence[int], largest: float) -> dict[str, Any]:
    """Return the fields of a dataset's description that all of pictures have alike.

    Args:
        shape: (channels, height, width).
        largest: value of a pixel.
    """
    described = {"name": IMAGE, "kind": "image", "shape": list(shape), "largest": largest}
    return {
        "family": "images", "task": "classification", "features": [described], "excluded": [],
    }  # fmt: skip


def names(shape: tuple[int, ...]) -> list[str]:
    """Return what the numbers of pictures of a shape are called, in their order.

    Args:
        shape: (channels, height, width).
    """
    down, across = _divided(shape[1]), _divided(shape[2])
    parts = [f"part {row + 1},{column + 1}" for row in range(len(down)) for column in
             range(len(across))]  # fmt: skip
    return ["mean", "spread", *parts]


def described(pictures: NDArray[Any]) -> NDArray[np.float32]:
    """Return each picture's numbers, (rows, numbers), in the order of `names`.

    Args:
        pictures: (rows, channels, height, width).
    """
    shape = pictures.shape[1:]
    pixels = pictures.reshape(len(pictures), -1).astype(np.float32, copy=False)
    weights = _weights(shape)
    means = pixels @ weights
    squares = np.einsum("ij,ij->i", pixels, pixels) / pixels.shape[1]
    spread = np.sqrt(np.maximum(squares - means[:, 0] ** 2, 0))
    return np.column_stack([means[:, 0], spread, means[:, 1:]]).astype(np.float32, copy=False)


_known: dict[tuple[int, ...], NDArray[np.float32]] = {}


def _weights(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """What each pixel counts in the whole's mean and in its part's, (pixels, 1 + parts)."""
    found = _known.get(shape)
    if found is not None:
        return found
    columns = [np.full(shape, 1 / np.prod(shape))]
    for down in _divided(shape[1]):
        for across in _divided(shape[2]):
            part = np.zeros(shape)
            part[:, down, across] = 1 / (shape[0] * (down.stop - down.start)
                                         * (across.stop - across.start))  # fmt: skip
            columns.append(part)
    weights = np.stack([each.reshape(-1) for each in columns], axis=1).astype(np.float32)
    _known[shape] = weights
    return weights


def _divided(size: int) -> list[slice]:
    count = min(_PARTS, size)
    edges = [size * part // count for part in range(count + 1)]
    return [slice(low, high) for low, high in pairwise(edges)]
