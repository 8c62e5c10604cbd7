"""HTTP/1.1: from bytes to requests, and from answers to bytes.

llhttp (`httptools`) decides what a well-formed message is.

On top of it: versions and forms of targets, limits on sizes, the refusals that HTTP itself asks
for, and admission by the service before a body is read. Errors that leave the stream in doubt are
*fatal*: what came before them is answered, then they are, then the connection ends.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NamedTuple

import httptools

from falaj.workloads.inference.auth import Identity
from falaj.workloads.inference.connections import codings
from falaj.workloads.inference.connections.header_names import HEADER_LENGTH, KNOWN
from falaj.workloads.inference.errors import (
    RequestError,
    body_inflates,
    body_too_large,
    retry_after,
)
from falaj.workloads.inference.protocol.routes import BODY_OPTIONAL, WITH_BODY, Route

JSON = b"application/json"
BINARY = b"application/octet-stream"
TEXT = b"text/plain; version=1.0.0; charset=utf-8"
EVENTS = b"text/event-stream"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class Answers:
    """Makes answers; the `Date` line (RFC 9110, 6.6.1) is renewed by `tick`, not per answer."""

    def __init__(self) -> None:
        self.date = b""
        self._usual = b""
        self.tick()

    def tick(self) -> None:
        """Renew the date; call it about once a second."""
        self.date = b"Date: " + formatdate(time.time(), usegmt=True).encode() + b"\r\n"
        # What nearly all answers begin with; to join it for each takes 0.1 us.
        self._usual = b"%b%bContent-Type: %b\r\nContent-Length: " % (
            _STATUS_LINES[200], self.date, JSON,
        )  # fmt: skip

    def make(
        self,
        status: int,
        body: bytes,
        content_type: bytes = JSON,
        headers: Collection[bytes] = (),
        *,
        close: bool = False,
        head: bool = False,
    ) -> bytes:
        """Return a whole answer; ``headers`` are lines without their end.

        The answer to HEAD has no body, and the length that it would have (RFC 9110, 9.3.2).
        """
        if content_type is JSON and status == 200 and not (headers or close or head):
            return b"%b%d\r\n\r\n%b" % (self._usual, len(body), body)
        return b"%b%b%b%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (
            _STATUS_LINES[status],
            self.date,
            b"".join(header + b"\r\n" for header in headers) if headers else b"",
            b"Connection: close\r\n" if close else b"",
            content_type,
            len(body),
            b"" if head else body,
        )

    def begin_events(self, *, close: bool) -> bytes:
        """Return the head of an answer whose events follow one by one, each as a `chunk`."""
        return b"".join(
            (
                _STATUS_LINES[200],
                self.date,
                b"Connection: close\r\n" if close else b"",
                b"Cache-Control: no-store\r\nContent-Type: %b\r\n" % EVENTS,
                b"Transfer-Encoding: chunked\r\n\r\n",
            )
        )


def chunk(data: bytes) -> bytes:
    """Return a piece of a body whose size isn't known when it begins (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def event(data: bytes) -> bytes:
    """Return data without line ends as a server-sent event.

    https://html.spec.whatwg.org/multipage/server-sent-events.html
    """
    return b"data: %b\n\n" % data


class Answer(NamedTuple):
    """What goes back: the connection turns it into bytes."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: tuple[bytes, ...] = ()
    close: bool = False
    held: bool = False
    """Whether what is counted for the request in `Bodies` is its answer, until that is sent."""
    events: AsyncGenerator[bytes] | None = None
    """What follows the body, which is its first piece, as it comes; its status is 200."""

    @classmethod
    def of_tensors(cls, body: bytes, header_length: int | None) -> Answer:
        """Return the answer to an inference.

        Args:
            body: its body.
            header_length: how many of its bytes are JSON, before binary tensors; None: all are.
        """
        if header_length is None:
            return cls(200, body)
        return cls(200, body, BINARY, (LENGTH_LINE + str(header_length).encode(),))

    @property
    def header_length(self) -> int | None:
        """How many of the body's bytes are JSON, before binary tensors; None: all are."""
        for line in self.headers:
            if line.startswith(LENGTH_LINE):
                return int(line[len(LENGTH_LINE) :])
        return None


