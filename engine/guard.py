"""Start a command that ends when its parent does: `guard.py PARENT_PID COMMAND [ARGUMENT …]`.

It asks Linux to send SIGTERM when the parent dies, then becomes the command. The request survives
`execve` (prctl(2), PR_SET_PDEATHSIG). On other systems the command just runs.
Run as a script, with nothing but the standard library, so that it costs a few milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

NOT_STARTED = 127
"""The exit code for a command that cannot be started, as in a shell."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def guarded(command: list[str]) -> list[str]:
    """`command` such that it gets SIGTERM when this process (or the starting thread) ends."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main() -> None:
    """Ask for the signal, make sure that the parent is still there, and become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)  # it died before we could ask
    try:
        os.execv(command[0], command)  # noqa: S606  no shell wanted
    except OSError as error:
        print(f"error: {command[0]} cannot be started: {error.strerror}", file=sys.stderr)
        sys.exit(NOT_STARTED)


if __name__ == "__main__":
    main()
