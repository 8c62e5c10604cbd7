"""Secret sharing, and updates as whole numbers under masks: what is refused, what comes back."""

from __future__ import annotations

import math
import secrets

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.workloads.federation.secure import sharing
from falaj.workloads.federation.secure.masking import (
    LARGEST_LOSS,
    MOST_ROWS,
    Grid,
    MaskingError,
    gaussian,
    masked,
    stream,
)
from falaj.workloads.federation.secure.sharing import SharingError

KEY = bytes(range(32))


def test_too_few_changed_and_impossible_shares_tell_nothing() -> None:
    secret = secrets.token_bytes(32)
    shares = sharing.split(secret, 3, 5)
    with pytest.raises(SharingError, match="2 share"):
        sharing.join({0: shares[0], 4: shares[4]}, 3)
    for wrong in (
        b"\xff" * 66,
        shares[1][1:],
        bytes([shares[1][0], shares[1][1] ^ 1]) + shares[1][2:],
    ):
        with pytest.raises(SharingError):
            sharing.join({0: shares[0], 1: wrong, 2: shares[2]}, 3)
    # A share that differs a little may tell another secret: so what it tells is compared.
    near = (int.from_bytes(shares[1]) ^ 1).to_bytes(66)
    assert sharing.join({0: shares[0], 1: near, 2: shares[2]}, 3) != secret
    # Of fewer than the threshold it is a secret of another polynomial.
    with pytest.raises(SharingError, match="of no secret"):
        sharing.join(dict(enumerate(shares[:2])), 2)
    with pytest.raises(SharingError, match="32 bytes"):
        sharing.split(b"short", 2, 3)
    for threshold in (0, 4):
        with pytest.raises(SharingError, match="allowed is 1 to 3"):
            sharing.split(secret, threshold, 3)


