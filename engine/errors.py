"""Errors that a person can act on; command lines print them without a trace."""

from __future__ import annotations

import errno


class EngineError(Exception):
    """Something about the Pulumi engine, its backend or the environment cannot work as it is.

    The text says what was wrong, what was given, what is allowed and what to do.
    """


NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers that mean that a disk, a quota or a file size limit is exhausted."""


def explain_os_error(error: OSError, doing: str) -> EngineError:
    """Turn an operating system error met while `doing` something into one plain sentence."""
    if error.errno in NO_SPACE:
        return EngineError(f"no space left while {doing}; free space and run again")
    where = f" ({error.filename})" if error.filename else ""
    return EngineError(f"{doing} failed: {error.strerror or error}{where}")
