"""Further models of a worker, beside the first one that the service is there for.

Each has a registry, keys and an alias of its own, and is verified and opened as the first is.
What goes wrong with one stays with it: it can't be asked, the index says why, and all others
answer. All share the worker's connections, callers and threads; a queue and counts each has of its
own.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference import settings
from falaj.workloads.inference.connections.http import Answer, Exchange
from falaj.workloads.inference.drift import reference
from falaj.workloads.inference.errors import InferenceError, body_too_large
from falaj.workloads.inference.language import generation as language
from falaj.workloads.inference.metrics import NO_VERSION, Counters
from falaj.workloads.inference.model_service import ModelService, Watched
from falaj.workloads.inference.models import batching, memory
from falaj.workloads.inference.models import model as models
from falaj.workloads.inference.models.model import Model
from falaj.workloads.inference.protocol import routes
from falaj.workloads.inference.service import Further
from falaj.workloads.inference.settings import Settings
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.package import Package
from falaj.workloads.registry.store import Store

_LONGEST: Final = 500
"""Characters of a reason."""


class FurtherService(ModelService):
    """A further model that can be asked.

    The worker's own service has the connections, and calls this one with what is admitted.
    """

    size: int
    """Bytes of the model's graph."""
    memory: int
    """Bytes that it takes of a worker, by `falaj.workloads.inference.models.memory`."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.manifest: Mapping[str, Any] = {}
        """What its package says that drift is judged by; of one that isn't watched, nothing."""
        self.version: int | None = int(self.model.version)
        self.asked: dict[str, int] = {}
        self.error: str | None = None
        """Why another version than the one that was asked for is served."""

    def handle(self, exchange: Exchange) -> Answer | Awaitable[Answer]:
        """Answer an admitted request; as `ModelService.handle`.

        Raises:
            RequestError: the request is refused; 413, it is larger than this model takes.
        """
        if exchange.received > self.limits.max_body_bytes:
            raise body_too_large(self.limits.max_body_bytes)
        return super().handle(exchange)


class Absent:
    """A further model that can't be asked.

    Args:
        name: of the model.
        reason: why it can't.
    """

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.version: int | None = None
        self.size = self.memory = 0
        self.manifest: Mapping[str, Any] = {}
        self.error = reason[:_LONGEST]
        self.counters = Counters()
        self.watched = None
        self.asked: dict[str, int] = {}
        self.jobs: Callable[[Exchange], Awaitable[Answer]] | None = None
        """Answers about jobs that it had; None: none are taken here."""

    def handle(self, exchange: Exchange) -> Awaitable[Answer]:
        """Answer about a job, which needs no model.

        Raises:
            RequestError: 503, what is asked needs the model.
        """
        asked = exchange.route.name if exchange.route is not None else None
        if self.jobs is not None and asked in (routes.JOB, routes.JOB_RESULT):
            return self.jobs(exchange)
        raise routes.absent(self.name)

    def not_inferred(self, status: int, seconds: float) -> None:
        """Count an inference that wasn't answered."""
        self.counters.responded(routes.INFER, status)
        self.counters.not_inferred(seconds)

    def index(self, only_ready: bool) -> list[dict[str, str]]:
        """Return what the repository's index says of it: why it isn't there."""
        found = {"name": self.name, "state": "UNAVAILABLE", "reason": self.error}
        return [] if only_ready else [found]

    async def statistics(self) -> list[Any]:
        """Return what the statistics say of it: nothing."""
        return []


def load(
    configuration: Settings,
    wanted: Mapping[str, Mapping[str, Any]],
    *,
    pool: ThreadPoolExecutor,
    threads: int,
    streams: int,
    statistics: Callable[[str], Awaitable[bytes]],
    watch: Callable[[str, Package, Model], Watched],
) -> dict[str, FurtherService | Absent]:
    """Load all further models of a worker, as far as they can be.

    Args:
        configuration: of the service.
        wanted: by name, the ``version`` that its alias stands for, the one that was served
            ``before``, which serves on where the other can't be, and the ``error`` of finding
            out; each None where there is none.
        pool: of the worker, where all its models run.
        threads: of it.
        streams: runs at once that there are threads for.
        statistics: what is counted of a model across workers, by its name.
        watch: has a model's rows counted, by its name, and what its package says of them.
    """
    found: dict[str, FurtherService | Absent] = {}
    wishes = [_Wish(configuration, name, wanted.get(name, {})) for name in configuration.models]
    room = memory.room_of(configuration)
    allowed = memory.admitted({each.name: each.needs for each in wishes}, room)
    left = room - sum(allowed.values())
    for wish in wishes:
        name, error = wish.name, wish.error
        made: FurtherService | None = None
        for version, bytes_ in wish.takes.items():
            if bytes_ > allowed[name]:
                error = error or _no_room(
                    version, bytes_, left + allowed[name], room, configuration.workers
                )
                continue
            try:
                made = _opened(
                    settings.of_further(configuration, name), version, streams, watch,
                    pool=pool, threads=threads, statistics=partial(statistics, name),
                )  # fmt: skip
                made.memory = bytes_
                break
            except WorkloadError as problem:
                error = error or str(problem)
            except Exception as problem:  # a fault of one model must not take the others down
                traceback.print_exc()
                error = error or f"version {version} could not be loaded: {problem!r}"
        if made is None:
            reason = error or "its alias stands for no version"
            found[name] = Absent(name, reason)
        else:
            made.error = error[:_LONGEST] if error is not None else None
            found[name] = made
    return found


