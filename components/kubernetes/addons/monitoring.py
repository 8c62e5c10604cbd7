"""Prometheus, Alertmanager and Grafana inside the cluster; only alerts leave it, to `receivers`.

Values: https://github.com/prometheus-community/helm-charts/tree/main/charts/kube-prometheus-stack
Grafana asks nobody outside for updates, plugins, news or pictures. Its dashboards are made from a
short list of panels each.
Settings: https://grafana.com/docs/grafana/latest/setup-grafana/configure-grafana/#analytics
Dashboards: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NotRequired, TypedDict

from annotated_types import Len

from falaj.components.catalogue.clusters import TENANT_LABEL
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._peers import HBONE
from falaj.components.kubernetes._placed import COMPONENT_LABEL, COST_CENTER_LABEL
from falaj.components.kubernetes._pods import unprivileged_alone
from falaj.components.kubernetes._validation import OptionsChecker
from falaj.components.kubernetes.addons import receivers
from falaj.components.kubernetes.addons.addon import (
    ISSUER,
    MESH_ANNOTATIONS,
    MESH_LABELS,
    MONITORING,
    MONITORING_API,
    PRIORITY_CLASS,
    Addon,
    Namespace,
    PlatformSpec,
    Release,
    Traffic,
    Values,
    resources,
)
from falaj.components.kubernetes.addons.alerts import (
    WORKER_METRIC,
    Alert,
    backup_alerts,
    rule_groups,
)
from falaj.components.kubernetes.addons.external_secrets import generated_secret
from falaj.components.kubernetes.addons.gpu_metrics import WINDOW_MINUTES
from falaj.components.kubernetes.addons.receivers import ReceiverOptions
from falaj.components.specification.arguments import Default
from falaj.components.specification.called_ports import KUBELET
from falaj.components.specification.described import described
from falaj.components.specification.limits import OBJECT, Between

_SOURCE: Final = {"type": "prometheus", "uid": "prometheus"}
_WIDTH, _HEIGHT, _COLUMNS = 12, 8, 24


@dataclass(frozen=True)
class Panel:
    """A chart over time."""

    title: str
    expr: str
    legend: str
    unit: str = "short"
    """Grafana's name of a unit."""


DASHBOARDS: Final[dict[str, tuple[Panel, ...]]] = {
    "GPUs": (
        Panel("Active", "falaj:gpu_active:avg30m", "{{node}} {{gpu}}", "percentunit"),
        Panel("Tensor cores", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "{{node}} {{gpu}}",
              "percentunit"),
        Panel("Memory in use", "DCGM_FI_DEV_FB_USED * 1048576", "{{node}} {{gpu}}", "bytes"),
        Panel("Power", "DCGM_FI_DEV_POWER_USAGE", "{{node}} {{gpu}}", "watt"),
        Panel("Temperature", "DCGM_FI_DEV_GPU_TEMP", "{{node}} {{gpu}}", "celsius"),
        Panel("XID errors", f"max_over_time(DCGM_EXP_XID_ERRORS_COUNT[{WINDOW_MINUTES}m])",
              "{{node}} {{gpu}} XID {{xid}}"),
        Panel("NVLink", "rate(DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL[5m])", "{{node}} {{gpu}}",
              "Bps"),
        Panel("Free and requested", "falaj:gpus:allocatable - falaj:gpus:requested",
              "{{resource}}"),
    ),
    "Queues": (
        Panel("Wait, 95th percentile", "falaj:queue_wait_seconds:p95", "{{cluster_queue}}", "s"),
        Panel("Waiting", 'kueue_pending_workloads{status="active"}', "{{cluster_queue}}"),
        Panel("Running", "kueue_reserving_active_workloads", "{{cluster_queue}}"),
        Panel("Evicted", "sum by (cluster_queue, reason) "
              "(increase(kueue_evicted_workloads_total[1h]))", "{{cluster_queue}} {{reason}}"),
        Panel("Quota in use", "kueue_cluster_queue_resource_usage / "
              "kueue_cluster_queue_nominal_quota", "{{cluster_queue}} {{flavor}} {{resource}}",
              "percentunit"),
        Panel("Share", "kueue_cluster_queue_weighted_share", "{{cluster_queue}}"),
    ),
    "Serving": (
        Panel("Budget burn, 1 h", "falaj:slo_burn:1h", "{{namespace}}/{{model}}"),
        Panel("Requests", "sum by (namespace, model, version) "
              "(rate(falaj_inference_responses_total[5m]))", "{{model}} {{version}}", "reqps"),
        Panel("Latency, 99th percentile", "histogram_quantile(0.99, sum by (namespace, model, le) "
              "(rate(falaj_inference_request_duration_seconds_bucket[5m])))", "{{model}}", "s"),
        Panel("Queue, 99th percentile", "histogram_quantile(0.99, sum by (namespace, model, le) "
              "(rate(falaj_inference_queue_duration_seconds_bucket[5m])))", "{{model}}", "s"),
        Panel("Time to the first token, 99th percentile", "histogram_quantile(0.99, "
              "sum by (namespace, model, le) "
              "(rate(falaj_inference_time_to_first_token_seconds_bucket[5m])))", "{{model}}", "s"),
        Panel("Tokens", "sum by (namespace, model, kind) (rate(falaj_inference_tokens_total[5m]))",
              "{{model}} {{kind}}"),
        Panel("Overflowed to the next tier", "sum by (namespace, model, outcome) "
              "(rate(falaj_inference_overflowed_total[5m]))", "{{model}} {{outcome}}", "reqps"),
        Panel("Replicas", 'kube_deployment_status_replicas_ready{namespace=~".*-serving"}',
              "{{namespace}}/{{deployment}}"),
    ),
    "Tenants": (
        Panel("GPU use", "falaj:gpu_active:by_tenant", "{{falaj_io_tenant}}", "percentunit"),
        Panel("GPUs requested", "sum by (namespace) "
              '(kube_pod_container_resource_requests{resource=~"nvidia_com_.*"})',
              "{{namespace}}"),
        Panel("Cost of GPUs, per hour", "sum by (namespace) (container_gpu_allocation * "
              "on(node) group_left node_gpu_hourly_cost)", "{{namespace}}", "currencyUSD"),
        Panel("Cost of cores, per hour", "sum by (namespace) (container_cpu_allocation * "
              "on(node) group_left node_cpu_hourly_cost)", "{{namespace}}", "currencyUSD"),
    ),
}  # fmt: skip


