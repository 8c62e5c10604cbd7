"""Admission checks of Kueue: other clusters in the country, and machines made on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from falaj.components.kubernetes._metadata import metadata
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import TENANT_LABEL, InCluster
from falaj.components.kubernetes.queueing.pools import API

BURST: Final = "falaj-burst"
PROVISIONING: Final = "falaj-provisioning"
_QUEUE: Final = "burst"
#: https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md
#: #how-can-i-use-provisioningrequest-to-run-batch-workloads
CLASSES: Final = (
    "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
    "check-capacity.autoscaling.x-k8s.io",
)


@dataclass(frozen=True)
class Worker:
    """Another cluster that jobs are sent to."""

    name: str
    distribution: str
    region: str
    kubeconfig_secret: str


@dataclass(frozen=True)
class Burst:
    """Where jobs go that this cluster has no room for."""

    workers: tuple[Worker, ...]
    """In the order that they are asked."""
    quotas: Mapping[str, Mapping[str, str]]
    """What each tenant has there, by resource."""


@dataclass(frozen=True)
class Provisioning:
    """Machines that the autoscaler makes for a whole gang, or not at all."""

    class_name: str
    flavors: tuple[str, ...]
    retries: int


def burst(placed: InCluster, component: str, plan: Burst) -> list[Manifest]:
    """Clusters by their kubeconfig secrets, and a queue of each tenant that is sent there.

    The queues are beside the tenants' own: a queue with this check runs nothing in this cluster.
    Jobs get there by the label ``kueue.x-k8s.io/queue-name: burst``.
    """
    found: list[Manifest] = [
        {
            "apiVersion": API,
            "kind": "MultiKueueCluster",
            "metadata": metadata(
                placed,
                component,
                each.name,
                annotations={"falaj.io/place": f"{each.distribution}/{each.region}"},
            ),
            "spec": {
                "clusterSource": {
                    "kubeConfig": {"location": each.kubeconfig_secret, "locationType": "Secret"}
                }
            },
        }
        for each in plan.workers
    ]
    about = metadata(placed, component, BURST)
    found += [
        {
            "apiVersion": API,
            "kind": "MultiKueueConfig",
            "metadata": about,
            "spec": {"clusters": [each.name for each in plan.workers]},
        },
        _check(about, "kueue.x-k8s.io/multikueue", "MultiKueueConfig"),
        {"apiVersion": API, "kind": "ResourceFlavor", "metadata": about, "spec": {}},
    ]
    for tenant, resources in plan.quotas.items():
        name = f"{tenant}-burst"
        found += [
            {
                "apiVersion": API,
                "kind": "ClusterQueue",
                "metadata": metadata(placed, component, name),
                "spec": {
                    "namespaceSelector": {"matchLabels": {TENANT_LABEL: tenant}},
                    "preemption": {"withinClusterQueue": "LowerPriority"},
                    "admissionChecksStrategy": {"admissionChecks": [{"name": BURST}]},
                    "resourceGroups": [
                        {
                            "coveredResources": list(resources),
                            "flavors": [
                                {
                                    "name": BURST,
                                    "resources": [
                                        {"name": resource, "nominalQuota": most}
                                        for resource, most in resources.items()
                                    ],
                                }
                            ],
                        }
                    ],
                },
            },
            {
                "apiVersion": API,
                "kind": "LocalQueue",
                "metadata": metadata(placed, component, _QUEUE, f"{tenant}-training"),
                "spec": {"clusterQueue": name},
            },
        ]
    return found


def provisioning(
    placed: InCluster, component: str, plan: Provisioning, devices: Sequence[str]
) -> list[Manifest]:
    """A check that asks the cluster autoscaler for machines before a job is admitted."""
    about = metadata(placed, component, PROVISIONING)
    return [
        {
            "apiVersion": API,
            "kind": "ProvisioningRequestConfig",
            "metadata": about,
            "spec": {
                "provisioningClassName": plan.class_name,
                "managedResources": list(devices),
                "retryStrategy": {
                    "backoffLimitCount": plan.retries,
                    "backoffBaseSeconds": 60,
                    "backoffMaxSeconds": 1800,
                },
            },
        },
        _check(about, "kueue.x-k8s.io/provisioning-request", "ProvisioningRequestConfig"),
    ]


def _check(about: Mapping[str, Any], controller: str, kind: str) -> Manifest:
    return {
        "apiVersion": API,
        "kind": "AdmissionCheck",
        "metadata": dict(about),
        "spec": {
            "controllerName": controller,
            "parameters": {
                "apiGroup": "kueue.x-k8s.io",
                "kind": kind,
                "name": about["name"],
            },
        },
    }
