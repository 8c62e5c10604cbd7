"""Places: the country's regions, what each sells, and how each is doing."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any, Literal

from falaj.components.catalogue import region_data, sources, unavailable
from falaj.components.catalogue.demand import Count, Demand, cheapest_first
from falaj.components.catalogue.machines import MachineType
from falaj.components.catalogue.sources import (
    DegradedRegionError,
    DemandError,
    NotSoldError,
    PlaceError,
)
from falaj.components.nearest import nearest


@dataclass(frozen=True)
class Zone:
    """An availability zone."""

    id: str
    """Name of the physical zone, the same for every account: ``mec1-az1``, ``uaenorth-az1``."""
    name: str | None
    """What resources call it: ``1`` on Azure; None on AWS, where letters differ from account to
    account. Azure maps numbers to physical zones for each subscription separately, so that the
    pairing shown is an example."""


@dataclass(frozen=True)
class RegionStatus:
    """What is reported about a region, and when."""

    degraded: bool
    as_of: date
    """Date of the latest statement found; what came after it is unknown."""
    impaired_zones: tuple[str, ...]
    text: str
    signals: tuple[str, ...]
    """What other reports say and later data show."""
    sources: tuple[str, ...]

    def __str__(self) -> str:
        state = "degraded" if self.degraded else "no report of degradation"
        return f"{state} as of {self.as_of.isoformat()}: {self.text}"


@dataclass(frozen=True)
class Service:
    """Whether a region has a service."""

    name: str
    available: bool | None
    """None: unknown."""
    note: str | None
    sources: tuple[str, ...]

    def __str__(self) -> str:
        words = {True: "available", False: "not available", None: "unknown"}
        return words[self.available] + (f" ({self.note})" if self.note else "")


class Place:
    """One region of one cloud inside the country."""

    def __init__(self, file: str) -> None:
        """``file`` is one of `sources.REGION_FILES`; callers use `place`."""
        self._file = file
        self._data: dict[str, Any] = sources.load(file)
        self.cloud: str = self._data["cloud"]
        self.region: str = self._data["region"]
        self.zones = tuple(Zone(row["id"], row["name"]) for row in self._data["zones"])
        row = self._data["status"]
        self.status = RegionStatus(
            row["degraded"],
            date.fromisoformat(row["as_of"]),
            tuple(row["impaired_zones"]),
            row["text"],
            tuple(row["signals"]),
            tuple(row["sources"]),
        )

    @property
    def name(self) -> str:
        """Cloud and region: ``aws/me-central-1``."""
        return f"{self.cloud}/{self.region}"

    @property
    def title(self) -> str:
        """The cloud's own name for it, and the emirate where known."""
        location = self._data["location"]
        return self._data["name"] + (f", {location}" if location else "")

    @property
    def as_of(self) -> str:
        """Date of the data about machines."""
        return self._data["as_of"]

    @property
    def sources(self) -> tuple[str, ...]:
        """Ids of the sources of the machines and zones."""
        return tuple(self._data["sources"])

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know before building there."""
        return tuple(self._data["notes"])

    @property
    def pair(self) -> str | None:
        """The cloud's other region in the country, for recovery; None where it has none."""
        return self._data["pair"]

    @property
    def restricted_access(self) -> bool:
        """Whether the cloud admits customers on request only."""
        return self._data["restricted_access"]

    def __repr__(self) -> str:
        return f"place({self.cloud!r}, {self.region!r})"

    def require_healthy(self, acknowledged: str | date | None = None) -> None:
        """Refuse a degraded region, unless its report was acknowledged by its date.

        Args:
            acknowledged: date of the report that somebody read and accepts: a date (as YAML reads
                one) or its text, ``YYYY-MM-DD``.

        Raises:
            DegradedRegionError: the region is degraded and that date was not given.
        """
        stamp = self.status.as_of.isoformat()
        if not self.status.degraded or str(acknowledged) == stamp:
            return
        given = "no acknowledgement" if acknowledged is None else repr(str(acknowledged))
        raise DegradedRegionError(
            f"region {self.region} is reported as {self.status}; given {given}; after confirming "
            f"with the vendor, acknowledge this report by its date ({stamp}), "
            "or use another place in the country"
        )

    @cached_property
    def _machines(self) -> tuple[MachineType, ...]:
        found = region_data.machines(self._file).values()
        return tuple(sorted(found, key=cheapest_first))

    def machines(self, kind: Literal["gpu", "cpu"] | None = None) -> tuple[MachineType, ...]:
        """Machine types sold there, cheapest first, unknown prices last.

        Args:
            kind: ``gpu`` or ``cpu``. Default: both.
        """
        if kind not in (None, "gpu", "cpu"):
            raise DemandError(f"kind is {kind!r}; allowed: gpu, cpu, or none for both")
        return tuple(m for m in self._machines if kind is None or (kind == "gpu") == bool(m.gpu))

    def machine(self, name: str) -> MachineType:
        """The machine type of that name.

        Raises:
            NotSoldError: when it isn't surely sold there; says why, where known, and what is
                instead.
        """
        found = region_data.machines(self._file).get(name)
        if found is None:
            elsewhere = [p.name for p in all_places() if name in region_data.machines(p._file)]
            why = self._listed(name, (*self.refused, *self.uncertain))
            raise NotSoldError(
                unavailable.machine(
                    self.name,
                    self.machines(),
                    name,
                    why,
                    elsewhere,
                    uncertain=self.is_uncertain(name),
                )
            )
        return found

    def offers(
        self,
        *,
        gpu: str | None = None,
        count: Count = None,
        fabric: str | None = None,
        vcpu: int | None = None,
        memory_gib: float | None = None,
        arch: str | None = None,
        int8: str | None = None,
        zones: Sequence[str] | None = None,
        confidential: bool = False,
    ) -> tuple[MachineType, ...]:
        """Machine types that satisfy a `Demand`, cheapest first, unknown prices last.

        Raises:
            DemandError: a GPU, count, fabric, architecture or instruction set that doesn't exist.
            PlaceError: a zone that the region doesn't have.
        """
        return self.satisfying(
            Demand(
                gpu=gpu,
                count=count,
                fabric=fabric,
                vcpu=vcpu,
                memory_gib=memory_gib,
                arch=arch,
                int8=int8,
                zones=zones,
                confidential=confidential,
            )
        )

    def resolve(
        self,
        *,
        gpu: str | None = None,
        count: Count = None,
        fabric: str | None = None,
        vcpu: int | None = None,
        memory_gib: float | None = None,
        arch: str | None = None,
        int8: str | None = None,
        zones: Sequence[str] | None = None,
        confidential: bool = False,
    ) -> MachineType:
        """The first of `offers`.

        Raises:
            NotSoldError: nothing satisfies it; the message names what is sold, closest first.
            DemandError: see `offers`.
            PlaceError: see `offers`.
        """
        return self.first(
            Demand(
                gpu=gpu,
                count=count,
                fabric=fabric,
                vcpu=vcpu,
                memory_gib=memory_gib,
                arch=arch,
                int8=int8,
                zones=zones,
                confidential=confidential,
            )
        )

    def satisfying(self, demand: Demand) -> tuple[MachineType, ...]:
        """As `offers`, for a demand made before."""
        if demand.zones is not None:
            demand = demand.with_zones(self.zone_ids(demand.zones))
        return tuple(m for m in self._machines if not demand.shortfalls(m))

    def first(self, demand: Demand) -> MachineType:
        """As `resolve`, for a demand made before."""
        found = self.satisfying(demand)
        if not found:
            anywhere = demand.with_zones(None)
            elsewhere = [p for p in all_places() if p is not self and p.satisfying(anywhere)]
            machines = self.machines("gpu" if demand.wants_gpu else "cpu")
            others = [p.name for p in elsewhere]
            raise NotSoldError(unavailable.demand(self.name, machines, demand, others))
        return found[0]

    def zone_ids(self, zones: Sequence[str]) -> tuple[str, ...]:
        """Ids of zones given by id or, on Azure, by number.

        Raises:
            PlaceError: for a zone that the region doesn't have, or an empty list.
        """
        known = {zone.id: zone.id for zone in self.zones}
        known |= {zone.name: zone.id for zone in self.zones if zone.name}
        unknown = [zone for zone in zones if zone not in known]
        if not unknown and zones:
            return tuple(known[zone] for zone in zones)
        listed = ", ".join(
            f"{zone.id} (or {zone.name})" if zone.name else zone.id for zone in self.zones
        )
        allowed = f"allowed: {listed}" if listed else "the region has no zones: leave them out"
        hint = ""
        if any(zone.startswith(self.region) for zone in unknown) and self.cloud == "aws":
            hint = "; letters mean other zones in other accounts: name zones by id"
        given = ", ".join(repr(zone) for zone in unknown) or "an empty list"
        raise PlaceError(f"no such zone in {self.name}: {given}; {allowed}{hint}")

    @property
    def services(self) -> tuple[Service, ...]:
        """Every service that the catalogue speaks of."""
        return tuple(
            Service(name, row["available"], row["note"], tuple(row["sources"]))
            for name, row in self._data["services"].items()
        )

    def service(self, name: str) -> Service:
        """Whether the region has a service; a name that the catalogue lacks is unknown."""
        for found in self.services:
            if found.name.casefold() == name.strip().casefold():
                return found
        near = nearest(name, [s.name for s in self.services], most=3, alike=0.5)
        hint = f"; nearest names: {', '.join(near)}" if near else ""
        return Service(name, None, f"not in the catalogue{hint}", ())

    @property
    def refused(self) -> tuple[tuple[str, str], ...]:
        """Families and sizes that aren't sold, each with the reason."""
        sold_nowhere = [(row["pattern"], row["reason"]) for row in self._data["refused"]]
        metered = [
            (name, row["refused"])
            for name, row in self._data["gpu_machines"].items()
            if row.get("refused")
        ]
        return (*sold_nowhere, *metered)

    @property
    def uncertain(self) -> tuple[tuple[str, str], ...]:
        """Families of which sources contradict each other, each with what they say."""
        return tuple((row["pattern"], row["reason"]) for row in self._data.get("uncertain", ()))

    def is_uncertain(self, name: str) -> bool:
        """Whether it isn't known if a machine type is sold there."""
        return self._listed(name, self.uncertain) is not None

    def _listed(self, name: str, listed: tuple[tuple[str, str], ...]) -> str | None:
        family = name.split(".", maxsplit=1)[0] if self.cloud == "aws" else name
        for pattern, reason in listed:
            if fnmatch.fnmatchcase(family, pattern):
                return reason
        return None


_PLACES = {found.name: found for found in (Place(file) for file in sources.REGION_FILES)}

PLACES: tuple[str, ...] = tuple(_PLACES)
"""Every place that the catalogue knows: ``aws/me-central-1`` …"""

REGIONS: tuple[str, ...] = tuple(found.region for found in _PLACES.values())
"""Every region in the country, as its cloud writes it."""


def place(cloud: str, region: str) -> Place:
    """The place of that cloud and region.

    Raises:
        PlaceError: for a region abroad or one that doesn't exist; names the allowed ones.
    """
    found = _PLACES.get(f"{cloud}/{region}")
    if found is not None:
        return found
    allowed = ", ".join(PLACES)
    raise PlaceError(
        f"{cloud}/{region} is not a place in the country; allowed: {allowed}; "
        "data and machines stay in the United Arab Emirates"
    )


def parse(text: str) -> Place:
    """The place written ``cloud/region``.

    Raises:
        PlaceError: as `place`.
    """
    cloud, _, region = text.partition("/")
    return place(cloud, region)


def all_places() -> tuple[Place, ...]:
    """Every place, in the order of `PLACES`."""
    return tuple(_PLACES.values())
