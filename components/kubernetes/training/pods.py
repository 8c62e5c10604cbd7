"""The pod of a training workload: one container that may do nothing but train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from falaj.components.kubernetes.training.environment import METRICS_PORT, SCRATCH, base, given
from falaj.components.kubernetes.training.placement import pod_placement
from falaj.components.kubernetes.training.specification import Run

CONTAINER: Final = "train"
USER: Final = 65532
"""Whom containers run as: nobody that a node knows."""
RUNS: Final = "/runs"
DATA: Final = "/data"


def template(
    run: Run,
    command: Sequence[str],
    env: Sequence[Mapping[str, Any]],
    labels: Mapping[str, str],
    *,
    annotations: Mapping[str, str] | None = None,
    grace_seconds: int | None = None,
) -> dict[str, Any]:
    """The template of a pod.

    Args:
        run: what it is for.
        command: program and arguments. It is the container's first process, so that the request
            to stop reaches it.
        env: entries beside those that every pod has; they may refer to these.
        labels: of the pod.
        annotations: of the pod.
        grace_seconds: instead of the run's.
    """
    size = run.size
    memory: dict[str, Any] = {"medium": "Memory", "sizeLimit": f"{size.shared_memory_mib}Mi"}
    apart = run.data != run.checkpoints
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": run.image,
        "command": list(command),
        "env": [*base(run), *env, *given(run)],
        "resources": {"requests": dict(size.resources), "limits": dict(size.resources)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "runs", "mountPath": RUNS},
            {"name": "data" if apart else "runs", "mountPath": DATA, "readOnly": True},
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108
            {"name": "scratch", "mountPath": SCRATCH},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        ],
    }
    if run.telemetry:
        container["ports"] = [{"name": "metrics", "containerPort": METRICS_PORT}]
    read_only = {"claimName": run.data, "readOnly": True}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": run.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": run.priority,
        "terminationGracePeriodSeconds": grace_seconds or run.grace_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            # A file system with years of runs isn't gone through at each start.
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **pod_placement(run.placed, run.placement),
        "containers": [container],
        "volumes": [
            {"name": "runs", "persistentVolumeClaim": {"claimName": run.checkpoints}},
            *([{"name": "data", "persistentVolumeClaim": read_only}] if apart else []),
            {"name": "shared-memory", "emptyDir": memory},
            {"name": "scratch", "emptyDir": {"sizeLimit": f"{size.scratch_gib}Gi"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
    }
    about: dict[str, Any] = {"labels": {**run.placed.labels(run.name), **labels}}
    about["annotations"] = {**run.placed.annotations(), **(annotations or {})}
    return {"metadata": about, "spec": spec}


def training_command(run: Run, *more: str) -> list[str]:
    """Falaj's training, as `falaj up` starts it on one machine."""
    command = [
        "python", "-m", "falaj.workloads.training", "run",
        "--dataset", f"{DATA}/{run.dataset}",
        "--output", f"{RUNS}/{run.name}",
        "--processes", str(run.size.processes),
        "--device", "cuda" if run.size.gpus else "cpu",
        "--progress", "json",
    ]  # fmt: skip
    if run.telemetry:
        command += ["--metrics", f"$(POD_IP):{METRICS_PORT}"]
    return [*command, *more, *run.arguments]
