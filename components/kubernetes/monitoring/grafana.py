"""Grafana inside the cluster: it asks nobody outside for updates, plugins, news or pictures.

Settings: https://grafana.com/docs/grafana/latest/setup-grafana/configure-grafana/#analytics
"""

from __future__ import annotations

from typing import Final

from falaj.components.kubernetes.addons.addon import (
    PRIORITY_CLASS,
    PlatformSpec,
    Values,
    resources,
)

GRAFANA_ADMIN: Final = "grafana-admin"
"""The secret with name and password of its administrator."""


def grafana_values(spec: PlatformSpec) -> Values:
    """Values of the chart below ``grafana``: every call of its own to the outside is off."""
    sidecar = spec.image_parts("grafana-sidecar")
    unprivileged = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {
        "enabled": True,
        "image": spec.image_parts("grafana"),
        "nodeSelector": spec.node_selector,
        "priorityClassName": PRIORITY_CLASS,
        "resources": resources("100m", "512Mi"),
        "admin": {
            "existingSecret": GRAFANA_ADMIN,
            "userKey": "admin-user",
            "passwordKey": "admin-password",
        },
        "containerSecurityContext": unprivileged,
        "initChownData": {"enabled": False},
        "testFramework": {"enabled": False},
        "persistence": {"enabled": True, "storageClassName": spec.storage_class, "size": "10Gi"},
        "sidecar": {
            "image": sidecar,
            "securityContext": unprivileged,
            "resources": resources("20m", "128Mi"),
            "dashboards": {"enabled": True, "label": "grafana_dashboard", "labelValue": "1"},
            "datasources": {"enabled": True, "uid": "prometheus"},
        },
        "grafana.ini": {
            "analytics": {
                "reporting_enabled": False,
                "check_for_updates": False,
                "check_for_plugin_updates": False,
                "feedback_links_enabled": False,
            },
            "plugins": {
                "plugin_admin_enabled": False,
                "public_key_retrieval_disabled": True,
                "preinstall_disabled": True,
            },
            "news": {"news_feed_enabled": False},
            "snapshots": {"external_enabled": False},
            "security": {"disable_gravatar": True, "cookie_secure": True},
            "auth.anonymous": {"enabled": False},
            "users": {"allow_sign_up": False},
        },
    }
