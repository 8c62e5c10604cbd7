"""Amounts in the one form in which Kubernetes itself writes each.

Programs that read an object and write it again, as webhooks do, write 2048Mi as 2Gi and 1000m as
1. What is compared with what they wrote has to be in that form from the beginning:
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from typing import Any, Final

from falaj.wire.documents import is_dictionary, is_sequence

_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_AMOUNT: Final = re.compile(r"([1-9][0-9]*)(m|[KMGTPE]i)")
_LISTS: Final = frozenset({"limits", "requests"})
_SINGLE: Final = "sizeLimit"


def canonical(amount: str) -> str:
    """An amount of thousandths or of powers of 1,024 as Kubernetes writes it; others as they are.

    >>> canonical("2048Mi"), canonical("1500m"), canonical("1000m"), canonical("3")
    ('2Gi', '1500m', '1', '3')
    """
    found = _AMOUNT.fullmatch(amount)
    if found is None:
        return amount
    number, unit = int(found[1]), found[2]
    if unit == "m":
        return amount if number % 1000 else str(number // 1000)
    place = _BINARY.index(unit)
    while number % 1024 == 0 and place < len(_BINARY) - 1:
        number, place = number // 1024, place + 1
    return f"{number}{_BINARY[place]}"


def with_canonical_amounts(value: Any) -> Any:
    """A part of an object, with what pods ask for and are limited to in that form."""
    if is_sequence(value):
        return [with_canonical_amounts(each) for each in value]
    if not is_dictionary(value):
        return value
    found: dict[str, Any] = {}
    for key, each in value.items():
        if key in _LISTS and is_dictionary(each):
            found[key] = {
                name: canonical(amount) if isinstance(amount, str) else amount
                for name, amount in each.items()
            }
        elif key == _SINGLE and isinstance(each, str):
            found[key] = canonical(each)
        else:
            found[key] = with_canonical_amounts(each)
    return found
