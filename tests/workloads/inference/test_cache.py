"""Keys and values of the past: the same texts as without, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.language import generation as language
from falaj.workloads.inference.language.cache import CacheForm, Kept, form_of, since
from falaj.workloads.inference.language.generation import Generation, Sampling, Text, choose
from falaj.workloads.inference.models.model import load
from falaj.workloads.inference.protocol.oip import Inference
from falaj.workloads.remembering import CHUNK
from tests.workloads.inference import decoders
from tests.workloads.inference.oip import LIMITS

GREEDY = Sampling(temperature=0, top_p=1, seed=None)
LENGTHS = st.integers(0, 5_000)
CONTEXTS = st.integers(1, 600)


# -- windows -------------------------------------------------------------------------------


@given(LENGTHS, CONTEXTS)
def test_a_window_is_more_than_half_of_the_context_and_never_more_than_it(
    length: int, context: int
) -> None:
    size = length - since(length, context)
    assert size == length if length <= context else context // 2 < size <= context


@given(LENGTHS, CONTEXTS)
def test_a_window_grows_token_by_token_until_it_begins_anew(length: int, context: int) -> None:
    before, now = since(length, context), since(length + 1, context)
    if now != before:
        # The one before was full, and a half of it stays.
        assert length - before == context
        assert length - now == context // 2


def test_windows_of_eight() -> None:
    assert [since(each, 8) for each in (0, 8, 9, 12, 13, 17)] == [0, 0, 4, 4, 8, 12]


# -- texts ---------------------------------------------------------------------------------


def places_of(context: int, prompt: str) -> list[int]:
    """All of a prompt's, however long."""
    _, known = decoders.served(context)
    return known.vocabulary.encode(prompt) or [1]


def without(context: int, prompt: str, most: int, sampling: Sampling, choice: int = 0) -> str:
    """A text by whole runs, each over all of a window."""
    places = places_of(context, prompt)
    random = np.random.default_rng([sampling.seed or 0, choice])
    found = ""
    for _ in range(most):
        window = places[since(len(places), context) :]
        place = choose(decoders.probabilities(context, window), sampling, random, 1)
        places.append(place)
        found += decoders.CHARACTERS[place]
    return found


def texts_of(
    context: int,
    prompts: Sequence[str],
    most: int | Sequence[int],
    sampling: Sampling = GREEDY,
) -> tuple[list[Text], Generation]:
    _, known = decoders.served(context)
    ends = [most] * len(prompts) if isinstance(most, int) else most
    begun = map(known.prompt, prompts)
    texts = [
        Text(
            index, prompt.places, skipped=prompt.skipped, most=ends[index], stops=(),
            random=np.random.default_rng([sampling.seed or 0, index]),
        )
        for index, prompt in enumerate(begun)
    ]  # fmt: skip
    return texts, Generation(known, texts, sampling)


def generated(
    context: int, prompts: Sequence[str], most: int, sampling: Sampling = GREEDY
) -> tuple[list[str], list[tuple[int, ...]]]:
    """Texts, and the shape of the tokens of each run."""
    model, _ = decoders.served(context)
    _, generation = texts_of(context, prompts, most, sampling)
    parts, shapes = [""] * len(prompts), list[tuple[int, ...]]()

    def run(inference: Inference) -> Sequence[Any]:
        shapes.append(inference.feed["tokens"].shape)
        return model.run(inference)

    while generation.unfinished:
        for text, more in generation.step(run):
            parts[text.index] += more
    assert generation.kept_bytes == 0
    return parts, shapes


LONG = "abcdefgh شكرا. " * 60


@pytest.mark.parametrize("context", [9, 32])
def test_the_likeliest_texts_are_those_of_whole_runs(context: int) -> None:
    prompts = ["", "a", "شكرا", "zzz", LONG[:context], LONG[: context + 1], LONG[:700]]
    found, _ = generated(context, prompts, context + 21)
    assert found == [without(context, each, context + 21, GREEDY) for each in prompts]


@pytest.mark.parametrize("context", [9, 32])
def test_seeds_draw_the_same_texts(context: int) -> None:
    drawing = Sampling(temperature=1.2, top_p=0.9, seed=7)
    found, _ = generated(context, ["abc"] * 3, 50, drawing)
    assert found == [without(context, "abc", 50, drawing, choice) for choice in range(3)]
    assert len(set(found)) == 3


def test_texts_beside_each_other_are_as_alone() -> None:
    prompts = ["ab", "شكرا", "ab", LONG[:100], "ab"]
    together, shapes = generated(32, prompts, 60)
    assert together == [generated(32, [each], 60)[0][0] for each in prompts]
    # Those of one length are one run; each step but those that look back anew has one token.
    assert {rows for rows, _ in shapes} == {1, 3}
    steps = [tokens for rows, tokens in shapes if rows == 3]
    assert steps == [2, *[1] * 30, 17, *[1] * 15, 17, *[1] * 12]


