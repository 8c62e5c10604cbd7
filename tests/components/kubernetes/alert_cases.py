"""What GPUs report, and which alerts fire then: unit tests of the platform's rules for promtool.

``make test-alerts`` runs them: ``python -m tests.components.kubernetes.alert_cases`` writes the
rules and the cases into a folder, and has ``promtool test rules`` judge them.
https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules/
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from falaj.components.kubernetes.addons.alerts import GROUPS, Alert, rule_groups

RULES, TESTS = "falaj-rules.yaml", "falaj-tests.yaml"
_GPU: Final = 'node="gpu-1",gpu="0",Hostname="gpu-1"'
_POD: Final = f'{_GPU},namespace="acme-training",pod="fraud-0"'
_NODE: Final = 'kube_node_status_allocatable{node="gpu-1",resource="nvidia_com_gpu"}'


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


def _xid(number: int) -> str:
    return f'DCGM_EXP_XID_ERRORS_COUNT{{{_GPU},xid="{number}"}}'


def _clock(event: str) -> str:
    return f'DCGM_EXP_CLOCK_EVENTS_COUNT{{{_GPU},clock_event="{event}"}}'


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
)  # fmt: skip


def _alerts() -> dict[str, Alert]:
    return {
        each.name: each for group in GROUPS.values() for each in group if isinstance(each, Alert)
    }


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
    alert = _alerts()[case.alert]
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
                            "summary": _filled(alert.summary, labels, "86"),
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
    (folder / RULES).write_text(json.dumps({"groups": rule_groups()}, indent=1), encoding="utf-8")
    file = folder / TESTS
    file.write_text(json.dumps(document(), indent=1), encoding="utf-8")
    return file


def judged(promtool: str) -> subprocess.CompletedProcess[str]:
    """What promtool says of rules and cases."""
    with tempfile.TemporaryDirectory() as folder:
        command = [promtool, "test", "rules", str(write(Path(folder)))]
        return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> int:
    """Run them; 1 where one fails, or where no promtool is."""
    promtool = shutil.which("promtool")
    if promtool is None:
        print(
            "promtool isn't on PATH, so that no rule was tried; it comes with Prometheus: "
            "https://prometheus.io/download/, or the package `prometheus` of Debian and Ubuntu",
            file=sys.stderr,
        )
        return 1
    found = judged(promtool)
    print(found.stdout + found.stderr, end="")
    return found.returncode


if __name__ == "__main__":
    sys.exit(main())
