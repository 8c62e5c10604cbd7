"""The shadow as the master has it: its process, what it may be given, and what came of it."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Protocol

import orjson
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from falaj.workloads.inference.metrics import BOUNDS, add, cumulated
from falaj.workloads.inference.process import channel
from falaj.workloads.inference.settings import Settings

MOST_WAITING: Final = 64
"""Copies that the shadow's process may have before further ones are dropped."""
MOST_WAITING_BYTES: Final = 16 * 1024 * 1024
STALL_SECONDS: Final = 60.0
"""After which a process that has ended none of its copies is ended itself."""
_MOST_PAUSE: Final = 60.0
_MOST_OUTPUTS: Final = 50
"""That have series of their own."""
OUTCOMES: Final = ("compared", "failed", "refused", "unlike", "dropped")
"""Of copies: compared; the model failed; the request isn't one that this version takes; the
answers can't be compared; there was no room."""


class Process(Protocol):
    """A worker that accepts nothing."""

    state: str
    error: str | None
    pid: int
    engine: str | None

    async def begin(self) -> bool:
        """Start it, and tell whether it became ready."""
        ...

    def tell(self, kind: int, payload: bytes) -> None:
        """Send it a message."""

    def kill(self) -> None:
        """End it at once."""


Make = Callable[[Settings, int, "Shadow"], Process]


