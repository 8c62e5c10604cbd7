"""Texts and rows that both renderers use, so that text and picture say the same.

A row is one edge, or several that differ in one end alone: what they share is written once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from falaj.stacks.drawing.model import CONTAINERS, INTERNET, OPENNESS, Edge, Node, Picture
from falaj.stacks.lettering import clean

NOTHING: Final = "An empty stack: nothing to draw."
NOTHING_DRAWN: Final = "Nothing of this stack is drawn."
ITSELF: Final = "each to itself"
CLOSED: Final = (
    "Nothing is open to the internet, as far as these resources say; rules of other stacks and "
    "what is made by hand aren't in them."
)
UNSEEN: Final = "What can't be seen yet may be: look again when it is made."
HALF: Final = "half: the other end's rules forbid it"
ENCRYPTION: Final = {
    "customer key": "own key",
    "service key": "service's key",
    "none": "not encrypted",
    "unknown": "key not known",
}
#: Kinds that are shown where things are; the others are ends of flows only.
PLACED: Final = frozenset((
    *CONTAINERS, "pool", "machine", "tier", "workload", "add-on", "balancer", "ingress",
    "endpoint", "gateway", "file system", "store", "database", "registry", "volume", "records",
    "key", "vault", "secret", "authority", "identity", "watch", "names", "other",
))  # fmt: skip
SECTIONS: Final = {
    "places": "Where things are",
    "flow": "What may talk to what",
    "encrypts": "Keys and what they encrypt",
    "reads": "Who may use what",
}
#: What stands before everything else.
_FIRST: Final = ("network", "cluster", "zone", "subnet", "namespace")
#: Members of a group that are named; the rest are counted.
_MOST: Final = 6


def label(node: Node) -> str:
    """A node's name, safe on one line."""
    return clean(node.label) or "(no name)"


def name(picture: Picture, id: str) -> str:
    """A node's name in rows; with its kind, where another one in them is called the same."""
    node = picture.by_id[id]
    others = [each for each in picture.called.get(node.label, ()) if each in picture.related]
    return f"{label(node)} ({node.kind})" if set(others) - {id} else label(node)


def details(node: Node) -> list[str]:
    """What else is said of a node."""
    texts = [clean(each) for each in node.details]
    if node.encryption in ENCRYPTION:
        texts.append(ENCRYPTION[node.encryption])
    return [each for each in texts if each]


def end(picture: Picture, id: str) -> tuple[str, str]:
    """A node as one end of a flow: its name, and who that is."""
    node = picture.by_id[id]
    parts: list[str] = []
    if node.kind == "group":
        owner = "" if not node.is_elsewhere else f"; {clean(' '.join(node.details))}"
        parts.append((_members(picture, node) or "nobody in it here") + owner)
    elif node.kind in {"namespace", "subnet", "network", "range", "service", "list", "pods"}:
        first = f": {clean(node.details[0])}" if node.details else ""
        parts.append(
            f"{node.kind}{first}" if node.kind != "list" else clean(" ".join(node.details))
        )
    elif id != INTERNET:
        parts.append(node.kind)
    shown = name(picture, id) if node.kind not in parts else label(node)
    return shown, " ".join(filter(None, parts))


def verdict(picture: Picture) -> str:
    """What is said where nothing is open to the internet, with what can't be seen yet."""
    return f"{CLOSED} {UNSEEN}" if is_unsure(picture) else CLOSED


def is_unsure(picture: Picture) -> bool:
    """Whether something might be open to the internet that can't be seen yet."""
    unseen = {each.id for each in picture.nodes if each.is_unseen}
    rules = any({each.source, each.target} & unseen for each in picture.of_kind("flow"))
    return rules or OPENNESS in picture.hidden


def _members(picture: Picture, node: Node) -> str:
    """Who is in a group, and who may be; empty where nobody is."""
    groups: list[str] = []
    for start, ids in (("", node.members), ("perhaps ", node.possible)):
        found = [name(picture, each) for each in ids if each in picture.by_id]
        more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
        groups += [f"{start}{', '.join(found[:_MOST])}{more}"] if found else []
    return "; ".join(groups)


