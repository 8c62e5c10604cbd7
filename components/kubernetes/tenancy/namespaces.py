"""A tenant's namespaces, the identities of what runs in them, and the queue of their jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pulumi

from falaj.components.kubernetes._metadata import metadata
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import InCluster
from falaj.components.specification.node_labels import PREFIX

DUTY_LABEL: Final = f"{PREFIX}duty"
BUDGET_LABEL: Final = f"{PREFIX}monthly-budget-usd"
SERVICE_ACCOUNTS: Final[Mapping[str, str]] = {"training": "trainer", "serving": "inference"}
"""Service accounts that the cloud's workload identities are bound to, by what a namespace is
for."""
QUEUE: Final = "default"
"""Kueue's name for the queue of jobs that name none."""
#: https://azure.github.io/azure-workload-identity/docs/topics/service-account-labels-and-annotations.html
_CLIENT: Final = "azure.workload.identity/client-id"
_SECURITY: Final = "pod-security.kubernetes.io"


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
    modes = ("enforce", "audit", "warn")
    labels = {
        DUTY_LABEL: of,
        **{f"{_SECURITY}/{mode}": "restricted" for mode in modes},
        **{f"{_SECURITY}/{mode}-version": pod_security_version for mode in modes},
    }
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
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": about,
            "automountServiceAccountToken": False,
        }
        for about in (own, default)
    ]


def local_queue(
    placed: InCluster, component: str, name: str, cluster_queue: str, weight: float | None
) -> Manifest:
    """The queue that jobs of a namespace are in, whether they name it or not."""
    spec: dict[str, Any] = {"clusterQueue": cluster_queue}
    if weight is not None:
        spec["fairSharing"] = {"weight": f"{weight:g}"}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": metadata(placed, component, QUEUE, name),
        "spec": spec,
    }
