"""The replicas of one version: their containers, volumes and placement."""

from typing import Any, Final

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import ZONE_LABEL
from falaj.components.kubernetes.serving import paths
from falaj.components.kubernetes.serving.containers import (
    USER,
    container,
    preparing,
    resources,
    serve_command,
    token_mount,
)
from falaj.components.kubernetes.serving.specification import PORT, InferenceServiceSpec, Version
from falaj.components.kubernetes.serving.triton import triton
from falaj.components.specification.node_labels import FLAVOR, GPU_TAINT

LEAVING_SECONDS: Final = 10
"""Before a replica that ends is told so: by then every proxy has stopped sending to it."""
_LOGS_MIB: Final = 768
"""Access logs rotate at 5 files of 128 MiB (falaj.workloads.inference.logs); beside them the
audit log."""
_PROBE_SECONDS: Final = 5


def deployment(spec: InferenceServiceSpec, version: Version) -> Manifest:
    """The Deployment of one version; how many replicas it has is the autoscaler's business."""
    selector = spec.selector(version)
    metadata = spec.metadata(spec.of(version), version)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": spec.operation.start_seconds + 600,
            "selector": {"matchLabels": selector},
            # A new replica is ready before an old one goes.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": {
                "metadata": {
                    "labels": metadata["labels"],
                    "annotations": spec.placed.annotations(),
                },
                "spec": pod(spec, version),
            },
        },
    }


def pod(spec: InferenceServiceSpec, version: Version) -> dict[str, Any]:
    """The specification of a replica."""
    gpu = spec.tier == "gpu"
    steps = preparing(spec, version)
    if gpu:
        steps.append(triton(spec))
    found: dict[str, Any] = {
        "serviceAccountName": spec.access.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": spec.operation.priority_class,
        "terminationGracePeriodSeconds": LEAVING_SECONDS + spec.operation.drain_seconds + 15,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "nodeSelector": {
            **spec.placed.node_selector,
            **({FLAVOR: spec.size.flavor} if spec.size.flavor else {}),
        },
        "topologySpreadConstraints": _spread(spec, version),
        "initContainers": steps,
        "containers": [_server(spec)],
        "volumes": _volumes(spec, version),
    }
    if spec.placed.zones:
        zones = {"key": ZONE_LABEL, "operator": "In", "values": list(spec.placed.zones)}
        found["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [zones]}]
                }
            }
        }
    if gpu:
        taint = GPU_TAINT
        found["tolerations"] = [{"key": taint.key, "operator": "Exists", "effect": taint.effect}]
    return found


def _server(spec: InferenceServiceSpec) -> dict[str, Any]:
    size, gpu = spec.size, spec.tier == "gpu"
    # In the GPU tier the server hands tensors on: a core of the replica's is enough for it.
    cpus = min(1.0, size.cpus / 2) if gpu else size.cpus
    memory = 1024 + 8 * spec.operation.max_body_mib if gpu else size.memory_mib
    mounts = {
        paths.KEYS: "keys", paths.TLS: "tls:ro", **token_mount(spec), paths.WORK: "work",
        paths.LOGS_VOLUME: "logs", "/tmp": "tmp",  # noqa: S108
    }  # fmt: skip
    scratch = 128 + spec.package.model_mib + (0 if spec.operation.audit_claim else _LOGS_MIB)
    found = container(
        "server", spec.images["falaj-inference"], serve_command(), mounts,
        resources(cpus, memory, scratch),
    )  # fmt: skip
    if spec.operation.audit_claim:
        found["env"].append(
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
        )
        for mount in found["volumeMounts"]:
            if mount["name"] == "logs":
                mount["subPathExpr"] = f"{spec.name}/$(POD_NAME)"
    attempts = -(-spec.operation.start_seconds // _PROBE_SECONDS)
    return {
        **found,
        "ports": [{"name": "https", "containerPort": PORT, "protocol": "TCP"}],
        "startupProbe": _probe("ready", period=_PROBE_SECONDS, failures=attempts),
        "readinessProbe": _probe("ready", period=5, failures=2),
        "livenessProbe": _probe("live", period=10, failures=6),
        "lifecycle": {"preStop": {"sleep": {"seconds": LEAVING_SECONDS}}},
    }


def _probe(what: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": f"/v2/health/{what}", "port": "https", "scheme": "HTTPS"},
        "periodSeconds": period,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def _spread(spec: InferenceServiceSpec, version: Version) -> list[dict[str, Any]]:
    """Over zones, where more than one can be had, and over nodes where possible.

    A rollout counts by itself (``matchLabelKeys``), else old replicas would push new ones into one
    zone. GPUs are often sold in one zone only, so there the spread is a wish.
    """
    strict = "ScheduleAnyway" if spec.tier == "gpu" else "DoNotSchedule"
    wishes = ((ZONE_LABEL, strict), ("kubernetes.io/hostname", "ScheduleAnyway"))
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": unsatisfiable,
            "nodeTaintsPolicy": "Honor",
            "labelSelector": {"matchLabels": spec.selector(version)},
            "matchLabelKeys": ["pod-template-hash"],
        }
        for key, unsatisfiable in wishes
    ]


def _volumes(spec: InferenceServiceSpec, version: Version) -> list[dict[str, Any]]:
    mib = spec.package.model_mib
    found: list[dict[str, Any]] = [
        # The kubelet keeps secrets in memory.
        {"name": "secret", "secret": {"secretName": f"{spec.name}-keys", "defaultMode": 0o440}},
        {"name": "tls", "secret": {"secretName": f"{spec.name}-tls", "defaultMode": 0o440}},
        _memory("keys", 4),
        _memory("tmp", 32),
        {"name": "work", "emptyDir": {"sizeLimit": f"{64 + mib}Mi"}},
        {"name": "package", **_package(spec, version)},
    ]
    if spec.operation.audit_claim:
        claim = {"claimName": spec.operation.audit_claim}
        found.append({"name": "logs", "persistentVolumeClaim": claim})
    else:
        found.append({"name": "logs", "emptyDir": {"sizeLimit": f"{_LOGS_MIB}Mi"}})
    if spec.access.token_keys:
        found.append({"name": "tokens", "configMap": {"name": f"{spec.name}-tokens"}})
    if spec.tier == "gpu":
        found.append(_memory("models", 64 + mib))
    return found


def _memory(name: str, mib: int) -> dict[str, Any]:
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": f"{mib}Mi"}}


def _package(spec: InferenceServiceSpec, version: Version) -> dict[str, Any]:
    package = spec.package
    if package.kind == "image":
        reference = spec.placed.image(f"{package.name}@{version.package_digest}")
        return {"image": {"reference": reference, "pullPolicy": "IfNotPresent"}}
    return {"persistentVolumeClaim": {"claimName": package.name, "readOnly": True}}
