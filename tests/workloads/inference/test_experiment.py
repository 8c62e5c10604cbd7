"""Whom an experiment gives requests to, and what master and workers count: without a server."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Coroutine, Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.bounds import EXPERIMENT_TAKEN
from falaj.workloads.inference import settings
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.experiment import standing
from falaj.workloads.inference.experiment.arms import arm_of, draw
from falaj.workloads.inference.experiment.runs import NUMBER_BYTES
from falaj.workloads.inference.experiment.service import REASONS, Counts
from falaj.workloads.inference.experiment.standing import Experiment, misfit
from falaj.workloads.inference.metrics import BOUNDS
from falaj.workloads.inference.process import channel
from falaj.workloads.inference.process.companion import Companion, Means
from falaj.workloads.inference.rpc.calls import pack, unpack
from falaj.workloads.inference.settings import Settings
from tests.workloads.inference.serving import Site

_NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,20}", fullmatch=True)
_SHARES = st.floats(0.0001, 0.99)
_MANY = 4_000
#: Standard errors, beyond which a share is off: less than one of 10^8 such tests is.
_Z = 6.0


def _customers(prefix: str) -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(_MANY)]


@given(_NAMES, st.text(max_size=5), _SHARES)
def test_a_share_of_the_keys_is_the_candidates(name: str, prefix: str, share: float) -> None:
    found = sum(arm_of(name, key, share) == "candidate" for key in _customers(prefix))
    error = math.sqrt(share * (1 - share) / _MANY)
    # Of rare events the normal law is no bound: a few are never too many.
    assert abs(found / _MANY - share) < _Z * error + 10 / _MANY


@given(_NAMES, st.lists(st.binary(max_size=40), max_size=50), _SHARES, _SHARES)
def test_who_is_the_candidates_stays_so_while_the_share_grows(
    name: str, keys: list[bytes], one: float, other: float
) -> None:
    small, great = sorted((one, other))
    for key in keys:
        assert 0 <= draw(name, key) < 1
        assert arm_of(name, key, small) == arm_of(name, key, small)
        if arm_of(name, key, small) == "candidate":
            assert arm_of(name, key, great) == "candidate"


@given(st.lists(_NAMES, min_size=2, max_size=2, unique=True), _SHARES, _SHARES)
def test_experiments_are_independent(names: list[str], one: float, other: float) -> None:
    first, second = names
    both = sum(
        arm_of(first, key, one) == arm_of(second, key, other) == "candidate"
        for key in _customers("customer ")
    )
    expected = one * other
    error = math.sqrt(expected * (1 - expected) / _MANY)
    assert abs(both / _MANY - expected) < _Z * error + 10 / _MANY


def test_a_name_and_a_value_arent_run_together() -> None:
    assert draw("a", b"bc") != draw("ab", b"c")


# -- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({}, "experiment.key is missing"),
        ({"key": ""}, "experiment.key: got"),
        ({"key": "x customer"}, "allowed is 1 to 64 letters"),
        ({"key": "x:y"}, "allowed is 1 to 64 letters"),
        ({"key": "x" * 65}, "allowed is 1 to 64 letters"),
        ({"key": "kunde-é"}, "allowed is 1 to 64 letters"),
        ({"key": "x", "share": 0}, "experiment.share: got 0, allowed is a number from 0.01 to 99"),
        ({"key": "x", "share": 100}, "experiment.share"),
        ({"key": "x", "share": True}, "experiment.share"),
        ({"key": "x", "timeout_ms": 0}, "experiment.timeout_ms"),
        ({"key": "x", "alias": "production"}, "which is what is served"),
        ({"key": "x", "name": ""}, "experiment.name"),
        ({"key": "x", "name": "a\0b"}, "experiment.name"),
        ({"key": "x", "version": 2}, "experiment.version is not a known key"),
        ("yes", 'experiment: got "yes", allowed is an object'),
        *(({"key": taken.title()}, "no header that means") for taken in EXPERIMENT_TAKEN),
    ],
)
def test_what_an_experiment_may_not_be(site: Site, asked: Any, says: str) -> None:
    site.write(experiment=asked)
    with pytest.raises(InferenceError) as raised:
        settings.read(site.config)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    "other",
    [
        {"shadow": {}},
        {"upstream": {"url": "http://127.0.0.1:9"}},
        {"overflow": {"url": "https://there:9", "version": 2}},
    ],
)
def test_what_an_experiment_cant_be_with(site: Site, other: dict[str, Any]) -> None:
    site.write(experiment={"key": "x-customer"}, **other)
    name = next(iter(other))
    with pytest.raises(InferenceError, match=f"experiment and {name} don't go together"):
        settings.read(site.config)


# -- signatures -----------------------------------------------------------------------------------

_TENSOR = {"name": "x", "datatype": "FP32", "shape": [-1, 4]}
_SERVED = {"inputs": [_TENSOR], "outputs": [_TENSOR], "classes": ["no", "yes"]}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, None),
        ({"inputs": [_TENSOR | {"shape": [-1, 5]}]}, "input 'x' is FP32 [-1, 5] in place of FP32"),
        ({"inputs": [_TENSOR | {"datatype": "INT64"}]}, "input 'x' is INT64"),
        ({"inputs": [_TENSOR, _TENSOR | {"name": "y"}]}, "input 'y' is FP32 [-1, 4] in place of"),
        ({"outputs": []}, "output 'x' is missing in place of FP32 [-1, 4]"),
        ({"classes": ["yes", "no"]}, "the same in another order"),
        ({"classes": None}, "other classes"),
    ],
)
def test_a_candidate_has_the_signature_of_what_serves(
    changes: dict[str, Any], says: str | None
) -> None:
    found = misfit(_SERVED, _SERVED | changes)
    assert found is None if says is None else found is not None and says in found


# -- the master's side ----------------------------------------------------------------------------


class Process:
    """A candidate's process that a test drives."""

    def __init__(self, signature: Mapping[str, Any]) -> None:
        self.state, self.pid = "starting", 7
        self.error: str | None = None
        self.engine: str | None = None
        self.signature = signature
        self.manifest: Mapping[str, Any] = {}
        self.told: list[bytes] = []
        self.killed = False

    async def begin(self) -> bool:
        self.state = "ready"
        return True

    def tell(self, kind: int, payload: bytes) -> None:
        assert kind == channel.EXPERIMENT_RUN
        self.told.append(payload)

    def kill(self) -> None:
        self.killed = True


