"""What pools offer: Kueue's resource flavours, and the topology that gangs are placed in.

Fractions of GPUs are counted in one currency, so that quotas and fair shares compare them. A MIG
slice and a whole GPU have different resource names, which Kueue can't add up. Each is therefore
counted a second time, in credits: 840 for a whole GPU, which 1 to 8 parts divide. The first count
stays, so that a slice is only admitted where there are slices.

Kueue's configuration needs `transformations`; every queue of `GpuQueues` has quota for `CREDIT`.
https://kueue.sigs.k8s.io/docs/tasks/manage/administer_cluster_quotas/#transform-resources-for-quota-management
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.components import catalogue
from falaj.components.kubernetes._objects import Manifest, metadata
from falaj.components.kubernetes._placed import InCluster
from falaj.components.specification.node_pools import FLAVOR, GPU_TAINT, Taint

CREDIT: Final = "falaj.io/gpu-credit"
WHOLE: Final = 840
"""Credits of a whole GPU: the least number that 1 to 8 divide."""
GPU: Final = "nvidia.com/gpu"
SHARED: Final = "nvidia.com/gpu.shared"
#: Time slices of a GPU, where a pool doesn't say: `GpuNodePool` makes as many by default.
_SLICES: Final = 4
_MIG: Final = re.compile(r"^nvidia\.com/mig-(\d+g\.\d+gb)$")


def instances() -> Mapping[str, int]:
    """How many instances of each MIG profile fit on a GPU, of all GPUs in the catalogue.

    A profile's name says its compute slices and memory, so that it is the same fraction on every
    GPU that has it; where two GPUs differ the larger fraction counts.
    """
    found: dict[str, int] = {}
    for gpu in catalogue.GPUS.values():
        for profile, most in gpu.mig_profiles.items():
            if "+" not in profile:
                found[profile] = min(most, found.get(profile, most))
    return found


def credits_of(resource: str) -> int | None:
    """What one of a resource costs; None where it is no GPU, nor a part of one."""
    if resource == GPU:
        return WHOLE
    if resource == SHARED:
        return WHOLE // _SLICES
    found = _MIG.match(resource)
    parts = instances().get(found.group(1)) if found else None
    return WHOLE // parts if parts else None


def transformations(resources: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """Kueue's ``resources.transformations``.

    Args:
        resources: names of resources that count. Default: whole GPUs, time slices, and all MIG
            profiles of the catalogue.

    Raises:
        ValueError: one of them is no part of a GPU that the catalogue knows.
    """
    names = resources or (GPU, SHARED, *(f"nvidia.com/mig-{each}" for each in instances()))
    found: list[dict[str, Any]] = []
    for name in sorted(set(names)):
        worth = credits_of(name)
        if worth is None:
            raise ValueError(
                f"{name!r} is no GPU; allowed: {GPU}, {SHARED} and MIG profiles such as "
                "nvidia.com/mig-1g.18gb"
            )
        found.append({"input": name, "strategy": "Retain", "outputs": {CREDIT: str(worth)}})
    return found


API: Final = "kueue.x-k8s.io/v1beta2"
TOPOLOGY: Final = "falaj"
HOSTS: Final = "falaj-hosts"
"""Topology of pools whose nodes are all alike: gangs fit on nodes, or wait."""
_HOST: Final = "kubernetes.io/hostname"
#: From the widest. EKS: https://docs.aws.amazon.com/eks/latest/userguide/node-topology.html, which
#: nodes of accelerated instance types have. Elsewhere whoever racks the machines labels them.
LEVELS: Final[Mapping[str, tuple[str, ...]]] = {
    "eks": (
        *(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3)),
        _HOST,
    ),
    "aks": ("falaj.io/block", "falaj.io/rack", _HOST),
    "existing": ("falaj.io/block", "falaj.io/rack", _HOST),
}
CAPACITIES: Final = ("reservation", "capacity-block", "spot", "on-demand")
"""In the order that they are tried: what is paid for anyway, what is cheap, the rest."""
#: https://learn.microsoft.com/en-us/azure/aks/spot-node-pool: set by AKS on nodes of such pools.
_AKS_SPOT: Final = Taint("kubernetes.azure.com/scalesetpriority", "spot", "NoSchedule")


@dataclass(frozen=True)
class Pool:
    """What all nodes of one flavour offer together."""

    flavor: str
    """Value of the label ``falaj.io/flavor``."""
    nodes: int
    cpu: float
    """Cores of one node that pods may have."""
    memory_gib: int
    """Memory of one node that pods may have."""
    devices: Mapping[str, int]
    """GPUs or parts of them of one node, by the resource's name."""
    capacity: str
    taints: tuple[Taint, ...]
    topology: str
    """Name of its topology; empty for none."""
    tenants: tuple[str, ...]
    """Whom it is for; empty for all."""
    tenants_share_gpus: bool

    @property
    def offered(self) -> dict[str, int]:
        """What all its nodes offer, by resource: thousandths of cores, GiB and devices."""
        return {
            "cpu": int(self.cpu * 1000) * self.nodes,
            "memory": self.memory_gib * self.nodes,
            **{name: each * self.nodes for name, each in self.devices.items()},
        }


