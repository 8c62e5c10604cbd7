"""Azure's regions and their zones, and the sizes of machines that are sold in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any, Final

from falaj.components import catalogue
from falaj.components import nearest as names
from falaj.components.catalogue import CatalogueError, MachineType, Place
from falaj.sandbox.clouds.azure import kinds
from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.model import Problem

# Azure's regions: their names, display names and zones.

GLOBAL: Final = "global"
"""The location of what has no region, such as private DNS zones and action groups."""


def _regions() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = kinds.load_table("regions")["regions"]
    return found


def normalise(location: str) -> str:
    """The region's name as ids and answers carry it: ``UAE North`` becomes ``uaenorth``."""
    return location.replace(" ", "").lower()


def is_known(location: str) -> bool:
    """Whether the name, in either form, is one of Azure's public regions."""
    return normalise(location) in _regions()


def display_name(region: str) -> str:
    """The name that people see: ``uaenorth`` becomes ``UAE North``."""
    known = _regions().get(normalise(region))
    return str(known["name"]) if known else region


def has_zones(region: str) -> bool | None:
    """Whether the region has availability zones; None when it isn't known."""
    known = _regions().get(normalise(region))
    zones = known.get("zones") if known else None
    return None if zones is None else bool(zones)


def nearest(location: str) -> str | None:
    """The region that the name resembles most."""
    found = names.nearest(normalise(location), _regions())
    return found[0] if found else None


def region_of(inputs: Inputs) -> str | None:
    """The normalised region of the resource, else its provider's; None when it isn't known."""
    whole = inputs
    while whole.parent is not None:
        whole = whole.parent
    given = whole.at("location")
    if given is None:
        given = whole.config.get("location")
    return normalise(given) if isinstance(given, str) and given else None


# Sizes of machines: how they are written, and which are sold in the regions of the catalogue.

# Source: virtual-machines/vm-naming-conventions.
_SIZE: Final = re.compile(r"(?:Standard|Basic)_[A-Z]+\d+[A-Za-z0-9_-]*")
# Profiles that AKS takes; the SDK's own list is the same (GPUInstanceProfile).
MIG: Final = ("MIG1g", "MIG2g", "MIG3g", "MIG4g", "MIG7g")
# GPUs whose series can be partitioned, by the name in the size.
# Source: aks/gpu-multi-instance (A100), and the GPUs' MIG profiles in the catalogue.
_MIG_CAPABLE: Final = ("A100", "H100", "H200", "GB200", "GB300")


def catalogued(region: str | None) -> Place | None:
    """The region's part of the catalogue; None for a region that it doesn't cover."""
    if region is None:
        return None
    try:
        return catalogue.place("azure", region)
    except CatalogueError:
        return None


def machine(region: str | None, size: str) -> MachineType | None:
    """What the catalogue says of a size; None when it doesn't know the region or the size."""
    known = catalogued(region)
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
    known = catalogued(region)
    if known is None:
        return
    try:
        known.machine(size)
    except CatalogueError as error:
        # The catalogue has all sizes with GPUs, and of others the series that it has at all:
        # whether a burstable or an older size is sold isn't known.
        listed = {_series(each.name) for each in known.machines()}
        refused = any(fnmatchcase(size, pattern) for pattern, _ in known.refused)
        series = _series(size)
        # Standard_D8s lacks its version.
        is_known = series in listed or any(each.startswith(f"{series}_v") for each in listed)
        if refused or size.startswith("Standard_N") or is_known:
            yield Problem(path, str(error))


def _series(size: str) -> str:
    """A size without its number of processors: ``Standard_Ds_v6`` of Standard_D8s_v6."""
    return re.sub(r"^(Standard_[A-Z]+)\d+(?:-\d+)?", r"\1", size)


def vcpu(region: str | None, size: str) -> int | None:
    """The processors of a size; None where the catalogue doesn't know."""
    found = machine(region, size)
    return found.vcpu if found is not None else None


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