class Worker:
    """A worker that passes requests on."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, str]] = []

    def answer(self, number: bytes, payload: bytes) -> None:
        self.heard.append((int.from_bytes(number, "little"), unpack(payload)[0]["outcome"]))


class Bench:
    """An experiment of which a test has the clock and the processes."""

    def __init__(self, of: Settings) -> None:
        self.now = 0.0
        self.of = of
        self.signature: Mapping[str, Any] = _SERVED
        self.processes: list[Process] = []
        self.events: list[str] = []
        self.experiment = Experiment(Means(self._make, self._spawn, self._event, lambda: self.now))
        self.experiment.signature = _SERVED

    def _make(self, of: Settings, version: int, owner: Companion) -> Process:
        assert (of, owner) == (self.of, self.experiment)
        self.processes.append(Process(self.signature))
        return self.processes[-1]

    @staticmethod
    def _spawn(work: Coroutine[Any, Any, None]) -> None:
        asyncio.run(work)

    def _event(self, name: str, **fields: Any) -> None:
        self.events.append(name)
        self.figures: dict[str, Any] = fields
        json.dumps(fields)

    def stands(self, worker: Worker | None = None) -> dict[str, Any]:
        """What a worker is told; by default one that is gone at once."""
        asks = worker or Worker()
        told = self.experiment.stands(asks, "mlp", 1)
        if worker is None:
            self.experiment.gone(asks)
        return told

    def follow(self, version: int | None = 2) -> Process | None:
        self.experiment.follow(self.of, 1, version)
        return self.processes[-1] if self.processes else None


@pytest.fixture
def bench(site: Site) -> Bench:
    site.write(experiment={"key": "x-customer"})
    return Bench(settings.read(site.config))


def _asked(number: int, size: int = 3) -> bytes:
    return number.to_bytes(NUMBER_BYTES, "little") + bytes(size)


def test_answers_go_back_to_who_asked(bench: Bench) -> None:
    workers = Worker(), Worker()
    bench.experiment.take(workers[0], _asked(1))
    assert workers[0].heard == [(1, "away")]
    process = bench.follow()
    assert process is not None
    assert bench.stands() == {"version": 2, "ready": True}
    for worker in workers:
        bench.experiment.take(worker, _asked(9))
    answer = pack({"outcome": "answered"})
    for message in reversed(process.told):
        bench.experiment.done(process, message[:NUMBER_BYTES] + answer)
        # What is said twice is heard once.
        bench.experiment.done(process, message[:NUMBER_BYTES] + answer)
    assert [worker.heard[-1:] for worker in workers] == [[(9, "answered")]] * 2
    assert len(workers[1].heard) == 1


def test_who_waits_hears_when_the_process_is_gone_or_full(bench: Bench) -> None:
    process, worker = bench.follow(), Worker()
    assert process is not None
    bench.experiment.take(worker, _asked(1, standing.MOST_WAITING_BYTES))
    bench.experiment.take(worker, _asked(2))
    assert worker.heard == [(2, "busy")]
    bench.experiment.ended(process)
    assert worker.heard == [(2, "busy"), (1, "away")]
    assert bench.stands()["ready"] is False
    bench.now += 2
    again = bench.follow()
    assert again is not process
    bench.experiment.take(worker, _asked(3))
    bench.now += 61
    bench.follow()
    assert worker.heard[-1] == (3, "away")


def test_another_signature_is_refused_once(bench: Bench) -> None:
    bench.signature = _SERVED | {"outputs": []}
    for _ in range(3):
        bench.follow()
        bench.now += 1_000
    assert len(bench.processes) == 1
    assert bench.processes[0].killed
    facts = bench.experiment.facts()
    assert facts is not None
    assert facts["state"] == "failed"
    assert "another signature" in facts["error"]
    # Another version is another chance.
    bench.signature = _SERVED
    bench.follow(3)
    assert bench.stands() == {"version": 3, "ready": True}
    bench.follow(None)
    assert bench.experiment.facts() is None
    assert bench.stands() == {"version": None, "ready": False}
    assert bench.events == [
        "experiment.begun", "experiment.refused", "experiment.ended", "experiment.begun",
        "experiment.ended",
    ]  # fmt: skip


def test_an_end_is_waited_for_by_all_who_knew(bench: Bench) -> None:
    said, done = Worker(), Worker()
    bench.follow()
    for worker in (said, done):
        assert bench.stands(worker) == {"version": 2, "ready": True}
    process = bench.follow(None)
    assert process is not None
    # Workers hear of the end, and whom they passed on before is answered still.
    bench.experiment.take(said, _asked(1))
    assert bench.stands(said) == {"version": None, "ready": False}
    bench.experiment.done(process, process.told[-1][:NUMBER_BYTES] + pack({"outcome": "answered"}))
    assert said.heard == [(1, "answered")]
    last = {"version": 2, "counted": {"requests": {"candidate": 3}}, "over": True}
    bench.experiment.told(said, "mlp", 1, orjson.dumps(last))
    bench.follow(None)
    assert not process.killed
    # One that is gone says nothing more.
    bench.experiment.gone(done)
    bench.follow(None)
    assert process.killed
    assert bench.events == ["experiment.begun", "experiment.ended"]
    assert bench.figures["arms"]["candidate"]["requests"] == 3


def test_a_worker_that_hangs_is_not_waited_for_without_end(bench: Bench) -> None:
    process = bench.follow()
    assert process is not None
    bench.stands(Worker())
    for seconds, killed in ((0, False), (60, False), (60, True)):
        bench.now += seconds
        bench.follow(None)
        assert process.killed is killed
    assert bench.experiment.facts() is None


def test_an_end_that_is_taken_back_is_none(bench: Bench) -> None:
    worker = Worker()
    process = bench.follow()
    assert process is not None
    for version, told in ((2, 2), (3, None), (2, 2)):
        assert bench.follow(version) is process
        assert bench.stands(worker)["version"] == told
    assert bench.events == ["experiment.begun"]


_ARMS = st.sampled_from(["live", "candidate"])


@given(st.lists(st.tuples(_ARMS, st.sampled_from([200, 400, 404, 500, 503]), st.floats(0, 9))))
def test_what_workers_count_adds_up(answers: list[tuple[Any, int, float]]) -> None:
    made = Experiment(
        Means(lambda *_: Process({}), lambda work: work.close(), lambda *_, **__: None)
    )
    made._pair = ("mlp", 1, 2)
    for start in range(0, len(answers), 3):
        part = answers[start : start + 3]
        counts = Counts(2)
        for arm, status, seconds in part:
            counts.answered(arm, status, seconds)
            counts.fell_back("slow", "why")
        said: dict[str, Any] = {"version": 2, "counted": counts.take(), "over": False}
        assert counts.take() == {}
        other = {"version": 3, "counted": {"outside": {"requests": 1}}}
        for model, each in (("mlp", said), ("mlp", said | other), ("other", said)):
            made.told(Worker(), model, 1, orjson.dumps(each))
    found = made._figures()
    for arm in ("live", "candidate"):
        mine = [each for each in answers if each[0] == arm]
        assert found["arms"][arm]["requests"] == len(mine)
        assert found["arms"][arm]["errors"] == sum(status >= 500 for _, status, _ in mine)
        assert found["arms"][arm]["refused"] == sum(400 <= s < 500 for _, s, _ in mine)
        assert sum(made._counts.get(f"latency_{arm}", [0] * len(BOUNDS))) == len(mine)
    assert found["fallbacks"] == dict.fromkeys(REASONS, 0) | {"slow": len(answers)}
    assert found["outside"] == 0
    names = [each.name for each in made.metrics()]
    assert len(names) == len(set(names))
