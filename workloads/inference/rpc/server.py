"""The gRPC process of a worker: HTTP/2 and protobuf, and nothing that is worth a theft.

It has no key, no model and no list of callers. What it reads it hands to its worker, with the name
of the connection that it came over; the worker knows whose that is, and decides. It listens on a
Unix socket that its worker alone reaches, and ends when the worker does.

gRPC's library reads HTTP/2 (and bounds floods of resets, pings and headers). A handler is called
when the headers of a call are there: a caller that isn't known is asked about before a message is
read, and of messages that come slowly only a few are let go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn

import grpc
import grpc.aio
import uvloop

from falaj.workloads.inference.errors import (
    FAULT,
    RequestError,
    bad_request,
    body_too_large,
    retry_after,
    retry_of,
)
from falaj.workloads.inference.process.channel import Channel
from falaj.workloads.inference.process.confinement import die_with_parent, forbid_dumps
from falaj.workloads.inference.rpc import calls
from falaj.workloads.inference.rpc.translation import (
    METHODS,
    Asked,
    MalformedError,
    Method,
    Told,
)

STREAMS_PER_CONNECTION: Final = 100
"""Calls at once; RFC 9113, 6.5.2, recommends not to allow fewer."""
CALLS: Final = 1024
"""Calls at once of all connections."""
OPEN_CALLS: Final = CALLS // 4
"""Of these, calls of methods that ask for no credentials: a flood of them leaves the other places
to those who have some."""
OPEN_CALLS_OF_ONE: Final = OPEN_CALLS // 4
"""Of these, calls of one network (`calls.network_of`): one client leaves places to the others."""
CONNECTION_AGE_SECONDS: Final = 900
"""A client holds one connection for long: after this time it is told to make another, which
another worker may take."""
SWEEP_SECONDS: Final = 0.25
SLOW_SWEEPS: Final = 3
"""A message that isn't there after so many sweeps is a slow one. Time alone would not tell: in a
process that is busy, all of them take long."""
SLOW_OPEN: Final = 4
"""Slow messages at once of methods that ask for no credentials."""
BACKLOG_BYTES: Final = 16 * 1024 * 1024
"""Messages that a busy worker hasn't taken, before further ones are read."""
REQUEST_ID: Final = "x-request-id"
"""In the metadata, as HTTP's headers of that name: once at most."""
IDEMPOTENCY_KEY: Final = "idempotency-key"
AUTHORIZATION: Final = "authorization"
KNOWN_METADATA: Final = frozenset({REQUEST_ID, IDEMPOTENCY_KEY, AUTHORIZATION})
KNOWN_KEPT: Final = 4096
LARGE_BYTES: Final = 1024 * 1024
"""A message of as many is translated only where there is memory for it."""
COPIES: Final = 4
"""Of a message that is translated, and handed on."""
MOST_COPIES: Final = 24
"""Of one whose values take a byte each, and eight once read, into room that is doubled."""
STACK_BYTES: Final = 1024 * 1024
"""Of a thread: gRPC has one for each core, 4 to 16 in all, and Linux counts their stacks as data,
used or not: 8 MiB each, if nobody says otherwise."""
_ATTRIBUTES_BYTES: Final = 128
"""Room for a ``pthread_attr_t``, which has 64 at most."""
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
"""https://man7.org/linux/man-pages/man3/mallopt.3.html"""
MAPPED_BYTES: Final = 128 * 1024
"""Of memory that is asked for at once, from which the kernel gives it alone: glibc's own default,
which it raises to that of what was freed, unless somebody says it."""
_NO_MEMORY: Final = "there is no memory for this message now; try again"
_STATM: Final = Path("/proc/self/statm")

_CODES: Final = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}


def code_of(status: int) -> grpc.StatusCode:
    """Return the code of gRPC that means what a status of HTTP does."""
    known = _CODES.get(status)
    if known is not None:
        return known
    is_ours = status >= 500
    return grpc.StatusCode.INTERNAL if is_ours else grpc.StatusCode.INVALID_ARGUMENT


@dataclass(frozen=True)
class Bounds:
    """What the worker tells its gRPC process, as it holds for HTTP too."""

    max_head_bytes: int
    max_body_bytes: int
    max_inflight_bytes: int
    memory_bytes: int
    """Of the process's data."""
    header_seconds: float
    body_seconds: float
    """For the largest message."""
    idle_seconds: float


