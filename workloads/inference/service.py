"""What one worker answers: routes to handlers, identities, counts and log lines.

An inference runs on the event loop, in a thread, in a runtime beside, or on the next tier.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import orjson

from falaj.workloads.engines import USUAL
from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference.auth import Authenticator, Identity
from falaj.workloads.inference.connections import http
from falaj.workloads.inference.connections.header_names import KNOWN, MARK, REQUEST_ID
from falaj.workloads.inference.connections.http import Answer, Exchange, Head, HeaderCache
from falaj.workloads.inference.drift import answers, labels
from falaj.workloads.inference.drift.counting import Counting
from falaj.workloads.inference.drift.reference import Reference
from falaj.workloads.inference.errors import RequestError, retry_after
from falaj.workloads.inference.language import chats, completions
from falaj.workloads.inference.language.cache import Room
from falaj.workloads.inference.language.completions import Completion
from falaj.workloads.inference.language.engine import Engine
from falaj.workloads.inference.language.generation import Language, Sampling, Text
from falaj.workloads.inference.language.prefixes import Begun, Left, Prefixes
from falaj.workloads.inference.language.quota import TokenQuota
from falaj.workloads.inference.language.relayed import Relayed
from falaj.workloads.inference.metrics import Counters
from falaj.workloads.inference.models.batching import Batcher, Member, Plan
from falaj.workloads.inference.models.model import Model
from falaj.workloads.inference.models.priorities import Ordered
from falaj.workloads.inference.models.remote import Overflow, RelayedModel, Remote, RemoteError
from falaj.workloads.inference.process import channel
from falaj.workloads.inference.protocol import extensions, oip, openapi
from falaj.workloads.inference.protocol.oip import Inference, Schema
from falaj.workloads.inference.settings import Settings
from falaj.workloads.inference.shadow.copies import Copies
from falaj.workloads.registry.store import Store

QUEUE_PER_THREAD = 32
"""Inferences that may wait for each thread before new ones are answered with 503."""
QUEUE_SECONDS = 0.1
"""More may wait where they are expected to begin within it: clients that were sent away would come
back no sooner, and of a small network hundreds are answered in it."""
QUEUE_PER_CONNECTION = 4
"""Likewise for each connection to a runtime beside, which batches what waits."""
TEXTS_PER_THREAD = 8
"""Requests for texts whose steps may go through each thread by turns with each other's, and with
inferences."""
QUEUE_BATCHES = 4
"""Batches' rows that may wait for each thread as inferences, where requests run together."""

_Ran = tuple[Any, float, float]
"""What a run gave, and the seconds that it had waited and took."""


