"""Cluster autoscaler: node groups of EKS grow with what waits, and shrink down to none.

Values: https://github.com/kubernetes/autoscaler/blob/cluster-autoscaler-chart-9.59.0/cluster-autoscaler/charts/cluster-autoscaler/values.yaml
What it asks AWS, and how it finds node groups:
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/cloudprovider/aws/README.md
"""

from __future__ import annotations

from typing import Final, TypedDict

from falaj.components.catalogue.clusters import CLUSTER_AUTOSCALER
from falaj.components.kubernetes._pods import unprivileged, unprivileged_pod
from falaj.components.kubernetes.addons.addon import (
    PRIORITY_CLASS,
    Addon,
    Namespace,
    PlatformSpec,
    Release,
    Scrape,
    Traffic,
    Values,
    resources,
)

_NAMESPACE: Final = CLUSTER_AUTOSCALER.namespace
_RELEASE: Final = "cluster-autoscaler"
_METRICS: Final = 8085
#: What is below the share of one GPU in any machine: only a node without a job on its GPUs is
#: idle. At the default of a half, jobs on few GPUs would be moved, and begin again from their
#: last checkpoint.
_BUSY: Final = "0.01"


class ClusterAutoscalerOptions(TypedDict):
    """``cluster-autoscaler`` has no options: pools say how small and large they may be."""


def _values(spec: PlatformSpec) -> dict[str, Values]:
    return {
        _RELEASE: {
            "fullnameOverride": _RELEASE,
            "cloudProvider": "aws",
            "awsRegion": spec.placed.region,
            "autoDiscovery": {"clusterName": spec.cluster_name},
            "image": {
                "repository": spec.repository("cluster-autoscaler"),
                "tag": spec.tag("cluster-autoscaler"),
            },
            "extraArgs": {
                # Types as they were at its release: a network without the endpoints that it asks
                # otherwise would stop it.
                "aws-use-static-instance-list": "true",
                "expander": "least-waste",
                "balance-similar-node-groups": "true",
                "scale-down-gpu-utilization-threshold": _BUSY,
                # Local disks are scratch space: pods that use them may be moved.
                "skip-nodes-with-local-storage": "false",
            },
            "rbac": {"serviceAccount": {"create": True, "name": CLUSTER_AUTOSCALER.name}},
            "podAnnotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
            "nodeSelector": spec.node_selector,
            "priorityClassName": PRIORITY_CLASS,
            "resources": resources("100m", "600Mi"),
            "securityContext": unprivileged_pod(),
            "containerSecurityContext": unprivileged(),
        }
    }


CLUSTER_AUTOSCALER_ADDON: Final = Addon(
    name="cluster-autoscaler",
    summary="node groups of EKS that grow from none, and shrink again",
    namespaces=(Namespace(_NAMESPACE),),
    releases=(Release("cluster-autoscaler", _RELEASE, _NAMESPACE),),
    options=ClusterAutoscalerOptions,
    images=lambda spec: ("cluster-autoscaler",),
    values=_values,
    traffic=lambda spec: {_NAMESPACE: Traffic(scrapes=(_METRICS,), endpoints=True)},
    scrapes=(Scrape(_NAMESPACE, {"app.kubernetes.io/instance": _RELEASE}, _METRICS),),
    distributions=("eks",),
    asks=("cluster_name",),
)
