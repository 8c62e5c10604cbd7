"""The watch as a pod runs it: real servers, an API server of the test's own, what is left."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from falaj.workloads.errors import LOST, REFUSED
from falaj.workloads.inference.process.logs import verify
from falaj.workloads.pipelines import __main__ as pipelines
from falaj.workloads.watching.command import main
from falaj.workloads.watching.lone import alone
from tests.stacks.watching.peers import certificate, peer, saying
from tests.waiting import wait_for
from tests.workloads.inference import watched
from tests.workloads.inference.serving import Server, Site, call
from tests.workloads.watching.api import (
    REVIEWS,
    RIGHTS,
    SPACE,
    STARTER,
    STATE,
    WATCH,
    Objects,
    serving,
)

INFER = "/v2/models/mlp/infer"
DRIFT = "/v2/models/mlp/drift"


def _send(server: Server, images: Any, state: str) -> None:
    """Send rows until the server says so of them."""
    connection = server.connect()
    predict, observe = (server.site.token(each) for each in ("predict", "observe"))
    tensor = {
        "name": "image", "datatype": "FP32", "shape": list(images.shape),
        "data": images.ravel().tolist(),
    }  # fmt: skip

    def is_so() -> bool:
        call(connection, "POST", INFER, token=predict, body={"inputs": [tensor]})
        _, found = call(connection, "GET", DRIFT, token=observe)
        return found["state"] == state

    wait_for(is_so, state)


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose rows drifted, as one replica of a service."""
    site = Site(tmp_path_factory.mktemp("watched") / "site")
    site.pki.issue("tls", "credit-watch", ExtendedKeyUsageOID.CLIENT_AUTH)
    site.document["auth"]["clients"]["credit-watch"] = ["observe"]
    site.write(drift={"window_rows": 200})
    content, fields = watched.digits_model()
    site.publish(content, fields=fields)
    server = Server(site)
    try:
        server.serving(1)
        _, _, images, _ = watched.digits()
        _send(server, np.rot90(images, axes=(2, 3))[:250], "drifted")
        yield server
    finally:
        server.kill()


@dataclass(frozen=True)
class Pod:
    """The watch's: its folders, and whom it reaches."""

    server: Server
    api: Objects
    root: Path

    def given(self, *more: str) -> list[str]:
        pki = self.server.site.pki.folder
        return [
            "watch", "--service", "credit", "--model", "mlp",
            "--servers", f"127.0.0.1:{self.server.port}", "--server-name", "localhost",
            "--observer", str(pki), "--folder", str(self.root / "watch"),
            *more,
        ]  # fmt: skip

    def asking(self, *more: str, token: str = WATCH) -> list[str]:
        return self.given(
            "--steps", "tell,retrain", "--pipeline", "credit", "--namespace", SPACE,
            "--requests", "credit-drift", *self.account(token), *more,
        )  # fmt: skip

    def account(self, token: str) -> list[str]:
        path = self.root / token
        path.write_text(token)
        return [
            "--server", f"https://127.0.0.1:{self.api.port}", "--token", str(path),
            "--authority", str(self.server.site.pki.folder / "ca.crt"),
        ]  # fmt: skip

    def start(self) -> dict[str, Any]:
        """What the CronJob of the pipeline runs."""
        words = [
            "start", "--pipeline", "credit", "--namespace", SPACE, "--reason", "drift",
            "--requests", "credit-drift", "--if-asked", "--data", str(self.root / "data"),
            *self.account(STARTER),
        ]  # fmt: skip
        assert pipelines.main(words) == 0
        return self.api.runs()[-1] if self.api.runs() else {}

    def snapshot(self, number: int) -> None:
        folder = self.root / "data" / f"credit-{number}"
        folder.mkdir(parents=True)
        said = {"digest": str(number) * 64, "created": f"2025-0{number}-01T00:00:00+00:00"}
        (folder / "dataset.json").write_text(json.dumps(said))

    def events(self) -> list[dict[str, Any]]:
        path = self.root / "watch" / "logs" / "audit.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def pod(replicas: Server, tmp_path: Path) -> Generator[Pod]:
    with serving(replicas.site.pki.folder) as api:
        yield Pod(replicas, api, tmp_path)


def named(pod: Pod) -> list[str]:
    return [str(each["event"]) for each in pod.events()]


