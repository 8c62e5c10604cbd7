"""`/v1/completions` and `/v1/models` of a running server, as plain HTTP sees them."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import orjson
import psutil
import pytest
from hypothesis import given, settings

from falaj.workloads.inference.connections.connection import FLUSH_SECONDS
from falaj.workloads.inference.language import completions
from falaj.workloads.inference.process.worker import available
from falaj.workloads.inference.rpc.messages import CLASSES
from falaj.workloads.inference.runs import TEXTS_PER_THREAD
from falaj.workloads.rollout.measures import read
from tests.examples import examples
from tests.waiting import wait_for
from tests.workloads.inference import grpc_calls
from tests.workloads.inference.languages import (
    CHARACTERS,
    COMPLETIONS,
    NAME,
    ask,
    bigrams,
    events,
    greedy,
    joined,
    publish,
    streamed,
    table,
    texts,
    usage,
)
from tests.workloads.inference.raw_http import Raw, head
from tests.workloads.inference.serving import Server, Site, call, started
from tests.workloads.inference.test_generation import REQUESTS, VALUES, bodies
from tests.workloads.inference.test_openapi import assert_headers, fits, judge, sent

Start = Callable[..., Server]
INFER = f"/v2/models/{NAME}/infer"
MOST = 20_000


@pytest.fixture(scope="module")
def speaking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    site = Site(tmp_path_factory.mktemp("speaking") / "site")
    site.write(limits={"max_tokens": MOST, "max_body_bytes": 256 * 1024}, jobs={})
    with started(site, publish(site)) as server:
        yield server


@pytest.fixture
def token(speaking: Server) -> str:
    return speaking.site.token("predict")


def tokens_of(rows: list[list[int]], **more: Any) -> dict[str, Any]:
    tensor = {"name": "tokens", "datatype": "INT64", "shape": [len(rows), len(rows[0])],
              "data": [each for row in rows for each in row]}  # fmt: skip
    return {"inputs": [tensor], **more}


def counted(server: Server, kind: str) -> float:
    """Tokens of a kind by the metrics."""
    connection = server.connect()
    _, text = call(connection, "GET", "/metrics", token=server.site.token("observe"))
    connection.close()
    wanted = f'falaj_inference_tokens_total{{kind="{kind}"'
    lines = [each for each in text.decode().splitlines() if each.startswith(wanted)]
    return sum(float(each.rpartition(" ")[2]) for each in lines)


def logged(site: Site) -> str:
    return "".join(path.read_text() for path in site.logs.rglob("*") if path.is_file())


def request(token: str, **more: Any) -> bytes:
    body = json.dumps({"model": NAME, "prompt": "a"} | more).encode()
    return head(token, len(body), url=COMPLETIONS.encode()) + body


def read_until(connection: Raw, end: bytes) -> bytes:
    found = b""
    while end not in found:
        part = connection.socket.recv(65536)
        assert part, found
        found += part
    return found


# -- what is refused -----------------------------------------------------------------------


def refused(answer: tuple[int, Any], status: int, kind: str = "invalid_request_error") -> Any:
    assert answer[0] == status, answer
    assert set(answer[1]) == {"error"}
    error = answer[1]["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == kind
    return error


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", COMPLETIONS), ("GET", "/v1/models"), ("GET", f"/v1/models/{NAME}"),
     ("POST", "/v1/chat/completions")],
)  # fmt: skip
def test_who_shows_nothing_is_refused_in_openais_form(
    speaking: Server, method: str, path: str
) -> None:
    connection = speaking.connect()
    body = {"model": NAME, "prompt": "a"} if method == "POST" else None
    error = refused(call(connection, method, path, body=body), 401, "authentication_error")
    assert "credentials" in error["message"]
    token = speaking.site.token("predict", audience="another")
    refused(call(connection, method, path, token=token, body=body), 401, "authentication_error")


@pytest.mark.parametrize("path", [COMPLETIONS, "/v1/models"])
def test_another_scope_is_not_enough(speaking: Server, path: str) -> None:
    token = speaking.site.token("observe", "feedback")
    method = "POST" if path == COMPLETIONS else "GET"
    answer = call(speaking.connect(), method, path, token=token, body=b"{}")
    assert "predict" in refused(answer, 403, "permission_error")["message"]


def test_a_wrong_field_is_answered_with_its_name(speaking: Server, token: str) -> None:
    error = refused(ask(speaking, token, max_tokens=MOST + 1), 400)
    assert error["param"] == "max_tokens"
    assert f"got {MOST + 1}, allowed is a whole number from 1 to {MOST}" in error["message"]
    assert refused(ask(speaking, token, tools=[]), 400)["param"] == "tools"
    assert refused(ask(speaking, token, [[1, 2]]), 400)["param"] == "prompt"


def test_another_model_is_not_there(speaking: Server, token: str) -> None:
    error = refused(ask(speaking, token, model="gpt-2"), 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    answer = call(speaking.connect(), "GET", "/v1/models/gpt-2", token=token)
    assert refused(answer, 404)["code"] == "model_not_found"


def test_an_unknown_path_is_answered_with_those_that_this_model_has(
    speaking: Server, token: str
) -> None:
    for path in ("/v1/embeddings", "/v1", "/v1/chat"):
        answer = call(speaking.connect(), "POST", path, token=token, body={})
        message = refused(answer, 404)["message"] if path != "/v1" else answer[1]["error"]
        assert f"unknown path {path}; '{NAME}' answers POST {COMPLETIONS}, GET /v1/m" in message
        assert "chat/completions" not in message


def test_a_text_is_counted_with_the_time_to_its_first_token(speaking: Server, token: str) -> None:
    def counters() -> dict[tuple[str, str, str], float]:
        connection = speaking.connect()
        _, text = call(connection, "GET", "/metrics", token=speaking.site.token("observe"))
        return dict(read(text.decode()))

    first = "falaj_inference_time_to_first_token_seconds_bucket"
    wanted = [("1", first, "+Inf"), ("1", "falaj_inference_responses_total", "200")]
    before = counters()
    for stream in (False, True):
        assert ask(speaking, token, stream=stream, max_tokens=3)[0] == 200
    assert ask(speaking, token, max_tokens=0)[0] == 400
    after = counters()
    assert [after[each] - before.get(each, 0) for each in wanted] == [2, 2]
    assert after["1", first, "209.7152"] == after[wanted[0]]


def test_chats_are_not_taken(speaking: Server, token: str) -> None:
    body = {"model": NAME, "messages": [{"role": "user", "content": "Hello"}]}
    answer = call(speaking.connect(), "POST", "/v1/chat/completions", token=token, body=body)
    error = refused(answer, 404)
    assert "isn't a chat model: its package has no chat template" in error["message"]
    assert error["param"] == "model"


@pytest.mark.parametrize(("method", "path"), [("GET", COMPLETIONS), ("DELETE", "/v1/models")])
def test_another_method_is_refused(speaking: Server, token: str, method: str, path: str) -> None:
    refused(call(speaking.connect(), method, path, token=token), 405)


def test_what_is_no_json_or_too_large_is_refused(speaking: Server, token: str) -> None:
    connection = speaking.connect()
    refused(call(connection, "POST", COMPLETIONS, token=token, body=b"{"), 400)
    body = {"model": NAME, "prompt": "a" * 300_000}
    refused(call(connection, "POST", COMPLETIONS, token=token, body=body), 413)


def test_a_server_of_another_model_says_what_it_offers(running: Server) -> None:
    token, connection = running.site.token("predict"), running.connect()
    for method, path in (("POST", COMPLETIONS), ("GET", "/v1/models"), ("GET", "/v1/models/mlp")):
        answer = call(
            connection, method, path, token=token, body=b"{}" if method == "POST" else None
        )
        assert "it answers at /v2/models/mlp/infer" in refused(answer, 404)["message"]
    answer = call(connection, "POST", "/v1/embeddings", token=token, body=b"{}")
    message = refused(answer, 404)["message"]
    assert message == "unknown path /v1/embeddings; 'mlp' answers POST /v2/models/mlp/infer"
    _, document = call(connection, "GET", "/v2/openapi.json", token=token)
    assert not [path for path in document["paths"] if path.startswith("/v1")]


def test_a_package_that_contradicts_itself_is_not_served(site: Site, start: Start) -> None:
    publish(site, classes=["\ufffd", "a"])
    server = start(site)
    words = "the package says that its model is one of language, but it has no output"
    wait_for(
        lambda: words in server.errors.read_text() + json.dumps(server.state()),
        "the reason to be told",
    )
    assert server.state()["status"] != "serving"


@settings(max_examples=examples(60), deadline=None)
@given(VALUES | REQUESTS)
def test_no_request_makes_the_server_fail(speaking: Server, value: Any) -> None:
    token = speaking.site.token("predict")
    connection = speaking.connect()
    content = bodies(value)
    status, answer = call(connection, "POST", COMPLETIONS, token=token, body=content)
    connection.close()
    assert status in (200, 400, 404), (content, answer)


def test_nothing_of_a_text_is_written_down(speaking: Server, token: str) -> None:
    assert ask(speaking, token, "secret words", user="me myself", stop="hidden stop")[0] == 200
    ask(speaking, token, "secret words", stop=["hidden stop"] * 5)
    line = '"prompt_tokens":12,"generated_tokens":16'
    wait_for(lambda: line in logged(speaking.site), "the access line")
    written = logged(speaking.site) + speaking.errors.read_text()
    assert not [each for each in ("secret", "myself", "hidden") if each in written]
    assert "Traceback" not in written


# -- texts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", ["a", "", "شكرا", "no 😀", "zzz", "b" * 1_000])
def test_the_likeliest_text_is_the_models(speaking: Server, token: str, prompt: str) -> None:
    answer = ask(speaking, token, prompt, temperature=0, max_tokens=40)
    assert texts(answer) == [greedy(prompt, 40)]
    choice = answer[1]["choices"][0]
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "length", None)


def test_it_is_what_asking_for_each_character_gives(speaking: Server, token: str) -> None:
    places, connection = [CHARACTERS.index(each) for each in "ab "], speaking.connect()
    for _ in range(20):
        _, answer = call(connection, "POST", INFER, token=token, body=tokens_of([places]))
        chances = np.array(answer["outputs"][0]["data"])
        places.append(1 + int(chances[1:].argmax()))
    found = "".join(CHARACTERS[each] for each in places)
    answer = ask(speaking, token, "ab ", temperature=0, max_tokens=20, echo=True)
    assert texts(answer) == [found]


def test_an_answer_says_what_it_is(speaking: Server, token: str) -> None:
    before = int(time.time())
    _, answer = ask(speaking, token, "ab", max_tokens=3)
    assert answer["id"].startswith("cmpl-")
    assert before - 5 <= answer["created"] <= time.time() + 5
    assert (answer["object"], answer["model"]) == ("text_completion", NAME)
    assert answer["system_fingerprint"] == "version-1"
    assert answer["usage"] == usage(2, 3)
    assert ask(speaking, token, "ab")[1]["id"] != answer["id"]


def test_the_same_seed_gives_the_same_text(speaking: Server, token: str) -> None:
    first, second, other = (
        texts(ask(speaking, token, max_tokens=60, seed=seed, temperature=1.5))
        for seed in (-7, -7, 8)
    )
    assert first == second != other
    assert texts(ask(speaking, token, max_tokens=60)) != texts(ask(speaking, token, max_tokens=60))


def test_several_texts_of_several_prompts(speaking: Server, token: str) -> None:
    prompts = ["a", "شك", "bbbbbbbbbbbb"]
    answer = ask(speaking, token, prompts, n=3, seed=1, max_tokens=10, echo=True)
    found = texts(answer)
    assert [each["index"] for each in answer[1]["choices"]] == list(range(9))
    for place, text in enumerate(found):
        assert text.startswith(prompts[place // 3])
        assert len(text) == len(prompts[place // 3]) + 10
    assert len(set(found)) == 9
    # A prompt counts once, as each of its characters; a generated one for each text.
    assert answer[1]["usage"] == usage(15, 90)
    alone = texts(ask(speaking, token, "a", n=3, seed=1, max_tokens=10, echo=True))
    assert alone == found[:3]


def test_a_stop_ends_a_text_and_is_not_in_it(speaking: Server, token: str) -> None:
    whole = greedy("a", 30)
    stop = whole[5:8]
    end = whole.index(stop)
    for stream in (False, True):
        answer = ask(speaking, token, "a", temperature=0, max_tokens=30, stop=[stop, "zz"],
                     stream=stream)  # fmt: skip
        if stream:
            documents = streamed(answer)
            assert joined(documents) == whole[:end]
            finish = documents[-1]["choices"][0]["finish_reason"]
        else:
            assert texts(answer) == [whole[:end]]
            finish = answer[1]["choices"][0]["finish_reason"]
            assert answer[1]["usage"]["completion_tokens"] == end + len(stop)
        assert finish == "stop"


def test_a_stop_in_the_prompt_stops_nothing(speaking: Server, token: str) -> None:
    answer = ask(speaking, token, "zza", temperature=0, stop="zza", echo=True)
    assert texts(answer) == ["zza" + greedy("a", 16)]


def test_tokens_are_counted(speaking: Server, token: str) -> None:
    before = [counted(speaking, kind) for kind in ("prompt", "generated")]
    ask(speaking, token, ["ab", "a"], n=2, max_tokens=7)
    streamed(ask(speaking, token, "a", max_tokens=3, stream=True))
    after = [counted(speaking, kind) for kind in ("prompt", "generated")]
    assert [b - a for a, b in zip(before, after, strict=True)] == [3 + 1, 2 * 2 * 7 + 3]


def test_the_served_model_is_listed(speaking: Server, token: str) -> None:
    connection = speaking.connect()
    status, found = call(connection, "GET", "/v1/models", token=token)
    assert (status, found["object"], len(found["data"])) == (200, "list", 1)
    card = found["data"][0]
    assert (card["id"], card["object"], card["owned_by"]) == (NAME, "model", "falaj")
    for path in (f"/v1/models/{NAME}", f"/v1/models/{NAME}/", f"/v1/models/{NAME}?a=b"):
        assert call(connection, "GET", path, token=token) == (200, card)


def test_a_certificate_is_as_good_as_a_token(speaking: Server) -> None:
    connection = speaking.connect("caller")
    body = {"model": NAME, "prompt": "a", "temperature": 0}
    assert texts(call(connection, "POST", COMPLETIONS, body=body)) == [greedy("a", 16)]
    stranger = speaking.connect("stranger")
    refused(call(stranger, "POST", COMPLETIONS, body=body), 403, "permission_error")


# -- streams -------------------------------------------------------------------------------


def test_a_stream_says_what_the_whole_answer_does(speaking: Server, token: str) -> None:
    asked: dict[str, Any] = {"n": 2, "seed": 3, "max_tokens": 25, "echo": True, "stop": "b."}
    whole = ask(speaking, token, ["a", "شكرا"], **asked)
    documents = streamed(ask(speaking, token, ["a", "شكرا"], stream=True, **asked))
    assert [joined(documents, index) for index in range(4)] == texts(whole)
    assert len({each["id"] for each in documents}) == 1
    assert all(each["object"] == "text_completion" for each in documents)
    assert not any("usage" in each for each in documents)
    ends = {
        choice["index"]: choice["finish_reason"]
        for each in documents for choice in each["choices"] if choice["finish_reason"]
    }  # fmt: skip
    assert ends == {
        each["index"]: each["finish_reason"] for each in whole[1]["choices"]
    }  # fmt: skip


def test_a_stream_ends_with_its_counts_where_they_are_asked_for(
    speaking: Server, token: str
) -> None:
    options = {"include_usage": True}
    answer = ask(speaking, token, "ab", max_tokens=3, stream=True, stream_options=options)
    *others, last = streamed(answer)
    assert last["choices"] == []
    assert last["usage"] == usage(2, 3)
    assert [each["usage"] for each in others] == [None] * 3


def test_a_stream_is_chunked_and_leaves_the_connection_open(speaking: Server, token: str) -> None:
    connection = Raw(speaking)
    connection.send(request(token, stream=True, max_tokens=4))
    found = read_until(connection, b"\r\n0\r\n\r\n")
    lines = found.partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 200 OK"
    assert b"Content-Type: text/event-stream" in lines
    assert b"Transfer-Encoding: chunked" in lines
    assert not [each for each in lines if each.startswith((b"Content-Length", b"Connection"))]
    connection.send(request(token, max_tokens=4))
    assert connection.answer()[0] == 200
    connection.close()


def test_http_1_0_has_no_streams(speaking: Server, token: str) -> None:
    for stream, status in ((True, 400), (False, 200)):
        connection = Raw(speaking)
        connection.send(request(token, stream=stream).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        answer = connection.answer()
        assert answer[0] == status
        if stream:
            assert json.loads(answer[2])["error"]["param"] == "stream"
        connection.close()


def test_one_piece_comes_before_the_next_is_there(site: Site, start: Start) -> None:
    """Each step of this model takes milliseconds, and a text of it seconds."""
    site.write(limits={"max_tokens": MOST})
    server = start(site).serving(publish(site, bigrams(table(), slow=400)))
    connection = Raw(server)
    connection.send(request(site.token(), stream=True, max_tokens=MOST))
    read_until(connection, b"data: ")
    assert counted(server, "generated") == 0  # what is under way isn't counted yet
    connection.close()
    # Nobody hears the rest: it isn't generated.
    wait_for(lambda: counted(server, "generated") > 0, "the text to be given up")
    assert counted(server, "generated") < MOST / 2
    assert server.stop() == 0


def test_who_hangs_up_before_the_answer_has_no_more_generated(site: Site, start: Start) -> None:
    site.write(limits={"max_tokens": MOST})
    server = start(site).serving(publish(site, bigrams(table(), slow=400)))
    connection = Raw(server)
    connection.send(request(site.token(), max_tokens=MOST))
    time.sleep(0.3)
    assert counted(server, "generated") == 0
    connection.close()
    wait_for(lambda: counted(server, "generated") > 0, "the text to be given up")
    assert counted(server, "generated") < MOST / 2
    wait_for(lambda: '"status":408' in logged(site), "the access line")
    assert f'"prompt_tokens":1,"generated_tokens":{counted(server, "generated"):.0f}' in logged(
        site
    )
    assert server.stop() == 0
    assert "Traceback" not in server.errors.read_text()


def stalled(server: Server, token: str) -> Raw:
    """A client that asks for a long stream and doesn't read it."""
    connection = Raw.__new__(Raw)
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.settimeout(20)
    plain.connect(("127.0.0.1", server.port))
    context = server.site.pki.client_context()
    connection.socket = context.wrap_socket(plain, server_hostname="localhost")
    connection.send(request(token, stream=True, max_tokens=MOST, n=8))
    return connection


