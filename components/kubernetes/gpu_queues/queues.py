"""Cluster queues: how much of each pool a tenant has for itself, borrows and lends; by priority.

Kueue orders, admits and pre-empts whole workloads by priorities. The scheduler itself pre-empts
for none but the most urgent: taking one pod out of a gang stops the whole of it. Kueue's admission
checks are other clusters in the country, and machines made on demand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from falaj.components import catalogue
from falaj.components.catalogue.clusters import GPU, HOSTNAME_LABEL, TENANT_LABEL, TIME_SLICE
from falaj.components.kubernetes._objects import Manifest, metadata
from falaj.components.kubernetes._placed import InCluster
from falaj.components.specification.node_pools import AKS_SPOT_TAINT, FLAVOR, GPU_TAINT, Taint

# Fractions of GPUs are counted in one currency, so that quotas and fair shares compare them. A MIG
# slice and a whole GPU have different resource names, which Kueue can't add up. Each is therefore
# counted a second time, in credits: 840 for a whole GPU, which 1 to 8 parts divide. The first
# count stays, so that a slice is only admitted where there are slices. Kueue's configuration needs
# `transformations`; every queue of `GpuQueues` has quota for `CREDIT`.
# https://kueue.sigs.k8s.io/docs/tasks/manage/administer_cluster_quotas/#transform-resources-for-quota-management

CREDIT: Final = "falaj.io/gpu-credit"
WHOLE: Final = 840
"""Credits of a whole GPU: the least number that 1 to 8 divide."""
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
    if resource == TIME_SLICE:
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
    names = resources or (GPU, TIME_SLICE, *(f"nvidia.com/mig-{each}" for each in instances()))
    found: list[dict[str, Any]] = []
    for name in sorted(set(names)):
        worth = credits_of(name)
        if worth is None:
            raise ValueError(
                f"{name!r} is no GPU; allowed: {GPU}, {TIME_SLICE} and MIG profiles such as "
                "nvidia.com/mig-1g.18gb"
            )
        found.append({"input": name, "strategy": "Retain", "outputs": {CREDIT: str(worth)}})
    return found


NAMESPACE: Final = "kueue-system"
API: Final = "kueue.x-k8s.io/v1beta2"
TOPOLOGY: Final = "falaj"
HOSTS: Final = "falaj-hosts"
"""Topology of pools whose nodes are all alike: gangs fit on nodes, or wait."""
#: What nodes carry without anybody's doing, from the widest: a node that lacks one label of a
#: topology is no part of it, so that no gang is ever admitted to it. EKS:
#: https://docs.aws.amazon.com/eks/latest/userguide/node-topology.html, which nodes of accelerated
#: instance types have. Elsewhere whoever racks the machines labels them, and says so.
#: https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/
LEVELS: Final[Mapping[str, tuple[str, ...]]] = {
    "eks": (
        *(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3)),
        HOSTNAME_LABEL,
    ),
    "aks": (HOSTNAME_LABEL,),
    "existing": (HOSTNAME_LABEL,),
}
CAPACITIES: Final = ("reservation", "capacity-block", "spot", "on-demand")
"""In the order that they are tried: what is paid for anyway, what is cheap, the rest."""


@dataclass(frozen=True, kw_only=True)
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
    images: tuple[str, ...] = ()
    """What its nodes keep, as pods name it."""

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
        for name, labels in ((TOPOLOGY, levels), (HOSTS, (HOSTNAME_LABEL,)))
        if name in used
    ]


def flavor(placed: InCluster, component: str, pool: Pool) -> Manifest:
    """What Kueue admits pods to; it gives them the pool's label and tolerations.

    All but that of GPU nodes: pods have to bring it, so that jobs without GPUs never take the
    cores and the memory that go with GPUs.
    """
    spec: dict[str, Any] = {"nodeLabels": {FLAVOR: pool.flavor, **placed.node_selector}}
    if pool.devices:
        spec["nodeTaints"] = [
            {"key": GPU_TAINT.key, "value": GPU_TAINT.value, "effect": GPU_TAINT.effect}
        ]
    if tolerated := tolerations(placed, pool):
        spec["tolerations"] = tolerated
    if pool.topology:
        spec["topologyName"] = pool.topology
    return {
        "apiVersion": API,
        "kind": "ResourceFlavor",
        "metadata": metadata(placed, component, pool.flavor),
        "spec": spec,
    }


def tolerations(placed: InCluster, pool: Pool, *, gpus: bool = False) -> list[dict[str, str]]:
    """Of the taints that a pool's nodes have.

    Args:
        placed: whom the component is for.
        pool: the pool.
        gpus: with that of GPU nodes.
    """
    taints = [GPU_TAINT, *pool.taints] if gpus else list(pool.taints)
    if pool.capacity == "spot" and placed.distribution == "aks":
        taints.append(AKS_SPOT_TAINT)
    return [_toleration(each) for each in taints]


def _toleration(taint: Taint) -> dict[str, str]:
    match = {"operator": "Equal", "value": taint.value} if taint.value else {"operator": "Exists"}
    return {"key": taint.key, "effect": taint.effect, **match}


URGENT: Final = "falaj-urgent"
PRIORITIES: Final[dict[str, int]] = {
    "falaj-low": 100,
    "falaj-normal": 1_000,
    "falaj-high": 10_000,
    URGENT: 100_000,
}
"""Priority by name; a higher one goes first."""
DEFAULT: Final = "falaj-normal"
_MEANING: Final = {
    "falaj-low": "Sweeps and experiments that may wait and be stopped.",
    "falaj-normal": "Training as planned.",
    "falaj-high": "Training with a date, and services that people wait for.",
    URGENT: "What a business stands still without. Only for tenants that were given it.",
}


def priorities(placed: InCluster, component: str) -> list[Manifest]:
    """The classes of priority, for Kueue and for pods."""
    found: list[Manifest] = []
    for name, value in PRIORITIES.items():
        about = metadata(placed, component, name)
        found += [
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": about,
                "value": value,
                "globalDefault": False,
                "preemptionPolicy": "PreemptLowerPriority" if name == URGENT else "Never",
                "description": _MEANING[name],
            },
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "WorkloadPriorityClass",
                "metadata": about,
                "value": value,
                "description": _MEANING[name],
            },
        ]
    return found


COHORT: Final = "falaj"
_FIRST: Final = ("cpu", "memory")


@dataclass(frozen=True)
class Share:
    """What a tenant has of one pool."""

    nominal: Mapping[str, int]
    """Its own, in the units of `Pool.offered`."""
    borrow: Mapping[str, int]
    """Most devices that it borrows; without an entry there is no limit."""
    lend: Mapping[str, int]
    """Most devices that it lends; likewise."""


@dataclass(frozen=True)
class Queue:
    """A tenant's cluster queue."""

    tenant: str
    shares: Mapping[str, Share]
    """By flavour."""
    weight: float
    strategy: str


