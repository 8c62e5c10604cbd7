"""What is proposed of measured settings: never what noise may have made, never another batch."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.files import write_json_atomic
from falaj.workloads.training import tuning
from falaj.workloads.training.tuning import (
    LEAST_GAIN,
    LEAST_ROUNDS,
    MOST_ROUNDS,
    PLAIN,
    PLAIN_ROUNDS,
    Candidate,
    Measured,
    RefusedError,
    Space,
    gain_of,
)

NOW = Candidate(
    threads=2, processes=1, accumulation=1, read_ahead=0, precision="float32", batch_size=64
)
SPACE = Space(cores=4, places=4, fixed=frozenset(), rows=1_000, is_steady=True, is_streamed=False)

rates = st.lists(st.floats(1, 1e6), min_size=1, max_size=MOST_ROUNDS)
pairs = st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)), min_size=1, max_size=MOST_ROUNDS)


def rounds(values: list[float]) -> dict[int, float]:
    return dict(enumerate(values))


@given(pairs)
def test_what_is_no_better_than_its_noise_is_never_chosen(
    found: list[tuple[float, float]],
) -> None:
    before, after = rounds([each[0] for each in found]), rounds([each[1] for each in found])
    gain = gain_of(before, after)
    assert gain is not None
    if gain.is_better:
        assert gain.median >= LEAST_GAIN
        assert gain.low > 1
        assert gain.rounds >= PLAIN_ROUNDS
        faster = sum(after[each] > before[each] for each in after)
        assert faster > len(found) / 2
        if gain.rounds < LEAST_ROUNDS:
            assert min(after[each] / before[each] for each in after) >= PLAIN


@given(pairs, st.integers(0, MOST_ROUNDS - 1), st.floats(1, 100))
def test_a_faster_measurement_never_makes_a_candidate_worse(
    found: list[tuple[float, float]], place: int, times: float
) -> None:
    before, after = rounds([each[0] for each in found]), rounds([each[1] for each in found])
    place %= len(found)
    gain, more = gain_of(before, after), gain_of(before, {**after, place: after[place] * times})
    assert gain is not None and more is not None  # noqa: PT018
    assert more.median >= gain.median
    assert more.is_better >= gain.is_better


@given(rates)
def test_what_is_the_same_is_never_better(found: list[float]) -> None:
    gain = gain_of(rounds(found), rounds(found))
    assert gain is not None
    assert not gain.is_better


def test_drift_of_the_machine_meets_both_alike() -> None:
    drift = [1.0, 0.3, 2.0, 0.5, 1.4]
    gain = gain_of(rounds(drift), rounds([1.2 * each for each in drift]))
    assert gain is not None
    assert gain.is_better
    assert gain.median == pytest.approx(1.2)


@dataclass
class Machine:
    """A machine whose measurements take time of a clock of its own."""

    rate: Callable[[Candidate], float]
    takes: float = 1.0
    now: float = 0.0
    seen: list[Candidate] = field(default_factory=list[Candidate])

    def measure(self, candidate: Candidate, seconds: float, until: float) -> Measured:
        assert seconds > 0
        self.seen.append(candidate)
        self.now += self.takes
        if self.now > until:
            raise RefusedError("it took too long")
        return Measured(self.rate(candidate), 0.0, 1 << 20)

    def search(self, space: Space = SPACE, *, seconds: float = 1_000) -> tuning.Outcome:
        return tuning.search(NOW, space, self.measure, seconds=seconds, clock=lambda: self.now)


NOWS = st.builds(
    Candidate,
    threads=st.integers(1, 9),
    processes=st.just(1),
    accumulation=st.integers(1, 64),
    read_ahead=st.just(0),
    precision=st.just("float32"),
    batch_size=st.integers(1, 4_096),
)
SPACES = st.builds(
    Space,
    cores=st.integers(1, 64),
    places=st.integers(1, 64),
    fixed=st.frozensets(st.sampled_from(tuning.TAKEN)),
    rows=st.just(10_000),
    is_steady=st.booleans(),
    is_streamed=st.booleans(),
)


@given(NOWS, SPACES)
def test_no_candidate_has_another_batch_or_arithmetic_or_what_was_given(
    now: Candidate, space: Space
) -> None:
    found = tuning.places_of(now, space)
    found += tuning.dependents_of(found[-1], space, rows_share=0.5)
    assert found[0] == now
    for each in found:
        changed = each.changes(now)
        assert not changed.keys() - set(tuning.TAKEN)
        assert not changed.keys() & space.fixed
        assert each.processes == 1 or each.threads * each.processes <= space.cores
        assert each.accumulation <= max(now.batch_size // each.processes, now.accumulation)
        if not space.is_steady:
            assert not changed.keys() & {"processes", "accumulation"}
        if not space.is_streamed:
            assert "read_ahead" not in changed


def test_what_is_faster_is_found_by_both_stages() -> None:
    machine = Machine(lambda each: 100 * each.processes * (1.3 if each.accumulation == 2 else 1))
    outcome = machine.search()
    assert outcome.settings == {"threads": 1, "processes": 4, "accumulation": 2}
    assert outcome.gain == pytest.approx(4 * 1.3)
    verdicts = [each.verdict for each in outcome.tried]
    assert sum(each.endswith(": taken") for each in verdicts) == 2


def test_where_all_are_alike_what_the_run_has_is_kept() -> None:
    machine = Machine(lambda _: 100.0)
    outcome = machine.search()
    assert outcome.settings == {}
    assert outcome.best == NOW
    assert outcome.gain == 1.0
    assert not any("taken" in each.verdict for each in outcome.tried)
    assert "+0 %: no better" in {each.verdict for each in outcome.tried}


def test_a_candidate_that_fails_is_in_the_table_with_its_reason_and_ends_nothing() -> None:
    def rate(each: Candidate) -> float:
        if each.processes > 1:
            raise RefusedError("too little memory")
        return 100.0 / each.threads

    outcome = Machine(rate).search()
    assert outcome.settings == {"threads": 1}
    shown = tuning.table(outcome.to_json()["tried"])
    assert "2 x 2 threads" in shown
    assert "refused: too little memory" in shown


def test_what_the_run_has_that_fails_is_told() -> None:
    def rate(each: Candidate) -> float:
        raise RefusedError(f"{each.threads} threads are too many")

    with pytest.raises(RefusedError, match="2 threads are too many"):
        Machine(rate).search()


@pytest.mark.parametrize("seconds", [5, 17, 60])
def test_the_time_is_bounded_by_the_clock(seconds: float) -> None:
    machine = Machine(lambda each: 100.0 / each.threads, takes=2.0)
    outcome = machine.search(seconds=seconds)
    assert outcome.seconds <= seconds + machine.takes
    assert outcome.seconds == machine.now
    if seconds < 10:  # too little for even the plainest gain
        assert outcome.settings == {}
        assert any("no time was left" in each.verdict for each in outcome.tried)


def test_slow_ones_are_left_out_early() -> None:
    machine = Machine(lambda each: 100.0 if each.threads == 2 else 20.0)
    outcome = machine.search()
    slow = [each for each in outcome.tried if each.candidate.threads == 1]
    assert [len(each.rates) for each in slow] == [1] * len(slow)
    assert "left out" in slow[0].verdict


def test_larger_batches_and_other_arithmetic_are_tried_where_that_is_asked_for() -> None:
    space = replace(SPACE, precisions=("bfloat16",), change_batch=True)
    machine = Machine(lambda each: 1.0 * each.batch_size)
    assert machine.search(space).settings == {"batch_size": 256}
    tried = {each.precision for each in machine.seen}
    assert tried == {"float32", "bfloat16"}
    assert max(each.batch_size for each in machine.seen) <= space.rows


def test_reading_further_ahead_is_tried_where_rows_are_waited_for() -> None:
    space = replace(SPACE, is_streamed=True)
    for share, depths in ((0.5, {0, 128, 256}), (0.0, {0})):
        found = tuning.dependents_of(NOW, space, rows_share=share)
        assert {each.read_ahead for each in found} == depths


@pytest.mark.parametrize(
    "taken",
    [None, [], {"batch_size": 2}, {"threads": 0}, {"threads": "two"}, {"threads": 1, "seed": 3}],
)
def test_what_was_kept_and_can_not_be_taken_is_measured_again(
    tmp_path: Path, taken: object
) -> None:
    path = tmp_path / "kept.json"
    assert tuning.read(path) is None
    write_json_atomic(path, {"format": tuning.FORMAT, "taken": taken})
    assert tuning.read(path) is None
    path.write_text("{")
    assert tuning.read(path) is None
    write_json_atomic(path, {"format": tuning.FORMAT, "taken": {"threads": 1}})
    assert (tuning.read(path) or {})["taken"] == {"threads": 1}


def test_the_spread_is_shown() -> None:
    machine = Machine(lambda _: 100.0)
    values = iter([100.0, 200.0, 300.0] * 100)
    machine.rate = lambda _: next(values)
    tried = machine.search(seconds=20).to_json()["tried"]
    low, high = tried[0]["quartiles"]
    assert low <= tried[0]["rows_per_second"] <= high
    assert tried[0]["rows_per_second"] == statistics.median(
        [low, tried[0]["rows_per_second"], high]
    )
