"""``falaj watch`` as people and supervisors call it, before a server that tests make up."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from falaj.engine.files import replace_file
from falaj.stacks.command import operation
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.settings.problems import RefusedSettingsError
from falaj.stacks.watching.machine import Machine, judged, learned_from
from falaj.stacks.watching.seen import seen
from falaj.stacks.watching.server import Server
from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference.metrics import PREFIX
from falaj.workloads.inference.protocol.routes import INFER
from falaj.workloads.optimization import worth
from falaj.workloads.rollout.pairs import Outcomes
from falaj.workloads.watching.ladder import NoDataError
from tests.stacks.models.published import Publisher
from tests.stacks.watching.peers import certificate, peer, saying, write_token_key
from tests.stacks.watching.reports import labels, report

ROOT = Path(__file__).resolve().parents[3]
MAIL = {"server": "localhost", "sender": "falaj@shop.ae", "recipients": ["one@shop.ae"]}
pytestmark = pytest.mark.timeout(120)


class Place:
    """A project with a stack that is up, as far as a watch can see."""

    def __init__(self, folder: Path) -> None:
        self.root, self.home = folder / "project", folder / "home"
        self.root.mkdir()
        self.site = self.home / "projects" / "shop" / "main"
        (self.site / "service" / "shop").mkdir(parents=True)
        (self.root / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
        write_token_key(folder)
        self.authority = certificate(folder)
        self.serve(1)
        self.configure(steps=["tell"])

    def serve(self, port: int, keyring: Path | None = None) -> None:
        """Say where the server is."""
        (self.site / "service" / "shop" / "service.json").write_text(
            json.dumps(
                {
                    "host": "127.0.0.1", "port": port, "model": "shop", "alias": "production",
                    "keyring": str(keyring or self.authority.parent),
                    "registry": str(self.site / "registry"),
                    "state": str(self.site / "state.json"), "logs": str(self.site / "logs"),
                    "tls": {"client_ca": str(self.authority), "certificate": str(self.authority)},
                    "auth": {"issuer": "us", "audience": "them"},
                }
            )
        )  # fmt: skip

    def configure(self, **watch: Any) -> None:
        """Write the stack's file."""
        config = {"falaj:platform": "local", "falaj:watch": watch} if watch else {}
        document = {"config": {"falaj:platform": "local", **config}}
        (self.root / "Pulumi.main.yaml").write_text(yaml.safe_dump(document))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command."""
        return subprocess.Popen(
            [sys.executable, "-m", "falaj.stacks.command", "watch", *arguments],
            cwd=self.root, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "FALAJ_HOME": str(self.home), "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run the command to its end."""
        process = self.start(*arguments)
        printed = process.communicate(timeout=60)[0]
        assert "Traceback" not in printed, printed
        return process.returncode, printed


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def answering(place: Place, document: Any) -> Any:
    """A server whose report it is."""
    report_of, nothing = saying("200 OK", json.dumps(document).encode()), saying("200 OK")

    def answer(connection: ssl.SSLSocket, request: bytes) -> None:
        """Metrics of a server that nobody has called."""
        (nothing if request.startswith(b"GET /metrics") else report_of)(connection, request)

    return peer(place.authority, answer)


@pytest.mark.slow
def test_looking_once_says_by_its_status_what_is_seen(place: Place) -> None:
    with answering(place, report()) as other:
        place.serve(other.port)
        assert place.run("--once") == (0, "")
    with answering(place, report("drifted")) as other:
        place.serve(other.port)
        status, printed = place.run("--once", "--json")
    assert status == 3
    (line,) = [json.loads(each) for each in printed.splitlines()]
    assert (line["event"], line["drifted"]) == ("drift", ["input age"])
    status, printed = place.run("--once")
    assert status == 1
    assert "doesn't answer: it can't be reached: Connection refused" in printed


