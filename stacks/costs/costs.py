"""What a stack costs, from its resources: its charges, and what nobody knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from falaj.policies.model import Resource, Stack
from falaj.policies.reading.place import place_of
from falaj.stacks.costs import billing, machines, machines_azure, shares
from falaj.stacks.costs.billing import Charge
from falaj.stacks.costs.prices import NO_PRICES, Prices
from falaj.stacks.costs.pricing import Line, line
from falaj.stacks.costs.report import Costs, Unclassified
from falaj.stacks.resources import State, made_by_others, stack_of

#: Types whose amounts take more than a row of a table to read.
READERS: Final = {**machines.READERS, **machines_azure.READERS, **shares.READERS}


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
