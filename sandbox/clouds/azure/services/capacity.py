"""Microsoft.Compute: reserved capacity and placement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import existing, generated, machines, naming, places
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import between, longer_than, refused, required

RESERVATION: Final = "azure-native:compute:CapacityReservation"


def reserved(resource: Resource, path: str, group: str, size: str | None) -> Iterator[Problem]:
    """A problem when a group of reservations holds none of the size."""
    if size is None or existing.by_id(resource.world, group) is None:
        return
    sizes = {
        Inputs(made.inputs).optional_string("sku.name")
        for made in resource.world.all(RESERVATION)
        if made.id.lower().startswith(group.lower() + "/")
    }
    if size not in sizes:
        held = ", ".join(sorted(item for item in sizes if item)) or "nothing"
        yield Problem(
            path, f"the group reserves {held}, not {size}; add a reservation of that size"
        )


def _reservation_problems(inputs: Inputs) -> Iterator[Problem]:
    yield from machines.sold("sku.name", places.region(inputs), inputs.optional_string("sku.name"))


def _reservation_conflicts(resource: Resource) -> Iterator[Problem]:
    parent = existing.by_id(resource.world, resource.id.rsplit("/", 2)[0]) if resource.id else None
    if parent is None:
        return
    allowed = {text for _, text in Inputs(parent.inputs).strings("zones")}
    given = {text for _, text in resource.strings("zones")}
    if given - allowed or (allowed and not given):
        listed = ", ".join(sorted(allowed)) or "none"
        yield Problem(
            "zones", f"the group's zones are {listed}; the reservation must be in one of them"
        )


def _reservation_outputs(resource: Resource) -> dict[str, Any]:
    return {
        "reservationId": generated.guid("reservation", resource.id),
        "provisioningTime": generated.MOMENT,
        "timeCreated": generated.MOMENT,
    }


def _group_outputs(inputs: Inputs) -> dict[str, Any]:
    del inputs
    return {"capacityReservations": [], "virtualMachinesAssociated": []}


KINDS: Final = (
    AzureKind(
        "azure-native:compute:CapacityReservationGroup",
        "Microsoft.Compute/capacityReservationGroups/{capacityReservationGroupName}",
        name=naming.COMPUTE,
        is_held_by_children=True,
        is_held_by_references=True,
        replaces=("zones",),
        computed=_group_outputs,
    ),
    AzureKind(
        RESERVATION,
        "Microsoft.Compute/capacityReservationGroups/{capacityReservationGroupName}/"
        "capacityReservations/{capacityReservationName}",
        name=naming.COMPUTE,
        replaces=("zones", "sku.name"),
        rules=(
            required("sku.name", "name a size"),
            required("sku.capacity", "say how many machines"),
            between("sku.capacity", 0, 1000),
            refused(
                "zones", "a reservation is in one zone; make one for each",
                longer_than("zones", 1),
            ),
            _reservation_problems,
        ),
        crosschecks=(_reservation_conflicts,),
        computed=_reservation_outputs,
    ),
    AzureKind(
        "azure-native:compute:ProximityPlacementGroup",
        "Microsoft.Compute/proximityPlacementGroups/{proximityPlacementGroupName}",
        name=naming.COMPUTE,
        is_held_by_references=True,
        replaces=("zones", "proximityPlacementGroupType"),
    ),
)  # fmt: skip
