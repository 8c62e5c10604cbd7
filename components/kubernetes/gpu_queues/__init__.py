"""How a cluster's GPUs are shared: who has how many, who borrows, and who makes way."""

import pulumi

from falaj.components.kubernetes._objects import Manifest, declare, token
from falaj.components.kubernetes.gpu_queues.arguments import (
    GpuQueuesArgs,
    GpuQueuesSpec,
    QueueBurstArgs,
    QueuePoolArgs,
    QueuePreemptionArgs,
    QueueProvisioningArgs,
    QueueShareArgs,
    QueueTenantArgs,
    QueueWorkerArgs,
    check,
)
from falaj.components.kubernetes.gpu_queues.pools import flavor, topologies
from falaj.components.kubernetes.gpu_queues.queues import (
    PROVISIONING,
    burst,
    cluster_queue,
    cohort,
    priorities,
    provisioning,
)
from falaj.components.specification.property_names import engine_inputs

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
        found += burst(placed, name, spec.burst)
    return found