@dataclass(frozen=True)
class Preemption:
    """Who has to make way for whom."""

    reclaim: str
    """For a tenant that wants back what it lent."""
    within: str
    """For jobs of the same tenant."""
    while_borrowing: bool
    """Whether a borrowing job displaces others of lower priority."""


def cluster_queue(
    placed: InCluster,
    component: str,
    queue: Queue,
    pools: Mapping[str, Pool],
    *,
    preemption: Preemption,
    usage_based: bool,
    checks: Mapping[str, Sequence[str]],
) -> Manifest:
    """A tenant's cluster queue in the cohort.

    Args:
        placed: whom the component is for.
        component: its name.
        queue: the tenant's shares.
        pools: by flavour.
        preemption: who makes way.
        usage_based: whether queues of the tenant take turns by what they used before.
        checks: names of admission checks, and the flavours they are for.
    """
    shares = {each.flavor: queue.shares[each.flavor] for each in ordered(pools, queue.shares)}
    resources = _covered([pools[each] for each in shares])
    policy: dict[str, Any] = {
        "reclaimWithinCohort": preemption.reclaim,
        "withinClusterQueue": preemption.within,
    }
    if preemption.while_borrowing:
        policy["borrowWithinCohort"] = {
            "policy": "LowerPriority",
            "maxPriorityThreshold": PRIORITIES["falaj-normal"],
        }
    spec: dict[str, Any] = {
        "cohortName": COHORT,
        "namespaceSelector": {"matchLabels": {TENANT_LABEL: queue.tenant}},
        "queueingStrategy": queue.strategy,
        "fairSharing": {"weight": f"{queue.weight:g}"},
        # Own quota of another flavour first, then what others lend, then pre-emption.
        "flavorFungibility": {
            "whenCanBorrow": "TryNextFlavor",
            "whenCanPreempt": "TryNextFlavor",
        },
        "preemption": policy,
        "resourceGroups": [
            {
                "coveredResources": resources,
                "flavors": [
                    {
                        "name": flavor,
                        "resources": [_quota(each, share) for each in resources],
                    }
                    for flavor, share in shares.items()
                ],
            }
        ],
    }
    if usage_based:
        spec["admissionScope"] = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    strategies = [
        {"name": name, "onFlavors": [each for each in flavors if each in shares]}
        for name, flavors in checks.items()
        if any(each in shares for each in flavors)
    ]
    if strategies:
        spec["admissionChecksStrategy"] = {"admissionChecks": strategies}
    return {
        "apiVersion": API,
        "kind": "ClusterQueue",
        "metadata": metadata(placed, component, queue.tenant),
        "spec": spec,
    }


