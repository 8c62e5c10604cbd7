"""Requests that run together: when, with whom, and that each gets its own answer."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import random
import socket
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from falaj.workloads.inference import settings
from falaj.workloads.inference.auth import Authenticator
from falaj.workloads.inference.connections.connection import Connection
from falaj.workloads.inference.connections.http import Answer, Exchange
from falaj.workloads.inference.errors import InferenceError, RequestError
from falaj.workloads.inference.metrics import Counters, Totals
from falaj.workloads.inference.models import batching, model
from falaj.workloads.inference.models.batching import Batcher, Member, Plan
from falaj.workloads.inference.models.model import INLINE_SECONDS, Model
from falaj.workloads.inference.protocol import extensions
from falaj.workloads.inference.protocol.oip import Inference
from falaj.workloads.inference.runs import QUEUE_BATCHES, QUEUE_PER_THREAD
from falaj.workloads.inference.service import Service
from falaj.workloads.inference.settings import Limits
from tests.examples import examples
from tests.workloads.inference import models
from tests.workloads.inference.oip import loaded
from tests.workloads.inference.serving import Site, row
from tests.workloads.inference.test_inference_queue import Slow, Transport, no_metrics, until

# -- whether it pays -------------------------------------------------------------------------


def timed(
    content: bytes, seconds: Callable[[int], float], *, max_rows: int = 1024
) -> tuple[Model, list[int]]:
    """A model whose runs are said to take so long, and the sizes that are measured."""
    limits = Limits(max_rows=max_rows)
    made = model.load(content, name="m", version="1", manifest={}, threads=1, limits=limits)
    for index in range(1, len(made.expected)):
        made.expected[index] = seconds(1 << (index - 1))
    measured: list[int] = []

    def measure(rows: int) -> float:
        measured.append(rows)
        return seconds(rows)

    made.measure = measure  # type: ignore[method-assign]
    return made, measured


def flat(rows: int) -> float:
    """The time of a model that costs a millisecond whatever its rows, and little for each."""
    return 1e-3 + 1e-5 * rows


def test_a_model_that_is_cheaper_by_the_batch_runs_batches_of_the_least_good_size() -> None:
    made, measured = timed(models.mlp(), flat)
    found = batching.plan(made)
    # 64 rows cost 26 us each, 128 rows 18 us.
    assert (found.rows, measured) == (128, [32, 64, 128])
    assert found.reason.startswith("on: up to 128 rows together; 128 rows take 2.28 ms, one takes")
    # From 16 on nothing is gained: larger ones aren't tried, and a smaller one is taken.
    made, measured = timed(models.mlp(), lambda rows: max(1e-3, 1e-3 * rows / 8))
    assert (batching.plan(made).rows, measured) == (8, [])


@pytest.mark.parametrize(
    ("content", "seconds", "max_rows", "words"),
    [
        (models.mlp(), lambda rows: 1e-3 * rows, 64, "rows together are hardly cheaper: "),
        (
            models.mlp(),
            lambda rows: 1e-3 * (0.05 + 0.95 * rows),
            64,
            "rows together are hardly cheaper: ",
        ),
        (models.mlp(), lambda _: INLINE_SECONDS / 2, 64, "is over before others come"),
        (models.mlp(), flat, 1, "max_rows is 1"),
        (models.echo({"x": TensorProto.FLOAT}, (1, 4)), flat, 64, "first size that is free"),
        (models.counting(), flat, 64, "depends on the rows beside it"),
    ],
    ids=["in proportion", "nearly", "quick", "one row", "fixed", "mixing"],
)
def test_others_run_one_by_one_and_say_why(
    content: bytes, seconds: Callable[[int], float], max_rows: int, words: str
) -> None:
    made, _ = timed(content, seconds, max_rows=max_rows)
    found = batching.plan(made)
    assert (found.rows, found.reason.startswith("off: ")) == (0, True)
    assert words in found.reason


def test_a_scale_that_rows_share_is_noticed() -> None:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 16]) for name in "xy")
    made, _ = timed(models.model_of(nodes, [x], [y], []), flat)
    assert "'y'" in batching.plan(made).reason


def test_a_model_that_fails_on_the_trial_runs_one_by_one() -> None:
    made, _ = timed(models.mlp(), flat)

    def fail(_: Inference) -> Any:
        raise RuntimeError("an index is out of bounds")

    made.run = fail  # type: ignore[method-assign]
    assert batching.plan(made) == Plan(
        0, "off: it fails on rows that differ: an index is out of bounds"
    )


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BOOL, TensorProto.STRING,
                                  TensorProto.UINT8, TensorProto.DOUBLE])  # fmt: skip
def test_rows_of_every_type_are_tried(kind: int) -> None:
    made, _ = timed(models.echo({"x": kind}), flat)
    assert batching.plan(made).rows
    made, _ = timed(models.echo({"x": kind}), flat)
    whole = made.run

    def turned(inference: Inference) -> Any:
        return [each[::-1] for each in whole(inference)]

    made.run = turned  # type: ignore[method-assign]
    assert "depends on the rows beside it" in batching.plan(made).reason


def test_a_size_that_fails_is_not_a_batch() -> None:
    made, _ = timed(models.mlp(), flat)

    def measure(rows: int) -> float:
        if rows > 32:
            raise InferenceError("the model fails in its warm-up run: no memory")
        return flat(rows)

    made.measure = measure  # type: ignore[method-assign]
    assert batching.plan(made).rows == 32


def test_measuring_ends_when_its_time_is_over() -> None:
    made, measured = timed(models.mlp(), lambda rows: 0.05 + 1e-5 * rows)
    # Sixteen rows are known; eight runs of twice as many, in up to 0.8 s, have room in a second.
    assert (batching.plan(made).rows, measured) == (128, [32, 64, 128])
    made, measured = timed(models.mlp(), lambda rows: 0.5 + 1e-5 * rows)
    assert (batching.plan(made).rows, measured) == (16, [])


# -- the queue -------------------------------------------------------------------------------


class Pool(Executor):
    """Runs what it is given when it is told to."""

    def __init__(self) -> None:
        self.given: list[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.given.append((future, fn, args))
        return future

    def go(self, index: int) -> None:
        future, work, args = self.given.pop(index % len(self.given))
        future.set_result(work(*args))


@dataclass
class Fake:
    """What the queue needs of a model: gives `x` back, negated, and keeps what it ran."""

    fails: frozenset[float] = frozenset()
    expected: list[float] = field(default_factory=lambda: [1e-3] * 32)
    runs: list[list[float]] = field(default_factory=list[list[float]])
    alone: list[list[float]] = field(default_factory=list[list[float]])

    def run(self, inference: Inference) -> Sequence[Any]:
        values = inference.feed["x"]
        self.runs.append(values[:, 0].tolist())
        if self.fails.intersection(values[:, 0].tolist()):
            raise RuntimeError("secret detail")
        return [-values]

    def run_alone(self, inference: Inference) -> Sequence[Any]:
        self.alone.append(inference.feed["x"][:, 0].tolist())
        try:
            return self.run(inference)
        except RuntimeError as error:
            raise RequestError(500, "the model could not run on this input") from error

    def observe(self, rows: int, seconds: float) -> None:
        assert rows >= 1
        assert seconds >= 0


def answered(_: Member, results: Any, seconds: float) -> Answer:
    assert seconds >= 0
    return Answer(200, json.dumps(results[0].tolist()).encode())


def batcher(fake: Fake, pool: Executor, *, most: int = 8, threads: int = 1) -> Batcher:
    return Batcher(
        cast("Model", fake), most, pool=cast("ThreadPoolExecutor", pool), threads=threads,
        alone=fake.run_alone, answer=answered, counters=Counters(),
    )  # fmt: skip


def asked(*values: float, wide: int = 1) -> Inference:
    inference = Inference()
    inference.feed = {"x": np.repeat(np.array(values, np.float32)[:, None], wide, axis=1)}
    inference.rows = len(values)
    return inference


async def steps(count: int = 6) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(1, 10), st.integers(1, 2)),
        st.tuples(st.just("go"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 50), st.just(0)),
        st.tuples(st.just("late"), st.integers(0, 50), st.just(0)),
        st.tuples(st.just("leave"), st.integers(0, 50), st.just(0)),
        st.tuples(st.just("step"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


class Play:
    """A queue that is asked this and that, and what becomes of each request."""

    def __init__(self, fails: frozenset[float], threads: int) -> None:
        self.fake, self.pool = Fake(fails), Pool()
        self.queue = batcher(self.fake, self.pool, threads=threads)
        self.members: list[Member] = []
        self.ended: list[int] = []
        self.rows = 0

    def ask(self, rows: int, wide: int) -> None:
        values = [float(self.rows + each) for each in range(rows)]
        self.rows += rows
        member = self.queue.add(Exchange(), asked(*values, wide=wide))
        member.entered -= 1  # long ago: it is asked whether it is there
        at = len(self.members)
        member.add_done_callback(lambda _: self.ended.append(at))
        self.members.append(member)

    async def do(self, what: str, first: int, second: int) -> None:
        if what == "ask":
            self.ask(first, second)
        elif what == "step":
            await steps(1)
        elif what == "go":
            if self.pool.given:
                self.pool.go(first)
        elif self.members:
            member = self.members[first % len(self.members)]
            if what == "cancel":
                member.cancel()
            elif what == "late":
                member.deadline = 0.0
            else:
                member.hung_up = lambda: True

    async def finish(self) -> None:
        await steps()
        while self.pool.given:
            self.pool.go(0)
            await steps()

    def check(self, member: Member) -> None:
        """It got the answer to its own rows, or was refused for a reason of its own."""
        values = member.inference.feed["x"]
        rows = set(values[:, 0].tolist())
        if member.cancelled():
            return
        error = member.exception()
        if error is None:
            assert json.loads(member.result().body) == (-values).tolist()
            assert not self.fake.fails & rows
            return
        assert isinstance(error, RequestError)
        if error.status == 500:
            assert self.fake.fails & rows
        else:
            assert (error.status, member.deadline == 0.0 or member.hung_up()) == (408, True)
            assert not any(rows & set(each) for each in self.fake.runs)


@hypothesis_settings(max_examples=examples(150), deadline=None)
@given(EVENTS, st.integers(1, 3), st.sets(st.integers(0, 40), max_size=3))
def test_each_is_answered_once_with_its_own_rows(
    events: list[tuple[str, int, int]], threads: int, poisoned: set[int]
) -> None:
    async def run() -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        play = Play(frozenset(map(float, poisoned)), threads)
        for event in events:
            await play.do(*event)
        await play.finish()
        # Nothing is lost, and nothing answered twice.
        assert sorted(play.ended) == list(range(len(play.members)))
        for member in play.members:
            play.check(member)
        # A batch is no larger than allowed, and rows run again only where theirs has failed.
        runs, fails = play.fake.runs, play.fake.fails
        joint = [each for each in runs if each not in play.fake.alone]
        assert all(len(each) <= 8 for each in joint)
        for each in runs:
            others = [other for other in runs if set(each) <= set(other)]
            assert len(others) <= 1 + any(fails & set(other) for other in joint)
        assert not faults
        assert play.queue.expected_wait() == 0.0
        assert not play.queue._waiting  # pyright: ignore[reportPrivateUsage]
        assert play.queue._rows == 0  # pyright: ignore[reportPrivateUsage]

    asyncio.run(run())


@hypothesis_settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 10), st.integers(1, 3)), min_size=1, max_size=40))
def test_of_one_kind_those_that_came_first_run_first(asks: list[tuple[int, int]]) -> None:
    async def play() -> None:
        fake, pool = Fake(), Pool()
        queue = batcher(fake, pool)
        wide: dict[float, int] = {}
        number = 0
        for rows, kind in asks:
            values = [float(number + each) for each in range(rows)]
            wide |= dict.fromkeys(values, kind)
            number += rows
            queue.add(Exchange(), asked(*values, wide=kind))
        oldest = 0.0
        ran: set[float] = set()
        while True:
            await steps()
            if not pool.given:
                break
            pool.go(0)
            values = fake.runs[-1]
            # The oldest of all is in each run, and nobody waits for ever.
            assert values[0] == oldest
            assert {wide[each] for each in values} == {wide[oldest]}
            ran |= set(values)
            oldest = min(set(wide) - ran, default=math.inf)
        for kind in set(wide.values()):
            order = [value for each in fake.runs for value in each if wide[value] == kind]
            assert order == sorted(order)
        assert len(ran) == number

    asyncio.run(play())


def test_an_idle_thread_takes_what_came_with_one_read_and_nobody_waits_for_more() -> None:
    async def play() -> None:
        fake, pool = Fake(), Pool()
        queue = batcher(fake, pool, threads=2)
        first = [queue.add(Exchange(), asked(float(each))) for each in range(3)]
        await steps()
        assert len(pool.given) == 1
        later = queue.add(Exchange(), asked(9.0))
        await steps()
        assert len(pool.given) == 2  # the other thread was idle
        waits = [queue.add(Exchange(), asked(20.0 + each)) for each in range(2)]
        await steps()
        assert len(pool.given) == 2
        pool.go(1)
        await steps()
        assert later.done()
        assert len(pool.given) == 2  # the thread that is free took both
        pool.go(0)
        pool.go(0)
        await steps()
        assert all(each.done() for each in (*first, *waits))
        assert [len(each) for each in fake.runs] == [1, 3, 2]

    asyncio.run(play())


def test_a_batch_that_fails_hurts_nobody_but_who_is_to_blame(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def play() -> None:
        fake, pool = Fake(frozenset({2.0})), Pool()
        queue = batcher(fake, pool)
        members = [queue.add(Exchange(), asked(float(each))) for each in range(4)]
        await steps()
        pool.go(0)
        await steps()
        assert [each.exception() is None for each in members] == [True, True, False, True]
        assert fake.runs == [[0.0, 1.0, 2.0, 3.0], [0.0], [1.0], [2.0], [3.0]]
        counters = queue._counters  # pyright: ignore[reportPrivateUsage]
        assert (counters.batches, counters.joined) == ({"1": 3}, 0)

    asyncio.run(play())
    assert "run one by one" in capsys.readouterr().err


def test_outputs_that_are_not_of_the_rows_are_not_cut() -> None:
    async def play() -> None:
        fake, pool = Fake(), Pool()
        queue = batcher(fake, pool)
        whole = fake.run
        fake.run = lambda inference: [whole(inference)[0][:1]]  # type: ignore[method-assign]
        members = [queue.add(Exchange(), asked(float(each))) for each in range(2)]
        await steps()
        pool.go(0)
        await steps()
        assert [each.result().body for each in members] == [b"[[-0.0]]", b"[[-1.0]]"]

    asyncio.run(play())


def test_a_fault_in_a_thread_or_an_answer_reaches_those_concerned() -> None:
    async def play() -> None:
        fake, pool = Fake(), Pool()
        queue = batcher(fake, pool)

        def refuse(member: Member, results: Any, seconds: float) -> Answer:
            if member.inference.feed["x"][0, 0] == 0:
                raise RequestError(400, "ask for FP16 with binary_data")
            return answered(member, results, seconds)

        queue._answer = refuse  # pyright: ignore[reportPrivateUsage]
        refused, heard = (queue.add(Exchange(), asked(float(each))) for each in range(2))
        await steps()
        pool.go(0)
        await steps()
        assert isinstance(refused.exception(), RequestError)
        assert heard.result().status == 200
        assert queue._counters.joined == 0  # pyright: ignore[reportPrivateUsage]
        for end in (lambda each: each.set_exception(ZeroDivisionError()), Future[Any].cancel):
            member = queue.add(Exchange(), asked(1.0))
            await steps()
            end(pool.given.pop()[0])
            await steps()
            assert isinstance(member.exception(), Exception)
        again = queue.add(Exchange(), asked(1.0))
        await steps()
        pool.go(0)
        await steps()
        assert again.result().status == 200

    asyncio.run(play())


def test_a_thread_that_cannot_be_started_takes_no_place_and_leaves_nobody_waiting() -> None:
    """As where a control group allows no more of them: one is started when it is needed."""

    async def play() -> None:
        fake, pool = Fake(), Pool()
        queue = batcher(fake, pool)
        submit = pool.submit

        def fail(*_: Any, **__: Any) -> Future[Any]:
            raise RuntimeError("can't start new thread")

        pool.submit = fail  # type: ignore[method-assign]
        members = [queue.add(Exchange(), asked(float(each), wide=1 + each)) for each in range(2)]
        await steps()
        assert [str(each.exception()) for each in members] == ["can't start new thread"] * 2
        assert queue.expected_wait() == 0.0
        pool.submit = submit  # type: ignore[method-assign]
        later = queue.add(Exchange(), asked(7.0))
        await steps()
        pool.go(0)
        await steps()
        assert json.loads(later.result().body) == [[-7.0]]

    asyncio.run(play())


def test_who_is_taken_out_leaves_nothing_in_the_queue() -> None:
    async def play() -> None:
        fake, pool = Fake(), Pool()
        queue = batcher(fake, pool)
        queue.add(Exchange(), asked(0.0))
        await steps()
        gone = [queue.add(Exchange(), asked(*range(4))) for _ in range(50)]
        assert queue.expected_wait() > 0.02
        for each in gone:
            each.cancel()
        await steps()
        assert not queue._waiting  # pyright: ignore[reportPrivateUsage]
        assert queue.expected_wait() <= 1e-3
        pool.go(0)
        await steps()
        assert (fake.runs, pool.given) == ([[0.0]], [])

    asyncio.run(play())


def test_who_is_taken_out_during_a_run_takes_nobody_along() -> None:
    async def play() -> None:
        fake, pool = Fake(), Pool()
        queue = batcher(fake, pool)
        gone, *others = (queue.add(Exchange(), asked(float(each))) for each in range(4))
        await steps()
        gone.cancel()
        pool.go(0)
        await steps()
        assert [each.result().status for each in others] == [200] * 3
        counters = queue._counters  # pyright: ignore[reportPrivateUsage]
        # Of one run three were answered, so two were in another one's.
        assert (counters.batches, counters.joined) == ({"4": 1}, 2)

    asyncio.run(play())


def test_the_wait_is_that_of_what_runs_and_of_full_batches() -> None:
    async def play() -> None:
        fake, pool = Fake(expected=[10.0] * 32), Pool()
        queue = batcher(fake, pool, most=4, threads=2)
        assert queue.expected_wait() == 0.0
        queue.add(Exchange(), asked(0.0))
        await steps()
        assert queue.expected_wait() == 0.0  # one thread is idle
        queue.add(Exchange(), asked(0.0))
        await steps()
        assert queue.expected_wait() == pytest.approx(10, abs=1)
        for _ in range(3):
            queue.add(Exchange(), asked(0.0))
        assert queue.expected_wait() == pytest.approx(10, abs=1)  # one more has room with these
        queue.add(Exchange(), asked(0.0))
        assert queue.expected_wait() == pytest.approx(15, abs=1)

    asyncio.run(play())


# -- the service -----------------------------------------------------------------------------


class Served(Service):
    """A service, the model in it, and a token for it."""

    loaded: Model
    token: bytes


def service_of(site: Site, content: bytes, *, rows: int = 8, **limits: Any) -> Served:
    site.write(limits=limits, batching=True)
    configuration = settings.read(site.config)
    made = model.load(
        content, name="mlp", version="1", manifest={}, threads=1, limits=configuration.limits
    )
    served = Served(
        configuration,
        model=made,
        authenticator=Authenticator(configuration.auth),
        pool=ThreadPoolExecutor(1),
        threads=1,
        metrics=no_metrics,
        batching=Plan(rows, "on: for the test" if rows else "off: for the test"),
    )
    served.loaded = made
    served.token = site.token().encode()
    return served


def connected(
    service: Service, transport: Transport | None = None
) -> tuple[Connection, Transport]:
    connection, transport = Connection(service), transport or Transport()
    connection.connection_made(cast("asyncio.Transport", transport))
    return connection, transport


def request(service: Served, body: dict[str, Any]) -> bytes:
    token = service.token
    sent = json.dumps(body).encode()
    return (
        b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (token, len(sent), sent)
    )


def drawn(count: int, rows: Callable[[int], int]) -> list[dict[str, Any]]:
    draw = random.Random(0)
    return [
        {
            "inputs": [
                {
                    "name": "input", "datatype": "FP32", "shape": [rows(at), 64],
                    "data": [draw.gauss(0, 1) for _ in range(64 * rows(at))],
                }
            ],
            "id": f"request {at}",
        }
        for at in range(count)
    ]  # fmt: skip


def bodies_of(transport: Transport) -> list[dict[str, Any]]:
    parts = transport.written.split(b"HTTP/1.1 ")[1:]
    return [json.loads(part.partition(b"\r\n\r\n")[2]) for part in parts]


def alone(served: Model, body: dict[str, Any]) -> dict[str, Any]:
    """What a request is answered that runs by itself."""
    inference = served.schema.read(json.dumps(body).encode(), None)
    return json.loads(served.schema.write(inference, served.run(inference))[0])


def together(
    service: Served, bodies: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], Transport]:
    """What requests are answered that wait for the first of them, each over its connection."""
    last = Transport()

    async def play() -> list[dict[str, Any]]:
        nonlocal last
        slow = Slow(service.loaded)
        clients = [connected(service) for _ in bodies]
        for (connection, _), body in zip(clients, bodies, strict=True):
            connection.data_received(request(service, body))
        slow.go.set()
        await until(lambda: all(t.written for _, t in clients) and not service.tasks)
        last = clients[-1][1]
        return [each for _, transport in clients for each in bodies_of(transport)]

    return asyncio.run(play()), last


def test_numbers_are_those_that_each_would_get_alone_but_for_rounding(site: Site) -> None:
    service = service_of(site, models.mlp(), rows=8)
    sent = drawn(20, lambda at: 1 + at % 3)
    # A run of another size may round otherwise, by the processor.
    wanted = [alone(service.loaded, each) for each in sent]
    found, _ = together(service, sent)
    for one, other in zip(found, wanted, strict=True):
        numbers = [np.array(each["outputs"][0].pop("data")) for each in (one, other)]
        assert one == other
        assert np.allclose(*numbers, rtol=1e-5, atol=1e-6)
    counters = service.counters
    assert sum(int(rows) * count for rows, count in counters.batches.items()) == 39
    assert 3 < max(map(int, counters.batches)) <= 8
    assert sum(counters.latency) == sum(counters.queue) == 20
    assert counters.joined == 20 - sum(counters.batches.values())
    assert (service.runs.waiting, service.bodies.held) == (0, 0)


def test_texts_and_what_is_only_copied_are_exactly_those(site: Site) -> None:
    service = service_of(site, models.table())
    ages, cities = ("age", "FP32"), ("city", "BYTES")
    sent = [
        {
            "inputs": [
                {"name": name, "datatype": kind, "shape": [2, 1], "data": data}
                for (name, kind), data in (
                    (ages, [at / 3, at + 0.1]), (cities, [f"مدينة {at}", ""])
                )
            ],
            # Who asks for other outputs, or in another order, isn't run with these.
            "outputs": [{"name": name} for name in (("label", "score"), ("label",))[at % 2]],
        }
        for at in range(9)
    ]  # fmt: skip
    wanted = [alone(service.loaded, each) for each in sent]
    found, _ = together(service, sent)
    assert found == wanted
    assert service.counters.joined > 0


def test_a_request_that_is_wrong_never_queues(site: Site) -> None:
    service = service_of(site, models.mlp())
    good, bad = row(), row(values=[0.5] * 63)
    found, last = together(service, [good, good, good, bad])
    assert [("error" in each) for each in found] == [False, False, False, True]
    assert last.statuses() == [400]
    assert sum(int(rows) * count for rows, count in service.counters.batches.items()) == 3


def test_a_request_larger_than_a_batch_runs_alone(site: Site) -> None:
    service = service_of(site, models.mlp(), rows=4)
    found, _ = together(service, drawn(3, lambda at: 6 if at == 1 else 1))
    assert [each["outputs"][0]["shape"][0] for each in found] == [1, 6, 1]
    assert service.counters.batches == {"1": 2}
    assert service.counters.joined == 0


def test_more_may_wait_than_run_one_by_one(site: Site) -> None:
    service = service_of(site, models.mlp(), rows=64)
    most = 64 * QUEUE_BATCHES
    assert most > QUEUE_PER_THREAD
    found, last = together(service, [row()] * (most + 1))
    assert sum("outputs" in each for each in found) == most
    assert last.statuses() == [503]
    assert b"Retry-After: 1" in last.written


def test_answers_keep_the_order_of_a_connection(site: Site) -> None:
    async def play() -> None:
        service = service_of(site, models.mlp())
        slow = Slow(service.loaded)
        connection, transport = connected(service)
        other, _ = connected(service)
        connection.data_received(
            request(service, row(id="a")) + request(service, row(id="b"))
            + request(service, {"inputs": []}) + request(service, row(id="c"))
        )  # fmt: skip
        other.data_received(request(service, row()))
        slow.go.set()
        await until(lambda: len(transport.statuses()) == 4)
        assert transport.statuses() == [200, 200, 400, 200]
        assert [each.get("id") for each in bodies_of(transport)] == ["a", "b", None, "c"]

    asyncio.run(play())


def timed_row(timeout: object) -> dict[str, Any]:
    return row(parameters={"timeout": timeout})


def test_who_has_less_time_than_the_queue_takes_is_refused_at_once(site: Site) -> None:
    async def play() -> None:
        service = service_of(site, models.mlp())
        slow = Slow(service.loaded)  # a run is expected to take a second
        first, _ = connected(service)
        first.data_received(request(service, row()))
        await until(lambda: service.runs.expected_wait() > 0.5)
        connection, transport = connected(service)
        connection.data_received(request(service, timed_row(100_000)))
        assert transport.statuses() == [503]
        assert b"Retry-After" in transport.written
        assert b"ms is the wait" in transport.written
        assert service.runs.waiting == 1
        for enough in (0, 60_000_000):
            transport.written = b""
            connection.data_received(request(service, timed_row(enough)))
            slow.go.set()
            await until(lambda: transport.statuses() == [200])
        await until(lambda: not service.tasks)

    asyncio.run(play())


def test_a_request_whose_time_is_over_is_dropped_before_it_runs(site: Site) -> None:
    async def play() -> None:
        service = service_of(site, models.mlp())
        slow = Slow(service.loaded)
        service.loaded.expected = [0.001] * 32  # it takes longer than anybody thought
        first, _ = connected(service)
        first.data_received(request(service, row()))
        await steps()
        connection, transport = connected(service)
        connection.data_received(request(service, timed_row(30_000)))
        assert service.runs.waiting == 2
        await asyncio.sleep(0.05)
        slow.go.set()
        await until(lambda: bool(transport.written))
        assert transport.statuses() == [408]
        assert b"the time that was given is over" in transport.written
        assert service.counters.batches == {"1": 1}
        connection.data_received(request(service, row()))
        await until(lambda: len(transport.statuses()) == 2)
        assert transport.statuses()[1] == 200

    asyncio.run(play())


def test_who_has_no_time_at_all_is_no_fault_of_the_server(site: Site) -> None:
    """A 5xx would be: callers' own would end a canary, and call somebody by night."""

    async def play() -> None:
        service = service_of(site, models.mlp())
        service.loaded.expected = [0.001] * 32
        connection, transport = connected(service)
        connection.data_received(request(service, timed_row(1)))
        assert transport.statuses() == [408]
        assert b"the request's timeout was over before it could queue" in transport.written
        assert (service.runs.waiting, service.bodies.held) == (0, 0)

    asyncio.run(play())


