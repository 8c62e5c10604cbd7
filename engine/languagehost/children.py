"""The processes that a language host runs: each in its own group, each certain to end.

A child is its own process group, so that the engine's SIGINT to the host's group does not reach it
and ending it reaches all that it started in its group. It dies with the host even if the host is
killed outright (see `engine/guard.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping

from falaj.engine.guard import guarded

AFTER_EXIT_SECONDS = 1.0
"""How long to go on reading after the end of a child: something that it left running in the
background may hold its pipes open for ever."""
POLL_SECONDS = 0.02

Output = Callable[[str, bytes], None]
"""Receives ("stdout" or "stderr", bytes as they come)."""


class _Child(asyncio.SubprocessProtocol):
    """Hands on a process's output; tells its end from the end of its pipes."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._open_pipes = 2
        self.exited = asyncio.Event()
        self.drained = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._output("stdout" if fd == 1 else "stderr", data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open_pipes -= 1
        if self._open_pipes == 0:
            self.drained.set()

    def process_exited(self) -> None:
        self.exited.set()


class Children:
    """Runs commands and ends them; one per host."""

    def __init__(self) -> None:
        self._running: dict[int, _Child] = {}
        self._tasks: set[asyncio.Task[int]] = set()
        self._closed = False

    async def run(
        self, command: list[str], cwd: str, env: Mapping[str, str], output: Output, grace: float
    ) -> int:
        """Run `command` to its end and return its exit code (128 + n when signal n ended it).

        Cancelling the call ends the whole process group: SIGTERM, then SIGKILL after `grace`
        seconds. Raises OSError when the command cannot be started.
        """
        if self._closed:
            raise asyncio.CancelledError
        transport, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Child(output),
            *guarded(command),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
        pid = transport.get_pid()
        self._running[pid] = child
        try:
            await child.exited.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.drained.wait(), AFTER_EXIT_SECONDS)
            code = transport.get_returncode() or 0
            return code if code >= 0 else 128 - code
        finally:
            await asyncio.shield(_end(pid, child, grace))
            transport.close()
            self._running.pop(pid, None)

    async def stream(
        self, command: list[str], cwd: str, env: Mapping[str, str], grace: float
    ) -> AsyncIterator[tuple[str, bytes] | int]:
        """Run `command` and yield its output as it comes, then its exit code.

        Leaving or cancelling the iteration ends the process group as `run` does.
        """
        output: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue()

        def queue(stream: str, data: bytes) -> None:
            output.put_nowait((stream, data))

        task = asyncio.create_task(self.run(command, cwd, env, queue, grace))
        task.add_done_callback(lambda _: output.put_nowait(None))
        # A task that nothing refers to may vanish before it has ended its process.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while (item := await output.get()) is not None:
                yield item
            yield await task
        finally:
            task.cancel()

    async def close(self, grace: float) -> None:
        """End every child, all at the same time, and start no more."""
        self._closed = True
        await asyncio.gather(*(_end(pid, child, grace) for pid, child in self._running.items()))


async def _end(pid: int, child: _Child, grace: float) -> None:
    """End the child and whatever else is left in its process group."""
    deadline = asyncio.get_running_loop().time() + grace
    asked = False
    while not child.exited.is_set() or _others_live(pid):
        if asyncio.get_running_loop().time() >= deadline:
            _signal_group(pid, signal.SIGKILL)
            break
        if not asked:
            _signal_group(pid, signal.SIGTERM)
            asked = True
        await asyncio.sleep(POLL_SECONDS)
    await child.exited.wait()


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _others_live(group: int) -> bool:
    """Whether a process of the group runs on after its leader's end."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    # Zombies count for the kernel, and where nobody reaps orphans they stay for ever.
    import psutil  # noqa: PLC0415 - few programs leave anybody behind

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False
