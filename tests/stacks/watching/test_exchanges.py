"""What goes over the wire: to the stack's server, and to a webhook that may be anybody's."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import ssl
import stat
import threading
from pathlib import Path
from typing import Any

import jwt
import pytest

from falaj.policies.reading.hosts import is_private
from falaj.stacks.settings.watching import refused_host
from falaj.stacks.watching import server as server_module
from falaj.stacks.watching.server import Server
from falaj.workloads.watching import webhook as webhook_module
from falaj.workloads.watching.exchange import NoAnswerError
from falaj.workloads.watching.webhook import Webhook, WebhookError, own_signing_key
from tests.stacks.watching.peers import Answer, certificate, peer, saying, write_token_key
from tests.stacks.watching.reports import report

METRICS = b"""# TYPE falaj_inference_served_version gauge
falaj_inference_served_version 2
# TYPE falaj_inference_responses_total counter
falaj_inference_responses_total{route="infer",status="200",version="2"} 90
falaj_inference_responses_total{route="infer",status="400",version="2"} 70
falaj_inference_responses_total{route="infer",status="500",version="2"} 7
falaj_inference_responses_total{route="infer",status="500",version="1"} 5
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("authority"))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_SECONDS", 1.0)
    monkeypatch.setattr(webhook_module, "_SECONDS", 1.0)


@pytest.fixture
def config(tmp_path: Path, authority: Path) -> dict[str, Any]:
    write_token_key(tmp_path)
    return {
        "host": "127.0.0.1", "port": 0, "model": "shop", "keyring": str(tmp_path),
        "tls": {"client_ca": str(authority)}, "auth": {"issuer": "us", "audience": "them"},
    }  # fmt: skip


def drip(connection: ssl.SSLSocket, request: bytes) -> None:
    """A byte now and then, for ever."""
    del request
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    pause = threading.Event()
    while True:
        connection.sendall(b" ")
        pause.wait(0.05)


def broken(connection: ssl.SSLSocket, request: bytes) -> None:
    """Fewer bytes than were promised."""
    del request
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")


def endless(connection: ssl.SSLSocket, request: bytes) -> None:
    """More than anybody wants."""
    del request
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    while True:
        connection.sendall(b" " * 1_000_000)


def nonsense(connection: ssl.SSLSocket, request: bytes) -> None:
    """No HTTP."""
    del request
    connection.sendall(b"220 mail.example.ae ESMTP\r\n")


def test_a_report_is_asked_for_with_a_token_that_may_only_look(
    config: dict[str, Any], authority: Path
) -> None:
    with peer(authority, saying("200 OK", json.dumps(report("drifted")).encode())) as other:
        found = Server({**config, "port": other.port}).report()
    assert found.drifted == ("input age",)
    (asked,) = other.asked
    assert asked.startswith(b"GET /v2/models/shop/drift HTTP/1.1\r\n")
    token = asked.partition(b"Bearer ")[2].split(b"\r\n")[0].decode()
    claims = jwt.decode(token, options={"verify_signature": False})
    assert (claims["scope"], claims["sub"]) == ("observe", "falaj-watch")
    assert claims["exp"] - claims["iat"] <= 120


def test_failures_are_the_servers_own_and_of_one_version(
    config: dict[str, Any], authority: Path
) -> None:
    with peer(authority, saying("200 OK", METRICS)) as other:
        found = Server({**config, "port": other.port}).failures(2)
    assert (found.count, found.failed) == (97, 7)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (saying("404 Not Found", b"{}"), "status 404: it knows no such model"),
        (saying("401 Unauthorized", b"{}"), "doesn't take this stack's tokens"),
        (saying("503 Busy", b"{}"), "status 503"),
        (saying("302 Found", b"", "Location: https://abroad.example/"), "status 302"),
        (saying("200 OK", b"{}"), "gave no report on drift: model: no text"),
        (saying("200 OK", b"<html>"), "gave no report on drift: it isn't JSON"),
        (drip, "no whole answer within 1 s"),
        (broken, "broke"),
        (endless, "more than 8,388,608 bytes|no whole answer"),
        (nonsense, "isn't HTTP"),
    ],
)
def test_a_server_that_answers_otherwise(
    config: dict[str, Any], authority: Path, answer: Answer, words: str
) -> None:
    with (
        peer(authority, answer) as other,
        pytest.raises(NoAnswerError, match=words) as raised,
    ):
        Server({**config, "port": other.port}).report()
    assert f"127.0.0.1:{other.port}" in str(raised.value)


