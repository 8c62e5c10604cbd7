"""Starts a program; later and later when it keeps failing, so that the machine stays usable.

Run as ``python -I launch.py STARTS_FILE NAME,NAME… PROGRAM ARGUMENT…``. The program gets the
variables of the environment that are named, where ``*`` stands for any end. It replaces itself by
the program, so the supervisor sees and signals the program's own process.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import sys
import time
from pathlib import Path

#: This many starts within the window are normal (a kill, an update); each further one waits.
FREE_STARTS = 4
WINDOW_S = 60.0
LONGEST_DELAY_S = 30.0


def delay(recent: int) -> float:
    """Seconds to wait after `recent` starts within the window: 0, then 1, 2, 4 … up to 30."""
    if recent < FREE_STARTS:
        return 0.0
    return min(2.0 ** (recent - FREE_STARTS), LONGEST_DELAY_S)


def main() -> None:
    """Note the start, wait if there were many, become the program."""
    starts = Path(sys.argv[1])
    now = time.time()
    recent: list[float] = []
    with contextlib.suppress(OSError, ValueError):
        noted = [float(line) for line in starts.read_text(encoding="utf-8").split()]
        recent = [moment for moment in noted if now - WINDOW_S < moment <= now]
    with contextlib.suppress(OSError):
        starts.write_text("\n".join(f"{m:.3f}" for m in [*recent[-20:], now]), encoding="utf-8")
    time.sleep(delay(len(recent)))
    names = sys.argv[2].split(",")
    environment = {
        name: value
        for name, value in os.environ.items()
        if any(fnmatch.fnmatchcase(name, each) for each in names)
    }
    os.execve(sys.argv[3], sys.argv[3:], environment)  # noqa: S606 - becomes the program it was asked to start


if __name__ == "__main__":
    main()
