"""The error of this package."""

from __future__ import annotations


class PolicyError(Exception):
    """What can't be checked, and what to do about it."""
