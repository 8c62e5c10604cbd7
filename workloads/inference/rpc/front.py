"""gRPC in a worker: its gRPC process, and what that process is told to answer.

The process is started with the first connection that chose HTTP/2, so that who calls by HTTP
alone pays nothing for it. Whose a connection is stands here alone: a relay's end of the Unix
socket has a name that nobody can guess, and the process names with each call the one that it came
over. Nothing that a client sends can say who it is, but its token.

Calls go the way of HTTP's requests: the same routes, scopes, limits, queue, counts and lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

from falaj.workloads.bounds import GRPC
from falaj.workloads.files import make_private_folder
from falaj.workloads.inference.connections import http
from falaj.workloads.inference.connections.connection import BODY_BYTES_PER_SECOND
from falaj.workloads.inference.connections.header_names import IDEMPOTENCY_KEY, REQUEST_ID
from falaj.workloads.inference.connections.http import Answer, Exchange
from falaj.workloads.inference.errors import FAULT, RequestError, body_too_large, retry_of
from falaj.workloads.inference.models.batching import Member
from falaj.workloads.inference.process.channel import Channel
from falaj.workloads.inference.protocol import routes
from falaj.workloads.inference.rpc import calls
from falaj.workloads.inference.rpc.relay import Relay
from falaj.workloads.inference.service import Service

START_SECONDS: Final = 60.0
"""Time for the gRPC process to listen; its imports alone take half a second."""
RESTART_SECONDS: Final = 1.0
"""Time between two starts."""
END_SECONDS: Final = 2.0
SETTINGS_OF_LIBRARY: Final = {
    # It writes a line for each header that a stranger sends wrong.
    "GRPC_VERBOSITY": "NONE",
    # The thread that waits for calls reads their connections itself, as in versions before: to
    # hand what comes on between threads takes a tenth of the process's time. A version of the
    # library that doesn't know the name goes by its default.
    "GRPC_EXPERIMENTS": "-event_engine_listener",
}
"""Of gRPC in its process, where the environment says nothing else."""
TRIES: Final = 50
"""Of connecting with a process whose queue of connections is full."""
MEMORY_BYTES: Final = 1024 * 1024 * 1024
"""Of the process's data, besides four times what may be in flight, where no setting says it:
beyond it the process ends, and another one is started."""
MOST_OF_AN_ANSWER: Final = int(GRPC["max_body_bytes"].high)
"""Bytes of one; it goes the way of a call's message."""


class _Process:
    """A gRPC process and its socket.

    Args:
        front: takes its messages, and is told of its end.
    """

    def __init__(self, front: Front) -> None:
        self._front = front
        self.channel = Channel(self._received, self._over)
        self._listening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._process: asyncio.subprocess.Process | None = None
        self._socket = -1  # the socket's inode, whose name is gone

    async def start(self, configuration: dict[str, Any]) -> None:
        """Start it, and take its socket.

        Raises:
            OSError: it can't be started, or ended at once.
            TimeoutError: it didn't listen in time.
        """
        folder = Path(tempfile.mkdtemp(prefix="grpc-", dir=self._front.folder))
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            with theirs:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "falaj.workloads.inference.rpc.server",
                    str(theirs.fileno()), str(os.getpid()), str(folder),
                    stdin=asyncio.subprocess.DEVNULL,
                    env={**SETTINGS_OF_LIBRARY, **os.environ},
                    pass_fds=(theirs.fileno(),),
                )  # fmt: skip
            await asyncio.get_running_loop().create_connection(lambda: self.channel, sock=ours)
            self.channel.send(calls.CONFIGURE, calls.pack(configuration))
            async with asyncio.timeout(START_SECONDS):
                await self._listening
            # Whoever has this descriptor can connect, and nobody else: the name goes.
            self._socket = os.open(folder / calls.SOCKET, os.O_PATH)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def connect(self, name: str) -> socket.socket:
        """Connect with it from a socket of this name.

        Raises:
            OSError: it has ended, or takes no more connections.
        """
        opened = socket.socket(socket.AF_UNIX)
        opened.setblocking(False)
        try:
            opened.bind(f"\0{name}")
            for _ in range(TRIES):
                with contextlib.suppress(BlockingIOError):
                    opened.connect(f"/proc/self/fd/{self._socket}")
                    return opened
                await asyncio.sleep(0.02)
            raise ConnectionRefusedError("the gRPC process takes no more connections")
        except OSError:
            opened.close()
            raise

    def _received(self, kind: int, payload: bytes) -> None:
        if kind == calls.LISTENING:
            if not self._listening.done():
                self._listening.set_result(None)
        else:
            self._front.received(kind, payload)

    def _over(self) -> None:
        if not self._listening.done():
            self._listening.set_exception(ConnectionError("the gRPC process ended at once"))
        self._front.ended(self)

    async def end(self) -> str:
        """End it, at once if need be, and return how it ended."""
        self.channel.close()
        process, self._process = self._process, None
        if self._socket >= 0:
            os.close(self._socket)
            self._socket = -1
        if process is None:
            return "it didn't start"
        try:
            async with asyncio.timeout(END_SECONDS):
                status = await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            status = await process.wait()
        return f"exit status {status}"


