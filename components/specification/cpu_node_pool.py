"""Arguments of `CpuNodePool`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

from falaj.components import catalogue
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import Hint, OneOf
from falaj.components.specification.machine_choice import (
    ARCHITECTURES,
    INT8,
    MEMORY_GIB,
    VCPU,
    checked_subnets,
    chosen_machine,
    cpu_demand,
    machine_notes,
    machine_zones,
)
from falaj.components.specification.node_pools import (
    CAPACITY,
    CEILING,
    DISK_GIB,
    FLAVOR,
    NODES,
    POOL,
    SYSTEM,
    NodePoolArgs,
    NodePoolSpec,
    checked_labels,
    checked_pool_name,
    checked_size,
    checked_taints,
    refuse_spot_for,
    refuse_unsold_capacity,
    refuse_updates_of_spot,
)
from falaj.components.specification.node_pools import INT8 as INT8_LABEL
from falaj.components.specification.placed import check_placed

CAPACITIES = OneOf(
    ("on-demand", "spot"),
    dict.fromkeys(("reservation", "capacity-block"), Hint("reservations are for GPU pools")),
)


@described
class CpuNodePoolArgs(NodePoolArgs):
    """Arguments of `CpuNodePool`."""

    vcpu: NotRequired[Annotated[int, VCPU, Default(4)]]
    """Virtual CPUs of each machine."""
    memory_gib: NotRequired[Annotated[int, MEMORY_GIB]]
    """Least memory of each machine in GiB. Default: whatever the cheapest has."""
    int8: NotRequired[Annotated[str, INT8, Default("any")]]
    """Instructions for whole numbers of 8 bits that each machine must have."""
    arch: NotRequired[Annotated[str, ARCHITECTURES]]
    """Architecture. Default: ``x86_64``, or what ``int8`` implies."""
    capacity: NotRequired[Annotated[str, CAPACITIES, Default("on-demand")]]
    """How the machines are bought."""
    min_nodes: NotRequired[Annotated[int, NODES, Default(1)]]
    max_nodes: NotRequired[Annotated[int, CEILING, Default(3)]]
    disk_gib: NotRequired[Annotated[int, DISK_GIB, Default(100)]]
    system: NotRequired[Annotated[bool, Default(value=False)]]
    """Whether it carries the cluster's own add-ons."""


@dataclass(frozen=True, kw_only=True)
class CpuNodePoolSpec(NodePoolSpec):
    """The plain arguments of `CpuNodePool`, checked."""


def check(cloud: str, name: str, args: CpuNodePoolArgs) -> CpuNodePoolSpec:
    """Check what is plain in a pool's arguments, and find the machine and its zones.

    Args:
        cloud: ``aws`` or ``azure``.
        name: the component's name.
        args: its arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"CpuNodePool {name!r}")
    given: Mapping[str, Any] = args
    checked = errors.checked(given, CpuNodePoolArgs, cloud)
    checked_pool_name(cloud, name, errors)
    placed = check_placed(cloud, given, errors)
    refuse_updates_of_spot("max_unavailable", cloud, checked, errors)
    capacity: str = checked["capacity"]
    system: bool = checked["system"]
    size = checked_size(checked, given, errors)
    labels = checked_labels(given, errors)
    taints = checked_taints(given, errors)
    demand = cpu_demand(given, checked, errors)
    machine = None
    if placed and demand:
        machine = chosen_machine(placed, given, errors, blame="vcpu", **demand)
    zones: tuple[str, ...] = ()
    if placed and machine:
        refuse_spot_for(placed.data_class, capacity, errors)
        refuse_unsold_capacity(capacity, machine.name, machine.usage_classes, errors)
        zones = machine_zones(placed, given, machine, errors)
        checked_subnets(given, "node_subnet_ids", zones, errors)
    if system and capacity == "spot":
        errors.add(
            "capacity", "spot", "on-demand, for a pool with 'system'",
            "the cluster's own add-ons would go down with it",
        )  # fmt: skip
    if system and size.least == 0:
        errors.add(
            "min_nodes", 0, "1 or more, for a pool with 'system'",
            "the cluster's own add-ons need somewhere to run",
        )  # fmt: skip
    errors.raise_if_any()
    if placed is None or machine is None:
        raise AssertionError("what can't be used was refused")
    return CpuNodePoolSpec(
        args=checked,
        placed=placed,
        name=name,
        machine=machine,
        zones=zones,
        size=size,
        labels={**labels, **_own_labels(name, machine, capacity, system=system)},
        taints=taints,
        notes=tuple(machine_notes(machine, placed, zones)),
    )


def _own_labels(
    name: str, machine: catalogue.MachineType, capacity: str, *, system: bool
) -> dict[str, str]:
    int8 = machine.instruction_sets.int8 or "none"
    labels = {POOL: name, FLAVOR: f"cpu-{machine.arch.replace('_', '-')}", CAPACITY: capacity}
    return {**labels, INT8_LABEL: int8, **({SYSTEM: "true"} if system else {})}
