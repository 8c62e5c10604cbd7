"""Start a command that ends when its parent does.

`guard.py [--kill] PARENT_PID COMMAND [ARGUMENT …]` asks Linux to send SIGTERM (or SIGKILL) when
the parent dies, then becomes the command. The request survives `execve` (prctl(2),
PR_SET_PDEATHSIG). On other systems the command just runs.
Run as a script, with nothing but the standard library, so that it costs a few milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

NOT_STARTED = 127
"""The exit code for a command that cannot be started, as in a shell."""

_KILL = "--kill"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def guarded(command: list[str], *, kill: bool = False) -> list[str]:
    """`command` such that it gets SIGTERM when this process (or the starting thread) ends.

    With `kill` it gets SIGKILL: for what doesn't reliably end when it is asked to.
    """
    options = [_KILL] if kill else []
    return [sys.executable, "-I", "-S", __file__, *options, str(os.getpid()), *command]


def main() -> None:
    """Ask for the signal, make sure that the parent is still there, and become the command."""
    arguments = sys.argv[1:]
    end = signal.SIGTERM
    if arguments[0] == _KILL:
        end = signal.SIGKILL
        del arguments[0]
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, end, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(128 + end)  # it died before we could ask
    try:
        os.execv(command[0], command)  # noqa: S606  no shell wanted
    except OSError as error:
        print(f"error: {command[0]} cannot be started: {error.strerror}", file=sys.stderr)
        sys.exit(NOT_STARTED)


if __name__ == "__main__":
    main()