class Front:
    """Takes over the connections that chose HTTP/2, and answers their calls.

    Args:
        service: the worker's.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()
        self.folder = make_private_folder(service.settings.state.parent)
        self._relays: dict[str, Relay] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._own: set[asyncio.Task[None]] = set()
        self._starting: asyncio.Task[_Process] | None = None
        self._process: _Process | None = None
        self._started = -RESTART_SECONDS

    # -- connections -----------------------------------------------------------------------

    def take_over(self, transport: asyncio.Transport) -> bool:
        """Take a connection, if its client chose HTTP/2."""
        tls = transport.get_extra_info("ssl_object")
        if tls is None or tls.selected_alpn_protocol() != "h2":
            return False
        name = calls.new_name((transport.get_extra_info("peername") or ("",))[0])
        peer = f"unix-abstract:{name}"

        def forget() -> None:
            self._relays.pop(peer, None)

        relay = Relay(self._service, transport, forget)
        self._relays[peer] = relay
        if self._service.draining:
            relay.drain()
        self._keep(self._join(relay, name))
        return True

    async def close(self) -> None:
        """End the process."""
        if self._starting is not None:
            self._starting.cancel()
        process, self._process = self._process, None
        if process is not None:
            await process.end()

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._own.add(task)
        task.add_done_callback(self._own.discard)
        return task

    async def _join(self, relay: Relay, name: str) -> None:
        try:
            try:
                opened = await (await self._running()).connect(name)
            except ConnectionError:
                # It has just ended.
                opened = await (await self._running()).connect(name)
            await relay.join(opened)
        except (OSError, TimeoutError) as error:
            print(f"no gRPC now: {error}"[:300], file=sys.stderr, flush=True)
            relay.close()
        except asyncio.CancelledError:
            relay.close()

    # -- the process -----------------------------------------------------------------------

    async def _running(self) -> _Process:
        if self._process is not None:
            return self._process
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> _Process:
        try:
            await asyncio.sleep(self._started + RESTART_SECONDS - time.perf_counter())
            self._started = time.perf_counter()
            process = _Process(self)
            try:
                await process.start(self._configuration())
            except BaseException:
                await process.end()
                raise
            self._process = process
            return process
        finally:
            self._starting = None

    def _configuration(self) -> dict[str, Any]:
        limits = self._service.limits
        return {
            "max_head_bytes": http.MAX_HEAD_BYTES,
            "max_body_bytes": limits.max_body_bytes,
            "max_inflight_bytes": limits.max_inflight_bytes,
            "memory_bytes": (
                limits.grpc_memory_bytes or MEMORY_BYTES + 4 * limits.max_inflight_bytes
            ),
            "header_seconds": limits.header_timeout_seconds,
            "body_seconds": (
                limits.header_timeout_seconds + limits.max_body_bytes / BODY_BYTES_PER_SECOND
            ),
            "idle_seconds": limits.idle_timeout_seconds,
        }

    def ended(self, process: _Process) -> None:
        """Forget a process that has ended; the next connection starts another one."""
        for task in self._tasks.values():
            self._give_up(task)
        if process is not self._process:
            return
        self._process = None
        for relay in list(self._relays.values()):
            if relay.is_joined:
                relay.abort()
        self._keep(self._lament(process))

    @staticmethod
    async def _lament(process: _Process) -> None:
        how = await process.end()
        print(f"the gRPC process ended ({how}); the next connection starts another",
              file=sys.stderr, flush=True)  # fmt: skip

    # -- calls -----------------------------------------------------------------------------

    def received(self, kind: int, payload: bytes) -> None:
        """Take a message of the gRPC process."""
        head, body = calls.unpack(payload)
        call = int(head["call"])
        if kind == calls.CANCEL:
            task = self._tasks.get(call)
            if task is not None:
                self._give_up(task)
            return
        relay = self._relays.get(head["peer"])
        if relay is None:
            # Its client is gone.
            self._send(call, RequestError(503, "the connection has ended"))
            return
        token: str | None = head["token"]
        headers: dict[bytes, bytes] = {} if token is None else {b"authorization": token.encode()}
        if head["named"] is not None:
            headers[REQUEST_ID] = head["named"].encode()
        if head["key"] is not None:
            headers[IDEMPOTENCY_KEY.lower().encode()] = head["key"].encode()
        exchange = Exchange(
            method=b"POST",
            headers=headers,
            header_count=1,
            content=body,
            received=len(body),
            started=time.perf_counter(),
        )
        if kind == calls.ADMIT:
            self._admit_only(call, head, relay, exchange)
        elif kind == calls.LOST:
            with contextlib.suppress(RequestError):
                self._admit(relay, exchange, self._place(head, exchange), unnamed=True)
            self._finished(head, relay, exchange, int(head["status"]), 0)
        else:
            self._call(call, head, relay, exchange)

    def _give_up(self, task: asyncio.Task[None]) -> None:
        # A task that is cancelled before it has begun runs nothing, and so gives nothing back: of
        # what came in one read, it begins first.
        self._loop.call_soon(task.cancel)

    def _admit(
        self, relay: Relay, exchange: Exchange, url: bytes, *, unnamed: bool = False
    ) -> None:
        """As a connection of HTTP does; ``unnamed`` where the model's name isn't read yet.

        Raises:
            RequestError: 401, 403, 404 or 405.
        """
        exchange.url = url
        self._service.admit(exchange, relay.certificate, relay.client, unnamed=unnamed)

    def _place(self, head: dict[str, Any], exchange: Exchange) -> bytes:
        """Return where a call belongs whose message nobody has read, and set its method."""
        place: str = head["place"]
        exchange.method = b"POST" if place.endswith(("/infer", "/jobs")) else b"GET"
        return place.format(self._service.model.name).encode()

    def _admit_only(
        self, call: int, head: dict[str, Any], relay: Relay, exchange: Exchange
    ) -> None:
        try:
            self._admit(relay, exchange, self._place(head, exchange), unnamed=True)
        except RequestError as error:
            self._finished(head, relay, exchange, error.status, len(error.body()))
            self._send(call, error)
        else:
            subject = exchange.identity.subject if exchange.identity is not None else ""
            self._send(call, Answer(200, subject.encode()))

    def _call(self, call: int, head: dict[str, Any], relay: Relay, exchange: Exchange) -> None:
        service = self._service
        relay.calls += 1
        try:
            exchange.method = head["method"].encode()
            exchange.header_length = head["header"]
            self._admit(relay, exchange, head["url"].encode())
            if exchange.route is not None and exchange.route.name == routes.INFER:
                self._check_deadline(head["left"])
            size = exchange.received
            if size > service.limits.max_body_bytes:
                raise body_too_large(service.limits.max_body_bytes)
            service.bodies.take(exchange, size)
            answer = service.handle(exchange)
            if isinstance(answer, Member) and head["left"] is not None:
                answer.deadline = min(answer.deadline, exchange.started + head["left"])
        except RequestError as error:
            # Its frames know the message, which would stay until somebody looks for garbage.
            answer = error.with_traceback(None)
        except Exception:  # a fault of ours must not end the channel
            traceback.print_exc()
            answer = RequestError(500, FAULT)
        if isinstance(answer, Answer | RequestError):
            self._finish(call, head, relay, exchange, answer)
            return
        self._tasks[call] = self._keep(self._later(call, head, relay, exchange, answer))

    async def _later(
        self, call: int, head: dict[str, Any], relay: Relay, exchange: Exchange, work: Any
    ) -> None:
        try:
            answer: Answer | RequestError = await work
        except RequestError as error:
            answer = error.with_traceback(None)  # as in `_call`
        except asyncio.CancelledError:
            # The client is gone, or its deadline over: its place is free.
            self._service.bodies.release(exchange)
            relay.calls -= 1
            raise
        except Exception:  # as in `_call`
            traceback.print_exc()
            answer = RequestError(500, FAULT)
        finally:
            del self._tasks[call]
        self._finish(call, head, relay, exchange, answer)

    def _check_deadline(self, left: float | None) -> None:
        if left is None:
            return
        wait = self._service.runs.expected_wait()
        if left <= wait:
            raise RequestError(
                408,
                f"{max(0, left) * 1000:.0f} ms are left of the deadline, and "
                f"{wait * 1000:.0f} ms is the wait; give more time, or try again later",
            )

    def _finish(
        self,
        call: int,
        head: dict[str, Any],
        relay: Relay,
        exchange: Exchange,
        answer: Answer | RequestError,
    ) -> None:
        self._service.bodies.release(exchange)
        relay.calls -= 1
        if isinstance(answer, Answer) and len(answer.body) > MOST_OF_AN_ANSWER:
            answer = RequestError(413, "the answer is too large for gRPC; ask for fewer rows")
        sent = answer.body() if isinstance(answer, RequestError) else answer.body
        self._finished(head, relay, exchange, answer.status, len(sent))
        self._send(call, answer)

    def _finished(
        self, head: dict[str, Any], relay: Relay, exchange: Exchange, status: int, sent: int
    ) -> None:
        relay.answers += 1
        exchange.method, exchange.url = b"POST", head["path"].encode()
        self._service.finished(exchange, relay.client, status, sent)

    def _send(self, call: int, answer: Answer | RequestError) -> None:
        process = self._process
        if process is None:
            return
        head: dict[str, Any] = {"call": call, "status": answer.status, "header": None}
        if isinstance(answer, RequestError):
            head["error"] = answer.message
            head["retry"] = retry_of(answer)
            process.channel.send(calls.ANSWER, calls.pack(head))
            return
        head["header"] = answer.header_length
        process.channel.send(calls.ANSWER, calls.pack(head, answer.body))
