"""JobSet: groups of jobs that start, restart and end together.

Values: https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/charts/jobset/values.yaml
"""

from __future__ import annotations

from typing import Final, TypedDict

from falaj.components.kubernetes.addons.addon import (
    ISSUER,
    Addon,
    Namespace,
    PlatformSpec,
    Release,
    Scrape,
    Traffic,
    Values,
    resources,
)
from falaj.components.specification.called_ports import CONTROLLER_WEBHOOKS

_NAMESPACE: Final = "jobset-system"


class JobSetOptions(TypedDict):
    """``jobset`` has no options."""


def _values(spec: PlatformSpec) -> dict[str, Values]:
    return {
        "jobset": {
            "fullnameOverride": "jobset",
            "image": {"repository": spec.repository("jobset"), "tag": spec.tag("jobset"),
                      "pullPolicy": "IfNotPresent"},
            "controller": {
                "replicas": 2,
                "nodeSelector": spec.node_selector,
                "resources": resources("500m", "1Gi"),
                "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
            },
            "certManager": {
                "enable": spec.has("cert-manager"),
                "issuerRef": {"kind": "ClusterIssuer", "name": ISSUER},
            },
            # Its monitor fails to render where the cluster has no such definition yet.
            "prometheus": {"enable": False},
        }
    }  # fmt: skip


JOBSET: Final = Addon(
    name="jobset",
    summary="groups of jobs that start, restart and end together",
    namespaces=(Namespace(_NAMESPACE),),
    releases=(Release("jobset", "jobset", _NAMESPACE),),
    options=JobSetOptions,
    images=lambda spec: ("jobset",),
    values=_values,
    traffic=lambda spec: {_NAMESPACE: Traffic(webhooks=(CONTROLLER_WEBHOOKS,), scrapes=(8443,))},
    scrapes=(
        Scrape(
            _NAMESPACE,
            {"app.kubernetes.io/name": "jobset", "app.kubernetes.io/component": "controller"},
            "https",
            "jobset-metrics-server-cert",
            f"jobset-metrics-service.{_NAMESPACE}.svc",
        ),
    ),
    follows=("cert-manager",),
)
