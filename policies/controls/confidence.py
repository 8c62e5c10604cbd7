"""How sure a control's id and title are."""

from __future__ import annotations

from enum import Enum


class Confidence(Enum):
    """Where a control's id and title come from, surest first."""

    CONFIRMED = "confirmed"
    DOCUMENT = "document"
    UNVERIFIED = "unverified"

    @property
    def label(self) -> str:
        """For readers."""
        return {
            Confidence.CONFIRMED: "id confirmed in a machine-readable mapping",
            Confidence.DOCUMENT: "id read in a document",
            Confidence.UNVERIFIED: "id not verified: confirm it before an audit",
        }[self]
