"""Repair of nodes with sick GPUs: taken out, drained, brought back when they are well.

The controller is Falaj's (`workloads/repair`). On EKS the node monitoring agent and the repair of
managed node groups do it, so that it isn't for there.

Conditions: AKS' node problem detector writes them of GPUs where AKS installs the driver
(https://learn.microsoft.com/azure/aks/gpu-health-monitoring). On other clusters nothing does: the
controller reads what dcgm-exporter reports on each node, and writes one of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, Final, NotRequired, TypedDict

from falaj.components.catalogue.clusters import (
    GPU_ERROR_TAINT,
    NODE_REPAIR,
    REPAIR_DOMAIN,
    SYSTEM_TAINTS,
)
from falaj.components.catalogue.gpu_errors import XIDS
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import InCluster
from falaj.components.kubernetes._pods import INFERENCE_IMAGE, USER, unprivileged, unprivileged_pod
from falaj.components.kubernetes._rights import account, role, rule
from falaj.components.kubernetes._validation import OptionsChecker
from falaj.components.kubernetes.addons.addon import (
    MONITORING,
    PRIORITY_CLASS,
    Addon,
    Namespace,
    PlatformSpec,
    Scrape,
    Traffic,
    resources,
)
from falaj.components.kubernetes.addons.gpu_operator import EXPORTER_LABEL, EXPORTER_PORT
from falaj.components.kubernetes.addons.gpu_operator import NAMESPACE as GPU_OPERATOR
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.node_pools import GPU, GPU_TAINT
from falaj.components.specification.workload_bounds import bound, form

PORT: Final = 8080
"""Of metrics and health."""
"""The smallest of Falaj's images."""
_REPLICAS: Final = 2
#: Of nodes with GPUs: of Falaj's pools, and as GPU feature discovery labels them.
_WATCHED: Final = (GPU, "nvidia.com/gpu.present")
#: What AKS says that surely is the hardware. `XIDErrors` is of any error in the kernel's log, a
#: program's among them; links that flap and clocks that are throttled come and go.
_CONDITIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "aks": ("GPUMissing=True", "NVLinkStatusInactive=True"),
    "existing": (),
}
_CONDITION: Final = form("repair", "condition")
_SICK: Final = bound("repair", "sick_minutes")
_HEALTHY: Final = bound("repair", "healthy_minutes")
_DRAIN: Final = bound("repair", "drain_minutes")
_NODES: Final = bound("repair", "most_nodes")
_PERCENT: Final = bound("repair", "most_percent")
_PERCENTAGE: Final = form("repair", "percentage")
_TAINT: Final = form("repair", "key")


@described
class NodeRepairOptions(TypedDict):
    """Options of ``node-repair``."""

    conditions: NotRequired[list[Annotated[str, _CONDITION]]]
    """Conditions of nodes that say that a GPU is sick, each with its status then, such as
    ``XIDErrors=True``. Default: on AKS ``GPUMissing=True`` and ``NVLinkStatusInactive=True``; none
    elsewhere."""
    taints: NotRequired[list[str]]
    """Keys of taints of others that say so. Default: none."""
    read_gpus: NotRequired[Annotated[bool, Default(value=True)]]
    """Whether what GPUs report to the exporter of ``gpu-operator`` counts as well, where that is
    installed."""
    most_out: NotRequired[Annotated[int | str, Default(f"{_PERCENT.default}%")]]
    """How many nodes with GPUs may be out of service or sick, for whatever reason: a number, or a
    share of them such as ``10%``, rounded down and at least one. Where there are more, no further
    one is taken out, and an alert tells."""
    sick_minutes: NotRequired[Annotated[int, _SICK, Default(_SICK.default)]]
    """Minutes that a condition holds before anything is done."""
    healthy_minutes: NotRequired[Annotated[int, _HEALTHY, Default(_HEALTHY.default)]]
    """Minutes that a node is well before it returns."""
    drain_minutes: NotRequired[Annotated[int, _DRAIN, Default(_DRAIN.default)]]
    """Minutes after which an alert tells that pods are still on the node; nothing is killed."""
    evict_unmanaged: NotRequired[Annotated[bool, Default(value=False)]]
    """Whether pods are evicted that nothing starts again, as by ``kubectl drain --force``; without
    it a person decides."""
    dry_run: NotRequired[Annotated[bool, Default(value=False)]]
    """Whether the controller only says what it would do."""


def _check(options: OptionsChecker, _: InCluster) -> None:
    for position, each in enumerate(options.checked(NodeRepairOptions)["taints"] or ()):
        own = each in SYSTEM_TAINTS or each == GPU_TAINT.key
        if own or not _TAINT.allows(each):
            options.say(
                f"taints[{position}]",
                f"given {each!r}; allowed: keys of taints that only sick nodes have",
            )
    _check_most(options)


def _check_most(options: OptionsChecker) -> None:
    given = options.given.get("most_out")
    share = int(str(given).removesuffix("%")) if _PERCENTAGE.allows(given) else None
    if given is None or _NODES.allows(given) or _PERCENT.allows(share):
        return
    options.say(
        "most_out",
        f"given {given!r}; allowed: {_NODES.low:g} to {_NODES.high:g}, or {_PERCENT.low:g}% to "
        f"{_PERCENT.high:g}%",
    )


