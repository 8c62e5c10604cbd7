"""Arguments of `TrainingJob`, and what a training workload is once they were checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, NotRequired, TypedDict

from falaj.components.catalogue.clusters import MONITORING, SECRET_STORE
from falaj.components.kubernetes._placed import InCluster, InClusterArgs
from falaj.components.kubernetes._registry_access import (
    RegistryAccess,
    RegistryAccessArgs,
)
from falaj.components.kubernetes.gpu_queues.queues import DEFAULT, PRIORITIES
from falaj.components.kubernetes.training.tracking import Tracking, TrackingArgs
from falaj.components.kubernetes.training.traffic import ENCRYPTION, NONE, Traffic
from falaj.components.specification.arguments import Default, SameAs, Words
from falaj.components.specification.described import described
from falaj.components.specification.limits import (
    OBJECT,
    POSITIVE,
    Between,
    OneOf,
    TextRule,
)
from falaj.components.specification.model_names import ALIAS, PUBLISHED_MODEL
from falaj.components.specification.packaging import PackagingArgs
from falaj.components.specification.parallel import ParallelArgs, SavingArgs
from falaj.components.specification.workload_bounds import bound

FRAMEWORKS: Final = ("pytorch", "tensorflow", "horovod", "parameter-server")
NODES: Final = Between(1, 512)
SCRATCH_GIB: Final = Between(1, 30_000)
"""Up to what one machine has of NVMe."""
RESTARTS: Final = Between(0, 100)
PARALLEL: Final = Between(1, 128)
"""Pods at a time of a job whose pods need none of the others."""
RETRIES: Final = Between(0, 20)
"""Of each of them."""
GRACE_SECONDS: Final = Between(10, 3_600)
FABRICS: Final = OneOf(("none", "efa", "infiniband"))
_PRIORITY: Final = OneOf(tuple(PRIORITIES))
CPU_FLAVOR: Final = TextRule(
    r"^cpu[a-z0-9._-]{0,60}$",
    "nodes without GPUs, of the kind that is to serve the model",
    "cpu-x86-64",
)


class ElasticArgs(TypedDict):
    """How far a job may shrink and grow while it runs."""

    min_nodes: Annotated[int, NODES]
    """Fewest pods that train."""
    max_nodes: Annotated[int, NODES]
    """Most pods. ``nodes`` is how many are asked for now; a change of it grows or shrinks the
    running job."""


class TopologyArgs(TypedDict):
    """How close together the pods of a job must be."""

    level: Annotated[str, OneOf(("block", "rack", "node"))]
    """Level of the topology; a ``rack`` is a rail or NVLink domain. But on EKS ``block`` and
    ``rack`` need nodes with the labels ``falaj.io/block`` and ``falaj.io/rack``, which
    ``topology_levels`` of `GpuQueues` names; else the job waits for ever."""
    mode: NotRequired[Annotated[str, OneOf(("required", "preferred")), Default("required")]]
    """With ``required`` the job waits until they can be so close."""


@described
class SizedArgs(InClusterArgs):
    """Arguments of every pod that computes: which nodes, and how much of them."""

    flavor: str
    """Which nodes: the value of their label ``falaj.io/flavor``, such as ``h200``, ``h200-spot``,
    ``h200-mig-1g.18gb``, ``l4-time-slicing-4`` or ``cpu-x86-64``. Its ending says which fraction
    of a GPU is asked for."""
    cpus: NotRequired[Annotated[float, POSITIVE]]
    """Cores of each pod. Default: 3 for each GPU, which is what the smallest GPU machine has left;
    2 without GPUs."""
    memory_gib: NotRequired[Annotated[float, POSITIVE]]
    """Memory of each pod, with the shared memory. Default: 12 for each GPU, 4 without."""
    shared_memory_gib: NotRequired[Annotated[float, POSITIVE]]
    """Size of ``/dev/shm``, for data loaders and collectives. Default: 2 for each GPU, and 0.5
    without GPUs."""
    scratch_gib: NotRequired[Annotated[int, SCRATCH_GIB, Default(10)]]
    """Local disk of each pod at ``/scratch``: the node's NVMe where it has one."""
    spot: NotRequired[bool]
    """Whether machines that the cloud may take back are used. Not for restricted data. Default:
    where the flavor is of such."""
    images: NotRequired[dict[str, str]]
    """Digests of images by short name, as ``falaj images pin`` writes them. Default: those of the
    bill of materials."""


