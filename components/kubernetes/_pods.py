"""What the pods of Falaj's own programs, and namespaces for pods, have in common."""

from typing import Any, Final

from falaj.components.specification.workload_bounds import fixed

INFERENCE_IMAGE: Final = "falaj-inference"
"""Short name of the smallest image that has the workloads: what serves, and what copies, judges,
repairs and holds others."""
PACKAGE_KEYS: Final = "/package-keys"
"""Where a version's wrapped keys are mounted that lie in an image of their own."""
USER: Final = fixed("image", "user")
"""Whom containers run as: nobody that a node knows."""
USER_NAME: Final = "falaj"
"""What programs are told that this user is called."""


_SECURITY: Final = "pod-security.kubernetes.io"


def pod_security(level: str, version: str) -> dict[str, str]:
    """Labels of a namespace that enforces, audits and warns by a Pod Security Standard.

    https://kubernetes.io/docs/concepts/security/pod-security-admission/

    Args:
        level: ``restricted``, ``baseline`` or ``privileged``.
        version: of the standard: ``v1.36`` or so.
    """
    modes = ("enforce", "audit", "warn")
    return {
        **{f"{_SECURITY}/{mode}": level for mode in modes},
        **{f"{_SECURITY}/{mode}-version": version for mode in modes},
    }


def unprivileged_pod(**further: Any) -> dict[str, Any]:
    """The security context of a pod whose containers run as that user.

    Args:
        further: fields beside, such as ``fsGroup``.
    """
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        **further,
        **_confined(),
    }


def unprivileged_alone(**further: Any) -> dict[str, Any]:
    """The security context of a container whose pod has none, as some charts' have.

    Args:
        further: fields beside, such as ``runAsNonRoot``.
    """
    return {**unprivileged(), **further, **_confined()}


def unprivileged() -> dict[str, Any]:
    """The security context of a container that may do nothing but run."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def _confined() -> dict[str, Any]:
    return {"seccompProfile": {"type": "RuntimeDefault"}}