def test_no_server_at_all(config: dict[str, Any]) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        with pytest.raises(NoAnswerError, match="can't be reached: Connection refused"):
            Server({**config, "port": held.getsockname()[1]}).report()


def test_an_expired_certificate_and_a_strangers(
    config: dict[str, Any], authority: Path, tmp_path: Path
) -> None:
    old = certificate(tmp_path, days=-1)
    with peer(old, saying("200 OK", b"{}")) as other:
        given = {**config, "port": other.port}
        with pytest.raises(NoAnswerError, match="isn't trusted: certificate has expired"):
            Server({**given, "tls": {"client_ca": str(old)}}).report()
        with pytest.raises(NoAnswerError, match="isn't trusted"):
            Server(given).report()
    assert other.asked == []


def test_files_that_are_missing(config: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(NoAnswerError, match=r"authority .* can't be read"):
        Server({**config, "tls": {"client_ca": str(tmp_path / "none")}}).report()
    with pytest.raises(NoAnswerError, match="no token can be made"):
        Server({**config, "keyring": str(tmp_path / "none")}).report()


# The webhook.


@pytest.fixture
def hook(tmp_path: Path, authority: Path) -> Any:
    def made(
        port: int, host: str = "localhost", *, hosts: tuple[str, ...] = (),
        trusted: Path | None = authority,
    ) -> Webhook:  # fmt: skip
        url = f"https://{host}:{port}/in?to=us"
        return Webhook(
            url, lambda each: refused_host(each, list(hosts)), is_private, trusted,
            lambda: own_signing_key(tmp_path / "webhook.key"),
        )  # fmt: skip

    return made


MESSAGE = {"event": "drift", "text": "عمر"}


def test_a_message_is_signed_over_its_time(hook: Any, authority: Path, tmp_path: Path) -> None:
    with peer(authority, saying("202 Accepted")) as other:
        hook(other.port).send(MESSAGE, "one", 1_700_000_000.5)
    head, _, body = other.asked[0].partition(b"\r\n\r\n")
    lines = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
    assert head.startswith(b"POST /in?to=us HTTP/1.1\r\n")
    assert json.loads(body) == MESSAGE
    assert lines[b"Falaj-Delivery"] == b"one"
    key = tmp_path / "webhook.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    expected = hmac.new(
        key.read_bytes().strip(), b"1700000000." + body, hashlib.sha256
    ).hexdigest()
    assert lines[b"Falaj-Signature"].decode() == f"t=1700000000,v1={expected}"
    assert key.read_bytes().strip() not in other.asked[0]


@pytest.mark.parametrize(
    ("answer", "words", "for_good"),
    [
        (saying("302 Found", b"", "Location: https://abroad.example/x"), "abroad.example", True),
        (saying("307 Again", b"", "Location: //other/"), "nobody has judged", True),
        (saying("400 Bad"), "status 400", True),
        (saying("410 Gone"), "status 410", True),
        (saying("429 Slow"), "status 429", False),
        (saying("500 Oh"), "status 500", False),
        (drip, "no whole answer within 1 s", False),
        (nonsense, "isn't HTTP", False),
        (endless, "bytes|no whole answer", False),
    ],
)
def test_a_webhook_that_doesnt_take_it(
    hook: Any, authority: Path, answer: Answer, words: str, for_good: bool
) -> None:
    with (
        peer(authority, answer) as other,
        pytest.raises(WebhookError, match=words) as raised,
    ):
        hook(other.port).send(MESSAGE, "one", 0.0)
    assert raised.value.for_good is for_good
    assert "/in?to=us" not in str(raised.value), "an address may be as good as a password"


