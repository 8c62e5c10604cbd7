"""Which settings that leave the optimisation as it is train fastest here: candidates and choice.

Candidates are measured in turns, so that what else a machine does meets all of them alike, and are
compared within each turn. What is no better by more than its noise isn't proposed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from falaj.workloads.bounds import TRAINING
from falaj.workloads.documents import is_dictionary
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import read_json, write_json_atomic
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.snapshot import digest

FORMAT: Final = "falaj.tuning/1"
FILE: Final = "tuning.json"
"""Of a run's folder: what was measured before it began, and what was taken."""
LEAST_GAIN: Final = 1.05
"""Times as many rows a second: what is less isn't worth another setting."""
LEAST_ROUNDS: Final = 5
"""With fewer, chance alone may have a candidate be faster each time (1 in 16 of four)."""
PLAIN, PLAIN_ROUNDS = 1.5, 3
"""Times as fast in each of so many rounds: then fewer are enough."""
MOST_ROUNDS: Final = 9
_CHANCE: Final = 0.05
_HALVED_AFTER: Final = (2, 4)
"""Rounds after which the slower half of the candidates is left out."""
_LEAST_LEFT: Final = 2
_HOPELESS: Final = 0.5
"""Times as fast: what isn't even that in the first round is measured no more."""
_SHORTEST_TURN, _LONGEST_TURN = 0.2, 3.0
_SHARE_OF_PLACES: Final = 0.7
"""Of the time, for threads and processes; the rest is for what depends on them."""
WAITS: Final = 0.02
"""Share of time that is waited for rows, from which on reading further ahead may help."""
_MOST_PARTS: Final = 4
_PLACE: Final = ("threads", "processes")
TAKEN: Final = (*_PLACE, "accumulation", "read_ahead")
"""What may be taken: with any of it the same is learned from the same batches."""
#: Of a run's parameters, what doesn't change how long a step takes.
_WITHOUT_COST: Final = frozenset({
    "epochs", "learning_rate", "weight_decay", "patience", "gradient_clip", "label_smoothing",
    "seed", "checkpoint_every", "checkpoint_steps", "distil_temperature", "distil_weight", "start",
})  # fmt: skip

Clock = Callable[[], float]


class RefusedError(Exception):
    """A candidate can't be measured, for the reason that is said."""


class StoppedError(Exception):
    """Somebody asked to stop while candidates were measured."""


@dataclass(frozen=True)
class Candidate:
    """Settings of a run that may be measured.

    Attributes:
        threads: CPU threads of each process.
        processes: that share each batch.
        accumulation: parts that a batch is computed in.
        read_ahead: batches of a streamed dataset that wait at most; 0: by their rows.
        precision: of the arithmetic. Another one is another training.
        batch_size: rows of a step over all processes. Another one is another training.
    """

    threads: int
    processes: int
    accumulation: int
    read_ahead: int
    precision: str
    batch_size: int

    def changes(self, before: Candidate) -> dict[str, Any]:
        """Return the settings that are others than ``before`` has."""
        others = asdict(before)
        return {name: value for name, value in asdict(self).items() if value != others[name]}

    def __str__(self) -> str:
        words = [
            f"{self.processes} x {self.threads} threads"
            if self.processes > 1
            else f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        ]
        if self.accumulation > 1:
            words.append(f"accumulation {self.accumulation}")
        if self.read_ahead:
            words.append(f"{self.read_ahead} batches ahead")
        return ", ".join((*words, self.precision, f"batch {self.batch_size}"))


def candidate_of(parameters: Parameters) -> Candidate:
    """Return what a run has."""
    return Candidate(**{name: getattr(parameters, name) for name in Candidate.__annotations__})


def applied(parameters: Parameters, candidate: Candidate) -> Parameters:
    """Return the parameters of a run with a candidate's settings."""
    return replace(parameters, **asdict(candidate))


@dataclass(frozen=True)
class Measured:
    """One measurement.

    Attributes:
        rate: rows a second.
        rows_share: of the time, in which the first process waited for rows.
        memory: the most bytes of all processes, on a GPU of its memory; None: unknown.
    """

    rate: float
    rows_share: float = 0.0
    memory: int | None = None


@dataclass(frozen=True)
class Gain:
    """How many times as fast a candidate is as what it is compared with.

    Attributes:
        median: of the rounds in which both were measured.
        low: the lower quartile.
        high: the upper one.
        rounds: in which both were measured.
        is_better: by more than its noise, see `gain_of`.
    """

    median: float
    low: float
    high: float
    rounds: int
    is_better: bool


