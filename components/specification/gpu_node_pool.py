"""Arguments of `GpuNodePool`.

How machines are bought, linked and placed are choices that don't imply one another. EFA doesn't
force a placement group, and a reservation doesn't either: a group that was made behind the user's
back is why reserved machines fail to start.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

from falaj.components import catalogue
from falaj.components.catalogue import clusters
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default, Example
from falaj.components.specification.described import described
from falaj.components.specification.limits import Between, ByCloud, Hint, OneOf
from falaj.components.specification.machine_choice import (
    checked_subnets,
    chosen_machine,
    machine_notes,
    machine_zones,
)
from falaj.components.specification.node_pools import (
    CAPACITY,
    CEILING,
    DISK_GIB,
    EKS_SURGE_BY_ZONE,
    FABRIC,
    FLAVOR,
    GPU,
    GPU_TAINT,
    NODES,
    POOL,
    UNAVAILABLE,
    NodePoolArgs,
    NodePoolSpec,
    checked_labels,
    checked_pool_name,
    checked_size,
    checked_taints,
    label_value,
    refuse_spot_for,
    refuse_unsold_capacity,
    refuse_updates_of_spot,
)
from falaj.components.specification.placed import Placed, check_placed

# How pods share a GPU: whole ones, MIG instances, or time slices.

LEAST_SLICES, MOST_SLICES = 2, 16
TIME_SLICES = Between(LEAST_SLICES, MOST_SLICES)
_MIG = "mig-"


@dataclass(frozen=True)
class Sharing:
    """What a GPU is divided into."""

    kind: str
    """``none``, ``mig`` or ``time-slicing``."""
    mig_profile: str | None = None
    """Such as ``1g.18gb``."""
    parts: int = 1
    """Pods that fit on one GPU."""

    @property
    def label(self) -> str:
        """Its name in labels: ``mig-1g.18gb``, ``time-slicing-4`` or ``none``."""
        if self.kind == "mig":
            return f"{_MIG}{self.mig_profile}"
        return f"time-slicing-{self.parts}" if self.kind == "time-slicing" else "none"

    @property
    def operator_labels(self) -> dict[str, str]:
        """Labels that tell the GPU operator what to do on a node.

        The MIG manager applies the configuration named by ``nvidia.com/mig.config`` (names of
        mig-parted's own configurations); the device plugin takes the entry of its configuration
        map named by ``nvidia.com/device-plugin.config``, which the platform's values define with
        the same name.
        """
        if self.kind == "mig":
            return {"nvidia.com/mig.config": f"all-{self.mig_profile}"}
        if self.kind == "time-slicing":
            return {"nvidia.com/device-plugin.config": self.label}
        return {}


NOT_SHARED = Sharing("none")


def checked_sharing(
    args: Mapping[str, Any],
    given: Mapping[str, Any],
    placed: Placed,
    machine: catalogue.MachineType,
    errors: ArgumentErrors,
) -> Sharing:
    """How the checked arguments ``sharing`` and ``time_slices`` divide a GPU.

    MIG separates memory and faults in hardware and is allowed for every class of data; time
    slices share one memory, and are not for restricted data.
    """
    sharing: str = args["sharing"]
    slices: object = given.get("time_slices")
    if sharing == "time-slicing":
        if placed.data_class == "restricted":
            errors.add(
                "sharing", sharing, "none or a MIG profile, where data_class is 'restricted'",
                "pods that share a GPU by time-slicing share its memory unprotected",
            )  # fmt: skip
        return Sharing("time-slicing", None, args["time_slices"])
    if slices is not None:
        errors.say(
            "time_slices",
            f"given {slices!r}, but sharing is {sharing!r}; set sharing to 'time-slicing', or "
            "leave time_slices out",
        )
    if sharing == "none":
        return NOT_SHARED
    if not sharing.startswith(_MIG):
        errors.add("sharing", sharing, "none, time-slicing, or a MIG profile as mig-1g.18gb")
        return NOT_SHARED
    return _mig(placed.place.cloud, sharing.removeprefix(_MIG), machine, errors)


def node_resources(machine: catalogue.MachineType, sharing: Sharing) -> dict[str, int]:
    """Extended resources that a node of this machine advertises to the scheduler.

    Names: NVIDIA's device plugin with the MIG strategy ``mixed`` and ``renameByDefault`` for time
    slices. A fraction of a GPU counts as one GPU to its machine.
    """
    gpus = max(1, int(machine.gpu_count))
    if sharing.kind == "mig":
        return {f"nvidia.com/{sharing.label}": gpus * sharing.parts}
    if sharing.kind == "time-slicing":
        return {"nvidia.com/gpu.shared": gpus * sharing.parts}
    return {clusters.GPU: gpus}


def mig_profiles(cloud: str, machine: catalogue.MachineType) -> dict[str, int]:
    """Profiles that every GPU of the machine can be divided into evenly, and how many fit.

    Those with media extensions (``+me``) fit once on a GPU and would leave the rest of it idle.
    AKS takes the size in compute slices alone (MIG1g, MIG2g …) and gives each the memory that
    goes with it, which is the first of that size.
    """
    found: dict[str, int] = {}
    for profile, most in machine.mig_profiles.items():
        slices = profile.partition(".")[0]
        taken = any(known.startswith(f"{slices}.") for known in found)
        if "+" not in profile and not (cloud == "azure" and taken):
            found[profile] = most
    return found


def _mig(
    cloud: str, profile: str, machine: catalogue.MachineType, errors: ArgumentErrors
) -> Sharing:
    allowed = mig_profiles(cloud, machine)
    if profile in allowed:
        return Sharing("mig", profile, allowed[profile])
    if not allowed:
        errors.say(
            "sharing",
            f"given 'mig-{profile}', but {machine} with {machine.gpu_text} has no MIG; allowed: "
            "none, time-slicing; or ask for a GPU with MIG (A100, H100, H200, B200)",
        )
    else:
        names = ", ".join(f"mig-{name} (max {most})" for name, most in allowed.items())
        errors.add("sharing", f"mig-{profile}", f"{names} on each of its GPUs")
    return NOT_SHARED


CAPACITIES = ByCloud.of(
    {
        "aws": ("on-demand", "spot", "reservation", "capacity-block"),
        "azure": ("on-demand", "spot", "reservation"),
    },
    {
        "capacity-block": Hint(
            "capacity blocks exist on AWS only; on Azure use 'reservation' with a capacity "
            "reservation group"
        )
    },
)
FABRICS = ByCloud.of(
    {"aws": ("none", "efa"), "azure": ("none", "infiniband")},
    {
        "infiniband": Hint("infiniband exists on Azure only; use efa", "efa"),
        "efa": Hint("efa exists on AWS only; use infiniband", "infiniband"),
    },
)
PLACEMENT_GROUPS = OneOf(("none", "cluster", "existing"))
RESERVED = ("reservation", "capacity-block")
_RESERVATION_ID = {
    "aws": re.compile(r"^cr-(?:[0-9a-f]{8}|[0-9a-f]{17})$"),
    "azure": re.compile(
        r"^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Compute/"
        r"capacityReservationGroups/[^/]+$",
        re.IGNORECASE,
    ),
}
_RESERVATION_FORM = {
    "aws": "a reservation's id, such as cr-0123456789abcdef0",
    "azure": "/subscriptions/…/resourceGroups/…/providers/Microsoft.Compute/"
    "capacityReservationGroups/NAME",
}


def check_reservation(cloud: str, args: Mapping[str, Any], errors: ArgumentErrors) -> None:
    """Hold ``reservation_id`` to ``capacity``: only what is reserved has one."""
    capacity: str = args["capacity"]
    given: str | None = args["reservation_id"]
    if capacity not in RESERVED:
        if given is not None:
            errors.say(
                "reservation_id",
                f"given {given!r}, but capacity is {capacity!r}, which uses no reservation; set "
                f"capacity to {' or '.join(_reserved(cloud))}, or leave reservation_id out",
            )
    elif given is None:
        errors.say(
            "reservation_id",
            f"missing; capacity {capacity!r} needs {_RESERVATION_FORM[cloud]}; name it, or set "
            "capacity to 'on-demand'",
        )
    elif not _RESERVATION_ID[cloud].match(given):
        errors.add("reservation_id", given, _RESERVATION_FORM[cloud])


def _reserved(cloud: str) -> list[str]:
    return [str(each) for each in CAPACITIES.on(cloud).values if each in RESERVED]


def check_placement(args: Mapping[str, Any], errors: ArgumentErrors) -> None:
    """Hold ``placement_group``, ``placement_group_name`` and ``capacity`` to each other."""
    group: str = args["placement_group"]
    name: str | None = args["placement_group_name"]
    capacity: str = args["capacity"]
    if group == "existing":
        if not name:
            errors.say(
                "placement_group_name",
                f"given {name!r}; placement_group 'existing' needs the group's name (AWS) or id "
                "(Azure); name it, or set placement_group to 'cluster' to have one made",
            )
    elif name is not None:
        errors.say(
            "placement_group_name",
            f"given {name!r}, but placement_group is {group!r}; set it to 'existing', or leave "
            "placement_group_name out",
        )
    if group == "cluster" and capacity == "reservation":
        # docs.aws.amazon.com/AWSEC2/latest/UserGuide/cr-cpg.html: capacity is reserved in a group
        # from the start or never; on Azure the reservation has its own place, too.
        errors.add(
            "placement_group", "cluster", "none or existing, with capacity 'reservation'",
            "a reservation that exists can't be moved into a new group: name the group it was "
            "made in, or use none",
        )  # fmt: skip
    if group in ("cluster", "existing") and capacity == "capacity-block":
        # docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-using.html
        errors.add(
            "placement_group", group, "none, with capacity 'capacity-block'",
            "the machines of a capacity block are close to each other already, and a group of "
            "your own can keep some of them from starting",
        )  # fmt: skip


def capacity_notes(capacity: str, placed: Placed, machine: catalogue.MachineType) -> list[str]:
    """What to know about the way the machines are bought."""
    if capacity != "capacity-block":
        return []
    # No page read lists the region among those that sell Capacity Blocks.
    return [
        f"whether {placed.region} sells capacity blocks of {machine} is unknown; ask with "
        "`aws ec2 describe-capacity-block-offerings` first"
    ]


#: EKS makes as many new nodes as it drains at once, which is `UNAVAILABLE`.
SURGE = Between(0, UNAVAILABLE.high)


def check_surge(
    args: Mapping[str, Any], zones: Sequence[str], placed: Placed, errors: ArgumentErrors
) -> None:
    """Hold ``max_surge`` to ``max_unavailable``, to ``capacity`` and to the zones of the pool."""
    surge: int = args["max_surge"]
    if not surge or errors.has("max_surge"):
        return
    cloud = placed.place.cloud
    if args["max_unavailable"] is not None:
        errors.say(
            "max_unavailable",
            f"given {args['max_unavailable']}, but max_surge {surge} says both: as many new "
            "nodes, and as many old ones drained after them; leave max_unavailable out, or set "
            "max_surge to 0",
        )
    refuse_updates_of_spot("max_surge", cloud, args, errors)
    least = EKS_SURGE_BY_ZONE * len(zones)
    if cloud == "aws" and surge < least:
        errors.add(
            "max_surge", surge, f"0, or at least {least} with the zones {', '.join(zones)}",
            f"EKS starts up to {EKS_SURGE_BY_ZONE} in each zone first, whatever is asked for; "
            "take 0 where no such machines can be had, raise it, or name fewer zones",
        )  # fmt: skip


#: The largest machine of the catalogue has 16.
COUNT = Between(0, 16, above=True)


@described
class GpuNodePoolArgs(NodePoolArgs):
    """Arguments of `GpuNodePool`."""

    gpu: Annotated[str, Example("H200")]
    """Model of the GPU: ``H200``, ``H100``, ``A100``, ``L40S``, ``L4``, ``A10`` …; the catalogue
    finds the machine."""
    count: Annotated[float, COUNT]
    """GPUs of each machine; a fraction where the cloud sells fractions (Azure A10: 1/6, 1/3,
    1/2)."""
    capacity: NotRequired[Annotated[str, CAPACITIES, Default("on-demand")]]
    """How the machines are bought."""
    reservation_id: NotRequired[str]
    """Reservation (``cr-…``), or id of a capacity reservation group. Needed for ``reservation``
    and ``capacity-block``."""
    fabric: NotRequired[Annotated[str, FABRICS, Default("none")]]
    """How the machines are linked."""
    placement_group: NotRequired[Annotated[str, PLACEMENT_GROUPS, Default("none")]]
    """Whether the machines stand close to each other: in a group made here (``cluster``), or in
    one that exists."""
    placement_group_name: NotRequired[str]
    """Name (AWS) or id (Azure proximity placement group) of the existing one. Needed for
    ``existing``."""
    sharing: NotRequired[Annotated[str, Default("none")]]
    """How pods share a GPU: ``none``, a MIG profile (``mig-1g.18gb``) or ``time-slicing``."""
    time_slices: NotRequired[Annotated[int, TIME_SLICES, Default(4)]]
    """Pods for each GPU with ``time-slicing``."""
    min_nodes: NotRequired[Annotated[int, NODES, Default(0)]]
    max_nodes: NotRequired[Annotated[int, CEILING, Default(1)]]
    max_surge: NotRequired[Annotated[int, SURGE, Default(0)]]
    """New nodes that an update of the pool makes before it drains as many old ones at once, above
    ``max_nodes`` too; their quota, or room in what is reserved, must be there. With 0 old nodes go
    first, as ``max_unavailable`` says. EKS takes 0, or two for each zone and more."""
    disk_gib: NotRequired[Annotated[int, DISK_GIB, Default(200)]]


@dataclass(frozen=True, kw_only=True)
class GpuNodePoolSpec(NodePoolSpec):
    """The plain arguments of `GpuNodePool`, checked."""

    sharing: Sharing

    @property
    def operator_labels(self) -> Mapping[str, str]:
        """Labels that tell the GPU operator how GPUs are shared."""
        return self.sharing.operator_labels

    @property
    def resources(self) -> Mapping[str, int]:
        """The GPUs of a node as pods ask for them."""
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
    errors = ArgumentErrors(f"GpuNodePool {name!r}")
    given: Mapping[str, Any] = args
    checked = errors.checked(given, GpuNodePoolArgs, cloud)
    checked_pool_name(cloud, name, errors)
    placed = check_placed(cloud, given, errors)
    check_reservation(cloud, checked, errors)
    check_placement(checked, errors)
    refuse_updates_of_spot("max_unavailable", cloud, checked, errors)
    size = checked_size(checked, given, errors)
    labels = checked_labels(given, errors)
    taints = checked_taints(given, errors)
    machine = _machine(placed, checked, errors) if placed else None
    sharing, zones = NOT_SHARED, ()
    capacity: str = checked["capacity"]
    if placed and machine:
        refuse_spot_for(placed.data_class, capacity, errors)
        refuse_unsold_capacity(capacity, machine.name, machine.usage_classes, errors)
        sharing = checked_sharing(checked, given, placed, machine, errors)
        zones = _zones(placed, given, machine, checked, errors)
        check_surge(checked, zones, placed, errors)
    errors.raise_if_any()
    if placed is None or machine is None:
        raise AssertionError("what can't be used was refused")
    gpu = label_value(checked["gpu"])
    flavor = gpu if sharing.kind == "none" else f"{gpu}-{sharing.label}"
    own = {
        POOL: name,
        GPU: gpu,
        FLAVOR: flavor if capacity == "on-demand" else f"{flavor}-{capacity}",
        CAPACITY: capacity,
        FABRIC: checked["fabric"],
    }
    return GpuNodePoolSpec(
        args=checked,
        placed=placed,
        name=name,
        machine=machine,
        zones=zones,
        size=size,
        labels={**labels, **own},
        taints=(GPU_TAINT, *taints),
        notes=(
            *machine_notes(machine, placed, zones),
            *capacity_notes(capacity, placed, machine),
        ),
        sharing=sharing,
    )


def _machine(
    placed: Placed, args: Mapping[str, Any], errors: ArgumentErrors
) -> catalogue.MachineType | None:
    asked = {key: args[key] for key in ("gpu", "count", "fabric")}
    if not asked["gpu"] or not COUNT.allows(asked["count"]):
        return None
    if asked["fabric"] not in FABRICS.on(placed.place.cloud).values:
        asked["fabric"] = "none"
    return chosen_machine(placed, args, errors, blame="gpu", **asked)


def _zones(
    placed: Placed,
    args: Mapping[str, Any],
    machine: catalogue.MachineType,
    checked: Mapping[str, Any],
    errors: ArgumentErrors,
) -> tuple[str, ...]:
    """The zones, of which there can be only one where something binds the nodes together."""
    capacity, fabric, group = (checked[it] for it in ("capacity", "fabric", "placement_group"))
    zones = machine_zones(placed, args, machine, errors)
    checked_subnets(args, "node_subnet_ids", zones, errors)
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
        errors.add(
            "zones", list(zones), f"exactly one, because of {' and '.join(reasons)}",
            "name the zone that the reservation lies in" if reserved
            else "keep one of them, or make one pool for each",
        )  # fmt: skip
    # Nobody cares which; the first is the same in every run.
    return zones[:1]