@dataclass(slots=True)
class Exchange:
    """What is known of a request once its head has been read.

    ``received`` counts the bytes of the body; ``started`` is on the monotonic clock.
    """

    # What a known head and its body say comes first: `Head` gives it by position, which takes
    # half the time of giving it by name.
    method: bytes = b""
    url: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    route: Route | None = None
    identity: Identity | None = None
    header_length: int | None = None
    log: bytes = b""
    """What an access line says of the head, where that is known already."""
    content: bytes | bytearray = b""
    received: int = 0
    started: float = 0.0
    version: str = "1.1"
    header_count: int = 0
    header_bytes: int = 0
    head_complete: bool = False
    keep_alive: bool = True
    refusal: RequestError | None = None
    held: int = 0
    """Bytes of the body, or of an answer, that are counted in `Bodies`."""
    chunks: int = 0
    framing: int = 0
    """Bytes of a chunked body that aren't data, but for the read that it came with."""
    waits: bool = False
    """Whether the client waits for `100 Continue` still."""
    raw_head: bytes | None = None
    """The head's bytes, where they came in one piece from the start of a message."""
    options: Any = None
    """Of the runtime, for a run that may be told to stop; None: it can't be."""
    arm: Any = None
    """Who is to answer it, in an experiment; None: it is in none."""

    def expects(self) -> bool:
        """Tell whether the client waits for `100 Continue` before it sends the body.

        One that speaks HTTP/1.0 knows no such answer, whatever it says (RFC 9110, 10.1.1).
        """
        return self.version == "1.1" and self.headers.get(b"expect", b"").lower() == _EXPECTATION

    def is_plain(self) -> bool:
        """Tell whether the raw head is exactly what the parser saw: one line per header.

        Then its end is where the parser found it, and its bytes alone stand for it.
        """
        head = self.raw_head
        return (
            head is not None
            and self.keep_alive
            and head.startswith(b"%b %b HTTP/1.1\r\n" % (self.method, self.url))
            and head.count(b"\r\n") == head.count(b"\n") == self.header_count + 2
            and b"content-length" in self.headers
            and b"transfer-encoding" not in self.headers
            and b"content-encoding" not in self.headers
            and b"expect" not in self.headers
        )

    def append(self, piece: bytes) -> None:
        """Join a piece to the body: pieces that are kept apart take many times their size."""
        if not self.content:
            self.content = piece
        elif isinstance(self.content, bytearray):
            self.content += piece
        else:
            self.content = bytearray(self.content)
            self.content += piece


class Head:
    """A request head that has been parsed, routed and authorised once.

    Parsing is a function of the bytes alone, so a head with the same bytes needs none of it
    again: keep-alive clients send the same one with every request. Only the expiry of the
    credentials is looked at each time (``expires``, on the monotonic clock).

    Args:
        raw: the head's bytes, with its end.
        exchange: the request that it came with.
        expires: see above.
        log: what an access line says of it.
    """

    __slots__ = ("_exchange", "_free", "end", "expires", "length", "log", "raw", "size")

    def __init__(self, raw: bytes, exchange: Exchange, expires: float, log: bytes) -> None:
        # Without the body: as many heads are kept as there are callers.
        self._exchange = replace(exchange, content=b"", held=0, raw_head=None)
        self._free: Exchange | None = None
        self.raw = raw
        self.end = len(raw)
        self.length = exchange.received
        self.size = self.end + self.length
        """Bytes of a request with this head."""
        self.expires = expires
        self.log = log

    def exchange(self, body: bytes, started: float) -> Exchange:
        """Return a request with this head, whose body has been read."""
        free = self._free
        if free is not None:
            self._free = None
            free.content = body
            free.started = started
            return free
        known = self._exchange
        return Exchange(
            known.method, known.url, known.headers, known.route, known.identity,
            known.header_length, self.log, body, self.length, started,
        )  # fmt: skip

    def take_back(self, exchange: Exchange) -> None:
        """Keep a request that is over, and that nobody else keeps, for the next one's facts.

        To make one anew takes 0.25 us longer.
        """
        exchange.content = b""
        exchange.arm = None
        self._free = exchange


class HeaderCache(dict[bytes, Head]):
    """Known heads by their bytes; a class of its own so that it can be held weakly.

    ``times_cleared`` tells connections that keep a head whether it still counts.
    """

    __slots__ = ("__weakref__", "times_cleared")

    def __init__(self, known: Mapping[bytes, Head] = MappingProxyType({})) -> None:
        super().__init__(known)
        self.times_cleared = 0

    def clear(self) -> None:
        """Forget all of them, and those that connections keep."""
        super().clear()
        self.times_cleared += 1


