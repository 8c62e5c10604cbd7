"""Settings of the stacks in a cloud, what stacks inside a cluster share with them, their checks.

From the general to the special: the policy packs, what every stack off this machine says, what
every stack inside a cluster says, then foundation, cluster and the small business's tier. The
kinds inside a cluster are in `falaj.stacks.settings.in_cluster`, which needs components of
Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, ValidationError
from pydantic.alias_generators import to_camel

from falaj.components import catalogue
from falaj.components.catalogue import PLACES, REGIONS
from falaj.components.catalogue.pipelines import ACCOUNT_ENDING as PIPELINE_ENDING
from falaj.components.specification import (
    audit_trail,
    budget,
    cluster,
    cpu_inference_tier,
    cpu_node_pool,
    gpu_node_pool,
    identity,
    key_ring,
    network,
    object_store,
    registry,
    training_file_system,
    workload_identity,
)
from falaj.components.specification.arguments import SameAs
from falaj.components.specification.cpu_inference_tier import CpuInferenceTierArgs
from falaj.components.specification.cpu_node_pool import CpuNodePoolArgs
from falaj.components.specification.gpu_node_pool import GpuNodePoolArgs
from falaj.components.specification.limits import (
    DATA_CLASS,
    DEFAULT_ENVIRONMENT,
    DIGEST,
    ENVIRONMENT,
    NAME,
    REGISTRY,
    TAG_VALUE,
    TENANT,
    WORKSPACE_ENDING,
    OneOf,
    TextRule,
)
from falaj.components.specification.placed import ZonesArgs
from falaj.policies.choices import (
    PACKS,
    Account,
    File,
    GeoRedundancy,
    Host,
    MostMachines,
    PackName,
    Reason,
    ServiceType,
    Site,
)
from falaj.stacks.settings.derived import cloud_section
from falaj.stacks.settings.problems import Action, Drop, Finding, Put, Rename, format_value
from falaj.stacks.settings.section import Section
from falaj.stacks.settings.source import Sibling, siblings
from falaj.stacks.settings.suggestions import closest, similar_files


class PolicySettings(Section):
    """Settings of the policy packs; they are checked once more by the packs themselves."""

    described_by: ClassVar = "falaj.policies.model.settings.Settings"
    packs: Annotated[list[PackName], Field(min_length=1)] = Field(
        default_factory=lambda: list(PACKS)
    )
    """Packs that judge the stack, one at least: a stack that none judges would be called clean."""
    allowed_places: Annotated[list[Annotated[str, OneOf(PLACES)]], Field(min_length=1)] | None = (
        None
    )
    """Places where data may be. Default: all in the country."""
    allowed_sites: list[Site] | None = None
    """Sites in the country where existing clusters stand, by their nodes' region label."""
    geo_redundancy: GeoRedundancy | None = None
    """``paired`` allows copies in the region's pair where the pair is allowed as well. Default:
    ``forbidden``."""
    allowed_hosts: list[Host] | None = None
    """Further hosts in the country that may have data. In the stack of a platform also what its
    cluster takes, unless ``falaj:residency`` says otherwise."""
    allowed_registries: list[Host] | None = None
    """Registries of one's own in the country whose images are allowed; likewise."""
    allowed_accounts: list[Account] | None = None
    allowed_services: dict[ServiceType, Reason] | None = None
    strict: bool | None = None
    """Whether what can't be known fails. Default: in CI and for production."""
    required_tags: list[str] | None = None
    most_gpu_machines: MostMachines | None = None
    """How many machines one pool with GPUs may grow to. Default: 16."""
    rules: list[File] | None = None
    """Files with rules of one's own, from the project's folder. Default: none."""
    waivers: File | None = None
    """The file of waivers, from the project's folder. Default: none."""

    def given(self) -> dict[str, Any]:
        """What the stack says, with the names that the packs know."""
        if not self.model_fields_set:
            return {}
        return self.model_dump(by_alias=True, exclude_none=True, exclude={"packs"})


#: The region that a stack is in when it names only its cloud.
DEFAULT_REGIONS: Mapping[str, str] = {"aws": "me-central-1", "azure": "uaenorth"}

