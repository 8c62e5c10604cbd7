"""Kills, tampering, full disks, taken ports, and versions that change under load."""

from __future__ import annotations

import http.client
import json
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from falaj.workloads.inference.process import logs
from tests.workloads.inference import models
from tests.workloads.inference.serving import Server, Site, call, gone, row, send_signal

Start = Callable[..., Server]


def serve_once(site: Site) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "falaj.workloads.inference",
        "serve",
        "--config",
        str(site.config),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def refused(site: Site) -> str:
    done = serve_once(site)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


def test_port_in_use_is_a_clear_error(site: Site) -> None:
    site.publish(models.mlp())
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        site.write(port=port)
        message = refused(site)
    assert f"port {port} on 127.0.0.1 is in use" in message
    assert json.loads(site.state.read_text())["status"] == "failed"


def test_no_package_is_a_clear_error(site: Site) -> None:
    message = refused(site)
    assert "promote" in message
    assert "alias" in json.loads(site.state.read_text())["error"]


@pytest.mark.parametrize("part", ["manifest.json", "manifest.sig", "keys.json", "files"])
def test_tampered_package_is_not_served(site: Site, part: str) -> None:
    version = site.publish(models.mlp())
    path = site.store.path("mlp", version) / part
    path = next(path.iterdir()) if path.is_dir() else path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)
    message = refused(site)
    assert message.startswith("error: ")
    state = json.loads(site.state.read_text())
    assert state["status"] == "failed"
    assert state["error"]


def test_manifest_of_another_model_is_refused(site: Site) -> None:
    model = models.mlp()
    wrong = models.fields(model)
    wrong["inputs"][0]["datatype"] = "FP64"
    site.publish(model, fields=wrong)
    assert "the manifest's inputs aren't the model's" in refused(site)


def test_broken_tls_key_is_refused(site: Site) -> None:
    site.publish(models.mlp())
    Path(site.document["tls"]["private_key"]).write_text("nothing")
    assert "can't use the certificate" in refused(site)


def test_tampered_update_leaves_the_old_version_serving(site: Site, start: Start) -> None:
    first = site.publish(models.mlp(1))
    server = start(site).serving(first)
    second = site.publish(models.mlp(2), promote=False)
    path = next((site.store.path("mlp", second) / "files").iterdir())
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    site.store.promote("mlp", second)
    state = server.wait(lambda s: s["error"], "the refusal isn't in the state")
    assert state["status"] == "serving"
    assert state["version"] == first
    status, answer = call(
        server.connect(), "POST", "/v2/models/mlp/infer", token=site.token(), body=row()
    )
    assert (status, answer["model_version"]) == (200, str(first))
    # The way back is open: the refusal is forgotten with what caused it.
    site.store.rollback("mlp")
    server.wait(lambda s: s["error"] is None, "the error stays")
    assert server.stop() == 0


def test_unreadable_configuration_leaves_the_old_one(site: Site, start: Start) -> None:
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    site.write(surprise=1)
    state = server.wait(lambda s: s["error"], "the mistake isn't in the state")
    assert "surprise is not a known key" in state["error"]
    assert state["status"] == "serving"


class Hammer:
    """Threads that send requests all the time, on kept and on fresh connections."""

    def __init__(self, server: Server, kept: int = 3, fresh: int = 1) -> None:
        self.server = server
        self.port = server.port
        self.failures: list[str] = []
        self.versions: dict[str, int] = {}
        self._token = server.site.token()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(False,)) for _ in range(kept)]
        self._threads += [threading.Thread(target=self._run, args=(True,)) for _ in range(fresh)]

    def __enter__(self) -> Hammer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self, fresh: bool) -> None:
        connection = self.server.connect()
        while not self._stop.is_set():
            try:
                status, answer = call(
                    connection, "POST", "/v2/models/mlp/infer", token=self._token, body=row()
                )
                if status != 200:
                    self.failures.append(f"{status} {answer}")
                version = answer.get("model_version", "")
                self.versions[version] = self.versions.get(version, 0) + 1
            except (OSError, ValueError) as error:
                self.failures.append(repr(error))
                connection.close()
            if fresh:
                connection.close()
        connection.close()


def test_versions_change_under_load_without_a_failed_request(site: Site, start: Start) -> None:
    site.write(limits={"drain_seconds": 3})
    first = site.publish(models.mlp(1))
    server = start(site).serving(first)
    second = site.publish(models.mlp(2), promote=False)
    with Hammer(server) as hammer:
        for _ in range(2):
            site.store.promote("mlp", second)
            server.serving(second)
            time.sleep(0.3)
            site.store.rollback("mlp")
            server.serving(first)
            time.sleep(0.3)
    assert hammer.failures == []
    assert set(hammer.versions) == {str(first), str(second)}
    assert server.stop() == 0
    assert logs.verify(site.logs)["access_lines"] == sum(hammer.versions.values())


