"""Accounts, roles and their bindings, as components declare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from falaj.components.kubernetes._objects import RBAC_GROUP, Manifest

_API: Final = f"{RBAC_GROUP}/v1"


def account(about: Mapping[str, Any]) -> Manifest:
    """A service account whose token no pod gets that doesn't ask for it."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": dict(about),
        "automountServiceAccountToken": False,
    }


def rule(group: str, resource: str, *verbs: str, names: Sequence[str] = ()) -> dict[str, Any]:
    """A rule of a role.

    Args:
        group: of the API; empty for the core's.
        resource: one of its resources.
        verbs: what may be done to it.
        names: of which objects alone. Default: of all.
    """
    found: dict[str, Any] = {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
    return {**found, "resourceNames": list(names)} if names else found


def role(
    about: Mapping[str, Any],
    rules: Sequence[Mapping[str, Any]],
    subjects: Sequence[Mapping[str, str]],
) -> list[Manifest]:
    """A role, and its binding of the same name.

    Args:
        about: metadata of both; without a namespace they are of the whole cluster.
        rules: what may be done.
        subjects: by whom.
    """
    kind = "Role" if "namespace" in about else "ClusterRole"
    return [
        {"apiVersion": _API, "kind": kind, "metadata": dict(about), "rules": list(rules)},
        {
            "apiVersion": _API,
            "kind": f"{kind}Binding",
            "metadata": dict(about),
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": about["name"]},
            "subjects": [dict(each) for each in subjects],
        },
    ]