class Shadow:
    """The version that gets copies of requests.

    Args:
        make: makes a process of settings and a version, whose messages and end come to `done` and
            `ended`.
        spawn: runs a coroutine beside.
        event: writes a line of the audit log.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        make: Make,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        event: Callable[..., None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._spawn = spawn
        self._event = event
        self._clock = clock
        self._settings: Settings | None = None
        self._pair: tuple[str, int, int] | None = None
        """The model, the version that serves, and the shadow's."""
        self._process: Process | None = None
        self._was_ready = False
        self._error: str | None = None
        self._again = 0.0
        self._pause = 1.0
        self._given: deque[int] = deque()
        self._moved = 0.0
        self._why: dict[str, str] = {}
        self._counts: dict[str, Any] = {}
        self._began = 0.0

    # -- which ------------------------------------------------------------------------------

    def follow(self, settings: Settings, served: int, version: int | None) -> None:
        """Look at what is to be the shadow; call it regularly.

        Args:
            settings: of the service.
            served: the version that serves.
            version: the one that is to get copies; None, or the one that serves: none is.
        """
        wanted = settings if settings.shadow is not None else None
        pair = None
        if wanted is not None and version is not None and version != served:
            pair = (settings.model, served, version)
        now = self._clock()
        if pair != self._pair:
            self._change(pair)
        changed = self._settings is not None and self._settings.digest != settings.digest
        if self._process is not None and changed:
            # Its limits may be others.
            self._end()
        self._settings = settings
        if self._process is not None and self._given and now - self._moved > STALL_SECONDS:
            self._error = (
                f"it ended none of its copies for {STALL_SECONDS:.0f} s, and is started anew"
            )
            self._count("failed", self._error)
            self._end()
            self._wait(now)
        if pair is not None and self._process is None and now >= self._again:
            self._process, self._was_ready = self._make(settings, pair[2], self), False
            self._spawn(self._start(self._process))

    def _change(self, pair: tuple[str, int, int] | None) -> None:
        self._end()
        if self._pair is not None:
            self._event(
                "shadow.ended", version=self._pair[2], served=self._pair[1], **self._figures()
            )
        self._pair, self._error, self._again, self._pause = pair, None, 0.0, 1.0
        self._counts, self._why = {}, {}
        self._began = time.time()
        if pair is not None:
            self._event("shadow.begun", version=pair[2], served=pair[1])

    async def _start(self, process: Process) -> None:
        ready = await process.begin()
        if process is not self._process:
            process.kill()
            return
        if ready:
            self._was_ready, self._error = True, None
            return
        problem = process.error or "it could not be started"
        if problem != self._error:
            version = self._pair[2] if self._pair is not None else None
            print(f"error: the shadow: {problem}; trying again", file=sys.stderr, flush=True)
            self._event("shadow.refused", version=version, reason=problem)
        self._error = problem
        self._end()
        self._wait(self._clock())

    def _wait(self, now: float) -> None:
        self._again = now + self._pause
        self._pause = min(_MOST_PAUSE, 2 * self._pause)

    def _end(self) -> None:
        process, self._process = self._process, None
        self._count("dropped", None, len(self._given))
        self._given.clear()
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End it."""
        if self._pair is not None:
            self._change(None)

    def ended(self, process: Process) -> None:
        """Take note that a process ended; of one that wasn't asked to, a copy may be to blame."""
        if process is not self._process or not self._was_ready:
            return
        self._process, self._error = None, "its process ended unasked, and is started anew"
        if self._given:
            self._given.popleft()
            self._count("failed", self._error)
        self._count("dropped", None, len(self._given))
        self._given.clear()
        self._event("shadow.process_ended", version=self._pair[2] if self._pair else None)
        self._wait(self._clock())

    # -- copies ------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether it takes copies."""
        return self._process is not None and self._process.state == "ready"

    @property
    def share(self) -> float:
        """Of requests that workers are to copy now, from 0 to 1."""
        settings = self._settings
        if settings is None or settings.shadow is None or not self.is_ready:
            return 0.0
        return settings.shadow.percent / 100

    def take(self, model: str, version: int, copy: bytes) -> None:
        """Give it a copy that a worker of this model and version made."""
        if self._pair is None or (model, version) != self._pair[:2]:
            return
        process = self._process
        if process is None or process.state != "ready" or not self._fits(len(copy)):
            self._count("dropped")
            return
        if not self._given:
            self._moved = self._clock()
        self._given.append(len(copy))
        process.tell(channel.SHADOW_RUN, copy)

    def _fits(self, size: int) -> bool:
        given = self._given
        return len(given) < MOST_WAITING and sum(given) + size <= MOST_WAITING_BYTES

    def missed(self, model: str, version: int, count: int) -> None:
        """Count copies that a worker had no room for."""
        if self._pair is not None and (model, version) == self._pair[:2]:
            self._count("dropped", None, count)

    def done(self, process: Process, payload: bytes) -> None:
        """Take what a copy came to."""
        if process is not self._process or not self._given:
            return
        self._given.popleft()
        self._moved = self._clock()
        # It works.
        self._pause = 1.0
        found = orjson.loads(payload)
        why = found.pop("why", None)
        (outcome,) = found["requests"]
        if why is not None:
            self._why[outcome] = str(why)
        add(self._counts, found)

    def _count(self, outcome: str, why: str | None = None, count: int = 1) -> None:
        if count and self._pair is not None:
            add(self._counts, {"requests": {outcome: count}})
            if why is not None:
                self._why[outcome] = why

    # -- telling -------------------------------------------------------------------------------

    def _figures(self) -> dict[str, Any]:
        counts = self._counts
        requests = counts.get("requests", {})
        rows = counts.get("rows", 0)
        ran = sum(counts.get("run", ()))
        outputs = {
            name: {
                "agreement": counts["output_agreed"][name] / count,
                **(
                    {"mean_difference": counts["output_difference"][name] / count}
                    if name in counts.get("output_difference", {})
                    else {}
                ),
            }
            for name, count in counts.get("output_rows", {}).items()
            if count
        }
        return {
            "requests": {each: requests.get(each, 0) for each in OUTCOMES},
            "rows": rows,
            "agreement": counts.get("agreed", 0) / rows if rows else None,
            "outputs": outputs,
            "mean_run_seconds": counts["run_seconds"] / ran if ran else None,
        }

    def facts(self) -> dict[str, Any] | None:
        """Return what is true of it, as `state.json` has it; None where there is none."""
        if self._pair is None or self._settings is None or self._settings.shadow is None:
            return None
        process = self._process
        return {
            "version": self._pair[2],
            "state": "failed" if process is None and self._error else (
                "ready" if self.is_ready else "starting"
            ),
            "percent": self._settings.shadow.percent,
            "since": self._began,
            "pid": process.pid if process is not None else None,
            "engine": process.engine if process is not None else None,
            "error": self._error,
            **self._figures(),
            "why": dict(self._why),
        }  # fmt: skip

    def metrics(self) -> Iterable[Metric]:
        """Yield the families of Prometheus; none without a shadow."""
        if self._pair is None:
            return
        model, _, version = self._pair
        of, labels, counts = (model, str(version)), ("model", "version"), self._counts
        ready = GaugeMetricFamily(
            "falaj_shadow_ready", "1 where the shadow takes copies of requests.", labels=labels
        )
        ready.add_metric(of, float(self.is_ready))
        yield ready
        requests = CounterMetricFamily(
            "falaj_shadow_requests", "Copies of requests by what they came to.",
            labels=(*labels, "outcome"),
        )  # fmt: skip
        for outcome in OUTCOMES:
            requests.add_metric((*of, outcome), counts.get("requests", {}).get(outcome, 0))
        yield requests
        for name, key, words in (
            ("falaj_shadow_rows", "rows", "Rows that both versions answered."),
            ("falaj_shadow_rows_agreed", "agreed", "Rows of which all outputs agree."),
        ):
            family = CounterMetricFamily(name, words, labels=labels)
            family.add_metric(of, counts.get(key, 0))
            yield family
        outputs = CounterMetricFamily(
            "falaj_shadow_output_rows_agreed", "Rows of which an output agrees.",
            labels=(*labels, "output"),
        )  # fmt: skip
        for name, count in [*counts.get("output_agreed", {}).items()][:_MOST_OUTPUTS]:
            outputs.add_metric((*of, name), count)
        yield outputs
        run = HistogramMetricFamily(
            "falaj_shadow_run_duration_seconds", "Time of the shadow's run alone.", labels=labels
        )
        inside = counts.get("run") or [0] * (len(BOUNDS) + 1)
        run.add_metric(of, cumulated(inside), counts.get("run_seconds", 0.0))
        yield run
