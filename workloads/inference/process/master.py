"""The master process: listening socket, workers, versions, logs, and `state.json`.

All workers accept from the one socket, so a connection that waits in its queue is never lost
when a worker goes (it would be with one SO_REUSEPORT socket per worker).

It does no inference and decrypts no model. A *generation* is the workers of one configuration
and version. A new one is loaded and warmed up beside the old one, then accepts, and only then
the old one drains; if it can't be loaded, the old one goes on and `state.json` says why.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from prometheus_client.core import Metric

from falaj.workloads.documents import is_dictionary
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import fingerprint, make_private_folder, write_json_atomic
from falaj.workloads.inference import settings
from falaj.workloads.inference.connections.listening import Listener, server_context
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.jobs.queue import JobQueue
from falaj.workloads.inference.jobs.store import Jobs, clear
from falaj.workloads.inference.metrics import Totals
from falaj.workloads.inference.models.memory import room_of
from falaj.workloads.inference.process import channel
from falaj.workloads.inference.process.further import Asked, FurtherModels
from falaj.workloads.inference.process.handles import Generation, WorkerHandle
from falaj.workloads.inference.process.logs import Logs
from falaj.workloads.inference.process.outage import Outage
from falaj.workloads.inference.process.pointer import Pointer
from falaj.workloads.inference.process.second import SecondVersions
from falaj.workloads.inference.process.watched import WatchedModels
from falaj.workloads.inference.settings import Settings
from falaj.workloads.registry.keyring import KeyRing


class StateFile:
    """Writes the state atomically whenever it changes; a full disk is told once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written: dict[str, Any] = {}
        self._told = False
        self._since = ""

    def write(
        self,
        *,
        port: int,
        status: str,
        model: str,
        version: int | None,
        workers: list[dict[str, Any]],
        error: str | None,
        numbers: Mapping[str, int],
        shadow: Mapping[str, Any] | None,
        experiment: Mapping[str, Any] | None,
        memory_bytes: int,
        models: Mapping[str, Any],
        models_room_bytes: int | None,
        models_numbers: Mapping[str, Any],
    ) -> None:
        """Write the state, unless nothing in it has changed."""
        facts: dict[str, Any] = {
            "pid": os.getpid(),
            "port": port,
            "status": status,
            "model": model,
            "version": version,
            "workers": workers,
            "error": error,
            "aliases_numbers": dict(numbers),
            "shadow": shadow,
            "experiment": experiment,
            "memory_bytes": memory_bytes,
            "models": models,
            "models_room_bytes": models_room_bytes,
            "models_numbers": models_numbers,
        }
        if facts == self._written:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self._written.get("status") != status or self._written.get("version") != version:
            self._since = now
        try:
            make_private_folder(self.path.parent)
            write_json_atomic(self.path, facts | {"since": self._since, "updated": now})
        except WorkloadError as problem:
            if not self._told:
                self._told = True
                print(f"warning: {problem}; serving goes on", file=sys.stderr, flush=True)
            return
        self._told = False
        self._written = facts


BACKLOG = 1024
RETRY_SECONDS = 5.0
"""How long the workers of a killed master may keep the port."""


