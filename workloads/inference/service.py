"""What one worker answers: routes to handlers, identities, counts and log lines."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import orjson

from falaj.workloads.inference import http, router
from falaj.workloads.inference.auth import Authenticator, Identity
from falaj.workloads.inference.counters import Counters
from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.exchange import Answer, Exchange, Head, Heads
from falaj.workloads.inference.model import Model
from falaj.workloads.inference.oip import Inference, Schema
from falaj.workloads.inference.relayed import RelayedModel
from falaj.workloads.inference.remote import Remote
from falaj.workloads.inference.runs import Runs
from falaj.workloads.inference.settings import Settings
from falaj.workloads.inference.spill import Spill

if TYPE_CHECKING:
    from falaj.workloads.inference.protocol import Connection

PRODUCT = {"name": "falaj", "version": "0.1.0", "extensions": ["binary_tensor_data"]}
HEADS_KEPT = 1024
DENIALS_KEPT = 200
INFERENCE_HEADER = b"Inference-Header-Content-Length: "


class Service:
    """The state that all connections of a worker share."""

    def __init__(
        self,
        settings: Settings,
        *,
        model: Model | RelayedModel,
        authenticator: Authenticator,
        pool: ThreadPoolExecutor,
        threads: int,
        metrics: Callable[[], Awaitable[bytes]],
        upstream: Remote | None = None,
        spill: Spill | None = None,
    ) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.model = model
        self.schema = model.schema
        self.router = router.Router(model.name, model.version)
        self.authenticator = authenticator
        self.counters = Counters()
        self.answers = http.Answers()
        self.connections: set[Connection] = set()
        self.max_connections = 16384
        self.tasks: set[asyncio.Future[None]] = set()
        self.draining = False
        self.leaving = False
        # Finished access lines, callers and refusals since the last flush.
        self.lines: list[bytes] = []
        self.callers: list[Identity] = []
        self.denials: dict[tuple[str, str, int], int] = {}
        self.failed_handshakes: dict[str, int] = {}
        self.runs = Runs(self, pool=pool, threads=threads, upstream=upstream, spill=spill)
        # A runtime beside has to say so first.
        self.runtime_ready = upstream is None
        self._metrics = metrics
        # Known heads: a token speaks for itself, a certificate for its own connections only.
        self._heads_of_tokens = Heads()
        self._heads_of_certificates: WeakValueDictionary[str, Heads] = WeakValueDictionary()

    # -- heads -----------------------------------------------------------------------------

    def heads(self, certificate: Mapping[str, Any] | None) -> Heads:
        """Return the known heads of connections with this client certificate."""
        if certificate is None:
            return self._heads_of_tokens
        key = repr(certificate)
        heads = self._heads_of_certificates.get(key)
        if heads is None:
            heads = self._heads_of_certificates[key] = Heads()
        return heads

    def remember(self, exchange: Exchange, heads: Heads) -> None:
        """Keep the head of an answered inference request for the next ones like it."""
        identity, head = exchange.identity, exchange.raw_head
        if (
            head is None
            or identity is None
            or exchange.route is None
            or exchange.route.name != router.INFER
            or self.draining
            or not self.model.is_quick(1)
            or not exchange.is_plain()
        ):
            return
        if len(heads) >= HEADS_KEPT:
            heads.clear()
        # Where the wall clock is set while the server runs, `forget_heads` is called.
        expires = time.perf_counter() + (identity.expires - time.time())
        heads[head] = Head(exchange, identity, expires, log_part(exchange))

    def forget_heads(self) -> None:
        """Make every connection parse and authorise its next head anew."""
        for heads in (self._heads_of_tokens, *self._heads_of_certificates.values()):
            heads.clear()

    def drain(self, *, leaving: bool) -> None:
        """Answer what comes with `Connection: close`; ``leaving`` also ends readiness."""
        self.draining = True
        self.leaving = leaving
        self.forget_heads()

    # -- requests --------------------------------------------------------------------------

    def admit(self, exchange: Exchange, certificate: Mapping[str, Any] | None) -> None:
        """Find the route and check the caller, before a body is read.

        Raises:
            RequestError: 401, 403, 404 or 405.
        """
        route = self.router.find(exchange.url)
        exchange.route = route
        if route is None or route.scope is not None:
            identity = self.authenticator.identify(
                exchange.headers.get(b"authorization"), certificate
            )
            exchange.identity = identity
            if route is not None and route.scope is not None:
                identity.require(route.scope)
        if route is None:
            raise self.router.unknown(exchange.url)
        if exchange.method != route.method:
            raise RequestError(
                405,
                f"this path takes {route.method.decode()}, not {exchange.method.decode()}",
                headers=(b"Allow: " + route.method,),
            )

    def handle(self, exchange: Exchange) -> Answer | Awaitable[Answer]:
        """Answer an admitted request, at once or later.

        Raises:
            RequestError: the request is refused.
        """
        assert exchange.route is not None  # noqa: S101 - admitted requests have a route
        name = exchange.route.name
        if name == router.INFER:
            return self.infer(exchange)
        if name == router.METRICS:
            return self._metrics_answer()
        if name == router.READY:
            ready = self.runtime_ready and not self.leaving
            status = 200 if ready else 503
            return Answer(status, orjson.dumps({"live": True, "ready": ready}))
        model = self.model
        if name == router.MODEL_READY:
            status = 200 if self.runtime_ready else 503
            return Answer(status, orjson.dumps({"name": model.name, "ready": self.runtime_ready}))
        documents: dict[str, Callable[[], dict[str, Any]]] = {
            router.LIVE: lambda: {"live": True},
            router.SERVER: lambda: PRODUCT,
            router.MODEL: lambda: {
                "name": model.name,
                "versions": [model.version],
                "platform": "onnx_onnxv1",
                **model.schema.metadata(),
            },
        }
        return Answer(200, orjson.dumps(documents[name]()))

    async def _metrics_answer(self) -> Answer:
        return Answer(200, await self._metrics(), http.TEXT)

    def infer(self, exchange: Exchange) -> Answer | Awaitable[Answer]:
        """Check the tensors and run the model: here if it is quick, else as `Runs` decides."""
        inference = self.schema.read(exchange.body(), exchange.header_length)
        if self.model.is_quick(inference.rows):
            start = time.perf_counter()
            results = self.run(inference)
            end = time.perf_counter()
            answer = self.inferred(inference, results)
            self.model.observe(inference.rows, end - start)
            self.counters.inferred(
                time.perf_counter() - exchange.started, end - start, inference.rows
            )
            return answer
        return self.runs.start(exchange, inference)

    def run(self, inference: Inference) -> Any:
        """Run the model; a failure inside the runtime is told to the client without its detail."""
        try:
            return self.model.run(inference)
        except Exception as error:  # the runtime's exceptions share no public base class
            print(f"the model failed on a request: {error}"[:500], file=sys.stderr, flush=True)
            raise RequestError(500, "the model could not run on this input") from error

    def inferred(self, inference: Inference, results: Any, schema: Schema | None = None) -> Answer:
        """Return the answer; ``schema`` is another version's, where that ran the model."""
        body, header_length = (schema or self.schema).write(inference, results)
        if header_length is None:
            return Answer(200, body)
        return Answer(200, body, http.BINARY, (INFERENCE_HEADER + str(header_length).encode(),))

    # -- records ---------------------------------------------------------------------------

    def called(self, identity: Identity) -> None:
        """Count a request of this caller for the audit record of the next flush."""
        if not identity.calls:
            self.callers.append(identity)
        identity.calls += 1

    def finished(self, exchange: Exchange, client: bytes, status: int, sent: int) -> None:
        """Write the access line of an answer and count it."""
        now = time.perf_counter()
        self.lines.append(
            ACCESS_LINE
            % (
                time.time_ns() // 1000,
                client,
                log_part(exchange),
                status,
                round((now - exchange.started) * 1e6) if exchange.started else 0,
                exchange.received,
                sent,
            )
        )
        route = exchange.route.name if exchange.route is not None else "unknown"
        if route != router.INFER or status != 200:
            self.counters.responded(route, status)
        if exchange.identity is not None:
            self.called(exchange.identity)

    def denied(self, error: RequestError, client: bytes) -> None:
        """Note a refused caller for the audit; a flood of them is summed up by address."""
        reason = str(error.status)
        self.counters.denied[reason] = self.counters.denied.get(reason, 0) + 1
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
    subject = exchange.identity.log_subject if exchange.identity is not None else b"null"
    return b'"subject":%b,"method":%b,"path":%b' % (
        subject,
        orjson.dumps(exchange.method.decode("ascii", "replace")),
        orjson.dumps(exchange.url.decode("ascii", "replace")[:500]),
    )
