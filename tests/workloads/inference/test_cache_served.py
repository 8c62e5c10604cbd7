"""A running server that keeps keys and values of texts, in bounded memory that is given back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from falaj.workloads.inference.language.completions import MOST_TEXTS
from falaj.workloads.inference.language.generation import Sampling
from falaj.workloads.inference.process.worker import available
from falaj.workloads.inference.runs import TEXTS_PER_THREAD
from tests.waiting import wait_for
from tests.workloads.inference import decoders
from tests.workloads.inference.languages import COMPLETIONS, NAME, ask, joined, streamed, texts
from tests.workloads.inference.raw_http import Raw, head
from tests.workloads.inference.serving import Server, Site, call, started
from tests.workloads.inference.test_cache import GREEDY, LONG, without

CONTEXT = 32
MOST = 20_000


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    site = Site(tmp_path_factory.mktemp("keeping") / "site")
    site.write(limits={"max_tokens": MOST})
    graph, fields = decoders.published(CONTEXT)
    with started(site, site.publish(graph, fields=fields)) as server:
        yield server


@pytest.fixture
def token(keeping: Server) -> str:
    return keeping.site.token("predict")


def gauge(server: Server, name: str) -> float:
    connection = server.connect()
    _, text = call(connection, "GET", "/metrics", token=server.site.token("observe"))
    connection.close()
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.decode().splitlines()
        if line.startswith(f"falaj_inference_{name}{{")
    )


def kept_bytes(server: Server) -> float:
    return gauge(server, "cache_bytes")


def reading_nothing(server: Server, token: str, **more: Any) -> Raw:
    """Who has texts generated, and is heard of no more."""
    connection = Raw(server)
    body = json.dumps({"model": NAME, "stream": True, "max_tokens": MOST} | more).encode()
    connection.send(head(token, len(body), url=COMPLETIONS.encode()) + body)
    connection.socket.recv(1)
    return connection


def test_texts_are_those_of_whole_runs(keeping: Server, token: str) -> None:
    prompts = ["abc", "شكرا", LONG[:200]]
    asked: dict[str, Any] = {"temperature": 0, "max_tokens": 90}
    wanted = [without(CONTEXT, each, 90, GREEDY) for each in prompts]
    assert texts(ask(keeping, token, prompts, **asked)) == wanted
    documents = streamed(ask(keeping, token, prompts, stream=True, **asked))
    assert [joined(documents, index) for index in range(3)] == wanted
    drawn = Sampling(temperature=0.9, top_p=1, seed=5)
    answer = ask(keeping, token, "ab", temperature=0.9, seed=5, n=2, max_tokens=90)
    assert texts(answer) == [without(CONTEXT, "ab", 90, drawn, choice) for choice in range(2)]


def test_memory_is_bounded_and_given_back(keeping: Server, token: str) -> None:
    form = decoders.served(CONTEXT)[0].cache
    assert form is not None
    whole = form.bytes_of(CONTEXT)
    room = max(MOST_TEXTS, available() * TEXTS_PER_THREAD)
    assert kept_bytes(keeping) == 0
    many = reading_nothing(keeping, token, prompt=["a", "b"], n=8)
    assert kept_bytes(keeping) == MOST_TEXTS * whole
    others = [
        reading_nothing(keeping, token, prompt="a", n=8)
        for _ in range((room - MOST_TEXTS) // 8)
    ]  # fmt: skip
    connection = keeping.connect()
    body = {"model": NAME, "prompt": "a", "n": 8, "max_tokens": 100}
    status, answer = call(connection, "POST", COMPLETIONS, token=token, body=body)
    assert (status, answer["error"]["type"]) == (503, "server_error")
    assert "and these texts to" in answer["error"]["message"]
    for each in (many, *others):
        each.close()
    wait_for(lambda: kept_bytes(keeping) == 0, "memory to be given back")
    assert ask(keeping, token, ["a", "b"], n=8, max_tokens=100)[0] == 200
    assert kept_bytes(keeping) == 0


def test_a_next_turn_runs_what_is_new_and_tells_nobody_else(keeping: Server, token: str) -> None:
    mine: dict[str, Any] = {"token": token, "user": "one"}

    def reused(prompt: str, *, token: str, stream: bool = False, **more: Any) -> tuple[str, int]:
        asked = {"temperature": 0, "max_tokens": 4, "stream": stream, **more}
        if stream:
            asked["stream_options"] = {"include_usage": True}
        answer = ask(keeping, token, prompt, **asked)
        found = streamed(answer) if stream else [answer[1]]
        text = joined(found[:-1]) if stream else texts(answer)[0]
        assert text == without(CONTEXT, prompt, 4, GREEDY)
        return text, found[-1]["usage"]["prompt_tokens_details"]["cached_tokens"]

    first = LONG[:18]
    before = gauge(keeping, "reused_tokens_total")
    text, count = reused(first, **mine)
    assert count == 0
    assert gauge(keeping, "prefix_bytes") > 0
    # Another caller, another one's caller, and other rights.
    site = keeping.site
    others: list[dict[str, Any]] = [
        {"token": site.token("predict", subject="somebody")}, {"token": token, "user": "two"},
        {"token": token}, {"token": site.token("predict", "observe"), "user": "one"},
    ]  # fmt: skip
    for other in others:
        assert reused(first, **other)[1] == 0
    # The last token's is never there: it was generated, and nothing was run after it.
    text, count = reused(first + text + "ab", stream=True, **mine)
    assert count == len(first) + 3
    # Of what is judged all is run; and of what isn't looked back on from its beginning.
    answer = ask(keeping, token, first, user="one", echo=True, logprobs=0, max_tokens=1)
    assert answer[1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert reused(LONG[:50], **mine)[1] == 0
    assert gauge(keeping, "reused_tokens_total") == before + count


def test_nothing_is_kept_of_texts_that_ended_where_settings_say_so(site: Site) -> None:
    site.write(limits={"keep_seconds": 0})
    graph, fields = decoders.published(CONTEXT)
    with started(site, site.publish(graph, fields=fields)) as server:
        for _ in range(2):
            answer = ask(server, site.token("predict"), LONG[:20], temperature=0, max_tokens=3)
            assert answer[1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
        assert gauge(server, "prefix_bytes") == 0


def test_what_is_refused_keeps_nothing(keeping: Server, token: str) -> None:
    assert ask(keeping, token, "a", stop=["x"] * 5)[0] == 400
    assert kept_bytes(keeping) == 0