def quantity(resource: str, amount: int) -> str:
    """An amount of `Pool.offered` as Kubernetes writes it."""
    if resource == "cpu":
        return f"{amount // 1000}" if amount % 1000 == 0 else f"{amount}m"
    return f"{amount}Gi" if resource == "memory" else str(amount)


def with_credits(amounts: Mapping[str, int]) -> dict[str, int]:
    """Amounts with what their devices are worth in credits."""
    worth = sum((credits_of(name) or 0) * amount for name, amount in amounts.items())
    return {**amounts, CREDIT: worth}


def topologies(
    placed: InCluster, component: str, pools: Iterable[Pool], levels: tuple[str, ...]
) -> list[Manifest]:
    """The levels that a gang can be kept within, from the widest to the node.

    A queue's pools all have one, or none has: a job that asks for no topology is never admitted to
    a pool with one while the queue has others without (``IsTASOnly`` in Kueue's scheduler).
    """
    used = {each.topology for each in pools}
    return [
        {
            "apiVersion": API,
            "kind": "Topology",
            "metadata": metadata(placed, component, name),
            "spec": {"levels": [{"nodeLabel": each} for each in labels]},
        }
        for name, labels in ((TOPOLOGY, levels), (HOSTS, (_HOST,)))
        if name in used
    ]


def flavor(placed: InCluster, component: str, pool: Pool) -> Manifest:
    """What Kueue admits pods to; it gives them the pool's label and tolerations.

    All but that of GPU nodes: pods have to bring it, so that jobs without GPUs never take the
    cores and the memory that go with GPUs.
    """
    taints = list(pool.taints)
    if pool.capacity == "spot" and placed.distribution == "aks":
        taints.append(_AKS_SPOT)
    spec: dict[str, Any] = {"nodeLabels": {FLAVOR: pool.flavor, **placed.node_selector}}
    if pool.devices:
        spec["nodeTaints"] = [
            {"key": GPU_TAINT.key, "value": GPU_TAINT.value, "effect": GPU_TAINT.effect}
        ]
    if taints:
        spec["tolerations"] = [_toleration(each) for each in taints]
    if pool.topology:
        spec["topologyName"] = pool.topology
    return {
        "apiVersion": API,
        "kind": "ResourceFlavor",
        "metadata": metadata(placed, component, pool.flavor),
        "spec": spec,
    }


def _toleration(taint: Taint) -> dict[str, str]:
    match = {"operator": "Equal", "value": taint.value} if taint.value else {"operator": "Exists"}
    return {"key": taint.key, "effect": taint.effect, **match}
