"""What stands beside a job: who may talk to its pods, and who asks them for figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from falaj.components.kubernetes._metadata import metadata
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import COMPONENT_LABEL, TENANT_LABEL
from falaj.components.kubernetes.training.specification import Run
from falaj.components.specification.node_labels import label_value

_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


def selector(run: Run) -> dict[str, str]:
    """Labels of the pods of this workload alone."""
    return {TENANT_LABEL: run.placed.tenant, COMPONENT_LABEL: label_value(run.name)}


def network_policy(run: Run, *, peers: bool) -> Manifest:
    """Pods of the job reach each other on every port, and ask for names; nobody else does.

    Rendezvous and collectives choose ports as they go. It adds to the tenant's own policies, and
    holds where a namespace has none.
    """
    own = {"podSelector": {"matchLabels": selector(run)}}
    ingress: list[dict[str, Any]] = [{"from": [own]}] if peers else []
    names = {
        "namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    ports = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    egress: list[dict[str, Any]] = [{"to": [names], "ports": ports}]
    if peers:
        egress.append({"to": [own]})
    if run.telemetry:
        scraper = {
            "namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: run.monitoring_namespace}}
        }
        ports = [{"port": "metrics", "protocol": "TCP"}]
        ingress.append({"from": [scraper], "ports": ports})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(run.placed, run.name, run.name, run.namespace),
        "spec": {
            "podSelector": {"matchLabels": selector(run)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }


def pod_monitor(run: Run) -> Manifest:
    """Prometheus asks each pod for its figures."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": metadata(run.placed, run.name, run.name, run.namespace),
        "spec": {
            "selector": {"matchLabels": selector(run)},
            "podMetricsEndpoints": [{"port": "metrics", "interval": "15s"}],
            "podTargetLabels": [TENANT_LABEL, COMPONENT_LABEL],
        },
    }


def queue_labels(run: Run) -> Mapping[str, str]:
    """What hands a job to Kueue, which keeps it suspended until there is room for all of it.

    The job's own ``suspend`` is left to Kueue: whoever declared it would stop the job again with
    each update.
    """
    return {
        "kueue.x-k8s.io/queue-name": run.queue,
        "kueue.x-k8s.io/priority-class": run.priority,
    }
