"""HTTP/1.1 on one connection: framing, order, limits, timeouts.

Two ways lead to an answer. A request whose head has been seen before, byte for byte, and whose
body is there takes the short one (`_quick`): no parser, no objects, one write. Everything else
goes through llhttp (`httptools`), which also decides what a well-formed message is; only heads
that it has accepted are ever remembered.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Mapping
from typing import Any, cast

import httptools

from workloads.inference import http, router
from workloads.inference.counters import BOUNDS
from workloads.inference.errors import RequestError
from workloads.inference.exchange import Exchange, Head, Heads
from workloads.inference.service import ACCESS_LINE, Answer, Service

MAX_HEAD_BYTES = 16 * 1024
MAX_URL_BYTES = 4 * 1024
MAX_HEADERS = 100
QUICK_BODY_BYTES = 64 * 1024
"""Bodies up to this size are put together for the short way; larger ones go to the parser."""
SWALLOWED_BODY_BYTES = 64 * 1024
"""A refused request's body of up to this size is read to keep the connection."""
BODY_BYTES_PER_SECOND = 64 * 1024
"""The slowest body that is waited for, after the header timeout."""
NO_UPGRADES = "this server speaks HTTP/1.1 only, without upgrades"
LINGER_SECONDS = 1.0
"""Time for which a closing connection still reads: a reset would destroy the answer on its way."""

