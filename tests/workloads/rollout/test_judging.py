"""What two versions' servers counted, and what a canary is judged by."""

from __future__ import annotations

import pytest

from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference.metrics import Counters, Totals
from falaj.workloads.rollout.command import watch
from falaj.workloads.rollout.measures import Measured, Tally, likeness, read
from falaj.workloads.rollout.verdict import Demands, Verdict, judge

STABLE, CANARY = 7, 8
DEMANDS = Demands(least_requests=100, most_error_rise=1, most_latency_rise=25, least_likeness=95)


class Replica:
    """A server's counters, which it shows as the real one does."""

    def __init__(self, version: int) -> None:
        self.version, self.counters = version, Counters()

    def serve(
        self, count: int, *, seconds: float = 0.001, failed: int = 0, bucket: int = 3
    ) -> None:
        for _ in range(count):
            self.counters.inferred(seconds, seconds, 1)
            self.counters.answers[bucket] += 1
        for _ in range(failed):
            self.counters.responded("infer", 500)

    def text(self) -> str:
        totals = Totals("credit")
        totals.update(1, self.version, self.counters.snapshot())
        return totals.render().decode()


def test_only_what_came_since_the_first_look_is_counted_over_restarts() -> None:
    tally, one, other = Tally(), Replica(CANARY), Replica(CANARY)
    one.serve(500, failed=50)
    tally.look("10.0.0.1", read(one.text()))
    assert tally.measured(CANARY).requests == 0
    one.serve(30, failed=2)
    one.counters.responded("infer", 401)
    one.counters.responded("ready", 503)
    other.serve(900)
    tally.look("10.0.0.1", read(one.text()))
    tally.look("10.0.0.2", read(other.text()))
    one.counters = Counters()
    one.serve(5, bucket=9)
    other.serve(100)
    tally.look("10.0.0.1", read(one.text()))
    tally.look("10.0.0.2", read(other.text()))
    found = tally.measured(CANARY)
    assert (found.answered, found.failed) == (135, 2)
    assert (found.answers["3"], found.answers["9"]) == (130, 5)
    assert tally.versions == {str(CANARY)}
    assert tally.measured(STABLE) == Measured()


def test_of_a_server_with_several_models_one_is_read() -> None:
    own, further, totals = Replica(CANARY), Replica(CANARY), Totals("credit")
    own.serve(3, failed=1)
    further.serve(50, failed=40)
    totals.update(1, CANARY, own.counters.snapshot())
    totals.update(1, CANARY, further.counters.snapshot(), "price")
    totals.further = {"price": 70}
    totals.version = CANARY
    tally, text = Tally(), totals.render().decode()
    tally.look("10.0.0.1", dict.fromkeys(read(text, "credit"), 0.0))
    tally.look("10.0.0.1", read(text, "credit"))
    found = tally.measured(CANARY)
    assert (found.answered, found.failed) == (3, 1)
    assert tally.versions == {str(CANARY)}


def test_quantiles_lie_within_the_bucket_of_the_times() -> None:
    tally, one = Tally(), Replica(STABLE)
    tally.look("a", read(one.text()))
    one.serve(98, seconds=0.001)
    one.serve(2, seconds=0.1)
    tally.look("a", read(one.text()))
    found = tally.measured(STABLE)
    middle, high = found.quantile(0.5), found.quantile(0.99)
    assert middle is not None
    assert high is not None
    assert 0.0008 <= middle <= 0.0016
    assert 0.0512 <= high <= 0.1024
    one.serve(1000, seconds=50)
    tally.look("a", read(one.text()))
    assert tally.measured(STABLE).quantile(0.99) == 3.2768, "the last bound that is known"
    assert Measured().quantile(0.99) is None


def measured(
    requests: int = 1000, *, failed: int = 0, seconds: float = 0.001, **answers: float
) -> Measured:
    latency = {seconds / 2: 0.0, seconds: float(requests), float("inf"): float(requests)}
    spread = {key[1:]: value for key, value in answers.items()} or {"3": 60.0, "5": 40.0}
    return Measured(requests - failed, failed, latency, spread)


def test_likeness_is_the_share_of_answers_that_may_stay() -> None:
    assert likeness(measured(b3=60, b5=40), measured(b3=30, b5=20)) == pytest.approx(100)
    assert likeness(measured(b3=60, b5=40), measured(b3=50, b5=50)) == pytest.approx(90)
    assert likeness(measured(b3=1), measured(b5=1)) == pytest.approx(0)
    assert likeness(Measured(), measured()) is None