@pytest.mark.slow
def test_what_is_refused(place: Place, tmp_path: Path) -> None:
    place.configure()
    status, printed = place.run("--once")
    assert status == 2
    assert "asks for no watch" in printed
    assert "falaj config set falaj:watch.steps" in printed
    place.configure(steps=["tell"], webhook="https://hooks.example.com/x")
    status, printed = place.run("--once")
    assert status == 2
    assert "allowed: hosts of one's own networks" in printed
    place.configure(steps=["tell"])
    (place.site / "watch" / "memory.json").write_text("{")
    assert "move the file away" in place.run("--once")[1]
    place.site.rename(tmp_path / "gone")
    status, printed = place.run("--once")
    assert status == 2
    assert "stack main isn't up" in printed


@pytest.mark.slow
def test_one_stack_has_one_watch_and_sigterm_ends_it(place: Place) -> None:
    with answering(place, report("drifted")) as other:
        place.serve(other.port)
        place.configure(steps=["tell"], intervalSeconds=1)
        process = place.start("--json")
        assert process.stdout is not None
        events = [json.loads(process.stdout.readline())["event"] for _ in range(2)]
        assert events == ["begins", "drift"]
        status, printed = place.run("--once")
        assert status == 2
        assert f"another watch looks after stack main (process {process.pid})" in printed
        # A file that is wrong for a while ends nothing.
        place.configure(steps=["tell"], intervalSeconds="often")
        assert json.loads(process.stdout.readline())["event"] == "refused"
        line = seen_from(place)
        assert line[1] == "watching"
        assert line[2].startswith(f"process {process.pid}, last look ")
        assert "drifted: input age" in line[2]
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=30)[0]
    assert process.returncode == 0
    assert json.loads(rest.splitlines()[-1])["event"] == "ends"
    assert seen_from(place)[1] == "not running"


def seen_from(place: Place) -> tuple[str, str, str]:
    """The line of ``falaj status``."""
    found = seen(place.site)
    assert found is not None
    return found


@pytest.mark.slow
def test_a_webhook_gets_what_is_seen(place: Place) -> None:
    with answering(place, report("drifted")) as other, taking(place) as hook:
        place.serve(other.port)
        place.configure(
            steps=["tell"], webhook=f"https://localhost:{hook.port}/in",
            webhookAuthority=str(place.authority),
        )  # fmt: skip
        assert place.run("--once")[0] == 3
        assert place.run("--once")[0] == 3
    (asked,) = hook.asked
    assert json.loads(asked.partition(b"\r\n\r\n")[2])["event"] == "drift"
    logs = (place.site / "watch" / "logs" / "audit.jsonl").read_text()
    assert [json.loads(each)["event"] for each in logs.splitlines()] == ["drift", "sent"]


def taking(place: Place) -> Any:
    """A webhook that takes everything."""
    return peer(place.authority, saying("204 No Content"))


class Follower:
    """Says of itself that it serves what the alias stands for, as a server does."""

    def __init__(self, place: Place, publisher: Publisher) -> None:
        self._place, self._store = place, publisher.store
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow)

    def _follow(self) -> None:
        while not self._stop.wait(0.05):
            served = {"version": self._store.resolve("shop")}
            replace_file(self._place.site / "state.json", json.dumps(served))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.slow
def test_a_worse_version_goes_in_the_registry_as_well(place: Place) -> None:
    publisher = Publisher(place.site)
    publisher.publish("one", model="shop")
    place.configure(steps=["tell", "rollBack"])
    with Follower(place, publisher):
        with answering(place, report(labels=labels(600, 0.95))) as other:
            place.serve(other.port, publisher.keyring.path)
            assert place.run("--once")[0] == 0
        publisher.publish("two", model="shop")
        with answering(place, report(version=2, labels=labels(600, 0.7))) as other:
            place.serve(other.port, publisher.keyring.path)
            status, printed = place.run("--once")
        assert status == 3
        assert "version 1 serves again; version 2 is worse than version 1" in printed
        assert publisher.store.resolve("shop") == 1
        # What serves now has nothing before it, whatever its labels say.
        with answering(place, report(version=1, labels=labels(600, 0.7))) as other:
            place.serve(other.port, publisher.keyring.path)
            assert place.run("--once")[0] == 0
    assert "last rollBack" in seen_from(place)[2]


