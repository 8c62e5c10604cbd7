"""Finds what a charge costs: one's own price, else the catalogue's, else nobody knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

from falaj.components import catalogue
from falaj.components.catalogue.cost import HOURS_PER_MONTH
from falaj.stacks.costs.amounts import Unit
from falaj.stacks.costs.billing import Charge
from falaj.stacks.costs.prices import OwnPrice, Price, Prices

_HOUR = Unit.of("hour")


@dataclass(frozen=True)
class Line:
    """One charge with its price, where that is known."""

    charge: Charge
    place: str
    """Where the resource is, as ``aws/me-central-1``; empty where nobody says."""
    prices: tuple[Price, ...] = ()
    """One for each machine type of which a machine may be, else one; empty where unknown."""
    expected: Decimal | None = None
    """Units that are expected in a month, where only use decides and a price file says so."""
    why_unknown: str = ""
    """Why there is no price."""

    @property
    def is_by_use(self) -> bool:
        """Whether only its use decides, and nobody says how much that will be."""
        return self.charge.amount.is_by_use and self.expected is None

    @property
    def least(self) -> Decimal | None:
        """US dollars an hour at least; None where unknown."""
        return self._cost(self.charge.amount.least, min)

    @property
    def most(self) -> Decimal | None:
        """US dollars an hour at most; None where unknown."""
        return self._cost(self.charge.amount.most, max)

    def _cost(
        self, amount: Decimal | None, choose: Callable[[Iterable[Decimal]], Decimal]
    ) -> Decimal | None:
        if amount == 0:
            return Decimal(0)
        if self.prices and self.expected is not None:
            return self.expected * self.prices[0].usd / HOURS_PER_MONTH
        if not self.prices or amount is None:
            return None
        return choose(amount * each.usd / each.unit.hours for each in self.prices)


def line(charge: Charge, places: Sequence[str], prices: Prices) -> Line:
    """The charge with its price.

    Args:
        charge: what is billed.
        places: where its resource is, the most exact first.
        prices: of one's own.

    Raises:
        PriceError: two entries of the price file are for the same.
    """
    place = places[0] if places else ""
    if charge.is_machines:
        return _machines(charge, place, places, prices)
    own = prices.of_meter(charge.priced_as, charge.meter, charge.variant, places)
    if own is None:
        return Line(charge, place, why_unknown="no price file states it")
    return _own_line(charge, place, own)


def _own_line(charge: Charge, place: str, own: OwnPrice) -> Line:
    expected = own.expected if charge.amount.is_by_use else None
    return Line(charge, place, (own.price,), expected)


def _machines(charge: Charge, place: str, places: Sequence[str], prices: Prices) -> Line:
    found: list[Price] = []
    for name in charge.machines:
        own = prices.of_machine(name, charge.capacity, places)
        price = own.price if own else _listed(name, charge, places)
        if price is None:
            return Line(charge, place, why_unknown=_why(name, charge, place))
        found.append(price)
    why = "" if found else charge.note or "the machine type can't be seen"
    return Line(charge, place, tuple(found), why_unknown=why)


def _listed(name: str, charge: Charge, places: Sequence[str]) -> Price | None:
    if charge.capacity != "on-demand" or not charge.has_list_price:
        return None
    for place in places:
        found = _machine(place, name)
        if found is not None and found.usd_per_hour is not None:
            source = f"list price of {place} ({found.price_source})"
            return Price(found.usd_per_hour, _HOUR, source, found.prices_as_of)
    return None


def _why(name: str, charge: Charge, place: str) -> str:
    if charge.capacity not in {"", "on-demand"}:
        return f"no source states prices of {charge.capacity} machines"
    if charge.note:
        return charge.note
    if _machine(place, name) is None:
        return f"the catalogue has no {name} at {place or 'a place that nobody names'}"
    return f"no source states the price of {name}"


@cache
def _machine(place: str, name: str) -> catalogue.MachineType | None:
    """A machine type of the catalogue, whatever the letter case of its name."""
    for each in catalogue.all_places():
        if each.name == place:
            found = (one for one in each.machines() if one.name.lower() == name.lower())
            return next(found, None)
    return None
