"""The queue of one model in one worker, and who takes from it.

An inference runs in a thread, alone or with others, in a runtime beside, or on the next tier.
Texts of a language model have places of their own, and go through the same threads by steps.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from falaj.workloads.inference.connections.header_names import MARK
from falaj.workloads.inference.connections.http import Answer, Exchange
from falaj.workloads.inference.errors import RequestError, retry_after
from falaj.workloads.inference.language import completions
from falaj.workloads.inference.language.cache import Room
from falaj.workloads.inference.language.engine import Engine
from falaj.workloads.inference.language.generation import Language
from falaj.workloads.inference.language.prefixes import Begun, Left, Prefixes
from falaj.workloads.inference.metrics import Counters
from falaj.workloads.inference.models.batching import Batcher, Member, Plan
from falaj.workloads.inference.models.model import Model
from falaj.workloads.inference.models.priorities import Ordered
from falaj.workloads.inference.models.remote import Overflow, RelayedModel, Remote, RemoteError
from falaj.workloads.inference.protocol import oip
from falaj.workloads.inference.protocol.oip import Inference, Schema
from falaj.workloads.inference.settings import Settings

QUEUE_PER_THREAD = 32
"""Inferences that may wait for each thread before new ones are answered with 503."""
QUEUE_SECONDS = 0.1
"""More may wait where they are expected to begin within it: clients that were sent away would come
back no sooner, and of a small network hundreds are answered in it."""
QUEUE_PER_CONNECTION = 4
"""Likewise for each connection to a runtime beside, which batches what waits."""
TEXTS_PER_THREAD = 8
"""Requests for texts whose steps may go through each thread by turns with each other's, and with
inferences."""
QUEUE_BATCHES = 4
"""Batches' rows that may wait for each thread as inferences, where requests run together."""

_Ran = tuple[Any, float, float]
"""What a run gave, and the seconds that it had waited and took."""


class Served(Protocol):
    """The model in one version, as its queue knows it."""

    settings: Settings
    model: Model | RelayedModel
    counters: Counters

    def run(self, inference: Inference) -> Any:
        """Run the model here.

        Raises:
            RequestError: 500, it can't run on this input.
        """

    def inferred(self, inference: Inference, results: Any, schema: Schema | None = None) -> Answer:
        """Return the answer; ``schema`` is another version's, where that ran the model."""
        ...


