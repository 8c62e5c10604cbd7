"""What one model answers in one worker: inferences, what it is, and what is known of it.

The worker's own service has connections, callers and records beside the first model; a further
model, and a version that nobody is connected to, are this alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import orjson

from falaj.workloads.engines import USUAL
from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference.connections.header_names import REQUEST_ID
from falaj.workloads.inference.connections.http import Answer, Exchange
from falaj.workloads.inference.drift import answers, labels
from falaj.workloads.inference.drift.counting import Counting
from falaj.workloads.inference.drift.reference import Reference
from falaj.workloads.inference.errors import RequestError, retry_after
from falaj.workloads.inference.language.engine import Engine
from falaj.workloads.inference.language.generation import Language
from falaj.workloads.inference.metrics import Counters
from falaj.workloads.inference.models.batching import Plan
from falaj.workloads.inference.models.model import Model
from falaj.workloads.inference.models.remote import Overflow, RelayedModel, Remote
from falaj.workloads.inference.process import channel
from falaj.workloads.inference.protocol import extensions, oip, openapi, routes
from falaj.workloads.inference.protocol.oip import Inference, Schema
from falaj.workloads.inference.runs import Runs
from falaj.workloads.inference.settings import Settings
from falaj.workloads.registry.store import Store

OF_JOBS = (routes.JOBS, routes.JOB, routes.JOB_RESULT)
OF_WATCHED = (routes.DRIFT, routes.FEEDBACK)
"""Routes that are there where settings ask for them; else they are answered with 404."""
OF_STATISTICS = (routes.STATISTICS, routes.VERSION_STATISTICS)
URGENT = "urgent"
"""Scope of callers whose requests may go before others."""
NOT_ALLOWED = (401, 403)
"""Statuses of callers without the right to ask, whose requests aren't failures."""


@dataclass(frozen=True)
class Watched:
    """How a worker's rows, answers and labels come to the master.

    Attributes:
        reference: of the package.
        counting: of rows.
        sender: of answers to requests with ids; None where nothing says what an answer is.
        ask: sends the master a message of a kind, and returns its answer.
    """

    reference: Reference
    counting: Counting
    sender: labels.Sender | None
    ask: Callable[[int, bytes], Awaitable[bytes]]


def _name_of(header: bytes) -> str:
    """Return a request's name; none that a label couldn't give: too long, or no UTF-8."""
    try:
        name = header.decode()
    except UnicodeDecodeError:
        return ""
    return name if len(name) <= oip.MAX_ID_CHARACTERS else ""