def test_a_job_has_time_whatever_it_says(site: Site) -> None:
    """Else it would be given back again and again, before all jobs behind it."""

    async def play() -> None:
        service = service_of(site, models.mlp())
        slow = Slow(service.loaded)
        first, _ = connected(service)
        first.data_received(request(service, row()))
        await until(lambda: service.runs.expected_wait() > 0.5)
        body = json.dumps(timed_row(1)).encode()
        job = Exchange(content=body, started=time.perf_counter() - 1, options=ort.RunOptions())
        waits = service.infer(job)
        slow.go.set()
        assert isinstance(waits, Member)
        assert (await waits).status == 200
        await until(lambda: not service.tasks)

    asyncio.run(play())


@pytest.mark.parametrize("timeout", [-1, 1.5, "1", None, True, 2**63, [1]])
def test_a_timeout_that_is_none_is_refused_where_timeouts_are_taken(
    site: Site, timeout: object
) -> None:
    service = service_of(site, models.mlp())
    body = json.dumps(timed_row(timeout)).encode()
    with pytest.raises(RequestError, match="whole number of microseconds from 0"):
        service.schema.read(body, None)
    # Elsewhere it is one of the parameters that mean nothing, if it can be one.
    off = service_of(site, models.mlp(), rows=0)
    if timeout is None or isinstance(timeout, list):
        with pytest.raises(RequestError, match="'timeout' must be a text, a number"):
            off.schema.read(body, None)
    else:
        assert off.schema.read(body, None).timeout is None


