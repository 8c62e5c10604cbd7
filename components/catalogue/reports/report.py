"""A report: a table and what has to be said below it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from falaj.components.catalogue.place import Place
from falaj.components.catalogue.tables import Column

Row = Mapping[str, object]


@dataclass(frozen=True)
class Report:
    """A table with what has to be said below it."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    """More values than the table has columns: JSON shows all of them."""
    source_ids: tuple[str, ...]
    as_of: str
    notes: tuple[str, ...] = ()


def once(ids: Iterable[str]) -> tuple[str, ...]:
    """The ids without repetitions, in order."""
    return tuple(dict.fromkeys(ids))


def place_sources(chosen: Sequence[Place]) -> tuple[str, ...]:
    """Sources of what the places sell."""
    return once(id_ for p in chosen for id_ in p.sources)


def place_dates(chosen: Sequence[Place]) -> str:
    """Date of each place's data."""
    return ", ".join(f"{p.name} {p.as_of}" for p in chosen) or "not dated"
