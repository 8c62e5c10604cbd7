"""HTTP and TLS that are refused: what is malformed, too large, too slow, or not TLS 1.3."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import socket
import ssl
import subprocess
import time

import pytest

from tests.workloads.inference.raw_http import INFER, Raw, error, head, request
from tests.workloads.inference.serving import Server, call, row


def told(server: Server, words: str) -> bool:
    """Wait for a line in the server's log."""
    deadline = time.monotonic() + 20
    while words not in server.errors.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    return words in server.errors.read_text()


def test_tls_1_2_is_refused_with_an_alert(running: Server) -> None:
    context = running.site.pki.client_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    plain = socket.create_connection(("127.0.0.1", running.port), timeout=20)
    with pytest.raises(ssl.SSLError, match="TLSV1_ALERT_PROTOCOL_VERSION"):
        context.wrap_socket(plain, server_hostname="localhost")
    plain.close()
    assert told(running, "an older TLS than 1.3")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl isn't installed")
def test_openssl_shows_the_alert(running: Server) -> None:
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"localhost:{running.port}", "-tls1_2"],
        capture_output=True, text=True, input="", timeout=20, check=False,
    )  # fmt: skip
    assert "alert protocol version" in done.stderr


@pytest.mark.parametrize("method", [b"GET", b"POST", b"CONNECT"])
def test_plain_http_on_the_tls_port_is_told_so(running: Server, method: bytes) -> None:
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as plain:
        # More than the server reads for its refusal: a reset would destroy the answer.
        plain.sendall(method + b" /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"x" * 100_000)
        answer = b""
        while part := plain.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain")
    assert b"use https://" in answer
    assert told(running, "plain HTTP")
    assert "Traceback" not in running.errors.read_text()


def test_certificate_of_another_authority_is_refused(
    running: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from tests.workloads.inference.serving import Pki

    other = Pki(tmp_path_factory.mktemp("other") / "pki")
    context = running.site.pki.client_context()
    context.load_cert_chain(other.folder / "caller.crt", other.folder / "caller.key")
    connection = http.client.HTTPSConnection(
        "localhost", running.port, context=context, timeout=20
    )
    # In TLS 1.3 the client has finished by then: the alert comes in place of the answer.
    with pytest.raises(ssl.SSLError, match=r"ALERT_(UNKNOWN_CA|DECRYPT_ERROR)"):
        call(connection, "GET", "/v2/health/live")
    assert told(running, "the authority didn't sign")


def test_what_is_no_tls_gets_an_alert(running: Server) -> None:
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as plain:
        plain.sendall(b"\x00" * 64)
        assert plain.recv(1024)[:1] in (b"\x15", b"")  # an alert, where OpenSSL makes one
    assert told(running, "connection refused")


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [
        (b"GARBAGE\r\n\r\n", 400, "well-formed"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "Host"),
        (b"GET /v2/health/live HTTP/1.1\nHost: x\n\n", 400, "well-formed"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "well-formed"),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nA: b\r\n c: d\r\n\r\n", 400, "well-formed"),
        (
            b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            400,
            "well-formed",
        ),
        (
            b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            "well-formed",
        ),
        (
            b"POST /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            400,
            "chunked",
        ),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400, "more than once"),
        (
            b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
            400,
            "upgrades",
        ),
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "upgrades"),
        (b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, "URL"),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 120 + b"\r\n", 431, "head"),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 20000 + b"\r\n\r\n", 431, "head"),
        (b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n", 413, "262144"),
        (b"POST /v2 HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nContent-Length: 1\r\n\r\n", 417, "100"),
    ],
)
def test_bad_http_is_told_and_closed(raw: Raw, sent: bytes, status: int, words: str) -> None:
    raw.send(sent)
    answer = raw.answer()
    assert answer[0] == status
    assert words in error(answer)
    assert answer[1][b"Connection"] == b"close"
    assert raw.ended()


def test_head_without_an_end_is_refused_early(raw: Raw) -> None:
    raw.send(b"GET /v2 HTTP/1.1\r\nHost: x\r\nA: ")
    with contextlib.suppress(OSError):
        for _ in range(40):
            raw.send(b"b" * 1000)
            time.sleep(0.001)
    assert raw.answer()[0] == 431


def test_body_without_a_size_is_refused(raw: Raw, token: str) -> None:
    raw.send(
        b"POST %b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n\r\n"
        % (INFER, token.encode())
    )
    answer = raw.answer()
    assert (answer[0], "Content-Length" in error(answer)) == (411, True)


def test_body_that_grows_beyond_the_limit_is_refused(raw: Raw, token: str) -> None:
    start = head(token, 0, b"Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
    raw.send(start)
    with contextlib.suppress(OSError):
        for _ in range(20):
            raw.send(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
    answer = raw.answer()
    assert answer[0] == 413
    assert answer[1][b"Connection"] == b"close"


@pytest.mark.parametrize("method", [b"PUT", b"GET", b"DELETE", b"HEAD"])
def test_wrong_method_names_the_right_one(raw: Raw, token: str, method: bytes) -> None:
    raw.send(head(token, 0, method=method))
    raw.socket.settimeout(20)
    data = raw.socket.recv(65536)
    assert data.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nAllow: POST\r\n" in data


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/", "unknown path"),
        ("/v2/models/other/infer", "unknown model 'other'"),
        ("/v2/models/mlp/versions/99/infer", "version '99'"),
        ("/v2/models/mlp/nothing", "unknown path"),
        ("/v2/models/mlp/infer/more", "unknown path"),
        ("/v2/models//infer", "unknown model ''"),
    ],
)
def test_unknown_paths(running: Server, token: str, path: str, words: str) -> None:
    status, answer = call(running.connect(), "POST", path, token=token, body=row())
    assert status == 404
    assert words in answer["error"]


def test_slow_head_is_ended(raw: Raw) -> None:
    raw.send(b"GET /v2 HTTP/1.1\r\n")
    answer = raw.answer()
    assert answer[0] == 408
    assert raw.ended()


def test_slow_body_is_ended(raw: Raw, token: str) -> None:
    raw.send(head(token, 1000), b"{")
    assert raw.answer()[0] == 408


def test_slow_body_after_a_known_head_is_ended(raw: Raw, token: str) -> None:
    whole = request(token)
    raw.send(whole)
    assert raw.answer()[0] == 200
    raw.send(whole[:-10])
    assert raw.answer()[0] == 408
    assert raw.ended()


def test_empty_lines_keep_no_connection(raw: Raw) -> None:
    """They are skipped before a request (RFC 9112, 2.2), and are none."""
    ended = False
    with contextlib.suppress(OSError):
        for _ in range(60):
            raw.send(b"\r\n")
            raw.socket.settimeout(0.25)
            with contextlib.suppress(TimeoutError):
                ended = raw.ended()
                break
    assert ended


def test_silent_connection_is_ended(raw: Raw) -> None:
    assert raw.ended()