def gain_of(before: Mapping[int, float], rates: Mapping[int, float]) -> Gain | None:
    """Compare a candidate with what it would replace, by rates of the same rounds.

    It is better where three things hold: its median gain is `LEAST_GAIN` or more, so it isn't
    worth nothing; the quartiles of its gains are both above 1; and were the two alike, it would be
    faster in as many rounds by chance of 5 % at most (sign test: Conover, "Practical Nonparametric
    Statistics", 3rd edition, 3.4). Or where it is `PLAIN` times as fast in each of `PLAIN_ROUNDS`
    rounds or more. A faster measurement never makes a candidate worse.

    Args:
        before: rows a second, by round.
        rates: the candidate's.

    Returns:
        None where they have no round in common.
    """
    gains = sorted(rates[each] / before[each] for each in rates if each in before)
    if not gains:
        return None
    median = statistics.median(gains)
    low, high = _quantile(gains, 0.25), _quantile(gains, 0.75)
    faster = sum(each > 1 for each in gains)
    chance = sum(math.comb(len(gains), k) for k in range(faster, len(gains) + 1)) / 2 ** len(gains)
    is_better = (
        len(gains) >= LEAST_ROUNDS and median >= LEAST_GAIN and low > 1 and chance <= _CHANCE
    ) or (len(gains) >= PLAIN_ROUNDS and gains[0] >= PLAIN)
    return Gain(median, low, high, len(gains), is_better)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of ascending ones is, between two of them linear."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


@dataclass
class Tried:
    """A candidate and what was measured of it.

    Attributes:
        candidate: its settings.
        rates: rows a second, by round.
        waits: share of time in which rows were waited for, by measurement.
        memory: the most bytes.
        refused: why it can't be; empty: it can.
        left_out: whether others were faster in the first rounds.
        gain: over what it was compared with; None: it is what others are compared with.
        is_taken: whether it is proposed.
    """

    candidate: Candidate
    rates: dict[int, float] = field(default_factory=dict[int, float])
    waits: list[float] = field(default_factory=list[float])
    memory: int | None = None
    refused: str = ""
    left_out: bool = False
    gain: Gain | None = None
    is_taken: bool = False

    @property
    def is_open(self) -> bool:
        """Return whether there was too little time to say whether it is better."""
        if self.refused or self.left_out:
            return False
        if self.gain is None:
            return not self.rates
        is_faster = self.gain.median >= LEAST_GAIN and not self.gain.is_better
        return is_faster and self.gain.rounds < LEAST_ROUNDS

    @property
    def verdict(self) -> str:
        """Return what came of it, for people."""
        if self.refused:
            return f"refused: {self.refused}"
        if self.gain is None:
            return "compared with" if self.rates else "not measured: no time was left"
        return f"{_percent(self.gain.median)}: {self._judged_words(self.gain)}"

    def _judged_words(self, gain: Gain) -> str:
        if self.is_taken:
            return "taken"
        if gain.is_better:
            return "better, and another one more so"
        if self.left_out:
            return f"left out after {gain.rounds} round(s)"
        if self.is_open:
            return f"measured {gain.rounds} time(s), and {LEAST_ROUNDS} are needed"
        return "no better" if gain.median < LEAST_GAIN else "within noise"

    def to_json(self) -> dict[str, Any]:
        """Return it for a record: settings, figures, verdict."""
        rates = sorted(self.rates.values())
        figures: dict[str, Any] = {}
        if rates:
            figures = {
                "rows_per_second": round(statistics.median(rates), 3),
                "quartiles": [round(_quantile(rates, each), 3) for each in (0.25, 0.75)],
                "rounds": len(rates),
                "rows_share": round(statistics.median(self.waits), 4),
                "memory_bytes": self.memory,
            }
        gain = {} if self.gain is None else {"gain": round(self.gain.median, 4)}
        return {**asdict(self.candidate), **figures, **gain, "verdict": self.verdict}


def _percent(gain: float) -> str:
    return f"{100 * (gain - 1):+.0f} %"


Measure = Callable[[Candidate, float, float], Measured]
"""Measures a candidate for so many seconds, and is done or refused within a time of the clock."""


