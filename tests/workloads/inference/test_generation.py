"""How texts are generated: vocabularies, the choice of characters, stops, and requests' fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.inference.errors import InferenceError, RequestError
from falaj.workloads.inference.language import completions
from falaj.workloads.inference.language import generation as language
from falaj.workloads.inference.language.generation import Generation, Prompt, Sampling, Text
from falaj.workloads.inference.models.model import INLINE_SECONDS, Model, load
from falaj.workloads.inference.protocol.oip import Inference
from falaj.workloads.vocabulary import Characters
from tests.workloads.inference import models
from tests.workloads.inference.languages import (
    CHARACTERS,
    CONTEXT,
    NAME,
    bigrams,
    fields,
    greedy,
    table,
)
from tests.workloads.inference.oip import LIMITS

GREEDY = Sampling(temperature=0, top_p=1, seed=None)


def loaded(content: bytes | None = None, **manifest: Any) -> Model:
    return load(
        content or bigrams(table()), name="mlp", version="3", manifest=fields(**manifest),
        threads=1, limits=LIMITS,
    )  # fmt: skip


def loaded_plainly(content: bytes) -> Model:
    return load(content, name="mlp", version="1", manifest={}, threads=1, limits=LIMITS)


MODEL = loaded()
KNOWN = language.read(fields(), MODEL.schema, b"")
assert KNOWN is not None
LANGUAGE = KNOWN


# -- packages ------------------------------------------------------------------------------


def test_a_vocabulary_is_read_from_the_manifest() -> None:
    assert LANGUAGE.vocabulary == Characters(tuple(CHARACTERS))
    assert LANGUAGE.context == CONTEXT
    assert LANGUAGE.prompt("aشك😀") == Prompt([2, 7, 8, 11], 0, 4)


def test_what_is_not_known_counts_as_the_unknown_one() -> None:
    assert LANGUAGE.prompt("zé\ufffda").places == [0, 0, 0, 2]


def test_an_empty_text_is_begun_from_a_new_line_where_it_is_known() -> None:
    assert LANGUAGE.prompt("") == Prompt([1], 0, 0)
    bare = language.Language(Characters(("\ufffd", "a")), CONTEXT)
    assert bare.prompt("").places == [0]


def test_only_the_end_of_a_text_matters() -> None:
    assert LANGUAGE.prompt("b" * 100 + "a" * CONTEXT) == Prompt([2] * CONTEXT, 100, 100 + CONTEXT)


def test_another_kind_of_model_has_no_language() -> None:
    assert language.read({}, MODEL.schema, b"") is None
    assert language.read(fields() | {"task": "classification"}, MODEL.schema, b"") is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"classes": None}, "fewer than two"),
        ({"classes": ["\ufffd"]}, "fewer than two"),
        ({"classes": ["ab", *CHARACTERS[1:]]}, "single characters"),
        ({"classes": [1, *CHARACTERS[1:]]}, "single characters"),
        ({"classes": [*CHARACTERS[:-1], "a"]}, "one is there twice"),
        ({"classes": list(CHARACTERS[:-1])}, f"FP32 of {len(CHARACTERS) - 1} characters"),
    ],
)
def test_a_package_that_contradicts_itself_is_not_served(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InferenceError, match=words):
        language.read(fields() | changes, MODEL.schema, b"")


def test_a_model_of_tables_is_no_language_model_whatever_it_says() -> None:
    with pytest.raises(InferenceError, match="'tokens', INT64"):
        language.read(fields(), loaded_plainly(models.table()).schema, b"")


@pytest.mark.parametrize("context", [0, -1, True, 1.5, "128", 2**40, None])
def test_a_context_that_is_none_is_refused(context: Any) -> None:
    with pytest.raises(InferenceError, match="context"):
        loaded(context=context)


def test_a_run_is_measured_with_rows_as_long_as_the_context() -> None:
    """Else a model would run on the event loop that is slow for real texts."""
    (tokens,) = loaded(context=128).schema.inputs.values()
    assert tokens.sized(2) == (2, 128)
    (image,) = loaded_plainly(models.mlp()).schema.inputs.values()
    assert image.sized(2) == (2, 64)


def test_short_rows_do_not_make_a_slow_model_quick() -> None:
    slow = loaded()
    slow.expected = [1.0] * 32
    for _ in range(1_000):
        slow.observe(1, 1e-6)
    assert not slow.is_quick(1)
    assert slow.expected[1] > INLINE_SECONDS


# -- the choice of a character -------------------------------------------------------------


def chances(*values: float) -> Any:
    return np.array(values, dtype=np.float32)


def drawn(probabilities: Any, sampling: Sampling, count: int = 4_000) -> Any:
    random = np.random.default_rng(1)
    found = [language.choose(probabilities, sampling, random, 1) for _ in range(count)]
    return np.bincount(found, minlength=len(probabilities)) / count


def test_the_likeliest_is_chosen_at_temperature_zero_but_never_the_unknown_one() -> None:
    random = np.random.default_rng(0)
    assert language.choose(chances(0.9, 0.02, 0.05, 0.03), GREEDY, random, 1) == 2
    assert language.choose(chances(1, 0, 0), GREEDY, random, 1) == 1


@pytest.mark.parametrize("temperature", [0, 1e-300, 0.5, 1, 2])
@pytest.mark.parametrize("top_p", [0, 1e-9, 0.5, 1])
def test_the_unknown_one_is_never_chosen(temperature: float, top_p: float) -> None:
    sampling = Sampling(temperature, top_p, None)
    for each in (chances(1, 0, 0), chances(0.99, 1e-40, 1e-30), chances(0.5, 0.25, 0.25)):
        assert drawn(each, sampling, 50)[0] == 0


def test_at_temperature_one_chances_are_the_models() -> None:
    found = drawn(chances(0.5, 0.25, 0.2, 0.05), Sampling(1, 1, None))
    assert found == pytest.approx([0, 0.5, 0.4, 0.1], abs=0.03)


def test_temperature_is_a_power() -> None:
    found = drawn(chances(0, 0.4, 0.3, 0.3), Sampling(0.5, 1, None))
    assert found == pytest.approx([0, 16 / 34, 9 / 34, 9 / 34], abs=0.03)


def test_top_p_leaves_out_the_unlikely() -> None:
    found = drawn(chances(0, 0.5, 0.3, 0.2), Sampling(1, 0.7, None))
    assert found == pytest.approx([0, 0.625, 0.375, 0], abs=0.03)
    assert drawn(chances(0, 0.5, 0.3, 0.2), Sampling(1, 0, None), 50)[1] == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_the_models_fault(value: float) -> None:
    with pytest.raises(RequestError) as caught:
        language.choose(chances(0, value, 0.5), GREEDY, np.random.default_rng(0), 1)
    assert caught.value.status == 500


# -- texts ---------------------------------------------------------------------------------


def text_of(characters: str, stops: Sequence[str], most: int = 100) -> tuple[Text, list[str]]:
    text = Text(0, [1], most=most, stops=stops, random=np.random.default_rng(0))
    pieces: list[str] = []
    for each in characters:
        pieces.append(text.add(each))
        if text.finish:
            break
    return text, pieces


def test_without_stops_each_character_is_sure_at_once() -> None:
    text, pieces = text_of("abc", [], most=3)
    assert (pieces, text.finish, text.generated) == (["a", "b", "c"], "length", 3)


def test_what_may_begin_a_stop_waits_and_a_stop_is_not_answered() -> None:
    text, pieces = text_of("xabyabcz", ["abc"])
    assert pieces == ["x", "", "", "aby", "", "", ""]
    assert (text.finish, text.generated) == ("stop", 7)


def test_what_waited_is_answered_at_the_end() -> None:
    text, pieces = text_of("xab", ["abc"], most=3)
    assert (pieces, text.finish) == (["x", "", "ab"], "length")


def test_a_stop_at_the_last_character_is_a_stop() -> None:
    assert text_of("xab", ["ab"], most=3)[0].finish == "stop"


@pytest.mark.parametrize(
    ("characters", "stops", "shown"),
    [
        ("xabcd", ["abcd", "bc"], "xa"),
        ("xabcd", ["c", "bc"], "xa"),
        ("xabcd", ["bc", "c"], "xa"),
        ("xaabcd", ["aab", "abc"], "x"),
        ("xabcd", ["x"], ""),
        ("aشكb", ["شك"], "a"),
        ("xabcd", ["شك"], "xabcd"),
    ],
)
def test_of_several_stops_the_first_counts(characters: str, stops: list[str], shown: str) -> None:
    assert "".join(text_of(characters, stops, most=len(characters))[1]) == shown


@given(
    st.text("ab", min_size=1, max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=4),
)
def test_a_text_ends_before_the_first_stop_that_is_whole(
    characters: str, stops: list[str]
) -> None:
    text, pieces = text_of(characters, stops, most=len(characters))
    ends = [
        (end, -len(stop)) for stop in stops for end in range(1, len(characters) + 1)
        if characters[:end].endswith(stop)
    ]  # fmt: skip
    if not ends:
        assert ("".join(pieces), text.finish) == (characters, "length")
        return
    end, size = min(ends)
    assert ("".join(pieces), text.finish) == (characters[: end + size], "stop")


def generated(prompts: Sequence[str], most: int = 12, sampling: Sampling = GREEDY) -> list[str]:
    texts = [
        Text(index, LANGUAGE.prompt(prompt).places, most=most, stops=(),
             random=np.random.default_rng([sampling.seed or 0, index]))
        for index, prompt in enumerate(prompts)
    ]  # fmt: skip
    generation, parts = Generation(LANGUAGE, texts, sampling), [""] * len(prompts)
    lengths: list[tuple[int, ...]] = []

    def run(inference: Inference) -> Sequence[Any]:
        shape = inference.feed["tokens"].shape
        assert shape[0] == inference.rows
        lengths.append(shape)
        return MODEL.run(inference)

    while generation.unfinished:
        for text, more in generation.step(run):
            parts[text.index] += more
    assert generation.generated == most * len(prompts)
    assert max(length for _, length in lengths) == CONTEXT
    assert lengths[-1][0] == len(prompts)  # all in one run, once they are long enough
    return parts


def test_texts_of_several_lengths_are_each_generated_as_alone() -> None:
    prompts = ["a", "bbb", "", "شكرا", "b" * 40, "zzz"]
    assert generated(prompts) == [greedy(each, 12) for each in prompts]


# -- requests ------------------------------------------------------------------------------


def read(**more: Any) -> completions.Asked:
    document = {"model": NAME, "prompt": "a"} | more
    return completions.read(orjson.dumps(document), NAME, LANGUAGE, 100)


def test_what_is_left_out_or_null_is_as_usual() -> None:
    names = completions.FIELDS[2:]
    assert read() == read(**dict.fromkeys(names))
    asked = read()
    assert (asked.prompts, asked.most, asked.choices) == (["a"], 16, 1)
    assert asked.sampling == Sampling(1, 1, None)
    assert (asked.stops, asked.stream, asked.usage, asked.echo) == ([], False, False, False)


def test_fields_that_change_nothing_are_taken() -> None:
    neutral = {
        "best_of": 2, "n": 2, "frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {},
        "logprobs": None, "suffix": None, "user": "me", "stop": [],
    }  # fmt: skip
    assert read(**neutral) == replace(read(n=2), callers=["me"])


REFUSED: list[tuple[str, Any, str]] = [
    ("model", 1, 'allowed is the name of the model that is served, "mlp"'),
    ("model", None, "allowed is the name"),
    ("prompt", None, "allowed is a text, or a list of 1 to 16 texts"),
    ("prompt", 1, "a text"),
    ("prompt", [], "a list of 1 to 16"),
    ("prompt", ["a"] * 17, "a list of 1 to 16"),
    ("prompt", [1, 2], "texts"),
    ("prompt", [[1, 2]], "texts"),
    ("max_tokens", 0, "got 0, allowed is a whole number from 1 to 100"),
    ("max_tokens", 101, "got 101"),
    ("max_tokens", 1.5, "got 1.5"),
    ("max_tokens", True, "got true"),
    ("max_tokens", "5", 'got "5"'),
    ("temperature", -0.1, "got -0.1, allowed is a number from 0 to 2"),
    ("temperature", 2.1, "got 2.1"),
    ("temperature", "1", 'got "1"'),
    ("temperature", True, "got true"),
    ("top_p", 1.1, "got 1.1, allowed is a number from 0 to 1"),
    ("top_p", -1, "got -1"),
    ("n", 0, "got 0, allowed is a whole number from 1 to 8"),
    ("n", 9, "got 9"),
    ("best_of", 2, "got 2, allowed is 1 or null"),
    ("stream", "yes", "true or false"),
    ("stream", 1, "true or false"),
    ("stream_options", {"include_usage": True}, "for streams"),
    ("stream_options", {"include_usage": 1}, "include_usage"),
    ("stream_options", {"other": True}, "include_usage"),
    ("stream_options", [], "include_usage"),
    ("stop", 1, "a list of 1 to 4 texts"),
    ("stop", ["a"] * 5, "a list of 1 to 4 texts"),
    ("stop", "", "1 to 128 characters"),
    ("stop", ["a", ""], "1 to 128 characters"),
    ("stop", "a" * 129, "1 to 128 characters"),
    ("seed", 1.5, "whole number"),
    ("seed", 2**63, "whole number"),
    ("seed", True, "whole number"),
    ("echo", 1, "true or false"),
    ("user", 1, "allowed is a text"),
    ("logprobs", 6, "got 6, allowed is a whole number from 0 to 5"),
    ("logprobs", -1, "got -1"),
    ("logprobs", True, "got true"),
    ("logprobs", 1.0, "got 1.0"),
    ("suffix", "b", 'got "b", allowed is null'),
    ("frequency_penalty", 0.5, "got 0.5, allowed is 0 or null"),
    ("presence_penalty", -1, "got -1, allowed is 0 or null"),
    ("logit_bias", {"50256": -100}, "isn't offered"),
    ("messages", [], "no field of a request here; allowed are model, prompt, max_tokens"),
]


@pytest.mark.parametrize(("field", "value", "words"), REFUSED)
def test_a_wrong_field_is_named_with_what_is_allowed(field: str, value: Any, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(**{field: value})
    assert (caught.value.status, caught.value.field) == (400, field)
    assert words in caught.value.message
    assert field in caught.value.message


def test_texts_of_all_prompts_are_bounded() -> None:
    assert read(prompt=["a"] * 2, n=8).choices == 8
    with pytest.raises(RequestError, match="at most 16 texts of all 3 prompts together"):
        read(prompt=["a"] * 3, n=8)


def test_what_is_given_back_is_bounded() -> None:
    most = completions.MOST_ECHOED
    assert read(prompt="a" * most, echo=True).echo
    assert read(prompt="a" * (most + 1)).prompt_tokens == most + 1
    with pytest.raises(RequestError, match="leave echo out"):
        read(prompt="a" * (most // 2 + 1), n=2, echo=True)


def test_another_model_is_not_found() -> None:
    with pytest.raises(RequestError) as caught:
        read(model="gpt-2")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")
    assert "'gpt-2'; served is 'mlp'" in caught.value.message


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b'"a"', b"null", b'"\\ud800"', b"\xff"])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        completions.read(body, NAME, LANGUAGE, 100)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "field", [*completions.FIELDS, "best_of", "logit_bias", "suffix", "other"]
)
@pytest.mark.parametrize("value", ["[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900])
def test_a_deep_value_is_refused_as_any_other(field: str, value: str) -> None:
    whole = {"model": '"mlp"', "prompt": '"a"', "stream": "true"} | {field: value}
    body = ",".join(f'"{name}":{each}' for name, each in whole.items())
    with pytest.raises(RequestError) as caught:
        completions.read(f"{{{body}}}".encode(), NAME, LANGUAGE, 100)
    assert (caught.value.status, caught.value.field) == (400, field)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
REQUESTS = st.fixed_dictionaries(
    {"model": st.just(NAME) | VALUES, "prompt": st.text(max_size=20) | VALUES},
    optional={
        name: VALUES | usual
        for name, usual in {
            "max_tokens": st.integers(-1, 3), "temperature": st.floats(-1, 3),
            "top_p": st.floats(-1, 2), "n": st.integers(0, 9), "stream": st.booleans(),
            "stream_options": st.just({"include_usage": True}), "stop": st.lists(st.text()),
            "seed": st.integers(), "echo": st.booleans(), "user": st.text(), "best_of": VALUES,
            "logprobs": st.integers(-1, 6), "suffix": VALUES, "logit_bias": VALUES,
            "other": VALUES, "frequency_penalty": st.floats(-2, 2),
        }.items()
    },
)  # fmt: skip


def bodies(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # whole numbers beyond 64 bits, halves of characters
        return b"{}"


@given(VALUES | REQUESTS)
def test_any_request_is_taken_or_refused_in_words(value: Any) -> None:
    try:
        asked = completions.read(bodies(value), NAME, LANGUAGE, 100)
    except RequestError as error:
        assert error.status in (400, 404)
        assert error.message
        orjson.loads(error.body(b"/v1/completions"))
    else:
        assert 1 <= len(asked.prompts) * asked.choices <= completions.MOST_TEXTS
        assert 1 <= asked.most <= 100
