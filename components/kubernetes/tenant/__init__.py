"""A tenant of a cluster: its namespaces, and what separates it from everybody else."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, NotRequired, TypedDict

import pulumi
from annotated_types import Len

from falaj.components import catalogue
from falaj.components.catalogue.clusters import (
    GATEWAYS,
    GPU,
    MONITORING,
    SERVING_ENDING,
    TIME_SLICE,
    TRAINING_ENDING,
)
from falaj.components.kubernetes._objects import Manifest, declare, token
from falaj.components.kubernetes._placed import CLOUDS, InCluster, InClusterArgs, check_in_cluster
from falaj.components.kubernetes._validation import (
    by_name,
    cidr,
    is_private,
    object_name,
    options,
)
from falaj.components.kubernetes.gpu_queues.queues import PRIORITIES, URGENT
from falaj.components.kubernetes.storage_classes import BLOCK, FILES
from falaj.components.kubernetes.tenant.namespaces import (
    Egress,
    Quota,
    budget_alerts,
    local_queue,
    namespace,
    network_policies,
    quotas,
    service_accounts,
)
from falaj.components.kubernetes.tenant.roles import (
    APART,
    ROLES,
    admission_policies,
    roles,
    subject,
)
from falaj.components.kubernetes.training.placement import (
    EFA,
    EFA_PAGES_MIB,
    FABRIC_DEVICES,
    PAGES,
)
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import (
    OBJECT,
    PORT,
    POSITIVE,
    UUID,
    Between,
    OneOf,
    TextRule,
)
from falaj.components.specification.property_names import engine_inputs
from falaj.components.specification.workload_bounds import fixed

__all__ = ["Tenant", "TenantArgs", "TenantEgressArgs", "TenantNamespaceArgs", "check", "manifests"]


PURPOSES: Final = ("training", "serving")
#: Object counts of etcd's own guidance don't bind here; a typo by a factor of 1,000 does.
_COUNT: Final = Between(0, 1_000_000)
_SOME: Final = replace(_COUNT, low=1)
_SERVING_PORTS: Final = (8080, fixed("image", "server_port"))
_PRIORITIES: Final = tuple(each for each in PRIORITIES if each != URGENT)
_STANDARDS: Final = TextRule(r"^(latest|v\d+\.\d+)$", "latest, or v and a minor version", "v1.36")


class TenantNamespaceArgs(TypedDict):
    """How much one namespace takes."""

    purpose: NotRequired[Annotated[str, OneOf(PURPOSES)]]
    """What it is for. Needed for ``further`` ones; the first two have it."""
    cpu: NotRequired[Annotated[float, POSITIVE, Default(64)]]
    """Cores that all pods ask for together."""
    memory_gib: NotRequired[Annotated[int, _SOME, Default(512)]]
    """Memory of all pods together."""
    devices: NotRequired[dict[str, Annotated[int, _COUNT]]]
    """GPUs by the name that pods ask for: ``nvidia.com/gpu``, ``nvidia.com/mig-1g.18gb`` or
    ``nvidia.com/gpu.shared``. What isn't named can't be had. Default: none."""
    interfaces: NotRequired[dict[str, Annotated[int, _COUNT]]]
    """Interfaces of the fabric by the name that pods ask for: ``rdma/ib``, or on EKS
    ``vpc.amazonaws.com/efa``. What isn't named can't be had. Default: for training as many as the
    whole GPUs of ``devices`` can have, one of InfiniBand each, of EFA the region's most for a GPU;
    for serving none."""
    huge_pages_mib: NotRequired[Annotated[int, _COUNT]]
    """Huge pages of 2 MiB that all pods ask for together, in MiB. Default: 5120 for each whole GPU
    of training on EKS, where EFA takes them, else none."""
    local_storage_gib: NotRequired[Annotated[int, _SOME, Default(4_096)]]
    """Disk of the nodes that all pods ask for together, for logs, what containers write, and
    scratch. A container that says nothing gets 1."""
    storage_gib: NotRequired[dict[str, Annotated[int, _COUNT]]]
    """Storage by class. Default: 100 of ``falaj-block``, and 1024 of ``falaj-files`` for
    training."""
    pods: NotRequired[Annotated[int, _COUNT, Default(250)]]
    """Most pods."""
    objects: NotRequired[Annotated[int, _SOME, Default(200)]]
    """Most objects of each kind that is counted: jobs, services, secrets …"""
    largest_pod_memory_gib: NotRequired[Annotated[int, _SOME]]
    """Most memory of one pod. Default: ``memory_gib``."""


class TenantEgressArgs(TypedDict):
    """A way out of the tenant's namespaces."""

    cidrs: list[str]
    """Ranges of addresses: of storage, databases, private endpoints …"""
    ports: NotRequired[Annotated[list[Annotated[int, PORT]], Len(1), Default((443,))]]
    """Ports."""
    protocol: NotRequired[Annotated[str, OneOf(("TCP", "UDP")), Default("TCP")]]
    """Of the way out."""
    purposes: NotRequired[Annotated[list[Annotated[str, OneOf(PURPOSES)]], Default(PURPOSES)]]
    """Which namespaces may."""
    reason: NotRequired[str]
    """Why public addresses are in the country; an annotation. Needed for those, as of the S3
    gateway endpoint's. Default: private ranges only."""


