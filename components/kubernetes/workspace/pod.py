"""The pod of a workspace: what it runs, and when it ends."""

from __future__ import annotations

from typing import Any, Final

from falaj.components.catalogue.pipelines import QUEUE_LABEL
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._pods import USER, USER_NAME, unprivileged, unprivileged_pod
from falaj.components.kubernetes.tenant.namespaces import QUEUE
from falaj.components.kubernetes.training.placement import pod_placement
from falaj.components.kubernetes.workspace.access import TOKEN_KEY, tls_secret, token_secret
from falaj.components.kubernetes.workspace.arguments import WorkspaceSpec
from falaj.components.specification.node_pools import PREFIX

PORT: Final = 8443
"""On the pod's loopback interface."""
SESSION: Final = f"{PREFIX}session"
"""Annotation with the session's number."""
HOME: Final = "/home/workspace"
DATA: Final = "/data"
SCRATCH: Final = "/scratch"
BASE: Final = "/run/falaj"
TLS: Final = f"{BASE}/tls"
TOKEN: Final = f"{BASE}/token"
RUNTIME: Final = f"{BASE}/runtime"
"""In memory: the server's notes about itself, with the token, and the keys of kernels."""
CONTAINER: Final = "workspace"
#: From the end that the server makes itself to the kubelet's: kernels are given time to stop.
_GRACE_SECONDS: Final = 300
_RUNTIME_MIB: Final = 8


def command(spec: WorkspaceSpec) -> list[str]:
    """What the container runs; packages of the person's own don't get into the server (``-s``)."""
    return [
        "python", "-s", "-m", "falaj.workloads.workspace", "serve",
        "--home", HOME,
        "--runtime", RUNTIME,
        "--host-name", spec.host,
        "--port", str(PORT),
        "--certificate", f"{TLS}/tls.crt",
        "--private-key", f"{TLS}/tls.key",
        "--token-file", f"{TOKEN}/{TOKEN_KEY}",
        "--idle-minutes", str(spec.idle_minutes),
        "--hours", str(spec.hours),
    ]  # fmt: skip


def environment(spec: WorkspaceSpec) -> dict[str, str]:
    """Variables of the server, which its kernels and terminals have as well: none is a secret."""
    found = {
        "HOME": HOME,
        # Images know no user of this number.
        "USER": USER_NAME,
        "LOGNAME": USER_NAME,
        "TMPDIR": SCRATCH,
        "PYTHONUNBUFFERED": "1",
        # The image is read-only: packages of the person's own go into the home.
        "PIP_USER": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        # ONNX Runtime reports its use abroad unless told otherwise.
        "ORT_DISABLE_TELEMETRY": "1",
    }
    if spec.mirror is None:
        return {**found, "PIP_NO_INDEX": "1"}
    return {**found, "PIP_INDEX_URL": spec.mirror.url}


def pod(spec: WorkspaceSpec) -> Manifest:
    """The pod, in Kueue's queue. It isn't started again by anything."""
    labels = {
        QUEUE_LABEL: QUEUE,
        "kueue.x-k8s.io/priority-class": spec.priority,
    }
    # It may wait for its quota for hours, and ends by itself: nobody waits for it.
    notes = {SESSION: str(spec.session), "pulumi.com/skipAwait": "true"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": spec.metadata(spec.base, labels, **notes),
        "spec": {
            "restartPolicy": "Never",
            # Once set it can only be lowered: ValidatePodUpdate in pkg/apis/core/validation of
            # Kubernetes.
            "activeDeadlineSeconds": spec.hours * 3600 + _GRACE_SECONDS,
            "terminationGracePeriodSeconds": 60,
            "serviceAccountName": spec.base,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "priorityClassName": spec.priority,
            "securityContext": unprivileged_pod(
                fsGroup=USER, fsGroupChangePolicy="OnRootMismatch"
            ),
            **pod_placement(spec.placed, spec.placement),
            "containers": [_container(spec)],
            "volumes": _volumes(spec),
        },
    }


def _container(spec: WorkspaceSpec) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = [
        {"name": "home", "mountPath": HOME},
        {"name": "tls", "mountPath": TLS, "readOnly": True},
        {"name": "token", "mountPath": TOKEN, "readOnly": True},
        {"name": "runtime", "mountPath": RUNTIME},
        {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108
        {"name": "scratch", "mountPath": SCRATCH},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
    ]
    if spec.data:
        mounts.append({"name": "data", "mountPath": DATA, "readOnly": True})
    resources = dict(spec.size.resources)
    return {
        "name": CONTAINER,
        "image": spec.image,
        "command": command(spec),
        "env": [{"name": name, "value": value} for name, value in environment(spec).items()],
        "resources": {"requests": resources, "limits": dict(resources)},
        "securityContext": unprivileged(),
        "volumeMounts": mounts,
    }


def _volumes(spec: WorkspaceSpec) -> list[dict[str, Any]]:
    shared = {"medium": "Memory", "sizeLimit": f"{spec.size.shared_memory_mib}Mi"}
    runtime = {"medium": "Memory", "sizeLimit": f"{_RUNTIME_MIB}Mi"}
    found: list[dict[str, Any]] = [
        {"name": "home", "persistentVolumeClaim": {"claimName": spec.home}},
        {"name": "tls", "secret": {"secretName": tls_secret(spec), "defaultMode": 0o440}},
        {"name": "token", "secret": {"secretName": token_secret(spec), "defaultMode": 0o440}},
        {"name": "runtime", "emptyDir": runtime},
        {"name": "shared-memory", "emptyDir": shared},
        {"name": "scratch", "emptyDir": {"sizeLimit": f"{spec.size.scratch_gib}Gi"}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
    ]
    if spec.data:
        claim = {"claimName": spec.data, "readOnly": True}
        found.append({"name": "data", "persistentVolumeClaim": claim})
    return found
