"""Jobs of a running server: the answers of `infer`, callers, kills, restarts, full disks."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import resource
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from falaj.workloads.inference import auth, settings
from falaj.workloads.inference.process import logs
from falaj.workloads.inference.process.handles import Generation
from falaj.workloads.inference.process.master import Master
from tests.workloads.inference import models
from tests.workloads.inference.serving import (
    AUDIENCE,
    ISSUER,
    PATIENCE,
    Server,
    Site,
    call,
    row,
    send_signal,
    started,
)

Start = Callable[..., Server]
JOBS = "/v2/models/mlp/jobs"
ON = {"keep_hours": 24}
QUICK = {"drain_seconds": 1}
"""Limits of servers whose clients keep their connections."""


def token_of(site: Site, subject: str, *scopes: str) -> str:
    return auth.mint(
        site.root / "keyring" / "tokens.pem", issuer=ISSUER, audience=AUDIENCE,
        subject=subject, scopes=scopes or ("predict",), minutes=60,
    )  # fmt: skip


class Caller:
    """One who sends requests, on a connection that is made anew where it has ended."""

    def __init__(self, server: Server, subject: str = "tester", *scopes: str) -> None:
        self._server = server
        self._headers = {"Authorization": f"Bearer {token_of(server.site, subject, *scopes)}"}
        self._connection = server.connect()

    def ask(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = self._headers | {name.replace("_", "-"): value for name, value in headers.items()}
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._connection.request(method, path, body=data, headers=sent)
                answer = self._connection.getresponse()
                return answer.status, dict(answer.headers), answer.read()
            except (OSError, http.client.HTTPException):
                # Its worker is gone.
                self._connection.close()
                if method == "POST" or time.monotonic() > until:
                    raise
                time.sleep(0.1)
                self._connection = self._server.connect()

    def send(self, body: object = None, **headers: str) -> str:
        status, told, content = self.ask("POST", JOBS, body or row(), **headers)
        assert status == 202, content
        document = json.loads(content)
        assert document["state"] == "queued"
        assert told["Location"] == f"{JOBS}/{document['id']}"
        assert told["Retry-After"] == "1"
        return document["id"]

    def state(self, identifier: str) -> str:
        status, told, content = self.ask("GET", f"{JOBS}/{identifier}")
        assert status == 200, content
        document = json.loads(content)
        assert ("Retry-After" in told) == (document["state"] in ("queued", "running"))
        return document["state"]

    def wait(self, identifier: str) -> str:
        until = time.monotonic() + PATIENCE
        while (state := self.state(identifier)) in ("queued", "running"):
            assert time.monotonic() < until, f"job {identifier} is {state}"
            time.sleep(0.02)
        return state

    def result(self, identifier: str) -> tuple[int, dict[str, str], bytes]:
        return self.ask("GET", f"{JOBS}/{identifier}/result")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    site = Site(tmp_path_factory.mktemp("jobs") / "site")
    site.write(jobs=ON, limits={"max_body_bytes": 1 << 20})
    with started(site, site.publish(models.mlp())) as server:
        yield server
    assert logs.verify(site.logs)["records"]


def folder_of(site: Site) -> Path:
    return site.state.with_suffix(".jobs")


def without_date(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name != "Date"}


BINARY = (
    json.dumps(
        {
            "id": "order 17",
            "inputs": [{"name": "input", "datatype": "FP32", "shape": [2, 64],
                        "parameters": {"binary_data_size": 512}}],
            "parameters": {"binary_data_output": True},
        }
    ).encode(),
    struct.pack("<128f", *range(128)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (json.dumps(row()).encode(), {}),
        (json.dumps(row(id="order 17")).encode(), {}),
        (b"".join(BINARY), {"Inference_Header_Content_Length": str(len(BINARY[0]))}),
        (bytes(256), {"Inference_Header_Content_Length": "0"}),
    ],
    ids=["json", "with an id", "binary", "raw"],
)
def test_the_answer_is_the_one_of_infer(
    served: Server, body: bytes, headers: dict[str, str]
) -> None:
    caller = Caller(served)
    direct = caller.ask("POST", "/v2/models/mlp/infer", body, **headers)
    assert direct[0] == 200
    identifier = caller.send(body, **headers)
    assert caller.wait(identifier) == "done"
    for _ in range(2):
        later = caller.result(identifier)
        assert later[0] == 200
        assert later[2] == direct[2]
        assert without_date(later[1]) == without_date(direct[1])


def test_the_same_request_again_is_the_same_job(served: Server) -> None:
    caller, other = Caller(served, "amal"), Caller(served, "badr")
    key = {"Idempotency_Key": '"8e03978e-40d5-43dd-bc93-6894a57f9324"'}
    identifier = caller.send(**key)
    caller.wait(identifier)
    for _ in range(2):
        status, told, content = caller.ask("POST", JOBS, row(), **key)
        assert (status, told["Location"]) == (202, f"{JOBS}/{identifier}")
        assert told["Retry-After"] == "1"
        assert json.loads(content)["state"] == "done"
    others = other.send(**key)
    assert others != identifier
    other.wait(others)
    binary = {"Inference_Header_Content_Length": "0"}
    differing = (
        caller.ask("POST", JOBS, row([1.0] * 64), **key),
        caller.ask("POST", "/v2/models/mlp/versions/1/jobs", row(), **key),
        caller.ask("POST", JOBS, bytes(256), **key, **binary),
    )
    for status, _, content in differing:
        assert status == 422
        assert "another request" in json.loads(content)["error"]
    without = caller.send()
    assert without != identifier
    caller.wait(without)


@pytest.mark.parametrize("key", ["", "two words", "\xe9", "a" * 256, "tab\tbed", "a" * 8_000])
def test_what_is_no_key_is_refused(served: Server, key: str) -> None:
    before = sorted(folder_of(served.site).iterdir())
    status, _, content = Caller(served).ask("POST", JOBS, row(), Idempotency_Key=key)
    assert status == 400
    error = json.loads(content)["error"]
    assert "Idempotency-Key must be 1 to 255 visible ASCII characters" in error
    assert len(error) < 200
    assert sorted(folder_of(served.site).iterdir()) == before


def test_another_caller_has_no_such_job(served: Server) -> None:
    mine, other = Caller(served, "amal"), Caller(served, "badr")
    admin = Caller(served, "carim", "admin")
    identifier = mine.send()
    mine.wait(identifier)
    unknown = other.ask("GET", f"{JOBS}/{'0' * 32}")
    assert unknown[0] == 404
    for stranger in (other, admin):
        for method, path in (("GET", ""), ("GET", "/result"), ("DELETE", "")):
            found = stranger.ask(method, f"{JOBS}/{identifier}{path}")
            assert (found[0], found[2]) == (404, unknown[2])
    assert mine.state(identifier) == "done"


def test_a_certificate_of_a_tokens_name_is_another_caller(served: Server) -> None:
    by_token = Caller(served, "caller")
    identifier = by_token.send()
    by_token.wait(identifier)
    connection = served.connect("caller")
    status, _ = call(connection, "GET", f"{JOBS}/{identifier}")
    assert status == 404
    status, accepted = call(connection, "POST", JOBS, body=row())
    assert status == 202
    assert by_token.ask("GET", f"{JOBS}/{accepted['id']}")[0] == 404
    assert call(connection, "DELETE", f"{JOBS}/{accepted['id']}")[0] == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", ""), ("GET", f"/{'0' * 32}"), ("GET", f"/{'0' * 32}/result"),
     ("DELETE", f"/{'0' * 32}")],
)  # fmt: skip
def test_the_scope_of_infer_is_needed(served: Server, method: str, path: str) -> None:
    assert call(served.connect(), method, JOBS + path)[0] == 401
    watching = Caller(served, "watcher", "observe", "feedback")
    body = row() if method == "POST" else None
    assert watching.ask(method, JOBS + path, body)[0] == 403


@pytest.mark.parametrize(
    "path",
    ["/..", "/../../../etc/passwd", "/%2e%2e%2fkeyring%2fkek-1.key", "/%00", "/..%2f..", "/x/y",
     "/" + "a" * 3_000, "/-1", "/" + "9" * 400, "//", "/%ff%fe", "/null/result", "/{}/result"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_what_is_no_id_is_not_found(served: Server, method: str, path: str) -> None:
    status, _, content = Caller(served).ask(method, JOBS + path)
    # A result is removed with its job, and not by itself.
    assert status == (405 if path.endswith("/result") and method == "DELETE" else 404)
    assert json.loads(content)["error"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_jobs_of_others_are_not_listed(served: Server, method: str) -> None:
    status, told, _ = Caller(served).ask(method, JOBS)
    assert (status, told["Allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 411), (b"{", 400), (b"null", 400), (b"[]", 400), (b'{"inputs":[]}', 400),
     (json.dumps(row([0.5] * 63)).encode(), 400), (bytes(2 << 20), 413)],
)  # fmt: skip
def test_what_infer_refuses_is_refused_at_once(served: Server, body: bytes, status: int) -> None:
    before = sorted(folder_of(served.site).iterdir())
    caller = Caller(served)
    answer = caller.ask("POST", JOBS, body or None)
    expected = 400 if not body else status
    assert answer[0] in (expected, status), answer[2]
    assert sorted(folder_of(served.site).iterdir()) == before


def test_removed_jobs_are_gone(served: Server) -> None:
    caller = Caller(served)
    identifier = caller.send()
    caller.wait(identifier)
    assert list(folder_of(served.site).glob(f"{identifier}.*"))
    assert caller.ask("DELETE", f"{JOBS}/{identifier}")[0] == 200
    assert not list(folder_of(served.site).glob(f"{identifier}.*"))
    for method, path in (("GET", ""), ("GET", "/result"), ("DELETE", "")):
        assert caller.ask(method, f"{JOBS}/{identifier}{path}")[0] == 404


def test_a_changed_answer_is_told(served: Server) -> None:
    caller = Caller(served)
    identifier = caller.send()
    caller.wait(identifier)
    path = folder_of(served.site) / f"{identifier}.answer.sealed"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    for _ in range(2):
        status, _, told = caller.result(identifier)
        assert status == 500
        assert "changed, cut short or lost" in json.loads(told)["error"]
    assert caller.state(identifier) == "failed"


def test_the_versions_path_asks_for_that_version(served: Server) -> None:
    caller = Caller(served)
    status, told, content = caller.ask("POST", "/v2/models/mlp/versions/1/jobs", row())
    assert status == 202
    assert caller.wait(json.loads(content)["id"]) == "done"
    assert told["Location"].startswith(JOBS)
    assert caller.ask("POST", "/v2/models/mlp/versions/2/jobs", row())[0] == 404


def test_metrics_and_audit_tell_of_jobs(served: Server) -> None:
    caller = Caller(served, "somebody")
    identifier = caller.send()
    caller.wait(identifier)
    watching = Caller(served, "watcher", "observe")
    until = time.monotonic() + PATIENCE
    while True:
        text = watching.ask("GET", "/metrics")[2].decode()
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        done = float(lines['falaj_jobs{model="mlp",state="done"}'])
        if done > 0 and 'falaj_jobs_bytes{model="mlp"}' in lines:
            break
        assert time.monotonic() < until
        time.sleep(0.1)
    assert float(lines['falaj_jobs{model="mlp",state="queued"}']) == 0
    assert float(lines['falaj_jobs_oldest_seconds{model="mlp"}']) == 0
    assert float(lines['falaj_jobs_bytes{model="mlp"}']) > 0
    assert float(lines['falaj_jobs_finished_total{model="mlp",state="done"}']) >= done
    records = [json.loads(line) for path in logs.audit_files(served.site.logs)
               for line in path.read_text().splitlines()]  # fmt: skip
    told = [each["event"] for each in records if each.get("id") == identifier]
    assert told == ["job.accepted", "job.done"]
    assert all(
        each["owner"] == "token:somebody" for each in records if each.get("id") == identifier
    )


# -- servers of their own ------------------------------------------------------------------------


def test_jobs_are_off_unless_asked_for(site: Site, start: Start) -> None:
    site.write(limits=QUICK)
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    caller = Caller(server)
    for method, path in (("POST", ""), ("GET", f"/{'0' * 32}"), ("DELETE", f"/{'0' * 32}")):
        status, _, content = caller.ask(method, JOBS + path, row() if method == "POST" else None)
        assert status == 404
        assert "no section jobs" in json.loads(content)["error"]
    assert not folder_of(site).exists()
    # On, and off again: what was kept goes.
    site.write(jobs=ON)
    until = time.monotonic() + PATIENCE
    while caller.ask("GET", JOBS)[0] != 405 or not folder_of(site).exists():
        assert time.monotonic() < until
        time.sleep(0.05)
        caller = Caller(server)
    while (answer := Caller(server).ask("POST", JOBS, row()))[0] != 202:
        assert time.monotonic() < until, answer
        time.sleep(0.05)
    document = {key: value for key, value in site.document.items() if key != "jobs"}
    site.document = document
    site.write()
    while folder_of(site).exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert server.stop() == 0


def test_a_server_that_leaves_while_it_looks_for_jobs_ends_its_new_workers(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = Master(site.config)
    killed: list[int] = []
    worker = SimpleNamespace(
        error=None, facts=dict, signature={}, memory=0, kill=lambda: killed.append(1)
    )

    async def ready(*_: object) -> bool:
        return True

    async def leave(_: object) -> None:
        master._leave()  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(master, "_worker", lambda _: worker)
    monkeypatch.setattr(master, "_ready", ready)
    monkeypatch.setattr(master, "_keep_jobs", leave)
    generation = Generation(master.settings, 1, (), cast("Any", None))
    asyncio.run(master._load(generation))  # pyright: ignore[reportPrivateUsage]
    assert killed


def test_a_key_ring_that_was_moved_keeps_its_jobs(site: Site) -> None:
    moved = site.root / "moved"

    async def follow() -> None:
        master = Master(site.config)
        keep = master._keep_jobs  # pyright: ignore[reportPrivateUsage]
        await keep(master.settings)
        (site.root / "keyring").rename(moved)
        site.write(keyring=str(moved))
        await keep(settings.read(site.config))
        site.document.pop("jobs")
        site.write()
        await keep(settings.read(site.config))

    site.write(jobs=ON)
    asyncio.run(follow())
    assert not folder_of(site).exists()


def heavy(rows: int) -> dict[str, Any]:
    tensor = {"name": "input", "datatype": "FP32", "shape": [rows, 64], "data": [0.5] * 64 * rows}
    return {"inputs": [tensor]}


def test_direct_requests_do_not_wait_for_a_hundred_jobs(site: Site, start: Start) -> None:
    site.write(jobs=ON)
    version = site.publish(models.heavy())
    server = start(site).serving(version)
    caller = Caller(server)
    jobs = [caller.send(heavy(256)) for _ in range(100)]
    for _ in range(3):
        assert caller.ask("POST", "/v2/models/mlp/infer", row())[0] == 200
    # They were answered before their turn.
    assert caller.state(jobs[-1]) == "queued"
    # A request that was changed while it waited fails by itself.
    path = folder_of(site) / f"{jobs[-2]}.request.sealed"
    path.write_bytes(path.read_bytes()[:-1])
    for each in jobs[20:-2]:
        assert caller.ask("DELETE", f"{JOBS}/{each}")[0] == 200
    assert {caller.wait(each) for each in jobs[:20]} == {"done"}
    assert caller.wait(jobs[-1]) == "done"
    assert caller.wait(jobs[-2]) == "failed"
    status, _, content = caller.result(jobs[-2])
    assert status == 500
    assert "the kept request was changed" in json.loads(content)["error"]
    left = {path.name.partition(".")[0] for path in folder_of(site).iterdir()}
    assert left == {*jobs[:20], *jobs[-2:]}
    assert server.stop() == 0


def test_runs_are_counted_as_requests_to_infer_of_all_workers(site: Site, start: Start) -> None:
    site.write(jobs=ON, workers=2, limits=QUICK)
    version = site.publish(models.heavy())
    server = start(site).serving(version)
    # All requests come to one worker: the other one has its jobs alone to tell of.
    caller = Caller(server, "somebody", "predict", "observe")
    jobs = [caller.send(heavy(64)) for _ in range(12)]
    assert {caller.wait(each) for each in jobs} == {"done"}
    content = caller.ask("GET", "/v2/models/mlp/stats")[2]
    (found,) = json.loads(content)["model_stats"]
    assert found["inference_stats"]["success"]["count"] == found["execution_count"] == 12
    assert found["inference_count"] == 12 * 64
    assert time.time() - found["last_inference"] / 1_000 < PATIENCE
    assert server.stop() == 0


def test_killed_workers_and_servers_lose_no_job(site: Site, start: Start) -> None:
    site.write(jobs=ON, workers=2, limits=QUICK)
    version = site.publish(models.heavy())
    server = start(site).serving(version)
    caller = Caller(server)
    jobs = [caller.send(heavy(64)) for _ in range(20)]
    send_signal(server.workers()[0], signal.SIGKILL)
    server.wait(lambda s: len([w for w in s["workers"] if w["state"] == "serving"]) == 2, "2")
    jobs.append(Caller(server).send(heavy(64)))
    # A clean stop, and one that isn't.
    assert server.stop() == 0
    server = start(site).serving(version)
    jobs.append(Caller(server).send(heavy(64)))
    server.kill()
    server = start(site).serving(version)
    caller = Caller(server)
    assert {caller.wait(each) for each in jobs} == {"done"}
    answers = {caller.result(each)[2] for each in jobs}
    assert len(answers) == 1
    assert server.stop() == 0


def steps(count: int) -> dict[str, Any]:
    """A request to the model that counts."""
    tensor = {"name": "steps", "datatype": "INT64", "shape": [1, 1], "data": [count]}
    return {"inputs": [tensor]}


def test_a_running_job_that_is_removed_is_stopped(site: Site, start: Start) -> None:
    """It would run for as long as a machine lives."""
    site.write(jobs=ON, limits=QUICK)
    version = site.publish(models.counting())
    server = start(site).serving(version)
    workers = server.workers()
    caller = Caller(server)
    endless = caller.send(steps(2**60))
    until = time.monotonic() + PATIENCE
    while caller.state(endless) != "running":
        assert time.monotonic() < until
        time.sleep(0.02)
    # A direct request doesn't wait for it.
    assert caller.ask("POST", "/v2/models/mlp/infer", steps(2))[0] == 200
    assert caller.ask("DELETE", f"{JOBS}/{endless}")[0] == 200
    following = caller.send(steps(3))
    assert caller.wait(following) == "done"
    assert server.workers() == workers
    assert "failed on a request" not in server.errors.read_text()
    assert server.stop() == 0


def test_a_request_that_kills_its_worker_three_times_fails(site: Site, start: Start) -> None:
    site.write(jobs=ON, workers=2, limits=QUICK)
    version = site.publish(models.counting())
    server = start(site).serving(version)

    def working() -> int | None:
        """The worker that runs it for as long as a machine lives: the other one idles."""
        for pid in server.workers():
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                before = process.cpu_times().user
                time.sleep(0.5)
                if process.cpu_times().user - before > 0.1:
                    return pid
        return None

    caller = Caller(server)
    poison = caller.send(steps(2**60))
    killed = 0
    until = time.monotonic() + PATIENCE
    while killed < 3:
        assert time.monotonic() < until, killed
        pid = working()
        if pid is not None:
            send_signal(pid, signal.SIGKILL)
            killed += 1
    caller = Caller(server)
    assert caller.wait(poison) == "failed"
    status, _, content = caller.result(poison)
    assert status == 500
    assert "ended 3 times" in json.loads(content)["error"]
    other = caller.send(steps(3))
    assert caller.wait(other) == "done"
    assert json.loads(caller.result(other)[2])["outputs"][0]["data"] == [6]
    assert server.stop() == 0


def test_a_full_disk_accepts_nothing_and_serving_goes_on(site: Site, start: Start) -> None:
    """Files of this server can't grow beyond a size: at the real call that writes."""
    site.write(jobs=ON)
    limit = 200_000
    version = site.publish(models.mlp())
    server = start(
        site, preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    ).serving(version)
    caller = Caller(server)
    for _ in range(2):
        status, told, content = caller.ask("POST", JOBS, heavy(1_024))
        assert (status, told["Retry-After"]) == (503, "60"), content
        assert "no room" in json.loads(content)["error"]
        assert str(site.root) not in content.decode()
    assert caller.ask("POST", "/v2/models/mlp/infer", row())[0] == 200
    # What fits is taken, and its room isn't lost.
    identifier = caller.send()
    assert caller.wait(identifier) == "done"
    until = time.monotonic() + PATIENCE
    while {path.name.partition(".")[0] for path in folder_of(site).iterdir()} != {identifier}:
        assert time.monotonic() < until, list(folder_of(site).iterdir())
        time.sleep(0.05)
    assert server.stop() == 0


def test_a_full_place_says_when_to_come_again(site: Site, start: Start) -> None:
    site.write(jobs={"keep_hours": 1, "most_jobs": 2})
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    caller, other = Caller(server, "amal"), Caller(server, "badr")
    first = caller.send()
    status, told, content = caller.ask("POST", JOBS, row())
    assert (status, told["Retry-After"]) == (429, "60")
    assert "your jobs are 1 of the 1 allowed to you now" in json.loads(content)["error"]
    other.send()
    status, told, content = Caller(server, "carim").ask("POST", JOBS, row())
    assert (status, told["Retry-After"]) == (503, "60")
    assert "all callers' jobs are 2 of the 2 allowed" in json.loads(content)["error"]
    caller.ask("DELETE", f"{JOBS}/{first}")
    caller.send()
    assert server.stop() == 0