class Runs:
    """The queue of a worker, and who takes from it.

    Args:
        service: the worker's.
        pool: runs the model here.
        threads: of the pool.
        upstream: runs the model instead, beside; None: the pool does.
        overflow: where requests go that would wait too long; None: nowhere.
        batching: how many rows run together; None: no requests do.
        engine: generates texts instead, beside; None: the pool does.
    """

    def __init__(
        self,
        service: Service,
        *,
        pool: ThreadPoolExecutor,
        threads: int,
        upstream: Remote | None,
        overflow: Overflow | None,
        batching: Plan | None,
        engine: Engine | None = None,
    ) -> None:
        self.upstream = upstream
        self.engine = engine
        self.overflow = overflow
        self.waiting = 0
        self._texts = 0
        language = service.language
        # A whole window of each request's text; and the largest request finds room.
        whole = language.bytes_of(language.context) if language is not None else 0
        self.room = Room(whole * max(completions.MOST_TEXTS, threads * TEXTS_PER_THREAD))
        self.prefixes = Prefixes(service.limits.keep_seconds)
        self._service = service
        self._pool = pool
        self._threads = threads
        # Expected seconds of what waits and runs in the threads.
        self._backlog = 0.0
        self._limit = (
            threads * QUEUE_PER_THREAD
            if upstream is None
            else upstream.connections * QUEUE_PER_CONNECTION
        )
        self._ordered = Ordered(pool) if service.settings.priorities else None
        self._batcher: Batcher | None = None
        if batching is not None and batching.rows and isinstance(service.model, Model):
            self._limit = max(self._limit, threads * QUEUE_BATCHES * batching.rows)
            self._batcher = Batcher(
                service.model, batching.rows, pool=pool, threads=threads,
                alone=service.run, answer=self._answered, counters=service.counters,
            )  # fmt: skip

    @property
    def remotes(self) -> list[Remote | Engine]:
        """Every server that is called."""
        overflow = self.overflow.remote if self.overflow is not None else None
        return [each for each in (self.upstream, overflow, self.engine) if each is not None]

    def start(self, exchange: Exchange, inference: Inference) -> Awaitable[Answer]:
        """Take an inference over.

        Raises:
            RequestError: 503, too many wait already, and no other tier takes it.
        """
        if self.engine is not None:
            raise RequestError(
                404, "the model's engine goes on with texts alone: ask /v1/completions"
            )
        if self.upstream is not None:
            self._admit()
            return self._relay(self.upstream, exchange, inference)
        overflow = self.overflow
        if overflow is not None and MARK not in exchange.headers and self._is_too_long(overflow):
            self._service.counters.overflow_wanted += 1
            if overflow.take():
                return self._pass_on(overflow, exchange, inference)
        return self._queue(exchange, inference)

    # What is counted is counted at once: of a burst, all come before the first of them starts.

    def expected_wait(self) -> float:
        """Return the seconds that an inference which came now would wait for a thread."""
        if self._batcher is not None:
            return self._batcher.expected_wait()
        idle = self.waiting < self._threads
        return 0.0 if idle else self._backlog / self._threads

    def _is_full(self) -> bool:
        if self.waiting < self._limit:
            return False
        # How long calls of a runtime beside wait isn't known here.
        return self.upstream is not None or self.expected_wait() > QUEUE_SECONDS

    def _is_too_long(self, overflow: Overflow) -> bool:
        return self._is_full() or self.expected_wait() > overflow.above_seconds

    def _admit(self, rank: int = oip.USUAL_RANK) -> None:
        if self._is_full() and not self._makes_room(rank):
            raise RequestError(
                503,
                f"{self.waiting} inferences are waiting already; try again",
                headers=(retry_after(1),),
            )
        self.waiting += 1

    def _makes_room(self, rank: int) -> bool:
        """Have a less urgent request go, where there is one."""
        queue = self._batcher or self._ordered
        if self._ordered is None or queue is None or not queue.displace(rank):
            return False
        self._service.counters.displaced += 1
        return True

    # -- here ------------------------------------------------------------------------------

    def _queue(self, exchange: Exchange, inference: Inference) -> Awaitable[Answer]:
        if self._batcher is not None:
            return self._join(self._batcher, exchange, inference)
        self._admit(inference.rank)
        expected = self._service.model.expected[inference.rows.bit_length()]
        self._backlog += expected
        service, entered = self._service, time.perf_counter()

        def work() -> _Ran:
            start = time.perf_counter()
            results = service.run(inference)
            return results, start - entered, time.perf_counter() - start

        # Who makes room for others of a burst has to be in the queue by then.
        turn = (
            self._ordered.run(inference.rank, entered, work) if self._ordered is not None else None
        )
        return self._run(exchange, inference, expected, turn, work)

    async def _run(
        self,
        exchange: Exchange,
        inference: Inference,
        expected: float,
        turn: asyncio.Future[_Ran] | None,
        work: Callable[[], _Ran],
    ) -> Answer:
        service = self._service
        try:
            results, queued, seconds = await (
                turn
                if turn is not None
                else asyncio.get_running_loop().run_in_executor(self._pool, work)
            )
        finally:
            self._ended(expected)
        service.model.observe(inference.rows, seconds)
        service.counters.queued(queued)
        return self._answer(exchange, inference, results, seconds)

    def _ended(self, expected: float) -> None:
        self.waiting -= 1
        self._backlog = max(0.0, self._backlog - expected) if self.waiting else 0.0

    def _answer(
        self, exchange: Exchange, inference: Inference, results: Any, seconds: float
    ) -> Answer:
        service = self._service
        answer = service.inferred(inference, results)
        service.counters.inferred(time.perf_counter() - exchange.started, seconds, inference.rows)
        return answer

    # -- texts -----------------------------------------------------------------------------

    def begin_text(self, size: int) -> None:
        """Take a place for a request that has texts generated, and bytes to keep of them.

        Raises:
            RequestError: 503, there is none, or there aren't so many.
        """
        most = self._threads * TEXTS_PER_THREAD
        if self._texts >= (most if self.engine is None else self.engine.connections):
            raise RequestError(
                503,
                f"texts of {self._texts} requests are being generated already; try again",
                headers=(retry_after(1),),
            )
        self.room.take(size)
        self.prefixes.fit(self.room.left)
        self._texts += 1

    def free(self, size: int) -> None:
        """Give bytes back."""
        self.room.give_back(size)

    def end_text(self) -> None:
        """Give the place back."""
        self._texts -= 1

    def find(self, whose: bytes, tokens: Sequence[int], most: int) -> Begun | None:
        """Return what an earlier text of a caller left of this one, which may come to so many
        tokens; None: nothing."""
        language = self._service.language
        form = language.cache if language is not None else None
        return None if form is None else self.prefixes.find(whose, tokens, form, most)

    def keep(self, whose: bytes, left: Left) -> None:
        """Take what a text left, as far as texts that are being generated leave room."""
        self.prefixes.keep(whose, left, self.room.left)

    async def step(self, rows: int, work: Callable[[], Any], seconds: float | None) -> Any:
        """Do a step's work behind what waits: none is refused that has a place."""
        expected = seconds
        if expected is None:
            expected = self._service.model.expected[rows.bit_length()]
        entered = time.perf_counter()
        self.waiting += 1
        self._backlog += expected

        def timed() -> tuple[Any, float]:
            queued = time.perf_counter() - entered
            return work(), queued

        try:
            found, queued = await asyncio.get_running_loop().run_in_executor(self._pool, timed)
        finally:
            self._ended(expected)
        self._service.counters.queued(queued)
        return found

    # -- here, together --------------------------------------------------------------------

    def _join(self, batcher: Batcher, exchange: Exchange, inference: Inference) -> Member:
        left = float("inf")
        # A job has time: one that was refused would come again at once, before all others.
        if inference.timeout is not None and inference.options is None:
            left = exchange.started + inference.timeout - time.perf_counter()
            if left <= 0:
                # Not the queue's doing, and so none of the server's failures.
                raise RequestError(
                    408, "the request's timeout was over before it could queue; give more time"
                )
            wait = batcher.expected_wait()
            if left <= wait:
                raise RequestError(
                    503,
                    f"{left * 1000:.0f} ms are left of the request's timeout, and "
                    f"{wait * 1000:.0f} ms is the wait; give more time, or try again later",
                    headers=(retry_after(1),),
                )
        self._admit(inference.rank)
        member = batcher.add(exchange, inference)
        member.deadline = time.perf_counter() + left
        member.add_done_callback(self._left)
        return member

    def _left(self, member: Member) -> None:
        del member
        self.waiting -= 1

    def _answered(self, member: Member, results: Any, seconds: float) -> Answer:
        return self._answer(member.exchange, member.inference, results, seconds)

    # -- beside ----------------------------------------------------------------------------

    async def _relay(self, upstream: Remote, exchange: Exchange, inference: Inference) -> Answer:
        service = self._service
        start = time.perf_counter()
        try:
            results = await upstream.infer(inference)
        except RemoteError as error:
            print(f"the runtime failed on a request: {error}"[:500], file=sys.stderr, flush=True)
            if error.refused:
                raise RequestError(500, "the model could not run on this input") from error
            again = (retry_after(1),)
            raise RequestError(503, "the model's runtime is busy or not there; try again",
                               headers=again) from error  # fmt: skip
        finally:
            self.waiting -= 1
        seconds = time.perf_counter() - start
        answer = service.inferred(inference, results)
        service.counters.inferred(time.perf_counter() - exchange.started, seconds, inference.rows)
        return answer

    # -- elsewhere -------------------------------------------------------------------------

    async def _pass_on(
        self, overflow: Overflow, exchange: Exchange, inference: Inference
    ) -> Answer:
        """Ask the other tier in the caller's name; where it fails, wait here after all.

        A caller with a certificate has no token to show: then this server's own speaks.
        """
        headers = {MARK.decode(): "1"}
        token = exchange.headers.get(b"authorization")
        if token is not None:
            headers["Authorization"] = token.decode("ascii", "replace")
        start = time.perf_counter()
        try:
            results = await overflow.remote.infer(inference, headers)
        except RemoteError as error:
            self._count_failure(overflow, error)
        except BaseException:
            overflow.breaker.given_up()
            raise
        else:
            overflow.breaker.succeeded()
            return self._answered_elsewhere(overflow, exchange, inference, results, start)
        finally:
            overflow.give_back()
        return await self._queue(exchange, inference)

    def _answered_elsewhere(
        self,
        overflow: Overflow,
        exchange: Exchange,
        inference: Inference,
        results: Any,
        start: float,
    ) -> Answer:
        service = self._service
        seconds = time.perf_counter() - start
        answer = service.inferred(inference, results, overflow.remote.schema)
        # Both or neither: what was answered here is the difference.
        service.counters.passed_on("answered")
        service.counters.inferred(time.perf_counter() - exchange.started, seconds, inference.rows)
        return answer._replace(headers=(*answer.headers, overflow.header))

    def _count_failure(self, overflow: Overflow, error: RemoteError) -> None:
        """A tier that is full or gone is left alone; one that refuses a request is well."""
        if error.refused:
            overflow.breaker.succeeded()
            self._service.counters.passed_on("refused")
            return
        was_open = overflow.breaker.is_open
        overflow.breaker.failed()
        self._service.counters.passed_on("busy" if error.busy else "failed")
        if overflow.breaker.is_open and not was_open:
            print(f"the next tier is left alone for a while: {error}"[:500], file=sys.stderr,
                  flush=True)  # fmt: skip


