"""Which of a stack's places it is made in, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from falaj.components import catalogue
from falaj.components.catalogue import placement
from falaj.components.specification.gpu_node_pool import GpuNodePoolArgs
from falaj.components.specification.machine_choice import machine_demand
from falaj.stacks.sandbox_guard import made_up
from falaj.stacks.settings import CloudSettings, ClusterSettings
from falaj.stacks.settings.cloud import asked_machines
from falaj.stacks.settings.derived import arguments
from falaj.stacks.settings.problems import Finding, Path, Put, RefusedSettingsError
from falaj.stacks.settings.suggestions import closest
from falaj.stacks.validation import validate_in_cloud


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
        if len(settings.places) == 1:
            # Of one place the components know better which key is at fault.
            place = catalogue.parse(settings.places[0])
            validate_in_cloud(settings, place, made_up(settings, place))
        key = "placement" if settings.placement else "region"
        raise RefusedSettingsError.of(settings.provenance, [Finding((key,), str(error))]) from None
    if not isinstance(found.place, catalogue.Place):
        raise TypeError(f"{found.place.name} is no region of a cloud")
    return Choice(found.place, found.reasons)


def demands(settings: CloudSettings) -> Sequence[catalogue.Demand]:
    """The machines that the stack asks for by what they have.

    One that is named by its type is left to the component: no other cloud has that name.
    """
    if isinstance(settings, ClusterSettings):
        _require_gpus(settings)
    return [
        machine_demand(machines.kind, machines.given)
        for machines in asked_machines(settings)
        if "machine" not in machines.given
    ]


def _require_gpus(settings: ClusterSettings) -> None:
    """Refuse GPUs that nobody makes, by their pools: no place could say which pool that is."""
    if len(settings.places) == 1:
        return
    models = list(dict.fromkeys(gpu.model for gpu in catalogue.GPUS.values()))
    found: list[Finding] = []
    for name, pool in settings.gpu_pools.items():
        gpu = arguments(pool, GpuNodePoolArgs)["gpu"]
        try:
            catalogue.Demand(gpu=gpu)
        except catalogue.DemandError as error:
            path: Path = ("gpuPools", name, "gpu")
            near = closest(gpu, models)
            found.append(Finding(path, str(error), (Put(path, near),) if near else ()))
    if found:
        raise RefusedSettingsError.of(settings.provenance, found)
