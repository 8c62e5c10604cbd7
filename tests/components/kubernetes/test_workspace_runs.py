"""The rendered pod of a workspace runs: the real JupyterLab, by just its command and variables.

Replaced are its volumes by folders, its port by a free one, and hours by seconds.
"""

from __future__ import annotations

import copy
import json
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import websocket
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.components.kubernetes.pod_processes import Machine
from tests.components.kubernetes.training_jobs import the
from tests.components.kubernetes.workspaces import rendered
from tests.ports import free_port

pytestmark = pytest.mark.slow
TOKEN = "5f" * 32
HOST = "alice.acme-training.localhost"
_PATIENCE_SECONDS = 90.0
#: Long enough to start a kernel in on a busy machine.
_IDLE_MINUTES, _IDLE_SECONDS = "0.3", 18


def _certificate(folder: Path) -> None:
    """One for the names that the component asks for, which is its own authority."""
    folder.mkdir(parents=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice-workspace")])
    names = the("Certificate", rendered())["spec"]["dnsNames"]
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


@dataclass
class Server:
    """A workspace as its owner has it, with the port forwarded."""

    machine: Machine
    process: subprocess.Popen[bytes]
    port: int

    @property
    def home(self) -> Path:
        return self.machine.folder / "home/workspace"

    @property
    def log(self) -> str:
        return self.machine.log(0).read_text(encoding="utf-8")

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(
            cafile=str(self.machine.folder / "run/falaj/tls/tls.crt")
        )

    def ask(
        self,
        path: str,
        *,
        token: str = TOKEN,
        method: str = "GET",
        body: Any = None,
        context: ssl.SSLContext | None = None,
        **headers: str,
    ) -> tuple[int, Any]:
        """Status and body of an answer."""
        if token:
            headers["Authorization"] = f"token {token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"https://localhost:{self.port}{path}", data, headers, method=method
        )
        https = urllib.request.HTTPSHandler(context=context or self.context())
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
        try:
            with opener.open(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def connect(self, path: str) -> websocket.WebSocket:
        return websocket.create_connection(
            f"wss://localhost:{self.port}{path}",
            header=[f"Authorization: token {TOKEN}"],
            sslopt={"ca_certs": str(self.machine.folder / "run/falaj/tls/tls.crt")},
            timeout=30,
            http_no_proxy=["localhost"],
        )

    def run(self, code: str) -> None:
        """Have a new kernel begin with some code; the page is closed then."""
        status, found = self.ask("/api/kernels", method="POST", body={"name": "python3"})
        assert status == 201, found
        page = self.connect(f"/api/kernels/{json.loads(found)['id']}/channels")
        about = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": "test",
                 "username": "alice", "version": "5.3", "date": ""}  # fmt: skip
        content = {"code": code, "silent": False, "store_history": False, "user_expressions": {},
                   "allow_stdin": False, "stop_on_error": True}  # fmt: skip
        page.send(
            json.dumps({"header": about, "parent_header": {}, "metadata": {}, "content": content,
                        "channel": "shell", "buffers": []})
        )  # fmt: skip
        while True:
            told = json.loads(page.recv())
            if told["msg_type"] == "execute_input":
                break
        page.close()

    def type(self, text: str) -> websocket.WebSocket:
        """Have a new terminal with some input; the page stays open."""
        _, found = self.ask("/api/terminals", method="POST")
        page = self.connect(f"/terminals/websocket/{json.loads(found)['name']}")
        page.send(json.dumps(["stdin", text]))
        return page

    def wait(self) -> int:
        """Its status, once it ended by itself."""
        return self.process.wait(timeout=_PATIENCE_SECONDS)


def _with(pod: dict[str, Any], **options: str) -> dict[str, Any]:
    """The pod with other times in its command."""
    changed = copy.deepcopy(pod)
    command = changed["spec"]["containers"][0]["command"]
    for name, value in options.items():
        command[command.index(f"--{name.replace('_', '-')}") + 1] = value
    return changed


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    for folder in ("home/workspace", "run/falaj/token", "run/falaj/runtime"):
        (tmp_path / folder).mkdir(parents=True)
    _certificate(tmp_path / "run/falaj/tls")
    (tmp_path / "run/falaj/token/token").write_text(TOKEN, encoding="utf-8")
    return Machine(tmp_path, {"8443": str(free_port())})


