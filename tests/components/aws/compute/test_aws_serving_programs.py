"""Programs that are sent to machines of the inference tier: run here, against a local server."""

from __future__ import annotations

import ast
import base64
import hashlib
import http.server
import io
import json
import ssl
import subprocess
import sys
import tarfile
import threading
import urllib.parse
from collections.abc import Generator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

import falaj
from falaj.components.aws.serving import cloud_init, fetch, start_server
from falaj.workloads.inference import settings as service_settings
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.store import Store

SERVING = cloud_init.Serving(
    "me-central-1",
    "acme-models",
    "packages/churn/3",
    "churn",
    3,
    "arn:aws:secretsmanager:me-central-1:000000000000:secret:keyring-AbCdEf",
    "inference.acme.internal",
    2,
)
IMAGE = "000000000000.dkr.ecr.me-central-1.amazonaws.com/inference@sha256:" + "a" * 64
ROLE = {"id": "AKIDEXAMPLE", "key": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "token": "t"}


def packed(files: dict[str, bytes]) -> str:
    """A tar archive in base64."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return base64.b64encode(written.getvalue()).decode()


class Cloud(http.server.BaseHTTPRequestHandler):
    """Answers as the metadata service, S3 and Secrets Manager do, over plain HTTP."""

    objects: ClassVar[dict[str, bytes]] = {}
    secret: ClassVar[str] = ""
    seen: ClassVar[list[tuple[str, str, dict[str, str]]]] = []

    def do_PUT(self) -> None:
        self._answer(b"session")

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        asked = json.loads(self.rfile.read(length))
        if self.headers["x-amz-target"].endswith("GetAuthorizationToken"):
            token = {"authorizationToken": "QVdTOnB3", "proxyEndpoint": "https://host.example"}
            self._answer(json.dumps({"authorizationData": [token]}).encode())
        else:
            assert asked == {"SecretId": SERVING.keyring}
            self._answer(json.dumps({"SecretString": self.secret}).encode())

    def do_GET(self) -> None:
        path = urllib.parse.urlsplit(self.path)
        if path.path == "/latest/meta-data/iam/security-credentials/":
            self._answer(b"tier\n")
        elif path.path == "/latest/meta-data/iam/security-credentials/tier":
            found = {"AccessKeyId": "A", "SecretAccessKey": "S", "Token": "T"}
            self._answer(json.dumps(found).encode())
        elif path.path == "/":
            self._list(dict(urllib.parse.parse_qsl(path.query)))
        else:
            self._answer(self.objects[urllib.parse.unquote(path.path)[1:]])

    def _list(self, query: dict[str, str]) -> None:
        names = sorted(name for name in self.objects if name.startswith(query["prefix"]))
        # One name on each page: continuation is tried, too.
        at = int(query.get("continuation-token", "0"))
        more = f"<NextContinuationToken>{at + 1}</NextContinuationToken>"
        body = "".join(f"<Contents><Key>{name}</Key></Contents>" for name in names[at : at + 1])
        page = body + (more if at + 1 < len(names) else "")
        space = "http://s3.amazonaws.com/doc/2006-03-01/"
        self._answer(f'<ListBucketResult xmlns="{space}">{page}</ListBucketResult>'.encode())

    def _answer(self, body: bytes) -> None:
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.seen.append((self.command, self.path, headers))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Generator[type[Cloud], None, None]:
    """A local cloud; the program's addresses lead there."""
    Cloud.objects, Cloud.seen = {}, []
    Cloud.secret = packed({"keyring.json": b"{}", "kek-1.key": b"k"})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cloud)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    real = fetch._read

    def local(url: str, *rest: Any, **named: Any) -> bytes:
        parts = urllib.parse.urlsplit(url)
        assert parts.netloc in {
            "169.254.169.254",
            "acme-models.s3.me-central-1.amazonaws.com",
            "secretsmanager.me-central-1.amazonaws.com",
            "api.ecr.me-central-1.amazonaws.com",
        }
        query = f"?{parts.query}" if parts.query else ""
        return real(f"{base}{parts.path}{query}", *rest, **named)

    monkeypatch.setattr(fetch, "_read", local)
    monkeypatch.delenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", raising=False)
    yield Cloud
    server.shutdown()
    server.server_close()


def wanted(folder: Path) -> dict[str, Any]:
    """Settings whose folders lie under ``folder``."""
    found = SERVING.settings(secrets=str(folder / "s"), user=None, login=str(folder / "l"))
    return {**found, "folder": str(folder / "data")}


