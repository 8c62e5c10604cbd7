"""Prometheus, Alertmanager and Grafana inside the cluster; nothing of them reports outside.

Values: https://github.com/prometheus-community/helm-charts/tree/main/charts/kube-prometheus-stack
"""

from __future__ import annotations

from typing import Final, NotRequired, TypedDict

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._validation import OptionsChecker
from falaj.components.kubernetes.addons.addon import (
    HBONE,
    ISSUER,
    MESH_ANNOTATIONS,
    MESH_LABELS,
    MONITORING,
    PRIORITY_CLASS,
    Addon,
    Namespace,
    PlatformSpec,
    Release,
    Traffic,
    Values,
    resources,
)
from falaj.components.kubernetes.addons.external_secrets import generated_secret
from falaj.components.kubernetes.monitoring.grafana import (
    DASHBOARDS,
    GRAFANA_ADMIN,
    dashboard,
    grafana_values,
)
from falaj.components.kubernetes.monitoring.prometheus import rule_groups

_NODES: Final = "monitoring-nodes"
_API: Final = "monitoring.coreos.com/v1"
#: Labels of pods and nodes that metrics of the cluster's state carry, for charge-back.
_LABELS: Final = (
    "pods=[falaj.io/tenant,falaj.io/cost-center,falaj.io/component]",
    "nodes=[falaj.io/pool,falaj.io/gpu,falaj.io/flavor,falaj.io/capacity]",
)


class MonitoringOptions(TypedDict):
    """Options of ``monitoring``."""

    retention_days: NotRequired[int]
    """Days that metrics are kept, 1 to 400. Default: 30."""
    storage_gib: NotRequired[int]
    """Size of Prometheus's encrypted volume, 10 to 16,000; the oldest metrics go when it is full.
    Default: 200."""
    replicas: NotRequired[int]
    """Prometheus and Alertmanager, 1 to 3. Default: 2 in production, else 1."""
    grafana: NotRequired[bool]
    """Whether Grafana is installed. Default: true."""


def _check(options: OptionsChecker, _: object) -> None:
    options.whole("retention_days", 1, 400)
    options.whole("storage_gib", 10, 16_000)
    options.whole("replicas", 1, 3)
    options.flag("grafana")


def _volume(spec: PlatformSpec, gib: int) -> Values:
    claim = {
        "storageClassName": spec.storage_class,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": f"{gib}Gi"}},
    }
    return {"volumeClaimTemplate": {"spec": claim}}


def _values(spec: PlatformSpec) -> dict[str, Values]:
    options = spec.options("monitoring")
    storage = int(options.get("storage_gib") or 200)
    production = spec.placed.environment == "production"
    # Reads services in the mesh; KEDA and OpenCost, which aren't in it, read Prometheus.
    mesh = {"labels": MESH_LABELS, "annotations": MESH_ANNOTATIONS}
    pods: Values = {
        "nodeSelector": spec.node_selector,
        "priorityClassName": PRIORITY_CLASS,
        "replicas": int(options.get("replicas") or (2 if production else 1)),
    }
    absent: Values = {"enabled": False}
    return {
        MONITORING: {
            "fullnameOverride": MONITORING,
            "cleanPrometheusOperatorObjectNames": True,
            "crds": {"enabled": True, "upgradeJob": absent},
            # Parts of the control plane that managed clusters show nobody.
            "kubeControllerManager": absent,
            "kubeScheduler": absent,
            "kubeEtcd": absent,
            "kubeProxy": absent,
            "prometheusOperator": _operator(spec),
            "prometheus": {
                "prometheusSpec": {
                    **pods,
                    **({"podMetadata": mesh} if spec.has("istio") else {}),
                    "image": spec.image_parts("prometheus"),
                    "resources": resources("1", "8Gi"),
                    "retention": f"{int(options.get('retention_days') or 30)}d",
                    "retentionSize": f"{storage * 85 // 100}GiB",
                    "storageSpec": _volume(spec, storage),
                    "externalLabels": {"cluster": spec.name, "region": spec.placed.region},
                    # Metrics name tenants, models and users: they aren't sent anywhere.
                    "remoteWrite": [],
                    "enableAdminAPI": False,
                    **{
                        f"{kind}SelectorNilUsesHelmValues": False
                        for kind in ("rule", "serviceMonitor", "podMonitor", "probe",
                                     "scrapeConfig")
                    },
                }
            },
            "alertmanager": {
                "alertmanagerSpec": {
                    **pods,
                    "image": spec.image_parts("alertmanager"),
                    "resources": resources("50m", "256Mi"),
                    "storage": _volume(spec, 10),
                }
            },
            "grafana": grafana_values(spec) if options.get("grafana", True) else absent,
            "kube-state-metrics": {
                "image": spec.image_parts("kube-state-metrics"),
                "nodeSelector": spec.node_selector,
                "priorityClassName": PRIORITY_CLASS,
                "resources": resources("100m", "1Gi"),
                "metricLabelsAllowlist": list(_LABELS),
            },
            "prometheus-node-exporter": {
                **_exporter(spec),
                # It reads the host: in a namespace of its own, so that this one is restricted.
                "namespaceOverride": _NODES,
            },
        }
    }  # fmt: skip