class ModelService:
    """The state of one model.

    Args:
        settings: of the service, or of a further model.
        model: runs here, or says what is asked of who runs it.
        pool: runs it here.
        threads: of the pool.
        statistics: returns what is counted across workers, JSON with snapshots of `Counters` by
            version. Default: what is counted here alone.
        upstream: runs the model instead, beside. Default: the pool does.
        overflow: where requests go that would wait too long. Default: nowhere.
        watched: how rows, answers and labels are counted. Default: they aren't.
        batching: whether requests run together. Default: nothing is said of it.
        language: of the model, whose texts are generated. Default: it has none.
        engine: generates texts instead, beside. Default: the pool does.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        model: Model | RelayedModel,
        pool: ThreadPoolExecutor,
        threads: int,
        statistics: Callable[[], Awaitable[bytes]] | None = None,
        upstream: Remote | None = None,
        overflow: Overflow | None = None,
        watched: Watched | None = None,
        batching: Plan | None = None,
        language: Language | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.model = model
        self.schema = model.schema
        self.batching = batching
        self.watched = watched
        self.counters = Counters()
        self.leaving = False
        """Whether the server is about to go, and nothing is ready any more."""
        self.jobs: Callable[[Exchange], Awaitable[Answer]] | None = None
        """Answers requests to and about jobs; None: none are taken here."""
        self._counted = answers.counted(list(self.schema.outputs.values()))
        self.schema.takes_priority = settings.priorities
        self.schema.takes_timeout = batching is not None and batching.rows > 0
        self.runs = Runs(
            self, pool=pool, threads=threads, upstream=upstream, overflow=overflow,
            batching=batching, language=language, engine=engine,
        )  # fmt: skip
        # A runtime beside has to say so first.
        self.runtime_ready = self._runs_here
        self._statistics = statistics or self._own_statistics
        #: What isn't answered at once, by route.
        self._later: dict[str, Callable[[Exchange], Awaitable[Answer]]] = {
            **dict.fromkeys(
                (routes.STATISTICS, routes.VERSION_STATISTICS), self._statistics_answer
            ),
            **dict.fromkeys(OF_WATCHED, self._watched_answer),
            **dict.fromkeys(OF_JOBS, self._jobs_answer),
        }

    # -- requests --------------------------------------------------------------------------

    def handle(self, exchange: Exchange) -> Answer | Awaitable[Answer]:
        """Answer an admitted request, at once or later.

        Raises:
            RequestError: the request is refused.
        """
        assert exchange.route is not None  # noqa: S101 - admitted requests have a route
        name = exchange.route.name
        if name == routes.INFER:
            return self.infer(exchange)
        later = self._later.get(name)
        if later is not None:
            return later(exchange)
        if name == routes.MODEL_READY:
            said = {"name": self.model.name, "ready": self.runtime_ready}
            return Answer(200 if self.runtime_ready else 503, orjson.dumps(said))
        if name == routes.OPENAPI:
            return Answer(200, self._openapi)
        return Answer(200, orjson.dumps(self._document(name, exchange)))

    def _document(self, name: str, exchange: Exchange) -> Any:
        """What is said at the route of a name."""
        del exchange
        model = self.model
        if name == routes.MODEL:
            return {
                "name": model.name,
                "versions": [model.version],
                "platform": "onnx_onnxv1",
                **model.schema.metadata(),
            }
        return extensions.configuration(
            model.schema,
            self.settings.workers if self._runs_here else None,
            self.batching,
            engine=model.engine if isinstance(model, Model) else USUAL,
        )

    @property
    def _runs_here(self) -> bool:
        return self.runs.upstream is None and self.runs.engine is None

    @property
    def _places(self) -> Mapping[str, routes.Route]:
        """The paths that a model like this one can have."""
        return routes.places_of(self.model.name, self.model.version)

    def _is_off(self, route: str) -> bool:
        """Whether the settings or the model leave a route out."""
        return (
            (route in OF_WATCHED and self.watched is None)
            or (route in OF_JOBS and self.jobs is None)
            or (route == routes.INFER and self.runs.engine is not None)
        )

    @property
    def _offered(self) -> dict[str, routes.Route]:
        """The paths that are answered, by the settings and the model."""
        return {path: each for path, each in self._places.items() if not self._is_off(each.name)}

    @cached_property
    def _openapi(self) -> bytes:
        """The document, of what the settings have answered; of a wide model, it takes 20 ms."""
        document = openapi.describe(
            self._offered,
            self.schema,
            certificates=self.settings.tls.client_ca is not None,
            most_tokens=self.limits.max_tokens,
            key=self.settings.experiment.key if self.settings.experiment is not None else None,
        )
        return orjson.dumps(document)

    async def _own_statistics(self) -> bytes:
        return orjson.dumps({self.model.version: self.counters.snapshot()})

    def index(self, only_ready: bool) -> list[dict[str, str]]:
        """Return what the repository's index says of the model.

        Args:
            only_ready: leave out what can't be asked.

        Raises:
            RequestError: 503, the registry can't be read.
        """
        try:
            versions = Store(self.settings.registry).versions(self.model.name)
        except (OSError, WorkloadError) as error:
            print(f"can't read the registry: {error}"[:300], file=sys.stderr, flush=True)
            raise RequestError(503, "the registry can't be read now; try again",
                               headers=(retry_after(1),)) from error  # fmt: skip
        ready = self.runtime_ready and not self.leaving
        return extensions.index(self.schema, versions, ready=ready, only_ready=only_ready)

    async def statistics(self, version: str | None = None) -> list[Any]:
        """Return what the statistics say of the model, or of one of its versions alone.

        Raises:
            RequestError: 503, what is counted across workers isn't to be had now.
        """
        totals = orjson.loads(await self._statistics())
        return extensions.statistics(
            self.model.name, totals, version=version, runs_here=self._runs_here
        )

    async def _statistics_answer(self, exchange: Exchange) -> Answer:
        assert exchange.route is not None  # noqa: S101 - admitted requests have a route
        of_version = exchange.route.name == routes.VERSION_STATISTICS
        found = await self.statistics(self.model.version if of_version else None)
        return self._statistics_of(found)

    @staticmethod
    def _statistics_of(models: list[Any]) -> Answer:
        return Answer(200, orjson.dumps({"model_stats": models}))

    async def _jobs_answer(self, exchange: Exchange) -> Answer:
        if self.jobs is None:
            raise RequestError(
                404, "no jobs are taken here: the service's settings have no section jobs"
            )
        return await self.jobs(exchange)

    async def _watched_answer(self, exchange: Exchange) -> Answer:
        watched = self.watched
        if watched is None:
            raise RequestError(
                404,
                "drift isn't watched of this model: the service's settings have drift.enabled, or "
                "drift of a further model, as false",
            )
        assert exchange.route is not None  # noqa: S101 - admitted requests have a route
        if exchange.route.name == routes.DRIFT:
            of = channel.of_model(self.model.name, b"")
            return Answer(200, await watched.ask(channel.DRIFT_REQUEST, of))
        given = labels.parse(exchange.content, watched.reference.answers)
        if watched.sender is not None:
            # Labels may follow at once.
            watched.sender.flush()
        of = channel.of_model(self.model.name, orjson.dumps(given))
        return Answer(200, await watched.ask(channel.FEEDBACK, of))

    # -- inferences ------------------------------------------------------------------------

    def infer(self, exchange: Exchange) -> Answer | Awaitable[Answer]:
        """Check the tensors and run the model: here if it is quick, else as `Runs` decides.

        A run that may be told to stop isn't run here, where nobody could tell it.
        """
        body, header_length = exchange.content, exchange.header_length
        model = self.model
        row = model.row
        named = exchange.headers.get(REQUEST_ID)
        if row is not None and named is None and exchange.options is None and model.is_quick(1):
            answered = row.answer(body, header_length)
            if answered is not None:
                self._ran(exchange, 1, row.run_seconds)
                content, length, value = answered
                watched = self.watched
                if value is not None:
                    self.counters.answers[answers.bucket(value)] += 1
                if watched is not None:
                    watched.counting.row(row)
                return Answer.of_tensors(content, length)
        inference = self.schema.read(body, header_length)
        if row is not None and header_length is not None:
            row.learn(body, header_length, inference, self.schema)
        inference.size = len(body)
        if named is not None and inference.identifier is None:
            inference.request_id = _name_of(named)
        if exchange.identity is not None:
            inference.caller = exchange.identity.subject
            if inference.rank < oip.USUAL_RANK and exchange.options is None:
                exchange.identity.require(URGENT, self.model.name)
        inference.options = exchange.options
        if exchange.options is None and self.model.is_quick(inference.rows):
            start = time.perf_counter()
            results = self.run(inference)
            end = time.perf_counter()
            answer = self.inferred(inference, results)
            self._ran(exchange, inference.rows, end - start)
            return answer
        return self.runs.start(exchange, inference)

    def _ran(self, exchange: Exchange, rows: int, seconds: float) -> None:
        self.model.observe(rows, seconds)
        self.counters.inferred(time.perf_counter() - exchange.started, seconds, rows)

    def run(self, inference: Inference) -> Any:
        """Run the model; a failure inside the runtime is told to the client without its detail."""
        try:
            return self.model.run(inference)
        except Exception as error:  # the runtime's exceptions share no public base class
            if inference.options is None or not inference.options.terminate:
                print(f"the model failed on a request: {error}"[:500], file=sys.stderr, flush=True)
            raise RequestError(500, "the model could not run on this input") from error

    def inferred(self, inference: Inference, results: Any, schema: Schema | None = None) -> Answer:
        """Return the answer; ``schema`` is another version's, where that ran the model."""
        body, header_length = (schema or self.schema).write(inference, results)
        watched = self.watched
        if watched is not None:
            watched.counting.add(inference, results if schema is None else None)
            identifier = inference.identifier or inference.request_id
            if identifier and watched.sender is not None and schema is None:
                watched.sender.add(identifier, inference.caller, inference.outputs, results)
        names = inference.outputs or self.schema.output_names
        if schema is None and self._counted in names:
            values = np.asarray(results[names.index(self._counted)])
            answers.count(values, self.counters.answers)
        return Answer.of_tensors(body, header_length)

    def not_inferred(self, status: int, seconds: float) -> None:
        """Count an inference that wasn't answered; one that was is counted where it ran."""
        self.counters.responded(routes.INFER, status)
        if status not in NOT_ALLOWED:
            self.counters.not_inferred(seconds)