def test_an_empty_prefix_is_refused(cloud: type[Cloud], tmp_path: Path) -> None:
    with pytest.raises(fetch.RefusedError, match="nothing lies under packages/churn/3"):
        fetch.fetch(wanted(tmp_path))


def test_a_file_outside_of_the_package_is_refused(cloud: type[Cloud], tmp_path: Path) -> None:
    cloud.objects = {"packages/churn/3/../../../../etc/passwd": b"x"}
    with pytest.raises(fetch.RefusedError, match="outside of its own folder"):
        fetch.fetch(wanted(tmp_path))
    assert not (tmp_path / "etc").exists()


def test_a_key_rings_folders_are_not_followed(tmp_path: Path) -> None:
    fetch.unpack_keyring(packed({"../../evil": b"x", "kek-1.key": b"k"}), tmp_path / "ring")
    assert sorted(path.name for path in (tmp_path / "ring").iterdir()) == ["evil", "kek-1.key"]
    assert not (tmp_path.parent / "evil").exists()


def test_package_keys_and_login_are_fetched(cloud: type[Cloud], tmp_path: Path) -> None:
    cloud.objects = {
        "packages/churn/3/manifest.json": b"{}",
        "packages/churn/3/files/model.onnx.enc": b"sealed",
        "packages/churn/30/other": b"no",
    }
    fetch.fetch(wanted(tmp_path))
    version = tmp_path / "data/registry/churn/versions/3"
    files = sorted(str(path.relative_to(version)) for path in version.rglob("*") if path.is_file())
    assert files == ["files/model.onnx.enc", "manifest.json"]
    assert (version / "files/model.onnx.enc").read_bytes() == b"sealed"
    key = tmp_path / "s/keyring/kek-1.key"
    assert key.read_text() == "k"
    assert key.stat().st_mode & 0o077 == 0
    login = json.loads((tmp_path / "l/config.json").read_text())
    assert login == {"auths": {"host.example": {"auth": "QVdTOnB3"}}}


def test_requests_are_signed_for_their_service(cloud: type[Cloud], tmp_path: Path) -> None:
    cloud.objects = {"packages/churn/3/manifest.json": b"{}"}
    fetch.fetch(wanted(tmp_path))
    signed = [
        headers["authorization"] for _, _, headers in cloud.seen if "authorization" in headers
    ]
    scopes = {text.split("/me-central-1/")[1].split("/")[0] for text in signed}
    assert scopes == {"ecr", "secretsmanager", "s3"}
    assert all(text.startswith("AWS4-HMAC-SHA256 Credential=A/") for text in signed)


def test_the_signature_is_the_vendors() -> None:
    # The worked example of AWS's General Reference for Signature Version 4 (ListUsers of IAM).
    service = fetch.Service("iam", "us-east-1", ROLE, "iam.amazonaws.com")
    canonical = "\n".join(
        (
            "GET",
            "/",
            "Action=ListUsers&Version=2010-05-08",
            "content-type:application/x-www-form-urlencoded; charset=utf-8",
            "host:iam.amazonaws.com",
            "x-amz-date:20150830T123600Z",
            "",
            "content-type;host;x-amz-date",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        )
    )
    text = service._authorization(canonical, "content-type;host;x-amz-date", "20150830T123600Z")
    assert text.endswith(
        "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
    )


def test_the_program_runs_with_the_machines_own_python() -> None:
    tree = ast.parse(cloud_init.program("fetch.py"), feature_version=(3, 9))
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imported <= sys.stdlib_module_names