PRODUCT = {"name": "falaj", "version": "0.1.0", "extensions": extensions.ANNOUNCED}
OF_JOBS = (http.JOBS, http.JOB, http.JOB_RESULT)
OF_WATCHED = (http.DRIFT, http.FEEDBACK)
OF_LANGUAGE = (*http.TEXTS, http.CARDS, http.CARD)
"""Routes that are there where settings ask for them, or for the model; else they are answered with
404."""
URGENT = "urgent"
"""Scope of callers whose requests may go before others."""
NOT_ALLOWED = (401, 403)
"""Statuses of callers without the right to ask, whose requests aren't failures."""
HEADS_KEPT = 1024
DENIALS_KEPT = 200


@dataclass(frozen=True)
class Watched:
    """How a worker's rows, answers and labels come to the master.

    Attributes:
        reference: of the package.
        counting: of rows.
        sender: of answers to requests with ids; None where nothing says what an answer is.
        ask: sends the master a message of a kind, and returns its answer.
    """

    reference: Reference
    counting: Counting
    sender: labels.Sender | None
    ask: Callable[[int, bytes], Awaitable[bytes]]


def _name_of(header: bytes) -> str:
    """Return a request's name; none that a label couldn't give: too long, or no UTF-8."""
    try:
        name = header.decode()
    except UnicodeDecodeError:
        return ""
    return name if len(name) <= oip.MAX_ID_CHARACTERS else ""


