"""What a worker copies of answered requests, and how a copy is laid out.

A copy is made after the answer, of a share of the requests, and is dropped where it would wait:
what serves never waits for what is only looked at.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from falaj.workloads.inference.connections.http import Answer, Exchange
from falaj.workloads.inference.models.batching import Member

MOST_COPY_BYTES: Final = 256 * 1024
"""Of a request and its answer together: to copy more takes the loop's time from others. One of a
kilobyte takes 9 us, and one of 100 KB 90 us, measured on a busy machine; 1 MB took 3.6 ms."""
MOST_BACKLOG_BYTES: Final = 4 * 1024 * 1024
"""That may wait on the way to the master, log lines among them, before copies are dropped."""
_LAYOUT = struct.Struct("<Iii")
"""Bytes of the request's body; of its JSON part and of the answer's, or -1: all of it is."""


@dataclass(frozen=True)
class Copy:
    """A request that was answered, and its answer.

    Attributes:
        body: of the request.
        header_length: of its JSON part; None: all of it is.
        answer: body of the answer.
        answer_length: of its JSON part, likewise.
    """

    body: bytes | bytearray
    header_length: int | None
    answer: bytes
    answer_length: int | None

    def packed(self) -> bytes:
        """Return it as one message."""
        lengths = [
            -1 if each is None else each for each in (self.header_length, self.answer_length)
        ]
        return b"".join((_LAYOUT.pack(len(self.body), *lengths), self.body, self.answer))

    @classmethod
    def unpacked(cls, message: bytes) -> Copy:
        """Read what `packed` wrote.

        Raises:
            ValueError: it is cut short.
        """
        if len(message) < _LAYOUT.size:
            raise ValueError(f"a copy of {len(message)} bytes has no lengths")
        size, header, answer = _LAYOUT.unpack_from(message)
        end = _LAYOUT.size + size
        if end > len(message):
            raise ValueError(f"a copy of {len(message)} bytes has no body of {size}")
        return cls(
            message[_LAYOUT.size : end], None if header < 0 else header,
            message[end:], None if answer < 0 else answer,
        )  # fmt: skip


class Copies:
    """Copies a share of a worker's answered requests.

    Args:
        send: to the master.
        backlog: bytes that wait on the way there.
        draw: a number from 0 to below 1. Default: a random one.
    """

    def __init__(
        self,
        send: Callable[[bytes], None],
        backlog: Callable[[], int],
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.share = 0.0
        """Of requests, from 0 to 1."""
        self.dropped = 0
        """Copies that weren't made for want of room, since the last look."""
        self._send = send
        self._backlog = backlog
        self._draw = draw
        self._waiting = 0

    def follow(
        self, exchange: Exchange, answer: Answer | Awaitable[Answer]
    ) -> Answer | Awaitable[Answer]:
        """Take a request once there is an answer, which comes as it would without this."""
        if isinstance(answer, Answer):
            self.take(exchange, answer)
        elif isinstance(answer, Member):

            def answered(member: Member) -> None:
                if not member.cancelled() and member.exception() is None:
                    self.take(exchange, member.result())

            answer.add_done_callback(answered)
        else:
            return self._follow(exchange, answer)
        return answer

    async def _follow(self, exchange: Exchange, later: Awaitable[Answer]) -> Answer:
        answer = await later
        self.take(exchange, answer)
        return answer

    def take(self, exchange: Exchange, answer: Answer) -> None:
        """Copy an answered request, if its turn has come; it is sent after the answer.

        What another tier answered is another version's, and isn't copied.
        """
        if answer.status != 200 or self._draw() >= self.share:
            return
        length = answer.header_length
        if len(answer.headers) != (length is not None):
            return
        body = exchange.content
        size = len(body) + len(answer.body)
        if size > MOST_COPY_BYTES or self._backlog() + self._waiting + size > MOST_BACKLOG_BYTES:
            self.dropped += 1
            return
        self._waiting += size
        copy = Copy(body, exchange.header_length, answer.body, length)
        asyncio.get_running_loop().call_soon(self._send_later, copy, size)

    def _send_later(self, copy: Copy, size: int) -> None:
        self._waiting -= size
        self._send(copy.packed())
