"""Workspaces that the tests render, judge and run."""

from __future__ import annotations

from typing import Any

from falaj.components.kubernetes import workspace
from falaj.components.kubernetes._objects import Manifest
from tests.components.kubernetes.training_jobs import COMMON, DIGEST, PLACES

OWNER = "alice@acme.example"
MIRROR = {"url": "https://packages.acme.internal/simple", "cidrs": ["10.20.3.0/28"]}
WORKSPACE: dict[str, Any] = {
    "images": {"falaj-workspace": DIGEST},
    "user": OWNER,
    "token_secret": "acme/workspace-alice",
    "flavor": "h200-mig-1g.18gb",
}


def arguments(place: str = "existing", **changes: Any) -> Any:
    secret = {"token_secret": "acme--workspace-alice"} if place == "aks" else {}
    return {**COMMON, **PLACES[place], **WORKSPACE, **secret, **changes}


def rendered(place: str = "existing", name: str = "alice", **changes: Any) -> list[Manifest]:
    return workspace.manifests(workspace.check(name, arguments(place, **changes)))
