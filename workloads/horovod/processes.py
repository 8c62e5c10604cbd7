"""This machine's processes: started, told to stop, ended, and never left over."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from falaj.workloads.errors import WorkloadError


class Processes:
    """The processes of one program, each with its own environment."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[bytes]] = []
        self._terminate_at = float("inf")
        self._kill_at = float("inf")

    def start(self, program: Sequence[str], environments: Sequence[Mapping[str, str]]) -> None:
        """Start one process for each environment.

        Raises:
            WorkloadError: the program can't be run.
        """
        for environ in environments:
            try:
                # Each leads a group of its own, by which what it started can be ended with it.
                child = subprocess.Popen(list(program), env=environ, start_new_session=True)
            except OSError as error:
                self.kill()
                raise WorkloadError(
                    f"can't run {program[0]!r}: {error.strerror or error}; allowed is a program "
                    "of the image, by its path or found on its PATH"
                ) from None
            self._children.append(child)

    def ended(self) -> list[int]:
        """Status of each process that has ended; negative: the signal that ended it."""
        self._adopted()
        codes = [child.poll() for child in self._children]
        return [code for code in codes if code is not None]

    @property
    def running(self) -> bool:
        """Whether any still runs."""
        return len(self.ended()) < len(self._children)

    def leave(self, terminate: float, kill: float) -> None:
        """Ask all to stop, then end them; an earlier date that was set before holds.

        Args:
            terminate: seconds until each gets SIGTERM.
            kill: seconds after that until its group gets SIGKILL.
        """
        now = time.monotonic()
        self._terminate_at = min(self._terminate_at, now + terminate)
        self._kill_at = min(self._kill_at, now + terminate + kill)

    def enforce(self) -> None:
        """Send the signals that are due."""
        now = time.monotonic()
        if now >= self._kill_at:
            self.kill()
        elif now >= self._terminate_at:
            self._terminate_at = float("inf")
            for child in self._children:
                # The process alone, as the kubelet does: it may need its helpers for a checkpoint.
                if child.poll() is None:
                    child.terminate()

    def kill(self) -> None:
        """End all at once, with what they have started."""
        for child in self._children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def _adopted(self) -> None:
        """Bury processes that others left behind: a container's first process inherits them."""
        own = {child.pid for child in self._children}
        with contextlib.suppress(ChildProcessError):
            while True:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is None or found.si_pid in own:
                    return  # own ones are asked for by their number
                os.waitpid(found.si_pid, os.WNOHANG)
