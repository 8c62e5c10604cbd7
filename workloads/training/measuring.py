"""Measuring of a run's settings, on its own model and rows, in processes that end afterwards.

A process that has the rows and computes nothing makes a copy of itself for each measurement, so
that none inherits threads, memory or a broken device of the one before, and one that is killed for
its memory ends nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

import torch

from falaj.workloads.errors import printable
from falaj.workloads.training import distributed
from falaj.workloads.training.command import build_parser, requested_of
from falaj.workloads.training.compiling import NEVER
from falaj.workloads.training.finishing import Setting
from falaj.workloads.training.measurer import ending
from falaj.workloads.training.opened import open_start_of, open_teacher_of, read_code
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.own_model import guarded
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.session import Session
from falaj.workloads.training.snapshot import open_dataset, open_keyring
from falaj.workloads.training.stopping import StopRequest

_LOOPBACK: Final = "127.0.0.1"
_KILLED_FIRST: Final = "1000"
"""Of oom_score_adj, see proc(5): a measurement goes before anything else of the machine."""
_WARM_STEPS: Final = 2
_REASON: Final = 200
"""Characters of an error that are shown."""


def main(arguments: list[str]) -> int:
    """Measure what is asked for, a line of JSON for each, until nobody asks."""
    options = build_parser().parse_args(arguments)
    setting = _setting(options)
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a team's model prints
    os.write(answers, b"{}\n")  # it has the rows
    for line in sys.stdin:
        task = json.loads(line)
        parameters = Parameters(**task["parameters"])
        found = _attempt(setting, parameters, float(task["seconds"]))
        os.write(answers, json.dumps(found).encode() + b"\n")
    return 0


def _setting(options: argparse.Namespace) -> Callable[[Parameters, Path], Setting]:
    """Open all that a run is given; return what makes its setting of parameters and a folder."""
    requested = requested_of(options)
    keyring = open_keyring(options.keyring)
    code = read_code(requested, options.code_digest)
    dataset = open_dataset(options.dataset, keyring)
    teacher = open_teacher_of(requested, keyring, dataset)
    start = open_start_of(requested, keyring, dataset)

    def make(parameters: Parameters, output: Path) -> Setting:
        # Compiling takes as long as measuring may.
        parameters = replace(parameters, compile=NEVER)
        return Setting(
            dataset, parameters, output, keyring, "measured", False,
            code=code, teacher=teacher, start=start,
        )  # fmt: skip

    return make


def _attempt(
    make: Callable[[Parameters, Path], Setting], parameters: Parameters, seconds: float
) -> dict[str, Any]:
    """Measure in copies of this process, as many as the run would have."""
    with tempfile.TemporaryDirectory(prefix="falaj-measuring-") as folder:
        port = _free_port() if parameters.processes > 1 else 0
        copies: dict[int, tuple[int, int]] = {}
        for rank in range(parameters.processes):
            reading, writing = os.pipe()
            copy = os.fork()
            if copy == 0:
                os.close(reading)
                _become(make(parameters, Path(folder)), rank, port, seconds, writing)
            os.close(writing)
            copies[copy] = (rank, reading)
        return _gathered(copies)


def _gathered(copies: dict[int, tuple[int, int]]) -> dict[str, Any]:
    """Wait for all copies; return the first one's figures with the memory of all."""
    answers: dict[int, dict[str, Any]] = {}
    left = set(copies)
    while left:
        ended, status = os.wait()
        if ended not in left:
            continue
        left.discard(ended)
        rank, reading = copies[ended]
        with os.fdopen(reading, "rb") as stream:
            data = stream.read()
        answer = (
            json.loads(data) if data else {"refused": ending(os.waitstatus_to_exitcode(status))}
        )
        answers[rank] = answer
        if "refused" in answer:
            # The first one says why; the others would wait for it.
            for other in left:
                os.kill(other, signal.SIGKILL)
            for other in left:
                os.waitpid(other, 0)
                os.close(copies[other][1])
            return answer
    sizes = [each["memory"] for each in answers.values()]
    return {**answers[0], "memory": None if None in sizes else sum(sizes)}


def _become(setting: Setting, rank: int, port: int, seconds: float, writing: int) -> NoReturn:
    """Be a process of the run for some steps, and say how fast it was."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_KILLED_FIRST)
    try:
        answer = _measured(setting, rank, port, seconds)
    except BaseException as error:
        lines = str(error).strip().splitlines()
        reason = printable(lines[0])[:_REASON] if lines else type(error).__name__
        answer = {"refused": "too little memory" if _is_short_of_memory(error, reason) else reason}
    os.write(writing, json.dumps(answer).encode())
    os._exit(0)


def _is_short_of_memory(error: BaseException, reason: str) -> bool:
    """Whether it says that memory was short: PyTorch's own class for that is of GPUs alone."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in reason.lower()
    )


def _measured(setting: Setting, rank: int, port: int, seconds: float) -> dict[str, Any]:
    parameters = setting.parameters
    if parameters.processes > 1:
        number, size = str(rank), str(parameters.processes)
        os.environ.update({
            "RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size,
            "MASTER_ADDR": _LOOPBACK, "MASTER_PORT": str(port),
        })  # fmt: skip
        os.environ.setdefault("GLOO_SOCKET_IFNAME", distributed.LOOPBACK_INTERFACE)
    team = distributed.join(parameters.device)
    is_own = setting.code is not None or (setting.teacher and setting.teacher.is_own)
    with guarded() if is_own else contextlib.nullcontext():
        session = Session(setting, team, StopRequest(), Progress("json", False, lambda: None))
        rate, rows_share = session.measure(seconds, warm=_WARM_STEPS)
    return {"rate": rate, "rows_share": rows_share, "memory": _most_memory(parameters.device)}


def _most_memory(device: str) -> int | None:
    """The most bytes that this process had, on a GPU of its memory."""
    if device == "cuda":
        return int(torch.cuda.max_memory_allocated())
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((_LOOPBACK, 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
