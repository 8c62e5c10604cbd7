"""Start a command that ends when its parent does: `guard.py PARENT_PID COMMAND [ARGUMENT …]`.

Run as a script by whichever Python the program uses, so it needs nothing but the standard library.
It asks Linux to send SIGTERM when the parent dies, then becomes the command. The request survives
`execve` (prctl(2), PR_SET_PDEATHSIG). Elsewhere the language host's own watch has to do.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Ask for the signal, make sure that the parent is still there, and become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)  # it died before we could ask
    os.execv(command[0], command)  # noqa: S606  no shell wanted


if __name__ == "__main__":
    main()
