"""What is reported, and which alerts fire then: unit tests of the platform's rules for promtool.

``make test-alerts`` runs them: ``python -m tests.components.kubernetes.alert_cases`` writes the
rules and the cases into a folder, and has ``promtool test rules`` judge them.
https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules/
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from falaj.components.catalogue.clusters import IMAGE_PREFETCH
from falaj.components.kubernetes.addons.alerts import (
    GROUPS,
    WORKER_METRIC,
    Alert,
    backup_alerts,
    rule_groups,
)
from falaj.engine.debian import program
from falaj.engine.errors import EngineError

RULES, TESTS = "falaj-rules.yaml", "falaj-tests.yaml"
_GPU: Final = 'node="gpu-1",gpu="0",Hostname="gpu-1"'
_POD: Final = f'{_GPU},namespace="acme-training",pod="fraud-0"'
_NODE: Final = 'kube_node_status_allocatable{node="gpu-1",resource="nvidia_com_gpu"}'
_WORKER: Final = f"kube_customresource_{WORKER_METRIC}"


@dataclass(frozen=True)
class Case:
    """Series by minute, and how the alert is afterwards."""

    alert: str
    what: str
    series: dict[str, str]
    """In promtool's notation: ``0+1x5`` grows by one, ``_x5`` is missing, each five times more."""
    fires: dict[int, tuple[dict[str, str], ...]] = field(
        default_factory=dict[int, tuple[dict[str, str], ...]]
    )
    """Labels of the alerts that fire, by minute."""
    value: str = "86"
    """What a text that names the value has in its place."""


def _xid(number: int) -> str:
    return f'DCGM_EXP_XID_ERRORS_COUNT{{{_GPU},xid="{number}"}}'


def _clock(event: str) -> str:
    return f'DCGM_EXP_CLOCK_EVENTS_COUNT{{{_GPU},clock_event="{event}"}}'


_HELD: Final = {"namespace": IMAGE_PREFETCH, "daemonset": "h200"}


def _ready(pod: str) -> str:
    return f'kube_pod_status_ready{{namespace="{IMAGE_PREFETCH}",pod="{pod}",condition="true"}}'


def _desired(pool: str) -> str:
    of = f'namespace="{IMAGE_PREFETCH}",daemonset="{pool}"'
    return f"kube_daemonset_status_desired_number_scheduled{{{of}}}"


def _holding(pool: str) -> str:
    of = f'namespace="{IMAGE_PREFETCH}",daemonset="{pool}"'
    return f"kube_daemonset_status_number_ready{{{of}}}"


_WAITS: Final = "kueue_admission_wait_time_seconds_bucket"
_WAITING: Final = "kueue_pending_workloads"
_ADMITTED: Final = "kueue_admitted_workloads_total"
_EVICTED: Final = "kueue_evicted_workloads_total"
_SERVED: Final = "falaj_inference_"
_MODEL: Final = 'namespace="acme-serving",model="credit"'
_REQUESTED: Final = (
    'kube_pod_container_resource_requests{namespace="a",pod="p",resource="nvidia_com_gpu"}'
)
_FREE: Final = "kubelet_volume_stats_available_bytes"
_CLAIM: Final = 'namespace="acme-training",persistentvolumeclaim'
_MATCHES: Final = "coredns_template_matches_total"
_PRESENT: Final = "kube_deployment_status_replicas_available"
_BACKED_UP: Final = "velero_backup_last_successful_timestamp"
_REHEARSED: Final = 'namespace="velero",cronjob="restore-rehearsal"'


def _watch(service: str, looked: str, unknown: str = "0x120") -> dict[str, str]:
    """The series of a watch that looks every minute."""
    of = f'{{namespace="acme-serving",model="{service}",service="{service}"}}'
    return {
        f"falaj_watch_looked_timestamp_seconds{of}": looked,
        f"falaj_watch_interval_seconds{of}": "60x120",
        f"falaj_watch_unknown{of}": unknown,
    }


