"""HTTP and TLS as clients, strange ones too, speak it: framing, limits, order, timeouts."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from tests.workloads.inference.serving import Server, call, row

INFER = b"/v2/models/mlp/infer"


class Raw:
    """A TLS connection on which bytes are sent as they are."""

    def __init__(self, server: Server) -> None:
        context = server.site.pki.client_context()
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        self.socket = context.wrap_socket(plain, server_hostname="localhost")
        self._rest = b""

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.socket.sendall(part)

    def answer(self) -> tuple[int, dict[bytes, bytes], bytes]:
        """Read one answer: status, headers, body."""
        while b"\r\n\r\n" not in self._rest:
            self._more()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines[1:])
        size = int(headers.get(b"Content-Length", b"0"))
        while len(self._rest) < size:
            self._more()
        body, self._rest = self._rest[:size], self._rest[size:]
        return int(lines[0].split()[1]), headers, body

    def _more(self) -> None:
        data = self.socket.recv(65536)
        assert data, f"the connection ended after {self._rest!r}"
        self._rest += data

    def ended(self) -> bool:
        """Tell whether the server closes without another answer."""
        try:
            return self._rest == b"" and self.socket.recv(65536) == b""
        except ConnectionResetError:
            return False

    def close(self) -> None:
        self.socket.close()


@pytest.fixture
def raw(running: Server) -> Iterator[Raw]:
    connection = Raw(running)
    yield connection
    connection.close()


def head(
    token: str, length: int, *lines: bytes, method: bytes = b"POST", url: bytes = INFER
) -> bytes:
    fixed = [
        b"%b %b HTTP/1.1" % (method, url),
        b"Host: localhost",
        b"Authorization: Bearer " + token.encode(),
        b"Content-Length: %d" % length,
    ]
    return b"\r\n".join([*fixed, *lines]) + b"\r\n\r\n"


def request(token: str, **more: object) -> bytes:
    body = json.dumps(row(**more)).encode()
    return head(token, len(body)) + body


def error(answer: tuple[int, dict[bytes, bytes], bytes]) -> str:
    assert answer[1][b"Content-Type"] == b"application/json"
    document = json.loads(answer[2])
    assert set(document) == {"error"}
    return document["error"]


def told(server: Server, words: str) -> bool:
    """Wait for a line in the server's log."""
    deadline = time.monotonic() + 20
    while words not in server.errors.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    return words in server.errors.read_text()


# -- what is refused -------------------------------------------------------------------------


def test_tls_1_2_is_refused(running: Server) -> None:
    context = running.site.pki.client_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    plain = socket.create_connection(("127.0.0.1", running.port), timeout=20)
    with pytest.raises(OSError, match=r"EOF|reset|VERSION"):
        context.wrap_socket(plain, server_hostname="localhost")
    plain.close()
    assert told(running, "an older TLS than 1.3")


def test_plain_http_on_the_tls_port_is_closed_cleanly(running: Server) -> None:
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as plain:
        plain.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert not plain.recv(1024).startswith(b"HTTP/1.1 2")
    assert told(running, "plain HTTP on the TLS port")
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
    with pytest.raises(OSError, match=r"."):
        call(connection, "GET", "/v2/health/live")
    assert told(running, "the authority didn't sign")


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


def test_compressed_body_is_refused(raw: Raw, token: str) -> None:
    raw.send(head(token, 3, b"Content-Encoding: gzip") + b"abc")
    assert raw.answer()[0] == 415


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


def test_silent_connection_is_ended(raw: Raw) -> None:
    assert raw.ended()


# -- what is served --------------------------------------------------------------------------


def test_kept_connection_answers_many(raw: Raw, token: str) -> None:
    for number in range(50):
        raw.send(request(token, id=str(number)))
        status, headers, body = raw.answer()
        assert status == 200
        assert b"Connection" not in headers
        assert json.loads(body)["id"] == str(number)


def test_pipelined_requests_are_answered_in_order(raw: Raw, token: str) -> None:
    bad = head(token, 2) + b"[]"
    live = head(token, 0, method=b"GET", url=b"/v2/health/live")
    raw.send(b"".join([request(token, id="1"), bad, live, request(token, id="2")] * 5))
    for _ in range(5):
        assert json.loads(raw.answer()[2])["id"] == "1"
        assert raw.answer()[0] == 400
        assert json.loads(raw.answer()[2]) == {"live": True}
        assert json.loads(raw.answer()[2])["id"] == "2"


def test_pipelined_requests_before_a_bad_one_are_answered(raw: Raw, token: str) -> None:
    raw.send(request(token, id="1") + request(token, id="2") + b"NONSENSE\r\n\r\n")
    assert json.loads(raw.answer()[2])["id"] == "1"
    assert json.loads(raw.answer()[2])["id"] == "2"
    assert raw.answer()[0] == 400
    assert raw.ended()


@pytest.mark.parametrize("size", [1, 7, 100, 333])
def test_requests_in_pieces(raw: Raw, token: str, size: int) -> None:
    stream = request(token, id="a") * 3
    for start in range(0, len(stream), size):
        raw.send(stream[start : start + size])
    for _ in range(3):
        assert json.loads(raw.answer()[2])["id"] == "a"


