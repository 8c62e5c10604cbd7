"""Who answers a request: by what its key's value draws.

A value draws a number from 0 to below 1 by a hash of the experiment's name and itself, and belongs
to the candidate where the number is below the share. So it draws the same one at every worker and
after every restart, one that is the candidate's stays so while the share grows, and what it draws
in another experiment says nothing of this one.
"""

from __future__ import annotations

import hashlib
from typing import Final, Literal

Arm = Literal["live", "candidate"]
LIVE: Final = "live"
CANDIDATE: Final = "candidate"
ARMS: Final[tuple[Arm, Arm]] = (LIVE, CANDIDATE)
_DRAWN_BYTES: Final = 8


def draw(name: str, value: bytes) -> float:
    """Return what a value draws in an experiment of this name, from 0 to below 1.

    A name has no zero byte, which ends it: no name and value draw as another pair does.

    >>> 0 <= draw("prices", b"customer 17") < 1
    True
    """
    hashed = hashlib.blake2b(name.encode() + b"\0" + value, digest_size=_DRAWN_BYTES).digest()
    # Of 53 bits a float is exact, and below 1.
    return (int.from_bytes(hashed, "big") >> 11) / 2**53


def arm_of(name: str, value: bytes, share: float) -> Arm:
    """Return the arm of a value.

    Args:
        name: of the experiment.
        value: of the key.
        share: of the values, that are the candidate's, from 0 to 1.
    """
    return CANDIDATE if draw(name, value) < share else LIVE
