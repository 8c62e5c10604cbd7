"""The master's side of jobs: one at a time for each worker, answers to workers, numbers.

A thread of its own does what the disk is needed for, in the order in which it is asked, so that
neither a slow disk nor a rotation of keys holds the master up.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import orjson
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from falaj.workloads.inference.errors import FAULT, RequestError, retry_of
from falaj.workloads.inference.jobs.store import DONE, FAILED, STATES, Job, Jobs
from falaj.workloads.inference.process import channel

TICK_SECONDS = 1.0
TOGETHER = 64
"""Requests that are kept at a time: their callers are answered before the next ones are."""


class Runner(Protocol):
    """A worker, as its jobs know it."""

    pid: int
    state: str

    @property
    def versions(self) -> Mapping[str, str]:
        """That it has of each model that can be asked."""
        ...

    def answer(self, number: bytes, payload: bytes) -> None:
        """Answer a question of this number."""

    def tell(self, kind: int, payload: bytes) -> None:
        """Send a message."""


_Question = tuple[Runner, bytes, dict[str, Any]]
"""Who asks, the question's number, and what."""
_QUICK, _KEEPING, _REMOVING = "quick", "keeping", "removing"
_KINDS = {
    _QUICK: ("reserve", "find", "drop"),
    _KEEPING: ("queue",),
    _REMOVING: ("remove", "spoil"),
}
"""Questions by what they need of the disk: nothing, to keep something, to remove something. To
drop a job removes, too, but comes before what is asked later: who sends its request again isn't
to be told of that job."""