def compare(
    candidates: Sequence[Candidate],
    measure: Measure,
    *,
    until: float,
    clock: Clock,
    share: float = 1.0,
) -> list[Tried]:
    """Measure candidates in turns, as long as there is time and one may still be better.

    Args:
        candidates: the first one is what the others are compared with.
        measure: of one of them.
        until: when to end, by the clock.
        clock: seconds.
        share: of the time, that turns are to take. Default: all of it.
    """
    tried = [Tried(each) for each in candidates]
    first, others = tried[0], tried[1:]
    rounds = len(tried) * LEAST_ROUNDS
    turn = min(max(share * (until - clock()) / (2 * rounds), _SHORTEST_TURN), _LONGEST_TURN)
    costs: dict[int, float] = {}
    for number in range(MOST_ROUNDS):
        alive = [each for each in others if not each.refused and not each.left_out]
        if not alive:
            break
        for each in (first, *(alive if number % 2 == 0 else reversed(alive))):
            begun = clock()
            # Another turn takes as long as the last one, where there was one.
            if begun + costs.get(id(each), 0.0) > until:
                if each is first:
                    return _judged(tried)
                continue
            try:
                found = measure(each.candidate, turn, until)
            except RefusedError as error:
                if clock() >= until:
                    return _judged(tried)
                each.refused = str(error)
                if each is first:
                    return _judged(tried)
                continue
            costs[id(each)] = clock() - begun
            each.rates[number] = found.rate
            each.waits.append(found.rows_share)
            known = [size for size in (each.memory, found.memory) if size is not None]
            each.memory = max(known, default=None)
        _judged(tried)
        for each in alive:
            each.left_out = each.gain is not None and each.gain.median < _HOPELESS
        alive = [each for each in alive if each.gain and not each.refused and not each.left_out]
        if number + 1 in _HALVED_AFTER:
            alive.sort(key=lambda each: -each.gain.median if each.gain else 0.0)
            for each in alive[max(_LEAST_LEFT, math.ceil(len(alive) / 2)) :]:
                each.left_out = True
        if number + 1 >= PLAIN_ROUNDS and all(_is_decided(each.gain) for each in alive):
            break
    return tried


def _judged(tried: list[Tried]) -> list[Tried]:
    for each in tried[1:]:
        each.gain = gain_of(tried[0].rates, each.rates)
    return tried


def _is_decided(gain: Gain | None) -> bool:
    if gain is None or gain.is_better:
        return True
    return gain.rounds >= LEAST_ROUNDS and gain.high < LEAST_GAIN


def best_of(tried: Sequence[Tried]) -> Tried:
    """Return the candidate that is better by the most, else the first one.

    Of those that are alike the earlier one.
    """
    better = [each for each in tried[1:] if not each.refused and each.gain and each.gain.is_better]
    return max(better, key=lambda each: each.gain.median if each.gain else 0.0, default=tried[0])


@dataclass(frozen=True)
class Space:
    """What may be tried.

    Attributes:
        cores: of the processor that this process may use.
        places: the most processes: GPUs, or cores.
        fixed: names of settings that were given, and stay.
        rows: of an epoch.
        is_steady: whether what a part of a batch is like isn't learned, so that batches may be
            cut into parts and shared.
        is_streamed: whether rows are read while others are learned from.
        precisions: others that the processor computes in; empty: they aren't to be tried.
        change_batch: whether larger batches are tried.
    """

    cores: int
    places: int
    fixed: frozenset[str]
    rows: int
    is_steady: bool
    is_streamed: bool
    precisions: tuple[str, ...] = ()
    change_batch: bool = False


