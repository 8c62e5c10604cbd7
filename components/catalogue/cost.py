"""What machines cost, from the catalogue's list prices; unknown stays unknown."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from falaj.components.catalogue.machines import MachineType
from falaj.components.catalogue.sources import DemandError

HOURS_PER_MONTH: Final = 730
"""Hours that the clouds' own calculators count in a month: 8,760 / 12."""

CAPACITIES: Final = ("on-demand", "spot", "reservation", "capacity-block")


@dataclass(frozen=True)
class Cost:
    """US dollars per hour and month, without taxes, disks, traffic and support."""

    hourly: Decimal | None
    """None: unknown."""
    source: str | None
    """Id of the price's source."""
    as_of: str
    """Date of the price."""

    @property
    def monthly(self) -> Decimal | None:
        """For 730 hours; None where the hourly price is unknown."""
        return None if self.hourly is None else self.hourly * HOURS_PER_MONTH

    def __str__(self) -> str:
        if self.hourly is None or self.monthly is None:
            return "cost unknown"
        return (
            f"USD {self.hourly:,.2f} per hour, {self.monthly:,.0f} per month "
            f"(list price, {self.as_of})"
        )


@dataclass(frozen=True)
class CostRange:
    """From the fewest to the most nodes of a pool."""

    least: Cost
    most: Cost

    def __str__(self) -> str:
        if self.least.hourly == self.most.hourly:
            return str(self.most)
        least, most = self.least, self.most
        if least.hourly is None or most.hourly is None:
            return f"{least} to {most}"
        return (
            f"USD {least.hourly:,.2f} to {most.hourly:,.2f} per hour, "
            f"{least.monthly:,.0f} to {most.monthly:,.0f} per month "
            f"(list price, {most.as_of})"
        )


def pool(machine: MachineType, nodes: int, capacity: str = "on-demand") -> Cost:
    """What so many machines cost while they run.

    Args:
        machine: the machine type.
        nodes: how many; 0 costs nothing.
        capacity: ``on-demand``, ``spot``, ``reservation`` or ``capacity-block``. Only on-demand
            prices are known: every other one is unknown.

    Raises:
        DemandError: for a negative number of nodes or an unknown capacity.
    """
    if nodes < 0:
        raise DemandError(f"nodes is {nodes}; allowed: 0 or more")
    if capacity not in CAPACITIES:
        raise DemandError(f"capacity is {capacity!r}; allowed: {', '.join(CAPACITIES)}")
    price = machine.usd_per_hour if capacity == "on-demand" else None
    hourly = Decimal(0) if nodes == 0 else None if price is None else price * nodes
    return Cost(hourly, machine.price_source if price is not None else None, machine.prices_as_of)


def span(
    machine: MachineType, min_nodes: int, max_nodes: int, capacity: str = "on-demand"
) -> CostRange:
    """What a pool that scales between two sizes costs at the least and at the most.

    Raises:
        DemandError: see `pool`; also when ``min_nodes`` is above ``max_nodes``.
    """
    if min_nodes > max_nodes:
        raise DemandError(
            f"min_nodes is {min_nodes} and max_nodes is {max_nodes}; allowed: min_nodes at most "
            "max_nodes"
        )
    return CostRange(pool(machine, min_nodes, capacity), pool(machine, max_nodes, capacity))
