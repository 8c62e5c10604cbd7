"""Arguments of `GpuNodePool`."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NotRequired

import pulumi

from falaj.components import catalogue
from falaj.components.specification.described import described
from falaj.components.specification.gpu_capacity import (
    RESERVED,
    capacity_notes,
    checked_capacity,
    checked_fabric,
    checked_placement,
    checked_reservation,
)
from falaj.components.specification.gpu_sharing import (
    NOT_SHARED,
    Sharing,
    checked_sharing,
    node_resources,
)
from falaj.components.specification.kubernetes_version import DEFAULT as DEFAULT_VERSION
from falaj.components.specification.kubernetes_version import checked_version
from falaj.components.specification.machine_choice import (
    checked_subnets,
    chosen_machine,
    machine_notes,
    machine_zones,
)
from falaj.components.specification.node_labels import (
    CAPACITY,
    FABRIC,
    FLAVOR,
    GPU,
    GPU_TAINT,
    POOL,
    Taint,
    checked_labels,
    checked_taints,
    label_value,
)
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
class GpuNodePoolArgs(PlacedArgs):
    """Arguments of `GpuNodePool`."""

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
    gpu: str
    """Model of the GPU: ``H200``, ``H100``, ``A100``, ``L40S``, ``L4``, ``A10`` …; the catalogue
    finds the machine."""
    count: float
    """GPUs of each machine; a fraction where the cloud sells fractions (Azure A10: 1/6, 1/3,
    1/2)."""
    machine: NotRequired[str]
    """Instance type or VM size. Default: the cheapest that has what is asked."""
    zones: NotRequired[list[str]]
    """Zones to use. Default: every zone of the subnets that sells the machine and is not reported
    as impaired."""
    capacity: NotRequired[str]
    """``on-demand``, ``spot``, ``reservation`` or ``capacity-block``. Default: ``on-demand``."""
    reservation_id: NotRequired[str]
    """Reservation (``cr-…``), or id of a capacity reservation group. Needed for ``reservation``
    and ``capacity-block``."""
    fabric: NotRequired[str]
    """``none``, ``efa`` (AWS) or ``infiniband`` (Azure). Default: ``none``."""
    placement_group: NotRequired[str]
    """``none``, ``cluster`` (made here) or ``existing``. Default: ``none``."""
    placement_group_name: NotRequired[str]
    """Name (AWS) or id (Azure proximity placement group) of the existing one. Needed for
    ``existing``."""
    sharing: NotRequired[str]
    """``none``, a MIG profile (``mig-1g.18gb``) or ``time-slicing``. Default: ``none``."""
    time_slices: NotRequired[int]
    """Pods for each GPU with ``time-slicing``, 2 to 16. Default: 4."""
    min_nodes: NotRequired[int]
    """Fewest nodes. Default: 0."""
    max_nodes: NotRequired[int]
    """Most nodes. Default: 1."""
    nodes: NotRequired[int]
    """Nodes that the pool shall have; each change of it is brought about. Default: ``min_nodes``
    at first, then the autoscaler decides."""
    disk_gib: NotRequired[int]
    """System disk, encrypted. Default: 200."""
    labels: NotRequired[dict[str, str]]
    """Labels of the nodes beside Falaj's own. Default: none."""
    taints: NotRequired[list[str]]
    """``key=value:Effect``, beside ``nvidia.com/gpu=present:NoSchedule``. Default: none."""
    kubernetes_version: NotRequired[str]
    """Minor version. Default: ``1.35``."""


@dataclass(frozen=True)
class GpuNodePoolSpec:
    """The plain arguments of `GpuNodePool`, checked."""

    placed: Placed
    name: str
    machine: catalogue.MachineType
    zones: tuple[str, ...]
    zones_named: bool
    """Whether the user named the zones; else those that the network covers are used."""
    capacity: str
    reservation_id: str | None
    fabric: str
    placement_group: str
    placement_group_name: str | None
    sharing: Sharing
    size: Size
    disk_gib: int
    labels: dict[str, str]
    """Of the user and Falaj's own."""
    taints: tuple[Taint, ...]
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

    @property
    def resources(self) -> dict[str, int]:
        """What one node offers to pods beside CPU and memory."""
        return node_resources(self.machine, self.sharing)