class Bodies:
    """The bytes of bodies that a worker holds: they arrive, or their requests aren't answered.

    Likewise of answers that it has read from the disk, until they are sent.

    Args:
        limit: the most bytes.
    """

    __slots__ = ("held", "limit")

    def __init__(self, limit: int) -> None:
        self.held = 0
        self.limit = limit

    def take(self, exchange: Exchange, size: int) -> None:
        """Count a piece of a body.

        Raises:
            RequestError: 503, there is no room for it.
        """
        self.require(size)
        self.hold(exchange, size)

    def hold(self, exchange: Exchange, size: int) -> None:
        """Count a piece of a body for which there is room."""
        self.held += size
        exchange.held += size

    def fits(self, size: int) -> bool:
        """Tell whether there is room for so many bytes more."""
        return self.held + size <= self.limit

    def require(self, size: int) -> None:
        """Refuse what there is no room for.

        Raises:
            RequestError: 503.
        """
        if not self.fits(size):
            raise RequestError(
                503,
                f"the bodies of unanswered requests take {self.held} of {self.limit} bytes; "
                "try again",
                headers=(retry_after(1),),
            )

    def release(self, exchange: Exchange) -> None:
        """Let go of a body: its request is answered or given up."""
        self.held -= exchange.held
        exchange.held = 0
        exchange.content = b""


MAX_HEAD_BYTES = 16 * 1024
MAX_URL_BYTES = 4 * 1024
MAX_HEADERS = 100
CHUNK_HEAD_BYTES = 16
"""What a chunk's size and line ends may take; more is taken from `MAX_HEAD_BYTES`, which bounds
extensions and trailers."""
SWALLOWED_BODY_BYTES = 64 * 1024
"""A refused request's body of up to this size is read to keep the connection."""
_EXPECTATION = b"100-continue"
_MALFORMED = "the request is not well-formed HTTP/1.1"
_HOST = (
    rb"(?:\[[0-9A-Fa-f:.]{2,45}\]|(?:[A-Za-z0-9._~!$&'()*+;=-]|%[0-9A-Fa-f]{2}){1,253})"
    rb"(?::[0-9]{0,5})?"
)
"""RFC 3986, 3.2.2 and 3.2.3, without the comma by which a proxy joins two fields."""
_AUTHORITY = re.compile(_HOST)
_ABSOLUTE = re.compile(rb"https?://" + _HOST + rb"(?=[/?]|$)", re.IGNORECASE)
_NO_UPGRADES = "this server speaks HTTP/1.1 only, without upgrades"
_NO_FRAGMENTS = (
    "the request target has a '#', which no form of it may; send %23 where one is meant"
)
"""RFC 9112, 3.2: a fragment stays with the client."""
LENGTH_LINE = HEADER_LENGTH.encode() + b": "
"""What the line of an answer begins with that gives it."""