def is_idle(server: Server) -> bool:
    """Whether the worker does nothing for a while."""
    (worker,) = map(psutil.Process, server.workers())
    before = sum(worker.cpu_times()[:2])
    time.sleep(0.5)
    return sum(worker.cpu_times()[:2]) - before < 0.05


def test_who_does_not_read_is_not_written_for(speaking: Server, token: str) -> None:
    before = counted(speaking, "generated")
    connection = stalled(speaking, token)
    connection.socket.recv(1)
    wait_for(lambda: is_idle(speaking), "nothing more to be generated", 20)
    # Neither whole nor given up, either of which would count; and others are answered.
    assert counted(speaking, "generated") == before
    assert texts(ask(speaking, token, temperature=0, max_tokens=5)) == [greedy("a", 5)]
    connection.close()
    wait_for(lambda: counted(speaking, "generated") - before > 100, "the text to be given up")
    assert counted(speaking, "generated") - before < MOST * 8


@pytest.mark.thorough
def test_who_does_not_read_for_long_is_left(speaking: Server, token: str) -> None:
    before = counted(speaking, "generated")
    connection = stalled(speaking, token)
    began = time.monotonic()
    wait_for(lambda: counted(speaking, "generated") > before, "the text to be given up")
    assert FLUSH_SECONDS <= time.monotonic() - began < FLUSH_SECONDS + 15
    assert counted(speaking, "generated") - before < MOST * 8
    connection.close()


