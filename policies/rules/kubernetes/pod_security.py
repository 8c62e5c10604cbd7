"""Pods apart from their nodes and from root, as the Pod Security Standards say.

Demands on single fields are declared in the catalogue, for the packs and for the cluster's own
admission alike; what takes more than that is written here.
https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.components.catalogue.pod_rules import (
    APPARMOR_PROFILE,
    ENFORCE_LABEL,
    KERNEL_CONTROLS,
    POD_RULES,
    USER_CONTROLS,
    Field,
)
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_value,
    get,
    is_list,
    is_true,
    is_unknown,
    items,
    rule,
    text,
)
from falaj.policies.reading.kubernetes import ANY_OBJECT, Level, is_system, join, kinds, manifests
from falaj.policies.reading.pods import (
    Container,
    Pod,
    declared,
    each_container,
    each_pod,
    setting,
    unmet,
    unmet_of,
)
from falaj.wire.documents import is_mapping

#: What containers may add that drop all others.
_ADDED: Final = Field(
    "securityContext.capabilities.add[]", "In", ("NET_BIND_SERVICE",),
    "container '{container}' adds {value}",
)  # fmt: skip
_SYSCTLS: Final = frozenset({
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem", "net.ipv4.tcp_syncookies", "net.ipv4.tcp_wmem",
})  # fmt: skip


#: Kinds of volumes; ``image`` since https://github.com/kubernetes/kubernetes/pull/130394.
_VOLUMES: Final = frozenset({
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim",
    "projected", "secret",
})  # fmt: skip


@rule(
    "kubernetes-namespace-pod-security",
    "Namespaces enforce the restricted Pod Security Standard",
    Severity.MEDIUM,
    kinds("core:Namespace"),
    ("iso27001:A.8.9", "iso27001:A.8.22", "uae-ia:T5.2.2", "nist-800-207:4"),
    f"Label the namespace {ENFORCE_LABEL}=restricted. Agents that need their nodes belong into a "
    "namespace of the system's own, such as gpu-operator.",
)
def namespace_pod_security(resource: Resource, context: Context) -> Iterator[Finding]:
    """Whoever else makes pods there, by hand or by a controller, is held to it as well."""
    for manifest in manifests(resource):
        if manifest.kind != "Namespace" or manifest.group or is_system(manifest.name):
            continue
        path = f'metadata.labels["{ENFORCE_LABEL}"]'
        labels = manifest.get("metadata.labels")
        level: Any = labels.get(ENFORCE_LABEL) if is_mapping(labels) else labels
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
    "kubernetes-capabilities-restricted",
    "Containers drop all capabilities and add none but NET_BIND_SERVICE",
    Severity.MEDIUM,
    ANY_OBJECT,
    KERNEL_CONTROLS,
    'Set securityContext.capabilities.drop to ["ALL"] on every container, init containers and '
    "ephemeral ones included; NET_BIND_SERVICE may be added.",
)
@each_container(Level.RESTRICTED)
def capabilities_restricted(container: Container, context: Context) -> Iterator[Finding]:
    """``ALL`` is dropped; runtimes leave a dozen capabilities otherwise."""
    if container.pod.is_windows:
        return
    yield from unmet_of(container, _ADDED)
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
    "kubernetes-seccomp",
    "Containers run with a seccomp profile",
    Severity.MEDIUM,
    ANY_OBJECT,
    KERNEL_CONTROLS,
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
    KERNEL_CONTROLS,
    "Remove the profile, or set it to RuntimeDefault (runtime/default in the annotation).",
)
@each_pod(Level.BASELINE)
def apparmor(pod: Pod, context: Context) -> Iterator[Finding]:
    """No profile is Unconfined, by field or by the annotation of old."""
    yield from unmet(pod, APPARMOR_PROFILE)
    annotations = pod.metadata.get("annotations")
    for key, value in annotations.items() if is_mapping(annotations) else ():
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
    "kubernetes-sysctls",
    "Pods set no sysctl that reaches beyond them",
    Severity.MEDIUM,
    ANY_OBJECT,
    KERNEL_CONTROLS,
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
        name = get(each, "name") if is_mapping(each) else each
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


@rule(
    "kubernetes-run-as-non-root",
    "Containers must not run as root",
    Severity.MEDIUM,
    ANY_OBJECT,
    USER_CONTROLS,
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
    "kubernetes-volume-types",
    "Pods mount storage through claims, not directly",
    Severity.MEDIUM,
    ANY_OBJECT,
    USER_CONTROLS,
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
        elif is_mapping(volume):
            kinds = {str(key) for key, value in volume.items() if value is not None} - {"name"}
            # A volume that names no kind is an emptyDir.
            for kind in sorted(kinds - _VOLUMES):
                yield pod.violation(
                    f"{at}.{kind}",
                    f"the volume is a {kind}; allowed are {', '.join(sorted(_VOLUMES))}",
                )


RULES: tuple[Rule, ...] = (
    *map(declared, POD_RULES),
    namespace_pod_security,
    capabilities_restricted,
    seccomp,
    apparmor,
    sysctls,
    run_as_non_root,
    volume_types,
)
