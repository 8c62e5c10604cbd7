"""Requests that are answered later: what is kept of them, sealed, and what becomes of each.

One folder, with files for each job::

    ID.state.sealed      whose it is and how far it has come (JSON)
    ID.request.sealed    what was asked: header (JSON, after its length) | body
    ID.answer.sealed     what was answered, likewise

The master alone decides, writes states and removes (`Jobs`); workers write a request before its
state is there, and an answer before its state says so. So what a state says is there, and what no
state names is of something that was interrupted. A job runs at least once: where a worker or the
server died, again.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import secrets
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import orjson

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import TEMPORARY_PREFIX, make_private_folder, shred, storage_errors
from falaj.workloads.inference.errors import InferenceError, RequestError, retry_after
from falaj.workloads.inference.settings import JobSettings
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import SUFFIX, seal, unseal

QUEUED: Final = "queued"
RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"
STATES: Final = (QUEUED, RUNNING, DONE, FAILED)

MOST_TRIES: Final = 3
"""So often may a worker die of a job before the job has failed."""
OVERHEAD_BYTES: Final = 4_096
"""What a job takes beside bodies: its state, headers, wrapped keys."""
FULL_RETRY_SECONDS: Final = 60
"""What a client is told to wait at most where there is no room for its request."""
MAX_KEY_CHARACTERS: Final = 255
"""Of an idempotency key."""
SIDE_BY_SIDE: Final = 16
"""States that are written at a time."""
_STATE, _REQUEST, _ANSWER = "state", "request", "answer"
_FILE = re.compile(rf"([0-9a-f]{{32}})\.({_STATE}|{_REQUEST}|{_ANSWER}){re.escape(SUFFIX)}")
_ID = re.compile(r"[0-9a-f]{32}")
_LENGTH = struct.Struct(">I")
_MOST_WRITTEN: Final = 2**53
"""Numbers beyond it are none that a state was written with."""
_LAST_MOMENT: Final = 2**36
"""Likewise times, in seconds since the epoch: of the year 4147."""


def new_id() -> str:
    """Return an id that nobody can guess: 128 random bits."""
    return secrets.token_hex(16)


@dataclass(frozen=True, kw_only=True)
class Job:
    """How far a job has come.

    Attributes:
        id: its name.
        owner: who sent it; nobody else is told of it.
        model: that was asked; below another one's name nobody is told of it.
        state: one of `STATES`.
        created: seconds since the epoch.
        finished: likewise; None before.
        tries: how often it was begun.
        version: the one that it asked for; None: whichever serves.
        request_bytes: of what was asked.
        answer_bytes: of what was answered.
        status: of HTTP, that its answer has.
        error: why it failed; None where it didn't.
        key: by which its caller's request is known again; None: by none.
        digest: of that request; None without a key.
    """

    id: str
    owner: str
    model: str
    state: str = QUEUED
    created: float
    finished: float | None = None
    tries: int = 0
    version: str | None = None
    request_bytes: int
    answer_bytes: int = 0
    status: int = 200
    error: str | None = None
    key: str | None = None
    digest: str | None = None

    @property
    def size(self) -> int:
        """Bytes that it takes; the request goes once it is finished."""
        asked = self.request_bytes if self.finished is None else 0
        return OVERHEAD_BYTES + asked + self.answer_bytes


def parse(data: bytes, identifier: str) -> Job:
    """Read a job's state.

    Raises:
        IntegrityError: it isn't what `Jobs` writes for this id.
    """
    try:
        document: Any = orjson.loads(data)
        job = Job(**cast("dict[str, Any]", document))
    except (orjson.JSONDecodeError, TypeError) as error:
        raise IntegrityError(f"the state of job {identifier} isn't what was written") from error
    optional = (job.version, job.error, job.key, job.digest)
    texts = (job.owner, job.model, *(each for each in optional if each is not None))
    counts = (job.tries, job.request_bytes, job.answer_bytes, job.status)
    times = (job.created, *(() if job.finished is None else (job.finished,)))
    finished = job.state in (DONE, FAILED)
    if not (
        len(document) == len(fields(Job))
        and job.id == identifier
        and job.state in STATES
        and all(type(each) is str for each in texts)
        and all(type(each) is int and 0 <= each < _MOST_WRITTEN for each in counts)
        and all(type(each) in (int, float) and 0 <= each < _LAST_MOMENT for each in times)
        and finished == (job.finished is not None)
        and (job.state == FAILED) == (job.error is not None)
        and (job.key is None) == (job.digest is None)
        and 200 <= job.status <= 599
    ):
        raise IntegrityError(f"the state of job {identifier} isn't what was written")
    return job


# Bodies, which workers write and read.


def _path(folder: Path, identifier: str, part: str) -> Path:
    return folder / f"{identifier}.{part}{SUFFIX}"


def _context(identifier: str, part: str) -> bytes:
    return f"job:{identifier}:{part}".encode()


class Bodies:
    """The requests and answers of jobs on the disk.

    Args:
        folder: of the jobs.
        keyring: seals them.
    """

    def __init__(self, folder: Path, keyring: KeyRing) -> None:
        self._folder = folder
        self._keyring = keyring

    def write_request(self, identifier: str, header: Mapping[str, Any], body: bytes) -> None:
        """Keep what was asked.

        Raises:
            WorkloadError: it can't be written; nothing is left of it.
        """
        self._write(identifier, _REQUEST, header, body)

    def write_answer(self, identifier: str, header: Mapping[str, Any], body: bytes) -> None:
        """Keep what was answered; errors as those of `write_request`."""
        self._write(identifier, _ANSWER, header, body)

    def read_request(self, identifier: str) -> tuple[dict[str, Any], bytes]:
        """Return header and body of what was asked.

        Raises:
            IntegrityError: it is missing, or isn't what was written.
            WorkloadError: it can't be read now, as without its key ring.
        """
        return self._read(identifier, _REQUEST)

    def read_answer(self, identifier: str) -> tuple[dict[str, Any], bytes]:
        """Return header and body of what was answered; errors as those of `read_request`."""
        return self._read(identifier, _ANSWER)

    def _write(self, identifier: str, part: str, header: Mapping[str, Any], body: bytes) -> None:
        about = orjson.dumps(header)
        data = _LENGTH.pack(len(about)) + about + body
        path = _path(self._folder, identifier, part)
        seal(path, data, self._keyring, _context(identifier, part))

    def _read(self, identifier: str, part: str) -> tuple[dict[str, Any], bytes]:
        path = _path(self._folder, identifier, part)
        try:
            path.lstat()
        except FileNotFoundError as error:
            raise IntegrityError(f"{path} is missing") from error
        except OSError as error:
            raise WorkloadError(f"can't read {path}: {error.strerror}") from error
        data = unseal(path, self._keyring, _context(identifier, part))
        try:
            (length,) = _LENGTH.unpack_from(data)
            start = _LENGTH.size
            header = orjson.loads(data[start : start + length])
        except (struct.error, orjson.JSONDecodeError) as error:
            raise IntegrityError(f"{path} isn't what was written") from error
        return cast("dict[str, Any]", header), data[start + length :]


def no_such_job() -> RequestError:
    """Return the 404 for what isn't there, is another caller's or another model's, or has
    expired: all the same."""
    return RequestError(
        404, "you have no such job: ids are as they were answered, and expire with the job"
    )


def served_no_more(model: str) -> RequestError:
    """Return the 404 of a job's model that the server had, and has no more."""
    return RequestError(404, f"model '{model}' isn't served any more")


