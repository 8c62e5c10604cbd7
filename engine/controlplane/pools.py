"""Which simulated machines there are: `h200=64,l4:time-slicing-4=16,h200:mig-1g.18gb=4,cpu=20`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from falaj.engine.errors import EngineError

MOST_NODES = 5000
"""kwok's own benchmark makes 5,000 nodes in a minute: README of kubernetes-sigs/kwok 0.8.0."""
LEAST_SLICES, MOST_SLICES = 2, 16
"""As the components' `time_slices`."""

Distribution = Literal["eks", "aks", "existing"]
_ENTRY = re.compile(r"(?P<machine>[^:=\s]+)(?::(?P<sharing>[^=\s]+))?=(?P<number>[^=\s]+)")
_SLICING = "time-slicing-"
_MIG = "mig-"


@dataclass(frozen=True)
class Machine:
    """What one machine has; `mig` is how many instances of each profile fit on one GPU."""

    name: str
    gpus: int
    processors: int
    memory_gib: int
    nvme_gb: int
    interfaces: int
    type: str
    product: str
    gpu_memory_mib: int
    family: str
    mig: dict[str, int]


@dataclass(frozen=True)
class Pool:
    """So many machines of one kind, their GPUs shared in one way.

    `sharing` is empty, a MIG profile (`mig-1g.18gb`) or `time-slicing-4`.
    """

    machine: Machine
    sharing: str
    number: int

    @property
    def name(self) -> str:
        """Name of the pool and of its flavour: `h200-mig-1g.18gb`."""
        return f"{self.machine.name}-{self.sharing}" if self.sharing else self.machine.name

    @property
    def resources(self) -> dict[str, int]:
        """GPU resources that a node advertises.

        The names are those of NVIDIA's device plugin with the MIG strategy `mixed` and
        `renameByDefault` for time slices.
        """
        gpus = self.machine.gpus
        if not gpus:
            return {}
        if self.sharing.startswith(_MIG):
            parts = self.machine.mig[self.sharing.removeprefix(_MIG)]
            return {f"nvidia.com/{self.sharing}": gpus * parts}
        if self.sharing:
            return {"nvidia.com/gpu.shared": gpus * int(self.sharing.removeprefix(_SLICING))}
        return {"nvidia.com/gpu": gpus}


@dataclass(frozen=True)
class Site:
    """Where the machines stand, for their labels."""

    region: str = "me-central-1"
    """The region's or site's name."""
    zones: tuple[str, ...] = ("me-central-1a", "me-central-1b", "me-central-1c")
    """Machines are spread over them, rack by rack."""
    distribution: Distribution = "eks"
    """Whose labels and fabric they have: `eks` (EFA), `aks` or `existing` (InfiniBand)."""
    nodes_in_rack: int = 4
    racks_in_block: int = 8

    def __post_init__(self) -> None:
        if not self.region or not self.zones or not all(self.zones):
            raise EngineError(
                f"a site needs a region and a zone, given {self.region!r} and {self.zones!r}"
            )
        for what, value in (
            ("nodes_in_rack", self.nodes_in_rack),
            ("racks_in_block", self.racks_in_block),
        ):
            if value < 1:
                raise EngineError(f"{what} is {value}; allowed: 1 or more")


@cache
def machines() -> dict[str, Machine]:
    """The known machines by name."""
    path = Path(__file__).with_name("machines.yaml")
    rows: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {name: Machine(name, **row) for name, row in rows.items()}


def parse_pools(text: str) -> tuple[Pool, ...]:
    """Read `h200=64,h200:mig-1g.18gb=4,cpu=20`; a pool that is named twice is refused.

    Raises EngineError that names every entry that can't be read, and what is allowed.
    """
    pools: dict[str, Pool] = {}
    wrong: list[str] = []
    for entry in (part.strip() for part in text.split(",")):
        if not entry:
            continue
        try:
            pool = _parse(entry)
        except ValueError as error:
            wrong.append(f"{entry!r}: {error}")
            continue
        if pool.name in pools:
            wrong.append(f"{entry!r}: the pool {pool.name} is named twice; give it one number")
        pools[pool.name] = pool
    total = sum(pool.number for pool in pools.values())
    if total > MOST_NODES:
        wrong.append(f"{total} nodes in all; at most {MOST_NODES}")
    if wrong:
        raise EngineError(
            "nodes can't be made as asked for:\n  "
            + "\n  ".join(wrong)
            + "\n  written MACHINE[:SHARING]=NUMBER with commas between, such as "
            "h200=64,h200:mig-1g.18gb=4,l4:time-slicing-4=2,cpu=20"
        )
    return tuple(pools.values())


def _parse(entry: str) -> Pool:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise ValueError("not MACHINE[:SHARING]=NUMBER")
    machine = machines().get(match["machine"])
    if machine is None:
        raise ValueError(
            f"no machine {match['machine']!r} is known; known are {', '.join(machines())}"
        )
    number = match["number"]
    # `isdecimal` takes digits of every script, and int() would read them.
    if not (number.isascii() and number.isdecimal()) or len(number) > len(str(MOST_NODES)):
        raise ValueError(f"{number!r} is no number of nodes from 0 to {MOST_NODES}")
    return Pool(machine, _sharing(match["sharing"] or "", machine), int(number))


def _sharing(text: str, machine: Machine) -> str:
    if not text:
        return ""
    if not machine.gpus:
        raise ValueError(f"{machine.name} has no GPU to share")
    slices = text.removeprefix(_SLICING)
    if text.startswith(_SLICING):
        allowed = [str(count) for count in range(LEAST_SLICES, MOST_SLICES + 1)]
        if slices not in allowed:
            raise ValueError(f"{text!r}: from {LEAST_SLICES} to {MOST_SLICES} slices are allowed")
        return text
    if text.startswith(_MIG) and text.removeprefix(_MIG) in machine.mig:
        return text
    profiles = [f"{_MIG}{profile}" for profile in machine.mig]
    raise ValueError(
        f"{machine.name} can't be shared as {text!r}; allowed: "
        + ", ".join([*profiles, f"{_SLICING}{LEAST_SLICES} to {_SLICING}{MOST_SLICES}"])
    )
