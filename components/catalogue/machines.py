"""Machine types: what an instance type or VM size has and costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

from falaj.components.catalogue.gpus import Gpu

NO_PROFILES: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class InstructionSets:
    """What a machine's CPUs can surely do for 8-bit inference."""

    int8: str | None
    """Best guaranteed: ``amx``, ``vnni`` (x86_64), ``i8mm``, ``dotprod`` (arm64); None: none of
    them is guaranteed."""
    known: bool
    """Whether that is all there is to know. False where a family mixes processors or no source
    was read: the machine at hand may then do more than ``int8`` says."""
    features: Mapping[str, bool | str | None] = field(hash=False)
    """Each feature that the sources speak of: present, absent, or None for unknown."""
    processor: str | None
    note: str | None

    @property
    def offers(self) -> frozenset[str]:
        """Every word that a demand for ``int8`` may use and that these CPUs satisfy."""
        implied = {"amx": ("amx", "vnni"), "i8mm": ("i8mm", "dotprod")}
        return frozenset(implied.get(self.int8, (self.int8,)) if self.int8 else ())


@dataclass(frozen=True, kw_only=True)
class MachineType:
    """An instance type (AWS) or VM size (Azure) as it is sold in one region.

    None means unknown, never zero or absent, where the type allows both.
    """

    name: str
    cloud: str
    region: str
    family: str
    zone_ids: tuple[str, ...]
    """Ids of the zones that sell it; empty where that is unknown (all of Azure)."""
    vcpu: int | None
    memory_gib: float | None
    arch: str
    """``x86_64`` or ``arm64``."""
    gpu: Gpu | None
    gpu_count: Fraction
    """GPUs of the machine; 0 for none, a fraction where a GPU is shared by hardware."""
    efa_interfaces: int
    infiniband: str | None
    """Links and speed, such as ``8x400 Gb/s NDR``; None where it has no InfiniBand."""
    infiniband_verified: bool
    """False where the link's speed comes from memory or is not known."""
    network_cards: int | None
    network_performance: str | None
    local_nvme_gb: int | None
    usage_classes: tuple[str, ...]
    """How it can be bought: ``on-demand``, ``spot``, ``capacity-block``; empty where unknown."""
    instruction_sets: InstructionSets
    usd_per_hour: Decimal | None
    """On demand, Linux, without taxes; None where no source was read."""
    price_source: str | None
    prices_as_of: str
    offer_status: str
    """How sure it is that it is sold: what was seen, and what was not."""
    usd_per_hour_at_most: Decimal | None
    """The price, or where it is unknown that of the cheapest bigger size of the same family with
    the same GPUs: a smaller size doesn't cost more. None where neither is known."""
    first_seen: str | None
    """When it first appeared in the region, as ``YYYY-MM-DD`` or ``<=YYYY-MM-DD``."""
    confidential: str | None
    """How memory is encrypted against the operator (``SEV-SNP``); such machines need a security
    profile of their own. None for ordinary ones."""
    caution: str | None
    """Why not to choose it although it is sold; None for no reason."""
    note: str | None
    """What else the sources say, such as which figure comes from memory."""

    @property
    def zones_known(self) -> bool:
        """Whether a source says which zones sell it."""
        return bool(self.zone_ids)

    @property
    def mig_profiles(self) -> Mapping[str, int]:
        """MIG profiles and how many fit on each of its GPUs; empty without MIG."""
        if self.gpu is None or self.gpu_count < 1:
            return NO_PROFILES
        return self.gpu.mig_profiles

    @property
    def gpu_text(self) -> str:
        """Its GPUs for people: ``8 x H200``, ``1/6 x A10``, or ``no GPU``."""
        return f"{self.gpu_count} x {self.gpu.model}" if self.gpu else "no GPU"

    def __str__(self) -> str:
        return self.name
