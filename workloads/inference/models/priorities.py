"""Which of the requests that wait goes first, where callers may say how urgent theirs are.

A request counts as if it had come some seconds later, the less urgent the more: then the oldest
goes first. So an urgent one passes those that came shortly before, and nobody waits for ever: who
isn't urgent is passed by those alone that come within its `HEAD_START`. Where the queue is full,
the newest of the least urgent makes room for a more urgent one.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from falaj.workloads.inference.errors import RequestError, retry_after

HEAD_START: Final = (0.0, 1.0, 4.0)
"""Seconds by which a request of each rank counts as later: urgent, usual, and not urgent."""


def displaced() -> RequestError:
    """What a request is told that made room for a more urgent one."""
    return RequestError(
        503, "the queue is full, and more urgent requests came; try again later",
        headers=(retry_after(1),),
    )  # fmt: skip


class Ordered:
    """Work for threads, of which the most urgent is done next.

    Args:
        pool: the threads.
    """

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._waiting: list[tuple[float, int, int, Callable[[], Any], Future[Any]]] = []
        self._numbers = itertools.count()

    def run(self, rank: int, entered: float, work: Callable[[], Any]) -> asyncio.Future[Any]:
        """Do work in a thread once its turn has come.

        Args:
            rank: how urgent it is: place in `HEAD_START`.
            entered: when it came, in seconds of any clock that only grows.
            work: what is to be done.
        """
        done: Future[Any] = Future()
        entry = (entered + HEAD_START[rank], next(self._numbers), rank, work, done)
        with self._lock:
            heapq.heappush(self._waiting, entry)
        self._pool.submit(self._next)
        return asyncio.wrap_future(done)

    def displace(self, rank: int) -> bool:
        """Refuse the newest of the least urgent, if it is less urgent than this rank."""
        with self._lock:
            found = max(self._waiting, key=lambda each: (each[2], each[1]), default=None)
            if found is None or found[2] <= rank:
                return False
            self._waiting.remove(found)
            heapq.heapify(self._waiting)
        done = found[4]
        if done.set_running_or_notify_cancel():
            done.set_exception(displaced())
        return True

    def _next(self) -> None:
        with self._lock:
            if not self._waiting:
                # What it was submitted for has made room.
                return
            *_, work, done = heapq.heappop(self._waiting)
        if not done.set_running_or_notify_cancel():
            return
        try:
            found = work()
        except BaseException as error:  # the caller's, as of any executor
            done.set_exception(error)
        else:
            done.set_result(found)
