"""KEDA: replicas by queue time and GPU use, down to none.

Values: https://github.com/kedacore/charts/blob/v2.20.2/keda/values.yaml
"""

from __future__ import annotations

from typing import Final, TypedDict

from falaj.components.kubernetes._pods import unprivileged_alone
from falaj.components.kubernetes.addons.addon import (
    MONITORING,
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
from falaj.components.specification.called_ports import CONTROLLER_WEBHOOKS, KEDA_METRICS

_NAMESPACE: Final = "keda"


class KedaOptions(TypedDict):
    """``keda`` has no options."""


def _values(spec: PlatformSpec) -> dict[str, Values]:
    def image(name: str) -> Values:
        registry, repository, _, _ = spec.parts(name)
        return {"registry": registry, "repository": repository, "tag": spec.tag(name)}

    context = unprivileged_alone()
    parts = ("operator", "metricServer", "webhooks")
    return {
        "keda": {
            "image": {
                "keda": image("keda"),
                "metricsApiServer": image("keda-metrics-apiserver"),
                "webhooks": image("keda-admission-webhooks"),
                "pullPolicy": "IfNotPresent",
            },
            "crds": {"install": True},
            "operator": {"replicaCount": 2},
            "metricsServer": {"replicaCount": 2},
            # The chart writes this part's name in two ways.
            "podDisruptionBudget": {part: {"minAvailable": 1} for part in parts[:2]},
            "webhooks": {"enabled": True, "failurePolicy": "Fail"},
            "nodeSelector": spec.node_selector,
            "priorityClassName": PRIORITY_CLASS,
            "podSecurityContext": {part: {"runAsNonRoot": True} for part in parts},
            "securityContext": dict.fromkeys(parts, context),
            "resources": {
                "operator": resources("100m", "512Mi"),
                "metricServer": resources("100m", "256Mi"),
                "webhooks": resources("20m", "128Mi"),
            },
            "http": {"minTlsVersion": "TLS13"},
            "prometheus": {"operator": {"enabled": True}},
        }
    }


KEDA: Final = Addon(
    name="keda",
    summary="replicas by queue time and GPU use, down to none",
    namespaces=(Namespace(_NAMESPACE),),
    releases=(Release("keda", "keda", _NAMESPACE),),
    options=KedaOptions,
    images=lambda spec: ("keda", "keda-metrics-apiserver", "keda-admission-webhooks"),
    values=_values,
    traffic=lambda spec: {
        _NAMESPACE: Traffic(
            webhooks=(KEDA_METRICS, CONTROLLER_WEBHOOKS),
            scrapes=(8080,),
            calls={MONITORING: (9090,)} if spec.has(MONITORING) else {},
        )
    },
    scrapes=(Scrape(_NAMESPACE, {"app": "keda-operator"}, 8080),),
    # Its scalers read Prometheus.
    needs=(MONITORING,),
)
