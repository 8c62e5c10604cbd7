"""Runs the workloads' command lines as processes of their own and reads their answers.

The provider never imports `workloads`: the boundary is ``python -m falaj.workloads.…``, JSON on
the standard output, and the exit status (0 done, 2 refused, 75 stopped with its state kept).
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from falaj.components.local.machine import LocalError, StoppedError
from falaj.components.local.provider import guard
from falaj.components.local.provider.handler import Context
from falaj.components.local.supervision import handed_on
from falaj.wire.documents import is_dictionary, is_sequence, mapping

TRAINING: Final = "falaj.workloads.training"
REGISTRY: Final = "falaj.workloads.registry"
REFUSED: Final = 2
STOPPED: Final = 75
_GUARD: Final = Path(guard.__file__)
_ERROR_LINES: Final = 40
_STOP_LIMIT_S: Final = 120.0


def run(
    context: Context,
    module: str,
    arguments: Sequence[str],
    *,
    what: str = "",
    on_line: Callable[[str], None] | None = None,
    pid_file: Path | None = None,
) -> dict[str, Any]:
    """Run ``python -m MODULE ARGUMENTS`` to its end and return the JSON of its last output line.

    The process leads its own group. When the deployment is cancelled the group gets SIGTERM, and
    this waits until it has written what it keeps.

    Args:
        context: for cancellation.
        module: for example ``falaj.workloads.training``.
        arguments: after the module's name; never a secret.
        what: the work in words, for messages; by default module and first argument.
        on_line: called with each line of the standard output as it comes.
        pid_file: where the group's process id is kept while it runs, for a later clean-up.

    Raises:
        StoppedError: stopped because of the cancellation; its state is kept.
        LocalError: the workload refused its input, failed, or answered with no JSON object.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]
    process = subprocess.Popen(
        [sys.executable, "-I", str(_GUARD), str(os.getpid()), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        cwd="/",
        env=environment(),
        start_new_session=True,
    )
    if pid_file is not None:
        pid_file.write_text(f"{process.pid}\n", encoding="utf-8")
    try:
        last, complaints = _follow(context, process, on_line or (lambda _line: None))
    finally:
        _end(process)
        if pid_file is not None:
            pid_file.unlink(missing_ok=True)
    named: Sequence[str] = arguments[:1] if arguments and not arguments[0].startswith("-") else []
    _judge(process.returncode, what or " ".join([module, *named]), complaints, context)
    return _answer(module, last)


def environment() -> dict[str, str]:
    """The environment of workload processes: what of the provider's is named as handed on."""
    return {**handed_on(os.environ), "PYTHONUNBUFFERED": "1"}


def options(values: Mapping[str, str | int | float | None]) -> list[str]:
    """Command line options, leaving out those without a value."""
    return [
        part
        for name, value in values.items()
        if value is not None
        for part in (f"--{name}", _plain(value))
    ]


def own_options(values: object) -> list[str]:
    """What a model of one's own is made with, each value as JSON: texts stay texts.

    Args:
        values: by name; None, or what isn't known yet: nothing.
    """
    return [
        part
        for name, value in mapping(values).items()
        for part in ("--option", f"{name}={json.dumps(value, ensure_ascii=False)}")
    ]


def features_options(time: object, tables: object) -> list[str]:
    """The feature tables of a dataset, as a document; none: nothing.

    Args:
        time: the dataset's column that says of which moment a row is; None: there is none.
        tables: by name what is said of each, by the names of properties.
    """
    if not tables:
        return []
    document = {"time": time, "tables": tables}
    return options({"features": json.dumps(document, ensure_ascii=False)})


def tracking_options(given: Mapping[str, Any]) -> list[str]:
    """Options of a tracking server or file; none: nothing is sent.

    Args:
        given: by the names of `TrackingArgs`; None, or not there: not said.
    """
    if given.get("tracking") is None and given.get("tracking_file") is None:
        return []
    words: list[str] = []
    for name, value in given.items():
        for each in value if is_sequence(value) else [value]:
            words += options({name.replace("_", "-"): each})
    return words


def _plain(value: str | float) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _follow(
    context: Context, process: subprocess.Popen[str], on_line: Callable[[str], None]
) -> tuple[str, list[str]]:
    """Read both outputs until they end, passing on a cancellation."""
    lines: queue.Queue[str | None] = queue.Queue()
    complaints: deque[str] = deque(maxlen=_ERROR_LINES)
    output, errors = process.stdout, process.stderr
    if output is None or errors is None:
        raise AssertionError("both outputs are pipes")

    def read_output() -> None:
        for line in output:
            lines.put(line.rstrip("\n"))
        lines.put(None)

    readers = [
        threading.Thread(target=read_output, daemon=True),
        threading.Thread(target=lambda: complaints.extend(errors), daemon=True),
    ]
    for reader in readers:
        reader.start()
    last, stopping, deadline = "", False, 0.0
    while True:
        if context.cancelled.is_set() and not stopping:
            context.status("stopping; waiting until its state is written")
            _signal_group(process.pid, signal.SIGTERM)
            stopping, deadline = True, time.monotonic() + _STOP_LIMIT_S
        if stopping and time.monotonic() > deadline:
            _signal_group(process.pid, signal.SIGKILL)
        try:
            line = lines.get(timeout=0.2)
        except queue.Empty:
            if process.poll() is None or readers[0].is_alive():
                continue
            break
        if line is None:
            break
        if line.strip():
            last = line
        on_line(line)
    process.wait()
    readers[1].join(timeout=5)
    return last, [line.rstrip() for line in complaints]


def _end(process: subprocess.Popen[str]) -> None:
    """Leave nothing of the group behind, whatever happened above."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _signal_group(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _judge(status: int, what: str, complaints: Sequence[str], context: Context) -> None:
    if status == 0:
        return
    if status == STOPPED or context.cancelled.is_set():
        raise StoppedError(
            f"{what} was stopped on request; what it had is kept, and the next `pulumi up` "
            "resumes from there"
        )
    if status == REFUSED:
        raise LocalError(_complaint(complaints) or f"{what} refused its input without a reason")
    ended = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
    # The last line of a trace names the error; the rest is for the log.
    named = f": {complaints[-1].strip()}" if complaints else ""
    raise LocalError(f"{what} failed with {ended}{named}", "\n".join(complaints))


def _complaint(complaints: Sequence[str]) -> str:
    """The message after ``error:``, or all lines when there is no such prefix."""
    for index in range(len(complaints) - 1, -1, -1):
        if complaints[index].startswith("error: "):
            first = complaints[index].removeprefix("error: ")
            return "\n".join([first, *complaints[index + 1 :]]).strip()
    return "\n".join(complaints).strip()


def _answer(module: str, last: str) -> dict[str, Any]:
    try:
        answer = json.loads(last)
    except ValueError:
        answer = None
    if not is_dictionary(answer):
        raise LocalError(f"{module} ended well but gave no JSON object; its last line: {last!r}")
    return answer
