"""Where the catalogue's facts come from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from falaj.components.catalogue import data_files
from falaj.components.catalogue.errors import CatalogueError


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
        for id_, row in data_files.load("sources")["sources"].items()
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