class _Wish:
    """What is wanted of a further model, and what it would take.

    The graphs that this reads aren't kept until they are loaded: all of them at once would take
    the memory that is bounded.

    Args:
        configuration: of the service.
        name: of the model.
        asked: as `load` is told.
    """

    def __init__(self, configuration: Settings, name: str, asked: Mapping[str, Any]) -> None:
        self.name = name
        self.error: str | None = asked.get("error")
        self.takes: dict[int, int] = {}
        """Bytes of each version whose package can be opened, the one that is asked for first."""
        own = settings.of_further(configuration, name)
        first, before = asked.get("version"), asked.get("before")
        for version in [each for each in dict.fromkeys((first, before)) if each is not None]:
            try:
                self.takes[version] = memory.estimate(
                    _package(own, version).read(models.MODEL_FILE)
                )
            except WorkloadError as problem:
                self.error = self.error or str(problem)
            except Exception as problem:  # as of `load`
                traceback.print_exc()
                self.error = self.error or f"version {version} could not be read: {problem!r}"
        self.needs = self._need(first), self._need(before)

    def _need(self, version: int | None) -> int | None:
        return self.takes.get(version) if version is not None else None


def _no_room(version: int, bytes_: int, left: int, room: int, workers: int) -> str:
    def mib(each: int) -> str:
        return f"{each / 2**20:,.1f} MiB"

    return (
        f"version {version} would take about {mib(bytes_)} of each worker, where further models "
        f"may take {mib(room)}, of which {mib(left)} are left for it: have the server permit "
        f"more (modelsMemoryBytes, for all {workers} workers together), give it fewer workers, or "
        "serve this model by a stack of its own"
    )


def _package(own: Settings, version: int) -> Package:
    keyring = KeyRing.open(own.keyring)
    return Store(own.registry).load(own.model, version, keyring, keyring.verify_key())


def _opened(
    own: Settings,
    version: int,
    streams: int,
    watch: Callable[[str, Package, Model], Watched],
    **given: Any,
) -> FurtherService:
    """Verify, open and warm up one version.

    Raises:
        WorkloadError: its package isn't as it was signed, or can't be served here.
    """
    package = _package(own, version)
    content = package.read(models.MODEL_FILE)
    loaded: Model = models.load(
        content, manifest=package.manifest, name=own.model, version=str(version),
        threads=own.threads, limits=own.limits, streams=streams,
    )  # fmt: skip
    if language.read(package.manifest, loaded.schema, content, loaded.cache) is not None:
        raise InferenceError(
            f"version {version} of {own.model} is a language model, which has a server of its own "
            "as the first model: leave it out of models"
        )
    plan = None
    if own.batching:
        plan = batching.plan(loaded)
        print(f"batching of {own.model} is {plan.reason}", file=sys.stderr, flush=True)
    watched = watch(own.model, package, loaded) if own.drift.enabled else None
    made = FurtherService(own, model=loaded, batching=plan, watched=watched, **given)
    if watched is not None:
        made.manifest = reference.part_of(package.manifest)
    made.size = len(content)
    return made


def versions_of(further: Mapping[str, FurtherService | Absent]) -> dict[str, str | None]:
    """Return which versions can be asked, as a `routes.Router` takes them."""
    return {
        name: str(each.version) if each.version is not None else None
        for name, each in further.items()
    }


def report_of(further: Mapping[str, FurtherService | Absent]) -> dict[str, dict[str, Any]]:
    """Return what the master is told of each once it is loaded, or isn't."""
    return {
        name: {
            "version": each.version,
            "error": each.error,
            "bytes": each.size,
            "memory_bytes": each.memory,
            "manifest": each.manifest,
        }
        for name, each in further.items()
    }


def counts_of(further: Mapping[str, Further]) -> dict[str, dict[str, Any]]:
    """Return the counts of each since the worker's start, with its version."""
    return {
        name: {
            "version": each.version if each.version is not None else NO_VERSION,
            "counts": each.counters.snapshot(),
        }
        for name, each in further.items()
    }


def callers_of(further: Mapping[str, Further]) -> dict[str, dict[str, Any]]:
    """Return, and forget, who asked each since the last time, for the audit."""
    found: dict[str, dict[str, Any]] = {}
    for name, each in further.items():
        if each.asked:
            found[name] = {"version": each.version, "callers": each.asked}
            each.asked = {}
    return found
