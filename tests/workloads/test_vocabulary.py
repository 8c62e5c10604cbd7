"""Vocabularies: texts and tokens, what is refused, and numbers as others give them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from falaj.workloads import vocabulary
from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.byte_pairs import learn
from falaj.workloads.vocabulary import BytePairs, Characters, of_bytes, printable

TEXTS = (
    "The falaj brings water to the dates; the dates bring water to nobody. 1,234 of 98765!\n\n",
    "قهوة وتمر، ثم شاي بالنعناع. المجلس يفتح بابه للضيف والقهوة تدور.\n",
    "☕🌴 — naïve café 🇦🇪  \t  def f(x):\r\n        return x\n",
)
PARTS = [
    *"aZ09 .\n\t\r\x00\x7f@[`{~-'،،قةé中\u3000\xa0\u2028\u0301",
    "  ",
    "the",
    " dates",
    "قهوة",
    "🇦🇪",
    "👩‍🌾",
]
ANY = st.text() | st.lists(st.sampled_from(PARTS), max_size=40).map("".join)


@cache
def learned(size: int) -> BytePairs:
    return learn([each * 5 for each in TEXTS], size)


@cache
def theirs(size: int) -> Tokenizer:
    """The same vocabulary as Hugging Face's tokenizers apply it."""
    ours, written = learned(size), printable()
    names = ["".join(written[each] for each in of) for of in ours.contents]
    merges = [(names[first], names[second]) for first, second in ours.pairs]
    made = Tokenizer(models.BPE({each: n for n, each in enumerate(names)}, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(vocabulary.PIECES), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    return made


@given(ANY, st.sampled_from([256, 300, 700]))
def test_a_text_is_the_same_again_and_has_the_numbers_that_others_give_it(
    text: str, size: int
) -> None:
    ours = learned(size)
    tokens = ours.encode(text)
    assert ours.decode(tokens) == text
    assert tokens == theirs(size).encode(text).ids
    assert sum(ours.characters[each] for each in tokens) == len(text)


@given(st.lists(st.integers(0, 699), max_size=40))
def test_any_tokens_are_read_one_by_one_as_all_at_once(tokens: list[int]) -> None:
    ours = learned(700)
    tokens = [each % ours.size for each in tokens]
    reading = ours.decoder()
    parts = [reading.add(each) for each in tokens]
    assert "".join(parts) + reading.end() == ours.decode(tokens)


def test_half_a_character_waits_and_what_never_ends_is_replaced() -> None:
    reading = learned(256).decoder()
    assert [reading.add(each) for each in "ق🌴".encode()] == ["", "ق", "", "", "", "🌴"]
    assert [reading.add(each) for each in b"\xf0\x9fa"] == ["", "", "\ufffda"]
    assert reading.add(0xD9) == ""
    assert reading.end() == "\ufffd"


def test_the_same_texts_have_the_same_vocabulary_in_any_process() -> None:
    code = (
        "from tests.workloads.test_vocabulary import learned\n"
        "print(*(learned(each).digest for each in (256, 300, 700)))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True,
            env={**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads},
        ).stdout
        for threads in ("1", "4")
    }  # fmt: skip
    assert found == {" ".join(learned(each).digest for each in (256, 300, 700)) + "\n"}


def test_tokens_are_those_asked_for_or_as_many_as_there_are_pairs() -> None:
    assert [learned(each).size for each in (256, 300)] == [256, 300]
    few = learn(["ab"], 300)
    assert few.pairs == ()
    assert learn(["ab ab"], 300).pairs == ((ord("a"), ord("b")),)
    assert learn([], 300).size == 256


def test_no_token_crosses_a_piece_or_grows_beyond_it() -> None:
    longest = learn(["🌴" * 100_000, " " + "a" * 100_000], 65_536)
    assert max(map(len, longest.contents)) <= vocabulary.MOST_TOKEN_BYTES
    pieces = learned(700).encode("قهوة  تمر12345")
    assert learned(700).decode(pieces[:1]) in "قهوة"


def test_vocabularies_are_equal_by_their_numbers() -> None:
    assert learned(300) == BytePairs(learned(300).pairs)
    assert learned(300) != learned(700)
    assert len({learned(300), BytePairs(learned(300).pairs), learned(700)}) == 2
    some = Characters(("\ufffd", "a", "b"))
    assert some == Characters(("\ufffd", "a", "b")) != Characters(("\ufffd", "b", "a"))
    assert some != BytePairs(())
    assert some.encode("abc") == [1, 2, 0]
    assert some.decode([1, 2, 0]) == "ab\ufffd"
    assert some.characters == (1, 1, 1)


def test_what_is_written_is_read_again() -> None:
    largest = BytePairs(tuple((first, second) for first in range(255) for second in range(256)))
    assert largest.size == vocabulary.MOST_TOKENS
    for each in (BytePairs(()), learned(700), largest):
        assert of_bytes(each.to_bytes()) == each
        assert len(each.to_bytes()) <= vocabulary.MOST_FILE_BYTES


def _document(pairs: object) -> bytes:
    return json.dumps({"format": "falaj.vocabulary/1", "pairs": pairs}).encode()


DOUBLING = [[97, 97], *([each, each] for each in range(256, 300))]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "isn't JSON"),
        (b"\xff", "isn't JSON"),
        (b"[" * 100_000, "isn't JSON"),
        (b"[]", "isn't an object"),
        (b" " * (vocabulary.MOST_FILE_BYTES + 1), "allowed are 1,048,576"),
        (b"{}", "isn't of the format 'falaj.vocabulary/1'"),
        (b'{"format":"falaj.vocabulary/2","pairs":[]}', "isn't of the format"),
        (b'{"format":"falaj.vocabulary/1","pairs":[],"more":1}', "isn't of the format"),
        (_document({}), "lists of two numbers"),
        (_document([[1]]), "lists of two numbers"),
        (_document([[1, 2, 3]]), "lists of two numbers"),
        (_document([[1, True]]), "lists of two numbers"),
        (_document([[1.0, 2]]), "lists of two numbers"),
        (_document([["a", "b"]]), "lists of two numbers"),
        (_document([[-1, 2]]), "token 256 is made of -1 and 2"),
        (_document([[1, 256]]), "token 256 is made of 1 and 256"),
        (_document([[1, 10**400]]), "isn't JSON|token 256 is made of"),
        (_document([[1, 2], [1, 2]]), "token 257 is there twice"),
        (_document([[1, 2], [2, 3], [256, 3], [1, 257]]), "token 259 is there twice"),
        (_document(DOUBLING), "token 263 has more than 132 bytes"),
        (_document([[0, 0]] * 65_281), "has 65,537 tokens; allowed are 65,536"),
    ],
)
def test_what_is_no_vocabulary_is_refused_by_name(data: bytes, why: str) -> None:
    with pytest.raises(WorkloadError, match=why):
        of_bytes(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)
PAIRS = st.lists(st.tuples(st.integers(-1, 270), st.integers(-1, 270)), max_size=12)


@given(
    st.binary(max_size=60)
    | JSON.map(lambda each: json.dumps(each).encode())
    | JSON.map(_document)
    | PAIRS.map(_document)
)
def test_whatever_is_given_is_a_vocabulary_or_refused(data: bytes) -> None:
    try:
        found = of_bytes(data)
    except WorkloadError as error:
        assert "the vocabulary can't be used" in str(error)
        return
    assert of_bytes(found.to_bytes()) == found
    assert found.decode(found.encode("قهوة ☕")) == "قهوة ☕"
