"""A tenant's namespaces: identities of what runs in them, the queue of their jobs, what they take.

Quotas, default sizes, and what a namespace may not have at all:
https://kubernetes.io/docs/concepts/policy/resource-quotas/

Alerts when they cost more than their budget: what containers are given, times what their nodes
cost in an hour, as OpenCost exports both: https://opencost.io/docs/integrations/opencost-exporter/
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pulumi

from falaj.components.catalogue.clusters import GPU, TIME_SLICE
from falaj.components.catalogue.cost import HOURS_PER_MONTH
from falaj.components.kubernetes._objects import Manifest, metadata
from falaj.components.kubernetes._peers import (
    HBONE,
    POD_IDENTITY,
    PROBES,
    in_namespace,
    resolver_egress,
)
from falaj.components.kubernetes._placed import InCluster
from falaj.components.kubernetes._pods import pod_security
from falaj.components.kubernetes._rights import account
from falaj.components.kubernetes.gpu_queues.queues import API, PRIORITIES, quantity
from falaj.components.kubernetes.training.placement import PAGES
from falaj.components.specification.node_pools import PREFIX

PURPOSE_LABEL: Final = f"{PREFIX}duty"
BUDGET_LABEL: Final = f"{PREFIX}monthly-budget-usd"
SERVICE_ACCOUNTS: Final[Mapping[str, str]] = {"training": "trainer", "serving": "inference"}
"""Service accounts that the cloud's workload identities are bound to, by what a namespace is
for."""
QUEUE: Final = "default"
"""Kueue's name for the queue of jobs that name none."""
#: https://azure.github.io/azure-workload-identity/docs/topics/service-account-labels-and-annotations.html
_CLIENT: Final = "azure.workload.identity/client-id"


def namespace(
    placed: InCluster,
    component: str,
    name: str,
    of: str,
    *,
    pod_security_version: str,
    budget_usd: float | None,
    mesh: bool,
) -> Manifest:
    """A namespace whose pods meet the restricted standard.

    Training is never in the mesh: rendezvous and collectives hang behind its proxies
    (nccl #1638, kubeflow/trainer #1636), and RDMA passes them by.
    """
    labels = {PURPOSE_LABEL: of, **pod_security("restricted", pod_security_version)}
    if budget_usd is not None:
        labels[BUDGET_LABEL] = f"{budget_usd:g}"
    if of == "serving" and mesh:
        labels["istio.io/dataplane-mode"] = "ambient"
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": metadata(placed, component, name, labels=labels),
    }


def service_accounts(
    placed: InCluster, component: str, name: str, of: str, client_id: pulumi.Input[str]
) -> list[Manifest]:
    """The namespace's own identity, and its default one, neither with a token in pods.

    On EKS associations of Pod Identity name namespace and account; nothing is written here. On
    AKS the account names the managed identity's client id.
    """
    annotations: dict[str, Any] = {_CLIENT: client_id} if client_id else {}
    own = metadata(placed, component, SERVICE_ACCOUNTS[of], name, annotations=annotations)
    default = metadata(placed, component, "default", name)
    return [account(own), account(default)]


def local_queue(
    placed: InCluster, component: str, name: str, cluster_queue: str, weight: float | None
) -> Manifest:
    """The queue that jobs of a namespace are in, whether they name it or not."""
    spec: dict[str, Any] = {"clusterQueue": cluster_queue}
    if weight is not None:
        spec["fairSharing"] = {"weight": f"{weight:g}"}
    return {
        "apiVersion": API,
        "kind": "LocalQueue",
        "metadata": metadata(placed, component, QUEUE, name),
        "spec": spec,
    }


