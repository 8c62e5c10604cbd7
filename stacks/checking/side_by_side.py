"""Checks groups of stacks side by side, each group in a process of its own, in a scratch home."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import IO, Final, cast

from pydantic import TypeAdapter

from falaj.policies.reports.result import StackResult
from falaj.sandbox import activation
from falaj.stacks.checking.subject import Subject, groups
from falaj.stacks.command.console import say

_RESULT = TypeAdapter(StackResult)
_PRINTED_LINES = 15
#: Seconds that an engine gets to end its plugins; it takes about one.
_PATIENCE: Final = 20


class SideBySide:
    """One check of several stacks; says when each begins and ends."""

    def __init__(self, found: Sequence[Subject], strict: bool | None, jobs: int) -> None:
        self._subjects = found
        self._strict = strict
        self._jobs = jobs
        self._results: dict[str, StackResult] = {}
        self._started: dict[str, float] = {}
        self._ended = 0
        self._processes: list[subprocess.Popen[str]] = []
        self._is_stopped = False
        self._alone = Lock()

    def run(self) -> list[StackResult]:
        """Check them all; results are in the order of the stacks.

        State, stand-ins and keys of each group are in a folder of its own, which goes when it
        ends: what a person has up in the sandbox is neither read nor touched, and stacks that
        could not share an account don't meet.

        Raises:
            KeyboardInterrupt: somebody ended it, by Ctrl-C or SIGTERM; nothing of it goes on.
        """
        with _terminable(), ThreadPoolExecutor(self._jobs) as pool:
            running = [pool.submit(self._group, each) for each in groups(self._subjects)]
            try:
                for each in running:
                    each.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._stop()
                raise
        return [self._results[each.stack.name] for each in self._subjects]

    def _stop(self) -> None:
        """End all processes; their engines first, which end their plugins."""
        with self._alone:
            self._is_stopped = True
        for each in self._processes:
            _signal_group(each, signal.SIGINT)
        deadline = time.monotonic() + _PATIENCE
        for each in self._processes:
            try:
                each.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal_group(each, signal.SIGKILL)

    def _begin(self, home: str, said: IO[str]) -> subprocess.Popen[str] | None:
        """Start a process, unless the check was ended meanwhile."""
        with self._alone:
            if self._is_stopped:
                return None
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "falaj.stacks.checking.worker"],
                env={
                    **activation.left(),
                    "FALAJ_HOME": home,
                    "PULUMI_HOME": str(Path(home) / "pulumi"),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                # A group of its own, which is ended as one.
                start_new_session=True,
            )
            self._processes.append(process)
            return process

    def _group(self, group: Sequence[Subject]) -> None:
        project = group[0].stack.project
        task = {
            "project": str(project.root),
            "stacks": [each.stack.name for each in group],
            "strict": self._strict,
        }
        with (
            tempfile.TemporaryDirectory(prefix="falaj-check-home-") as home,
            tempfile.TemporaryFile(mode="w+") as said,
        ):
            process = self._begin(home, said)
            if process is None:
                return
            with process:
                cast("IO[str]", process.stdin).write(json.dumps(task))
                cast("IO[str]", process.stdin).close()
                for line in cast("IO[str]", process.stdout):
                    self._take(json.loads(line))
            said.seek(0)
            tail = said.read().strip().splitlines()[-_PRINTED_LINES:]
        for each in group:
            if each.stack.name not in self._results:
                reason = "the check ended early (exit {}):\n{}"
                error = reason.format(process.returncode, "\n".join(tail))
                self._results[each.stack.name] = StackResult(
                    each.stack.name, project.name, "nobody", errors=(error,)
                )

    def _take(self, event: dict[str, str]) -> None:
        name = event["stack"]
        with self._alone:
            if event["event"] == "started":
                self._started[name] = time.monotonic()
                say(f"      {name} …")
                return
            result = _RESULT.validate_json(event["result"])
            self._results[name] = result
            self._ended += 1
            took = time.monotonic() - self._started[name]
            say(f"[{self._ended}/{len(self._subjects)}] {name}: {_verdict(result)} ({took:.1f} s)")


@contextmanager
def _terminable() -> Generator[None]:
    """SIGTERM, by which CI systems end a job, does what Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _signal_group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _verdict(result: StackResult) -> str:
    if result.errors:
        return "could not be checked"
    failing = sum(each.fails for each in result.outcomes)
    judged = f"{len(result.resources)} resources"
    return f"{judged}, {failing} findings" if failing else f"{judged}, clean"


def jobs_by_default() -> int:
    """As many processes as there are cores to run on."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