Name = Annotated[str, NAME]
#: Node pools: the shorter of the clouds' limits (12 letters and digits on Azure).
PoolName = Annotated[
    str,
    TextRule(
        r"^[a-z][a-z0-9]{0,11}$",
        "1 to 12 lower-case letters and digits, the first a letter",
        "h200",
    ),
]
Date = Annotated[
    str,
    TextRule(r"^\d{4}-\d{2}-\d{2}$", "a date in quotes: year, month and day", "2026-04-30"),
]


class Acknowledgement(Section):
    """That somebody read a region's degraded status, and what for they accept it."""

    region: Annotated[str, OneOf(REGIONS)]
    """The region."""
    as_of: Date
    """Date of the status that was read; another date means that there is news to read."""
    purpose: Annotated[Literal["sandbox", "deployment"], Field(alias="for")]
    """What it is accepted for; ``sandbox`` lets nothing real be made there."""


class CloudSettings(Section):
    """Keys that the stacks of all blueprints share, in a cloud or in an existing cluster."""

    described_by: ClassVar = "falaj.components.specification.placed.PlacedArgs"
    platform: Literal["aws", "azure", "kubernetes"] | None = None
    """Where the stack is made: a cloud, or ``kubernetes`` for an existing cluster. Default: what
    ``falaj:placement`` names."""
    region: str | None = None
    """Region of the cloud in the country; of an existing cluster the site in the country where it
    stands. Default: ``me-central-1`` on AWS, ``uaenorth`` on Azure."""
    placement: list[Annotated[str, OneOf(PLACES)]] = Field(default_factory=list)
    """Places in the country in order of preference, as ``azure/uaenorth``: the stack is made in
    the first that is healthy and sells what is asked. Instead of ``falaj:platform`` and
    ``falaj:region``."""
    tenant: Annotated[str, TENANT]
    owner: Annotated[str, TAG_VALUE]
    data_class: Annotated[str, DATA_CLASS, Field(examples=["confidential"])]
    cost_center: Annotated[str, TAG_VALUE, Field(examples=["it"])]
    environment: Annotated[str, ENVIRONMENT] = DEFAULT_ENVIRONMENT
    acknowledge_degraded: Acknowledgement | None = None
    sandbox: bool = False
    """Whether the stack may only ever be made in the sandbox, where nothing is real."""
    policies: PolicySettings = Field(default_factory=PolicySettings)
    prices: str | None = None
    """The file of prices of one's own, from the project's folder (`falaj.stacks.costs`). Default:
    the catalogue's list prices alone."""

    @property
    def places(self) -> tuple[str, ...]:
        """Where the stack may be, the first choice first."""
        if self.placement:
            return tuple(self.placement)
        cloud = str(self.platform)
        return (f"{cloud}/{self.region or DEFAULT_REGIONS.get(cloud, '')}",)

    @property
    def upstream(self) -> str | None:
        """The stack that this one stands on and refers to. None: it stands alone."""
        return None

    @property
    def acknowledged(self) -> dict[str, str]:
        """Dates of the degraded status that was accepted, by region."""
        accepted = self.acknowledge_degraded
        return {accepted.region: accepted.as_of} if accepted else {}


class InClusterSettings(CloudSettings):
    """Keys of the stacks that make objects in a cluster, not the cluster itself."""

    cluster: Name | None = None
    """Stack that made the cluster, on AWS and Azure."""
    kubeconfig: Annotated[str, Field(min_length=1)] | None = None
    """Path of the kubeconfig of an existing cluster. Default: what KUBECONFIG names, else
    ``~/.kube/config``."""
    context: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Context of that kubeconfig."""
    zones: Annotated[list[str] | None, SameAs(ZonesArgs, "zones")] = None
    registry: Annotated[str, REGISTRY]
    """The registry in the country that images and charts are pulled from."""
    images: Annotated[str, Field(min_length=1)] | None = None
    """Lock file with the images' digests, relative to the project's folder: `falaj images pin`
    writes it. Default: the digests in Falaj's own bill of materials."""

    @property
    def upstream(self) -> str | None:
        """The stack that made the cluster."""
        return self.cluster

    @property
    def distribution(self) -> str:
        """The kind of cluster, as components name it."""
        return {"aws": "eks", "azure": "aks"}.get(str(self.platform), "existing")


