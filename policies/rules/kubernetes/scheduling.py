"""Which nodes pods get onto: by the scheduler, and none that are kept for others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from falaj.components.catalogue.clusters.isolation import GPU_TAINT, SYSTEM_TAINTS
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Rule,
    Severity,
    format_value,
    get,
    is_unknown,
    items,
    rule,
    text,
)
from falaj.policies.reading.kubernetes import ANY_OBJECT
from falaj.policies.reading.namespaces import is_system
from falaj.policies.reading.pod_checks import each_pod
from falaj.policies.reading.pods import Pod

_CONTROLS: Final = ("iso27001:A.8.22", "iso27001:A.8.9", "uae-ia:T5.2.2", "nist-800-207:2")
#: Resources that are a GPU, or a part of one.
_GPUS: Final = "nvidia.com/"


@rule(
    "kubernetes-node-name",
    "Pods are placed by the scheduler",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Remove nodeName, and select nodes by their labels.",
)
@each_pod()
def node_name(pod: Pod, context: Context) -> Iterator[Finding]:
    """No pod names its node, past quotas of queues, taints and what else is asked of nodes."""
    value = pod.get("nodeName")
    if is_system(pod.manifest.namespace):
        return
    if is_unknown(value):
        yield pod.indeterminate("nodeName", f"whether it names a node {value.reason}")
    elif text(value):
        yield pod.violation("nodeName", f"the pod names {format_value(value)}, past the scheduler")


@rule(
    "kubernetes-tolerations",
    "Pods tolerate only taints of nodes that are meant for them",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Remove the toleration; tolerate nvidia.com/gpu only where the pod asks for a GPU.",
)
@each_pod()
def tolerations(pod: Pod, context: Context) -> Iterator[Finding]:
    """Not all taints at once, not those of the system's nodes, and a GPU's only with a GPU."""
    if is_system(pod.manifest.namespace):
        return
    for index, each in enumerate(items(pod.get("tolerations"))):
        path = f"tolerations[{index}]"
        key, operator = get(each, "key"), get(each, "operator")
        if is_unknown(each) or is_unknown(key):
            hidden = each if is_unknown(each) else key
            yield pod.indeterminate(path, f"which taint is tolerated {hidden.reason}")
        elif not text(key) and is_unknown(operator):
            yield pod.indeterminate(path, f"whether all taints are tolerated {operator.reason}")
        elif not text(key) and operator == "Exists":
            yield pod.violation(path, "every taint is tolerated")
        elif text(key) in SYSTEM_TAINTS:
            yield pod.violation(
                f"{path}.key", f"nodes with the taint {format_value(key)} are kept for the system"
            )
        elif text(key) == GPU_TAINT and not _asks_for_gpu(pod):
            yield pod.violation(
                f"{path}.key", "machines with GPUs are kept for pods that ask for one"
            )


def _asks_for_gpu(pod: Pod) -> bool:
    """Whether it asks for a GPU or a claim, or may do so where that can't be seen."""
    if pod.is_partial or pod.is_bare or items(pod.get("resourceClaims")):
        return True
    for container in pod.containers:
        limits = ABSENT if container.hidden else container.get("resources.limits")
        if container.hidden or is_unknown(limits):
            return True
        if isinstance(limits, Mapping) and any(str(each).startswith(_GPUS) for each in limits):
            return True
    return False


RULES: tuple[Rule, ...] = (node_name, tolerations)
