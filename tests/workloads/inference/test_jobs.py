"""What is kept of jobs: bounds, owners, expiry, faults of the disk, changed files, kills."""

from __future__ import annotations

import asyncio
import errno
import json
import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as some

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.inference.auth import Identity
from falaj.workloads.inference.connections.http import Answer, Exchange
from falaj.workloads.inference.connections.http import Bodies as Memory
from falaj.workloads.inference.errors import RequestError, retry_of
from falaj.workloads.inference.jobs import runs as job_runs
from falaj.workloads.inference.jobs import store as kept
from falaj.workloads.inference.jobs.queue import JobQueue
from falaj.workloads.inference.jobs.runs import JobRuns
from falaj.workloads.inference.jobs.store import Bodies, Job, Jobs, new_id, parse
from falaj.workloads.inference.process import channel, worker
from falaj.workloads.inference.protocol.routes import Router
from falaj.workloads.inference.settings import JobSettings
from falaj.workloads.registry import sealed
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.rotation import rotate

HOUR = 3_600.0
SECRET = b'{"inputs":"the salary of row 17"}'
OF_M: dict[str, Any] = {"model": "m", "version": None}
"""What a reservation asks of the model, whichever version serves."""
WORKER, OTHER = 101, 102


class Clock:
    def __init__(self) -> None:
        self.now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


class Place:
    """A folder of jobs, whose server can be started anew."""

    def __init__(self, root: Path) -> None:
        self.keyring = KeyRing.create(root / "keyring")
        self.folder = root / "state.jobs"
        self.clock = Clock()
        self.bodies = Bodies(self.folder, self.keyring)
        self.jobs: Jobs

    def open(self, **settings: int) -> Jobs:
        self.jobs = Jobs(self.folder, self.keyring, JobSettings(**settings), self.clock)
        self.jobs.open()
        return self.jobs

    def restart(self, **settings: int) -> Jobs:
        """As after kill -9: nothing is told, the folder is let go."""
        self.jobs.close()
        return self.open(**settings)

    def accept(self, owner: str = "token:a", body: bytes = SECRET, **more: Any) -> str:
        identifier = new_id()
        self.jobs.reserve(WORKER, identifier, owner, **OF_M | {"size": len(body)} | more)
        header = {"header_length": None, "request_id": ""}
        self.bodies.write_request(identifier, header, body)
        self.jobs.queue(identifier)
        return identifier

    def run(self, answer: bytes = b"{}") -> str:
        job = self.jobs.take(WORKER, {"m": "1"})
        assert job is not None
        self.bodies.write_answer(job.id, {"type": "application/json", "headers": []}, answer)
        self.jobs.done(WORKER, len(answer))
        return job.id

    def file(self, identifier: str, part: str) -> Path:
        return self.folder / f"{identifier}.{part}.sealed"

    def names(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}

    def numbers(self) -> dict[str, float]:
        return self.jobs.numbers().get("m", dict.fromkeys((*kept.STATES, "bytes", "oldest"), 0))

    def state(self, identifier: str, owner: str = "token:a") -> str:
        return self.jobs.find(identifier, owner, "m").state


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    made.open()
    yield made
    made.jobs.close()


