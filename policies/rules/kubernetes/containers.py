"""Containers that leave their image and their node as they are; namespaces that insist on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_value,
    get,
    is_true,
    is_unknown,
    items,
    rule,
    text,
)
from falaj.policies.reading.kubernetes import ANY_OBJECT, all_manifests, kinds, manifests
from falaj.policies.reading.namespaces import Level, is_system
from falaj.policies.reading.pod_checks import each_container
from falaj.policies.reading.pods import Container

_ENFORCE: Final = "pod-security.kubernetes.io/enforce"


@rule(
    "kubernetes-namespace-pod-security",
    "Namespaces enforce the restricted Pod Security Standard",
    Severity.MEDIUM,
    kinds("core:Namespace"),
    ("iso27001:A.8.9", "iso27001:A.8.22", "uae-ia:T5.2.2", "nist-800-207:4"),
    f"Label the namespace {_ENFORCE}=restricted. Agents that need their nodes belong into a "
    "namespace of the system's own, such as gpu-operator.",
)
def namespace_pod_security(resource: Resource, context: Context) -> Iterator[Finding]:
    """Whoever else makes pods there, by hand or by a controller, is held to it as well."""
    for manifest in manifests(resource):
        if manifest.kind != "Namespace" or manifest.group or is_system(manifest.name):
            continue
        path = f'metadata.labels["{_ENFORCE}"]'
        labels = manifest.get("metadata.labels")
        level: Any = labels.get(_ENFORCE) if isinstance(labels, Mapping) else labels
        if is_unknown(level):
            yield manifest.indeterminate(path, f"the enforced standard {level.reason}")
        elif level is None or level is ABSENT:
            if not manifest.is_patch:
                yield manifest.violation(path, "no standard is enforced, which is privileged")
        elif level != "restricted":
            yield manifest.violation(
                path, f"{format_value(level)} is enforced; restricted is needed"
            )


@rule(
    "kubernetes-read-only-root",
    "Containers can't write to their image",
    Severity.LOW,
    ANY_OBJECT,
    ("iso27001:A.8.9", "nist-800-207:5"),
    "Set securityContext.readOnlyRootFilesystem to true and mount an emptyDir where the program "
    "writes.",
)
@each_container(Level.RESTRICTED)
def read_only_root(container: Container, context: Context) -> Iterator[Finding]:
    """``readOnlyRootFilesystem`` is true; it is false by default."""
    path = "securityContext.readOnlyRootFilesystem"
    value = container.get(path)
    if container.pod.is_windows or (value is ABSENT and container.pod.is_partial):
        return
    if is_unknown(value):
        yield container.indeterminate(path, f"{value.reason}; true is needed")
    elif not is_true(value):
        given = "isn't set, which is false" if value is ABSENT else "is false"
        yield container.violation(
            path, f"readOnlyRootFilesystem of container {container.name!r} {given}"
        )


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
def resource_limits(container: Container, context: Context) -> Iterator[Finding]:
    """One container can't starve the others of its node."""
    if container.list == "ephemeralContainers" or container.pod.is_partial:
        return  # Debugging containers can't have resources of their own.
    resources = container.get("resources")
    if is_unknown(resources):
        yield container.indeterminate("resources", f"its resources {resources.reason}")
        return
    for key, places in (("memory", ("limits",)), ("cpu", ("requests", "limits"))):
        yield from _demand(container, context, key, places)
    requests, limits = get(resources, "requests"), get(resources, "limits")
    for device in sorted(requests) if isinstance(requests, Mapping) else ():
        has_limit = isinstance(limits, Mapping) and limits.get(device) is not None
        if str(device).startswith(_DEVICES) and not has_limit:
            yield container.violation(
                f'resources.limits["{device}"]',
                f"{device} is requested and no limit; devices are given as limits only",
            )


def _demand(
    container: Container, context: Context, key: str, places: tuple[str, ...]
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
    elif context.stack is None:
        yield container.indeterminate(
            path, f"there is no {what}, unless a LimitRange of the namespace gives one"
        )
    elif not _has_default(container, context, key):
        yield container.violation(
            path,
            f"container {container.name!r} has no {what}, and no LimitRange of its namespace "
            "gives one",
        )


def _has_default(container: Container, context: Context, key: str) -> bool:
    namespace = container.pod.manifest.namespace
    for each in all_manifests(context.stack) if context.stack else ():
        if each.kind != "LimitRange" or (
            not is_unknown(namespace) and each.namespace != namespace
        ):
            continue
        for limit in items(each.get("spec.limits")):
            default = get(limit, "default")
            if text(get(limit, "type")) == "Container" and get(default, key) is not ABSENT:
                return True
    return False


RULES: tuple[Rule, ...] = (namespace_pod_security, read_only_root, resource_limits)
