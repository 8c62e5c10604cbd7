"""Placement: the first place in the country that is healthy and sells what is asked.

Sending data to another country is never the answer: a place abroad is refused even when none at
home fits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from falaj.components.catalogue.demand import Demand
from falaj.components.catalogue.machines import MachineType
from falaj.components.catalogue.place import PLACES, REGIONS, Place, parse
from falaj.components.catalogue.sources import (
    DegradedRegionError,
    NotSoldError,
    PlaceError,
    PlacementError,
)

# A context's name is free text for Kubernetes; this leaves out blanks and control characters,
# which nobody could tell apart in a message.
_CLUSTER = re.compile(r"^kubernetes/[^\s]{1,253}$")


@dataclass(frozen=True)
class ClusterPlace:
    """An existing cluster, by the context of its kubeconfig. The catalogue knows nothing of it."""

    context: str

    @property
    def name(self) -> str:
        """``kubernetes/<context>``."""
        return f"kubernetes/{self.context}"


@dataclass(frozen=True)
class Choice:
    """The place that was taken, and why."""

    place: Place | ClusterPlace
    machines: tuple[MachineType, ...]
    """For each demand, in order, the cheapest machine type; empty for a cluster."""
    reasons: tuple[str, ...]
    """Why each earlier place was passed over, then why this one was taken."""

    def __str__(self) -> str:
        return "; ".join(self.reasons)


def choose(
    places: Sequence[str],
    demands: Sequence[Demand],
    acknowledged: Mapping[str, str | date] | None = None,
    *,
    confirmed_clusters: Collection[str] = (),
) -> Choice:
    """Take the first place that can be used and sells everything that is demanded.

    Args:
        places: in order of preference: ``azure/uaenorth``, ``aws/me-central-1``,
            ``kubernetes/<context>``.
        demands: what machines have to have, each. Zones of a demand belong to one cloud only, so
            name them only with a single place.
        acknowledged: for each degraded place (``aws/me-central-1``) or region, the date of the
            report that was read and accepted. Default: degraded places are passed over.
        confirmed_clusters: places ``kubernetes/<context>`` of which the caller knows that they
            stand in the country and have what is demanded: the catalogue can't. Default: none,
            and such places are passed over.

    Raises:
        PlaceError: a place that is abroad or malformed, wherever it stands in the list, no place
            at all, or an acknowledgement or confirmation of something else.
        PlacementError: none of the places fits; the message has the reason for each.
    """
    known = _parse(places, confirmed_clusters)
    dates = _dates(acknowledged or {})
    reasons: list[str] = []
    for place in known:
        if isinstance(place, ClusterPlace):
            if place.name in confirmed_clusters:
                reasons.append(
                    f"{place.name} taken: confirmed by the caller, not by the catalogue"
                )
                return Choice(place, (), tuple(reasons))
            reasons.append(
                f"{place.name} passed over: the catalogue can't know where it stands and what it "
                "has, and nobody confirmed it"
            )
            continue
        try:
            place.require_healthy(dates.get(place.name, dates.get(place.region)))
            machines = tuple(place.first(demand) for demand in demands)
        except (DegradedRegionError, NotSoldError, PlaceError) as error:
            reasons.append(f"{place.name} passed over: {error}")
            continue
        reasons.append(f"{place.name} taken: {_why(place, machines)}")
        return Choice(place, machines, tuple(reasons))
    listed = "\n".join(f"  {reason}" for reason in reasons)
    raise PlacementError(f"no place in the country fits:\n{listed}")


def _parse(places: Sequence[str], confirmed: Collection[str]) -> list[Place | ClusterPlace]:
    if isinstance(places, str) or not places:
        raise PlaceError(
            f"places is {places!r}; allowed: a list of at least one of {', '.join(PLACES)} and "
            "kubernetes/<context>"
        )
    unknown = [name for name in confirmed if name not in places]
    if unknown:
        raise PlaceError(
            f"confirmed_clusters names {', '.join(sorted(unknown))}, which is not among the "
            f"places ({', '.join(places)})"
        )
    return [
        ClusterPlace(name.partition("/")[2]) if _CLUSTER.match(name) else parse(name)
        for name in places
    ]


def _dates(acknowledged: Mapping[str, str | date]) -> Mapping[str, str | date]:
    unknown = [name for name in acknowledged if name not in (*PLACES, *REGIONS)]
    if unknown:
        raise PlaceError(
            f"acknowledged names {', '.join(map(repr, unknown))}; allowed: {', '.join(PLACES)}"
        )
    return acknowledged


def _why(place: Place, machines: tuple[MachineType, ...]) -> str:
    state = (
        f"its degraded status of {place.status.as_of.isoformat()} was acknowledged"
        if place.status.degraded
        else f"no report of degradation as of {place.status.as_of.isoformat()}"
    )
    if not machines:
        return state
    return f"{state}; it sells {', '.join(dict.fromkeys(m.name for m in machines))}"