_SYSTEM_PRIORITIES: Final = ("system-cluster-critical", "system-node-critical")
#: Kinds that a namespace has none of, by what it is for. A training one's CronJobs start runs of
#: pipelines, a serving one's Jobs judge canaries: none of the tenant's duties makes any there.
_NONE: Final[Mapping[str, Sequence[str]]] = {
    "training": ("count/ingresses.networking.k8s.io",),
    "serving": (
        "count/cronjobs.batch", "count/ingresses.networking.k8s.io",
        "count/jobsets.jobset.x-k8s.io", "count/trainjobs.trainer.kubeflow.org",
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Quota:
    """What all pods of a namespace may ask for together."""

    cpu: float
    """Cores."""
    memory_gib: int
    devices: Mapping[str, int]
    """GPUs, parts of them and interfaces of the fabric by the resource's name."""
    huge_pages_mib: int
    """Of 2 MiB each."""
    local_storage_gib: int
    """Disk of nodes: logs, what containers write, and their scratch volumes."""
    storage_gib: Mapping[str, int]
    """By storage class."""
    pods: int
    objects: int
    """Most objects of each kind that is counted."""
    largest_pod_memory_gib: int


def quotas(
    placed: InCluster,
    component: str,
    namespace: str,
    of: str,
    *,
    quota: Quota,
    priorities: Sequence[str],
    known: Collection[str],
) -> list[Manifest]:
    """Quotas of a namespace for ``training`` or ``serving``, and its default sizes.

    Args:
        placed: the tenant.
        component: name of the component.
        namespace: where they are.
        of: what the namespace is for.
        quota: what is given.
        priorities: what its pods may have.
        known: devices of any of the tenant's namespaces. A quota doesn't count what it doesn't
            name, so that what is another namespace's is named with none.
    """
    none = dict.fromkeys((each for each in known if each != PAGES), 0)
    devices = {GPU: 0, TIME_SLICE: 0, **none, **quota.devices}
    compute = {
        "requests.cpu": quantity("cpu", round(quota.cpu * 1000)),
        "requests.memory": f"{quota.memory_gib}Gi",
        "limits.memory": f"{quota.memory_gib}Gi",
        "pods": str(quota.pods),
        "requests.ephemeral-storage": f"{quota.local_storage_gib}Gi",
        "limits.ephemeral-storage": f"{quota.local_storage_gib}Gi",
        f"requests.{PAGES}": f"{quota.huge_pages_mib}Mi" if quota.huge_pages_mib else "0",
        **{f"requests.{name}": str(most) for name, most in sorted(devices.items())},
    }
    storage = {
        "requests.storage": f"{sum(quota.storage_gib.values())}Gi",
        **{
            f"{name}.storageclass.storage.k8s.io/requests.storage": f"{most}Gi"
            for name, most in sorted(quota.storage_gib.items())
        },
    }
    counted = (
        "configmaps", "persistentvolumeclaims", "secrets", "services", "count/deployments.apps",
        "count/cronjobs.batch", "count/jobs.batch", "count/jobsets.jobset.x-k8s.io",
    )  # fmt: skip
    objects = {
        **dict.fromkeys(counted, str(quota.objects)),
        # A load balancer or a port of every node would be a way in past the gateway.
        "services.loadbalancers": "0",
        "services.nodeports": "0",
        **dict.fromkeys(_NONE[of], "0"),
    }
    forbidden = [each for each in PRIORITIES if each not in priorities]

    def one(name: str, hard: Mapping[str, str], **spec: Any) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": metadata(placed, component, name, namespace),
            "spec": {"hard": dict(hard), **spec},
        }

    return [
        one("compute", compute),
        one("storage", storage),
        one("objects", objects),
        one(
            "priorities",
            {"pods": "0"},
            scopeSelector={
                "matchExpressions": [{
                    "scopeName": "PriorityClass",
                    "operator": "In",
                    "values": [*forbidden, *_SYSTEM_PRIORITIES],
                }]
            },
        ),
        _limit_range(placed, component, namespace, quota),
    ]  # fmt: skip


def _limit_range(placed: InCluster, component: str, namespace: str, quota: Quota) -> Manifest:
    """Sizes of containers that name none, which the quota would refuse, and the largest."""
    sizes = {"memory": "256Mi", "ephemeral-storage": "1Gi"}
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": metadata(placed, component, "sizes", namespace),
        "spec": {
            "limits": [
                {
                    "type": "Container",
                    "defaultRequest": {"cpu": "100m", **sizes},
                    # Without a limit on disk the quota counts what is asked for, not what is used.
                    "default": sizes,
                },
                {
                    "type": "Pod",
                    # Not of cpu: a maximum would demand a limit, which throttles.
                    "max": {"memory": f"{quota.largest_pod_memory_gib}Gi"},
                },
                {
                    "type": "PersistentVolumeClaim",
                    "min": {"storage": "1Gi"},
                    "max": {"storage": f"{max([1, *quota.storage_gib.values()])}Gi"},
                },
            ]
        },
    }


_GIB: Final = 1024**3
#: Share of the budget at which somebody is told, and how loudly.
_LEVELS: Final = ((0.8, "warning"), (1.0, "critical"))


def budget_alerts(
    placed: InCluster, component: str, namespaces: Sequence[str], monthly_usd: float, where: str
) -> Manifest:
    """A rule for Prometheus: what runs now, kept up for a month, against the budget."""
    chosen = f'namespace=~"{"|".join(namespaces)}"'
    parts = (
        f"container_gpu_allocation{{{chosen}}} * on(node) group_left() node_gpu_hourly_cost",
        f"container_cpu_allocation{{{chosen}}} * on(node) group_left() node_cpu_hourly_cost",
        f"container_memory_allocation_bytes{{{chosen}}} / {_GIB} "
        "* on(node) group_left() node_ram_hourly_cost",
    )
    cost = " + ".join(f"(sum({part}) or vector(0))" for part in parts)
    rules: list[dict[str, Any]] = [
        {
            "alert": "TenantOverBudget" if share == 1 else "TenantNearBudget",
            "expr": f"({cost}) * {HOURS_PER_MONTH} > {monthly_usd * share:g}",
            "for": "1h",
            "labels": {
                "severity": severity,
                "tenant": placed.tenant,
                "cost_center": placed.cost_center,
            },
            "annotations": {
                "summary": f"{placed.tenant} runs at more than {share:.0%} of its budget",
                "description": "At this rate the month costs {{ $value | humanize }} US dollars; "
                f"the budget is {monthly_usd:g}.",
            },
        }
        for share, severity in _LEVELS
    ]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata(placed, component, f"{placed.tenant}-budget", where),
        "spec": {"groups": [{"name": f"{placed.tenant}-budget", "rules": rules}]},
    }


