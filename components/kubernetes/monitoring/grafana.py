"""Grafana inside the cluster, and its dashboards, made from a short list of panels each.

It asks nobody outside for updates, plugins, news or pictures.
Settings: https://grafana.com/docs/grafana/latest/setup-grafana/configure-grafana/#analytics
Dashboards: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from falaj.components.kubernetes.addons.addon import (
    PRIORITY_CLASS,
    PlatformSpec,
    Values,
    resources,
)

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
        Panel("Active", "falaj:gpu_active:avg30m", "{{Hostname}} {{gpu}}", "percentunit"),
        Panel("Tensor cores", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "{{Hostname}} {{gpu}}",
              "percentunit"),
        Panel("Memory in use", "DCGM_FI_DEV_FB_USED * 1048576", "{{Hostname}} {{gpu}}", "bytes"),
        Panel("Power", "DCGM_FI_DEV_POWER_USAGE", "{{Hostname}} {{gpu}}", "watt"),
        Panel("Temperature", "DCGM_FI_DEV_GPU_TEMP", "{{Hostname}} {{gpu}}", "celsius"),
        Panel("XID errors", "increase(DCGM_EXP_XID_ERRORS_COUNT[1h])",
              "{{Hostname}} {{gpu}} XID {{xid}}"),
        Panel("NVLink", "rate(DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL[5m])", "{{Hostname}} {{gpu}}",
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
    unprivileged = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
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
        "containerSecurityContext": unprivileged,
        "initChownData": {"enabled": False},
        "testFramework": {"enabled": False},
        "persistence": {"enabled": True, "storageClassName": spec.storage_class, "size": "10Gi"},
        "sidecar": {
            "image": sidecar,
            "securityContext": unprivileged,
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
