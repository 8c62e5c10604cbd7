"""The machines that a stack may come to need, at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from falaj.components import catalogue
from falaj.components.catalogue import MachineType
from falaj.stacks.settings import CloudSettings, ClusterSettings, SmbSettings
from falaj.stacks.settings.cluster import GpuPoolSettings


@dataclass(frozen=True)
class Need:
    """One pool at its largest."""

    name: str
    machine: MachineType
    zones: tuple[str, ...]
    """Zones that the stack names; empty where it leaves the choice to the component."""
    most: int
    """Machines."""
    spot: bool = False
    reservation_id: str | None = None

    @property
    def vcpus(self) -> int | None:
        """Virtual CPUs of all its machines, which quotas are counted in; None where unknown."""
        return None if self.machine.vcpu is None else self.machine.vcpu * self.most


def needs(settings: CloudSettings, place: catalogue.Place) -> Sequence[Need]:
    """What the pools, or the inference tier, come to.

    Raises:
        CatalogueError: the place doesn't sell what is asked.
    """
    found: list[Need] = []
    if isinstance(settings, ClusterSettings):
        pools = {**settings.cpu_pools, **settings.gpu_pools}
        for name, pool in pools.items():
            if pool.machine is not None:
                machine = place.machine(pool.machine)
            elif isinstance(pool, GpuPoolSettings):
                machine = place.resolve(
                    gpu=pool.gpu, count=pool.count, fabric=pool.fabric, zones=pool.zones
                )
            else:
                machine = place.resolve(
                    vcpu=pool.vcpu or 4,
                    memory_gib=pool.memory_gib,
                    int8=pool.int8,
                    arch=pool.arch or "x86_64",
                    zones=pool.zones,
                )
            least = 1 if isinstance(pool, GpuPoolSettings) else 3
            most = pool.max_nodes if pool.max_nodes is not None else least
            reservation = pool.reservation_id if isinstance(pool, GpuPoolSettings) else None
            spot = pool.capacity == "spot"
            found.append(Need(name, machine, tuple(pool.zones or ()), most, spot, reservation))
    elif isinstance(settings, SmbSettings) and settings.inference.mode != "serverless":
        asked = settings.inference
        machine = (
            place.machine(asked.machine)
            if asked.machine
            else place.resolve(
                vcpu=asked.vcpu or 2,
                memory_gib=asked.memory_gib or 4,
                int8=asked.int8 or "vnni",
                zones=asked.zones,
            )
        )
        zones = tuple(asked.zones or ())
        found.append(Need("inference", machine, zones, asked.max_instances or 3))
    return found
