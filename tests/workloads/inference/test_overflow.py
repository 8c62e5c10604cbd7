"""Requests that would wait too long: passed on, and taken back where the next tier fails."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from falaj.workloads.inference import settings
from falaj.workloads.inference.__main__ import main
from falaj.workloads.inference.auth import Authenticator
from falaj.workloads.inference.errors import bad_request
from falaj.workloads.inference.models import model, remote
from falaj.workloads.inference.models.batching import Plan
from falaj.workloads.inference.models.remote import (
    Breaker,
    Overflow,
    RelayedModel,
    Remote,
    schema_of,
)
from falaj.workloads.inference.process.worker import available, watch_runtime
from falaj.workloads.inference.protocol.extensions import statistics
from falaj.workloads.inference.service import Service
from tests.workloads.inference import models
from tests.workloads.inference.runtime import Runtime, listen, runtime
from tests.workloads.inference.serving import Site
from tests.workloads.inference.test_inference_queue import LIVE, Transport, connect, request, until


async def no_metrics() -> bytes:
    return b""


class Tiers:
    """A CPU tier of one thread, whose runs take a time, and a next tier."""

    def __init__(
        self, site: Site, seconds: float, above: float, batching: Plan | None = None
    ) -> None:
        self.site = site
        self.batching = batching
        content = models.mlp()
        configuration = settings.read(site.config)
        limits = configuration.limits
        loaded = model.load(
            content, name="mlp", version="1", manifest={}, threads=1, limits=limits
        )
        loaded.expected = [seconds] * 32
        run = loaded.run

        def longer(inference: Any) -> Any:
            time.sleep(seconds)
            return run(inference)

        loaded.run = longer  # type: ignore[method-assign]
        self.next = runtime(content, "mlp", "2")
        self.schema = schema_of("mlp", "2", models.fields(content), limits)
        self.above = above
        self.make = lambda remote: Service(
            configuration,
            model=loaded,
            authenticator=Authenticator(configuration.auth),
            pool=ThreadPoolExecutor(1),
            threads=1,
            metrics=no_metrics,
            overflow=Overflow(remote, above),
            batching=self.batching,
        )

    def run(
        self,
        use: Callable[[Service], Awaitable[None]],
        *,
        connections: int = 64,
        timeout: float = 20,
        port: int | None = None,
    ) -> None:
        async def started() -> None:
            server, there = await listen(self.next)
            remote = Remote(
                f"http://127.0.0.1:{there if port is None else port}", self.schema,
                timeout_seconds=timeout, connections=connections,
            )  # fmt: skip
            try:
                await use(self.make(remote))
            finally:
                await remote.close()
                server.close()

        asyncio.run(started())


async def at_once(
    service: Service, site: Site, count: int, data: bytes | None = None
) -> list[Transport]:
    """Send requests on connections of their own; returns what came back, once all has."""
    sent = data or request(site)
    clients = [connect(service) for _ in range(count)]
    for connection, _ in clients:
        connection.data_received(sent)
    await until(lambda: all(transport.written for _, transport in clients))
    return [transport for _, transport in clients]


def by_next(transports: list[Transport]) -> int:
    return sum(b"Falaj-Served-By: " in each.written for each in transports)


def test_who_would_wait_too_long_is_passed_on_with_its_token(site: Site) -> None:
    tiers = Tiers(site, seconds=0.05, above=0.12)

    async def use(service: Service) -> None:
        got = await at_once(service, site, 10)
        assert [each.statuses() for each in got] == [[200]] * 10
        # One runs; two more are expected to wait 50 and 100 ms, the next one 150 ms.
        assert by_next(got) == 7
        assert service.counters.overflow_wanted == 7
        assert service.counters.overflowed == {"answered": 7}
        assert sum(service.counters.latency) == 10
        assert sum(service.counters.queue) == 3
        for each in got:
            version = b'"model_version":"2"' if by_next([each]) else b'"model_version":"1"'
            assert version in each.written
        heads = [each.headers for each in tiers.next.seen]
        assert all(each[b"authorization"].startswith(b"Bearer ") for each in heads)
        assert all(each[b"falaj-overflowed"] == b"1" for each in heads)

    tiers.run(use)


PLANS = pytest.mark.parametrize(
    "batching", [None, Plan(2, "on: for the test")], ids=["one by one", "together"]
)


@PLANS
def test_an_answer_that_cannot_be_given_is_not_counted_as_one(
    site: Site, batching: Plan | None
) -> None:
    tiers = Tiers(site, seconds=0.05, above=0.0, batching=batching)

    async def use(service: Service) -> None:
        def refuse(*_: object) -> Any:
            raise bad_request("no such form")

        service.schema.write = tiers.schema.write = refuse  # type: ignore[method-assign]
        got = await at_once(service, site, 3)
        assert [each.statuses() for each in got] == [[400]] * 3
        assert service.counters.overflow_wanted > 0
        totals = {"1": service.counters.snapshot()}
        (found,) = statistics("mlp", totals, version=None, runs_here=True)
        assert (found["execution_count"], found["inference_stats"]["fail"]["count"]) == (0, 3)

    tiers.run(use)


def test_the_slowest_of_a_burst_is_faster_with_the_next_tier(site: Site) -> None:
    """32 runs of 20 ms one after the other take 640 ms; the bound is 60 ms in the queue."""

    async def slowest(service: Service) -> float:
        start = time.perf_counter()
        await at_once(service, site, 32)
        return time.perf_counter() - start

    measured: list[float] = []
    for above in (1000.0, 0.06):

        async def use(service: Service) -> None:
            measured.append(await slowest(service))

        Tiers(site, seconds=0.02, above=above).run(use)
    alone, together = measured
    assert alone > 0.6
    assert together < alone


def test_a_request_that_came_from_a_tier_is_not_passed_on(site: Site) -> None:
    async def use(service: Service) -> None:
        marked = request(site).replace(b"Host: x", b"Host: x\r\nFalaj-Overflowed: 1")
        got = await at_once(service, site, 6, marked)
        assert [each.statuses() for each in got] == [[200]] * 6
        assert by_next(got) == 0
        assert service.counters.overflow_wanted == 0

    Tiers(site, seconds=0.02, above=0.001).run(use)


@PLANS
def test_a_next_tier_that_is_gone_costs_a_few_attempts_and_no_answer(
    site: Site, batching: Plan | None, capsys: pytest.CaptureFixture[str]
) -> None:
    async def use(service: Service) -> None:
        for _ in range(3):
            got = await at_once(service, site, 8)
            assert [each.statuses() for each in got] == [[200]] * 8
        failed = service.counters.overflowed["failed"]
        assert service.runs.overflow is not None
        assert service.runs.overflow.breaker.is_open
        # The first burst may have been on its way before the third failure was known.
        assert 3 <= failed <= 8
        assert service.counters.overflow_wanted > failed

    Tiers(site, seconds=0.01, above=0.001, batching=batching).run(use, port=1)
    assert capsys.readouterr().err.count("left alone for a while") == 1


def test_a_full_queue_passes_on_before_it_refuses(site: Site) -> None:
    async def use(service: Service) -> None:
        got = await at_once(service, site, 40)
        assert [each.statuses() for each in got] == [[200]] * 40
        assert by_next(got) == 8

    Tiers(site, seconds=0.01, above=1000.0).run(use)


def test_no_more_calls_are_out_than_allowed(site: Site) -> None:
    async def use(service: Service) -> None:
        got = await at_once(service, site, 12)
        assert [each.statuses() for each in got] == [[200]] * 12
        assert by_next(got) == 2

    tiers = Tiers(site, seconds=0.02, above=0.001)
    tiers.next = runtime(models.mlp(), "mlp", "2", slow=0.5)
    tiers.run(use, connections=2)


def test_a_client_that_left_frees_its_place(site: Site) -> None:
    async def use(service: Service) -> None:
        clients = [connect(service) for _ in range(6)]
        for connection, _ in clients:
            connection.data_received(request(site))
            connection.connection_lost(None)
        await until(lambda: not service.tasks)
        assert service.runs.waiting == 0
        assert service.runs.expected_wait() == 0
        (again,) = await at_once(service, site, 1)
        assert again.statuses() == [200]

    Tiers(site, seconds=0.02, above=0.001).run(use)


def test_the_breaker_tries_one_call_after_its_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(remote, "time", SimpleNamespace(monotonic=lambda: now))
    breaker = Breaker(failures=2, pause_seconds=5)
    for _ in range(2):
        assert breaker.allows()
        breaker.failed()
    assert breaker.is_open
    assert not breaker.allows()
    now += 6
    assert breaker.allows()
    assert not breaker.allows(), "one at a time"
    breaker.failed()
    assert not breaker.allows()
    now += 6
    assert breaker.allows()
    breaker.given_up()
    assert breaker.allows()
    breaker.succeeded()
    assert not breaker.is_open
    assert breaker.allows()
    assert breaker.allows()


# -- a runtime beside ----------------------------------------------------------------------------


def beside(site: Site, port: int) -> Service:
    configuration = settings.read(site.config)
    schema = schema_of("mlp", "1", models.fields(models.mlp()), configuration.limits)
    return Service(
        configuration,
        model=RelayedModel(schema),
        authenticator=Authenticator(configuration.auth),
        pool=ThreadPoolExecutor(1),
        threads=1,
        metrics=no_metrics,
        upstream=Remote(f"http://127.0.0.1:{port}", schema, timeout_seconds=5, connections=4),
    )


async def one(service: Service, data: bytes) -> Transport:
    connection, transport = connect(service)
    connection.data_received(data)
    await until(lambda: transport.written)
    return transport


READY = LIVE.replace(b"live", b"ready")


def test_a_proxy_is_ready_when_its_runtime_is(site: Site) -> None:
    async def run() -> None:
        made: Runtime = runtime(models.mlp(), "mlp", "1")
        server, port = await listen(made)
        service = beside(site, port)
        assert (await one(service, READY)).statuses() == [503]
        assert (await one(service, LIVE)).statuses() == [200]
        watching = asyncio.ensure_future(watch_runtime(service))
        await until(lambda: service.runtime_ready)
        assert (await one(service, READY)).statuses() == [200]
        # What the runtime says of its queue becomes this server's.
        made.counters.queued(0.5, 10)
        await until(lambda: sum(service.counters.queue) == 10)
        assert service.counters.queue_seconds == pytest.approx(0.5)
        got = await one(service, request(site))
        assert got.statuses() == [200]
        assert all(b"authorization" not in each.headers for each in made.seen)
        bad = request(site).replace(b'"shape": [1, 64]', b'"shape": [2, 64]')
        seen = len(made.seen)
        assert (await one(service, bad)).statuses() == [400]
        assert len(made.seen) == seen, "what is wrong never reaches the runtime"
        server.close()
        await server.wait_closed()
        for connection in list(made.connections):
            connection.close()
        await until(lambda: not service.runtime_ready)
        assert (await one(service, READY)).statuses() == [503]
        refused = await one(service, request(site))
        assert refused.statuses() == [503]
        assert b"Retry-After" in refused.written
        watching.cancel()
        assert service.runs.upstream is not None
        await service.runs.upstream.close()

    asyncio.run(run())


# -- configuration -------------------------------------------------------------------------------


def options(site: Site, *more: str) -> list[str]:
    root = site.root
    return [
        "configure", "--config", str(root / "made.json"), "--name", "s", "--model", "mlp",
        "--port", "8443", "--registry", str(root / "registry"), "--keyring",
        str(root / "keyring"), "--certificate", str(root / "pki/server.crt"), "--private-key",
        str(root / "pki/server.key"), "--jwks", str(root / "keyring/tokens.jwks.json"),
        "--logs", str(root / "l"), "--state", str(root / "s.json"), "--issuer", "i",
        "--audience", "a", "--cpus", "2.5", *more,
    ]  # fmt: skip


def test_a_configuration_is_what_the_server_reads(site: Site) -> None:
    more = ["--client", "prometheus=observe", "--overflow-to", "https://gpu.acme.svc:8443",
            "--overflow-version", "7", "--overflow-above-ms", "40"]  # fmt: skip
    assert main(options(site, *more)) == 0
    read = settings.read(site.root / "made.json")
    assert (read.workers, read.threads) == (2, 1)
    assert read.auth.clients == {"prometheus": frozenset({"observe"})}
    assert read.overflow is not None
    assert (read.overflow.above_seconds, read.overflow.version) == (0.04, 7)
    assert main(options(site, "--upstream", "http://127.0.0.1:8000")) == 0
    assert settings.read(site.root / "made.json").workers == 1


def test_a_configuration_can_be_looked_at_without_writing_it(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    clients = ["--client", "a=b=observe,predict", "--client", "c="]
    more = ["--workers", "3", "--threads", "2", *clients, "--json"]
    assert main(options(site, *more)) == 0
    (line,) = capsys.readouterr().out.splitlines()
    made = json.loads(line)
    assert (made["workers"], made["threads"]) == (3, 2)
    assert made["auth"]["clients"] == {"a=b": ["observe", "predict"], "c": []}
    assert not (site.root / "made.json").exists()


def test_the_number_of_workers_has_to_follow_from_something(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    given = options(site)
    del given[given.index("--cpus") : given.index("--cpus") + 2]
    assert main(given) == 2
    assert "--cpus" in capsys.readouterr().err
    assert main([*given, "--workers", "1"]) == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--upstream", "http://10.0.0.1:8000"], "neither encrypted nor authenticated"),
        (["--upstream", "https://gpu:1"], "upstream.url"),
        (["--overflow-to", "http://gpu:1", "--overflow-version", "1", "--overflow-above-ms", "1"],
         "overflow.url"),
        (["--overflow-to", "https://gpu:1"], "needs --overflow-version"),
        (["--overflow-to", "https://gpu:1", "--overflow-version", "0", "--overflow-above-ms", "1"],
         "overflow.version"),
        (["--upstream", "http://127.0.0.1:8000", "--overflow-to", "https://gpu:1",
          "--overflow-version", "1", "--overflow-above-ms", "1"], "runs the model itself"),
        (["--client", "prometheus"], "--client must be"),
        (["--client", "p=write"], "predict, urgent, observe, feedback, admin"),
        (["--client", "=predict"], "--client must be"),
        (["--cpus", "nan"], "--cpus must be"),
        (["--cpus", "-1"], "--cpus must be"),
        (["--workers", "0"], "workers"),
        (["--load-seconds", "0"], "load_seconds"),
    ],
)  # fmt: skip
def test_what_the_server_would_refuse_is_never_written(
    site: Site, more: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options(site, *more)) == 2
    assert words in capsys.readouterr().err
    assert not (site.root / "made.json").exists()


def test_cores_are_those_of_the_quota(tmp_path: Any) -> None:
    quota = tmp_path / "cpu.max"
    every = available(tmp_path / "missing")
    for text, cores in (("100000 100000\n", 1), ("50000 100000\n", 1), ("max 100000\n", every),
                        ("broken", every), ("99900000 100000", every)):  # fmt: skip
        quota.write_text(text)
        assert available(quota) == cores
