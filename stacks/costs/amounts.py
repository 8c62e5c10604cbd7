"""How much of something there is, at least and at most, and the units that it is counted in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, cast

from falaj.components.catalogue.cost import HOURS_PER_MONTH
from falaj.policies.model import ABSENT, get, is_list, is_unknown

_ROOT: Final = "^"
#: Kubernetes' suffixes of sizes, in GiB, and of parts of processors
#: (https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/).
_SUFFIXES: Final = {
    **{f"{letter}i": Decimal(2) ** (10 * power - 20) for power, letter in enumerate("KMGTPE")},
    **{letter: Decimal(1000) ** (power + 1) / 2**30 for power, letter in enumerate("kMGTPE")},
    "m": Decimal("0.001"),
}
_QUANTITY: Final = re.compile(r"(\d{1,24}(?:\.\d{1,24})?)([A-Za-z]{0,2})", re.ASCII)
#: More of anything than there is: what is beyond it is no amount.
_MOST: Final = Decimal(10) ** 24


@dataclass(frozen=True)
class Amount:
    """From the fewest to the most; None where that can't be seen."""

    least: Decimal | None
    most: Decimal | None
    is_by_use: bool = False
    """Whether only its use decides, so that there is no least and no most."""

    @property
    def is_known(self) -> bool:
        """Whether both ends can be seen."""
        return self.least is not None and self.most is not None


UNSEEN: Final = Amount(None, None)


def by_use() -> Amount:
    """An amount that only its use decides."""
    return Amount(None, None, is_by_use=True)


def exactly(value: int | Decimal | None) -> Amount:
    """One amount, or one that can't be seen."""
    return Amount(known(value), known(value))


def known(value: int | Decimal | None) -> Decimal | None:
    """A number as amounts have it."""
    return None if value is None else Decimal(value)


def product(*parts: Amount) -> Amount:
    """The amounts multiplied; nothing of something unseen is nothing."""
    return Amount(
        _product([each.least for each in parts]), _product([each.most for each in parts])
    )


def _product(parts: Sequence[Decimal | None]) -> Decimal | None:
    if any(each == 0 for each in parts):
        return Decimal(0)
    found = Decimal(1)
    for each in parts:
        if each is None:
            return None
        found *= each
    return found


def number(value: object) -> Decimal | None:
    """A count or a size as properties have it: ``3``, ``"3"``, ``"500m"``, ``"4Gi"`` (4, in GiB).

    None for anything else, and for numbers below 0.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            found = Decimal(str(value))
        except InvalidOperation:
            return None
        return found if found.is_finite() and 0 <= found <= _MOST else None
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or (match[2] and match[2] not in _SUFFIXES):
        return None
    found = Decimal(match[1]) * _SUFFIXES.get(match[2], Decimal(1))
    return found if found <= _MOST else None


def measure(given: Any, block: Any, root: Mapping[str, Any]) -> Amount:
    """What an ``amount`` of a table (README.md) is for a resource.

    Args:
        given: the amount's own words.
        block: the properties, or a part of them, that its paths start from.
        root: the resource's properties, for paths that begin with ``^``.
    """
    if given == "use":
        return by_use()
    if given == "unknown":
        return UNSEEN
    if isinstance(given, int | float):
        return exactly(number(given))
    if isinstance(given, str):
        return exactly(number(_at(given, block, root)))
    if isinstance(given, list):
        return product(*(measure(each, block, root) for each in cast("list[Any]", given)))
    return _measured(cast("Mapping[str, Any]", given), block, root)


def _at(path: str, block: Any, root: Mapping[str, Any]) -> Any:
    return get(root, path[1:]) if path.startswith(_ROOT) else get(block, path)


def _measured(given: Mapping[str, Any], block: Any, root: Mapping[str, Any]) -> Amount:
    if "least" in given:
        least, most = (measure(given[key], block, root) for key in ("least", "most"))
        return Amount(least.least, most.most)
    if "first" in given:
        found = next((each for each in given["first"] if _at(each, block, root) is not ABSENT), "")
        return measure(found, block, root) if found else UNSEEN
    if "count" in given:
        value = _at(given["count"], block, root)
        if value is ABSENT and "absent" in given:
            return exactly(given["absent"])
        return UNSEEN if is_unknown(value) or not is_list(value) else exactly(len(value))
    inner = given["of"]
    absent = isinstance(inner, str) and _at(inner, block, root) is ABSENT
    found = (
        exactly(number(given["absent"]))
        if absent and "absent" in given
        else measure(inner, block, root)
    )
    return Amount(_adjusted(found.least, given), _adjusted(found.most, given))


def _adjusted(value: Decimal | None, given: Mapping[str, Any]) -> Decimal | None:
    if value is None:
        return None
    found = value + Decimal(given.get("plus", 0))
    return found * Decimal(given.get("times", 1)) / Decimal(given.get("divide", 1))


# Units that clouds bill by: a thing, a time, or a thing for a time.

#: Hours of each period; a month and a year as the clouds' own calculators count them.
HOURS: Final = {
    "second": Decimal(1) / 3600,
    "minute": Decimal(1) / 60,
    "hour": Decimal(1),
    "day": Decimal(24),
    "month": Decimal(HOURS_PER_MONTH),
    "year": Decimal(HOURS_PER_MONTH * 12),
}


@dataclass(frozen=True)
class Unit:
    """What one price is for: ``hour``, ``GiB-month``, ``request``."""

    thing: str
    """``GiB``, ``request``; empty where the resource itself is billed by time."""
    period: str
    """A key of `HOURS`; empty where something is billed once, when it is used."""

    @classmethod
    def of(cls, text: str) -> Unit:
        """The unit that a text names."""
        thing, _, last = text.rpartition("-")
        return cls(thing, last) if last in HOURS else cls(text, "")

    def __str__(self) -> str:
        return "-".join(part for part in (self.thing, self.period) if part)

    @property
    def hours(self) -> Decimal:
        """The hours of its period. Only for units with one."""
        return HOURS[self.period]

    def converts_from(self, other: Unit) -> bool:
        """Whether a price for the other unit can be told for this one: the same thing, by time."""
        if self == other:
            return True
        return bool(self.period and other.period) and self.thing == other.thing
