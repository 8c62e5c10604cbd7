"""The rendered replicas run: every flag, mount and file of theirs means what it should."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from falaj.workloads.inference import auth
from falaj.workloads.registry.__main__ import main as registry_command
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.package import open_package
from falaj.workloads.registry.store import Store
from tests.components.kubernetes.serving_processes import MEMORY, Replica, replica
from tests.components.kubernetes.serving_services import (
    GPU,
    OVERFLOW,
    pod_of,
    service,
)
from tests.ports import free_port
from tests.workloads.inference import models
from tests.workloads.inference.grpc_calls import PROCESS, Client, refusal
from tests.workloads.inference.grpc_calls import row as grpc_row
from tests.workloads.inference.serving import Pki, call, row
from tests.workloads.registry.images import mounted, send

pytestmark = pytest.mark.slow
MODEL = "credit-risk"
ISSUER, AUDIENCE = "falaj:acme", "falaj:acme:credit-risk"
PATIENCE = 60.0


class Site:
    """What stands outside of the cluster: keys, certificates and a published package."""

    def __init__(
        self, root: Path, content: bytes | None = None, fields: dict[str, Any] | None = None
    ) -> None:
        self.keyring = KeyRing.create(root / "own-keyring")
        self.document = {"model": MODEL}
        self.pki = Pki(root / "pki")
        # As cert-manager is asked to: both usages in the servers' certificate.
        self.pki.issue(
            "tier", "credit-risk", ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
        )
        self.pki.issue("scraper", "prometheus", ExtendedKeyUsageOID.CLIENT_AUTH)
        store = Store(root / "registry")
        content = content or models.heavy()
        told = fields or models.fields(content, "run")
        for number in range(1, 8):
            published = store.publish(
                MODEL, {"model.onnx": content},
                told | {"lineage": {**told["lineage"], "run": f"run-{number}"}}, self.keyring,
            )  # fmt: skip
        assert published.version == 7
        self.package = published.path
        self.secret = root / "secret"
        self.secret.mkdir()
        assert registry_command(
            ["keyring", "pack", "--path", str(root / "own-keyring"),
             "--to", str(self.secret / "keyring.tar")]
        ) == 0  # fmt: skip
        self.tls = root / "tls"
        self.tls.mkdir()
        for name, source in (("tls.crt", "tier.crt"), ("tls.key", "tier.key")):
            (self.tls / name).write_bytes((root / "pki" / source).read_bytes())
        (self.tls / "ca.crt").write_bytes((root / "pki" / "ca.crt").read_bytes())
        # What is mounted of the images that `falaj models push` makes of the package.
        keys = self.keyring
        package = open_package(self.package, MODEL, 7, keys, keys.verify_key())
        sent = send(package, root / "sent")
        mounts = {"package": mounted([sent.image], root / "package"),
                  "package-keys": mounted([sent.keys], root / "package-keys")}  # fmt: skip
        assert sorted(path.name for path in mounts["package"].iterdir()) == [
            "files", "manifest.json", "manifest.sig",
        ]  # fmt: skip
        self.contents = {"secret": self.secret, "tls": self.tls, **mounts}

    def token(self, audience: str = AUDIENCE) -> str:
        return auth.mint(
            self.keyring.path / "tokens.pem", issuer=ISSUER, audience=audience, subject="scoring",
            scopes=["predict"], minutes=10,
        )  # fmt: skip

    def connect(self, port: int, certificate: str | None = None) -> http.client.HTTPSConnection:
        context = self.pki.client_context(certificate)
        return http.client.HTTPSConnection("localhost", port, context=context, timeout=30)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"))


def cpu_pod(**changes: Any) -> dict[str, Any]:
    return pod_of(service(**changes), "credit-risk-v7")


@pytest.fixture
def cpu(site: Site, tmp_path: Path) -> Iterator[Replica]:
    with replica(cpu_pod(cpus=1), tmp_path / "cpu", site.contents) as made:
        made.names["8443"] = str(free_port())
        yield made


@pytest.fixture
def gpu(site: Site, tmp_path: Path) -> Iterator[Replica]:
    """The GPU tier, its audience that of the CPU tier, with a stand-in for Triton."""
    asked = service("credit-risk-gpu", **GPU, token_audience=AUDIENCE, grpc=True)
    pod = pod_of(asked, "credit-risk-gpu-v7")
    with replica(pod, tmp_path / "gpu", site.contents) as made:
        made.names |= {"8443": str(free_port()), "127.0.0.1:8000": f"127.0.0.1:{free_port()}"}
        yield made


def ready(site: Site, made: Replica) -> int:
    """Wait as the startup probe does; returns the port."""
    port = int(made.names["8443"])
    probe = made.container("server")["startupProbe"]["httpGet"]
    assert (probe["scheme"], probe["path"]) == ("HTTPS", "/v2/health/ready")
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if call(site.connect(port), "GET", probe["path"])[0] == 200:
                return port
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError(made.log("server").read_text())


def infer(site: Site, port: int, **more: Any) -> tuple[int, Any]:
    connection = site.connect(port)
    return call(connection, "POST", f"/v2/models/{MODEL}/infer", body=row(), **more)


def runtime(made: Replica, *more: str) -> subprocess.Popen[bytes]:
    """The stand-in, on the repository that Triton would read."""
    command = made.container("triton")["command"]
    (folder,) = [
        each.partition("=")[2] for each in command if each.startswith("--model-repository=")
    ]
    port = made.names["127.0.0.1:8000"].rpartition(":")[2]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.workloads.inference.runtime",
         made.local(made.container("triton"), folder), MODEL, port, *more]
    )  # fmt: skip


def test_a_replica_of_the_cpu_tier_serves_its_package(site: Site, cpu: Replica) -> None:
    cpu.prepare()
    server = cpu.start("server")
    port = ready(site, cpu)
    status, answer = infer(site, port, token=site.token())
    assert status == 200
    assert (answer["model_name"], answer["model_version"]) == (MODEL, "7")
    assert abs(sum(answer["outputs"][0]["data"]) - 1) < 1e-4
    assert infer(site, port)[0] == 401
    assert infer(site, port, token=site.token("another"))[0] == 401
    # Prometheus's certificate may see the figures, and not predict.
    scraper = site.connect(port, "scraper")
    status, text = call(scraper, "GET", "/metrics")
    assert status == 200
    assert b"falaj_inference_queue_duration_seconds_count" in text
    status, _ = call(scraper, "POST", f"/v2/models/{MODEL}/infer", body=row())
    assert status == 403
    server.terminate()
    assert server.wait(60) == 0
    log = cpu.volumes["logs"] / "server"
    assert (log / "audit.jsonl").is_file()


@dataclass(frozen=True)
class Reached:
    """A replica, as clients of gRPC find it."""

    site: Site
    port: int


def test_a_replica_answers_by_grpc_as_by_http_within_what_it_was_given(
    site: Site, tmp_path: Path
) -> None:
    pod = cpu_pod(cpus=1, grpc=True)
    plain = cpu_pod(cpus=1)["containers"][0]["resources"]["limits"]["memory"]
    given = pod["containers"][0]["resources"]["limits"]["memory"]
    with replica(pod, tmp_path / "cpu", site.contents) as made:
        made.names["8443"] = str(free_port())
        made.prepare()
        server = made.start("server")
        port = ready(site, made)
        status, answer = infer(site, port, token=site.token())
        assert status == 200
        reached = cast("Any", Reached(site, port))
        with Client(reached, token=site.token()) as client:
            assert client.call("ServerReady").ready
            message = grpc_row(MODEL, row()["inputs"][0]["data"])
            told = client.infer(message)
            assert (told.model_name, told.model_version) == (MODEL, "7")
            by_grpc = list(told.outputs[0].contents.fp32_contents)
            assert by_grpc == pytest.approx(answer["outputs"][0]["data"], abs=1e-6)
            # All of a replica's processes of gRPC: one for its one worker, and no further.
            [process] = _grpc_processes(server)
            _, most = process.rlimit(psutil.RLIMIT_DATA)
            assert most == (int(given.removesuffix("Mi")) - int(plain.removesuffix("Mi"))) << 20
        with Client(reached) as stranger:
            assert refusal(stranger.infer, message)[0] == "UNAUTHENTICATED"
        with Client(reached, token=site.token("another")) as stranger:
            assert refusal(stranger.infer, message)[0] == "UNAUTHENTICATED"
        text = call(site.connect(port, "scraper"), "GET", "/metrics")[1].decode()
        assert 'falaj_drift_state{model="credit-risk",version="7"} 0.0' in text
        # Who knows both protocols, as probes, Prometheus and the gateway, goes on by HTTP/1.1.
        context = site.pki.client_context()
        context.set_alpn_protocols(["h2", "http/1.1"])
        with (
            socket.create_connection(("localhost", port), timeout=20) as opened,
            context.wrap_socket(opened, server_hostname="localhost") as tls,
        ):
            assert tls.selected_alpn_protocol() == "http/1.1"
        server.terminate()
        assert server.wait(60) == 0


def _grpc_processes(server: subprocess.Popen[bytes]) -> list[psutil.Process]:
    children = psutil.Process(server.pid).children(recursive=True)
    return [each for each in children if PROCESS in each.cmdline()]


def test_a_replica_without_grpc_and_drift_has_neither(site: Site, tmp_path: Path) -> None:
    pod = cpu_pod(cpus=1, drift={"enabled": False})
    with replica(pod, tmp_path / "cpu", site.contents) as made:
        made.names["8443"] = str(free_port())
        made.prepare()
        server = made.start("server")
        port = ready(site, made)
        with Client(cast("Any", Reached(site, port)), token=site.token()) as client:
            refused = refusal(client.infer, grpc_row(MODEL), seconds=5)
        assert refused[0] in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
        assert _grpc_processes(server) == []
        text = call(site.connect(port, "scraper"), "GET", "/metrics")[1].decode()
        assert "falaj_drift_state" not in text


def test_no_disk_holds_a_key_or_an_open_model(site: Site, cpu: Replica) -> None:
    cpu.prepare()
    cpu.start("server")
    ready(site, cpu)
    weights = models.heavy()[4096 : 4096 + 256]
    key = (site.keyring.path / "kek-1.key").read_bytes()
    on_disk = [path for path in cpu.root.rglob("*") if path.is_file()]
    assert any("registry" in path.parts for path in on_disk)
    for path in on_disk:
        content = path.read_bytes()
        assert weights not in content, path
        assert key not in content, path
    keys = cpu.volumes["keys"] / "keyring"
    assert keys.is_relative_to(MEMORY)
    held = {path.name for path in keys.iterdir()}
    assert {"keyring.json", "kek-1.key", "signing.pub.pem"} <= held
    assert not held & {"signing.pem", "tokens.pem"}


def test_a_changed_package_never_starts(site: Site, cpu: Replica, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(site.contents["package"], changed, copy_function=shutil.copyfile)
    sealed = changed / "files" / "model.onnx.enc"
    content = bytearray(sealed.read_bytes())
    content[-1] ^= 1
    sealed.write_bytes(content)
    cpu.volumes["package"] = changed
    cpu.run("keys")
    done = subprocess.run(
        cpu.command("package"), env=cpu.environment("package"), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "isn't what was signed" in done.stderr
    assert not list((cpu.volumes["work"] / "registry" / MODEL / "versions").iterdir())


def test_a_replica_of_the_gpu_tier_answers_through_its_proxy(site: Site, gpu: Replica) -> None:
    gpu.prepare()
    repository = gpu.volumes["models"] / "repository" / MODEL
    assert repository.is_relative_to(MEMORY)
    assert (repository / "7" / "model.onnx").stat().st_mode & 0o777 == 0o400
    config = (repository / "config.pbtxt").read_text()
    assert "max_batch_size: 32" in config
    assert 'input [ { name: "input" data_type: TYPE_FP32 dims: [ 64 ] } ]' in config
    gpu.start("server")
    port = int(gpu.names["8443"])
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and "serving" not in _state(gpu):
        time.sleep(0.2)
    # Without its runtime the server lives and isn't ready.
    assert call(site.connect(port), "GET", "/v2/health/live")[0] == 200
    assert call(site.connect(port), "GET", "/v2/health/ready")[0] == 503
    assert infer(site, port, token=site.token())[0] == 503
    process = runtime(gpu)
    try:
        ready(site, gpu)
        status, answer = infer(site, port, token=site.token())
        assert status == 200, answer
        assert answer["model_version"] == "7"
        assert abs(sum(answer["outputs"][0]["data"]) - 1) < 1e-4
        assert infer(site, port)[0] == 401
        with Client(cast("Any", Reached(site, port)), token=site.token()) as client:
            told = client.infer(grpc_row(MODEL, row()["inputs"][0]["data"]))
        by_grpc = list(told.outputs[0].contents.fp32_contents)
        assert by_grpc == pytest.approx(answer["outputs"][0]["data"], abs=1e-6)
    finally:
        process.kill()
        process.wait()


def _state(made: Replica) -> str:
    path = made.volumes["work"] / "server" / "state.json"
    return json.loads(path.read_text())["status"] if path.exists() else ""


@pytest.mark.thorough
def test_the_cpu_tier_overflows_to_the_gpu_tier(site: Site, gpu: Replica, tmp_path: Path) -> None:
    gpu.prepare()
    process = runtime(gpu)
    gpu.start("server")
    try:
        there = ready(site, gpu)
        # So low that whoever has to wait at all is passed on.
        pod = cpu_pod(cpus=1, overflow={**OVERFLOW, "above_ms": 0.1, "timeout_ms": 20_000})
        with replica(pod, tmp_path / "cpu", site.contents) as made:
            made.names["credit-risk-gpu-v7.acme-serving.svc:8443"] = f"localhost:{there}"
            made.names["8443"] = str(free_port())
            made.prepare()
            made.start("server")
            port = ready(site, made)
            served = _at_once(site, port, clients=16, each=25)
            assert {status for status, _ in served} == {200}
            by = [header for _, header in served]
            text = call(site.connect(port, "scraper"), "GET", "/metrics")[1].decode()
            assert "localhost" in by, "nothing was passed on"
            assert None in by, "nothing was done here"
            assert (
                'falaj_inference_overflowed_total{model="credit-risk",outcome="answered"' in text
            )
    finally:
        process.kill()
        process.wait()


def _at_once(site: Site, port: int, *, clients: int, each: int) -> list[tuple[int, str | None]]:
    """Status of every answer, and who else gave it."""
    headers = {"Authorization": f"Bearer {site.token()}"}
    body = json.dumps(row())
    path = f"/v2/models/{MODEL}/infer"

    def client(_: int) -> list[tuple[int, str | None]]:
        connection = site.connect(port)
        found: list[tuple[int, str | None]] = []
        for _ in range(each):
            connection.request("POST", path, body=body, headers=headers)
            answer = connection.getresponse()
            answer.read()
            found.append((answer.status, answer.headers.get("Falaj-Served-By")))
        return found

    with ThreadPoolExecutor(clients) as pool:
        return [answer for answers in pool.map(client, range(clients)) for answer in answers]
