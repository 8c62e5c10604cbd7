"""Drift of the models that the master's workers serve: what they count of each, kept and told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson
from prometheus_client.core import Metric

from falaj.workloads.inference.drift import reference, windows
from falaj.workloads.inference.drift.labels import Labels, Memory
from falaj.workloads.inference.drift.state import KEEP_SECONDS, DriftState, forget_others
from falaj.workloads.inference.drift.windows import Drift
from falaj.workloads.inference.experiment.labels import ArmLabels
from falaj.workloads.inference.process import channel
from falaj.workloads.inference.process.handles import Generation, WorkerHandle
from falaj.workloads.inference.settings import Settings, of_further


class WatchedModel:
    """Drift of one model, and what is kept of it.

    Args:
        event: writes a line of the audit log.
    """

    def __init__(self, event: Callable[..., None]) -> None:
        self.drift: Drift | None = None
        """Of the version that serves; None: it isn't watched."""
        self.memory = Memory()
        """What was answered."""
        self._event = event
        self._begun: tuple[Any, ...] = ()
        """What `drift` was begun with."""
        self._state: DriftState | None = None

    def follow(self, settings: Settings, version: int, manifest: Mapping[str, Any]) -> None:
        """Compare rows with what a package says, anew unless only other settings changed.

        Args:
            settings: of the model.
            version: that serves from now on.
            manifest: what its package says that drift is judged by.
        """
        begun = (settings.model, version, settings.drift, manifest)
        # Other settings may name another key ring.
        self._state = DriftState(settings, version, manifest, self._event)
        if self._begun == begun:
            return
        is_first = not self._begun
        if not is_first and self._begun[0] != begun[0]:
            # Versions are numbered by model: an id of the one before is none of this one's.
            self.memory = Memory()
        self._begun = begun
        self.drift = Drift(
            settings.model, version, reference.read(manifest), settings.drift,
            memory=self.memory, event=self._event,
        ) if settings.drift.enabled else None  # fmt: skip
        if self.drift is None:
            self._state.forget()
        elif is_first:
            self._state.restore(self.drift)

    async def keep(self) -> None:
        """Write what has changed."""
        drift, state = self.drift, self._state
        if drift is not None and state is not None:
            await state.keep(drift)
            if self.drift is None:  # settings that end it came while it was written
                state.forget()

    def end(self) -> None:
        """Watch it no more; a write that is under way removes what it wrote."""
        self.drift = None


class WatchedModels:
    """Drift of the first model and of all further ones, each for itself.

    Args:
        event: writes a line of the audit log.
    """

    def __init__(self, event: Callable[..., None]) -> None:
        self._event = event
        self._first = WatchedModel(event)
        self._further: dict[str, WatchedModel] = {}
        self._kept = time.monotonic()

    @property
    def labels(self) -> Labels | None:
        """What labels say of the first model; None: it isn't watched."""
        return self._first.drift.labels if self._first.drift is not None else None

    @property
    def memory(self) -> Memory:
        """What was answered of the first model."""
        return self._first.memory

    def follow(
        self, generation: Generation, further: Mapping[str, tuple[int, Mapping[str, Any]]]
    ) -> None:
        """Compare rows with what the packages say that serve from now on.

        Args:
            generation: serves.
            further: the version of each further model that can be asked, and what its package
                says that drift is judged by.
        """
        wanted = generation.settings
        self._first.follow(wanted, generation.version, generation.workers[0].manifest)
        for name in [each for each in self._further if each not in wanted.models]:
            self._further.pop(name).end()
        forget_others(wanted)  # also of what a server before this one had
        for name, (version, manifest) in further.items():
            # Of one that can't be asked now, what was counted stays.
            watched = self._further.setdefault(name, WatchedModel(self._event))
            watched.follow(of_further(wanted, name), version, manifest)

    def take(
        self, worker: WorkerHandle, kind: int, payload: bytes, of_arms: ArmLabels | None
    ) -> None:
        """Take what a worker counted of a model, or asks about it.

        Args:
            worker: says it.
            kind: of its message.
            payload: of its message.
            of_arms: what labels say of both versions of an experiment with the first model; None:
                there is none.
        """
        asks = kind in (channel.DRIFT_REQUEST, channel.FEEDBACK)
        name, content = channel.named(payload[8:] if asks else payload)
        is_first = name == worker.model
        watched = self._first if is_first else self._further.get(name)
        drift = watched.drift if watched is not None else None
        if drift is None:
            return
        of_further = worker.further.get(name, {})
        version = worker.version if is_first else of_further.get("version")
        leaves = (name, version) != (drift.model, drift.version)
        if kind == channel.DRIFT_REQUEST:
            worker.answer(payload[:8], orjson.dumps(drift.report()))
        elif kind == channel.FEEDBACK:
            # A worker that leaves has read labels by its own version's classes.
            manifest = worker.manifest if is_first else of_further.get("manifest", {})
            by = reference.read(manifest).answers if leaves else None
            labels = of_arms if is_first and of_arms is not None else drift.labels
            worker.answer(payload[:8], orjson.dumps(labels.join(orjson.loads(content), by)))
            drift.tick(time.time())
        elif leaves:
            return
        elif kind == channel.ROWS_COUNTED:
            drift.take(orjson.loads(content))
        elif kind == channel.IDS_ANSWERED:
            drift.labels.remember(content, time.time())

    async def keep(self, *, now: bool = False) -> None:
        """Write what has changed, where `KEEP_SECONDS` have gone by since the last time.

        Args:
            now: write it in any case.
        """
        if not now and time.monotonic() - self._kept <= KEEP_SECONDS:
            return
        self._kept = time.monotonic()
        for each in (self._first, *self._further.values()):
            await each.keep()

    def metrics(self) -> Iterable[Metric]:
        """Yield the families of Prometheus."""
        every = (self._first, *self._further.values())
        found = [each.drift for each in every if each.drift is not None]
        return windows.metrics(found) if found else ()
