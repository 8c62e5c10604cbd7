"""What the kernel lets containers do: capabilities, seccomp, AppArmor, SELinux, sysctls.

Controls of the Pod Security Standards, with the values that "baseline" and "restricted" allow.
https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from policies.model import (
    ABSENT,
    Finding,
    Rule,
    Severity,
    View,
    get,
    is_list,
    is_unknown,
    items,
    rule,
    text,
)
from policies.reading.kubernetes import ANY_OBJECT, join
from policies.reading.namespaces import Level
from policies.reading.pods import Container, Pod, each_container, each_pod, setting
from policies.reading.said import said

_CONTROLS: Final = ("iso27001:A.8.9", "iso27001:A.8.2", "uae-ia:T5.2.2", "nist-800-207:2")
#: What containers of the baseline may add; nothing of it is more than runtimes give by default.
_BASELINE_CAPABILITIES: Final = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
    "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
})  # fmt: skip
_RESTRICTED_CAPABILITIES: Final = frozenset({"NET_BIND_SERVICE"})
_SELINUX_TYPES: Final = (
    "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t",
)  # fmt: skip
_SYSCTLS: Final = frozenset({
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
})  # fmt: skip


@rule(
    "kubernetes-added-capabilities",
    "Containers add no capability but NET_BIND_SERVICE",
    Severity.HIGH,
    ANY_OBJECT,
    _CONTROLS,
    "Remove what is added in securityContext.capabilities.add; NET_BIND_SERVICE may stay.",
)
@each_container(Level.BASELINE)
def added_capabilities(container: Container, view: View) -> Iterator[Finding]:
    """What is added is within what the namespace's standard allows."""
    if container.pod.is_windows:
        return
    restricted = container.pod.level is Level.RESTRICTED
    allowed = _RESTRICTED_CAPABILITIES if restricted else _BASELINE_CAPABILITIES
    path = "securityContext.capabilities.add"
    added = container.get(path)
    if is_unknown(added):
        yield container.indeterminate(path, f"what is added {added.reason}")
        return
    for index, each in enumerate(items(added)):
        at = f"{path}[{index}]" if is_list(added) else path
        if is_unknown(each):
            yield container.indeterminate(at, f"what is added {each.reason}")
        elif not isinstance(each, str) or each not in allowed:
            yield container.violation(
                at, f"{said(each)} is added; only {', '.join(sorted(allowed))} may be"
            )


@rule(
    "kubernetes-dropped-capabilities",
    "Containers drop all capabilities",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    'Set securityContext.capabilities.drop to ["ALL"] on every container, init containers and '
    "ephemeral ones included.",
)
@each_container(Level.RESTRICTED)
def dropped_capabilities(container: Container, view: View) -> Iterator[Finding]:
    """``ALL`` is dropped; runtimes leave a dozen capabilities otherwise."""
    if container.pod.is_windows:
        return
    path = "securityContext.capabilities.drop"
    dropped = container.get(path)
    if dropped is ABSENT and container.pod.is_partial:
        return
    # Kubernetes compares the word as it stands: "all" and "CAP_ALL" drop nothing.
    if not is_unknown(dropped) and any(each == "ALL" for each in items(dropped)):
        return
    hidden = next((each for each in items(dropped) if is_unknown(each)), None)
    if hidden is not None:
        yield container.indeterminate(path, f"what is dropped {hidden.reason}; ALL must be")
    else:
        yield container.violation(
            path, f"container {container.name!r} doesn't drop ALL capabilities"
        )


@rule(
    "kubernetes-seccomp",
    "Containers run with a seccomp profile",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Set securityContext.seccompProfile.type to RuntimeDefault on the pod, and remove Unconfined "
    "from containers.",
)
@each_pod(Level.BASELINE)
def seccomp(pod: Pod, view: View) -> Iterator[Finding]:
    """The pod or every container says RuntimeDefault or Localhost, and none says otherwise.

    Where the namespace meets the baseline only, saying nothing is allowed.
    """
    if pod.is_windows:
        return
    path = "securityContext.seccompProfile.type"
    for container in pod.containers:
        if container.hidden:
            yield container.indeterminate("", f"the container {container.hidden}")
            continue
        value, from_pod = setting(container, "seccompProfile.type")
        if from_pod and value is not ABSENT:
            continue  # Said once, below.
        if value is ABSENT:
            if pod.level is Level.RESTRICTED and not pod.is_partial:
                yield container.violation(
                    path, f"neither the pod nor container {container.name!r} has a seccomp "
                    "profile; without one Kubernetes runs it Unconfined"
                )  # fmt: skip
        else:
            yield from _profile(container, path, value)
    if (value := pod.get(path)) is not ABSENT:
        yield from _profile(pod, path, value)