# A foundation: network, keys, storage, registry, identities and audit trail.


class NetworkSettings(cloud_section(network.NetworkArgs, leaving_out=("session_manager",))):
    """The private network; a key that is left out takes the component's default."""


class KeySettings(cloud_section(key_ring.KeyRingArgs, leaving_out=("purposes",))):
    """Keys, one for each purpose."""


class StorageSettings(cloud_section(object_store.ObjectStoreArgs, leaving_out=("buckets",))):
    """Object storage."""


class RegistrySettings(cloud_section(registry.RegistryArgs, leaving_out=("first_key",))):
    """The registry of images."""


class IdentitySettings(cloud_section(identity.IdentityArgs)):
    """Who has which duty."""


class AuditSettings(cloud_section(audit_trail.AuditTrailArgs)):
    """The trail of what was done, and who is told."""


class BudgetSettings(cloud_section(budget.BudgetArgs, optional=("emails",))):
    """A monthly limit in US dollars, and who is told when it is near: by default the owner."""


class OwnFoundation(CloudSettings):
    """The keys of a foundation, for stacks that make one or bring their own."""

    network: NetworkSettings = NetworkSettings.unset()
    keys: KeySettings = KeySettings.unset()
    storage: StorageSettings = StorageSettings.unset()
    registry: RegistrySettings = RegistrySettings.unset()
    identity: IdentitySettings = IdentitySettings.unset()
    audit: AuditSettings = AuditSettings.unset()
    budget: BudgetSettings | None = None


class FoundationSettings(OwnFoundation):
    """Everything that a ``foundation`` stack may say."""

    blueprint: Literal["foundation"]
    """What the stack makes: here what other stacks stand on."""


class OnFoundation(OwnFoundation):
    """The keys of a stack that stands on a foundation: another stack's, or its own."""

    foundation: Name | None = None
    """Stack to stand on and refer to. Default: the stack makes a foundation of its own, as
    ``falaj:network``, ``falaj:keys`` and the like say."""

    @property
    def upstream(self) -> str | None:
        """The foundation's stack."""
        return self.foundation


# A Kubernetes cluster with its pools of GPU and CPU machines.


class ControlPlaneSettings(cloud_section(cluster.ClusterArgs, leaving_out=("zones",))):
    """The cluster itself."""


class GpuPoolSettings(cloud_section(gpu_node_pool.GpuNodePoolArgs, ("kubernetes_version",))):
    """A pool of machines with GPUs; the catalogue finds the machine for the demand."""


class CpuPoolSettings(cloud_section(cpu_node_pool.CpuNodePoolArgs, ("kubernetes_version",))):
    """A pool of machines without GPUs."""


class FileSystemSettings(
    cloud_section(training_file_system.TrainingFileSystemArgs, leaving_out=("zones",))
):
    """The fast file system for training data and checkpoints."""


class WorkloadSettings(cloud_section(workload_identity.WorkloadIdentityArgs)):
    """What the pods of one service account may do."""


class ClusterSettings(OnFoundation):
    """Everything that a ``cluster`` stack may say."""

    blueprint: Literal["cluster"]
    """What the stack makes: here a Kubernetes cluster with pools of machines."""
    cluster: ControlPlaneSettings = ControlPlaneSettings.unset()
    gpu_pools: dict[PoolName, GpuPoolSettings] = Field(default_factory=dict)
    """Pools of machines with GPUs, by name."""
    cpu_pools: Annotated[
        dict[PoolName, CpuPoolSettings],
        Field(min_length=1, examples=[{"cpu": {"system": True}}]),
    ]
    """Pools of machines without GPUs, by name; one at least."""
    file_system: FileSystemSettings | None = None
    workloads: dict[PoolName, WorkloadSettings] = Field(default_factory=dict)
    """What the pods of service accounts may do, by a name for each."""


# A small business's tier: a model served from CPU machines or containers.