def test_a_client_that_hung_up_is_not_run(site: Site) -> None:
    class Opened(Transport):
        def __init__(self, opened: socket.socket) -> None:
            super().__init__()
            self.opened = opened

        def get_extra_info(self, name: str) -> Any:
            return self.opened if name == "socket" else super().get_extra_info(name)

    async def play() -> None:
        service = service_of(site, models.mlp())
        slow = Slow(service.loaded)
        first, _ = connected(service)
        first.data_received(request(service, row()))
        await steps()
        pairs = [socket.socketpair() for _ in range(3)]
        clients = [connected(service, Opened(ours)) for ours, _ in pairs]
        for connection, _ in clients:
            connection.data_received(request(service, row()))
        await asyncio.sleep(0.01)
        pairs[0][1].close()
        pairs[1][0].close()
        slow.go.set()
        (_, left), _, (_, stays) = clients
        await until(lambda: bool(stays.written) and not service.tasks)
        assert stays.statuses() == [200]
        assert left.statuses() == [408]
        assert service.runs.waiting == 0
        for each in (*pairs[1], *pairs[2], pairs[0][0]):
            each.close()
        # A descriptor that is gone says nothing, and the request runs.
        assert service.counters.batches == {"1": 1, "2": 1}

    asyncio.run(play())


