"""Requests of several callers in one run of the model, where the model is quicker so.

Whether it is, a worker measures when it loads the model: by how long a run takes for 1, 2, 4, …
rows. Large matrices are read from memory once for all rows of a run; a chain of small operators
has its overhead once. A model whose time grows with its rows gains nothing, and its requests
run one by one.

Nobody waits for others: a thread that is free takes what is there. Requests meet while the threads
are busy, so that a batch grows with the load and a request that comes alone runs alone. Triton
does the same with an empty `dynamic_batching`:
https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/batcher.html
To wait for a quarter of a run to a whole one gained nothing in a simulation of runs of 1 ms, and
50 us for each row: the mean was up to a third longer at a light load, and the same at a heavy one.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from falaj.workloads.inference.connections.http import Answer, Exchange
from falaj.workloads.inference.errors import InferenceError, RequestError
from falaj.workloads.inference.metrics import Counters
from falaj.workloads.inference.models.model import (
    INLINE_SECONDS,
    WARM_UP_RUNS,
    Model,
)
from falaj.workloads.inference.models.priorities import HEAD_START, displaced
from falaj.workloads.inference.protocol.oip import Array, Inference, TensorSpec

MOST_ROWS: Final = 128
"""Of a batch. Beyond it a row gets hardly cheaper on a processor and waits longer for the rest."""
MEASURE_SECONDS: Final = 1.0
"""That measuring may add to a worker's start."""
PAYS_BELOW: Final = 0.9
"""What a row of a batch may cost of what it costs alone, for batches to be worth their trouble."""
_NEAR_BEST: Final = 1.1
"""A smaller batch is taken whose rows cost up to so much of the cheapest: it is over sooner."""
_STILL_GAINS: Final = 0.95
_PROBE_ROWS: Final = 4
_TOLERANCE: Final = 1e-4
"""Relative, and absolute below 1: a run of another size may round float32 otherwise."""
_TOLERANCE_OF_HALVES: Final = 1e-2
"""The same of FP16."""
LOOK_SECONDS: Final = INLINE_SECONDS
"""Who has waited for less isn't asked whether it is still there."""


@dataclass(frozen=True)
class Plan:
    """Whether requests for a model run together.

    Attributes:
        rows: of a batch at most; 0: they don't.
        reason: in words, with what was measured.
    """

    rows: int
    reason: str


def against(model: Model) -> str:
    """Return why requests for a model that is warm aren't run together, without a trial; or ""."""
    schema = model.schema
    specs = (*schema.inputs.values(), *schema.outputs.values())
    if not all(spec.shape[:1] == (-1,) for spec in specs):
        return "off: not every input and output has a first size that is free"
    if schema.max_rows == 1:
        return "off: max_rows is 1"
    if model.is_quick(1):
        return (f"off: a run of one row takes {_shown(model.expected[1])}, and one below "
                f"{_shown(INLINE_SECONDS)} is over before others come")  # fmt: skip
    return ""


def plan(model: Model) -> Plan:
    """Measure a model that is warm, in `MEASURE_SECONDS` or little more."""
    refusal = against(model)
    if refusal:
        return Plan(0, refusal)
    costs = _costs(model)
    several = {each: cost for each, cost in costs.items() if each > 1}
    cheapest = min(several.values())
    rows = min(each for each, cost in several.items() if cost <= _NEAR_BEST * cheapest)
    share = costs[rows] / costs[1]
    measured = f"{rows} rows take {_shown(costs[rows] * rows)}, one takes {_shown(costs[1])}"
    if share >= PAYS_BELOW:
        return Plan(0, f"off: rows together are hardly cheaper: {measured}")
    refusal = _mixes(model)
    if refusal:
        return Plan(0, f"off: {refusal}")
    return Plan(rows, f"on: up to {rows} rows together; {measured}")