def _exporter(spec: PlatformSpec) -> Values:
    registry, repository, tag, digest = spec.parts("node-exporter")
    image = {"registry": registry, "repository": repository, "tag": tag,
             "digest": f"sha256:{digest}"}  # fmt: skip
    return {
        "image": image,
        "nodeSelector": spec.node_selector,
        "priorityClassName": "system-node-critical",
        "resources": resources("50m", "128Mi"),
        "service": {"enabled": True, "port": 9100, "targetPort": 9100},
    }


def _operator(spec: PlatformSpec) -> Values:
    has_ca = spec.has("cert-manager")
    issuer = {"issuerRef": {"kind": "ClusterIssuer", "name": ISSUER}}
    return {
        "image": spec.image_parts("prometheus-operator"),
        "prometheusConfigReloader": {
            "image": spec.image_parts("prometheus-config-reloader"),
            "resources": resources("10m", "64Mi"),
        },
        "nodeSelector": spec.node_selector,
        "priorityClassName": PRIORITY_CLASS,
        "resources": resources("100m", "512Mi"),
        # The chart's own certificates come from hooks, which aren't run.
        "tls": {"enabled": has_ca},
        "admissionWebhooks": {
            "enabled": has_ca,
            "patch": {"enabled": False},
            "certManager": {"enabled": has_ca, **(issuer if has_ca else {})},
        },
    }


def _secret(spec: PlatformSpec) -> list[Manifest]:
    """Grafana's administrator, unless the secret is made by hand."""
    if not (spec.has("external-secrets") and spec.options("monitoring").get("grafana", True)):
        return []
    return generated_secret(
        spec, GRAFANA_ADMIN, MONITORING, "admin-password", **{"admin-user": "admin"}
    )


def _watched(spec: PlatformSpec) -> list[Manifest]:
    found: list[Manifest] = [
        {
            "apiVersion": _API,
            "kind": "PrometheusRule",
            "metadata": spec.metadata("falaj", MONITORING),
            "spec": {"groups": rule_groups()},
        }
    ]
    if spec.options("monitoring").get("grafana", True):
        found += [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": spec.metadata(
                    f"dashboard-{title.lower()}", MONITORING, grafana_dashboard="1"
                ),
                "data": {f"{title.lower()}.json": dashboard(title)},
            }
            for title in DASHBOARDS
        ]
    return found


def _images(spec: PlatformSpec) -> tuple[str, ...]:
    grafana = ("grafana", "grafana-sidecar") if spec.options("monitoring").get(
        "grafana", True) else ()  # fmt: skip
    return (
        "prometheus-operator", "prometheus-config-reloader", "prometheus", "alertmanager",
        "node-exporter", "kube-state-metrics", *grafana,
    )  # fmt: skip


def _traffic(_: PlatformSpec) -> dict[str, Traffic]:
    reads = (8080, 8081, 8085, 8443, 9003, 9100, 9400, 9402, 9464, 10250, 15014, 15020, 19001,
             HBONE)  # fmt: skip
    return {
        MONITORING: Traffic(
            webhooks=(10250,),
            callers={"keda": (9090,), "opencost": (9090,)},
            # Prometheus reads every namespace of the cluster, on the ports that metrics are on.
            calls={"*": reads},
        ),
        _NODES: Traffic(api_server=False, scrapes=(9100,)),
    }


PROMETHEUS: Final = Addon(
    name="monitoring",
    summary="metrics, alerts and dashboards",
    namespaces=(
        Namespace(MONITORING),
        Namespace(_NODES, "privileged", "file systems and processes of the host"),
    ),
    releases=(Release("kube-prometheus-stack", MONITORING, MONITORING),),
    options=MonitoringOptions,
    check=_check,
    images=_images,
    values=_values,
    traffic=_traffic,
    before=_secret,
    after=_watched,
    follows=("cert-manager", "external-secrets"),
)
