"""Reports about machines: what is sold, what a pool costs, which place was chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from falaj.components.catalogue import cost
from falaj.components.catalogue.demand import Demand
from falaj.components.catalogue.machines import MachineType
from falaj.components.catalogue.place import Place
from falaj.components.catalogue.placement import Choice
from falaj.components.catalogue.reports.report import Report, Row, once, place_dates, place_sources
from falaj.components.catalogue.tables import Column


def gpu_machines(chosen: Sequence[Place], machines: Iterable[MachineType]) -> Report:
    """Machine types with GPUs."""
    listed = tuple(machines)
    columns = (
        Column("place", "place"),
        Column("machine", "machine"),
        Column("gpus", "GPUs"),
        Column("total_gpu_memory_gb", "GPU GB", right=True),
        Column("vcpu", "vCPU", right=True),
        Column("memory_gib", "GiB", right=True),
        Column("fabric", "fabric"),
        Column("zones", "zones"),
        Column("mig", "MIG"),
        Column("usd_per_hour", "USD/h", right=True),
    )
    notes = _machine_notes(chosen, listed)
    return Report(
        "Machines with GPUs, cheapest first",
        columns,
        tuple(_machine(m) for m in listed),
        _machine_sources(chosen, listed),
        place_dates(chosen),
        notes,
    )


def cpu_machines(chosen: Sequence[Place], machines: Iterable[MachineType]) -> Report:
    """Machine types without GPUs."""
    listed = tuple(machines)
    columns = (
        Column("place", "place"),
        Column("machine", "machine"),
        Column("vcpu", "vCPU", right=True),
        Column("memory_gib", "GiB", right=True),
        Column("arch", "architecture"),
        Column("processor", "processor"),
        Column("int8", "8-bit"),
        Column("zones", "zones"),
        Column("usd_per_hour", "USD/h", right=True),
    )
    return Report(
        "Machines without GPUs, cheapest first",
        columns,
        tuple(_machine(m) for m in listed),
        _machine_sources(chosen, listed),
        place_dates(chosen),
        _machine_notes(chosen, listed),
    )


def costs(machines: Sequence[MachineType], least: int, most: int, capacity: str) -> Report:
    """What a pool of each machine costs at its smallest and at its biggest."""
    rows: list[Row] = []
    for m in machines:
        span = cost.span(m, least, most, capacity)
        rows.append(
            {
                "place": f"{m.cloud}/{m.region}",
                "machine": m.name,
                "gpus": m.gpu_text,
                "capacity": capacity,
                "nodes": f"{least} to {most}" if least != most else str(most),
                "least_usd_per_hour": _money(span.least.hourly),
                "usd_per_hour": _money(span.most.hourly),
                "usd_per_month": _money(span.most.monthly),
            }
        )
    columns = (
        Column("place", "place"),
        Column("machine", "machine"),
        Column("gpus", "GPUs"),
        Column("capacity", "capacity"),
        Column("nodes", "nodes"),
        Column("least_usd_per_hour", "least USD/h", right=True),
        Column("usd_per_hour", "most USD/h", right=True),
        Column("usd_per_month", "most USD/month", right=True),
    )
    ids = once(m.price_source for m in machines if m.price_source)
    dates = " and ".join(dict.fromkeys(m.prices_as_of for m in machines))
    notes = (
        f"List prices of machines on demand, Linux; a month has {cost.HOURS_PER_MONTH} hours. "
        "Without taxes, disks, traffic and support. Other kinds of capacity: unknown.",
    )
    return Report("Cost", columns, tuple(rows), ids, dates, notes)


def choice(made: Choice, demands: Sequence[Demand]) -> Report:
    """The place that was taken, the machines, and why."""
    rows: list[Row] = [
        {"place": made.place.name, "demand": str(demand), "machine": machine.name}
        for demand, machine in zip(demands, made.machines, strict=False)
    ] or [{"place": made.place.name, "demand": "as confirmed", "machine": None}]
    columns = (
        Column("place", "place"),
        Column("demand", "asked"),
        Column("machine", "machine"),
    )
    chosen = [made.place] if isinstance(made.place, Place) else []
    return Report(
        "Choice", columns, tuple(rows), place_sources(chosen), place_dates(chosen), made.reasons
    )


def _machine(m: MachineType) -> Row:
    fabric = "none"
    if m.efa_interfaces:
        fabric = f"EFA x {m.efa_interfaces}"
    elif m.infiniband:
        fabric = m.infiniband + ("" if m.infiniband_verified else " (unverified)")
    sets = m.instruction_sets
    return {
        "place": f"{m.cloud}/{m.region}",
        "machine": m.name,
        "gpus": m.gpu_text,
        "gpu": m.gpu.name if m.gpu else None,
        "gpu_count": str(m.gpu_count),
        "total_gpu_memory_gb": _gpu_memory(m),
        "vcpu": m.vcpu,
        "memory_gib": m.memory_gib,
        "arch": m.arch,
        "processor": sets.processor,
        "int8": sets.int8 or ("none" if sets.known else None),
        "fabric": fabric,
        "zones": list(m.zone_ids) or None,
        "mig": "yes" if m.mig_profiles else "no",
        "usd_per_hour": m.usd_per_hour,
        "usage_classes": list(m.usage_classes) or None,
        "local_nvme_gb": m.local_nvme_gb,
        "confidential": m.confidential,
        "first_seen": m.first_seen,
        "offer_status": m.offer_status,
        "caution": m.caution,
        "note": m.note,
    }


def _gpu_memory(m: MachineType) -> float | None:
    """Memory of all its GPUs, or of its part of one."""
    if m.gpu is None or m.gpu.memory_gb is None:
        return None
    return float(m.gpu.memory_gb * m.gpu_count)


def _money(amount: Decimal | None) -> Decimal | None:
    return None if amount is None else amount.quantize(Decimal("0.01"))


def _machine_notes(chosen: Sequence[Place], machines: Sequence[MachineType]) -> tuple[str, ...]:
    said: dict[str, list[str]] = {}
    for machine in machines:
        for note in (machine.caution, machine.note):
            if note:
                said.setdefault(note, []).append(machine.name)
    of_machines = [f"{', '.join(once(names))}: {note}" for note, names in said.items()]
    return (*(f"{p.name}: {note}" for p in chosen for note in p.notes), *of_machines)


def _machine_sources(chosen: Sequence[Place], machines: Sequence[MachineType]) -> tuple[str, ...]:
    prices = [m.price_source for m in machines if m.price_source]
    return once((*place_sources(chosen), *prices))
