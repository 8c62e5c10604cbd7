"""What the clouds sell inside the country, zone by zone, with sources and dates.

>>> from falaj.components import catalogue
>>> place = catalogue.place("aws", "me-central-1")
>>> place.resolve(gpu="H200", count=8, fabric="efa").name
'p5en.48xlarge'

Facts only: nothing here calls a cloud, and nothing is guessed. What no source says is None, and is
printed as unknown.
"""

from __future__ import annotations

from falaj.components.catalogue import cost
from falaj.components.catalogue.cost import Cost, CostRange
from falaj.components.catalogue.demand import Demand
from falaj.components.catalogue.gpus import GPUS, Gpu
from falaj.components.catalogue.machines import InstructionSets, MachineType
from falaj.components.catalogue.place import (
    PLACES,
    REGIONS,
    Place,
    RegionStatus,
    Service,
    Zone,
    all_places,
    parse,
    place,
)
from falaj.components.catalogue.placement import Choice, ClusterPlace, choose
from falaj.components.catalogue.sources import (
    SOURCES,
    CatalogueError,
    DegradedRegionError,
    DemandError,
    NotSoldError,
    PlaceError,
    PlacementError,
    Source,
)

__all__ = [
    "GPUS",
    "PLACES",
    "REGIONS",
    "SOURCES",
    "CatalogueError",
    "Choice",
    "ClusterPlace",
    "Cost",
    "CostRange",
    "DegradedRegionError",
    "Demand",
    "DemandError",
    "Gpu",
    "InstructionSets",
    "MachineType",
    "NotSoldError",
    "Place",
    "PlaceError",
    "PlacementError",
    "RegionStatus",
    "Service",
    "Source",
    "Zone",
    "all_places",
    "choose",
    "cost",
    "parse",
    "place",
]
