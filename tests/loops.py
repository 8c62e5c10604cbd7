"""Event loops for programs that are declared against mocks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_loop() -> Iterator[None]:
    """A program's own loop, which has to be there before its mocks are set.

    With its end go its threads, sockets and what the SDK keeps for it: of hundreds of programs in
    a process, each would else be slower than the one before. Another loop takes its place, for
    outputs that tests make outside of programs.
    """
    loop = asyncio.new_event_loop()
    # Resources that wait for a refused one fail like it; the first failure is raised.
    loop.set_exception_handler(lambda *_: None)
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        # A program that was refused leaves outputs behind that nobody waits for any more.
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        asyncio.set_event_loop(asyncio.new_event_loop())