def _served(model: str, *, quick: int, refused: int = 0) -> dict[str, str]:
    """Two answers a minute of a model, so many of them quick; and what was refused."""
    of = f'namespace="acme-serving",model="{model}"'
    return {
        f'{_SERVED}request_duration_seconds_bucket{{{of},le="0.1024"}}': f"0+{quick}x60",
        f'{_SERVED}responses_total{{{of},route="infer",status="200"}}': "0+2x60",
        f'{_SERVED}responses_total{{{of},route="infer",status="400"}}': f"0+{refused}x60",
    }


_BROKEN: Final = 'namespace="acme-serving",model="broken",route="completions"'


def _texts(model: str, *, soon: int) -> dict[str, str]:
    """Two texts a minute of a language model, so many of which begin soon."""
    of = f'namespace="acme-serving",model="{model}"'
    return {
        f'{_SERVED}time_to_first_token_seconds_bucket{{{of},le="1.6384"}}': f"0+{soon}x60",
        f'{_SERVED}responses_total{{{of},route="chats",status="200"}}': "0+1x60",
        f'{_SERVED}responses_total{{{of},route="completions",status="200"}}': "0+1x60",
    }


_AT: Final = {"node": "gpu-1", "gpu": "0", "Hostname": "gpu-1"}
_ON: Final = {"node": "gpu-1", "gpu": "0"}
#: An error is in the exporter's answers for the five minutes of its window, and then its series is
#: gone.
_ONCE: Final = "_x9 1x4 stale"
CASES: Final = (
    Case("GpuFatalError", "one error, which the exporter soon forgets", {_xid(79): _ONCE},
         {8: (), 12: ({**_AT, "xid": "79"},), 60: ({**_AT, "xid": "79"},), 80: ()}),
    Case("GpuFatalError", "an error of the program", {_xid(31): _ONCE}, {12: (), 60: ()}),
    Case("GpuErrors", "one error is not repeated", {_xid(31): _ONCE}, {30: (), 60: ()}),
    Case("GpuErrors", "two in each window", {_xid(31): "2x120"}, {60: ({**_AT, "xid": "31"},)}),
    Case("GpuErrors", "five within one window, once", {_xid(31): "_x9 5x4 stale"}, {60: ()}),
    Case("GpuRowRemapFailed", "spare rows are used up",
         {f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{_GPU}}}": "0x5 1x10"}, {4: (), 8: (_AT,)}),
    Case("GpuRowsRemapped", "a row was replaced",
         {f"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{{_GPU}}}": "3x10 4x50"},
         {9: (), 30: (_AT,)}),
    Case("GpuThrottled", "heat, by two causes in turn",
         {_clock("hw_thermal"): "3x10 stale _x4 3x20", _clock("sw_thermal"): "_x8 4x8 stale"},
         {10: (), 30: (_ON,)}),
    Case("GpuThrottled", "heat that passes", {_clock("hw_thermal"): "3x8 stale"}, {30: ()}),
    Case("GpuThrottled", "a busy GPU at its power, and an idle one",
         {_clock("power_cap"): "10x60", _clock("gpu_idle"): "10x60"}, {30: (), 60: ()}),
    Case("GpuHot", "86 degrees", {f"DCGM_FI_DEV_GPU_TEMP{{{_GPU}}}": "86x30"},
         {5: (), 20: (_AT,)}),
    Case("GpuHot", "85 degrees", {f"DCGM_FI_DEV_GPU_TEMP{{{_GPU}}}": "85x30"}, {20: ()}),
    Case("GpuMetricsMissing", "an exporter that answers",
         {_NODE: "8x60", f"DCGM_FI_DEV_GPU_TEMP{{{_GPU}}}": "50x60"}, {40: ()}),
    Case("GpuMetricsMissing", "one that doesn't any more",
         {_NODE: "8x60", f"DCGM_FI_DEV_GPU_TEMP{{{_GPU}}}": "50x5 stale"},
         {10: (), 40: ({"node": "gpu-1", "resource": "nvidia_com_gpu"},)}),
    Case("GpuIdle", "a pod that computes nothing",
         {f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{_POD}}}": "0x120"},
         {30: (), 100: ({**_ON, "namespace": "acme-training", "pod": "fraud-0"},)}),
    Case("GpuIdle", "a GPU that nobody holds",
         {f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{_GPU}}}": "0x120"}, {100: ()}),
    Case("WorkerClusterLost", "a cluster that isn't reached, and conditions that say other things",
         {f'{_WORKER}{{cluster_name="cloud",type="Active"}}': "1x5 0x20",
          f'{_WORKER}{{cluster_name="cloud",type="Other"}}': "0x30"},
         {5: (), 8: (), 20: ({"cluster_name": "cloud", "type": "Active"},)}),
    Case("ImagesNotPrefetched", "a pod that pulls for ten minutes, and one that never gets ready",
         {_ready("h200-aaaaa"): "0x10 1x130", _ready("h200-bbbbb"): "0x140",
          _desired("h200"): "2x140", _holding("h200"): "0x10 1x130"},
         {30: (), 100: ({**_HELD, "pod": "h200-bbbbb", "condition": "true"},)}),
    Case("ImagesNotPrefetched", "one that starts again and again",
         {_ready("h200-aaaaa"): ("0 0 0 1 " * 30).strip()},
         {100: ({**_HELD, "pod": "h200-aaaaa", "condition": "true"},)}),
    Case("ImagesNotPrefetched", "a pool for which no pod can be made, and one without nodes",
         {_desired("h200"): "2x140", _holding("h200"): "0x140",
          _desired("l4"): "0x140", _holding("l4"): "0x140"},
         {30: (), 100: (_HELD,)}),
    Case("QueueWaitLong", "waits in the longest bucket, and short ones of another queue",
         {f'{_WAITS}{{cluster_queue="acme",le="3600"}}': "0x300",
          f'{_WAITS}{{cluster_queue="acme",le="28800"}}': "0+1x300",
          f'{_WAITS}{{cluster_queue="acme",le="+Inf"}}': "0+1x300",
          f'{_WAITS}{{cluster_queue="bank",le="3600"}}': "0+1x300",
          f'{_WAITS}{{cluster_queue="bank",le="+Inf"}}': "0+1x300"},
         {10: (), 120: ({"cluster_queue": "acme"},)}),
    Case("QueueStuck", "one that admits nothing, one that admits, one that is empty",
         {f'{_WAITING}{{cluster_queue="acme",status="active"}}': "3x400",
          f'{_ADMITTED}{{cluster_queue="acme"}}': "7x400",
          f'{_WAITING}{{cluster_queue="bank",status="active"}}': "3x400",
          f'{_ADMITTED}{{cluster_queue="bank"}}': "0+1x400",
          f'{_WAITING}{{cluster_queue="idle",status="active"}}': "0x400",
          f'{_ADMITTED}{{cluster_queue="idle"}}': "7x400"},
         {60: (), 300: ({"cluster_queue": "acme", "status": "active"},)}),
    Case("QueueEvictions", "over and over, and now and then",
         {f'{_EVICTED}{{cluster_queue="acme",reason="Preempted"}}': "0+1x120",
          f'{_EVICTED}{{cluster_queue="bank",reason="Preempted"}}': "0x60 1x60"},
         {10: (), 90: ({"cluster_queue": "acme", "reason": "Preempted"},)}),
    Case("ServingBudgetBurnsFast", "a half that is slow, and a service that is quick",
         {**_served("slow", quick=1), **_served("quick", quick=2)},
         {1: (), 30: ({"namespace": "acme-serving", "model": "slow"},)}),
    Case("ServingBudgetBurnsFast", "callers' own errors", _served("asked", quick=2, refused=9),
         {30: ()}),
    Case("ServingBudgetBurnsFast", "texts, a half of which begins late, and prompt ones",
         {**_texts("slow", soon=1), **_texts("quick", soon=2)},
         {1: (), 30: ({"namespace": "acme-serving", "model": "slow"},)}),
    Case("ServingBudgetBurnsFast", "texts that fail before they begin",
         {**_texts("broken", soon=2),
          f'{_SERVED}responses_total{{{_BROKEN},status="500"}}': "0+1x60"},
         {1: (), 30: ({"namespace": "acme-serving", "model": "broken"},)}),
    Case("ServingBudgetBurns", "one in ten that is slow",
         {f'{_SERVED}request_duration_seconds_bucket{{{_MODEL},le="0.1024"}}': "0+9x800",
          f'{_SERVED}responses_total{{{_MODEL},route="infer",status="200"}}': "0+10x800"},
         {10: (), 500: ({"namespace": "acme-serving", "model": "credit"},)}),
    Case("ModelDrifted", "one replica of two that says so, and a version that is well",
         {f'falaj_drift_state{{{_MODEL},version="3",pod="a"}}': "0x20 1x60",
          f'falaj_drift_state{{{_MODEL},version="3",pod="b"}}': "0x80",
          f'falaj_drift_state{{{_MODEL},version="2",pod="c"}}': "0x80"},
         {10: (), 60: ({"namespace": "acme-serving", "model": "credit", "version": "3"},)}),
    Case("ModelDrifted", "a replica that says so and goes, and one that comes and has seen little",
         {f'falaj_drift_state{{{_MODEL},version="3",pod="a"}}': "1x40 stale",
          f'falaj_drift_state{{{_MODEL},version="3",pod="b"}}': "_x40 0x40"},
         {10: (), 40: ({"namespace": "acme-serving", "model": "credit", "version": "3"},),
          60: ()}),
    Case("DriftUnwatched", "one that looks, one that stopped, one that gets no report",
         {**_watch("looks", "0+60x120"), **_watch("stopped", "0+60x30 1800x90"),
          **_watch("silent", "0+60x120", unknown="1x120"),
          **_watch("asleep", "0+60x120", unknown="1x120"),
          **{f'falaj_drift_state{{namespace="acme-serving",model="{each}",version="3"}}': "0x120"
             for each in ("looks", "stopped", "silent")}},
         {20: (), 90: tuple(
             {"namespace": "acme-serving", "service": each, "model": each}
             for each in ("silent", "stopped")
         )}),
    Case("GpuCapacityRunsOut", "more requested each hour, and room for a few days",
         {f"{_REQUESTED}": "0+0.01x2000",
          'kube_node_status_allocatable{node="n",resource="nvidia_com_gpu"}': "64x2000"},
         {100: (), 1800: ({"resource": "nvidia_com_gpu"},)}),
    Case("GpuCapacityRunsOut", "as many as ever",
         {f"{_REQUESTED}": "60x2000",
          'kube_node_status_allocatable{node="n",resource="nvidia_com_gpu"}': "64x2000"},
         {1800: ()}),
    Case("VolumeFillsUp", "one that fills, and one that stays",
         {f'{_FREE}{{{_CLAIM}="checkpoints"}}': "1000000-400x600",
          f'{_FREE}{{{_CLAIM}="datasets"}}': "1000000x600"},
         {20: (), 480: ({"namespace": "acme-training", "persistentvolumeclaim": "checkpoints"},)}),
    Case("NamesRefused", "a pod that asks for a name each second, of two resolvers",
         {f'{_MATCHES}{{instance="a",zone="."}}': "0+60x60",
          f'{_MATCHES}{{instance="b",zone="."}}': "0+60x60",
          f'{_MATCHES}{{instance="a",zone="cluster.local."}}': "0+600x60"},
         {10: (), 40: ({},)}, value="2"),
    Case("NamesRefused", "a name that was spelt wrong",
         {f'{_MATCHES}{{instance="a",zone="."}}': "0x20 1x40"}, {40: ()}),
    Case("NodeQuarantined", "a node that drains, and one in service",
         {'falaj_node_repair_node_state{node="a",state="draining"}': "0x5 1x10",
          'falaj_node_repair_node_state{node="b",state="healthy"}': "1x15"},
         {4: (), 10: ({"node": "a", "state": "draining"},)}),
    Case("NodeDrainBlocked", "a budget that lets none go",
         {'falaj_node_repair_node_state{node="a",state="drain-blocked"}': "0x5 1x10"},
         {4: (), 8: ({"node": "a", "state": "drain-blocked"},)}),
    Case("NodeRepairBrakeOpen", "too many at once",
         {'falaj_node_repair_brake_open{pod="r"}': "0x5 1x10"}, {5: (), 10: ({"pod": "r"},)}),
    Case("NodeRepairStalled", "a controller that passes no more",
         {'falaj_node_repair_leads{pod="r"}': "1x60",
          'falaj_node_repair_last_pass_timestamp_seconds{pod="r"}': "0+60x10 600x60"},
         {15: (), 40: ({},)}),
    Case("NodeRepairStalled", "two of which one leads",
         {'falaj_node_repair_leads{pod="r"}': "1x60", 'falaj_node_repair_leads{pod="s"}': "0x60",
          'falaj_node_repair_last_pass_timestamp_seconds{pod="r"}': "0+60x60",
          f'{_PRESENT}{{namespace="node-repair",deployment="node-repair"}}': "2x60"},
         {40: ()}),
    Case("BackupTooOld", "the last one hours ago",
         {f'{_BACKED_UP}{{schedule="all"}}': "0x300"}, {180: (), 250: ({},)}),
    Case("BackupTooOld", "one every two hours",
         {f'{_BACKED_UP}{{schedule="all"}}': "0x119 7200x119 14400x119"}, {200: (), 340: ()}),
    Case("BackupTooOld", "none ever, but one that was asked for by hand",
         {f'{_BACKED_UP}{{schedule=""}}': "0+60x300"}, {30: (), 120: ({},)}),
    Case("RestoreNotRehearsed", "none since it was declared",
         {f"kube_cronjob_created{{{_REHEARSED}}}": "0x1600"}, {1480: (), 1520: ({},)}),
    Case("RestoreNotRehearsed", "one since then",
         {f"kube_cronjob_created{{{_REHEARSED}}}": "0x1600",
          f"kube_cronjob_status_last_successful_time{{{_REHEARSED}}}": "_x700 42000x900"},
         {1520: ()}),
    Case("RestoreNotRehearsed", "nothing that rehearses", {"up": "1x120"},
         {30: (), 90: ({"namespace": "velero", "cronjob": "restore-rehearsal"},)}),
)  # fmt: skip


