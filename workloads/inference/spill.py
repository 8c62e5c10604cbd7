"""When a request goes to another tier, and when that tier is left alone for a while."""

from __future__ import annotations

import time

from falaj.workloads.inference.remote import Remote

FAILURES = 3
"""In a row, before the other tier is left alone."""
PAUSE_SECONDS = 5.0
MARK = b"falaj-spilled"
"""Header of a request that came from another tier: it isn't passed on again."""


class Breaker:
    """Closed while calls succeed; open for a time after failures in a row; then one call tries."""

    def __init__(self, failures: int = FAILURES, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._most = failures
        self._pause = pause_seconds
        self._failed = 0
        self._until = 0.0
        self._trying = False

    @property
    def is_open(self) -> bool:
        """Whether calls are held back."""
        return self._failed >= self._most

    def allows(self) -> bool:
        """Tell whether a call may be made now; one that may has to be told of its end."""
        if not self.is_open:
            return True
        if self._trying or time.monotonic() < self._until:
            return False
        self._trying = True
        return True

    def succeeded(self) -> None:
        """A call was answered."""
        self._failed = 0
        self._trying = False

    def failed(self) -> None:
        """A call was not."""
        self._failed += 1
        self._trying = False
        if self.is_open:
            self._until = time.monotonic() + self._pause

    def given_up(self) -> None:
        """A call ended without saying anything about the other tier."""
        self._trying = False


class Spill:
    """Where to, and from which expected time in the queue."""

    def __init__(self, remote: Remote, above_seconds: float) -> None:
        self.remote = remote
        self.above_seconds = above_seconds
        self.breaker = Breaker()
        # What the answer says of who made it: the name in the certificate, without the port.
        host = remote.url.removeprefix("https://").rpartition(":")[0]
        self.header = b"Falaj-Served-By: " + host.encode()

        self._out = 0

    def take(self) -> bool:
        """Take one of the calls that may be out, if the other tier may be asked now."""
        if self._out >= self.remote.connections or not self.breaker.allows():
            return False
        self._out += 1
        return True

    def give_back(self) -> None:
        """End a call that was taken."""
        self._out -= 1
