"""Cluster queues: how much of each pool a tenant has for itself, borrows and lends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from falaj.components.kubernetes._metadata import metadata
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import TENANT_LABEL, InCluster
from falaj.components.kubernetes.queueing.credits import CREDIT, credits_of
from falaj.components.kubernetes.queueing.pools import (
    API,
    CAPACITIES,
    Pool,
    quantity,
    with_credits,
)
from falaj.components.kubernetes.queueing.priorities import PRIORITIES

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
