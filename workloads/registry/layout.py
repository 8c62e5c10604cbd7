"""Where a registry's folder has what: each model's versions, and a version's manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Final

MANIFEST: Final = "manifest.json"


def versions_of(model: Path) -> Path:
    """The folder of all versions.

    Args:
        model: the model's folder.
    """
    return model / "versions"


def version_of(model: Path, version: object) -> Path:
    """The folder of a version, whether it is there or not.

    Args:
        model: the model's folder.
        version: its number.
    """
    return versions_of(model) / str(version)


def manifest_of(registry: str | Path, model: object, version: object) -> Path:
    """The manifest of a version, whether it is there or not.

    Args:
        registry: the registry's folder.
        model: the model's name.
        version: its number.
    """
    return version_of(Path(registry) / str(model), version) / MANIFEST
