"""What a rule found, and how bad it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FindingKind(Enum):
    """Whether a finding is certain."""

    VIOLATION = "violation"
    INDETERMINATE = "indeterminate"


class Severity(Enum):
    """How much harm a violation does, worst first."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True)
class Finding:
    """One thing that a rule objects to, or can't see."""

    path: str
    """The property, as ``rules[0].destination.bucket``; empty for the resource itself."""
    reason: str
    """What is wrong, what was given, what is allowed: a clause without a full stop. Never holds
    the value of a secret."""
    kind: FindingKind = FindingKind.VIOLATION


def violation(path: str, reason: str) -> Finding:
    """A finding that is certain."""
    return Finding(path, reason)


def indeterminate(path: str, reason: str) -> Finding:
    """A finding about what can't be seen: it fails where checks are strict."""
    return Finding(path, reason, FindingKind.INDETERMINATE)
