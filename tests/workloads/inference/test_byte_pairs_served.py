"""A model whose tokens are pairs of bytes, served: whole characters, stops, counts, damage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from falaj.workloads.inference.errors import InferenceError, RequestError
from falaj.workloads.inference.language import completions
from falaj.workloads.inference.language import generation as language
from falaj.workloads.inference.language.generation import (
    MOST_ENCODED,
    Generation,
    Language,
    Sampling,
    Text,
)
from falaj.workloads.inference.language.likelihoods import Shown
from falaj.workloads.inference.models.model import load
from falaj.workloads.inference.protocol.oip import Inference
from falaj.workloads.vocabulary import METADATA, BytePairs
from tests.examples import examples
from tests.workloads.inference.languages import (
    CONTEXT,
    NAME,
    ask,
    bigrams,
    fields,
    joined,
    streamed,
    texts,
    usage,
)
from tests.workloads.inference.oip import LIMITS
from tests.workloads.inference.serving import Server, Site, started

PAIRS = BytePairs(((ord("a"), ord("b")), (256, ord("\n")), (0xD9, 0x85)))
"""`ab`, `ab` with a line's end, and an Arabic letter."""
CYCLE = [*"🌴ق".encode(), ord(" "), 256, ord("-")]
"""What the model goes round: a palm tree, a letter, a space, `ab` and a dash."""
ROUND = "🌴ق ab-"


def model(pairs: BytePairs | None = PAIRS, noted: str | None = None) -> bytes:
    """Goes round `CYCLE`; what isn't in it is gone on from with its second token."""
    logits = np.zeros((PAIRS.size, PAIRS.size), np.float32)
    logits[:, CYCLE[1]] = 20
    for token, after in zip(CYCLE, [*CYCLE[1:], CYCLE[0]], strict=True):
        logits[token, CYCLE[1]] = 0
        logits[token, after] = 20
    made = onnx.ModelProto.FromString(bigrams(logits, PAIRS.names))
    if pairs is not None or noted is not None:
        helper.set_model_props(made, {METADATA: noted or PAIRS.to_bytes().decode()})
    return made.SerializeToString()


def manifest(**described: Any) -> dict[str, Any]:
    said = PAIRS.described | described
    feature = {"name": "tokens", "kind": "tokens", "shape": [CONTEXT], "vocabulary": said}
    dataset = {"digest": "0" * 64, "features": [feature]}
    return fields(PAIRS.names) | {"classes": None, "dataset": dataset}


LOADED = load(model(), name=NAME, version="1", manifest=manifest(), threads=1, limits=LIMITS)


def known() -> Language:
    found = language.read(manifest(), LOADED.schema, model())
    assert found is not None
    return found


# -- packages ------------------------------------------------------------------------------


def test_the_vocabulary_lies_in_the_model_and_is_named_by_the_manifest() -> None:
    assert (known().vocabulary, known().context, known().first) == (PAIRS, CONTEXT, 0)


@pytest.mark.parametrize(
    ("content", "said", "words"),
    [
        (model(None), {}, "its graph has no vocabulary: there is no metadata"),
        (model(noted="{}"), {}, "it isn't of the format"),
        (model(noted=BytePairs(()).to_bytes().decode()), {}, "isn't the one that the manifest"),
        (model(), {"digest": "0" * 64}, "isn't the one that the manifest names"),
        (model(), {"size": 1}, "isn't the one that the manifest names"),
        (model(), {"kind": "words"}, "isn't the one that the manifest names"),
    ],
)
def test_a_package_whose_vocabulary_is_damaged_is_not_served(
    content: bytes, said: dict[str, Any], words: str
) -> None:
    with pytest.raises(InferenceError, match=words):
        language.read(manifest(**said), LOADED.schema, content)


def test_a_vocabulary_of_another_size_than_the_model_is_refused() -> None:
    larger = BytePairs((*PAIRS.pairs, (1, 2)))
    content = model(noted=larger.to_bytes().decode())
    with pytest.raises(InferenceError, match="FP32 of 260 tokens"):
        language.read(manifest(**larger.described), LOADED.schema, content)


# -- texts ---------------------------------------------------------------------------------


class Script:
    """Generates the tokens that it is told to, whatever they come after."""

    def __init__(self, tokens: list[int]) -> None:
        self._left = list(tokens)

    def run(self, inference: Inference) -> list[Any]:
        assert inference.rows == 1
        chances = np.zeros((1, PAIRS.size), np.float32)
        chances[0, self._left.pop(0)] = 1
        return [chances]


def generated(tokens: list[int], stops: list[str]) -> tuple[list[str], Text]:
    text = Text(
        0, [1], most=len(tokens), stops=stops, random=np.random.default_rng(0)
    )  # fmt: skip
    generation = Generation(known(), [text], Sampling(0, 1, None))
    script, pieces = Script(tokens), list[str]()
    while generation.unfinished:
        ((_, more),) = generation.step(script.run)
        pieces.append(more)
    return pieces, text


TOKENS = st.lists(
    st.sampled_from([*CYCLE, 0, 0xD9, 0x85, 0xFF, 257, 258]), min_size=1, max_size=24
)


