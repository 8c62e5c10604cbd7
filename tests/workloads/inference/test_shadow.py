"""What a shadow compares, what workers copy, and what the master gives it: without a server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.inference import settings
from falaj.workloads.inference.connections import http
from falaj.workloads.inference.connections.http import Answer, Exchange
from falaj.workloads.inference.process import channel, companion
from falaj.workloads.inference.process.companion import Means
from falaj.workloads.inference.settings import Settings
from falaj.workloads.inference.shadow import copies, standing
from falaj.workloads.inference.shadow.agreement import compare, distributions_of
from falaj.workloads.inference.shadow.copies import Copies, Copy
from falaj.workloads.inference.shadow.standing import Shadow
from tests.workloads.inference.serving import Site

_FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(_FLOATS, _FLOATS, st.integers(-5, 5), st.integers(-5, 5)), max_size=20))
def test_agreement_is_symmetric_and_whole_with_oneself(
    rows: list[tuple[float, float, int, int]],
) -> None:
    one, other = (
        [np.array([each[at] for each in rows], np.float32).reshape(-1, 1),
         np.array([each[at + 2] for each in rows], np.int64)]
        for at in (0, 1)
    )  # fmt: skip
    names, count = ["score", "label"], len(rows)
    there = compare(names, one, other, rows=count, distributions=frozenset())
    back = compare(names, other, one, rows=count, distributions=frozenset())
    assert there == back
    assert there.agreed <= min(there.outputs.values())
    assert np.isfinite(list(there.differences.values())).all()
    same = compare(names, one, one, rows=count, distributions=frozenset())
    assert (same.agreed, set(same.outputs.values())) == (count, {count})
    assert same.differences == {"score": 0.0}


@pytest.mark.parametrize(
    ("one", "other", "agrees"),
    [
        (100.0, 109.0, True),
        (100.0, 112.0, False),
        (0.0, 1e-9, True),
        (0.0, 1e-3, False),
        (-1.0, 1.0, False),
        (float("nan"), float("nan"), True),
        (float("nan"), 0.0, False),
        (float("inf"), float("inf"), True),
        (float("inf"), float("-inf"), False),
    ],
)
def test_numbers_agree_within_a_tenth(one: float, other: float, *, agrees: bool) -> None:
    arrays = ([np.array([[each]], np.float32)] for each in (one, other))
    found = compare(["score"], *arrays, rows=1, distributions=frozenset())
    assert found.agreed == agrees


def test_probabilities_agree_by_the_likeliest_class() -> None:
    one = [np.array([[0.6, 0.4], [0.1, 0.9]], np.float32)]
    other = [np.array([[0.9, 0.1], [0.6, 0.4]], np.float32)]
    found = compare(["p"], one, other, rows=2, distributions=frozenset({"p"}))
    assert (found.agreed, found.outputs) == (1, {"p": 1})
    assert found.differences["p"] == pytest.approx(0.3 + 0.5)
    outputs = [{"name": "p", "role": "probabilities"}, {"name": "l", "role": "label"}, 7]
    assert distributions_of(outputs) == {"p"}
    assert distributions_of(None) == frozenset()


def test_an_output_without_rows_stands_for_all_of_them() -> None:
    one, other = [np.array([1, 2], object)], [np.array([1, 3], object)]
    assert compare(["x"], one, other, rows=5, distributions=frozenset()).outputs == {"x": 0}
    assert compare(["x"], one, one, rows=5, distributions=frozenset()).outputs == {"x": 5}
    with pytest.raises(ValueError, match=r"'x' has the shape \[2\] in one version, and \[3\]"):
        compare(["x"], one, [np.array([1, 2, 3])], rows=5, distributions=frozenset())


@given(
    st.binary(max_size=50), st.binary(max_size=50),
    st.none() | st.integers(0, 50), st.none() | st.integers(0, 50),
)  # fmt: skip
def test_a_copy_comes_back_as_it_was(
    body: bytes, answer: bytes, one: int | None, other: int | None
) -> None:
    copy = Copy(body, one, answer, other)
    assert Copy.unpacked(copy.packed()) == copy


@given(st.binary(max_size=40))
def test_what_is_no_copy_is_refused_or_read(message: bytes) -> None:
    try:
        found = Copy.unpacked(message)
    except ValueError:
        return
    assert len(found.body) + len(found.answer) <= len(message)


def _taken(answer: Answer, *, share: float = 1.0, backlog: int = 0, body: bytes = b"{}") -> Any:
    sent: list[bytes] = []
    found = Copies(sent.append, lambda: backlog, draw=itertools.cycle((0.0, 0.5)).__next__)
    found.share = share

    async def run() -> None:
        for _ in range(4):
            found.take(Exchange(content=body), answer)
        assert not sent, "copies are sent after the answer"
        await asyncio.sleep(0)

    asyncio.run(run())
    return len(sent), found.dropped


def test_workers_copy_a_share_of_their_own_answers() -> None:
    line = http.LENGTH_LINE + b"2"
    assert _taken(Answer(200, b"{}")) == (4, 0)
    assert _taken(Answer(200, b"{}", headers=(line,))) == (4, 0)
    assert _taken(Answer(200, b"{}"), share=0.5) == (2, 0)
    assert _taken(Answer(200, b"{}"), share=0.0) == (0, 0)
    assert _taken(Answer(500, b"{}")) == (0, 0)
    # Another tier's.
    assert _taken(Answer(200, b"{}", headers=(line, b"Falaj-Served-By: other"))) == (0, 0)


def test_copies_that_would_wait_are_dropped_and_counted() -> None:
    assert _taken(Answer(200, b"{}"), backlog=copies.MOST_BACKLOG_BYTES) == (0, 4)
    assert _taken(Answer(200, b"{}"), body=bytes(copies.MOST_COPY_BYTES)) == (0, 4)
    # What is about to be sent counts as well.
    large = bytes(copies.MOST_COPY_BYTES - 2)
    room = copies.MOST_BACKLOG_BYTES - 2 * copies.MOST_COPY_BYTES
    assert _taken(Answer(200, b"{}"), body=large, backlog=room) == (2, 2)


class Process:
    """A shadow's process that a test drives."""

    def __init__(self, version: int, problem: str | None) -> None:
        self.version, self.problem = version, problem
        self.state, self.pid = "starting", 7
        self.error: str | None = None
        self.engine: str | None = "onnxruntime"
        self.signature: Mapping[str, Any] = {}
        self.manifest: Mapping[str, Any] = {}
        self.told: list[bytes] = []
        self.killed = False

    async def begin(self) -> bool:
        self.error = self.problem
        self.state = "ended" if self.problem else "ready"
        return self.problem is None

    def tell(self, kind: int, payload: bytes) -> None:
        assert kind == channel.SHADOW_RUN
        self.told.append(payload)

    def kill(self) -> None:
        self.killed = True


