"""How much a tenant's namespace takes: quotas, default sizes, and what it may not have at all.

https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from falaj.components.kubernetes._metadata import metadata
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import InCluster
from falaj.components.kubernetes.queueing.pools import quantity
from falaj.components.kubernetes.queueing.priorities import PRIORITIES

GPU: Final = "nvidia.com/gpu"
SHARED_GPU: Final = "nvidia.com/gpu.shared"
_SYSTEM_PRIORITIES: Final = ("system-cluster-critical", "system-node-critical")
#: Kinds that a namespace has none of, by what it is for.
_NONE: Final[Mapping[str, Sequence[str]]] = {
    "training": ("count/cronjobs.batch", "count/ingresses.networking.k8s.io"),
    "serving": (
        "count/cronjobs.batch", "count/ingresses.networking.k8s.io", "count/jobs.batch",
        "count/jobsets.jobset.x-k8s.io", "count/trainjobs.trainer.kubeflow.org",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Quota:
    """What all pods of a namespace may ask for together."""

    cpu: float
    """Cores."""
    memory_gib: int
    devices: Mapping[str, int]
    """GPUs and parts of them by the resource's name."""
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
) -> list[Manifest]:
    """Quotas of a namespace for ``training`` or ``serving``, and its default sizes."""
    devices = {GPU: 0, SHARED_GPU: 0, **quota.devices}
    compute = {
        "requests.cpu": quantity("cpu", round(quota.cpu * 1000)),
        "requests.memory": f"{quota.memory_gib}Gi",
        "limits.memory": f"{quota.memory_gib}Gi",
        "pods": str(quota.pods),
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
        "count/jobs.batch", "count/jobsets.jobset.x-k8s.io",
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
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": metadata(placed, component, "sizes", namespace),
        "spec": {
            "limits": [
                {
                    "type": "Container",
                    "defaultRequest": {"cpu": "100m", "memory": "256Mi"},
                    "default": {"memory": "256Mi"},
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
