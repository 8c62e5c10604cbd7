"""Microsoft.Compute: reserved capacity and placement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, invented, known, machines, naming
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.model import Problem

RESERVATION: Final = "azure-native:compute:CapacityReservation"


def reserved(ask: Ask, path: str, group: str, size: str | None) -> Iterator[Problem]:
    """A problem when a group of reservations holds none of the size."""
    if ask.world is None or size is None or known.by_id(ask.world, group) is None:
        return
    sizes = {
        Ask(RESERVATION, made.inputs, {}).text("sku.name")
        for made in ask.world.all(RESERVATION)
        if made.id.lower().startswith(group.lower() + "/")
    }
    if size not in sizes:
        held = ", ".join(sorted(item for item in sizes if item)) or "nothing"
        yield Problem(
            path, f"the group reserves {held}, not {size}; add a reservation of that size"
        )


def _reservation_problems(ask: Ask) -> Iterator[Problem]:
    yield from checks.needs(ask, "sku.name", "name a size")
    yield from checks.needs(ask, "sku.capacity", "say how many machines")
    yield from machines.sold("sku.name", ask.region, ask.text("sku.name"))
    yield from checks.between(ask, "sku.capacity", 0, 1000)
    if len(ask.items("zones")) > 1:
        yield Problem("zones", "a reservation is in one zone; make one for each")


def _reservation_conflicts(ask: Ask) -> Iterator[Problem]:
    parent = known.by_id(ask.world, ask.id.rsplit("/", 2)[0]) if ask.world and ask.id else None
    if parent is None:
        return
    allowed = {text for _, text in Ask("", parent.inputs, {}).texts("zones")}
    given = {text for _, text in ask.texts("zones")}
    if given - allowed or (allowed and not given):
        listed = ", ".join(sorted(allowed)) or "none"
        yield Problem(
            "zones", f"the group's zones are {listed}; the reservation must be in one of them"
        )


def _reservation_outputs(ask: Ask) -> dict[str, Any]:
    return {
        "reservationId": invented.guid("reservation", ask.id or ""),
        "provisioningTime": invented.MOMENT,
        "timeCreated": invented.MOMENT,
    }


def _group_outputs(ask: Ask) -> dict[str, Any]:
    del ask
    return {"capacityReservations": [], "virtualMachinesAssociated": []}


KINDS: Final = (
    Kind(
        "azure-native:compute:CapacityReservationGroup",
        "Microsoft.Compute/capacityReservationGroups/{capacityReservationGroupName}",
        name=naming.COMPUTE,
        is_held_by_children=True,
        is_held_by_references=True,
        replaces=frozenset({"zones"}),
        outputs=_group_outputs,
    ),
    Kind(
        RESERVATION,
        "Microsoft.Compute/capacityReservationGroups/{capacityReservationGroupName}/"
        "capacityReservations/{capacityReservationName}",
        name=naming.COMPUTE,
        replaces=frozenset({"zones", "sku.name"}),
        problems=_reservation_problems,
        conflicts=_reservation_conflicts,
        outputs=_reservation_outputs,
    ),
    Kind(
        "azure-native:compute:ProximityPlacementGroup",
        "Microsoft.Compute/proximityPlacementGroups/{proximityPlacementGroupName}",
        name=naming.COMPUTE,
        is_held_by_references=True,
        replaces=frozenset({"zones", "proximityPlacementGroupType"}),
    ),
)
