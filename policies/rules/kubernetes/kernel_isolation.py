"""What the kernel lets containers do: capabilities, seccomp, AppArmor, SELinux, sysctls.

Controls of the Pod Security Standards, with the values that "baseline" and "restricted" allow.
https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.components.catalogue.clusters.isolation import BASELINE_CAPABILITIES
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Rule,
    Severity,
    format_value,
    get,
    is_list,
    is_unknown,
    items,
    rule,
    text,
)
from falaj.policies.reading.kubernetes import ANY_OBJECT, join
from falaj.policies.reading.namespaces import Level
from falaj.policies.reading.pod_checks import each_container, each_pod, setting
from falaj.policies.reading.pods import Container, Pod

_CONTROLS: Final = ("iso27001:A.8.9", "iso27001:A.8.2", "uae-ia:T5.2.2", "nist-800-207:2")
#: What containers of the baseline may add; nothing of it is more than runtimes give by default.
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


def _added(container: Container, allowed: frozenset[str]) -> Iterator[Finding]:
    """Capabilities that are added and not among the allowed."""
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
                at, f"{format_value(each)} is added; only {', '.join(sorted(allowed))} may be"
            )


@rule(
    "kubernetes-capabilities-baseline",
    "Containers add no capability beyond what runtimes give",
    Severity.HIGH,
    ANY_OBJECT,
    _CONTROLS,
    "Remove what is added in securityContext.capabilities.add.",
)
@each_container(Level.BASELINE)
def capabilities_baseline(container: Container, context: Context) -> Iterator[Finding]:
    """What is added is within what "baseline" allows."""
    yield from _added(container, BASELINE_CAPABILITIES)


@rule(
    "kubernetes-capabilities-restricted",
    "Containers drop all capabilities and add none but NET_BIND_SERVICE",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    'Set securityContext.capabilities.drop to ["ALL"] on every container, init containers and '
    "ephemeral ones included; NET_BIND_SERVICE may be added.",
)
@each_container(Level.RESTRICTED)
def capabilities_restricted(container: Container, context: Context) -> Iterator[Finding]:
    """``ALL`` is dropped; runtimes leave a dozen capabilities otherwise."""
    if container.pod.is_windows:
        return
    yield from _added(container, _RESTRICTED_CAPABILITIES)
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


_SECCOMP: Final = "securityContext.seccompProfile.type"


@rule(
    "kubernetes-seccomp-unconfined",
    "No container runs without a seccomp profile by choice",
    Severity.HIGH,
    ANY_OBJECT,
    _CONTROLS,
    "Set securityContext.seccompProfile.type to RuntimeDefault, or remove Unconfined.",
)
@each_pod(Level.BASELINE)
def seccomp_unconfined(pod: Pod, context: Context) -> Iterator[Finding]:
    """What is said of seccomp is RuntimeDefault or Localhost, on the pod and its containers."""
    for where in (pod, *pod.containers):
        value = where.get(_SECCOMP)
        if is_unknown(value):
            yield where.indeterminate(_SECCOMP, f"the seccomp profile {value.reason}")
        elif value is not ABSENT and value not in ("RuntimeDefault", "Localhost"):
            yield where.violation(
                _SECCOMP,
                f"the seccomp profile is {format_value(value)}; RuntimeDefault or Localhost is "
                "allowed",
            )


@rule(
    "kubernetes-seccomp",
    "Containers run with a seccomp profile",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Set securityContext.seccompProfile.type to RuntimeDefault on the pod.",
)
@each_container(Level.RESTRICTED)
def seccomp(container: Container, context: Context) -> Iterator[Finding]:
    """The pod or the container names one; by default Kubernetes runs it Unconfined."""
    value, from_pod = setting(container, "seccompProfile.type")
    if container.pod.is_windows or (value is ABSENT and container.pod.is_partial):
        return
    where = container.pod if from_pod and value is not ABSENT else container
    if is_unknown(value):
        yield where.indeterminate(_SECCOMP, f"the seccomp profile {value.reason}")
    elif value is ABSENT:
        yield container.violation(
            _SECCOMP,
            f"neither the pod nor container {container.name!r} has a seccomp profile; without one "
            "Kubernetes runs it Unconfined",
        )
    elif value not in ("RuntimeDefault", "Localhost"):
        yield where.violation(
            _SECCOMP, f"the seccomp profile is {format_value(value)}, which is none"
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
def apparmor(pod: Pod, context: Context) -> Iterator[Finding]:
    """No profile is Unconfined, by field or by the annotation of old."""
    path = "securityContext.appArmorProfile.type"
    for where in (pod, *pod.containers):
        value = where.get(path)
        if is_unknown(value):
            yield where.indeterminate(path, f"the AppArmor profile {value.reason}")
        elif value is not ABSENT and value not in ("RuntimeDefault", "Localhost"):
            yield where.violation(
                path,
                f"the AppArmor profile is {format_value(value)}; RuntimeDefault or Localhost is "
                "allowed",
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
                at, f"the AppArmor profile is {format_value(value)}; runtime/default is allowed"
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
def selinux(pod: Pod, context: Context) -> Iterator[Finding]:
    """The type is one of containers, and neither user nor role is chosen."""
    for where in (pod, *pod.containers):
        for key, allowed in (("type", _SELINUX_TYPES), ("user", ("",)), ("role", ("",))):
            path = f"securityContext.seLinuxOptions.{key}"
            value = where.get(path)
            if is_unknown(value):
                yield where.indeterminate(path, f"the SELinux {key} {value.reason}")
            elif value is not ABSENT and value not in allowed:
                may = ", ".join(allowed[1:]) or "none"
                yield where.violation(
                    path, f"the SELinux {key} is {format_value(value)}; allowed: {may}"
                )


@rule(
    "kubernetes-sysctls",
    "Pods set no sysctl that reaches beyond them",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Remove the sysctl from the pod; set it on the nodes where it is needed.",
)
@each_pod(Level.BASELINE)
def sysctls(pod: Pod, context: Context) -> Iterator[Finding]:
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
            yield pod.violation(at, f"{format_value(name)} isn't a safe sysctl")
        else:
            yield from _value(pod, f"{path}[{index}].value", get(each, "value"))


def _value(pod: Pod, at: str, value: Any) -> Iterator[Finding]:
    """A runtime that joins settings takes ``+`` and ``=`` in a value for another setting
    (https://nvd.nist.gov/vuln/detail/CVE-2022-0811)."""
    if is_unknown(value):
        yield pod.indeterminate(at, f"the sysctl's value {value.reason}")
    elif any(sign in text(value) for sign in "+="):
        yield pod.violation(at, "the value has a + or =, by which it may set another sysctl")


RULES: tuple[Rule, ...] = (
    capabilities_baseline,
    capabilities_restricted,
    seccomp_unconfined,
    seccomp,
    apparmor,
    selinux,
    sysctls,
)
