"""One request on its way to its answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from falaj.workloads.inference import http
from falaj.workloads.inference.auth import Identity
from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.router import Route


class Answer(NamedTuple):
    """What goes back: the connection turns it into bytes."""

    status: int
    body: bytes
    content_type: bytes = http.JSON
    headers: tuple[bytes, ...] = ()
    close: bool = False


@dataclass(slots=True)
class Exchange:
    """What is known of a request once its head has been read.

    ``received`` counts the bytes of the body; ``started`` is on the monotonic clock.
    """

    method: bytes = b""
    url: bytes = b""
    version: str = "1.1"
    headers: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    header_count: int = 0
    header_bytes: int = 0
    head_complete: bool = False
    keep_alive: bool = True
    route: Route | None = None
    identity: Identity | None = None
    header_length: int | None = None
    refusal: RequestError | None = None
    parts: list[bytes] = field(default_factory=list[bytes])
    received: int = 0
    started: float = 0.0
    raw_head: bytes | None = None
    """The head's bytes, where they came in one piece from the start of a message."""

    @classmethod
    def of(cls, head: Head, started: float) -> Exchange:
        """Return a request with a known head and a body that has been read."""
        return cls(
            method=head.method,
            url=head.url,
            route=head.route,
            identity=head.identity,
            received=head.length,
            started=started,
        )

    def expects(self) -> bool:
        """Tell whether the client waits for `100 Continue` before it sends the body."""
        return self.headers.get(b"expect", b"").lower() == b"100-continue"

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
            and b"expect" not in self.headers
        )

    def body(self) -> bytes:
        """Return the whole body."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)


class Head:
    """A request head that has been parsed, routed and authorised once.

    Parsing is a function of the bytes alone, so a head with the same bytes needs none of it
    again: keep-alive clients send the same one with every request. Only the expiry of the
    credentials is looked at each time (``expires``, on the monotonic clock).
    """

    __slots__ = ("expires", "header_length", "identity", "length", "log", "method", "route", "url")

    def __init__(self, exchange: Exchange, identity: Identity, expires: float, log: bytes) -> None:
        assert exchange.route is not None  # noqa: S101 - heads without a route aren't kept
        self.method = exchange.method
        self.url = exchange.url
        self.route: Route = exchange.route
        self.identity = identity
        self.header_length = exchange.header_length
        self.length = exchange.received
        self.expires = expires
        self.log = log


class Heads(dict[bytes, Head]):
    """Known heads by their bytes; a class of its own so that it can be held weakly."""

    __slots__ = ("__weakref__",)
