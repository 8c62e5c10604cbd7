"""Shamir's secret sharing: any ``threshold`` of the shares tell the secret, fewer tell nothing.

A. Shamir, "How to share a secret", Communications of the ACM 22 (1979). The field is that of the
Mersenne prime 2^521 - 1 (FIPS 186-4, D.1.2.5), which holds the 256-bit secrets shared here.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final

from falaj.workloads.errors import WorkloadError

PRIME: Final = 2**521 - 1
SECRET_BYTES: Final = 32
SHARE_BYTES: Final = 66
"""Of a number below the prime."""


class SharingError(WorkloadError):
    """Shares don't tell a secret."""


def least_threshold(sites: int) -> int:
    """The fewest sites of a sum: more than half.

    So no two groups without a common site reach it, one of which could be told that a site
    delivered and the other that it dropped out.
    """
    return sites // 2 + 1


def split(secret: bytes, threshold: int, shares: int) -> list[bytes]:
    """Shares of a secret: the one at place i is the polynomial's value at i + 1.

    Args:
        secret: 32 bytes.
        threshold: how many shares tell the secret.
        shares: how many are made.

    Returns:
        ``shares`` texts of 66 bytes, big endian.

    Raises:
        SharingError: the secret has another length, or the threshold can't be.
    """
    if len(secret) != SECRET_BYTES:
        raise SharingError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
    if not 1 <= threshold <= shares:
        raise SharingError(f"the threshold is {threshold}: allowed is 1 to {shares}, the shares")
    rest = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    coefficients = [int.from_bytes(secret), *rest]
    return [_value(coefficients, place).to_bytes(SHARE_BYTES) for place in range(1, shares + 1)]


def _value(coefficients: list[int], at: int) -> int:
    value = 0
    for each in reversed(coefficients):
        value = (value * at + each) % PRIME
    return value


def join(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret, by Lagrange's interpolation at 0.

    A changed share may tell another secret of 32 bytes: whoever joins compares what it tells with
    something that belongs to it.

    Args:
        shares: by their place, from 0, as `split` returned them; the first ``threshold`` are used.
        threshold: as `split` was told.

    Raises:
        SharingError: too few, of another length, or of no secret of 32 bytes: one was changed.
    """
    if len(shares) < threshold:
        raise SharingError(f"{len(shares)} share(s) are here: {threshold} tell the secret")
    points = {place + 1: shares[place] for place in sorted(shares)[:threshold]}
    for each in points.values():
        if len(each) != SHARE_BYTES or int.from_bytes(each) >= PRIME:
            raise SharingError("a share is no number of the field")
    secret = 0
    for at, share in points.items():
        above = below = 1
        for other in points:
            if other != at:
                above = above * other % PRIME
                below = below * (other - at) % PRIME
        secret += int.from_bytes(share) * above * pow(below, -1, PRIME)
    secret %= PRIME
    if secret >> (8 * SECRET_BYTES):
        raise SharingError("the shares are of no secret: one was changed")
    return secret.to_bytes(SECRET_BYTES)
