"""Pods apart from their nodes: the host's namespaces, devices, files, ports and probes.

The controls of the Pod Security Standard "baseline" that keep a container off its node.
https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline
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
    format_value,
    get,
    is_true,
    is_unknown,
    items,
    number,
    rule,
    text,
)
from falaj.policies.reading.kubernetes import ANY_OBJECT
from falaj.policies.reading.namespaces import Level
from falaj.policies.reading.pod_checks import each_container, each_pod, uses_host_network
from falaj.policies.reading.pods import Container, Pod

_CONTROLS: Final = ("iso27001:A.8.9", "iso27001:A.8.22", "uae-ia:T5.2.2", "nist-800-207:2")
_HOST_NAMESPACES: Final = {"hostNetwork": "network", "hostPID": "processes", "hostIPC": "memory"}


@rule(
    "kubernetes-host-namespaces",
    "Pods don't share their node's network, processes or memory",
    Severity.HIGH,
    ANY_OBJECT,
    _CONTROLS,
    "Remove hostNetwork, hostPID and hostIPC from the pod, or set them to false. Agents that need "
    "them belong into a namespace of the system's own.",
)
@each_pod(Level.BASELINE)
def host_namespaces(pod: Pod, context: Context) -> Iterator[Finding]:
    """The pod has namespaces of its own."""
    for key, what in _HOST_NAMESPACES.items():
        yield from _forbid_true(pod, key, f"the pod shares its node's {what}")


def _forbid_true(where: Pod | Container, path: str, reason: str) -> Iterator[Finding]:
    value = where.get(path)
    if is_unknown(value):
        yield where.indeterminate(path, f"{path} {value.reason}; only false is allowed")
    elif is_true(value):
        yield where.violation(path, reason)


@rule(
    "kubernetes-privileged-container",
    "Containers aren't privileged",
    Severity.HIGH,
    ANY_OBJECT,
    _CONTROLS,
    "Remove securityContext.privileged, or set it to false. GPUs need no privileges: ask for them "
    "as resources.",
)
@each_container(Level.BASELINE)
def privileged(container: Container, context: Context) -> Iterator[Finding]:
    """No container has all of its node's devices and capabilities."""
    reason = f"container {container.name!r} is privileged, which is root on its node"
    yield from _forbid_true(container, "securityContext.privileged", reason)


@rule(
    "kubernetes-host-process",
    "Windows containers don't run as processes of their node",
    Severity.HIGH,
    ANY_OBJECT,
    _CONTROLS,
    "Remove windowsOptions.hostProcess, or set it to false.",
)
@each_pod(Level.BASELINE)
def host_process(pod: Pod, context: Context) -> Iterator[Finding]:
    """Neither the pod nor a container of it is a HostProcess pod."""
    path = "securityContext.windowsOptions.hostProcess"
    value = pod.get(path)
    if is_unknown(value):
        yield pod.indeterminate(path, f"hostProcess {value.reason}; only false is allowed")
    elif is_true(value):
        yield pod.violation(path, "the pod's containers run as processes of the Windows node")
    for container in pod.containers:
        if not container.hidden:
            reason = f"container {container.name!r} runs as a process of the Windows node"
            yield from _forbid_true(container, path, reason)


@rule(
    "kubernetes-host-path",
    "Pods mount no files of their node",
    Severity.HIGH,
    ANY_OBJECT,
    _CONTROLS,
    "Use a persistent volume claim, an emptyDir, or a projected volume in place of hostPath.",
)
@each_pod(Level.BASELINE)
def host_path(pod: Pod, context: Context) -> Iterator[Finding]:
    """No volume is a hostPath."""
    volumes = pod.get("volumes")
    if is_unknown(volumes):
        yield pod.indeterminate("volumes", f"the list of volumes {volumes.reason}")
        return
    for index, volume in enumerate(items(volumes)):
        at = f"volumes[{index}]"
        if is_unknown(volume):
            yield pod.indeterminate(at, f"the volume {volume.reason}; hostPath isn't allowed")
        elif isinstance(volume, Mapping) and volume.get("hostPath") is not None:
            given = volume["hostPath"]
            if is_unknown(given):
                yield pod.indeterminate(f"{at}.hostPath", f"the path of the node {given.reason}")
                continue
            path = given.get("path") if isinstance(given, Mapping) else given
            inner = f"{at}.hostPath.path" if text(path) else f"{at}.hostPath"
            said = text(path) or "a path that isn't named"
            yield pod.violation(inner, f"the pod mounts {said} of its node")


@rule(
    "kubernetes-host-port",
    "Containers open no ports of their node",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Remove hostPort and reach the pod through a Service.",
)
@each_container(Level.BASELINE)
def host_port(container: Container, context: Context) -> Iterator[Finding]:
    """No port is bound on the node."""
    ports = container.get("ports")
    if is_unknown(ports):
        yield container.indeterminate("ports", f"the list of ports {ports.reason}")
        return
    if uses_host_network(container.pod):
        # Kubernetes copies containerPort to hostPort there, and the host's network is a finding
        # of its own.
        return
    for index, port in enumerate(items(ports)):
        at = f"ports[{index}]"
        if is_unknown(port):
            yield container.indeterminate(at, f"the port {port.reason}")
            continue
        value = get(port, "hostPort")
        if is_unknown(value):
            yield container.indeterminate(f"{at}.hostPort", f"hostPort {value.reason}")
        elif value is not ABSENT and number(value) != 0:
            yield container.violation(
                f"{at}.hostPort",
                f"container {container.name!r} opens port {format_value(value)} of its node",
            )


_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS: Final = ("lifecycle.postStart", "lifecycle.preStop")
_HANDLERS: Final = ("httpGet", "tcpSocket")


@rule(
    "kubernetes-probe-host",
    "Probes and lifecycle hooks call no other host than the pod",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Remove the host of the probe or hook: it then calls the pod itself. To send a Host header, "
    "use httpHeaders.",
)
@each_container(Level.BASELINE)
def probe_host(container: Container, context: Context) -> Iterator[Finding]:
    """The kubelet isn't made to call somebody else (Kubernetes 1.34 and later forbid it)."""
    for handler in (*_PROBES, *_HOOKS):
        for kind in _HANDLERS:
            path = f"{handler}.{kind}.host"
            value = container.get(path)
            if is_unknown(value):
                yield container.indeterminate(path, f"the host that is called {value.reason}")
            elif value is not ABSENT and value != "":
                yield container.violation(
                    path, f"{handler} makes the node call {format_value(value)}"
                )


@rule(
    "kubernetes-proc-mount",
    "Containers see /proc masked",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    "Remove procMount, or set it to Default.",
)
@each_container(Level.BASELINE)
def proc_mount(container: Container, context: Context) -> Iterator[Finding]:
    """The mount of /proc is the default one."""
    path = "securityContext.procMount"
    value = container.get(path)
    if is_unknown(value):
        yield container.indeterminate(path, f"procMount {value.reason}; only Default is allowed")
    elif value is not ABSENT and value not in ("", "Default"):
        yield container.violation(
            path, f"procMount is {format_value(value)}; only Default is allowed"
        )


RULES: tuple[Rule, ...] = (
    host_namespaces,
    privileged,
    host_process,
    host_path,
    host_port,
    probe_host,
    proc_mount,
)
