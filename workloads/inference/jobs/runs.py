"""A worker's side of jobs: requests to and about them, and the one that it runs.

A job is run as a request to ``infer`` is, by the same code, and one at a time: of jobs, no direct
request ever waits for more than that one.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import onnxruntime as ort
import orjson

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.inference.auth import Identity
from falaj.workloads.inference.connections.header_names import IDEMPOTENCY_KEY, MARK, REQUEST_ID
from falaj.workloads.inference.connections.http import Answer, Exchange
from falaj.workloads.inference.errors import FAULT, RequestError, retry_after
from falaj.workloads.inference.jobs.store import (
    DONE,
    FAILED,
    MAX_KEY_CHARACTERS,
    Bodies,
    new_id,
    served_no_more,
)
from falaj.workloads.inference.model_service import ModelService
from falaj.workloads.inference.process import channel
from falaj.workloads.inference.protocol import routes
from falaj.workloads.inference.protocol.routes import Router
from falaj.workloads.inference.service import Service

PATIENCE_SECONDS = 5.0
"""For which a job waits until no direct request does; then it joins their queue."""
BUSY_SECONDS = 1.0
"""Before a job that found the queue full, the runtime gone, or its request out of reach, is
given back."""
AGAIN_SECONDS = 1
"""What a client is told to wait that asks for a job which isn't done."""
MOST_BEING_KEPT = 256
"""Requests of a worker that wait for the disk, before new ones are answered with 503."""
_KEY = re.compile(rb"[!-~]{1,%d}" % MAX_KEY_CHARACTERS)
_LOOK_SECONDS = 0.02


