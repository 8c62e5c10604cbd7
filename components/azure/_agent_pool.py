"""What GPU and CPU pools of an AKS cluster have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_azure_native import containerservice as aks

from falaj.components import catalogue
from falaj.components.azure._ids import ResourceId, resource_id
from falaj.components.specification.machine_choice import subnets_of
from falaj.components.specification.names import physical_name
from falaj.components.specification.node_pools import (
    AKS_SPOT_TAINT,
    ONE_AT_A_TIME,
    NodePoolSpec,
    Size,
    Taint,
)
from falaj.components.specification.placed import REGIONAL

#: Most characters of a Linux pool's name, of which only a-z and 0-9 are allowed:
#: https://learn.microsoft.com/azure/aks/create-node-pools#limitations
POOL_NAME_LIMIT = 12


@dataclass(frozen=True)
class ClusterId:
    """The cluster that a pool is part of."""

    group: pulumi.Output[str]
    name: pulumi.Output[str]


def cluster_of(cluster_id: pulumi.Input[str]) -> ClusterId:
    """Resource group and name of a cluster, out of its id."""
    parts = pulumi.Output.from_input(cluster_id).apply(_managed_cluster)
    return ClusterId(parts.apply(lambda found: found.group), parts.apply(lambda found: found.name))


def _managed_cluster(text: str) -> ResourceId:
    return resource_id(text, "Microsoft.ContainerService/managedClusters")


def pool_name(name: str) -> str:
    """Name of a pool in AKS: the component's, shortened to what AKS takes."""
    return physical_name(name, limit=POOL_NAME_LIMIT, separator="")


def used_zones(
    machine: catalogue.MachineType, zones: Sequence[str], *, named: bool
) -> tuple[str, ...]:
    """Zones that the pool asks for.

    Where no source says which zones sell the machine, AKS refuses the whole pool if one of them
    doesn't: then the region chooses, unless the user knows better and has named them.
    """
    if tuple(zones) == (REGIONAL,) or not (named or machine.zones_known):
        return ()
    return tuple(zones)


def pool_subnet(
    args: Mapping[str, Any], zones: Sequence[str], where: str, *, named: bool
) -> pulumi.Output[str]:
    """The subnet of the nodes; all zones of a region share it on Azure."""
    return pulumi.Output.from_input(args["node_subnet_ids"]).apply(
        lambda subnets: subnets_of(
            subnets, zones, where=f"node_subnet_ids of {where}", all_needed=named
        )[0]
    )


def scaling(size: Size) -> dict[str, Any]:
    """Arguments for the number of nodes: chosen by the autoscaler between two limits, or fixed."""
    if size.least == size.most:
        return {"enable_auto_scaling": False, "count": size.initial}
    return {
        "enable_auto_scaling": True,
        "min_count": size.least,
        "max_count": size.most,
        "count": size.initial,
        "scale_down_mode": aks.ScaleDownMode.DELETE,
    }


def unmanaged(pool: NodePoolSpec) -> list[str]:
    """Properties that somebody else changes: the autoscaler decides on the number of nodes, unless
    the program names one."""
    return [] if pool.size.least == pool.size.most or pool.sized_by_program else ["count"]


def upgrades(
    pool: NodePoolSpec, *, surge: int | str, minutes: int
) -> aks.AgentPoolUpgradeSettingsArgs | None:
    """How an update replaces nodes; spot pools take no such settings.

    https://learn.microsoft.com/azure/aks/upgrade-options

    Args:
        pool: its arguments, checked.
        surge: new nodes, or the share of the pool's, that come before as many old ones are
            drained; 0 where old ones go first.
        minutes: how long a node may take to be drained.
    """
    if pool.capacity == "spot":
        return None
    drained = None if surge else str(pool.args["max_unavailable"] or ONE_AT_A_TIME)
    return aks.AgentPoolUpgradeSettingsArgs(
        max_surge=str(surge), max_unavailable=drained, drain_timeout_in_minutes=minutes
    )


def priority(capacity: str) -> dict[str, Any]:
    """Arguments for how the machines are bought.

    Evicted spot nodes are deleted and not kept for a price; -1 stands for up to the price on
    demand: https://learn.microsoft.com/azure/aks/spot-node-pool
    """
    if capacity != "spot":
        return {}
    return {
        "scale_set_priority": aks.ScaleSetPriority.SPOT,
        "scale_set_eviction_policy": aks.ScaleSetEvictionPolicy.DELETE,
        "spot_max_price": -1,
    }


def taint_texts(taints: Sequence[Taint], capacity: str) -> list[str]:
    """Taints as AKS writes them."""
    return [str(taint) for taint in (*taints, *([AKS_SPOT_TAINT] if capacity == "spot" else []))]


def disk(machine: catalogue.MachineType, gib: int) -> dict[str, Any]:
    """Arguments for the system disk: on the machine's own NVMe where that surely has the room,
    else a managed disk under the disk encryption set. Both are encrypted on the host."""
    roomy = machine.local_nvme_gb is not None and machine.local_nvme_gb * 1e9 >= gib * 2**30
    kind = aks.OSDiskType.EPHEMERAL if roomy else aks.OSDiskType.MANAGED
    return {"os_disk_size_gb": gib, "os_disk_type": kind}


def hardened() -> dict[str, Any]:
    """Arguments that every pool has: Linux without remote logins, public addresses or disks in the
    clear."""
    return {
        "type": aks.AgentPoolType.VIRTUAL_MACHINE_SCALE_SETS,
        "os_type": aks.OSType.LINUX,
        # One system for all pools: the GPU operator doesn't take several in one cluster.
        "os_sku": aks.OSSKU.UBUNTU,
        "enable_encryption_at_host": True,
        "enable_fips": False,
        "enable_node_public_ip": False,
    }