@described
class AdmittedArgs(SizedArgs):
    """Arguments of pods that wait for their quota."""

    priority: NotRequired[Annotated[str, _PRIORITY, Default(DEFAULT)]]
    """A higher one goes first."""
    namespace: NotRequired[Annotated[str, OBJECT]]
    """Namespace of the pods. Default: the tenant's, ``<tenant>-training``."""
    service_account: NotRequired[Annotated[str, OBJECT, Default("trainer")]]
    """Service account of the pods."""


DEFAULT_QUEUE: Final = "default"


@described
class RunArgs(AdmittedArgs):
    """Arguments that every training workload has, beside where it is."""

    checkpoints: Annotated[str, OBJECT]
    """Name of the volume claim that runs are kept in, mounted at ``/runs``: a file system that
    many pods write to (`StorageClasses` has ``falaj-files``)."""
    data: NotRequired[Annotated[str, OBJECT]]
    """Name of the volume claim with datasets, mounted read-only at ``/data``. Default: that of
    ``checkpoints``."""
    dataset: NotRequired[str]
    """Folder of the snapshot below ``/data``, as ``python -m falaj.workloads.training dataset``
    names it. Needed unless ``program`` is given."""
    arguments: NotRequired[Annotated[list[str], Words()]]
    """Further arguments of ``python -m falaj.workloads.training run``, such as ``--epochs 20``;
    none that the component sets. Default: none."""
    gpus_per_node: NotRequired[Annotated[int, Between(0, 16)]]
    """GPUs of each pod; one fraction where the flavor is shared. Default: 1, and 0 for a
    flavor without GPUs."""
    queue: NotRequired[Annotated[str, OBJECT, Default(DEFAULT_QUEUE)]]
    """Kueue's queue in the namespace: ``burst`` for a job that runs in another cluster in the
    country (`GpuQueues`, ``burst``). A change of it replaces the job."""
    further_regions: NotRequired[list[str]]
    """Regions and sites of the clusters that ``burst`` sends jobs to: pods may be there, beside
    ``region``. Needed for ``burst``. Default: ``region`` alone."""
    grace_seconds: NotRequired[Annotated[int, GRACE_SECONDS]]
    """Seconds from the request to stop until a pod is killed: at least what a checkpoint takes.
    Default: 120, which is the notice of a spot machine on AWS; 30 for spot on Azure, whose notice
    that is."""
    env: NotRequired[dict[str, str]]
    """Further variables. Those that the component sets can't be given. Default: none."""
    image: NotRequired[str]
    """An image of the team's own below the registry, with its digest: ``team/train@sha256:…``. It
    must bring what ``framework`` needs. Default: Falaj's."""


class PublishArgs(RegistryAccessArgs):
    """What a job does with its model: judge, optimise, sign, and send it to the registry."""

    model: Annotated[str, PUBLISHED_MODEL]
    """Name of the model, whose versions are ``models/<name>`` below ``registry``."""
    alias: NotRequired[Annotated[str, ALIAS, Default("candidate")]]
    """Which alias stands for the new version."""
    accept: NotRequired[Annotated[str, SameAs(PackagingArgs, "accept")]]
    least_accuracy: NotRequired[Annotated[float, bound("optimization", "least_accuracy")]]
    """Accuracy on held-out rows below which nothing is published. Default: any."""
    most_rmse: NotRequired[Annotated[float, bound("optimization", "most_rmse")]]
    """Of a regression: the error on held-out rows above which nothing is published. Default:
    any."""
    most_nats: NotRequired[Annotated[float, bound("optimization", "most_nats")]]
    """Of a language model: the nats of a character on held-out text above which nothing is
    published. Default: any."""
    max_accuracy_drop: NotRequired[Annotated[float, SameAs(PackagingArgs, "max_accuracy_drop")]]
    quantise: NotRequired[Annotated[str, SameAs(PackagingArgs, "quantise")]]
    flavor: NotRequired[Annotated[str, CPU_FLAVOR]]
    """Which nodes, without GPUs: those of the kind that is to serve it, as 8 bits are measured
    there. Default: the job's own; needed where these have GPUs."""
    cpus: NotRequired[Annotated[float, POSITIVE, Default(1)]]
    """Cores of the pod."""
    memory_gib: NotRequired[Annotated[float, POSITIVE, Default(4)]]
    """Memory of the pod."""
    scratch_gib: NotRequired[Annotated[int, SCRATCH_GIB, Default(10)]]
    """Disk of the pod, for the model and its package."""