def test_head_and_body_apart(raw: Raw, token: str) -> None:
    whole = request(token)
    end = whole.index(b"\r\n\r\n") + 4
    for _ in range(4):
        raw.send(whole[:end])
        time.sleep(0.01)
        raw.send(whole[end : end + 9])
        time.sleep(0.01)
        raw.send(whole[end + 9 :])
        assert raw.answer()[0] == 200


def test_known_head_with_the_next_request_behind_it(raw: Raw, token: str) -> None:
    whole = request(token)
    raw.send(whole)
    assert raw.answer()[0] == 200
    raw.send(whole[:-5])
    time.sleep(0.02)
    raw.send(whole[-5:] + whole + whole[:20])
    assert raw.answer()[0] == 200
    assert raw.answer()[0] == 200
    raw.send(whole[20:])
    assert raw.answer()[0] == 200


def test_empty_lines_before_a_request_do_not_confuse_heads(raw: Raw, token: str) -> None:
    whole = request(token)
    for _ in range(3):
        raw.send(b"\r\n\r\n" + whole)
        assert raw.answer()[0] == 200
    raw.send(b"\r\n\r\n", whole)
    assert raw.answer()[0] == 200


def test_known_head_with_a_bad_body(raw: Raw, token: str) -> None:
    whole = request(token)
    raw.send(whole)
    assert raw.answer()[0] == 200
    end = whole.index(b"\r\n\r\n") + 4
    raw.send(whole[:end] + b"x" * (len(whole) - end))
    answer = raw.answer()
    assert (answer[0], "not JSON" in error(answer)) == (400, True)
    raw.send(whole)
    assert raw.answer()[0] == 200


def test_chunked_body(raw: Raw, token: str) -> None:
    body = json.dumps(row(id="chunks")).encode()
    start = head(token, 0, b"Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
    pieces = [body[n : n + 50] for n in range(0, len(body), 50)]
    for _ in range(2):
        raw.send(start, *(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces))
        raw.send(b"0\r\n\r\n")
        assert json.loads(raw.answer()[2])["id"] == "chunks"


def test_expect_continue(raw: Raw, token: str) -> None:
    body = json.dumps(row()).encode()
    raw.send(head(token, len(body), b"Expect: 100-continue"))
    assert raw.answer()[0] == 100
    raw.send(body)
    assert raw.answer()[0] == 200


def test_expect_continue_of_a_stranger_gets_no_continue(raw: Raw) -> None:
    raw.send(head("wrong", 10, b"Expect: 100-continue"))
    assert raw.answer()[0] == 401
    assert raw.ended()


def test_connection_close_is_honoured(raw: Raw, token: str) -> None:
    body = json.dumps(row()).encode()
    raw.send(head(token, len(body), b"Connection: close") + body)
    status, headers, _ = raw.answer()
    assert (status, headers[b"Connection"]) == (200, b"close")
    assert raw.ended()


def test_http_1_0_is_answered_and_closed(raw: Raw) -> None:
    raw.send(b"GET /v2/health/live HTTP/1.0\r\n\r\n")
    assert raw.answer()[0] == 200
    assert raw.ended()


def test_refused_small_body_keeps_the_connection(raw: Raw, token: str) -> None:
    raw.send(head("wrong", 5) + b"12345" + request(token))
    assert raw.answer()[0] == 401
    assert raw.answer()[0] == 200


def test_client_that_does_not_read_is_not_answered_without_end(raw: Raw, token: str) -> None:
    # Far more answers than buffers hold: the server must stop reading instead of piling up.
    whole = request(token, id="x" * 1000)
    raw.socket.settimeout(1)
    sent = 0
    with contextlib.suppress(TimeoutError):
        for _ in range(20_000):
            raw.send(whole)
            sent += 1
    assert sent < 20_000
    raw.socket.settimeout(20)
    status, _, body = raw.answer()
    assert (status, json.loads(body)["id"]) == (200, "x" * 1000)


def test_health_needs_no_token(running: Server) -> None:
    connection = running.connect()
    assert call(connection, "GET", "/v2/health/live") == (200, {"live": True})
    assert call(connection, "GET", "/v2/health/ready") == (200, {"live": True, "ready": True})


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("base", ["/v2/models/mlp", "/v2/models/mlp/versions/1"])
def test_metadata(running: Server, token: str, base: str, slash: str) -> None:
    connection = running.connect()
    status, answer = call(connection, "GET", base + slash, token=token)
    assert status == 200
    assert answer["name"] == "mlp"
    assert answer["versions"] == ["1"]
    assert answer["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 64]}]
    assert answer["outputs"] == [{"name": "probabilities", "datatype": "FP32", "shape": [-1, 10]}]
    assert call(connection, "GET", base + "/ready" + slash, token=token) == (
        200,
        {"name": "mlp", "ready": True},
    )
    assert call(connection, "POST", base + "/infer" + slash, token=token, body=row())[0] == 200
    status, answer = call(connection, "GET", "/v2" + slash, token=token)
    assert answer == {
        "name": "falaj",
        "version": "0.1.0",
        "extensions": ["binary_tensor_data"],
    }
