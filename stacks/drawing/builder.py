"""Collects the nodes and edges of a drawing, each once; which resource a property means."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from falaj.policies.model import Resource, Stack, is_unknown, leaves, select, text
from falaj.policies.reading.addresses import EVERY_PORT, Ports, is_open, network
from falaj.stacks.drawing.model import INTERNET, UNSEEN, Edge, EdgeKind, End, Node, NodeKind
from falaj.wire import STACK_REFERENCE

# A property means a resource by an id or name, or by what the engine says of its origin. A state
# has every resource's id. A preview has none, but the sandbox predicts what properties will be
# made of: the same id stands in several properties, each of which was made from a few resources,
# and one resource is left that can have it. Where even ids are unknown, all that a property was
# made from is meant.

#: Names of properties that say of an id only what it is the id of.
_PLAIN: Final = frozenset(("security group", "subnet", "node subnet", "key", "kms key", "vpc"))
#: Shorter texts are no ids.
_SHORTEST: Final = 3


class References:
    """What the resources of a stack say of each other."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    @cached_property
    def _candidates(self) -> dict[str, frozenset[str]]:
        """Of each text that properties were made of: URNs of which one has it as its id."""
        found: dict[str, frozenset[str]] = {}
        for each in self.stack.resources:
            if not each.custom:
                continue
            for key, urns in each.dependencies.items():
                known = frozenset(urns)
                for _, value in leaves(each.properties.get(key)) if known else ():
                    name = text(value).lower()
                    if len(name) >= _SHORTEST:
                        found[name] = found[name] & known if name in found else known
        return found

    def named(self, value: object, kinds: Collection[str]) -> Resource | None:
        """The one resource of these types that has this id, ARN or name; None for none."""
        name = text(value)
        if not name:
            return None
        # An ARN ends in the resource's own id, which may be told where the whole isn't.
        for part in dict.fromkeys((name, name.rstrip("/").rpartition("/")[2])):
            found = self._candidate(part, kinds)
            if len(found) > 1:
                last = part.rstrip("/").rpartition("/")[2].lower()
                found = [each for each in found if last in _names(each)]
            if len(found) == 1:
                return found[0]
        return None

    def _candidate(self, name: str, kinds: Collection[str]) -> list[Resource]:
        direct = [each for each in self.stack.called(name) if each.kind in kinds]
        if len(direct) == 1:
            return direct
        urns = sorted(self._candidates.get(name.lower(), frozenset()))
        known = [self.stack.by_urn.get(urn) for urn in urns]
        found = [each for each in known if each is not None and each.kind in kinds]
        if found or "/" in name:
            return found
        # Names that programs write out, such as that of a network in its subnets.
        possible = self.stack.of_kind(*sorted(kinds))
        return [each for each in possible if name.lower() in _given(each)]

    def at(
        self, resource: Resource, path: str, kinds: Collection[str]
    ) -> tuple[list[Resource], list[str]]:
        """What a property means: resources of these types, and ids that none of them has.

        Args:
            resource: whose property.
            path: keys with dots; lists are gone through.
            kinds: types, in their one spelling.
        """
        found: dict[str, Resource] = {}
        others: dict[str, None] = {}
        for _, value in select(resource.properties, path):
            for _, leaf in leaves(value):
                if is_unknown(leaf):
                    found |= {each.urn: each for each in self.origins(resource, path, kinds)}
                elif (one := self.named(leaf, kinds)) is not None:
                    found[one.urn] = one
                elif text(leaf):
                    others[text(leaf)] = None
        return list(found.values()), list(others)

    def origins(self, resource: Resource, path: str, kinds: Collection[str]) -> list[Resource]:
        """The resources of these types that a top-level property was made from."""
        urns = resource.dependencies.get(path.partition(".")[0], ())
        met = (self.stack.by_urn.get(urn) for urn in urns)
        return [each for each in met if each is not None and each.kind in kinds]

    def mentioned(
        self, resource: Resource, kinds: Collection[str], sign: str
    ) -> tuple[list[Resource], list[str]]:
        """Everything of these types that any property of a resource means.

        Args:
            resource: whose properties.
            kinds: types, in their one spelling.
            sign: what ids of theirs have in them, in small letters, as ``subnet-``.
        """
        found: dict[str, Resource] = {}
        others: dict[str, None] = {}
        for path, leaf in leaves(resource.properties):
            top = str(path[0]) if path else ""
            if is_unknown(leaf):
                found |= {each.urn: each for each in self.origins(resource, top, kinds)}
                continue
            name = text(leaf)
            # Names of other things may be the same; ids have the sign.
            if sign not in name.lower() or len(name.split()) != 1:
                continue
            one = self.named(name, kinds)
            if one is not None:
                found[one.urn] = one
            else:
                others[name] = None
        found.pop(resource.urn, None)
        return list(found.values()), list(others)

    def unsure(self, resource: Resource, kinds: Collection[str], key_part: str) -> frozenset[str]:
        """URNs of these types of which it can't be told whether a resource's properties mean them.

        Args:
            resource: whose properties.
            kinds: types, in their one spelling.
            key_part: what keys of such properties have in them, in small letters.
        """
        lists: dict[tuple[object, ...], int] = {}
        for path, leaf in leaves(resource.properties):
            if path and is_unknown(leaf):
                keys = [each.lower() for each in path if isinstance(each, str)]
                where = tuple(path[:-1]) if isinstance(path[-1], int) else tuple(path)
                lists[where] = lists.get(where, 0) + (key_part in keys[-1])
        found: set[str] = set()
        for top in {str(path[0]) for path in lists}:
            urns = {each.urn for each in self.origins(resource, top, kinds)}
            # Several lists may be the same one, so that only the longest counts.
            if len(urns) > max(1, *(long for path, long in lists.items() if path[0] == top)):
                found |= urns
        return frozenset(found)

    def stack_of(self, resource: Resource, value: str) -> str:
        """Name of the other stack that a value comes from, as far as the engine says so."""
        for key, urns in resource.dependencies.items():
            if any(text(leaf) == value for _, leaf in leaves(resource.properties.get(key))):
                for urn in urns:
                    if f"::{STACK_REFERENCE}::" in urn:
                        return urn.rpartition("/")[2]
        return ""

    @cached_property
    def _given_names(self) -> dict[str, str]:
        """What programs call ids of others: the key of a component's argument that holds them."""
        found: dict[str, str] = {}
        for each in sorted(self.stack.resources, key=lambda one: one.urn):
            if each.custom:
                continue
            for path, leaf in leaves(each.properties):
                value, keys = text(leaf), list(path)
                last = keys[-1] if keys else 0
                if len(value) >= _SHORTEST and isinstance(last, str):
                    above = keys[-2] if len(keys) > 1 else ""
                    outer = _in_words(above) if isinstance(above, str) else ""
                    found.setdefault(value, f"{outer} {_in_words(last)}".strip())
        return found

    def given_name(self, value: str) -> str:
        """What a program calls an id that no resource of the stack has; empty where it doesn't."""
        found = self._given_names.get(value, "")
        return "" if found in _PLAIN else found