@described
class TenantArgs(InClusterArgs):
    """Arguments of `Tenant`."""

    training: NotRequired[TenantNamespaceArgs]
    """How much ``<tenant>-training`` takes. Default: no GPU, and the rest as stated there."""
    serving: NotRequired[TenantNamespaceArgs]
    """How much ``<tenant>-serving`` takes. Default: likewise."""
    further: NotRequired[dict[str, TenantNamespaceArgs]]
    """Further namespaces ``<tenant>-<name>``. Default: none."""
    group_prefix: NotRequired[str]
    """What the API server puts before groups of the identity provider. Default: nothing."""
    groups: NotRequired[dict[str, list[str]]]
    """Groups by duty (``trainers``, ``deployers``, ``auditors``, ``admins``). Default: the one
    called ``<tenant>:<duty>`` for each."""
    users: NotRequired[dict[str, list[str]]]
    """People by duty, beside the groups. Nobody is both among the trainers and the deployers.
    Default: none."""
    priorities: NotRequired[
        Annotated[list[Annotated[str, OneOf(tuple(PRIORITIES))]], Default(_PRIORITIES)]
    ]
    """Priorities that its jobs and pods may have."""
    shares_gpus: NotRequired[Annotated[bool, Default(value=False)]]
    """Whether its pods may share a GPU by time-slicing with whoever else is on it. Not for
    restricted data."""
    egress: NotRequired[dict[str, TenantEgressArgs]]
    """Ways out by name, beside DNS, telemetry and what is in the namespace. Default: none."""
    serving_ports: NotRequired[
        Annotated[list[Annotated[int, PORT]], Len(1), Default(_SERVING_PORTS)]
    ]
    """Ports of serving pods that the gateway reaches."""
    identity_client_ids: NotRequired[dict[str, pulumi.Input[str]]]
    """AKS: client ids of the managed identities of ``training`` and ``serving``
    (``WorkloadIdentity.client_id``). Default: none; EKS' associations need nothing here."""
    monthly_budget_usd: NotRequired[Annotated[float, POSITIVE]]
    """What the tenant may cost in a month, in US dollars: a label, and alerts at 80 and 100 % of
    what OpenCost measures. Default: none."""
    queue_weight: NotRequired[Annotated[float, POSITIVE]]
    """Weight of its queues against others of one cluster queue, with admission fair sharing.
    Default: 1, which is Kueue's."""
    mesh: NotRequired[Annotated[bool, Default(value=True)]]
    """Whether serving namespaces are in the ambient mesh."""
    monitoring_namespace: NotRequired[Annotated[str, OBJECT, Default(MONITORING)]]
    """Where Prometheus and the collector are."""
    gateway_namespace: NotRequired[Annotated[str, OBJECT, Default(GATEWAYS)]]
    """Where the gateway's proxies are."""
    pod_security_version: NotRequired[Annotated[str, _STANDARDS, Default("v1.35")]]
    """Version of the Pod Security Standards; the default is the oldest version of the API server
    that is supported."""


