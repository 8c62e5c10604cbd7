"""Halves of surrogate pairs: what JSON's escapes can name and no file in UTF-8 has.

Characters above U+FFFF are two code units of UTF-16, of which each half is a number kept free in
Unicode and no character: https://www.unicode.org/versions/latest/core-spec/chapter-23/#G24089
"""

from __future__ import annotations


def half_of_pair(text: str) -> str | None:
    """The first half of a character in a text; None: all of its characters are whole."""
    return next((each for each in text if "\ud800" <= each <= "\udfff"), None)


def bytes_of(text: str) -> bytes:
    """A text in UTF-8, halves of characters as if they were some: each text has bytes of its own.

    For digests, and for files that only who wrote them reads.
    """
    return text.encode("utf-8", "surrogatepass")
