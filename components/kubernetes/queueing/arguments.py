"""Arguments of `GpuQueues`."""

from typing import NotRequired, TypedDict

from falaj.components.kubernetes._placed import InClusterArgs
from falaj.components.specification.described import described


class QueuePoolArgs(TypedDict):
    """Nodes that carry the same label ``falaj.io/flavor``."""

    nodes: int
    """Most nodes, as the pool scales to."""
    cpu: float
    """Cores of one node that are left for pods."""
    memory_gib: int
    """Memory of one node that is left for pods."""
    devices: NotRequired[dict[str, int]]
    """GPUs or parts of them that one node offers, by name: ``{"nvidia.com/gpu": 8}``. Default:
    none."""
    capacity: NotRequired[str]
    """``on-demand``, ``spot``, ``reservation`` or ``capacity-block``. Default: ``on-demand``."""
    taints: NotRequired[list[str]]
    """``key=value:Effect``, beside that of GPU nodes. Default: none."""
    topology: NotRequired[bool]
    """Whether gangs are placed by the cluster's topology, whose labels all its nodes have. Only
    nodes that exist have a place in it: pools that scale from zero need ``provisioning`` then.
    Default: true for whole GPUs of an ``existing`` cluster; where any pool has it, the others are
    placed by node alone."""
    tenants: NotRequired[list[str]]
    """Tenants that the pool is for. Default: whoever has a quota."""
    tenants_share_gpus: NotRequired[bool]
    """Whether several tenants may be on one GPU by time-slicing. Default: false."""


class QueueShareArgs(TypedDict):
    """What a tenant has of one pool."""

    devices: NotRequired[dict[str, int]]
    """Its own GPUs, or parts of them. Default: none; it borrows."""
    cpu: NotRequired[float]
    """Its own cores. Default: as large a part of the pool's as of its devices."""
    memory_gib: NotRequired[int]
    """Its own memory. Default: likewise."""
    borrow: NotRequired[dict[str, int]]
    """Most devices that it borrows from others, by name. Default: what is idle."""
    lend: NotRequired[dict[str, int]]
    """Most devices that it lends, by name. Default: what is idle."""


class QueueTenantArgs(TypedDict):
    """A tenant's queue."""

    quotas: dict[str, QueueShareArgs]
    """What it has of each pool, by flavour. It gets into no other pool."""
    weight: NotRequired[float]
    """Its claim to what is idle, against others'. Default: 1."""
    strategy: NotRequired[str]
    """``BestEffortFIFO`` lets small jobs pass a large one that waits; ``StrictFIFO`` doesn't.
    Default: ``BestEffortFIFO``."""
    data_class: NotRequired[str]
    """Class of its data. Restricted data gets no spot machines and no time slices. Default: that
    of the component."""


class QueuePreemptionArgs(TypedDict):
    """Who has to make way."""

    reclaim: NotRequired[str]
    """For a tenant that wants back what it lent: ``Any``, ``LowerPriority`` or ``Never``.
    Default: ``Any``."""
    within_queue: NotRequired[str]
    """For another job of the same tenant: ``LowerPriority``, ``LowerOrNewerEqualPriority`` or
    ``Never``. Default: ``LowerPriority``."""
    while_borrowing: NotRequired[bool]
    """Whether a job that borrows displaces others of at most ``falaj-normal``. Not with fair
    sharing. Default: false."""


class QueueWorkerArgs(TypedDict):
    """Another cluster in the country."""

    name: str
    """Its name."""
    distribution: str
    """``eks``, ``aks`` or ``existing``."""
    region: str
    """The cloud's region in the country, or the name of a site."""
    kubeconfig_secret: str
    """Secret in ``kueue-system`` with the key ``kubeconfig``."""
    acknowledge_degraded: NotRequired[str]
    """As for the component. Default: a degraded region is refused."""


class QueueBurstArgs(TypedDict):
    """Where jobs may go beside this cluster."""

    workers: list[QueueWorkerArgs]
    """In the order that they are asked: one's own sites first, clouds after them."""
    quotas: dict[str, dict[str, str]]
    """What a tenant has there, by tenant and resource: ``{"acme": {"cpu": "500", "memory":
    "4Ti", "nvidia.com/gpu": "32"}}``."""


class QueueProvisioningArgs(TypedDict):
    """Machines that the cluster autoscaler makes for whole gangs."""

    flavors: list[str]
    """Pools that it is asked for."""
    class_name: NotRequired[str]
    """Class of the ProvisioningRequest. Default:
    ``best-effort-atomic-scale-up.autoscaling.x-k8s.io``."""
    retries: NotRequired[int]
    """How often it is asked again, 1 to 30 minutes later. Default: 3."""


@described
class GpuQueuesArgs(InClusterArgs):
    """Arguments of `GpuQueues`."""

    pools: dict[str, QueuePoolArgs]
    """The cluster's pools, by the value of their label ``falaj.io/flavor``: ``h200``,
    ``h200-mig-1g.18gb``, ``l4-time-slicing-4``, ``cpu-x86-64`` …"""
    tenants: dict[str, QueueTenantArgs]
    """Queues by tenant."""
    topology_levels: NotRequired[list[str]]
    """Labels of nodes from the widest domain to ``kubernetes.io/hostname``. Default: EKS' network
    layers; elsewhere ``falaj.io/block`` and ``falaj.io/rack``."""
    fair_sharing: NotRequired[bool]
    """Whether Kueue is configured with fair sharing, as `Platform` does. Default: true."""
    admission_fair_sharing: NotRequired[bool]
    """Whether queues of one tenant take turns by what they used. Default: false."""
    preemption: NotRequired[QueuePreemptionArgs]
    """Who has to make way. Default: as stated there."""
    burst: NotRequired[QueueBurstArgs]
    """Other clusters in the country that take jobs (MultiKueue). Default: none."""
    provisioning: NotRequired[QueueProvisioningArgs]
    """Machines that are made before a job is admitted. Default: the autoscaler follows pods."""
    priority_classes: NotRequired[bool]
    """Whether the classes of priority are made here, once for a cluster. Default: true."""