@pytest.mark.parametrize(
    ("watch", "words"),
    [
        ({"steps": []}, "what is done is always told as well"),
        ({"steps": ["retrain"]}, "what is done is always told as well"),
        ({"steps": ["tell", "retrain"]}, "retrain is for a table"),
        ({"steps": ["tell", "canary"]}, "given 'canary'"),
        ({"intervalSeconds": 0}, "from 1 to 86400"),
        ({"webhook": "http://localhost/x"}, "starts with https://"),
        ({"webhook": "https://u:p@localhost/x"}, "without a name or password"),
        ({"webhook": "https://hooks.slack.com/x"}, "which is Slack: it keeps what it gets abroad"),
        ({"webhook": "https://8.8.8.8/x"}, "allowed: hosts of one's own networks"),
        ({"webhook": "https://localhost:99999/x"}, "Port out of range"),
        ({"webhookAuthority": "a.pem"}, "given without webhook"),
        ({"mostRetrainingsPerWeek": 0}, "from 1 to 100"),
        ({"steps": ["tell", "shadow"]}, "falaj:service.shadow: missing"),
        ({"shadow": {"leastAgreement": 2}}, "from 0 to 1"),
        ({"mail": MAIL | {"server": "mail.example.com"}}, "given the host mail.example.com"),
        (
            {"mail": MAIL | {"server": "hooks.slack.com"}, "allowedHosts": ["hooks.slack.com"]},
            "abroad",
        ),
        ({"mail": MAIL | {"user": "falaj"}}, "passwordFile: missing, where user is given"),
        ({"mail": MAIL | {"passwordFile": "x"}}, "user: missing, where passwordFile is given"),
        ({"mail": MAIL | {"recipients": []}}, "recipients"),
        ({"mail": MAIL | {"sender": "a@b\r\nTo: c"}}, "an address of mail"),
        ({"mail": MAIL | {"security": "none"}}, "starttls"),
        ({"coolDownHours": True}, "given True|given true"),
        ({"data": "in"}, "falaj:model: missing"),
    ],
)
def test_settings_that_cant_be(place: Place, watch: dict[str, Any], words: str) -> None:
    place.configure(**watch)
    with pytest.raises(RefusedSettingsError, match=words):
        StackFile("main", Project.find(place.root)).settings()


def test_mail_servers_that_may_be(place: Place) -> None:
    for server in ("localhost", "10.0.0.25", "mail.corp.internal"):
        place.configure(mail=MAIL | {"server": server})
        StackFile("main", Project.find(place.root)).settings()
    place.configure(mail=MAIL | {"server": "mail.example.ae"}, allowedHosts=["mail.example.ae"])
    StackFile("main", Project.find(place.root)).settings()


@pytest.mark.parametrize(
    "url",
    ["https://localhost:8080/x", "https://10.1.2.3/x", "https://hooks.corp.internal/x",
     "https://sqs.me-central-1.amazonaws.com/x", "https://hooks.example.ae/x"],
)  # fmt: skip
def test_webhooks_that_may_be(place: Place, url: str) -> None:
    place.configure(webhook=url, allowedHosts=["hooks.example.ae"])
    StackFile("main", Project.find(place.root)).settings()


@pytest.mark.parametrize(
    ("status", "printed", "outcome"),
    [
        (0, "whatever", "done"),
        (2, "error: another run is working on stack main (process 3)", "busy"),
        (130, "stopped; 1 created, which is kept", "stopped"),
        (1, "error: the model isn't worth serving; it is not published:\n  accuracy 0.5\n"
            "a difference counts where", "refused"),
        (1, "error: no space left while writing x\nnot finished (exit 1)", "failed"),
        (1, "", "failed"),
    ],
)  # fmt: skip
def test_what_an_up_came_to(status: int, printed: str, outcome: str) -> None:
    found = judged(status, printed, Path("up.log"))
    assert found.outcome == outcome
    assert bool(found.detail) == (outcome != "done")
    if outcome == "refused":
        assert found.detail == "accuracy 0.5"


