"""How a cluster's GPUs are shared: who has how many, who borrows, and who makes way.

No quota is given twice, nor where there is no pool.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, NotRequired, TypedDict

import pulumi
from annotated_types import Len

from falaj.components.catalogue.clusters import GPU, HOSTNAME_LABEL, TIME_SLICE
from falaj.components.kubernetes._objects import Manifest, declare, token
from falaj.components.kubernetes._placed import (
    InCluster,
    InClusterArgs,
    check_in_cluster,
)
from falaj.components.kubernetes._validation import OBJECT, by_name, checked, options
from falaj.components.kubernetes.gpu_queues.burst import (
    Burst,
    QueueBurstArgs,
    QueueWorkerArgs,
    accepting,
    checked_accepts,
    checked_burst,
    sending,
)
from falaj.components.kubernetes.gpu_queues.prefetch import (
    MOST_IMAGES,
    prefetching,
    references,
    with_image_volumes,
)
from falaj.components.kubernetes.gpu_queues.queues import (
    CAPACITIES,
    CLASSES,
    HOSTS,
    LEVELS,
    PROVISIONING,
    TOPOLOGY,
    Pool,
    Preemption,
    Provisioning,
    Queue,
    Share,
    cluster_queue,
    cohort,
    credits_of,
    flavor,
    priorities,
    provisioning,
    quantity,
    topologies,
)
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default, with_defaults
from falaj.components.specification.described import described
from falaj.components.specification.limits import DATA_CLASS, Between, OneOf
from falaj.components.specification.limits import OBJECT as NAME
from falaj.components.specification.node_pools import checked_taints
from falaj.components.specification.property_names import engine_inputs
from falaj.wire.documents import mapping

__all__ = [
    "GpuQueues",
    "GpuQueuesArgs",
    "QueueBurstArgs",
    "QueuePoolArgs",
    "QueuePreemptionArgs",
    "QueueProvisioningArgs",
    "QueueShareArgs",
    "QueueTenantArgs",
    "QueueWorkerArgs",
    "check",
    "manifests",
]


#: Kueue's own limits: 64 flavours and 64 resources in a group.
_MOST_FLAVORS: Final = 64
_CORES: Final = Between(0, math.inf, above=True)
_COUNT: Final = Between(0, 10**9)
_RECLAIM: Final = OneOf(("Any", "LowerPriority", "Never"))
_WITHIN_QUEUE: Final = OneOf(("LowerPriority", "LowerOrNewerEqualPriority", "Never"))
_STRATEGY: Final = OneOf(("BestEffortFIFO", "StrictFIFO"))


class QueuePoolArgs(TypedDict):
    """Nodes that carry the same label ``falaj.io/flavor``."""

    nodes: Annotated[int, Between(0, 100_000)]
    """Most nodes, as the pool scales to."""
    cpu: Annotated[float, _CORES]
    """Cores of one node that are left for pods."""
    memory_gib: Annotated[int, Between(1, 1_000_000)]
    """Memory of one node that is left for pods."""
    devices: NotRequired[dict[str, Annotated[int, Between(1, 1024)]]]
    """GPUs or parts of them that one node offers, by name: ``{"nvidia.com/gpu": 8}``. Default:
    none."""
    capacity: NotRequired[Annotated[str, OneOf(CAPACITIES), Default("on-demand")]]
    """How its machines are bought."""
    taints: NotRequired[list[str]]
    """``key=value:Effect``, beside that of GPU nodes. Default: none."""
    topology: NotRequired[bool]
    """Whether gangs are placed by the cluster's topology, whose labels all its nodes have. Only
    nodes that exist have a place in it: pools that scale from zero need ``provisioning`` then.
    Default: true for whole GPUs of an ``existing`` cluster; where any pool has it, the others are
    placed by node alone."""
    tenants: NotRequired[list[str]]
    """Tenants that the pool is for. Default: whoever has a quota."""
    tenants_share_gpus: NotRequired[Annotated[bool, Default(value=False)]]
    """Whether several tenants may be on one GPU by time-slicing."""
    prefetch_images: NotRequired[Annotated[list[str], Len(1, MOST_IMAGES)]]
    """Images that its nodes have before pods need them, pulled in this order: short names of the
    bill of materials such as ``falaj-training``, or images below the registry with their digest,
    ``team/train@sha256:…``. Nodes need Kubernetes 1.35 and containerd 2.1, or later, and
    disks that all of them fit on. Default: none."""


class QueueShareArgs(TypedDict):
    """What a tenant has of one pool."""

    devices: NotRequired[dict[str, Annotated[int, _COUNT]]]
    """Its own GPUs, or parts of them. Default: none; it borrows."""
    cpu: NotRequired[Annotated[float, Between(0, math.inf)]]
    """Its own cores. Default: as large a part of the pool's as of its devices."""
    memory_gib: NotRequired[Annotated[int, _COUNT]]
    """Its own memory. Default: likewise."""
    borrow: NotRequired[dict[str, Annotated[int, _COUNT]]]
    """Most devices that it borrows from others, by name. Default: what is idle."""
    lend: NotRequired[dict[str, Annotated[int, _COUNT]]]
    """Most devices that it lends, by name. Default: what is idle."""


