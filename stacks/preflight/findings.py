"""What a preflight found: fine, a problem, or something that nobody could be asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "problem", "unknown"]


@dataclass(frozen=True)
class Finding:
    """One answer."""

    level: Level
    subject: str
    """Such as ``quota`` or ``pool h200``."""
    text: str
    """What was found; for a problem also what to do."""


class NotAskedError(Exception):
    """The cloud couldn't be asked at all; the message says why and what would help."""


def exit_status(findings: Sequence[Finding]) -> int:
    """0: all is fine; 1: something would fail; 2: something could not be checked."""
    levels = {finding.level for finding in findings}
    if "problem" in levels:
        return 1
    return 2 if "unknown" in levels else 0
