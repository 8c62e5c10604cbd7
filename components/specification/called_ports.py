"""Ports on nodes and pods that a cluster's API server calls.

It calls kubelets, webhooks of controllers, and the API servers that extend its own. Whatever
stands between it and the nodes has to let these in: the security groups of EKS, whose nodes aren't
in the cluster's own group, and the network policies of add-ons' namespaces. Both are made from
here, so that no add-on can be called by a port that a network drops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXTENSION_SERVERS: Final = 443
METRICS_SERVER: Final = 4443
KEDA_METRICS: Final = 6443
KUEUE_VISIBILITY: Final = 8082
WEBHOOKS: Final = 8443
CONTROLLER_WEBHOOKS: Final = 9443
#: Webhooks of cert-manager, external-secrets and Prometheus' operator have the kubelet's port.
KUBELET: Final = 10250
EKS_METRICS_SERVER: Final = 10251
ISTIOD: Final = 15017

CALLED_PORTS: Final[Mapping[int, str]] = {
    EXTENSION_SERVERS: "Extension API servers",
    METRICS_SERVER: "Metrics server",
    KEDA_METRICS: "Metrics that KEDA scales by",
    KUEUE_VISIBILITY: "Queues of Kueue",
    WEBHOOKS: "Admission webhooks",
    CONTROLLER_WEBHOOKS: "Admission webhooks of controllers",
    KUBELET: "Kubelet",
    # The port of EKS's own add-on: https://docs.aws.amazon.com/eks/latest/userguide/
    # metrics-server.html
    EKS_METRICS_SERVER: "Metrics server of EKS",
    # Without it every pod of the mesh waits until the webhook times out:
    # https://github.com/istio/istio/issues/36955
    ISTIOD: "Webhooks of Istio",
}
"""What each is for."""