class Runs:
    """The queue, and who takes from it.

    Args:
        served: whose.
        pool: runs the model here.
        threads: of the pool.
        upstream: runs the model instead, beside; None: the pool does.
        overflow: where requests go that would wait too long; None: nowhere.
        batching: how many rows run together; None: no requests do.
        language: of the model, whose texts are generated; None: it has none.
        engine: generates texts instead, beside; None: the pool does.
    """

    def __init__(
        self,
        served: Served,
        *,
        pool: ThreadPoolExecutor,
        threads: int,
        upstream: Remote | None,
        overflow: Overflow | None,
        batching: Plan | None,
        language: Language | None,
        engine: Engine | None,
    ) -> None:
        self.upstream = upstream
        self.engine = engine
        self.overflow = overflow
        self.waiting = 0
        self._texts = 0
        # A whole window of each request's text; and the largest request finds room.
        whole = language.bytes_of(language.context) if language is not None else 0
        self.room = Room(whole * max(completions.MOST_TEXTS, threads * TEXTS_PER_THREAD))
        self.prefixes = Prefixes(served.settings.limits.keep_seconds)
        self._served = served
        self._language = language
        self._pool = pool
        self._threads = threads
        # Expected seconds of what waits and runs in the threads.
        self._backlog = 0.0
        self._limit = (
            threads * QUEUE_PER_THREAD
            if upstream is None
            else upstream.connections * QUEUE_PER_CONNECTION
        )
        self._ordered = Ordered(pool) if served.settings.priorities else None
        self._batcher: Batcher | None = None
        if batching is not None and batching.rows and isinstance(served.model, Model):
            self._limit = max(self._limit, threads * QUEUE_BATCHES * batching.rows)
            self._batcher = Batcher(
                served.model, batching.rows, pool=pool, threads=threads,
                alone=served.run, answer=self._answered, counters=served.counters,
            )  # fmt: skip

    @property
    def remotes(self) -> list[Remote | Engine]:
        """Every server that is called."""
        overflow = self.overflow.remote if self.overflow is not None else None
        return [each for each in (self.upstream, overflow, self.engine) if each is not None]

    def start(self, exchange: Exchange, inference: Inference) -> Awaitable[Answer]:
        """Take an inference over.

        Raises:
            RequestError: 503, too many wait already, and no other tier takes it.
        """
        if self.engine is not None:
            raise RequestError(
                404, "the model's engine goes on with texts alone: ask /v1/completions"
            )
        if self.upstream is not None:
            self._admit()
            return self._relay(self.upstream, exchange, inference)
        overflow = self.overflow
        if overflow is not None and MARK not in exchange.headers and self._is_too_long(overflow):
            self._served.counters.overflow_wanted += 1
            if overflow.take():
                return self._pass_on(overflow, exchange, inference)
        return self._queue(exchange, inference)

    # What is counted is counted at once: of a burst, all come before the first of them starts.

    def expected_wait(self) -> float:
        """Return the seconds that an inference which came now would wait for a thread."""
        if self._batcher is not None:
            return self._batcher.expected_wait()
        idle = self.waiting < self._threads
        return 0.0 if idle else self._backlog / self._threads

    def _is_full(self) -> bool:
        if self.waiting < self._limit:
            return False
        # How long calls of a runtime beside wait isn't known here.
        return self.upstream is not None or self.expected_wait() > QUEUE_SECONDS

    def _is_too_long(self, overflow: Overflow) -> bool:
        return self._is_full() or self.expected_wait() > overflow.above_seconds

    def _admit(self, rank: int = oip.USUAL_RANK) -> None:
        if self._is_full() and not self._makes_room(rank):
            raise RequestError(
                503,
                f"{self.waiting} inferences are waiting already; try again",
                headers=(retry_after(1),),
            )
        self.waiting += 1

    def _makes_room(self, rank: int) -> bool:
        """Have a less urgent request go, where there is one."""
        queue = self._batcher or self._ordered
        if self._ordered is None or queue is None or not queue.displace(rank):
            return False
        self._served.counters.displaced += 1
        return True

    # -- here ------------------------------------------------------------------------------

    def _queue(self, exchange: Exchange, inference: Inference) -> Awaitable[Answer]:
        if self._batcher is not None:
            return self._join(self._batcher, exchange, inference)
        self._admit(inference.rank)
        expected = self._served.model.expected[inference.rows.bit_length()]
        self._backlog += expected
        served, entered = self._served, time.perf_counter()

        def work() -> _Ran:
            start = time.perf_counter()
            results = served.run(inference)
            return results, start - entered, time.perf_counter() - start

        # Who makes room for others of a burst has to be in the queue by then.
        turn = (
            self._ordered.run(inference.rank, entered, work) if self._ordered is not None else None
        )
        return self._run(exchange, inference, expected, turn, work)

    async def _run(
        self,
        exchange: Exchange,
        inference: Inference,
        expected: float,
        turn: asyncio.Future[_Ran] | None,
        work: Callable[[], _Ran],
    ) -> Answer:
        served = self._served
        try:
            results, queued, seconds = await (
                turn
                if turn is not None
                else asyncio.get_running_loop().run_in_executor(self._pool, work)
            )
        finally:
            self._ended(expected)
        served.model.observe(inference.rows, seconds)
        served.counters.queued(queued)
        return self._answer(exchange, inference, results, seconds)

    def _ended(self, expected: float) -> None:
        self.waiting -= 1
        self._backlog = max(0.0, self._backlog - expected) if self.waiting else 0.0

    def _answer(
        self, exchange: Exchange, inference: Inference, results: Any, seconds: float
    ) -> Answer:
        served = self._served
        answer = served.inferred(inference, results)
        served.counters.inferred(time.perf_counter() - exchange.started, seconds, inference.rows)
        return answer

    # -- texts -----------------------------------------------------------------------------

    def begin_text(self, size: int) -> None:
        """Take a place for a request that has texts generated, and bytes to keep of them.

        Raises:
            RequestError: 503, there is none, or there aren't so many.
        """
        most = self._threads * TEXTS_PER_THREAD
        if self._texts >= (most if self.engine is None else self.engine.connections):
            raise RequestError(
                503,
                f"texts of {self._texts} requests are being generated already; try again",
                headers=(retry_after(1),),
            )
        self.room.take(size)
        self.prefixes.fit(self.room.left)
        self._texts += 1

    def free(self, size: int) -> None:
        """Give bytes back."""
        self.room.give_back(size)

    def end_text(self) -> None:
        """Give the place back."""
        self._texts -= 1

    def find(self, whose: bytes, tokens: Sequence[int], most: int) -> Begun | None:
        """Return what an earlier text of a caller left of this one, which may come to so many
        tokens; None: nothing."""
        form = self._language.cache if self._language is not None else None
        return None if form is None else self.prefixes.find(whose, tokens, form, most)

    def keep(self, whose: bytes, left: Left) -> None:
        """Take what a text left, as far as texts that are being generated leave room."""
        self.prefixes.keep(whose, left, self.room.left)

    async def step(self, rows: int, work: Callable[[], Any], seconds: float | None) -> Any:
        """Do a step's work behind what waits: none is refused that has a place."""
        expected = seconds
        if expected is None:
            expected = self._served.model.expected[rows.bit_length()]
        entered = time.perf_counter()
        self.waiting += 1
        self._backlog += expected

        def timed() -> tuple[Any, float]:
            queued = time.perf_counter() - entered
            return work(), queued

        try:
            found, queued = await asyncio.get_running_loop().run_in_executor(self._pool, timed)
        finally:
            self._ended(expected)
        self._served.counters.queued(queued)
        return found

    # -- here, together --------------------------------------------------------------------

    def _join(self, batcher: Batcher, exchange: Exchange, inference: Inference) -> Member:
        left = float("inf")
        # A job has time: one that was refused would come again at once, before all others.
        if inference.timeout is not None and inference.options is None:
            left = exchange.started + inference.timeout - time.perf_counter()
            if left <= 0:
                # Not the queue's doing, and so none of the server's failures.
                raise RequestError(
                    408, "the request's timeout was over before it could queue; give more time"
                )
            wait = batcher.expected_wait()
            if left <= wait:
                raise RequestError(
                    503,
                    f"{left * 1000:.0f} ms are left of the request's timeout, and "
                    f"{wait * 1000:.0f} ms is the wait; give more time, or try again later",
                    headers=(retry_after(1),),
                )
        self._admit(inference.rank)
        member = batcher.add(exchange, inference)
        member.deadline = time.perf_counter() + left
        member.add_done_callback(self._left)
        return member

    def _left(self, member: Member) -> None:
        del member
        self.waiting -= 1

    def _answered(self, member: Member, results: Any, seconds: float) -> Answer:
        return self._answer(member.exchange, member.inference, results, seconds)

    # -- beside ----------------------------------------------------------------------------

    async def _relay(self, upstream: Remote, exchange: Exchange, inference: Inference) -> Answer:
        served = self._served
        start = time.perf_counter()
        try:
            results = await upstream.infer(inference)
        except RemoteError as error:
            print(f"the runtime failed on a request: {error}"[:500], file=sys.stderr, flush=True)
            if error.refused:
                raise RequestError(500, "the model could not run on this input") from error
            again = (retry_after(1),)
            raise RequestError(503, "the model's runtime is busy or not there; try again",
                               headers=again) from error  # fmt: skip
        finally:
            self.waiting -= 1
        seconds = time.perf_counter() - start
        answer = served.inferred(inference, results)
        served.counters.inferred(time.perf_counter() - exchange.started, seconds, inference.rows)
        return answer

    # -- elsewhere -------------------------------------------------------------------------

    async def _pass_on(
        self, overflow: Overflow, exchange: Exchange, inference: Inference
    ) -> Answer:
        """Ask the other tier in the caller's name; where it fails, wait here after all.

        A caller with a certificate has no token to show: then this server's own speaks.
        """
        headers = {MARK.decode(): "1"}
        token = exchange.headers.get(b"authorization")
        if token is not None:
            headers["Authorization"] = token.decode("ascii", "replace")
        start = time.perf_counter()
        try:
            results = await overflow.remote.infer(inference, headers)
        except RemoteError as error:
            self._count_failure(overflow, error)
        except BaseException:
            overflow.breaker.given_up()
            raise
        else:
            overflow.breaker.succeeded()
            return self._answered_elsewhere(overflow, exchange, inference, results, start)
        finally:
            overflow.give_back()
        return await self._queue(exchange, inference)

    def _answered_elsewhere(
        self,
        overflow: Overflow,
        exchange: Exchange,
        inference: Inference,
        results: Any,
        start: float,
    ) -> Answer:
        served = self._served
        seconds = time.perf_counter() - start
        answer = served.inferred(inference, results, overflow.remote.schema)
        # Both or neither: what was answered here is the difference.
        served.counters.passed_on("answered")
        served.counters.inferred(time.perf_counter() - exchange.started, seconds, inference.rows)
        return answer._replace(headers=(*answer.headers, overflow.header))

    def _count_failure(self, overflow: Overflow, error: RemoteError) -> None:
        """A tier that is full or gone is left alone; one that refuses a request is well."""
        if error.refused:
            overflow.breaker.succeeded()
            self._served.counters.passed_on("refused")
            return
        was_open = overflow.breaker.is_open
        overflow.breaker.failed()
        self._served.counters.passed_on("busy" if error.busy else "failed")
        if overflow.breaker.is_open and not was_open:
            print(f"the next tier is left alone for a while: {error}"[:500], file=sys.stderr,
                  flush=True)  # fmt: skip
