"""The folders of a stack's site, and nothing but their names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Site:
    """Where everything of a stack lies.

    Attributes:
        path: the site's own folder, absolute.
    """

    path: Path

    @property
    def keyring(self) -> Path:
        """Key-encryption keys, signing key, token key."""
        return self.path / "keyring"

    @property
    def pki(self) -> Path:
        """Certificates and their private keys."""
        return self.path / "pki"

    @property
    def datasets(self) -> Path:
        """Snapshots of datasets, one folder for each digest."""
        return self.path / "datasets"

    @property
    def runs(self) -> Path:
        """Training runs, one folder for each digest."""
        return self.path / "runs"

    @property
    def registry(self) -> Path:
        """Published packages."""
        return self.path / "registry"

    @property
    def services(self) -> Path:
        """Inference services, one folder for each name."""
        return self.path / "service"