class Reader:
    """Reads the requests of one connection into ``queue``.

    Args:
        max_body_bytes: limit of a body.
        admit: checks a complete head (route, caller); raises RequestError to refuse it.
        proceed: told of an admitted head and its stated body size in bytes (0: none or
            chunked), before the body is read.
        bodies: what the worker holds.
        wanted: names of the headers that are kept, in lower case.
    """

    def __init__(
        self,
        max_body_bytes: int,
        bodies: Bodies,
        admit: Callable[[Exchange], None],
        proceed: Callable[[Exchange, int], None],
        wanted: frozenset[bytes] = KNOWN,
    ) -> None:
        self.queue: deque[Exchange] = deque()
        self.at_boundary = True
        self.exchange: Exchange | None = None  # the one whose bytes are being read
        self.fatal: RequestError | None = None
        self.fatal_exchange: Exchange | None = None
        self._max_body_bytes = max_body_bytes
        self._bodies = bodies
        self._admit = admit
        self._proceed = proceed
        self._wanted = wanted
        self._raw_head: bytes | None = None
        self._decoder: codings.Decoder | None = None  # of the body that is being read
        self._parser: Any = httptools.HttpRequestParser(self)

    def feed(self, data: bytes, raw_head: bytes | None) -> None:
        """Take bytes; ``raw_head`` is the head that they start with, if they do so."""
        if self.fatal is not None:
            return
        before = self.exchange
        received = before.received if before is not None else 0
        self._raw_head = raw_head
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.fail(RequestError(400, _NO_UPGRADES, close=True))
        except httptools.HttpParserError:
            self.fail(RequestError(400, _MALFORMED, close=True))
        self._raw_head = None
        exchange = self.exchange
        if exchange is not None and not exchange.head_complete and exchange is before:
            # A header is reported when it is whole: what is still coming is counted here.
            exchange.received += len(data)
            if exchange.received > MAX_HEAD_BYTES:
                self.fail(_head_too_large())
        elif (
            exchange is not None and exchange is before
            and b"transfer-encoding" in exchange.headers
        ):  # fmt: skip
            exchange.framing += len(data) - (exchange.received - received)
            if exchange.framing > MAX_HEAD_BYTES + CHUNK_HEAD_BYTES * exchange.chunks:
                self.fail(_framing_too_large())

    def fail(self, error: RequestError) -> None:
        """End the connection with this error, once what came before it is answered."""
        if self.fatal is None:
            self.fatal = error
            self.fatal_exchange = self.exchange
            if self.exchange is not None:
                self._bodies.release(self.exchange)
            self.exchange = None

    def drop(self) -> None:
        """Let go of what has been read and is never to be answered."""
        for exchange in (*self.queue, self.exchange):
            if exchange is not None:
                self._bodies.release(exchange)
        self.queue.clear()
        self.exchange = None

    # -- callbacks of the parser -------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Start a new request."""
        if self.fatal is None:
            self.exchange = Exchange(raw_head=self._raw_head)
        self._raw_head = None
        self._decoder = None
        self.at_boundary = False

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request target."""
        exchange = self.exchange
        if exchange is not None and len(exchange.url) <= MAX_URL_BYTES:
            exchange.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; only those that mean something here are kept."""
        exchange = self.exchange
        if exchange is None:
            return
        exchange.header_count += 1
        exchange.header_bytes += len(name) + len(value)
        if exchange.head_complete:
            # A trailer: it is dropped, and means nothing of the head (RFC 9110, 6.5.1).
            if exchange.header_count > MAX_HEADERS or exchange.header_bytes > MAX_HEAD_BYTES:
                self.fail(_framing_too_large())
            return
        if exchange.header_count > MAX_HEADERS or exchange.header_bytes > MAX_HEAD_BYTES:
            return  # refused once the head is there
        name = name.lower()
        if name in self._wanted:
            value = value.rstrip(b" \t")  # not part of it (RFC 9110, 5.5); before, llhttp skips
            if name == b"content-encoding" and name in exchange.headers:
                # Lines of it are one list (RFC 9110, 5.3), and no list is taken.
                value = exchange.headers[name] + b", " + value
            elif name in exchange.headers and exchange.refusal is None:
                exchange.refusal = RequestError(
                    400, f"the header {name.decode()} is there more than once", close=True
                )
            exchange.headers[name] = value

    def on_headers_complete(self) -> None:
        """Decide from the head alone whether the request is refused."""
        exchange = self.exchange
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
                raise RequestError(400, _NO_UPGRADES, close=True)
            size = self._check_head(exchange)
            self._admit(exchange)
            self._check_body_head(exchange, size)
        except RequestError as error:
            exchange.refusal = error
            chunked = b"transfer-encoding" in exchange.headers
            if error.close or chunked or size > SWALLOWED_BODY_BYTES or exchange.expects():
                error.close = True
                self.fail(error)
            return
        self._proceed(exchange, size)

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body, up to the limit."""
        exchange = self.exchange
        if exchange is None:
            return
        exchange.received += len(body)
        if exchange.refusal is not None:
            return
        route = exchange.route
        if route is None or route.name not in WITH_BODY:
            # Nobody reads it: it is let through, as long as that is quick.
            if exchange.received > SWALLOWED_BODY_BYTES:
                self.fail(_no_body_wanted())
            return
        if exchange.received > self._max_body_bytes:
            self.fail(body_too_large(self._max_body_bytes))
            return
        try:
            if self._decoder is None:
                self._bodies.take(exchange, len(body))
                exchange.append(body)
            else:
                self._inflate(exchange, self._decoder, body)
        except RequestError as error:
            error.close = True
            self.fail(error)

    def _inflate(self, exchange: Exchange, decoder: codings.Decoder, body: bytes) -> None:
        """Take what a piece of a coded body stands for, up to the limit of a body.

        Raises:
            RequestError: 400, the body is malformed; 413, it is too large; 503, there is no room.
        """
        for piece in decoder.pieces(body):
            if exchange.held + len(piece) > self._max_body_bytes:
                raise body_inflates(self._max_body_bytes)
            self._bodies.take(exchange, len(piece))
            exchange.append(piece)

    def on_chunk_header(self) -> None:
        """Count a chunk."""
        if self.exchange is not None:
            self.exchange.chunks += 1

    def on_message_complete(self) -> None:
        """Queue the whole request."""
        exchange = self.exchange
        self.exchange = None
        self.at_boundary = True
        if exchange is not None:
            decoder = self._decoder
            if decoder is not None and exchange.refusal is None and not decoder.is_complete:
                self._bodies.release(exchange)
                exchange.refusal = decoder.cut_short()
            self._decoder = None  # takes 40 KiB, which no connection keeps that waits
            exchange.started = time.perf_counter()
            self.queue.append(exchange)

    # -- checks --------------------------------------------------------------------------------

    def _check_head(self, exchange: Exchange) -> int:
        """Check what HTTP itself asks for and return the body's stated size."""
        headers = exchange.headers
        if exchange.version not in {"1.0", "1.1"}:
            raise RequestError(505, "this server speaks HTTP/1.1 and HTTP/1.0", close=True)
        if len(exchange.url) > MAX_URL_BYTES:
            raise RequestError(414, f"the URL is longer than {MAX_URL_BYTES} bytes", close=True)
        if exchange.header_count > MAX_HEADERS or exchange.header_bytes > MAX_HEAD_BYTES:
            raise _head_too_large()
        host = headers.get(b"host")
        if exchange.version == "1.1" and host is None:
            raise RequestError(400, "the Host header is missing", close=True)
        if host is not None and not _AUTHORITY.fullmatch(host):
            raise RequestError(400, "the Host header must be a host, or host:port", close=True)
        if b"#" in exchange.url:
            raise RequestError(400, _NO_FRAGMENTS, close=True)
        if not exchange.url.startswith(b"/"):
            exchange.url = _origin_form(exchange)
        if headers.get(b"expect", _EXPECTATION).lower() != _EXPECTATION:
            raise RequestError(417, "the only expectation known is 100-continue", close=True)
        coding = headers.get(b"transfer-encoding")
        if coding is not None and coding.lower() != b"chunked":
            raise RequestError(400, "the only transfer coding known is chunked", close=True)
        if coding is not None and exchange.version == "1.0":
            # RFC 9112, 6.1: whoever passed it on may not have understood it.
            raise RequestError(400, "HTTP/1.0 has no transfer codings", close=True)
        size = int(headers.get(b"content-length", b"0"))
        if size > self._max_body_bytes:
            raise body_too_large(self._max_body_bytes)
        return size

    def _check_body_head(self, exchange: Exchange, size: int) -> None:
        """Check what is said of the body, once the route and the caller are known."""
        headers = exchange.headers
        route = exchange.route
        if route is None or route.name not in WITH_BODY:
            if size > SWALLOWED_BODY_BYTES:
                raise _no_body_wanted()
            return
        framed = b"content-length" in headers or b"transfer-encoding" in headers
        if not framed and route.name not in BODY_OPTIONAL:
            raise RequestError(411, "send the body's size as Content-Length")
        coding = headers.get(b"content-encoding")
        if coding is not None:
            self._decoder = codings.decoder(coding)
        given = headers.get(b"inference-header-content-length")
        if given is not None:
            if not given.isdigit() or len(given) > 18:
                raise RequestError(400, f"{HEADER_LENGTH} must be a whole number of bytes")
            exchange.header_length = int(given)
        self._bodies.require(size)


def _head_too_large() -> RequestError:
    return RequestError(
        431,
        f"the request's head is larger than {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers",
        close=True,
    )


def _framing_too_large() -> RequestError:
    return RequestError(
        400,
        f"the body's chunk extensions and trailers are larger than {MAX_HEAD_BYTES} bytes or "
        f"{MAX_HEADERS} fields",
        close=True,
    )


def _origin_form(exchange: Exchange) -> bytes:
    """Return the path and query of a target in absolute form, which every server has to take.

    Its host stands in place of the Host header's (RFC 9112, 3.2.2); here neither means anything.

    Raises:
        RequestError: 400, it is in no form that there is.
    """
    url = exchange.url
    if url == b"*" and exchange.method == b"OPTIONS":
        return url
    found = _ABSOLUTE.match(url)
    if found is None:
        raise RequestError(
            400, "the request target must be a path, or https://HOST and a path", close=True
        )
    rest = url[found.end() :]
    return rest if rest.startswith(b"/") else b"/" + rest


def _no_body_wanted() -> RequestError:
    return RequestError(
        413, f"this path takes no body, and skips {SWALLOWED_BODY_BYTES} bytes at most", close=True
    )
