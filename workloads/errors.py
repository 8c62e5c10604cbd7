"""The one hierarchy of errors of the workloads."""

from __future__ import annotations


class WorkloadError(Exception):
    """A mistake in what a person gave, or a fault that a person can put right.

    The message says what was wrong, what was given, what is allowed and what to do. Command
    lines print it after ``error:`` and leave with status 2; they never show a trace for it.
    """


class StorageFullError(WorkloadError):
    """The disk, the quota or the file size limit ended a write; nothing half written was kept."""


class IntegrityError(WorkloadError):
    """What was read isn't what was written: changed, cut short, swapped, or of another key."""
