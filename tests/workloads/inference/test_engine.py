"""An engine of texts beside the server: what is asked, and what of its answers is believed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.workloads.inference import settings as service_settings
from falaj.workloads.inference.errors import InferenceError, RequestError
from falaj.workloads.inference.language import engine
from falaj.workloads.inference.language import generation as language
from falaj.workloads.inference.language.engine import Chosen, Engine, EngineError, Events, Going
from falaj.workloads.inference.language.generation import Generation, Sampling, Text
from falaj.workloads.inference.language.relayed import Relayed
from tests.workloads.inference import decoders, languages
from tests.workloads.inference.engine_process import HOSTILE, choice
from tests.workloads.inference.serving import Server, Site

CONTEXT = 16
SIZE = len(decoders.CHARACTERS)
GREEDY = Sampling(0, 1, None)
PATIENCE = 120.0


class Beside:
    """The stand-in's process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "graph").write_bytes(decoders.published(CONTEXT)[0])
        self.behave("well")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.workloads.inference.engine_process",
             str(folder / "graph"), str(folder)],
        )  # fmt: skip
        wait((folder / "port").exists)
        self.url = f"http://127.0.0.1:{(folder / 'port').read_text()}"

    def behave(self, mode: str) -> None:
        (self.folder / "mode.new").write_text(mode)
        (self.folder / "mode.new").rename(self.folder / "mode")

    def asked(self) -> list[Any]:
        path = self.folder / "asked"
        return (
            [json.loads(each) for each in path.read_text().splitlines()] if path.exists() else []
        )

    def client(self, seconds: float = PATIENCE) -> Engine:
        return Engine(self.url, "text", SIZE, timeout_seconds=seconds, connections=8)


def wait(done: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    found = Beside(tmp_path_factory.mktemp("engine"))
    yield found
    found.process.kill()
    found.process.wait()


def going(tokens: Sequence[int] = (2, 3), most: int = 5, **more: Any) -> Going:
    given: dict[str, Any] = {
        "sampling": GREEDY, "seed": None, "end": None, "never": (0,), "logprobs": None, "salt": "s"
    }  # fmt: skip
    return Going(tokens=tokens, most=most, **(given | more))


def gone_on(client: Engine, what: Going) -> list[Chosen]:
    async def run() -> list[Chosen]:
        try:
            async with contextlib.aclosing(client.go_on(what)) as answered:
                return [each async for chosen in answered for each in chosen]
        finally:
            await client.close()

    return asyncio.run(run())


# -- hostile answers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("half", "broke off within an event"), ("no json", "isn't JSON"),
        ("a list", "isn't an object"), ("no tokens", r"vLLM 0\.10\.2 or a later one"),
        ("another", "of another text"), ("aborted", "a reason that isn't known"),
        ("unknown", "may be generated"), ("negative", "may be generated"),
        ("a number", "may be generated"), ("never", "may be generated"),
        ("too many", "more tokens than were asked for"), ("early", "ended a text early"),
        ("ended", "ended a text that nothing ends"), ("done", "ended a text early"),
        ("error", "tells of an error"), ("empty", "or none at all"), ("two", "or several"),
        ("endless line", "more than 1048576 bytes"), ("hung up", "can't be reached"),
        ("500", "answered 500"), ("400", "answered 400"), ("302", "answered 302"),
    ],
)  # fmt: skip
def test_answers_that_are_none_are_refused(beside: Beside, mode: str, words: str) -> None:
    beside.behave(mode)
    with pytest.raises(EngineError, match=words) as caught:
        gone_on(beside.client(), going())
    assert "words" not in str(caught.value)
    assert caught.value.refused == (mode == "400")


def test_every_hostile_answer_is_tried() -> None:
    marks = test_answers_that_are_none_are_refused.pytestmark  # type: ignore[attr-defined]
    assert set(HOSTILE) <= {mode for mode, _ in marks[0].args[1]}


def test_who_says_nothing_is_not_waited_for(beside: Beside) -> None:
    beside.behave("silent")
    with pytest.raises(EngineError, match="no token within 1 seconds") as caught:
        gone_on(beside.client(seconds=1), going())
    assert caught.value.slow


def test_who_is_not_there_is_told_of() -> None:
    client = Engine("http://127.0.0.1:9", "text", SIZE, timeout_seconds=60, connections=1)
    with pytest.raises(EngineError, match="can't be reached"):
        gone_on(client, going())