def test_no_more_texts_than_there_is_room_for(speaking: Server, token: str) -> None:
    most = available() * TEXTS_PER_THREAD
    connections = [stalled(speaking, token) for _ in range(most)]
    try:
        for each in connections:
            each.socket.recv(1)  # it has its place
        connection = speaking.connect()
        body = json.dumps({"model": NAME, "prompt": "a"})
        connection.request(
            "POST", COMPLETIONS, body=body, headers={"Authorization": f"Bearer {token}"}
        )
        answer = connection.getresponse()
        error = refused((answer.status, json.loads(answer.read())), 503, "server_error")
        assert f"texts of {most} requests" in error["message"]
        assert answer.headers["Retry-After"] == "1"
        # Inferences aren't kept from their places.
        assert call(connection, "POST", INFER, token=token, body=tokens_of([[1]]))[0] == 200
    finally:
        for each in connections:
            each.close()
    wait_for(lambda: ask(speaking, token)[0] == 200, "a place to be free again")
    wait_for(lambda: is_idle(speaking), "all of them to be given up")


def test_inferences_and_texts_take_turns(site: Site, start: Start) -> None:
    server = start(site).serving(publish(site, bigrams(table(), slow=300)))
    token = site.token()
    with ThreadPoolExecutor(4) as pool:
        long = [
            pool.submit(ask, server, token, "a", temperature=0, max_tokens=100) for _ in range(3)
        ]
        connection, answered = server.connect(), 0
        while not all(each.done() for each in long):
            status, _ = call(connection, "POST", INFER, token=token, body=tokens_of([[2, 3]]))
            assert status == 200
            answered += 1
        assert answered > 10
        assert {texts(each.result())[0] for each in long} == {greedy("a", 100)}


