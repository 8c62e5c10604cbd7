"""Alerts and recording rules of Prometheus on GPUs, queues and services.

Metrics of GPUs: `gpu_metrics`, and what they count over.
Metrics of queues: https://kueue.sigs.k8s.io/docs/reference/metrics/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from falaj.components.catalogue.clusters import GPU_ERROR_TAINT
from falaj.components.kubernetes.addons.gpu_metrics import SLOWED, WINDOW_MINUTES

SERVING_OBJECTIVE: Final = 0.99
"""Share of requests that are answered within `LATENCY_BOUND`."""
LATENCY_BOUND: Final = 0.1024
"""Seconds; a bound of the server's own histogram (workloads/inference/metrics.py)."""
_WINDOW_DAYS: Final = 30


@dataclass(frozen=True)
class Alert:
    """An alert: when, for how long, how bad, and what to do."""

    name: str
    expr: str
    holds: str
    severity: str
    summary: str
    action: str

    def rule(self) -> dict[str, Any]:
        """As Prometheus takes it."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.holds,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "action": self.action},
        }


@dataclass(frozen=True)
class Record:
    """A series that is computed once, for alerts and dashboards."""

    name: str
    expr: str

    def rule(self) -> dict[str, Any]:
        """As Prometheus takes it."""
        return {"record": self.name, "expr": self.expr}


#: Errors after which a GPU has to be reset or its node taken out: double-bit ECC (48), fallen off
#: the bus (79), contained and uncontained memory errors (94, 95), NVLink (74), GSP (119, 120).
#: https://docs.nvidia.com/deploy/xid-errors/
_FATAL_XIDS: Final = "48|74|79|94|95|119|120"
_GPU = "{{ $labels.node }} GPU {{ $labels.gpu }}"

GPU_HEALTH: Final = (
    Alert(
        "GpuFatalError",
        # Known for an hour: the exporter forgets it after its window, and the GPU stays broken.
        f'max_over_time(DCGM_EXP_XID_ERRORS_COUNT{{xid=~"{_FATAL_XIDS}"}}[1h]) > 0',
        "0m",
        "critical",
        f"XID {{{{ $labels.xid }}}} on {_GPU}",
        f"Taint the node {GPU_ERROR_TAINT}=xid:NoSchedule, drain it, reset the GPU.",
    ),
    Alert(
        "GpuErrors",
        # One reading per window, so that each error is counted once.
        f"sum_over_time(DCGM_EXP_XID_ERRORS_COUNT[1h:{WINDOW_MINUTES}m]) > 5",
        "5m",
        "warning",
        f"Repeated XID {{{{ $labels.xid }}}} on {_GPU}",
        "Look at the pod that ran there: most XIDs below 48 are a program's.",
    ),
    Alert(
        "GpuRowRemapFailed",
        "DCGM_FI_DEV_ROW_REMAP_FAILURE > 0",
        "0m",
        "critical",
        f"Memory of {_GPU} can't be repaired",
        "Take the node out and have the GPU replaced.",
    ),
    Alert(
        "GpuRowsRemapped",
        "increase(DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS[1d]) > 0",
        "0m",
        "warning",
        f"Memory rows of {_GPU} were remapped",
        "Reset the GPU when its job ends; replace it if this repeats.",
    ),
    Alert(
        "GpuThrottled",
        # Of all causes together: they take turns.
        "max by (node, gpu) (DCGM_EXP_CLOCK_EVENTS_COUNT"
        f'{{clock_event=~"{"|".join(SLOWED)}"}}) > 0',
        "15m",
        "warning",
        f"{_GPU} is slowed by heat or power",
        "Check cooling and power of the rack: one slow GPU slows its whole gang.",
    ),
    Alert(
        "GpuHot",
        "DCGM_FI_DEV_GPU_TEMP > 85 or DCGM_FI_DEV_MEMORY_TEMP > 95",
        "10m",
        "warning",
        f"{_GPU} is at {{{{ $value }}}} degrees",
        "Check cooling.",
    ),
    Alert(
        "GpuMetricsMissing",
        'kube_node_status_allocatable{resource=~"nvidia_com_.*"} > 0 unless on(node) '
        "DCGM_FI_DEV_GPU_TEMP",
        "15m",
        "warning",
        "No GPU metrics from {{ $labels.node }}",
        "Look at dcgm-exporter on the node; a GPU that hangs answers nothing.",
    ),
)
#: Utilisation proper is void under MIG and counts any kernel: the graphics engine's share of time
#: is what says that a GPU idles.
GPU_USE: Final = (
    Record(
        "falaj:gpu_active:avg30m",
        "avg by (node, gpu, namespace, pod) (avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE[30m]))",
    ),
    Record(
        "falaj:gpu_active:by_tenant",
        "avg by (falaj_io_tenant, falaj_io_cost_center) (DCGM_FI_PROF_GR_ENGINE_ACTIVE)",
    ),
    Alert(
        "GpuIdle",
        'falaj:gpu_active:avg30m{pod!=""} < 0.05',
        "1h",
        "info",
        "{{ $labels.namespace }}/{{ $labels.pod }} holds a GPU and hardly uses it",
        "Ask its owner; a smaller MIG profile may do.",
    ),
)
QUEUES: Final = (
    Record(
        "falaj:queue_wait_seconds:p95",
        "histogram_quantile(0.95, sum by (cluster_queue, le) "
        "(rate(kueue_admission_wait_time_seconds_bucket[1h])))",
    ),
    Alert(
        "QueueWaitLong",
        "falaj:queue_wait_seconds:p95 > 4 * 3600",
        "30m",
        "warning",
        "Jobs of {{ $labels.cluster_queue }} wait for more than four hours",
        "Raise its quota, let it borrow, or add nodes.",
    ),
    Alert(
        "QueueStuck",
        'kueue_pending_workloads{status="active"} > 0 and on(cluster_queue) '
        "increase(kueue_admitted_workloads_total[2h]) == 0",
        "2h",
        "warning",
        "Nothing of {{ $labels.cluster_queue }} was admitted for two hours",
        "Look at the events of its first workload.",
    ),
    Alert(
        "QueueEvictions",
        "sum by (cluster_queue, reason) (increase(kueue_evicted_workloads_total[1h])) > 20",
        "0m",
        "warning",
        "{{ $labels.cluster_queue }} evicts over and over: {{ $labels.reason }}",
        "PodsReadyTimeout: nodes or images come too late. Preempted: priorities fight.",
    ),
)


def _burn(window: str) -> str:
    """How many times faster than allowed the budget of slow and failed answers is spent."""
    of = f"sum by (namespace, model) (rate(falaj_inference_{{}}[{window}]))"
    good = of.format(f'request_duration_seconds_bucket{{le="{LATENCY_BOUND:g}"}}')
    whole = of.format('responses_total{route="infer",status!~"4.."}')
    return f"(1 - {good} / {whole}) / {1 - SERVING_OBJECTIVE:.2g}"


#: Burn rates of https://sre.google/workbook/alerting-on-slos/: 2 % of a month's budget in an
#: hour, 5 % in six.
SERVING: Final = (
    Record("falaj:slo_burn:5m", _burn("5m")),
    Record("falaj:slo_burn:30m", _burn("30m")),
    Record("falaj:slo_burn:1h", _burn("1h")),
    Record("falaj:slo_burn:6h", _burn("6h")),
    Alert(
        "ServingBudgetBurnsFast",
        "falaj:slo_burn:1h > 14.4 and falaj:slo_burn:5m > 14.4",
        "2m",
        "critical",
        "{{ $labels.namespace }}/{{ $labels.model }} spends its month's error budget in days",
        "Roll the newest version back, or let the service scale.",
    ),
    Alert(
        "ServingBudgetBurns",
        "falaj:slo_burn:6h > 6 and falaj:slo_burn:30m > 6",
        "15m",
        "warning",
        "{{ $labels.namespace }}/{{ $labels.model }} is slower than promised",
        "Look at queue time and replicas.",
    ),
)
CAPACITY: Final = (
    Record(
        "falaj:gpus:allocatable",
        'sum by (resource) (kube_node_status_allocatable{resource=~"nvidia_com_.*"})',
    ),
    Record(
        "falaj:gpus:requested",
        'sum by (resource) (kube_pod_container_resource_requests{resource=~"nvidia_com_.*"})',
    ),
    Alert(
        "GpuCapacityRunsOut",
        f"predict_linear(falaj:gpus:requested[14d], {_WINDOW_DAYS} * 86400) "
        "> falaj:gpus:allocatable",
        "6h",
        "info",
        "At this growth {{ $labels.resource }} are all taken within a month",
        "Order capacity: reservations in the region take weeks.",
    ),
    Alert(
        "VolumeFillsUp",
        "predict_linear(kubelet_volume_stats_available_bytes[6h], 2 * 86400) < 0",
        "1h",
        "warning",
        "{{ $labels.namespace }}/{{ $labels.persistentvolumeclaim }} is full in two days",
        "Grow the volume or remove old checkpoints.",
    ),
)
GROUPS: Final[dict[str, tuple[Alert | Record, ...]]] = {
    "gpu-health": GPU_HEALTH,
    "gpu-use": GPU_USE,
    "queues": QUEUES,
    "serving": SERVING,
    "capacity": CAPACITY,
}


def rule_groups() -> list[dict[str, Any]]:
    """``spec.groups`` of a `PrometheusRule`."""
    return [
        {"name": f"falaj-{name}", "rules": [each.rule() for each in group]}
        for name, group in GROUPS.items()
    ]