def cohort(
    placed: InCluster, component: str, queues: Sequence[Queue], pools: Mapping[str, Pool]
) -> Manifest:
    """The cohort, which has what no tenant was given: all of them may borrow it."""
    resources = _covered(list(pools.values()))
    flavors: list[dict[str, Any]] = []
    for pool in ordered(pools, pools):
        left = dict(pool.offered)
        for queue in queues:
            share = queue.shares.get(pool.flavor)
            for name, amount in share.nominal.items() if share else ():
                left[name] -= amount
        share = Share(left, {}, {})
        flavors.append({"name": pool.flavor, "resources": [_quota(r, share) for r in resources]})
    return {
        "apiVersion": API,
        "kind": "Cohort",
        "metadata": metadata(placed, component, COHORT),
        "spec": {"resourceGroups": [{"coveredResources": resources, "flavors": flavors}]},
    }


def ordered(pools: Mapping[str, Pool], flavors: Mapping[str, Any]) -> list[Pool]:
    """Pools in the order that Kueue tries them.

    Those without GPUs come first: a job that needs none is never admitted to one with. Then what
    is paid for anyway, spot, and the rest; among equals as they were given.
    """
    chosen = [each for each in pools.values() if each.flavor in flavors]
    return sorted(chosen, key=lambda one: (bool(one.devices), CAPACITIES.index(one.capacity)))


def _covered(pools: Sequence[Pool]) -> list[str]:
    devices = sorted({name for each in pools for name in each.devices})
    return [*_FIRST, *devices, *([CREDIT] if devices else [])]


def _quota(resource: str, share: Share) -> dict[str, str]:
    """A resource's quota; what a flavour doesn't offer is 0, so that nobody borrows it."""
    nominal = with_credits(share.nominal)
    found = {
        "name": resource,
        "nominalQuota": quantity(resource, nominal.get(resource, 0)),
    }
    for key, limits in (("borrowingLimit", share.borrow), ("lendingLimit", share.lend)):
        if resource in limits:
            found[key] = quantity(resource, limits[resource])
        elif (
            resource == CREDIT
            and limits
            and all(name in limits for name in share.nominal if credits_of(name))
        ):
            found[key] = str(with_credits(limits)[CREDIT])
    return found


PROVISIONING: Final = "falaj-provisioning"
BURST_QUEUE: Final = "burst"
"""Name of the queue whose jobs go to other clusters in the country."""
QUANTITY: Final = re.compile(r"^\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")
#: https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md
#: #how-can-i-use-provisioningrequest-to-run-batch-workloads
CLASSES: Final = (
    "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
    "check-capacity.autoscaling.x-k8s.io",
)


@dataclass(frozen=True)
class Provisioning:
    """Machines that the autoscaler makes for a whole gang, or not at all."""

    class_name: str
    flavors: tuple[str, ...]
    retries: int


def provisioning(
    placed: InCluster, component: str, plan: Provisioning, devices: Sequence[str]
) -> list[Manifest]:
    """A check that asks the cluster autoscaler for machines before a job is admitted."""
    about = metadata(placed, component, PROVISIONING)
    return [
        {
            "apiVersion": API,
            "kind": "ProvisioningRequestConfig",
            "metadata": about,
            "spec": {
                "provisioningClassName": plan.class_name,
                "managedResources": list(devices),
                "retryStrategy": {
                    "backoffLimitCount": plan.retries,
                    "backoffBaseSeconds": 60,
                    "backoffMaxSeconds": 1800,
                },
            },
        },
        admission_check(about, "kueue.x-k8s.io/provisioning-request", "ProvisioningRequestConfig"),
    ]


def admission_check(about: Mapping[str, Any], controller: str, kind: str) -> Manifest:
    """A check of Kueue's, with the object of its settings, both called as ``about`` says."""
    return {
        "apiVersion": API,
        "kind": "AdmissionCheck",
        "metadata": dict(about),
        "spec": {
            "controllerName": controller,
            "parameters": {
                "apiGroup": "kueue.x-k8s.io",
                "kind": kind,
                "name": about["name"],
            },
        },
    }
