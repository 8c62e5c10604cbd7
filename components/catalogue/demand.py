"""A demand: what a machine has to have, whatever it is called."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

from falaj.components.catalogue import gpus
from falaj.components.catalogue.gpus import Gpu
from falaj.components.catalogue.machines import MachineType
from falaj.components.catalogue.sources import DemandError

Count = int | float | Fraction | None

FABRICS: Final = ("none", "efa", "infiniband")
INT8: Final = ("amx", "vnni", "i8mm", "dotprod", "any")
_ARCHITECTURES: Final = {
    "x86_64": "x86_64",
    "x86-64": "x86_64",
    "amd64": "x86_64",
    "arm64": "arm64",
    "aarch64": "arm64",
}
# 0.33 and 0.3333 both mean a third; sixths, the finest that is sold, lie 0.16 apart.
_COUNT_TOLERANCE: Final = 0.01
# AWS: an n among the letters after the generation means a faster network (c6in, c8gn).
# https://docs.aws.amazon.com/ec2/latest/instancetypes/instance-type-names.html
_NETWORK: Final = re.compile(r"^[a-z]+\d+[a-z]*n")
# Far above any machine; keeps a mistyped number from being taken for a demand.
_MOST: Final = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What a machine has to have. A field that is None asks for nothing.

    Without ``gpu`` and ``count``, machines without GPUs are meant.

    Raises:
        DemandError: for a GPU, count, fabric, architecture or instruction set that doesn't exist.
    """

    gpu: str | None = None
    """GPU model, with or without its variant; see `gpus.find`."""
    count: Count = None
    """GPUs of each machine, exactly; ``1/6``, ``1/3`` and ``1/2`` may be given as 0.17, 0.33,
    0.5. Default: any count."""
    fabric: str | None = None
    """``efa`` or ``infiniband``; ``none`` and None ask for neither and mind neither."""
    vcpu: int | None = None
    """Virtual CPUs, at least."""
    memory_gib: float | None = None
    """Memory in GiB, at least. A machine of unknown memory doesn't satisfy it."""
    arch: str | None = None
    """``x86_64`` or ``arm64``."""
    int8: str | None = None
    """``amx``, ``vnni``, ``i8mm`` or ``dotprod``, guaranteed on every such machine: AMX includes
    VNNI, i8mm includes dotprod; ``any`` and None ask for none."""
    zones: Sequence[str] | None = None
    """Ids of zones; it has to be sold in at least one. Where a cloud doesn't say which zone sells
    what (Azure), machines are taken and have to be checked with the cloud."""

    confidential: bool = False
    """Whether memory has to be encrypted against the operator. False leaves such machines out:
    they don't start without a security profile of their own."""

    discouraged: bool = False
    """Whether machines that carry a caution are taken too. False takes them only for a GPU that
    is named, since nothing else has it."""

    _gpus: tuple[Gpu, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        for name in ("gpu", "fabric", "arch", "int8"):
            _text(name, getattr(self, name))
        for name in ("count", "vcpu", "memory_gib"):
            _number(name, getattr(self, name))
        if self.gpu is not None:
            object.__setattr__(self, "_gpus", gpus.find(self.gpu))
        _choice("fabric", self.fabric, FABRICS)
        _choice("int8", self.int8, INT8)
        _choice("arch", self.arch, tuple(_ARCHITECTURES))
        for zone in () if self.zones is None else _listed(self.zones):
            _text("zones", zone)

    def with_zones(self, zones: Sequence[str] | None) -> Demand:
        """The same demand in other zones."""
        return replace(self, zones=zones)

    @property
    def wants_gpu(self) -> bool:
        """Whether machines with GPUs are meant."""
        return self.gpu is not None or self.count is not None

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that its name means; empty where none was named."""
        return self._gpus

    def shortfalls(self, machine: MachineType) -> tuple[str, ...]:
        """What a machine lacks to satisfy the demand, in words; empty when it satisfies it."""
        lacking: list[str] = []
        if self.wants_gpu != (machine.gpu is not None):
            lacking.append(f"it has {machine.gpu_text}")
        elif self.gpu is not None and machine.gpu not in self._gpus:
            lacking.append(f"its GPU is {machine.gpu.name if machine.gpu else 'none'}")
        elif self.count is not None and not same_count(self.count, machine.gpu_count):
            lacking.append(f"it has {machine.gpu_text}")
        if self.fabric == "efa" and not machine.efa_interfaces:
            lacking.append("it has no EFA interface")
        if self.fabric == "infiniband" and machine.infiniband is None:
            lacking.append("it has no InfiniBand")
        if self.vcpu is not None and (machine.vcpu is None or machine.vcpu < self.vcpu):
            lacking.append(f"it has {_or_unknown(machine.vcpu)} vCPU")
        if self.memory_gib is not None and (
            machine.memory_gib is None or machine.memory_gib < self.memory_gib
        ):
            lacking.append(f"it has {_or_unknown(machine.memory_gib)} GiB of memory")
        if self.arch is not None and machine.arch != _ARCHITECTURES[self.arch]:
            lacking.append(f"its architecture is {machine.arch}")
        if self.int8 not in (None, "any") and self.int8 not in machine.instruction_sets.offers:
            has = machine.instruction_sets
            lacking.append(
                f"its CPUs guarantee {has.int8 or 'no such instructions'} for 8-bit integers"
            )
        if self.confidential != (machine.confidential is not None):
            lacking.append(
                f"it is confidential ({machine.confidential}) and needs a security profile"
                if machine.confidential
                else "its memory is not encrypted against the operator"
            )
        if machine.caution and self.gpu is None and not self.discouraged:
            lacking.append(f"it is to be avoided ({machine.caution})")
        if self.zones and machine.zones_known and not set(self.zones) & set(machine.zone_ids):
            lacking.append(f"it is sold in {', '.join(machine.zone_ids)} only")
        return tuple(lacking)

    def __str__(self) -> str:
        parts: list[str] = []
        if self.wants_gpu:
            count = "" if self.count is None else f"{as_fraction(self.count)} x "
            parts.append(count + (self.gpu or "any GPU"))
        else:
            parts.append("a machine without GPUs")
        if self.fabric not in (None, "none"):
            parts.append(f"fabric {self.fabric}")
        if self.vcpu is not None:
            parts.append(f"at least {self.vcpu} vCPU")
        if self.memory_gib is not None:
            parts.append(f"at least {self.memory_gib:g} GiB of memory")
        if self.arch is not None:
            parts.append(_ARCHITECTURES[self.arch])
        if self.int8 not in (None, "any"):
            parts.append(f"int8 by {self.int8}")
        if self.confidential:
            parts.append("confidential")
        if self.zones:
            parts.append(f"in {' or '.join(self.zones)}")
        return ", ".join(parts)


def as_fraction(count: int | float | Fraction) -> Fraction:
    """The count as a fraction; floats near a sixth, third or half are taken for it."""
    exact = Fraction(count)
    near = exact.limit_denominator(6)
    return near if abs(float(near - exact)) <= _COUNT_TOLERANCE else exact.limit_denominator(1000)


def same_count(asked: int | float | Fraction, has: Fraction) -> bool:
    """Whether a machine has as many GPUs as asked; 0.33 is a third."""
    return abs(float(Fraction(asked) - has)) <= _COUNT_TOLERANCE


def cheapest_first(machine: MachineType) -> tuple[object, ...]:
    """Sort key: known prices upwards, then unknown ones.

    A machine whose price is unknown comes right before the bigger one of its family that bounds
    it. Of equal known prices the bigger machine comes first, of unknown ones the smaller; then
    those without local disks and faster network, which are sold dearer; then what the CPUs can
    do, then the newest in the region, then the name.
    """
    limit = machine.usd_per_hour_at_most
    known = machine.usd_per_hour is not None
    unknown = float("inf")
    vcpu = unknown if machine.vcpu is None else machine.vcpu
    memory = unknown if machine.memory_gib is None else machine.memory_gib
    rank = {"amx": 0, "i8mm": 0, "vnni": 1, "dotprod": 2}
    seen = (machine.first_seen or "").removeprefix("<=").replace("-", "")
    return (
        limit is None,
        limit or 0,
        known,
        machine.gpu_count,
        -vcpu if known else vcpu,
        -memory if known else memory,
        bool(machine.local_nvme_gb) + bool(_NETWORK.search(machine.family)),
        rank.get(machine.instruction_sets.int8 or "", 3),
        -int(seen or 0),
        machine.name,
    )


def _choice(name: str, value: str | None, allowed: Sequence[str]) -> None:
    if value is not None and value not in allowed:
        raise DemandError(f"{name} is {value!r}; allowed: {', '.join(allowed)}")


# Demands come from stack files and from programs in other languages, where nothing checks types.
def _text(name: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise DemandError(f"{name} is {value!r}; allowed: text")


def _number(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise DemandError(f"{name} is {value!r}; allowed: a number above 0")
    if not 0 < value <= _MOST:
        hint = "; for machines without GPUs leave it out" if name == "count" else ""
        raise DemandError(f"{name} is {value}; allowed: above 0, at most {_MOST:,}{hint}")


def _listed(zones: object) -> Sequence[object]:
    if isinstance(zones, str) or not isinstance(zones, Sequence):
        raise DemandError(f"zones is {zones!r}; allowed: a list of zone ids")
    return zones  # pyright: ignore[reportUnknownVariableType]


def _or_unknown(value: object) -> str:
    return "unknown" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
