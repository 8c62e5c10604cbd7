"""What GPU and CPU node pools have in common: arguments, sizes, capacity, costs and outputs."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

import pulumi

from falaj.components import catalogue
from falaj.components.catalogue import clusters
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.limits import (
    DEFAULT_KUBERNETES_VERSION,
    KUBERNETES_VERSIONS,
    NAME,
    Between,
)
from falaj.components.specification.placed import Placed, PlacedArgs
from falaj.components.specification.property_names import camel

# Labels and taints of nodes: what a user may add, and how Kubernetes writes them.

#: Prefix of the labels that pools set and that quotas and queues rely on.
PREFIX = "falaj.io/"
POOL = f"{PREFIX}pool"
GPU = f"{PREFIX}gpu"
FLAVOR = f"{PREFIX}flavor"
"""Stable name of what a node offers, for Kueue's resource flavours: unlike
``nvidia.com/gpu.product`` it doesn't change with MIG or sharing."""
CAPACITY = f"{PREFIX}capacity"
FABRIC = f"{PREFIX}fabric"
INT8 = f"{PREFIX}int8"
SYSTEM = f"{PREFIX}system"

#: Each becomes a tag of the scaling group, which takes 50 with the cluster's and Falaj's own:
#: docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-quotas.html
MOST_LABELS = 25
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
#: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
_NAME = re.compile(r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")
_PREFIX = re.compile(
    r"^(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*$"
)
#: Prefixes that Kubernetes, the clouds, the GPU operator or Falaj itself write.
_RESERVED = ("kubernetes.io", "k8s.io", "eks.amazonaws.com", "kubernetes.azure.com", "nvidia.com")


@dataclass(frozen=True)
class Taint:
    """Keeps pods away that don't tolerate it."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"


GPU_TAINT = Taint(clusters.GPU_TAINT, "present", "NoSchedule")
AKS_SPOT_TAINT = Taint(clusters.AKS_SPOT_TAINT, "spot", "NoSchedule")
"""AKS puts it on spot nodes by itself; written down, it is no drift."""


def checked_labels(args: Mapping[str, Any], errors: ArgumentErrors) -> dict[str, str]:
    """The labels of the argument ``labels``; those that can't be set are refused."""
    found: dict[str, str] = {}
    if args.get("labels") is None:
        return found
    given = errors.mapping("labels", args["labels"])
    if len(given) > MOST_LABELS:
        errors.add("labels", f"{len(given)} labels", f"at most {MOST_LABELS}")
    for key, value in given.items():
        at = f"labels[{key!r}]"
        if _key_allowed(at, key, errors):
            if value and not _NAME.match(value):
                errors.add(at, value, "at most 63 letters, digits, '-', '_' and '.'")
            else:
                found[key] = value
    return found


def checked_taints(args: Mapping[str, Any], errors: ArgumentErrors) -> tuple[Taint, ...]:
    """The taints of the argument ``taints``, each written ``key=value:Effect``."""
    found: list[Taint] = []
    if args.get("taints") is None:
        return ()
    for position, text in enumerate(errors.texts("taints", args["taints"])):
        at = f"taints[{position}]"
        key_value, colon, effect = text.rpartition(":")
        key, _, value = key_value.partition("=")
        if not colon or effect not in EFFECTS or not key:
            errors.add(at, text, f"key=value:Effect, with Effect one of {', '.join(EFFECTS)}")
        elif value and not _NAME.match(value):
            errors.add(at, text, "a value of at most 63 letters, digits, '-', '_' and '.'")
        elif _key_allowed(at, key, errors):
            found.append(Taint(key, value, effect))
    return tuple(found)


def label_value(text: str) -> str:
    """``text`` as a label's value: lower case, other characters as ``-``, at most 63."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:63].rstrip("-._")


def _key_allowed(at: str, key: str, errors: ArgumentErrors) -> bool:
    prefix, slash, name = key.rpartition("/")
    if not _NAME.match(name) or (slash and not _PREFIX.match(prefix)):
        errors.add(at, key, "a key such as team or example.ae/team, its name at most 63 long")
        return False
    for reserved in (*_RESERVED, PREFIX.rstrip("/")):
        if prefix == reserved or prefix.endswith(f".{reserved}"):
            errors.add(
                at, key, f"any key that doesn't belong to {reserved}",
                "that one is set by the cluster or by Falaj",
            )  # fmt: skip
            return False
    return True


#: Most nodes of an EKS managed node group and of an AKS pool with scale sets, by default quota:
#: docs.aws.amazon.com/eks/latest/userguide/service-quotas.html (450),
#: learn.microsoft.com/azure/aks/quotas-skus-regions (1,000). The stricter holds for both.
MOST_NODES = 450
NODES = Between(0, MOST_NODES)
CEILING = Between(1, MOST_NODES)
#: The smallest disk that holds the cloud's node image and a few container images; the largest gp3
#: volume (16 TiB) is above Azure's largest OS disk (4,095 GiB).
DISK_GIB = Between(50, 4095)
#: What EKS takes: https://docs.aws.amazon.com/eks/latest/APIReference/
#: API_NodegroupUpdateConfig.html
UNAVAILABLE = Between(1, 100)
#: Default of ``max_unavailable``, but where a cloud's own default is for whole machines to spare.
ONE_AT_A_TIME = 1
#: New nodes that EKS starts in each zone of a node group, if they are to come first:
#: https://docs.aws.amazon.com/eks/latest/userguide/managed-node-update-behavior.html
EKS_SURGE_BY_ZONE = 2
#: Share of a CPU pool on AKS that an update makes first, in percent, where its arguments say no
#: number; AKS rounds it up: https://learn.microsoft.com/azure/aks/upgrade-options
AKS_SURGE_PERCENT = 33
#: The pool that is part of every AKS cluster made here.
AKS_SYSTEM_POOL = "system"
#: Its machine: four virtual CPUs, as AKS recommends for its own add-ons, sold in both regions. A
#: fixed type: a cheaper one in a later catalogue must not replace a running pool.
#: https://learn.microsoft.com/azure/aks/use-system-pools
AKS_SYSTEM_MACHINE = "Standard_D4as_v6"
#: Machines that an update of it makes first.
AKS_SYSTEM_SURGE = 1


def surge_nodes(cloud: str, args: Mapping[str, Any], zones: Sequence[str], most: int) -> int:
    """Nodes that an update makes before it drains as many old ones, of a pool with ``most``.

    Args:
        cloud: ``aws`` or ``azure``.
        args: of the pool, with their defaults; GPU pools alone have ``max_surge``.
        zones: of the pool.
        most: nodes at the time of the update.
    """
    if "max_surge" in args:
        surge: int = args["max_surge"]
        return surge
    drained: int | None = args["max_unavailable"]
    if cloud == "aws":
        return max(EKS_SURGE_BY_ZONE * len(zones), drained or ONE_AT_A_TIME)
    if args["capacity"] == "spot":  # AKS takes no settings of updates with it
        return 0
    return min(drained or math.ceil(most * AKS_SURGE_PERCENT / 100), most)


def aks_system_nodes(zones: Sequence[str]) -> int:
    """Nodes of that pool in production: one in each zone, and never one alone."""
    return max(2, len(zones))


class NodePoolArgs(PlacedArgs):
    """Arguments that GPU and CPU pools share."""

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
    machine: NotRequired[str]
    """Instance type or VM size. Default: the cheapest that has what is asked."""
    zones: NotRequired[list[str]]
    """Zones to use. Default: every zone of the subnets that sells the machine and is not reported
    as impaired."""
    min_nodes: NotRequired[Annotated[int, NODES]]
    """Fewest nodes."""
    max_nodes: NotRequired[Annotated[int, CEILING]]
    """Most nodes."""
    nodes: NotRequired[Annotated[int, NODES]]
    """Nodes that the pool shall have; each change of it is brought about. Default: ``min_nodes``
    at first, then the autoscaler decides."""
    max_unavailable: NotRequired[Annotated[int, UNAVAILABLE]]
    """Nodes that an update of the pool drains at once: CPU pools get as many new ones first, GPU
    pools only with ``max_surge``, since there is rarely a machine more to be had. AKS takes none
    for ``spot``.
    Default: one; of a CPU pool on Azure a third."""
    disk_gib: NotRequired[Annotated[int, DISK_GIB]]
    """System disk in GiB, encrypted."""
    labels: NotRequired[dict[str, str]]
    """Labels of the nodes beside Falaj's own. Default: none."""
    taints: NotRequired[list[str]]
    """``key=value:Effect``; GPU pools have ``nvidia.com/gpu=present:NoSchedule`` besides. Default:
    none."""
    kubernetes_version: NotRequired[
        Annotated[str, KUBERNETES_VERSIONS, Default(DEFAULT_KUBERNETES_VERSION)]
    ]
    """Minor version."""


@dataclass(frozen=True)
class Size:
    """How many nodes a pool has."""

    least: int
    most: int
    initial: int


@dataclass(frozen=True, kw_only=True)
class NodePoolSpec:
    """The plain arguments of a pool of nodes, checked."""

    args: Mapping[str, Any]
    """Its arguments by name, defaults included."""
    placed: Placed
    name: str
    machine: catalogue.MachineType
    zones: tuple[str, ...]
    size: Size
    labels: dict[str, str]
    """Of the user and Falaj's own."""
    taints: tuple[Taint, ...]
    notes: tuple[str, ...]
    """What to know before it is made; the component logs them as warnings."""

    @property
    def zones_named(self) -> bool:
        """Whether the user named the zones; else those that the network covers are used."""
        return self.args["zones"] is not None

    @property
    def sized_by_program(self) -> bool:
        """Whether each change of the number of nodes is the program's; else the autoscaler's."""
        return self.args["nodes"] is not None

    @property
    def capacity(self) -> str:
        """How the machines are bought."""
        return self.args["capacity"]

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
        return (
            f"{self.machine} ({self.machine.gpu_text}) in {', '.join(self.zones)}; "
            f"{self.size.least} to {self.size.most} nodes; at the minimum: "
            f"{self.cost_at_minimum}; at the maximum: {self.cost_at_maximum}"
        )

    @property
    def operator_labels(self) -> Mapping[str, str]:
        """Labels that tell the GPU operator what to do."""
        return {}

    @property
    def resources(self) -> Mapping[str, int]:
        """What one node offers to pods beside CPU and memory."""
        return {}


class NodePool(pulumi.ComponentResource):
    """What pools of nodes say of themselves."""

    pool_id: pulumi.Output[str]
    """ARN of the node group (AWS), or id of the agent pool (Azure)."""
    pool_name: pulumi.Output[str]
    """Its name in EKS or AKS; the label ``falaj.io/pool`` has the name given here."""
    machine: str
    """Instance type or VM size that was chosen."""
    zones: list[str]
    """Zones that it is used in; empty where the region chooses (Azure)."""
    cost_at_minimum: str
    """What the fewest nodes cost, or that it is unknown."""
    cost_at_maximum: str
    """What the most nodes cost, or that it is unknown."""

    def announce(self, spec: NodePoolSpec) -> None:
        """Say which machine was chosen, what it costs, and what to know of it."""
        pulumi.log.info(spec.summary, self)
        for note in spec.notes:
            pulumi.log.warn(note, self)

    def register(
        self,
        spec: NodePoolSpec,
        zones: Sequence[str],
        pool_id: pulumi.Output[str],
        pool_name: pulumi.Output[str],
    ) -> None:
        """Set the outputs and register them."""
        self.pool_id = pool_id
        self.pool_name = pool_name
        self.machine = spec.machine.name
        self.zones = list(zones)
        self.cost_at_minimum = str(spec.cost_at_minimum)
        self.cost_at_maximum = str(spec.cost_at_maximum)
        self.register_outputs({camel(name): getattr(self, name) for name in _OUTPUTS})


_OUTPUTS = tuple(NodePool.__annotations__)


def checked_name(name: str, errors: ArgumentErrors) -> None:
    """Refuse a pool's name that can't be a label and part of the names in the cloud."""
    errors.form("name", name, NAME)


def checked_pool_name(cloud: str, name: str, errors: ArgumentErrors) -> None:
    """Refuse what `checked_name` does, and on Azure the name of the cluster's own pool.

    Names of pools in AKS have no dashes, so that ``sys-tem`` would be the same one.
    """
    checked_name(name, errors)
    if cloud == "azure" and name.replace("-", "") == AKS_SYSTEM_POOL:
        errors.add(
            "name", name, f"any other: {AKS_SYSTEM_POOL!r} is the pool that Cluster makes itself "
            "for the add-ons of AKS", "name the pool after what it is for, such as 'add-ons'",
        )  # fmt: skip


def checked_size(
    args: Mapping[str, Any], given: Mapping[str, Any], errors: ArgumentErrors
) -> Size:
    """How many nodes ``min_nodes``, ``max_nodes`` and ``nodes`` come to.

    Args:
        args: the checked arguments.
        given: what was given of them.
        errors: collects what is wrong.
    """
    low: int = args["min_nodes"]
    high: int = args["max_nodes"]
    if given.get("max_nodes") is None:
        # A minimum above the default maximum was meant to be a size, not a contradiction.
        high = max(high, low)
    initial: int = low if args["nodes"] is None else args["nodes"]
    if low > high:
        errors.add(
            "min_nodes", low, f"at most max_nodes, which is {high}", "lower it or raise max_nodes",
            limit=Between(NODES.low, high),
        )  # fmt: skip
    elif not low <= initial <= high:
        errors.add(
            "nodes", initial, f"{low} to {high} (min_nodes to max_nodes)",
            "change it or the limits", limit=Between(low, high),
        )  # fmt: skip
    return Size(low, high, initial)


def refuse_updates_of_spot(
    argument: str, cloud: str, args: Mapping[str, Any], errors: ArgumentErrors
) -> None:
    """Refuse an argument, where it is given, that says how spot pools of AKS are updated."""
    if cloud == "azure" and args["capacity"] == "spot" and args[argument] is not None:
        errors.say(
            argument,
            f"given {args[argument]}, but capacity is 'spot', and AKS takes no settings of "
            "updates with it; leave it out, or set capacity to 'on-demand'",
        )


def refuse_spot_for(data_class: str, capacity: str, errors: ArgumentErrors) -> None:
    """Refuse spot machines for restricted data: the cloud may take them away at any moment, and
    with them whatever was in memory or on the scratch disks before it was wiped on our terms."""
    if capacity == "spot" and data_class == "restricted":
        errors.add(
            "capacity", "spot", "on-demand, where data_class is 'restricted'",
            "the cloud ends spot machines at any moment, before data could be wiped",
        )  # fmt: skip


def refuse_unsold_capacity(
    capacity: str, machine: str, usage_classes: tuple[str, ...], errors: ArgumentErrors
) -> None:
    """Refuse spot or capacity blocks of a machine that isn't sold that way."""
    if capacity in ("spot", "capacity-block") and usage_classes and capacity not in usage_classes:
        sold = ", ".join(usage_classes)
        errors.say("capacity", f"{machine} is not sold as {capacity!r}; it is sold as: {sold}")
