"""Which engine runs how many rows, where requests run together.

A package names the engine that was fastest for one row. A batch asks another question: OpenVINO's
calls cost more than ONNX Runtime's, and its rows, in bfloat16 above all, often less. So a worker
measures each engine that the package admits (its accuracy was judged when it was made) by numbers
of rows, on this machine. Engines whose answers are alike share a model: each number of rows runs
where it is fastest. Of others one runs all rows, as the same question is to have the same answer
however many come at once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from falaj.workloads.engines import Engine, Session, admitted
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.models import model as models
from falaj.workloads.inference.models.batching import (
    MEASURE_SECONDS,
    MOST_ROWS,
    PAYS_BELOW,
    against,
    agree,
)
from falaj.workloads.inference.models.model import Model
from falaj.workloads.inference.protocol.oip import Array

ALONE_AT_MOST: Final = 1.5
"""What a single row may cost of what it costs now, in an engine that is to run all rows."""

Costs = Mapping[int, float]
"""Seconds of a run, by its number of rows."""


@dataclass(frozen=True)
class Choice:
    """Which of several engines runs how many rows.

    Attributes:
        first: runs fewer rows than ``since``; its place among what was measured.
        then: runs the others.
        since: a power of two; 1: ``then`` runs all.
    """

    first: int
    then: int
    since: int = 1

    def of(self, rows: int) -> int:
        """Return the place of what runs so many rows."""
        return self.then if rows.bit_length() >= self.since.bit_length() else self.first


def choose(costs: Sequence[Costs], alike: Sequence[bool]) -> Choice:
    """Choose by what was measured; the first engine stays where another gains little.

    Args:
        costs: by engine; of the first, of all numbers of rows that others were measured with.
        alike: by engine, whether its answers are the first one's.
    """
    usual = costs[0]
    best, least = Choice(0, 0), _cheapest(usual)
    alone = usual[1]
    for place, found in enumerate(costs):
        if place == 0 or not alike[place] or not found:
            continue
        since = _since(usual, found)
        if since is None:
            continue
        cheapest = min(_cheapest(usual), _cheapest({b: t for b, t in found.items() if b >= since}))
        if cheapest < least or best.then == 0:
            best, least = Choice(0, place, since), min(least, cheapest)
    for place, found in enumerate(costs):
        if place == 0 or alike[place] or not found:
            continue
        cheapest = _cheapest(found)
        if cheapest <= PAYS_BELOW * least and found[1] <= ALONE_AT_MOST * alone:
            best, least = Choice(place, place), cheapest
    return best


def _cheapest(costs: Costs) -> float:
    """Seconds of a row, in the batch whose rows cost least."""
    return min(seconds / rows for rows, seconds in costs.items())


def _since(usual: Costs, other: Costs) -> int | None:
    """The least number of rows from which on another engine is clearly faster with all."""
    since = None
    for rows in sorted(other, reverse=True):
        if other[rows] > PAYS_BELOW * usual[rows]:
            break
        since = rows
    return since


class ByRows:
    """A session of two: one for few rows, and one for more."""

    def __init__(self, choice: Choice, sessions: Sequence[Session]) -> None:
        self._runs = [sessions[choice.of(1 << max(index - 1, 0))].run for index in range(32)]

    def run(
        self, names: Sequence[str] | None, feed: Mapping[str, Array], options: Any = None
    ) -> Sequence[Any]:
        """As a session does."""
        rows = len(next(iter(feed.values())))
        return self._runs[rows.bit_length()](names, feed, options)


def fastest(usual: Model, model_bytes: bytes, manifest: Mapping[str, Any], **given: Any) -> Model:
    """Return the model in what is fastest in batches of the engines that its package admits.

    It measures them in `MEASURE_SECONDS` or little more, beside what it takes to load them.

    Args:
        usual: the model as it was loaded.
        model_bytes: of the package's model, which were checked.
        manifest: of the package.
        given: what else `model.load` was given.
    """
    if against(usual) or type(usual) is not Model:
        return usual
    made = [usual]
    for engine in admitted(manifest):
        if engine == usual.engine or (engine.name == usual.engine.name and not engine.precision):
            continue
        try:
            made.append(models.load_in(engine, model_bytes, manifest=manifest, **given))
        except Exception as error:  # whatever it is, another engine runs the model
            print(f"{engine} isn't tried with batches: {error}"[:300], file=sys.stderr, flush=True)
    if len(made) == 1:
        return usual
    costs = _measure(made)
    choice = choose(costs, [agree(usual, each) for each in made])
    if choice.then == 0:
        return usual
    found = _composed(made, choice, costs)
    print(f"the engine is {found.engine}", file=sys.stderr, flush=True)
    return found


def _measure(made: Sequence[Model]) -> list[dict[int, float]]:
    """Seconds by rows of each, in turns, so that a busy moment is everybody's."""
    until = time.perf_counter() + MEASURE_SECONDS
    costs: list[dict[int, float]] = [{} for _ in made]
    rows = 1
    while rows <= min(made[0].schema.max_rows, MOST_ROWS):
        # Larger ones than those of the warm-up are estimated at the most that they may take.
        likely = sum(each.expected[rows.bit_length()] for each in made) * models.WARM_UP_RUNS
        if rows > 1 and time.perf_counter() + likely > until:
            break
        for each, found in zip(made, costs, strict=True):
            place = rows.bit_length()
            try:
                seconds = each.measure(rows)
            except InferenceError:
                return costs  # smaller ones run
            if rows in models.WARM_UP_ROWS:
                seconds = min(seconds, each.expected[place])
            each.expected[place] = found[rows] = seconds
        rows *= 2
    return costs


def _composed(made: Sequence[Model], choice: Choice, costs: Sequence[Costs]) -> Model:
    usual, first, then = made[0], made[choice.first], made[choice.then]
    found_costs = costs[choice.then]
    rows = min(found_costs, key=lambda each: found_costs[each] / each)
    many = f"{rows} rows take {_ms(found_costs[rows])} here, in "
    many += f"{made[0].engine} {_ms(costs[0][rows])}"
    if choice.first == choice.then:
        engine, session = Engine(then.engine.name, then.engine.precision, many), then.session
    else:
        note = f"for {choice.since} rows and more, {first.engine} for fewer: {many}"
        engine = Engine(then.engine.name, then.engine.precision, note)
        session = ByRows(choice, [each.session for each in made])
    found = Model(usual.name, usual.version, session, usual.schema, engine)
    for index in range(len(found.expected)):
        found.expected[index] = made[choice.of(1 << max(index - 1, 0))].expected[index]
    found.measured = set(costs[choice.then])
    if choice.of(1) == choice.first:
        found.row = first.row
    return found


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
