"""The bytes of HTTP/1.1 answers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus

JSON = b"application/json"
BINARY = b"application/octet-stream"
TEXT = b"text/plain; version=1.0.0; charset=utf-8"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class Answers:
    """Makes answers; the `Date` line (RFC 9110, 6.6.1) is renewed by `tick`, not per answer."""

    def __init__(self) -> None:
        self.date = b""
        self.ok_json = b""
        self.tick()

    def tick(self) -> None:
        """Renew the date; call it about once a second."""
        self.date = b"Date: " + formatdate(time.time(), usegmt=True).encode() + b"\r\n"
        self.ok_json = (
            b"HTTP/1.1 200 OK\r\n" + self.date + b"Content-Type: application/json\r\n"
            b"Content-Length: "
        )

    def make(
        self,
        status: int,
        body: bytes,
        content_type: bytes = JSON,
        headers: Iterable[bytes] = (),
        *,
        close: bool = False,
    ) -> bytes:
        """Return a whole answer; ``headers`` are lines without their end."""
        lines = [_STATUS_LINES[status], self.date]
        lines += [header + b"\r\n" for header in headers]
        if close:
            lines.append(b"Connection: close\r\n")
        lines.append(b"Content-Type: %b\r\nContent-Length: %d\r\n\r\n" % (content_type, len(body)))
        lines.append(body)
        return b"".join(lines)
