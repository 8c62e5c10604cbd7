"""Charts that no registry serves: from a repository behind TLS into a registry, by real helm."""

from __future__ import annotations

import functools
import io
import ssl
import tarfile
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Thread

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from falaj.stacks.images.archive import Archive
from falaj.stacks.images.crane import Crane, Helm, archive_digest, layer_digest
from falaj.stacks.images.items import EMPTY, Item
from falaj.stacks.images.mirror import Mirror, pin
from tests.stacks.images.registries import Registry

pytestmark = pytest.mark.slow
#: A name that the bill of materials has: the contents of an archive are checked against it.
NAME = "opencost"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[str, Path]]:
    """The address of a repository with one chart, trusted, and the chart's archive."""
    folder = tmp_path / "charts"
    folder.mkdir()
    archive = folder / f"{NAME}-1.2.3.tgz"
    about = {"apiVersion": "v2", "name": NAME, "version": "1.2.3"}
    with tarfile.open(archive, "w:gz") as file:
        data = yaml.safe_dump(about).encode()
        entry = tarfile.TarInfo(f"{NAME}/Chart.yaml")
        entry.size = len(data)
        file.addfile(entry, io.BytesIO(data))
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder))
    ) as server:
        address = f"https://127.0.0.1:{server.server_port}"
        listed = {NAME: [{**about, "urls": [f"{address}/{archive.name}"]}]}
        (folder / "index.yaml").write_text(
            yaml.safe_dump(
                {"apiVersion": "v1", "entries": listed, "generated": "2026-11-21T00:00:00Z"}
            )
        )
        certificate = _certificate(tmp_path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, tmp_path / "tls.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        monkeypatch.setenv("HELM_CACHE_HOME", str(tmp_path / "helm"))
        Thread(target=server.serve_forever, daemon=True).start()
        yield address, archive
        server.shutdown()


def _certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name)
        .public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(address, False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    (folder / "tls.key").write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption()))  # fmt: skip
    path = folder / "tls.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return path


def chart(address: str, digest: str | None) -> Item:
    return Item("charts", NAME, address, "1.2.3", f"charts/{NAME}", digest, "Apache-2.0", (NAME,))


def test_a_chart_is_pinned_mirrored_and_carried(
    repository: tuple[str, Path], target: Registry, tmp_path: Path
) -> None:
    address, file = repository
    asked = pin([chart(address, None)], EMPTY, registry=None, today="2026-11-21", crane=Crane(),
                helm=Helm())  # fmt: skip
    digest = asked.lock.charts[NAME].digest
    assert digest == archive_digest(file)
    wanted = [chart(address, digest)]
    mirror = Mirror(f"{target.address}/one", Crane(), Helm(), lambda line: None)
    assert mirror.fill(wanted).copied == [NAME]
    assert mirror.fill(wanted).there == [NAME]
    assert layer_digest(Crane(), f"{target.address}/one/charts/{NAME}:1.2.3") == digest
    disk = Archive(tmp_path / "disk", Crane(), Helm(), lambda line: None)
    assert disk.fill(wanted, today="2026-11-21").copied == [NAME]
    assert disk.send(wanted, f"{target.address}/two").copied == [NAME]
    assert layer_digest(Crane(), f"{target.address}/two/charts/{NAME}:1.2.3") == digest


def test_a_chart_that_was_changed_is_not_mirrored(
    repository: tuple[str, Path], target: Registry
) -> None:
    address, file = repository
    digest = archive_digest(file)
    with tarfile.open(file, "w:gz") as archive:
        data = yaml.safe_dump({"apiVersion": "v2", "name": NAME, "version": "1.2.3", "home": "x"})
        entry = tarfile.TarInfo(f"{NAME}/Chart.yaml")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data.encode()))
    mirror = Mirror(target.address, Crane(), Helm(), lambda line: None)
    assert "its content was changed since" in mirror.fill([chart(address, digest)]).failed[NAME]
    assert layer_digest(Crane(), f"{target.address}/charts/{NAME}:1.2.3") is None


def test_a_version_that_is_not_there_is_named(repository: tuple[str, Path]) -> None:
    address, _ = repository
    gone = Item("charts", NAME, address, "9.9.9", f"charts/{NAME}", None, "", (NAME,))
    asked = pin([gone], EMPTY, registry=None, today="2026-11-21", crane=Crane(), helm=Helm())
    assert "9.9.9" in asked.failed[NAME]
