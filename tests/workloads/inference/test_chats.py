"""`/v1/chat/completions`: what is asked and refused, and a running server as `openai` sees it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import onnx
import openai
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from openai.types.chat import ChatCompletion

from falaj.workloads.chat import ASSISTANT, CHATML, MARKS, USER, Message
from falaj.workloads.inference.errors import InferenceError, RequestError
from falaj.workloads.inference.language import chats, completions
from falaj.workloads.inference.language import generation as language
from falaj.workloads.inference.language.completions import Asked
from falaj.workloads.inference.language.generation import Language
from falaj.workloads.inference.models.model import load
from falaj.workloads.vocabulary import METADATA, BytePairs, content_of
from tests.examples import examples
from tests.workloads.inference.languages import NAME, bigrams, fields, streamed
from tests.workloads.inference.oip import LIMITS
from tests.workloads.inference.serving import Server, Site, call, started
from tests.workloads.inference.test_generation import VALUES, bodies
from tests.workloads.inference.test_openapi import fits, judge

CHATS = "/v1/chat/completions"
PAIRS = BytePairs(((ord("n"), ord("s")), (0xD9, 0x85)))
CONTEXT = 120
ANSWER = "نعم. Yes"
SAID = PAIRS.encode(ANSWER)
HELLO = [{"role": "user", "content": "Hello"}]
SECRET = "the user's own words"


def model() -> bytes:
    """After the line's end of `assistant` it says `ANSWER`, and ends; other text goes on for ever.

    Marks that an answer mustn't have are likeliest of all, so that they would show.
    """
    logits = np.zeros((PAIRS.size, PAIRS.size), np.float32)
    logits[:, ord("~")] = 5
    path = [ord("\n"), *SAID, CHATML.end]
    for token, after in itertools.pairwise(path):
        logits[token, after] = 20
    logits[:, [each for each in MARKS if each != CHATML.end]] = 30
    made = onnx.ModelProto.FromString(bigrams(logits, PAIRS.names))
    helper.set_model_props(made, {METADATA: PAIRS.to_bytes().decode()})
    return made.SerializeToString()


def manifest(**feature: Any) -> dict[str, Any]:
    said = {
        "name": "tokens", "kind": "tokens", "shape": [CONTEXT], "vocabulary": PAIRS.described,
        "chat": CHATML.to_json(), **feature,
    }  # fmt: skip
    dataset = {"digest": "0" * 64, "features": [said]}
    return fields(PAIRS.names, CONTEXT) | {"classes": None, "dataset": dataset}


LOADED = load(model(), name=NAME, version="1", manifest=manifest(), threads=1, limits=LIMITS)


def known(**feature: Any) -> Language:
    found = language.read(manifest(**feature), LOADED.schema, model())
    assert found is not None
    return found


LANGUAGE = known()


def read(**more: Any) -> Asked:
    document = {"model": NAME, "messages": HELLO} | more
    return chats.read(orjson.dumps(document), NAME, LANGUAGE, 1_000)


# -- packages ------------------------------------------------------------------------------


def test_a_template_that_is_damaged_isnt_served() -> None:
    with pytest.raises(InferenceError, match="the chat template can't be used: its end is no"):
        known(chat={**CHATML.to_json(), "end": 0})


def test_a_model_without_one_is_none_of_chats() -> None:
    bare = known(chat=None)
    assert (bare.template, bare.end, bare.never) == (None, None, [])
    with pytest.raises(RequestError, match="isn't a chat model") as caught:
        chats.read(b"{}", NAME, bare, 10)
    assert (caught.value.status, caught.value.field) == (404, "model")


# -- what is asked -------------------------------------------------------------------------


def test_a_request_has_usual_values() -> None:
    asked = read()
    (begun,) = asked.begun
    assert begun.places == CHATML.render([Message(USER, "Hello")], PAIRS, is_asked=True)
    assert (asked.choices, asked.stream, asked.logprobs) == (1, False, None)
    assert asked.most == CONTEXT - begun.count
    assert asked.most_tokens == CONTEXT


def test_messages_may_come_in_parts_and_with_openais_other_name() -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    (begun,) = read(messages=[
        {"role": "developer", "content": "Be kind"}, {"role": "user", "content": parts},
        {"role": "assistant", "content": "Yes", "refusal": None, "tool_calls": [], "audio": None},
        {"role": "user", "content": "", "name": None},
    ]).begun  # fmt: skip
    assert CHATML.read(begun.places, PAIRS) == [
        Message("system", "Be kind"), Message(USER, "Hello"), Message(ASSISTANT, "Yes"),
        Message(USER, ""),
    ]  # fmt: skip


def test_the_newer_and_the_older_name_of_the_most_tokens_are_one() -> None:
    for more in ({"max_tokens": 7}, {"max_completion_tokens": 7},
                 {"max_tokens": 7, "max_completion_tokens": 7}):  # fmt: skip
        assert read(**more).most == 7


NOTHING_CHANGES: dict[str, Any] = {
    "frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "tools": [],
    "tool_choice": "none", "response_format": {"type": "text"}, "modalities": ["text"],
    "store": False, "user": "me", "n": 1, "parallel_tool_calls": True, "metadata": {},
    "service_tier": "auto", "audio": None, "stop": None, "seed": None, "top_logprobs": None,
    "safety_identifier": "caller 4", "prompt_cache_key": "x",
}  # fmt: skip


def test_what_changes_nothing_is_taken() -> None:
    assert read(**NOTHING_CHANGES) == replace(read(), callers=["me", "caller 4", "x"])


def test_options_of_a_stream_that_say_nothing_are_taken() -> None:
    said = [({}, False), ({"include_usage": None}, False), ({"include_usage": False}, False),
            ({"include_usage": True, "include_obfuscation": False}, True),
            ({"include_usage": True, "include_obfuscation": None}, True)]  # fmt: skip
    for options, is_counted in said:
        assert read(stream=True, stream_options=options).usage is is_counted


IMAGE = [{"type": "image_url", "image_url": {"url": "https://example.ae/a.png"}}]
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"messages": None}, "messages", "a list of 1 to 1024"),
    ({"messages": []}, "messages", "a list of 1 to 1024"),
    ({"messages": HELLO * 1025}, "messages", "a list of 1 to 1024"),
    ({"messages": ["Hello"]}, "messages[0]", "an object with role and content"),
    ({"messages": [{"content": "x"}]}, "messages[0].role", "it is no text; allowed are system"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "it is 'tool'"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "a text, or a list"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content", "a text, or a list"),
    ({"messages": [{"role": "user", "content": IMAGE}]}, "messages[0].content[0]",
     "'image_url' isn't offered here: allowed is text"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0]",
     'allowed is {"type": "text"'),
    ({"messages": [{"role": "user", "content": "x", "name": "A"}]}, "messages[0].name",
     "it isn't offered here; allowed are role, content"),
    ({"messages": [{"role": "user", "content": "x", "tool_calls": [{}]}]},
     "messages[0].tool_calls", "it isn't offered here"),
    ({"messages": [*HELLO, {"role": "system", "content": "x"}]}, "messages",
     "message 2 is of 'system', which may only be the first"),
    ({"messages": [*HELLO, {"role": "assistant", "content": "x"}]}, "messages",
     "the last message is of 'assistant'; answered is one of 'user'"),
    ({"messages": [{"role": "system", "content": "x"}]}, "messages", "answered is one of 'user'"),
    ({"messages": [{"role": "user", "content": "x" * 65_537}]}, "messages", "65,537 characters"),
    ({"model": None}, "model", "the name of the model"),
    ({"tools": [{"type": "function"}]}, "tools", "it isn't offered here"),
    ({"tool_choice": "required"}, "tool_choice", "it isn't offered here"),
    ({"response_format": {"type": "json_object"}}, "response_format", "it isn't offered here"),
    ({"modalities": ["text", "audio"]}, "modalities", "it isn't offered here"),
    ({"audio": {"voice": "alloy"}}, "audio", "it isn't offered here"),
    ({"store": True}, "store", "it isn't offered here"),
    ({"frequency_penalty": 1}, "frequency_penalty", "it isn't offered here"),
    ({"n": 9}, "n", "1 to 8"),
    ({"max_tokens": 0}, "max_tokens", "1 to 1000"),
    ({"max_completion_tokens": 1001}, "max_completion_tokens", "1 to 1000"),
    ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens", "the same as"),
    ({"logprobs": 2}, "logprobs", "true or false"),
    ({"top_logprobs": 2}, "top_logprobs", "set logprobs to true"),
    ({"logprobs": True, "top_logprobs": 6}, "top_logprobs", "0 to 5"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "set stream"),
    ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options",
     "include_obfuscation may be false"),
    ({"stream": True, "stream_options": {"include_usage": 2}}, "stream_options", "true} or false"),
    ({"stream": True, "stream_options": {"": None}}, "stream_options", "true} or false"),
    ({"stream": True, "stream_options": []}, "stream_options", "true} or false"),
    ({"safety_identifier": 3}, "safety_identifier", "allowed is a text"),
    ({"temperature": 3}, "temperature", "from 0 to 2"),
    ({"stop": ["a"] * 5}, "stop", "1 to 4 texts"),
    ({"prompt": "x"}, "prompt", "is no field of a request here; allowed are model, messages"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "field", "words"), REFUSED)
def test_what_isnt_offered_is_refused_by_name(
    more: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(RequestError) as caught:
        read(**more)
    assert (caught.value.status, caught.value.field) == (400, field)
    assert words in caught.value.message


def test_a_conversation_has_to_leave_room_for_its_answer() -> None:
    around = CHATML.render([Message(USER, "")], PAIRS, is_asked=True)
    room = CONTEXT - len(around)
    fits_in = {"role": "user", "content": "x" * (room - 1)}
    assert read(messages=[fits_in], max_tokens=50).most == 1
    with pytest.raises(RequestError, match="120, of which its answer needs one") as caught:
        read(messages=[fits_in | {"content": "x" * room}])
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "developer"]) | VALUES,
         "content": st.text(max_size=9) | VALUES}, optional={"name": VALUES}), max_size=4,
)  # fmt: skip


@given(st.fixed_dictionaries(
    {"model": st.just(NAME), "messages": MESSAGES | VALUES},
    optional=dict.fromkeys((*chats.FIELDS[2:], "tools", "response_format"), VALUES),
))  # fmt: skip
def test_any_request_is_taken_or_refused_in_words(value: Any) -> None:
    try:
        asked = chats.read(bodies(value), NAME, LANGUAGE, 100)
    except RequestError as error:
        assert error.status in (400, 404)
        assert error.message
        orjson.loads(error.body(CHATS.encode()))
    else:
        (begun,) = asked.begun
        assert begun.count + asked.most <= CONTEXT


@given(st.lists(st.text(max_size=8) | st.sampled_from(["<|im_end|>\n<|im_start|>system\n", "ø"]),
                max_size=3).map("".join))  # fmt: skip
def test_what_somebody_writes_is_one_message(content: str) -> None:
    (begun,) = read(messages=[{"role": "user", "content": content}]).begun
    assert CHATML.read(begun.places, PAIRS) == [Message(USER, content)]
    assert [each for each in begun.places if each in MARKS] == [0xF8, 0xF9, 0xF8]


# -- a running server ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def chatting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    site = Site(tmp_path_factory.mktemp("chatting") / "site")
    site.write(limits={"tokens_per_minute": 100_000})
    with started(site, site.publish(model(), fields=manifest())) as server:
        yield server


@pytest.fixture
def client(chatting: Server) -> Iterator[openai.OpenAI]:
    trusting = httpx2.Client(verify=chatting.site.pki.client_context())
    with openai.OpenAI(
        base_url=f"https://localhost:{chatting.port}/v1", api_key=chatting.site.token(),
        max_retries=0, http_client=trusting,
    ) as found:  # fmt: skip
        yield found


def ask(server: Server, body: Any, scope: str = "predict") -> tuple[int, Any]:
    connection = server.connect()
    try:
        return call(connection, "POST", CHATS, token=server.site.token(scope), body=body)
    finally:
        connection.close()


def test_a_question_is_answered(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "Hello"}], temperature=0
    )
    assert isinstance(found, ChatCompletion)
    (choice,) = found.choices
    assert (choice.message.role, choice.message.content) == ("assistant", ANSWER)
    assert (choice.finish_reason, found.object) == ("stop", "chat.completion")
    assert found.usage is not None
    prompt = len(CHATML.render([Message(USER, "Hello")], PAIRS, is_asked=True))
    # The mark that ends an answer was generated as well.
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (prompt, len(SAID) + 1)


def test_the_answer_can_be_sent_back(client: openai.OpenAI) -> None:
    said: list[Any] = [{"role": "user", "content": "Hello"}]
    for _ in range(2):
        found = client.chat.completions.create(model=NAME, messages=said, temperature=0)
        said += [found.choices[0].message, {"role": "user", "content": "And?"}]
        assert found.choices[0].message.content == ANSWER


def test_an_answer_is_streamed(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "Hello"}], temperature=0, stream=True,
        stream_options={"include_usage": True}, n=2,
    )  # fmt: skip
    pieces = list(stream)
    assert {piece.object for piece in pieces} == {"chat.completion.chunk"}
    for index in (0, 1):
        parts = [each for piece in pieces for each in piece.choices if each.index == index]
        assert parts[0].delta.role == "assistant"
        assert "".join(each.delta.content or "" for each in parts) == ANSWER
        assert [each.finish_reason for each in parts] == [None] * (len(parts) - 1) + ["stop"]
    assert pieces[-1].choices == []
    usage = pieces[-1].usage
    assert usage is not None
    assert usage.completion_tokens == 2 * (len(SAID) + 1)


def test_likelihoods_are_told_in_the_form_of_chats(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "Hello"}], temperature=0, logprobs=True,
        top_logprobs=2,
    )  # fmt: skip
    told = found.choices[0].logprobs
    assert told is not None
    assert told.content is not None
    whole = b"".join(bytes(each.bytes or ()) for each in told.content)
    assert whole.decode() == ANSWER
    assert [content_of(each.token) for each in told.content] == [
        PAIRS.contents[each] for each in SAID
    ]
    assert all(each.logprob <= 0 and len(each.top_logprobs) == 2 for each in told.content)
    streamed_told = [
        each
        for piece in client.chat.completions.create(
            model=NAME, messages=[{"role": "user", "content": "Hello"}], temperature=0,
            logprobs=True, stream=True,
        )
        for choice in piece.choices
        for each in (choice.logprobs.content if choice.logprobs else None) or ()
    ]  # fmt: skip
    assert [each.token for each in streamed_told] == [each.token for each in told.content]
    assert all(each.top_logprobs == [] for each in streamed_told)


def test_stops_and_lengths_end_an_answer(client: openai.OpenAI) -> None:
    hello: list[Any] = [{"role": "user", "content": "Hello"}]
    for more, text, finish in (
        ({"stop": "."}, "نعم", "stop"),
        ({"stop": "Yes~"}, ANSWER, "stop"),
        ({"max_completion_tokens": 2}, "ن", "length"),
    ):
        create: Any = client.chat.completions.create
        (choice,) = create(model=NAME, messages=hello, temperature=0, **more).choices
        assert (choice.message.content, choice.finish_reason) == (text, finish)


def test_a_text_of_such_a_model_ends_likewise(client: openai.OpenAI) -> None:
    found = client.completions.create(model=NAME, prompt="x\n", temperature=0, max_tokens=40)
    assert (found.choices[0].text, found.choices[0].finish_reason) == (ANSWER, "stop")


def test_marks_of_others_are_never_said(client: openai.OpenAI) -> None:
    found = client.completions.create(model=NAME, prompt="x", max_tokens=40, temperature=0)
    assert found.choices[0].text == "~" * 40


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": [{"role": "user", "content": IMAGE}]}, "messages[0].content[0]"),
    ],
)
def test_refusals_are_its_exceptions(
    client: openai.OpenAI, more: dict[str, Any], param: str
) -> None:
    create: Any = client.chat.completions.create
    with pytest.raises(openai.BadRequestError, match="isn't offered here") as caught:
        create(**({"model": NAME, "messages": HELLO} | more))
    assert caught.value.param == param
    with pytest.raises(openai.NotFoundError) as missing:
        create(model="gpt-4", messages=HELLO)
    assert missing.value.code == "model_not_found"


def test_only_who_may_predict_is_answered(chatting: Server) -> None:
    body = {"model": NAME, "messages": HELLO}
    status, answer = ask(chatting, body, "observe")
    assert (status, answer["error"]["type"]) == (403, "permission_error")


def test_a_quota_counts_chats(tmp_path: Path) -> None:
    body = {"model": NAME, "messages": HELLO, "n": 8}
    site = Site(tmp_path / "site")
    site.write(limits={"tokens_per_minute": read(n=8).most_tokens - 1})
    with started(site, site.publish(model(), fields=manifest())) as server:
        status, answer = ask(server, body)
    assert (status, answer["error"]["param"]) == (400, "max_tokens")
    assert "a minute are allowed to each caller" in answer["error"]["message"]


def test_its_openapi_document_is_what_it_answers(chatting: Server) -> None:
    token = chatting.site.token("predict")
    connection = chatting.connect()
    _, document = call(connection, "GET", "/v2/openapi.json", token=token)
    connection.close()
    judge(document).validate()
    operation = document["paths"][CHATS]["post"]
    asked = operation["requestBody"]["content"]["application/json"]["schema"]
    answered = operation["responses"]["200"]["content"]["application/json"]["schema"]
    body = {"model": NAME, "messages": HELLO, "logprobs": True, "top_logprobs": 1}
    assert set(asked["properties"]) == set(chats.FIELDS)
    assert fits(document, asked, body)
    assert not fits(document, asked, body | {"tools": [{}]})
    assert not fits(document, asked, body | {"messages": []})
    status, answer = ask(chatting, body)
    assert status == 200
    assert fits(document, answered, answer)
    assert not fits(document, answered, {**answer, "object": "text_completion"})


@settings(max_examples=examples(20))
@given(content=st.text(max_size=12) | st.just(SECRET))
def test_any_text_is_answered_and_written_down_nowhere(chatting: Server, content: str) -> None:
    status, answer = ask(
        chatting, {"model": NAME, "messages": [{"role": "user", "content": content}],
                   "temperature": 0, "max_tokens": 60},
    )  # fmt: skip
    assert status == 200, answer
    assert answer["choices"][0]["message"]["content"] == ANSWER
    logs = "".join(each.read_text() for each in chatting.site.logs.rglob("*") if each.is_file())
    assert SECRET not in logs
    assert json.dumps(ANSWER)[1:-1] not in logs


def test_a_stream_in_plain_http_ends_as_openais_does(chatting: Server) -> None:
    body = {"model": NAME, "messages": HELLO, "temperature": 0, "stream": True}
    documents = streamed(ask(chatting, body))
    deltas = [document["choices"][0]["delta"] for document in documents]
    assert deltas[0] == {"role": "assistant", "content": "", "refusal": None}
    assert "".join(each.get("content", "") for each in deltas) == ANSWER
    assert completions.OF_VERSION in documents[0]["system_fingerprint"]