def test_a_package_that_can_not_be_told_the_past_looks_back_on_all_of_it() -> None:
    """As all were served once: each character by a run over as many as there are, or fit."""
    graph, fields = decoders.published(32)
    model = load(
        decoders.forgetful(graph), name="mlp", version="1", manifest=fields, threads=1,
        limits=LIMITS,
    )  # fmt: skip
    known = language.read(fields, model.schema, graph, model.cache)
    assert (model.cache, known and known.cache) == (None, None)
    assert known is not None
    prompt = known.prompt(LONG[:100])
    assert (len(prompt.places), prompt.skipped) == (32, 68)
    text = Text(0, prompt.places, skipped=68, most=20, stops=(), random=np.random.default_rng(0))
    generation, shown, wanted = Generation(known, [text], GREEDY), "", ""
    all_places = places_of(32, LONG[:100])
    while generation.unfinished:
        shown += "".join(more for _, more in generation.step(model.run))
        row = decoders.probabilities(32, all_places[-32:])
        all_places.append(choose(row, GREEDY, text.random, known.first))
        wanted += decoders.CHARACTERS[all_places[-1]]
    assert (shown, generation.kept_bytes) == (wanted, 0)


def test_a_text_that_is_sent_again_goes_on_as_if_it_had_not_ended() -> None:
    (whole,), _ = generated(32, ["ab"], 100)
    for size in (1, 29, 30, 31, 32, 63, 99):
        (rest,), _ = generated(32, ["ab" + whole[:size]], 100 - size)
        assert rest == whole[size:]


def test_a_long_prompt_takes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("falaj.workloads.inference.language.generation.CHUNK", 12)
    found, shapes = generated(32, [LONG[:29], "a"], 3)
    assert shapes[:6] == [(1, 12), (1, 1), (1, 12), (1, 1), (1, 5), (1, 1)]
    assert found == [without(32, each, 3, GREEDY) for each in (LONG[:29], "a")]
    assert CHUNK > 12


# -- memory --------------------------------------------------------------------------------


def test_memory_is_what_was_reckoned_and_falls_as_texts_end() -> None:
    model, _ = decoders.served(128)
    form = CacheForm(("past.0.keys", "past.0.values", "past.1.keys", "past.1.values"), 2, 8, 128)
    assert model.cache == form
    texts, generation = texts_of(128, ["abcd"] * 3, [200, 10, 200])
    seen: dict[int, int] = {}
    while generation.unfinished:
        generation.step(model.run)
        seen[texts[0].generated] = generation.kept_bytes
    assert seen[9] == 3 * form.bytes_of(13) == 3 * 4 * 2 * 32 * 8 * 4
    assert seen[10] == 2 * form.bytes_of(14)
    assert seen[100] == 2 * form.bytes_of(104) == 2 * 4 * 2 * 128 * 8 * 4
    assert max(seen.values()) <= 3 * form.bytes_of(10_000)
    assert seen[200] == 0


@given(st.integers(1, 10_000), CONTEXTS)
def test_there_is_room_for_all_that_is_kept(length: int, context: int) -> None:
    form = CacheForm(("past.0.keys", "past.0.values"), 2, 8, context)
    slots = form.slots(min(length, context))
    assert min(length, context) <= slots <= context
    assert form.bytes_of(length) == 2 * 2 * slots * 8 * 4
    assert form.bytes_of(length) <= form.bytes_of(length + 1)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=12), st.data())
def test_what_is_kept_is_what_was_given(counts: list[int], data: st.DataObject) -> None:
    form = CacheForm(("past.0.keys", "past.0.values"), 2, 4, sum(counts))
    rows, kept = list(range(3)), Kept(form, 3)
    random, wanted = np.random.default_rng(0), np.zeros((2, 3, 2, 0, 4), dtype=np.float32)
    for count in counts:
        more = random.standard_normal((2, len(rows), 2, count, 4)).astype(np.float32)
        wanted = np.concatenate([wanted, more], axis=3)
        kept.add(list(more))
        if len(rows) > 1 and data.draw(st.booleans()):
            chosen = sorted(data.draw(st.sets(st.sampled_from(range(len(rows))), min_size=1)))
            rows = [rows[each] for each in chosen]
            kept.select(chosen)
            wanted = wanted[:, chosen]
        feed = kept.feed()
        assert feed["past_length"].tolist() == [kept.filled] == [wanted.shape[3]]
        for name, values in zip(form.names, wanted, strict=True):
            assert np.array_equal(feed[name][:, :, : kept.filled], values)
            assert not feed[name][:, :, kept.filled :].any()
        assert kept.size == len(rows) * form.bytes_of(kept.filled)


class Input:
    def __init__(self, name: str, shape: Sequence[Any]) -> None:
        self.name, self.shape = name, shape


def test_a_graph_says_what_it_keeps() -> None:
    usual = [Input("past_length", [1]), Input("asked", ["positions"])]
    layer = [Input(f"past.0.{kind}", ["rows", 2, "slots", 8]) for kind in ("keys", "values")]
    assert form_of([*usual, *layer], 16) == CacheForm(("past.0.keys", "past.0.values"), 2, 8, 16)
    for fewer in ([], layer, usual, [*usual, layer[0]], [usual[0], *layer]):
        assert form_of(fewer, 16) is None
    for shape in (["rows", 2, "slots"], ["rows", 4, "slots", 8], ["rows", "heads", "slots", 8]):
        odd = [layer[0], Input("past.0.values", shape)]
        with pytest.raises(InferenceError, match="in layers of one form"):
            form_of([*usual, *odd], 16)