_WANTED = frozenset(
    {
        b"authorization", b"content-length", b"content-encoding", b"transfer-encoding", b"expect",
        b"host", b"inference-header-content-length",
    }
)  # fmt: skip
_NEVER = float("inf")


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._parser: Any = None
        self._client = b'""'
        self._certificate: Mapping[str, Any] | None = None
        self._heads: Heads = service.heads(None)
        self._exchange: Exchange | None = None  # the one whose bytes are being read
        self._queue: deque[Exchange] = deque()
        self._at_boundary = True
        self._held = b""  # a remembered head and the part of its body that is there
        self._held_size = 0
        self._raw_head: bytes | None = None
        self._busy = False
        self._stuck = False  # the client doesn't read its answers
        self._closing = False
        self._fatal: RequestError | None = None  # ends the connection after what is queued
        self._fatal_exchange: Exchange | None = None
        self.deadline = _NEVER

    # -- asyncio -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start with a fresh connection; for TLS this is after the handshake."""
        service = self._service
        self._transport = cast("asyncio.Transport", transport)
        if len(service.connections) >= service.max_connections:
            service.counters.refused_connections += 1
            self._closing = True
            transport.abort()  # pyright: ignore[reportAttributeAccessIssue]
            return
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        self._client = f'"{peer[0]}:{peer[1]}"'.encode()
        self._certificate = transport.get_extra_info("peercert") or None
        self._heads = service.heads(self._certificate)
        self._parser = httptools.HttpRequestParser(self)
        service.connections.add(self)
        service.counters.connections += 1
        self.deadline = time.perf_counter() + service.limits.header_timeout_seconds

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection; an inference under way for it ends unheard."""
        del exc
        self._closing = True
        self._queue.clear()
        self._service.connections.discard(self)

    def pause_writing(self) -> None:
        """Read no further requests of a client that doesn't take its answers."""
        self._stuck = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on with a client that has caught up."""
        self._stuck = False
        self._pump()

    def eof_received(self) -> bool:
        """Close when the client has ended its side and nothing is left to answer."""
        return bool(self._busy or self._queue)

    def data_received(self, data: bytes) -> None:
        """Take bytes: a whole known request the short way, anything else through the parser."""
        if self._held_size:
            data = self._held + data
            if len(data) < self._held_size:
                self._held = data
                return
            self._held_size = 0
            self._held = b""
        if self._at_boundary:
            end = data.find(b"\r\n\r\n") + 4
            head = self._heads.get(data[:end])
            if head is not None:
                missing = end + head.length - len(data)
                if missing == 0:
                    self._quick(head, data, end)
                    return
                if missing > 0 and head.length <= QUICK_BODY_BYTES:
                    self._held = data
                    self._held_size = end + head.length
                    self.deadline = (
                        time.perf_counter() + self._service.limits.header_timeout_seconds
                    )
                    return
            self._raw_head = data[:end] if end > 3 else None
        self._parse(data)

    # -- the short way -----------------------------------------------------------------------

    def _quick(self, head: Head, data: bytes, end: int) -> None:
        start = time.perf_counter()
        service = self._service
        model = service.model
        if start > head.expires:
            self._heads.pop(data[:end], None)
            self._raw_head = None
            self._parse(data)
            return
        try:
            inference = service.schema.read(data[end:], head.header_length)
            if not model.is_quick(inference.rows):
                self._raw_head = None
                self._parse(data)
                return
            run_start = time.perf_counter()
            results = service.run(inference)
            run_seconds = time.perf_counter() - run_start
            body, header_length = service.schema.write(inference, results)
        except RequestError as error:
            self._finish(self._exchange_of(head, start), self._refusal(error))
            return
        answers = service.answers
        if header_length is None:
            sent = b"%b%d\r\n\r\n%b" % (answers.ok_json, len(body), body)
        else:
            line = b"Inference-Header-Content-Length: %d" % header_length
            sent = answers.make(200, body, http.BINARY, (line,))
        self._transport.write(sent)
        now = time.perf_counter()
        self.deadline = now + service.limits.idle_timeout_seconds
        # What follows is `Counters.inferred`, `Model.observe` and `Service.finished`, without
        # the calls: they would cost as much as what they do.
        rows = inference.rows
        expected = model.expected
        index = rows.bit_length()
        expected[index] += 0.05 * (run_seconds - expected[index])
        seconds = now - start
        counters = service.counters
        counters.latency[bisect_left(BOUNDS, seconds)] += 1
        counters.latency_seconds += seconds
        counters.compute[bisect_left(BOUNDS, run_seconds)] += 1
        counters.compute_seconds += run_seconds
        counters.rows += rows
        identity = head.identity
        if not identity.calls:
            service.callers.append(identity)
        identity.calls += 1
        service.lines.append(
            ACCESS_LINE
            % (
                time.time_ns() // 1000,
                self._client,
                head.log,
                200,
                int(seconds * 1e6),
                head.length,
                len(sent),
            )
        )

    def _exchange_of(self, head: Head, started: float) -> Exchange:
        return Exchange(
            method=head.method,
            url=head.url,
            route=head.route,
            identity=head.identity,
            received=head.length,
            started=started,
        )

    # -- llhttp ------------------------------------------------------------------------------

    def _parse(self, data: bytes) -> None:
        if self._closing or self._fatal is not None:
            return
        before = self._exchange
        if self._at_boundary:
            self.deadline = time.perf_counter() + self._service.limits.header_timeout_seconds
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(RequestError(400, NO_UPGRADES, close=True))
        except httptools.HttpParserError:
            self._fail(RequestError(400, "the request is not well-formed HTTP/1.1", close=True))
        exchange = self._exchange
        if exchange is not None and not exchange.head_complete and exchange is before:
            # A header is reported when it is whole: what is still coming is counted here.
            exchange.received += len(data)
            if exchange.received > MAX_HEAD_BYTES:
                self._fail(self._head_too_large())
        self._raw_head = None
        self._pump()

    def _fail(self, error: RequestError) -> None:
        """End the connection with this error, once what came before it is answered."""
        if self._fatal is None:
            self._fatal = error
            self._fatal_exchange = self._exchange
            self._exchange = None

    @staticmethod
    def _head_too_large() -> RequestError:
        return RequestError(
            431,
            f"the request's head is larger than {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers",
            close=True,
        )

    def on_message_begin(self) -> None:
        """Start a new request (a callback of the parser, as those below)."""
        if self._fatal is None:
            self._exchange = Exchange(raw_head=self._raw_head)
        self._raw_head = None
        self._at_boundary = False

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request target."""
        exchange = self._exchange
        if exchange is not None and len(exchange.url) <= MAX_URL_BYTES:
            exchange.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; only those that mean something here are kept."""
        exchange = self._exchange
        if exchange is None:
            return
        exchange.header_count += 1
        exchange.header_bytes += len(name) + len(value)
        name = name.lower()
        if name in _WANTED:
            if name in exchange.headers and exchange.refusal is None:
                exchange.refusal = RequestError(
                    400, f"the header {name.decode()} is there more than once", close=True
                )
            exchange.headers[name] = value

    def on_headers_complete(self) -> None:
        """Decide from the head alone whether the request is refused."""
        exchange = self._exchange
        if exchange is None:
            return
        parser = self._parser
        exchange.head_complete = True
        exchange.received = 0
        exchange.method = parser.get_method()
        exchange.version = parser.get_http_version()
        exchange.keep_alive = parser.should_keep_alive() and exchange.version == "1.1"
        size = 0
        try:
            if exchange.refusal is not None:
                raise exchange.refusal
            if parser.should_upgrade():
                raise RequestError(400, NO_UPGRADES, close=True)
            size = self._check_head(exchange)
            self._service.admit(exchange, self._certificate)
            self._check_body_head(exchange)
        except RequestError as error:
            exchange.refusal = error
            if error.status in (401, 403):
                self._service.denied(error, self._client)
            chunked = b"transfer-encoding" in exchange.headers
            if error.close or chunked or size > SWALLOWED_BODY_BYTES or self._expects(exchange):
                error.close = True
                self._fail(error)
            return
        self.deadline = (
            time.perf_counter()
            + self._service.limits.header_timeout_seconds
            + (size or self._service.limits.max_body_bytes) / BODY_BYTES_PER_SECOND
        )
        if self._expects(exchange) and not self._busy and not self._queue:
            self._transport.write(http.CONTINUE)

    @staticmethod
    def _expects(exchange: Exchange) -> bool:
        return exchange.headers.get(b"expect", b"").lower() == b"100-continue"

    def _check_head(self, exchange: Exchange) -> int:
        """Check what HTTP itself asks for and return the body's stated size."""
        headers = exchange.headers
        if len(exchange.url) > MAX_URL_BYTES:
            raise RequestError(414, f"the URL is longer than {MAX_URL_BYTES} bytes", close=True)
        if exchange.header_count > MAX_HEADERS or exchange.header_bytes > MAX_HEAD_BYTES:
            raise self._head_too_large()
        if exchange.version == "1.1" and b"host" not in headers:
            raise RequestError(400, "the Host header is missing", close=True)
        if b"expect" in headers and not self._expects(exchange):
            raise RequestError(417, "the only expectation known is 100-continue", close=True)
        coding = headers.get(b"transfer-encoding")
        if coding is not None and coding.lower() != b"chunked":
            raise RequestError(400, "the only transfer coding known is chunked", close=True)
        size = int(headers.get(b"content-length", b"0"))
        if size > self._service.limits.max_body_bytes:
            raise self._too_large()
        return size

    def _too_large(self) -> RequestError:
        return RequestError(
            413,
            f"the body is larger than the {self._service.limits.max_body_bytes} bytes allowed",
            close=True,
        )

    def _check_body_head(self, exchange: Exchange) -> None:
        headers = exchange.headers
        route = exchange.route
        if route is None or route.name != router.INFER:
            return
        if b"content-length" not in headers and b"transfer-encoding" not in headers:
            raise RequestError(411, "send the body's size as Content-Length")
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise RequestError(415, "compressed bodies are not accepted; send it as it is")
        given = headers.get(b"inference-header-content-length")
        if given is not None:
            if not given.isdigit() or len(given) > 18:
                raise RequestError(
                    400, "Inference-Header-Content-Length must be a whole number of bytes"
                )
            exchange.header_length = int(given)

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body, up to the limit."""
        exchange = self._exchange
        if exchange is None:
            return
        exchange.received += len(body)
        if exchange.refusal is not None:
            return
        if exchange.received > self._service.limits.max_body_bytes:
            exchange.parts.clear()
            self._fail(self._too_large())
            return
        exchange.parts.append(body)

    def on_message_complete(self) -> None:
        """Queue the whole request."""
        exchange = self._exchange
        self._exchange = None
        self._at_boundary = True
        if exchange is not None:
            exchange.started = time.perf_counter()
            self._queue.append(exchange)

    # -- answers, in order -------------------------------------------------------------------

    def _pump(self) -> None:
        """Answer what is queued, one after the other."""
        while self._queue and not self._busy and not self._closing and not self._stuck:
            exchange = self._queue.popleft()
            try:
                if exchange.refusal is not None:
                    raise exchange.refusal
                answer = self._service.handle(exchange)
            except RequestError as error:
                answer = self._refusal(error)
            except Exception:  # a fault of ours must not take the connection's order down
                answer = self._fault()
            if isinstance(answer, Answer):
                self._finish(exchange, answer)
            else:
                self._busy = True
                self.deadline = _NEVER
                self._transport.pause_reading()
                task = asyncio.ensure_future(self._later(exchange, answer))
                self._service.tasks.add(task)
                task.add_done_callback(self._service.tasks.discard)
        if self._closing or self._busy or self._stuck or self._queue:
            return
        if self._fatal is not None:
            error, self._fatal = self._fatal, None
            exchange = self._fatal_exchange or Exchange()
            exchange.started = exchange.started or time.perf_counter()
            exchange.keep_alive = False
            self._finish(exchange, self._refusal(error))
            return
        if not self._transport.is_reading():
            self._transport.resume_reading()

    async def _later(self, exchange: Exchange, work: Awaitable[Answer]) -> None:
        try:
            answer = await work
        except RequestError as error:
            answer = self._refusal(error)
        except Exception:  # as in `_pump`
            answer = self._fault()
        self._busy = False
        if not self._transport.is_closing():
            self._finish(exchange, answer)
            self._pump()

    @staticmethod
    def _refusal(error: RequestError) -> Answer:
        return Answer(error.status, error.body(), headers=error.headers, close=error.close)

    @staticmethod
    def _fault() -> Answer:
        traceback.print_exc()
        return Answer(500, RequestError(500, "the server failed on this request").body())

    def _finish(self, exchange: Exchange, answer: Answer) -> None:
        """Write an answer, record it, and decide whether the connection goes on."""
        service = self._service
        # A draining worker closes after the last request that it has in hand, so that what a
        # client has sent already is answered.
        last = service.draining and not self._queue and self._at_boundary
        close = answer.close or last or (not exchange.keep_alive)
        sent = service.answers.make(
            answer.status, answer.body, answer.content_type, answer.headers, close=close
        )
        self._transport.write(sent)
        service.finished(exchange, self._client, answer.status, len(sent))
        if exchange.raw_head is not None and answer.status == 200 and not close:
            service.remember(exchange, self._heads)
        if close:
            self._close(linger=answer.close)
        else:
            self.deadline = time.perf_counter() + service.limits.idle_timeout_seconds

    def _close(self, *, linger: bool) -> None:
        self._closing = True
        self._queue.clear()
        if linger:
            self.deadline = time.perf_counter() + LINGER_SECONDS
            if not self._transport.is_reading():
                self._transport.resume_reading()
        else:
            self._transport.close()

    # -- called by the worker's sweep ----------------------------------------------------------

    def expire(self) -> None:
        """Close a connection whose deadline is over: with 408 in the middle of a request."""
        in_message = not self._at_boundary or self._held_size
        if self._closing or self._stuck:
            self._transport.abort()
        elif in_message:
            exchange = self._exchange or Exchange()
            exchange.keep_alive = False
            error = RequestError(408, "the request didn't arrive in time", close=True)
            self._finish(exchange, self._refusal(error))
        else:
            self._closing = True
            self._transport.close()

    def is_idle(self) -> bool:
        """Tell whether nothing is being received or answered."""
        return not (self._busy or self._queue or self._held_size) and self._at_boundary

    def close(self) -> None:
        """Close at the end of a drain."""
        self._closing = True
        self._transport.close()
