"""What a worker holds of bodies: as much as they have bytes, up to a limit for all of them."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falaj.workloads.inference.connections import http
from falaj.workloads.inference.connections.connection import PIECE_BYTES, Connection
from falaj.workloads.inference.connections.header_names import KNOWN
from falaj.workloads.inference.connections.http import (
    Answer,
    Bodies,
    Exchange,
    Head,
    HeaderCache,
    Reader,
)
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.protocol import routes
from falaj.workloads.inference.settings import Limits, parse
from tests.workloads.inference import models
from tests.workloads.inference.raw_http import Raw, error, head, request
from tests.workloads.inference.serving import Server, Site

MIB = 1024 * 1024
ROUTES = {route.name: route for route in routes.ROUTES}


def reader(bodies: Bodies, route: str = routes.INFER) -> Reader:
    def admit(exchange: Exchange) -> None:
        exchange.route = ROUTES[route]

    return Reader(8 * MIB, bodies, admit, lambda *_: None)


def test_a_body_in_tiny_chunks_takes_about_its_size() -> None:
    """Kept apart, pieces of two bytes took 27 times as much."""
    read = reader(Bodies(64 * MIB))
    start = b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"2\r\nxy\r\n" * 8192
    tracemalloc.start()
    try:
        read.feed(start, None)
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(16):
            read.feed(chunks, None)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert read.exchange is not None
    assert read.exchange.received == 16 * 8192 * 2
    assert taken < 2 * read.exchange.received
    read.feed(b"0\r\n\r\n", None)
    assert bytes(read.queue[0].content) == b"xy" * 8192 * 16


def test_every_byte_that_is_counted_is_let_go() -> None:
    bodies = Bodies(100)
    start = b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 60\r\n\r\n"
    first, second, third = reader(bodies), reader(bodies), reader(bodies)
    first.feed(start + b"x" * 50, None)
    second.feed(start.replace(b"60", b"50") + b"x" * 40, None)
    assert bodies.held == 90
    third.feed(start, None)
    assert third.fatal is None  # a small body that is refused is read, and the connection kept
    assert third.exchange is not None
    assert third.exchange.refusal is not None
    assert third.exchange.refusal.status == 503
    second.feed(b"x" * 10, None)
    assert bodies.held == 100
    first.feed(b"x", None)
    assert first.fatal is not None
    assert (first.fatal.status, first.fatal.close) == (503, True)
    assert bodies.held == 50
    second.drop()
    assert bodies.held == 0


def test_a_body_that_nobody_reads_is_not_kept() -> None:
    """Health needs no credentials: whoever sends it a body takes no memory."""
    bodies = Bodies(64 * MIB)
    read = reader(bodies, routes.LIVE)
    start = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    read.feed(start + b"1000\r\n" + b"x" * 0x1000 + b"\r\n", None)
    assert read.exchange is not None
    assert (bodies.held, bytes(read.exchange.content)) == (0, b"")
    for _ in range(16):
        read.feed(b"1000\r\n" + b"x" * 0x1000 + b"\r\n", None)
    assert read.fatal is not None
    assert read.fatal.status == 413


class Transport:
    """What a connection needs of one; it keeps what was written."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def get_extra_info(self, name: str) -> None:
        del name

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        pass


async def waiting_twice(start: bytes, body: bytes) -> tuple[list[int], bytes, bytes]:
    """Bytes that are held while a request waits, with a second one, and once it is answered."""
    held: list[int] = []
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    known = Head(start, Exchange(method=b"POST", received=len(body)), float("inf"), b"")

    def admit(exchange: Exchange, *_: object) -> None:
        exchange.route = ROUTES[routes.INFER]

    service: Any = SimpleNamespace(
        limits=Limits(), bodies=Bodies(100), arriving={},
        header_cache=lambda _: HeaderCache({start: known}),
        connections=set(), max_connections=9, counters=SimpleNamespace(connections=0),
        handle=lambda _: answer, tasks=set(), draining=False, answers=http.Answers(),
        finished=lambda *_: 0.0, remember=lambda *_: None, admit=admit, take_over=None,
        relayed=0, wanted=KNOWN,
    )  # fmt: skip
    transports: list[Any] = []
    for _ in range(2):
        transports.append(Transport())
        connection = Connection(service)
        connection.connection_made(transports[-1])
        connection.data_received(start + body)
        held.append(service.bodies.held)
    answer.set_result(Answer(200, b""))
    await asyncio.gather(*service.tasks)
    return [*held, service.bodies.held], transports[0].written, transports[1].written


def test_bodies_behind_known_heads_count_while_they_wait() -> None:
    start = b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 60\r\n\r\n"
    held, first, second = asyncio.run(waiting_twice(start, b"x" * 60))
    assert held == [60, 60, 0]
    assert first.startswith(b"HTTP/1.1 200 ")
    assert second.startswith(b"HTTP/1.1 503 ")


