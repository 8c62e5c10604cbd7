"""Starts a program that is asked to end (SIGTERM) when the one that started it dies.

Run as ``python -I guard.py PARENT_PID PROGRAM ARGUMENT…``. It is a program of its own because
code between fork and exec is unsafe in a process with threads; the setting outlives the exec.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def main() -> None:
    """Ask the kernel for the signal where it can give it, then become the program."""
    parent = int(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        # It died before the kernel was told.
        sys.exit(75)
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - becomes the program it was asked to start


if __name__ == "__main__":
    main()
