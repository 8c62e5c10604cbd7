"""What the vendors' providers do by themselves with some types, whatever the cloud does."""

from __future__ import annotations

from typing import Final

RELEASE: Final = "kubernetes:helm.sh/v3:Release"
"""A chart that Helm installs by itself: one resource, whose objects the engine never sees."""

MADE_AT: Final = "2026-01-01T00:00:00Z"
"""When everything was made: outputs must not change from run to run."""
_ALWAYS_SECRET: Final = {"kubernetes:core/v1:Secret": frozenset({"data", "stringData"})}


def secret_outputs(token: str) -> frozenset[str]:
    """Outputs of a type that are secret whatever the inputs were."""
    return _ALWAYS_SECRET.get(token, frozenset())


def warning(token: str) -> str | None:
    """What is to be said loudly of each resource of a type, if anything."""
    if token == RELEASE:
        return (
            "a Helm release is only recorded in the sandbox: none of its objects is made or "
            "checked; use a kubernetes.helm.sh/v4 Chart, whose objects are"
        )
    return None
