"""Asks the process that measures settings of a run, and starts it again where it ends."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

import psutil

from falaj.workloads.processor import cores
from falaj.workloads.training import hardware
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.tuning import (
    Candidate,
    Measured,
    RefusedError,
    StoppedError,
    applied,
)

_MODULE: Final = "falaj.workloads.training.measuring"
_LOOK_SECONDS: Final = 0.2
"""Between two looks whether somebody asks to stop."""


class Measurer:
    """Measures candidates of a run.

    Args:
        arguments: the run's command line, of ``run`` or ``tune``.
        parameters: the run's.
        asked: whether to stop.
    """

    def __init__(
        self, arguments: list[str], parameters: Parameters, asked: Callable[[], bool]
    ) -> None:
        self._arguments, self._parameters, self._asked = arguments, parameters, asked
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def measure(self, candidate: Candidate, seconds: float, until: float) -> Measured:
        """Measure one, for about so many seconds of steps.

        Args:
            candidate: what to measure.
            seconds: that steps are timed for.
            until: when to give up, by `time.monotonic`.

        Raises:
            RefusedError: it can't be, or took longer.
            StoppedError: somebody asked to stop.
        """
        process = self._process or self.start()
        task = {"parameters": asdict(applied(self._parameters, candidate)), "seconds": seconds}
        try:
            assert process.stdin is not None  # noqa: S101 - it is a pipe
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
            answer = self._answer(process, until)
        except (BrokenPipeError, EOFError):
            raise self._ended(process) from None
        if "refused" in answer:
            raise RefusedError(str(answer["refused"]))
        return Measured(float(answer["rate"]), float(answer["rows_share"]), answer["memory"])

    def close(self) -> None:
        """End what measures."""
        process, self._process, self._rest = self._process, None, b""
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def start(self) -> subprocess.Popen[bytes]:
        """Start what measures, and wait until it has the rows.

        Raises:
            RefusedError: it ended.
            StoppedError: somebody asked to stop.
        """
        # With one thread at its begin it has none that a copy of it would lack.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE, *self._arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment, start_new_session=True,
        )  # fmt: skip
        process = self._process
        try:
            self._answer(process, math.inf)
        except EOFError:
            raise self._ended(process) from None
        return process

    def _ended(self, process: subprocess.Popen[bytes]) -> RefusedError:
        status = process.wait()
        self.close()
        return RefusedError(f"the measuring process ended ({ending(status)})")

    def _answer(self, process: subprocess.Popen[bytes], until: float) -> dict[str, Any]:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        while b"\n" not in self._rest:
            if self._asked():
                self.close()
                raise StoppedError
            left = until - time.monotonic()
            if left <= 0:
                self.close()
                raise RefusedError("it wasn't done when the time for measuring was over")
            ready, _, _ = select.select([process.stdout], [], [], min(left, _LOOK_SECONDS))
            if ready:
                data = os.read(process.stdout.fileno(), 1 << 16)
                if not data:
                    raise EOFError
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)


def machine(device: str) -> dict[str, Any]:
    """Return what of this machine decides how fast a training is on it."""
    names = ("processor", "cpu_flags", "gpus", "torch", "numpy")
    described = hardware.describe(device)
    return {
        **{name: described[name] for name in names},
        "cores": cores(),
        "memory": psutil.virtual_memory().total,
    }


def ending(status: int) -> str:
    """Return how a process ended, in words, by what `subprocess` says of it."""
    if status >= 0:
        return f"it ended with status {status}"
    name = signal.Signals(-status).name
    hint = ", as where memory is too little" if -status == signal.SIGKILL else ""
    return f"it was ended by {name}{hint}"
