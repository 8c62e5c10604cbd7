"""What is told of tokens: `logprobs` of texts, of prompts, and in streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.completion_choice import Logprobs

from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.language.cache import since
from falaj.workloads.inference.language.generation import Generation, Sampling, Text
from falaj.workloads.inference.language.likelihoods import (
    Judged,
    Shown,
    Told,
    judge,
    of_logits,
    of_probabilities,
)
from tests.workloads.inference import decoders, languages
from tests.workloads.inference.decoders import CHARACTERS
from tests.workloads.inference.languages import NAME, ask, bigrams, publish, streamed, table
from tests.workloads.inference.serving import Server, Site, call, started
from tests.workloads.inference.test_cache import LONG, places_of
from tests.workloads.inference.test_openai_client import opened
from tests.workloads.inference.test_openapi import fits

CONTEXT = 32
LOGITS = st.lists(st.floats(-300, 300, width=32), min_size=2, max_size=20)


# -- numbers -------------------------------------------------------------------------------


@given(LOGITS)
def test_probabilities_of_logits_are_a_whole(numbers: list[float]) -> None:
    found = of_logits(np.array([numbers], dtype=np.float32))
    assert np.exp(found).sum() == pytest.approx(1)
    assert (found <= 0).all()
    assert (np.diff(found[0][np.argsort(numbers)]) >= 0).all()


def test_what_is_impossible_has_a_number_all_the_same() -> None:
    found = of_probabilities(np.array([[0, 1]], dtype=np.float32))
    assert found[0, 1] == 0
    assert -200 < found[0, 0] < -100


def test_numbers_that_are_none_are_the_models_fault() -> None:
    with pytest.raises(RequestError) as caught:
        judge(np.array([np.nan, 0]), 1, Shown("a", 1), "?a", first=1, most=1)
    assert caught.value.status == 500


@pytest.mark.parametrize(
    ("most", "place", "wanted"), [(0, 2, "b"), (1, 2, "cb"), (2, 3, "cb"), (5, 1, "cba")]
)
def test_the_likeliest_are_told_and_the_token_itself(most: int, place: int, wanted: str) -> None:
    """The first, which stands for what isn't known, is never among the likeliest."""
    logprobs = np.log([0.4, 0.1, 0.2, 0.3])
    found = judge(logprobs, place, Shown("?abc"[place], 1), "?abc", first=1, most=most)
    assert list(found.likeliest or ()) == list(wanted)
    assert found.logprob == pytest.approx(logprobs[place])


def test_where_all_tokens_may_follow_the_first_is_told_as_well() -> None:
    logprobs = np.log([0.4, 0.1, 0.5])
    found = judge(logprobs, 1, Shown("b", 1), "abc", first=0, most=2)
    assert list(found.likeliest or ()) == ["c", "a", "b"]


@given(st.lists(st.text(min_size=1, max_size=3), max_size=10), st.data())
def test_tokens_are_told_with_the_text_they_begin_in(
    tokens: list[str], data: st.DataObject
) -> None:
    told, text, found = Told(), "".join(tokens), list[str]()
    for each in tokens:
        told.add(Judged(Shown(each, len(each))))
    offsets, shown = list[int](), 0
    while shown < len(text):
        size = data.draw(st.integers(0, len(text) - shown))
        part = told.take(text[shown : shown + size])
        assert all(shown <= each < shown + size for each in part["text_offset"])
        shown += size
        found += part["tokens"]
        offsets += part["text_offset"]
    assert found == tokens
    assert offsets == [len("".join(tokens[:place])) for place in range(len(tokens))]


# -- texts ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    site = Site(tmp_path_factory.mktemp("telling") / "site")
    graph, fields = decoders.published(CONTEXT)
    with started(site, site.publish(graph, fields=fields)) as server:
        yield server


@pytest.fixture
def token(telling: Server) -> str:
    return telling.site.token("predict")


def by_whole_runs(text: str, most: int) -> dict[str, list[Any]]:
    """What has to be told of a text and its prompt: each token by a run over its window."""
    places = places_of(CONTEXT, text)
    logprobs: list[float | None] = [None]
    likeliest: list[dict[str, float] | None] = [None]
    for length in range(1, len(places)):
        window = places[since(length, CONTEXT) : length]
        row = np.log(decoders.probabilities(CONTEXT, window).astype(np.float64))
        best: list[int] = (1 + np.argsort(-row[1:], kind="stable")[:most]).tolist()
        told = {CHARACTERS[each]: row[each] for each in best}
        told.setdefault(text[length], row[places[length]])
        logprobs.append(row[places[length]])
        likeliest.append(told)
    return {"token_logprobs": logprobs, "top_logprobs": likeliest}


def assert_told(found: Any, text: str, start: int, most: int) -> None:
    """That all of a text is told of, from the character ``start`` of it on."""
    assert found["tokens"] == list(text[start:])
    assert found["text_offset"] == list(range(len(text) - start))
    wanted = by_whole_runs(text, most)
    for told, number in zip(
        found["token_logprobs"], wanted["token_logprobs"][start:], strict=True
    ):
        assert told == (None if number is None else pytest.approx(number, abs=1e-3))
    for told, numbers in zip(found["top_logprobs"], wanted["top_logprobs"][start:], strict=True):
        assert told == (None if numbers is None else pytest.approx(numbers, abs=1e-3))


def whole(server: Server, token: str, prompt: Any, **more: Any) -> list[Any]:
    status, answer = ask(server, token, prompt, **more)
    assert status == 200, answer
    return answer["choices"]


