"""What the master answers while it has no worker: 503 to everybody, instead of nothing.

The listening socket stays open when the last worker ends, so that requests wait for the next one.
Where there is none to come, as with a package that was changed, they would wait until they give
up.
"""

from __future__ import annotations

import asyncio
from typing import cast

from falaj.workloads.inference.connections.http import Answers, Bodies, Exchange, Reader
from falaj.workloads.inference.connections.listening import LINGER_SECONDS
from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.protocol.routes import path_of
from falaj.workloads.inference.settings import Limits

RETRY_SECONDS = 5
"""What clients are told to wait: about as long as another try to start a worker takes."""


class Outage(asyncio.Protocol):
    """A connection whose one request is answered with 503; nobody's credentials are looked at."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._reader = Reader(limits.max_body_bytes, Bodies(0), _refuse, _take_nothing)
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._end: asyncio.TimerHandle | None = None
        self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request, for as long as a worker would."""
        self._transport = cast("asyncio.Transport", transport)
        self._end_after(self._limits.header_timeout_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        del exc
        if self._end is not None:
            self._end.cancel()

    def data_received(self, data: bytes) -> None:
        """Answer once it is known that this is a request, or none."""
        if self._answered:
            return
        self._reader.feed(data, None)
        error = self._reader.fatal
        if error is None:
            return
        self._answered = True
        exchange = self._reader.fatal_exchange or Exchange()
        head = exchange.method == b"HEAD"
        body = error.body(path_of(exchange.url))
        self._transport.write(
            Answers().make(error.status, body, headers=error.headers, close=True, head=head)
        )
        self._end_after(LINGER_SECONDS)

    def _end_after(self, seconds: float) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(seconds, self._transport.close)


def _take_nothing(exchange: Exchange, size: int) -> None:
    """Nothing to prepare: no body is waited for."""
    del exchange, size


def _refuse(exchange: Exchange) -> None:
    del exchange
    raise RequestError(
        503,
        "no worker serves the model now; try again",
        headers=(b"Retry-After: %d" % RETRY_SECONDS,),
        close=True,
    )