def test_a_server_that_leaves_lets_texts_end_or_says_so(site: Site, start: Start) -> None:
    site.write(limits={"drain_seconds": 2, "max_tokens": MOST})
    server = start(site).serving(publish(site, bigrams(table(), slow=400)))
    short, long = Raw(server), Raw(server)
    short.send(request(site.token(), stream=True, max_tokens=60, temperature=0))
    long.send(request(site.token(), stream=True, max_tokens=MOST))
    begun = [read_until(each, b"data: ") for each in (short, long)]
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    ended = [first + read_until(each, b"\r\n0\r\n\r\n")
             for first, each in zip(begun, (short, long), strict=True)]  # fmt: skip
    stopping.join()
    assert b"data: [DONE]\n\n" in ended[0]
    assert b"[DONE]" not in ended[1]
    last = ended[1].rpartition(b"data: ")[2].partition(b"\n\n")[0]
    assert "the server ends before the text does" in orjson.loads(last)["error"]["message"]
    assert server.process.returncode == 0
    assert "Traceback" not in server.errors.read_text()


def test_a_text_ends_with_the_version_that_began_it(site: Site, start: Start) -> None:
    server = start(site).serving(publish(site, bigrams(table(), slow=400)))
    connection = Raw(server)
    connection.send(request(site.token(), stream=True, max_tokens=1_000, temperature=0))
    begun = read_until(connection, b"data: ")
    server.serving(publish(site, bigrams(table(1))))
    assert ask(server, site.token(), max_tokens=1)[1]["system_fingerprint"] == "version-2"
    content = begun + read_until(connection, b"\r\n0\r\n\r\n")
    pieces = [
        json.loads(line.removeprefix(b"data: ").strip())
        for line in content.split(b"\r\n") if line.startswith(b"data: {")
    ]  # fmt: skip
    assert joined(pieces) == greedy("a", 1_000)
    assert {each["system_fingerprint"] for each in pieces} == {"version-1"}
    connection.close()
    assert server.stop() == 0


