"""Messages between the master and its workers: length, kind, payload over a stream socket.

The end of the stream is a message too: a worker whose master is gone stops by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import traceback
from collections.abc import Callable
from typing import cast

from falaj.workloads.bounds import GRPC

HEADER = struct.Struct("<IB")
"""Payload length in bytes, kind."""
MAX_PAYLOAD = int(GRPC["max_body_bytes"].high) + 1024 * 1024
"""Of a body, and what is said beside it."""

# master to worker
CONFIGURE = 1
ACCEPT = 2
DRAIN = 3
ANSWERED = 4
JOB_RUN = 5
JOB_STOP = 6
SHADOW_SHARE = 7
SHADOW_RUN = 8
EXPERIMENT_STANDS = 9
EXPERIMENT_RUN = 10
# worker to master
READY = 11
FAILED = 12
ACCEPTING = 13
ACCESS_LINES = 14
COUNTERS = 16
METRICS_REQUEST = 17
ROWS_COUNTED = 18
IDS_ANSWERED = 19
DRIFT_REQUEST = 20
FEEDBACK = 21
STATISTICS_REQUEST = 22
JOB_REQUEST = 23
JOB_ENDED = 24
SHADOW_COPY = 25
SHADOW_MISSED = 26
SHADOW_DONE = 27
EXPERIMENT_ASK = 28
EXPERIMENT_DONE = 29
EXPERIMENT_COUNTED = 30


def of_model(name: str, content: bytes) -> bytes:
    """Return content about one of a worker's models, for `named`."""
    return name.encode() + b"\0" + content


def named(payload: bytes) -> tuple[str, bytes]:
    """Return which of a worker's models a message is about, and its content."""
    name, _, content = payload.partition(b"\0")
    return name.decode(), content


class Channel(asyncio.Protocol):
    """One end of the stream: calls ``received(kind, payload)`` per message, ``ended()`` once."""

    def __init__(self, received: Callable[[int, bytes], None], ended: Callable[[], None]) -> None:
        self._received = received
        self._ended = ended
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._is_over = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to write to."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Cut the stream into messages."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= HEADER.size:
            length, kind = HEADER.unpack_from(buffer)
            if length > MAX_PAYLOAD:
                self.close()
                return
            end = HEADER.size + length
            if len(buffer) < end:
                return
            payload = bytes(buffer[HEADER.size : end])
            del buffer[:end]
            try:
                self._received(kind, payload)
            except Exception:  # a fault in one message must not end the channel
                traceback.print_exc()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner that the other side is gone."""
        del exc
        self._transport = None
        self._is_over.set()
        self._ended()

    def send(self, kind: int, payload: bytes = b"") -> None:
        """Write one message; nothing happens when the other side is gone."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(HEADER.pack(len(payload), kind) + payload)

    @property
    def backlog(self) -> int:
        """Bytes that wait to be written."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def close(self) -> None:
        """Write what is waiting and end the stream."""
        if self._transport is not None:
            self._transport.close()

    async def over(self, seconds: float) -> None:
        """Wait until everything has been written or read and the stream has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_over.wait()
