"""Errors of the provider that a person can read and act upon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class LocalError(Exception):
    """A mistake in what a person gave, or a fault that a person can put right.

    The engine shows the message as it is, without a trace: it says what was wrong, what was
    given, what is allowed and what to do.

    Args:
        message: what the person sees.
        details: what only helps to find the cause; it goes to the site's log.
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class StoppedError(LocalError):
    """Work was stopped because the deployment was cancelled; what was done so far is kept."""


@dataclass(frozen=True)
class InvalidInput:
    """One input that was refused.

    Attributes:
        property: the input's name as the engine knows it; empty for the resource as a whole.
        reason: what was given and what is allowed.
    """

    property: str
    reason: str


class InvalidInputsError(Exception):
    """Inputs that ``check`` refuses; the engine shows each refusal beside its property."""

    def __init__(self, errors: Sequence[InvalidInput]) -> None:
        super().__init__("; ".join(f"{r.property}: {r.reason}" for r in errors))
        self.errors = tuple(errors)
