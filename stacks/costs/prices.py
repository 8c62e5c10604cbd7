"""Prices of one's own: a file that says what the catalogue doesn't know, or what was negotiated.

::

    rates:
      AED: {perUsd: 3.6725, date: 2026-09-01, source: the Central Bank's peg}
    prices:
      - type: aws:fsx/lustreFileSystem:LustreFileSystem
        meter: storage
        variant: [PERSISTENT_2, 250]
        place: aws/me-central-1
        price: 0.30
        unit: GiB-month
        date: 2026-09-01
        source: calculator, export of 1 September
      - machine: p5en.48xlarge
        capacity: capacity-block
        place: aws/me-central-1
        price: 150000
        currency: AED
        unit: month
        date: 2026-09-01
        source: offer 4711 of the account team

A price is for a type's meter (as `falaj` names it in its list of costs) or for a machine type. It
holds at one place, or at all where none is named.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

from falaj.components import catalogue
from falaj.policies.model import kind_of
from falaj.stacks.costs.billing import billed
from falaj.stacks.costs.price_rows import Entry, PriceError, Read, read
from falaj.stacks.costs.units import Unit

__all__ = ["NO_PRICES", "Price", "PriceError", "Prices", "read_prices"]

_MACHINE_UNITS: Final = "hour"


@dataclass(frozen=True)
class Price:
    """What one unit costs."""

    usd: Decimal
    unit: Unit
    source: str
    """Who says so, in words."""
    as_of: str
    """The day of which the price is, or a range of days."""
    is_own: bool = False
    """Whether it is from a price file, not the catalogue."""


@dataclass(frozen=True)
class OwnPrice:
    """An entry of a price file."""

    price: Price
    at: str
    """``FILE:LINE``."""
    type: str = ""
    meter: str = ""
    machine: str = ""
    capacity: str = ""
    variant: frozenset[str] = frozenset()
    place: str = ""
    negotiated: bool = False
    expected: Decimal | None = None
    """Units that each such resource uses in a month, where only its use decides."""


@dataclass(frozen=True)
class Prices:
    """Prices of one's own; none in the beginning."""

    own: tuple[OwnPrice, ...] = ()

    def of_machine(self, machine: str, capacity: str, places: Iterable[str]) -> OwnPrice | None:
        """The price of a machine type, bought so, at one of these places."""
        found = [
            each
            for each in self.own
            if each.machine.lower() == machine.lower()
            and each.machine
            and each.capacity == capacity
            and each.place in {"", *places}
        ]
        return _most_exact(found)

    def of_meter(
        self, kind: str, meter: str, variant: Iterable[str], places: Iterable[str]
    ) -> OwnPrice | None:
        """The price of a type's meter at one of these places.

        Args:
            kind: the type in its one spelling.
            meter: its name; empty for types that no table knows.
            variant: what else the price depends on, as far as it can be seen.
            places: where it is; more exact entries win over more general ones.

        Raises:
            PriceError: two entries are as exact as each other.
        """
        seen = {each.lower() for each in variant}
        found = [
            each
            for each in self.own
            if each.type == kind
            and each.meter in {"", meter}
            and each.variant <= seen
            and each.place in {"", *places}
        ]
        return _most_exact(found)


NO_PRICES: Final = Prices()


def _most_exact(found: list[OwnPrice]) -> OwnPrice | None:
    def rank(each: OwnPrice) -> tuple[int, bool, bool]:
        return len(each.variant), bool(each.place), bool(each.meter)

    best = [each for each in found if rank(each) == max(map(rank, found))]
    if len(best) > 1:
        raise PriceError(
            f"{best[0].at} and {best[1].at} both give a price for the same "
            f"{best[0].machine or best[0].meter or best[0].type}\n"
            "  name what tells them apart (variant, meter, place), or remove one"
        )
    return best[0] if best else None


def read_prices(path: Path) -> Prices:
    """The prices of a file.

    Args:
        path: the file.

    Raises:
        PriceError: it can't be read, or an entry can't be used; each problem is named with its
            line, what was given and what is allowed.
    """
    given = read(path)
    problems: list[str] = []
    own: list[OwnPrice] = []
    for at, entry in given.entries:
        try:
            own.append(_own(entry, at, given))
        except ValueError as error:
            problems.append(f"{at}: {error}")
    problems += _doubles(own)
    if problems:
        raise PriceError("\n".join(problems))
    return Prices(tuple(own))


