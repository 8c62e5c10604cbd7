"""Progress lines for people: what is being done, how far it is, how long it has taken."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

Report = Callable[[str], None]
"""Receives one finished line of progress, without a newline."""

INTERVAL_SECONDS = 10.0
"""Seconds between two lines of progress where no terminal shows it in place."""


def to_stderr(line: str) -> None:
    """Print `line` to standard error, so that standard output stays for results."""
    print(line, file=sys.stderr, flush=True)


def silent(line: str) -> None:
    """Drop `line`."""


class Progress:
    """One long step; `update` says how far it is."""

    def __init__(self, report: Report, what: str) -> None:
        self._report = report
        self._what = what
        self._state = ""
        self._start = time.monotonic()

    def update(self, state: str) -> None:
        """Say how far the step is, such as "812 of about 1430 packages"."""
        self._state = state

    def line(self) -> str:
        """The step in one line, such as "building: 812 of about 1430 packages (1 min 5 s)"."""
        elapsed = duration(time.monotonic() - self._start)
        return (
            f"{self._what}: {self._state} ({elapsed})"
            if self._state
            else f"{self._what} ({elapsed})"
        )


@contextmanager
def step(report: Report, what: str) -> Generator[Progress]:
    """Report `what` at once, its progress every few seconds, and how long it took at the end."""
    progress = Progress(report, what)
    report(what)
    over = threading.Event()

    def tick() -> None:
        while not over.wait(INTERVAL_SECONDS):
            report(progress.line())

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    start = time.monotonic()
    try:
        yield progress
    finally:
        over.set()
        ticker.join()
    report(f"{what}: done in {duration(time.monotonic() - start)}")


def duration(seconds: float) -> str:
    """A length of time for people: "7 s", "2 min 46 s"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def size(count: float) -> str:
    """A number of bytes for people, in decimal megabytes: "113.5 MB"."""
    return f"{count / 1e6:.1f} MB"
