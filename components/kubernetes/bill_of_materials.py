"""Every container image and chart that goes into a cluster, pinned, with where each was read.

The lists are ``data/images.yaml`` and ``data/charts.yaml``. A digest is there only where a source
states it for just that version; otherwise it is null until ``falaj images pin`` asks the registry.
`resolve` makes the reference that a pod carries of a short name, in the in-country registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, cast

import yaml

from falaj.components.kubernetes._placed import InCluster
from falaj.components.nearest import nearest
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.limits import DIGEST

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


_HEX = "sha256: and 64 of 0-9 and a-f, as `falaj images pin` writes them"


def resolve(
    placed: InCluster,
    names: Sequence[str],
    given: Mapping[str, str] | None,
    errors: ArgumentErrors,
) -> dict[str, str]:
    """References of images in the in-country registry, each with its digest.

    Args:
        placed: the component's shared arguments; its registry serves the images.
        names: short names of the images that are wanted, as in the bill of materials. A name that
            isn't there is a mistake in the component, not in its arguments.
        given: digests by short name, before the bill of materials' own; the argument ``images`` of
            a component. Names of images that this component doesn't use are fine, so that all
            components can be given the same lock.
        errors: gets names that no image has, digests that aren't any, and wanted images of which
            no digest is known.

    Returns:
        ``registry/repository:tag@sha256:…`` by short name; those that were refused are left out.

    Raises:
        KeyError: the bill of materials has no image of a wanted name.
    """
    known = images()
    digests: dict[str, str] = {}
    for name, digest in (errors.mapping("images", given) if given is not None else {}).items():
        if name not in known:
            near = nearest(name, known)
            errors.say(
                f"images.{name}",
                "is not the name of an image; "
                + (f"did you mean {near[0]!r}?" if near else "`falaj images list` shows them all"),
            )
        elif not DIGEST.allows(digest):
            errors.add(f"images.{name}", digest, _HEX)
        else:
            digests[name] = digest
    found: dict[str, str] = {}
    for name in names:
        image = known[name]
        digest = digests.get(name) or image.digest
        if digest:
            found[name] = image.mirrored(placed.registry, digest)
        elif not given or name not in given:
            make = "build it with `falaj images build --push`" if image.is_ours else "mirror it"
            errors.say(
                f"images.{name}",
                f"no digest of {image.mirror}:{image.tag} is known, and a tag alone can be moved "
                f"to another image: {make}, then let `falaj images pin` write the digest to a "
                "lock file and give it here",
            )
    return found


def resolve_one(
    placed: InCluster, name: str, given: Mapping[str, str] | None, errors: ArgumentErrors
) -> str:
    """As `resolve`, for one image: its reference, empty where that was refused."""
    return resolve(placed, [name], given, errors).get(name, "")