@given(TOKENS, st.lists(st.text("ab-م🌴\ufffd\n", min_size=1, max_size=3), max_size=3))
@settings(max_examples=examples(200))
def test_pieces_are_the_text_of_all_tokens_up_to_the_first_stop(
    tokens: list[int], stops: list[str]
) -> None:
    pieces, text = generated(tokens, stops)
    whole = PAIRS.decode(tokens)
    ends = [
        (end, -len(stop)) for stop in stops for end in range(1, len(whole) + 1)
        if whole[:end].endswith(stop)
    ]  # fmt: skip
    if not ends:
        assert ("".join(pieces), text.finish, text.generated) == (whole, "length", len(tokens))
        return
    end, size = min(ends)
    assert ("".join(pieces), text.finish) == (whole[: end + size], "stop")


def test_a_stop_in_the_midst_of_a_token_ends_the_text_there() -> None:
    pieces, text = generated([ord("-"), 257, ord("a")], ["b"])
    assert ("".join(pieces), text.finish, text.generated) == ("-a", "stop", 2)


def test_prompts_are_counted_in_tokens_and_begin_with_a_line_where_there_is_none() -> None:
    assert known().prompt("abم") == language.Prompt([256, 258], 0, 2)
    assert known().prompt("-" * 20) == language.Prompt([ord("-")] * CONTEXT, 20 - CONTEXT, 20)
    assert known().prompt("") == language.Prompt([ord("\n")], 0, 0)


def test_prompts_are_judged_by_tokens_that_are_told_as_bytes_where_they_are_no_text() -> None:
    found = known().prompt("abقم", is_judged=True)
    assert found.places == [256, 0xD9, 0x82, 258]
    assert found.echoed == [
        Shown("ab", 2), Shown("bytes:\\xd9", 0), Shown("bytes:\\x82", 1), Shown("م", 1)
    ]  # fmt: skip


@given(TOKENS)
def test_tokens_are_told_where_their_characters_stand(tokens: list[int]) -> None:
    text = Text(0, [1], most=len(tokens), stops=(), random=np.random.default_rng(0))
    generation = Generation(known(), [text], Sampling(0, 1, None), 2)
    script, told, shown = Script(tokens), list[tuple[str, int]](), ""
    while generation.unfinished:
        for _, more in generation.step(script.run):
            shown += more
            part = text.told.take(more)
            told += zip(part["tokens"], part["text_offset"], strict=True)
    assert [name for name, _ in told] == [PAIRS.shown[each] for each in tokens]
    assert shown == PAIRS.decode(tokens)
    decoder, begins = PAIRS.decoder(), [0]
    for each in tokens[:-1]:
        begins.append(begins[-1] + len(decoder.add(each)))
    assert [offset for _, offset in told] == begins


def test_prompts_of_many_characters_are_refused() -> None:
    def read(*prompts: str) -> completions.Asked:
        body = orjson.dumps({"model": NAME, "prompt": prompts})
        return completions.read(body, NAME, known(), 10)

    most = "a" * (MOST_ENCODED // 2)
    assert read(most, most).prompt_tokens == MOST_ENCODED
    with pytest.raises(RequestError, match="65537 characters in all; allowed are 65536"):
        read(most, most + "a")


# -- a server ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def speaking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    site = Site(tmp_path_factory.mktemp("pairs") / "site")
    with started(site, site.publish(model(), fields=manifest())) as server:
        yield server


@pytest.fixture
def token(speaking: Server) -> str:
    return speaking.site.token("predict")


def test_a_completion_counts_tokens_and_ends_where_they_do(speaking: Server, token: str) -> None:
    found = ask(speaking, token, "ab-", temperature=0, max_tokens=2 * len(CYCLE))
    assert texts(found) == [ROUND * 2]
    assert found[1]["usage"] == usage(2, 18)
    half = ask(speaking, token, ["-", " "], temperature=0, max_tokens=2, echo=True)
    assert texts(half) == ["-\ufffd", " ab-"]


def test_a_stream_never_has_half_of_a_character(speaking: Server, token: str) -> None:
    more = {"temperature": 0, "max_tokens": 11, "stream": True}
    found = streamed(ask(speaking, token, "-", **more))
    shown = [each["choices"][0]["text"] for each in found]
    assert [each for each in shown if each] == ["🌴", "ق", " ", "ab", "-", "\ufffd"]
    assert joined(found) == ROUND + "\ufffd"


def test_stops_work_across_tokens(speaking: Server, token: str) -> None:
    for stop, shown in (("ق a", "🌴"), ("b-🌴", "🌴ق a"), ("🌴", ""), ("b", "🌴ق a")):
        found = ask(speaking, token, "-", temperature=0, max_tokens=40, stop=stop)
        assert texts(found) == [shown]
        assert found[1]["choices"][0]["finish_reason"] == "stop"


def test_any_byte_may_be_generated_and_answers_are_json(speaking: Server, token: str) -> None:
    found = ask(
        speaking, token, "\x00", n=8, seed=3, temperature=2, top_p=1, max_tokens=100
    )  # fmt: skip
    assert len(texts(found)) == 8
    assert texts(found) == texts(ask(
        speaking, token, "\x00", n=8, seed=3, temperature=2, top_p=1, max_tokens=100
    ))  # fmt: skip
    json.dumps(found[1])