def _shown(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _costs(model: Model) -> Mapping[int, float]:
    """Seconds for each row of a run, by its number of rows: powers of two."""
    until = time.perf_counter() + MEASURE_SECONDS
    found: dict[int, float] = {}
    best, rows = float("inf"), 1
    while rows <= min(model.schema.max_rows, MOST_ROWS):
        place = rows.bit_length()
        if rows not in model.measured:
            # Twice the rows take at most about twice the time.
            likely = 2 * model.expected[place - 1] * WARM_UP_RUNS
            if found[rows // 2] > _STILL_GAINS * best or time.perf_counter() + likely > until:
                break
            try:
                model.expected[place] = model.measure(rows)
            except InferenceError:
                break  # smaller ones run
        best = min(found.values(), default=best)
        found[rows] = model.expected[place] / rows
        rows *= 2
    return found


def agree(one: Model, other: Model) -> bool:
    """Tell whether two models answer alike to rows that differ in size: a trial, not a proof."""
    feed = {spec.name: _probe(spec, at) for at, spec in enumerate(one.schema.inputs.values())}
    try:
        answers = [each.run(_inference(feed, _PROBE_ROWS)) for each in (one, other)]
    except Exception:  # the runtimes' exceptions share no public base class
        return False
    return all(_alike(np.asarray(a), np.asarray(b)) for a, b in zip(*answers, strict=True))


def _mixes(model: Model) -> str:
    """Say what shows that a row's answer depends on the rows beside it; empty: nothing does.

    Quantisation by a scale of the whole tensor does so, and sums or extremes over rows. This is a
    trial with rows that differ in size, not a proof.
    """
    inputs = list(model.schema.inputs.values())
    feed = {spec.name: _probe(spec, index) for index, spec in enumerate(inputs)}
    try:
        together = model.run(_inference(feed, _PROBE_ROWS))
        for row in range(_PROBE_ROWS):
            part = {name: values[row : row + 1] for name, values in feed.items()}
            alone = model.run(_inference(part, 1))
            for spec, joint, single in zip(
                model.schema.outputs.values(), together, alone, strict=True
            ):
                if not _alike(np.asarray(joint)[row : row + 1], np.asarray(single)):
                    return (
                        f"what it answers as '{spec.name}' to a row depends on the rows beside it"
                    )
    except Exception as error:  # the runtime's exceptions share no public base class
        return f"it fails on rows that differ: {error}"[:300]
    return ""


def _probe(spec: TensorSpec, seed: int) -> Array:
    """Rows that differ: numbers in size, whole ones by 0 and 1, which are places of most lists."""
    shape = spec.sized(_PROBE_ROWS)
    columns = math.prod(shape[1:])
    if spec.dtype.kind == "f":
        numbers = np.random.default_rng(seed).standard_normal((_PROBE_ROWS, columns))
        return (numbers * [[1], [8], [0.125], [3]]).astype(spec.dtype).reshape(shape)
    ones = np.add.outer(np.arange(_PROBE_ROWS), np.arange(columns)).reshape(shape) % 2
    if spec.datatype == "BYTES":
        return np.where(ones, "b", "a").astype(object)
    return ones.astype(spec.dtype)


def _alike(one: Array, other: Array) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    tolerance = _TOLERANCE_OF_HALVES if one.dtype == np.float16 else _TOLERANCE
    return bool(np.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True))


def _inference(feed: dict[str, Array], rows: int, outputs: list[str] | None = None) -> Inference:
    made = Inference()
    made.feed, made.rows, made.outputs = feed, rows, outputs
    return made


def _place(member: Member) -> float:
    return member.place


def _never() -> bool:
    return False


class Member(asyncio.Future[Answer]):
    """A request that waits for a run, and its answer. Who cancels it takes it out.

    Attributes:
        exchange: the request.
        inference: what it asks.
        deadline: after which it isn't run any more, on the monotonic clock in seconds.
        hung_up: tells whether nobody hears the answer.
    """

    def __init__(self, exchange: Exchange, inference: Inference) -> None:
        super().__init__()
        self.exchange = exchange
        self.inference = inference
        self.entered = time.perf_counter()
        self.place = self.entered + HEAD_START[inference.rank]
        """In the queue: the least goes first."""
        self.deadline = float("inf")
        self.hung_up: Callable[[], bool] = _never
        # Only what has the same shapes but for the rows, and asks for the same, runs together; a
        # job runs alone, for whoever removes it ends its run.
        self.kind = (
            tuple((name, values.shape[1:]) for name, values in sorted(inference.feed.items())),
            tuple(inference.outputs or ()),
            inference.options and id(inference.options),
        )

    def refusal(self, now: float) -> RequestError | None:
        """Say why it isn't to run; None: it is."""
        if now >= self.deadline:
            return RequestError(
                408,
                f"the time that was given is over after {(now - self.entered) * 1000:.0f} ms in "
                "the queue; give more time, or try again later",
            )
        if now - self.entered > LOOK_SECONDS and self.hung_up():
            return RequestError(408, "the client hung up before its turn", close=True)
        return None


@dataclass(frozen=True, eq=False)
class Batch:
    """Members that run together.

    Attributes:
        members: at least one.
        rows: of all.
    """

    members: Sequence[Member]
    rows: int


@dataclass(frozen=True)
class Run:
    """What a thread has done with a batch.

    Attributes:
        results: by member: its outputs, or the `RequestError` that it gets.
        seconds: by member, of the run that it was in.
        runs: rows and seconds of each run of the model that came to an end.
        is_joint: whether all were in one.
    """

    results: Sequence[Any]
    seconds: Sequence[float]
    runs: Sequence[tuple[int, float]]
    is_joint: bool


class Batcher:
    """The queue of a worker whose model's requests run together.

    Of the same kind those that came first run first. A request of another kind is passed by until
    it is the oldest, and then it goes first.

    Args:
        model: runs batches.
        rows: of a batch at most; a request that has more itself runs alone.
        pool: the threads.
        threads: of the pool.
        alone: runs one request, and words its failure.
        answer: makes the answer of outputs, which took so many seconds, and counts it.
        counters: of the worker.
    """

    def __init__(
        self,
        model: Model,
        rows: int,
        *,
        pool: ThreadPoolExecutor,
        threads: int,
        alone: Callable[[Inference], Any],
        answer: Callable[[Member, Any, float], Answer],
        counters: Counters,
    ) -> None:
        self._model = model
        self._most = rows
        self._pool = pool
        self._threads = threads
        self._alone = alone
        self._answer = answer
        self._counters = counters
        self._waiting: deque[Member] = deque()
        self._rows = 0  # of what waits
        self._ends: dict[Batch, float] = {}  # when what runs is expected to end
        self._is_due = False

    def add(self, exchange: Exchange, inference: Inference) -> Member:
        """Queue a request."""
        member = Member(exchange, inference)
        waiting = self._waiting
        if not waiting or waiting[-1].place <= member.place:
            waiting.append(member)
        else:
            waiting.insert(bisect_right(waiting, member.place, key=_place), member)
        self._rows += inference.rows
        member.add_done_callback(self._forget)
        # After what else has come with this read of all connections.
        if not self._is_due and len(self._ends) < self._threads:
            self._is_due = True
            member.get_loop().call_soon(self._dispatch)
        return member

    def displace(self, rank: int) -> bool:
        """Refuse the newest of the least urgent, if it is less urgent than this rank."""
        found = max(
            (each for each in self._waiting if not each.done()),
            key=lambda each: (each.inference.rank, each.entered), default=None,
        )  # fmt: skip
        if found is None or found.inference.rank <= rank:
            return False
        self._waiting.remove(found)
        self._rows -= found.inference.rows
        found.set_exception(displaced())
        return True

    def expected_wait(self) -> float:
        """Return the seconds that a request which came now would wait for a thread."""
        full = self._rows // self._most
        if len(self._ends) + full < self._threads:
            return 0.0
        now = time.perf_counter()
        running = sum(max(0.0, end - now) for end in self._ends.values())
        return (running + full * self._expected(self._most)) / self._threads

    def _expected(self, rows: int) -> float:
        return self._model.expected[rows.bit_length()]

    def _forget(self, member: Member) -> None:
        """Let go of one that was taken out; of one that has run there is nothing left."""
        if member.cancelled() and member in self._waiting:
            self._waiting.remove(member)
            self._rows -= member.inference.rows

    # -- on the loop -----------------------------------------------------------------------

    def _dispatch(self) -> None:
        self._is_due = False
        while len(self._ends) < self._threads and (batch := self._take()) is not None:
            now = time.perf_counter()
            self._ends[batch] = now + self._expected(batch.rows)
            loop = batch.members[0].get_loop()
            try:
                done = loop.run_in_executor(self._pool, self._run, batch)
            except RuntimeError as error:  # no thread can be started
                del self._ends[batch]
                _fail(batch, error)
            else:
                done.add_done_callback(partial(self._ran, batch, now))

    def _take(self) -> Batch | None:
        """Take the oldest and what of its kind fits beside it; refuse what isn't to run."""
        waiting, now = self._waiting, time.perf_counter()
        members: list[Member] = []
        passed: list[Member] = []
        rows = 0
        while waiting and rows < self._most:
            member = waiting.popleft()
            more = member.inference.rows
            if member.done():
                self._rows -= more
            elif (refusal := member.refusal(now)) is not None:
                self._rows -= more
                member.set_exception(refusal)
            elif members and member.kind != members[0].kind:
                passed.append(member)
            elif members and rows + more > self._most:
                waiting.appendleft(member)
                break
            else:
                members.append(member)
                self._rows -= more
                rows += more
        waiting.extendleft(reversed(passed))
        return Batch(tuple(members), rows) if members else None

    def _ran(self, batch: Batch, began: float, done: asyncio.Future[Run]) -> None:
        del self._ends[batch]
        # First the thread has work again; then what it has done is answered.
        self._dispatch()
        try:
            run = done.result()
        except BaseException as error:  # a fault of ours; the loop goes on
            _fail(batch, error if isinstance(error, Exception) else RuntimeError("a thread ended"))
            return
        for rows, seconds in run.runs:
            self._model.observe(rows, seconds)
            if rows <= self._most:
                self._counters.batched(rows, seconds)
        answered = 0
        for member, results, seconds in zip(batch.members, run.results, run.seconds, strict=True):
            # One that was taken out meanwhile has nobody to hear it.
            if not member.done():
                answered += self._resolve(member, began, results, seconds)
        if run.is_joint and answered:
            self._counters.joined += answered - 1

    def _resolve(self, member: Member, began: float, results: Any, seconds: float) -> bool:
        """Give a member what it gets, and tell whether it is an answer."""
        if isinstance(results, RequestError):
            member.set_exception(results)
            return False
        self._counters.queued(began - member.entered)
        try:
            member.set_result(self._answer(member, results, seconds))
        except Exception as error:  # of this one alone; its neighbours have their answers
            member.set_exception(error.alone() if isinstance(error, RequestError) else error)
            return False
        return True

    # -- in a thread -----------------------------------------------------------------------

    def _run(self, batch: Batch) -> Run:
        if len(batch.members) > 1:
            began = time.perf_counter()
            try:
                results = _split(batch, self._model.run(_joined(batch)))
            except Exception as error:  # as in `Service.run`; who is to blame shows alone
                print(f"a batch of {batch.rows} rows failed, and its requests run one by one: "
                      f"{error}"[:500], file=sys.stderr, flush=True)  # fmt: skip
            else:
                seconds = time.perf_counter() - began
                times = [seconds] * len(batch.members)
                return Run(results, times, [(batch.rows, seconds)], is_joint=True)
        results: list[Any] = []
        times: list[float] = []
        runs: list[tuple[int, float]] = []
        for member in batch.members:
            began = time.perf_counter()
            try:
                results.append(self._alone(member.inference))
                runs.append((member.inference.rows, time.perf_counter() - began))
            except RequestError as error:
                results.append(error.alone())
            times.append(time.perf_counter() - began)
        return Run(results, times, runs, is_joint=False)


def _fail(batch: Batch, error: Exception) -> None:
    for member in batch.members:
        if not member.done():
            member.set_exception(error)


def _joined(batch: Batch) -> Inference:
    """One request of the rows of all."""
    feeds = [member.inference.feed for member in batch.members]
    feed = {name: np.concatenate([each[name] for each in feeds]) for name in feeds[0]}
    return _inference(feed, batch.rows, batch.members[0].inference.outputs)


def _split(batch: Batch, outputs: Sequence[Any]) -> list[list[Array]]:
    """The outputs of each member: copies, so that none keeps its neighbours' in memory.

    Raises:
        ValueError: an output hasn't a row for each that went in.
    """
    whole = [np.asarray(each) for each in outputs]
    if any(len(each) != batch.rows for each in whole):
        raise ValueError(f"outputs have {[len(each) for each in whole]} rows for {batch.rows}")
    found: list[list[Array]] = []
    start = 0
    for member in batch.members:
        end = start + member.inference.rows
        found.append([each[start:end].copy() for each in whole])
        start = end
    return found
