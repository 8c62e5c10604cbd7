"""Processes of one control plane: started together, ended together.

Each is started through `falaj.engine.guard`, so that it ends when the supervisor does, even by
SIGKILL.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from falaj.engine.errors import EngineError
from falaj.engine.guard import guarded

END_SECONDS = 10.0
"""A process that has not ended this long after SIGTERM gets SIGKILL."""
LOG_LINES = 12
_STEP_SECONDS = 0.02


@dataclass
class Supervisor:
    """Runs named commands, their output in `<logs>/<name>.log`."""

    logs: Path
    _running: dict[str, subprocess.Popen[bytes]] = field(
        default_factory=dict[str, "subprocess.Popen[bytes]"]
    )

    def start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Start `command`. Raises EngineError when one of that name runs already."""
        if name in self._running:
            raise EngineError(f"{name} runs already as process {self._running[name].pid}")
        self.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                # Asked to end, an API server waits for an etcd that has ended already.
                guarded(list(command), kill=True),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A user's KUBECONFIG or proxy must not take part; Ctrl-C is for the supervisor.
                env={"PATH": os.environ.get("PATH", ""), **(environment or {})},
                start_new_session=True,
            )

    @property
    def processes(self) -> dict[str, int]:
        """Process ids by name."""
        return {name: process.pid for name, process in self._running.items()}

    def ended(self) -> str | None:
        """Which process ended by itself, with its last words; None when all run."""
        for name, process in self._running.items():
            if (code := process.poll()) is not None:
                return f"{name} ended with exit code {code}:\n{self.last_words(name)}"
        return None

    def last_words(self, name: str) -> str:
        """The end of a process's log."""
        try:
            text = (self.logs / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.strip().splitlines()[-LOG_LINES:])

    def stop(self, *names: str) -> None:
        """End these processes, by default all: those started last first."""
        chosen = [name for name in reversed(self._running) if not names or name in names]
        for name in chosen:
            self._end(self._running.pop(name))

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()


def wait_until(
    ready: Callable[[], bool], supervisor: Supervisor, what: str, seconds: float
) -> None:
    """Wait until calling `ready` is true.

    Raises EngineError: a process ended meanwhile, or it took longer than `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if ended := supervisor.ended():
            raise EngineError(f"{what} did not get ready: {ended}")
        if time.monotonic() > deadline:
            raise EngineError(f"{what} did not get ready within {seconds:.0f} s")
        time.sleep(_STEP_SECONDS)
