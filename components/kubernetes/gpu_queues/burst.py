"""Jobs that run in another cluster in the country: what sends them, and what takes them.

Kueue's MultiKueue copies a job of the queue ``burst`` to one of the worker clusters, follows it
there and writes its state back: https://kueue.sigs.k8s.io/docs/concepts/multikueue/. Kueue decides
whether a job stays or goes when it is made (`spec.managedBy`, which can't be changed); so there is
a queue of its own for those that may go, beside the tenant's. One cluster queue can't do both:
Kueue has this check for all flavours of a queue or for none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NotRequired, TypedDict

from annotated_types import Len

from falaj.components.catalogue.clusters import TENANT_LABEL, TRAINING_ENDING
from falaj.components.kubernetes._objects import Manifest, admission_policy, metadata
from falaj.components.kubernetes._peers import api_server_egress
from falaj.components.kubernetes._placed import (
    DISTRIBUTIONS,
    InCluster,
    check_place,
)
from falaj.components.kubernetes._rights import account, role
from falaj.components.kubernetes._secrets import STORE, external_secret
from falaj.components.kubernetes._validation import by_name, cidr, is_private, object_name
from falaj.components.kubernetes.gpu_queues.queues import (
    API,
    BURST_QUEUE,
    CREDIT,
    NAMESPACE,
    QUANTITY,
    admission_check,
    credits_of,
)
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.limits import OBJECT, OneOf

__all__ = [
    "ACCEPTED", "BURST", "WATCHED", "Burst", "QueueBurstArgs", "QueueWorkerArgs", "Worker",
    "accepting", "checked_accepts", "checked_burst", "sending",
]  # fmt: skip

BURST: Final = "falaj-burst"
_ACCOUNT: Final = "burst-"
"""Before a sending cluster's name, in the name of its account."""
_ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"
"""Label of what was sent: the sender's name."""
#: Kueue's limit of clusters in one configuration.
_MOST_WORKERS: Final = 20
#: https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/#stoppolicy
_STOP_POLICIES: Final = OneOf(("None", "Hold", "HoldAndDrain"))
#: Kinds that MultiKueue watches in a worker for the frameworks that the platform turns on, of all
#: namespaces: it counts a cluster as lost where one of these isn't let or isn't there.
#: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/admissionchecks/multikueue/multikueuecluster.go
WATCHED: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("pods",),
    "apps": ("statefulsets",),
    "batch": ("jobs",),
    "jobset.x-k8s.io": ("jobsets",),
    "trainer.kubeflow.org": ("trainjobs",),
}
#: Of these, the kinds of whole jobs, which it may make for a tenant. Pods and StatefulSets aren't
#: among them: nothing that is sent from elsewhere runs beside a queue, or serves.
ACCEPTED: Final = ("batch", "jobset.x-k8s.io", "trainer.kubeflow.org")


class QueueWorkerArgs(TypedDict):
    """Another cluster in the country."""

    name: Annotated[str, OBJECT]
    """Its name."""
    distribution: Annotated[str, OneOf(DISTRIBUTIONS)]
    """What it is."""
    region: str
    """The cloud's region in the country, or the name of a site."""
    kubeconfig_secret: Annotated[str, OBJECT]
    """Secret in ``kueue-system`` with the key ``kubeconfig``: the account ``burst-<cluster>`` that
    ``accepts`` made there, with a token or a client certificate."""
    kubeconfig_entry: NotRequired[str]
    """Entry of the secret store that External Secrets makes this secret of, every hour anew.
    Default: the secret is made by somebody else."""
    secret_store: NotRequired[Annotated[str, OBJECT, Default(STORE)]]
    """The `ClusterSecretStore` with that entry."""
    endpoint_cidrs: Annotated[list[str], Len(1)]
    """Private ranges that its API server is in: Kueue may call there, on 443 and 6443."""
    acknowledge_degraded: NotRequired[str]
    """As for the component. Default: a degraded region is refused."""


class QueueBurstArgs(TypedDict):
    """Where jobs may go beside this cluster."""

    workers: Annotated[list[QueueWorkerArgs], Len(1, _MOST_WORKERS)]
    """In the order that they are asked: one's own sites first, clouds after them. The next is
    asked where those before it didn't take the job within 5 minutes."""
    quotas: dict[str, dict[str, str]]
    """What a tenant has there, by tenant and resource: ``{"acme": {"cpu": "500", "memory":
    "4Ti", "nvidia.com/gpu": "32"}}``. What isn't named can't be had."""
    stop_policy: NotRequired[Annotated[str, _STOP_POLICIES, Default("None")]]
    """``None``: jobs are sent. ``Hold``: those that run there end, and none is sent any more.
    ``HoldAndDrain``: those that run are ended as well, and wait."""


