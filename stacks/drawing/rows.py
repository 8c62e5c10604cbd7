"""Edges as rows that people read: what is the same for several ends is said once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from falaj.stacks.drawing.model import INTERNET, Edge, Node, Picture

#: From so many sources on, a row is for all of them; ranges are few and go together at once.
_MANY: Final = 3
_PORTS: Final = re.compile(r"(tcp|udp|tcp/udp) (\d[\d, -]*)")


@dataclass(frozen=True)
class Row:
    """What some nodes may do to some others."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    labels: tuple[str, ...]
    is_half: bool = False
    is_within: bool = False
    """Whether each source talks to itself alone; there are no targets then."""

    @property
    def label(self) -> str:
        """What it is about, in words."""
        return "; ".join(joined(self.labels))

    @property
    def is_open(self) -> bool:
        """Whether everybody is at one of its ends."""
        return INTERNET in {*self.sources, *self.targets}


def joined(labels: Sequence[str]) -> list[str]:
    """Labels in order, ports of one protocol together."""
    ports: dict[str, list[str]] = {}
    others: list[str] = []
    for each in labels:
        found = _PORTS.fullmatch(each)
        if found:
            ports.setdefault(found[1], []).extend(found[2].split(", "))
        else:
            others.append(each)
    said = [
        f"{protocol} {', '.join(sorted(dict.fromkeys(given), key=_first))}"
        for protocol, given in sorted(ports.items())
    ]
    return said + list(dict.fromkeys(sorted(others)))


def _first(port: str) -> int:
    return int(port.partition("-")[0])


def rows(picture: Picture, edges: Iterable[Edge]) -> list[Row]:
    """Edges as rows: those of the internet first, then by source.

    Args:
        picture: whose edges.
        edges: of one kind.
    """
    pairs: dict[tuple[str, str, bool], list[str]] = {}
    for each in edges:
        pairs.setdefault((each.source, each.target, each.is_half), []).append(each.label)
    found = [
        Row((source,), (target,), tuple(sorted(filter(None, labels))), half)
        for (source, target, half), labels in pairs.items()
    ]

    def order(ids: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(ids, key=lambda id: _rank(picture.by_id[id])))

    by_targets = _merger(lambda each: each.sources, lambda _: True, order, into="targets")
    by_sources = _merger(
        lambda each: each.targets,
        lambda each: len(each) >= _MANY or all(_is_range(picture, one) for one in each),
        order,
        into="sources",
    )
    within = _within(found, order)
    found = [each for each in found if each not in within[0]]
    for merge in (by_targets, by_sources, by_targets):
        found = merge(found)
    found += within[1]
    return sorted(found, key=lambda each: _row_rank(picture, each))


def _within(
    given: list[Row], order: Callable[[Iterable[str]], tuple[str, ...]]
) -> tuple[list[Row], list[Row]]:
    """Rows of many that each talk to themselves, and the ones that stand for them."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for each in given:
        if each.sources == each.targets:
            groups.setdefault((each.labels, each.is_half), []).append(each)
    many = [group for group in groups.values() if len(group) >= _MANY]
    made = [
        replace(
            group[0],
            sources=order({id for each in group for id in each.sources}),
            targets=(),
            is_within=True,
        )
        for group in many
    ]
    return [each for group in many for each in group], made


def _is_range(picture: Picture, row: Row) -> bool:
    return all(picture.by_id[id].kind == "range" for id in row.sources)


def _merger(
    same: Callable[[Row], tuple[str, ...]],
    may: Callable[[list[Row]], bool],
    order: Callable[[Iterable[str]], tuple[str, ...]],
    *,
    into: str,
) -> Callable[[list[Row]], list[Row]]:
    def merge(given: list[Row]) -> list[Row]:
        groups: dict[tuple[object, ...], list[Row]] = {}
        for each in given:
            # Whoever talks to everybody keeps a row of its own.
            alone = (each.sources, each.targets) if each.is_open else ()
            key = (same(each), each.labels, each.is_half, alone)
            groups.setdefault(key, []).append(each)
        merged: list[Row] = []
        for group in groups.values():
            if len(group) == 1 or not may(group):
                merged += group
                continue
            ids = order({id for each in group for id in getattr(each, into)})
            merged.append(replace(group[0], **{into: ids}))
        return merged

    return merge


def _rank(node: Node) -> tuple[bool, str, str]:
    return node.kind == "range", node.label, node.id


def _row_rank(picture: Picture, row: Row) -> tuple[object, ...]:
    def labels(ids: tuple[str, ...]) -> list[str]:
        return [picture.by_id[id].label for id in ids]

    return (
        not row.is_open,
        row.targets == (INTERNET,),
        labels(row.sources)[0],
        row.sources,
        labels(row.targets),
        row.targets,
        row.label,
        row.is_half,
    )