def test_a_lost_connection_is_not_run(site: Site) -> None:
    async def play() -> None:
        service = service_of(site, models.mlp())
        slow = Slow(service.loaded)
        first, heard = connected(service)
        second, unheard = connected(service)
        first.data_received(request(service, row()))
        await asyncio.sleep(0.01)
        second.data_received(request(service, row()))
        second.connection_lost(None)
        await asyncio.sleep(0.01)
        slow.go.set()
        await until(lambda: not service.tasks)
        assert (heard.statuses(), unheard.written) == ([200], b"")
        assert service.counters.batches == {"1": 1}
        assert service.bodies.held == 0

    asyncio.run(play())


def test_a_refused_request_leaves_no_garbage(site: Site) -> None:
    """Its frames know its arrays, which would stay until somebody looks for garbage."""
    service = service_of(site, models.mlp())
    kept: list[weakref.ref[Any]] = []
    read, run, write = service.schema.read, service.loaded.run, service.schema.write

    def reading(body: Any, header_length: Any) -> Inference:
        inference = read(body, header_length)
        kept.extend(weakref.ref(each) for each in inference.feed.values())
        return inference

    def running(inference: Inference) -> Any:
        if any((each == 7).any() for each in inference.feed.values()):
            raise RuntimeError("it can't")
        return run(inference)

    def writing(inference: Inference, results: Any) -> Any:
        if inference.identifier == "unwritten":
            raise RequestError(400, "ask for FP16 with binary_data")
        return write(inference, results)

    service.schema.read, service.schema.write = reading, writing  # type: ignore[method-assign]
    service.loaded.run = running  # type: ignore[method-assign]
    sent = [row(), row([7.0] * 64), row(id="unwritten"), row([7.0] * 64), row()]
    gc.collect()
    gc.disable()
    try:
        found, last = together(service, sent)
        assert [("error" in each) for each in found] == [False, True, True, True, False]
        assert last.statuses() == [200]
        assert len(kept) == 5
        assert [each for each in kept if each() is not None] == []
    finally:
        gc.enable()