def _profile(where: Pod | Container, path: str, value: Any) -> Iterator[Finding]:
    if is_unknown(value):
        yield where.indeterminate(path, f"the seccomp profile {value.reason}")
    elif value not in ("RuntimeDefault", "Localhost"):
        yield where.violation(
            path, f"the seccomp profile is {said(value)}; RuntimeDefault or Localhost is allowed"
        )


_APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"


@rule(
    "kubernetes-apparmor",
    "Containers keep their AppArmor profile",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Remove the profile, or set it to RuntimeDefault (runtime/default in the annotation).",
)
@each_pod(Level.BASELINE)
def apparmor(pod: Pod, view: View) -> Iterator[Finding]:
    """No profile is Unconfined, by field or by the annotation of old."""
    path = "securityContext.appArmorProfile.type"
    for where in (pod, *pod.containers):
        value = where.get(path)
        if is_unknown(value):
            yield where.indeterminate(path, f"the AppArmor profile {value.reason}")
        elif value is not ABSENT and value not in ("RuntimeDefault", "Localhost"):
            yield where.violation(
                path,
                f"the AppArmor profile is {said(value)}; RuntimeDefault or Localhost is allowed",
            )
    annotations = pod.metadata.get("annotations")
    for key, value in annotations.items() if isinstance(annotations, Mapping) else ():
        if not str(key).startswith(_APPARMOR) or value is None:
            continue
        at = join(pod.metadata_at, f'annotations["{key}"]')
        if is_unknown(value):
            yield pod.manifest.indeterminate(at, f"the AppArmor profile {value.reason}")
        elif value not in ("", "runtime/default") and not text(value).startswith("localhost/"):
            yield pod.manifest.violation(
                at, f"the AppArmor profile is {said(value)}; runtime/default is allowed"
            )


@rule(
    "kubernetes-selinux",
    "Containers keep their SELinux type",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Remove seLinuxOptions.user and .role, and leave the type to the runtime or to a container "
    "type.",
)
@each_pod(Level.BASELINE)
def selinux(pod: Pod, view: View) -> Iterator[Finding]:
    """The type is one of containers, and neither user nor role is chosen."""
    for where in (pod, *pod.containers):
        for key, allowed in (("type", _SELINUX_TYPES), ("user", ("",)), ("role", ("",))):
            path = f"securityContext.seLinuxOptions.{key}"
            value = where.get(path)
            if is_unknown(value):
                yield where.indeterminate(path, f"the SELinux {key} {value.reason}")
            elif value is not ABSENT and value not in allowed:
                may = ", ".join(allowed[1:]) or "none"
                yield where.violation(path, f"the SELinux {key} is {said(value)}; allowed: {may}")


@rule(
    "kubernetes-sysctls",
    "Pods set no sysctl that reaches beyond them",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Remove the sysctl from the pod; set it on the nodes where it is needed.",
)
@each_pod(Level.BASELINE)
def sysctls(pod: Pod, view: View) -> Iterator[Finding]:
    """Only sysctls that are safe, as Kubernetes says, are set."""
    path = "securityContext.sysctls"
    given = pod.get(path)
    if is_unknown(given):
        yield pod.indeterminate(path, f"the list of sysctls {given.reason}")
        return
    for index, each in enumerate(items(given)):
        at = f"{path}[{index}].name" if is_list(given) else f"{path}.name"
        name = get(each, "name") if isinstance(each, Mapping) else each
        if is_unknown(name):
            yield pod.indeterminate(at, f"the sysctl's name {name.reason}")
        # The kernel takes slashes for dots.
        elif text(name).replace("/", ".") not in _SYSCTLS:
            yield pod.violation(at, f"{said(name)} isn't a safe sysctl")


RULES: tuple[Rule, ...] = (
    added_capabilities,
    dropped_capabilities,
    seccomp,
    apparmor,
    selinux,
    sysctls,
)