@dataclass(frozen=True)
class Worker:
    """Another cluster that jobs are sent to."""

    name: str
    distribution: str
    region: str
    kubeconfig_secret: str
    kubeconfig_entry: str
    """Empty where the secret is made by somebody else."""
    secret_store: str
    endpoint_cidrs: tuple[str, ...]


@dataclass(frozen=True)
class Burst:
    """Where jobs go that this cluster has no room for."""

    workers: tuple[Worker, ...]
    """In the order that they are asked."""
    quotas: Mapping[str, Mapping[str, str]]
    """What each tenant has there, by resource."""
    stop_policy: str


def checked_burst(
    given: Mapping[str, Any] | None, tenants: Sequence[str], errors: ArgumentErrors
) -> Burst | None:
    """Other clusters in the country, one's own before clouds; None where there are none.

    Args:
        given: the argument, held to what it states.
        tenants: who has a queue.
        errors: gets what can't be used.
    """
    if given is None:
        return None
    listed: Sequence[Mapping[str, Any]] = given["workers"] or ()
    workers = [_worker(f"burst.workers[{at}]", each, errors) for at, each in enumerate(listed)]
    names = [each.name for each in workers]
    secrets = [each.kubeconfig_secret for each in workers]
    for position, each in enumerate(workers):
        at = f"burst.workers[{position}]"
        if each.name in names[:position]:
            errors.add(f"{at}.name", each.name, "each only once")
        if each.kubeconfig_secret in secrets[:position]:
            errors.add(
                f"{at}.kubeconfig_secret", each.kubeconfig_secret, "one for each cluster",
                "the same secret is the same cluster, which would be asked twice",
            )  # fmt: skip
        cloud_before = any(one.distribution != "existing" for one in workers[:position])
        if each.distribution == "existing" and cloud_before:
            errors.add(
                at, each.name, "clusters of one's own before those of clouds",
                "they are asked in this order; move it up",
            )  # fmt: skip
    quotas = _quotas(given["quotas"] or {}, tenants, errors)
    return Burst(tuple(workers), quotas, given["stop_policy"])


def _quotas(
    value: object, tenants: Sequence[str], errors: ArgumentErrors
) -> dict[str, dict[str, str]]:
    quotas: dict[str, dict[str, str]] = {}
    for tenant, resources in by_name("burst.quotas", value, errors).items():
        at = f"burst.quotas[{tenant!r}]"
        if tenant not in tenants:
            errors.add(at, tenant, f"tenants with a queue: {', '.join(tenants) or 'none'}")
        quotas[tenant] = errors.mapping(at, resources)
        for resource, most in quotas[tenant].items():
            if not QUANTITY.match(most):
                errors.add(f"{at}[{resource!r}]", most, "a quantity such as 32, 500m or 4Ti")
            elif credits_of(resource) and not most.isdigit():
                errors.add(f"{at}[{resource!r}]", most, "a whole number of GPUs, or of parts")
        if CREDIT in quotas[tenant]:
            errors.say(f"{at}[{CREDIT!r}]", "follows from the GPUs; leave it out")
        for needed in ("cpu", "memory"):
            if needed not in quotas[tenant]:
                errors.say(f"{at}[{needed!r}]", "missing; every job asks for it")
    return quotas


def _worker(at: str, given: Mapping[str, Any], errors: ArgumentErrors) -> Worker:
    distribution, region = str(given["distribution"]), str(given["region"])
    # As of the cluster itself: in the country, and healthy or its state was accepted.
    check_place(distribution, region, given, errors, at=f"{at}.")
    ranges: tuple[str, ...] = given["endpoint_cidrs"] or ()
    for position, each in enumerate(ranges):
        where = f"{at}.endpoint_cidrs[{position}]"
        network = cidr(where, each, errors)
        if network is not None and not is_private(network):
            errors.add(
                where, each, "private ranges",
                "jobs and their data go over one's own lines; use the private endpoint",
            )  # fmt: skip
    return Worker(
        given["name"] or "",
        distribution,
        region,
        given["kubeconfig_secret"] or "",
        given["kubeconfig_entry"] or "",
        given["secret_store"],
        ranges,
    )


