"""Numbers that say how pictures look."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads import pictures


@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.integers(1, 4))
def test_parts_make_up_the_whole(channels: int, height: int, width: int, rows: int) -> None:
    shape = (channels, height, width)
    images = np.random.default_rng(0).random((rows, *shape)).astype(np.float32)
    found = pictures.described(images)
    names = pictures.names(shape)
    assert found.shape == (rows, len(names))
    assert len(names) == len(set(names)) == 2 + min(3, height) * min(3, width)
    assert found[:, 0] == pytest.approx(images.mean(axis=(1, 2, 3)), abs=1e-5)
    assert found[:, 1] == pytest.approx(images.std(axis=(1, 2, 3)), abs=1e-3)
    assert (found[:, 2:].min(axis=1) <= found[:, 0] + 1e-5).all()
    assert (found[:, 2:].max(axis=1) >= found[:, 0] - 1e-5).all()


def test_turned_pictures_have_the_same_mean_and_other_parts() -> None:
    image = np.zeros((1, 1, 6, 6), np.float32)
    image[0, 0, :2] = 9
    turned = np.rot90(image, axes=(2, 3))
    before, after = pictures.described(image)[0], pictures.described(turned)[0]
    assert before[:2] == pytest.approx(after[:2])
    assert before[2:].tolist() == [9, 9, 9, 0, 0, 0, 0, 0, 0]
    assert after[2:].tolist() == [9, 0, 0, 9, 0, 0, 9, 0, 0]