class Client(Protocol):
    """An open connection, as the service and its worker know it."""

    deadline: float
    """When `expire` is due, on the monotonic clock in seconds."""

    def expire(self) -> None:
        """Close it: its deadline is over."""

    def is_idle(self) -> bool:
        """Tell whether nothing is being received or answered."""
        ...

    def drain(self) -> None:
        """Begin to lead its client elsewhere."""

    def close(self) -> None:
        """Close it without another answer."""


class Further(Protocol):
    """A model beside the first, as the service knows it."""

    version: int | None
    """That answers; None: none can be asked."""
    counters: Counters
    asked: dict[str, int]
    """Requests since the last audit record, by caller."""

    def handle(self, exchange: Exchange) -> Answer | Awaitable[Answer]:
        """Answer an admitted request; as `Service.handle`."""
        ...

    def not_inferred(self, status: int, seconds: float) -> None:
        """Count an inference that wasn't answered."""

    def index(self, only_ready: bool) -> list[dict[str, str]]:
        """Return what the repository's index says of it."""
        ...

    async def statistics(self) -> list[Any]:
        """Return what the statistics say of it."""
        ...


class Service:
    """The state that all connections of a worker share.

    ``metrics`` and ``statistics`` return what is counted across workers: the text of `/metrics`,
    and JSON with snapshots of `Counters` by version. Default of the latter: its own alone.
    """

    wanted = KNOWN
    """Names of the headers that are kept, in lower case."""

    def __init__(
        self,
        settings: Settings,
        *,
        model: Model | RelayedModel,
        authenticator: Authenticator,
        pool: ThreadPoolExecutor,
        threads: int,
        metrics: Callable[[], Awaitable[bytes]],
        statistics: Callable[[], Awaitable[bytes]] | None = None,
        upstream: Remote | None = None,
        overflow: Overflow | None = None,
        watched: Watched | None = None,
        batching: Plan | None = None,
        language: Language | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.settings = settings
        self.batching = batching
        self.language = language
        self._started = int(time.time())
        self.watched = watched
        self.limits = settings.limits
        self.model = model
        self.schema = model.schema
        self.router = http.Router(model.name, model.version)
        self.authenticator = authenticator
        self.counters = Counters()
        self._counted = answers.counted(list(self.schema.outputs.values()))
        self.answers = http.Answers()
        self.bodies = http.Bodies(settings.limits.max_inflight_bytes)
        self.quota = TokenQuota(settings.limits.tokens_per_minute)
        self.connections: set[Client] = set()
        #: When those came whose TLS handshake is under way; of failed ones until they are freed.
        self.arriving: WeakKeyDictionary[Client, float] = WeakKeyDictionary()
        self.max_connections = 16384
        #: Connections with a second descriptor, to another process.
        self.relayed = 0
        #: Takes connections over that speak another protocol, and tells whether it has.
        self.take_over: Callable[[asyncio.Transport], bool] | None = None
        #: Answers requests to and about jobs; None: none are taken here.
        self.jobs: Callable[[Exchange], Awaitable[Answer]] | None = None
        #: Further models by name, those that can't be asked among them.
        self.further: Mapping[str, Further] = {}
        #: Copies answered requests for a version that answers nobody; None: there is none.
        self.copies: Copies | None = None
        self.tasks: set[asyncio.Future[None]] = set()
        self.draining = False
        self.leaving = False
        # Finished access lines, callers and refusals since the last flush.
        self.lines: list[bytes] = []
        self.callers: list[Identity] = []
        self.denials: dict[tuple[str, str, int], int] = {}
        self.failed_handshakes: dict[str, int] = {}
        #: Why the engine gave no answer since the last flush, for the audit record.
        self.engine_failures: dict[str, int] = {}
        # What tells callers apart for the engine, which can't know it from another start's.
        self._salt = secrets.token_bytes(32)
        self.schema.takes_priority = settings.priorities
        self.schema.takes_timeout = batching is not None and batching.rows > 0
        self.runs = Runs(
            self, pool=pool, threads=threads, upstream=upstream, overflow=overflow,
            batching=batching, engine=engine,
        )  # fmt: skip
        # A runtime beside has to say so first.
        self.runtime_ready = self._runs_here
        self._metrics = metrics
        self._statistics = statistics or self._own_statistics
        #: What answers by asking the master, by route.
        self._later: dict[str, Callable[[Exchange], Awaitable[Answer]]] = {
            http.METRICS: self._metrics_answer,
            **dict.fromkeys((http.STATISTICS, http.VERSION_STATISTICS), self._statistics_answer),
            **dict.fromkeys(OF_WATCHED, self._watched_answer),
            **dict.fromkeys(OF_JOBS, self._jobs_answer),
            **dict.fromkeys(http.TEXTS, self._complete),
            **dict.fromkeys((http.CARDS, http.CARD), self._cards),
        }
        # Known heads: a token speaks for itself, a certificate for its own connections only.
        self._cache_of_tokens = HeaderCache()
        self._caches_of_certificates: WeakValueDictionary[str, HeaderCache] = WeakValueDictionary()

    def serve_beside(
        self, further: Mapping[str, Further], versions: Mapping[str, str | None]
    ) -> None:
        """Have further models answer under their names.

        Args:
            further: by name.
            versions: of these; None: that one can't be asked.
        """
        self.further = further
        self.router = http.Router(self.model.name, self.model.version, versions)

    # -- header caches ---------------------------------------------------------------------

    def header_cache(self, certificate: Mapping[str, Any] | None) -> HeaderCache:
        """Return the known heads of connections with this client certificate."""
        if certificate is None:
            return self._cache_of_tokens
        key = repr(certificate)
        cache = self._caches_of_certificates.get(key)
        if cache is None:
            cache = self._caches_of_certificates[key] = HeaderCache()
        return cache

    def remember(self, exchange: Exchange, cache: HeaderCache) -> None:
        """Keep the head of an answered inference request for the next ones like it."""
        identity, head = exchange.identity, exchange.raw_head
        if (
            head is None
            or identity is None
            or exchange.route is None
            or exchange.route.name != http.INFER
            or self.draining
            or REQUEST_ID in exchange.headers
            or not exchange.is_plain()
        ):
            return
        if len(cache) >= HEADS_KEPT:
            cache.clear()
        # Where the wall clock is set while the server runs, `clear_header_caches` is called.
        expires = time.perf_counter() + (identity.expires - time.time())
        cache[head] = Head(head, exchange, expires, log_part(exchange))

    def clear_header_caches(self) -> None:
        """Make every connection parse and authorise its next head anew."""
        for cache in (self._cache_of_tokens, *self._caches_of_certificates.values()):
            cache.clear()

    @property
    def has_clients(self) -> bool:
        """Whether somebody is connected or, unless it leaves, was accepted and is about to be."""
        if self.connections or self.leaving:
            return bool(self.connections)
        oldest = time.perf_counter() - self.limits.header_timeout_seconds
        return any(each > oldest for each in self.arriving.values())

    def drain(self, *, leaving: bool) -> None:
        """Answer what comes with `Connection: close`; ``leaving`` also ends readiness."""
        self.draining = True
        self.leaving = leaving
        self.clear_header_caches()
        for connection in self.connections:
            connection.drain()

    # -- requests --------------------------------------------------------------------------

    def admit(
        self,
        exchange: Exchange,
        certificate: Mapping[str, Any] | None,
        client: bytes,
        *,
        unnamed: bool = False,
    ) -> None:
        """Find the route and check the caller, before a body is read.

        Args:
            exchange: the request.
            certificate: the client's; None without one.
            client: its address in quotes, which is noted where the caller is refused.
            unnamed: the model stands in a message that isn't read yet: the scope for any is
                enough until it is. Default: False.

        Raises:
            RequestError: 401, 403, 404 or 405.
        """
        route = self.router.find(exchange.url)
        exchange.route = route
        if route is None or route.scope is not None:
            try:
                identity = self.authenticator.identify(
                    exchange.headers.get(b"authorization"), certificate
                )
                exchange.identity = identity
                if route is None:
                    self._require_sight(identity, exchange.url)
                elif route.scope is not None:
                    of_any = unnamed or (route.model is None and route.name in http.OF_ANY)
                    identity.require(
                        route.scope, route.model, of_any=of_any,
                        names=not unnamed and http.names_model(exchange.url),
                    )  # fmt: skip
            except RequestError as error:
                self._denied(error, client, exchange)
                raise
        if route is None:
            sees = exchange.identity.sees if exchange.identity is not None else bool
            raise self.router.unknown(exchange.url, self._offered, sees)
        if exchange.method not in route.methods:
            allowed = b", ".join(route.methods)
            raise RequestError(
                405,
                f"this path takes {allowed.decode()}, not {exchange.method.decode()}",
                headers=(b"Allow: " + allowed,),
            )

    def _require_sight(self, identity: Identity, url: bytes) -> None:
        """Refuse a caller a path of a model that it may not know of, whether there is one."""
        asked = self.router.asked(url)
        if asked is not None and not identity.sees(asked[0]):
            identity.require(
                asked[1], asked[0][: oip.MAX_ID_CHARACTERS], names=http.names_model(url)
            )

    def handle(self, exchange: Exchange) -> Answer | Awaitable[Answer]:
        """Answer an admitted request, at once or later.

        Raises:
            RequestError: the request is refused.
        """
        assert exchange.route is not None  # noqa: S101 - admitted requests have a route
        name = exchange.route.name
        further = self._further_of(exchange) if self.further else None
        if further is not None:
            return further.handle(exchange)
        if name == http.INFER:
            answer = self.infer(exchange)
            return answer if self.copies is None else self._copied(self.copies, exchange, answer)
        later = self._later.get(name)
        if later is not None:
            return later(exchange)
        if name in (http.READY, http.MODEL_READY):
            return self._ready(name)
        if name == http.OPENAPI:
            return Answer(200, self._openapi)
        model = self.model
        documents: dict[str, Callable[[], Any]] = {
            http.LIVE: lambda: {"live": True},
            http.SERVER: lambda: PRODUCT,
            http.MODEL: lambda: {
                "name": model.name,
                "versions": [model.version],
                "platform": "onnx_onnxv1",
                **model.schema.metadata(),
            },
            http.INDEX: lambda: self._index(exchange),
            http.CONFIGURATION: lambda: extensions.configuration(
                model.schema,
                self.settings.workers if self._runs_here else None,
                self.batching,
                engine=model.engine if isinstance(model, Model) else USUAL,
            ),
        }
        return Answer(200, orjson.dumps(documents[name]()))

    def _ready(self, route: str) -> Answer:
        if route == http.MODEL_READY:
            ready, said = self.runtime_ready, {"name": self.model.name}
        else:
            ready, said = self.runtime_ready and not self.leaving, {"live": True}
        return Answer(200 if ready else 503, orjson.dumps({**said, "ready": ready}))

    @property
    def _runs_here(self) -> bool:
        return self.runs.upstream is None and self.runs.engine is None

    @property
    def _offered(self) -> dict[str, http.Route]:
        """The paths that are answered, by the settings and the model."""
        return self.answered_of(self.router.places)

    def answered_of(self, places: Mapping[str, http.Route]) -> dict[str, http.Route]:
        """Return those of these paths that are answered, by the settings and the model."""
        off = (OF_JOBS if self.jobs is None else ()) + (OF_WATCHED if self.watched is None else ())
        if self.language is None:
            off += OF_LANGUAGE
        elif self.language.template is None:
            off += (http.CHATS,)
        if self.runs.engine is not None:
            off += (http.INFER,)
        return {path: route for path, route in places.items() if route.name not in off}

    @cached_property
    def _openapi(self) -> bytes:
        """The document, of what the settings have answered; of a wide model, it takes 20 ms."""
        document = openapi.describe(
            self._offered,
            self.schema,
            certificates=self.settings.tls.client_ca is not None,
            most_tokens=self.limits.max_tokens,
            key=self.settings.experiment.key if self.settings.experiment is not None else None,
        )
        return orjson.dumps(document)

    async def _own_statistics(self) -> bytes:
        return orjson.dumps({self.model.version: self.counters.snapshot()})

    async def _statistics_answer(self, exchange: Exchange) -> Answer:
        route = exchange.route
        assert route is not None  # noqa: S101 - admitted requests have a route
        totals = orjson.loads(await self._statistics())
        version = self.model.version if route.name == http.VERSION_STATISTICS else None
        found = extensions.statistics(
            self.model.name, totals, version=version, runs_here=self._runs_here
        )
        if route.model is None and self.further:
            found["model_stats"] = await self._every_statistics(exchange, found["model_stats"])
        return Answer(200, orjson.dumps(found))

    async def _every_statistics(self, exchange: Exchange, first: list[Any]) -> list[Any]:
        """The statistics of all models that the caller may observe."""
        found = first if self._is_shown(exchange, self.model.name) else []
        for name, each in self.further.items():
            if self._is_shown(exchange, name):
                found += await each.statistics()
        return found

    @staticmethod
    def _is_shown(exchange: Exchange, model: str) -> bool:
        identity, route = exchange.identity, exchange.route
        assert route is not None and route.scope is not None and identity is not None  # noqa: S101, PT018 - admitted
        return identity.holds(route.scope, model)

    def _index(self, exchange: Exchange) -> list[dict[str, str]]:
        only_ready = extensions.wants_ready(exchange.content)
        found = self.index(only_ready) if self._is_shown(exchange, self.model.name) else []
        for name, each in self.further.items():
            if self._is_shown(exchange, name):
                found += each.index(only_ready)
        return found

    def index(self, only_ready: bool) -> list[dict[str, str]]:
        """Return what the repository's index says of the model.

        Args:
            only_ready: leave out what can't be asked.

        Raises:
            RequestError: 503, the registry can't be read.
        """
        try:
            versions = Store(self.settings.registry).versions(self.model.name)
        except (OSError, WorkloadError) as error:
            print(f"can't read the registry: {error}"[:300], file=sys.stderr, flush=True)
            raise RequestError(503, "the registry can't be read now; try again",
                               headers=(retry_after(1),)) from error  # fmt: skip
        ready = self.runtime_ready and not self.leaving
        return extensions.index(self.schema, versions, ready=ready, only_ready=only_ready)

    async def _jobs_answer(self, exchange: Exchange) -> Answer:
        if self.jobs is None:
            raise RequestError(
                404, "no jobs are taken here: the service's settings have no section jobs"
            )
        return await self.jobs(exchange)

    def _complete(self, exchange: Exchange) -> Completion:
        language, model = self._require_language(), self.model
        assert exchange.route is not None  # noqa: S101 - admitted requests have a route
        is_chat = exchange.route.name == http.CHATS
        read = chats.read if is_chat else completions.read
        asked = read(exchange.content, model.name, language, self.limits.max_tokens)
        if asked.stream and exchange.version != "1.1":
            raise RequestError(
                400, "stream: HTTP/1.0 knows none; leave it out, or ask by HTTP/1.1",
                field="stream",
            )  # fmt: skip
        engine = self.runs.engine
        if engine is not None and any(each.echoed for each in asked.begun):
            raise RequestError(
                400, "logprobs: the model's engine tells none of prompts: leave echo out, or "
                "logprobs", field="logprobs",
            )  # fmt: skip
        caller = exchange.identity.subject if exchange.identity is not None else ""
        self.quota.take(caller, asked.most_tokens)
        settle = partial(self.quota.settle, caller, asked.most_tokens)
        try:
            completion = (chats.ChatCompletion if is_chat else Completion)(
                asked, exchange, language=language, name=model.name, version=model.version,
                run=self.run, steps=self.runs, counters=self.counters, log=log_part(exchange),
                settle=settle, make=None if engine is None else partial(self._relayed, engine),
            )  # fmt: skip
        except RequestError:
            settle(0)
            raise
        # What is needed of it is read.
        self.bodies.release(exchange)
        return completion

    def _relayed(
        self,
        engine: Engine,
        texts: Sequence[Text],
        sampling: Sampling,
        logprobs: int | None,
        whose: bytes,
    ) -> Relayed:
        # What is kept for nobody's next turn is found by none.
        salt = whose if self.limits.keep_seconds else secrets.token_bytes(32)
        return Relayed(
            engine, self._require_language(), texts, sampling, logprobs, salt=self._salt + salt,
            failed=self._count_engine_failure,
        )  # fmt: skip

    def _count_engine_failure(self, reason: str) -> None:
        self.engine_failures[reason] = self.engine_failures.get(reason, 0) + 1

    async def _cards(self, exchange: Exchange) -> Answer:
        self._require_language()
        card = completions.card(self.model.name, self._started)
        assert exchange.route is not None  # noqa: S101 - admitted requests have a route
        if exchange.route.name == http.CARDS:
            return Answer(200, orjson.dumps({"object": "list", "data": [card]}))
        completions.require_model(http.Router.card_of(exchange.url), self.model.name)
        return Answer(200, orjson.dumps(card))

    def _require_language(self) -> Language:
        if self.language is None:
            name = self.model.name
            raise RequestError(
                404, f"'{name}' isn't a language model that runs in this server; it answers at "
                f"/v2/models/{name}/infer", code="model_not_found",
            )  # fmt: skip
        return self.language

    async def _metrics_answer(self, exchange: Exchange) -> Answer:
        del exchange
        return Answer(200, await self._metrics(), http.TEXT)

    async def _watched_answer(self, exchange: Exchange) -> Answer:
        watched = self.watched
        if watched is None:
            raise RequestError(
                404,
                "drift isn't watched of this model: the service's settings have drift.enabled, or "
                "drift of a further model, as false",
            )
        assert exchange.route is not None  # noqa: S101 - admitted requests have a route
        if exchange.route.name == http.DRIFT:
            of = channel.of_model(self.model.name, b"")
            return Answer(200, await watched.ask(channel.DRIFT_REQUEST, of))
        given = labels.parse(exchange.content, watched.reference.answers)
        if watched.sender is not None:
            # Labels may follow at once.
            watched.sender.flush()
        of = channel.of_model(self.model.name, orjson.dumps(given))
        return Answer(200, await watched.ask(channel.FEEDBACK, of))

    def infer(self, exchange: Exchange) -> Answer | Awaitable[Answer]:
        """Check the tensors and run the model: here if it is quick, else as `Runs` decides.

        A run that may be told to stop isn't run here, where nobody could tell it.
        """
        body, header_length = exchange.content, exchange.header_length
        model = self.model
        row = model.row
        named = exchange.headers.get(REQUEST_ID)
        if row is not None and named is None and exchange.options is None and model.is_quick(1):
            answered = row.answer(body, header_length)
            if answered is not None:
                self._ran(exchange, 1, row.run_seconds)
                content, length, value = answered
                watched = self.watched
                if value is not None:
                    self.counters.answers[answers.bucket(value)] += 1
                if watched is not None:
                    watched.counting.row(row)
                return Answer.of_tensors(content, length)
        inference = self.schema.read(body, header_length)
        if row is not None and header_length is not None:
            row.learn(body, header_length, inference, self.schema)
        inference.size = len(body)
        if named is not None and inference.identifier is None:
            inference.request_id = _name_of(named)
        if exchange.identity is not None:
            inference.caller = exchange.identity.subject
            if inference.rank < oip.USUAL_RANK and exchange.options is None:
                exchange.identity.require(URGENT, self.model.name)
        inference.options = exchange.options
        if exchange.options is None and self.model.is_quick(inference.rows):
            start = time.perf_counter()
            results = self.run(inference)
            end = time.perf_counter()
            answer = self.inferred(inference, results)
            self._ran(exchange, inference.rows, end - start)
            return answer
        return self.runs.start(exchange, inference)

    def _copied(
        self, copies: Copies, exchange: Exchange, answer: Answer | Awaitable[Answer]
    ) -> Answer | Awaitable[Answer]:
        """Have the shadow get a copy once there is an answer."""
        if isinstance(answer, Answer):
            copies.take(exchange, answer)
        elif isinstance(answer, Member):

            def answered(member: Member) -> None:
                if not member.cancelled() and member.exception() is None:
                    copies.take(exchange, member.result())

            answer.add_done_callback(answered)
        else:
            return self._copied_later(copies, exchange, answer)
        return answer

    @staticmethod
    async def _copied_later(
        copies: Copies, exchange: Exchange, later: Awaitable[Answer]
    ) -> Answer:
        answer = await later
        copies.take(exchange, answer)
        return answer

    def _ran(self, exchange: Exchange, rows: int, seconds: float) -> None:
        self.model.observe(rows, seconds)
        self.counters.inferred(time.perf_counter() - exchange.started, seconds, rows)

    def run(self, inference: Inference) -> Any:
        """Run the model; a failure inside the runtime is told to the client without its detail."""
        try:
            return self.model.run(inference)
        except Exception as error:  # the runtime's exceptions share no public base class
            if inference.options is None or not inference.options.terminate:
                print(f"the model failed on a request: {error}"[:500], file=sys.stderr, flush=True)
            raise RequestError(500, "the model could not run on this input") from error

    def inferred(self, inference: Inference, results: Any, schema: Schema | None = None) -> Answer:
        """Return the answer; ``schema`` is another version's, where that ran the model."""
        body, header_length = (schema or self.schema).write(inference, results)
        watched = self.watched
        if watched is not None:
            watched.counting.add(inference, results if schema is None else None)
            identifier = inference.identifier or inference.request_id
            if identifier and watched.sender is not None and schema is None:
                watched.sender.add(identifier, inference.caller, inference.outputs, results)
        names = inference.outputs or self.schema.output_names
        if schema is None and self._counted in names:
            values = np.asarray(results[names.index(self._counted)])
            answers.count(values, self.counters.answers)
        return Answer.of_tensors(body, header_length)

    # -- records ---------------------------------------------------------------------------

    def finished(self, exchange: Exchange, client: bytes, status: int, sent: int) -> float:
        """Write the access line of an answer and count it; return when, on the monotonic clock."""
        now, moment = time.perf_counter(), time.time_ns() // 1000
        started = exchange.started
        seconds = now - started if started else 0.0
        self.lines.append(
            ACCESS_LINE
            % (
                moment,
                client,
                exchange.log or log_part(exchange),
                status,
                seconds * 1e6,
                exchange.received,
                sent,
            )
        )
        route = exchange.route.name if exchange.route is not None else "unknown"
        further = self._further_of(exchange) if self.further else None
        of = self if further is None else further
        if route != http.INFER:
            of.counters.responded(route, status)
        elif status != 200:
            of.not_inferred(status, max(0.0, seconds))
        identity = exchange.identity
        if further is not None and identity is not None:
            further.asked[identity.subject] = further.asked.get(identity.subject, 0) + 1
        elif identity is not None:
            # For the audit record of the next flush.
            if not identity.calls:
                self.callers.append(identity)
            identity.calls += 1
        return now

    def _further_of(self, exchange: Exchange) -> Further | None:
        """The further model that a request is of; None: it is of none."""
        return self.further.get(exchange.route.model or "") if exchange.route else None

    def not_inferred(self, status: int, seconds: float) -> None:
        """Count an inference that wasn't answered; one that was is counted where it ran."""
        self.counters.responded(http.INFER, status)
        if status not in NOT_ALLOWED:
            self.counters.not_inferred(seconds)

    def _denied(self, error: RequestError, client: bytes, exchange: Exchange) -> None:
        """Note a refused caller for the audit; a flood of them is summed up by address."""
        reason = str(error.status)
        denied = (self._further_of(exchange) or self).counters.denied
        denied[reason] = denied.get(reason, 0) + 1
        address = client.decode().strip('"').rpartition(":")[0]
        key = (address, error.message, error.status)
        if key not in self.denials and len(self.denials) >= DENIALS_KEPT:
            key = ("others", "more than could be listed", error.status)
        self.denials[key] = self.denials.get(key, 0) + 1

    def handshake_failed(self, reason: str) -> None:
        """Count a connection that never came to be; told and summed up by the next sweep."""
        self.counters.failed_handshakes += 1
        self.failed_handshakes[reason] = self.failed_handshakes.get(reason, 0) + 1


ACCESS_LINE = (
    b'{"time_us":%d,"client":%b,%b,"status":%d,"microseconds":%d,"received":%d,"sent":%d}\n'
)


def log_part(exchange: Exchange) -> bytes:
    """Return the members of an access line that come from the request's head."""
    if exchange.log:
        return exchange.log
    subject = exchange.identity.log_subject if exchange.identity is not None else b"null"
    return b'"subject":%b,"method":%b,"path":%b' % (
        subject,
        orjson.dumps(exchange.method.decode("ascii", "replace")),
        orjson.dumps(exchange.url.decode("ascii", "replace")[:500]),
    )
