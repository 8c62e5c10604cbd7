"""Which of a stack's places it is made in, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from falaj.components import catalogue
from falaj.components.catalogue import placement
from falaj.stacks.errors import SettingsError
from falaj.stacks.settings import CloudSettings, ClusterSettings, SmbSettings


@dataclass(frozen=True)
class Choice:
    """Where a stack is made, and the reasons in words."""

    place: catalogue.Place
    reasons: tuple[str, ...]


def choose(settings: CloudSettings) -> Choice:
    """The first place that is healthy, or acknowledged, and sells everything that is asked.

    Raises:
        SettingsError: none does; the message has the reason of each.
    """
    try:
        found = placement.choose(settings.places, demands(settings), settings.acknowledged)
    except catalogue.CatalogueError as error:
        key = "placement" if settings.placement else "region"
        raise SettingsError(f"falaj:{key}: {error}") from None
    if not isinstance(found.place, catalogue.Place):
        raise SettingsError(
            f"falaj:placement: given {found.place.name!r}; allowed: a cloud's region"
        )
    return Choice(found.place, found.reasons)


def demands(settings: CloudSettings) -> Sequence[catalogue.Demand]:
    """The machines that the stack asks for by what they have.

    One that is named by its type is left to the component: no other cloud has that name.
    """
    found: list[catalogue.Demand] = []
    if isinstance(settings, ClusterSettings):
        found += [
            catalogue.Demand(gpu=pool.gpu, count=pool.count, fabric=pool.fabric, zones=pool.zones)
            for pool in settings.gpu_pools.values()
            if pool.machine is None
        ]
        found += [
            catalogue.Demand(
                vcpu=pool.vcpu,
                memory_gib=pool.memory_gib,
                int8=pool.int8,
                arch=pool.arch,
                zones=pool.zones,
            )
            for pool in settings.cpu_pools.values()
            if pool.machine is None
        ]
    if isinstance(settings, SmbSettings):
        asked = settings.inference
        if asked.mode != "serverless" and asked.machine is None:
            found.append(
                catalogue.Demand(
                    vcpu=asked.vcpu,
                    memory_gib=asked.memory_gib,
                    int8=asked.int8,
                    zones=asked.zones,
                )
            )
    return found