@pytest.mark.parametrize("most", [0, 1, 5])
@pytest.mark.parametrize("prompt", ["abc", "zé", LONG[:20]])
def test_generated_tokens_are_told(telling: Server, token: str, prompt: str, most: int) -> None:
    asked = {"temperature": 0, "max_tokens": 40}
    (choice,) = whole(telling, token, prompt, logprobs=most, **asked)
    assert_told(choice["logprobs"], prompt + choice["text"], len(prompt), most)
    assert whole(telling, token, prompt, **asked)[0]["text"] == choice["text"]


@pytest.mark.parametrize("prompt", ["a", "zé", LONG[:33], LONG[:150]])
def test_tokens_of_the_prompt_are_told_with_it(telling: Server, token: str, prompt: str) -> None:
    (choice,) = whole(telling, token, prompt, logprobs=2, echo=True, temperature=0, max_tokens=10)
    assert choice["text"].startswith(prompt)
    assert_told(choice["logprobs"], choice["text"], 0, 2)
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert choice["logprobs"]["top_logprobs"][0] is None


def test_of_an_empty_prompt_nothing_is_told(telling: Server, token: str) -> None:
    (choice,) = whole(telling, token, "", logprobs=1, echo=True, temperature=0, max_tokens=3)
    assert choice["logprobs"]["tokens"] == list(choice["text"])
    assert None not in choice["logprobs"]["token_logprobs"]


def test_long_prompts_are_judged_part_by_part(
    telling: Server, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In runs of three tokens as in one."""
    model, known = decoders.served(CONTEXT)
    prompt = LONG[:100]

    def told() -> Any:
        begun = known.prompt(prompt, is_judged=True)
        text = Text(
            0, begun.places, echoed=begun.echoed, most=5, stops=(),
            random=np.random.default_rng(0),
        )  # fmt: skip
        generation = Generation(known, [text], Sampling(0, 1, None), 1)
        shown, steps = prompt, 0
        while generation.unfinished:
            shown += "".join(more for _, more in generation.step(model.run))
            steps += 1
        return text.told.take(shown), shown, steps

    found, shown, steps = told()
    assert_told(found, shown, 0, 1)
    monkeypatch.setattr(
        "falaj.workloads.inference.language.generation._JUDGED_NUMBERS", 3 * len(CHARACTERS)
    )
    again, same, more = told()
    assert (same, again["tokens"]) == (shown, found["tokens"])
    assert more > steps
    assert again["token_logprobs"][1:] == pytest.approx(found["token_logprobs"][1:], abs=1e-4)


@pytest.mark.parametrize("echo", [False, True])
def test_a_stream_tells_the_same(telling: Server, token: str, echo: bool) -> None:
    asked: dict[str, Any] = {
        "logprobs": 2, "echo": echo, "n": 2, "seed": 3, "max_tokens": 30, "stop": ["a", "شكر"],
    }  # fmt: skip
    prompts = ["bcd", LONG[:50]]
    documents = streamed(ask(telling, token, prompts, stream=True, **asked))
    for index, choice in enumerate(whole(telling, token, prompts, **asked)):
        parts = [
            each["logprobs"]
            for document in documents
            for each in document["choices"]
            if each["index"] == index
        ]
        joined = {key: [one for part in parts for one in part[key]] for key in parts[0]}
        assert joined == choice["logprobs"]
        assert "".join(joined["tokens"]) == choice["text"]
        assert [choice["text"][at] for at in joined["text_offset"]] == joined["tokens"]


def test_a_package_that_keeps_nothing_tells_as_well(
    site: Site, start: Callable[..., Server]
) -> None:
    logits = table()
    server = start(site).serving(publish(site, bigrams(logits)))
    token = site.token()
    (choice,) = whole(server, token, "ab", logprobs=2, echo=True, temperature=0, max_tokens=12)
    text = choice["text"]
    places = [languages.CHARACTERS.index(each) for each in text]
    rows = of_logits(logits)
    wanted = [rows[before, now] for before, now in pairwise(places)]
    assert choice["logprobs"]["tokens"] == list(text)
    assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(wanted, abs=1e-4)
    assert choice["logprobs"]["token_logprobs"][0] is None


def test_openais_client_has_them_in_its_own_types(telling: Server) -> None:
    with opened(telling) as client:
        found = client.completions.create(
            model=NAME, prompt="abc", logprobs=3, echo=True, max_tokens=4, temperature=0
        )
        (choice,) = found.choices
        assert isinstance(choice.logprobs, Logprobs)
        told = choice.logprobs.model_dump()
        assert "".join(told["tokens"]) == choice.text
        assert_told(told, choice.text, 0, 3)
        pieces = client.completions.create(
            model=NAME, prompt="abc", logprobs=0, max_tokens=4, temperature=0, stream=True
        )
        offsets: list[int] = []
        for piece in pieces:
            logprobs = piece.choices[0].logprobs
            assert isinstance(logprobs, Logprobs)
            offsets += logprobs.text_offset or []
        assert offsets == [0, 1, 2, 3]
        with pytest.raises(openai.BadRequestError, match="from 0 to 5"):
            client.completions.create(model=NAME, prompt="a", logprobs=6)


def test_they_are_as_openapi_says(telling: Server, token: str) -> None:
    connection = telling.connect()
    _, document = call(connection, "GET", "/v2/openapi.json", token=token)
    said = document["paths"]["/v1/completions"]["post"]
    asked = said["requestBody"]["content"]["application/json"]["schema"]
    body = {"model": NAME, "prompt": "ab", "logprobs": 2, "echo": True}
    assert fits(document, asked, body)
    assert not fits(document, asked, body | {"logprobs": 6})
    answered = said["responses"]["200"]["content"]["application/json"]["schema"]
    _, answer = call(connection, "POST", "/v1/completions", token=token, body=body)
    assert fits(document, answered, answer)
    answer["choices"][0]["logprobs"]["text_offset"] = None
    assert not fits(document, answered, answer)
