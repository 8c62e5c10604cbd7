"""What the scheduler goes by: nodes that are kept for others, and what containers need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from falaj.components.catalogue.clusters.isolation import GPU_TAINT, SYSTEM_TAINTS
from falaj.policies.model import (
    ABSENT,
    Finding,
    Rule,
    Severity,
    View,
    get,
    is_unknown,
    items,
    rule,
    text,
)
from falaj.policies.reading.kubernetes import ANY_OBJECT, all_manifests
from falaj.policies.reading.namespaces import Level, is_system
from falaj.policies.reading.pod_checks import each_container, each_pod
from falaj.policies.reading.pods import Container, Pod
from falaj.policies.reading.said import said

_CONTROLS: Final = ("iso27001:A.8.22", "iso27001:A.8.9", "uae-ia:T5.2.2", "nist-800-207:2")
#: Resources that are a GPU, or a part of one.
_GPUS: Final = "nvidia.com/"


@rule(
    "kubernetes-tolerations",
    "Pods tolerate only taints of nodes that are meant for them",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Remove the toleration; tolerate nvidia.com/gpu only where the pod asks for a GPU.",
)
@each_pod()
def tolerations(pod: Pod, view: View) -> Iterator[Finding]:
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
                f"{path}.key", f"nodes with the taint {said(key)} are kept for the system"
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


#: Devices that schedulers only count where they are a limit.
_DEVICES: Final = ("nvidia.com/", "amd.com/gpu", "aws.amazon.com/neuron", "gpu.intel.com/")


@rule(
    "kubernetes-resource-limits",
    "Containers say how much memory and processor time they need",
    Severity.LOW,
    ANY_OBJECT,
    ("iso27001:A.8.9", "iso27001:A.8.14"),
    "Set resources.limits.memory and resources.requests.cpu on the container, and devices such as "
    "nvidia.com/gpu as limits; or give the namespace a LimitRange with defaults.",
)
@each_container(Level.RESTRICTED)
def resource_limits(container: Container, view: View) -> Iterator[Finding]:
    """One container can't starve the others of its node."""
    if container.list == "ephemeralContainers" or container.pod.is_partial:
        return  # Debugging containers can't have resources of their own.
    resources = container.get("resources")
    if is_unknown(resources):
        yield container.indeterminate("resources", f"its resources {resources.reason}")
        return
    for key, places in (("memory", ("limits",)), ("cpu", ("requests", "limits"))):
        yield from _demand(container, view, key, places)
    requests, limits = get(resources, "requests"), get(resources, "limits")
    for device in sorted(requests) if isinstance(requests, Mapping) else ():
        has_limit = isinstance(limits, Mapping) and limits.get(device) is not None
        if str(device).startswith(_DEVICES) and not has_limit:
            yield container.violation(
                f'resources.limits["{device}"]',
                f"{device} is requested and no limit; devices are given as limits only",
            )


def _demand(
    container: Container, view: View, key: str, places: tuple[str, ...]
) -> Iterator[Finding]:
    path = f"resources.{places[0]}.{key}"
    found = [container.get(f"resources.{each}.{key}") for each in places]
    found += [container.pod.get(f"resources.{each}.{key}") for each in places]
    given = [each for each in found if each is not ABSENT and each != ""]
    if any(not is_unknown(each) for each in given):
        return
    what = "memory limit" if key == "memory" else "CPU request"
    if given:
        yield container.indeterminate(path, f"the {what} {given[0].reason}")
    elif view.stack is None:
        yield container.indeterminate(
            path, f"there is no {what}, unless a LimitRange of the namespace gives one"
        )
    elif not _has_default(container, view, key):
        yield container.violation(
            path,
            f"container {container.name!r} has no {what}, and no LimitRange of its namespace "
            "gives one",
        )


def _has_default(container: Container, view: View, key: str) -> bool:
    namespace = container.pod.manifest.namespace
    for each in all_manifests(view.stack) if view.stack else ():
        if each.kind != "LimitRange" or (
            not is_unknown(namespace) and each.namespace != namespace
        ):
            continue
        for limit in items(each.get("spec.limits")):
            default = get(limit, "default")
            if text(get(limit, "type")) == "Container" and get(default, key) is not ABSENT:
                return True
    return False


RULES: tuple[Rule, ...] = (tolerations, resource_limits)