def _in_words(key: str) -> str:
    """``diskEncryptionId`` as ``disk encryption``; what is no name of Pulumi's stays."""
    if not key.isalpha() or not key[:1].islower():
        return key
    bare = re.sub(r"(?:Id|Ids|Arn|Arns|ID)$", "", key)
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", bare).lower()


def _given(resource: Resource) -> Iterator[str]:
    """Names that a resource gives itself; those of what it is in are among them as well."""
    for key, value in resource.properties.items():
        if key.lower().endswith("name") and key != "resourceGroupName" and text(value):
            yield text(value).lower()


def _names(resource: Resource) -> Iterator[str]:
    yield from _given(resource)
    yield resource.name.lower()


#: Numbers that rules give in place of names
#: (https://www.iana.org/assignments/protocol-numbers).
_NUMBERED: Final = {"1": "icmp", "6": "tcp", "17": "udp", "50": "esp", "51": "ah", "58": "icmpv6"}
_EVERY: Final = frozenset(("", "-1", "*", "all", "any"))


@dataclass(frozen=True)
class Traffic:
    """Protocols with ports; everything where `protocol` is empty and every port is meant."""

    protocol: str
    ports: tuple[Ports, ...]
    """Empty for protocols without ports."""
    names: tuple[str, ...] = ()
    """Ports that have a name in place of a number."""
    is_seen: bool = True

    @classmethod
    def of(
        cls,
        protocol: object,
        ports: Iterable[Ports],
        names: Iterable[str] = (),
        *,
        seen: bool = True,
    ) -> Traffic:
        """Traffic of a protocol by its name or number."""
        given = str(protocol).strip().lower()
        name = "" if given in _EVERY else _NUMBERED.get(given, given)
        return cls(name, tuple(ports), tuple(names), seen)

    @property
    def label(self) -> str:
        """How people say it: ``tcp 443, 8443``, ``everything``."""
        if not self.is_seen:
            return "ports that can't be seen yet"
        every = self.ports == (EVERY_PORT,) and not self.names
        if not self.ports and not self.names:
            return self.protocol or "everything"
        if every:
            return f"every {self.protocol} port" if self.protocol else "everything"
        listed = [_range_text(each) for each in sorted(set(self.ports), key=lambda one: one.first)]
        return " ".join(filter(None, (self.protocol, ", ".join((*listed, *self.names)))))

    def covers(self, other: Traffic) -> bool:
        """Whether everything of the other is in this."""
        if not self.is_seen or not other.is_seen:
            return True
        if self.protocol not in {"", other.protocol}:
            return False
        if not self.ports and not self.names:
            return True
        return set(other.names) <= set(self.names) and all(
            any(mine.first <= one.first and one.last <= mine.last for mine in self.ports)
            for one in other.ports or (EVERY_PORT,)
        )


EVERYTHING: Final = Traffic("", (EVERY_PORT,))


def _range_text(ports: Ports) -> str:
    return str(ports.first) if ports.first == ports.last else f"{ports.first}-{ports.last}"


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
        kind: NodeKind,
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
        self,
        resource: Resource,
        kind: NodeKind,
        *details: str,
        container: str = "",
        label: str = "",
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
        block = str(found) if found is not None else str(value)
        own = self._by_range.get(block, [])
        if len(own) == 1:
            return own[0]
        return self.node(f"range:{block}", "range", block)

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
        total = sum(1 for _, value in select(resource.properties, path) for _ in leaves(value))
        return found, others, len(found) + len(others) <= max(total, 1)

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
        given: End = "in" if needed == "out" else "out"
        asked = [
            each
            for peer, each in rules.get((other, given), [])
            if peer == own and each.label == edge.label
        ]
        return not any(
            (peer == other or self.nodes[peer].kind != "group")
            and all(each.covers(one) for one in asked)
            for peer, each in rules.get((own, needed), [])
        )
