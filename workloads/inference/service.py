"""What one worker answers with its first model: connections, callers, routes and records.

Further models answer under their own names, and are called with what is admitted here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

import orjson

from falaj import __version__
from falaj.workloads.inference.auth import Authenticator, Identity
from falaj.workloads.inference.connections import http
from falaj.workloads.inference.connections.header_names import KNOWN, REQUEST_ID
from falaj.workloads.inference.connections.http import Answer, Exchange, Head, HeaderCache
from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.language.completions import Completion
from falaj.workloads.inference.language.engine import Engine
from falaj.workloads.inference.language.generation import Language
from falaj.workloads.inference.language.texts import Texts
from falaj.workloads.inference.metrics import Counters
from falaj.workloads.inference.model_service import ModelService, Watched
from falaj.workloads.inference.models.batching import Plan
from falaj.workloads.inference.models.model import Model
from falaj.workloads.inference.models.remote import Overflow, RelayedModel, Remote
from falaj.workloads.inference.protocol import extensions, oip, routes
from falaj.workloads.inference.settings import Settings
from falaj.workloads.inference.shadow.copies import Copies

PRODUCT = {"name": "falaj", "version": __version__, "extensions": extensions.ANNOUNCED}
OF_LANGUAGE = (*routes.TEXTS, routes.CARDS, routes.CARD)
"""Routes that are there where settings ask for them, or for the model; else they are answered with
404."""
HEADS_KEPT = 1024
DENIALS_KEPT = 200


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


class Service(ModelService):
    """The state that all connections of a worker share.

    Args:
        settings: of the service.
        model: the first; it, and all that isn't named here, as of a `ModelService`.
        authenticator: knows callers.
        metrics: returns what is counted across workers, as the text of `/metrics`.
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
        super().__init__(
            settings, model=model, pool=pool, threads=threads, statistics=statistics,
            upstream=upstream, overflow=overflow, watched=watched, batching=batching,
            language=language, engine=engine,
        )  # fmt: skip
        self.language = language
        self.router = routes.Router(model.name, model.version)
        self.authenticator = authenticator
        self.answers = http.Answers()
        self.bodies = http.Bodies(settings.limits.max_inflight_bytes)
        self.connections: set[Client] = set()
        #: When those came whose TLS handshake is under way; of failed ones until they are freed.
        self.arriving: WeakKeyDictionary[Client, float] = WeakKeyDictionary()
        self.max_connections = 16384
        #: Connections with a second descriptor, to another process.
        self.relayed = 0
        #: Takes connections over that speak another protocol, and tells whether it has.
        self.take_over: Callable[[asyncio.Transport], bool] | None = None
        #: Further models by name, those that can't be asked among them.
        self.further: Mapping[str, Further] = {}
        #: Copies answered requests for a version that answers nobody; None: there is none.
        self.copies: Copies | None = None
        self.tasks: set[asyncio.Future[None]] = set()
        self.draining = False
        # Finished access lines, callers and refusals since the last flush.
        self.lines: list[bytes] = []
        self.callers: list[Identity] = []
        self.denials: dict[tuple[str, str, int], int] = {}
        self.failed_handshakes: dict[str, int] = {}
        self.texts = Texts(
            language, self.schema, limits=settings.limits, run=self.run, steps=self.runs,
            counters=self.counters, engine=engine,
        )  # fmt: skip
        self._metrics = metrics
        self._later |= {
            routes.METRICS: self._metrics_answer,
            **dict.fromkeys(routes.TEXTS, self._complete),
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
        self.router = routes.Router(self.model.name, self.model.version, versions)

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
            or exchange.route.name != routes.INFER
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
                    of_any = unnamed or (route.model is None and route.name in routes.OF_ANY)
                    identity.require(
                        route.scope, route.model, of_any=of_any,
                        names=not unnamed and routes.names_model(exchange.url),
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
                asked[1], asked[0][: oip.MAX_ID_CHARACTERS], names=routes.names_model(url)
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
        if name == routes.INFER:
            answer = self.infer(exchange)
            return answer if self.copies is None else self.copies.follow(exchange, answer)
        if name == routes.READY:
            ready = self.runtime_ready and not self.leaving
            return Answer(200 if ready else 503, orjson.dumps({"live": True, "ready": ready}))
        if name in (routes.CARDS, routes.CARD):
            return self.texts.cards(exchange)
        return super().handle(exchange)

    def _document(self, name: str, exchange: Exchange) -> Any:
        if name == routes.LIVE:
            return {"live": True}
        if name == routes.SERVER:
            return PRODUCT
        if name == routes.INDEX:
            return self._index(exchange)
        return super()._document(name, exchange)

    @property
    def _places(self) -> Mapping[str, routes.Route]:
        return self.router.places

    def _is_off(self, route: str) -> bool:
        language = self.language
        if route in OF_LANGUAGE:
            return language is None or (route == routes.CHATS and language.template is None)
        return super()._is_off(route)

    def _complete(self, exchange: Exchange) -> Completion:
        completion = self.texts.begin(exchange, log_part(exchange))
        # What is needed of it is read.
        self.bodies.release(exchange)
        return completion

    async def _metrics_answer(self, exchange: Exchange) -> Answer:
        del exchange
        return Answer(200, await self._metrics(), http.TEXT)

    async def _statistics_answer(self, exchange: Exchange) -> Answer:
        """Of a model or, by the path of none, of all that the caller may observe."""
        assert exchange.route is not None  # noqa: S101 - admitted requests have a route
        if exchange.route.model is not None or not self.further:
            return await super()._statistics_answer(exchange)
        first = await self.statistics()
        found = first if self._is_shown(exchange, self.model.name) else []
        for name, each in self.further.items():
            if self._is_shown(exchange, name):
                found += await each.statistics()
        return self._statistics_of(found)

    def _index(self, exchange: Exchange) -> list[dict[str, str]]:
        only_ready = extensions.wants_ready(exchange.content)
        found = self.index(only_ready) if self._is_shown(exchange, self.model.name) else []
        for name, each in self.further.items():
            if self._is_shown(exchange, name):
                found += each.index(only_ready)
        return found

    @staticmethod
    def _is_shown(exchange: Exchange, model: str) -> bool:
        identity, route = exchange.identity, exchange.route
        assert route is not None and route.scope is not None and identity is not None  # noqa: S101, PT018 - admitted
        return identity.holds(route.scope, model)

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
        if route != routes.INFER:
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