def test_who_asks_while_the_server_leaves_is_told_with_an_answer(site: Site, start: Start) -> None:
    """Whose connection ended between two requests would lose the one that is on its way."""
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    token = {"Authorization": f"Bearer {site.token()}"}

    def ask_until_told(connection: http.client.HTTPSConnection) -> int:
        asked = 0
        while True:
            asked += 1
            connection.request("POST", "/v2/models/mlp/infer", json.dumps(row()), token)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
            if answer.getheader("Connection") == "close":
                return asked
            time.sleep(0.1)

    with ThreadPoolExecutor() as pool:
        callers = [pool.submit(ask_until_told, server.connect()) for _ in range(4)]
        idle = server.connect()
        assert call(idle, "GET", "/v2/health/live")[0] == 200
        time.sleep(0.5)
        assert server.stop() == 0
        assert all(each.result() > 1 for each in callers)


def test_who_was_accepted_before_a_change_is_answered_after_it(site: Site, start: Start) -> None:
    """A slow handshake: the old worker has no connection yet, and has to wait for this one."""
    site.write(limits={"drain_seconds": 8})
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    (worker,) = server.workers()
    with socket.create_connection(("127.0.0.1", server.port), 10) as slow:
        time.sleep(0.3)
        send_signal(server.process.pid, signal.SIGHUP)
        server.wait(lambda _: server.workers() not in ([worker], []), "no new worker")
        time.sleep(0.5)
        connection = server.connect()
        context = site.pki.client_context(None)
        connection.sock = context.wrap_socket(slow, server_hostname="localhost")
        assert call(connection, "GET", "/v2/health/live")[0] == 200
        connection.close()
    server.wait(lambda s: worker not in [w["pid"] for w in s["workers"]], "the old one stays")
    assert server.stop() == 0


def test_a_handshake_that_never_ends_keeps_no_worker(site: Site, start: Start) -> None:
    site.write(limits={"drain_seconds": 300, "header_timeout_seconds": 1})
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    (worker,) = server.workers()
    with socket.create_connection(("127.0.0.1", server.port), 10):
        time.sleep(0.3)
        send_signal(server.process.pid, signal.SIGHUP)
        server.wait(lambda s: worker not in [w["pid"] for w in s["workers"]], "the old one stays")
        assert server.stop() == 0  # nor the whole server, which leaves


def test_killed_worker_is_replaced_and_the_port_stays(site: Site, start: Start) -> None:
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    port = server.port
    (worker,) = server.workers()
    send_signal(worker, signal.SIGKILL)
    # The socket is the master's: a connection waits for the new worker instead of failing.
    status, _ = call(server.connect(), "GET", "/v2/health/ready")
    assert status == 200
    server.wait(
        lambda s: (
            bool(serving := [w["pid"] for w in s["workers"] if w["state"] == "serving"])
            and worker not in serving
        ),
        "there is no new worker",
    )
    assert server.port == port
    assert server.stop() == 0


def test_worker_that_cannot_be_replaced_is_told_and_tried_again(site: Site, start: Start) -> None:
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    path = next((site.store.path("mlp", version) / "files").iterdir())
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    (worker,) = server.workers()
    send_signal(worker, signal.SIGKILL)
    state = server.wait(lambda s: s["error"], "the reason isn't in the state")
    assert state["status"] == "failed"
    assert "isn't what was signed" in state["error"]
    # Nobody waits for a worker that doesn't come, whoever asks for whatever.
    asked = time.monotonic()
    for method, target in (("POST", "/v2/models/mlp/infer"), ("GET", "/v2/health/ready")):
        connection = server.connect()
        connection.request(method, target, body=json.dumps(row()))
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        assert "no worker" in json.loads(answer.read())["error"]
        connection.close()
    connection = server.connect()
    status, answer = call(connection, "GET", "/v1/models")
    assert (status, answer["error"]["type"]) == (503, "server_error")
    connection.close()
    connection = server.connect()
    connection.request("HEAD", "/v2/health/ready")
    assert connection.getresponse().status == 503
    connection.close()
    assert time.monotonic() - asked < 5
    time.sleep(1.5)  # longer than the master needs to look at alias and configuration again
    assert json.loads(site.state.read_text())["error"] == state["error"]
    path.write_bytes(whole)
    server.wait(lambda s: s["status"] == "serving" and s["error"] is None, "it isn't served again")
    assert call(server.connect(), "GET", "/v2/health/ready")[0] == 200
    assert server.stop() == 0


def test_killed_master_leaves_no_worker_and_the_port_is_taken_again(
    site: Site, start: Start
) -> None:
    site.write(workers=2)
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    port = server.port
    site.write(port=port)
    server.wait(lambda s: len(s["workers"]) == 2 and s["error"] is None, "no two workers")
    server.wait(
        lambda s: all(w["state"] == "serving" for w in s["workers"]), "the new port isn't taken"
    )
    workers = server.workers()
    server.process.kill()
    server.process.wait(10)
    again = start(site).serving(version)
    assert again.port == port
    assert gone(workers)
    assert call(again.connect(), "GET", "/v2/health/live")[0] == 200
    assert again.stop() == 0