class Start:
    """Starts servers, of which none is left."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self, *, ready: bool = True, **options: str) -> Server:
        pod = _with(the("Pod", rendered(flavor="cpu-x86-64")), **options)
        process = self.machine.start(pod, 0)
        self.started.append(process)
        server = Server(self.machine, process, int(self.machine.names["8443"]))
        if ready:
            self._wait(server)
        return server

    @staticmethod
    def _wait(server: Server) -> None:
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end:
            assert server.process.poll() is None, server.log
            try:
                server.ask("/api")
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise AssertionError(server.log)


@pytest.fixture
def start(machine: Machine) -> Iterator[Start]:
    found = Start(machine)
    yield found
    for process in found.started:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            process.wait()


def test_only_who_has_the_token_gets_in_and_only_by_tls_1_3(start: Start) -> None:
    # What lies in the home doesn't change the server.
    own = start.machine.folder / "home/workspace/.jupyter"
    own.mkdir()
    (own / "jupyter_server_config.py").write_text("c.IdentityProvider.token = ''\n")
    (own / "jupyter_server_config.json").write_text('{"ServerApp": {"ip": "0.0.0.0"}}')
    server = start()
    assert server.ask("/api/kernels", token="")[0] == 403
    assert server.ask("/api/kernels", token="0" * 64)[0] == 403
    assert server.ask("/lab", token="")[0] == 200  # the page that asks for the token
    assert b"password" in server.ask("/lab", token="")[1]
    assert server.ask("/api/kernels")[0] == 200
    assert b"JupyterLab" in server.ask("/lab")[1]
    assert server.ask("/api", Host="attacker.example")[0] == 403
    old = server.context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(urllib.error.URLError, match=r"(?i)protocol"):
        server.ask("/api", context=old)
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"http://localhost:{server.port}/api", timeout=30
        )
    # A page of elsewhere, with the browser's cookies or none.
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        websocket.create_connection(
            f"wss://localhost:{server.port}/terminals/websocket/1",
            origin="https://attacker.example",
            sslopt={"ca_certs": str(start.machine.folder / "run/falaj/tls/tls.crt")},
            http_no_proxy=["localhost"],
        )


def test_the_token_is_in_no_command_environment_log_or_file_that_stays(start: Start) -> None:
    server = start()
    server.run("1")
    page = server.type("env\r")
    server.ask(f"/api/kernels?token={'0' * 64}", token="")
    server.ask(f"/api/nothing?token={TOKEN}")
    everyone = [psutil.Process(server.process.pid)]
    everyone += everyone[0].children(recursive=True)
    assert len(everyone) >= 3  # the server, a kernel, a shell
    for each in everyone:
        assert TOKEN not in " ".join(each.cmdline())
        assert TOKEN not in "\n".join(each.environ().values())
    listening = [
        each.laddr.ip
        for one in everyone
        for each in one.net_connections(kind="inet")
        if each.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert set(listening) == {"127.0.0.1"}
    page.close()
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert TOKEN not in server.log
    kept = [each for each in start.machine.folder.rglob("*") if each.is_file()]
    with_token = [each for each in kept if TOKEN.encode() in each.read_bytes()]
    assert with_token == [start.machine.folder / "run/falaj/token/token"]


def test_nothing_is_asked_of_servers_of_others(start: Start) -> None:
    server = start()
    _, page = server.ask("/lab")
    told = json.loads(page.partition(b'id="jupyter-config-data"')[2].partition(b">")[2].partition(
        b"</script>"
    )[0])  # fmt: skip
    assert told["news"] == {"disabled": True}
    assert told["extensionManager"]["can_install"] is False
    assert json.loads(server.ask("/lab/api/update")[1])["notification"] is None


@pytest.mark.thorough
def test_an_open_page_that_polls_and_a_terminal_that_prints_are_no_use(start: Start) -> None:
    server = start(idle_minutes=_IDLE_MINUTES)
    server.run("1")
    page = server.type("while true; do date; sleep 0.2; done\r")
    while server.process.poll() is None:
        try:
            for path in ("/api/kernels", "/api/terminals", "/api/sessions", "/api/status"):
                server.ask(path)
            page.recv()
        except (OSError, websocket.WebSocketException):
            continue
        time.sleep(0.2)
    assert server.wait() == 0
    assert "the workspace ends: nobody used it for 0.3 minutes" in server.log


@pytest.mark.thorough
def test_a_kernel_that_runs_is_use_until_it_is_done(start: Start) -> None:
    server = start(idle_minutes=_IDLE_MINUTES)
    done = server.home / "done"
    wait = f"import time, pathlib\ntime.sleep({2 * _IDLE_SECONDS})\n"
    server.run(f"{wait}pathlib.Path({str(done)!r}).touch()")
    assert server.wait() == 0
    assert done.exists()
    assert "nobody used it" in server.log


@pytest.mark.thorough
def test_input_of_a_terminal_and_saved_documents_are_use(start: Start) -> None:
    server = start(idle_minutes=_IDLE_MINUTES)
    page = server.type("")
    body = {"type": "file", "format": "text", "content": "x"}
    for _ in range(6):
        time.sleep(_IDLE_SECONDS / 4)
        page.send(json.dumps(["stdin", "\r"]))
    for _ in range(6):
        time.sleep(_IDLE_SECONDS / 4)
        assert server.ask("/api/contents/notes.md", method="PUT", body=body)[0] in (200, 201)
    page.close()
    assert server.wait() == 0
    assert (server.home / "notes.md").read_text(encoding="utf-8") == "x"


@pytest.mark.thorough
def test_its_time_is_over_whatever_runs(start: Start) -> None:
    server = start(hours="0.004")
    server.run("while True: pass")
    children = psutil.Process(server.process.pid).children(recursive=True)
    assert server.wait() == 0
    assert "the workspace ends: it has run for 0.24 minutes, which is the most" in server.log
    _, alive = psutil.wait_procs(children, timeout=_PATIENCE_SECONDS)
    assert alive == []


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("token/token", "short", "has 5 characters; allowed: 32 or more letters and digits"),
        ("token/token", "a b" * 20, "letters and digits; make one with: openssl rand -hex 32"),
        ("token/token", None, "cannot be read"),
        ("tls/tls.key", "nonsense", "cannot be used"),
        ("tls/tls.crt", None, "cannot be used"),
    ],
)
def test_what_cannot_be_used_is_said_without_a_trace(
    start: Start, name: str, content: str | None, said: str
) -> None:
    file = start.machine.folder / "run/falaj" / name
    if content is None:
        file.unlink()
    else:
        file.write_text(content, encoding="utf-8")
    server = start(ready=False)
    assert server.wait() == 2
    assert said in server.log
    assert "Traceback" not in server.log
    assert content is None or content not in server.log.replace("(EINVAL)", "")
