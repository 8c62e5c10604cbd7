"""Reports about places: zones, state, services, what is refused, and other operators."""

from __future__ import annotations

from collections.abc import Sequence

from falaj.components.catalogue import data_files
from falaj.components.catalogue.place import Place
from falaj.components.catalogue.reports.report import Report, once, place_dates, place_sources
from falaj.components.catalogue.sources import SOURCES
from falaj.components.catalogue.tables import Column


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
    """What isn't sold, with the reason."""
    rows = tuple(
        {"place": p.name, "name": name, "reason": reason}
        for p in chosen
        for name, reason in p.refused
    )
    columns = (
        Column("place", "place"),
        Column("name", "family or size"),
        Column("reason", "why it is refused"),
    )
    return Report("Refused", columns, rows, place_sources(chosen), place_dates(chosen))


def sovereign() -> Report:
    """Operators in the country besides the places: information only, nothing is deployed there."""
    data = data_files.load("sovereign")
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


def sources() -> Report:
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
    return Report("Sources", columns, rows, (), data_files.load("sources")["as_of"])
