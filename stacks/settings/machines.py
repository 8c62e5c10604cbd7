"""The machines that a stack asks for: its pools, and its inference tier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from falaj.components.specification.cpu_inference_tier import CpuInferenceTierArgs
from falaj.components.specification.cpu_node_pool import CpuNodePoolArgs
from falaj.components.specification.gpu_node_pool import GpuNodePoolArgs
from falaj.stacks.settings import CloudSettings, ClusterSettings, SmbSettings


@dataclass(frozen=True)
class AskedMachines:
    """What a stack says of machines that are alike."""

    name: str
    kind: type
    """Of the arguments of the component that makes them."""
    given: Mapping[str, Any]
    """What the stack gives of these arguments."""


def asked_machines(settings: CloudSettings) -> Iterator[AskedMachines]:
    """Pools by their names, those of CPU machines first; or the tier as ``inference``."""
    if isinstance(settings, ClusterSettings):
        for name, pool in settings.cpu_pools.items():
            yield AskedMachines(name, CpuNodePoolArgs, pool.model_dump(exclude_none=True))
        for name, pool in settings.gpu_pools.items():
            yield AskedMachines(name, GpuNodePoolArgs, pool.model_dump(exclude_none=True))
    elif isinstance(settings, SmbSettings):
        given = settings.inference.model_dump(exclude_none=True)
        if given.get("mode") != "serverless":
            yield AskedMachines("inference", CpuInferenceTierArgs, given)
