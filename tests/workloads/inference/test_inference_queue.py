"""Inferences in threads: their bound, their order on a connection, and faults in them."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from falaj.workloads.inference import settings
from falaj.workloads.inference.auth import Authenticator
from falaj.workloads.inference.connections.connection import Connection
from falaj.workloads.inference.connections.http import Exchange
from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.jobs.runs import JobRuns
from falaj.workloads.inference.jobs.store import Bodies
from falaj.workloads.inference.models import model
from falaj.workloads.inference.models.model import Model
from falaj.workloads.inference.process import channel
from falaj.workloads.inference.process.channel import Channel
from falaj.workloads.inference.process.worker import Worker
from falaj.workloads.inference.protocol.oip import Inference
from falaj.workloads.inference.runs import QUEUE_PER_THREAD, QUEUE_SECONDS
from falaj.workloads.inference.service import Service
from tests.workloads.inference import models
from tests.workloads.inference.serving import Site, row


class Transport:
    """What a connection needs of a transport; keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.reading = True
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def statuses(self) -> list[int]:
        return [int(part[:3]) for part in self.written.split(b"HTTP/1.1 ")[1:]]


class Slow:
    """Makes the model's runs wait for a sign, in their thread."""

    def __init__(self, served: Model) -> None:
        self.go = threading.Event()
        self._run = served.run
        served.run = self.run  # type: ignore[method-assign]
        served.expected = [1.0] * 32

    def run(self, inference: Inference) -> Any:
        self.go.wait(20)
        return self._run(inference)


async def no_metrics() -> bytes:
    return b""


@pytest.fixture
def service(site: Site) -> Service:
    configuration = settings.read(site.config)
    loaded = model.load(
        models.mlp(),
        name="mlp",
        version="1",
        manifest={},
        threads=1,
        limits=configuration.limits,
    )
    return Service(
        configuration,
        model=loaded,
        authenticator=Authenticator(configuration.auth),
        pool=ThreadPoolExecutor(1),
        threads=1,
        metrics=no_metrics,
    )


def connect(service: Service) -> tuple[Connection, Transport]:
    connection, transport = Connection(service), Transport()
    connection.connection_made(cast("asyncio.Transport", transport))
    return connection, transport


def request(site: Site, **more: Any) -> bytes:
    body = json.dumps(row(**more)).encode()
    return (
        b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (site.token().encode(), len(body), body)
    )


LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def test_too_many_waiting_inferences_are_refused(site: Site, service: Service) -> None:
    async def run() -> None:
        slow = Slow(service.model)
        clients = [connect(service) for _ in range(QUEUE_PER_THREAD + 2)]
        for connection, _ in clients:
            connection.data_received(request(site))
        refused = [t for _, t in clients if t.written]
        assert [t.statuses() for t in refused] == [[503], [503]]
        assert b"Retry-After: 1" in refused[0].written
        slow.go.set()
        await until(lambda: all(t.written for _, t in clients))
        assert sorted(t.statuses()[0] for _, t in clients) == [200] * QUEUE_PER_THREAD + [503] * 2
        connection, transport = clients[0]
        connection.data_received(request(site))
        await until(lambda: len(transport.statuses()) == 2)

    asyncio.run(run())


def test_as_many_more_wait_as_are_soon_through(site: Site, service: Service) -> None:
    async def run() -> None:
        slow = Slow(service.model)
        service.model.expected = [QUEUE_SECONDS / (2 * QUEUE_PER_THREAD + 0.5)] * 32
        clients = [connect(service) for _ in range(3 * QUEUE_PER_THREAD)]
        asked = request(site)
        for connection, _ in clients:
            connection.data_received(asked)
        refused = [t.statuses() for _, t in clients if t.written]
        assert refused == [[503]] * (QUEUE_PER_THREAD - 1)
        slow.go.set()
        await until(lambda: all(t.written for _, t in clients))

    asyncio.run(run())


def test_answers_keep_their_order_and_reading_waits(site: Site, service: Service) -> None:
    async def run() -> None:
        slow = Slow(service.model)
        connection, transport = connect(service)
        connection.data_received(LIVE + request(site, id="a") + LIVE + request(site, id="b"))
        assert transport.statuses() == [200]
        assert not transport.reading
        assert connection.deadline == float("inf")
        slow.go.set()
        await until(lambda: len(transport.statuses()) == 4)
        assert transport.reading
        assert transport.written.index(b'"id":"a"') < transport.written.index(b'"id":"b"')

    asyncio.run(run())


def test_a_client_that_left_is_not_answered(site: Site, service: Service) -> None:
    async def run() -> None:
        slow = Slow(service.model)
        connection, transport = connect(service)
        connection.data_received(request(site) * 2)
        connection.connection_lost(None)
        slow.go.set()
        await until(lambda: not service.tasks)
        assert transport.written == b""
        assert not service.connections

    asyncio.run(run())


