"""HTTP as clients, strange ones too, speak it: framing, order, connections that are kept."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time

import httpx
import pytest

from falaj import __version__
from tests.workloads.inference.raw_http import INFER, Raw, error, head, request
from tests.workloads.inference.serving import Server, call, row


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


def test_expect_continue_behind_another_request(raw: Raw, token: str) -> None:
    """The client is told to go on when all before is answered, and waits for no timeout."""
    body = json.dumps(row(id="second")).encode()
    raw.send(request(token, id="first") + head(token, len(body), b"Expect: 100-continue"))
    assert json.loads(raw.answer()[2])["id"] == "first"
    assert raw.answer()[0] == 100
    raw.send(body)
    assert json.loads(raw.answer()[2])["id"] == "second"


@pytest.mark.parametrize("expectation", [b"100-continue", b"100-Continue"])
def test_http_1_0_is_told_nothing_but_the_answer(raw: Raw, token: str, expectation: bytes) -> None:
    """RFC 9110, 10.1.1 and 15.2."""
    body = json.dumps(row()).encode()
    start = head(token, len(body), b"Expect: " + expectation).replace(b"HTTP/1.1", b"HTTP/1.0")
    raw.send(start)
    raw.send(body)
    assert raw.answer()[0] == 200
    assert raw.ended()


def test_who_sends_no_body_is_not_told_to_go_on(raw: Raw, token: str) -> None:
    line = b"Expect: 100-continue"
    raw.send(
        head(token, 0, line, method=b"GET", url=b"/v2").replace(b"Content-Length: 0\r\n", b"")
    )
    assert raw.answer()[0] == 200
    raw.send(head(token, 0, line))
    assert raw.answer()[0] == 400


def test_who_has_sent_its_body_is_not_told_to_go_on(raw: Raw, token: str) -> None:
    body = json.dumps(row()).encode()
    for _ in range(2):
        raw.send(request(token) + head(token, len(body), b"Expect: 100-continue") + body)
    assert [raw.answer()[0] for _ in range(4)] == [200] * 4


@pytest.mark.parametrize("space", [b" ", b"\t", b" \t "])
@pytest.mark.parametrize("line", [b"Expect: 100-continue", b"Content-Encoding: identity", b""])
def test_spaces_around_a_value_are_not_part_of_it(
    raw: Raw, token: str, line: bytes, space: bytes
) -> None:
    """RFC 9110, 5.5."""
    body = json.dumps(row(id="spaced")).encode()
    lines = [*([line + space] if line else []), b"X-More:" + space]
    start = head(token, len(body), *lines).replace(b"Host: localhost", b"Host:localhost" + space)
    raw.send(start + body)
    assert json.loads(raw.answer()[2])["id"] == "spaced"


def test_a_space_behind_chunked(raw: Raw, token: str) -> None:
    body = json.dumps(row(id="spaced")).encode()
    start = head(token, 0, b"Transfer-Encoding: chunked ").replace(b"Content-Length: 0\r\n", b"")
    raw.send(start + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) + request(token, id="next"))
    assert json.loads(raw.answer()[2])["id"] == "spaced"
    assert json.loads(raw.answer()[2])["id"] == "next"


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


def test_head_is_answered_without_a_body(raw: Raw, token: str) -> None:
    """A body after HEAD would be the start of the next answer."""
    asked = head(token, 0, method=b"GET", url=b"/v2/models/mlp")
    for path in (b"/v2/models/mlp", b"/nothing", INFER):
        raw.send(head(token, 0, method=b"HEAD", url=path))
    raw.send(asked)
    data = b""
    while data.count(b"HTTP/1.1 ") < 4 or not data.endswith(b"}"):
        data += raw.socket.recv(65536)
    *answers, last = data.split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200", b"404", b"405"]
    assert all(answer.endswith(b"\r\n\r\n") for answer in answers)
    length = b"Content-Length: %d\r\n" % len(last.partition(b"\r\n\r\n")[2])
    assert length in answers[0]


def test_absolute_form_is_the_same_target(raw: Raw, token: str) -> None:
    url = b"https://localhost:8443" + INFER
    body = json.dumps(row()).encode()
    for _ in range(2):
        raw.send(head(token, len(body), url=url) + body)
        assert raw.answer()[0] == 200


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl isn't installed")
def test_curl(running: Server, token: str) -> None:
    authority = str(running.site.pki.folder / "ca.crt")
    where = f"https://localhost:{running.port}"
    command = ["curl", "-sS", "--max-time", "20", "--cacert", authority, "-w", "\n%{http_code}"]
    command += ["-H", f"Authorization: Bearer {token}"]

    def run(*more: str, sent: str | None = None) -> list[str]:
        done = subprocess.run(
            [*command, *more], capture_output=True, text=True, check=True, input=sent
        )
        return done.stdout.splitlines()

    assert run("-I", f"{where}/v2/models/mlp")[-1] == "200"
    assert run("--request-target", f"{where}/v2", f"{where}/v2")[-1] == "200"
    chunked = ["-H", "Transfer-Encoding: chunked", "-H", "Content-Type: application/json"]
    answered = run(*chunked, "-d", "@-", where + INFER.decode(), sent=json.dumps(row()))
    assert answered[-1] == "200"


def test_httpx(running: Server, token: str) -> None:
    context = running.site.pki.client_context()
    base = f"https://localhost:{running.port}"
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(verify=context, base_url=base, headers=headers) as client:
        for _ in range(2):
            assert client.head("/v2/models/mlp").status_code == 200
            assert client.post(INFER.decode(), json=row()).status_code == 200


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
        "version": __version__,
        "extensions": ["binary_tensor_data", "statistics", "model_configuration"],
    }
