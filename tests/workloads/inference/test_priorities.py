"""How urgent requests are: who may say so, who goes first, who makes room, and for how long."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as of_examples
from hypothesis import strategies as st

from falaj.workloads.inference import settings
from falaj.workloads.inference.auth import Authenticator
from falaj.workloads.inference.errors import InferenceError, RequestError
from falaj.workloads.inference.models import model
from falaj.workloads.inference.models.batching import Plan
from falaj.workloads.inference.models.priorities import HEAD_START, Ordered
from falaj.workloads.inference.protocol import oip
from falaj.workloads.inference.protocol.oip import Inference
from falaj.workloads.inference.runs import QUEUE_PER_THREAD
from falaj.workloads.inference.service import Service
from tests.examples import examples
from tests.workloads.inference import models
from tests.workloads.inference.serving import Site, row
from tests.workloads.inference.test_inference_queue import Transport, connect, no_metrics, until


@of_examples(max_examples=examples(30))
@given(st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.integers(0, 9)), min_size=1, max_size=20))
def test_the_oldest_by_its_head_start_goes_first(asked: list[tuple[int, int]]) -> None:
    """Whoever came so much later that its own head start doesn't count passes nobody."""
    ran: list[int] = []

    async def run() -> None:
        with ThreadPoolExecutor(1) as pool:
            go = threading.Event()
            pool.submit(go.wait, 20)
            ordered = Ordered(pool)
            waiting = [
                ordered.run(rank, came, lambda number=number: ran.append(number))
                for number, (rank, came) in enumerate(asked)
            ]
            go.set()
            await asyncio.gather(*waiting)

    asyncio.run(run())
    places = [asked[number][1] + HEAD_START[asked[number][0]] for number in ran]
    assert places == sorted(places)
    assert sorted(ran) == list(range(len(asked)))


def test_work_that_fails_or_is_taken_back_keeps_nobody_waiting() -> None:
    async def run() -> None:
        with ThreadPoolExecutor(1) as pool:
            go = threading.Event()
            pool.submit(go.wait, 20)
            ordered = Ordered(pool)
            fails = ordered.run(1, 0, lambda: 1 / 0)
            gone = ordered.run(1, 1, lambda: "gone")
            room = ordered.run(2, 2, lambda: "room")
            last = ordered.run(0, 3, lambda: "last")
            gone.cancel()
            assert ordered.displace(1)
            assert not ordered.displace(1), "nobody is less urgent any more"
            assert not ordered.displace(2)
            go.set()
            with pytest.raises(ZeroDivisionError):
                await fails
            with pytest.raises(RequestError) as refused:
                await room
            assert refused.value.status == 503
            assert await last == "last"

    asyncio.run(run())


class Kept:
    """Makes the model's runs wait for a sign, and keeps their order."""

    def __init__(self, service: Service) -> None:
        self.go = threading.Event()
        self.ran: list[str] = []
        served: Any = service.model
        self._run = served.run
        served.run = self.run
        served.expected = [1.0] * 32

    def run(self, inference: Inference) -> Any:
        self.go.wait(20)
        if inference.identifier:
            self.ran.append(inference.identifier)
        return self._run(inference)


def _service(site: Site, *, batched: bool) -> Service:
    site.write(priorities=True)
    configuration = settings.read(site.config)
    loaded = model.load(
        models.mlp(), name="mlp", version="1", manifest={}, threads=1,
        limits=configuration.limits,
    )  # fmt: skip
    return Service(
        configuration, model=loaded, authenticator=Authenticator(configuration.auth),
        pool=ThreadPoolExecutor(1), threads=1, metrics=no_metrics,
        batching=Plan(1, "each alone, in the batcher's queue") if batched else None,
    )  # fmt: skip


class Caller:
    """Sends requests, each on a connection of its own."""

    def __init__(self, site: Site, service: Service) -> None:
        self.site, self.service = site, service
        self.sent: dict[str, Transport] = {}

    def ask(self, name: str, priority: object, *scopes: str) -> None:
        body = json.dumps(row(id=name, parameters={"priority": priority})).encode()
        connection, self.sent[name] = connect(self.service)
        connection.data_received(
            b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n"
            b"Content-Length: %d\r\n\r\n%b"
            % (self.site.token(*(scopes or ("predict",))).encode(), len(body), body)
        )

    def status(self, name: str) -> int | None:
        return next(iter(self.sent[name].statuses()), None)


@pytest.mark.parametrize("batched", [False, True])
def test_the_urgent_go_first_and_the_others_make_room(site: Site, *, batched: bool) -> None:
    service = _service(site, batched=batched)

    async def run() -> None:
        kept, caller = Kept(service), Caller(site, service)
        caller.ask("running", "normal")
        await asyncio.sleep(0)
        most = QUEUE_PER_THREAD
        for number in range(most - 2):
            caller.ask(f"low {number}", "low")
        caller.ask("usual", 0)
        assert service.runs.waiting == most
        # Nobody is less urgent than it, or nobody may say so.
        caller.ask("late", "low")
        assert caller.status("late") == 503
        caller.ask("stranger", "high")
        assert caller.status("stranger") == 403
        assert b"scope urgent" in caller.sent["stranger"].written
        caller.ask("urgent", "high", "predict", "urgent")
        await until(lambda: caller.status(f"low {most - 3}") == 503)
        assert b"Retry-After: 1" in caller.sent[f"low {most - 3}"].written
        assert caller.status("urgent") is None
        kept.go.set()
        await until(lambda: all(each.written for each in caller.sent.values()))
        assert kept.ran[:4] == ["running", "urgent", "usual", "low 0"]
        assert caller.status("urgent") == 200
        assert service.counters.displaced == 1
        assert service.runs.waiting == 0

    asyncio.run(run())


@pytest.mark.parametrize("given", ["urgent", "HIGH", 4, -1, 1.0, None, True, ["low"]])
def test_what_no_priority_is(site: Site, given: Any) -> None:
    is_no_value = given is None or isinstance(given, list)
    words = (
        b"must be a text, a number, true or false"
        if is_no_value
        else (b"one of high, normal, low")
    )
    service = _service(site, batched=False)

    async def run() -> None:
        caller = Caller(site, service)
        caller.ask("x", given)
        assert caller.status("x") == 400
        assert words in caller.sent["x"].written

    asyncio.run(run())


@pytest.mark.parametrize(
    ("given", "rank"), [("high", 0), (1, 0), (2, 1), (3, 2), ("low", 2), (0, 1)]
)
def test_words_and_tritons_numbers_mean_the_same(site: Site, given: Any, rank: int) -> None:
    schema = _service(site, batched=False).schema
    body = json.dumps(row(parameters={"priority": given})).encode()
    assert schema.read(body, None).rank == rank
    schema.takes_priority = False
    assert schema.read(body, None).rank == oip.USUAL_RANK
    assert QUEUE_PER_THREAD > len(HEAD_START) == len(oip.PRIORITIES)


def test_a_runtime_beside_has_its_own_queue(site: Site) -> None:
    site.write(priorities=True, upstream={"url": "http://127.0.0.1:9"})
    with pytest.raises(InferenceError, match="priorities are of the queue"):
        settings.read(site.config)
