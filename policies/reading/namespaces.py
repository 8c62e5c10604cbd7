"""Namespaces: which are the system's own, and which Pod Security Standard each must enforce.

https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from policies.reading.kubernetes import Manifest

#: Namespaces of agents that need their nodes: drivers, networks, storage, runtime security.
#: Their DaemonSets may do what they must; everything else in them meets the baseline.
SYSTEM: Final = frozenset({
    "kube-system", "kube-public", "kube-node-lease", "gpu-operator", "nvidia-gpu-operator",
    "network-operator", "nvidia-network-operator", "nvidia-dra-driver-gpu",
    "node-feature-discovery", "nvsentinel", "istio-system", "cilium", "calico-system",
    "tigera-operator", "rook-ceph", "falco", "tetragon", "aws-observability",
    "amazon-cloudwatch", "gatekeeper-system", "aks-istio-system",
})  # fmt: skip


class Level(IntEnum):
    """Pod Security Standards, in the order of what they demand."""

    PRIVILEGED = 0
    BASELINE = 1
    RESTRICTED = 2


def is_system(namespace: object) -> bool:
    """Whether a namespace is one of the system's own; what can't be seen isn't."""
    return isinstance(namespace, str) and namespace in SYSTEM


def level_of(manifest: Manifest) -> Level:
    """The standard that an object's pods must meet: restricted, outside of the system's own."""
    if not is_system(manifest.namespace):
        return Level.RESTRICTED
    return Level.PRIVILEGED if manifest.kind == "DaemonSet" else Level.BASELINE
