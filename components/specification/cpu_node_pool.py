"""Arguments of `CpuNodePool`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired

import pulumi

from falaj.components import catalogue
from falaj.components.specification.cpu_demand import cpu_demand
from falaj.components.specification.described import described
from falaj.components.specification.kubernetes_version import DEFAULT as DEFAULT_VERSION
from falaj.components.specification.kubernetes_version import checked_version
from falaj.components.specification.limits import OneOf
from falaj.components.specification.machine_choice import (
    checked_subnets,
    chosen_machine,
    machine_notes,
    machine_zones,
)
from falaj.components.specification.node_labels import (
    CAPACITY,
    FLAVOR,
    POOL,
    SYSTEM,
    Taint,
    checked_labels,
    checked_taints,
)
from falaj.components.specification.node_labels import INT8 as INT8_LABEL
from falaj.components.specification.node_pools import (
    Size,
    checked_disk,
    checked_pool_name,
    checked_size,
    pool_summary,
    refuse_spot_for,
    refuse_unsold_capacity,
)
from falaj.components.specification.placed import Placed, PlacedArgs, check_placed
from falaj.components.specification.refusals import Refusals


@described
class CpuNodePoolArgs(PlacedArgs):
    """Arguments of `CpuNodePool`."""

    cluster_id: pulumi.Input[str]
    """``Cluster.cluster_id``."""
    node_subnet_ids: pulumi.Input[dict[str, str]]
    """``Network.node_subnet_ids``."""
    node_identity_id: pulumi.Input[str]
    """``Cluster.node_identity_id``."""
    security_group_id: pulumi.Input[str]
    """``Network.security_group_ids["nodes"]``."""
    disk_encryption_id: pulumi.Input[str]
    """``KeyRing.disk_encryption_id``."""
    vcpu: NotRequired[int]
    """Virtual CPUs of each machine. Default: 4."""
    memory_gib: NotRequired[int]
    """Least memory of each machine. Default: whatever the cheapest has."""
    int8: NotRequired[str]
    """Instructions that each machine must have: ``amx``, ``vnni``, ``i8mm`` or ``any``. Default:
    any machine."""
    arch: NotRequired[str]
    """``x86_64`` or ``arm64``. Default: ``x86_64``, or what ``int8`` implies."""
    machine: NotRequired[str]
    """Instance type or VM size. Default: the cheapest that has what is asked."""
    zones: NotRequired[list[str]]
    """Zones to use. Default: every zone of the subnets that is not reported as impaired."""
    capacity: NotRequired[str]
    """``on-demand`` or ``spot``. Default: ``on-demand``."""
    min_nodes: NotRequired[int]
    """Fewest nodes. Default: 1."""
    max_nodes: NotRequired[int]
    """Most nodes. Default: 3."""
    nodes: NotRequired[int]
    """Nodes that the pool shall have; each change of it is brought about. Default: ``min_nodes``
    at first, then the autoscaler decides."""
    disk_gib: NotRequired[int]
    """System disk, encrypted. Default: 100."""
    labels: NotRequired[dict[str, str]]
    """Labels beside Falaj's own. Default: none."""
    taints: NotRequired[list[str]]
    """``key=value:Effect``. Default: none."""
    system: NotRequired[bool]
    """Whether it carries the cluster's own add-ons. Default: false."""
    kubernetes_version: NotRequired[str]
    """Minor version. Default: ``1.35``."""


CAPACITIES = ("on-demand", "spot")


@dataclass(frozen=True)
class CpuNodePoolSpec:
    """The plain arguments of `CpuNodePool`, checked."""

    placed: Placed
    name: str
    machine: catalogue.MachineType
    zones: tuple[str, ...]
    zones_named: bool
    """Whether the user named the zones; else those that the network covers are used."""
    capacity: str
    size: Size
    disk_gib: int
    labels: dict[str, str]
    """Of the user and Falaj's own."""
    taints: tuple[Taint, ...]
    system: bool
    kubernetes_version: str
    notes: tuple[str, ...]
    """What to know before it is made; the component logs them as warnings."""

    @property
    def cost_at_minimum(self) -> catalogue.Cost:
        """What it costs with the fewest nodes."""
        return catalogue.cost.pool(self.machine, self.size.least, self.capacity)

    @property
    def cost_at_maximum(self) -> catalogue.Cost:
        """What it costs with the most nodes."""
        return catalogue.cost.pool(self.machine, self.size.most, self.capacity)

    @property
    def summary(self) -> str:
        """Machine, zones and cost on one line."""
        return pool_summary(
            self.machine, self.zones, self.size, self.cost_at_minimum, self.cost_at_maximum
        )


def check(cloud: str, name: str, args: CpuNodePoolArgs) -> CpuNodePoolSpec:
    """Check what is plain in a pool's arguments, and find the machine and its zones.

    Args:
        cloud: ``aws`` or ``azure``.
        name: the component's name.
        args: its arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    refusals = Refusals(f"CpuNodePool {name!r}")
    given: Mapping[str, Any] = args
    refusals.names(given, CpuNodePoolArgs)
    checked_pool_name(cloud, name, refusals)
    placed = check_placed(cloud, given, refusals)
    capacity: object = given.get("capacity", "on-demand")
    if capacity in ("reservation", "capacity-block"):
        refusals.add("capacity", capacity, OneOf(CAPACITIES), "reservations are for GPU pools")
    else:
        refusals.choice("capacity", capacity, CAPACITIES)
    system = refusals.flag("system", given.get("system", False))
    size = checked_size(given, refusals, least=1, most=3)
    disk = checked_disk(given, refusals, 100)
    labels = checked_labels(given, refusals)
    taints = checked_taints(given, refusals)
    version = checked_version(given.get("kubernetes_version", DEFAULT_VERSION), refusals)
    demand = cpu_demand(given, refusals, vcpu=4, int8="any", arch="x86_64")
    machine = None
    if placed and demand:
        machine = chosen_machine(placed, given, refusals, blame="vcpu", **demand)
    zones: tuple[str, ...] = ()
    if placed and machine:
        refuse_spot_for(placed.data_class, str(capacity), refusals)
        refuse_unsold_capacity(str(capacity), machine.name, machine.usage_classes, refusals)
        zones = machine_zones(placed, given, machine, refusals)
        checked_subnets(given, "node_subnet_ids", zones, refusals)
    if system and capacity == "spot":
        refusals.add(
            "capacity", "spot", "on-demand, for a pool with 'system'",
            "the cluster's own add-ons would go down with it",
        )  # fmt: skip
    if system and size.least == 0:
        refusals.add(
            "min_nodes", 0, "1 or more, for a pool with 'system'",
            "the cluster's own add-ons need somewhere to run",
        )  # fmt: skip
    refusals.raise_if_any()
    if placed is None or machine is None:
        raise AssertionError("what can't be used was refused")
    return CpuNodePoolSpec(
        placed,
        name,
        machine,
        zones,
        given.get("zones") is not None,
        str(capacity),
        size,
        disk,
        {**labels, **_own_labels(name, machine, str(capacity), system)},
        taints,
        system,
        version,
        tuple(machine_notes(machine, placed, zones)),
    )


def _own_labels(
    name: str, machine: catalogue.MachineType, capacity: str, system: bool
) -> dict[str, str]:
    int8 = machine.instruction_sets.int8 or "none"
    labels = {POOL: name, FLAVOR: f"cpu-{machine.arch.replace('_', '-')}", CAPACITY: capacity}
    return {**labels, INT8_LABEL: int8, **({SYSTEM: "true"} if system else {})}
