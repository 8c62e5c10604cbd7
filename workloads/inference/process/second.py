"""A second version beside the one that serves, as the master has it: as a shadow, which gets
copies of requests, or as an experiment's candidate, which answers a share of them."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from prometheus_client.core import Metric

from falaj.workloads.inference.drift.labels import Labels, Memory
from falaj.workloads.inference.experiment.labels import ArmLabels
from falaj.workloads.inference.experiment.standing import Experiment
from falaj.workloads.inference.metrics import Totals
from falaj.workloads.inference.process import channel
from falaj.workloads.inference.process.companion import Companion, Means, Process
from falaj.workloads.inference.process.handles import Generation, WorkerHandle
from falaj.workloads.inference.process.pointer import Pointer
from falaj.workloads.inference.process.roles import CANDIDATE, SHADOW
from falaj.workloads.inference.settings import Settings
from falaj.workloads.inference.shadow.standing import Shadow

COUNTS_SECONDS = 2.0
"""After which new counts of a second version are written into the state."""


class CompanionProcess(WorkerHandle):
    """The process of a second version: a worker that is never told to accept."""

    def __init__(
        self,
        of: Settings,
        version: int,
        companion: Companion,
        *,
        role: str,
        listener: socket.socket,
        path: Path,
        over: Callable[[int], None],
    ) -> None:
        super().__init__(
            of.model, version, lambda _, kind, payload: companion.heard(self, kind, payload),
            lambda _: self._over(companion, over),
        )  # fmt: skip
        self._of = of
        self._role = role
        self._listener = listener
        self._path = path

    def _over(self, companion: Companion, over: Callable[[int], None]) -> None:
        over(self.pid)
        companion.ended(self)

    async def begin(self) -> bool:
        """Start it, and tell whether it became ready."""
        await self.start(self._listener, str(self._path), self._of.content, self._role)
        return await self.reach("ready", seconds=self._of.limits.load_seconds)


class SecondVersions:
    """The shadow and the experiment of a service.

    Args:
        path: `service.json`.
        totals: takes what a candidate counts.
        spawn: runs a coroutine beside.
        event: writes a line of the audit log.
    """

    def __init__(
        self,
        path: Path,
        totals: Totals,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        event: Callable[..., None],
    ) -> None:
        self._path = path
        self._totals = totals
        self._served: Generation | None = None
        self._pointer = Pointer(None)
        self._shadow = Shadow(Means(partial(self._process, SHADOW), spawn, event))
        self._experiment = Experiment(Means(partial(self._process, CANDIDATE), spawn, event))
        self._experiment.counted = self._counted
        self._seldom = {word: Seldom() for word in (SHADOW, CANDIDATE)}

    def _process(
        self, role: str, of: Settings, version: int, companion: Companion
    ) -> CompanionProcess:
        assert self._served is not None  # noqa: S101 - it is beside what serves
        return CompanionProcess(
            of, version, companion, role=role, listener=self._served.listener, path=self._path,
            over=self._totals.ended,
        )  # fmt: skip

    def _counted(self, process: Process, payload: bytes) -> None:
        """Count what a candidate answered as of its version."""
        assert isinstance(process, CompanionProcess)  # noqa: S101 - made by _process
        self._totals.update(process.pid, process.version, orjson.loads(payload), process.model)

    @property
    def labels(self) -> ArmLabels | None:
        """What labels say of both versions of an experiment; None: nobody watches them."""
        return self._experiment.labels

    def follow(self, served: Generation, labels: Labels | None, memory: Memory) -> None:
        """Have the second version that the settings and its alias ask for, and tell workers.

        Args:
            served: what serves.
            labels: of the version that serves; None: drift isn't watched.
            memory: what was answered.
        """
        self._served = served
        version, asked = None, served.settings.shadow or served.settings.experiment
        if asked is not None:
            version = self._pointer.optional(served.settings, asked.alias)
        self._experiment.signature = served.signature
        for each in (self._shadow, self._experiment):
            each.follow(served.settings, served.version, version)
        self._experiment.watch(labels, memory)
        for worker in served.workers:
            # Who is about to accept is told before: of two workers, none may know less.
            if worker.state in ("ready", "serving"):
                self.tell(worker)

    def tell(self, worker: WorkerHandle) -> None:
        """Tell a worker how both are, where it doesn't know."""
        share = self._shadow.share
        if worker.share != share:
            worker.share = share
            worker.tell(channel.SHADOW_SHARE, orjson.dumps(share))
        stands = self._experiment.stands(worker, worker.model, worker.version)
        if worker.stands != stands:
            worker.stands = stands
            worker.tell(channel.EXPERIMENT_STANDS, orjson.dumps(stands))

    def gone(self, worker: WorkerHandle) -> None:
        """Wait for nothing of a worker that has ended."""
        self._experiment.gone(worker)

    def take(self, worker: WorkerHandle, kind: int, payload: bytes) -> bool:
        """Take what a worker says of a second version, and tell whether it was that."""
        match kind:
            case channel.SHADOW_COPY:
                self._shadow.take(worker.model, worker.version, payload)
            case channel.SHADOW_MISSED:
                self._shadow.missed(worker.model, worker.version, int(orjson.loads(payload)))
            case channel.EXPERIMENT_ASK:
                self._experiment.take(worker, payload)
            case channel.EXPERIMENT_COUNTED:
                self._experiment.told(worker, worker.model, worker.version, payload)
            case _:
                return False
        return True

    def metrics(self) -> Iterator[Metric]:
        """Yield the families of Prometheus."""
        yield from self._shadow.metrics()
        yield from self._experiment.metrics()

    def facts(self) -> dict[str, dict[str, Any] | None]:
        """Return what is true of each, as `state.json` has it."""
        return {
            "shadow": self._seldom[SHADOW].of(self._shadow.facts()),
            "experiment": self._seldom[CANDIDATE].of(self._experiment.facts()),
        }

    def close(self) -> None:
        """End them."""
        self._shadow.close()
        self._experiment.close()


class Seldom:
    """What is true of a second version; its counts no more often than a disk should be written."""

    def __init__(self) -> None:
        self._told: dict[str, Any] | None = None
        self._written = 0.0

    def of(self, facts: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return what is to be written: facts, or those from before where only counts differ."""
        before, now = self._told, time.monotonic()
        steady = ("version", "state", "error", "pid")
        if (
            facts is not None
            and before is not None
            and all(facts[each] == before[each] for each in steady)
            and now - self._written < COUNTS_SECONDS
        ):
            return before
        self._told, self._written = facts, now
        return facts