#: What says which package of the model is served: all of it is known once one was published.
PACKAGE_PINS: Final = ("version", "package_digest", "keys_digest")


class InferenceSettings(
    cloud_section(
        cpu_inference_tier.CpuInferenceTierArgs,
        taking=("certificate_id", "keyring_secret_id"),
        optional=PACKAGE_PINS,
    )
):
    """The served model and its machines; a key that is left out takes the component's default.

    ``version``, ``packageDigest`` and ``keysDigest`` are written by ``falaj publish --pin``; only
    the sandbox can do without."""

    image_digest: Annotated[str, DIGEST] | None = None
    """Digest of the inference image in the stack's own registry, repository ``inference``. Only
    the sandbox can do without."""


class SmbSettings(OnFoundation):
    """Everything that an ``smb`` stack may say."""

    blueprint: Literal["smb"]
    """What the stack makes: here one served model for a small business."""
    inference: InferenceSettings


# The machines that a stack asks for: its pools, and its inference tier.


@dataclass(frozen=True)
class AskedMachines:
    """What a stack says of machines that are alike."""

    name: str
    kind: type
    """Of the arguments of the component that makes them."""
    given: Mapping[str, Any]
    """What the stack gives of these arguments."""


def asked_machines(settings: CloudSettings) -> Iterator[AskedMachines]:
    """Pools by their names, those of CPU machines first; or the tier as ``inference``."""
    if isinstance(settings, ClusterSettings):
        for name, pool in settings.cpu_pools.items():
            yield AskedMachines(name, CpuNodePoolArgs, pool.model_dump(exclude_none=True))
        for name, pool in settings.gpu_pools.items():
            yield AskedMachines(name, GpuNodePoolArgs, pool.model_dump(exclude_none=True))
    elif isinstance(settings, SmbSettings):
        given = settings.inference.model_dump(exclude_none=True)
        if given.get("mode") != "serverless":
            yield AskedMachines("inference", CpuInferenceTierArgs, given)


# Checks of what only the settings as a whole show: the place, files, the stack beneath.

_AT_HOME: Final = "data and machines stay in the United Arab Emirates"
#: Kinds of stacks that others can't stand on: they make no foundation.
_NO_GROUND: Final = frozenset(("platform", "workloads"))


def check_places(settings: CloudSettings, root: Path) -> list[Finding]:
    """The region has to be in the country, and in the cloud that the stack names."""
    del root
    if settings.placement or settings.platform in (None, "kubernetes"):
        # Places are the catalogue's; the site of an existing cluster is its owner's word.
        return []
    cloud = str(settings.platform)
    regions = [each.region for each in catalogue.all_places() if each.cloud == cloud]
    if settings.region is None or settings.region in regions:
        return []
    meant = region_meant(cloud, settings.region)
    hint = f"; did you mean {meant}?" if meant else f"; {_AT_HOME}"
    message = (
        f"given {format_value(settings.region)}; allowed on {cloud}: {', '.join(regions)}{hint}"
    )
    return [Finding(("region",), message, (Put(("region",), meant or regions[0]),))]


def region_meant(cloud: str, given: str) -> str | None:
    """The region that another spelling stands for: its title, a zone of it, a slip of the pen."""
    # Forms of all clouds' regions, which a right one needs none of.
    from falaj.components.catalogue.region_names import place_named  # noqa: PLC0415

    named = place_named(given)
    if named in catalogue.PLACES:
        return named.partition("/")[2] if named.startswith(f"{cloud}/") else None
    if named:
        return None  # a place abroad, however alike
    by_title = {each.title: each.region for each in catalogue.all_places() if each.cloud == cloud}
    by_title |= {title.partition(",")[0]: region for title, region in by_title.items()}
    by_title |= {region: region for region in [*by_title.values()]}
    found = closest(given, by_title)
    return by_title[found] if found else None


