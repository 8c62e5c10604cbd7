"""The process of a second version beside the one that serves: when there is one, and for how long.

It is whatever an alias of the registry stands for. One that can't be started, ends or hangs is
started anew, ever more slowly, and what serves goes on.
"""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

from falaj.workloads.inference.settings import Settings

STALL_SECONDS: Final = 60.0
"""After which a process that has ended nothing of what it was given is ended itself."""
_MOST_PAUSE: Final = 60.0


class Process(Protocol):
    """A worker that accepts nothing."""

    state: str
    error: str | None
    pid: int
    engine: str | None
    signature: Mapping[str, Any]
    manifest: Mapping[str, Any]

    async def begin(self) -> bool:
        """Start it, and tell whether it became ready."""
        ...

    def tell(self, kind: int, payload: bytes) -> None:
        """Send it a message."""

    def kill(self) -> None:
        """End it at once."""


Make = Callable[[Settings, int, "Companion"], Process]


@dataclass(frozen=True)
class Means:
    """What a second version is kept with.

    Attributes:
        make: makes a process of settings and a version, whose messages and end come to
            `Companion.heard` and `Companion.ended`.
        spawn: runs a coroutine beside.
        event: writes a line of the audit log.
        clock: seconds that only grow.
    """

    make: Make
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    event: Callable[..., None]
    clock: Callable[[], float] = time.monotonic


class Companion(ABC):
    """A second version, of which a process is kept."""

    word: ClassVar[str]
    """What events are named after."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._settings: Settings | None = None
        self._pair: tuple[str, int, int] | None = None
        """The model, the version that serves, and the second one."""
        self._process: Process | None = None
        self._was_ready = False
        self._error: str | None = None
        self._again = 0.0
        self._pause = 1.0
        self._moved = 0.0
        self._began = 0.0
        self._counts: dict[str, Any] = {}
        """What came of what it was given, since it is the second version."""
        self._why: dict[str, str] = {}
        """The last reason, by what it is one of."""

    # -- what is made of it -----------------------------------------------------------------

    @abstractmethod
    def is_wanted(self, settings: Settings) -> bool:
        """Tell whether a service's settings ask for it."""

    @abstractmethod
    def heard(self, process: Process, kind: int, payload: bytes) -> None:
        """Take a message of its process."""

    @property
    @abstractmethod
    def _is_waited_for(self) -> bool:
        """Whether it was given something that it hasn't ended."""

    @abstractmethod
    def _lost(self, why: str | None) -> None:
        """Count what it was given and won't end; ``why`` it is to blame, where it is."""

    @abstractmethod
    def _figures(self) -> dict[str, Any]:
        """Return what came of it until now."""

    def _may_end(self) -> bool:
        """Whether nobody uses it any more; asked while it is to be another one, or none."""
        return True

    def _forget(self) -> None:
        """Begin to count anew."""
        self._counts, self._why = {}, {}

    def _refusal(self, process: Process) -> str | None:
        """Return why a process that is ready can't be used; None: it can."""
        del process
        return None

    # -- which ------------------------------------------------------------------------------

    def follow(self, settings: Settings, served: int, version: int | None) -> None:
        """Look at what it is to be; call it regularly.

        Args:
            settings: of the service.
            served: the version that serves.
            version: the second one; None, or the one that serves: there is none.
        """
        pair = None
        if self.is_wanted(settings) and version is not None and version != served:
            pair = (settings.model, served, version)
        now = self._means.clock()
        if pair != self._pair:
            if self._may_end():
                self._change(pair)
            else:
                pair = self._pair
        changed = self._settings is not None and self._settings.digest != settings.digest
        if changed:
            # Its limits may be others, and with them what was refused.
            self._end()
            self._again = 0.0
        self._settings = settings
        if (
            self._process is not None
            and self._is_waited_for
            and now - self._moved > STALL_SECONDS
        ):  # fmt: skip
            self._error = (
                f"it ended nothing that it was given for {STALL_SECONDS:.0f} s, and is started "
                "anew"
            )
            self._end(self._error)
            self._wait(now)
        if pair is not None and self._process is None and now >= self._again:
            self._process, self._was_ready = self._means.make(settings, pair[2], self), False
            self._means.spawn(self._start(self._process))

    def _change(self, pair: tuple[str, int, int] | None) -> None:
        self._end()
        if self._pair is not None:
            self._means.event(
                f"{self.word}.ended", version=self._pair[2], served=self._pair[1],
                **self._figures(),
            )  # fmt: skip
        self._pair, self._error, self._again, self._pause = pair, None, 0.0, 1.0
        self._forget()
        self._began = time.time()
        if pair is not None:
            self._means.event(f"{self.word}.begun", version=pair[2], served=pair[1])

    async def _start(self, process: Process) -> None:
        ready = await process.begin()
        if process is not self._process:
            process.kill()
            return
        refusal = self._refusal(process) if ready else None
        if ready and refusal is None:
            self._was_ready, self._error = True, None
            return
        problem = refusal or process.error or "it could not be started"
        if problem != self._error:
            version = self._pair[2] if self._pair is not None else None
            again = "" if refusal else "; trying again"
            print(f"error: the {self.word}: {problem}{again}", file=sys.stderr, flush=True)
            self._means.event(f"{self.word}.refused", version=version, reason=problem)
        self._error = problem
        self._end()
        if refusal is None:
            self._wait(self._means.clock())
        else:
            self._again = math.inf

    def _wait(self, now: float) -> None:
        self._again = now + self._pause
        self._pause = min(_MOST_PAUSE, 2 * self._pause)

    def _end(self, why: str | None = None) -> None:
        process, self._process = self._process, None
        self._lost(why)
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End it."""
        if self._pair is not None:
            self._change(None)

    def ended(self, process: Process) -> None:
        """Take note that a process ended; of one that wasn't asked to, what it was given may be
        to blame."""
        if process is not self._process or not self._was_ready:
            return
        self._process, self._error = None, "its process ended unasked, and is started anew"
        self._lost(self._error)
        self._means.event(
            f"{self.word}.process_ended", version=self._pair[2] if self._pair else None
        )
        self._wait(self._means.clock())

    # -- how it is --------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether it takes what it is given."""
        return self._process is not None and self._was_ready and self._process.state == "ready"

    def _begin_waiting(self) -> None:
        """Note when it was given something, where it had nothing."""
        if not self._is_waited_for:
            self._moved = self._means.clock()

    def _ended_one(self) -> None:
        """Note that it works."""
        self._moved, self._pause = self._means.clock(), 1.0

    def _standing(self) -> dict[str, Any]:
        """Return how it is, as `state.json` has it."""
        process = self._process
        return {
            "version": self._pair[2] if self._pair is not None else None,
            "state": "failed" if process is None and self._error else (
                "ready" if self.is_ready else "starting"
            ),
            "since": self._began,
            "pid": process.pid if process is not None else None,
            "engine": process.engine if process is not None else None,
            "error": self._error,
        }  # fmt: skip