class JobQueue:
    """Hands jobs out to workers.

    Args:
        jobs: opened; from here on its thread's alone.
        models: whose jobs are taken, the first one first.
        event: writes a record of the audit log.
        workers: those that serve now.
    """

    def __init__(
        self,
        jobs: Jobs,
        *,
        models: Iterable[str],
        event: Callable[..., None],
        workers: Callable[[], Iterable[Runner]],
    ) -> None:
        self.jobs = jobs
        self._models = tuple(models)
        self._event = event
        self._workers = workers
        self._thread = ThreadPoolExecutor(1, "jobs")
        self._questions: dict[str, deque[_Question]] = {kind: deque() for kind in _KINDS}
        self._busy: set[int] = set()
        # By pid, those that were given a job, also when they are about to leave with it.
        self._running: dict[int, Runner] = {}
        self._numbers: dict[str, dict[str, float]] = {}
        self._closed = False
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    def serve(self, models: Iterable[str]) -> None:
        """Take jobs of these models alone from now on, and remove those of all others."""
        self._models = names = tuple(models)
        self._submit(lambda: self.jobs.serve(names))

    async def close(self) -> None:
        """End, once everything that was asked for is done."""
        self._ticking.cancel()
        await self._run(lambda: None)
        self._closed = True
        self._thread.shutdown()
        self.jobs.close()
        self._tell_events()

    # -- the thread ------------------------------------------------------------------------

    def _submit(
        self,
        work: Callable[[], Any],
        then: Callable[[Any], None] = lambda _: None,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        """Have the thread do something, and go on here with its result, or after a fault in it."""
        if self._closed:
            return
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)

        def finish(future: asyncio.Future[Any]) -> None:
            try:
                then(future.result())
            except Exception:  # one fault must not end the handing out
                traceback.print_exc()
                failed()
            self._tell_events()
            self._tell_removed()

        future.add_done_callback(finish)

    async def _run(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _tell_events(self) -> None:
        events = self.jobs.events
        while events:
            name, facts = events.pop(0)
            self._event(name, **facts)

    def _tell_removed(self) -> None:
        removed = self.jobs.removed
        while removed:
            pid, identifier = removed.pop(0)
            if (worker := self._running.get(pid)) is not None:
                worker.tell(channel.JOB_STOP, identifier.encode())

    # -- workers ---------------------------------------------------------------------------

    def asked(self, worker: Runner, payload: bytes) -> None:
        """Answer a worker's question.

        What is asked while the thread is busy is answered together: at first what needs no disk,
        then what is to be kept, of which many wait for the disk as one, then what is removed.
        """
        question = (worker, payload[:8], orjson.loads(payload[8:]))
        kind = next(kind for kind, what in _KINDS.items() if question[2]["do"] in what)
        self._questions[kind].append(question)
        self._submit(self._answer_some, self._tell_answers)

    def _tell_answers(self, answers: list[tuple[_Question, dict[str, Any]]]) -> None:
        for (worker, number, _), found in answers:
            worker.answer(number, orjson.dumps(found))
        if any(question["do"] == "queue" for (_, _, question), _ in answers):
            self.dispatch()

    def _answer_some(self) -> list[tuple[_Question, dict[str, Any]]]:
        answers = [(each, self._answer(each)) for each in self._asked(_QUICK)]
        kept = self._asked(_KEEPING, TOGETHER)
        found = self.jobs.queue(*(str(question["id"]) for _, _, question in kept))
        answers += [(each, self._told(job)) for each, job in zip(kept, found, strict=True)]
        return answers + [(each, self._answer(each)) for each in self._asked(_REMOVING)]

    def _asked(self, kind: str, most: int | None = None) -> list[_Question]:
        waiting = self._questions[kind]
        count = len(waiting) if most is None else min(most, len(waiting))
        return [waiting.popleft() for _ in range(count)]

    def _answer(self, given: _Question) -> dict[str, Any]:
        worker, _, question = given
        jobs, identifier = self.jobs, str(question["id"])
        owner, model = str(question.get("owner", "")), str(question.get("model", ""))
        job: Job | None = None
        try:
            match question["do"]:
                case "reserve":
                    asked = {each: question.get(each) for each in ("version", "key", "digest")}
                    size = int(question["size"])
                    job = jobs.reserve(
                        worker.pid, identifier, owner, model=model, size=size, **asked
                    )
                case "drop":
                    jobs.drop(identifier)
                case "find":
                    job = jobs.find(identifier, owner, model)
                case "remove":
                    jobs.remove(identifier, owner, model)
                case _:
                    job = jobs.spoil(identifier, owner, model)
        except RequestError as error:
            return self._told(error)
        except Exception:  # a fault in one question must not take the others' answers
            traceback.print_exc()
            return self._told(RequestError(500, FAULT))
        return self._told(job)

    def _told(self, found: Job | RequestError | None) -> dict[str, Any]:
        if isinstance(found, RequestError):
            return {"status": found.status, "error": found.message, "retry": retry_of(found)}
        if found is None:
            return {"status": 200}
        # The status of a job that failed is its answer's.
        return {
            "status": 200, "job": self.jobs.document(found), "answered": found.status,
            "size": found.answer_bytes,
        }  # fmt: skip

    def ended(self, worker: Runner, payload: bytes) -> None:
        """Take what a worker says of the job that it ran."""
        report = orjson.loads(payload)
        self._running.pop(worker.pid, None)

        def work() -> None:
            if report["outcome"] == "done":
                self.jobs.done(worker.pid, int(report["size"]))
            elif report["outcome"] == "failed":
                self.jobs.failed(worker.pid, int(report["status"]), str(report["error"]))
            else:
                self.jobs.give_back(worker.pid, behind=report["outcome"] == "later")

        def then(_: None) -> None:
            self._busy.discard(worker.pid)
            self.dispatch()

        self._submit(work, then, lambda: self._busy.discard(worker.pid))

    def gone(self, worker: Runner, *, asked: bool) -> None:
        """Note that a worker's process has ended; ``asked``: it was told to leave."""
        self._busy.discard(worker.pid)
        self._running.pop(worker.pid, None)
        self._submit(lambda: self.jobs.lost(worker.pid, asked=asked), lambda _: self.dispatch())

    def dispatch(self) -> None:
        """Give every worker that has none a job, as far as there are."""
        for worker in self._workers():
            if worker.state == "serving" and worker.pid not in self._busy:
                self._busy.add(worker.pid)
                self._give(worker)

    def _give(self, worker: Runner) -> None:
        def then(job: Job | None) -> None:
            if job is None:
                self._busy.discard(worker.pid)
                return
            if worker.state != "serving":
                # It was told to leave meanwhile, and begins nothing more.
                self._submit(lambda: self.jobs.give_back(worker.pid), lambda _: self.dispatch())
                return
            order = {
                "id": job.id, "owner": job.owner, "model": job.model, "size": job.request_bytes
            }  # fmt: skip
            self._running[worker.pid] = worker
            worker.tell(channel.JOB_RUN, orjson.dumps(order))

        self._submit(
            lambda: self.jobs.take(worker.pid, worker.versions),
            then,
            lambda: self._busy.discard(worker.pid),
        )

    # -- time ------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._submit(self._look, self._looked)
            self.dispatch()

    def _looked(self, numbers: dict[str, dict[str, float]]) -> None:
        self._numbers = numbers

    def _look(self) -> dict[str, dict[str, float]]:
        self.jobs.expire()
        return self.jobs.numbers()

    def metrics(self) -> Iterable[Metric]:
        """Yield the families of Prometheus."""
        numbers = {name: self._numbers.get(name, {}) for name in self._models}
        states = GaugeMetricFamily(
            "falaj_jobs", "Jobs that are kept, by state.", labels=("model", "state")
        )
        for name, each in numbers.items():
            for state in STATES:
                states.add_metric((name, state), each.get(state, 0))
        yield states
        for family_name, words, key in (
            ("falaj_jobs_bytes", "Bytes that jobs take.", "bytes"),
            ("falaj_jobs_oldest_seconds", "Age of the job that waits longest.", "oldest"),
        ):
            family = GaugeMetricFamily(family_name, words, labels=("model",))
            for name, each in numbers.items():
                family.add_metric((name,), each.get(key, 0))
            yield family
        ended = CounterMetricFamily(
            "falaj_jobs_finished", "Jobs that came to their end.", labels=("model", "state")
        )
        finished = self.jobs.finished
        for name in self._models:
            for state in (DONE, FAILED):
                ended.add_metric((name, state), finished.get(name, {}).get(state, 0))
        yield ended