def test_a_model_that_fails_in_a_stream_is_told(site: Site, start: Start) -> None:
    """After a "b" there are no probabilities: before anything is sent, and in the middle."""
    logits = table()
    logits[CHARACTERS.index("b")] = np.nan
    logits[CHARACTERS.index("a")] = -9
    logits[CHARACTERS.index("a"), CHARACTERS.index("b")] = 9
    server = start(site).serving(publish(site, bigrams(logits)))
    token = site.token()
    for prompt in ("b", "a"):
        refused(ask(server, token, prompt, temperature=0), 500, "server_error")
    refused(ask(server, token, "b", temperature=0, stream=True), 500, "server_error")
    status, content = ask(server, token, "a", temperature=0, stream=True)
    first, last = (json.loads(each) for each in events(content))
    assert (status, first["choices"][0]["text"]) == (200, "b")
    assert "aren't numbers" in last["error"]["message"]


# -- the protocol beside it ----------------------------------------------------------------


@pytest.mark.parametrize("rows", [[[1]], [[1, 2, 3], [4, 5, 6]], [[1] * 5_000], [[-5], [99]]])
def test_rows_of_any_length_are_inferred(
    speaking: Server, token: str, rows: list[list[int]]
) -> None:
    status, answer = call(speaking.connect(), "POST", INFER, token=token, body=tokens_of(rows))
    assert status == 200, answer
    probabilities, label = answer["outputs"]
    assert probabilities["shape"] == [len(rows), len(CHARACTERS)]
    found = np.array(probabilities["data"]).reshape(len(rows), -1)
    last = [row[-1] if 0 <= row[-1] < len(CHARACTERS) else 0 for row in rows]
    powers = np.exp(table()[last].astype(np.float64))
    assert found == pytest.approx(powers / powers.sum(axis=1, keepdims=True), abs=1e-5)
    assert label["data"] == [CHARACTERS[each] for each in found.argmax(axis=1)]


