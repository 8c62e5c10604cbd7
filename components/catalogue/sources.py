"""Where the catalogue's facts come from: its sources, its data files, and its errors."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any


class CatalogueError(Exception):
    """Something was asked for that the catalogue cannot grant.

    The message says what was wrong, what was given, what is allowed and what to change.
    """


class PlaceError(CatalogueError):
    """A cloud or region that is not one of the country's, or that nobody has heard of."""


class DegradedRegionError(CatalogueError):
    """A region is reported as degraded and the report was not acknowledged by its date."""


class DemandError(CatalogueError):
    """A demand that makes no sense anywhere: a misspelt GPU, a negative count, an unknown word."""


class NotSoldError(CatalogueError):
    """What is asked for is not sold in the place; the message names what is."""


class PlacementError(CatalogueError):
    """None of the places named can take what is asked; the message has a reason for each."""


# The JSON files; numbers with a fraction arrive as exact decimals.

_PACKAGE = "falaj.components.catalogue.data"

REGION_FILES = ("aws_me_central_1", "azure_uaenorth", "azure_uaecentral")
"""Files that describe a region each, in the order in which places are listed."""


@cache
def load(name: str) -> dict[str, Any]:
    """Content of ``data/<name>.json``; read once, never to be changed by the caller."""
    text = resources.files(_PACKAGE).joinpath(f"{name}.json").read_text(encoding="utf-8")
    return json.loads(text, parse_float=Decimal)


@dataclass(frozen=True)
class Source:
    """One source: a document, a data set or a vendor's page."""

    id: str
    what: str | None
    """What was read in it; None where its reference says it."""
    reference: str
    """Repository and commit, package and version, or address."""
    date: str
    """Date or range of dates of its content, as far as known."""

    def __str__(self) -> str:
        what = f"{self.what}: " if self.what else ""
        return f"{self.id} ({self.date}): {what}{self.reference}"


def _load() -> dict[str, Source]:
    return {
        id_: Source(id_, row["what"], row["ref"], row["date"])
        for id_, row in load("sources")["sources"].items()
    }


SOURCES = _load()
"""Every source by its id."""


def source(id_: str) -> Source:
    """The source of that id.

    Raises:
        CatalogueError: for an id that the catalogue doesn't have.
    """
    try:
        return SOURCES[id_]
    except KeyError:
        raise CatalogueError(
            f"no source has the id {id_!r}; `falaj catalogue sources` lists them"
        ) from None


def sources_of(ids: Iterable[str]) -> tuple[Source, ...]:
    """The sources of these ids, each once, in the order of the catalogue's list."""
    wanted = {source(id_).id for id_ in ids}
    return tuple(found for id_, found in SOURCES.items() if id_ in wanted)
