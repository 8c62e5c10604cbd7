"""What machines and containers of the tier run: against services on the loopback interface."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import subprocess
import tarfile
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from falaj.components.azure.serving import pull_image, start_server
from falaj.workloads.inference import settings as service_settings
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.store import Store
from tests.workloads.registry.images import send
from tests.workloads.registry.remotes import Kept, serving

FIELDS: dict[str, Any] = {
    "dataset": {"name": "churn"},
    "lineage": {"run": "r1"},
    "inputs": [],
    "outputs": [],
}
PEM_KEY = "-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----\n"
PEM_CERTIFICATE = "-----BEGIN CERTIFICATE-----\nREVG\n-----END CERTIFICATE-----\n"


class Cloud:
    """Answers by path; remembers what was asked with which headers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: dict[str, bytes | Callable[[str], bytes]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.refusals: dict[str, str] = {}
        """What is said with status 403, by path."""

    def put(self, path: str, answer: Any) -> None:
        """Answer ``path`` with bytes, with JSON, or by a function of the query."""
        plain = isinstance(answer, bytes) or callable(answer)
        kept: Any = answer if plain else json.dumps(answer).encode()
        self.answers[path] = kept


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """A service on the loopback interface."""
    found: list[Cloud] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length).decode()
            path, _, query = self.path.partition("?")
            found[0].asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
            answer = found[0].answers.get(path)
            content = answer(query or body) if callable(answer) else answer
            refusal = found[0].refusals.get(path)
            if refusal is not None:
                content = refusal.encode()
            self.send_response(403 if refusal else 404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        do_GET = do_POST = _answer  # noqa: N815 - names that the library looks for

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.append(Cloud(f"http://127.0.0.1:{server.server_port}"))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield found[0]
    server.shutdown()
    server.server_close()


@pytest.fixture
def identity(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """The cloud with an identity, as container apps tell of it."""
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{cloud.url}/identity")
    monkeypatch.setenv("IDENTITY_HEADER", "proof")
    cloud.put("/identity", {"access_token": "token-of-the-tier"})
    return cloud


def archive(files: dict[str, bytes]) -> bytes:
    """A tar archive of plain files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


# What is refused


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"contentType": "application/x-pkcs12", "value": "MII"}, "application/x-pem-file"),
        ({"value": PEM_KEY + PEM_CERTIFICATE}, "content type is None"),
        ({"contentType": "application/x-pem-file", "value": PEM_KEY}, "0 certificates"),
        ({"contentType": "application/x-pem-file", "value": PEM_CERTIFICATE}, "0 private keys"),
        (
            {"contentType": "application/x-pem-file", "value": PEM_KEY * 2 + PEM_CERTIFICATE},
            "2 private keys",
        ),
    ],
)
def test_certificates_that_cannot_be_served(
    tmp_path: Path, found: dict[str, str], words: str
) -> None:
    with pytest.raises(start_server.RefusedError, match=words):
        start_server.split_certificate(found, tmp_path)


def test_what_a_service_says_is_told(identity: Cloud) -> None:
    with pytest.raises(start_server.RefusedError, match=r"answers 404: "):
        start_server.secret(f"{identity.url}/secrets/none", "me")


def test_a_key_ring_archive_holds_plain_files_only(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        member = tarfile.TarInfo("../../kek-1.key")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"k"))
    start_server.unpack_keyring(base64.b64encode(buffer.getvalue()).decode(), tmp_path / "ring")
    assert [each.name for each in (tmp_path / "ring").iterdir()] == ["kek-1.key"]
    assert (tmp_path / "ring" / "kek-1.key").stat().st_mode & 0o777 == 0o600


# What is fetched


def test_a_machine_asks_its_metadata_service(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IDENTITY_ENDPOINT", raising=False)
    monkeypatch.setattr(start_server, "_METADATA", f"{cloud.url}/metadata")
    cloud.put("/metadata", {"access_token": "t"})
    assert start_server.token("https://vault.azure.net", "client-1") == "t"
    ((path, headers),) = cloud.asked
    assert headers["metadata"] == "true"
    query = urllib.parse.parse_qs(path.partition("?")[2])
    assert query["client_id"] == ["client-1"]
    assert query["resource"] == ["https://vault.azure.net"]


def test_a_container_asks_its_own_endpoint(identity: Cloud) -> None:
    assert start_server.token("https://vault.azure.net", "client-1") == "token-of-the-tier"
    assert identity.asked[0][1]["x-identity-header"] == "proof"


@dataclass(frozen=True)
class Published:
    """A package in a registry of images, and what a tier that serves it is told."""

    registry: Kept
    settings: dict[str, Any]


@pytest.fixture
def published(
    identity: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Published]:
    """A registry that wants what Azure's does: a token for the repository."""
    ring = KeyRing.create(tmp_path / "ring")
    store = Store(tmp_path / "site")
    store.publish("churn", {"model.onnx": b"weights"}, FIELDS, ring)
    sent = send(store.load("churn", 1, ring, ring.verify_key()), tmp_path / "sent")
    # The private halves of the signing and token keys stay with the site.
    needed = [
        each
        for each in ring.path.iterdir()
        if each.name in ("keyring.json", "signing.pub.pem", "tokens.jwks.json")
        or each.name.startswith("kek-")
    ]
    tar = archive({each.name: each.read_bytes() for each in needed})
    identity.put("/secrets/ring", {"value": base64.b64encode(tar).decode()})
    pem = {"value": PEM_KEY + PEM_CERTIFICATE, "contentType": "application/x-pem-file"}
    identity.put("/secrets/tls", pem)
    monkeypatch.setattr(start_server, "_SCHEME", "http")
    with serving("models/churn") as registry:
        registry.demand = "bearer"
        yield Published(
            registry,
            {
                "client": "me",
                "repository": f"{registry.address}/models/churn",
                "package_digest": registry.add(sent.image),
                "keys_digest": registry.add(sent.keys),
                "keyring": f"{identity.url}/secrets/ring",
                "certificate": f"{identity.url}/secrets/tls",
                "model": "churn",
                "version": 1,
                "folder": str(tmp_path / "run"),
                "secrets": str(tmp_path / "memory"),
                "port": 443,
                "host_name": "inference.acme.internal",
                "workers": 2,
            },
        )


def test_a_published_package_is_made_ready_to_be_served(published: Published) -> None:
    config = start_server.prepare(published.settings)

    found = service_settings.read(config)
    assert (found.model, found.alias, found.workers, found.port) == ("churn", "production", 2, 443)
    assert found.auth.audience == "inference.acme.internal"
    assert found.tls.certificate.read_text() == PEM_CERTIFICATE
    assert found.tls.private_key.read_text() == PEM_KEY
    assert found.tls.private_key.stat().st_mode & 0o777 == 0o600
    assert found.auth.jwks.is_file()
    served = KeyRing.open(found.keyring)
    package = Store(found.registry).load("churn", "production", served, served.verify_key())
    assert package.read("model.onnx") == b"weights"
    # The identity's token goes to the registry, which gives one for this repository alone.
    exchange, *tokens = published.registry.forms
    assert exchange["access_token"] == ["token-of-the-tier"]
    assert {each["scope"][0] for each in tokens} == {"repository:models/churn:pull"}
    # The server hasn't got the login with which the package was fetched.
    assert not (Path(published.settings["secrets"]) / "login").exists()


@pytest.mark.parametrize(
    "changes", [{"version": 2}, {"model": "fraud"}, {"keys_digest": "sha256:" + "0" * 64}]
)
def test_another_package_is_not_served(published: Published, changes: dict[str, Any]) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        start_server.prepare(published.settings | changes)
    assert not (Path(published.settings["secrets"]) / "login").exists()
    assert not (Path(published.settings["folder"]) / "service.json").exists()


# The image


class Pulled:
    """A repository of the tests' registry."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.host = cloud.url.removeprefix("http://")
        cloud.put("/metadata", {"access_token": "identity"})
        cloud.put("/oauth2/exchange", {"refresh_token": "refresh"})
        cloud.put("/oauth2/token", {"access_token": "pull"})

    def add(self, content: bytes, kind: str = "blobs") -> str:
        """Put something under its digest."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.cloud.put(f"/v2/inference/{kind}/{digest}", content)
        return digest

    def image(self, *layers: bytes, **config: Any) -> str:
        """Push an image for this machine; its name by digest."""
        settings = self.add(json.dumps({"config": config}).encode())
        manifest = {
            "config": {"digest": settings},
            "layers": [{"digest": self.add(layer)} for layer in layers],
        }
        return f"{self.host}/inference@{self.add(json.dumps(manifest).encode(), 'manifests')}"


@pytest.fixture
def registry(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Pulled:
    """A registry that speaks plain HTTP on the loopback interface."""
    monkeypatch.setattr(pull_image, "_METADATA", f"{cloud.url}/metadata")
    monkeypatch.setattr(pull_image, "_SCHEME", "http")
    return Pulled(cloud)


def test_content_that_is_not_what_its_digest_says(registry: Pulled, tmp_path: Path) -> None:
    image = registry.image(archive({"a": b"1"}))
    (layer,) = [
        path
        for path, content in registry.cloud.answers.items()
        if "/blobs/" in path and bytes(content)[:2] == b"\x1f\x8b"  # type: ignore[arg-type]
    ]
    registry.cloud.put(layer, archive({"a": b"changed"}))
    with pytest.raises(pull_image.RefusedError, match=r"where sha256:\w+ was asked for"):
        pull_image.pull(image, tmp_path / "image", "me")
    assert not (tmp_path / "image" / "digest").exists()


#: As Azure's storage answers, where layers lie: XML, over several lines.
_XML = """<?xml version="1.0"?><Error><Code>AuthorizationFailure</Code>
<Message>This request is not authorized</Message></Error>"""


def test_what_a_registry_says_is_told(registry: Pulled, tmp_path: Path) -> None:
    image = registry.image(archive({"a": b"1"}))
    manifest = f"/v2/inference/manifests/{image.partition('@')[2]}"
    for path in ("/metadata", "/oauth2/exchange", "/oauth2/token", manifest):
        registry.cloud.refusals = {path: _XML + " " * 4096 + "beyond"}
        with pytest.raises(pull_image.RefusedError) as raised:
            pull_image.pull(image, tmp_path / "image", "me")
        said = str(raised.value)
        assert f"{registry.host} answers 403: " in said
        assert "<Code>AuthorizationFailure</Code> <Message>This request is not" in said
        assert "beyond" not in said


def test_a_registry_that_is_not_reached_is_named(registry: Pulled, tmp_path: Path) -> None:
    image = registry.image(archive({"a": b"1"})).replace(registry.host, "127.0.0.1:1")
    with pytest.raises(pull_image.RefusedError, match=r"127\.0\.0\.1:1 can't be reached: "):
        pull_image.pull(image, tmp_path / "image", "me")


def test_an_image_for_another_architecture(registry: Pulled, tmp_path: Path) -> None:
    index = {"manifests": [{"platform": {"os": "linux", "architecture": "s390x"}, "digest": "x"}]}
    digest = registry.add(json.dumps(index).encode(), "manifests")
    with pytest.raises(pull_image.RefusedError, match="no variant for linux/"):
        pull_image.pull(f"{registry.host}/inference@{digest}", tmp_path / "image", "me")


@pytest.mark.parametrize("name", ["../../escaped", "/../escaped"])
def test_a_layer_that_reaches_out_of_the_image(
    registry: Pulled, tmp_path: Path, name: str
) -> None:
    image = registry.image(archive({name: b"x"}))
    with pytest.raises(pull_image.RefusedError, match="outside"):
        pull_image.pull(image, tmp_path / "a" / "image", "me")
    assert not list(tmp_path.rglob("escaped"))


def test_a_layer_that_is_no_archive(registry: Pulled, tmp_path: Path) -> None:
    image = registry.image(b"(zstd)")
    with pytest.raises(pull_image.RefusedError, match="can't be unpacked"):
        pull_image.pull(image, tmp_path / "image", "me")


def test_layers_lie_over_each_other(registry: Pulled, tmp_path: Path) -> None:
    lower = archive({"app/keep": b"1", "app/gone": b"2", "old/a": b"3", "file": b"4"})
    upper = archive({"app/.wh.gone": b"", "old/.wh..wh..opq": b"", "old/b": b"5", "file": b"6"})
    image = registry.image(lower, upper, Env=["PATH=/opt/venv/bin", "LANG=C"], WorkingDir="/app")
    folder = tmp_path / "image"
    pull_image.pull(image, folder, "client-1")
    root = folder / "root"
    found = {str(f.relative_to(root)): f.read_bytes() for f in root.rglob("*") if f.is_file()}
    assert found == {
        "app/keep": b"1",
        "old/b": b"5",
        "file": b"6",
        "etc/resolv.conf": b"",
        "etc/hosts": b"",
    }
    assert (folder / "environment").read_text().splitlines() == [
        "PATH=/opt/venv/bin",
        "LANG=C",
        "FALAJ_WORKDIR=/app",
    ]
    assert (folder / "digest").read_text() == image.partition("@")[2]


def test_a_link_of_a_lower_layer_is_replaced_and_not_followed(
    registry: Pulled, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        link = tarfile.TarInfo("config")
        link.type, link.linkname = tarfile.SYMTYPE, "target"
        tar.addfile(link)
        target = tarfile.TarInfo("target")
        target.size = 1
        tar.addfile(target, io.BytesIO(b"t"))
    image = registry.image(buffer.getvalue(), archive({"config": b"own"}))
    pull_image.pull(image, tmp_path / "image", "me")
    root = tmp_path / "image" / "root"
    assert (root / "config").read_bytes() == b"own"
    assert not (root / "config").is_symlink()
    assert (root / "target").read_bytes() == b"t"
    assert outside.read_text() == "untouched"


def test_an_image_is_pulled_once_and_another_replaces_it(registry: Pulled, tmp_path: Path) -> None:
    folder = tmp_path / "image"
    first = registry.image(archive({"a": b"1"}))
    pull_image.pull(first, folder, "me")
    before = len(registry.cloud.asked)
    pull_image.pull(first, folder, "me")
    assert len(registry.cloud.asked) == before
    pull_image.pull(registry.image(archive({"b": b"2"})), folder, "me")
    assert not (folder / "root" / "a").exists()
    assert (folder / "root" / "b").exists()


def test_a_layer_is_asked_for_with_a_token_for_its_repository_alone(
    registry: Pulled, tmp_path: Path
) -> None:
    bodies: list[str] = []

    def answer(body: str) -> bytes:
        bodies.append(body)
        return json.dumps({"access_token": "pull"}).encode()

    registry.cloud.put("/oauth2/token", answer)
    pull_image.pull(registry.image(archive({"a": b"1"})), tmp_path / "image", "client-1")
    assert urllib.parse.parse_qs(bodies[0])["scope"] == ["repository:inference:pull"]
    asked = dict(registry.cloud.asked)
    assert all(h["authorization"] == "Bearer pull" for p, h in asked.items() if "/v2/" in p)
