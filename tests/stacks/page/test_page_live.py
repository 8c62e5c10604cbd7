"""Rates and latencies between two looks at a server's metrics, drawn; what it says of drift."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.stacks.page.drift import drift_of
from falaj.stacks.page.form import NOTHING
from falaj.stacks.page.live import HEIGHT, SPAN, WIDTH, WINDOW, Meter, duration, rate
from falaj.workloads.inference.metrics import GENERATED, PROMPT, Counters, Totals
from falaj.workloads.inference.protocol.routes import CARDS, CHATS, COMPLETIONS
from falaj.workloads.rollout.measures import read


class Clock:
    """Seconds that go on when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Source:
    """A server's own counters, as its master renders them."""

    def __init__(self) -> None:
        self.counters = Counters()
        self._totals = Totals("m")
        self._totals.version = 1

    def text(self) -> str:
        snapshot = {**self.counters.snapshot(), "open_connections": 0}
        self._totals.update(
            1, 1, {k: list(v) if isinstance(v, list) else v for k, v in snapshot.items()}
        )
        return self._totals.render().decode()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def meter(clock: Clock) -> Meter:
    return Meter(clock)


def look(meter: Meter, source: Source) -> None:
    async def metrics() -> str:
        return source.text()

    asyncio.run(meter.look(metrics))


def test_nothing_is_said_before_the_second_look(meter: Meter) -> None:
    look(meter, Source())
    assert meter.figures is None
    assert [each.now for each in meter.charts()] == [NOTHING] * 3


def test_rates_latency_and_errors(meter: Meter, clock: Clock) -> None:
    source = Source()
    source.counters.inferred(1.0, 1.0, 1)  # before anybody looked
    look(meter, source)
    for _ in range(98):
        source.counters.inferred(0.0003, 0.0001, 1)
    source.counters.inferred(0.8, 0.8, 1)
    source.counters.responded("infer", 500)
    source.counters.responded("infer", 401)
    source.counters.responded("metrics", 500)
    clock.now += 10
    look(meter, source)
    found = meter.figures
    assert found is not None
    assert (found.answered, found.failed, found.seconds) == (99, 1, 10)
    assert (found.requests, found.errors) == (10, 0.1)
    quantiles = dict(found.quantiles)
    assert 0.0002 <= (quantiles["half"] or 0) <= 0.0004
    assert 0.4 <= (quantiles["99 %"] or 0) <= 0.8192


def test_texts_are_counted_by_every_route_and_have_figures_of_their_own(
    meter: Meter, clock: Clock
) -> None:
    source = Source()
    look(meter, source)
    assert (meter.has_texts, meter.has_others) == (False, True)
    for route in (COMPLETIONS, CHATS, CHATS):
        source.counters.began(0.0003)
        source.counters.generated(2.0, {PROMPT: 50, GENERATED: 20})
        source.counters.responded(route, 200)
    source.counters.responded(CHATS, 429)
    source.counters.responded(CARDS, 200)
    clock.now += 10
    look(meter, source)
    found = meter.figures
    assert found is not None
    assert (found.answered, found.failed, found.tokens) == (3, 1, 6)
    assert dict(found.quantiles)["half"] is None
    assert 0.0002 <= (dict(found.begun)["half"] or 0) <= 0.0004
    assert [each.title for each in meter.charts()] == [
        "Requests per second", "First token of 99 %", "Tokens per second", "Errors per second",
    ]  # fmt: skip
    source.counters.inferred(0.001, 0.001, 1)
    clock.now += 2
    look(meter, source)
    assert len(meter.charts()) == 5


def test_a_server_that_began_anew_counts_from_nothing(meter: Meter, clock: Clock) -> None:
    source = Source()
    for _ in range(50):
        source.counters.inferred(0.001, 0.001, 1)
    look(meter, source)
    clock.now += 2
    again = Source()
    again.counters.inferred(0.001, 0.001, 1)
    look(meter, again)
    assert meter.figures is not None
    assert meter.figures.answered == 1


def test_tabs_share_a_look(meter: Meter, clock: Clock) -> None:
    asked = 0

    async def metrics() -> str:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return Source().text()

    async def many() -> None:
        for number in (1, 2):
            await asyncio.gather(*(meter.look(metrics) for _ in range(5)))
            assert asked == number
            clock.now += 2

    asyncio.run(many())


