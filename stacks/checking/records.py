"""From what packs wrote while they judged to the parts of a result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from falaj.policies.model import Stack
from falaj.policies.reports.result import Outcome, ResourceResult, WaiverUse
from falaj.stacks.checking.locations import Locations
from falaj.stacks.checking.subject import Subject


def resources_of(
    records: Iterable[Mapping[str, Any]],
    stack: Stack,
    subject: Subject | None,
    base: Path | None = None,
) -> Iterator[ResourceResult]:
    """The resources that were judged, each once, with the rules of all packs."""
    locations = Locations.of(subject, stack, base) if subject else None
    merged: dict[str, dict[str, Any]] = {}
    for each in records:
        if each["kind"] == "resource":
            entry = merged.setdefault(each["urn"], {**each, "judged": []})
            entry["judged"] += each["judged"]
    for urn, entry in merged.items():
        place = stack.by_urn.get(urn)
        location = locations.find(place) if locations and place else None
        yield ResourceResult(
            urn,
            entry["type"],
            entry["name"],
            entry["place"],
            entry["encryption"],
            entry["dataClass"],
            location,
            tuple(entry["judged"]),
        )


def outcomes_of(records: Iterable[Mapping[str, Any]]) -> Iterator[Outcome]:
    """The findings, as the packs decided them."""
    for each in records:
        if each["kind"] != "resource":
            continue
        for found in each["outcomes"]:
            waiver = found["waiver"]
            yield Outcome(
                found["rule"],
                each["urn"],
                found["path"],
                found["findingKind"],
                found["reason"],
                found["status"],
                found["severity"],
                WaiverUse(**waiver) if waiver else None,
                found["note"],
            )
