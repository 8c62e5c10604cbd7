"""Latency of several models against each other, measured in turns.

A shared machine changes its speed from second to second. Rounds of each model in turn see the
same weather, and medians leave out the rounds in which something else had the processor.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from falaj.workloads.errors import WorkloadError

ROUNDS = 101
_ROUND_SECONDS = 0.001
"""Below a scheduler's time slice, so that most rounds run undisturbed on a busy machine."""

_WARM_UP_CALLS = 20
_MOST_CALLS = 1_000


@dataclass(frozen=True)
class Latency:
    """One model's time for a call, in microseconds.

    Attributes:
        median_us: over the rounds' means.
        fastest_us: the best round's mean.
        rounds: how many rounds there were.
        calls: how many calls a round has.
    """

    median_us: float
    fastest_us: float
    rounds: int
    calls: int


def compare(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int = ROUNDS,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> dict[str, Latency]:
    """Time each candidate in ``rounds`` rounds, in turns, the order reversed every other round.

    Args:
        candidates: what to call, by name.
        rounds: how often each has its turn, at least 1.
        clock: nanoseconds, never going back.

    Raises:
        WorkloadError: ``rounds`` is below 1.
    """
    if rounds < 1:
        raise WorkloadError(f"{rounds} rounds were asked for: at least 1 is needed")
    calls = {name: _warm_up(call, clock) for name, call in candidates.items()}
    times: dict[str, list[float]] = {name: [] for name in candidates}
    order = list(candidates)
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for name in order:
                times[name].append(_mean_us(candidates[name], calls[name], clock))
            order.reverse()
    finally:
        if collecting:
            gc.enable()
    return {
        name: Latency(statistics.median(values), min(values), rounds, calls[name])
        for name, values in times.items()
    }


def _warm_up(call: Callable[[], object], clock: Callable[[], int]) -> int:
    """Return how many calls fill a round, once the first, slower ones are over."""
    _mean_us(call, _WARM_UP_CALLS, clock)
    duration = _mean_us(call, _WARM_UP_CALLS, clock)
    return max(1, min(_MOST_CALLS, round(_ROUND_SECONDS * 1e6 / max(duration, 1e-3))))


def _mean_us(call: Callable[[], object], count: int, clock: Callable[[], int]) -> float:
    start = clock()
    for _ in range(count):
        call()
    return (clock() - start) / count / 1000
