"""What is known about a region besides its machines: zones, state, services."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True)
class Zone:
    """An availability zone."""

    id: str
    """Name of the physical zone, the same for every account: ``mec1-az1``, ``uaenorth-az1``."""
    name: str | None
    """What resources call it: ``1`` on Azure; None on AWS, where letters differ from account to
    account. Azure maps numbers to physical zones for each subscription separately, so that the
    pairing shown is an example."""


@dataclass(frozen=True)
class RegionStatus:
    """What is reported about a region, and when."""

    degraded: bool
    as_of: date
    """Date of the latest statement found; what came after it is unknown."""
    impaired_zones: tuple[str, ...]
    text: str
    signals: tuple[str, ...]
    """What other reports say and later data show."""
    sources: tuple[str, ...]

    def __str__(self) -> str:
        state = "degraded" if self.degraded else "no report of degradation"
        return f"{state} as of {self.as_of.isoformat()}: {self.text}"


@dataclass(frozen=True)
class Service:
    """Whether a region has a service."""

    name: str
    available: bool | None
    """None: unknown."""
    note: str | None
    sources: tuple[str, ...]

    def __str__(self) -> str:
        words = {True: "available", False: "not available", None: "unknown"}
        return words[self.available] + (f" ({self.note})" if self.note else "")