def test_bad_settings_end_in_words(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text("{")
    done = subprocess.run(
        [sys.executable, fetch.__file__, str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")


def configured(given: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Write a service.json as the image of the server does."""
    [command] = [each for each in start_server.commands(given) if "configure" in each]
    root = Path(falaj.__file__).parents[1]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def test_the_servers_configuration_is_the_servers_own_format(tmp_path: Path) -> None:
    given = SERVING.settings(secrets=str(tmp_path), user=None, login=None)
    done = configured({**given, "folder": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    read = service_settings.read(tmp_path / "service.json")
    assert (read.name, read.port, read.workers) == ("churn", cloud_init.PORT, 2)
    assert read.auth.audience == "inference.acme.internal"
    assert read.tls.client_ca is None


def test_settings_that_the_server_would_refuse_end_the_start(tmp_path: Path) -> None:
    given = SERVING.settings(secrets=str(tmp_path), user=None, login=None)
    done = configured({**given, "folder": str(tmp_path), "port": 70_000})
    assert done.returncode != 0
    assert "port" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "service.json").exists()


def test_the_machines_certificate_is_one(tmp_path: Path) -> None:
    certificate, key = start_server.make_certificate("inference.acme.internal", tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    assert key.stat().st_mode & 0o077 == 0


def test_user_data_fits_and_holds_no_secrets() -> None:
    text = cloud_init.user_data(IMAGE, "/falaj/acme/dev/tier/server", SERVING)
    assert len(base64.b64decode(text)) < 16_384
    plain = cloud_init.configuration(IMAGE, "/falaj/acme/dev/tier/server", SERVING)
    assert plain.startswith("#cloud-config\n")
    document = yaml.safe_load(plain)
    assert document["ssh_pwauth"] is False
    files = {each["path"]: each["content"] for each in document["write_files"]}
    assert json.loads(files["/opt/falaj/serving.json"])["keyring"] == SERVING.keyring
    name, _, value = files["/opt/falaj/serving.env"].partition("=")
    assert name == "FALAJ_SERVING"
    assert json.loads(value)["model"] == "churn"
    assert "PRIVATE KEY" not in plain.replace("BEGIN PRIVATE KEY", "")


def test_the_unit_runs_the_image_by_digest_without_privileges() -> None:
    text = cloud_init.unit(IMAGE, "/log", "me-central-1")
    [run] = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    for option in ("--read-only", "--cap-drop ALL", "no-new-privileges", "--user 65532:65532"):
        assert option in run
    assert f"--entrypoint python {IMAGE} /opt/falaj/start_server.py" in run
    assert "--privileged" not in text
    assert "ExecStartPre=/usr/bin/python3 /opt/falaj/fetch.py /opt/falaj/serving.json" in text


def test_too_much_user_data_is_refused() -> None:
    noise = "".join(hashlib.sha256(str(n).encode()).hexdigest() for n in range(1_000))
    with pytest.raises(ValueError, match="allowed: 16384"):
        cloud_init.user_data(IMAGE, noise, SERVING)


def published(folder: Path) -> tuple[Path, KeyRing]:
    """A package in a registry of its own, and the key ring that seals it."""
    ring = KeyRing.create(folder / "ring")
    tensor = {"name": "x", "datatype": "FP32", "shape": [-1, 2]}
    fields = {
        "dataset": {"digest": "d" * 64},
        "lineage": {"run": "r" * 64, "dataset": "d" * 64},
        "inputs": [tensor],
        "outputs": [{**tensor, "name": "y"}],
    }
    done = Store(folder / "registry").publish("churn", {"model.onnx": b"model"}, fields, ring)
    return done.path, ring


def test_a_published_package_is_fetched_promoted_and_configured(
    cloud: type[Cloud], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, ring = published(tmp_path)
    given = {**wanted(tmp_path / "machine"), "version": 1, "prefix": "packages/churn/1"}
    cloud.objects = {
        f"packages/churn/1/{path.relative_to(package)}": path.read_bytes()
        for path in package.rglob("*")
        if path.is_file()
    }
    names = ("keyring.json", "kek-1.key", "signing.pub.pem", "tokens.jwks.json")
    cloud.secret = packed({name: (ring.path / name).read_bytes() for name in names})
    monkeypatch.chdir(Path(falaj.__file__).parents[1])
    for _start in range(2):  # a server that ended is started again on the same machine
        fetch.fetch(given)
        read = service_settings.read(start_server.prepare(given))
    keys = KeyRing.open(read.keyring)
    served = Store(read.registry).load(read.model, read.alias, keys, keys.verify_key())
    assert served.read("model.onnx") == b"model"
    assert read.auth.jwks.is_file()
    assert read.tls.certificate.is_file()


def test_a_changed_package_is_not_served(
    cloud: type[Cloud], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, ring = published(tmp_path)
    given = {**wanted(tmp_path / "machine"), "version": 1, "prefix": "packages/churn/1"}
    cloud.objects = {
        f"packages/churn/1/{path.relative_to(package)}": path.read_bytes() + b" "
        for path in package.rglob("*")
        if path.is_file()
    }
    names = ("keyring.json", "kek-1.key", "signing.pub.pem", "tokens.jwks.json")
    cloud.secret = packed({name: (ring.path / name).read_bytes() for name in names})
    fetch.fetch(given)
    monkeypatch.chdir(Path(falaj.__file__).parents[1])
    with pytest.raises(subprocess.CalledProcessError):
        start_server.prepare(given)
