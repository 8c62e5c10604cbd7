"""What a conversation left: found by its own caller alone, the same texts, bounded memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.workloads.inference.auth import Identity
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.language.cache import CacheForm
from falaj.workloads.inference.language.generation import Generation, Text
from falaj.workloads.inference.language.prefixes import (
    LEAST_SHARED,
    MOST_KEPT,
    Begun,
    Left,
    Prefixes,
    whose,
)
from falaj.workloads.inference.settings import read
from tests.examples import examples
from tests.workloads.inference import decoders
from tests.workloads.inference.serving import Site
from tests.workloads.inference.test_cache import GREEDY

CONTEXT = 128
FORM = CacheForm(("past.0.keys", "past.0.values"), 2, 4, 256)
ONE, OTHER = whose(None, ["one"]), whose(None, ["other"])
ROOM = 1 << 20


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def left(tokens: Sequence[int], asked: int | None = None) -> Left:
    """Keys and values that say of which token they are."""
    room = FORM.slots(len(tokens))
    slots = {name: np.zeros((1, 2, room, 4), np.float32) for name in FORM.names}
    for each in slots.values():
        each[:, :, : len(tokens)] = np.array(tokens, np.float32)[:, None]
    return Left(tokens, len(tokens) if asked is None else asked, slots)


def begun(found: Begun | None) -> list[int]:
    """The tokens whose keys and values were found."""
    assert found is not None
    for each in found.slots.values():
        assert each.shape[:2] == (1, 2)
    return [int(each) for each in found.slots[FORM.names[0]][0, 0, : found.count, 0]]


SYSTEM = list(range(40))
FIRST = [*SYSTEM, *range(100, 130)]
SECOND = [*SYSTEM, *range(200, 230)]


# -- who finds what ------------------------------------------------------------------------


def identity(subject: str = "a", *scopes: str, means: str = "token") -> Identity:
    return Identity(subject, frozenset(scopes or ("predict",)), means, 0)


def test_callers_are_told_apart_by_all_that_says_who_they_are() -> None:
    known = [
        whose(identity(), []), whose(identity("b"), []), whose(identity("a", "admin"), []),
        whose(identity(means="certificate"), []), whose(identity(), ["a"]), whose(None, []),
        whose(identity(), ["a", None]), whose(identity(), [None, "a"]), whose(identity(), ["b"]),
    ]  # fmt: skip
    assert len(set(known)) == len(known)
    assert {len(each) for each in known} == {32}
    assert whose(identity("a", "x", "y"), ["k"]) == whose(identity("a", "y", "x"), ["k"])


def test_nobody_finds_what_another_one_left() -> None:
    kept = Prefixes(60)
    kept.keep(ONE, left(FIRST), ROOM)
    assert kept.find(OTHER, FIRST, FORM, 256) is None
    assert begun(kept.find(ONE, [*FIRST, 9], FORM, 256)) == FIRST


def test_the_last_token_is_always_run() -> None:
    kept = Prefixes(60)
    kept.keep(ONE, left(FIRST), ROOM)
    assert begun(kept.find(ONE, FIRST, FORM, 256)) == FIRST[:-1]


def test_a_conversation_that_goes_on_takes_and_another_one_copies() -> None:
    kept = Prefixes(60)
    given = left([*FIRST, 1, 2, 3], asked=len(FIRST))
    kept.keep(ONE, given, ROOM)
    # It begins with the same instructions alone: the other one's next turn is to come.
    copied = kept.find(ONE, SECOND, FORM, 256)
    assert begun(copied) == SYSTEM
    assert copied is not None
    assert copied.slots[FORM.names[0]] is not given.slots[FORM.names[0]]
    assert len(kept) == 1
    # Another answer to the same question.
    taken = kept.find(ONE, [*FIRST, 4, 5], FORM, 256)
    assert begun(taken) == FIRST
    assert taken is not None
    assert taken.slots[FORM.names[0]] is given.slots[FORM.names[0]]
    assert (len(kept), kept.held) == (0, 0)


def test_a_text_that_takes_less_room_gets_no_more_than_it_may_come_to() -> None:
    kept = Prefixes(60)
    kept.keep(ONE, left([*FIRST, *range(100)], asked=len(FIRST)), ROOM)
    found = kept.find(ONE, [*FIRST, 1], FORM, len(FIRST) + 2)
    assert begun(found) == FIRST
    assert found is not None
    assert {each.shape[2] for each in found.slots.values()} == {128}
    assert len(kept) == 1


def test_few_tokens_are_not_worth_it() -> None:
    kept = Prefixes(60)
    kept.keep(ONE, left(FIRST), ROOM)
    assert kept.find(ONE, [*FIRST[: LEAST_SHARED - 1], 7, 7], FORM, 256) is None
    kept.keep(ONE, left(SECOND[: LEAST_SHARED - 1]), ROOM)
    assert len(kept) == 1


# -- how much, and how long ----------------------------------------------------------------


def is_wiped(given: Left) -> bool:
    return not any(each.any() for each in given.slots.values())


def test_what_goes_is_written_over() -> None:
    clock = Clock()
    kept = Prefixes(60, clock)
    one, other = left(FIRST), left(SECOND)
    kept.keep(ONE, one, ROOM)
    clock.now = 50
    kept.keep(ONE, other, ROOM)
    clock.now = 60
    kept.expire()
    assert (is_wiped(one), is_wiped(other), len(kept)) == (True, False, 1)
    kept.fit(0)
    assert (is_wiped(other), kept.held) == (True, 0)
    unkept = left(FIRST)
    Prefixes(0).keep(ONE, unkept, ROOM)
    assert is_wiped(unkept)
    large = left(FIRST)
    kept.keep(ONE, large, 100)
    assert (is_wiped(large), len(kept)) == (True, 0)


def test_a_next_turn_stands_for_the_one_before() -> None:
    kept = Prefixes(60)
    kept.keep(ONE, left(FIRST), ROOM)
    kept.keep(OTHER, left(FIRST), ROOM)
    kept.keep(ONE, left([*FIRST, 1]), ROOM)
    assert len(kept) == 2
    assert begun(kept.find(ONE, [*FIRST, 1, 2], FORM, 256)) == [*FIRST, 1]
    assert begun(kept.find(OTHER, [*FIRST, 1, 2], FORM, 256)) == FIRST


@given(
    st.lists(
        st.tuples(
            st.sampled_from([ONE, OTHER]), st.lists(st.integers(0, 1), max_size=80),
            st.integers(0, 40_000), st.booleans(),
        ),
        max_size=12,
    )
)  # fmt: skip
def test_bytes_are_bounded_and_what_is_found_is_what_was_said(
    steps: list[tuple[bytes, list[int], int, bool]],
) -> None:
    kept = Prefixes(60, Clock())
    said: dict[bytes, list[list[int]]] = {ONE: [], OTHER: []}
    for who, tokens, room, asks in steps:
        if asks and tokens:
            found = kept.find(who, tokens, FORM, 256)
            if found is not None:
                assert LEAST_SHARED <= found.count < len(tokens)
                assert begun(found) == tokens[: found.count]
                assert any(each[: found.count] == tokens[: found.count] for each in said[who])
        else:
            kept.keep(who, left(tokens), room)
            assert kept.held <= room or not len(kept)
            said[who].append(tokens)
        assert (kept.held == 0) == (len(kept) == 0)


def test_conversations_are_bounded() -> None:
    kept = Prefixes(60)
    for each in range(MOST_KEPT + 5):
        kept.keep(ONE, left([each] * LEAST_SHARED), ROOM)
    assert len(kept) == MOST_KEPT
    assert kept.find(ONE, [4] * 20, FORM, 256) is None
    assert kept.find(ONE, [5] * 20, FORM, 256) is not None


@pytest.mark.parametrize("given", [-1, 3601, 1.5, "10"])
def test_what_settings_may_say(site: Site, given: object) -> None:
    site.write(limits={"keep_seconds": given})
    with pytest.raises(InferenceError, match=r"keep_seconds: got .*whole number from 0 to 3,600"):
        read(site.config)


# -- the same texts ------------------------------------------------------------------------


def turn(kept: Prefixes, prompt: str, most: int) -> tuple[str, int]:
    """The likeliest text, and the tokens that weren't run."""
    model, known = decoders.served(CONTEXT)
    assert known.cache is not None
    places = known.prompt(prompt).places
    text = Text(0, places, most=most, stops=(), random=np.random.default_rng(0))
    begun = kept.find(ONE, places, known.cache, text.length + most)
    generation = Generation(known, [text], GREEDY, None, begun)
    found = ""
    while generation.unfinished:
        found += "".join(more for _, more in generation.step(model.run))
    gone = generation.leave()
    if gone is not None:
        kept.keep(ONE, gone, 1 << 24)
    assert generation.kept_bytes == 0
    return found, generation.reused