def _own(entry: Entry, at: str, given: Read) -> OwnPrice:
    """One entry, checked against what is billed. Raises ValueError with what is wrong."""
    unit = Unit.of(entry.unit)
    usd = entry.price / entry.per
    source = entry.source
    if entry.currency != "USD":
        rate = given.rates.get(entry.currency)
        if rate is None:
            raise ValueError(
                f"currency: given {entry.currency}, and the file states no rate for it; allowed: "
                f"USD, or {entry.currency} with rates: {{{entry.currency}: {{perUsd: …, date: …, "
                "source: …}}"
            )
        usd /= rate.per_usd
        source = f"{source}; {rate.per_usd} {entry.currency} a US dollar ({rate.source})"
    price = Price(usd, unit, source, entry.date.isoformat(), is_own=True)
    found = OwnPrice(
        price, at, kind_of(entry.type) if entry.type else "", entry.meter, entry.machine,
        entry.capacity or ("on-demand" if entry.machine else ""),
        frozenset(each.lower() for each in entry.variant), entry.place, entry.negotiated,
        entry.expected,
    )  # fmt: skip
    if entry.machine:
        _check_machine(found)
    else:
        _check_meter(found)
    return found


def _check_machine(own: OwnPrice) -> None:
    if not Unit.of(_MACHINE_UNITS).converts_from(own.price.unit):
        raise ValueError(
            f"unit: given {own.price.unit}; allowed for a machine: a time, such as hour or month"
        )
    if own.negotiated or own.capacity != "on-demand":
        return
    for place in catalogue.all_places():
        if own.place not in {"", place.name}:
            continue
        listed = next((each for each in place.machines() if each.name == own.machine), None)
        if listed is not None and listed.usd_per_hour is not None:
            raise ValueError(
                f"{own.machine} has a list price at {place.name}: USD {listed.usd_per_hour} an "
                "hour; say negotiated: true to use this price instead, or remove it"
            )


def _check_meter(own: OwnPrice) -> None:
    known = billed(own.type)
    if known is None:
        if own.meter:
            raise ValueError(
                f"meter: given {own.meter!r}, and no table knows what {own.type} is billed by; "
                "leave it out, and give a price for the whole resource"
            )
        if not own.price.unit.period or own.price.unit.thing:
            raise ValueError(
                f"unit: given {own.price.unit}; allowed for a type that no table knows: a time, "
                "such as hour or month, for each resource"
            )
        return
    names = list(dict.fromkeys(each.name for each in known.meters if each.amount != "machines"))
    if known.meters and not names:
        raise ValueError(
            f"type: {own.type} is billed by its machines; give their prices with machine: instead"
        )
    if not names:
        raise ValueError(f"{own.type} costs nothing by itself ({known.source})")
    if not own.meter and len(names) > 1:
        raise ValueError(f"meter: missing; {own.type} is billed by: {', '.join(names)}")
    if own.meter and own.meter not in names:
        raise ValueError(f"meter: given {own.meter!r}; allowed: {', '.join(names)}")
    rows = [each for each in known.meters if own.meter in {"", each.name}]
    if own.expected is not None and not any(each.amount == "use" for each in rows):
        raise ValueError(
            f"expected: {own.type} says itself how much of its {rows[0].name} there is; leave it "
            "out"
        )
    units = [each.unit for each in rows]
    if not any(each.converts_from(own.price.unit) for each in units):
        allowed = ", ".join(dict.fromkeys(map(str, units)))
        raise ValueError(f"unit: given {own.price.unit}; allowed: {allowed}")


def _doubles(own: list[OwnPrice]) -> list[str]:
    seen: dict[tuple[object, ...], str] = {}
    problems: list[str] = []
    for each in own:
        key = (
            each.type,
            each.meter,
            each.machine.lower(),
            each.capacity,
            each.variant,
            each.place,
        )
        if key in seen:
            problems.append(f"{each.at}: {seen[key]} has a price for the same already")
        seen.setdefault(key, each.at)
    return problems