def listen(host: str, port: int, *, patient: bool = False) -> socket.socket:
    """Bind and listen; port 0 takes any free one.

    Args:
        host: name or address; the first that it resolves to is used.
        port: TCP port.
        patient: try for RETRY_SECONDS when the port is taken.

    Raises:
        InferenceError: the address is unknown, or another program holds the port.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise InferenceError(f"the host '{host}' is unknown: {error.strerror}") from error
    deadline = time.monotonic() + (RETRY_SECONDS if patient else 0)
    while True:
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            raise _explained(host, port, error) from error
        listener.setblocking(False)
        return listener


def _explained(host: str, port: int, error: OSError) -> InferenceError:
    if error.errno == errno.EADDRINUSE:
        return InferenceError(
            f"port {port} on {host} is in use by another program; stop it, or choose another port"
        )
    if error.errno == errno.EACCES:
        return InferenceError(f"port {port} needs rights that this user lacks; use one over 1023")
    return InferenceError(f"can't listen on {host} port {port}: {error.strerror}")


POLL_SECONDS = 0.5
QUICK_DEATH_SECONDS = 30.0
"""Workers that end sooner than this after another one are started again ever more slowly."""
MAX_RESTART_DELAY = 10.0
ACCEPT_SECONDS = 60.0


class Master:
    """Runs a service until it is told to leave."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = settings.read(path)
        self._state = StateFile(self.settings.state)
        self._totals = Totals(self.settings.model)
        self._totals.more = self._more_metrics
        self._watched = WatchedModels(self._event)
        self._jobs: JobQueue | None = None
        self._jobs_of: tuple[Path, Path] | None = None
        """Folder and key ring of `_jobs`."""
        self._second = SecondVersions(path, self._totals, self._spawn, self._event)
        self._logs: Logs | None = None
        self._current: Generation | None = None
        self._draining: list[WorkerHandle] = []
        self._starting: list[WorkerHandle] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._forced = False
        self._leaving = False
        self._status = "starting"
        self._before = _last_state(self.settings.state)
        self._pointer = Pointer(self._before.get("aliases_numbers"))
        self._further = FurtherModels(self._before.get("models_numbers"))
        self._told_further: dict[str, tuple[Any, ...]] = {}
        self._refused: str | None = None  # why a version or configuration is not served
        self._broken: str | None = None  # why an ended worker has no successor
        self._failed_wish: tuple[object, ...] | None = None
        self._port = self.settings.port
        self._outage: Listener | None = None
        self._last_death = 0.0
        self._quick_deaths = 0

    # -- life --------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until SIGTERM or SIGINT; returns the exit status.

        Raises:
            WorkloadError: the service can't be started at all; `state.json` has the reason.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._leave)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        try:
            await self._start()
        except WorkloadError as error:
            self._status, self._refused = "failed", str(error)
            self._write_state()
            raise
        while not self._leaving:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            if not self._leaving:
                await self._follow()
                if (current := self._current) is not None:
                    self._second.follow(current, self._watched.labels, self._watched.memory)
                    self._write_state()
                await self._watched.keep()
        await self._stop()
        return 0

    async def _start(self) -> None:
        patient = self._was_killed()
        bound = listen(self.settings.host, self.settings.port, patient=patient)
        self._port = int(bound.getsockname()[1])
        self._logs = Logs(self.settings.logs)
        self._logs.event("started", service=self.settings.name, port=self._port, pid=os.getpid())
        self._write_state()
        version = self._pointer.version(self.settings)
        further = self._further.ask(self.settings)
        wish = self._wish(self.settings, version, further)
        generation = Generation(self.settings, version, wish, bound, further=further)
        problem = await self._load(generation)
        if self._leaving:
            return
        if problem is not None:
            self._logs.event("version refused", version=version, reason=problem)
            raise InferenceError(problem)
        self._switch(generation)
        # Before they accept, the workers hear of a second version.
        self._wake.set()

    def _was_killed(self) -> bool:
        """Tell whether a master before this one left its state as if it were serving."""
        return self._before.get("status") in {"serving", "starting", "draining"}

    def _leave(self) -> None:
        self._leaving = True
        self._wake.set()
        for worker in self._starting:
            worker.kill()

    def _reload(self) -> None:
        self._forced = True
        self._wake.set()

    async def _stop(self) -> None:
        self._status = "draining"
        self._end_outage()
        self._write_state()
        current = self._current
        workers = list(self._draining)
        if current is not None:
            workers += current.workers
            current.workers.clear()
        seconds = self.settings.limits.drain_seconds
        self._draining = workers
        await asyncio.gather(*(worker.drain(seconds, leaving=True) for worker in workers))
        # Until then a candidate answers its requests, and what workers counted of it comes in.
        self._second.close()
        if self._jobs is not None:
            await self._jobs.close()
        await self._watched.keep(now=True)
        if self._logs is not None:
            self._logs.event("stopped", pid=os.getpid())
            self._logs.close()
        self._status, self._draining = "stopped", []
        self._write_state()

    # -- versions ----------------------------------------------------------------------------

    def _wish(
        self, wanted: Settings, version: int, further: Mapping[str, Asked]
    ) -> tuple[object, ...]:
        """Return what the workers depend on: a difference calls for new ones."""
        tls = wanted.tls
        files = (tls.certificate, tls.private_key, tls.client_ca, wanted.auth.jwks)
        others = tuple((name, each.version) for name, each in further.items())
        return (wanted.digest, version, others, *(fingerprint(path) for path in files if path))

    async def _follow(self) -> None:
        """Look at the configuration and the alias, and move to what they ask for."""
        forced, self._forced = self._forced, False
        current = self._current
        if current is None:
            return
        try:
            wanted = settings.read(self.path)
            version = self._pointer.version(wanted)
            further = self._further.ask(wanted)
            wish = self._wish(wanted, version, further)
        except WorkloadError as error:
            self._complain(str(error))
            return
        if not forced and wish in (current.wish, self._failed_wish):
            if wish == current.wish:
                # What failed before may be asked for again, and is then tried again.
                self._failed_wish = None
                self._tell_further()
                self._complain(None)
            return
        try:
            bound = self._listener_for(wanted, current)
        except InferenceError as error:
            self._failed_wish = wish
            self._complain(str(error))
            return
        generation = Generation(wanted, version, wish, bound, further=further)
        problem = await self._load(generation)
        if problem is None and not self._leaving:
            self._failed_wish = None
            self._switch(generation)
        elif problem is not None and not self._leaving:
            self._failed_wish = wish
            self._totals.failed_versions += 1
            if bound is not current.listener:
                bound.close()
            self._event("version refused", version=version, reason=problem)
            self._complain(problem)

    def _complain(self, error: str | None) -> None:
        """Tell that a version or configuration was refused; None when what is asked for serves."""
        if error is not None and error != self._refused:
            served = self._current.version if self._current is not None else None
            print(f"error: {error}; version {served} goes on", file=sys.stderr, flush=True)
        self._refused = error
        self._write_state()

    def _lament(self, error: str | None) -> None:
        """Tell why no worker can take the place of an ended one; None when one has."""
        if error is not None and error != self._broken:
            print(f"error: {error}; trying again", file=sys.stderr, flush=True)
        self._broken = error
        self._write_state()

    def _answer_outage(self, generation: Generation) -> None:
        """Answer for the workers that aren't there."""
        if self._outage is not None or generation.workers or self._leaving:
            return
        limits = generation.settings.limits
        try:
            context = server_context(generation.settings.tls)
        except InferenceError as error:
            print(f"error: {error}; requests wait", file=sys.stderr, flush=True)
            return
        self._outage = Listener(
            generation.listener, context, lambda: Outage(limits),
            handshake_seconds=limits.header_timeout_seconds,
        )  # fmt: skip

    def _end_outage(self) -> None:
        if self._outage is not None:
            self._outage.close()
            self._outage = None

    def _listener_for(self, wanted: Settings, current: Generation) -> socket.socket:
        before = current.settings
        if (wanted.host, wanted.port) == (before.host, before.port):
            return current.listener
        return listen(wanted.host, wanted.port)

    async def _load(self, generation: Generation) -> str | None:
        """Start the workers of a generation up to readiness; return what went wrong, if it did."""
        workers = [self._worker(generation) for _ in range(generation.settings.workers)]
        self._starting = workers
        self._write_state()
        results = await asyncio.gather(*(self._ready(w, generation) for w in workers))
        problems = [worker.error for worker in workers if worker.error]
        if all(results) and not self._leaving:
            try:
                await self._keep_jobs(generation.settings)
            except WorkloadError as error:
                problems = [str(error)]
            else:
                generation.workers = workers
                generation.signature = workers[0].signature
                generation.memory = workers[0].memory
        self._starting = []
        if generation.workers and not self._leaving:
            return None
        for worker in workers:
            worker.kill()
        return problems[0] if problems else "the workers could not be started"

    async def _keep_jobs(self, wanted: Settings) -> None:
        """Have what jobs ask for; where none are taken any more, remove what is kept."""
        folder, before = wanted.jobs_folder, self._jobs
        if wanted.jobs is None:
            self._jobs = self._jobs_of = None
            if before is not None:
                await before.close()
            await asyncio.to_thread(clear, folder)
            return
        if before is not None and self._jobs_of == (folder, wanted.keyring):
            before.jobs.settings = wanted.jobs
            return
        jobs = Jobs(folder, KeyRing.open(wanted.keyring), wanted.jobs)
        if before is not None and self._jobs_of is not None and self._jobs_of[0] == folder:
            # It keeps others out of its folder.
            self._jobs = self._jobs_of = None
            await before.close()
            before = None
        await asyncio.to_thread(jobs.open)
        self._jobs = JobQueue(
            jobs, models=wanted.all_models, event=self._event,
            workers=lambda: self._current.workers if self._current is not None else (),
        )  # fmt: skip
        self._jobs_of = (folder, wanted.keyring)
        if before is not None:
            await before.close()

    def _worker(self, generation: Generation) -> WorkerHandle:
        return WorkerHandle(
            generation.settings.model, generation.version, self._received, self._ended
        )

    async def _ready(self, worker: WorkerHandle, generation: Generation) -> bool:
        await worker.start(
            generation.listener, str(self.path), generation.settings.content,
            further=generation.further,
        )  # fmt: skip
        return await worker.reach("ready", seconds=generation.settings.limits.load_seconds)

    def _switch(self, generation: Generation) -> None:
        """Let the new generation accept, then the old one drain."""
        self._end_outage()
        before, self._current = self._current, generation
        self.settings = generation.settings
        self._totals.model, self._totals.version = self.settings.model, generation.version
        if self._jobs is not None:
            self._jobs.serve(self.settings.all_models)
        self._port = int(generation.listener.getsockname()[1])
        self._status, self._refused, self._broken = "serving", None, None
        self._event(
            "serving", model=self.settings.model, version=generation.version,
            engine=generation.workers[0].engine,
        )  # fmt: skip
        self._further.switched(
            generation.settings, [worker.further for worker in generation.workers]
        )
        self._watched.follow(generation, self._further.watchable())
        self._tell_further()
        old = before.workers if before is not None else []
        self._draining += old
        self._spawn(self._hand_over(generation.workers, old, generation.settings))
        if before is not None and before.listener is not generation.listener:
            before.listener.close()

    def _more_metrics(self) -> Iterator[Metric]:
        for each in (self._watched, self._jobs, self._second):
            if each is not None:
                yield from each.metrics()

    async def _hand_over(
        self, new: list[WorkerHandle], old: list[WorkerHandle], by: Settings
    ) -> None:
        for worker in new:
            worker.accept()
        await asyncio.gather(
            *(worker.reach("serving", "draining", seconds=ACCEPT_SECONDS) for worker in new)
        )
        self._write_state()
        await asyncio.gather(
            *(worker.drain(by.limits.drain_seconds, leaving=False) for worker in old)
        )

    # -- further models ----------------------------------------------------------------------

    def _tell_further(self) -> None:
        """Tell of further models that can be asked now, or can't, and why."""
        facts = self._further.facts()
        self._totals.further = {name: each["version"] for name, each in facts.items()}
        if (current := self._current) is not None:
            workers, own = current.settings.workers, {self.settings.model: current.memory}
            of_further = {name: each["memory_bytes"] for name, each in facts.items()}
            self._totals.memory = {
                name: workers * bytes_ for name, bytes_ in {**of_further, **own}.items()
            }
        told = {name: (each["version"], each["error"]) for name, each in facts.items()}
        for name, (version, error) in told.items():
            if self._told_further.get(name) == (version, error):
                continue
            state = facts[name]["state"]
            if error is not None:
                rest = "can't be asked" if version is None else f"stays at version {version}"
                print(f"error: the model {name} {rest}: {error}", file=sys.stderr, flush=True)
            self._event(
                "further model", model=name, version=version, state=state,
                **({"reason": error} if error is not None else {}),
            )  # fmt: skip
        self._told_further = told

    # -- workers -----------------------------------------------------------------------------

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _received(self, worker: WorkerHandle, kind: int, payload: bytes) -> None:
        logs = self._logs
        if kind == channel.ACCESS_LINES and logs is not None:
            header, _, lines = payload.partition(b"\n")
            logs.access(lines, worker=worker.pid, **orjson.loads(header))
            self._totals.dropped_lines = logs.dropped
        elif kind == channel.COUNTERS:
            counted = orjson.loads(payload)
            for name, each in counted.pop("further", {}).items():
                self._totals.update(worker.pid, each["version"], each["counts"], name)
            self._totals.update(worker.pid, worker.version, counted, worker.model)
        elif kind == channel.METRICS_REQUEST:
            worker.answer(payload[:8], self._totals.render())
        elif kind == channel.STATISTICS_REQUEST:
            found = self._totals.by_version(payload[8:].decode())
            worker.answer(payload[:8], orjson.dumps(found))
        elif kind == channel.JOB_REQUEST and self._jobs is not None:
            self._jobs.asked(worker, payload)
        elif kind == channel.JOB_ENDED and self._jobs is not None:
            self._jobs.ended(worker, payload)
        elif not self._second.take(worker, kind, payload):
            self._watched.take(worker, kind, payload, self._second.labels)

    def _ended(self, worker: WorkerHandle) -> None:
        self._totals.ended(worker.pid)
        self._second.gone(worker)
        if self._jobs is not None:
            asked = self._leaving or worker in self._draining
            self._jobs.gone(worker, asked=asked)
        if worker in self._draining:
            self._draining.remove(worker)
        generation = self._current
        if generation is not None and worker in generation.workers and not self._leaving:
            generation.workers.remove(worker)
            self._totals.worker_restarts += 1
            self._event("worker ended", worker=worker.pid, version=worker.version)
            self._spawn(self._replace(generation))
        self._write_state()

    async def _replace(self, generation: Generation) -> None:
        """Start a worker in the place of one that ended unasked; more slowly if it goes on so."""
        now = time.monotonic()
        quick = now - self._last_death < QUICK_DEATH_SECONDS
        self._quick_deaths = self._quick_deaths + 1 if quick else 0
        self._last_death = now
        delay = 0.1 * 2 ** (self._quick_deaths - 3) if self._quick_deaths > 2 else 0
        while generation is self._current and not self._leaving:
            await asyncio.sleep(min(delay, MAX_RESTART_DELAY))
            worker = self._worker(generation)
            self._starting.append(worker)
            ready = await self._ready(worker, generation)
            if worker in self._starting:
                self._starting.remove(worker)
            if generation is not self._current or self._leaving:
                worker.kill()
                return
            if ready:
                self._end_outage()
                generation.workers.append(worker)
                self._second.tell(worker)
                worker.accept()
                await worker.reach("serving", "draining", seconds=ACCEPT_SECONDS)
                self._lament(None)
                return
            worker.kill()
            self._lament(worker.error or "a worker could not be started again")
            self._answer_outage(generation)
            delay = max(1.0, delay * 2)

    # -- records -----------------------------------------------------------------------------

    def _event(self, name: str, **fields: Any) -> None:
        if self._logs is not None:
            self._logs.event(name, **fields)

    def _write_state(self) -> None:
        current = self._current
        workers = [*(current.workers if current is not None else ()), *self._draining]
        workers += [worker for worker in self._starting if worker not in workers]
        status = self._status
        if status == "serving" and current is not None and not current.workers:
            status = "failed" if self._broken else "starting"
        self._state.write(
            port=self._port,
            status=status,
            model=self.settings.model,
            version=current.version if current is not None else None,
            workers=[worker.facts() for worker in workers],
            error=self._broken or self._refused,
            numbers=self._pointer.numbers,
            **self._second.facts(),
            memory_bytes=current.memory if current is not None else 0,
            models=self._further.facts(),
            models_room_bytes=room_of(self.settings) if self.settings.models else None,
            models_numbers=self._further.numbers,
        )


def _last_state(path: Path) -> dict[str, Any]:
    try:
        state = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return state if is_dictionary(state) else {}