def places_of(now: Candidate, space: Space) -> list[Candidate]:
    """Return what a run has, and other threads and processes with the same cores."""
    found = [now]
    powers = [1 << each for each in range(space.cores.bit_length())]
    if "threads" not in space.fixed:
        most = max(1, space.cores // now.processes)
        found += [
            replace(now, threads=each)
            for each in sorted({*(each for each in powers if each <= most), most})
        ]
    if "processes" not in space.fixed and space.is_steady:
        for each in powers[1:]:
            if each <= space.places and now.batch_size >= 2 * each:
                threads = now.threads if "threads" in space.fixed else space.cores // each
                if 0 < threads * each <= space.cores:
                    found.append(replace(now, processes=each, threads=threads))
    return list(dict.fromkeys(found))


def dependents_of(now: Candidate, space: Space, *, rows_share: float) -> list[Candidate]:
    """Return what a run would have, and what is tried when threads and processes are known.

    Args:
        now: with the threads and processes that were found.
        space: what may be tried.
        rows_share: of the time, in which rows are waited for.
    """
    found = [now]
    if "accumulation" not in space.fixed and space.is_steady:
        least = now.batch_size // now.processes
        parts = {1, now.accumulation // 2, now.accumulation * 2, now.accumulation * _MOST_PARTS}
        found += [replace(now, accumulation=each) for each in sorted(parts) if 1 <= each <= least]
    if space.is_streamed and "read_ahead" not in space.fixed and rows_share >= WAITS:
        most = int(TRAINING["read_ahead"].high)
        found += [replace(now, read_ahead=each) for each in (128, 256) if each <= most]
    found += [replace(now, precision=each) for each in space.precisions]
    if space.change_batch and "batch_size" not in space.fixed:
        sizes = (2 * now.batch_size, 4 * now.batch_size)
        found += [replace(now, batch_size=each) for each in sizes if each <= space.rows]
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Outcome:
    """What was tried, and what came of it.

    Attributes:
        tried: in the order in which it was.
        before: what the run had.
        best: what is proposed.
        gain: times as many rows a second as before; 1: nothing else is proposed.
        seconds: that it took.
    """

    tried: list[Tried]
    before: Candidate
    best: Candidate
    gain: float
    seconds: float

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings to write, by option; none: what a run has is best."""
        return self.best.changes(self.before)

    def to_json(self) -> dict[str, Any]:
        """Return it for a record."""
        return {
            "tried": [each.to_json() for each in self.tried],
            "before": asdict(self.before),
            "taken": self.settings,
            "gain": round(self.gain, 4),
            "open": sum(each.is_open for each in self.tried),
            "seconds": round(self.seconds, 1),
        }


def search(
    now: Candidate, space: Space, measure: Measure, *, seconds: float, clock: Clock
) -> Outcome:
    """Look for better settings, for so many seconds at most.

    First threads and processes, then what depends on them.

    Raises:
        RefusedError: what the run has can't be measured.
    """
    begun = clock()
    ends = begun + seconds
    places = compare(
        places_of(now, space), measure, until=ends, clock=clock, share=_SHARE_OF_PLACES
    )
    if not places[0].rates:
        raise RefusedError(places[0].refused or f"it takes longer than {seconds:g} s")
    place = best_of(places)
    waits = statistics.median(place.waits)
    others = dependents_of(place.candidate, space, rows_share=waits)
    # Where it isn't known which place is best, what depends on it needn't be.
    is_known = place is not places[0] or not any(each.is_open for each in places)
    rest = compare(others if is_known else others[:1], measure, until=ends, clock=clock)
    best = best_of(rest)
    gain = 1.0
    for stage, found in ((places, place), (rest, best)):
        if found is not stage[0]:
            found.is_taken = True
            gain *= found.gain.median if found.gain else 1.0
    # The first of the rest was measured before, unless it is what that stage had to compare with.
    return Outcome(
        [*places, *(rest if len(rest) > 1 else [])], now, best.candidate, gain, clock() - begun
    )


def key_of(
    dataset: str, parameters: Parameters, fixed: frozenset[str], machine: Mapping[str, Any]
) -> str:
    """Return the digest that measurements are kept by: of data, model and machine.

    Args:
        dataset: its digest.
        parameters: of the run.
        fixed: settings that were given.
        machine: what decides how fast it is.
    """
    values = {
        name: each for name, each in parameters.to_json().items() if name not in _WITHOUT_COST
    }
    return digest({
        "format": FORMAT, "dataset": dataset, "parameters": values, "fixed": sorted(fixed),
        "machine": machine,
    })  # fmt: skip


def read(path: Path) -> dict[str, Any] | None:
    """Return what was measured before, None where nothing that can be used is there."""
    if not path.is_file():
        return None
    try:
        found = read_json(path, "what was measured")
    except WorkloadError:
        return None
    taken = found.get("taken")
    if found.get("format") != FORMAT or not is_dictionary(taken) or taken.keys() - set(TAKEN):
        return None
    try:
        for name, value in taken.items():
            TRAINING[name].check(name, value)
    except (WorkloadError, TypeError):
        return None
    return found


def write(path: Path, found: dict[str, Any]) -> dict[str, Any]:
    """Keep what was measured; return it."""
    write_json_atomic(path, found)
    return found


_HEAD: Final = ("candidate", "rows/s", "quartiles", "memory", "waited", "verdict")


def table(tried: Sequence[Mapping[str, Any]]) -> str:
    """Return what was tried for people, a line for each."""
    lines = [_HEAD, *(_line(each) for each in tried)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD) - 1)]
    return "\n".join(
        "  ".join((*(text.ljust(w) for text, w in zip(line, widths, strict=False)), line[-1]))
        for line in lines
    )


def _line(tried: Mapping[str, Any]) -> tuple[str, ...]:
    name = str(Candidate(**{each: tried[each] for each in Candidate.__annotations__}))
    if "rows_per_second" not in tried:
        return (name, "", "", "", "", str(tried["verdict"]))
    low, high = tried["quartiles"]
    memory = tried["memory_bytes"]
    return (
        name,
        f"{tried['rows_per_second']:,.0f}",
        f"{low:,.0f} to {high:,.0f}",
        "unknown" if memory is None else f"{memory / 2**20:,.0f} MiB",
        f"{100 * tried['rows_share']:.1f} %",
        str(tried["verdict"]),
    )
