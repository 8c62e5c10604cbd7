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
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from engine.guard import guarded

CHUNK = 65536
AFTER_EXIT_SECONDS = 1.0
"""How long to go on reading after the end of a child: something that it left running in the
background may hold its pipes open for ever."""

POLL_SECONDS = 0.02

Output = Callable[[str, bytes], Awaitable[None]]
"""Receives ("stdout" or "stderr", bytes as they come)."""


class Children:
    """Runs commands and ends them; one per host."""

    def __init__(self) -> None:
        self._running: set[asyncio.subprocess.Process] = set()
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
        process = await asyncio.create_subprocess_exec(
            *guarded(command),
            cwd=cwd,
            env=dict(env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            process_group=0,
        )
        self._running.add(process)
        pumps = [
            asyncio.create_task(_pump(process.stdout, "stdout", output)),
            asyncio.create_task(_pump(process.stderr, "stderr", output)),
        ]
        try:
            code = await process.wait()
            await asyncio.wait(pumps, timeout=AFTER_EXIT_SECONDS)
            return code if code >= 0 else 128 - code
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.shield(self._end(process, grace))
            self._running.discard(process)

    async def stream(
        self, command: list[str], cwd: str, env: Mapping[str, str], grace: float
    ) -> AsyncIterator[tuple[str, bytes] | int]:
        """Run `command` and yield its output as it comes, then its exit code.

        Leaving or cancelling the iteration ends the process group as `run` does.
        """
        output: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue()

        async def queue(stream: str, data: bytes) -> None:
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
        await asyncio.gather(*(self._end(process, grace) for process in set(self._running)))

    async def _end(self, process: asyncio.subprocess.Process, grace: float) -> None:
        """End the child and whatever else is left in its process group."""
        deadline = asyncio.get_running_loop().time() + grace
        asked = False
        while process.returncode is None or _group_exists(process.pid):
            if asyncio.get_running_loop().time() >= deadline:
                _signal_group(process.pid, signal.SIGKILL)
                break
            if not asked:
                _signal_group(process.pid, signal.SIGTERM)
                asked = True
            await asyncio.sleep(POLL_SECONDS)
        await process.wait()


async def _pump(stream: asyncio.StreamReader | None, name: str, output: Output) -> None:
    while stream is not None and (data := await stream.read(CHUNK)):
        await output(name, data)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _group_exists(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