def test_rows_of_any_length_are_inferred_by_grpc(speaking: Server, token: str) -> None:
    with grpc_calls.Client(speaking, token=token) as client:
        message = CLASSES["ModelInferRequest"](model_name=NAME)
        tensor = message.inputs.add(name="tokens", datatype="INT64", shape=[2, 3])
        tensor.contents.int64_contents.extend([1, 2, 3, 4, 5, 6])
        answer = client.infer(message)
        assert [list(each.shape) for each in answer.outputs] == [[2, len(CHARACTERS)], [2]]
        message = CLASSES["ModelInferRequest"](model_name=NAME)
        message.inputs.add(name="tokens", datatype="INT64", shape=[1, 0])
        code, words = grpc_calls.refusal(client.infer, message)
        assert (code, "-1 is any size from 1" in words) == ("INVALID_ARGUMENT", True)


@pytest.mark.parametrize(
    ("shape", "data", "words"),
    [
        ([1, 0], [], "-1 is any size from 1"),
        ([0, 1], [], "-1 is any size from 1"),
        ([1], [1], "1 dimensions"),
        ([1, 2], [1], "1 elements in data"),
        ([1, 1_000_000], [1], "more elements than a body"),
        ([1, 1], ["a"], "whole numbers"),
        ([1, 1], [2**63], "out of the range"),
    ],
)
def test_other_rows_are_refused(
    speaking: Server, token: str, shape: list[int], data: list[Any], words: str
) -> None:
    tensor = {"name": "tokens", "datatype": "INT64", "shape": shape, "data": data}
    answer = call(speaking.connect(), "POST", INFER, token=token, body={"inputs": [tensor]})
    assert answer[0] == 400
    assert words in answer[1]["error"]


