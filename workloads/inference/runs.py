"""Inferences that don't run on the event loop: in a thread, in a runtime beside, or elsewhere."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.exchange import Answer, Exchange
from falaj.workloads.inference.oip import Inference
from falaj.workloads.inference.remote import Remote, RemoteError
from falaj.workloads.inference.spill import MARK, Spill

if TYPE_CHECKING:
    from falaj.workloads.inference.service import Service

QUEUE_PER_THREAD = 32
"""Inferences that may wait for each thread before new ones are answered with 503."""
QUEUE_PER_CONNECTION = 4
"""Likewise for each connection to a runtime beside, which batches what waits."""


class Runs:
    """The queue of a worker, and who takes from it.

    Args:
        service: the worker's.
        pool: runs the model here.
        threads: of the pool.
        upstream: runs the model instead, beside; None: the pool does.
        spill: where requests go that would wait too long; None: nowhere.
    """

    def __init__(
        self,
        service: Service,
        *,
        pool: ThreadPoolExecutor,
        threads: int,
        upstream: Remote | None,
        spill: Spill | None,
    ) -> None:
        self.upstream = upstream
        self.spill = spill
        self.waiting = 0
        self._service = service
        self._pool = pool
        self._threads = threads
        # Expected seconds of what waits and runs in the threads.
        self._backlog = 0.0
        self._limit = (
            threads * QUEUE_PER_THREAD
            if upstream is None
            else upstream.connections * QUEUE_PER_CONNECTION
        )

    @property
    def remotes(self) -> list[Remote]:
        """Every server that is called."""
        spill = self.spill.remote if self.spill is not None else None
        return [each for each in (self.upstream, spill) if each is not None]

    def start(self, exchange: Exchange, inference: Inference) -> Awaitable[Answer]:
        """Take an inference over.

        Raises:
            RequestError: 503, too many wait already, and no other tier takes it.
        """
        if self.upstream is not None:
            self._admit()
            return self._relay(self.upstream, exchange, inference)
        spill = self.spill
        if spill is not None and MARK not in exchange.headers and self._is_too_long(spill):
            self._service.counters.spill_wanted += 1
            if spill.take():
                return self._pass_on(spill, exchange, inference)
        return self._queue(exchange, inference)

    # What is counted is counted at once: of a burst, all come before the first of them starts.

    def expected_wait(self) -> float:
        """Return the seconds that an inference which came now would wait for a thread."""
        idle = self.waiting < self._threads
        return 0.0 if idle else self._backlog / self._threads

    def _is_too_long(self, spill: Spill) -> bool:
        return self.waiting >= self._limit or self.expected_wait() > spill.above_seconds

    def _admit(self) -> None:
        if self.waiting >= self._limit:
            raise RequestError(
                503,
                f"{self.waiting} inferences are waiting already; try again",
                headers=(b"Retry-After: 1",),
            )
        self.waiting += 1

    # -- here ------------------------------------------------------------------------------

    def _queue(self, exchange: Exchange, inference: Inference) -> Awaitable[Answer]:
        self._admit()
        expected = self._service.model.expected[inference.rows.bit_length()]
        self._backlog += expected
        return self._run(exchange, inference, expected)

    async def _run(self, exchange: Exchange, inference: Inference, expected: float) -> Answer:
        service = self._service
        entered = time.perf_counter()

        def work() -> tuple[Any, float, float]:
            start = time.perf_counter()
            results = service.run(inference)
            return results, start - entered, time.perf_counter() - start

        try:
            results, queued, seconds = await asyncio.get_running_loop().run_in_executor(
                self._pool, work
            )
        finally:
            self.waiting -= 1
            self._backlog = max(0.0, self._backlog - expected) if self.waiting else 0.0
        service.model.observe(inference.rows, seconds)
        service.counters.queued(queued)
        answer = service.inferred(inference, results)
        service.counters.inferred(time.perf_counter() - exchange.started, seconds, inference.rows)
        return answer

    # -- beside ----------------------------------------------------------------------------

    async def _relay(self, upstream: Remote, exchange: Exchange, inference: Inference) -> Answer:
        service = self._service
        start = time.perf_counter()
        try:
            results = await upstream.infer(inference)
        except RemoteError as error:
            print(f"the runtime failed on a request: {error}"[:500], file=sys.stderr, flush=True)
            if error.refused:
                raise RequestError(500, "the model could not run on this input") from error
            again = (b"Retry-After: 1",)
            raise RequestError(503, "the model's runtime is busy or not there; try again",
                               headers=again) from error  # fmt: skip
        finally:
            self.waiting -= 1
        seconds = time.perf_counter() - start
        answer = service.inferred(inference, results)
        service.counters.inferred(time.perf_counter() - exchange.started, seconds, inference.rows)
        return answer

    # -- elsewhere -------------------------------------------------------------------------

    async def _pass_on(self, spill: Spill, exchange: Exchange, inference: Inference) -> Answer:
        """Ask the other tier in the caller's name; where it fails, wait here after all.

        A caller with a certificate has no token to show: then this server's own speaks.
        """
        headers = {MARK.decode(): "1"}
        token = exchange.headers.get(b"authorization")
        if token is not None:
            headers["Authorization"] = token.decode("ascii", "replace")
        start = time.perf_counter()
        try:
            results = await spill.remote.infer(inference, headers)
        except RemoteError as error:
            self._count_failure(spill, error)
        except BaseException:
            spill.breaker.given_up()
            raise
        else:
            spill.breaker.succeeded()
            return self._answered_elsewhere(spill, exchange, inference, results, start)
        finally:
            spill.give_back()
        return await self._queue(exchange, inference)

    def _answered_elsewhere(
        self, spill: Spill, exchange: Exchange, inference: Inference, results: Any, start: float
    ) -> Answer:
        service = self._service
        service.counters.passed_on("answered")
        seconds = time.perf_counter() - start
        answer = service.inferred(inference, results, spill.remote.schema)
        service.counters.inferred(time.perf_counter() - exchange.started, seconds, inference.rows)
        return answer._replace(headers=(*answer.headers, spill.header))

    def _count_failure(self, spill: Spill, error: RemoteError) -> None:
        """A tier that is full or gone is left alone; one that refuses a request is well."""
        if error.refused:
            spill.breaker.succeeded()
            self._service.counters.passed_on("refused")
            return
        was_open = spill.breaker.is_open
        spill.breaker.failed()
        self._service.counters.passed_on("busy" if error.busy else "failed")
        if spill.breaker.is_open and not was_open:
            print(f"the next tier is left alone for a while: {error}"[:500], file=sys.stderr,
                  flush=True)  # fmt: skip