class JobRuns:
    """Takes, tells of and runs the jobs that come to a worker.

    Args:
        service: the worker's, of its first model.
        bodies: where requests and answers are kept.
        further: of the further models that can be asked, by name.
        ask: sends the master a question and returns its answer.
        tell: sends the master a message.
        counted: sends it what is counted here.
    """

    def __init__(
        self,
        service: Service,
        bodies: Bodies,
        *,
        further: Mapping[str, ModelService],
        ask: Callable[[int, bytes], Awaitable[bytes]],
        tell: Callable[[int, bytes], None],
        counted: Callable[[], None],
    ) -> None:
        self._service = service
        self._bodies = bodies
        self._further = further
        self._ask = ask
        self._tell = tell
        self._counted = counted
        self._being_kept = 0
        # What runs, and by which options of the runtime.
        self._given = ""
        self._options = ort.RunOptions()
        self.running: asyncio.Task[None] | None = None
        """The run that is under way."""

    # -- requests --------------------------------------------------------------------------

    async def answer(self, exchange: Exchange) -> Answer:
        """Answer a request to or about jobs.

        Raises:
            RequestError: it is refused.
        """
        route, identity = exchange.route, exchange.identity
        assert route is not None  # noqa: S101 - admitted requests have a route
        assert identity is not None  # noqa: S101 - and one with a scope has a caller
        # A certificate and a token that say the same name aren't one caller.
        owner = f"{identity.means}:{identity.subject}"
        model = route.model or ""
        if route.name == routes.JOBS:
            return await self._accept(exchange, self._service_of(model), owner)
        asked = {"id": Router.job_of(exchange.url), "owner": owner, "model": model}
        if exchange.method == b"DELETE":
            await self._asked("remove", **asked)
            return Answer(200, orjson.dumps({"id": asked["id"], "state": "removed"}))
        found = await self._asked("find", **asked)
        if route.name == routes.JOB:
            state = found["job"]["state"]
            again = () if state in (DONE, FAILED) else (retry_after(AGAIN_SECONDS),)
            return Answer(200, orjson.dumps(found["job"]), headers=again)
        return await self._result(exchange, found, asked)

    def _service_of(self, model: str) -> ModelService:
        """Who runs a model. Raises RequestError: 404, it isn't served."""
        if model == self._service.model.name:
            return self._service
        if model not in self._further:
            raise served_no_more(model)
        return self._further[model]

    async def _asked(self, what: str, **facts: Any) -> dict[str, Any]:
        answer = await self._ask(channel.JOB_REQUEST, orjson.dumps({"do": what, **facts}))
        found: dict[str, Any] = orjson.loads(answer)
        if found["status"] != 200:
            retry = found["retry"]
            headers = () if retry is None else (retry_after(retry),)
            raise RequestError(found["status"], found["error"], headers=headers)
        return found

    async def _accept(self, exchange: Exchange, service: ModelService, owner: str) -> Answer:
        if self._being_kept >= MOST_BEING_KEPT:
            raise RequestError(
                503, f"{self._being_kept} requests are being kept already; try again",
                headers=(retry_after(AGAIN_SECONDS),),
            )  # fmt: skip
        self._being_kept += 1
        try:
            return await self._keep(exchange, service, owner)
        finally:
            self._being_kept -= 1

    async def _keep(self, exchange: Exchange, service: ModelService, owner: str) -> Answer:
        body = bytes(exchange.content)
        key = _key_of(exchange)
        # What can't be run is refused now, not later.
        service.schema.read(body, exchange.header_length)
        # A model may be named "versions".
        base = b"/v2/models/%b/versions/" % service.model.name.encode()
        versioned = routes.path_of(exchange.url).startswith(base)
        identifier = new_id()
        header = {
            "header_length": exchange.header_length,
            "request_id": exchange.headers.get(REQUEST_ID, b"").decode("latin-1"),
        }
        version = service.model.version if versioned else None
        about = orjson.dumps([service.model.name, version, exchange.header_length])
        digest = None if key is None else await asyncio.to_thread(_digest, about, body)
        try:
            found = await self._asked(
                "reserve", id=identifier, owner=owner, model=service.model.name, size=len(body),
                version=version, key=key, digest=digest,
            )  # fmt: skip
            if "job" not in found:
                await asyncio.to_thread(self._bodies.write_request, identifier, header, body)
                found = await self._asked("queue", id=identifier)
        except BaseException as error:
            # The master knows best how far it came; nobody waits for its answer.
            self._tell(
                channel.JOB_REQUEST, bytes(8) + orjson.dumps({"do": "drop", "id": identifier})
            )
            if isinstance(error, WorkloadError):
                _print(identifier, error)
                raise RequestError(
                    503, "the server can't keep the request now: its disk has no room for it, or "
                    "fails; try again later", headers=(retry_after(60),)
                ) from error  # fmt: skip
            raise
        # Of a request that was sent before, the job that was made then.
        identifier = found["job"]["id"]
        place = f"Location: /v2/models/{service.model.name}/jobs/{identifier}".encode()
        return Answer(202, orjson.dumps(found["job"]), headers=(place, retry_after(AGAIN_SECONDS)))

    async def _result(
        self, exchange: Exchange, found: dict[str, Any], asked: dict[str, str]
    ) -> Answer:
        job = found["job"]
        if job["state"] == DONE:
            self._hold(exchange, found["size"])
            try:
                header, body = await asyncio.to_thread(self._bodies.read_answer, job["id"])
            except IntegrityError as error:
                _print(job["id"], error)
                found = await self._asked("spoil", **asked)
                job = found["job"]
            except WorkloadError as error:
                _print(job["id"], error)
                raise RequestError(503, "the kept answer can't be read now; try again",
                                   headers=(retry_after(AGAIN_SECONDS),)) from error  # fmt: skip
            else:
                lines = tuple(line.encode("latin-1") for line in header["headers"])
                return Answer(200, body, header["type"].encode(), lines, held=True)
        if job["state"] == FAILED:
            raise RequestError(found["answered"], job["error"])
        raise RequestError(
            409, f"the job is {job['state']}; ask again when it is done",
            headers=(retry_after(AGAIN_SECONDS),),
        )  # fmt: skip

    def _hold(self, exchange: Exchange, size: int) -> None:
        """Count a result among what the worker holds, before it is read.

        Raises:
            RequestError: 503, there is no room for it.
        """
        bodies = self._service.bodies
        # A body that nobody has asked for.
        bodies.release(exchange)
        if size > bodies.limit:
            raise RequestError(
                503, f"the answer has {size} bytes, and max_inflight_bytes of the service is "
                f"{bodies.limit} now: who runs it has to raise that"
            )  # fmt: skip
        bodies.take(exchange, size)

    # -- runs ------------------------------------------------------------------------------

    def start(self, payload: bytes) -> None:
        """Run a job that the master gives."""
        order = orjson.loads(payload)
        self._given, self._options = order["id"], ort.RunOptions()
        self.running = asyncio.ensure_future(self._run(order))

    def stop(self, payload: bytes) -> None:
        """End the run of a job that was removed: before the next node of its graph."""
        if self.running is None or self._given != payload.decode():
            return
        self._options.terminate = True
        if self._service.runs.upstream is not None:
            self.running.cancel()

    async def _run(self, order: dict[str, Any]) -> None:
        try:
            outcome = await self._bounded(order)
        except (asyncio.CancelledError, _StoppedError):
            outcome = {"outcome": "stopped"}
        except Exception:  # a fault of ours must not leave the job running for ever
            traceback.print_exc()
            outcome = _failed(500, FAULT)
        # Who hears that it is done finds it counted.
        self._counted()
        self._tell(channel.JOB_ENDED, orjson.dumps(outcome))
        self.running = None

    async def _bounded(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run a job within what the worker may hold."""
        size = order["size"]
        bodies, holder = self._service.bodies, Exchange()
        if size > bodies.limit:
            return _failed(413, f"the request has {size} bytes, and {bodies.limit} are allowed "
                           "now (max_inflight_bytes): send fewer rows")  # fmt: skip
        if not bodies.fits(size):
            await asyncio.sleep(BUSY_SECONDS)
            return {"outcome": "again"}
        bodies.hold(holder, size)
        try:
            return await self._outcome(order["id"], order["owner"], order["model"])
        finally:
            bodies.release(holder)

    async def _outcome(self, identifier: str, owner: str, model: str) -> dict[str, Any]:
        try:
            service = self._service_of(model)
        except RequestError as error:
            return _failed(error.status, error.message)
        try:
            header, body = await asyncio.to_thread(self._bodies.read_request, identifier)
        except IntegrityError as error:
            _print(identifier, error)
            return _failed(500, "the kept request was changed, cut short or lost: send it again")
        except WorkloadError as error:
            _print(identifier, error)
            await asyncio.sleep(BUSY_SECONDS)
            return {"outcome": "later"}
        await self._wait_for_quiet()
        self._go_on()
        started = time.perf_counter()
        try:
            answer = await self._infer(service, header, body, owner, started)
        except RequestError as error:
            self._go_on()
            # Its frames know the request, which would stay until somebody looks for garbage.
            error.with_traceback(None)
            if error.status == 503:
                # Behind the others: it may be this request that a runtime beside fails on.
                await asyncio.sleep(BUSY_SECONDS)
                return {"outcome": "later"}
            service.not_inferred(error.status, time.perf_counter() - started)
            return _failed(error.status, error.message)
        self._go_on()
        return await self._answered(identifier, answer)

    def _go_on(self) -> None:
        if self._options.terminate:
            raise _StoppedError

    async def _answered(self, identifier: str, answer: Answer) -> dict[str, Any]:
        """Keep an answer, if it can be read afterwards."""
        size, most = len(answer.body), self._service.bodies.limit
        if size > most:
            return _failed(413, f"the answer has {size} bytes, and {most} are allowed "
                           "(max_inflight_bytes): send fewer rows")  # fmt: skip
        kept = {
            "type": answer.content_type.decode(),
            "headers": [line.decode("latin-1") for line in answer.headers],
        }
        try:
            await asyncio.to_thread(self._bodies.write_answer, identifier, kept, answer.body)
        except WorkloadError as error:
            _print(identifier, error)
            return _failed(503, "the server's disk had no room for the answer: send the request "
                           "again later")  # fmt: skip
        return {"outcome": "done", "size": size}

    async def _infer(
        self, service: ModelService, header: dict[str, Any], body: bytes, owner: str,
        started: float,
    ) -> Answer:  # fmt: skip
        # Another tier takes over what somebody waits for: a job can wait.
        headers = {MARK: b"1"}
        if header["request_id"]:
            headers[REQUEST_ID] = header["request_id"].encode("latin-1")
        means, _, subject = owner.partition(":")
        exchange = Exchange(
            headers=headers, content=body, header_length=header["header_length"],
            identity=Identity(subject, frozenset(), means, math.inf),
            started=started, options=self._options,
        )  # fmt: skip
        answer = service.infer(exchange)
        return answer if isinstance(answer, Answer) else await answer

    async def _wait_for_quiet(self) -> None:
        until = time.perf_counter() + PATIENCE_SECONDS
        # All models run in the same threads.
        every = [each.runs for each in (self._service, *self._further.values())]
        while any(each.waiting for each in every):
            if self._options.terminate or time.perf_counter() >= until:
                return
            await asyncio.sleep(_LOOK_SECONDS)


class _StoppedError(Exception):
    """The run's job was removed."""


def _key_of(exchange: Exchange) -> str | None:
    """Return the key of a request that may be sent again; None: it has none.

    Raises:
        RequestError: 400, it is too long, or isn't of visible ASCII.
    """
    given = exchange.headers.get(IDEMPOTENCY_KEY.lower().encode())
    if given is None:
        return None
    if not _KEY.fullmatch(given):
        raise RequestError(
            400, f"{IDEMPOTENCY_KEY} must be 1 to {MAX_KEY_CHARACTERS} visible ASCII "
            f"characters without spaces; got {len(given)} bytes"
        )  # fmt: skip
    return given.decode("ascii")


def _digest(about: bytes, body: bytes) -> str:
    digest = hashlib.sha256(about)
    digest.update(b"\0")
    digest.update(body)
    return digest.hexdigest()


def _failed(status: int, error: str) -> dict[str, Any]:
    return {"outcome": "failed", "status": status, "error": error}


def _print(identifier: str, error: WorkloadError) -> None:
    print(f"job {identifier}: {error}"[:500], file=sys.stderr, flush=True)
