"""Nodes, pods and settings for the tests of the repair."""

from __future__ import annotations

from typing import Any

from falaj.workloads.repair.marks import written
from falaj.workloads.repair.settings import Settings, parse_settings

DOMAIN = "repair.falaj.io"
TAINT = "falaj.io/gpu-error"
GIVEN: dict[str, Any] = {
    "domain": DOMAIN,
    "taint": TAINT,
    "watched": ["nvidia.com/gpu.present"],
    "conditions": ["GPUMissing=True"],
    "taints": ["example.com/sick"],
    "xids": {"79": "reboot", "95": "reset", "54": "replacement"},
}


def settings(**changes: Any) -> Settings:
    return parse_settings({**GIVEN, **changes})


def condition(kind: str, status: str, since: float = 0.0, **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": written(since), **more}


def node(name: str = "gpu-1", *conditions: dict[str, str], **changes: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "labels": {"nvidia.com/gpu.present": "true", **changes.get("labels", {})},
            "annotations": changes.get("annotations", {}),
        },
        "spec": {"taints": changes.get("taints", []), **changes.get("spec", {})},
        "status": {
            "conditions": [condition("Ready", changes.get("ready", "True")), *conditions],
            "nodeInfo": {"bootID": changes.get("boot", "boot-1")},
        },
    }


def pod(name: str = "p", **changes: Any) -> dict[str, Any]:
    owner = changes.get("owner", "Job")
    owners = [{"kind": owner, "name": "o", "controller": True}] if owner else []
    return {
        "metadata": {
            "name": name,
            "namespace": "acme-training",
            "uid": f"uid-{name}",
            "ownerReferences": owners,
            **changes.get("metadata", {}),
        },
        "spec": {"containers": [{"name": "main"}], **changes.get("spec", {})},
        "status": {"phase": "Running", **changes.get("status", {})},
    }