def check_access(settings: CloudSettings, root: Path) -> list[Finding]:
    """A stack inside a cluster names one cluster, in the way of its platform."""
    if not isinstance(settings, InClusterSettings):
        return []
    if settings.placement:
        message = (
            f"given {format_value(settings.placement)}; a stack inside a cluster is where the "
            "cluster is: name falaj:platform and falaj:region instead"
        )
        return [Finding(("placement",), message, (Drop(("placement",)),))]
    existing = settings.platform == "kubernetes"
    needed: Mapping[str, tuple[str, str]] = {
        "context": ("the kubeconfig's context of the existing cluster", "main"),
        "region": ("the site in the country where the existing cluster stands", "abudhabi-dc1"),
    } if existing else {"cluster": ("the stack that made the cluster", "")}  # fmt: skip
    found: list[Finding] = []
    for key, (what, example) in needed.items():
        if getattr(settings, key) is None:
            value = example or _first_cluster(settings, root)
            found.append(Finding((key,), f"missing; expected {what}", (Put((key,), value),)))
    for key in ("cluster",) if existing else ("context", "kubeconfig"):
        if getattr(settings, key) is not None:
            how = "its context in falaj:context" if existing else "its stack in falaj:cluster"
            message = (
                f"given {format_value(getattr(settings, key))}, but a cluster on the platform "
                f"{settings.platform} is named by {how}"
            )
            found.append(Finding((key,), message, (Drop((key,)),)))
    return found


def check_ground(settings: CloudSettings, root: Path) -> list[Finding]:
    """The stack that this one stands on has a file, and is of a kind that can be stood on."""
    name = settings.upstream
    if name is None or settings.platform == "kubernetes":
        return []
    in_cluster = isinstance(settings, InClusterSettings)
    key = "cluster" if in_cluster else "foundation"
    own = settings.provenance.stack
    others = {each.name: each for each in siblings(settings.provenance, root) if each.name != own}
    usable = [
        each.name
        for each in others.values()
        if _carries(each, in_cluster=in_cluster) and _is_beside(each, settings)
    ]
    if name in usable:
        return []
    what = "the stack of a cluster" if in_cluster else "the stack of a foundation"
    if name == own:
        why = "the stack itself"
    elif name in others:
        kind = others[name].blueprint or "no kind"
        why = f"a stack of the kind {kind} on {others[name].platform or 'several places'}"
    else:
        why = "no stack of this project has a file of that name"
    near = closest(name, usable)
    hint = f"; did you mean {near}?" if near else ""
    listed = f"; here: {', '.join(usable)}" if usable else ""
    actions: list[Action] = [Put((key,), each) for each in (near, *usable) if each]
    if not in_cluster:
        actions.append(Drop((key,)))
    message = f"given {format_value(name)}, {why}; allowed: {what}{listed}{hint}"
    return [Finding((key,), message, tuple(actions))]


def check_callers(settings: CloudSettings, root: Path) -> list[Finding]:
    """Who reaches a cluster's API is said where its network is made."""
    del root
    if not isinstance(settings, OnFoundation) or settings.foundation is None:
        return []
    callers = settings.network.model_dump()["api_callers"]
    if not callers:
        return []
    path = ("network", "apiCallers")
    message = (
        f"given {format_value(callers)}, but the network is of stack {settings.foundation}; write "
        "it there, and bring that stack up"
    )
    return [Finding(path, message, (Drop(path),))]


def check_policies(settings: CloudSettings, root: Path) -> list[Finding]:
    """What the packs would refuse is refused before the engine starts them."""
    found: list[Finding] = []
    given = settings.policies.given()
    # Of files it is asked below whether they are there; most stacks say no more.
    if given.keys() - {"rules", "waivers"}:
        from falaj.policies.model.settings import Settings  # noqa: PLC0415 - with all of rules

        try:
            Settings.model_validate(given)
        except ValidationError as error:
            for problem in error.errors(include_url=False):
                path = ("policies", *problem["loc"])
                message = problem["msg"].removeprefix("Value error, ")
                found.append(Finding(path, message, (Drop(path),)))
    named = [(("policies", "waivers"), settings.policies.waivers)]
    named += [
        (("policies", "rules", index), each)
        for index, each in enumerate(settings.policies.rules or ())
    ]
    for path, file in named:
        if file is None or (root / file).is_file():
            continue
        near = [
            each
            for each in similar_files(file, root, (".yaml", ".yml"))
            if not Path(each).name.startswith("Pulumi.")
        ]
        hint = f"; did you mean {near[0]}?" if near else ""
        actions: tuple[Action, ...] = (Put(path, near[0]),) if near else (Drop(path),)
        message = f"there is no file {file} in the project's folder{hint}"
        found.append(Finding(path, message, actions))
    return found


