"""Every container image and chart that goes into a cluster, pinned, with where each was read.

The lists are ``data/images.yaml`` and ``data/charts.yaml``. A digest is there only where a source
states it for just that version; otherwise it is null until ``falaj images pin`` asks the registry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, cast

import yaml

DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
"""A digest as the OCI image specification writes it:
https://github.com/opencontainers/image-spec/blob/main/descriptor.md#digests"""

_PACKAGE: Final = "falaj.components.kubernetes.data"


@dataclass(frozen=True)
class Image:
    """An image that something in a cluster runs."""

    name: str
    """Its short name, as components and lock files write it."""
    source: str
    """Registry and repository upstream, without tag; empty for images that are built here."""
    tag: str
    digest: str | None
    """``sha256:…`` of the index (all platforms) that the tag stood for; None: unknown."""
    digest_source: str | None
    """Where the digest was read: an address, or a public repository with a path."""
    licence: str
    """SPDX expression of what is in the image, or what its vendor's terms are called."""
    used_by: tuple[str, ...]
    """Add-ons and components that run it."""
    mirror: str
    """Its repository below the in-country registry's host and path."""

    @property
    def is_ours(self) -> bool:
        """Whether it is built here, from ``workloads/images``."""
        return not self.source

    def mirrored(self, registry: str, digest: str) -> str:
        """The reference that pods carry: the mirror's, with tag for people and digest for sure."""
        return f"{registry}/{self.mirror}:{self.tag}@{digest}"


@dataclass(frozen=True)
class Chart:
    """A Helm chart that installs an add-on."""

    name: str
    source: str
    """``oci://…`` with the chart's name, or the ``https://…`` address of a repository."""
    version: str
    app_version: str | None
    licence: str
    seen: str
    """Date on which the version was read, ``YYYY-MM-DD``."""
    digest: str | None
    """``sha256:…`` of the chart's OCI manifest; None: unknown."""
    mirror: str
    """Its repository below the in-country registry's host and path, charts being OCI there."""


@cache
def images() -> Mapping[str, Image]:
    """All images by short name."""
    return MappingProxyType({
        name: Image(
            name,
            str(entry.get("source") or ""),
            str(entry["tag"]),
            entry.get("digest"),
            entry.get("digestSource"),
            str(entry["licence"]),
            tuple(entry["usedBy"]),
            str(entry.get("mirror") or entry["source"]),
        )
        for name, entry in _entries("images").items()
    })  # fmt: skip


@cache
def charts() -> Mapping[str, Chart]:
    """All charts by name."""
    return MappingProxyType({
        name: Chart(
            name,
            str(entry["source"]),
            str(entry["version"]),
            entry.get("appVersion"),
            str(entry["licence"]),
            str(entry["seen"]),
            entry.get("digest"),
            str(entry.get("mirror") or f"charts/{name}"),
        )
        for name, entry in _entries("charts").items()
    })  # fmt: skip


def _entries(kind: str) -> dict[str, dict[str, Any]]:
    text = resources.files(_PACKAGE).joinpath(f"{kind}.yaml").read_text(encoding="utf-8")
    return cast("dict[str, dict[str, Any]]", yaml.safe_load(text)[kind])
