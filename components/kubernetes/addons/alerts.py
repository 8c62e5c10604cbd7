"""Alerts and recording rules of Prometheus on GPUs, queues, services, images, backups and names.

Metrics of GPUs: `gpu_metrics`, and what they count over.
Metrics of queues: https://kueue.sigs.k8s.io/docs/reference/metrics/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from falaj.components.catalogue.clusters import GPU_ERROR_TAINT, IMAGE_PREFETCH
from falaj.components.catalogue.gpu_errors import CONTAINED, XIDS
from falaj.components.kubernetes.addons.gpu_metrics import SLOWED, WINDOW_MINUTES
from falaj.components.kubernetes.addons.restore_rehearsal import NAME as REHEARSAL
from falaj.components.kubernetes.addons.restore_rehearsal import RESULTS, VELERO
from falaj.components.specification.resolver import REFUSED_QUERIES

SERVING_OBJECTIVE: Final = 0.99
"""Share of requests that are answered within `LATENCY_BOUND`; those for texts, that begin within
`FIRST_TOKEN_BOUND`."""
LATENCY_BOUND: Final = 0.1024
"""Seconds; a bound of the server's own histogram (workloads/inference/metrics.py)."""
FIRST_TOKEN_BOUND: Final = 1.6384
"""Seconds; likewise, and another one than `LATENCY_BOUND`: `_burn` tells them apart by it."""
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


#: Errors after which a GPU has to be reset or its node taken out; a contained one when it fits.
_FATAL_XIDS: Final = "|".join(str(each) for each in sorted((*XIDS, CONTAINED)))
_GPU = "{{ $labels.node }} GPU {{ $labels.gpu }}"

