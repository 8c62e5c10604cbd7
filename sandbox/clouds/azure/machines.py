"""Sizes of machines: how they are written, and which are sold in the regions of the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from falaj.components import catalogue
from falaj.components.catalogue import CatalogueError, MachineType, Place
from falaj.sandbox.clouds.model import Problem

# Source: virtual-machines/vm-naming-conventions.
_SIZE: Final = re.compile(r"(?:Standard|Basic)_[A-Z]+\d+[A-Za-z0-9_-]*")
# Profiles that AKS takes; the SDK's own list is the same (GPUInstanceProfile).
MIG: Final = ("MIG1g", "MIG2g", "MIG3g", "MIG4g", "MIG7g")
# GPUs whose series can be partitioned, by the name in the size.
# Source: aks/gpu-multi-instance (A100), and the GPUs' MIG profiles in the catalogue.
_MIG_CAPABLE: Final = ("A100", "H100", "H200", "GB200", "GB300")


def place(region: str | None) -> Place | None:
    """The region's part of the catalogue; None for a region that it doesn't cover."""
    if region is None:
        return None
    try:
        return catalogue.place("azure", region)
    except CatalogueError:
        return None


def machine(region: str | None, size: str) -> MachineType | None:
    """What the catalogue says of a size; None when it doesn't know the region or the size."""
    known = place(region)
    try:
        return known.machine(size) if known else None
    except CatalogueError:
        return None


def sold(path: str, region: str | None, size: str | None) -> Iterator[Problem]:
    """A problem when the text is no size, or one that isn't sold in the region."""
    if size is None:
        return
    if not _SIZE.fullmatch(size):
        yield Problem(path, f"{size!r} isn't a size; it looks like Standard_D8s_v6")
        return
    known = place(region)
    if known is None:
        return
    try:
        known.machine(size)
    except CatalogueError as error:
        yield Problem(path, str(error))


def is_gpu(region: str | None, size: str) -> bool:
    """Whether a size has a GPU."""
    found = machine(region, size)
    return found.gpu_count > Fraction(0) if found else size.startswith("Standard_N")


def can_be_partitioned(region: str | None, size: str) -> bool:
    """Whether the size's GPU has MIG."""
    found = machine(region, size)
    if found is not None:
        return bool(found.mig_profiles)
    return any(name in size for name in _MIG_CAPABLE)


def is_arm(size: str) -> bool:
    """Whether the size is of an Arm series: a p in its features (vm-naming-conventions)."""
    features = re.match(r"Standard_[A-Z]+\d+(?:-\d+)?([a-z]+)_", size)
    return bool(features and "p" in features[1])


def has_premium_storage(size: str) -> bool:
    """Whether the size takes premium disks: an s in its features (vm-naming-conventions)."""
    features = re.match(r"Standard_[A-Z]+\d+(?:-\d+)?([a-z]*)", size)
    return bool(features and "s" in features[1])
