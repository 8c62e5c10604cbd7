"""Pods apart from their nodes, wherever the labels of a namespace have been weakened."""

from falaj.components.catalogue.clusters.isolation import BASELINE_CAPABILITIES
from falaj.components.kubernetes.admission.expressions import each_container, texts
from falaj.components.kubernetes.admission.home import Home
from falaj.components.kubernetes.admission.pods import PodPolicy, Shape
from falaj.components.kubernetes.admission.policy import Check, Policy

_AGENTS = "agents that need their nodes belong into a namespace of the platform's own"


def policies(home: Home) -> tuple[Policy, ...]:
    """The baseline of Pod Security, without the labels by which it is switched."""
    return PodPolicy("host-access", _checks, exempt=home.with_nodes).policies()


def _checks(_: Shape) -> tuple[Check, ...]:
    shared = " + ".join(
        f'(variables.pod.?{each}.orValue(false) ? ["{each}"] : [])'
        for each in ("hostNetwork", "hostPID", "hostIPC")
    )
    security = "c.?securityContext.?"
    added = f"{security}capabilities.?add.orValue([])"
    beyond = f"!(a in {texts(BASELINE_CAPABILITIES)})"
    ports = "c.?ports.orValue([])"
    return (
        Check(
            "kubernetes-host-namespaces", shared,
            "the pod shares what is its node's", "none of hostNetwork, hostPID, hostIPC",
            f"remove it; {_AGENTS}",
        ),
        Check(
            "kubernetes-privileged-container",
            each_container(f"{security}privileged.orValue(false)"),
            "privileged containers, which are root on their node", "privileged: false",
            "remove it; GPUs are asked for as resources and need no privileges",
        ),
        Check(
            "kubernetes-host-path",
            "variables.pod.?volumes.orValue([]).filter(v, has(v.hostPath))"
            '.map(v, v.name + " is " + v.hostPath.path)',
            "volumes that are paths of the node", "claims, emptyDir, projected volumes",
            f"use one of them; {_AGENTS}",
        ),
        Check(
            "kubernetes-host-port",
            each_container(
                f"!variables.pod.?hostNetwork.orValue(false) && "
                f"{ports}.exists(p, p.?hostPort.orValue(0) != 0)"
            ),
            "containers that open ports of their node", "no hostPort",
            "reach the pod through a Service",
        ),
        Check(
            "kubernetes-capabilities-baseline",
            each_container(
                f"{added}.exists(a, {beyond})",
                f'c.name + " adds " + {added}.filter(a, {beyond}).join(" and ")',
            ),
            "capabilities beyond what runtimes give",
            ", ".join(sorted(BASELINE_CAPABILITIES)), "remove the others",
        ),
        Check(
            "kubernetes-proc-mount",
            each_container(f'{security}procMount.orValue("Default") != "Default"'),
            "containers that see all of /proc", "procMount: Default", "remove procMount",
        ),
    )  # fmt: skip
