"""What GPU and CPU node pools have in common: sizes, capacity, disks, names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from falaj.components import catalogue
from falaj.components.specification.forms import NAME
from falaj.components.specification.limits import Between
from falaj.components.specification.refusals import Refusals

#: Most nodes of an EKS managed node group and of an AKS pool with scale sets, by default quota:
#: docs.aws.amazon.com/eks/latest/userguide/service-quotas.html (450),
#: learn.microsoft.com/azure/aks/quotas-skus-regions (1,000). The stricter holds for both.
MOST_NODES = 450
NODES = Between(0, MOST_NODES)
CEILING = Between(1, MOST_NODES)
#: The smallest disk that holds the cloud's node image and a few container images; the largest gp3
#: volume (16 TiB) is above Azure's largest OS disk (4,095 GiB).
DISK_GIB = Between(50, 4095)
#: The pool that is part of every AKS cluster made here.
AKS_SYSTEM_POOL = "system"


@dataclass(frozen=True)
class Size:
    """How many nodes a pool has."""

    least: int
    most: int
    initial: int


def checked_name(name: str, refusals: Refusals) -> None:
    """Refuse a pool's name that can't be a label and part of the names in the cloud."""
    refusals.form("name", name, NAME)


def checked_pool_name(cloud: str, name: str, refusals: Refusals) -> None:
    """Refuse what `checked_name` does, and on Azure the name of the cluster's own pool.

    Names of pools in AKS have no dashes, so that ``sys-tem`` would be the same one.
    """
    checked_name(name, refusals)
    if cloud == "azure" and name.replace("-", "") == AKS_SYSTEM_POOL:
        refusals.add(
            "name", name, f"any other: {AKS_SYSTEM_POOL!r} is the pool that Cluster makes itself "
            "for the add-ons of AKS", "name the pool after what it is for, such as 'add-ons'",
        )  # fmt: skip


def checked_size(args: Mapping[str, Any], refusals: Refusals, *, least: int, most: int) -> Size:
    """The arguments ``min_nodes``, ``max_nodes`` and ``nodes``; ``least`` and ``most`` are the
    defaults of the first two."""
    low = refusals.within("min_nodes", args.get("min_nodes", least), NODES)
    # A minimum above the default maximum was meant to be a size, not a contradiction.
    high = refusals.within("max_nodes", args.get("max_nodes", max(most, low)), CEILING)
    initial = refusals.within("nodes", args.get("nodes", low), NODES)
    if low > high:
        refusals.add(
            "min_nodes", low, f"at most max_nodes, which is {high}", "lower it or raise max_nodes",
            limit=Between(NODES.low, high),
        )  # fmt: skip
    elif not low <= initial <= high:
        refusals.add(
            "nodes", initial, f"{low} to {high} (min_nodes to max_nodes)",
            "change it or the limits", limit=Between(low, high),
        )  # fmt: skip
    return Size(low, high, initial)


def checked_disk(args: Mapping[str, Any], refusals: Refusals, default: int) -> int:
    """The argument ``disk_gib``."""
    return refusals.within("disk_gib", args.get("disk_gib", default), DISK_GIB)


def refuse_spot_for(data_class: str, capacity: str, refusals: Refusals) -> None:
    """Refuse spot machines for restricted data: the cloud may take them away at any moment, and
    with them whatever was in memory or on the scratch disks before it was wiped on our terms."""
    if capacity == "spot" and data_class == "restricted":
        refusals.add(
            "capacity", "spot", "on-demand, where data_class is 'restricted'",
            "the cloud ends spot machines at any moment, before data could be wiped",
        )  # fmt: skip


def refuse_unsold_capacity(
    capacity: str, machine: str, usage_classes: tuple[str, ...], refusals: Refusals
) -> None:
    """Refuse spot or capacity blocks of a machine that isn't sold that way."""
    if capacity in ("spot", "capacity-block") and usage_classes and capacity not in usage_classes:
        sold = ", ".join(usage_classes)
        refusals.say("capacity", f"{machine} is not sold as {capacity!r}; it is sold as: {sold}")


def pool_summary(
    machine: catalogue.MachineType,
    zones: tuple[str, ...],
    size: Size,
    least: catalogue.Cost,
    most: catalogue.Cost,
) -> str:
    """Machine, zones and cost of a pool on one line."""
    return (
        f"{machine} ({machine.gpu_text}) in {', '.join(zones)}; "
        f"{size.least} to {size.most} nodes; at the minimum: {least}; at the maximum: {most}"
    )
