"""Pods apart from their nodes, wherever the labels of a namespace have been weakened."""

from falaj.components.kubernetes.admission.home import Home
from falaj.components.kubernetes.admission.pods import PodPolicy, refused
from falaj.components.kubernetes.admission.policy import Policy


def policies(home: Home) -> tuple[Policy, ...]:
    """The baseline of Pod Security, without the labels by which it is switched."""
    checks = refused("host-access")
    return PodPolicy("host-access", lambda _: checks, exempt=home.with_nodes).policies()
