"""What a drawing shows: things and where they are, who may talk to whom, what encrypts what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, get_args

NodeKind = Literal[
    # What holds others.
    "network", "zone", "subnet", "cluster", "namespace", "area",
    # What computes, and what lets callers in.
    "pool", "machine", "tier", "workload", "add-on", "balancer", "ingress", "endpoint", "gateway",
    # What keeps something.
    "file system", "store", "database", "registry", "volume", "records",
    # What protects.
    "key", "vault", "secret", "authority", "identity", "watch",
    # What is named in rules alone.
    "group", "pods", "range", "service", "list",
    "names", "other",
    # Everybody.
    "internet",
]  # fmt: skip
EdgeKind = Literal["flow", "encrypts", "reads"]
EDGE_KINDS: Final[tuple[EdgeKind, ...]] = get_args(EdgeKind)
"""In the order in which they are told."""
End = Literal["in", "out"]

INTERNET: Final = "internet"
"""Id of the node that stands for everybody."""
OPENNESS: Final = "whether it is open to the internet"
"""What isn't known of a resource, in `Picture.hidden`."""
UNSEEN: Final = "unseen:"
"""What ids of nodes begin with that stand for what nobody can see yet."""
CONTAINERS: Final = frozenset(("network", "zone", "subnet", "cluster", "namespace", "area"))


@dataclass(frozen=True)
class Node:
    """One thing."""

    id: str
    """The resource's URN, or a made-up one such as ``range:10.0.0.0/8``."""
    kind: NodeKind
    label: str
    details: tuple[str, ...] = ()
    """What else is worth knowing: sizes, address ranges, services."""
    container: str = ""
    """Id of the node that it is in; empty at the top."""
    urn: str = ""
    """Of the resource that it stands for; empty where it stands for none."""
    encryption: str = ""
    """Of what keeps data: ``customer key``, ``service key``, ``none`` or ``unknown``."""
    members: tuple[str, ...] = ()
    """Of a group of the firewall: ids of the nodes that are in it."""
    possible: tuple[str, ...] = ()
    """Ids of the nodes of which a preview doesn't know yet whether they are in it."""
    is_elsewhere: bool = False
    """Whether another stack has it."""

    @property
    def is_unseen(self) -> bool:
        """Whether it stands for somebody that can't be seen yet."""
        return self.id.startswith(UNSEEN)


@dataclass(frozen=True)
class Edge:
    """A relation between two nodes."""

    kind: EdgeKind
    source: str
    target: str
    label: str = ""
    """Of a flow its ports, of others what it is about."""
    urns: tuple[str, ...] = ()
    """The resources that say so."""
    ends: frozenset[End] = frozenset()
    """Of a flow between groups: whether the source may send (``out``), the target take in
    (``in``). Empty where no group decides."""
    is_half: bool = False
    """Whether one of two ends forbids what the other one allows."""

    @property
    def is_open(self) -> bool:
        """Whether everybody is at one of its ends."""
        return self.kind == "flow" and INTERNET in {self.source, self.target}


@dataclass(frozen=True)
class Picture:
    """What is drawn of a stack."""

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many resources of which types aren't drawn, because they are settings or parts of
    others."""
    hidden: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """What can't be told before it is made: names of resources by what isn't known of them."""

    @cached_property
    def by_id(self) -> Mapping[str, Node]:
        """Nodes by id."""
        return {each.id: each for each in self.nodes}

    @cached_property
    def called(self) -> Mapping[str, tuple[str, ...]]:
        """Ids of the nodes by their label."""
        found: dict[str, list[str]] = {}
        for each in self.nodes:
            found.setdefault(each.label, []).append(each.id)
        return {label: tuple(ids) for label, ids in found.items()}

    @cached_property
    def related(self) -> frozenset[str]:
        """Ids of the nodes that are an end of an edge, or a member of one."""
        ends = {id for each in self.edges for id in (each.source, each.target)}
        groups = [each for each in self.nodes if each.id in ends or each.kind == "group"]
        return frozenset(ends.union(*((*each.members, *each.possible) for each in groups)))

    @cached_property
    def _children(self) -> Mapping[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for each in self.nodes:
            found.setdefault(each.container, []).append(each)
        return found

    def inside(self, container: str) -> list[Node]:
        """The nodes that are directly in a container; with an empty id those at the top."""
        return list(self._children.get(container, ()))

    def of_kind(self, kind: EdgeKind) -> list[Edge]:
        """The edges of a kind."""
        return [each for each in self.edges if each.kind == kind]

    @cached_property
    def opened(self) -> Mapping[str, tuple[str, ...]]:
        """Ids of the nodes that the internet reaches, or that reach it, with what is open.

        Members of an open group are open as well, and those that may be in it may be.
        """
        found: dict[str, list[str]] = {}
        for each in self.edges:
            if not each.is_open or each.source == each.target:
                continue
            inward = each.source == INTERNET
            other = each.target if inward else each.source
            label = f"{'from' if inward else 'to'} the internet: {each.label or 'everything'}"
            node = self.by_id.get(other)
            for one in (other, *(node.members if node else ())):
                found.setdefault(one, []).append(label)
            for one in node.possible if node else ():
                found.setdefault(one, []).append(f"perhaps {label}")
        return {key: tuple(dict.fromkeys(labels)) for key, labels in found.items()}

    def ways(self, inward: bool) -> list[Edge]:
        """Edges from the internet, or to it."""
        end = "source" if inward else "target"
        return [each for each in self.edges if each.is_open and getattr(each, end) == INTERNET]

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "stack": self.name,
            "nodes": [_node(each) for each in self.nodes],
            "edges": [_edge(each) for each in self.edges],
            "leftOut": dict(self.left_out),
            "hidden": {what: list(names) for what, names in self.hidden.items()},
        }


def _node(node: Node) -> dict[str, Any]:
    return {
        "id": node.id,
        "kind": node.kind,
        "label": node.label,
        "details": list(node.details),
        "container": node.container or None,
        "urn": node.urn or None,
        "encryption": node.encryption or None,
        "members": list(node.members),
        "possible": list(node.possible),
        "elsewhere": node.is_elsewhere,
    }


def _edge(edge: Edge) -> dict[str, Any]:
    return {
        "kind": edge.kind,
        "source": edge.source,
        "target": edge.target,
        "label": edge.label,
        "urns": list(edge.urns),
        "ends": sorted(edge.ends),
        "half": edge.is_half,
        "open": edge.is_open,
    }


def in_order(nodes: Iterable[Node]) -> Iterator[Node]:
    """Nodes by kind and label: the same picture, in whatever order a program declared them."""
    return iter(sorted(nodes, key=lambda each: (each.kind, each.label, each.id)))