class Bench:
    """A shadow with processes, a clock and an audit log of the test's."""

    def __init__(self, site: Site) -> None:
        site.write(shadow={"percent": 25})
        self.settings = settings.read(site.config)
        self.now = 1000.0
        self.made: list[Process] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.problem: str | None = None
        self.shadow = Shadow(Means(self._make, self._run, self._event, lambda: self.now))

    def _make(self, of: Settings, version: int, shadow: Shadow) -> Process:
        del of, shadow
        self.made.append(Process(version, self.problem))
        return self.made[-1]

    @staticmethod
    def _run(work: Coroutine[Any, Any, None]) -> None:
        asyncio.run(work)

    def _event(self, name: str, **fields: Any) -> None:
        self.events.append((name, fields))

    def follow(self, version: int | None, served: int = 1) -> Process | None:
        self.shadow.follow(self.settings, served, version)
        return self.made[-1] if self.made else None

    def counts(self) -> dict[str, int]:
        facts = self.shadow.facts()
        assert facts is not None
        return facts["requests"]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(Site(tmp_path / "site"))


_DONE = orjson.dumps({
    "requests": {"compared": 1}, "rows": 4, "agreed": 3, "output_rows": {"y": 4},
    "output_agreed": {"y": 3}, "output_difference": {"y": 0.4}, "run": [1] + [0] * 17,
    "run_seconds": 1e-5,
})  # fmt: skip