@pytest.mark.parametrize(
    ("canary", "missed"),
    [
        (measured(), ""),
        (measured(failed=9), ""),
        (measured(failed=11), "errors"),
        (measured(seconds=0.0012), ""),
        (measured(seconds=0.0013), "latency"),
        (measured(b3=56, b5=44), ""),
        (measured(b3=50, b5=50), "answers"),
        (measured(failed=500, seconds=0.1, b9=1), "errors, latency, answers"),
        (Measured(failed=1000), "errors, latency, answers"),
        (Measured(1000, 0, measured().latency, {}), "answers"),
    ],
)
def test_a_canary_passes_with_all_that_is_demanded(canary: Measured, missed: str) -> None:
    found = judge(measured(), canary, DEMANDS)
    assert found.passed == (not missed)
    assert found.why.startswith(f"missed {missed}: " if missed else f"{canary.requests} requests")
    assert len(found.why) < 300
    assert found.why.isprintable()


@pytest.mark.parametrize(("slower", "missed"), [(1.2, ""), (1.3, "latency")])
def test_versions_that_are_asked_for_texts_are_compared_by_the_first_token(
    slower: float, missed: str
) -> None:
    def texts(seconds: float) -> Measured:
        counts = {seconds / 2: 0.0, seconds: 900.0, float("inf"): 900.0}
        return Measured(1000, 0, {1.0: 100.0, float("inf"): 100.0}, {}, counts)

    demands = Demands(100, 1, 25, 0)
    found = judge(texts(0.1), texts(0.1 * slower), demands)
    assert found.passed == (not missed)
    assert "p99 to the first token" in found.why
    # What one of both alone had says nothing.
    assert "p99 990 ms (stable 1.99 ms)" in judge(measured(seconds=0.002), texts(9), demands).why


def test_likeness_isn_t_asked_for_where_nothing_is_demanded_of_it() -> None:
    demands = Demands(100, 1, 25, 0)
    assert judge(measured(), Measured(1000, 0, measured().latency, {}), demands).passed


class Meanwhile:
    """Time that passes while somebody sleeps, and what both versions serve in each 10 seconds."""

    def __init__(self, *, stable: int, canary: int, failed: int = 0, once: bool = False) -> None:
        self.now, self.counts, self.failed, self.once = 0.0, (stable, canary), failed, once
        self.replicas = Replica(STABLE), Replica(CANARY)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        stable, canary = self.replicas
        stable.serve(self.counts[0])
        canary.serve(self.counts[1], failed=self.failed)
        self.failed = 0 if self.once else self.failed

    def looked(self) -> Verdict:
        return watch(
            lambda: {str(each.version): each.text() for each in self.replicas},
            (STABLE, CANARY), DEMANDS, window=60, deadline=600, every=10, clock=self.clock,
            sleep=self.sleep,
        )  # fmt: skip


def test_the_window_is_kept_and_longer_where_requests_are_few() -> None:
    many, few = Meanwhile(stable=90, canary=30), Meanwhile(stable=90, canary=5)
    assert many.looked().passed
    assert many.now == 60
    assert few.looked().passed
    assert few.now == 200


def test_a_canary_that_fails_is_not_waited_for() -> None:
    bad = Meanwhile(stable=90, canary=50, failed=10)
    verdict = bad.looked()
    assert (verdict.passed, bad.now) == (False, 20)
    assert "missed errors" in verdict.why


def test_what_the_stable_version_served_alone_is_not_compared() -> None:
    late = Meanwhile(stable=90, canary=50)
    night = Replica(STABLE)
    shown: list[dict[str, str]] = [{"night": night.text()}]
    night.serve(5000, seconds=3, bucket=60)
    shown.append({"night": night.text()})

    def look() -> dict[str, str]:
        if shown:
            return shown.pop(0)
        return {str(each.version): each.text() for each in late.replicas}

    verdict = watch(
        look, (STABLE, CANARY), DEMANDS, window=60, deadline=600, every=10, clock=late.clock,
        sleep=late.sleep,
    )  # fmt: skip
    assert verdict.passed
    assert "of 540)" in verdict.why


def test_a_few_early_failures_end_no_window() -> None:
    # 2 % of 102 requests, where 1 % more may fail, and 0.7 % in the end.
    unlucky = Meanwhile(stable=90, canary=50, failed=2, once=True)
    assert unlucky.looked().passed
    assert unlucky.now == 60


def test_workers_that_end_unasked_are_failures_that_they_count_not() -> None:
    tally, totals, counters = Tally(), Totals("credit"), Counters()
    for restarts in (7, 9):
        counters.inferred(0.001, 0.001, 1)
        totals.update(1, CANARY, counters.snapshot())
        totals.version, totals.worker_restarts = CANARY, restarts
        tally.look("a", read(totals.render().decode()))
    found = tally.measured(CANARY)
    assert (found.answered, found.failed) == (1, 2)
    assert tally.versions == {str(CANARY)}


def test_without_requests_there_is_no_verdict() -> None:
    with pytest.raises(WorkloadError, match=r"version 8 0; 100 of each are needed.*go on to be"):
        Meanwhile(stable=90, canary=0).looked()