@described
class KeyedRunArgs(RunArgs):
    """Arguments of training workloads whose pods may have a key ring."""

    key_secret: NotRequired[str]
    """Entry of the secret store that holds a key ring, named after the tenant
    (``<tenant>/training-keys``; on AKS ``<tenant>--training-keys``): the text that ``python -m
    falaj.workloads.registry keyring pack`` writes, which has no key that signs. Pods have the ring
    in memory: they read datasets that were sealed with it, and seal checkpoints and models. A
    program of the team's own finds the ring's folder in ``FALAJ_KEYRING``. Default: no ring; what
    pods keep is encrypted by the class of its volume alone."""
    secret_store: NotRequired[Annotated[str, OBJECT, Default(SECRET_STORE)]]
    """Name of the `ClusterSecretStore` of External Secrets."""


@described
class GangArgs(KeyedRunArgs):
    """Arguments of gangs of pods that train, and of what becomes of their models."""

    telemetry: NotRequired[Annotated[bool, Default(value=True)]]
    """Whether figures are served to Prometheus (`PodMonitor`)."""
    tracking: NotRequired[TrackingArgs]
    """A server of one's own networks that the process of rank 0 sends the record to, and no other
    one, as a stack on one machine does. A ``program`` has MLflow's variables of it, and sends by
    itself. Default: the record stays in the run's folder."""
    monitoring_namespace: NotRequired[Annotated[str, OBJECT, Default(MONITORING)]]
    """Where Prometheus is."""
    program: NotRequired[Annotated[list[str], Words()]]
    """A program of the team's own, with its arguments. Default: Falaj's training."""
    framework: NotRequired[Annotated[str, OneOf(FRAMEWORKS), Default(FRAMEWORKS[0])]]
    """How pods find each other; ``parameter-server`` is by TensorFlow's roles. All but the first
    need ``program`` and ``image``. For ``horovod`` the program is started once for each process,
    with the variables of Horovod's Gloo controller: neither ssh nor MPI is needed, and there are
    no more processes than its rendezvous answers. The image brings ``python3`` (3.8 or newer) and
    a Horovod that was built with Gloo, and with NCCL for GPUs."""
    nodes: NotRequired[Annotated[int, NODES, Default(1)]]
    """Pods that train together, each on a node of its own where it takes all its GPUs."""
    processes_per_node: NotRequired[Annotated[int, Between(1, 256)]]
    """Processes of each pod. Default: one for each GPU, and 1 without."""
    parallel: NotRequired[ParallelArgs]
    """How the processes of all pods divide a model, for Falaj's own training. ``tensor`` divides
    the processes of a pod, so that what a layer exchanges stays in one machine; ``shard`` x
    ``tensor`` x ``pipeline`` divides those of all pods, and of an elastic job, which takes no
    ``data``, those of each pod. Default: each process has the whole model."""
    recompute: NotRequired[Annotated[str, SameAs(SavingArgs, "recompute")]]
    compile: NotRequired[Annotated[str, SameAs(SavingArgs, "compile")]]
    compression: NotRequired[Annotated[str, SameAs(SavingArgs, "compression")]]
    parameter_servers: NotRequired[Annotated[int, Between(1, 64), Default(1)]]
    """Pods that hold parameters (``parameter-server``)."""
    topology: NotRequired[TopologyArgs]
    """How close together its pods must be. Default: anywhere."""
    fabric: NotRequired[Annotated[str, FABRICS, Default("none")]]
    """``efa`` is for EKS, ``infiniband`` for AKS and existing clusters."""
    peer_encryption: NotRequired[Annotated[str, ENCRYPTION, Default(NONE)]]
    """What encrypts traffic between the job's pods, which neither gloo nor NCCL does: ``network``
    (the cluster's network encrypts between its nodes: WireGuard or IPsec of its CNI, MACsec, or a
    cloud between machines of types that do) or ``none``. With ``network`` NCCL stays on sockets,
    as RDMA goes past it. Several pods with data of class ``restricted`` need it, or
    ``plain_traffic``."""
    plain_traffic: NotRequired[str]
    """Why pods may exchange what they learnt of ``restricted`` data over a network that doesn't
    encrypt: who allowed it, and what protects the data instead. It stands on the job
    (``falaj.io/plain-traffic``). Default: none, and such a job is refused."""
    machine: NotRequired[str]
    """Instance type of the nodes, which says how many EFA interfaces they have. Default: the
    cheapest in the region with the flavor's GPU and EFA."""
    max_restarts: NotRequired[Annotated[int, RESTARTS, Default(3)]]
    """How often a job is started again after faults of machines and of unknown cause: all exit
    statuses but 0, 2 (refused, which ends the job) and 75 (stopped with a checkpoint). What evicts
    pods (spot, drains, pre-emption) doesn't count."""
    publish: NotRequired[PublishArgs]
    """What becomes of the model: a pod after the gang judges and optimises it, signs it with a key
    that no other pod has, and sends it to the registry, where an alias stands for it. Needs
    ``key_secret``; for Falaj's own training in a gang. Default: the model stays in its run's
    folder."""


