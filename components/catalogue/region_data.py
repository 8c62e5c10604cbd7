"""Turns a region's data file into machine types."""

from __future__ import annotations

import dataclasses
import re
from decimal import Decimal
from fractions import Fraction
from functools import cache
from types import MappingProxyType
from typing import Any

from falaj.components.catalogue import sources
from falaj.components.catalogue.gpus import GPUS
from falaj.components.catalogue.machines import InstructionSets, MachineType
from falaj.wire.documents import mapping

# Lower-case letters after the number in a size's name: r = RDMA (InfiniBand).
# https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions
_AZURE_RDMA = re.compile(r"^Standard_[A-Z]+\d+[a-z]*r[a-z]*_")
_UNPROVEN = (
    "unproven: a price meter and a real ARM SKU were seen; zones, restrictions and quota were not"
)
_AWS_OFFERED = "listed in the EC2 offerings of its zones and in the price list of 2026-10-20"


@cache
def machines(file: str) -> MappingProxyType[str, MachineType]:
    """Every machine type of a region that is not refused, by name."""
    data = sources.load(file)
    build = _aws if data["cloud"] == "aws" else _azure
    found = {
        name: build(data, name, row)
        for kind in ("gpu_machines", "cpu_machines")
        for name, row in data[kind].items()
        if not row.get("refused")
    }
    priced = [m for m in found.values() if m.usd_per_hour is not None]
    return MappingProxyType({name: _bound(m, priced) for name, m in found.items()})


def _bound(machine: MachineType, priced: list[MachineType]) -> MachineType:
    """The machine with the upper bound of its price, where there is one."""
    prices = [
        other.usd_per_hour
        for other in priced
        if other.usd_per_hour is not None and _contains(other, machine)
    ]
    return dataclasses.replace(machine, usd_per_hour_at_most=min(prices)) if prices else machine


def _contains(bigger: MachineType, machine: MachineType) -> bool:
    """Whether a size is the same one or has at least as much of everything, in one family."""
    if bigger is machine:
        return True
    return (
        machine.usd_per_hour is None
        and (bigger.family, bigger.gpu, bigger.gpu_count)
        == (machine.family, machine.gpu, machine.gpu_count)
        and None not in (bigger.vcpu, machine.vcpu, bigger.memory_gib, machine.memory_gib)
        and (bigger.vcpu or 0) >= (machine.vcpu or 0)
        and (bigger.memory_gib or 0) >= (machine.memory_gib or 0)
        and (bigger.local_nvme_gb or 0) >= (machine.local_nvme_gb or 0)
    )


def _aws(data: dict[str, Any], name: str, row: dict[str, Any]) -> MachineType:
    family = data["cpu_families"].get(name.split(".", maxsplit=1)[0])
    gpu = row.get("gpu")
    return MachineType(
        name=name,
        cloud=data["cloud"],
        region=data["region"],
        family=name.split(".", maxsplit=1)[0],
        zone_ids=tuple(row["zone_ids"]),
        vcpu=row["vcpu"],
        memory_gib=_float(row["memory_gib"]),
        arch=row["arch"],
        gpu=GPUS[gpu] if gpu else None,
        gpu_count=Fraction(row.get("gpu_count", 0)),
        efa_interfaces=row["efa_interfaces"],
        infiniband=None,
        infiniband_verified=True,
        network_cards=row["network_cards"],
        network_performance=row["network_performance"],
        local_nvme_gb=row["local_nvme_gb"],
        usage_classes=tuple(row["usage_classes"]),
        instruction_sets=_instruction_sets(family),
        usd_per_hour=_decimal(row.get("usd_per_hour")),
        price_source=row.get("price_source"),
        prices_as_of=data["prices_as_of"],
        offer_status=_AWS_OFFERED,
        usd_per_hour_at_most=None,
        first_seen=row.get("first_seen") or mapping(family).get("first_seen"),
        confidential=None,
        caution=None,
        note=None,
    )


def _azure(data: dict[str, Any], name: str, row: dict[str, Any]) -> MachineType:
    family_name = row.get("family")
    family = data["cpu_families"].get(family_name) if family_name else None
    gpu = row.get("gpu")
    rate = row.get("infiniband")
    rdma = bool(gpu and _AZURE_RDMA.match(name))
    return MachineType(
        name=name,
        cloud=data["cloud"],
        region=data["region"],
        family=family_name or re.sub(r"\d+", "", name.removeprefix("Standard_").split("_")[0]),
        zone_ids=(),
        vcpu=row["vcpu"],
        memory_gib=_float(row["memory_gib"]),
        arch=row["arch"],
        gpu=GPUS[gpu] if gpu else None,
        gpu_count=Fraction(row.get("gpu_count", 0)),
        efa_interfaces=0,
        infiniband=rate or ("InfiniBand, speed unknown" if rdma else None),
        infiniband_verified=not rdma or bool(rate and not row["infiniband_from_memory"]),
        network_cards=None,
        network_performance=None,
        local_nvme_gb=None,
        usage_classes=(),
        instruction_sets=_instruction_sets(family),
        usd_per_hour=_decimal(row["usd_per_hour"]),
        price_source="S_KARP_AZ",
        prices_as_of=data["prices_as_of"],
        offer_status=_azure_status(family),
        usd_per_hour_at_most=None,
        first_seen=None,
        confidential=mapping(family).get("confidential"),
        caution=row.get("caution") or mapping(family).get("caution"),
        note=row.get("note"),
    )


def _azure_status(family: dict[str, Any] | None) -> str:
    if family is None or family["known_arm_skus"] == family["price_listed_skus"]:
        return _UNPROVEN
    return (
        f"unproven: a price meter was seen; {family['known_arm_skus']} of the family's "
        f"{family['price_listed_skus']} names are known ARM SKUs, which ones was not recorded; "
        "zones, restrictions and quota were not seen"
    )


def _instruction_sets(family: dict[str, Any] | None) -> InstructionSets:
    if family is None:
        return InstructionSets(None, False, MappingProxyType({}), None, None)
    features: dict[str, bool | str | None] = dict(family["isa"])
    # From the best downwards: the first that is present is guaranteed, and all is known when
    # nothing better is merely unknown.
    ladder = (
        ("amx_int8", "amx"),
        ("avx512_vnni", "vnni"),
        ("i8mm", "i8mm"),
        ("neon_dotprod", "dotprod"),
    )
    known = True
    best: str | None = None
    for feature, name in ladder:
        if feature not in features:
            continue
        if features[feature]:
            best = name
            break
        known = known and features[feature] is not None
    return InstructionSets(
        best, known, MappingProxyType(features), family["processor"], family["int8_note"]
    )


def _decimal(value: object) -> Decimal | None:
    return None if value is None else Decimal(str(value))


def _float(value: object) -> float | None:
    return None if value is None else float(str(value))
