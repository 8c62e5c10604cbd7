"""A site with keys, certificates and a registry, and the server running on it."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from falaj.workloads.inference import auth
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.store import Store
from tests.waiting import alive
from tests.workloads.inference import models

ISSUER = "falaj:test"
AUDIENCE = "falaj:test:service"
PATIENCE = 60.0


class Site:
    """What `falaj up` makes on a disk, as far as the server needs it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        self.keyring = KeyRing.create(root / "keyring")
        self.pki = Pki(root / "pki")
        self.store = Store(root / "registry", self.keyring)
        self.config = root / "service.json"
        self.logs = root / "service" / "logs"
        self.state = root / "service" / "state.json"
        self.document: dict[str, Any] = {
            "format": "falaj.service/1",
            "name": "service",
            "host": "127.0.0.1",
            "port": 0,
            "registry": str(root / "registry"),
            "model": "mlp",
            "keyring": str(root / "keyring"),
            "tls": {
                "certificate": str(root / "pki/server.crt"),
                "private_key": str(root / "pki/server.key"),
                "client_ca": str(root / "pki/ca.crt"),
            },
            "auth": {
                "issuer": ISSUER,
                "audience": AUDIENCE,
                "jwks": str(root / "keyring/tokens.jwks.json"),
                "clients": {"caller": ["predict"]},
            },
            "logs": str(self.logs),
            "state": str(self.state),
        }
        self.write()

    def write(self, **changes: Any) -> None:
        self.document |= changes
        temporary = self.config.with_suffix(".new")
        temporary.write_text(json.dumps(self.document))
        temporary.replace(self.config)

    def publish(
        self,
        model: bytes,
        *,
        promote: bool = True,
        run: str = "run",
        name: str = "",
        fields: dict[str, Any] | None = None,
    ) -> int:
        """Publish a version of the service's model, or of another; ``fields``: its manifest's."""
        name = name or self.document["model"]
        files = {"model.onnx": model}
        known = fields or models.fields(model, run)
        published = self.store.publish(name, files, known, self.keyring)
        if promote:
            self.store.promote(name, published.version)
        return published.version

    def token(
        self,
        *scopes: str,
        minutes: float = 60,
        audience: str = AUDIENCE,
        issuer: str = ISSUER,
        subject: str = "tester",
    ) -> str:
        return auth.mint(
            self.root / "keyring" / "tokens.pem",
            issuer=issuer,
            audience=audience,
            subject=subject,
            scopes=scopes or ("predict",),
            minutes=minutes,
        )


class Pki:
    """A certificate authority with a server's and two clients' certificates."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        authority = self._builder(self._issuer, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self._save("ca", authority.sign(self._key, hashes.SHA256()), self._key)
        self.issue("server", "localhost", ExtendedKeyUsageOID.SERVER_AUTH)
        self.issue("caller", "caller", ExtendedKeyUsageOID.CLIENT_AUTH)
        self.issue("stranger", "stranger", ExtendedKeyUsageOID.CLIENT_AUTH)

    def issue(
        self, name: str, common_name: str, *usages: x509.ObjectIdentifier, days: int = 1
    ) -> None:
        """Make a key and a certificate; ``days`` may be past."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = (
            self._builder(subject, key, days)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
        )
        self._save(name, builder.sign(self._key, hashes.SHA256()), key)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int = 1
    ) -> x509.CertificateBuilder:
        end = datetime.now(UTC) + timedelta(days=days)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - timedelta(days=1, minutes=5))
            .not_valid_after(end)
        )

    def _save(
        self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> None:
        pem = serialization.Encoding.PEM
        (self.folder / f"{name}.crt").write_bytes(certificate.public_bytes(pem))
        private = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (self.folder / f"{name}.key").write_bytes(private)

    def client_context(self, certificate: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        if certificate:
            context.load_cert_chain(
                self.folder / f"{certificate}.crt", self.folder / f"{certificate}.key"
            )
        return context


class Server:
    """The server's process; `stop` leaves nothing behind."""

    def __init__(self, site: Site, preexec: Callable[[], None] | None = None) -> None:
        self.site = site
        self.errors = site.root / "server.log"
        with self.errors.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "falaj.workloads.inference",
                    "serve",
                    "--config",
                    site.config,
                ],
                stderr=log,
                preexec_fn=preexec,  # noqa: PLW1509 - only lowers a limit
            )

    def state(self) -> dict[str, Any]:
        try:
            return json.loads(self.site.state.read_text())
        except FileNotFoundError:
            return {}

    def wait(self, condition: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            state = self.state()
            if state.get("pid") == self.process.pid and condition(state):
                return state
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"{what}: {self.state()}\n{self.errors.read_text()}")

    def serving(self, version: int) -> Server:
        """Wait until the version is served, by workers of it alone or beside draining ones."""
        self.wait(
            lambda s: (
                s["status"] == "serving"
                and s["version"] == version
                and {w["version"] for w in s["workers"] if w["state"] == "serving"} == {version}
            ),
            f"version {version} is not served",
        )
        return self

    @property
    def port(self) -> int:
        return int(self.state()["port"])

    def workers(self) -> list[int]:
        return [w["pid"] for w in self.state()["workers"] if w["state"] == "serving"]

    def connect(self, certificate: str | None = None) -> http.client.HTTPSConnection:
        context = self.site.pki.client_context(certificate)
        return http.client.HTTPSConnection("localhost", self.port, context=context, timeout=30)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """End everything at once."""
        children = []
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children(recursive=True)
        for process in children:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)


@contextlib.contextmanager
def started(site: Site, version: int) -> Generator[Server]:
    """A server of this version, which is told to leave at the end, and leaves in order."""
    server = Server(site)
    try:
        yield server.serving(version)
        assert server.stop() == 0
    finally:
        server.kill()


def call(
    connection: http.client.HTTPSConnection,
    method: str,
    path: str,
    *,
    token: str | None = None,
    body: object = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    """Send a request and return the status and the JSON document (or bytes, if it isn't JSON)."""
    sent = {"Authorization": f"Bearer {token}"} if token else {}
    data = json.dumps(body) if body is not None and not isinstance(body, bytes) else body
    connection.request(method, path, body=data, headers=sent | (headers or {}))
    answer = connection.getresponse()
    content = answer.read()
    if answer.headers.get("Content-Type") == "application/json":
        return answer.status, json.loads(content)
    return answer.status, content


def row(values: Sequence[float] = (0.5,) * 64, **more: Any) -> dict[str, Any]:
    """Return a request of one row for the small network."""
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 64], "data": list(values)}
    return {"inputs": [tensor], **more}


def gone(pids: Sequence[int], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def send_signal(pid: int, number: int) -> None:
    os.kill(pid, number)
