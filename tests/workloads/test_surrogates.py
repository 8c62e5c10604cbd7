"""Halves of surrogate pairs are found wherever they stand; each text has bytes of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.surrogates import bytes_of, half_of_pair

any_text = st.text(st.characters(codec=None, exclude_categories=()))


@pytest.mark.parametrize("half", [0xD800, 0xDBFF, 0xDC00, 0xDFFF])
def test_half_of_a_character_is_found(half: int) -> None:
    assert half_of_pair(f"ab\N{GRINNING FACE}{chr(half)}\ud801") == chr(half)


@pytest.mark.parametrize("text", ["", "a", "\ud7ff\ue000", "\N{GRINNING FACE}", "\0"])
def test_whole_characters_have_none(text: str) -> None:
    assert half_of_pair(text) is None


@given(any_text)
def test_a_text_has_a_half_where_utf_8_cannot_have_it(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        assert half_of_pair(text) == text[error.start]
    else:
        assert half_of_pair(text) is None


@given(any_text, any_text)
def test_each_text_has_bytes_of_its_own(one: str, other: str) -> None:
    assert (bytes_of(one) == bytes_of(other)) == (one == other)
    assert bytes_of(one).decode("utf-8", "surrogatepass") == one