def refusal(work: Callable[[], object]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        work()
    return caught.value


# -- owners and ids ----------------------------------------------------------------------------


def test_nobody_else_is_told_of_a_job(place: Place) -> None:
    mine = place.accept("token:a")
    jobs = place.jobs
    unknown = refusal(lambda: jobs.find(new_id(), "token:a", "m")).message
    for owner in ("token:b", "certificate:a", "", "token:A", "token:a "):
        for work in (jobs.find, jobs.remove, jobs.spoil):
            error = refusal(lambda work=work, owner=owner: work(mine, owner, "m"))
            assert (error.status, error.message) == (404, unknown)
    assert place.state(mine) == "queued"


@pytest.mark.parametrize(
    "identifier",
    ["", ".", "..", "../../etc/passwd", "a" * 31, "A" * 32, "g" * 32, "a" * 10_000, "\0" * 32,
     "a" * 32 + "\n"],
)  # fmt: skip
def test_what_is_no_id_touches_no_file(place: Place, identifier: str) -> None:
    jobs = place.jobs
    outside = place.folder.parent / "etc"
    outside.mkdir()
    before = place.names()
    for work in (jobs.find, jobs.remove, jobs.spoil):
        assert refusal(lambda work=work: work(identifier, "token:a", "m")).status == 404
    jobs.drop(identifier)
    (late,) = jobs.queue(identifier)
    assert isinstance(late, RequestError)
    assert late.status == 503
    reserving = refusal(lambda: jobs.reserve(WORKER, identifier, "token:a", **OF_M, size=1))
    assert reserving.status == 500
    assert place.names() == before


def test_ids_are_new_ones(place: Place) -> None:
    assert len({new_id() for _ in range(1_000)}) == 1_000
    mine = place.accept("token:a")
    taken = refusal(lambda: place.jobs.reserve(WORKER, mine, "token:b", **OF_M, size=1))
    assert taken.status == 500
    assert place.state(mine) == "queued"


def test_nothing_lies_in_plain(place: Place) -> None:
    place.accept("token:somebody@example.ae")
    place.accept("token:somebody@example.ae")
    place.run(b"the answer of row 17")
    for path in place.folder.iterdir():
        content = path.read_bytes()
        for plain in (b"row 17", b"somebody", b"queued", b"done"):
            assert plain not in content, path
        assert path.stat().st_mode & 0o777 == 0o600
    assert place.folder.stat().st_mode & 0o777 == 0o700


# -- several models ------------------------------------------------------------------------------


def test_below_another_models_name_nobody_is_told_of_a_job(place: Place) -> None:
    mine, jobs = place.accept(), place.jobs
    unknown = refusal(lambda: jobs.find(new_id(), "token:a", "m")).message
    for model in ("n", "", "M", "m ", "m/jobs", "../m", "\u043c", "m\0", "mm"):
        for work in (jobs.find, jobs.remove, jobs.spoil):
            error = refusal(lambda work=work, model=model: work(mine, "token:a", model))
            assert (error.status, error.message) == (404, unknown)
    assert place.state(mine) == "queued"


def test_a_key_is_of_one_model(place: Place) -> None:
    """Who may ask one alone learns nothing of what the caller has asked another."""
    place.accept(key="1", digest="d")
    asked = {"version": None, "size": 1, "key": "1", "digest": "another"}
    jobs = place.jobs
    assert jobs.reserve(WORKER, new_id(), "token:a", model="n", **asked) is None  # type: ignore[arg-type]
    assert refusal(lambda: again(place, "1", "another")).status == 422


def test_models_take_turns_and_a_worker_gets_what_it_has(place: Place) -> None:
    many = [place.accept() for _ in range(3)]
    few = [place.accept(model="n") for _ in range(2)]
    absent = place.accept(model="gone")
    served = {"m": "1", "n": "7"}

    def run(served: dict[str, str]) -> str | None:
        job = place.jobs.take(WORKER, served)
        if job is not None:
            place.jobs.failed(WORKER, 500, "no")
        return None if job is None else job.id

    assert run({}) is None
    assert [run(served) for _ in range(5)] == [many[0], few[0], many[1], few[1], many[2]]
    # It waits for its model, over a restart as well, and keeps no other from its turn.
    assert run(served) is None
    place.restart()
    assert place.jobs.find(absent, "token:a", "gone").state == "queued"
    assert run(served) is None
    assert run({**served, "gone": "1"}) == absent
    place.accept(model="gone")
    place.clock.now += 25 * HOUR
    place.jobs.expire()
    assert place.names() == set()


def test_a_version_is_of_its_model(place: Place) -> None:
    pinned = place.accept(model="n", version="1")
    assert place.jobs.take(WORKER, {"m": "1", "n": "2"}) is None
    failed = place.jobs.find(pinned, "token:a", "n")
    assert (failed.state, failed.status) == ("failed", 404)
    assert place.jobs.finished == {"n": {"done": 0, "failed": 1}}


def test_with_a_model_its_jobs_go_in_whatever_state_they_are(place: Place) -> None:
    stays = place.accept()
    for _ in range(2):
        place.accept(model="n")
    assert place.jobs.take(WORKER, {"n": "1"})
    running = next(iter(place.jobs._running.values()))  # pyright: ignore[reportPrivateUsage]
    reserved = new_id()
    place.jobs.reserve(WORKER, reserved, "token:a", model="n", version=None, size=5)
    place.bodies.write_request(reserved, {}, b"12345")
    place.jobs.serve(("m", "other"))
    assert place.jobs.removed == [(WORKER, running)]
    (late,) = place.jobs.queue(reserved)
    assert isinstance(late, RequestError)
    error = refusal(lambda: place.accept(model="n"))
    assert (error.status, error.message) == (404, "model 'n' isn't served any more")
    # The worker doesn't know yet, and has written its answer.
    place.bodies.write_answer(running, {}, b"late")
    place.jobs.done(WORKER, 4)
    assert {name.partition(".")[0] for name in place.names()} == {stays}
    assert place.state(stays) == "queued"
    removed = [facts for name, facts in place.jobs.events if name == "job.removed"]
    assert [each["model"] for each in removed] == ["n", "n"]
    place.jobs.serve(("n",))
    assert place.numbers()["queued"] == 0


def test_all_models_jobs_share_one_place(place: Place) -> None:
    """However many models there are, no more is kept than of one."""
    place.restart(most_jobs=4)
    for model in ("m", "n"):
        place.accept(model=model)
    error = refusal(lambda: place.accept(model="o"))
    assert error.status == 429
    assert "your jobs are 2 of the 2 allowed to you now" in error.message
    numbers = place.jobs.numbers()
    assert {name: each["queued"] for name, each in numbers.items()} == {"m": 1, "n": 1}
    place.accept("token:b", model="n")
    assert refusal(lambda: place.accept("token:b", model="m")).status == 429


# -- bounds ------------------------------------------------------------------------------------


def test_a_full_place_refuses_before_anything_is_written(place: Place) -> None:
    place.restart(most_jobs=2)
    first = place.accept()
    place.jobs.reserve(WORKER, new_id(), "token:b", **OF_M, size=1)
    before = place.names()
    error = refusal(lambda: place.accept("token:c"))
    assert (error.status, retry_of(error)) == (503, kept.FULL_RETRY_SECONDS)
    assert "all callers' jobs are 2 of the 2 allowed" in error.message
    assert place.names() == before
    place.jobs.remove(first, "token:a", "m")
    place.accept("token:c")


def test_bytes_are_bounded_of_requests_and_answers(place: Place) -> None:
    place.restart(most_bytes=1 << 20)
    tooth = refusal(lambda: place.accept(body=bytes(1 << 20)))
    assert tooth.status == 413
    one = place.accept(body=bytes(600_000))
    assert refusal(lambda: place.accept("token:b", body=bytes(600_000))).status == 503
    # Its request goes with its answer, which has that room.
    assert place.run(bytes(700_000)) == one
    assert place.state(one) == "done"
    two = place.accept("token:b", body=bytes(300_000))
    assert place.run(bytes(400_000)) == two
    job = place.jobs.find(two, "token:b", "m")
    assert (job.state, job.status) == ("failed", 503)
    assert "no room for its answer of 400000 bytes" in str(job.error)
    assert not place.file(two, "answer").exists()
    assert place.numbers()["bytes"] <= 1 << 20


def test_no_caller_takes_the_room_of_others(place: Place) -> None:
    """Each may have as many as would be left free, so that who has none finds room."""
    place.restart(most_jobs=20)
    shares: list[int] = []
    mine: list[str] = []

    def fill(owner: str) -> None:
        while True:
            mine.append(place.accept(owner))
            shares[-1] += 1

    for owner in ("token:a", "token:b", "token:c"):
        shares.append(0)
        error = refusal(lambda owner=owner: fill(owner))
        assert error.status == 429
        assert (
            f"your jobs are {shares[-1]} of the {shares[-1]} allowed to you now" in error.message
        )
        assert "20 of all callers" in error.message
    assert shares == [10, 5, 2]
    place.accept("token:d")
    # What one gives back is everybody's.
    place.jobs.remove(mine[0], "token:a", "m")
    place.jobs.remove(mine[1], "token:a", "m")
    place.accept("token:c")


def test_bytes_of_one_caller_leave_as_many_free(place: Place) -> None:
    place.restart(most_bytes=1 << 20)
    half = (1 << 20) // 2 - 2 * kept.OVERHEAD_BYTES
    place.accept(body=bytes(half - 10))
    place.accept(body=bytes(10))
    error = refusal(lambda: place.accept(body=b"1"))
    assert error.status == 429
    assert "bytes" in error.message
    place.accept("token:b", body=bytes(half))


def test_answers_count_as_the_callers_own_bytes(place: Place) -> None:
    place.restart(most_bytes=1 << 20)
    first, second = place.accept(), place.accept()
    place.run(bytes(400_000))
    place.run(bytes(200_000))
    assert place.state(first) == "done"
    job = place.jobs.find(second, "token:a", "m")
    assert (job.state, job.status) == ("failed", 429)
    assert "answer of 200000 bytes" in str(job.error)
    assert not place.file(second, "answer").exists()
    other = place.accept("token:b")
    place.run(bytes(500_000))
    assert place.state(other, "token:b") == "done"


def test_a_full_share_is_worth_trying_again_when_its_first_job_expires(place: Place) -> None:
    place.restart(most_jobs=2, keep_hours=1)
    place.accept()
    assert retry_of(refusal(place.accept)) == kept.FULL_RETRY_SECONDS
    place.clock.now += HOUR - 7.5
    assert retry_of(refusal(place.accept)) == 8
    place.clock.now += 7.5
    assert retry_of(refusal(place.accept)) == 1
    place.jobs.expire()
    place.accept()


@pytest.mark.parametrize("size", [2**63, 2**200, -0])
def test_huge_sizes(place: Place, size: int) -> None:
    if size:
        error = refusal(lambda: place.jobs.reserve(WORKER, new_id(), "token:a", **OF_M, size=size))
        assert error.status == 413
    else:
        place.jobs.reserve(WORKER, new_id(), "token:a", **OF_M, size=size)


def test_the_room_of_a_worker_that_died_while_writing_is_given_back(place: Place) -> None:
    place.restart(most_jobs=1)
    identifier = new_id()
    place.jobs.reserve(WORKER, identifier, "token:a", **OF_M, size=10)
    place.bodies.write_request(identifier, {}, b"x")
    place.jobs.lost(OTHER, asked=False)
    assert refusal(place.accept).status == 429
    assert refusal(lambda: place.accept("token:b")).status == 503
    place.jobs.lost(WORKER, asked=False)
    assert place.names() == set()
    place.accept()


# -- the same request again -----------------------------------------------------------------


def again(place: Place, key: str, digest: str = "d", owner: str = "token:a") -> Job | None:
    return place.jobs.reserve(
        WORKER, new_id(), owner, **OF_M, size=len(SECRET), key=key, digest=digest
    )


def test_a_repeated_request_finds_its_job(place: Place) -> None:
    mine = place.accept(key="order 17", digest="d")
    place.restart(most_jobs=1)
    # Also where there is no room for another one, and when it is done.
    found = again(place, "order 17")
    assert found is not None
    assert (found.id, found.state) == (mine, "queued")
    place.run()
    found = again(place, "order 17")
    assert found is not None
    assert (found.id, found.state) == (mine, "done")
    assert place.numbers()["done"] == 1
    error = refusal(lambda: again(place, "order 17", "another"))
    assert (error.status, retry_of(error)) == (422, None)
    assert "another request" in error.message
    assert mine not in error.message


def test_keys_are_of_one_caller(place: Place) -> None:
    place.accept(key="1", digest="d")
    assert again(place, "1", "another", "token:b") is None
    assert again(place, "2", "another") is None


def test_a_key_lives_as_long_as_its_job(place: Place) -> None:
    first = place.accept(key="1", digest="d")
    place.jobs.remove(first, "token:a", "m")
    place.accept(key="1", digest="another")
    place.run()
    place.clock.now += 24 * HOUR
    assert again(place, "1") is None


def test_a_request_that_is_still_being_kept_is_no_job_yet(place: Place) -> None:
    identifier = new_id()
    place.jobs.reserve(WORKER, identifier, "token:a", **OF_M, size=1, key="1", digest="d")
    error = refusal(lambda: again(place, "1"))
    assert (error.status, retry_of(error)) == (409, 1)
    assert refusal(lambda: again(place, "1", "another")).status == 422
    place.jobs.drop(identifier)
    assert again(place, "1") is None


# -- the disk ----------------------------------------------------------------------------------


def fail_writes(monkeypatch: pytest.MonkeyPatch, code: int, match: str = "") -> None:
    """Have fsync fail, the last step of each write."""
    real = os.fsync

    def broken(descriptor: int) -> None:
        name = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if match in name:
            raise OSError(code, os.strerror(code))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", broken)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
def test_a_request_that_cannot_be_written_is_not_accepted(
    place: Place, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    identifier = new_id()
    place.jobs.reserve(WORKER, identifier, "token:a", **OF_M, size=5)
    with monkeypatch.context() as patch:
        fail_writes(patch, code)
        with pytest.raises(WorkloadError):
            place.bodies.write_request(identifier, {}, b"12345")
    place.jobs.drop(identifier)
    assert place.names() == set()
    assert place.numbers()["bytes"] == 0
    assert refusal(lambda: place.jobs.find(identifier, "token:a", "m")).status == 404


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_state_that_cannot_be_written_is_not_accepted(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    identifier = new_id()
    place.jobs.reserve(WORKER, identifier, "token:a", **OF_M, size=5)
    place.bodies.write_request(identifier, {}, b"12345")
    with monkeypatch.context() as patch:
        fail_writes(patch, code, ".tmp-")
        (error,) = place.jobs.queue(identifier)
    assert isinstance(error, RequestError)
    assert (error.status, retry_of(error)) == (503, kept.FULL_RETRY_SECONDS)
    # Callers are not told of folders; who runs the server is.
    assert str(place.folder) not in error.message
    assert str(place.folder) in capsys.readouterr().err
    assert place.names() == set()
    place.restart()
    assert place.numbers()["queued"] == 0


def test_jobs_wait_while_their_state_cannot_be_written(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    identifier = place.accept()
    with monkeypatch.context() as patch:
        fail_writes(patch, errno.ENOSPC, ".tmp-")
        assert place.jobs.take(WORKER, {"m": "1"}) is None
    assert place.state(identifier) == "queued"
    assert place.run() == identifier


def test_an_end_that_cannot_be_written_is_reached_again_after_a_restart(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    identifier = place.accept()
    with monkeypatch.context() as patch:
        assert place.jobs.take(WORKER, {"m": "1"})
        place.bodies.write_answer(identifier, {}, b"{}")
        fail_writes(patch, errno.ENOSPC, ".tmp-")
        # What is kept in memory holds; the request stays for the state that is on the disk.
        place.jobs.done(WORKER, 2)
    assert place.state(identifier) == "done"
    place.restart()
    assert place.state(identifier) == "queued"
    assert place.bodies.read_request(identifier)[1] == SECRET
    assert place.run() == identifier
    assert place.state(identifier) == "done"


def test_a_file_size_limit_is_no_half_a_job(tmp_path: Path) -> None:
    """At the real write call, in a process of its own."""
    code = """
import resource, signal, sys
from pathlib import Path
from falaj.workloads.errors import StorageFullError
from falaj.workloads.inference.jobs.store import Bodies, new_id
from falaj.workloads.registry.keyring import KeyRing
root = Path(sys.argv[1])
keyring = KeyRing.create(root / "keyring")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
(root / "jobs").mkdir()
bodies = Bodies(root / "jobs", keyring)
bodies.write_request(new_id(), {}, bytes(1_000))
try:
    bodies.write_request(new_id(), {}, bytes(1_000_000))
except StorageFullError:
    print(len(list((root / "jobs").iterdir())))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


# -- changed files -----------------------------------------------------------------------------


def spoil(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "changed":
        content[-1] ^= 1
    elif how == "cut":
        del content[len(content) // 2 :]
    elif how == "empty":
        content.clear()
    path.write_bytes(content)
    if how == "gone":
        path.unlink()


HOWS = ["changed", "cut", "empty", "gone"]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("part", ["request", "answer"])
def test_bodies_that_were_changed_do_not_open(place: Place, part: str, how: str) -> None:
    identifier = place.accept()
    if part == "answer":
        place.run()
    spoil(place.file(identifier, part), how)
    read = place.bodies.read_request if part == "request" else place.bodies.read_answer
    with pytest.raises(WorkloadError):
        read(identifier)


def test_files_of_two_jobs_do_not_open_in_each_others_place(place: Place) -> None:
    mine, other = place.accept("token:a"), place.accept("token:b")
    place.file(mine, "request").write_bytes(place.file(other, "request").read_bytes())
    with pytest.raises(IntegrityError):
        place.bodies.read_request(mine)
    # Nor does another's state: it would make its job mine.
    place.file(mine, "state").write_bytes(place.file(other, "state").read_bytes())
    place.restart()
    assert refusal(lambda: place.jobs.find(mine, "token:a", "m")).status == 404
    assert refusal(lambda: place.jobs.find(mine, "token:b", "m")).status == 404
    assert place.state(other, "token:b") == "queued"


@pytest.mark.parametrize("how", ["changed", "cut", "empty"])
def test_a_state_that_does_not_open_is_told_and_kept_for_its_time(
    place: Place, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    lost, other = place.accept(), place.accept()
    spoil(place.file(lost, "state"), how)
    jobs = place.restart()
    assert f"job {lost} is lost" in capsys.readouterr().err
    assert [name for name, facts in jobs.events if facts["id"] == lost] == ["job.unreadable"]
    assert refusal(lambda: jobs.find(lost, "token:a", "m")).status == 404
    assert place.state(other) == "queued"
    assert place.file(lost, "request").exists()
    for path in place.folder.glob(f"{lost}.*"):
        os.utime(path, (place.clock.now, place.clock.now))
    place.clock.now += 24 * HOUR + 1
    jobs.expire()
    assert place.names() == set()


def test_an_answer_that_was_changed_fails_its_job(place: Place) -> None:
    identifier = place.accept()
    place.run()
    job = place.jobs.spoil(identifier, "token:a", "m")
    assert (job.state, job.status) == ("failed", 500)
    assert not place.file(identifier, "answer").exists()
    assert place.restart().find(identifier, "token:a", "m") == job


def asker(place: Place) -> Callable[[int, bytes], Awaitable[bytes]]:
    """What answers a worker's questions of where a job is."""

    async def ask(kind: int, payload: bytes) -> bytes:
        assert kind == channel.JOB_REQUEST
        question = orjson.loads(payload)
        job = getattr(place.jobs, question["do"])(
            question["id"], question["owner"], question["model"]
        )
        told = {
            "status": 200, "job": place.jobs.document(job), "answered": job.status,
            "size": job.answer_bytes,
        }  # fmt: skip
        return orjson.dumps(told)

    return ask


def order_of(identifier: str) -> bytes:
    """What a worker is told that is to run a job."""
    order = {"id": identifier, "owner": "token:a", "model": "m", "size": len(SECRET)}
    return orjson.dumps(order)


def asked_for(place: Place, identifier: str, bodies: Memory, tell: Any = None) -> tuple[Any, Any]:
    """A worker's side of jobs, and a request to it for a result."""
    service = SimpleNamespace(
        model=SimpleNamespace(name="m"), bodies=bodies,
        runs=SimpleNamespace(waiting=0, upstream=None),
        not_inferred=lambda *_: None, infer=lambda _: Answer(200, bytes(1_000)),
    )  # fmt: skip
    runs = JobRuns(
        cast("Any", service), place.bodies, further={}, ask=asker(place),
        tell=tell or (lambda *_: None), counted=lambda: None,
    )  # fmt: skip
    url = f"/v2/models/m/jobs/{identifier}/result".encode()
    exchange = Exchange(
        method=b"GET", url=url, route=Router("m", "1").find(url),
        identity=Identity("a", frozenset(), "token", math.inf),
    )  # fmt: skip
    return runs, exchange


def test_an_answer_that_cannot_be_read_now_is_kept(place: Place) -> None:
    """As without its key ring, or where no descriptor is free."""
    identifier = place.accept()
    place.run(b"42")
    ring = place.keyring.path
    runs, exchange = asked_for(place, identifier, Memory(100))
    ring.rename(ring.with_name("away"))
    error = refusal(lambda: asyncio.run(runs.answer(exchange)))
    assert (error.status, retry_of(error)) == (503, 1)
    assert str(ring) not in error.message
    ring.with_name("away").rename(ring)
    assert asyncio.run(runs.answer(exchange)).body == b"42"


def test_results_that_are_read_count_as_bodies_do(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    identifier = place.accept()
    place.run(bytes(1_000))
    memory = Memory(2_500)
    read: list[int] = []
    real = place.bodies.read_answer

    def counting(asked: str) -> Any:
        read.append(memory.held)
        return real(asked)

    monkeypatch.setattr(place.bodies, "read_answer", counting)
    runs, first = asked_for(place, identifier, memory)
    second, third = (
        asked_for(place, identifier, memory)[1],
        asked_for(place, identifier, memory)[1],
    )
    for exchange in (first, second):
        answer = asyncio.run(runs.answer(exchange))
        assert (answer.status, len(answer.body), answer.held) == (200, 1_000, True)
    # They are counted before they are read.
    assert read == [1_000, 2_000]
    error = refusal(lambda: asyncio.run(runs.answer(third)))
    assert (error.status, retry_of(error)) == (503, 1)
    assert "2000 of 2500 bytes" in error.message
    memory.release(first)
    assert asyncio.run(runs.answer(third)).status == 200


def test_a_result_that_is_larger_than_the_limit_now_says_so(place: Place) -> None:
    identifier = place.accept()
    place.run(bytes(1_000))
    runs, exchange = asked_for(place, identifier, Memory(999))
    error = refusal(lambda: asyncio.run(runs.answer(exchange)))
    assert (error.status, retry_of(error)) == (503, None)
    assert "1000 bytes, and max_inflight_bytes of the service is 999" in error.message
    assert place.state(identifier) == "done"


@pytest.mark.parametrize(
    ("limit", "others", "expected"),
    [(1_000, 0, ("done", "")), (999, 0, ("failed", "the answer has 1000 bytes, and 999")),
     (len(SECRET) - 1, 0, ("failed", f"{len(SECRET)} bytes")), (1_000, 990, ("again", ""))],
)  # fmt: skip
def test_what_a_run_holds_is_bounded(
    place: Place, monkeypatch: pytest.MonkeyPatch, limit: int, others: int,
    expected: tuple[str, str],
) -> None:  # fmt: skip
    monkeypatch.setattr(job_runs, "BUSY_SECONDS", 0)
    identifier = place.accept()
    memory = Memory(limit)
    memory.held = others
    told: list[bytes] = []
    runs, _ = asked_for(place, identifier, memory, lambda _, payload: told.append(payload))
    service = runs._service
    seen: list[int] = []
    service.infer = lambda _: seen.append(memory.held) or Answer(200, bytes(1_000))

    async def run() -> None:
        runs.start(order_of(identifier))
        await until(lambda: told)

    asyncio.run(run())
    found = orjson.loads(told[0])
    outcome, words = expected
    assert found["outcome"] == outcome
    assert words in found.get("error", "")
    assert memory.held == others
    assert all(held == len(SECRET) for held in seen)


def test_a_request_that_a_runtime_beside_never_answers_waits_behind_the_others(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the runtime is busy or fails on this one, nobody knows."""
    monkeypatch.setattr(job_runs, "BUSY_SECONDS", 0)
    first, second = place.accept(), place.accept()
    worker = Worker(WORKER)

    def infer(_: Exchange) -> Answer:
        raise RequestError(503, "the model's runtime is busy or not there; try again")

    async def use(queue: JobQueue) -> None:
        queue.dispatch()
        await until(lambda: worker.told)
        told: list[bytes] = []
        runs, _ = asked_for(place, first, Memory(100), lambda _, payload: told.append(payload))
        runs._service.infer = infer
        runs.start(order_of(first))
        await until(lambda: told)
        queue.ended(worker, told[0])
        await until(lambda: len(worker.told) == 2)

    with_queue(place, [worker], use)
    assert worker.told == [first, second]


def test_a_request_that_cannot_be_read_now_waits_behind_the_others(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runs, "BUSY_SECONDS", 0)
    first, second = place.accept(), place.accept()
    ring = place.keyring.path
    worker = Worker(WORKER)

    async def use(queue: JobQueue) -> None:
        queue.dispatch()
        await until(lambda: worker.told)
        told: list[bytes] = []
        runs, _ = asked_for(
            place, first, Memory(100), lambda _, payload: told.append(payload)
        )  # fmt: skip
        ring.rename(ring.with_name("away"))
        runs.start(order_of(first))
        await until(lambda: told)
        ring.with_name("away").rename(ring)
        queue.ended(worker, told[0])
        await until(lambda: len(worker.told) == 2)

    with_queue(place, [worker], use)
    assert worker.told == [first, second]
    job = place.jobs.find(first, "token:a", "m")
    assert (job.state, job.tries) == ("queued", 0)


def test_another_model_does_not_answer_what_the_one_before_was_asked(place: Place) -> None:
    identifier = place.accept()
    told: list[bytes] = []
    runs, _ = asked_for(place, identifier, Memory(100), lambda _, payload: told.append(payload))
    runs._service.model.name = "other"

    async def run() -> None:
        runs.start(order_of(identifier))
        await until(lambda: told)

    asyncio.run(run())
    outcome = orjson.loads(told[0])
    assert (outcome["outcome"], outcome["status"]) == ("failed", 404)
    assert outcome["error"] == "model 'm' isn't served any more"


@pytest.mark.parametrize("model", ["m", "versions"])
def test_only_a_path_with_a_version_asks_for_one(place: Place, model: str) -> None:
    asked: list[dict[str, Any]] = []

    async def ask(_: int, payload: bytes) -> bytes:
        asked.append(orjson.loads(payload))
        job = {"job": {"id": asked[-1]["id"]}} if asked[-1]["do"] == "queue" else {}
        return orjson.dumps({"status": 200, **job})

    service = SimpleNamespace(
        schema=SimpleNamespace(read=lambda *_: None),
        model=SimpleNamespace(name=model, version="1"),
    )
    runs = JobRuns(cast("Any", service), place.bodies, further={}, ask=ask,
        tell=lambda *_: None, counted=int,
    )  # fmt: skip
    for path in ("jobs", "jobs?as=/versions/1/", "versions/1/jobs"):
        url = f"/v2/models/{model}/{path}".encode()
        exchange = Exchange(
            method=b"POST", url=url, route=Router(model, "1").find(url),
            identity=Identity("a", frozenset(), "token", math.inf),
        )  # fmt: skip
        assert asyncio.run(runs.answer(exchange)).status == 202
    versions = [each["version"] for each in asked if each["do"] == "reserve"]
    assert versions == [None, None, "1"]


def test_what_is_waiting_is_not_spoilt_by_asking(place: Place) -> None:
    identifier = place.accept()
    assert place.jobs.spoil(identifier, "token:a", "m").state == "queued"


# -- lost workers, restarts ----------------------------------------------------------------------


def test_a_restart_keeps_jobs_and_their_order(place: Place) -> None:
    answered = place.accept()
    place.run(b"42")
    waiting = []
    for _ in range(5):
        place.clock.now += 1
        waiting.append(place.accept())
    place.restart()
    assert place.bodies.read_answer(answered)[1] == b"42"
    assert [place.run() for _ in waiting] == waiting


def test_a_job_that_kills_its_worker_three_times_has_failed(place: Place) -> None:
    poison, other = place.accept(), place.accept()
    assert place.jobs.take(WORKER, {"m": "1"}) == place.jobs.find(poison, "token:a", "m")
    place.jobs.lost(WORKER, asked=False)
    # It waits behind the others.
    assert place.run() == other
    assert place.jobs.take(OTHER, {"m": "1"})
    # The whole server dies of it: that counts too.
    place.restart()
    assert place.jobs.take(OTHER, {"m": "1"})
    place.jobs.lost(OTHER, asked=False)
    job = place.jobs.find(poison, "token:a", "m")
    assert (job.state, job.status, job.tries) == ("failed", 500, 3)
    assert "3 times" in str(job.error)
    assert place.names() == {path.name for path in [
        place.file(poison, "state"), place.file(other, "state"), place.file(other, "answer")
    ]}  # fmt: skip
    assert place.jobs.take(OTHER, {"m": "1"}) is None


def test_a_server_that_always_dies_fails_a_job(place: Place) -> None:
    identifier = place.accept()
    for _ in range(3):
        assert place.jobs.take(WORKER, {"m": "1"})
        place.restart()
    assert place.state(identifier) == "failed"


def test_a_worker_that_is_asked_to_leave_has_not_died_of_its_job(place: Place) -> None:
    first, _ = place.accept(), place.accept()
    for _ in range(10):
        assert place.jobs.take(WORKER, {"m": "1"})
        place.jobs.lost(WORKER, asked=True)
    job = place.jobs.take(WORKER, {"m": "1"})
    assert job is not None
    assert (job.id, job.tries) == (first, 1)


def test_what_nobody_waits_for_ends_nothing(place: Place) -> None:
    """Messages of workers that run no job."""
    place.jobs.done(WORKER, 7)
    place.jobs.failed(WORKER, 500, "no")
    place.jobs.give_back(WORKER)
    place.jobs.lost(WORKER, asked=False)
    assert place.numbers()["queued"] == 0


def test_bodies_without_a_state_go_at_the_start(place: Place) -> None:
    place.bodies.write_request(new_id(), {}, b"x")
    place.bodies.write_answer(new_id(), {}, b"x")
    (place.folder / ".tmp-left").write_bytes(b"x")
    (place.folder / "notes.txt").write_bytes(b"somebody's own")
    place.restart()
    assert place.names() == {"notes.txt"}


def test_two_servers_do_not_share_a_folder(place: Place) -> None:
    second = Jobs(place.folder, place.keyring, JobSettings())
    with pytest.raises(WorkloadError, match="another server keeps its jobs"):
        second.open()


def test_a_link_in_the_folders_place_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(0o755)
    (tmp_path / "state.jobs").symlink_to("elsewhere")
    jobs = Jobs(tmp_path / "state.jobs", KeyRing.create(tmp_path / "keyring"), JobSettings())
    with pytest.raises(WorkloadError, match="is a symbolic link"):
        jobs.open()
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o755


def test_a_leftover_that_cannot_be_removed_is_told_and_stops_no_server(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    identifier = place.accept()
    (place.folder / ".tmp-folder").mkdir()
    place.restart()
    assert "it is a folder" in capsys.readouterr().err
    assert place.state(identifier) == "queued"


def test_a_certain_version_or_none(place: Place) -> None:
    pinned = place.accept(version="1")
    free = place.accept()
    job = place.jobs.take(WORKER, {"m": "2"})
    assert job is not None
    assert job.id == free
    failed = place.jobs.find(pinned, "token:a", "m")
    assert (failed.state, failed.status) == ("failed", 404)
    assert "version 1 of the model isn't served any more" in str(failed.error)


def test_a_rotation_of_keys_keeps_jobs(place: Place) -> None:
    identifier = place.accept()
    rotate(place.keyring, [place.folder])
    place.restart()
    assert place.bodies.read_request(identifier)[1] == SECRET
    assert place.run() == identifier


# -- removal and expiry --------------------------------------------------------------------------


def test_removal_while_it_runs_leaves_nothing(place: Place) -> None:
    identifier = place.accept()
    assert place.jobs.take(WORKER, {"m": "1"})
    place.jobs.remove(identifier, "token:a", "m")
    assert place.names() == set()
    # The worker doesn't know, and writes its answer.
    place.bodies.write_answer(identifier, {}, b"late")
    place.jobs.done(WORKER, 4)
    assert place.names() == set()
    assert refusal(lambda: place.jobs.remove(identifier, "token:a", "m")).status == 404
    place.accept()
    assert place.run()


def test_a_job_whose_caller_was_not_told_of_it_is_removed_and_recorded(place: Place) -> None:
    identifier = place.accept()
    place.jobs.drop(identifier)
    assert place.names() == set()
    assert [name for name, _ in place.jobs.events] == ["job.accepted", "job.removed"]


def test_what_is_sent_and_removed_while_no_worker_is_free_leaves_nothing(place: Place) -> None:
    other = place.accept()
    for _ in range(3):
        place.jobs.remove(place.accept(), "token:a", "m")
    assert list(place.jobs._waiting["m"]) == [other]  # pyright: ignore[reportPrivateUsage]


def test_contents_are_overwritten_before_they_go(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    identifier = place.accept()
    shredded: list[str] = []
    monkeypatch.setattr(kept, "shred", lambda path: shredded.append(path.name))
    place.jobs.remove(identifier, "token:a", "m")
    assert shredded == [
        place.file(identifier, part).name for part in ("state", "request", "answer")
    ]


def test_answers_expire_after_their_time_and_not_before(place: Place) -> None:
    identifier = place.accept()
    place.clock.now += 23 * HOUR
    place.run()
    place.clock.now += 24 * HOUR - 1
    place.jobs.expire()
    assert place.state(identifier) == "done"
    place.clock.now += 1
    # Also where nobody has looked through all of them yet.
    assert refusal(lambda: place.jobs.find(identifier, "token:a", "m")).status == 404
    assert place.names() == set()
    told = {"id": identifier, "owner": "token:a", "model": "m"}
    assert place.jobs.events[-1] == ("job.expired", told)


def test_requests_that_were_never_run_expire_too(place: Place) -> None:
    place.accept()
    place.clock.now += 24 * HOUR
    assert place.jobs.take(WORKER, {"m": "1"}) is None
    place.jobs.expire()
    assert place.names() == set()


def test_what_runs_does_not_expire(place: Place) -> None:
    identifier = place.accept()
    assert place.jobs.take(WORKER, {"m": "1"})
    place.clock.now += 1_000 * HOUR
    place.jobs.expire()
    place.bodies.write_answer(identifier, {}, b"{}")
    place.jobs.done(WORKER, 2)
    assert place.state(identifier) == "done"


def test_a_clock_that_is_set_back_removes_nothing(place: Place) -> None:
    identifier = place.accept()
    place.clock.now -= 10_000 * HOUR
    place.jobs.expire()
    assert place.state(identifier) == "queued"


def test_shorter_settings_hold_for_what_is_kept(place: Place) -> None:
    place.accept()
    place.run()
    place.clock.now += 2 * HOUR
    place.restart(keep_hours=1).expire()
    assert place.names() == set()


def test_a_folder_that_somebody_removed_is_told_once(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.accept()
    shutil.rmtree(place.folder)
    for _ in range(3):
        place.jobs.expire()
    assert capsys.readouterr().err.count("No such file") == 1


def test_nothing_is_removed_in_the_middle_of_a_rotation(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what it has read and writes again, it would bring back what is removed meanwhile."""
    identifier = place.accept()
    read, removed = threading.Event(), threading.Event()
    real = sealed.replacing

    def slow(path: Path) -> Any:
        read.set()
        removed.wait(0.5)
        return real(path)

    monkeypatch.setattr(sealed, "replacing", slow)
    with ThreadPoolExecutor(1) as pool:
        rotation = pool.submit(rotate, place.keyring, [place.folder])
        read.wait(60)
        place.jobs.remove(identifier, "token:a", "m")
        removed.set()
        rotation.result()
    assert place.names() == set()


def test_removal_needs_no_key(place: Place) -> None:
    identifier = place.accept()
    place.keyring.path.rename(place.keyring.path.with_name("away"))
    place.jobs.remove(identifier, "token:a", "m")
    assert place.names() == set()


def test_clearing_leaves_what_others_have_put_there(place: Place) -> None:
    place.accept()
    (place.folder / "notes.txt").write_bytes(b"somebody's own")
    kept.clear(place.folder)
    assert place.names() == {"notes.txt"}
    (place.folder / "notes.txt").unlink()
    kept.clear(place.folder)
    assert not place.folder.exists()
    kept.clear(place.folder)
    place.open()


def test_numbers(place: Place) -> None:
    assert place.jobs.numbers() == {}
    for _ in range(3):
        place.accept(body=b"12345")
        place.clock.now += 10
    place.run(b"123")
    place.jobs.take(WORKER, {"m": "1"})
    found = place.numbers()
    assert found == {
        "queued": 1, "running": 1, "done": 1, "failed": 0, "oldest": 10,
        "bytes": 3 * kept.OVERHEAD_BYTES + 2 * 5 + 3,
    }  # fmt: skip
    assert place.jobs.finished == {"m": {"done": 1, "failed": 0}}


# -- the master's queue --------------------------------------------------------------------------


class Worker:
    """What the queue needs of a worker; keeps what it is told."""

    def __init__(self, pid: int, state: str = "serving") -> None:
        self.pid = pid
        self.state = state
        self.versions = {"m": "1"}
        self.told: list[str] = []
        self.stopped: list[str] = []
        self.answers: list[dict[str, Any]] = []

    def tell(self, kind: int, payload: bytes) -> None:
        if kind == channel.JOB_STOP:
            self.stopped.append(payload.decode())
        else:
            assert kind == channel.JOB_RUN
            self.told.append(orjson.loads(payload)["id"])

    def answer(self, number: bytes, payload: bytes) -> None:
        assert number == bytes(8)
        self.answers.append(orjson.loads(payload))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def with_queue(
    place: Place, workers: list[Worker], use: Callable[[JobQueue], Awaitable[None]]
) -> list[str]:
    """Use a queue; returns the events that it told."""
    told: list[str] = []

    async def run() -> None:
        queue = JobQueue(
            place.jobs, models=("m",), event=lambda name, **_: told.append(name),
            workers=lambda: workers,
        )  # fmt: skip
        try:
            await use(queue)
        finally:
            await queue.close()

    asyncio.run(run())
    return told


def test_each_worker_has_one_job_at_a_time(place: Place) -> None:
    ids = [place.accept() for _ in range(4)]
    one, two, leaving = Worker(WORKER), Worker(OTHER), Worker(103, "draining")

    async def use(queue: JobQueue) -> None:
        for _ in range(20):
            queue.dispatch()
        await until(lambda: one.told and two.told)
        assert {*one.told, *two.told} == set(ids[:2])
        place.bodies.write_answer(one.told[0], {}, b"{}")
        queue.ended(one, b'{"outcome":"done","size":2}')
        await until(lambda: len(one.told) == 2)
        assert (one.told[1], len(two.told), leaving.told) == (ids[2], 1, [])
        queue.ended(two, b'{"outcome":"failed","status":500,"error":"no"}')
        await until(lambda: len(two.told) == 2)

    told = with_queue(place, [one, two, leaving], use)
    assert told == ["job.accepted"] * 4 + ["job.done", "job.failed"]


def test_a_worker_that_is_told_to_leave_gets_no_job_any_more(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    identifier = place.accept()
    leaving, other = Worker(WORKER), Worker(OTHER, "starting")
    real = place.jobs.take

    def slow(pid: int, served: Mapping[str, str]) -> Job | None:
        leaving.state, other.state = "draining", "serving"
        return real(pid, served)

    monkeypatch.setattr(place.jobs, "take", slow)

    async def use(queue: JobQueue) -> None:
        queue.dispatch()
        await until(lambda: leaving.told or other.told)

    with_queue(place, [leaving, other], use)
    assert (leaving.told, other.told) == ([], [identifier])
    assert place.jobs.find(identifier, "token:a", "m").tries == 1


def test_a_fault_frees_the_worker(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    identifier = place.accept()
    worker = Worker(WORKER)
    real, calls = place.jobs.take, []

    def broken(pid: int, served: Mapping[str, str]) -> Job | None:
        calls.append(pid)
        if len(calls) == 1:
            raise RuntimeError("a fault")
        return real(pid, served)

    monkeypatch.setattr(place.jobs, "take", broken)

    async def use(queue: JobQueue) -> None:
        queue.dispatch()
        await until(lambda: worker.told == [identifier])

    with_queue(place, [worker], use)
    assert "a fault" in capsys.readouterr().err


def test_the_queue_removes_what_expired(place: Place) -> None:
    place.accept()
    place.clock.now += 25 * HOUR

    async def use(queue: JobQueue) -> None:
        del queue
        await until(lambda: not place.names())

    assert with_queue(place, [], use)[-1] == "job.expired"


def test_questions_to_the_queue_are_answered_or_refused(place: Place) -> None:
    worker = Worker(WORKER)
    identifier = place.accept()

    async def use(queue: JobQueue) -> None:
        for owner in ("token:a", "token:b"):
            question = {"do": "find", "id": identifier, "owner": owner, "model": "m"}
            queue.asked(worker, bytes(8) + orjson.dumps(question))
        await until(lambda: len(worker.answers) == 2)

    with_queue(place, [], use)
    mine, other = worker.answers
    assert mine["job"]["state"] == "queued"
    assert (other["status"], other["retry"], "job" in other) == (404, None, False)


def test_a_burst_is_answered_together_and_its_states_are_written_side_by_side(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, late = [new_id() for _ in range(8)], new_id()
    for each in waiting:
        place.jobs.reserve(WORKER, each, "token:a", **OF_M, size=1)
        place.bodies.write_request(each, {}, b"x")
    broken = waiting.pop()
    asking = Worker(WORKER)
    busy, together = threading.Event(), threading.Barrier(len(waiting))
    real = kept.seal

    def meeting(path: Path, *rest: Any) -> None:
        if broken in path.name:
            raise WorkloadError("no space left")
        # None goes on before all have come so far.
        together.wait(60)
        real(path, *rest)

    monkeypatch.setattr(kept, "seal", meeting)

    async def use(queue: JobQueue) -> None:
        queue._submit(lambda: busy.wait(60))  # pyright: ignore[reportPrivateUsage]
        for each in (*waiting, broken):
            queue.asked(asking, bytes(8) + orjson.dumps({"do": "queue", "id": each}))
        asked = {"do": "reserve", "id": late, "owner": "token:b", "size": 1, **OF_M}
        queue.asked(asking, bytes(8) + orjson.dumps(asked))
        busy.set()
        await until(lambda: len(asking.answers) == len(waiting) + 2)

    with_queue(place, [], use)
    assert sorted(each["status"] for each in asking.answers) == [200] * (len(waiting) + 1) + [503]
    # What needs no disk doesn't wait for what does.
    assert "job" not in asking.answers[0]
    assert [each["job"]["id"] for each in asking.answers[1:-1]] == waiting
    assert {place.state(each) for each in waiting} == {"queued"}
    assert not list(place.folder.glob(f"{broken}.*"))


def test_who_sends_again_while_the_first_try_is_dropped_gets_no_job_that_is_about_to_go(
    place: Place,
) -> None:
    """As on a slow disk: the worker gave up waiting, and its client comes again with the key."""
    first, again = place.accept(key="a key", digest="of both"), new_id()
    asking, busy = Worker(WORKER), threading.Event()

    async def use(queue: JobQueue) -> None:
        queue._submit(lambda: busy.wait(60))  # pyright: ignore[reportPrivateUsage]
        asked = {
            "do": "reserve", "id": again, "owner": "token:a", "size": 1, **OF_M,
            "key": "a key", "digest": "of both",
        }  # fmt: skip
        for question in ({"do": "drop", "id": first}, asked):
            queue.asked(asking, bytes(8) + orjson.dumps(question))
        busy.set()
        await until(lambda: len(asking.answers) == 2)
        queue.asked(asking, bytes(8) + orjson.dumps({"do": "queue", "id": again}))
        await until(lambda: len(asking.answers) == 3)

    with_queue(place, [], use)
    assert asking.answers[:2] == [{"status": 200}] * 2
    assert asking.answers[2]["job"]["id"] == again
    assert refusal(lambda: place.jobs.find(first, "token:a", "m")).status == 404


def test_who_runs_a_job_that_is_removed_is_told_to_stop(place: Place) -> None:
    ids = [place.accept() for _ in range(3)]
    one, two = Worker(WORKER), Worker(OTHER)
    workers = [one, two]

    async def use(queue: JobQueue) -> None:
        def remove(identifier: str) -> None:
            question = {"do": "remove", "id": identifier, "owner": "token:a", "model": "m"}
            queue.asked(two, bytes(8) + orjson.dumps(question))

        queue.dispatch()
        await until(lambda: one.told and two.told)
        # Also where it is about to leave, with the job in hand.
        workers.remove(one)
        remove(one.told[0])
        await until(lambda: one.stopped)
        remove(ids[2])
        await until(lambda: len(two.answers) == 2)
        queue.ended(one, b'{"outcome":"stopped"}')

    with_queue(place, workers, use)
    assert one.stopped == one.told
    assert two.stopped == []
    assert {name.partition(".")[0] for name in place.names()} == {two.told[0]}


@pytest.mark.parametrize("when", ["waits", "runs", "has run"])
def test_a_run_that_is_told_to_stop_leaves_no_answer(
    place: Place, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    identifier = place.accept()
    told: list[bytes] = []
    failures: list[int] = []
    runs, _ = asked_for(place, identifier, Memory(10_000), lambda _, payload: told.append(payload))
    service = runs._service
    service.not_inferred = lambda status, _: failures.append(status)
    service.runs.waiting = 1 if when == "waits" else 0

    def infer(exchange: Exchange) -> Answer:
        assert when != "waits"
        runs.stop(b"another")
        assert exchange.options is not None
        assert not exchange.options.terminate
        runs.stop(identifier.encode())
        if when == "runs":
            raise RequestError(500, "terminated")
        return Answer(200, b"late")

    service.infer = infer

    async def run() -> None:
        runs.stop(identifier.encode())
        runs.start(order_of(identifier))
        if when == "waits":
            runs.stop(identifier.encode())
        await until(lambda: told)

    asyncio.run(run())
    assert (orjson.loads(told[0]), failures) == ({"outcome": "stopped"}, [])
    assert not place.file(identifier, "answer").exists()


def test_a_call_to_a_runtime_beside_is_given_up(place: Place) -> None:
    identifier = place.accept()
    told: list[bytes] = []
    runs, _ = asked_for(place, identifier, Memory(10_000), lambda _, payload: told.append(payload))
    runs._service.runs.upstream = object()

    async def never() -> Answer:
        runs.stop(identifier.encode())
        await asyncio.sleep(3_600)
        raise AssertionError

    runs._service.infer = lambda _: never()

    async def run() -> None:
        runs.start(order_of(identifier))
        await until(lambda: told)

    asyncio.run(run())
    assert orjson.loads(told[0]) == {"outcome": "stopped"}
    assert runs.running is None


def test_a_fault_in_one_question_leaves_the_others(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = Worker(WORKER)
    identifier = place.accept()
    real = place.jobs.find

    def broken(asked: str, owner: str, model: str) -> Job:
        if owner == "token:b":
            raise RuntimeError("a fault")
        return real(asked, owner, model)

    monkeypatch.setattr(place.jobs, "find", broken)

    async def use(queue: JobQueue) -> None:
        for owner in ("token:b", "token:a"):
            question = {"do": "find", "id": identifier, "owner": owner, "model": "m"}
            queue.asked(worker, bytes(8) + orjson.dumps(question))
        await until(lambda: len(worker.answers) == 2)

    with_queue(place, [], use)
    assert [each["status"] for each in worker.answers] == [500, 200]
    assert "a fault" in capsys.readouterr().err


def test_a_worker_takes_so_many_requests_at_a_time_and_no_more(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runs, "MOST_BEING_KEPT", 2)
    answered = asyncio.Event()

    async def ask(_: int, payload: bytes) -> bytes:
        await answered.wait()
        job = {"job": {"id": "1"}} if b'"queue"' in payload else {}
        return orjson.dumps({"status": 200, **job})

    service = SimpleNamespace(
        schema=SimpleNamespace(read=lambda *_: None), model=SimpleNamespace(name="m", version="1")
    )
    runs = JobRuns(cast("Any", service), place.bodies, further={}, ask=ask,
        tell=lambda *_: None, counted=int,
    )  # fmt: skip

    def post() -> Awaitable[Any]:
        url = b"/v2/models/m/jobs"
        return runs.answer(
            Exchange(
                method=b"POST", url=url, route=Router("m", "1").find(url),
                identity=Identity("a", frozenset(), "token", math.inf),
            )
        )  # fmt: skip

    async def run() -> None:
        first = [asyncio.ensure_future(post()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(RequestError) as caught:
            await post()
        assert (caught.value.status, retry_of(caught.value)) == (503, 1)
        assert "2 requests" in caught.value.message
        answered.set()
        assert [(await each).status for each in first] == [202, 202]
        assert (await post()).status == 202

    asyncio.run(run())


def test_a_master_that_does_not_answer_is_worth_asking_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "ANSWER_SECONDS", 0)
    asking = worker.Worker(cast("Any", None), cast("Any", None))
    ask = asking._ask  # pyright: ignore[reportPrivateUsage]
    error = refusal(lambda: asyncio.run(ask(channel.JOB_REQUEST, b"")))
    assert (error.status, retry_of(error)) == (503, 1)


# -- the state's parser --------------------------------------------------------------------------

IDENTIFIER = "0123456789abcdef" * 2
KEYS = [*asdict(Job(id="", owner="", model="", created=0, request_bytes=0))]
texts = some.text(max_size=40)
whole = some.integers(0, 2**53 - 1)
moments = some.floats(0, 2**35)


@some.composite
def states(draw: some.DrawFn) -> Job:
    state = draw(some.sampled_from(kept.STATES))
    ended = state in ("done", "failed")
    return Job(
        id=IDENTIFIER, owner=draw(texts), model=draw(texts), state=state, created=draw(moments),
        finished=draw(moments) if ended else None, tries=draw(whole),
        version=draw(some.none() | texts), request_bytes=draw(whole), answer_bytes=draw(whole),
        status=draw(some.integers(200, 599)), error=draw(texts) if state == "failed" else None,
        **dict.fromkeys(("key", "digest"), draw(some.none() | texts)),
    )  # fmt: skip


@given(states())
def test_states_are_read_as_they_were_written(job: Job) -> None:
    assert parse(orjson.dumps(asdict(job)), IDENTIFIER) == job


@given(some.binary(max_size=200) | some.text(max_size=200).map(str.encode))
def test_other_bytes_are_no_state(data: bytes) -> None:
    with pytest.raises(IntegrityError):
        parse(data, IDENTIFIER)


values = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**70), 2**70) | some.floats() | texts,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


@given(states(), some.sampled_from(KEYS), values)
def test_a_wrong_value_is_refused_or_a_right_one(job: Job, key: str, value: Any) -> None:
    """Whatever is read has the types and the relations that the rest relies upon."""
    document = asdict(job) | {key: value}
    try:
        read = parse(json.dumps(document).encode(), IDENTIFIER)
    except IntegrityError:
        return
    assert read.id == IDENTIFIER
    assert type(read.owner) is str
    assert (read.finished is None) == (read.state in ("queued", "running"))
    assert (read.key is None) == (read.digest is None)
    assert type(read.size) is int
    assert 0 <= read.size < 2**55
    assert cast("float", read.created) < 2**36


@pytest.mark.parametrize("key", KEYS)
def test_each_key_has_to_be_there(key: str) -> None:
    document = asdict(Job(id=IDENTIFIER, owner="a", model="m", created=1.0, request_bytes=1))
    del document[key]
    with pytest.raises(IntegrityError):
        parse(orjson.dumps(document), IDENTIFIER)
    with pytest.raises(IntegrityError):
        parse(orjson.dumps(document | {"more": 1}), IDENTIFIER)