class Read:
    """A message that is being read, while it is entered.

    Raises:
        RequestError: 408 or 503, it was given up.

    Args:
        pending: all that are being read, by their calls.
        call: of this one.
        caller: whose it is.
        deadline: when it takes too long, on the monotonic clock.
    """

    __slots__ = ("_call", "_pending", "caller", "deadline", "error", "sweeps", "timeout")

    def __init__(self, pending: dict[int, Read], call: int, caller: str, deadline: float) -> None:
        self._pending = pending
        self._call = call
        self.caller = caller
        self.deadline = deadline
        self.timeout = asyncio.Timeout(None)
        self.sweeps = 0
        self.error: RequestError | None = None
        """Why it was given up."""

    async def __aenter__(self) -> None:
        await self.timeout.__aenter__()
        self._pending[self._call] = self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        del self._pending[self._call]
        try:
            await self.timeout.__aexit__(kind, error, frames)
        except TimeoutError:
            raise self.error or RequestError(503, "the message was given up") from None


class Reads:
    """Messages that are being read: how large one will be, nobody knows before it is there.

    Those that are there at once, as nearly all are, wait for nothing. Of slow ones only so many
    are let go on as could be held if each were as large as the limit; where there are more, who
    has most of them loses one.

    Args:
        most: slow ones at once.
        seconds: for one.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._pending: dict[int, Read] = {}

    def one(self, call: int, caller: str) -> Read:
        """Return what is to be entered while a message of a caller is read."""
        return Read(self._pending, call, caller, time.monotonic() + self._seconds)

    def sweep(self) -> None:
        """Give up what takes too long, and what is too much."""
        now = time.monotonic()
        slow: dict[str, list[Read]] = {}
        for read in self._pending.values():
            read.sweeps += 1
            if read.error is not None:
                continue
            if now > read.deadline:
                self._give_up(read, RequestError(408, "the request didn't arrive in time"))
            elif read.sweeps >= SLOW_SWEEPS:
                slow.setdefault(read.caller, []).append(read)
        for _ in range(sum(map(len, slow.values())) - self._most):
            longest = max(slow.values(), key=len)
            busy = f"{self._most} messages arrive slowly already; try again"
            self._give_up(longest.pop(), RequestError(503, busy, headers=(retry_after(1),)))

    @staticmethod
    def _give_up(read: Read, error: RequestError) -> None:
        read.error = error
        read.timeout.reschedule(0)


class Server:
    """Answers calls by way of the worker."""

    def __init__(self, channel_socket: socket.socket) -> None:
        self._socket = channel_socket
        self._channel = Channel(self._received, self._ended)
        self._over = asyncio.Event()
        self._configured: asyncio.Future[Bounds] = asyncio.get_running_loop().create_future()
        self._bounds: Bounds
        self._reads: Reads
        self._open_reads: Reads
        self._calls = 0
        self._open_calls: Counter[str] = Counter()  # by network
        self._waiting: dict[int, asyncio.Future[tuple[dict[str, Any], bytes]]] = {}
        # Whom the worker has admitted, and their subjects: it looks at each call anew, but needn't
        # be asked before its message is read.
        self._known: dict[tuple[str, str | None], str] = {}

    async def run(self) -> NoReturn:
        """Serve until the worker closes the channel, and end the process."""
        await asyncio.get_running_loop().create_connection(
            lambda: self._channel, sock=self._socket
        )
        self._bounds = bounds = await self._configured
        self._reads = Reads(
            max(2, bounds.max_inflight_bytes // bounds.max_body_bytes), bounds.body_seconds
        )
        self._open_reads = Reads(SLOW_OPEN, bounds.header_seconds)
        resource.setrlimit(resource.RLIMIT_DATA, (bounds.memory_bytes, bounds.memory_bytes))
        server = grpc.aio.server(options=_options(bounds), maximum_concurrent_rpcs=CALLS)
        for service, methods in METHODS.items():
            handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
                name: grpc.stream_unary_rpc_method_handler(self._handler(service, name, method))
                for name, method in methods.items()
            }
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service, handlers),)
            )
        server.add_insecure_port(f"unix:{calls.SOCKET}")
        await server.start()
        self._channel.send(calls.LISTENING)
        while not self._over.is_set():
            self._reads.sweep()
            self._open_reads.sweep()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_SECONDS):
                    await self._over.wait()
        # A server that is stopped tells its clients that their calls were cancelled, which none
        # sends again. A connection that ends says that the service is unavailable.
        sys.stderr.flush()
        os._exit(0)

    # -- worker ----------------------------------------------------------------------------

    def _received(self, kind: int, payload: bytes) -> None:
        head, body = calls.unpack(payload)
        if kind == calls.CONFIGURE:
            self._configured.set_result(Bounds(**head))
        elif kind == calls.ANSWER:
            waiting = self._waiting.get(head["call"])
            if waiting is not None and not waiting.done():
                waiting.set_result((head, body))

    def _ended(self) -> None:
        self._over.set()
        if not self._configured.done():
            self._configured.cancel()

    async def _ask(self, kind: int, head: dict[str, Any], body: bytes = b"") -> Any:
        """Send a call to the worker and return its answer; one that is given up is cancelled."""
        call = head["call"]
        future: asyncio.Future[tuple[dict[str, Any], bytes]] = (
            asyncio.get_running_loop().create_future()
        )
        self._waiting[call] = future
        self._channel.send(kind, calls.pack(head, body))
        try:
            return await future
        except asyncio.CancelledError:
            self._channel.send(calls.CANCEL, calls.pack({"call": call}))
            raise
        finally:
            del self._waiting[call]

    # -- calls -----------------------------------------------------------------------------

    def _handler(
        self, service: str, name: str, method: Method
    ) -> Callable[[Any, Any], Awaitable[bytes]]:
        path = f"/{service}/{name}"

        async def handle(requests: Any, context: Any) -> bytes:
            del requests  # read by the context, when there is a place
            try:
                return await self._answer(path, method, context)
            except RequestError as error:
                refusal = _told(error)
            except MemoryError:
                refusal = _told(_no_memory())
            except Exception:  # a fault of ours must not end the process
                traceback.print_exc()
                refusal = _told(RequestError(500, FAULT))
            await context.abort(*refusal)
            return b""

        return handle

    async def _answer(self, path: str, method: Method, context: Any) -> bytes:
        if not method.is_open:
            return await self._admitted(path, method, context)
        network = calls.network_of_name(context.peer())
        self._open_calls[network] += 1
        try:
            return await self._admitted(path, method, context)
        finally:
            self._open_calls[network] -= 1
            if not self._open_calls[network]:
                del self._open_calls[network]

    async def _admitted(self, path: str, method: Method, context: Any) -> bytes:
        self._calls += 1
        peer, said = context.peer(), _metadata(context)
        # Two bearer tokens are none that anybody knows.
        token = ", ".join(said[AUTHORIZATION]) if AUTHORIZATION in said else None
        head: dict[str, Any] = {
            "call": self._calls, "peer": peer, "path": path, "token": token,
            "place": method.place, "named": None, "key": None,
        }  # fmt: skip
        caller = (peer, token)
        for name, key in ((REQUEST_ID, "named"), (IDEMPOTENCY_KEY, "key")):
            if name in said:
                head[key] = said[name][0]
                if len(said[name]) > 1:
                    twice = bad_request(f"{name} is in the metadata more than once")
                    self._lost(head, twice)
                    raise twice
        if method.is_open:
            try:
                self._require_open_place(calls.network_of_name(peer))
            except RequestError as error:
                self._lost(head, error)
                raise
        if not method.is_open and caller not in self._known:
            admitted = _require(*await self._ask(calls.ADMIT, head))
            if len(self._known) >= KNOWN_KEPT:
                self._known.clear()
            self._known[caller] = admitted.body.decode()
        data = await self._message(head, context, method)
        try:
            asked = self._translated(method, data)
            if len(asked.body) > self._bounds.max_body_bytes:
                raise body_too_large(self._bounds.max_body_bytes)
        except RequestError as error:
            self._lost(head, error)
            raise
        head |= {
            "method": asked.method, "url": asked.url, "header": asked.header_length,
            "left": context.time_remaining(),
        }  # fmt: skip
        try:
            answer = _require(*await self._ask(calls.CALL, head, asked.body))
        except RequestError:
            self._known.pop(caller, None)
            raise
        return method.tell(asked, answer)

    def _require_open_place(self, network: str) -> None:
        """Refuse a call without credentials where there are too many, this one counted.

        Raises:
            RequestError: 503.
        """
        if self._open_calls[network] > OPEN_CALLS_OF_ONE:
            many = f"{OPEN_CALLS_OF_ONE} calls without credentials from your network"
        elif self._open_calls.total() > OPEN_CALLS:
            many = f"{OPEN_CALLS} calls without credentials"
        else:
            return
        raise RequestError(503, f"{many} are under way; try again", headers=(retry_after(1),))

    def _translated(self, method: Method, data: bytes) -> Asked:
        """Translate a message.

        Raises:
            RequestError: 503, there is no memory for it, which protobuf would call malformed; or
                it is wrong.
        """
        if len(data) >= LARGE_BYTES:
            self._require_memory(COPIES * len(data))
        try:
            return method.ask(data)
        except MemoryError:
            raise _no_memory() from None
        except MalformedError:
            self._require_memory(MOST_COPIES * len(data))
            raise

    def _require_memory(self, size: int) -> None:
        # https://man7.org/linux/man-pages/man5/proc_pid_statm.5.html
        data = int(_STATM.read_text(encoding="ascii").split()[5]) * resource.getpagesize()
        if data + size > self._bounds.memory_bytes:
            raise _no_memory()

    async def _message(self, head: dict[str, Any], context: Any, method: Method) -> bytes:
        """Read the one message of a call.

        Raises:
            RequestError: there is none, it was given up, or another follows.
        """
        while self._channel.backlog > BACKLOG_BYTES:
            await asyncio.sleep(0.005)
        peer = head["peer"]
        if method.is_open:
            reads, who = self._open_reads, calls.network_of_name(peer)
        else:
            reads, who = self._reads, self._known.get((peer, head["token"]), "")
        try:
            async with reads.one(head["call"], who):
                data = await context.read()
                more = await context.read() if isinstance(data, bytes) else None
        except RequestError as error:
            self._lost(head, error)
            raise
        if not isinstance(data, bytes) or isinstance(more, bytes):
            # Of one that is too large, the library has told the client so already.
            wrong = bad_request("a call takes one message of at most the size that is allowed")
            self._lost(head, wrong)
            raise wrong
        return data

    def _lost(self, head: dict[str, Any], error: RequestError) -> None:
        self._channel.send(calls.LOST, calls.pack(head | {"status": error.status}))


def _metadata(context: Any) -> dict[str, list[str]]:
    """What the metadata of a call say that means something here, by name."""
    found: dict[str, list[str]] = {}
    for key, value in context.invocation_metadata():
        if key in KNOWN_METADATA:
            found.setdefault(key, []).append(value)
    return found


def _require(head: dict[str, Any], body: bytes) -> Told:
    """Return the worker's answer.

    Raises:
        RequestError: it is a refusal.
    """
    if "error" not in head:
        return Told(head["status"], body, head["header"])
    again = head.get("retry")
    raise RequestError(
        head["status"], head["error"], headers=(retry_after(again),) if again else ()
    )


def _no_memory() -> RequestError:
    return RequestError(503, _NO_MEMORY, headers=(retry_after(1),))


def _told(refusal: RequestError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
    """Code, details and trailing metadata of a refusal: when to try again, in milliseconds.

    The exception itself isn't kept: it knows the frames that it passed, and they the message.

    https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback
    """
    again = retry_of(refusal)
    pushback = (("grpc-retry-pushback-ms", str(again * 1000)),) if again else ()
    return code_of(refusal.status), refusal.message, pushback


def _options(bounds: Bounds) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", bounds.max_body_bytes),
        ("grpc.max_metadata_size", bounds.max_head_bytes),
        ("grpc.absolute_max_metadata_size", bounds.max_head_bytes),
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
        ("grpc.max_connection_idle_ms", round(bounds.idle_seconds * 1000)),
        ("grpc.max_connection_age_ms", CONNECTION_AGE_SECONDS * 1000),
        ("grpc.server_handshake_timeout_ms", round(bounds.header_seconds * 1000)),
        # Pings that keep a connection alive are a client's right, once in a while.
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.so_reuseport", 0),
    ]


def _keep_stacks_small() -> None:
    """Let threads that are made from now on have no more stack than they need.

    https://man7.org/linux/man-pages/man3/pthread_setattr_default_np.3.html
    """
    library = ctypes.CDLL(None)
    attributes = ctypes.create_string_buffer(_ATTRIBUTES_BYTES)
    library.pthread_getattr_default_np(attributes)
    library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(STACK_BYTES))
    library.pthread_setattr_default_np(attributes)


def _give_memory_back() -> None:
    """Let what a large message took be the kernel's again once it is free, and be counted so.

    Else glibc keeps it after the first ones, and nothing large would ever be taken again.
    """
    library = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):  # not glibc
        library.mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
        library.mallopt(_M_ARENA_MAX, 2)


def main() -> int:
    """Run the process: `server CHANNEL_FD PARENT_PID FOLDER`, started by a worker only."""
    channel_number, parent = (int(text) for text in sys.argv[1:3])
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        return 1
    forbid_dumps()
    _keep_stacks_small()
    _give_memory_back()
    os.chdir(sys.argv[3])  # a socket's path has to be short
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    channel_socket = socket.socket(fileno=channel_number)
    channel_socket.setblocking(False)

    async def run() -> None:
        await Server(channel_socket).run()

    with contextlib.suppress(asyncio.CancelledError):
        uvloop.run(run())
    return 1


if __name__ == "__main__":
    sys.exit(main())