def test_jobs_drift_and_labels_know_such_a_model(speaking: Server) -> None:
    token = speaking.site.token("predict", "observe", "feedback")
    connection = speaking.connect()
    base = f"/v2/models/{NAME}"
    body = tokens_of([[1, 2]], id="first")
    _, job = call(connection, "POST", f"{base}/jobs", token=token, body=body)
    place = f"{base}/jobs/{job['id']}"
    wait_for(lambda: call(connection, "GET", place, token=token)[1]["state"] == "done", "the job")
    direct = call(connection, "POST", INFER, token=token, body=body)
    assert call(connection, "GET", f"{place}/result", token=token) == direct
    labels = {"labels": [{"id": "first", "label": "ش"}]}
    time.sleep(0.1)
    assert call(connection, "POST", f"{base}/feedback", token=token, body=labels)[0] == 200
    status, report = call(connection, "GET", f"{base}/drift", token=token)
    assert (status, report["features"]) == (200, [])
    assert "Traceback" not in speaking.errors.read_text()


def test_rows_of_one_length_run_together(site: Site, start: Start) -> None:
    site.write(batching=True, drift={"enabled": False})
    server = start(site).serving(publish(site, bigrams(table(), slow=500)))
    assert "batching is on" in server.errors.read_text()
    token, lengths = site.token(), [1, 1, 1, 5, 5, 5, 9, 9]

    def one(length: int) -> Any:
        connection = server.connect()
        body = tokens_of([[2 + length % 3] * length])
        return call(connection, "POST", INFER, token=token, body=body)

    with ThreadPoolExecutor(len(lengths)) as pool:
        answers = list(pool.map(one, lengths * 4))
    for length, (status, answer) in zip(lengths * 4, answers, strict=True):
        assert status == 200
        powers = np.exp(table()[2 + length % 3].astype(np.float64))
        assert answer["outputs"][0]["data"] == pytest.approx(powers / powers.sum(), abs=1e-5)


