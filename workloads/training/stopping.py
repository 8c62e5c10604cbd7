"""When a run has to stop: signals, and the end of the process that started it."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

_WATCH_SECONDS = 0.5


class StopRequest:
    """Remembers that the run is to stop after the current step, and why."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._parent = os.getppid()
        # Under nohup the run is meant to outlive its starter.
        self._outlives = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN

    def install(self) -> None:
        """Stop on SIGTERM, SIGINT and SIGHUP (the last unless nohup has it ignored)."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        if not self._outlives:
            signal.signal(signal.SIGHUP, self._on_signal)

    def ask(self, reason: str) -> None:
        """Ask for a stop; the first reason is kept."""
        self.reason = self.reason or reason

    def asked(self) -> bool:
        """Return whether to stop; notices the death of the parent process."""
        if self.reason is None and self.orphaned():
            self.ask("the process that started the run has ended")
        return self.reason is not None

    def orphaned(self) -> bool:
        """Return whether another process has adopted this one, and that matters."""
        return not self._outlives and os.getppid() != self._parent

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.ask(f"{signal.Signals(number).name} was received")


def terminate_when_orphaned(stop: StopRequest) -> None:
    """Send this process SIGTERM once its parent has died, from a thread that watches.

    For the process that only waits for the training processes. PR_SET_PDEATHSIG is no substitute:
    it fires when the starting *thread* ends, which a living parent's thread pool does.
    """

    def watch() -> None:
        pause = threading.Event()
        while not stop.orphaned():
            pause.wait(_WATCH_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
