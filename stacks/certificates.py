"""Certificates on the disk, and how long they are valid."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509

SOON: Final = 14
"""Days before a certificate's end from which on it is pointed at."""


@dataclass(frozen=True)
class Certificate:
    """A certificate on the disk; ``days`` are left of it, None where it can't be read."""

    name: str
    days: int | None
    until: str

    @property
    def state(self) -> str:
        """``unreadable``, ``expired``, ``soon`` or ``valid``."""
        if self.days is None:
            return "unreadable"
        if self.days < 0:
            return "expired"
        return "soon" if self.days < SOON else "valid"


def certificate_of(path: Path) -> Certificate:
    """A certificate in a PEM file, and the days that are left of it."""
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return Certificate(path.name, None, "")
    end = found.not_valid_after_utc
    return Certificate(path.name, (end - datetime.now(UTC)).days, f"{end:%Y-%m-%d}")
