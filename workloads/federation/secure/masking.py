"""Updates as whole numbers modulo 2^64, the masks that hide them, and a site's share of noise.

**Whole numbers.** A site's vector is ``w·x`` for each of the model's numbers x, then ``w`` and
``w·loss``: w is how many rows it counts by. With n sites, ``|x| ≤ b`` and ``1 ≤ w ≤ R`` the sum is
at most n·R·b. `Grid.step` is the power of two for which that is at most 2^62 steps, so that the
sum stands below 2^63 and can't wrap to another number, whoever takes part. Rounding is towards
zero: no norm grows by it, and each number of the weighted mean is off by less than n·step/Σw.

**Masks** are keystreams of AES-256 in counter mode, read as unsigned 64-bit numbers. A mask's key
is used for nothing else, so the counter begins at zero.

**Noise.** What is asked for is a deviation in the sum. Each site adds a Gaussian of that variance
divided by the threshold, in whole steps: a sum is of at least that many sites, so it has at least
the variance asked for, and with all n sites n/threshold times as much. Noise beyond 12 deviations
is cut off (probability below 10^-32), so that the sum's limit holds for it, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from falaj.workloads.errors import WorkloadError

MOST_ROWS: Final = 2**30
"""That a site counts by, where sites count by their rows."""
LARGEST_LOSS: Final = 1e3
"""Of a site's mean loss; a larger one counts as this."""
EXTRA: Final = 2
"""Numbers after the model's: rows, and rows times loss."""
_DEVIATIONS: Final = 12.0
_SUM_BITS: Final = 62
_KEY_BYTES: Final = 32
_COUNTER_BYTES: Final = 16

Numbers = np.ndarray[Any, np.dtype[np.uint64]]
Reals = np.ndarray[Any, np.dtype[np.float64]]


class MaskingError(WorkloadError):
    """Numbers that can't be masked, or whose sum can't be."""


def stream(key: bytes, count: int) -> Numbers:
    """The first ``count`` unsigned 64-bit numbers of a key's stream."""
    if len(key) != _KEY_BYTES:
        raise MaskingError(f"a mask's key has {_KEY_BYTES} bytes, not {len(key)}")
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(_COUNTER_BYTES))).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * count)), "<u8").astype(np.uint64)


def gaussian(key: bytes, count: int) -> Reals:
    """``count`` numbers of the standard normal distribution, by Box and Muller, of a stream."""
    pairs = (count + 1) // 2
    bits = stream(key, 2 * pairs)
    # 53 bits each; the first is never zero, of which there is no logarithm.
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53
    length, angle = np.sqrt(-2.0 * np.log(uniform[:pairs])), 2.0 * math.pi * uniform[pairs:]
    return np.concatenate([length * np.cos(angle), length * np.sin(angle)])[:count]


@dataclass(frozen=True)
class Grid:
    """How a federation's updates become whole numbers; see the module's text.

    Attributes:
        sites: of the federation.
        threshold: fewest sites of a sum.
        clip: largest L2 norm of an update.
        noise: noise multiplier of the sum, of whose deviation ``clip`` is the unit; 0: none.
        weighs: whether sites count by their rows.
    """

    sites: int
    threshold: int
    clip: float
    noise: float
    weighs: bool

    @property
    def deviation(self) -> float:
        """Of a site's noise."""
        return self.noise * self.clip / math.sqrt(self.threshold)

    @property
    def most_rows(self) -> int:
        """That a site counts by."""
        return MOST_ROWS if self.weighs else 1

    @property
    def largest(self) -> float:
        """Of the magnitudes of an update's numbers, with noise."""
        return self.clip + _DEVIATIONS * self.deviation

    @cached_property
    def step(self) -> float:
        """What one whole number stands for: a power of two."""
        most = self.sites * self.most_rows * self.largest
        return 2.0 ** math.ceil(math.log2(most) - _SUM_BITS)

    def tolerance(self, rows: int, sites: int) -> float:
        """By how much a number of the mean may be off, by rounding."""
        return sites * self.step / rows

    def whole(self, update: Reals, rows: int, loss: float, noise_key: bytes) -> Numbers:
        """A site's vector, ready for masks.

        Args:
            update: what changed (P,); it is shortened to an L2 norm of at most ``clip``.
            rows: that the site counts by; 1 where all count the same.
            loss: mean loss of the last epoch. With noise it isn't told: nothing would hide it.
            noise_key: 32 random bytes, of which noise is made, used once.

        Raises:
            MaskingError: a number isn't finite, or beyond what a sum is made for.
        """
        if not bool(np.isfinite(update).all()) or not math.isfinite(loss):
            raise MaskingError(
                "the update or its loss holds what is no finite number, which would spoil the sum "
                "unseen: use a lower --learning-rate"
            )
        if not 1 <= rows <= self.most_rows:
            raise MaskingError(
                f"the site counts by {rows:,} rows: allowed is 1 to {self.most_rows:,}"
            )
        length = float(np.linalg.norm(update))
        share = min(1.0, self.clip / length) if length else 1.0
        found = np.trunc(update * (share * rows / self.step)).astype(np.int64)
        if self.deviation:
            bent = np.clip(gaussian(noise_key, len(update)), -_DEVIATIONS, _DEVIATIONS)
            found += np.rint(bent * (self.deviation / self.step)).astype(np.int64)
        told = 0.0 if self.noise else min(max(loss, 0.0), LARGEST_LOSS)
        extra = [rows, int(rows * told * self._losses)]
        return np.concatenate([found, np.array(extra, np.int64)]).astype(np.uint64)

    def mean(self, summed: Numbers, sites: int) -> tuple[Reals, int, float]:
        """What a sum without masks says.

        Args:
            summed: modulo 2^64 (P + 2,).
            sites: how many are in it.

        Returns:
            The weighted mean (P,), all rows, and the mean loss, which with noise is no number.

        Raises:
            MaskingError: no sum of such sites can be that: one sent something else.
        """
        values = summed.astype(np.int64)
        rows = int(values[-2])
        if not sites <= rows <= sites * self.most_rows:
            raise MaskingError(f"the sum is of {rows:,} rows, which {sites} sites can't have")
        found = values[:-EXTRA].astype(np.float64) * (self.step / rows)
        loss = float(values[-1]) / self._losses / rows
        most = self.largest * (1 + 1e-6) + self.tolerance(rows, sites)
        if not bool((np.abs(found) <= most).all()) or not 0 <= loss <= LARGEST_LOSS:
            raise MaskingError("the mean is beyond what the sites' limits allow")
        return found, rows, math.nan if self.noise else loss

    @property
    def _losses(self) -> float:
        """Whole numbers of a loss of 1."""
        return 2.0 ** math.floor(_SUM_BITS - math.log2(self.sites * self.most_rows * LARGEST_LOSS))


def masked(numbers: Numbers, own: bytes, above: list[bytes], below: list[bytes]) -> Numbers:
    """Numbers under a site's own mask and those that it shares with the others.

    Args:
        numbers: of `Grid.whole`.
        own: key of the site's own mask.
        above: keys of masks shared with sites whose names come later: added.
        below: likewise, earlier: taken off, so that a pair's masks cancel in the sum.
    """
    found = numbers + stream(own, len(numbers))
    for key in above:
        found += stream(key, len(numbers))
    for key in below:
        found -= stream(key, len(numbers))
    return cast(Numbers, found)