class QueueTenantArgs(TypedDict):
    """A tenant's queue."""

    quotas: Annotated[dict[str, QueueShareArgs], Len(1)]
    """What it has of each pool, by flavour. It gets into no other pool."""
    weight: NotRequired[Annotated[float, Between(0, math.inf, above=True), Default(1)]]
    """Its claim to what is idle, against others'."""
    strategy: NotRequired[Annotated[str, _STRATEGY, Default("BestEffortFIFO")]]
    """``BestEffortFIFO`` lets small jobs pass a large one that waits; ``StrictFIFO`` doesn't."""
    data_class: NotRequired[Annotated[str, DATA_CLASS]]
    """Class of its data. Restricted data gets no spot machines and no time slices. Default: that
    of the component."""


class QueuePreemptionArgs(TypedDict):
    """Who has to make way."""

    reclaim: NotRequired[Annotated[str, _RECLAIM, Default("Any")]]
    """For a tenant that wants back what it lent."""
    within_queue: NotRequired[Annotated[str, _WITHIN_QUEUE, Default("LowerPriority")]]
    """For another job of the same tenant."""
    while_borrowing: NotRequired[Annotated[bool, Default(value=False)]]
    """Whether a job that borrows displaces others of at most ``falaj-normal``. Not with fair
    sharing."""


class QueueProvisioningArgs(TypedDict):
    """Machines that the cluster autoscaler makes for whole gangs."""

    flavors: Annotated[list[str], Len(1)]
    """Pools that it is asked for."""
    class_name: NotRequired[Annotated[str, OneOf(CLASSES), Default(CLASSES[0])]]
    """Class of the ProvisioningRequest."""
    retries: NotRequired[Annotated[int, Between(0, 100), Default(3)]]
    """How often it is asked again: a minute later at first, half an hour at most."""


