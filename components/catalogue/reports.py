"""What the command shows of the catalogue: tables, and what has to be said below them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import cast

from falaj.components.catalogue import cost, sources
from falaj.components.catalogue.demand import Demand
from falaj.components.catalogue.gpus import Gpu
from falaj.components.catalogue.machines import MachineType
from falaj.components.catalogue.place import Place
from falaj.components.catalogue.placement import Choice
from falaj.components.catalogue.sources import SOURCES

# Tables: as wide as the terminal, long cells wrapped, unknown said.

UNKNOWN = "unknown"
_GAP = 2
# Below this a column of prose is unreadable; names of machines are longer and never broken.
_LEAST = 12


@dataclass(frozen=True)
class Column:
    """A column: the key of its values, and its heading."""

    key: str
    heading: str
    right: bool = False
    """Whether values stand on the right, as numbers do."""


def text(value: object) -> str:
    """A value for people: None is ``unknown``, lists are joined, booleans are yes and no."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Decimal):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        return ", ".join(map(text, cast("Sequence[object]", value)))
    return str(value)


def terminal_width() -> int | None:
    """Columns of the terminal; None where the output is none, so that nothing is wrapped."""
    return shutil.get_terminal_size(fallback=(0, 0)).columns or None


def render(
    columns: Sequence[Column], rows: Sequence[Mapping[str, object]], width: int | None
) -> str:
    """The table; with a width, long cells are wrapped until it fits, as far as words allow."""
    cells = [[column.heading for column in columns]]
    cells += [[text(row.get(column.key)) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if width is not None:
        widths = _fit(cells, widths, width)
    lines: list[str] = []
    for number, row in enumerate(cells):
        lines += _lines(columns, row, widths)
        if number == 0:
            lines.append((" " * _GAP).join("-" * each for each in widths))
    return "\n".join(line.rstrip() for line in lines)


def _fit(cells: list[list[str]], widths: list[int], width: int) -> list[int]:
    """Narrow the widest columns until the table fits or every one is as narrow as its words."""
    least = [
        min(wide, max(_LEAST, *(len(word) for cell in column for word in cell.split() or [""])))
        for wide, column in zip(widths, zip(*cells, strict=True), strict=True)
    ]
    fitted = list(widths)
    while sum(fitted) + _GAP * (len(fitted) - 1) > width:
        room = [(fitted[i] - least[i], fitted[i], i) for i in range(len(fitted))]
        spare = [entry for entry in room if entry[0] > 0]
        if not spare:
            break
        fitted[max(spare, key=lambda entry: entry[1])[2]] -= 1
    return fitted


def _lines(columns: Sequence[Column], row: list[str], widths: list[int]) -> list[str]:
    wrapped = [
        textwrap.wrap(cell, wide, break_long_words=False, break_on_hyphens=False) or [""]
        for cell, wide in zip(row, widths, strict=True)
    ]
    return [
        (" " * _GAP).join(
            (part[i] if i < len(part) else "").rjust(wide)
            if column.right
            else (part[i] if i < len(part) else "").ljust(wide)
            for column, part, wide in zip(columns, wrapped, widths, strict=True)
        )
        for i in range(max(map(len, wrapped)))
    ]


# A report: a table and what has to be said below it.

Row = Mapping[str, object]


@dataclass(frozen=True)
class Report:
    """A table with what has to be said below it."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    """More values than the table has columns: JSON shows all of them."""
    source_ids: tuple[str, ...]
    as_of: str
    notes: tuple[str, ...] = ()


def once(ids: Iterable[str]) -> tuple[str, ...]:
    """The ids without repetitions, in order."""
    return tuple(dict.fromkeys(ids))


def place_sources(chosen: Sequence[Place]) -> tuple[str, ...]:
    """Sources of what the places sell."""
    return once(id_ for p in chosen for id_ in p.sources)


def place_dates(chosen: Sequence[Place]) -> str:
    """Date of each place's data."""
    return ", ".join(f"{p.name} {p.as_of}" for p in chosen) or "not dated"


# Reports about machines: what is sold, what a pool costs, which place was chosen.


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
    by_note: dict[str, list[str]] = {}
    for machine in machines:
        for note in (machine.caution, machine.note):
            if note:
                by_note.setdefault(note, []).append(machine.name)
    of_machines = [f"{', '.join(once(names))}: {note}" for note, names in by_note.items()]
    return (*(f"{p.name}: {note}" for p in chosen for note in p.notes), *of_machines)


def _machine_sources(chosen: Sequence[Place], machines: Sequence[MachineType]) -> tuple[str, ...]:
    prices = [m.price_source for m in machines if m.price_source]
    return once((*place_sources(chosen), *prices))


# Reports about GPUs: facts and MIG profiles.


def gpu_facts(gpus: Sequence[Gpu]) -> Report:
    """Memory, speed, links and power of GPUs."""
    rows = tuple(
        {
            "gpu": g.name,
            "architecture": g.architecture,
            "memory_gb": g.memory_gb,
            "memory_bandwidth_gb_s": g.memory_bandwidth_gb_s,
            "bf16_tflops": g.bf16_tflops,
            "fp8_tflops": g.fp8_tflops,
            "int8_tops": g.int8_tops,
            "nvlink_gb_s": g.nvlink_gb_s,
            "power_w": g.power_w,
            "compute_capability": g.compute_capability,
            "bf16_fp32_accumulate_tflops": g.bf16_fp32_accumulate_tflops,
            "fp16_tflops": g.fp16_tflops,
            "fp4_tflops": g.fp4_tflops,
            "measured_bf16_tflops": g.measured_bf16_tflops,
            "measured_fp8_tflops": g.measured_fp8_tflops,
            "note": g.note,
        }
        for g in gpus
    )
    columns = (
        Column("gpu", "GPU"),
        Column("architecture", "generation"),
        Column("memory_gb", "GB", right=True),
        Column("memory_bandwidth_gb_s", "GB/s", right=True),
        Column("bf16_tflops", "bf16 TFLOPS", right=True),
        Column("fp8_tflops", "fp8 TFLOPS", right=True),
        Column("int8_tops", "int8 TOPS", right=True),
        Column("nvlink_gb_s", "NVLink GB/s", right=True),
        Column("power_w", "W", right=True),
        Column("compute_capability", "compute", right=True),
    )
    notes = (
        "Speeds are dense, from datasheets; NVLink is both directions together.",
        *(f"{g.name}: {g.note}" for g in gpus if g.note),
    )
    return Report("GPUs", columns, rows, _gpu_sources(gpus), _gpu_as_of(), notes)


def mig(gpus: Sequence[Gpu]) -> Report:
    """MIG profiles and how many fit on one GPU."""
    rows = tuple(
        {"gpu": g.name, "profile": profile, "most": most}
        for g in gpus
        for profile, most in g.mig_profiles.items()
    )
    columns = (
        Column("gpu", "GPU"),
        Column("profile", "profile"),
        Column("most", "fit on one GPU", right=True),
    )
    without = [g.name for g in gpus if not g.mig_profiles]
    notes = (f"Without MIG: {', '.join(without)}.",) if without else ()
    return Report("MIG profiles", columns, rows, _gpu_sources(gpus), _gpu_as_of(), notes)


def _gpu_sources(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    return once(id_ for g in gpus for id_ in g.sources)


def _gpu_as_of() -> str:
    return sources.load("gpus")["as_of"]


# Reports about places: zones, state, services, what is refused, and other operators.


def places(chosen: Sequence[Place]) -> Report:
    """Places with their zones and state."""
    rows = tuple(
        {
            "place": p.name,
            "title": p.title,
            "zones": [z.id + (f" ({z.name})" if z.name else "") for z in p.zones] or ["no zones"],
            "state": "degraded" if p.status.degraded else "no report of degradation",
            "status_as_of": p.status.as_of.isoformat(),
            "access": "on request" if p.restricted_access else "open",
            "pair": p.pair or "none",
            "gpu_machines": len(p.machines("gpu")),
            "cpu_machines": len(p.machines("cpu")),
        }
        for p in chosen
    )
    columns = (
        Column("place", "place"),
        Column("title", "region"),
        Column("zones", "zones"),
        Column("state", "state"),
        Column("status_as_of", "as of"),
        Column("access", "access"),
        Column("pair", "pair"),
        Column("gpu_machines", "GPU types", right=True),
        Column("cpu_machines", "CPU types", right=True),
    )
    return Report(
        "Places in the country", columns, rows, place_sources(chosen), place_dates(chosen)
    )


def status(chosen: Sequence[Place]) -> Report:
    """What is reported about each region."""
    rows = tuple(
        {
            "place": p.name,
            "degraded": p.status.degraded,
            "as_of": p.status.as_of.isoformat(),
            "impaired_zones": list(p.status.impaired_zones) or ["none reported"],
            "text": p.status.text,
            "signals": list(p.status.signals),
        }
        for p in chosen
    )
    columns = (
        Column("place", "place"),
        Column("degraded", "degraded"),
        Column("as_of", "as of"),
        Column("impaired_zones", "impaired zones"),
        Column("text", "what is reported"),
    )
    ids = once(id_ for p in chosen for id_ in p.status.sources)
    notes = tuple(f"{p.name}: {signal}" for p in chosen for signal in p.status.signals)
    return Report("State of the regions", columns, rows, ids, place_dates(chosen), notes)


def services(chosen: Sequence[Place], name: str | None) -> Report:
    """Services present, absent and unknown; or one by name."""
    found = [
        (p, service) for p in chosen for service in ([p.service(name)] if name else p.services)
    ]
    rows = tuple(
        {
            "place": p.name,
            "service": service.name,
            "available": service.available,
            "note": service.note or "",
        }
        for p, service in found
    )
    columns = (
        Column("place", "place"),
        Column("service", "service"),
        Column("available", "available"),
        Column("note", "note"),
    )
    ids = once(id_ for _, service in found for id_ in service.sources)
    return Report("Services", columns, rows, ids, place_dates(chosen))


def refused(chosen: Sequence[Place]) -> Report:
    """What isn't sold, or of which that is uncertain, with the reason."""
    rows = tuple(
        {"place": p.name, "name": name, "reason": reason}
        for p in chosen
        for name, reason in (*p.refused, *p.uncertain)
    )
    columns = (
        Column("place", "place"),
        Column("name", "family or size"),
        Column("reason", "why it is refused"),
    )
    return Report("Refused", columns, rows, place_sources(chosen), place_dates(chosen))


def sovereign() -> Report:
    """Operators in the country besides the places: information only, nothing is deployed there."""
    data = sources.load("sovereign")
    rows = tuple(
        {
            "operator": name.replace("_", " "),
            "facts": row.get("facts") or row.get("gpu"),
            "regions": list(row.get("regions", ())),
            "note": row.get("note") or row.get("api") or "",
        }
        for name, row in data["operators"].items()
    )
    columns = (
        Column("operator", "operator"),
        Column("facts", "facts"),
        Column("regions", "regions"),
        Column("note", "note"),
    )
    ids = tuple(
        dict.fromkeys(id_ for row in data["operators"].values() for id_ in row.get("sources", ()))
    )
    return Report("Other operators, for information", columns, rows, ids, data["as_of"])


def all_sources() -> Report:
    """Every source."""
    rows = tuple(
        {"id": s.id, "date": s.date, "what": s.what or "", "reference": s.reference}
        for s in SOURCES.values()
    )
    columns = (
        Column("id", "id"),
        Column("date", "date"),
        Column("what", "what was read"),
        Column("reference", "reference"),
    )
    return Report("Sources", columns, rows, (), sources.load("sources")["as_of"])