def test_termination_while_loading(site: Site, start: Start) -> None:
    site.publish(models.mlp())
    server = start(site)
    server.wait(lambda s: s["status"] == "starting" and s["workers"], "no worker starts")
    workers = [worker["pid"] for worker in server.state()["workers"]]
    assert server.stop() == 0
    assert gone(workers, 2)
    assert server.state()["status"] == "stopped"


def test_hangup_starts_new_workers(site: Site, start: Start) -> None:
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    (worker,) = server.workers()
    with Hammer(server, kept=1, fresh=0) as hammer:
        send_signal(server.process.pid, signal.SIGHUP)
        server.wait(lambda s: worker not in [w["pid"] for w in s["workers"]], "no new worker")
    assert hammer.failures == []
    assert server.stop() == 0


def test_renewed_certificate_is_taken(site: Site, start: Start) -> None:
    def serial() -> object:
        connection = server.connect()
        connection.connect()
        certificate = connection.sock.getpeercert()  # pyright: ignore
        connection.close()
        return certificate["serialNumber"]

    version = site.publish(models.mlp())
    server = start(site).serving(version)
    before, (worker,) = serial(), server.workers()
    site.pki.issue("server", "localhost", ExtendedKeyUsageOID.SERVER_AUTH)
    server.wait(
        lambda s: (
            bool(serving := [w["pid"] for w in s["workers"] if w["state"] == "serving"])
            and worker not in serving
        ),
        "the certificate isn't taken",
    )
    assert serial() != before
    assert server.stop() == 0


def test_termination_answers_and_leaves_nothing(site: Site, start: Start) -> None:
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    workers = server.workers()
    connection = server.connect()
    call(connection, "POST", "/v2/models/mlp/infer", token=site.token(), body=row())
    assert server.stop() == 0
    assert gone(workers, 1)
    assert server.state()["status"] == "stopped"
    assert logs.verify(site.logs)["access_lines"] == 1


def test_full_disk_does_not_stop_the_server(site: Site, start: Start) -> None:
    def small_files() -> None:
        # As if the disk were full: a write beyond this size fails (EFBIG).
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    version = site.publish(models.mlp())
    server = start(site, preexec=small_files).serving(version)
    connection = server.connect()
    token = site.token("predict", "observe")
    for _ in range(3):
        for _ in range(100):
            status, _ = call(connection, "POST", "/v2/models/mlp/infer", token=token, body=row())
            assert status == 200
        time.sleep(0.6)
    deadline = time.monotonic() + 20
    while "lines are dropped" not in server.errors.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    # Again after lines that were few enough to fit: once for each time is told by the log's tests.
    assert "lines are dropped" in server.errors.read_text()
    _, text = call(connection, "GET", "/metrics", token=token)
    dropped = next(
        float(line.split()[1])
        for line in text.decode().splitlines()
        if line.startswith("falaj_inference_dropped_log_lines_total")
    )
    assert dropped >= 100
    assert server.stop() == 0
    # What was written is whole, and the chain over it is intact.
    assert logs.verify(site.logs)["records"] > 0


def test_a_list_of_aliases_that_was_put_back_is_not_followed(site: Site, start: Start) -> None:
    first = site.publish(models.mlp(1))
    files = (site.store.root / "mlp" / "aliases.json", site.store.root / "audit.jsonl")
    older = [file.read_bytes() for file in files]
    second = site.publish(models.mlp(2))
    server = start(site).serving(second)
    files[0].write_bytes(older[0])
    state = server.wait(lambda s: s["error"], "nobody noticed")
    assert "it was put back" in state["error"]
    assert (state["status"], state["version"]) == ("serving", second)
    # Nor is it at a start, with the log put back as well: the server has seen a later list.
    assert server.stop() == 0
    files[1].write_bytes(older[1])
    again = start(site)
    assert again.process.wait(60) == 2
    assert "number 2 was there already" in again.errors.read_text()
    site.store.promote("mlp", second)
    site.store.promote("mlp", first)
    assert start(site).serving(first).stop() == 0


def test_each_model_has_a_count_of_its_own(site: Site, start: Start) -> None:
    for seed in (1, 2):
        latest = site.publish(models.mlp(seed))
    server = start(site).serving(latest)
    site.document["model"] = "other"
    first = site.publish(models.mlp(3))
    site.write()
    state = server.wait(lambda s: s["error"] or s["model"] == "other", "nobody noticed")
    assert (state["error"], state["version"]) == (None, first)
    assert state["aliases_numbers"] == {"mlp": 2, "other": 1}
    assert server.stop() == 0