def check_package(settings: CloudSettings, root: Path) -> list[Finding]:
    """What says which package is served belongs together: all of it, or nothing yet."""
    del root
    if not isinstance(settings, SmbSettings):
        return []
    given = {each: getattr(settings.inference, each) for each in PACKAGE_PINS}
    if None not in given.values() or not any(given.values()):
        return []
    lacking = ", ".join(to_camel(each) for each, value in given.items() if value is None)
    found: list[Finding] = []
    for each, value in given.items():
        if value is not None:
            path = ("inference", to_camel(each))
            message = (
                f"given {format_value(value)}, without {lacking}, which are of the same package; "
                "`falaj publish --pin` writes all of them"
            )
            found.append(Finding(path, message, (Drop(path),)))
    return found


#: Sections of runs: the attribute, what one is called, and an ending for another name.
_RUNS: Final[Mapping[str, tuple[str, str, str]]] = {
    "trainingJobs": ("training_jobs", "training job", "job"),
    "sweeps": ("sweeps", "sweep", "sweep"),
    "federatedTrainings": ("federated_trainings", "federated training", "federation"),
    "batchInferences": ("batch_inferences", "batch inference", "batch"),
    "pipelines": ("pipelines", "pipeline", "again"),
}
#: Sections whose objects are called as their keys with an ending.
_OWNERS: Final = (
    ("workspaces", "workspace", WORKSPACE_ENDING),
    ("pipelines", "pipeline", PIPELINE_ENDING),
)


def check_names(settings: CloudSettings, root: Path) -> list[Finding]:
    """A team's runs and workspaces are objects of one namespace, called as their keys."""
    found: list[Finding] = []
    named: dict[str, tuple[str, Mapping[str, object]]] = {}
    for section, (attribute, what, ending) in _RUNS.items():
        names: Mapping[str, object] = getattr(settings, attribute, {})
        for name in names:
            kind = next((kind for kind, others in named.values() if name in others), None)
            if kind is not None:
                path, other = (section, name), f"{name}-{ending}"
                message = (
                    f"given {format_value(name)}, which is the name of a {kind}, too; both are "
                    f"objects of one namespace: choose another, such as {other}"
                )
                found.append(Finding(path, message, (Rename(path, other),), at_key=True))
        named[section] = (what, names)
    taken = {
        f"{each}{ending}": f"{kind} {format_value(each)}"
        for attribute, kind, ending in _OWNERS
        for each in getattr(settings, attribute, {})
    }
    for section, (_, names) in named.items():
        for name in taken.keys() & names.keys():
            path, other = (section, name), f"{name}-job"
            message = (
                f"given {format_value(name)}, as which the objects of {taken[name]} are called: "
                f"choose another name, such as {other}"
            )
            found.append(Finding(path, message, (Rename(path, other),), at_key=True))
    return found


def _first_cluster(settings: CloudSettings, root: Path) -> str:
    found = siblings(settings.provenance, root)
    return next((each.name for each in found if _carries(each, in_cluster=True)), "cluster")


def _is_beside(sibling: Sibling, settings: CloudSettings) -> bool:
    """Whether a stack may be in the same cloud; several places are decided later."""
    return None in (settings.platform, sibling.platform or None) or (
        sibling.platform == settings.platform
    )


def _carries(sibling: Sibling, *, in_cluster: bool) -> bool:
    """Whether a stack makes what another one refers to."""
    if sibling.platform in ("local", "kubernetes"):
        return False
    if in_cluster:
        return sibling.blueprint == "cluster"
    # A cluster or tier without a foundation makes and exports one.
    return sibling.blueprint not in _NO_GROUND and not sibling.stands_on


CHECKS: Final = (
    *(check_places, check_access, check_ground, check_callers, check_policies, check_package),
    check_names,
)