@described
class GpuQueuesArgs(InClusterArgs):
    """Arguments of `GpuQueues`."""

    pools: Annotated[dict[str, QueuePoolArgs], Len(1, _MOST_FLAVORS)]
    """The cluster's pools, by the value of their label ``falaj.io/flavor``: ``h200``,
    ``h200-mig-1g.18gb``, ``l4-time-slicing-4``, ``cpu-x86-64`` …"""
    tenants: Annotated[dict[Annotated[str, NAME], QueueTenantArgs], Len(1)]
    """Queues by tenant."""
    topology_levels: NotRequired[Annotated[list[str], Len(1, 16)]]
    """Labels that all nodes of pools with ``topology`` carry, from the widest domain to
    ``kubernetes.io/hostname``. A node that lacks one gets no gang. Default: what nodes carry by
    themselves: EKS' network layers, elsewhere ``kubernetes.io/hostname`` alone. For jobs that ask
    for a ``rack`` or a ``block`` label the nodes and name ``falaj.io/block``, ``falaj.io/rack``
    and ``kubernetes.io/hostname``."""
    fair_sharing: NotRequired[Annotated[bool, Default(value=True)]]
    """Whether Kueue is configured with fair sharing, as `Platform` does."""
    admission_fair_sharing: NotRequired[Annotated[bool, Default(value=False)]]
    """Whether queues of one tenant take turns by what they used."""
    preemption: NotRequired[QueuePreemptionArgs]
    """Who has to make way. Default: as stated there."""
    burst: NotRequired[QueueBurstArgs]
    """Other clusters in the country that take jobs (MultiKueue). Default: none."""
    accepts: NotRequired[dict[str, list[str]]]
    """Other clusters in the country that may send jobs here, with the tenants whose jobs they are:
    ``{"abudhabi-dc1": ["acme"]}``. Their names are those that their own Kueue has (``origin`` of
    the add-on, by default the region). Each gets the account ``burst-<cluster>`` in
    ``kueue-system``, which makes jobs in those tenants' namespaces for training alone, and touches
    none but its own cluster's. Default: none."""
    provisioning: NotRequired[QueueProvisioningArgs]
    """Machines that are made before a job is admitted. Default: the autoscaler follows pods."""
    priority_classes: NotRequired[Annotated[bool, Default(value=True)]]
    """Whether the classes of priority are made here, once for a cluster."""
    images: NotRequired[dict[str, str]]
    """Digests by short name, for ``prefetch_images`` and the program that holds them. Default: the
    bill of materials'."""
    kubernetes_version: NotRequired[pulumi.Input[str]]
    """Version of the cluster, such as ``1.36``: ``prefetch_images`` is refused where that is too
    old. Default: that of the cluster's stack; where there is none the cluster refuses the pods."""


def checked_provisioning(
    given: Mapping[str, Any] | None, flavors: Sequence[str], errors: ArgumentErrors
) -> Provisioning | None:
    """Machines that the autoscaler makes for a gang."""
    if given is None:
        return None
    chosen: tuple[str, ...] = given["flavors"] or ()
    for position, each in enumerate(chosen):
        if each not in flavors:
            errors.add(
                f"provisioning.flavors[{position}]", each,
                f"the pools of this cluster: {', '.join(flavors) or 'none'}",
            )  # fmt: skip
    return Provisioning(given["class_name"], chosen, given["retries"])