@dataclass(frozen=True)
class TenantNamespace:
    """One namespace, checked."""

    name: str
    purpose: str
    quota: Quota


@dataclass(frozen=True, kw_only=True)
class TenantSpec:
    """The arguments of `Tenant`, checked."""

    placed: InCluster
    name: str
    namespaces: tuple[TenantNamespace, ...]
    members: dict[str, tuple[dict[str, str], ...]]
    """Subjects of role bindings by duty."""
    priorities: tuple[str, ...]
    egress: tuple[Egress, ...]
    serving_ports: tuple[int, ...]
    client_ids: dict[str, pulumi.Input[str]]
    monthly_budget_usd: float | None
    queue_weight: float | None
    mesh: bool
    monitoring_namespace: str
    gateway_namespace: str
    pod_security_version: str
    notes: tuple[str, ...]
    """What to know before it is made; the component logs them as warnings."""

    @property
    def devices(self) -> frozenset[str]:
        """Every kind of GPU, interface and huge page that the tenant was given."""
        quotas = [each.quota for each in self.namespaces]
        named = {device for quota in quotas for device, most in quota.devices.items() if most}
        return frozenset(named | {PAGES for quota in quotas if quota.huge_pages_mib})


def check(name: str, args: TenantArgs) -> TenantSpec:
    """Check a tenant's arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"Tenant {name!r}")
    given: Mapping[str, Any] = args
    checked = errors.checked(given, TenantArgs)
    placed = check_in_cluster(given, errors)
    tenant = placed.tenant if placed else "tenant"
    shares: bool = checked["shares_gpus"]
    if shares and placed and placed.data_class == "restricted":
        errors.add(
            "shares_gpus", True, "false, where data_class is 'restricted'",
            "time slices share one memory; use MIG profiles",
        )  # fmt: skip
    namespaces = _namespaces(tenant, given, shares, placed, errors)
    members = checked_members(tenant, given, errors)
    egress = checked_egress(given.get("egress", {}), errors)
    clients = checked_client_ids(placed, given.get("identity_client_ids", {}), errors)
    budget: float | None = checked["monthly_budget_usd"]
    errors.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    notes = () if budget else ("no monthly_budget_usd is set: what it spends is only reported",)
    return TenantSpec(
        placed=placed,
        name=name,
        namespaces=namespaces,
        members=members,
        priorities=tuple(checked["priorities"]),
        egress=egress,
        serving_ports=tuple(checked["serving_ports"]),
        client_ids=clients,
        monthly_budget_usd=budget,
        queue_weight=checked["queue_weight"],
        mesh=checked["mesh"],
        monitoring_namespace=checked["monitoring_namespace"],
        gateway_namespace=checked["gateway_namespace"],
        pod_security_version=checked["pod_security_version"],
        notes=notes,
    )


def _namespaces(
    tenant: str,
    args: Mapping[str, Any],
    shares: bool,
    placed: InCluster | None,
    errors: ArgumentErrors,
) -> tuple[TenantNamespace, ...]:
    found: list[TenantNamespace] = []
    further = by_name("further", args.get("further", {}), errors)
    for suffix in (*PURPOSES, *further):
        at = suffix if suffix in PURPOSES else f"further[{suffix!r}]"
        one: Any = further[suffix] if at != suffix else args.get(suffix, {})
        if at == suffix and suffix in further:
            errors.add("further", suffix, "any other name", f"{suffix} has its own argument")
            continue
        one = options(at, one, TenantNamespaceArgs, errors)
        object_name(at, suffix, errors)
        purpose = one.get("purpose", suffix if at == suffix else None)
        if at == suffix and purpose != suffix:
            errors.add(f"{at}.purpose", purpose, suffix, "or leave it out")
        elif purpose not in PURPOSES:
            errors.add(f"{at}.purpose", purpose, ", ".join(PURPOSES))
        else:
            quota = checked_quota(at, one, errors, purpose=purpose, shares=shares, placed=placed)
            found.append(TenantNamespace(f"{tenant}-{suffix}", str(purpose), quota))
    return tuple(found)


_DEVICE: Final = re.compile(r"^nvidia\.com/(gpu|gpu\.shared|mig-\d+g\.\d+gb)$")
#: Public ranges wider than this aren't one service's.
_WIDEST_PUBLIC: Final = {4: 12, 6: 32}
_BY_NAME: Final = ("devices", "interfaces", "storage_gib")


def checked_quota(
    at: str,
    given: Mapping[str, Any],
    errors: ArgumentErrors,
    *,
    purpose: object,
    shares: bool,
    placed: InCluster | None,
) -> Quota:
    """How much a namespace takes."""
    storage = {BLOCK: 100, **({FILES: 1_024} if purpose == "training" else {})}
    plain = {key: each for key, each in given.items() if key not in _BY_NAME}
    checked = errors.checked_only(plain, TenantNamespaceArgs, at=f"{at}.")
    devices = _counts(f"{at}.devices", given.get("devices", {}), errors)
    for name in devices:
        if not _DEVICE.match(name):
            errors.add(
                f"{at}.devices[{name!r}]", name,
                f"{GPU}, {TIME_SLICE}, or a MIG profile such as nvidia.com/mig-1g.18gb",
            )  # fmt: skip
        elif name == TIME_SLICE and not shares:
            errors.add(
                f"{at}.devices[{name!r}]", name, "whole GPUs or MIG profiles",
                "or set shares_gpus to true, where others may be on the same GPU",
            )  # fmt: skip
    usual, pages = _of_fabric(placed, devices.get(GPU, 0) if purpose == "training" else 0)
    interfaces = _counts(f"{at}.interfaces", given.get("interfaces", usual), errors)
    for name in interfaces:
        allowed = FABRIC_DEVICES[placed.distribution if placed else "existing"]
        if name != allowed:
            errors.add(f"{at}.interfaces[{name!r}]", name, allowed)
    return Quota(
        cpu=checked["cpu"],
        memory_gib=checked["memory_gib"],
        devices={**devices, **interfaces},
        huge_pages_mib=pages if checked["huge_pages_mib"] is None else checked["huge_pages_mib"],
        local_storage_gib=checked["local_storage_gib"],
        storage_gib=_counts(f"{at}.storage_gib", given.get("storage_gib", storage), errors),
        pods=checked["pods"],
        objects=checked["objects"],
        largest_pod_memory_gib=checked["largest_pod_memory_gib"] or checked["memory_gib"],
    )


def _of_fabric(placed: InCluster | None, gpus: int) -> tuple[dict[str, int], int]:
    """Interfaces and MiB of huge pages that so many whole GPUs can use."""
    if not gpus or placed is None:
        return {}, 0
    name = FABRIC_DEVICES[placed.distribution]
    if name != EFA:
        return {name: gpus}, 0
    machines = catalogue.place(CLOUDS[placed.distribution], placed.region).machines()
    shares = [-(-each.efa_interfaces // int(each.gpu_count)) for each in machines if each.gpu]
    return {name: gpus * max([1, *shares])}, gpus * EFA_PAGES_MIB


def _counts(at: str, value: object, errors: ArgumentErrors) -> dict[str, int]:
    return {
        name: errors.within(f"{at}[{name!r}]", most, _COUNT)
        for name, most in by_name(at, value, errors).items()
    }


def checked_members(
    tenant: str, args: Mapping[str, Any], errors: ArgumentErrors
) -> dict[str, tuple[dict[str, str], ...]]:
    """Subjects of bindings by duty; nobody is in two that have to be apart."""
    prefix = str(args.get("group_prefix", ""))
    groups = _by_role("groups", args.get("groups", {}), errors)
    users = _by_role("users", args.get("users", {}), errors)
    found: dict[str, tuple[dict[str, str], ...]] = {}
    for role in ROLES:
        named = groups.get(role, (f"{tenant}:{role}",))
        found[role] = (
            *(subject("Group", f"{prefix}{each}") for each in named),
            *(subject("User", each) for each in users.get(role, ())),
        )
    for each in found[APART[0]]:
        if each in found[APART[1]]:
            argument = "groups" if each["kind"] == "Group" else "users"
            errors.say(
                argument,
                f"{each['name']!r} is both among the {APART[0]} and the {APART[1]}; nobody both "
                "trains models and deploys them: give one of the duties to others",
            )
    return found


def _by_role(at: str, value: object, errors: ArgumentErrors) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for role, names in by_name(at, value, errors).items():
        if role not in ROLES:
            errors.add(f"{at}.{role}", role, ", ".join(ROLES))
            continue
        found[role] = errors.texts(f"{at}.{role}", names)
        for position, each in enumerate(found[role]):
            if each.startswith("system:"):
                errors.add(
                    f"{at}.{role}[{position}]", each, "names of the identity provider",
                    "system: is the cluster's own",
                )  # fmt: skip
    return found


def checked_egress(value: object, errors: ArgumentErrors) -> tuple[Egress, ...]:
    """Ways out by name."""
    found: list[Egress] = []
    for name, one in by_name("egress", value, errors).items():
        at = f"egress[{name!r}]"
        before = errors.count
        given = options(at, one, TenantEgressArgs, errors)
        checked = errors.checked_only(given, TenantEgressArgs, at=f"{at}.")
        object_name(at, name, errors)
        reason = str(given.get("reason") or "")
        listed = given.get("cidrs")
        ranges: tuple[str, ...] = checked["cidrs"] or ()
        if listed is not None and not ranges:
            errors.add(f"{at}.cidrs", listed, "at least one range")
        for position, each in enumerate(ranges):
            _range(f"{at}.cidrs[{position}]", each, reason, errors)
        if errors.count == before:
            ports, purposes = tuple(checked["ports"]), tuple(checked["purposes"])
            found.append(Egress(name, ranges, ports, checked["protocol"], purposes, reason))
    return tuple(found)


def _range(at: str, value: str, reason: str, errors: ArgumentErrors) -> None:
    range_ = cidr(at, value, errors)
    if range_ is None or is_private(range_):
        return
    if range_.is_link_local or range_.is_loopback or range_.is_multicast:
        errors.add(at, value, "addresses of networks", "these are the node's own")
    elif range_.prefixlen < _WIDEST_PUBLIC[range_.version]:
        errors.add(
            at, value, f"public ranges of /{_WIDEST_PUBLIC[range_.version]} or narrower",
            "name those of the one service that is needed",
        )  # fmt: skip
    elif not reason.strip():
        errors.add(
            at, value, "ranges of private networks",
            "for public addresses in the country, set reason to why they are",
        )  # fmt: skip


def checked_client_ids(
    placed: InCluster | None, value: object, errors: ArgumentErrors
) -> dict[str, Any]:
    """Client ids of managed identities by purpose, on AKS."""
    found = by_name("identity_client_ids", value, errors)
    if found and placed and placed.distribution != "aks":
        errors.say(
            "identity_client_ids",
            f"is for aks, but distribution is {placed.distribution!r}; leave it out",
        )
    for purpose, each in found.items():
        errors.choice(f"identity_client_ids.{purpose}", purpose, PURPOSES)
        # An output is known only when the identity is made; it is a client id then.
        if isinstance(each, str):
            errors.form(f"identity_client_ids.{purpose}", each, UUID)
    return found


class Tenant(pulumi.ComponentResource):
    """A tenant of a cluster.

    ::

        tenant = Tenant("acme", {
            "distribution": "eks", "region": "me-central-1", "registry": registry,
            "tenant": "acme", "owner": "ml@acme.example", "data_class": "restricted",
            "cost_center": "ai-42", "acknowledge_degraded": "2026-04-30",
            "training": {"devices": {"nvidia.com/gpu": 32}},
            "serving": {"devices": {"nvidia.com/mig-1g.18gb": 14}},
            "egress": {"file-system": {"cidrs": ["10.20.0.0/20"], "ports": [988]}},
            "monthly_budget_usd": 120000,
        })

    Makes the namespaces ``<tenant>-training`` and ``<tenant>-serving``: pods meet the restricted
    standard, nothing comes in or goes out that isn't named, quotas bound what is asked for, and
    every GPU that isn't given is refused. Roles by duty are bound to the groups
    ``<tenant>:trainers``, ``:deployers``, ``:auditors`` and ``:admins`` of the identity provider.

    Nobody both trains and deploys: the same subject in both duties is refused here; who is in both
    groups at the identity provider, which RBAC would add up, is refused every change by a policy
    of the API server; and serving namespaces have no quota for jobs.

    Whoever may start a pod can mount every secret of its namespace, where `Residency` doesn't
    enforce: under its policies only those whose names begin with ``team.``.
    """

    namespaces: list[str]
    """Names of the namespaces."""
    training_namespace: str
    """``<tenant>-training``."""
    serving_namespace: str
    """``<tenant>-serving``."""

    def __init__(
        self, name: str, args: TenantArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check(name, args)
        super().__init__(token("Tenant"), name, engine_inputs(args), opts)
        for note in spec.notes:
            pulumi.log.warn(note, self)
        declare(self, name, manifests(spec))
        self.namespaces = [each.name for each in spec.namespaces]
        self.training_namespace = f"{spec.placed.tenant}{TRAINING_ENDING}"
        self.serving_namespace = f"{spec.placed.tenant}{SERVING_ENDING}"
        self.register_outputs({
            "namespaces": self.namespaces,
            "trainingNamespace": self.training_namespace,
            "servingNamespace": self.serving_namespace,
        })  # fmt: skip


def manifests(spec: TenantSpec) -> list[Manifest]:
    """The objects of a tenant."""
    placed, name = spec.placed, spec.name
    found: list[Manifest] = []
    for each in spec.namespaces:
        found.append(
            namespace(
                placed,
                name,
                each.name,
                each.purpose,
                pod_security_version=spec.pod_security_version,
                budget_usd=spec.monthly_budget_usd,
                mesh=spec.mesh,
            )
        )
        client = spec.client_ids.get(each.purpose, "")
        found += service_accounts(placed, name, each.name, each.purpose, client)
        found += quotas(
            placed, name, each.name, each.purpose,
            quota=each.quota, priorities=spec.priorities, known=spec.devices,
        )  # fmt: skip
        found += network_policies(
            placed,
            name,
            each.name,
            each.purpose,
            egress=spec.egress,
            serving_ports=spec.serving_ports,
            monitoring=spec.monitoring_namespace,
            gateway=spec.gateway_namespace,
        )
        found.append(local_queue(placed, name, each.name, placed.tenant, spec.queue_weight))
    listed = [(each.name, each.purpose) for each in spec.namespaces]
    found += roles(placed, name, listed, spec.members)
    found += admission_policies(placed, name, spec.members, spec.priorities, spec.devices)
    if spec.monthly_budget_usd is not None:
        names = [each for each, _ in listed]
        found.append(
            budget_alerts(placed, name, names, spec.monthly_budget_usd, spec.monitoring_namespace)
        )
    return found