def check(cloud: str, name: str, args: GpuNodePoolArgs) -> GpuNodePoolSpec:
    """Check what is plain in a pool's arguments, and find the machine and its zones.

    Args:
        cloud: ``aws`` or ``azure``.
        name: the component's name.
        args: its arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    refusals = Refusals(f"GpuNodePool {name!r}")
    given: Mapping[str, Any] = args
    refusals.names(given, GpuNodePoolArgs)
    checked_pool_name(cloud, name, refusals)
    placed = check_placed(cloud, given, refusals)
    capacity = checked_capacity(cloud, given, refusals)
    reservation = checked_reservation(cloud, capacity, given, refusals)
    fabric = checked_fabric(cloud, given, refusals)
    group, group_name = checked_placement(given, capacity, refusals)
    size = checked_size(given, refusals, least=0, most=1)
    disk = checked_disk(given, refusals, 200)
    labels = checked_labels(given, refusals)
    taints = checked_taints(given, refusals)
    version = checked_version(given.get("kubernetes_version", DEFAULT_VERSION), refusals)
    machine = _machine(placed, given, fabric, refusals) if placed else None
    sharing, zones = NOT_SHARED, ()
    if placed and machine:
        refuse_spot_for(placed.data_class, capacity, refusals)
        refuse_unsold_capacity(capacity, machine.name, machine.usage_classes, refusals)
        sharing = checked_sharing(cloud, given, machine, placed.data_class, refusals)
        zones = _zones(placed, given, machine, (capacity, fabric, group), refusals)
    refusals.raise_if_any()
    if placed is None or machine is None:
        raise AssertionError("what can't be used was refused")
    gpu = label_value(str(given["gpu"]))
    flavor = gpu if sharing.kind == "none" else f"{gpu}-{sharing.label}"
    own = {
        POOL: name,
        GPU: gpu,
        FLAVOR: flavor if capacity == "on-demand" else f"{flavor}-{capacity}",
        CAPACITY: capacity,
        FABRIC: fabric,
    }
    return GpuNodePoolSpec(
        placed,
        name,
        machine,
        zones,
        given.get("zones") is not None,
        capacity,
        reservation,
        fabric,
        group,
        group_name,
        sharing,
        size,
        disk,
        {**labels, **own},
        (GPU_TAINT, *taints),
        version,
        (*machine_notes(machine, placed, zones), *capacity_notes(capacity, placed, machine)),
    )


def _machine(
    placed: Placed, args: Mapping[str, Any], fabric: str, refusals: Refusals
) -> catalogue.MachineType | None:
    gpu = refusals.text(args, "gpu")
    count: object = args.get("count")
    if isinstance(count, bool) or not isinstance(count, int | float | Fraction):
        if count is not None:
            refusals.add("count", count, "GPUs of each machine, a number such as 8 or 0.5")
        return None
    if not gpu:
        return None
    return chosen_machine(placed, args, refusals, blame="gpu", gpu=gpu, count=count, fabric=fabric)


def _zones(
    placed: Placed,
    args: Mapping[str, Any],
    machine: catalogue.MachineType,
    binding: tuple[str, str, str],
    refusals: Refusals,
) -> tuple[str, ...]:
    """The zones, of which there can be only one where something binds the nodes together."""
    capacity, fabric, group = binding
    zones = machine_zones(placed, args, machine, refusals)
    checked_subnets(args, "node_subnet_ids", zones, refusals)
    if len(zones) < 2:
        return zones
    # A reservation of AWS lies in one zone; a group of reservations of Azure may lie in several.
    reserved = capacity in RESERVED and placed.place.cloud == "aws"
    reasons = [
        *([f"capacity {capacity!r}"] if reserved else []),
        *([f"fabric {fabric!r}"] if fabric != "none" else []),
        *([f"placement_group {group!r}"] if group != "none" else []),
    ]
    if not reasons:
        return zones
    if args.get("zones") is not None or reserved:
        refusals.add(
            "zones", list(zones), f"exactly one, because of {' and '.join(reasons)}",
            "name the zone that the reservation lies in" if reserved
            else "keep one of them, or make one pool for each",
        )  # fmt: skip
    # Nobody cares which; the first is the same in every run.
    return zones[:1]