def test_drift_is_told_and_the_pipeline_starts_a_run_once_there_are_newer_data(
    pod: Pod, capsys: pytest.CaptureFixture[str]
) -> None:
    pod.snapshot(1)
    pod.api.data(STATE, {"data": {"last.json": json.dumps({"number": 6, "digest": "1" * 64})}})
    once = pod.asking("--once", "--cool-down-hours", "0")
    assert main(once) == 3
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["event"] for each in told] == ["drift", "retrain", "asked"]
    assert told[0]["figures"]["answers"]["replicas"] == 1
    request = pod.api.request()
    assert request
    assert request["signal"] == told[1]["signal"]
    assert (request["model"], request["version"]) == ("mlp", 1)
    # Without newer data nothing is trained, and the wish stays.
    assert pod.start() == {}
    assert "nothing is newer" in capsys.readouterr().out
    # The same drift is asked for once.
    assert main(once) == 3
    assert pod.api.request() == request
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == [
        "waits"
    ]
    pod.snapshot(2)
    run = pod.start()
    assert run["metadata"]["name"] == "credit-7"
    assert run["metadata"]["annotations"]["falaj.io/reason"] == "drift"
    run["status"] = {"terminalState": "Completed"}
    pod.snapshot(3)
    assert pod.start() is run, "what was asked for was started"
    assert main(once) == 3
    assert "started its run credit-7" in capsys.readouterr().out
    assert named(pod) == ["drift", "retrain", "asked", "waits", "followed"]
    assert verify(pod.root / "watch" / "logs")["records"] == 5
    # It may do that and nothing else.
    assert {each for each in pod.api.asked if each[0] != "GET"} == {
        ("PATCH", f"/api/v1/namespaces/{SPACE}/configmaps/credit-drift"),
        ("PATCH", f"/api/v1/namespaces/{SPACE}/configmaps/credit-pipeline"),
        ("POST", REVIEWS),
        ("POST", f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{SPACE}/jobsets"),
    }


def test_a_pipeline_that_may_not_be_asked_is_said_and_costs_nothing(
    pod: Pod, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    once = pod.asking("--once")
    monkeypatch.setitem(RIGHTS, WATCH, set())
    assert main(once) == 3
    said = capsys.readouterr().out
    assert "pipeline credit can't be asked for a run" in said
    assert "give it onDrift with the name of this service" in said
    assert pod.api.request() is None
    monkeypatch.undo()
    assert main(once) == 3
    assert pod.api.request() is not None, "no cool-down was begun by what wasn't"


def test_what_drifts_no_more_isnt_asked_for(pod: Pod, capsys: pytest.CaptureFixture[str]) -> None:
    once = pod.asking("--once")
    assert main(once) == 3
    assert pod.api.request() is not None
    _, _, images, _ = watched.digits()
    _send(pod.server, images[:250], "ok")
    assert main(once) == 0
    assert pod.api.request() is None
    assert named(pod)[-2:] == ["followed", "ended"]
    assert "isn't asked any more" in capsys.readouterr().out
    _send(pod.server, np.rot90(images, axes=(2, 3))[:250], "drifted")


def test_messages_are_signed_by_the_key_of_the_store(pod: Pod, tmp_path: Path) -> None:
    authority = certificate(tmp_path)
    key = tmp_path / "key"
    key.write_text("0123456789abcdef\n")
    with peer(authority, saying("200 OK")) as other:
        assert main(pod.given(
            "--once", "--webhook", f"https://localhost:{other.port}/in",
            "--webhook-authority", str(authority), "--webhook-key", str(key),
        )) == 3  # fmt: skip
    assert b'"event": "drift"' in other.asked[0]
    assert b"Falaj-Signature: t=" in other.asked[0]
    assert named(pod) == ["drift", "sent"]


def test_nothing_is_sent_abroad(pod: Pod, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef\n")
    assert main(pod.given(
        "--once", "--webhook", "https://8.8.8.8/in", "--webhook-key", str(key)
    )) == 3  # fmt: skip
    assert "allowed: names and addresses of one's own networks" in pod.events()[-1]["text"]


def test_who_has_no_certificate_or_reaches_nobody_says_so(
    pod: Pod, capsys: pytest.CaptureFixture[str]
) -> None:
    words = pod.given("--once")
    words[words.index("--servers") + 1] = "127.0.0.9:1"
    assert main(words) == 1
    assert "no replica behind 127.0.0.9 reports drift; 127.0.0.9: it can't be reached" in (
        capsys.readouterr().out
    )
    words[words.index("--server-name") + 1] = "other"
    words[words.index("--servers") + 1] = f"127.0.0.1:{pod.server.port}"
    assert main(words) == 1
    assert "its certificate isn't trusted" in capsys.readouterr().out


REFUSALS = [
    (("--steps", "tell,rollBack"), "its judge withdraws it"),
    (("--steps", "retrain"), "allowed: tell, retrain, and tell always"),
    (("--steps", "tell,mail"), "allowed: tell, retrain"),
    (("--steps", "tell,retrain"), "--pipeline: needed with retrain"),
    (("--pipeline", "credit"), "--pipeline: needed with retrain among the steps, and for nothing"),
    (("--interval-seconds", "0"), "--interval-seconds: given 0; allowed: 1 to 86,400"),
    (("--cool-down-hours", "nan"), "--cool-down-hours: given nan; allowed: 0 to 720"),
    (("--most-retrainings-per-week", "101"), "--most-retrainings-per-week: given 101"),
    (("--webhook", "https://a.internal/"), "--webhook-key: missing"),
    (("--webhook", "http://a.internal/", "--webhook-key", "k"), "starts with https://"),
    (("--webhook-key", "k"), "--webhook-key: given without --webhook"),
    (("--webhook-authority", "k"), "--webhook-authority: given without --webhook"),
    (("--metrics", "127.0.0.1:1"), "--metrics-tls: needed with --metrics"),
    (("--metrics", "here", "--metrics-tls", "/"), "--metrics: given 'here'; allowed: HOST:PORT"),
    (("--metrics", "127.0.0.1:0", "--metrics-tls", "/nowhere"), "can't be served"),
    (("--servers", "servers.example"), "--servers: given 'servers.example'; allowed: HOST:PORT"),
    (("--observer", "/nowhere"), "--observer: /nowhere has no tls.crt"),
]


@pytest.mark.parametrize(("more", "words"), REFUSALS, ids=[each[1] for each in REFUSALS])
def test_what_can_t_be_used_is_refused(
    pod: Pod, more: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(pod.given(*more)) == REFUSED
    assert words in capsys.readouterr().err


def test_a_folder_has_one_watch(pod: Pod, capsys: pytest.CaptureFixture[str]) -> None:
    (pod.root / "watch").mkdir(mode=0o700)
    with alone(pod.root / "watch"):
        assert main(pod.given("--once")) == LOST
    assert "another watch" in capsys.readouterr().err


def _read(pod: Pod, port: int, name: str | None) -> str:
    """What is answered to who has a certificate; None: to who has none."""
    pki = pod.server.site.pki.folder
    context = ssl.create_default_context(cafile=pki / "ca.crt")
    if name is not None:
        context.load_cert_chain(pki / f"{name}.crt", pki / f"{name}.key")
    connection = HTTPSConnection("localhost", port, context=context, timeout=10)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_it_shows_that_it_looks_and_ends_in_order(pod: Pod) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    tls = pod.root / "tls"
    tls.mkdir()
    pki = pod.server.site.pki.folder
    for source, name in (("server.crt", "tls.crt"), ("server.key", "tls.key"), ("ca.crt",) * 2):
        (tls / name).write_bytes((pki / source).read_bytes())
    words = [
        sys.executable, "-m", "falaj.workloads.watching",
        *pod.given("--metrics", f"127.0.0.1:{port}", "--metrics-tls", str(tls)),
    ]  # fmt: skip
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["event"] == "drift"
            memory = pod.root / "watch" / "memory.json"
            wait_for(
                lambda: memory.exists() and json.loads(memory.read_text())["looked"], "a look"
            )
            of = 'model="mlp",service="credit"'
            drifted = f"falaj_watch_drifted{{{of}}} 1.0"
            wait_for(lambda: drifted in _read(pod, port, "tls"), "its figures")
            shown = _read(pod, port, "tls")
            assert f'falaj_watch_events_total{{event="drift",{of}}} 1.0' in shown
            assert f"falaj_watch_interval_seconds{{{of}}} 60.0" in shown
            assert "falaj_watch_looked_timestamp_seconds" in shown
            with pytest.raises(ssl.SSLError):
                _read(pod, port, None)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