@described
class TrainingJobArgs(GangArgs):
    """Arguments of `TrainingJob`."""

    elastic: NotRequired[ElasticArgs]
    """Let the job go on with fewer or more pods. Default: a gang of a fixed size."""
    ttl_hours: NotRequired[Annotated[int, Between(1, 24 * 365)]]
    """Hours after which a job that ended is removed. Only for Falaj's own training, which, made
    once more, sees that it is done. Default: kept."""


RUN_VARIABLE: Final = "FALAJ_RUN"
"""Tells pods of a repeated job what it is called; entries after it may refer to it."""
DATASET_VARIABLE: Final = "FALAJ_DATASET"
"""Tells them of which snapshot it is."""


@dataclass(frozen=True)
class PodSize:
    """What each pod asks for."""

    resources: Mapping[str, str]
    """Requests, which are the limits as well: cores, memory, disk, GPUs, interfaces."""
    gpus: int
    processes: int
    shared_memory_mib: int
    scratch_gib: int


@dataclass(frozen=True)
class Placement:
    """Where its pods may be."""

    flavor: str
    spot: bool
    topology_level: str | None
    """Label of the nodes."""
    topology_mode: str
    fabric: str
    further_regions: tuple[str, ...] = ()
    """Of clusters that the job may be sent to."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What every training workload is."""

    placed: InCluster
    name: str
    namespace: str
    service_account: str
    image: str
    size: PodSize
    placement: Placement
    queue: str
    priority: str
    checkpoints: str
    data: str
    dataset: str
    arguments: tuple[str, ...]
    grace_seconds: int
    env: Mapping[str, str]
    telemetry: bool
    monitoring_namespace: str
    repeated: bool = False
    """Whether jobs are made of it again and again, each under a name of its own and on a snapshot
    of its own, which their pods are told."""

    @property
    def job(self) -> str:
        """Name of the job, and of its folder in the claim of checkpoints."""
        return f"$({RUN_VARIABLE})" if self.repeated else self.name

    @property
    def snapshot(self) -> str:
        """Folder of the dataset's snapshot below ``/data``."""
        return f"$({DATASET_VARIABLE})" if self.repeated else self.dataset


@dataclass(frozen=True)
class Elastic:
    """How far a job may shrink and grow."""

    least: int
    most: int


@dataclass(frozen=True)
class KeyRing:
    """The key ring of a job's pods."""

    entry: str
    """Of the secret store."""
    store: str
    image: str
    """Of the container that lays it out: one of Falaj's."""


@dataclass(frozen=True, kw_only=True)
class Publication:
    """The arguments of `PublishArgs`, checked."""

    model: str
    access: RegistryAccess
    image: str
    alias: str
    gate: Mapping[str, float]
    """Options of optimisation that are numbers."""
    accept: str
    quantise: str
    flavor: str
    size: PodSize


@dataclass(frozen=True, kw_only=True)
class TrainingJobSpec:
    """The arguments of `TrainingJob`, checked."""

    run: Run
    program: tuple[str, ...]
    framework: str
    nodes: int
    parameter_servers: int
    elastic: Elastic | None
    max_restarts: int
    ttl_seconds: int | None
    traffic: Traffic
    launcher_image: str = ""
    """Falaj's, which brings Horovod's launcher; empty for other frameworks."""
    key_ring: KeyRing | None = None
    publication: Publication | None = None
    tracking: Tracking | None = None
    division: tuple[str, ...] = ()
    """Options of Falaj's training that say how its processes divide the model."""
