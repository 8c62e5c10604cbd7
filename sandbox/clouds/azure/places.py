"""Azure's regions: their names, display names and zones."""

from __future__ import annotations

import difflib
from typing import Any, Final

from falaj.sandbox.clouds.azure import data
from falaj.sandbox.clouds.inputs import Inputs

GLOBAL: Final = "global"
"""The location of what has no region, such as private DNS zones and action groups."""


def _regions() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = data.load("regions")["regions"]
    return found


def normalise(location: str) -> str:
    """The region's name as ids and answers carry it: ``UAE North`` becomes ``uaenorth``."""
    return location.replace(" ", "").lower()


def is_known(location: str) -> bool:
    """Whether the name, in either form, is one of Azure's public regions."""
    return normalise(location) in _regions()


def display_name(region: str) -> str:
    """The name that people see: ``uaenorth`` becomes ``UAE North``."""
    known = _regions().get(normalise(region))
    return str(known["name"]) if known else region


def has_zones(region: str) -> bool | None:
    """Whether the region has availability zones; None when it isn't known."""
    known = _regions().get(normalise(region))
    zones = known.get("zones") if known else None
    return None if zones is None else bool(zones)


def nearest(location: str) -> str | None:
    """The region that the name resembles most."""
    found = difflib.get_close_matches(normalise(location), list(_regions()), n=1, cutoff=0.6)
    return found[0] if found else None


def region(inputs: Inputs) -> str | None:
    """The normalised region of the resource, else its provider's; None when it isn't known."""
    whole = inputs
    while whole.parent is not None:
        whole = whole.parent
    given = whole.at("location")
    if given is None:
        given = whole.config.get("location")
    return normalise(given) if isinstance(given, str) and given else None
