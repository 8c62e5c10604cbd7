"""A gRPC client's connection: TLS ends here, and the bytes go to the gRPC process and back.

Of HTTP/2 only the frames' boundaries are looked at, in what goes to the client: there a `GOAWAY`
can be put in between, so that a client makes its next calls elsewhere while those under way, and
those that it sends before it reads this, are still answered (RFC 9113, 6.8).
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from falaj.workloads.inference.connections.connection import FAREWELL_SECONDS, FLUSH_SECONDS
from falaj.workloads.inference.service import Service

_HEADER: Final = 9
_HEADERS, _PUSH_PROMISE, _GOAWAY, _CONTINUATION = 1, 5, 7, 9
_END_HEADERS: Final = 0x4
GOAWAY: Final = struct.pack(">BHBBIII", 0, 8, _GOAWAY, 0, 0, 2**31 - 1, 0)
"""Without an error, and with the highest number of streams: none is refused by it."""
QUIET_SECONDS: Final = 0.5
"""A connection with no bytes for so long has none on their way through the gRPC process."""
_NEVER: Final = float("inf")


class Frames:
    """Finds the places in a stream of frames where another may be put in between."""

    def __init__(self) -> None:
        self._header = b""
        self._left = 0  # of the frame that is under way
        self._open = False  # a block of headers goes on in the next frame
        self._any = False  # the server's settings have to come first

    @property
    def between(self) -> bool:
        """Whether the stream is at such a place."""
        return self._any and not (self._left or self._header or self._open)

    def follow(self, data: bytes, wanted: bool) -> int | None:
        """Take bytes of the stream.

        Args:
            data: the bytes.
            wanted: whether a place is looked for.

        Returns:
            The first place in ``data`` for another frame; None: none, or not wanted.
        """
        found: int | None = None
        position, end = 0, len(data)
        while position < end:
            if self._left:
                step = min(self._left, end - position)
                self._left -= step
                position += step
            else:
                taken = data[position : position + _HEADER - len(self._header)]
                self._header += taken
                position += len(taken)
                if len(self._header) < _HEADER:
                    break
                self._left = int.from_bytes(self._header[:3], "big")
                kind, flags = self._header[3], self._header[4]
                if kind in {_HEADERS, _PUSH_PROMISE, _CONTINUATION}:
                    self._open = not flags & _END_HEADERS
                self._any = True
                self._header = b""
            if wanted and found is None and self.between:
                found = position
        return found


class _Inner(asyncio.Protocol):
    """The relay's end at the gRPC process."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def data_received(self, data: bytes) -> None:
        self._relay.answered(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._relay.left()

    def pause_writing(self) -> None:
        self._relay.hold(True)

    def resume_writing(self) -> None:
        self._relay.hold(False)


class Relay(asyncio.Protocol):
    """One client's connection; ``deadline`` is when the worker's sweep calls `expire`.

    Args:
        service: the worker's.
        transport: to the client, after the handshake.
        gone: called when no call can come over the connection any more.
    """

    def __init__(
        self, service: Service, transport: asyncio.Transport, gone: Callable[[], None]
    ) -> None:
        self._service = service
        self._transport = transport
        self._gone = gone
        self._inner: asyncio.Transport | None = None
        self._frames = Frames()
        self._leave = False  # a GOAWAY is to be sent
        self._stuck = False
        self._closing = False
        self._moved = time.perf_counter()
        self.calls = 0
        """Calls that the worker has in hand."""
        self.answers = 0
        """Calls that it has answered."""
        self.certificate: Mapping[str, Any] | None = transport.get_extra_info("peercert") or None
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        self.client = f'"{peer[0]}:{peer[1]}"'.encode()
        self.deadline = _NEVER  # until it is joined, for which the front has a limit
        service.connections.add(self)
        service.relayed += 1
        service.counters.connections += 1
        transport.set_protocol(self)
        transport.pause_reading()

    async def join(self, opened: Any) -> None:
        """Let the bytes flow over a socket that is connected with the gRPC process."""
        loop = asyncio.get_running_loop()
        inner, _ = await loop.create_unix_connection(lambda: _Inner(self), sock=opened)
        self._inner = inner
        if self._closing:
            self._inner.close()
            return
        self._moved = time.perf_counter()
        self.deadline = self._moved + self._service.limits.header_timeout_seconds
        self._transport.resume_reading()

    @property
    def is_joined(self) -> bool:
        """Whether the gRPC process has it."""
        return self._inner is not None

    # -- from the client -------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Pass bytes on."""
        self._moved = time.perf_counter()
        if self._inner is not None:
            self._inner.write(data)

    def hold(self, held: bool) -> None:
        """Read no further from a client as long as the gRPC process is behind."""
        if self._closing:
            return
        if held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection; the gRPC process cancels its calls."""
        del exc
        self._closing = True
        if self._inner is not None:
            self._inner.close()
        self._service.connections.discard(self)
        self._service.relayed -= 1
        self._gone()

    # -- to the client ---------------------------------------------------------------------

    def answered(self, data: bytes) -> None:
        """Pass bytes on, with a farewell in between where one is due."""
        if self._closing:
            return
        self._moved = time.perf_counter()
        place = self._frames.follow(data, self._leave)
        if place is not None:
            self._leave = False
            data = b"".join((data[:place], GOAWAY, data[place:]))
        self._transport.write(data)

    def left(self) -> None:
        """Close the connection that the gRPC process has closed: its name is free from now on."""
        self._gone()
        self.close()

    def pause_writing(self) -> None:
        """Take no further bytes for a client that doesn't read."""
        if self._closing:
            return
        self._stuck = True
        self.deadline = time.perf_counter() + FLUSH_SECONDS
        if self._inner is not None:
            self._inner.pause_reading()

    def resume_writing(self) -> None:
        """Go on with a client that has caught up."""
        self._stuck = False
        if self._closing:
            return  # the gRPC process may have left; these are the last bytes
        self.deadline = time.perf_counter() + self._service.limits.header_timeout_seconds
        if self._inner is not None:
            self._inner.resume_reading()

    # -- called by the worker --------------------------------------------------------------

    def drain(self) -> None:
        """Tell the client to make its next calls over another connection."""
        if self._frames.between:
            self._transport.write(GOAWAY)
        else:
            self._leave = True

    def expire(self) -> None:
        """Close a connection that nobody uses, or whose client doesn't read."""
        now, limits = time.perf_counter(), self._service.limits
        if self._closing or self._stuck:
            self._transport.abort()
        elif self.calls:
            self.deadline = now + limits.header_timeout_seconds
        elif self.answers and now - self._moved < limits.idle_timeout_seconds:
            self.deadline = self._moved + limits.idle_timeout_seconds
        else:
            self.close()

    def is_idle(self) -> bool:
        """Tell whether nothing is being received or answered."""
        return not self.calls and time.perf_counter() - self._moved > QUIET_SECONDS

    def abort(self) -> None:
        """Close the connection at once: nobody is there to answer its calls."""
        self._closing = True
        self._transport.abort()

    def close(self) -> None:
        """Close the connection; its client asks again over another one."""
        if self._closing:
            return
        self._closing = True
        # A client of gRPC may answer the end of its TLS session with nothing.
        waits = FLUSH_SECONDS if self._transport.get_write_buffer_size() else FAREWELL_SECONDS
        self.deadline = time.perf_counter() + waits
        self._transport.close()
