"""What a person probably meant: the values to write in place of one that was refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.components.specification.limits import Between
from falaj.stacks.settings.document import decimal
from falaj.stacks.settings.shapes import (
    Choice,
    Either,
    Flag,
    Items,
    Key,
    Number,
    Shape,
    Text,
    choices,
    example,
)
from falaj.stacks.settings.suggestions import closest
from falaj.wire.documents import is_mapping, is_sequence

#: What people and YAML 1.1 write for truth values.
_TRUTHS: Final = {
    **dict.fromkeys(("true", "yes", "y", "on", "1", "enabled"), True),
    **dict.fromkeys(("false", "no", "n", "off", "0", "disabled"), False),
}


def meant(shape: Shape, given: Any) -> Iterator[Any]:
    """Values of a shape that a wrong one may stand for, the likeliest first."""
    for each in choices(shape):
        match each:
            case Choice(values):
                found = closest(given, [str(value) for value in values])
                yield from (value for value in values if str(value) == found)
            case Flag():
                text = closest(str(given).strip().casefold(), _TRUTHS)
                if not (is_mapping(given) or is_sequence(given)) and text is not None:
                    yield _TRUTHS[text]
            case Number(whole, limits):
                yield from _numbers(given, whole, limits)
            case Text(rule, _):
                yield from _texts(given, rule.allows if rule else bool)
            case Items(of) if not (is_mapping(given) or is_sequence(given)) and given is not None:
                yield [given]
                yield from ([inner] for inner in meant(of, given))
            case _:
                pass


def instead(key: Key | None, shape: Shape, given: Any, name: str = "") -> Iterator[Any]:
    """As `meant`, and after that what is allowed at all: the default, then an example."""
    yield from meant(shape, given)
    if key is not None and key.default is not None and not isinstance(shape, Either):
        yield key.default
    if key is None or key.required:
        yield key.example if key and key.example else example(shape, name)


def _numbers(given: Any, whole: bool, limits: Between | None) -> Iterator[int | float]:
    number = given if isinstance(given, int | float) and not isinstance(given, bool) else None
    if isinstance(given, str):
        number = decimal(given.strip().replace(",", ""))
    if number is None or number != number:  # noqa: PLR0124 - no NaN
        return
    if limits is not None:
        number = min(max(number, limits.low), limits.high)
        if limits.above and number <= limits.low:
            return
    if abs(number) < float("inf"):
        yield round(number) if whole or float(number).is_integer() else number


def _texts(given: Any, allows: Any) -> Iterator[str]:
    """Texts of the form that come from another spelling."""
    if is_mapping(given) or is_sequence(given) or given is None:
        return
    text = str(given).strip()
    lower = text.lower()
    dashed = re.sub(r"[^a-z0-9]+", "-", lower).strip("-")
    for each in (text, lower, dashed, re.sub(r"[^a-z0-9]", "", lower)):
        if each and allows(each):
            yield each