def dashboard(title: str) -> str:
    """A dashboard of `DASHBOARDS` as JSON."""
    panels = [_panel(number, each) for number, each in enumerate(DASHBOARDS[title])]
    body = {
        "uid": f"falaj-{title.lower()}",
        "title": f"Falaj: {title}",
        "tags": ["falaj"],
        "schemaVersion": 41,
        "editable": False,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "panels": panels,
    }
    return json.dumps(body, indent=1)


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    across = _COLUMNS // _WIDTH
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {
            "x": number % across * _WIDTH,
            "y": number // across * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": "A", "datasource": _SOURCE, "expr": panel.expr, "legendFormat": panel.legend}
        ],
    }


GRAFANA_ADMIN: Final = "grafana-admin"
"""The secret with name and password of its administrator."""


def grafana_values(spec: PlatformSpec) -> Values:
    """Values of the chart below ``grafana``: every call of its own to the outside is off."""
    sidecar = spec.image_parts("grafana-sidecar")
    context = unprivileged_alone()
    return {
        "enabled": True,
        "image": spec.image_parts("grafana"),
        "nodeSelector": spec.node_selector,
        "priorityClassName": PRIORITY_CLASS,
        "resources": resources("100m", "512Mi"),
        "admin": {
            "existingSecret": GRAFANA_ADMIN,
            "userKey": "admin-user",
            "passwordKey": "admin-password",
        },
        "containerSecurityContext": context,
        "initChownData": {"enabled": False},
        "testFramework": {"enabled": False},
        "persistence": {"enabled": True, "storageClassName": spec.storage_class, "size": "10Gi"},
        "sidecar": {
            "image": sidecar,
            "securityContext": context,
            "resources": resources("20m", "128Mi"),
            "dashboards": {"enabled": True, "label": "grafana_dashboard", "labelValue": "1"},
            "datasources": {"enabled": True, "uid": "prometheus"},
        },
        "grafana.ini": {
            "analytics": {
                "reporting_enabled": False,
                "check_for_updates": False,
                "check_for_plugin_updates": False,
                "feedback_links_enabled": False,
            },
            "plugins": {
                "plugin_admin_enabled": False,
                "public_key_retrieval_disabled": True,
                "preinstall_disabled": True,
            },
            "news": {"news_feed_enabled": False},
            "snapshots": {"external_enabled": False},
            "security": {"disable_gravatar": True, "cookie_secure": True},
            "auth.anonymous": {"enabled": False},
            "users": {"allow_sign_up": False},
        },
    }


_NODES: Final = "monitoring-nodes"
#: Labels of pods and nodes that metrics of the cluster's state carry, for charge-back.
_LABELS: Final = (
    f"pods=[{TENANT_LABEL},{COST_CENTER_LABEL},{COMPONENT_LABEL}]",
    "nodes=[falaj.io/pool,falaj.io/gpu,falaj.io/flavor,falaj.io/capacity]",
)


@described
class MonitoringOptions(TypedDict):
    """Options of ``monitoring``."""

    retention_days: NotRequired[Annotated[int, Between(1, 400), Default(30)]]
    """Days that metrics are kept."""
    storage_gib: NotRequired[Annotated[int, Between(10, 16_000), Default(200)]]
    """Size of Prometheus's encrypted volume; the oldest metrics go when it is full."""
    replicas: NotRequired[Annotated[int, Between(1, 3)]]
    """Prometheus and Alertmanager. Default: 2 in production, else 1."""
    grafana: NotRequired[Annotated[bool, Default(value=True)]]
    """Whether Grafana is installed."""
    receivers: NotRequired[Annotated[dict[Annotated[str, OBJECT], ReceiverOptions], Len(0, 20)]]
    """Who gets alerts, by name. Default: nobody, and alerts are seen in Alertmanager alone."""