@given(st.binary(max_size=200) | st.just(choice([2])).map(lambda each: each[6:-2]))
def test_any_event_is_read_or_refused(data: bytes) -> None:
    try:
        found, finish = engine.read_event(data, going(), SIZE)
    except EngineError:
        return
    assert all(0 < each.place < SIZE for each in found)
    assert finish in (None, "stop", "length")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 40) | st.floats() | st.just("token_id:2"),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["token_id:2", "token_id:99", "x"]), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(["index", "finish_reason", "token_ids", "logprobs"]), JSON),
       st.fixed_dictionaries({"token_logprobs": JSON, "top_logprobs": JSON}))  # fmt: skip
def test_any_choice_is_read_or_refused(given: dict[str, Any], told: dict[str, Any]) -> None:
    for one in ({**given}, {**given, "index": 0, "token_ids": [2], "logprobs": told}):
        with contextlib.suppress(EngineError):
            engine.read_event(orjson.dumps({"choices": [one]}), going(logprobs=2), SIZE)


@given(st.lists(st.integers(1, 40), max_size=20))
def test_events_are_the_same_however_they_are_cut(cuts: list[int]) -> None:
    data = (
        b": a comment\n\n" + choice([2]) + choice([3]).replace(b"\n", b"\r\n") + b"data:[DONE]\n\n"
    )
    whole = Events().add(data)
    events, found = Events(), list[bytes]()
    for size in cuts:
        found += events.add(data[:size])
        data = data[size:]
    assert found + events.add(data) == whole
    assert len(whole) == 3
    assert events.is_empty


# -- what is asked -------------------------------------------------------------------------


def test_a_request_has_numbers_alone() -> None:
    body = orjson.loads(
        engine.body_of(
            going(never=(0, 9), end=7, seed=4, sampling=Sampling(0.5, 0, 3), logprobs=2), "text"
        )
    )
    assert body == {
        "model": "text", "prompt": [2, 3], "max_tokens": 5, "n": 1, "stream": True,
        "return_token_ids": True, "cache_salt": "s", "ignore_eos": True, "stop_token_ids": [7],
        # Of top_p 0, which vLLM doesn't take, the likeliest is left.
        "temperature": 0.0, "top_p": 1.0, "seed": 4, "logit_bias": {"0": -100, "9": -100},
        "logprobs": 4, "return_tokens_as_token_ids": True,
    }  # fmt: skip


# -- texts ---------------------------------------------------------------------------------


def texts(
    prompt: str, most: int, count: int = 1, stops: Sequence[str] = (), context: int = CONTEXT
) -> list[Text]:
    _, known = decoders.served(context)
    begun = known.prompt(prompt)
    rng = np.random.default_rng
    return [
        Text(each, begun.places, skipped=begun.skipped, most=most, stops=stops, random=rng(each))
        for each in range(count)
    ]


def said(found: list[Text], parts: list[tuple[Text, str]]) -> list[tuple[str, str | None, Any]]:
    return [
        (
            text := "".join(more for of, more in parts if of is each),
            each.finish,
            each.told.take(text),
        )
        for each in found
    ]


def here(found: list[Text], logprobs: int | None = None, context: int = CONTEXT) -> Any:
    model, known = decoders.served(context)
    generation = Generation(known, found, GREEDY, logprobs)
    parts: list[tuple[Text, str]] = []
    while generation.unfinished:
        parts += generation.step(model.run)
    return said(found, parts)


def there(beside: Beside, found: list[Text], logprobs: int | None = None, **how: Any) -> Any:
    _, known = decoders.served(how.get("context", CONTEXT))
    known = language.Language(known.vocabulary, known.context, has_engine=True)

    async def run() -> Any:
        client, failed = beside.client(), list[str]()
        relayed = Relayed(
            client, known, found, how.get("sampling", GREEDY), logprobs, salt=b"who",
            failed=failed.append,
        )  # fmt: skip
        parts: list[tuple[Text, str]] = []
        try:
            while relayed.unfinished:
                parts += await relayed.step(how.get("hung_up", bool))
                # Meanwhile more comes, to the end.
                await asyncio.sleep(how.get("pause", 0))
        finally:
            relayed.drop()
            await client.close()
        return said(found, parts)

    return asyncio.run(run())


@pytest.mark.parametrize(("mode", "pause"), [("well", 0.0), ("cut", 0.3)])
def test_texts_are_those_that_are_generated_here_window_by_window(
    beside: Beside, mode: str, pause: float
) -> None:
    beside.behave(mode)
    for prompt, most, stops in (("ab", 40, ()), ("abcdefgh" * 3, 12, ()), ("", 9, ("c", "شك"))):
        before = len(beside.asked())
        found = there(beside, texts(prompt, most, stops=stops), pause=pause)
        assert found == here(texts(prompt, most, stops=stops))
    assert len(beside.asked()) > before
    longest = max(len(each["prompt"]) + each["max_tokens"] for each in beside.asked())
    assert longest <= CONTEXT + 1