#: What is said of groups with members that aren't the source of a row.
_TAKING: Final = "Who is in groups that only take in"
_SHUT: Final = "No rule of these groups lets anything through"
_ELSEWHERE: Final = "Rules of groups that aren't of this stack decide too"


def quiet_groups(picture: Picture) -> str:
    """Groups with members that aren't the source of any flow, in sentences; empty without any."""
    flows = picture.of_kind("flow")
    sources, targets = ({getattr(each, end) for each in flows} for end in ("source", "target"))
    found: dict[str, list[str]] = {_TAKING: [], _SHUT: [], _ELSEWHERE: []}
    for node in picture.nodes:
        if node.kind != "group" or node.id in sources or not (who := _members(picture, node)):
            continue
        if node.id in targets:
            found[_TAKING].append(f"{label(node)} ({who})")
        elif node.is_elsewhere:
            found[_ELSEWHERE].append(f"{label(node)} {clean(' '.join(node.details))} ({who})")
        else:
            found[_SHUT].append(f"{label(node)} ({who})")
    return " ".join(f"{what}: {'; '.join(given)}." for what, given in found.items() if given)


def hidden(picture: Picture) -> str:
    """What can't be told before it is made, in a sentence; empty where nothing is hidden."""
    parts: list[str] = []
    for what, names in picture.hidden.items():
        listed = [clean(each) for each in names[:_MOST]]
        more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
        parts.append(f"{what} ({', '.join(listed)}{more})")
    return f"Not known before it is made: {'; '.join(parts)}." if parts else ""


def ways(picture: Picture) -> list[str]:
    """Everything that is open to the internet, in sentences; empty where nothing is."""
    lines: list[str] = []
    for inward in (True, False):
        for each in picture.ways(inward):
            other = picture.by_id[each.target if inward else each.source]
            what = clean(each.label) or "everything"
            name = f"{other.kind} {label(other)}"
            arrow = (
                f"the internet may reach {name}" if inward else f"{name} may reach the internet"
            )
            lines.append(f"{arrow}: {what}")
    return list(dict.fromkeys(lines))


def placed(picture: Picture, container: str) -> list[Node]:
    """The nodes in a container that are shown in it, containers last."""
    found = [each for each in picture.inside(container) if each.kind in PLACED]
    shown = [
        each
        for each in found
        if each.kind not in CONTAINERS or not each.is_elsewhere or placed(picture, each.id)
    ]
    return sorted(shown, key=lambda each: _place_rank(picture, each))


def _place_rank(picture: Picture, node: Node) -> tuple[object, ...]:
    top = _FIRST.index(node.kind) if node.kind in _FIRST else len(_FIRST)
    return (not holds(picture, node), top, node.kind, node.label, node.id) if node.container else (
        top, node.kind, node.label, node.id,
    )  # fmt: skip


def holds(picture: Picture, node: Node) -> bool:
    """Whether something is shown inside of a node, so that it is a box of its own."""
    return bool(placed(picture, node.id))


def left_out(picture: Picture) -> str:
    """What isn't drawn, in a sentence; empty where everything is."""
    total = sum(picture.left_out.values())
    if not total:
        return ""
    resources = count(total, "resource", "resources")
    kinds = sorted(picture.left_out.items(), key=lambda each: (-each[1], each[0]))
    named = ", ".join(f"{count} {clean(kind.rpartition(':')[2])}" for kind, count in kinds[:_MOST])
    more = f" and {len(kinds) - _MOST} more types" if len(kinds) > _MOST else ""
    return f"Not drawn, as settings and parts of what is: {resources} ({named}{more})."


def count(number: int, one: str, many: str) -> str:
    """``1 store``, ``2 stores``."""
    return f"{number} {one if number == 1 else many}"


def title(picture: Picture) -> str:
    """The drawing's title."""
    return f"Stack {clean(picture.name)}" if picture.name else "A stack"


def names(picture: Picture, ids: Sequence[str]) -> str:
    """Names of several nodes."""
    return ", ".join(name(picture, each) for each in ids)


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
    rows = [
        f"{protocol} {', '.join(sorted(dict.fromkeys(given), key=_first))}"
        for protocol, given in sorted(ports.items())
    ]
    return rows + list(dict.fromkeys(sorted(others)))


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