def test_what_an_up_says_of_its_refusals_is_understood() -> None:
    busy = operation.lock_message("the stack is currently locked by 1 lock(s)", "main")
    assert judged(2, f"error: {busy}", Path("up.log")).outcome == "busy"
    with pytest.raises(WorkloadError) as refused:
        worth.check(["accuracy 0.5"], "better", [{"name": "id", "reason": "an id"}])
    found = judged(1, f"error: {refused.value}", Path("up.log"))
    assert found.outcome == "refused"
    assert found.detail.startswith("accuracy 0.5")


def resource(kind: str, inputs: dict[str, str], outputs: dict[str, str]) -> dict[str, Any]:
    return {"type": f"falaj:index:{kind}", "inputs": inputs, "outputs": outputs}


def test_what_a_failed_training_left_behind_was_not_learned() -> None:
    old = resource("Dataset", {"sourceSha256": "old"}, {"path": "/datasets/1"})
    new = resource("Dataset", {"sourceSha256": "new"}, {"path": "/datasets/2"})
    package = resource("ModelPackage", {"dataset": "/datasets/1"}, {})
    assert learned_from([old, package]) == "old"
    # The new snapshot was taken, its training failed; the old one is still to be removed, or is.
    assert learned_from([new, old, package]) == "old"
    assert learned_from([new, package]) == ""
    assert learned_from([new, resource("ModelPackage", {"dataset": "/datasets/2"}, {})]) == "new"
    assert learned_from([new]) == ""
    assert learned_from([]) is None


def test_while_somebody_works_on_the_stack_its_file_is_left_alone(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Known:
        environment: Mapping[str, str] = {"PULUMI_BACKEND_URL": tmp_path.as_uri()}

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def exists(self) -> bool:
            return True

        def resources(self) -> list[dict[str, Any]]:
            return [resource("Dataset", {"sourceSha256": "old"}, {"path": "/1"}),
                    resource("ModelPackage", {"dataset": "/1"}, {})]  # fmt: skip

    monkeypatch.setattr("falaj.stacks.command.pulumi.Pulumi", Known)
    watched = Machine(StackFile("main", Project.find(place.root)), tmp_path)
    assert watched.learned() == "old"
    write_lock(tmp_path, pid=os.getpid(), project="shop", stack="main")
    with pytest.raises(NoDataError, match="another run is working on the stack"):
        watched.learned()


def write_lock(backend: Path, *, pid: int, project: str, stack: str) -> None:
    """As the engine does while it works on a stack."""
    path = backend / ".pulumi" / "locks" / "organization" / project / stack / "1.json"
    path.parent.mkdir(parents=True)
    now = datetime.now(UTC).isoformat()
    path.write_text(json.dumps({"pid": pid, "hostname": socket.gethostname(), "timestamp": now}))


def test_a_rollback_is_only_of_the_version_that_was_judged(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALAJ_HOME", str(place.home))
    publisher = Publisher(place.site)
    for name in ("one", "two", "three"):
        publisher.publish(name, model="shop")
    place.serve(1, publisher.keyring.path)
    stack = StackFile("main", Project.find(place.root))
    refused = Machine(stack, place.site).roll_back(2)
    assert "stands for version 3 by now, and not for version 2" in refused
    assert publisher.store.resolve("shop") == 3


def test_what_a_server_without_room_turned_away_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "\n".join(
        f'{PREFIX}_responses_total{{model="{model}",version="2",route="{INFER}",'
        f'status="{status}"}} {count}'
        for model, status, count in (
            ("shop", "200", 90), ("shop", "500", 3), ("shop", "503", 70), ("shop", "400", 9),
            ("price", "500", 7),
        )
    )  # fmt: skip
    monkeypatch.setattr(Server, "_get", lambda *_: text.encode())
    server = Server({"host": "localhost", "port": 1, "model": "shop"})
    assert server.failures(2) == Outcomes(93, 3)