def test_draining_closes_after_the_last_request_in_hand(site: Site, service: Service) -> None:
    async def run() -> None:
        connection, transport = connect(service)
        connection.data_received(request(site))
        service.drain(leaving=False)
        connection.data_received(request(site) * 3)
        assert transport.statuses() == [200] * 4
        assert transport.written.count(b"Connection: close") == 1
        assert transport.closed
        connection.data_received(request(site))
        assert len(transport.statuses()) == 4

    asyncio.run(run())


@pytest.mark.parametrize("quick", [True, False])
def test_a_model_that_fails_is_told_without_its_words(
    site: Site, service: Service, quick: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(inference: Inference) -> Any:
        del inference
        raise RuntimeError("secret detail")

    async def run() -> None:
        service.model.run = fail  # type: ignore[method-assign]
        service.model.row = None
        if not quick:
            service.model.expected = [1.0] * 32
        connection, transport = connect(service)
        connection.data_received(request(site) + LIVE)
        await until(lambda: len(transport.statuses()) == 2)
        assert transport.statuses() == [500, 200]
        assert b"secret" not in transport.written

    asyncio.run(run())
    assert "secret detail" in capsys.readouterr().err


def test_a_known_head_leads_to_a_slow_model_too(site: Site, service: Service) -> None:
    async def run() -> None:
        connection, transport = connect(service)
        sent = request(site)
        connection.data_received(sent)
        (head,) = service.header_cache(None).values()
        slow = Slow(service.model)
        # Head and body in two pieces: nothing is answered before the last byte is there.
        connection.data_received(sent[:-3])
        assert service.runs.waiting == 0
        connection.data_received(sent[-3:])
        assert service.runs.waiting == 1
        slow.go.set()
        await until(lambda: transport.statuses() == [200, 200])
        # Two ways into the one path leave the same record, but for times.
        lines = [json.loads(line) for line in service.lines]
        (first, second) = ({k: v for k, v in line.items() if "us" not in k and k != "microseconds"}
                           for line in lines)  # fmt: skip
        assert first == second
        assert first["subject"] == "tester"
        assert head.exchange(b"new", 0.0).content == b"new"

    asyncio.run(run())


def test_known_heads_keep_no_body(site: Site, service: Service) -> None:
    async def run() -> None:
        connection, _ = connect(service)
        sent = request(site)
        connection.data_received(sent)
        (head,) = service.header_cache(None).values()
        kept = head._exchange  # pyright: ignore[reportPrivateUsage]
        assert (kept.content, kept.held, kept.raw_head) == (b"", 0, None)
        connection.data_received(sent)
        used = head.exchange(b"", 0.0)
        used.arm, used.content = "candidate", b"secret"
        head.take_back(used)
        assert (used.content, used.arm) == (b"", None)
        again = head.exchange(b"new", 7.0)
        assert again is used
        assert (again.content, again.started, again.received) == (b"new", 7.0, head.length)
        # While somebody has it, the next request gets another.
        assert head.exchange(b"newer", 8.0) is not again
        assert again.content == b"new"

    asyncio.run(run())


def test_requests_with_one_head_that_wait_together_keep_their_own_bodies(
    site: Site, service: Service
) -> None:
    async def run() -> None:
        sent = request(site, id="first")
        others = [sent.replace(b"first", name) for name in (b"other", b"third")]
        first, first_transport = connect(service)
        first.data_received(sent)
        first.data_received(sent)
        slow = Slow(service.model)
        pairs = [connect(service) for _ in others]
        for (connection, _), each in zip(pairs, others, strict=True):
            connection.data_received(each)
        first.data_received(sent)
        slow.go.set()
        await until(lambda: first_transport.statuses() == [200, 200, 200])
        await until(lambda: all(each.statuses() == [200] for _, each in pairs))
        assert first_transport.written.count(b'"id":"first"') == 3
        assert b'"id":"other"' in pairs[0][1].written
        assert b'"id":"third"' in pairs[1][1].written

    asyncio.run(run())


class Asked:
    """Counts how often a service looks at a token, and refuses it where it is told to."""

    def __init__(self, service: Service) -> None:
        self.times = 0
        self.refuses = False
        self._identify = service.authenticator.identify
        service.authenticator.identify = self  # type: ignore[method-assign]

    def __call__(self, *given: Any) -> Any:
        self.times += 1
        if self.refuses:
            raise RequestError(401, "revoked")
        return self._identify(*given)


def test_forgotten_heads_are_authorised_anew_on_open_connections(
    site: Site, service: Service
) -> None:
    async def run() -> None:
        asked = Asked(service)
        sent = request(site)
        pairs = [connect(service) for _ in range(2)]
        for connection, _ in pairs:
            for _ in range(3):
                connection.data_received(sent)
        assert asked.times == 1
        service.clear_header_caches()
        for connection, _ in pairs:
            for _ in range(3):
                connection.data_received(sent)
        assert asked.times == 2
        asked.refuses = True
        service.clear_header_caches()
        for connection, transport in pairs:
            connection.data_received(sent)
            assert transport.statuses() == [200] * 6 + [401]

    asyncio.run(run())


def test_a_head_that_expires_is_looked_at_again(site: Site, service: Service) -> None:
    async def run() -> None:
        asked = Asked(service)
        sent = request(site)
        connection, transport = connect(service)
        for times in (1, 2):
            connection.data_received(sent)
            connection.data_received(sent)
            (head,) = service.header_cache(None).values()
            assert asked.times == times
            head.expires = 0.0
        asked.refuses = True
        connection.data_received(sent)
        assert transport.statuses() == [200] * 4 + [401]
        assert not service.header_cache(None)

    asyncio.run(run())


def test_a_head_that_begins_like_the_last_one_is_another(site: Site, service: Service) -> None:
    async def run() -> None:
        asked = Asked(service)
        connection, transport = connect(service)
        sent = request(site)
        connection.data_received(sent)
        connection.data_received(sent)
        longer = sent.replace(b"\r\n\r\n", b"\r\nX-More: 1\r\n\r\n", 1)
        other = sent.replace(b"Host: x", b"Host: y", 1)
        for each in (longer, other, sent):
            connection.data_received(each)
        assert transport.statuses() == [200] * 5
        assert (asked.times, len(service.header_cache(None))) == (3, 3)

    asyncio.run(run())


def test_a_fault_of_the_server_is_answered(
    site: Site, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        service.infer = None  # type: ignore[assignment]
        connection, transport = connect(service)
        connection.data_received(request(site) + LIVE)
        assert transport.statuses() == [500, 200]

    asyncio.run(run())
    assert "Traceback" in capsys.readouterr().err


def test_a_jobs_run_is_counted_as_a_request_is(service: Service) -> None:
    class Kept:
        """A place for jobs, with one request over and over."""

        def read_request(self, _: str) -> tuple[dict[str, Any], bytes]:
            return {"header_length": None, "request_id": ""}, json.dumps(row()).encode()

        def write_answer(self, *_: object) -> None:
            pass

    async def ask(*_: object) -> bytes:
        return b""

    told: list[str] = []

    def tell(_: int, payload: bytes) -> None:
        told.append(json.loads(payload)["outcome"])

    async def run() -> None:
        runs = JobRuns(
            service, cast("Bodies", Kept()), further={}, ask=ask, tell=tell, counted=int
        )
        counters = service.counters
        told_of = {"id": "a", "owner": "token:somebody", "model": service.model.name, "size": 9}
        order = json.dumps(told_of).encode()
        began = time.time_ns() // 1000
        runs.start(order)
        await until(lambda: told == ["done"])
        assert sum(counters.latency) == counters.rows == 1
        assert began <= counters.last_inference <= time.time_ns() // 1000
        service.infer = refuse  # type: ignore[method-assign]
        runs.start(order)
        await until(lambda: told == ["done", "failed"])
        assert (counters.failed, counters.responses) == (1, {"infer 500": 1})

    def refuse(_: Exchange) -> Any:
        raise RequestError(500, "the model could not run on this input")

    asyncio.run(run())


def test_a_registry_that_is_refused_is_told_without_a_fault(
    site: Site, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    site.publish(models.mlp())
    folder = site.root / "registry" / "mlp"
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")

    async def run() -> None:
        connection, transport = connect(service)
        connection.data_received(
            b"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n\r\n"
            % site.token("observe").encode()
        )
        assert transport.statuses() == [503]

    asyncio.run(run())
    told = capsys.readouterr().err
    assert "symbolic link" in told
    assert "Traceback" not in told


def test_counts_without_an_access_line_are_told_to_the_master_too(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(Channel, "send", lambda _, kind, *__: sent.append(kind))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        worker = Worker(ours, theirs)
        worker._service = service  # pyright: ignore[reportPrivateUsage]
        flush = worker._flush  # pyright: ignore[reportPrivateUsage]
        flush()
        sent.clear()
        service.counters.inferred(0.5, 0.25, 1)
        flush()
        assert sent == [channel.COUNTERS]
        flush()
        assert sent == [channel.COUNTERS]


def test_connections_over_the_limit_are_refused(service: Service) -> None:
    class Aborted(Transport):
        def abort(self) -> None:
            self.closed = True

    service.max_connections = 1
    connect(service)
    second = Connection(service)
    transport = Aborted()
    second.connection_made(cast("asyncio.Transport", transport))
    assert transport.closed
    second.data_received(LIVE)
    assert transport.written == b""
    assert service.counters.refused_connections == 1