def test_what_is_off_is_as_without_the_setting_and_says_why(site: Site) -> None:
    service = service_of(site, models.mlp(), rows=0)
    found, _ = together(service, [row()] * 3)
    assert all("outputs" in each for each in found)
    assert service.counters.batches == {}
    exchange = Exchange(route=service.router.find(b"/v2/models/mlp/config"))
    told = json.loads(cast("Answer", service.handle(exchange)).body)
    assert told["parameters"] == {"batching": {"string_value": "off: for the test"}}
    assert "dynamic_batching" not in told


# -- what is told ----------------------------------------------------------------------------


def test_the_configuration_says_how_many_rows_run_together() -> None:
    schema = loaded(models.mlp()).schema
    told = extensions.configuration(schema, 1, Plan(16, "on: up to 16 rows together"))
    assert told["dynamic_batching"] == {
        "preferred_batch_size": [16], "max_queue_delay_microseconds": 0
    }  # fmt: skip
    assert not {"parameters", "dynamic_batching"} & set(extensions.configuration(schema, 1))


def test_statistics_and_metrics_count_runs_by_their_rows() -> None:
    counters = Counters()
    for _ in range(5):
        counters.inferred(0.5, 0.25, 1)
    counters.batched(3, 0.25)
    counters.batched(2, 0.5)
    counters.batched(2, 0.25)
    counters.joined = 2
    totals = Totals("mlp")
    totals.update(1, 1, counters.snapshot())
    totals.ended(1)
    totals.update(2, 1, counters.snapshot())
    totals.update(3, 2, Counters().snapshot())
    old, new = extensions.statistics("mlp", totals.by_version(), version=None, runs_here=True)
    assert old["batch_stats"] == [
        {"batch_size": 2, "compute_infer": {"count": 4, "ns": 1_500_000_000}},
        {"batch_size": 3, "compute_infer": {"count": 2, "ns": 500_000_000}},
    ]
    assert (old["inference_count"], old["execution_count"]) == (10, 6)
    assert "batch_stats" not in new
    text = totals.render().decode()
    of = 'falaj_inference_batch_rows_{}{{{}model="mlp",version="1"}} {}'
    for each in (
        of.format("bucket", 'le="1.0",', "0.0"),
        of.format("bucket", 'le="2.0",', "4.0"),
        of.format("bucket", 'le="4.0",', "6.0"),
        of.format("bucket", 'le="+Inf",', "6.0"),
        of.format("count", "", "6.0"),
        of.format("sum", "", "14.0"),
    ):
        assert each in text
    assert 'batch_rows_count{model="mlp",version="2"}' not in text
