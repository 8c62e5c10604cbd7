"""A worker process: one version of the model behind the shared listening socket.

Started by the master with two inherited descriptors: the listening socket and its end of the
channel. The package is verified, decrypted and warmed up before the worker says that it is ready;
it never writes plaintext anywhere. When the channel ends, the master is gone and so goes this.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import uvloop

from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference import further, settings
from falaj.workloads.inference.auth import Authenticator
from falaj.workloads.inference.connections.connection import Connection
from falaj.workloads.inference.connections.listening import Listener, ServerContext, server_context
from falaj.workloads.inference.drift import reference
from falaj.workloads.inference.drift.counting import Counting
from falaj.workloads.inference.drift.labels import Sender
from falaj.workloads.inference.errors import InferenceError, RequestError, retry_after
from falaj.workloads.inference.experiment.runs import CandidateRuns
from falaj.workloads.inference.experiment.service import ExperimentService
from falaj.workloads.inference.further import Absent, FurtherService
from falaj.workloads.inference.jobs.runs import JobRuns
from falaj.workloads.inference.jobs.store import Bodies
from falaj.workloads.inference.language import generation as language
from falaj.workloads.inference.language.engine import Engine
from falaj.workloads.inference.language.generation import Language
from falaj.workloads.inference.model_service import Watched
from falaj.workloads.inference.models import batching, engine_by_rows, memory, model
from falaj.workloads.inference.models.model import Model
from falaj.workloads.inference.models.remote import (
    Overflow,
    RelayedModel,
    Remote,
    client_context,
    schema_of,
)
from falaj.workloads.inference.process import channel
from falaj.workloads.inference.process.channel import Channel
from falaj.workloads.inference.process.confinement import die_with_parent, forbid_dumps
from falaj.workloads.inference.process.roles import CANDIDATE, SHADOW
from falaj.workloads.inference.protocol.oip import Schema
from falaj.workloads.inference.rpc.front import Front
from falaj.workloads.inference.service import Service
from falaj.workloads.inference.settings import COMPLETIONS, Settings, UpstreamSettings
from falaj.workloads.inference.shadow.copies import Copies
from falaj.workloads.inference.shadow.runs import NICENESS, ShadowRuns
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.package import Package
from falaj.workloads.registry.store import Store

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available(quota: Path = _QUOTA) -> int:
    """Return the cores of the process's own set, or of its control group's quota if fewer.

    Threads beyond the quota are stopped together, in the middle of a run:
    https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
    """
    cores = len(os.sched_getaffinity(0))
    try:
        limit, period = quota.read_text().split()
        return max(1, min(cores, math.floor(int(limit) / int(period))))
    except (OSError, ValueError):  # no control group of version 2, or "max"
        return cores


def runs_at_once(configuration: Settings) -> int:
    """Return how many runs of a worker's model the cores are enough for."""
    return max(1, available() // (configuration.workers * configuration.threads))


WATCH_SECONDS = 1.0


@dataclass(frozen=True)
class Backends:
    """Who runs the model."""

    model: Model | RelayedModel
    language: Language | None
    upstream: Remote | None
    overflow: Overflow | None
    memory: int
    """Bytes that the model takes of this process, as it is estimated."""
    engine: Engine | None = None


def backends_of(configuration: Settings, package: Package) -> Backends:
    """Load the model, or prepare the calls to who runs it instead.

    With a runtime beside, the package isn't opened here: its signed manifest says what requests
    have to be. Beside an engine of texts it is, for the vocabulary in it.

    Raises:
        WorkloadError: the package, its model or a certificate can't be used.
    """
    name, version = package.model, str(package.version)
    limits = configuration.limits
    upstream = configuration.upstream
    if upstream is not None:
        schema = schema_of(name, version, package.manifest, limits)
        if upstream.protocol == COMPLETIONS:
            return _beside_engine(upstream, schema, package)
        remote = Remote(
            upstream.url,
            schema,
            timeout_seconds=upstream.timeout_seconds,
            connections=upstream.connections,
        )
        return Backends(RelayedModel(schema), None, remote, None, 0)
    content = package.read(model.MODEL_FILE)
    given: dict[str, Any] = {
        "name": name, "version": version, "threads": configuration.threads, "limits": limits,
        "streams": runs_at_once(configuration),
    }  # fmt: skip
    loaded = model.load(content, manifest=package.manifest, **given)
    if configuration.batching:
        loaded = engine_by_rows.fastest(loaded, content, package.manifest, **given)
    known = language.read(package.manifest, loaded.schema, content, loaded.cache)
    overflow, bytes_ = configuration.overflow, memory.estimate(content)
    if overflow is None:
        return Backends(loaded, known, None, None, bytes_)
    there = Remote(
        overflow.url,
        schema_of(name, str(overflow.version), package.manifest, limits),
        timeout_seconds=overflow.timeout_seconds,
        connections=overflow.connections,
        context=client_context(configuration.tls),
    )
    return Backends(loaded, known, None, Overflow(there, overflow.above_seconds), bytes_)


def _beside_engine(upstream: UpstreamSettings, schema: Schema, package: Package) -> Backends:
    """What the server keeps of a model whose texts an engine generates: its tokens."""
    found = language.read(package.manifest, schema, package.read(model.MODEL_FILE))
    if found is None:
        raise InferenceError(
            f"version {schema.version} of {schema.name} is no language model, and "
            f"upstream.protocol is '{COMPLETIONS}', by which no other one is run: leave it out"
        )
    context = upstream.context or found.context
    if context > found.context:
        raise InferenceError(
            f"upstream.context: got {context}, and version {schema.version} of {schema.name} "
            f"looks back on {found.context} tokens: say as many or fewer, or leave it out"
        )
    engine = Engine(
        upstream.url,
        schema.name,
        found.vocabulary.size,
        timeout_seconds=upstream.timeout_seconds,
        connections=upstream.connections,
    )
    known = replace(found, context=context, has_engine=True)
    return Backends(RelayedModel(schema), known, None, None, 0, engine)


async def watch_runtime(service: Service) -> None:
    """Keep the readiness and the queue of a runtime beside up to date."""
    engine = service.runs.engine
    while engine is not None:
        service.runtime_ready = await engine.is_ready()
        await asyncio.sleep(WATCH_SECONDS)
    upstream = service.runs.upstream
    if upstream is None:
        return
    count, seconds = 0, 0.0
    while True:
        try:
            service.runtime_ready = await upstream.is_ready()
            seen = await upstream.statistics() if service.runtime_ready else None
            if seen is not None:
                # A runtime that was started anew counts from zero.
                more, longer = seen[0] - count, seen[1] - seconds
                if more > 0 and longer >= 0:
                    service.counters.queued(longer, more)
                count, seconds = seen
        except Exception:  # what is watched must not end the watching
            traceback.print_exc()
        await asyncio.sleep(WATCH_SECONDS)


FLUSH_SECONDS = 0.5
SWEEP_SECONDS = 0.25
ANSWER_SECONDS = 2.0
"""Time for the master to answer a question."""
SOON_SECONDS = 0.02
"""After which an answer with an id can have its label."""
LOG_BACKLOG_BYTES = 32 * 1024 * 1024
"""Access lines that wait for a stuck master, before they are dropped and counted."""
CLOCK_STEP_SECONDS = 1.0
TELLING_SECONDS = 1.0
"""Time in which clients of a server that leaves are told so with their answers. To end a
connection between two requests loses one that is on its way, which a client may not send twice:
https://www.rfc-editor.org/rfc/rfc9112#section-9.6"""
LAST_WORDS_SECONDS = 5.0
"""Time for the master to take the last access lines."""


class Worker:
    """Loads, serves, drains."""

    def __init__(self, listener: socket.socket, channel_socket: socket.socket) -> None:
        self._listener = listener
        self._channel_socket = channel_socket
        self._channel = Channel(self._received, self._master_gone)
        self._messages: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()
        self._service: Service | None = None
        self._jobs: JobRuns | None = None
        self._shadow: ShadowRuns | None = None
        self._candidate: CandidateRuns | None = None
        self._signature: dict[str, Any] = {}
        self._memory = 0
        self._further: dict[str, FurtherService | Absent] = {}
        self._accepting: Listener | None = None
        # Questions to the master, by number.
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._questions = 0
        self._manifest: dict[str, Any] = {}
        self._dropped_lines = 0
        # The snapshot that the master knows; at first of nothing.
        self._counted = b""
        self._clock_offset = time.time() - time.perf_counter()

    async def run(self) -> int:
        """Do everything; returns the exit status."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_connection_fault)
        await loop.create_connection(lambda: self._channel, sock=self._channel_socket)
        message = await self._messages.get()
        if message is None or message[0] != channel.CONFIGURE:
            return 1
        try:
            context = self._load(message[1])
        except WorkloadError as error:
            self._channel.send(channel.FAILED, orjson.dumps({"error": str(error)}))
            await self._end_channel()
            return 2
        service = self._service
        assert service is not None  # noqa: S101 - made by _load
        context.failed = service.handshake_failed
        front = Front(service) if service.settings.grpc else None
        if front is not None:
            context.set_alpn_protocols(["http/1.1", "h2"])  # HTTP/1.1 where a client knows both
            service.take_over = front.take_over
        # From here the end of the channel tells of the master's death, and requests under way
        # are still answered; while loading, nothing listens to it.
        die_with_parent(0)
        engine = str(service.model.engine) if isinstance(service.model, Model) else None
        ready = {
            "pid": os.getpid(), "manifest": self._manifest, "engine": engine,
            "signature": self._signature, "memory": self._memory,
            "further": further.report_of(self._further),
        }  # fmt: skip
        self._channel.send(channel.READY, orjson.dumps(ready))
        timers = [
            asyncio.ensure_future(_every(FLUSH_SECONDS, self._flush)),
            asyncio.ensure_future(_every(SWEEP_SECONDS, self._sweep)),
            asyncio.ensure_future(watch_runtime(service)),
        ]
        while (message := await self._messages.get()) is not None:
            kind, payload = message
            if kind == channel.ACCEPT and self._accepting is None:
                self._accepting = Listener(
                    self._listener,
                    context,
                    lambda: Connection(service),
                    handshake_seconds=service.limits.header_timeout_seconds,
                )
                self._channel.send(channel.ACCEPTING)
            elif kind == channel.DRAIN:
                await self._drain(float(orjson.loads(payload)["seconds"]), payload)
                break
        else:
            await self._drain(1.0, b'{"leaving":true}')
        for timer in timers:
            timer.cancel()
        for remote in service.runs.remotes:
            await remote.close()
        if front is not None:
            await front.close()
        self._flush()
        await self._end_channel()
        return 0

    async def _end_channel(self) -> None:
        self._channel.close()
        await self._channel.over(LAST_WORDS_SECONDS)

    # -- loading -------------------------------------------------------------------------------

    def _load(self, payload: bytes) -> ServerContext:
        document = orjson.loads(payload)
        path = Path(document["path"])
        role = str(document["role"])
        is_shadow = role == SHADOW
        configuration = settings.parse(path, str(document["settings"]).encode())
        if is_shadow:
            os.nice(NICENESS)
            configuration = settings.of_shadow(configuration)
        elif role == CANDIDATE:
            configuration = settings.of_candidate(configuration)
        version = int(document["version"])
        keyring = KeyRing.open(configuration.keyring)
        package = Store(configuration.registry).load(
            configuration.model, version, keyring, keyring.verify_key()
        )
        context = server_context(configuration.tls)
        backends = backends_of(configuration, package)
        if is_shadow and backends.language is not None:
            raise InferenceError(
                f"version {version} of {configuration.model} is a language model, whose texts "
                "aren't compared: it can't be a shadow"
            )
        if backends.language is not None and (role == CANDIDATE or configuration.experiment):
            raise InferenceError(
                f"version {version} of {configuration.model} is a language model, whose texts an "
                "experiment doesn't give to versions: leave experiment out of the settings"
            )
        self._memory = backends.memory
        self._signature = {
            **backends.model.schema.metadata(), "classes": package.manifest.get("classes"),
        }  # fmt: skip
        plan = None
        if configuration.batching and isinstance(backends.model, Model):
            plan = batching.plan(backends.model)
            print(f"batching is {plan.reason}", file=sys.stderr, flush=True)
        watched = None
        if configuration.drift.enabled:
            self._manifest = reference.part_of(package.manifest)
            watched = self._watched(configuration.model, package, backends.model.schema)
        threads = runs_at_once(configuration)
        kind = Service if configuration.experiment is None else ExperimentService
        pool = ThreadPoolExecutor(threads, "inference")
        self._service = kind(
            configuration,
            model=backends.model,
            authenticator=Authenticator(configuration.auth),
            pool=pool,
            threads=threads,
            metrics=self._ask_metrics,
            statistics=self._ask_statistics,
            upstream=backends.upstream,
            overflow=backends.overflow,
            watched=watched,
            batching=plan,
            language=backends.language,
            engine=backends.engine,
        )
        self._service.max_connections = _connection_limit()
        self._further = further.load(
            configuration, document["further"], pool=pool, threads=threads,
            streams=runs_at_once(configuration), statistics=self._ask_statistics,
            watch=lambda name, of, loaded: self._watched(name, of, loaded.schema),
        )  # fmt: skip
        self._service.serve_beside(self._further, further.versions_of(self._further))
        self._counted = self._snapshot(self._service)
        if configuration.jobs is not None:
            self._jobs = JobRuns(
                self._service, Bodies(configuration.jobs_folder, keyring),
                further={
                    name: each
                    for name, each in self._further.items()
                    if isinstance(each, FurtherService)
                },
                ask=self._ask, tell=self._channel.send, counted=self._send_counters,
            )  # fmt: skip
            for each in (self._service, *self._further.values()):
                each.jobs = self._jobs.answer
        if isinstance(self._service, ExperimentService) and configuration.experiment is not None:
            self._service.begin(
                configuration.experiment,
                lambda payload, seconds: self._ask(
                    channel.EXPERIMENT_ASK, payload, seconds=seconds
                ),
                lambda counted: self._channel.send(channel.EXPERIMENT_COUNTED, counted),
            )
        if role == CANDIDATE:
            self._candidate = CandidateRuns(self._service, self._channel.send)
        if is_shadow:
            self._shadow = ShadowRuns(
                self._service, ThreadPoolExecutor(1, "shadow"), package.manifest,
                self._channel.send,
            )  # fmt: skip
        # What has been loaded stays: the collector need not walk over it again.
        gc.collect()
        gc.freeze()
        return context

    def _watched(self, name: str, package: Package, schema: Schema) -> Watched:
        """Have the rows of a model counted, and its answers to ids remembered."""
        known = reference.read(reference.part_of(package.manifest))
        names = schema.output_names
        loop = asyncio.get_running_loop()

        def send(kind: int, content: bytes) -> None:
            self._channel.send(kind, channel.of_model(name, content))

        sender = known.answers and Sender(
            known.answers,
            names,
            partial(send, channel.IDS_ANSWERED),
            lambda work: loop.call_later(SOON_SECONDS, work),
        )
        counting = Counting(
            known, lambda found: send(channel.ROWS_COUNTED, orjson.dumps(found)), names
        )
        return Watched(known, counting, sender, self._ask)

    # -- channel -------------------------------------------------------------------------------

    def _received(self, kind: int, payload: bytes) -> None:
        if kind == channel.ANSWERED:
            future = self._asked.pop(int.from_bytes(payload[:8], "little"), None)
            if future is not None and not future.done():
                future.set_result(payload[8:])
        elif kind == channel.JOB_RUN and self._jobs is not None:
            self._jobs.start(payload)
        elif kind == channel.JOB_STOP and self._jobs is not None:
            self._jobs.stop(payload)
        elif kind == channel.SHADOW_RUN and self._shadow is not None:
            self._shadow.take(payload)
        elif kind == channel.EXPERIMENT_RUN and self._candidate is not None:
            self._candidate.take(payload)
        elif kind == channel.EXPERIMENT_STANDS:
            if isinstance(self._service, ExperimentService):
                found = orjson.loads(payload)
                self._service.stands(found["version"], ready=found["ready"])
        elif kind == channel.SHADOW_SHARE:
            self._share(float(orjson.loads(payload)))
        else:
            self._messages.put_nowait((kind, payload))

    def _share(self, share: float) -> None:
        """Copy this share of the answered requests from now on."""
        service = self._service
        if service is None:
            return
        copies = service.copies
        if share <= 0:
            service.copies = None
            if copies is not None:
                self._tell_missed(copies)
            return
        if copies is None:
            copies = service.copies = Copies(
                lambda packed: self._channel.send(channel.SHADOW_COPY, packed),
                lambda: self._channel.backlog,
            )
        copies.share = share

    def _tell_missed(self, copies: Copies) -> None:
        missed, copies.dropped = copies.dropped, 0
        if missed:
            self._channel.send(channel.SHADOW_MISSED, orjson.dumps(missed))

    def _master_gone(self) -> None:
        self._messages.put_nowait(None)

    async def _ask_metrics(self) -> bytes:
        self._send_counters()
        return await self._ask(
            channel.METRICS_REQUEST, b"", "the metrics are not to be had now; try again"
        )

    async def _ask_statistics(self, model: str = "") -> bytes:
        self._send_counters()
        return await self._ask(
            channel.STATISTICS_REQUEST,
            model.encode(),
            "the statistics are not to be had now; try again",
        )

    async def _ask(
        self, kind: int, payload: bytes,
        refusal: str = "the server is too busy to answer now; try again",
        *, seconds: float = ANSWER_SECONDS,
    ) -> bytes:  # fmt: skip
        self._questions += 1
        number = self._questions
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        self._channel.send(kind, number.to_bytes(8, "little") + payload)
        try:
            return await asyncio.wait_for(future, seconds)
        except TimeoutError as error:
            raise RequestError(503, refusal, headers=(retry_after(1),)) from error
        finally:
            self._asked.pop(number, None)

    def _snapshot(self, service: Service) -> bytes:
        return orjson.dumps(
            service.counters.snapshot()
            | {
                "open_connections": len(service.connections),
                "cache_bytes": service.runs.room.taken,
                "prefix_bytes": service.runs.prefixes.held,
                "dropped_lines": self._dropped_lines,
            }
            | ({"further": further.counts_of(service.further)} if service.further else {})
        )

    def _send_counters(self) -> None:
        """Send the master the counts, where they aren't those that it knows."""
        service = self._service
        if service is not None and (counted := self._snapshot(service)) != self._counted:
            self._counted = counted
            self._channel.send(channel.COUNTERS, counted)

    # -- regular work ----------------------------------------------------------------------------

    def _flush(self) -> None:
        """Hand finished access lines, callers, refusals and counts to the master."""
        service = self._service
        if service is None:
            return
        for each in (service, *self._further.values()):
            if each.watched is not None:
                counters = each.counters
                each.watched.counting.flush(sum(counters.latency), counters.latency_seconds)
        if service.copies is not None:
            self._tell_missed(service.copies)
        if isinstance(service, ExperimentService):
            service.tell_counts()
        if service.lines or service.denials:
            self._send_lines(service)
        # Connections that end, for one, leave no lines.
        self._send_counters()

    def _send_lines(self, service: Service) -> None:
        lines, service.lines = service.lines, []
        callers, service.callers = service.callers, []
        denials, service.denials = service.denials, {}
        calls: dict[str, int] = {}
        for identity in callers:
            calls[identity.subject] = calls.get(identity.subject, 0) + identity.calls
            identity.calls = 0
        header: dict[str, Any] = {
            "version": service.model.version,
            "callers": calls,
            "denied": [
                {"client": client, "reason": reason, "status": status, "count": count}
                for (client, reason, status), count in denials.items()
            ],
        }
        if service.further and (asked := further.callers_of(service.further)):
            header["models"] = asked
        texts = service.texts
        if texts.engine_failures:
            header["engine"], texts.engine_failures = texts.engine_failures, {}
        if isinstance(service, ExperimentService) and service.answered:
            header["candidate"], service.answered = service.answered, {}
        if self._channel.backlog > LOG_BACKLOG_BYTES:
            self._dropped_lines += len(lines)
            lines = []
        self._channel.send(channel.ACCESS_LINES, orjson.dumps(header) + b"\n" + b"".join(lines))

    def _sweep(self) -> None:
        """Close what has timed out; renew the date; notice a changed clock."""
        service = self._service
        assert service is not None  # noqa: S101 - runs after _load
        service.answers.tick()
        service.runs.prefixes.expire()
        self._tell_failed_handshakes(service)
        now = time.perf_counter()
        for connection in [c for c in service.connections if c.deadline < now]:
            connection.expire()
        self._refresh_tokens(service)
        offset = time.time() - now
        if abs(offset - self._clock_offset) > CLOCK_STEP_SECONDS:
            self._clock_offset = offset
            service.clear_header_caches()

    @staticmethod
    def _refresh_tokens(service: Service) -> None:
        try:
            if not service.authenticator.refresh():
                return
        except InferenceError as error:
            print(f"{error}; what was read before holds", file=sys.stderr, flush=True)
        service.clear_header_caches()

    @staticmethod
    def _tell_failed_handshakes(service: Service) -> None:
        failed, service.failed_handshakes = service.failed_handshakes, {}
        for reason, count in failed.items():
            times = f" ({count} times)" if count > 1 else ""
            print(f"connection refused: {reason}{times}", file=sys.stderr, flush=True)

    async def _drain(self, seconds: float, payload: bytes) -> None:
        """Stop accepting, answer what is and comes in, close the rest at the deadline."""
        service = self._service
        assert service is not None  # noqa: S101 - runs after _load
        leaving = bool(orjson.loads(payload).get("leaving"))
        service.drain(leaving=leaving)
        if self._accepting is not None:
            self._accepting.close()
        began = time.perf_counter()
        deadline = began + min(TELLING_SECONDS, seconds / 2)
        while (service.has_clients or self._is_running) and time.perf_counter() < began + seconds:
            if leaving and time.perf_counter() > deadline:
                # Nobody takes over: a client that asks again is better told at once.
                for connection in [c for c in service.connections if c.is_idle()]:
                    connection.close()
            await asyncio.sleep(0.02)
        for connection in list(service.connections):
            connection.close()
        await asyncio.sleep(0.05)

    @property
    def _is_running(self) -> bool:
        """Whether a job is under way."""
        return self._jobs is not None and self._jobs.running is not None


async def _every(seconds: float, work: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            work()
        except Exception:  # timeouts and logs must go on, whatever is wrong once
            traceback.print_exc()


def _connection_limit() -> int:
    """Raise the limit of open files as far as allowed; leave some for everything else."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(64, soft - 128)


def _connection_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tell of a failed handshake or a broken connection in one line, of anything else in full."""
    error = context.get("exception")
    if isinstance(error, OSError):  # SSLError, ConnectionError, TimeoutError
        print(f"connection ended: {error}"[:300], file=sys.stderr, flush=True)
        return
    loop.default_exception_handler(context)


def main() -> int:
    """Run a worker: `worker LISTENER_FD CHANNEL_FD PARENT_PID`, started by the master only."""
    listener_number, channel_number, parent = (int(text) for text in sys.argv[1:4])
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        return 1
    # A decrypted model and tokens are in this memory.
    forbid_dumps()
    # The terminal's Ctrl-C goes to the whole group: the master drains the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    listener = socket.socket(fileno=listener_number)
    channel_socket = socket.socket(fileno=channel_number)
    channel_socket.setblocking(False)
    worker = Worker(listener, channel_socket)
    return uvloop.run(worker.run())


if __name__ == "__main__":
    sys.exit(main())