def clear(folder: Path) -> None:
    """Remove all jobs of a folder that no server holds; one that isn't there is fine.

    Raises:
        WorkloadError: a file can't be removed.
    """
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in list(folder.iterdir()):
        if _FILE.fullmatch(path.name) or path.name.startswith(TEMPORARY_PREFIX):
            shred(path)
    # Whatever else somebody has put there stays, and the folder with it.
    with contextlib.suppress(OSError):
        folder.rmdir()


class Jobs:
    """All jobs of a server. One thread may use it at a time; it has others for the disk.

    Args:
        folder: where they are kept; made if it is missing.
        keyring: seals them.
        settings: how many, how long.
        clock: the time, in seconds since the epoch. Default: the system's.
    """

    def __init__(
        self,
        folder: Path,
        keyring: KeyRing,
        settings: JobSettings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.events: list[tuple[str, dict[str, Any]]] = []
        """What the audit log is to be told; whoever takes it empties it."""
        self.removed: list[tuple[int, str]] = []
        """Workers that run what was removed meanwhile, with its id; emptied likewise."""
        self.finished: dict[str, dict[str, int]] = {}
        """Jobs that came to their end since the start, by model and state."""
        self._folder = folder
        self._keyring = keyring
        self._clock = clock
        self._jobs: dict[str, Job] = {}
        # Of each model in the order in which they came, and which turn it had last.
        self._waiting: dict[str, deque[str]] = {}
        self._turns: dict[str, int] = {}
        self._turn = 0
        self._models: frozenset[str] | None = None
        # By worker: the jobs whose requests it is writing, and the one that it runs.
        self._reserved: dict[str, tuple[int, Job]] = {}
        self._running: dict[int, str] = {}
        self._disk = ThreadPoolExecutor(SIDE_BY_SIDE, "jobs-disk")
        self._lock = -1
        self._told = False

    # -- folder ----------------------------------------------------------------------------

    def open(self) -> None:
        """Hold the folder and learn what is in it.

        Raises:
            WorkloadError: it can't be made or read, or another server holds it.
        """
        if self._folder.is_symlink():
            raise InferenceError(f"{self._folder} is a symbolic link: put a folder in its place")
        make_private_folder(self._folder)
        with storage_errors(self._folder):
            self._lock = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.close()
                raise InferenceError(
                    f"another server keeps its jobs in {self._folder}: "
                    "give each a state of its own"
                ) from None
            names = sorted(path.name for path in self._folder.iterdir())
        parts = [found.groups() for found in map(_FILE.fullmatch, names) if found is not None]
        # What doesn't open stays until its time is over: its key ring may come back.
        kept = {identifier for identifier, part in parts if part == _STATE}
        for identifier in sorted(kept):
            self._learn(identifier)
        for name in names:
            if name.startswith(TEMPORARY_PREFIX):
                self._shred(self._folder / name)
        for identifier, part in parts:
            if identifier not in kept:
                self._shred(_path(self._folder, identifier, part))
        waiting = [job for job in self._jobs.values() if job.state == QUEUED]
        for job in sorted(waiting, key=lambda job: job.created):
            self._waits_of(job).append(job.id)

    def _waits_of(self, job: Job) -> deque[str]:
        return self._waiting.setdefault(job.model, deque())

    def serve(self, models: Collection[str]) -> None:
        """Keep jobs of these models alone from now on; those of all others are removed."""
        self._models = frozenset(models)
        for identifier, (_, job) in list(self._reserved.items()):
            if job.model not in models:
                self.drop(identifier)
        for job in [job for job in self._jobs.values() if job.model not in models]:
            self._end(job, "removed")
        self.finished = {name: each for name, each in self.finished.items() if name in models}
        self._turns = {name: each for name, each in self._turns.items() if name in models}
        self._waiting = {name: each for name, each in self._waiting.items() if name in models}

    def _learn(self, identifier: str) -> None:
        try:
            path = _path(self._folder, identifier, _STATE)
            job = parse(unseal(path, self._keyring, _context(identifier, _STATE)), identifier)
        except WorkloadError as error:
            self._event("job.unreadable", id=identifier, reason=str(error))
            print(f"warning: job {identifier} is lost: {error}", file=sys.stderr, flush=True)
            return
        self._jobs[identifier] = job
        if job.state == RUNNING:
            # The whole server died meanwhile: of it, or not.
            self._died(job)

    def close(self) -> None:
        """Let the folder go."""
        self._disk.shutdown()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # -- callers ---------------------------------------------------------------------------

    def reserve(
        self,
        worker: int,
        identifier: str,
        owner: str,
        *,
        model: str,
        version: str | None,
        size: int,
        key: str | None = None,
        digest: str | None = None,
    ) -> Job | None:
        """Keep room for a request that a worker is about to write.

        Args:
            worker: its number.
            identifier: a new id.
            owner: who asks.
            model: that is asked.
            version: of the model, where a certain one is asked for.
            size: of the body, in bytes.
            key: by which the request is known again; None: by none.
            digest: of the request, where there is a key.

        Returns:
            The job that was made of the same request before; None: there is none.

        Raises:
            RequestError: 404, the model isn't served any more; 409, the same request is being
                kept; 422, the key was another one's; 413, it is more than all may be; 429, the
                caller's jobs take their share; 503, there is no room for it now.
        """
        if (
            not _ID.fullmatch(identifier)
            or identifier in self._jobs.keys() | self._reserved.keys()
        ):
            raise RequestError(500, "the server made no new id")
        if self._models is not None and model not in self._models:
            raise served_no_more(model)
        job = Job(
            id=identifier, owner=owner, model=model, created=self._clock(), version=version,
            request_bytes=size, key=key, digest=digest,
        )  # fmt: skip
        if key is not None and (known := self._known(job)) is not None:
            return known
        if job.size > (most := self.settings.most_bytes):
            raise RequestError(
                413, f"a job of {size} bytes is more than the {most} that all may be"
            )
        refusal = self._no_room(owner, 1, job.size)
        if refusal is not None:
            raise refusal
        self._reserved[identifier] = (worker, job)
        return None

    def _known(self, asked: Job) -> Job | None:
        """Return the job of the same key, if it is of the same request."""
        mine = (asked.owner, asked.model, asked.key)
        job = next(
            (each for each in self._all() if (each.owner, each.model, each.key) == mine), None
        )
        if job is None:
            return None
        if self._is_over(job):
            self._end(job, "expired")
            return None
        if job.digest != asked.digest:
            raise RequestError(
                422, "this Idempotency-Key was another request's: give each a key of its own"
            )
        if job.id in self._reserved:
            raise RequestError(
                409, "the same request is being kept now; try again", headers=(retry_after(1),)
            )
        return job

    def queue(self, *identifiers: str) -> list[Job | RequestError]:
        """Accept jobs whose requests are written: from here on they survive a power cut.

        Their states are written side by side, which file systems force to the disk together.

        Returns:
            Of each the job, or its refusal: 503, there is no room on the disk, or nothing was
            reserved.
        """
        jobs = [self._reserved.pop(each, (0, None))[1] for each in identifiers]
        saved = self._disk.map(self._save_or_not, jobs)
        return [
            self._accept(identifier, job, error)
            for identifier, job, error in zip(identifiers, jobs, saved, strict=True)
        ]

    def _save_or_not(self, job: Job | None) -> WorkloadError | None:
        try:
            if job is not None:
                self._save(job)
        except WorkloadError as error:
            return error
        return None

    def _accept(
        self, identifier: str, job: Job | None, error: WorkloadError | None
    ) -> Job | RequestError:
        if job is None:
            return _refused(503, "the request came too late")
        if error is not None:
            self._remove_files(identifier)
            self._warn(error)
            return _refused(503, "the server's disk has no room for a job")
        self._jobs[identifier] = job
        self._waits_of(job).append(identifier)
        self._event("job.accepted", **_told(job))
        return job

    def drop(self, identifier: str) -> None:
        """Remove a job whose caller was not told of it."""
        if self._reserved.pop(identifier, None) is not None:
            self._remove_files(identifier)
        elif (job := self._jobs.get(identifier)) is not None:
            self._end(job, "removed")

    def find(self, identifier: str, owner: str, model: str) -> Job:
        """Return a caller's job of a model.

        Raises:
            RequestError: 404, the caller has no such job.
        """
        job = self._jobs.get(identifier)
        if job is None or (job.owner, job.model) != (owner, model):
            raise no_such_job()
        if self._is_over(job):
            self._end(job, "expired")
            raise no_such_job()
        return job

    def remove(self, identifier: str, owner: str, model: str) -> None:
        """Remove a caller's job; the run of one that runs is in `removed`.

        Raises:
            RequestError: as `find`.
        """
        self._end(self.find(identifier, owner, model), "removed")

    def spoil(self, identifier: str, owner: str, model: str) -> Job:
        """Note that the answer of a caller's job isn't what was written; errors as `find`."""
        job = self.find(identifier, owner, model)
        if job.state != DONE:
            return job
        return self._fail(job, 500, "the kept answer was changed, cut short or lost: send the "
                          "request again")  # fmt: skip

    # -- workers ---------------------------------------------------------------------------

    def take(self, worker: int, served: Mapping[str, str]) -> Job | None:
        """Begin the oldest job that waits of a model; models take turns.

        Those of a model that the worker can't be asked for wait on.

        Args:
            worker: the number of the one that will run it.
            served: the version of each model that it has.

        Returns:
            The job; None: there is none, or the disk is full.
        """
        asked = [each for each in self._waiting if each in served]
        for model in sorted(asked, key=lambda each: self._turns.get(each, 0)):
            if (job := self._begin(self._waiting[model], worker, served[model])) is not None:
                self._turn += 1
                self._turns[model] = self._turn
                return job
        return None

    def _begin(self, waiting: deque[str], worker: int, version: str) -> Job | None:
        """Begin the oldest job of a model's queue."""
        while waiting:
            job = self._jobs.get(waiting[0])
            if job is None or job.state != QUEUED:
                waiting.popleft()
                continue
            if self._is_over(job):
                self._end(job, "expired")
                continue
            if job.version not in (None, version):
                self._fail(job, 404, f"version {job.version} of the model isn't served any more; "
                           f"served is version {version}")  # fmt: skip
                continue
            started = replace(job, state=RUNNING, tries=job.tries + 1)
            try:
                self._save(started)
            except WorkloadError as error:
                self._warn(error)
                return None
            waiting.popleft()
            self._jobs[job.id] = started
            self._running[worker] = job.id
            return started
        return None

    def done(self, worker: int, size: int) -> None:
        """Finish what a worker ran: its answer of ``size`` bytes is written."""
        job = self._ran(worker)
        if job is None:
            return
        ended = replace(job, state=DONE, finished=self._clock(), answer_bytes=size)
        if (refusal := self._no_room(job.owner, 0, ended.size, job)) is not None:
            self._fail(job, refusal.status, f"there is no room for its answer of {size} bytes: "
                       f"{refusal.message}")  # fmt: skip
            return
        self._finish(ended)

    def failed(self, worker: int, status: int, error: str) -> None:
        """Finish what a worker ran and could not answer."""
        job = self._ran(worker)
        if job is not None:
            self._fail(job, status, error)

    def give_back(self, worker: int, *, behind: bool = False) -> None:
        """Let what a worker had begun wait again, as if it hadn't; ``behind``: as the last."""
        job = self._ran(worker)
        if job is not None:
            self._note(replace(job, state=QUEUED, tries=job.tries - 1))
            waiting = self._waits_of(job)
            (waiting.append if behind else waiting.appendleft)(job.id)

    def lost(self, worker: int, *, asked: bool) -> None:
        """Note the end of a worker.

        Args:
            worker: its number.
            asked: whether it was told to leave.
        """
        for identifier in [key for key, (by, _) in self._reserved.items() if by == worker]:
            self.drop(identifier)
        if asked:
            self.give_back(worker)
            return
        job = self._ran(worker)
        if job is not None:
            self._died(job)
            if self._jobs[job.id].state == QUEUED:
                # Behind the others: it may be what the worker died of.
                self._waits_of(job).append(job.id)

    def _died(self, job: Job) -> None:
        if job.tries >= MOST_TRIES:
            self._fail(job, 500, f"the server's worker ended {job.tries} times while it ran this "
                       "request: it isn't run again")  # fmt: skip
        else:
            self._note(replace(job, state=QUEUED))

    def _ran(self, worker: int) -> Job | None:
        """What a worker ran; None where that was removed, with what it left."""
        identifier = self._running.pop(worker, None)
        job = self._jobs.get(identifier) if identifier is not None else None
        if identifier is not None and job is None:
            self._remove_files(identifier)
        return job

    # -- time ------------------------------------------------------------------------------

    def expire(self) -> None:
        """Remove what has been kept for its time, and what was left in the folder as long ago."""
        for job in [job for job in self._jobs.values() if self._is_over(job)]:
            self._end(job, "expired")
        before = self._clock() - self._keep_seconds
        known = self._jobs.keys() | self._reserved.keys() | set(self._running.values())
        try:
            with storage_errors(self._folder):
                paths = list(self._folder.iterdir())
        except WorkloadError as error:
            self._warn(error)
            return
        for path in paths:
            found = _FILE.fullmatch(path.name)
            if (found is None or found[1] in known) and not path.name.startswith(TEMPORARY_PREFIX):
                continue
            with contextlib.suppress(FileNotFoundError):
                if path.lstat().st_mtime < before:
                    self._shred(path)

    @property
    def _keep_seconds(self) -> float:
        return self.settings.keep_hours * 3600.0

    def expires(self, job: Job) -> float:
        """Return when a job goes, in seconds since the epoch."""
        return (job.created if job.finished is None else job.finished) + self._keep_seconds

    def _is_over(self, job: Job) -> bool:
        return job.state != RUNNING and self._clock() >= self.expires(job)

    def _end(self, job: Job, how: str) -> None:
        del self._jobs[job.id]
        # Else those that are sent and removed while no worker is free would fill the memory.
        with contextlib.suppress(ValueError):
            self._waits_of(job).remove(job.id)
        self.removed += [each for each in self._running.items() if each[1] == job.id]
        self._remove_files(job.id)
        self._event(f"job.{how}", **_told(job))

    # -- records ---------------------------------------------------------------------------

    def _all(self) -> Iterator[Job]:
        yield from self._jobs.values()
        yield from (job for _, job in self._reserved.values())

    def _no_room(
        self, owner: str, more_jobs: int, more_bytes: int, instead: Job | None = None
    ) -> RequestError | None:
        """Return why a caller can't have so much more; None: it can.

        What a caller has may be no more than what is left free beside it, so that those who have
        nothing yet find room, whoever came before: with n callers at their bounds, the part
        1/(n + 1) is free. https://doi.org/10.1109/90.664262 with a factor of 1.

        Args:
            owner: the caller.
            more_jobs: how many it asks for.
            more_bytes: likewise.
            instead: a job whose bytes these take the place of.
        """
        mine, others = [0, 0], [0, 0]
        for job in self._all():
            if job is not instead:
                held = mine if job.owner == owner else others
                held[0] += 1
                held[1] += job.size
        most = (self.settings.most_jobs, self.settings.most_bytes)
        for index, more in enumerate((more_jobs, more_bytes)):
            unit = "" if index == 0 else " bytes"
            own, all_own = mine[index], mine[index] + others[index]
            share = (most[index] - others[index]) // 2
            if more and own and own + more > share:
                jobs = [job for job in self._jobs.values() if job.owner == owner]
                return self._full(
                    429, f"your jobs are {own} of the {share}{unit} allowed to you now, out of "
                    f"the {most[index]} of all callers: remove what you have fetched", jobs
                )  # fmt: skip
            if more and all_own + more > most[index]:
                return self._full(
                    503, f"all callers' jobs are {all_own} of the {most[index]}{unit} allowed",
                    self._jobs.values(),
                )  # fmt: skip
        return None

    def _full(self, status: int, why: str, jobs: Iterable[Job]) -> RequestError:
        """Return the refusal of a caller that is to come again, when one of the jobs is over."""
        left = [self.expires(job) - self._clock() for job in jobs]
        seconds = max(1, math.ceil(min(left, default=FULL_RETRY_SECONDS)))
        return _refused(status, why, min(seconds, FULL_RETRY_SECONDS))

    def numbers(self) -> dict[str, dict[str, float]]:
        """Return of each model that has any how many jobs are in each state, ``bytes``, and
        ``oldest``: the age in seconds of the one that waits longest."""
        found: dict[str, dict[str, float]] = {}
        now = self._clock()
        for job in self._all():
            of = found.setdefault(job.model, dict.fromkeys((*STATES, "bytes", "oldest"), 0.0))
            of["bytes"] += job.size
            if job.id in self._reserved:
                continue
            of[job.state] += 1
            if job.state == QUEUED:
                of["oldest"] = max(of["oldest"], now - job.created)
        return found

    def document(self, job: Job) -> dict[str, Any]:
        """Return what a caller is told of a job."""
        document: dict[str, Any] = {
            "id": job.id,
            "state": job.state,
            "created": _moment(job.created),
            "expires": _moment(self.expires(job)),
        }
        return document | ({"error": job.error} if job.error is not None else {})

    def _event(self, name: str, **facts: Any) -> None:
        self.events.append((name, facts))

    def _fail(self, job: Job, status: int, error: str) -> Job:
        ended = replace(
            job, state=FAILED, finished=self._clock(), answer_bytes=0, status=status, error=error
        )
        self._shred(_path(self._folder, job.id, _ANSWER))
        self._finish(ended)
        return ended

    def _finish(self, job: Job) -> None:
        if self._note(job):
            self._shred(_path(self._folder, job.id, _REQUEST))
        self.finished.setdefault(job.model, {DONE: 0, FAILED: 0})[job.state] += 1
        facts = {"reason": job.error} if job.error is not None else {}
        self._event(f"job.{job.state}", **_told(job), **facts)

    def _note(self, job: Job) -> bool:
        """Take a state over, and tell whether it is written; else a restart doesn't know it."""
        self._jobs[job.id] = job
        try:
            self._save(job)
        except WorkloadError as error:
            self._warn(error)
            return False
        return True

    def _save(self, job: Job) -> None:
        path = _path(self._folder, job.id, _STATE)
        seal(path, orjson.dumps(asdict(job)), self._keyring, _context(job.id, _STATE))
        self._told = False

    def _remove_files(self, identifier: str) -> None:
        # The state goes first: bodies without one are removed at the next start.
        for part in (_STATE, _REQUEST, _ANSWER):
            self._shred(_path(self._folder, identifier, part))

    def _shred(self, path: Path) -> None:
        try:
            with contextlib.ExitStack() as stack:
                # A rotation that has read the file would put it back; without keys there is none.
                with contextlib.suppress(WorkloadError):
                    stack.enter_context(self._keyring.steady())
                shred(path)
        except WorkloadError as error:
            self._warn(error)

    def _warn(self, error: WorkloadError) -> None:
        if not self._told:
            self._told = True
            print(f"warning: jobs: {error}", file=sys.stderr, flush=True)


def _told(job: Job) -> dict[str, str]:
    """What the audit log is told of a job."""
    return {"id": job.id, "owner": job.owner, "model": job.model}


def _refused(status: int, why: str, seconds: int = FULL_RETRY_SECONDS) -> RequestError:
    return RequestError(status, f"{why}; try again later", headers=(retry_after(seconds),))


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