@pytest.mark.parametrize(
    ("host", "resolved", "words"),
    [
        ("hooks.example.com", "8.8.8.8", "allowed: hosts of one's own networks"),
        ("hooks.slack.com", "8.8.8.8", "keeps what it gets abroad"),
        ("8.8.8.8", "8.8.8.8", "allowed: hosts of one's own networks"),
        ("hooks.corp.internal", "8.8.8.8", "stands for 8.8.8.8, which isn't of them"),
        ("localhost", "8.8.8.8", "stands for 8.8.8.8, which isn't of them"),
    ],
)
def test_nothing_goes_abroad(
    hook: Any, monkeypatch: pytest.MonkeyPatch, host: str, resolved: str, words: str
) -> None:
    def resolve(*args: Any, **kwargs: Any) -> list[Any]:
        del args, kwargs
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (resolved, 443))]

    def connect(*args: Any, **kwargs: Any) -> socket.socket:
        raise AssertionError(f"a connection was begun: {args} {kwargs}")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(WebhookError, match=words) as raised:
        hook(443, host).send(MESSAGE, "one", 0.0)
    assert raised.value.for_good


def test_a_host_may_have_an_address_that_nobody_listens_at(
    hook: Any, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(host: str, port: int, *args: Any, **kwargs: Any) -> list[Any]:
        del host, args, kwargs
        # As of IPv6, or of another interface.
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port))
            for each in ("127.0.0.2", "127.0.0.1")
        ]

    with peer(authority, saying("200 OK")) as other:
        sender = hook(other.port)
        real = socket.create_connection
        monkeypatch.setattr(socket, "getaddrinfo", resolve)

        def connect(address: tuple[str, int], *args: Any) -> socket.socket:
            if address[0] == "127.0.0.2":
                raise ConnectionRefusedError(111, "Connection refused")
            monkeypatch.undo()
            return real(address, *args)

        monkeypatch.setattr(socket, "create_connection", connect)
        sender.send(MESSAGE, "one", 0.0)
    assert len(other.asked) == 1


def test_a_webhook_that_isnt_there_or_isnt_trusted(
    hook: Any, authority: Path, tmp_path: Path
) -> None:
    with pytest.raises(WebhookError, match="has no address") as raised:
        hook(443, "nowhere.invalid", hosts=("nowhere.invalid",)).send(MESSAGE, "one", 0.0)
    assert not raised.value.for_good
    with peer(authority, saying("200 OK")) as other:
        with pytest.raises(WebhookError, match="isn't trusted"):
            hook(other.port, trusted=None).send(MESSAGE, "one", 0.0)
        with pytest.raises(WebhookError, match=r"webhookAuthority: .* can't be read"):
            hook(other.port, trusted=tmp_path / "none").send(MESSAGE, "one", 0.0)
    assert other.asked == []


def test_a_key_that_cant_be_read_is_told_and_tried_again(
    hook: Any, authority: Path, tmp_path: Path
) -> None:
    key = tmp_path / "webhook.key"
    key.mkdir()
    with peer(authority, saying("200 OK")) as other:
        with pytest.raises(WebhookError, match=r"webhook\.key, can't be read or made") as raised:
            hook(other.port).send(MESSAGE, "one", 0.0)
        assert not raised.value.for_good
        assert other.asked == []
        key.rmdir()
        key.write_text("\n")
        with pytest.raises(WebhookError, match=r"webhook\.key, .* made: it is empty"):
            hook(other.port).send(MESSAGE, "one", 0.0)
        key.unlink()
        hook(other.port).send(MESSAGE, "one", 0.0)
    assert len(other.asked) == 1
