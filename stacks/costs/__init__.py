"""What stacks cost at least and at most, from their resources: known prices, and the rest named.

>>> from falaj.stacks import costs
>>> found = costs.of([], place="aws/me-central-1")
>>> found.summary()
'USD 0.00 per hour (0 per month)'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from falaj.policies.model import Resource, Stack
from falaj.policies.reading.place import place_of
from falaj.stacks.costs import billing
from falaj.stacks.costs.billing import Billed, Charge, Meter, billed
from falaj.stacks.costs.machines import ONE, READERS
from falaj.stacks.costs.prices import NO_PRICES, Price, PriceError, Prices, read_prices
from falaj.stacks.costs.pricing import Line, line
from falaj.stacks.costs.report import Costs, Total, Unclassified
from falaj.stacks.resources import State, made_by_others, stack_of

__all__ = [
    "NO_PRICES",
    "Billed",
    "Charge",
    "Costs",
    "Line",
    "Meter",
    "Price",
    "PriceError",
    "Prices",
    "Total",
    "Unclassified",
    "billed",
    "of",
    "read_prices",
]


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
            found = [Charge(each, each.package, each.kind, unit, ONE)]
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
