"""Collects the nodes and edges of a drawing, each once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from falaj.policies.model import Resource, Stack, leaves, select
from falaj.policies.reading.addresses import is_open, network
from falaj.stacks.drawing.model import INTERNET, UNSEEN, Edge, EdgeKind, End, Kind, Node
from falaj.stacks.drawing.references import References
from falaj.stacks.drawing.traffic import Traffic


class Builder:
    """A drawing in the making."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.references = References(stack)
        self.nodes: dict[str, Node] = {}
        self._edges: dict[tuple[str, str, str, str], Edge] = {}
        self._rules: list[tuple[str, str, End, Traffic]] = []
        self._by_range: dict[str, list[str]] = {}
        self._by_urn: dict[str, list[str]] = {}
        self._hidden: dict[str, dict[str, None]] = {}

    def node(
        self,
        id: str,
        kind: Kind,
        label: str,
        *details: str,
        container: str = "",
        is_elsewhere: bool = False,
    ) -> str:
        """Have a node that stands for no resource of the stack; returns its id."""
        if id not in self.nodes:
            given = tuple(filter(None, details))
            self.nodes[id] = Node(id, kind, label, given, container, is_elsewhere=is_elsewhere)
        return id

    def stand_for(
        self, resource: Resource, kind: Kind, *details: str, container: str = "", label: str = ""
    ) -> str:
        """Have a node for a resource; returns its id."""
        id = resource.urn
        given = tuple(filter(None, details))
        self.nodes[id] = Node(id, kind, label or resource.name, given, container, resource.urn)
        self._by_urn.setdefault(resource.urn, [id])
        for each in given if kind in {"network", "subnet"} else ():
            self._by_range.setdefault(str(network(each)), []).append(id)
        return id

    def change(self, id: str, **changes: object) -> None:
        """Say more of a node that is there."""
        self.nodes[id] = replace(self.nodes[id], **changes)  # pyright: ignore[reportArgumentType]
        known = self._by_urn.setdefault(self.nodes[id].urn, [])
        if id not in known:
            known.append(id)

    def standing_for(self, resource: Resource) -> list[str]:
        """Ids of the nodes that stand for a resource, or for objects in it."""
        return list(self._by_urn.get(resource.urn, ()))

    def hide(self, what: str, resource: Resource) -> None:
        """Note what can't be told of a resource before it is made."""
        self._hidden.setdefault(what, {})[resource.name] = None

    @property
    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Names of resources by what can't be told of them, in order."""
        return {what: tuple(sorted(names)) for what, names in sorted(self._hidden.items())}

    def internet(self) -> str:
        """The node that stands for everybody."""
        return self.node(INTERNET, "internet", "The internet")

    def addresses(self, value: object) -> str:
        """The node of a range of addresses: everybody, where it stands for them."""
        if is_open(value):
            return self.internet()
        found = network(value)
        said = str(found) if found is not None else str(value)
        own = self._by_range.get(said, [])
        if len(own) == 1:
            return own[0]
        return self.node(f"range:{said}", "range", said)

    def choice(self, ids: Iterable[str]) -> str:
        """The node for one of several; itself where there is only one.

        A preview tells what a value is made from, and not which part of that it will be.
        """
        given = sorted(set(ids))
        if len(given) == 1:
            return given[0]
        labels = [self.nodes[each].label for each in given]
        return self.node(
            f"choice:{' '.join(given)}", "list", f"one of {', '.join(labels)}", "not known yet"
        )

    def meant(
        self, resource: Resource, path: str, kinds: Collection[str]
    ) -> tuple[list[Resource], list[str], bool]:
        """What a property means, as `References.at`, and whether that is certain."""
        found, others = self.references.at(resource, path, kinds)
        said = sum(1 for _, value in select(resource.properties, path) for _ in leaves(value))
        return found, others, len(found) + len(others) <= max(said, 1)

    def unseen(self, what: str) -> str:
        """The node for addresses that nobody can see yet."""
        return self.node(f"{UNSEEN}{what}", "range", f"{what} that can't be seen yet")

    def edge(self, kind: EdgeKind, source: str, target: str, label: str = "", *urns: str) -> Edge:
        """Have an edge; the same from two resources is one that both say."""
        key = (kind, source, target, label)
        known = self._edges.get(key) or Edge(kind, source, target, label)
        self._edges[key] = replace(known, urns=tuple(sorted({*known.urns, *urns})))
        return self._edges[key]

    def flow(
        self, source: str, target: str, traffic: Traffic, *urns: str, end: End | None = None
    ) -> None:
        """Have traffic between two nodes.

        Args:
            source: id of the node that begins it.
            target: id of the other one.
            traffic: protocols and ports.
            urns: of the resources that say so.
            end: whose rule it is, where a group's rule decides.
        """
        edge = self.edge("flow", source, target, traffic.label, *urns)
        if end is not None:
            key = (edge.kind, source, target, traffic.label)
            self._edges[key] = replace(edge, ends=edge.ends | {end})
            self._rules.append((source, target, end, traffic))

    def edges(self) -> list[Edge]:
        """All edges, in order, with the flows that one of two groups forbids."""
        groups = {id for id, node in self.nodes.items() if node.kind == "group" and node.urn}
        rules: dict[tuple[str, End], list[tuple[str, Traffic]]] = {}
        for source, target, end, traffic in self._rules:
            own, peer = (source, target) if end == "out" else (target, source)
            rules.setdefault((own, end), []).append((peer, traffic))
        found = [
            replace(each, is_half=True) if self._is_half(each, groups, rules) else each
            for each in self._edges.values()
        ]
        return sorted(found, key=lambda each: (each.kind, each.source, each.target, each.label))

    def _is_half(
        self,
        edge: Edge,
        groups: set[str],
        rules: dict[tuple[str, End], list[tuple[str, Traffic]]],
    ) -> bool:
        """Whether the group at the other end surely has no rule for it.

        A rule for addresses may be for the group's members as well, so that it counts as one.
        """
        if not {edge.source, edge.target} <= groups or len(edge.ends) != 1:
            return False
        needed: End = "out" if "in" in edge.ends else "in"
        own, other = edge.source, edge.target
        if needed == "in":
            own, other = other, own
        said: End = "in" if needed == "out" else "out"
        asked = [
            each
            for peer, each in rules.get((other, said), [])
            if peer == own and each.label == edge.label
        ]
        return not any(
            (peer == other or self.nodes[peer].kind != "group")
            and all(each.covers(one) for one in asked)
            for peer, each in rules.get((own, needed), [])
        )
