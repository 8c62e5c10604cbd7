"""Doing something again that may succeed in a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from falaj.sandbox.cluster.connection import Connection
from falaj.sandbox.cluster.errors import ApiError, CancelledError

Result = TypeVar("Result")

# How long a kind, a namespace or a webhook may take to be there after its resource is ready.
_APPEAR_SECONDS: Final = 30.0
_SHORTEST, _LONGEST = 0.05, 1.0


def retried(connection: Connection, work: Callable[[], Result], missing: bool = False) -> Result:
    """Do something again while that may help: a webhook that starts, an overload.

    Args:
        missing: also while something isn't there yet, such as a namespace in another process.
    """
    pauses = Pauses(connection.cancelled, _APPEAR_SECONDS)
    while True:
        try:
            return work()
        except ApiError as error:
            passing = error.is_passing or (missing and error.is_missing)
            if not passing or not pauses.wait():
                raise


class Pauses:
    """Pauses that grow, until the time is up."""

    def __init__(self, cancelled: threading.Event, seconds: float) -> None:
        self._cancelled = cancelled
        self._deadline = time.monotonic() + seconds
        self._pause = _SHORTEST

    def wait(self) -> bool:
        """Pause; False when the time is up. Raises CancelledError when the engine stops."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            return False
        if self._cancelled.wait(min(self._pause, left)):
            raise CancelledError("cancelled: the engine was told to stop")
        self._pause = min(self._pause * 1.5, _LONGEST)
        return True