class Slow(Transport):
    """Says that it is full after each piece, as where a client doesn't read."""

    connection: Connection

    def write(self, data: bytes) -> None:
        super().write(data)
        self.connection.pause_writing()

    def abort(self) -> None:
        self.connection.connection_lost(None)


LARGE = bytes(range(256)) * 1_200


async def read_slowly(use: Callable[[Connection, Slow, Bodies], Awaitable[None]]) -> None:
    """Have a connection answer with what is counted until it is sent."""
    bodies = Bodies(MIB)

    async def answer(exchange: Exchange) -> Answer:
        bodies.take(exchange, len(LARGE))
        return Answer(200, LARGE, http.BINARY, held=True)

    def admit(exchange: Exchange, *_: object) -> None:
        exchange.route = ROUTES[routes.JOB_RESULT]

    service: Any = SimpleNamespace(
        limits=Limits(), bodies=bodies, header_cache=lambda _: HeaderCache(), arriving={},
        connections=set(),
        max_connections=9, counters=SimpleNamespace(connections=0), handle=answer, tasks=set(),
        draining=False, answers=http.Answers(), finished=lambda *_: 0.0,
        remember=lambda *_: None, admit=admit, take_over=None, relayed=0, wanted=KNOWN,
    )  # fmt: skip
    transport = Slow()
    transport.connection = connection = Connection(service)
    connection.connection_made(cast("Any", transport))
    connection.data_received(b"GET /v2/models/mlp/jobs/1/result HTTP/1.1\r\nHost: x\r\n\r\n")
    (task,) = service.tasks
    for _ in range(5):
        await asyncio.sleep(0)
    assert 0 < len(transport.written) < len(LARGE)
    assert bodies.held == len(LARGE)
    assert connection.deadline < float("inf")
    await use(connection, transport, bodies)
    await asyncio.wait_for(task, 60)
    assert bodies.held == 0


def test_a_result_counts_until_its_client_has_read_it() -> None:
    async def read(connection: Connection, transport: Slow, bodies: Bodies) -> None:
        while bodies.held:
            before = len(transport.written)
            connection.resume_writing()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(transport.written) - before <= PIECE_BYTES
        assert transport.written.partition(b"\r\n\r\n")[2] == LARGE
        # The connection goes on.
        sent = len(transport.written)
        connection.resume_writing()
        connection.data_received(b"GET /v2/models/mlp/jobs/1/result HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(transport.written) > sent
        connection.connection_lost(None)
        await asyncio.sleep(0)

    asyncio.run(read_slowly(read))


@pytest.mark.parametrize("how", ["lost", "expired", "closed"])
def test_a_result_that_is_never_read_is_let_go(how: str) -> None:
    async def leave(connection: Connection, transport: Slow, bodies: Bodies) -> None:
        if how == "lost":
            connection.connection_lost(None)
        elif how == "expired":
            connection.expire()
        else:
            connection.close()
            assert bodies.held == len(LARGE)
            connection.resume_writing()
        sent = len(transport.written)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(transport.written) == sent

    asyncio.run(read_slowly(leave))


def test_unfinished_bodies_are_bounded(site: Site, start: Callable[..., Server]) -> None:
    site.write(limits={"max_body_bytes": MIB, "max_inflight_bytes": 2 * MIB})
    server = start(site).serving(site.publish(models.mlp()))
    token = site.token()
    size = 900 * 1024
    held = [Raw(server) for _ in range(2)]
    for each in held:
        each.send(head(token, size), b" " * (size - 1))
    ask = Raw(server)
    ask.send(request(token))
    assert ask.answer()[0] == 200  # so the others have been read
    late = Raw(server)
    late.send(head(token, size))
    answer = late.answer()
    assert (answer[0], answer[1][b"Retry-After"]) == (503, b"1")
    assert "try again" in error(answer)
    assert late.ended()
    ask.send(request(token))
    assert ask.answer()[0] == 200  # what is small has room
    for each in held:
        each.close()
    again = Raw(server)
    again.send(head(token, size), b" " * size)
    assert again.answer()[0] == 400  # not JSON, but read
    assert server.stop() == 0


def test_the_limit_holds_one_body(site: Site) -> None:
    site.write(limits={"max_body_bytes": 2 * MIB, "max_inflight_bytes": MIB})
    with pytest.raises(InferenceError, match="max_inflight_bytes: got 1048576, allowed is"):
        parse(site.config, site.config.read_bytes())
    site.write(limits={"max_body_bytes": 128 * MIB})
    assert parse(site.config, site.config.read_bytes()).limits.max_inflight_bytes == 128 * MIB