def test_likelihoods_are_those_that_are_told_here(beside: Beside) -> None:
    beside.behave("well")
    (own,), (other,) = here(texts("ab", 6), 2), there(beside, texts("ab", 6), 2)
    assert own[:2] == other[:2]
    assert own[2]["tokens"] == other[2]["tokens"]
    assert own[2]["token_logprobs"] == pytest.approx(other[2]["token_logprobs"], abs=1e-4)
    for one, two in zip(own[2]["top_logprobs"], other[2]["top_logprobs"], strict=True):
        assert one == pytest.approx(two, abs=1e-4)


def test_seeds_are_of_a_text_and_of_a_window(beside: Beside) -> None:
    beside.behave("well")
    before = len(beside.asked())
    drawn = [there(beside, texts("ab", 20, 2), sampling=Sampling(1, 1, 5)) for _ in range(2)]
    assert drawn[0] == drawn[1]
    seeds = [each["seed"] for each in beside.asked()[before:]]
    assert len(set(seeds)) == len(seeds) / 2 == 4


def test_a_failure_has_a_status_and_names_no_text(beside: Beside) -> None:
    for mode, status in (("500", 503), ("half", 503), ("400", 500)):
        beside.behave(mode)
        with pytest.raises(RequestError) as caught:
            there(beside, texts("secret", 5))
        assert caught.value.status == status
        assert "engine" in caught.value.message


def test_who_hangs_up_ends_the_engine_s_work(beside: Beside) -> None:
    beside.behave("slow")
    before = len(beside.asked())
    with pytest.raises(RequestError, match="hung up") as caught:
        there(beside, texts("ab", 400), hung_up=lambda: len(beside.asked()) > before)
    assert caught.value.status == 408
    wait(lambda: beside.asked()[-1] == "the client hung up")


# -- served --------------------------------------------------------------------------------


def test_a_server_goes_on_with_texts_by_its_engine(beside: Beside, tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    graph, fields = decoders.published(CONTEXT)
    site.publish(graph, fields=fields)
    site.write(upstream={"url": beside.url, "protocol": "completions"}, grpc=False)
    token = site.token("predict", "observe")
    beside.behave("well")
    prompt = "abcdefgh"
    server = Server(site)
    with contextlib.ExitStack() as ending:
        ending.callback(server.stop)
        server.serving(1)
        asked = {"prompt": prompt, "max_tokens": 20, "temperature": 0}
        ((whole, finish, _),) = here(texts(prompt, 20))
        status, document = languages.ask(server, token, **asked)
        assert status == 200, server.errors.read_text()
        assert document["choices"][0]["text"] == whole
        assert document["choices"][0]["finish_reason"] == finish
        assert document["usage"] == languages.usage(8, 20)
        streamed = languages.streamed(languages.ask(server, token, **asked, stream=True))
        assert languages.joined(streamed) == whole
        status, document = languages.ask(server, token, **asked, echo=True, logprobs=1)
        assert status == 400
        assert "tells none of prompts" in document["error"]["message"]
        beside.behave("slow")
        status, document = languages.ask(server, token, **(asked | {"max_tokens": 2}))
        assert (status, document.get("choices", [{}])[0].get("text")) == (200, whole[:2])
        for mode, wanted in (("half", 503), ("hung up", 503), ("400", 500)):
            beside.behave(mode)
            status, document = languages.ask(server, token, **asked)
            assert status == wanted
            assert "engine" in document["error"]["message"]
        beside.behave("half")
        *_, last = languages.events(languages.ask(server, token, **asked, stream=True)[1])
        assert json.loads(last)["error"]["type"] == "server_error"
    audit = (site.logs / "audit.jsonl").read_text()
    kept = audit + (site.logs / "access.jsonl").read_text() + server.errors.read_text()
    assert "its answer broke off within an event" in audit
    assert prompt not in kept
    assert "Traceback" not in kept


def test_what_does_not_go_with_an_engine_is_refused(tmp_path: Path) -> None:

    site = Site(tmp_path / "site")
    for changes, words in (
        ({"protocol": "grpc"}, r"upstream\.protocol.*inference, completions"),
        ({"protocol": "inference", "context": 16}, r"upstream\.context.*unless protocol"),
        ({"protocol": "completions", "context": 4}, r"upstream\.context: got 4"),
        ({"protocol": "completions", "url": "http://10.0.0.1:80"}, r"upstream\.url"),
    ):
        site.write(upstream={"url": "http://127.0.0.1:8000"} | changes)
        with pytest.raises(InferenceError, match=words):
            service_settings.read(site.config)
    site.write(upstream={"url": "http://127.0.0.1:8000", "protocol": "completions"}, jobs={})
    with pytest.raises(InferenceError, match="jobs are of tensors"):
        service_settings.read(site.config)
