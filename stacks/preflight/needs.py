"""The machines that a stack may come to need, at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from falaj.components import catalogue
from falaj.components.catalogue import MachineType
from falaj.components.specification.arguments import with_defaults
from falaj.components.specification.machine_choice import machine_demand
from falaj.stacks.settings import CloudSettings
from falaj.stacks.settings.machines import AskedMachines, asked_machines

_NODES = ("max_nodes", "min_nodes")


@dataclass(frozen=True)
class Need:
    """One pool at its largest."""

    name: str
    machine: MachineType
    zones: tuple[str, ...]
    """Zones that the stack names; empty where it leaves the choice to the component."""
    most: int
    """Machines."""
    spot: bool = False
    reservation_id: str | None = None

    @property
    def vcpus(self) -> int | None:
        """Virtual CPUs of all its machines, which quotas are counted in; None where unknown."""
        return None if self.machine.vcpu is None else self.machine.vcpu * self.most


def needs(settings: CloudSettings, place: catalogue.Place) -> Sequence[Need]:
    """What the pools, or the inference tier, come to.

    Raises:
        CatalogueError: the place doesn't sell what is asked.
    """
    return [_need(machines, place) for machines in asked_machines(settings)]


def _need(machines: AskedMachines, place: catalogue.Place) -> Need:
    args = with_defaults(machines.kind, machines.given)
    if args["machine"] is not None:
        machine = place.machine(args["machine"])
    else:
        machine = place.first(machine_demand(machines.kind, machines.given))
    sizes = ("max_instances", "min_instances") if "max_instances" in args else _NODES
    return Need(
        machines.name,
        machine,
        tuple(args["zones"] or ()),
        max(args[size] for size in sizes),
        args.get("capacity") == "spot",
        args.get("reservation_id"),
    )