def test_its_openapi_document_is_what_it_answers(speaking: Server, token: str) -> None:
    connection = speaking.connect()
    _, document = call(connection, "GET", "/v2/openapi.json", token=token)
    judge(document).validate()
    body: Any = {"model": NAME, "prompt": ["a"], "stop": "b", "max_tokens": MOST, "n": None}
    asked = document["paths"][COMPLETIONS]["post"]
    schema = asked["requestBody"]["content"]["application/json"]["schema"]
    assert fits(document, schema, body)
    for wrong in ({"prompt": 1}, {"model": "x"}, {"n": 9}, {"max_tokens": MOST + 1}, {"x": 1},
                  {"stop": ""}, {"temperature": 3}):  # fmt: skip
        assert not fits(document, schema, body | wrong)
    for path, method, asks in (
        (COMPLETIONS, "post", {"model": NAME, "prompt": "a"}),
        ("/v1/models", "get", None), (f"/v1/models/{NAME}", "get", None),
    ):  # fmt: skip
        said = document["paths"][path.replace(NAME, "{id}")][method]
        status, headers, answer = sent(connection, method.upper(), path, token, asks)
        assert status == 200
        assert_headers(document, said, 200, headers)
        content = said["responses"]["200"]["content"]["application/json"]["schema"]
        assert fits(document, content, answer)
        status, headers, answer = sent(connection, "PUT", path, token)
        assert status == 405
        assert_headers(document, said, 405, headers)
        assert fits(document, {"$ref": "#/components/schemas/LanguageError"}, answer)
    assert tuple(schema["properties"]) == completions.FIELDS
