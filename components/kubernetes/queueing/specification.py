"""The arguments of `GpuQueues`, checked: no quota is given twice, nor where there is no pool."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from falaj.components.kubernetes._nested import amount, by_name, object_name, options
from falaj.components.kubernetes._placed import InCluster, check_in_cluster
from falaj.components.kubernetes.queueing.arguments import (
    GpuQueuesArgs,
    QueuePoolArgs,
    QueuePreemptionArgs,
    QueueShareArgs,
    QueueTenantArgs,
)
from falaj.components.kubernetes.queueing.burst_arguments import (
    checked_burst,
    checked_provisioning,
)
from falaj.components.kubernetes.queueing.checks import Burst, Provisioning
from falaj.components.kubernetes.queueing.cluster_queues import Preemption, Queue, Share
from falaj.components.kubernetes.queueing.credits import GPU, SHARED, credits_of
from falaj.components.kubernetes.queueing.pools import (
    CAPACITIES,
    HOSTS,
    LEVELS,
    TOPOLOGY,
    Pool,
    quantity,
)
from falaj.components.specification.node_labels import checked_taints
from falaj.components.specification.placed import DATA_CLASSES
from falaj.components.specification.refusals import Refusals

_MOST_NODES: Final = 100_000
_LEVEL: Final = re.compile(r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?$")
_HOST: Final = "kubernetes.io/hostname"
#: Kueue's own limits: 64 flavours and 64 resources in a group.
_MOST_FLAVORS: Final = 64


@dataclass(frozen=True)
class GpuQueuesSpec:
    """The arguments of `GpuQueues`, checked."""

    placed: InCluster
    name: str
    pools: dict[str, Pool]
    queues: tuple[Queue, ...]
    topology_levels: tuple[str, ...]
    preemption: Preemption
    admission_fair_sharing: bool
    burst: Burst | None
    provisioning: Provisioning | None
    priority_classes: bool


def check(name: str, args: GpuQueuesArgs) -> GpuQueuesSpec:
    """Check the arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    refusals = Refusals(f"GpuQueues {name!r}")
    given: Mapping[str, Any] = args
    refusals.names(given, GpuQueuesArgs)
    placed = check_in_cluster(given, refusals)
    distribution = placed.distribution if placed else "existing"
    pools = {
        flavor: pool
        for flavor, one in by_name("pools", given.get("pools", {}), refusals).items()
        if (pool := _pool(flavor, one, distribution, refusals))
    }
    if all(each.topology != TOPOLOGY for each in pools.values()):
        # Nobody asked for any: machines that don't exist yet would have no place in one.
        pools = {flavor: replace(each, topology="") for flavor, each in pools.items()}
    if not given.get("pools") or len(pools) > _MOST_FLAVORS:
        refusals.add("pools", f"{len(pools)} pools", f"1 to {_MOST_FLAVORS}")
    data_class = placed.data_class if placed else "internal"
    unknown = by_name("pools", given.get("pools", {}), refusals).keys() - pools.keys()
    queues = tuple(
        _queue(tenant, one, pools=pools, refused=unknown, data_class=data_class, refusals=refusals)
        for tenant, one in by_name("tenants", given.get("tenants", {}), refusals).items()
    )
    if not queues:
        refusals.add("tenants", given.get("tenants"), "at least one")
    _within_capacity(pools, queues, refusals)
    _not_shared(pools, queues, refusals)
    _all_with_topology(pools, queues, refusals)
    levels = _levels(given.get("topology_levels", LEVELS[distribution]), refusals)
    fair = refusals.flag("fair_sharing", given.get("fair_sharing", True))
    preemption = _preemption(given.get("preemption", {}), fair, refusals)
    usage = refusals.flag("admission_fair_sharing", given.get("admission_fair_sharing", False))
    tenants = [each.tenant for each in queues]
    burst = checked_burst(given.get("burst"), tenants, refusals)
    provisioning = checked_provisioning(given.get("provisioning"), tuple(pools), refusals)
    classes = refusals.flag("priority_classes", given.get("priority_classes", True))
    refusals.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return GpuQueuesSpec(
        placed, name, pools, queues, levels, preemption, usage, burst, provisioning, classes
    )


