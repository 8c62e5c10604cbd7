"""What a stack costs at least and at most: its lines, its totals, and what nobody knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from falaj.components.catalogue.cost import HOURS_PER_MONTH
from falaj.policies.model import Resource, Stack, is_unknown, text
from falaj.policies.reading.place import place_of
from falaj.policies.reading.tags import tags_of
from falaj.stacks.costs import billing, machines, machines_azure, report, shares
from falaj.stacks.costs.billing import Charge
from falaj.stacks.costs.prices import NO_PRICES, Prices
from falaj.stacks.costs.pricing import Line, line
from falaj.stacks.resources import State, made_by_others, stack_of

#: Types whose amounts take more than a row of a table to read.
READERS: Final = {**machines.READERS, **machines_azure.READERS, **shares.READERS}
#: Tags and labels that say who pays, the first that is there.
COST_CENTER: Final = ("falaj:cost-center", "falaj.io/cost-center", "cost-center", "costCenter")


@dataclass(frozen=True)
class Unclassified:
    """A resource of a type that no table knows, and for which no price file has a price."""

    resource: Resource

    @property
    def type(self) -> str:
        """Its type, as the engine writes it."""
        return self.resource.type


@dataclass(frozen=True)
class Total:
    """Sums of what is known, in US dollars an hour."""

    least: Decimal
    most: Decimal

    @property
    def monthly_least(self) -> Decimal:
        """At least, for a month of 730 hours."""
        return self.least * HOURS_PER_MONTH

    @property
    def monthly_most(self) -> Decimal:
        """At most, for a month of 730 hours."""
        return self.most * HOURS_PER_MONTH


@dataclass(frozen=True)
class Costs:
    """What a stack costs."""

    name: str
    """Of the stack; empty where nobody says."""
    place: str
    lines: tuple[Line, ...]
    """Every charge, in the order of its resource's URN."""
    unclassified: tuple[Unclassified, ...]
    """Resources of which nobody knows whether they cost."""
    free: int
    """How many resources cost nothing by themselves."""
    runs_on_machines_of_others: bool = False
    """Whether it has objects of a cluster whose machines another stack, or nobody here, has."""

    @property
    def total(self) -> Total:
        """The sum of every line whose price and amount are known, at its least and its most."""
        return total_of(self.lines)

    @property
    def unknown(self) -> tuple[Line, ...]:
        """Lines that have no price or no amount, so that no total has them whole."""
        return tuple(
            each
            for each in self.lines
            if not each.is_by_use and (each.least is None or each.most is None)
        )

    @property
    def by_use(self) -> tuple[Line, ...]:
        """Lines that only use decides, for which nobody said how much is expected."""
        return tuple(each for each in self.lines if each.is_by_use)

    def by_cost_center(self) -> dict[str, Total]:
        """Totals by the tag that says who pays (`COST_CENTER`); empty text: none says."""
        found: dict[str, list[Line]] = {}
        for each in self.lines:
            found.setdefault(cost_center(each.charge.resource), []).append(each)
        return {name: total_of(found[name]) for name in sorted(found)}

    def summary(self) -> str:
        """The total in one sentence, with the name of everything that it lacks."""
        return report.summary(self)

    def as_text(self, width: int = 80) -> str:
        """Lines and total for a terminal of so many columns (40 at least)."""
        return report.as_text(self, max(width, 40))

    def as_json(self) -> dict[str, Any]:
        """The same as plain data; amounts of money are texts, so that nothing is rounded."""
        return report.as_json(self)

    def as_price_file(self) -> str:
        """A price file (YAML) with a row for each price that is unknown, to be filled in."""
        return report.as_price_file(self)


def total_of(lines: Iterable[Line]) -> Total:
    """The sum of what is known of lines."""
    known = [each for each in lines if not each.is_by_use]
    return Total(
        sum((each.least for each in known if each.least is not None), Decimal(0)),
        sum((each.most for each in known if each.most is not None), Decimal(0)),
    )


def cost_center(resource: Resource) -> str:
    """Who pays for a resource, as its tags or labels say; empty where they don't."""
    tags: Mapping[str, Any] = tags_of(resource) or {}
    found = {**resource.tags, **tags}
    for key in COST_CENTER:
        value = found.get(key)
        if not is_unknown(value) and text(value):
            return text(value)
    return ""


def of(resources: Iterable[State], place: str = "", prices: Prices = NO_PRICES) -> Costs:
    """What a stack costs, from its resources.

    Args:
        resources: as the engine writes them (`falaj.stacks.resources.of_preview`, `of_export`).
            What is only read belongs to others, and costs them.
        place: where resources are that don't say it themselves, as ``aws/me-central-1``.
        prices: of one's own (`read_prices`). Default: the catalogue's list prices alone.

    Raises:
        StackError: the resources can't be read; `PriceError` where two entries of the price file
            are for the same.
    """
    states = list(resources)
    stack = stack_of(states)
    others = made_by_others(states)
    lines: list[Line] = []
    unclassified: list[Unclassified] = []
    free = 0
    for each in sorted(stack.resources, key=lambda one: one.urn):
        if each.urn in others or not each.custom or each.package == "pulumi":
            continue
        places = _places(each, stack, place)
        found = _charges(each, stack)
        if found is None:
            own = prices.of_meter(each.kind, "", (), places)
            if own is None:
                unclassified.append(Unclassified(each))
                continue
            unit = own.price.unit
            found = [Charge(each, each.package, each.kind, unit, machines.ONE)]
        lines += (line(charge, places, prices) for charge in found)
        free += not found
    in_cluster = any(each.package == "kubernetes" for each in stack.resources)
    has_machines = any(each.charge.is_machines for each in lines)
    return Costs(
        stack.name, place, tuple(lines), tuple(unclassified), free, in_cluster and not has_machines
    )


def _charges(resource: Resource, stack: Stack) -> Sequence[Charge] | None:
    """Everything that a resource is charged for; None where nobody knows its type."""
    read = READERS.get(resource.kind)
    listed = billing.charges(resource)
    if read is None and listed is None:
        return None
    return [*(read(resource, stack) if read else ()), *(listed or ())]


def _places(resource: Resource, stack: Stack, place: str) -> tuple[str, ...]:
    """Where prices are looked for: where it is, else where the stack is."""
    own = place_of(resource, stack)
    default = (place,) if place else ()
    if own == "global":
        return (own, *default)
    return default if own in {"none", "unknown"} else (own,)
