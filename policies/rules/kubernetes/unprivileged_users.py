"""Containers as ordinary users: not root, unable to become it, with ordinary volumes.

The controls that the Pod Security Standard "restricted" adds to "baseline".
https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Rule,
    Severity,
    is_false,
    is_true,
    is_unknown,
    items,
    number,
    rule,
)
from falaj.policies.reading.kubernetes import ANY_OBJECT
from falaj.policies.reading.namespaces import Level
from falaj.policies.reading.pod_checks import each_container, each_pod, setting
from falaj.policies.reading.pods import Container, Pod

_CONTROLS: Final = ("iso27001:A.8.2", "iso27001:A.8.9", "uae-ia:T5.2.2", "nist-800-207:2")
#: Kinds of volumes; ``image`` since https://github.com/kubernetes/kubernetes/pull/130394.
_VOLUMES: Final = frozenset({
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim",
    "projected", "secret",
})  # fmt: skip


@rule(
    "kubernetes-privilege-escalation",
    "Containers can't gain privileges",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Set securityContext.allowPrivilegeEscalation to false on every container, init containers "
    "and ephemeral ones included.",
)
@each_container(Level.RESTRICTED)
def privilege_escalation(container: Container, context: Context) -> Iterator[Finding]:
    """``allowPrivilegeEscalation`` is false in so many words; it is true by default."""
    if container.pod.is_windows:
        return
    path = "securityContext.allowPrivilegeEscalation"
    value = container.get(path)
    if is_unknown(value):
        yield container.indeterminate(path, f"{value.reason}; only false is allowed")
    elif value is ABSENT and container.pod.is_partial:
        return
    elif not is_false(value):
        given = "isn't set, which is true" if value is ABSENT else "is true"
        yield container.violation(
            path, f"allowPrivilegeEscalation of container {container.name!r} {given}"
        )


@rule(
    "kubernetes-run-as-non-root",
    "Containers must not run as root",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Set securityContext.runAsNonRoot to true on the pod, and remove what contradicts it from "
    "containers.",
)
@each_pod(Level.RESTRICTED)
def run_as_non_root(pod: Pod, context: Context) -> Iterator[Finding]:
    """The pod or every container says so, and none says otherwise."""
    path = "securityContext.runAsNonRoot"
    of_pod = pod.get(path)
    if is_unknown(of_pod):
        yield pod.indeterminate(path, f"runAsNonRoot {of_pod.reason}; only true is allowed")
    elif of_pod is not ABSENT and not is_true(of_pod):
        yield pod.violation(path, "runAsNonRoot of the pod is false; only true is allowed")
    for container in pod.containers:
        if container.hidden:
            yield container.indeterminate("", f"the container {container.hidden}")
            continue
        value, from_pod = setting(container, "runAsNonRoot")
        if is_unknown(value):
            if not from_pod:
                yield container.indeterminate(path, f"runAsNonRoot {value.reason}")
        elif value is ABSENT:
            if not pod.is_partial:
                yield container.violation(
                    path,
                    f"neither the pod nor container {container.name!r} sets runAsNonRoot, so it "
                    "may run as root",
                )
        elif not from_pod and not is_true(value):
            yield container.violation(
                path, f"runAsNonRoot of container {container.name!r} is false"
            )


@rule(
    "kubernetes-run-as-user",
    "Containers aren't given root's user",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Set runAsUser to a number above 0, or remove it.",
)
@each_pod(Level.RESTRICTED)
def run_as_user(pod: Pod, context: Context) -> Iterator[Finding]:
    """No ``runAsUser`` is 0; saying nothing is allowed."""
    path = "securityContext.runAsUser"
    for where in (pod, *pod.containers):
        value = where.get(path)
        if is_unknown(value):
            yield where.indeterminate(path, f"runAsUser {value.reason}; 0 isn't allowed")
        elif number(value) == 0:
            yield where.violation(path, "runAsUser is 0, which is root")


@rule(
    "kubernetes-volume-types",
    "Pods mount storage through claims, not directly",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Mount it through a persistentVolumeClaim, whose storage class names the key and the place.",
)
@each_pod(Level.RESTRICTED)
def volume_types(pod: Pod, context: Context) -> Iterator[Finding]:
    """Every volume is of a kind that "restricted" allows."""
    volumes = pod.get("volumes")
    if is_unknown(volumes):
        yield pod.indeterminate("volumes", f"the list of volumes {volumes.reason}")
        return
    for index, volume in enumerate(items(volumes)):
        at = f"volumes[{index}]"
        if is_unknown(volume):
            yield pod.indeterminate(at, f"the volume {volume.reason}")
        elif isinstance(volume, Mapping):
            kinds = {str(key) for key, value in volume.items() if value is not None} - {"name"}
            # A volume that names no kind is an emptyDir.
            for kind in sorted(kinds - _VOLUMES):
                yield pod.violation(
                    f"{at}.{kind}",
                    f"the volume is a {kind}; allowed are {', '.join(sorted(_VOLUMES))}",
                )


RULES: tuple[Rule, ...] = (
    privilege_escalation,
    run_as_non_root,
    run_as_user,
    volume_types,
)
