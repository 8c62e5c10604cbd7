"""Files that the control plane's components read: access, audit, encryption, scheduling."""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path
from typing import Any

from falaj.engine.controlplane.certificates import Pair
from falaj.engine.files import replace_file

CLUSTER = "falaj-test"
SECRETBOX_KEY_BYTES = 32
"""https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data/#providers"""
CALLS_PER_SECOND = 1000
"""Of each component to the API server: the vendor's 50 would be what a scale test measures."""

#: Resources whose content is secret: the audit log keeps who touched them, not what was in them.
_SECRET = [{"group": "", "resources": ["secrets", "configmaps", "serviceaccounts/token"]}]
_NOISE = [
    "system:kube-scheduler", "system:kube-controller-manager", "system:apiserver", "kwok",
]  # fmt: skip


def kubeconfig(server: str, authority: Path, pair: Pair, namespace: str = "default") -> str:
    """A kubeconfig with everything inside, so that it may be copied: JSON, which is YAML too."""

    def inside(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    user = pair.certificate.stem
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": CLUSTER,
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": inside(authority),
                    },
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": inside(pair.certificate),
                        "client-key-data": inside(pair.key),
                    },
                }
            ],
            "contexts": [
                {
                    "name": CLUSTER,
                    "context": {"cluster": CLUSTER, "user": user, "namespace": namespace},
                }
            ],
            "current-context": CLUSTER,
        },
        indent=1,
    )


def audit_policy() -> dict[str, Any]:
    """Who did what: bodies of requests for roles and policies, metadata of everything else.

    The components' own steady traffic is left out.
    """
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": _NOISE},
            {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
            {"level": "None", "verbs": ["get", "list", "watch"], "nonResourceURLs": ["*"]},
            {"level": "Metadata", "resources": _SECRET},
            {
                "level": "Request",
                "verbs": ["create", "update", "patch", "delete"],
                "resources": [
                    {"group": "rbac.authorization.k8s.io"},
                    {"group": "admissionregistration.k8s.io"},
                ],
            },
            {"level": "Metadata"},
        ],
    }


def encryption() -> dict[str, Any]:
    """Secrets and config maps are encrypted in etcd with a key made for this control plane."""
    key = base64.b64encode(secrets.token_bytes(SECRETBOX_KEY_BYTES)).decode()
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [
            {
                "resources": ["secrets", "configmaps"],
                "providers": [
                    {"secretbox": {"keys": [{"name": "key1", "secret": key}]}},
                    {"identity": {}},
                ],
            }
        ],
    }


def scheduler(kubeconfig_path: Path) -> dict[str, Any]:
    """kube-scheduler's own configuration: its default profile, without the limit on calls."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(kubeconfig_path),
            "qps": CALLS_PER_SECOND,
            "burst": 2 * CALLS_PER_SECOND,
        },
    }


def write_private(path: Path, content: dict[str, Any] | str) -> Path:
    """Write `content` (a dict as JSON) such that only this user can read it; return the path."""
    text = content if isinstance(content, str) else json.dumps(content, indent=1)
    replace_file(path, text, 0o600)
    return path