GPU_HEALTH: Final = (
    Alert(
        "GpuFatalError",
        # Known for an hour: the exporter forgets it after its window, and the GPU stays broken.
        f'max_over_time(DCGM_EXP_XID_ERRORS_COUNT{{xid=~"{_FATAL_XIDS}"}}[1h]) > 0',
        "0m",
        "critical",
        f"XID {{{{ $labels.xid }}}} on {_GPU}",
        f"Taint the node {GPU_ERROR_TAINT}=xid:NoSchedule, drain it, reset the GPU; where the "
        "add-on node-repair runs, it taints and drains.",
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
WORKER_METRIC: Final = "multikueuecluster_status"
"""What kube-state-metrics calls the conditions of other clusters, behind its own prefix: Kueue has
no metric of them."""
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
    Alert(
        "WorkerClusterLost",
        f'kube_customresource_{WORKER_METRIC}{{type="Active"}} == 0',
        "5m",
        "critical",
        "Kueue doesn't reach the cluster {{ $labels.cluster_name }}, or its token is void",
        "Read the condition Active of its MultiKueueCluster. Unauthorized: renew the kubeconfig's "
        "entry. Lost: take it out of burst.workers, bring its jobs home, and run up.",
    ),
)


def _burn(window: str) -> str:
    """How many times faster than allowed the budget of slow and failed answers is spent."""
    of = f"rate(falaj_inference_{{}}[{window}])"
    # A text has no duration that could be promised: it takes as long as it is.
    answered = of.format(f'request_duration_seconds_bucket{{le="{LATENCY_BOUND:g}"}}')
    begun = of.format(f'time_to_first_token_seconds_bucket{{le="{FIRST_TOKEN_BOUND:g}"}}')
    whole = of.format('responses_total{route=~"infer|completions|chats",status!~"4.."}')
    by = "sum by (namespace, model)"
    good = f"{by} ({answered} or {begun})"
    return f"(1 - {good} / {by} ({whole})) / {1 - SERVING_OBJECTIVE:.2g}"


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
    Alert(
        "ModelDrifted",
        "max by (namespace, model, version) (falaj_drift_state) == 1",
        "15m",
        "warning",
        "{{ $labels.namespace }}/{{ $labels.model }} is asked or answers otherwise than it was "
        "made for",
        "Read what its server says at /drift, then retrain on newer rows.",
    ),
    #: Of the watch of a service: workloads/watching/metrics.py.
    Alert(
        "DriftUnwatched",
        # A service that sleeps reports nothing, and nobody asks it anything.
        "time() - falaj_watch_looked_timestamp_seconds > 3 * falaj_watch_interval_seconds + 300 "
        "or falaj_watch_unknown == 1 and on(namespace, model) falaj_drift_state",
        "30m",
        "warning",
        "Nobody knows whether {{ $labels.namespace }}/{{ $labels.service }} drifts: its watch "
        "doesn't look, or gets no report",
        "Read the log of its watch: replicas that don't answer, a folder that can't be written, "
        "or a package that says nothing that drift could be judged by.",
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
#: Some names are looked up that nobody has: a service that was spelt wrong, a suffix that nodes
#: search. Who carries data out asks often.
RESOLVER: Final = (
    Record("falaj:names_refused:rate10m", REFUSED_QUERIES),
    Alert(
        "NamesRefused",
        "falaj:names_refused:rate10m > 0.1",
        "15m",
        "warning",
        "Pods ask for {{ $value }} names per second outside of the allowed domains",
        "Read CoreDNS' log: allow a domain that is needed; else find the pod by its address.",
    ),
)
#: Of the controller of the add-on node-repair: workloads/repair/watching.py.
NODE_REPAIR: Final = (
    Alert(
        "NodeQuarantined",
        'falaj_node_repair_node_state{state=~"quarantined|draining|drained"} > 0',
        "1m",
        "warning",
        "{{ $labels.node }} was taken out of service: {{ $labels.state }}",
        "When it is drained, reset its GPU, reboot or repair it; its annotations say why.",
    ),
    Alert(
        "NodeDrainBlocked",
        'falaj_node_repair_node_state{state="drain-blocked"} > 0',
        "0m",
        "critical",
        "Pods are still on {{ $labels.node }}, which was taken out of service",
        "Its events name them: a budget that lets none go, or pods that nothing starts again.",
    ),
    Alert(
        "NodeRepairBrakeOpen",
        "falaj_node_repair_brake_open > 0",
        "1m",
        "critical",
        "Too many nodes with GPUs are sick or out of service: no further one is taken out",
        "Look whether what reports them is right; mend nodes, or raise most_out.",
    ),
    Alert(
        "NodeRepairStalled",
        'kube_deployment_status_replicas_available{namespace="node-repair"} < 1 or '
        "max(falaj_node_repair_leads) < 1 or time() - max(falaj_node_repair_last_pass_timestamp_"
        "seconds) > 600",
        "10m",
        "critical",
        "Nobody looks after sick nodes",
        "Look at the pods of node-repair and their logs.",
    ),
)
_HOLDERS: Final = f'{{namespace="{IMAGE_PREFETCH}"'
#: Each pod by itself: in a pool that grows there is always one that still pulls. Where admission
#: lets none be made there are no pods, so that the DaemonSet counts as well. Metrics:
#: https://github.com/kubernetes/kube-state-metrics/blob/main/docs/metrics/workload
IMAGES: Final = (
    Alert(
        "ImagesNotPrefetched",
        # A pod that starts again and again is ready for moments.
        "label_replace(avg_over_time("
        f'kube_pod_status_ready{_HOLDERS},condition="true"}}[30m]) < 0.5, '
        '"daemonset", "$1", "pod", "(.+)-[^-]+") or '
        f"(kube_daemonset_status_desired_number_scheduled{_HOLDERS}}} > 0 and "
        f"on(namespace, daemonset) kube_daemonset_status_number_ready{_HOLDERS}}} == 0)",
        "1h",
        "warning",
        "Nodes of the pool {{ $labels.daemonset }} lack images that they should have",
        f"Read the events in {IMAGE_PREFETCH}: ErrImagePull names the image; a holder that ends "
        "says which version is too old; Evicted: the list is too large for the disk.",
    ),
)
GROUPS: Final[dict[str, tuple[Alert | Record, ...]]] = {
    "gpu-health": GPU_HEALTH,
    "gpu-use": GPU_USE,
    "queues": QUEUES,
    "serving": SERVING,
    "capacity": CAPACITY,
    "resolver": RESOLVER,
    "node-repair": NODE_REPAIR,
    "images": IMAGES,
}


def backup_alerts(
    recovery_point_hours: int, rehearsed_within_days: int | None
) -> tuple[Alert, ...]:
    """Alerts on backups, and on rehearsals of their restore.

    Metrics: https://github.com/vmware-tanzu/velero/blob/v1.18.1/pkg/metrics/metrics.go,
    https://github.com/kubernetes/kube-state-metrics/blob/main/docs/metrics/workload/cronjob-metrics.md

    Args:
        recovery_point_hours: how old the newest whole backup may be.
        rehearsed_within_days: days that there may be without a successful rehearsal; None where
            none is asked for.
    """
    newest = 'velero_backup_last_successful_timestamp{schedule!=""}'
    backups = Alert(
        "BackupTooOld",
        f"time() - max(max_over_time({newest}[1d])) > {recovery_point_hours} * 3600 "
        f"or absent(max_over_time({newest}[1d]))",
        "1h",
        "critical",
        f"No backup of the cluster was completed for {recovery_point_hours} hours",
        "Look at `velero backup get` and at the state of the backup storage location.",
    )
    if rehearsed_within_days is None:
        return (backups,)
    of = f'{{namespace="{VELERO.name}",cronjob="{REHEARSAL}"}}'
    rehearsals = Alert(
        "RestoreNotRehearsed",
        # Before the first success the time since it was declared counts.
        f"time() - max(kube_cronjob_status_last_successful_time{of} or kube_cronjob_created{of}) "
        f"> {rehearsed_within_days} * 86400 or absent(kube_cronjob_created{of})",
        "1h",
        "critical",
        f"No restore was rehearsed with success for {rehearsed_within_days} days",
        f"Read the findings in the ConfigMap {RESULTS} in {VELERO.name}, and the last job's log.",
    )
    return (backups, rehearsals)


def rule_groups(backups: Sequence[Alert] = ()) -> list[dict[str, Any]]:
    """``spec.groups`` of a `PrometheusRule`.

    Args:
        backups: of `backup_alerts`, where there are backups.
    """
    groups = {**GROUPS, **({"backups": tuple(backups)} if backups else {})}
    return [
        {"name": f"falaj-{name}", "rules": [each.rule() for each in group]}
        for name, group in groups.items()
    ]
