"""Numbers as people and spreadsheets write them: decimal commas, currencies, Arabic digits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal

Mark = Literal[".", ","]
"""What stands before the decimals."""

ARABIC_DIGITS: Final = "٠١٢٣٤٥٦٧٨٩"
PERSIAN_DIGITS: Final = "۰۱۲۳۴۵۶۷۸۹"
_SAME: Final = str.maketrans(
    ARABIC_DIGITS + PERSIAN_DIGITS + "٪\u2212\u00a0\u202f\u2009\u2019",
    "0123456789" * 2 + "%-   '",
)
#: Marks of Arabic numbers, which mean one thing only.
_ARABIC_DECIMAL: Final = "\u066b"
_ARABIC_THOUSANDS: Final = "\u066c"
_ARABIC_FRACTION: Final = re.compile(f"{_ARABIC_DECIMAL}(\\d*)")
_INVISIBLE: Final = re.compile("[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")

#: Units that may stand before or after an amount. They say nothing that a column of one currency
#: or of per cent doesn't say of all its rows.
_UNITS: Final = re.compile(
    r"(?:AED|SAR|QAR|KWD|BHD|OMR|EGP|JOD|USD|EUR|GBP|INR|PKR|CHF|Dhs?\.?|SR|\$|€|£|₹|%"
    r"|د\.إ\.?|ر\.س\.?|ر\.ق\.?|د\.ك\.?|د\.ب\.?|ر\.ع\.?|ج\.م\.?|درهم|ريال|دينار)",
    re.IGNORECASE,
)
#: Other ways to write a currency; "" for a word that several countries call theirs.
_SAME_UNITS: Final = {
    "DH": "AED", "DHS": "AED", "د.إ": "AED", "درهم": "AED", "SR": "SAR", "ر.س": "SAR",
    "ر.ق": "QAR", "د.ك": "KWD", "د.ب": "BHD", "ر.ع": "OMR", "ج.م": "EGP", "$": "USD", "€": "EUR",
    "£": "GBP", "₹": "INR", "ريال": "", "دينار": "",
}  # fmt: skip
#: Nobody groups digits behind a zero: "0,125" is an eighth, and "050 123 456" a telephone's.
_POINT: Final = re.compile(
    r"[+-]?(?:(?:[1-9]\d{0,2}(?:[,' ]\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
)
_COMMA: Final = re.compile(
    r"[+-]?(?:(?:[1-9]\d{0,2}(?:[.' ]\d{3})+|\d+)(?:,\d*)?|,\d+)(?:[eE][+-]?\d+)?"
)
_LEAST_CODE: Final = 3
"""Digits of a code; of fewer, zeros stand before months and hours."""


def bare(text: str) -> str:
    """Return a written number in Latin digits without its unit; other texts come out as texts.

    >>> bare("AED 1,200.50"), bare("(٣٥٪)")
    ('1,200.50', '-35')
    """
    return _parted(text)[0]


def units(texts: Iterable[str]) -> set[str]:
    """Return the units that ``texts`` have; of a currency its code, whatever way it is written.

    >>> sorted(units(["Dhs. 5", "7 AED", "8 %", "9"]))
    ['%', 'AED']
    """
    found = {_parted(text)[1].upper().rstrip(".") for text in texts}
    return {_SAME_UNITS.get(each, each) for each in found} - {""}


def are_codes(texts: Iterable[str]) -> bool:
    """Tell whether ``texts`` are digits of one length, zeros before some: no numbers, but names.

    A postal code, an article or a telephone is nothing to add up, and its zeros belong to it.
    """
    lengths, padded = set[int](), False
    for text in texts:
        if not text.isdecimal():
            return False
        lengths.add(len(text))
        padded = padded or float(text[0]) == 0
    return padded and len(lengths) == 1 and min(lengths) >= _LEAST_CODE


def _parted(text: str) -> tuple[str, str]:
    """A number in Latin digits, and its unit; "" where it has none."""
    text = _INVISIBLE.sub("", text).translate(_SAME).strip()
    if _ARABIC_DECIMAL in text or _ARABIC_THOUSANDS in text:
        # Four zeros more, so that a point before three digits isn't taken for one of thousands.
        text = _ARABIC_FRACTION.sub(r".\g<1>0000", text.replace(_ARABIC_THOUSANDS, ""))
    text = _signed(text)
    found = _UNITS.search(text)
    if found is not None:
        unit, behind = found[0], text[found.end() :]
        rest = (text[: found.start()].strip(), behind.strip())
        # "SR-101" is a code; "SR -101" and "$-101" are amounts.
        is_code = unit[-1].isalpha() and behind.startswith("-")
        if ("" in rest or rest[0] in "+-") and not is_code:
            return _signed("".join(rest)), unit
    return text, ""


def _signed(text: str) -> str:
    """Accountants write negative amounts in brackets."""
    return f"-{text[1:-1].strip()}" if text.startswith("(") and text.endswith(")") else text


def most_used(clear: Counter[Mark]) -> Mark:
    """The mark that more columns have, by how many have which; as many of both: the point."""
    return "," if clear[","] > clear["."] else "."


def readings(texts: Iterable[str]) -> set[Mark]:
    """Return which decimal marks fit all of ``texts``, which `bare` has returned."""
    fitting: set[Mark] = {".", ","}
    for text in texts:
        if not any(letter.isdigit() for letter in text):
            return set()
        if "." in fitting and not _POINT.fullmatch(text):
            fitting.discard(".")
        if "," in fitting and not _COMMA.fullmatch(text):
            fitting.discard(",")
        if not fitting:
            break
    return fitting


def number(text: str, mark: Mark) -> float:
    """Return the number that ``text``, which fits ``mark``, says."""
    for separator in ("'", " ", "." if mark == "," else ","):
        text = text.replace(separator, "")
    return float(text.replace(",", "."))
