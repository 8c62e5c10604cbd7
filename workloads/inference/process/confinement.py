"""What the processes of a server that hold something secret do first."""

from __future__ import annotations

import ctypes
import resource

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this signal when the process's parent ends; 0: none."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)


def forbid_dumps() -> None:
    """Keep this memory to this process: no core dumps, no debugger of others."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
