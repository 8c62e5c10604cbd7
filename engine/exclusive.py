"""One run at a time gets something that others wait for."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from falaj.engine.progress import Report, duration

WAIT_STEP_SECONDS = 5.0


@contextmanager
def exclusive(path: Path, report: Report, what: str) -> Generator[None]:
    """Hold the lock file `path`, saying every few seconds that another run is getting `what`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock, waited = FileLock(path), 0.0
    while True:
        try:
            lock.acquire(timeout=WAIT_STEP_SECONDS)
        except Timeout:
            waited += WAIT_STEP_SECONDS
            report(f"waiting for another run that is getting {what} ({duration(waited)})")
        else:
            break
    try:
        yield
    finally:
        lock.release()