def test_the_window_and_what_is_drawn_end(meter: Meter, clock: Clock) -> None:
    source = Source()
    for _ in range(400):
        source.counters.inferred(0.001, 0.001, 1)
        look(meter, source)
        clock.now += 2
    found = meter.figures
    assert found is not None
    assert WINDOW - 4 <= found.seconds <= WINDOW + 4
    requests = meter.charts()[0]
    across = [float(x) for x in re.findall(r"[ML]([\d.]+) ", requests.line)]
    assert len(across) <= SPAN / 2 + 1
    assert all(0 <= x <= WIDTH for x in across)
    assert across == sorted(across)
    assert "over the last 5 minutes: now 0.5, most 0.5" in requests.summary


def test_a_gap_is_no_line(meter: Meter, clock: Clock) -> None:
    source = Source()
    for busy in (True, True, False, True):
        if busy:
            source.counters.inferred(0.001, 0.001, 1)
        look(meter, source)
        clock.now += 2
    latency = meter.charts()[1]
    assert latency.line.count("M") == 2
    down = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", latency.line)]
    assert all(0 <= y <= HEIGHT for y in down)


@pytest.mark.parametrize(
    "text",
    [
        "", "<html>", "\x00", "a 1 2 3\n", 'falaj_inference_responses_total{version="x"} 1\n',
        'falaj_inference_responses_total{version="1",route="infer",status="200"} NaN\n',
        'falaj_inference_responses_total{version="1",route="infer",status="200"} +Inf\n',
        'falaj_inference_request_duration_seconds_bucket{version="1",le="x"} 1\n',
    ],
)  # fmt: skip
def test_other_metrics_are_nothing_or_refused(meter: Meter, clock: Clock, text: str) -> None:
    async def metrics() -> str:
        return text

    for _ in range(2):
        clock.now += 5
        with contextlib.suppress(ValueError):
            asyncio.run(meter.look(metrics))
    meter.charts()
    assert meter.figures is None or meter.figures.answered == 0


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, NOTHING), (0.0, "0 µs"), (0.000_25, "250 µs"), (0.0125, "12.5 ms"), (2.5, "2.5 s")],
)
def test_times_in_a_unit_that_fits(seconds: float | None, said: str) -> None:
    assert duration(seconds) == said


def test_rates_as_people_read_them() -> None:
    assert [rate(each) for each in (0, 0.5, 12.34, 12345.6)] == ["0", "0.5", "12.3", "12,346"]


DRIFT: dict[str, Any] = {
    "state": "drifted", "since": "2026-11-26T07:00:00+00:00",
    "window": {"rows": 1000, "seconds": 300, "filled": 0.5, "judged": 3},
    "features": [
        {"name": "age", "kind": "numeric", "state": "ok", "psi": 0.01, "psi_limit": 0.1},
        {"name": "city", "kind": "text", "state": "drifted", "psi": 0.4, "psi_limit": 0.1,
         "ks": None, "unseen": 0.25, "over": True},
    ],
    "labels": {"state": "ok", "accuracy": 0.91, "median_delay_seconds": 60},
}  # fmt: skip


def test_drift_has_what_drifted_first() -> None:
    found = drift_of(DRIFT)
    assert found is not None
    assert [each["name"] for each in found.features] == ["city", "age"]
    assert (found.features[0]["psi"], found.features[0]["ks"]) == ("0.4", NOTHING)
    assert ("accuracy", "0.91") in found.labels
    assert found.window[0] == ("rows", "1,000")
    assert found.since == "2026-11-26T07:00:00+00:00"


def test_answers_are_a_row_and_moments_may_be_seconds() -> None:
    found = drift_of({
        **DRIFT, "since": 1_795_000_000.5, "latency": {"state": "ok", "seconds": None, "a": [1]},
        "outputs": {"name": "outputs", "kind": "category", "state": "drifted", "psi": 0.3},
    })  # fmt: skip
    assert found is not None
    assert ("answers", "drifted") in [(each["name"], each["state"]) for each in found.features]
    assert found.since.startswith("2026-11-18T")
    assert found.latency == (("state", "ok"),)
    assert [drift_of({"state": "ok", "since": each}) for each in (1e300, True, [], None)]


def test_what_is_said_of_no_drift() -> None:
    assert drift_of({"state": "no reference"}) is not None
    assert drift_of({"error": "x"}) is None
    assert drift_of(None) is None
    odd = drift_of({"state": "<script>", "features": "x", "window": [1], "labels": 3})
    assert odd is not None
    assert odd.state == "unknown"


KEYS = ["state", "features", "window", "labels", "name", "psi", "rows"]
documents = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(documents)
def test_no_document_breaks_it(document: object) -> None:
    drift_of(document)


def test_the_reader_is_the_one_of_canaries() -> None:
    assert read(Source().text())
