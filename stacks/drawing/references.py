"""Which resource a property means: by ids and names, and by what the engine says of its origin.

A state has every resource's id. A preview has none, but the sandbox predicts what properties will
be made of: the same id stands in several properties, each of which was made from a few resources,
and one resource is left that can have it. Where even ids are unknown, all that a property was
made from is meant.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Final

from falaj.policies.model import Resource, Stack, is_unknown, leaves, select, text
from falaj.policies.model.resource import REFERENCE

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
                    said = text(value).lower()
                    if len(said) >= _SHORTEST:
                        found[said] = found[said] & known if said in found else known
        return found

    def named(self, value: object, kinds: Collection[str]) -> Resource | None:
        """The one resource of these types that has this id, ARN or name; None for none."""
        said = text(value)
        if not said:
            return None
        # An ARN ends in the resource's own id, which may be told where the whole isn't.
        for part in dict.fromkeys((said, said.rstrip("/").rpartition("/")[2])):
            found = self._candidate(part, kinds)
            if len(found) > 1:
                last = part.rstrip("/").rpartition("/")[2].lower()
                found = [each for each in found if last in _names(each)]
            if len(found) == 1:
                return found[0]
        return None

    def _candidate(self, said: str, kinds: Collection[str]) -> list[Resource]:
        direct = [each for each in self.stack.called(said) if each.kind in kinds]
        if len(direct) == 1:
            return direct
        urns = sorted(self._candidates.get(said.lower(), frozenset()))
        known = [self.stack.by_urn.get(urn) for urn in urns]
        found = [each for each in known if each is not None and each.kind in kinds]
        if found or "/" in said:
            return found
        # Names that programs write out, such as that of a network in its subnets.
        possible = self.stack.of_kind(*sorted(kinds))
        return [each for each in possible if said.lower() in _given(each)]

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
            said = text(leaf)
            # Names of other things may be the same; ids have the sign.
            if sign not in said.lower() or len(said.split()) != 1:
                continue
            one = self.named(said, kinds)
            if one is not None:
                found[one.urn] = one
            else:
                others[said] = None
        found.pop(resource.urn, None)
        return list(found.values()), list(others)

    def unsure(self, resource: Resource, kinds: Collection[str], word: str) -> frozenset[str]:
        """URNs of these types of which it can't be told whether a resource's properties mean them.

        Args:
            resource: whose properties.
            kinds: types, in their one spelling.
            word: what keys of such properties have in them, in small letters.
        """
        lists: dict[tuple[object, ...], int] = {}
        for path, leaf in leaves(resource.properties):
            if path and is_unknown(leaf):
                keys = [each.lower() for each in path if isinstance(each, str)]
                where = tuple(path[:-1]) if isinstance(path[-1], int) else tuple(path)
                lists[where] = lists.get(where, 0) + (word in keys[-1])
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
                    if f"::{REFERENCE}::" in urn:
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
                said, keys = text(leaf), list(path)
                last = keys[-1] if keys else 0
                if len(said) >= _SHORTEST and isinstance(last, str):
                    above = keys[-2] if len(keys) > 1 else ""
                    outer = _in_words(above) if isinstance(above, str) else ""
                    found.setdefault(said, f"{outer} {_in_words(last)}".strip())
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
