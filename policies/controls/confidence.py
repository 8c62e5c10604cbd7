"""How sure a control's id and title are."""

from __future__ import annotations

from enum import Enum


class Confidence(Enum):
    """Where a control's id and title come from, surest first."""

    CONFIRMED = "confirmed"
    DOCUMENT = "document"
    UNVERIFIED = "unverified"
