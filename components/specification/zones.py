"""Which zones a component uses: named by the user, or all that are not reported as impaired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from falaj.components import catalogue
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.limits import OneOf
from falaj.components.specification.placed import Placed

#: Stands for the whole region where it has no zones.
REGIONAL = "regional"


def region_zones(place: catalogue.Place) -> tuple[str, ...]:
    """All zones of a region as its cloud's resources name them; `REGIONAL` where it has none.

    AWS is given zone ids (``mec1-az1``), since letters mean something else in each account; Azure
    numbers (``1``).
    """
    if place.cloud == "azure":
        names = tuple(zone.name or zone.id for zone in place.zones)
    else:
        names = tuple(zone.id for zone in place.zones)
    return names or (REGIONAL,)


def chosen_zones(
    placed: Placed, args: Mapping[str, Any], errors: ArgumentErrors
) -> tuple[str, ...]:
    """The zones of the argument ``zones``, in the region's order.

    Default: every zone that is not reported as impaired; all, where each of them is (who gets here
    has acknowledged the region's status).
    """
    known = region_zones(placed.place)
    if args.get("zones") is None:
        return _sound(placed.place, known)
    given = errors.texts("zones", args["zones"])
    for position, zone in enumerate(given):
        if zone not in known:
            errors.add(f"zones[{position}]", zone, OneOf(known))
    if not given:
        errors.add("zones", args["zones"], f"at least one of {', '.join(known)}")
    return tuple(zone for zone in known if zone in given)


def _sound(place: catalogue.Place, known: tuple[str, ...]) -> tuple[str, ...]:
    impaired = set(place.status.impaired_zones)
    sound = tuple(zone for zone in known if zone not in impaired)
    return sound or known