def checked_accepts(
    value: object, tenants: Sequence[str], burst: Burst | None, errors: ArgumentErrors
) -> Mapping[str, tuple[str, ...]]:
    """Clusters that may send jobs here, each with the tenants whose jobs they are."""
    if value is None:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    sent: Mapping[str, Any] = burst.quotas if burst else {}
    for cluster, listed in by_name("accepts", value, errors).items():
        at = f"accepts[{cluster!r}]"
        object_name(at, cluster, errors)
        found[cluster] = errors.texts(at, listed)
        if not found[cluster]:
            errors.add(at, listed, "at least one tenant")
        for position, tenant in enumerate(found[cluster]):
            if tenant not in tenants:
                known = ", ".join(tenants) or "none"
                errors.add(f"{at}[{position}]", tenant, f"tenants with a queue: {known}")
            elif tenant in sent:
                errors.add(
                    f"{at}[{position}]", tenant, "tenants whose jobs aren't sent on",
                    "what one cluster sends another would send back; take it out of burst.quotas",
                )  # fmt: skip
    return found


def sending(placed: InCluster, component: str, plan: Burst) -> list[Manifest]:
    """Clusters by their kubeconfig secrets, and a queue of each tenant that is sent there.

    The queues are beside the tenants' own: a queue with this check runs nothing in this cluster.
    Jobs get there by the label ``kueue.x-k8s.io/queue-name: burst``.
    """
    found: list[Manifest] = []
    for each in plan.workers:
        place = {"falaj.io/place": f"{each.distribution}/{each.region}"}
        source = {"location": each.kubeconfig_secret, "locationType": "Secret"}
        if each.kubeconfig_entry:
            about = metadata(placed, component, each.kubeconfig_secret, NAMESPACE)
            entry = each.kubeconfig_entry
            found.append(external_secret(about, each.secret_store, entry, "kubeconfig"))
        found += [
            _way(placed, component, each),
            {
                "apiVersion": API,
                "kind": "MultiKueueCluster",
                "metadata": metadata(placed, component, each.name, annotations=place),
                "spec": {"clusterSource": {"kubeConfig": source}},
            },
        ]
    about = metadata(placed, component, BURST)
    found += [
        {
            "apiVersion": API,
            "kind": "MultiKueueConfig",
            "metadata": about,
            "spec": {"clusters": [each.name for each in plan.workers]},
        },
        admission_check(about, "kueue.x-k8s.io/multikueue", "MultiKueueConfig"),
        # No label of nodes: which nodes they are is the worker's own flavours' matter.
        {"apiVersion": API, "kind": "ResourceFlavor", "metadata": about, "spec": {}},
    ]
    for tenant, resources in plan.quotas.items():
        name = f"{tenant}-burst"
        amounts = {**resources, **_credits(resources)}
        found += [
            {
                "apiVersion": API,
                "kind": "ClusterQueue",
                "metadata": metadata(placed, component, name),
                "spec": {
                    "namespaceSelector": {"matchLabels": {TENANT_LABEL: tenant}},
                    "preemption": {"withinClusterQueue": "LowerPriority"},
                    "stopPolicy": plan.stop_policy,
                    "admissionChecksStrategy": {"admissionChecks": [{"name": BURST}]},
                    "resourceGroups": [
                        {
                            "coveredResources": list(amounts),
                            "flavors": [
                                {
                                    "name": BURST,
                                    "resources": [
                                        {"name": resource, "nominalQuota": most}
                                        for resource, most in amounts.items()
                                    ],
                                }
                            ],
                        }
                    ],
                },
            },
            _local_queue(placed, component, tenant, name),
        ]
    return found


def _credits(resources: Mapping[str, str]) -> dict[str, str]:
    """What GPUs are worth: without quota for it, Kueue admits no job that asks for one."""
    worth = [(credits_of(name) or 0) * int(most) for name, most in resources.items()
             if credits_of(name)]  # fmt: skip
    return {CREDIT: str(sum(worth))} if worth else {}


def _local_queue(placed: InCluster, component: str, tenant: str, of: str) -> Manifest:
    return {
        "apiVersion": API,
        "kind": "LocalQueue",
        "metadata": metadata(placed, component, BURST_QUEUE, f"{tenant}{TRAINING_ENDING}"),
        "spec": {"clusterQueue": of},
    }


