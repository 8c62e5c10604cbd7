"""One watch at a time has a folder, and signals end it in order."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from falaj.workloads.watching.memory import WatchError

LOCK: Final = "lock"


class TakenError(WatchError):
    """Another watch has the folder.

    Attributes:
        holder: number of its process; empty where it can't be read.
    """

    def __init__(self, folder: Path, holder: str) -> None:
        process = f" (process {holder})" if holder else ""
        super().__init__(f"another watch{process} has the folder {folder}")
        self.holder = holder


@contextmanager
def alone(folder: Path) -> Generator[None]:
    """Have a folder for the block, which is there.

    Raises:
        TakenError: another watch has it.
    """
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode("ascii", "replace").strip()
            raise TakenError(folder, holder) from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def signals(stop: threading.Event) -> Generator[None]:
    """Have SIGTERM and Ctrl-C set an event, for the block."""

    def ask(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.set()

    before = {each: signal.signal(each, ask) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
