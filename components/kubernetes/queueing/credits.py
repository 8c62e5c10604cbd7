"""Fractions of GPUs in one currency, so that quotas and fair shares compare them.

A MIG slice and a whole GPU have different resource names, which Kueue can't add up. Each is
therefore counted a second time, in credits: 840 for a whole GPU, which 1 to 8 parts divide. The
first count stays, so that a slice is only admitted where there are slices.

Kueue's configuration needs `transformations`; every queue of `GpuQueues` has quota for `CREDIT`.
https://kueue.sigs.k8s.io/docs/tasks/manage/administer_cluster_quotas/#transform-resources-for-quota-management
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from falaj.components import catalogue

CREDIT: Final = "falaj.io/gpu-credit"
WHOLE: Final = 840
"""Credits of a whole GPU: the least number that 1 to 8 divide."""
GPU: Final = "nvidia.com/gpu"
SHARED: Final = "nvidia.com/gpu.shared"
#: Time slices of a GPU, where a pool doesn't say: `GpuNodePool` makes as many by default.
_SLICES: Final = 4
_MIG: Final = re.compile(r"^nvidia\.com/mig-(\d+g\.\d+gb)$")


def instances() -> Mapping[str, int]:
    """How many instances of each MIG profile fit on a GPU, of all GPUs in the catalogue.

    A profile's name says its compute slices and memory, so that it is the same fraction on every
    GPU that has it; where two GPUs differ the larger fraction counts.
    """
    found: dict[str, int] = {}
    for gpu in catalogue.GPUS.values():
        for profile, most in gpu.mig_profiles.items():
            if "+" not in profile:
                found[profile] = min(most, found.get(profile, most))
    return found


def credits_of(resource: str) -> int | None:
    """What one of a resource costs; None where it is no GPU, nor a part of one."""
    if resource == GPU:
        return WHOLE
    if resource == SHARED:
        return WHOLE // _SLICES
    found = _MIG.match(resource)
    parts = instances().get(found.group(1)) if found else None
    return WHOLE // parts if parts else None


def transformations(resources: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """Kueue's ``resources.transformations``.

    Args:
        resources: names of resources that count. Default: whole GPUs, time slices, and all MIG
            profiles of the catalogue.

    Raises:
        ValueError: one of them is no part of a GPU that the catalogue knows.
    """
    names = resources or (GPU, SHARED, *(f"nvidia.com/mig-{each}" for each in instances()))
    found: list[dict[str, Any]] = []
    for name in sorted(set(names)):
        worth = credits_of(name)
        if worth is None:
            raise ValueError(
                f"{name!r} is no GPU; allowed: {GPU}, {SHARED} and MIG profiles such as "
                "nvidia.com/mig-1g.18gb"
            )
        found.append({"input": name, "strategy": "Retain", "outputs": {CREDIT: str(worth)}})
    return found