@given(st.binary(min_size=32, max_size=32), st.data())
def test_any_shares_of_the_threshold_tell_the_secret(secret: bytes, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    threshold = data.draw(st.integers(1, count))
    shares = sharing.split(secret, threshold, count)
    places = data.draw(st.permutations(range(count)))[:threshold]
    assert sharing.join({place: shares[place] for place in places}, threshold) == secret


def test_the_prime_is_one() -> None:
    """Lucas and Lehmer's test of Mersenne's numbers."""
    value = 4
    for _ in range(521 - 2):
        value = (value * value - 2) % sharing.PRIME
    assert value == 0


GRID = Grid(sites=3, threshold=2, clip=1.0, noise=0.0, weighs=True)


@pytest.mark.parametrize(
    ("update", "rows", "loss", "reason"),
    [
        ([math.nan, 0.0], 5, 0.1, "no finite number"),
        ([math.inf, 0.0], 5, 0.1, "no finite number"),
        ([0.1, 0.0], 5, math.nan, "no finite number"),
        ([0.1, 0.0], 0, 0.1, "allowed is 1 to 1,073,741,824"),
        ([0.1, 0.0], MOST_ROWS + 1, 0.1, "allowed is 1 to 1,073,741,824"),
    ],
)
def test_what_would_spoil_the_sum_is_refused_at_the_site(
    update: list[float], rows: int, loss: float, reason: str
) -> None:
    with pytest.raises(MaskingError, match=reason):
        GRID.whole(np.array(update), rows, loss, KEY)


def test_a_sum_that_sites_cannot_have_is_refused() -> None:
    good = GRID.whole(np.array([0.5, 0.5]), 10, 0.1, KEY)
    assert GRID.mean(good + good, 2)[1] == 20
    for wrong in (
        stream(KEY, 4),
        np.array([0, 0, 1, 0], np.uint64),  # of two sites with a row between them
        np.array([1 << 62, 0, 2, 0], np.uint64),  # longer than the limit
        np.array([0, 0, 2, 1 << 63], np.uint64),  # a loss below none
    ):
        with pytest.raises(MaskingError):
            GRID.mean(wrong, 2)


GRIDS = st.builds(
    Grid,
    sites=st.integers(3, 100),
    threshold=st.just(3),
    clip=st.floats(1e-6, 1e6),
    noise=st.just(0.0) | st.floats(1e-3, 1e3),
    weighs=st.booleans(),
)


@given(GRIDS)
def test_the_largest_sum_that_there_can_be_does_not_wrap(grid: Grid) -> None:
    """Whatever sites send by the rules: n sites of most rows, each number at its limit."""
    largest = math.ceil(grid.largest * grid.most_rows / grid.step) + 1
    assert grid.sites * largest < 2**63
    # Not a bit is given away: twice as fine a step would leave the range that the text tells.
    assert grid.sites * grid.most_rows * grid.largest / (grid.step / 2) > 2**62
    told = grid.whole(np.zeros(1), grid.most_rows, 2 * LARGEST_LOSS, KEY)
    assert grid.sites * int(told[-1]) < 2**63


@given(GRIDS, st.data())
@settings(deadline=None)
def test_the_mean_is_the_plain_weighted_one_within_the_rounding(
    grid: Grid, data: st.DataObject
) -> None:
    grid = Grid(grid.sites, grid.threshold, grid.clip, 0.0, grid.weighs)
    sites = data.draw(st.integers(1, min(grid.sites, 6)))
    rows = [data.draw(st.integers(1, grid.most_rows)) for _ in range(sites)]
    limit = st.floats(-grid.clip / 2, grid.clip / 2)
    updates = [np.array(data.draw(st.tuples(limit, limit, limit))) for _ in range(sites)]
    losses = [data.draw(st.floats(0, 2 * LARGEST_LOSS)) for _ in range(sites)]
    summed = np.zeros(5, np.uint64)
    for each, weight, loss in zip(updates, rows, losses, strict=True):
        summed = summed + grid.whole(each, weight, loss, KEY)
    mean, all_rows, loss = grid.mean(summed, sites)
    assert all_rows == sum(rows)
    plain = sum(e * w for e, w in zip(updates, rows, strict=True)) / sum(rows)
    # Beside the step, what numbers of 53 bits lose.
    assert np.abs(mean - plain).max() <= grid.tolerance(all_rows, sites) + 1e-14 * grid.clip
    kept = [min(each, LARGEST_LOSS) for each in losses]
    weighted = sum(e * w for e, w in zip(kept, rows, strict=True)) / sum(rows)
    assert loss == pytest.approx(weighted, abs=1e-4)


def test_longer_updates_are_shortened_and_rounding_makes_none_longer() -> None:
    update = np.random.default_rng(1).normal(size=1000)
    found, _, _ = GRID.mean(GRID.whole(update, 1, 0.0, KEY), 1)
    assert 1 - 1e-6 < float(np.linalg.norm(found)) <= 1.0


def test_noise_is_a_sites_share_and_its_loss_is_not_told() -> None:
    grid = Grid(sites=5, threshold=3, clip=2.0, noise=1.5, weighs=False)
    assert grid.deviation == pytest.approx(1.5 * 2.0 / math.sqrt(3))
    # A sum of as few as the threshold has the variance that was asked for.
    assert 3 * grid.deviation**2 == pytest.approx((1.5 * 2.0) ** 2)
    zeros = np.zeros(40_000)
    summed = sum(grid.whole(zeros, 1, 0.7, secrets.token_bytes(32)) for _ in range(3))
    mean, rows, loss = grid.mean(np.asarray(summed), 3)
    assert (rows, math.isnan(loss)) == (3, True)
    assert float((mean * 3).std()) == pytest.approx(1.5 * 2.0, rel=0.03)
    assert abs(float(mean.mean())) < 0.05


def test_the_noise_is_that_of_the_normal_distribution() -> None:
    found = gaussian(KEY, 100_001)
    assert found.shape == (100_001,)
    assert bool(np.isfinite(found).all())
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        assert float((found**power).mean()) == pytest.approx(moment, abs=0.1)


def test_a_masked_update_is_uniformly_distributed_whatever_the_update() -> None:
    """Of each byte's 256 values a chi-squared statistic, for an update of zeros and an extreme
    one: 255 degrees of freedom, whose 1 - 10^-9 quantile is 404."""
    count = 20_000
    for update in (np.zeros(count), np.full(count, 1 / math.sqrt(count))):
        clear = GRID.whole(update, 1000, 0.5, KEY)
        hidden = masked(clear, secrets.token_bytes(32), [secrets.token_bytes(32)], [])
        expected = len(hidden) / 256
        for shift in range(0, 64, 8):
            bytes_ = (hidden >> np.uint64(shift)) & np.uint64(0xFF)
            counts = np.bincount(bytes_.astype(np.int64), minlength=256)
            assert float(((counts - expected) ** 2 / expected).sum()) < 404
        # What is left of a clear vector's order would show in the correlation with it.
        spread = np.corrcoef(hidden[:-1].astype(np.float64), hidden[1:].astype(np.float64))[0, 1]
        assert abs(spread) < 0.05


def test_given_the_masks_any_update_explains_what_the_coordinator_saw() -> None:
    """The masked vector of one update under a mask is that of another one under another mask."""
    one, other = (GRID.whole(np.full(4, value), 7, 0.5, KEY) for value in (0.3, -0.1))
    mask = stream(secrets.token_bytes(32), 6)
    assert np.array_equal(one + mask, other + (mask + one - other))


def test_keys_of_masks_have_32_bytes() -> None:
    with pytest.raises(MaskingError, match="32 bytes"):
        stream(b"short", 3)
    assert not np.array_equal(stream(KEY, 9), stream(bytes(32), 9))
    assert np.array_equal(stream(KEY, 9)[:4], stream(KEY, 4))
