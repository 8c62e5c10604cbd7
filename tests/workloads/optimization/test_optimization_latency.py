"""Timing in turns, with a clock of our own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.comparison import compare


class Clock:
    """Time that passes only in calls; the machine's slowness multiplies it."""

    def __init__(self) -> None:
        self.now = 0
        self.slowness = 1
        self.calls: list[str] = []

    def __call__(self) -> int:
        return self.now

    def work(self, name: str, microseconds: int) -> Callable[[], None]:
        def call() -> None:
            self.calls.append(name)
            self.now += microseconds * 1000 * self.slowness

        return call


def turns(calls: list[str]) -> list[str]:
    return [name for index, name in enumerate(calls) if index == 0 or calls[index - 1] != name]


def test_no_rounds_are_refused() -> None:
    with pytest.raises(WorkloadError, match="at least 1"):
        compare({"a": lambda: None}, rounds=0)


def test_each_gets_its_own_time() -> None:
    clock = Clock()
    times = compare({"a": clock.work("a", 10), "b": clock.work("b", 30)}, 5, clock)
    assert (times["a"].median_us, times["b"].median_us) == (10, 30)
    assert times["a"].calls == 100
    assert times["a"].rounds == 5


def test_they_take_turns_in_alternating_order() -> None:
    clock = Clock()
    compare({"a": clock.work("a", 10), "b": clock.work("b", 10)}, 4, clock)
    # The warm-up is a, b; then the rounds are ab, ba, ab, ba: neighbours of one kind merge.
    assert turns(clock.calls) == ["a", "b", "a", "b", "a", "b", "a"]


def test_a_slow_spell_does_not_move_the_median() -> None:
    clock = Clock()
    quick = clock.work("a", 10)

    def disturbed() -> None:
        clock.slowness = 50 if 300 < len(clock.calls) < 500 else 1
        quick()

    times = compare({"a": disturbed}, 11, clock)
    assert times["a"].median_us == 10
    assert times["a"].fastest_us == 10


def test_a_slow_call_is_made_once_a_round() -> None:
    clock = Clock()
    times = compare({"a": clock.work("a", 50_000)}, 3, clock)
    assert times["a"].calls == 1