# Network policies: namespaces deny both ways, but for what is named here. Tenants can't change
# these policies: no role may write them.

#: Set by JobSet on the pods of each job, and by Falaj on pods that find each other otherwise.
JOB_LABELS: Final = ("jobset.sigs.k8s.io/jobset-name",)
#: gRPC and HTTP of OTLP: https://opentelemetry.io/docs/specs/otlp/
_OTLP: Final = (4317, 4318)
_TCP: Final = "TCP"


@dataclass(frozen=True)
class Egress:
    """A way out that was named."""

    name: str
    cidrs: tuple[str, ...]
    ports: tuple[int, ...]
    protocol: str
    purposes: tuple[str, ...]
    reason: str
    """Why public addresses are in the country; empty for private ones."""


def network_policies(
    placed: InCluster,
    component: str,
    namespace: str,
    of: str,
    *,
    egress: Sequence[Egress],
    serving_ports: Sequence[int],
    monitoring: str,
    gateway: str,
) -> list[Manifest]:
    """Network policies of a namespace for ``training`` or ``serving``.

    Args:
        placed: the tenant.
        component: name of the component.
        namespace: where they are.
        of: what the namespace is for.
        egress: ways out that were named.
        serving_ports: ports of pods that the gateway may reach.
        monitoring: namespace of Prometheus and the collector of traces.
        gateway: namespace of the gateway's proxies.
    """

    def policy(
        name: str,
        *,
        pods: Mapping[str, Any] | None = None,
        ingress: Sequence[Mapping[str, Any]] | None = None,
        egress: Sequence[Mapping[str, Any]] | None = None,
        note: str = "",
    ) -> Manifest:
        spec: dict[str, Any] = {"podSelector": dict(pods or {}), "policyTypes": []}
        for key, rules in (("ingress", ingress), ("egress", egress)):
            if rules is not None:
                spec["policyTypes"].append(key.capitalize())
                if rules:
                    spec[key] = list(rules)
        notes = {"falaj.io/reason": note} if note else {}
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(placed, component, name, namespace, annotations=notes),
            "spec": spec,
        }

    names = resolver_egress()
    scrape = {
        "from": [in_namespace(monitoring, {"app.kubernetes.io/name": "prometheus"})],
        "ports": [{"port": "metrics", "protocol": _TCP}],
    }
    found = [
        policy("default-deny", ingress=(), egress=()),
        policy("allow-names", egress=[names]),
        policy("allow-scrapes", ingress=[scrape]),
        policy(
            "allow-telemetry",
            egress=[
                {"to": [in_namespace(monitoring)], "ports": [*_ports(_OTLP[0]), *_ports(_OTLP[1])]}
            ],
        ),
    ]
    if placed.distribution == "eks":
        agent = {"to": [{"ipBlock": {"cidr": POD_IDENTITY}}], "ports": _ports(80)}
        found.append(policy("allow-pod-identity", egress=[agent]))
    if of == "training":
        members = {"matchExpressions": [{"key": JOB_LABELS[0], "operator": "Exists"}]}
        found.append(
            policy(
                "allow-jobs",
                pods=members,
                ingress=[{"from": [{"podSelector": members}]}],
                egress=[{"to": [{"podSelector": members}]}],
            )
        )
    else:
        ports = [each for port in (*serving_ports, HBONE) for each in _ports(port)]
        tunnel: Manifest = {
            "from": [{"podSelector": {}}, in_namespace(monitoring)],
            "ports": _ports(HBONE),
        }
        probes = {"from": [{"ipBlock": {"cidr": PROBES}}]}
        found += [
            policy("allow-gateway", ingress=[{"from": [in_namespace(gateway)], "ports": ports}]),
            policy(
                "allow-mesh",
                ingress=[tunnel, probes],
                egress=[{"to": [{"podSelector": {}}], "ports": _ports(HBONE)}],
            ),
        ]
    for each in egress:
        if of in each.purposes:
            to = [{"ipBlock": {"cidr": cidr}} for cidr in each.cidrs]
            ports = [one for port in each.ports for one in _ports(port, each.protocol)]
            found.append(
                policy(f"allow-{each.name}", egress=[{"to": to, "ports": ports}], note=each.reason)
            )
    return found


def _ports(port: int, *protocols: str) -> list[dict[str, Any]]:
    return [{"port": port, "protocol": each} for each in protocols or (_TCP,)]