def _way(placed: InCluster, component: str, worker: Worker) -> Manifest:
    """Kueue's way to the worker's API server: its namespace denies all that isn't named."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(placed, component, f"allow-worker-{worker.name}", NAMESPACE),
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "kueue"}},
            "policyTypes": ["Egress"],
            "egress": [api_server_egress(worker.endpoint_cidrs)],
        },
    }


def accepting(
    placed: InCluster, component: str, accepts: Mapping[str, Sequence[str]]
) -> list[Manifest]:
    """Accounts of clusters that may send jobs here, their rights, and the tenants' queues for it.

    Kueue's own script (`create-multikueue-kubeconfig.sh`) lets the account make and remove jobs
    and pods in every namespace. Here it does so for the named tenants alone, makes no pods, and
    changes no job; of all namespaces it follows what MultiKueue watches, which can't be had less.
    RBAC knows no labels: a policy keeps it to what its own cluster sent.
    """
    found: list[Manifest] = _own_jobs_only(placed, component) if accepts else []
    for cluster, tenants in accepts.items():
        name = f"{_ACCOUNT}{cluster}"
        subjects = [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}]
        found += [
            account(metadata(placed, component, name, NAMESPACE)),
            *role(
                metadata(placed, component, f"falaj-{name}"),
                [
                    _rule("kueue.x-k8s.io", ("workloads",), ("list", "watch")),
                    *(_rule(group, kinds, ("watch",)) for group, kinds in WATCHED.items()),
                ],
                subjects,
            ),
        ]
        for tenant in tenants:
            about = metadata(placed, component, f"falaj-{name}", f"{tenant}{TRAINING_ENDING}")
            jobs = [
                _rule(group, WATCHED[group], ("create", "delete", "get")) for group in ACCEPTED
            ]
            work = [
                _rule(
                    "kueue.x-k8s.io",
                    ("workloads",),
                    ("create", "delete", "get", "patch", "update"),
                ),
                _rule("kueue.x-k8s.io", ("workloads/status",), ("patch", "update")),
            ]
            found += role(about, [*work, *jobs], subjects)
    for tenant in dict.fromkeys(each for tenants in accepts.values() for each in tenants):
        # A job keeps the name of its queue when it is copied.
        found.append(_local_queue(placed, component, tenant, tenant))
    return found


def _own_jobs_only(placed: InCluster, component: str) -> list[Manifest]:
    """Accounts of other clusters touch what bears their cluster's name, and admit nothing.

    The tenant's own jobs, and those of another sender, are in the same namespaces. Kueue writes
    the sender's name (`multiKueue.origin` of its configuration) on all that it sends. Whoever may
    write a workload's status could write its admission too, past the queue's quota.
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/kueue/v1beta2/multikueue_types.go
    """
    about = metadata(placed, component, "falaj-burst-own-jobs")
    prefix = f"system:serviceaccount:{NAMESPACE}:{_ACCOUNT}"
    whole = [(group, WATCHED[group]) for group in ACCEPTED]
    kinds = [*whole, ("kueue.x-k8s.io", ("workloads", "workloads/status"))]

    def own(which: str) -> str:
        labels = f"{which}.metadata.labels"
        bears = f"'{prefix}' + {labels}['{_ORIGIN}'] == request.userInfo.username"
        return f"{which} == null || (has({labels}) && '{_ORIGIN}' in {labels} && {bears})"

    return admission_policy(
        about,
        {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [group],
                        "apiVersions": ["*"],
                        "scope": "Namespaced",
                        "operations": ["CREATE", "UPDATE", "DELETE"],
                        "resources": list(resources),
                    }
                    for group, resources in kinds
                ]
            },
            "matchConditions": [
                {
                    "name": "sent-from-elsewhere",
                    "expression": f"request.userInfo.username.startsWith('{prefix}')",
                }
            ],
            "validations": [
                {
                    "expression": f"({own('object')}) && ({own('oldObject')})",
                    "message": f"what {prefix}<cluster> makes, changes or removes bears "
                    f"{_ORIGIN}: <cluster>; allowed: what that cluster itself sent; name it "
                    "in accepts as its own Kueue is named (origin)",
                    "reason": "Forbidden",
                },
                {
                    # An empty one isn't there: to ask for it is an error, and errors deny.
                    "expression": "request.?subResource.orValue('') != 'status' || "
                    "object.?status.?admission == oldObject.?status.?admission",
                    "message": "only this cluster's own Kueue admits what was sent here",
                    "reason": "Forbidden",
                },
            ],
        },
    )


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> dict[str, list[str]]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
