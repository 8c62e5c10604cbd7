"""Asks the real cloud, before a deployment, what the catalogue can only remember."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from falaj.components import catalogue
from falaj.components.catalogue import MachineType
from falaj.components.specification.arguments import with_defaults
from falaj.components.specification.cluster import ClusterArgs
from falaj.components.specification.machine_choice import machine_demand
from falaj.components.specification.network import NetworkArgs
from falaj.components.specification.node_pools import (
    AKS_SYSTEM_MACHINE,
    AKS_SYSTEM_POOL,
    AKS_SYSTEM_SURGE,
    aks_system_nodes,
    surge_nodes,
)
from falaj.components.specification.placed import REGIONAL, sound_zones
from falaj.stacks.settings import CloudSettings
from falaj.stacks.settings.cloud import AskedMachines, ClusterSettings, asked_machines
from falaj.stacks.settings.derived import arguments

Level = Literal["ok", "problem", "unknown"]


@dataclass(frozen=True)
class Finding:
    """One answer."""

    level: Level
    subject: str
    """Such as ``quota`` or ``pool h200``."""
    text: str
    """What was found; for a problem also what to do."""


class NotAskedError(Exception):
    """The cloud couldn't be asked at all; the message says why and what would help."""


def exit_status(findings: Sequence[Finding]) -> int:
    """0: all is fine; 1: something would fail; 2: something could not be checked."""
    levels = {finding.level for finding in findings}
    if "problem" in levels:
        return 1
    return 2 if "unknown" in levels else 0


def kubernetes_version(settings: CloudSettings) -> str | None:
    """Minor version of the cluster that a stack makes; None where it makes none."""
    if not isinstance(settings, ClusterSettings):
        return None
    return with_defaults(ClusterArgs, arguments(settings.cluster, ClusterArgs))[
        "kubernetes_version"
    ]


_NODES = ("max_nodes", "min_nodes")
_INSTANCES = ("max_instances", "min_instances")


@dataclass(frozen=True)
class Need:
    """One pool at its largest, while it is updated."""

    name: str
    machine: MachineType
    zones: tuple[str, ...]
    """Zones that the stack names; empty where it leaves the choice to the component."""
    most: int
    """Machines, with those of `surge`."""
    spot: bool = False
    reservation_id: str | None = None
    fabric: str | None = None
    """What links the machines, such as ``infiniband``; None for pools without GPUs."""
    surge: int = 0
    """Machines that an update makes before old ones go."""


@dataclass
class Vcpus:
    """Virtual CPUs that are asked for of a quota."""

    most: int = 0
    surge: int = 0

    def add(self, need: Need, each: int) -> None:
        """Count the machines of a pool, of ``each`` so many virtual CPUs."""
        self.most += need.most * each
        self.surge += need.surge * each

    def __str__(self) -> str:
        of_updates = f", {self.surge} of them while pools are updated" if self.surge else ""
        return f"the stack may need {self.most}{of_updates}"


def needs(settings: CloudSettings, place: catalogue.Place) -> Sequence[Need]:
    """What the pools, or the inference tier, come to.

    Raises:
        CatalogueError: the place doesn't sell what is asked.
    """
    found = [_need(machines, place) for machines in asked_machines(settings)]
    if isinstance(settings, ClusterSettings) and place.cloud == "azure":
        found.insert(0, _system(settings, place))
    return found


def _system(settings: ClusterSettings, place: catalogue.Place) -> Need:
    """The pool that an AKS cluster makes itself, in every zone that the cluster uses."""
    zones = arguments(settings.network, NetworkArgs).get("zones") or sound_zones(place)
    named = () if tuple(zones) == (REGIONAL,) else tuple(zones)
    machine = place.machine(AKS_SYSTEM_MACHINE)
    most = aks_system_nodes(named) + AKS_SYSTEM_SURGE
    return Need(AKS_SYSTEM_POOL, machine, named, most, surge=AKS_SYSTEM_SURGE)


def _need(machines: AskedMachines, place: catalogue.Place) -> Need:
    args = with_defaults(machines.kind, machines.given)
    if args["machine"] is not None:
        machine = place.machine(args["machine"])
    else:
        machine = place.first(machine_demand(machines.kind, machines.given))
    is_tier = "max_instances" in args
    most = max(args[size] for size in (_INSTANCES if is_tier else _NODES))
    zones = tuple(args["zones"] or ())
    surge = 0 if is_tier else surge_nodes(place.cloud, args, zones or sound_zones(place), most)
    return Need(
        machines.name,
        machine,
        zones,
        most + surge,
        args.get("capacity") == "spot",
        args.get("reservation_id"),
        args.get("fabric"),
        surge,
    )
