"""Units that clouds bill by: a thing, a time, or a thing for a time."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from falaj.components.catalogue.cost import HOURS_PER_MONTH

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
