"""Documents of JSON are read as the RFCs have it, and otherwise refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.documents import TwiceError, parse_json

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(VALUES, st.booleans(), st.booleans())
def test_what_is_written_is_read(value: Any, escaped: bool, marked: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    assert parse_json(text) == value
    assert parse_json((b"\xef\xbb\xbf" if marked else b"") + text.encode()) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NaN", "NaN is no number"),
        ("[-Infinity]", "-Infinity is no number"),
        ("1e999", "1e999 is beyond the numbers of 64 bits"),
        ('{"a": -1e400}', "-1e400 is beyond"),
        ("1." + "9" * 5_000 + "e308", r"^1\.9{38} is beyond"),
        ("1" * 5_000, "Exceeds the limit"),
        (b'"\xed\xa0\x80"', "can't decode byte 0xed"),
        ('{"a": 1}'.encode("utf-16"), "can't decode byte 0xff"),
        ('{"a": 1}'.encode("utf-32-le"), "Expecting property name|Extra data|Invalid"),
        ("01", "Extra data"),
        ("", "Expecting value"),
        ("{} {}", "Extra data"),
        ('"\t"', "Invalid control character"),
    ],
)
def test_what_is_none_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text)


@pytest.mark.parametrize(
    "text", ['{"a":1,"\\u0061":2}', '[{"": 1, "": 1}]', '{"a":{"b":1,"b":1}}']
)
def test_a_key_stands_once(text: str) -> None:
    with pytest.raises(TwiceError, match="stands twice in one object"):
        parse_json(text)


def test_what_is_nested_without_end_is_refused() -> None:
    with pytest.raises(RecursionError):
        parse_json("[" * 100_000)
