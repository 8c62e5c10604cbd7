"""Errors of the workloads, and the exit statuses of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final


class WorkloadError(Exception):
    """A mistake in what a person gave, or a fault that a person can put right.

    The message says what was wrong, what was given, what is allowed and what to do. Command
    lines print it after ``error:`` and leave with status 2; they never show a trace for it.
    """


class StorageFullError(WorkloadError):
    """The disk, the quota or the file size limit ended a write; nothing half written was kept."""


class IntegrityError(WorkloadError):
    """What was read isn't what was written: changed, cut short, swapped, or of another key."""


class RetiredKeyError(WorkloadError):
    """What was read is sealed under a key that the key ring has no more."""


class RegistryError(WorkloadError):
    """A registry of images that couldn't be asked or didn't do what was asked, with what to do."""


class NotThereError(RegistryError):
    """The registry has no such image."""


class CodeError(WorkloadError):
    """A team's own code failed, perhaps in one of several processes alone."""


def printable(text: str) -> str:
    """Return a text whose control characters are shown: what is foreign may steer a terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def some(names: Sequence[str], most: int) -> str:
    """Return the first ``most`` of names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


# Exit statuses tell a scheduler whether starting the run again can help; `falaj.workloads.exits`
# says what becomes of each. From 71 on, names and numbers are those of sysexits.h.

FAULT: Final = 1
"""An exception that nobody caught: the program's fault, or one of the machine that nobody knew."""

REFUSED: Final = 2
"""What a person gave can't be used, for the reason that is said: it would come again."""

HARDWARE: Final = 71
"""A GPU or its driver failed (EX_OSERR): another machine may do."""

LOST: Final = 74
"""Processes of the run have gone (EX_IOERR): start all of them again."""

STOPPED: Final = 75
"""Stopped on request, with a checkpoint (EX_TEMPFAIL): run again to go on."""

PROGRAM: Final = frozenset({FAULT, REFUSED})
"""After these a machine doesn't start its own processes again: whoever started it decides."""


def worst(codes: set[int]) -> int:
    """The status of a machine whose processes ended with ``codes``, which aren't all 0.

    The program's own fault explains those of the others, a request to stop explains lost peers,
    and whatever a signal ended (negative) is counted as lost.
    """
    for code in (REFUSED, FAULT, HARDWARE, STOPPED):
        if code in codes:
            return code
    return LOST
