"""Programs that are sent to machines of the inference tier: run here, against a local server."""

from __future__ import annotations

import ast
import base64
import contextlib
import hashlib
import http.server
import io
import json
import os
import runpy
import ssl
import subprocess
import sys
import tarfile
import threading
import urllib.parse
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

import falaj
from falaj.components.aws.serving import cloud_init, fetch, start_server
from falaj.components.specification import server_start
from falaj.workloads.inference import settings as service_settings
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.store import Store
from tests.workloads.registry.images import manifest_of, send
from tests.workloads.registry.remotes import BASIC, Kept, serving

SERVING = cloud_init.Serving(
    region="me-central-1",
    repository="000000000000.dkr.ecr.me-central-1.amazonaws.com/acme-dev/models/churn",
    package_digest="sha256:" + "b" * 64,
    keys_digest="sha256:" + "c" * 64,
    model="churn",
    version=3,
    keyring="arn:aws:secretsmanager:me-central-1:000000000000:secret:keyring-AbCdEf",
    host_name="inference.acme.internal",
    workers=2,
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
    """Answers as the metadata service, ECR and Secrets Manager do, over plain HTTP."""

    secret: ClassVar[str] = ""
    registry: ClassVar[str] = "host.example"
    refuses: ClassVar[str] = ""
    status: ClassVar[int] = 400
    streams: ClassVar[set[str]] = set()
    told: ClassVar[list[dict[str, Any]]] = []
    seen: ClassVar[list[tuple[str, str, dict[str, str]]]] = []

    def do_PUT(self) -> None:
        self._answer(b"session")

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        asked = json.loads(self.rfile.read(length))
        if self.refuses:
            self._answer(self.refuses.encode(), self.status)
        elif self.headers["x-amz-target"] == "Logs_20140328.CreateLogStream":
            known = asked["logStreamName"] in self.streams
            self.streams.add(asked["logStreamName"])
            said = b'{"__type":"ResourceAlreadyExistsException"}' if known else b"{}"
            self._answer(said, 400 if known else 200)
        elif self.headers["x-amz-target"] == "Logs_20140328.PutLogEvents":
            self.told.append(asked)
            self._answer(b"{}")
        elif self.headers["x-amz-target"].endswith("GetAuthorizationToken"):
            endpoint = f"https://{self.registry}"
            token = {"authorizationToken": BASIC, "proxyEndpoint": endpoint}
            self._answer(json.dumps({"authorizationData": [token]}).encode())
        else:
            assert asked == {"SecretId": SERVING.keyring}
            self._answer(json.dumps({"SecretString": self.secret}).encode())

    def do_GET(self) -> None:
        path = urllib.parse.urlsplit(self.path)
        if path.path == "/latest/meta-data/iam/security-credentials/":
            self._answer(b"tier\n")
        elif path.path == "/latest/meta-data/instance-id":
            self._answer(b"i-0123456789abcdef0")
        elif path.path == "/latest/meta-data/iam/security-credentials/tier":
            found = {"AccessKeyId": "A", "SecretAccessKey": "S", "Token": "T"}
            self._answer(json.dumps(found).encode())

    def _answer(self, body: bytes, status: int = 200) -> None:
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.seen.append((self.command, self.path, headers))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Generator[type[Cloud], None, None]:
    """A local cloud; the program's addresses lead there."""
    Cloud.refuses, Cloud.seen, Cloud.registry = "", [], "host.example"
    Cloud.status, Cloud.streams, Cloud.told = 400, set(), []
    Cloud.secret = packed({"keyring.json": b"{}", "kek-1.key": b"k"})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cloud)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    real = fetch._read

    def local(url: str, *rest: Any, **named: Any) -> bytes:
        parts = urllib.parse.urlsplit(url)
        assert parts.netloc in {
            "169.254.169.254",
            "secretsmanager.me-central-1.amazonaws.com",
            "api.ecr.me-central-1.amazonaws.com",
            "logs.me-central-1.amazonaws.com",
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
    found = SERVING.settings(secrets=str(folder / "s"), user=None)
    return {**found, "folder": str(folder / "data")}


def test_what_a_service_says_is_told(cloud: type[Cloud], tmp_path: Path) -> None:
    cloud.refuses = '{"__type":"AccessDeniedException","Message":"not authorized to pull"}'
    with pytest.raises(fetch.RefusedError, match=r"answers 400: .*not authorized to pull"):
        fetch.fetch(wanted(tmp_path))


#: As private endpoints answer to what their policies don't allow: XML, over several lines.
_XML = """<Response><Errors>
  <Error><Code>AccessDenied</Code><Message>no endpoint policy allows it</Message></Error>
</Errors></Response>"""


def test_xml_is_told_on_one_line_and_no_more_of_it_than_2_kib(
    cloud: type[Cloud], tmp_path: Path
) -> None:
    cloud.refuses, cloud.status = _XML + " " * 4096 + "beyond", 403
    with pytest.raises(fetch.RefusedError) as raised:
        fetch.fetch(wanted(tmp_path))
    said = str(raised.value)
    assert "answers 403: <Response><Errors> <Error><Code>AccessDenied</Code>" in said
    assert "no endpoint policy allows it" in said
    assert "beyond" not in said
    assert "\n" not in said


def test_a_service_that_is_not_reached_is_named() -> None:
    with pytest.raises(fetch.RefusedError, match=r"127\.0\.0\.1:1 can't be reached: .*refused"):
        fetch._read("http://127.0.0.1:1/", {})


def test_a_key_rings_folders_are_not_followed(tmp_path: Path) -> None:
    fetch.unpack_keyring(packed({"../../evil": b"x", "kek-1.key": b"k"}), tmp_path / "ring")
    assert sorted(path.name for path in (tmp_path / "ring").iterdir()) == ["evil", "kek-1.key"]
    assert not (tmp_path.parent / "evil").exists()


def test_key_ring_and_login_are_fetched(cloud: type[Cloud], tmp_path: Path) -> None:
    fetch.fetch(wanted(tmp_path))
    key = tmp_path / "s/keyring/kek-1.key"
    assert key.read_text() == "k"
    assert key.stat().st_mode & 0o077 == 0
    file = tmp_path / "s/login/config.json"
    assert json.loads(file.read_text()) == {"auths": {"host.example": {"auth": BASIC}}}
    assert file.stat().st_mode & 0o077 == 0


def test_requests_are_signed_for_their_service(cloud: type[Cloud], tmp_path: Path) -> None:
    fetch.fetch(wanted(tmp_path))
    signed = [
        headers["authorization"] for _, _, headers in cloud.seen if "authorization" in headers
    ]
    scopes = {text.split("/me-central-1/")[1].split("/")[0] for text in signed}
    assert scopes == {"ecr", "secretsmanager"}
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


GROUP = "/falaj/acme/dev/tier/server"
#: Stands in for journald: it knows one run of the unit, and keeps what it was asked.
_JOURNALCTL = """#!/usr/bin/env python3
import json, pathlib, sys
here = pathlib.Path(__file__).parent
with (here / "asked").open("a") as asked:
    print(*sys.argv[1:], file=asked)
if "_SYSTEMD_INVOCATION_ID=run-1" in sys.argv:
    print((here / "lines").read_text())
"""


@pytest.fixture
def told(cloud: type[Cloud], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings of a machine on which what a start left is told; a journal of two lines."""
    program = tmp_path / "journalctl"
    program.write_text(_JOURNALCTL)
    program.chmod(0o755)
    lines = (
        {"__REALTIME_TIMESTAMP": "1700000000123456", "SYSLOG_IDENTIFIER": "python3",
         "MESSAGE": "error: secretsmanager answers 400: AccessDenied"},
        {"__REALTIME_TIMESTAMP": "1700000000223456", "MESSAGE": list(b"caf\xe9" + b"x" * 5000)},
    )  # fmt: skip
    (tmp_path / "lines").write_text("\n".join(map(json.dumps, lines)))
    document = cloud_init.configuration(IMAGE, GROUP, SERVING).partition("\n")[2]
    files = {each["path"]: each["content"] for each in json.loads(document)["write_files"]}
    settings = tmp_path / "serving.json"
    settings.write_text(files["/opt/falaj/serving.json"])
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    # On the machine both programs lie beside each other.
    monkeypatch.setitem(sys.modules, "fetch", fetch)
    return settings


def after(
    result: str, settings: Path, monkeypatch: pytest.MonkeyPatch, run: str = "run-1"
) -> None:
    """Run the program as systemd does after a run that ended so."""
    program = str(Path(fetch.__file__).with_name("tell.py"))
    monkeypatch.setenv("SERVICE_RESULT", result)
    monkeypatch.setenv("INVOCATION_ID", run)
    monkeypatch.setattr(sys, "argv", [program, str(settings)])
    runpy.run_path(program, run_name="__main__")


def test_what_a_failed_start_left_in_the_journal_is_in_the_log(
    cloud: type[Cloud], told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _start in range(2):  # the stream is there the second time
        after("exit-code", told, monkeypatch)
    sent = cloud.told[1]
    assert (sent["logGroupName"], sent["logStreamName"]) == (GROUP, "machine/i-0123456789abcdef0")
    first, second = sent["logEvents"]
    assert first["timestamp"] == 1_700_000_000_123
    assert first["message"] == "python3: error: secretsmanager answers 400: AccessDenied"
    assert second["message"].startswith("unit: caf\ufffdxxx")
    assert len(second["message"]) == 2_000
    signed = [headers["authorization"] for _, path, headers in cloud.seen if path == "/"]
    assert all("/me-central-1/logs/aws4_request" in each for each in signed)
    asked = (told.parent / "asked").read_text().splitlines()
    assert asked[0] == "--sync"


@pytest.mark.parametrize(("result", "run"), [("success", "run-1"), ("exit-code", "run-2")])
def test_of_a_good_end_and_an_empty_journal_nothing_is_told(
    result: str, run: str, cloud: type[Cloud], told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.suppress(SystemExit):
        after(result, told, monkeypatch, run)
    assert not cloud.told


def test_a_log_that_refuses_ends_in_words(
    cloud: type[Cloud], told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.refuses = '{"__type":"AccessDeniedException"}'
    with pytest.raises(SystemExit, match=r"error: .*answers 400: .*AccessDeniedException"):
        after("exit-code", told, monkeypatch)


@pytest.mark.parametrize("name", ["fetch.py", "tell.py"])
def test_programs_run_with_the_machines_own_python(name: str) -> None:
    tree = ast.parse(cloud_init.program(name), feature_version=(3, 9))
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imported <= sys.stdlib_module_names | {"fetch"}


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
    login = Path(given["login"])
    [command] = [each for each in server_start.commands(given, login) if "configure" in each]
    root = Path(falaj.__file__).parents[1]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def test_the_servers_configuration_is_the_servers_own_format(tmp_path: Path) -> None:
    given = SERVING.settings(secrets=str(tmp_path), user=None)
    done = configured({**given, "folder": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    read = service_settings.read(tmp_path / "service.json")
    assert (read.name, read.port, read.workers) == ("churn", cloud_init.PORT, 2)
    assert read.auth.audience == "inference.acme.internal"
    assert read.tls.client_ca is None


def test_settings_that_the_server_would_refuse_end_the_start(tmp_path: Path) -> None:
    given = SERVING.settings(secrets=str(tmp_path), user=None)
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
    # Also after a start that came to no server: man systemd.service, ExecStopPost.
    assert "ExecStopPost=-/usr/bin/python3 /opt/falaj/tell.py /opt/falaj/serving.json" in text


def test_too_much_user_data_is_refused() -> None:
    noise = "".join(hashlib.sha256(str(n).encode()).hexdigest() for n in range(1_000))
    with pytest.raises(ValueError, match="allowed: 16384"):
        cloud_init.user_data(IMAGE, noise, SERVING)


@dataclass(frozen=True)
class Published:
    """A package in a registry of images, and what a machine that serves it is told."""

    registry: Kept
    layout: Path
    settings: dict[str, Any]


@pytest.fixture
def published(
    cloud: type[Cloud], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[Published]:
    """A registry that wants what ECR does: a login by name and password."""
    ring = KeyRing.create(tmp_path / "ring")
    tensor = {"name": "x", "datatype": "FP32", "shape": [-1, 2]}
    fields = {
        "dataset": {"digest": "d" * 64},
        "lineage": {"run": "r" * 64, "dataset": "d" * 64},
        "inputs": [tensor],
        "outputs": [{**tensor, "name": "y"}],
    }
    store = Store(tmp_path / "registry")
    store.publish("churn", {"model.onnx": b"model"}, fields, ring)
    sent = send(store.load("churn", 1, ring, ring.verify_key()), tmp_path / "sent")
    names = ("keyring.json", "kek-1.key", "signing.pub.pem", "tokens.jwks.json")
    cloud.secret = packed({name: (ring.path / name).read_bytes() for name in names})
    monkeypatch.chdir(Path(falaj.__file__).parents[1])
    with serving("acme-dev/models/churn") as registry:
        registry.demand = "basic"
        cloud.registry = registry.address
        settings = {
            **wanted(tmp_path / "machine"),
            "version": 1,
            "repository": f"{registry.address}/acme-dev/models/churn",
            "package_digest": registry.add(sent.image),
            "keys_digest": registry.add(sent.keys),
        }
        yield Published(registry, sent.image, settings)


def test_a_published_package_is_fetched_promoted_and_configured(published: Published) -> None:
    given = published.settings
    for _start in range(2):  # a server that ended is started again on the same machine
        fetch.fetch(given)
        read = service_settings.read(start_server.prepare(given))
        # The server hasn't got the login with which the package was fetched.
        assert not Path(given["login"]).exists()
    keys = KeyRing.open(read.keyring)
    served = Store(read.registry).load(read.model, read.alias, keys, keys.verify_key())
    assert served.read("model.onnx") == b"model"
    assert read.auth.jwks.is_file()
    assert read.tls.certificate.is_file()


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"package_digest": "sha256:" + "0" * 64},
        {"repository": "127.0.0.1:1/acme-dev/models/churn"},
    ],
)
def test_another_package_is_not_served(published: Published, changes: dict[str, Any]) -> None:
    given = published.settings | changes
    fetch.fetch(given)
    with pytest.raises(subprocess.CalledProcessError):
        start_server.prepare(given)
    assert not Path(given["login"]).exists()
    assert not (Path(given["folder"]) / "service.json").exists()


def test_a_changed_package_is_not_served(published: Published) -> None:
    layer = manifest_of(published.layout)["layers"][-1]["digest"]
    path = f"/v2/acme-dev/models/churn/blobs/{layer}"
    content = published.registry.content[path]
    published.registry.content[path] = content[:-1100] + b"x" + content[-1099:]
    fetch.fetch(published.settings)
    with pytest.raises(subprocess.CalledProcessError):
        start_server.prepare(published.settings)