def _check(options: OptionsChecker, _: object) -> None:
    receivers.check(options)


def _volume(spec: PlatformSpec, gib: int) -> Values:
    claim = {
        "storageClassName": spec.storage_class,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": f"{gib}Gi"}},
    }
    return {"volumeClaimTemplate": {"spec": claim}}


def _values(spec: PlatformSpec) -> dict[str, Values]:
    options = spec.options(MONITORING)
    storage = int(options["storage_gib"])
    production = spec.placed.environment == "production"
    # Reads services in the mesh; KEDA and OpenCost, which aren't in it, read Prometheus.
    mesh = {"labels": MESH_LABELS, "annotations": MESH_ANNOTATIONS}
    pods: Values = {
        "nodeSelector": spec.node_selector,
        "priorityClassName": PRIORITY_CLASS,
        "replicas": options["replicas"] or (2 if production else 1),
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
                    "retention": f"{options['retention_days']}d",
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
                    **receivers.values(spec),
                    "image": spec.image_parts("alertmanager"),
                    "resources": resources("50m", "256Mi"),
                    "storage": _volume(spec, 10),
                }
            },
            "grafana": grafana_values(spec) if options["grafana"] else absent,
            "kube-state-metrics": {
                "image": spec.image_parts("kube-state-metrics"),
                "nodeSelector": spec.node_selector,
                "priorityClassName": PRIORITY_CLASS,
                "resources": resources("100m", "1Gi"),
                "metricLabelsAllowlist": list(_LABELS),
                **(_other_clusters() if spec.has("kueue") else {}),
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
    if not (spec.has("external-secrets") and spec.options(MONITORING)["grafana"]):
        return []
    return generated_secret(
        spec, GRAFANA_ADMIN, MONITORING, "admin-password", **{"admin-user": "admin"}
    )


def _backup_alerts(spec: PlatformSpec) -> tuple[Alert, ...]:
    if not spec.has("velero"):
        return ()
    options = spec.options("velero")
    rehearsal: Mapping[str, Any] | None = options["rehearsal"]
    within_days = None if rehearsal is None else rehearsal["within_days"]
    return backup_alerts(options["recovery_point_hours"], within_days)


def _watched(spec: PlatformSpec) -> list[Manifest]:
    found: list[Manifest] = [
        {
            "apiVersion": MONITORING_API,
            "kind": "PrometheusRule",
            "metadata": spec.metadata("falaj", MONITORING),
            "spec": {"groups": rule_groups(_backup_alerts(spec))},
        },
        *receivers.objects(spec),
    ]
    if spec.options(MONITORING)["grafana"]:
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
    grafana = ("grafana", "grafana-sidecar") if spec.options(MONITORING)[
        "grafana"] else ()  # fmt: skip
    return (
        "prometheus-operator", "prometheus-config-reloader", "prometheus", "alertmanager",
        "node-exporter", "kube-state-metrics", *grafana,
    )  # fmt: skip


def _other_clusters() -> dict[str, Any]:
    """Values of kube-state-metrics: whether the clusters that jobs are sent to are reached.

    https://github.com/kubernetes/kube-state-metrics/blob/v2.20.0/docs/metrics/extend/customresourcestate-metrics.md
    """
    group = "kueue.x-k8s.io"
    conditions = {
        "type": "Gauge",
        "gauge": {
            "path": ["status", "conditions"],
            "labelsFromPath": {"type": ["type"]},
            "valueFrom": ["status"],
        },
    }
    about = "Conditions of clusters that jobs are sent to: 1 where one is true."
    resource = {
        "groupVersionKind": {"group": group, "version": "v1beta2", "kind": "MultiKueueCluster"},
        "labelsFromPath": {"cluster_name": ["metadata", "name"]},
        "metrics": [{"name": WORKER_METRIC, "help": about, "each": conditions}],
    }
    rule = {"apiGroups": [group], "resources": ["multikueueclusters"], "verbs": ["list", "watch"]}
    return {
        "customResourceState": {
            "enabled": True,
            "config": {"kind": "CustomResourceStateMetrics", "spec": {"resources": [resource]}},
        },
        "rbac": {"extraRules": [rule]},
    }


def _traffic(_: PlatformSpec) -> dict[str, Traffic]:
    reads = (8080, 8081, 8085, 8443, 9003, 9100, 9400, 9402, 9464, 10250, 15014, 15020, 19001,
             HBONE)  # fmt: skip
    return {
        MONITORING: Traffic(
            webhooks=(KUBELET,),
            callers={"keda": (9090,), "opencost": (9090,)},
            # Prometheus reads every namespace of the cluster, on the ports that metrics are on.
            calls={"*": reads},
        ),
        _NODES: Traffic(api_server=False, scrapes=(9100,)),
    }


PROMETHEUS: Final = Addon(
    name=MONITORING,
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