def test_a_shadow_has_a_bounded_queue(bench: Bench) -> None:
    process = bench.follow(2)
    assert process is not None
    assert bench.shadow.share == 0.25
    for _ in range(standing.MOST_WAITING + 5):
        bench.shadow.take("mlp", 1, b"copy")
    assert len(process.told) == standing.MOST_WAITING
    assert bench.counts()["dropped"] == 5
    bench.shadow.done(process, _DONE)
    bench.shadow.take("mlp", 1, bytes(standing.MOST_WAITING_BYTES))
    bench.shadow.take("mlp", 1, b"copy")
    # Of another version or model: no news of this one.
    bench.shadow.take("mlp", 3, b"copy")
    bench.shadow.missed("other", 1, 9)
    bench.shadow.missed("mlp", 1, 2)
    assert bench.counts() | {"refused": 0} == {
        "compared": 1, "failed": 0, "refused": 0, "unlike": 0, "dropped": 8,
    }  # fmt: skip
    facts = bench.shadow.facts()
    assert facts is not None
    assert facts["agreement"] == 0.75
    assert facts["outputs"] == {"y": {"agreement": 0.75, "mean_difference": 0.1}}


def test_a_shadow_that_hangs_or_ends_is_started_anew_ever_more_slowly(bench: Bench) -> None:
    first = bench.follow(2)
    assert first is not None
    bench.shadow.take("mlp", 1, b"copy")
    bench.now += companion.STALL_SECONDS + 1
    bench.follow(2)
    assert first.killed
    assert bench.shadow.share == 0
    assert (bench.counts()["failed"], bench.counts()["dropped"]) == (1, 0)
    bench.now += 1
    second = bench.follow(2)
    assert second is not None
    assert second is not first
    # What the first one says still is no news.
    bench.shadow.take("mlp", 1, b"copy")
    bench.shadow.done(first, _DONE)
    assert bench.counts()["compared"] == 0
    bench.shadow.take("mlp", 1, b"copy")
    bench.shadow.ended(second)
    assert (bench.counts()["failed"], bench.counts()["dropped"]) == (2, 1)
    bench.now += 1
    assert bench.follow(2) is second
    bench.now += 1
    assert bench.follow(2) is not second


def test_a_version_that_cant_be_loaded_is_told_of_once(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.problem = "it isn't what was published"
    for _ in range(100):
        bench.follow(2)
        bench.now += 10
    assert 10 < len(bench.made) < 25
    assert capsys.readouterr().err.count("isn't what was published") == 1
    assert [name for name, _ in bench.events] == ["shadow.begun", "shadow.refused"]
    facts = bench.shadow.facts()
    assert facts is not None
    assert (facts["state"], facts["error"]) == ("failed", bench.problem)


def test_another_version_begins_anew(bench: Bench) -> None:
    first = bench.follow(2)
    assert first is not None
    bench.shadow.take("mlp", 1, b"copy")
    bench.shadow.done(first, _DONE)
    second = bench.follow(3)
    assert first.killed
    assert second is not None
    assert second.version == 3
    assert bench.counts()["compared"] == 0
    bench.follow(3, served=2)
    bench.follow(2, served=2)
    assert bench.shadow.facts() is None
    assert list(bench.shadow.metrics()) == []
    bench.shadow.close()
    assert [name for name, _ in bench.events] == ["shadow.begun", "shadow.ended"] * 3
    assert bench.events[1][1]["agreement"] == 0.75
