"""Notice the end of the engine, however it ended."""

from __future__ import annotations

import asyncio
import os
import stat
import sys

POLL_SECONDS = 0.25


class _UntilEnd(asyncio.Protocol):
    def __init__(self, ended: asyncio.Event) -> None:
        self._ended = ended

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()


async def parent_ended(parent: int) -> None:
    """Return when the process `parent`, which started this one, is gone.

    The engine gives each plugin a pipe as standard input and never writes to it: its end is the
    engine's end, at once. Where standard input is something else, our parent's number tells:
    orphans get another parent.
    """
    ended = asyncio.Event()
    if stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
        await asyncio.get_running_loop().connect_read_pipe(lambda: _UntilEnd(ended), sys.stdin)
    while os.getppid() == parent:
        try:
            await asyncio.wait_for(ended.wait(), POLL_SECONDS)
        except TimeoutError:
            continue
        return