def controller_settings(spec: PlatformSpec) -> dict[str, Any]:
    """The controller's settings, as it reads them (`workloads/repair/settings.py`)."""
    options = spec.options(NODE_REPAIR)
    conditions: Sequence[str] | None = options["conditions"]
    if conditions is None:
        conditions = _CONDITIONS.get(spec.placed.distribution, ())
    chosen = ("most_out", "sick_minutes", "healthy_minutes", "drain_minutes", "evict_unmanaged",
              "dry_run")  # fmt: skip
    found: dict[str, Any] = {
        "domain": REPAIR_DOMAIN,
        "taint": GPU_ERROR_TAINT,
        "watched": list(_WATCHED),
        "conditions": list(conditions),
        "taints": list(options["taints"] or ()),
        **{option: options[option] for option in chosen},
    }
    if _reads_gpus(spec):
        found["xids"] = {str(number): need for number, need in XIDS.items()}
        found["exporters"] = {
            "namespace": GPU_OPERATOR, "label": EXPORTER_LABEL, "port": EXPORTER_PORT,
        }  # fmt: skip
    return found


def _reads_gpus(spec: PlatformSpec) -> bool:
    return spec.has("gpu-operator") and bool(spec.options(NODE_REPAIR)["read_gpus"])


def _objects(spec: PlatformSpec) -> list[Manifest]:
    text = json.dumps(controller_settings(spec), indent=1, sort_keys=True) + "\n"
    return [
        *_rights(spec),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": spec.metadata(NODE_REPAIR, NODE_REPAIR),
            "data": {"settings.json": text},
        },
        _deployment(spec, sha256(text.encode()).hexdigest()),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": spec.metadata(NODE_REPAIR, NODE_REPAIR),
            "spec": {"minAvailable": 1, "selector": {"matchLabels": _SELECTOR}},
        },
    ]


_SELECTOR: Final = {"app.kubernetes.io/name": NODE_REPAIR}


def _rights(spec: PlatformSpec) -> list[Manifest]:
    """What the controller calls, and nothing else. Of nodes the API server's roles know no single
    fields: which of them it may change is admission's to say (`Residency`)."""
    subject = {"kind": "ServiceAccount", "name": NODE_REPAIR, "namespace": NODE_REPAIR}

    def rights(namespace: str, *rules: dict[str, Any]) -> list[Manifest]:
        return role(spec.metadata(NODE_REPAIR, namespace), rules, [subject])

    leases = "coordination.k8s.io"
    return [
        account(spec.metadata(NODE_REPAIR, NODE_REPAIR)),
        *rights(
            "",
            rule("", "nodes", "get", "list", "patch"),
            rule("", "nodes/status", "patch"),
            rule("", "pods", "list"),
            rule("", "pods/eviction", "create"),
        ),
        *rights(
            NODE_REPAIR,
            rule(leases, "leases", "create"),
            rule(leases, "leases", "get", "update", names=(NODE_REPAIR,)),
        ),
        # Where events of objects are that are in no namespace.
        *rights("default", rule("", "events", "create")),
    ]


def _deployment(spec: PlatformSpec, settings: str) -> Manifest:
    folder = "/etc/falaj"
    container: dict[str, Any] = {
        "name": "controller",
        "image": spec.images[INFERENCE_IMAGE],
        "command": ["python", "-m", "falaj.workloads.repair"],
        "args": [
            f"--settings={folder}/settings.json",
            f"--namespace={NODE_REPAIR}",
            "--holder=$(POD_NAME)",
            f"--listen=0.0.0.0:{PORT}",
        ],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "metrics"},
            "periodSeconds": 20,
            "timeoutSeconds": 5,
        },
        "resources": resources("50m", "256Mi"),
        "securityContext": unprivileged(),
        "volumeMounts": [{"name": "settings", "mountPath": folder, "readOnly": True}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": spec.metadata(NODE_REPAIR, NODE_REPAIR),
        "spec": {
            "replicas": _REPLICAS,
            "selector": {"matchLabels": _SELECTOR},
            "template": {
                "metadata": {
                    "labels": {**spec.metadata(NODE_REPAIR)["labels"], **_SELECTOR},
                    # Pods read their settings once.
                    "annotations": {"falaj.io/settings": settings},
                },
                "spec": {
                    "serviceAccountName": NODE_REPAIR,
                    "automountServiceAccountToken": True,
                    "nodeSelector": spec.node_selector,
                    "priorityClassName": PRIORITY_CLASS,
                    "securityContext": unprivileged_pod(fsGroup=USER),
                    "topologySpreadConstraints": [
                        {
                            "maxSkew": 1,
                            "topologyKey": "kubernetes.io/hostname",
                            "whenUnsatisfiable": "ScheduleAnyway",
                            "labelSelector": {"matchLabels": _SELECTOR},
                        }
                    ],
                    "containers": [container],
                    "volumes": [{"name": "settings", "configMap": {"name": NODE_REPAIR}}],
                },
            },
        },
    }


NODE_REPAIR_ADDON: Final = Addon(
    name=NODE_REPAIR,
    summary="nodes with sick GPUs are taken out, drained, and brought back when they are well",
    namespaces=(Namespace(NODE_REPAIR),),
    releases=(),
    options=NodeRepairOptions,
    check=_check,
    images=lambda spec: (INFERENCE_IMAGE,),
    values=lambda spec: {},
    traffic=lambda spec: {
        NODE_REPAIR: Traffic(
            scrapes=(PORT,),
            calls={GPU_OPERATOR: (EXPORTER_PORT,)} if _reads_gpus(spec) else {},
        )
    },
    scrapes=(Scrape(NODE_REPAIR, _SELECTOR, "metrics"),),
    after=_objects,
    follows=(MONITORING, "gpu-operator"),
    distributions=("aks", "existing"),
    default=False,
)