_SAID = st.text(st.sampled_from(decoders.CHARACTERS[1:]), min_size=1, max_size=25)


@settings(deadline=None, max_examples=examples(10))
@given(st.lists(st.tuples(_SAID, st.integers(1, 12), st.integers(0, 12)), min_size=2, max_size=5))
def test_turns_of_a_conversation_say_what_they_say_alone(
    turns: list[tuple[str, int, int]],
) -> None:
    kept, said = Prefixes(60), ""
    for more, most, forgotten in turns:
        # A caller may have changed the end of what was answered.
        said = said[: len(said) - forgotten] + more
        answer, reused = turn(kept, said, most)
        assert answer == turn(Prefixes(0), said, most)[0]
        assert reused == 0 or LEAST_SHARED <= reused < len(said)
        said += answer


def test_a_fifth_turn_runs_what_is_new_alone() -> None:
    kept, said, reused = Prefixes(60), "", 0
    for each in ("abc def gh", "شكرا.", "b", "ca", "hg"):
        said += each
        answer, reused = turn(kept, said, 8)
        said += answer
    assert reused == len(said) - 8 - len("hg") - 1
    assert len(kept) == 1


def test_what_slid_off_is_not_kept() -> None:
    kept = Prefixes(60)
    turn(kept, "abcdefgh" * 15, 20)
    assert len(kept) == 0