#: A recovery point of three hours and a rehearsal each day: promtool goes by the minute.
BACKUPS: Final = backup_alerts(3, 1)


def alerts() -> dict[str, Alert]:
    """Every alert of the platform, by name."""
    of_groups = (each for group in GROUPS.values() for each in group)
    return {each.name: each for each in (*of_groups, *BACKUPS) if isinstance(each, Alert)}


def _filled(text: str, labels: dict[str, str], value: str) -> str:
    """A text with the labels in it, as Prometheus fills templates of this form."""
    for name, given in labels.items():
        text = text.replace(f"{{{{ $labels.{name} }}}}", given)
    return text.replace("{{ $value }}", value)


def document() -> dict[str, Any]:
    """The cases in promtool's form."""
    return {
        "rule_files": [RULES],
        "evaluation_interval": "1m",
        "tests": [_test(each) for each in CASES],
    }


def _test(case: Case) -> dict[str, Any]:
    alert = alerts()[case.alert]
    return {
        "interval": "1m",
        "name": f"{case.alert}: {case.what}",
        "input_series": [
            {"series": series, "values": values} for series, values in case.series.items()
        ],
        "alert_rule_test": [
            {
                "eval_time": f"{minute}m",
                "alertname": case.alert,
                "exp_alerts": [
                    {
                        "exp_labels": {"severity": alert.severity, **labels},
                        "exp_annotations": {
                            "summary": _filled(alert.summary, labels, case.value),
                            "action": alert.action,
                        },
                    }
                    for labels in fired
                ],
            }
            for minute, fired in case.fires.items()
        ],
    }


def write(folder: Path) -> Path:
    """Write rules and cases into a folder; return the file of cases. JSON is YAML too."""
    (folder / RULES).write_text(
        json.dumps({"groups": rule_groups(BACKUPS)}, indent=1), encoding="utf-8"
    )
    file = folder / TESTS
    file.write_text(json.dumps(document(), indent=1), encoding="utf-8")
    return file


def judged() -> subprocess.CompletedProcess[str]:
    """What promtool says of rules and cases.

    Raises EngineError: there is none, and none can be had from here.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [program("promtool"), "test", "rules", str(write(Path(folder)))]
        return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> int:
    """Run them; 1 where one fails, or where no promtool is to be had."""
    try:
        found = judged()
    except EngineError as error:
        print(f"no rule was tried: {error}", file=sys.stderr)
        return 1
    print(found.stdout + found.stderr, end="")
    return found.returncode


if __name__ == "__main__":
    sys.exit(main())