_LEVEL: Final = re.compile(r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?$")


@dataclass(frozen=True, kw_only=True)
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
    accepts: Mapping[str, tuple[str, ...]]
    provisioning: Provisioning | None
    priority_classes: bool
    holder: pulumi.Input[str] = ""
    """Image of the program that holds images on nodes; empty where none are kept."""


def check(name: str, args: GpuQueuesArgs) -> GpuQueuesSpec:
    """Check the arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"GpuQueues {name!r}")
    given: Mapping[str, Any] = args
    errors.names(given, GpuQueuesArgs)
    placed = check_in_cluster(given, errors)
    distribution = placed.distribution if placed else "existing"
    pools = {
        flavor: pool
        for flavor, one in by_name("pools", given.get("pools", {}), errors).items()
        if (pool := _pool(flavor, one, distribution, errors))
    }
    if all(each.topology != TOPOLOGY for each in pools.values()):
        # Nobody asked for any: machines that don't exist yet would have no place in one.
        pools = {flavor: replace(each, topology="") for flavor, each in pools.items()}
    data_class = placed.data_class if placed else "internal"
    unknown = by_name("pools", given.get("pools", {}), errors).keys() - pools.keys()
    queues = tuple(
        _queue(tenant, one, pools=pools, refused=unknown, data_class=data_class, errors=errors)
        for tenant, one in by_name("tenants", given.get("tenants", {}), errors).items()
    )
    stated = checked(given, GpuQueuesArgs, errors)
    _within_capacity(pools, queues, errors)
    _not_shared(pools, queues, errors)
    _all_with_topology(pools, queues, errors)
    levels = stated["topology_levels"] or LEVELS[distribution]
    _check_levels(levels, errors)
    preemption = _preemption(stated, errors)
    tenants = [each.tenant for each in queues]
    burst = checked_burst(stated["burst"], tenants, errors)
    accepts = checked_accepts(stated["accepts"], tenants, burst, errors)
    provisioning = checked_provisioning(stated["provisioning"], tuple(pools), errors)
    pools, holder = _with_images(pools, given, placed, errors)
    errors.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return GpuQueuesSpec(
        placed=placed,
        name=name,
        pools=pools,
        queues=queues,
        topology_levels=levels,
        preemption=preemption,
        admission_fair_sharing=stated["admission_fair_sharing"],
        burst=burst,
        accepts=accepts,
        provisioning=provisioning,
        priority_classes=stated["priority_classes"],
        holder=holder,
    )


def _with_images(
    pools: Mapping[str, Pool],
    given: Mapping[str, Any],
    placed: InCluster | None,
    errors: ArgumentErrors,
) -> tuple[dict[str, Pool], pulumi.Input[str]]:
    """The pools with what their nodes keep, and the image of the program that holds it."""
    wanted = {
        flavor: value
        for flavor in pools
        if (value := given["pools"][flavor].get("prefetch_images")) is not None
    }
    if placed is None or not wanted:
        return dict(pools), ""
    paths = {flavor: f"pools[{flavor!r}].prefetch_images" for flavor in wanted}
    found, holder = references(
        {paths[flavor]: value for flavor, value in wanted.items()},
        placed,
        given.get("images"),
        errors,
    )
    kept = {flavor: found[path] for flavor, path in paths.items()}
    return {
        flavor: replace(pool, images=kept.get(flavor, ())) for flavor, pool in pools.items()
    }, with_image_volumes(given.get("kubernetes_version"), holder, errors)


def _pool(flavor: str, value: object, distribution: str, errors: ArgumentErrors) -> Pool | None:
    at = f"pools[{flavor!r}]"
    before = errors.count
    given = checked(options(at, value, QueuePoolArgs, errors), QueuePoolArgs, errors, at)
    if not OBJECT.match(flavor):
        errors.add(at, flavor, "at most 63 of a-z, 0-9, '-' and '.', not at either end")
    devices: dict[str, int] = given["devices"] or {}
    for name in devices:
        if credits_of(name) is None:
            errors.add(
                f"{at}.devices[{name!r}]", name,
                f"{GPU}, {TIME_SLICE}, or a MIG profile such as nvidia.com/mig-1g.18gb",
            )  # fmt: skip
    taints = checked_taints({"taints": given["taints"]}, errors)
    wanted: bool | None = given["topology"]
    if wanted is None and distribution == "existing" and GPU in devices:
        wanted = True
    topology = HOSTS if wanted is None else TOPOLOGY if wanted else ""
    if errors.count > before:
        return None
    return Pool(
        flavor=flavor,
        nodes=given["nodes"],
        cpu=given["cpu"],
        memory_gib=given["memory_gib"],
        devices=devices,
        capacity=given["capacity"],
        taints=taints,
        topology=topology,
        tenants=given["tenants"] or (),
        tenants_share_gpus=given["tenants_share_gpus"],
    )


def _queue(
    tenant: str,
    value: object,
    *,
    pools: Mapping[str, Pool],
    refused: Sequence[str] | set[str],
    data_class: str,
    errors: ArgumentErrors,
) -> Queue:
    at = f"tenants[{tenant!r}]"
    given = checked(options(at, value, QueueTenantArgs, errors), QueueTenantArgs, errors, at)
    data_class = given["data_class"] or data_class
    shares: dict[str, Share] = {}
    quotas: dict[str, dict[str, Any]] = given["quotas"] or {}
    for named, one in quotas.items():
        where = f"{at}.quotas[{named!r}]"
        pool = pools.get(named)
        if pool is None:
            if named not in refused:
                known = ", ".join(pools) or "none"
                errors.add(where, named, f"the pools of this cluster: {known}")
            continue
        if pool.tenants and tenant not in pool.tenants:
            errors.add(where, named, f"pools that {tenant} may use",
                         f"this one is for {', '.join(pool.tenants)}")  # fmt: skip
        if data_class == "restricted" and (pool.capacity == "spot" or TIME_SLICE in pool.devices):
            errors.add(
                where, named, "neither spot machines nor time slices for restricted data",
                "use another pool, or MIG profiles",
            )  # fmt: skip
        shares[named] = _share(where, one, pool, errors)
    return Queue(tenant, shares, given["weight"], given["strategy"])


def _share(at: str, given: Mapping[str, Any], pool: Pool, errors: ArgumentErrors) -> Share:
    offered = pool.offered

    def counts(key: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, most in mapping(given[key]).items():
            if name in pool.devices:
                found[name] = most
            else:
                known = ", ".join(pool.devices) or "no devices"
                errors.add(f"{at}.{key}[{name!r}]", name, f"{known}, as {pool.flavor} has")
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
            if given[key] is None:
                errors.say(f"{at}.{key}", f"missing; {pool.flavor} has no devices to go by")
    if given["cpu"] is not None:
        nominal["cpu"] = int(given["cpu"] * 1000)
    if given["memory_gib"] is not None:
        nominal["memory"] = given["memory_gib"]
    return Share(nominal, counts("borrow"), counts("lend"))


def _within_capacity(
    pools: Mapping[str, Pool], queues: Sequence[Queue], errors: ArgumentErrors
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
                errors.say(
                    f"pools[{pool.flavor!r}]",
                    f"{resource}: the quotas add up to {quantity(resource, total)} ({listed}); "
                    f"allowed: {quantity(resource, most)}, which {pool.nodes} nodes have; lower "
                    "the quotas and let tenants borrow, or raise nodes",
                )


def _not_shared(
    pools: Mapping[str, Pool], queues: Sequence[Queue], errors: ArgumentErrors
) -> None:
    """Time slices keep no memory apart: one tenant on each such pool, unless it is allowed."""
    for pool in pools.values():
        users = [each.tenant for each in queues if pool.flavor in each.shares]
        if TIME_SLICE in pool.devices and len(users) > 1 and not pool.tenants_share_gpus:
            errors.say(
                f"pools[{pool.flavor!r}]",
                f"its GPUs are time-sliced, and {', '.join(users)} would share them; allowed: one "
                "tenant; use MIG profiles, or set tenants_share_gpus to true",
            )


def _all_with_topology(
    pools: Mapping[str, Pool], queues: Sequence[Queue], errors: ArgumentErrors
) -> None:
    for queue in queues:
        without = [each for each in queue.shares if not pools[each].topology]
        if without and len(without) < len(queue.shares):
            errors.say(
                f"tenants[{queue.tenant!r}].quotas",
                f"{', '.join(without)} have no topology, its other pools have one; allowed: all "
                "or none, else jobs that ask for none get into those without alone; leave out "
                "topology: false",
            )


def _check_levels(levels: Sequence[str], errors: ArgumentErrors) -> None:
    for position, each in enumerate(levels):
        at = f"topology_levels[{position}]"
        if not _LEVEL.match(each):
            errors.add(at, each, "the name of a label of nodes")
        elif each == HOSTNAME_LABEL and position != len(levels) - 1:
            errors.add(at, each, f"{HOSTNAME_LABEL} as the last one only")


def _preemption(stated: Mapping[str, Any], errors: ArgumentErrors) -> Preemption:
    given: Mapping[str, Any] = stated["preemption"] or with_defaults(QueuePreemptionArgs, {})
    borrowing: bool = given["while_borrowing"]
    if borrowing and stated["fair_sharing"]:
        errors.add(
            "preemption.while_borrowing", True, "false, where fair_sharing is true",
            "Kueue has it with classical pre-emption only",
        )  # fmt: skip
    return Preemption(given["reclaim"], given["within_queue"], borrowing)


class GpuQueues(pulumi.ComponentResource):
    """Queues of a cluster's GPUs, by Kueue; once for a cluster.

    ::

        queues = GpuQueues("queues", {
            "distribution": "existing", "region": "abu-dhabi-1", "registry": registry,
            "tenant": "platform", "owner": "ml@acme.example", "data_class": "restricted",
            "cost_center": "ai-42",
            "pools": {
                "h200": {"nodes": 8, "cpu": 180, "memory_gib": 1900,
                         "devices": {"nvidia.com/gpu": 8}},
                "cpu-x86-64": {"nodes": 20, "cpu": 60, "memory_gib": 240},
            },
            "tenants": {
                "acme": {"quotas": {"h200": {"devices": {"nvidia.com/gpu": 32}}}},
                "globex": {"quotas": {"h200": {"devices": {"nvidia.com/gpu": 16},
                                               "borrow": {"nvidia.com/gpu": 16}}}},
            },
        })

    Makes a resource flavour for each pool, a cluster queue for each tenant in one cohort, the
    topology and the classes of priority. What no tenant was given belongs to the cohort, and all
    may borrow it. Quotas are a tenant's own: they are lent while idle, and return at once when it
    asks. Quotas never add up to more than the pools have: that is refused.

    A job is admitted whole or waits whole. In pools with topology it is kept within a domain by
    the annotations ``kueue.x-k8s.io/podset-required-topology`` or ``podset-preferred-topology`` of
    its pods. MIG slices count as fractions of a GPU, beside their own number
    (``falaj.io/gpu-credit``, 840 for a GPU), so that fair shares compare them.

    What a pool's ``prefetch_images`` names is on its nodes before pods need it: a small pod on
    each mounts it, in the namespace ``image-prefetch``, and nothing waits for that.
    """

    cluster_queues: list[str]
    """Names of the cluster queues, which are the tenants'."""
    flavors: list[str]
    """Names of the resource flavours."""

    def __init__(
        self, name: str, args: GpuQueuesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check(name, args)
        super().__init__(token("GpuQueues"), name, engine_inputs(args), opts)
        declare(self, name, manifests(spec))
        self.cluster_queues = [each.tenant for each in spec.queues]
        self.flavors = list(spec.pools)
        self.register_outputs({"clusterQueues": self.cluster_queues, "flavors": self.flavors})


def manifests(spec: GpuQueuesSpec) -> list[Manifest]:
    """The objects of a cluster's queues."""
    placed, name = spec.placed, spec.name
    found: list[Manifest] = []
    if spec.priority_classes:
        found += priorities(placed, name)
    found += topologies(placed, name, spec.pools.values(), spec.topology_levels)
    found += [flavor(placed, name, each) for each in spec.pools.values()]
    found.append(cohort(placed, name, spec.queues, spec.pools))
    on_flavors: dict[str, tuple[str, ...]] = {}
    if spec.provisioning:
        on_flavors[PROVISIONING] = spec.provisioning.flavors
        devices = sorted({d for f in spec.provisioning.flavors for d in spec.pools[f].devices})
        found += provisioning(placed, name, spec.provisioning, devices)
    found += [
        cluster_queue(
            placed,
            name,
            each,
            spec.pools,
            preemption=spec.preemption,
            usage_based=spec.admission_fair_sharing,
            checks=on_flavors,
        )
        for each in spec.queues
    ]
    if spec.burst:
        found += sending(placed, name, spec.burst)
    found += prefetching(placed, name, spec.holder, spec.pools.values())
    return [*found, *accepting(placed, name, spec.accepts)]
