"""What pools offer: Kueue's resource flavours, and the topology that gangs are placed in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.components.kubernetes._metadata import metadata
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import InCluster
from falaj.components.kubernetes.queueing.credits import CREDIT, credits_of
from falaj.components.specification.node_labels import FLAVOR, GPU_TAINT, Taint

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
