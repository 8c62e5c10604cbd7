"""What a thread makes ahead of whoever uses it, a bounded number of items."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

_LOOK_SECONDS: Final = 0.1
"""Between two looks of the thread, which waits for room, whether it is still needed."""


@dataclass(frozen=True)
class _Failure:
    """What the thread raised."""

    error: BaseException


class _End:
    """There are no more items."""


class Ahead(Generic[Item]):
    """Goes through an iterator in a thread of its own.

    Args:
        items: the iterator; nobody else goes through it.
        depth: items that wait at most; the thread holds one more.
    """

    def __init__(self, items: Iterator[Item], depth: int) -> None:
        self._queue: queue.Queue[Item | _Failure | _End] = queue.Queue(depth)
        self._closed = threading.Event()
        # It ends with the program, whatever it waits for.
        self._thread = threading.Thread(
            target=self._make, args=(items,), name="rows-ahead", daemon=True
        )
        self._thread.start()

    def next(self) -> Item:
        """Return the next item, once it is there.

        Raises:
            StopIteration: there are no more.
            BaseException: what the iterator raised, in its place.
        """
        item = self._queue.get()
        if isinstance(item, _End):
            self._queue.put(item)
            raise StopIteration
        if isinstance(item, _Failure):
            self._queue.put(item)
            raise item.error
        return item

    def close(self) -> None:
        """End the thread, and wait for that: what it reads with is nobody's then."""
        self._closed.set()
        self._thread.join()

    def _make(self, items: Iterator[Item]) -> None:
        try:
            for item in items:
                if not self._put(item):
                    return
        except BaseException as error:
            self._put(_Failure(error))
            return
        self._put(_End())

    def _put(self, item: Item | _Failure | _End) -> bool:
        """Put an item into the queue; return False where nobody needs it any more."""
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=_LOOK_SECONDS)
            except queue.Full:
                continue
            return True
        return False