def _pool(flavor: str, value: object, distribution: str, refusals: Refusals) -> Pool | None:
    at = f"pools[{flavor!r}]"
    before = refusals.count
    given = options(at, value, QueuePoolArgs, refusals)
    if not re.match(r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$", flavor):
        refusals.add(at, flavor, "at most 63 of a-z, 0-9, '-' and '.', not at either end")
    devices = {
        name: refusals.whole(f"{at}.devices[{name!r}]", each, 1, 1024)
        for name, each in by_name(f"{at}.devices", given.get("devices", {}), refusals).items()
    }
    for name in devices:
        if credits_of(name) is None:
            refusals.add(
                f"{at}.devices[{name!r}]", name,
                f"{GPU}, {SHARED}, or a MIG profile such as nvidia.com/mig-1g.18gb",
            )  # fmt: skip
    capacity = given.get("capacity", "on-demand")
    refusals.choice(f"{at}.capacity", capacity, CAPACITIES)
    nodes = refusals.whole(f"{at}.nodes", given.get("nodes"), 0, _MOST_NODES)
    cpu = amount(f"{at}.cpu", given.get("cpu"), refusals)
    memory = refusals.whole(f"{at}.memory_gib", given.get("memory_gib"), 1, 1_000_000)
    taints = checked_taints({"taints": given.get("taints")}, refusals)
    wanted = given.get("topology", True if distribution == "existing" and GPU in devices else None)
    topology = TOPOLOGY if wanted else HOSTS
    if wanted is not None and not refusals.flag(f"{at}.topology", wanted):
        topology = ""
    tenants = refusals.texts(f"{at}.tenants", given.get("tenants", []))
    shared = refusals.flag(f"{at}.tenants_share_gpus", given.get("tenants_share_gpus", False))
    if refusals.count > before:
        return None
    return Pool(
        flavor, nodes, cpu, memory, devices, str(capacity), taints, topology, tenants, shared
    )


def _queue(
    tenant: str,
    value: object,
    *,
    pools: Mapping[str, Pool],
    refused: Sequence[str] | set[str],
    data_class: str,
    refusals: Refusals,
) -> Queue:
    at = f"tenants[{tenant!r}]"
    given = options(at, value, QueueTenantArgs, refusals)
    object_name(at, tenant, refusals)
    data_class = given.get("data_class", data_class)
    refusals.choice(f"{at}.data_class", data_class, DATA_CLASSES)
    strategy = given.get("strategy", "BestEffortFIFO")
    refusals.choice(f"{at}.strategy", strategy, ("BestEffortFIFO", "StrictFIFO"))
    shares: dict[str, Share] = {}
    quotas = by_name(f"{at}.quotas", given.get("quotas", {}), refusals)
    if not quotas:
        refusals.add(f"{at}.quotas", given.get("quotas"), "a share of at least one pool")
    for flavor, one in quotas.items():
        where = f"{at}.quotas[{flavor!r}]"
        pool = pools.get(flavor)
        if pool is None:
            if flavor not in refused:
                known = ", ".join(pools) or "none"
                refusals.add(where, flavor, f"the pools of this cluster: {known}")
            continue
        if pool.tenants and tenant not in pool.tenants:
            refusals.add(where, flavor, f"pools that {tenant} may use",
                         f"this one is for {', '.join(pool.tenants)}")  # fmt: skip
        if data_class == "restricted" and (pool.capacity == "spot" or SHARED in pool.devices):
            refusals.add(
                where, flavor, "neither spot machines nor time slices for restricted data",
                "use another pool, or MIG profiles",
            )  # fmt: skip
        shares[flavor] = _share(where, one, pool, refusals)
    weight = amount(f"{at}.weight", given.get("weight", 1), refusals)
    return Queue(tenant, shares, weight, str(strategy))


def _share(at: str, value: object, pool: Pool, refusals: Refusals) -> Share:
    given = options(at, value, QueueShareArgs, refusals)
    offered = pool.offered

    def counts(key: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, most in by_name(f"{at}.{key}", given.get(key, {}), refusals).items():
            if name in pool.devices:
                found[name] = refusals.whole(f"{at}.{key}[{name!r}]", most, 0, 10**9)
            else:
                known = ", ".join(pool.devices) or "no devices"
                refusals.add(f"{at}.{key}[{name!r}]", name, f"{known}, as {pool.flavor} has")
        return found

    devices = {**dict.fromkeys(pool.devices, 0), **counts("devices")}
    # Rounded down, so that parts never add up to more than there is.
    parts = [(devices[each], offered[each]) for each in devices if offered[each]]
    mine, all_of_them = min(parts, key=lambda one: one[0] / one[1]) if parts else (0, 1)
    nominal = {
        "cpu": offered["cpu"] * mine // all_of_them,
        "memory": offered["memory"] * mine // all_of_them,
        **devices,
    }
    if not pool.devices:
        for key in ("cpu", "memory_gib"):
            if given.get(key) is None:
                refusals.say(f"{at}.{key}", f"missing; {pool.flavor} has no devices to go by")
    if given.get("cpu") is not None:
        nominal["cpu"] = int(amount(f"{at}.cpu", given["cpu"], refusals, above=-1e-9) * 1000)
    if given.get("memory_gib") is not None:
        nominal["memory"] = refusals.whole(f"{at}.memory_gib", given["memory_gib"], 0, 10**9)
    return Share(nominal, counts("borrow"), counts("lend"))


def _within_capacity(
    pools: Mapping[str, Pool], queues: Sequence[Queue], refusals: Refusals
) -> None:
    for pool in pools.values():
        for resource, most in pool.offered.items():
            parts = {
                each.tenant: each.shares[pool.flavor].nominal[resource]
                for each in queues
                if pool.flavor in each.shares
            }
            total = sum(parts.values())
            if total > most:
                listed = ", ".join(
                    f"{tenant} {quantity(resource, part)}" for tenant, part in parts.items()
                )
                refusals.say(
                    f"pools[{pool.flavor!r}]",
                    f"{resource}: the quotas add up to {quantity(resource, total)} ({listed}); "
                    f"allowed: {quantity(resource, most)}, which {pool.nodes} nodes have; lower "
                    "the quotas and let tenants borrow, or raise nodes",
                )


def _not_shared(pools: Mapping[str, Pool], queues: Sequence[Queue], refusals: Refusals) -> None:
    """Time slices keep no memory apart: one tenant on each such pool, unless it is allowed."""
    for pool in pools.values():
        users = [each.tenant for each in queues if pool.flavor in each.shares]
        if SHARED in pool.devices and len(users) > 1 and not pool.tenants_share_gpus:
            refusals.say(
                f"pools[{pool.flavor!r}]",
                f"its GPUs are time-sliced, and {', '.join(users)} would share them; allowed: one "
                "tenant; use MIG profiles, or set tenants_share_gpus to true",
            )


def _all_with_topology(
    pools: Mapping[str, Pool], queues: Sequence[Queue], refusals: Refusals
) -> None:
    for queue in queues:
        without = [each for each in queue.shares if not pools[each].topology]
        if without and len(without) < len(queue.shares):
            refusals.say(
                f"tenants[{queue.tenant!r}].quotas",
                f"{', '.join(without)} have no topology, its other pools have one; allowed: all "
                "or none, else jobs that ask for none get into those without alone; leave out "
                "topology: false",
            )


def _levels(value: object, refusals: Refusals) -> tuple[str, ...]:
    levels = refusals.texts("topology_levels", value)
    for position, each in enumerate(levels):
        at = f"topology_levels[{position}]"
        if not _LEVEL.match(each):
            refusals.add(at, each, "the name of a label of nodes")
        elif each == _HOST and position != len(levels) - 1:
            refusals.add(at, each, f"{_HOST} as the last one only")
    if not levels or len(levels) > 16:
        refusals.add("topology_levels", value, "1 to 16 labels of nodes")
    return levels


def _preemption(value: object, fair: bool, refusals: Refusals) -> Preemption:
    given = options("preemption", value, QueuePreemptionArgs, refusals)
    reclaim = given.get("reclaim", "Any")
    refusals.choice("preemption.reclaim", reclaim, ("Any", "LowerPriority", "Never"))
    within = given.get("within_queue", "LowerPriority")
    refusals.choice(
        "preemption.within_queue", within, ("LowerPriority", "LowerOrNewerEqualPriority", "Never")
    )
    borrowing = refusals.flag("preemption.while_borrowing", given.get("while_borrowing", False))
    if borrowing and fair:
        refusals.add(
            "preemption.while_borrowing", True, "false, where fair_sharing is true",
            "Kueue has it with classical pre-emption only",
        )  # fmt: skip
    return Preemption(str(reclaim), str(within), borrowing)
