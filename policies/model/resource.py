"""What rules judge: a resource as its program, a preview or a state describes it."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, wraps
from typing import Any, TypeVar

from falaj.policies.model.values import get, items, text
from falaj.wire.documents import is_mapping

#: An API version in a type: of version 2 of azure-native (``azure-native:storage/v20230101:…``) or
#: of a package of one's own, which `pulumi package add azure-native storage v20240101` makes
#: (``azure-native_storage_v20240101:storage:…``).
_API_VERSION = re.compile(r"^azure-native(?:_\w+_v\d{8}\w*)?:(\w+)(?:/v\d{8}\w*)?:")
_SHORT = re.compile(r"^(aws):(\w+):([A-Z]\w*)$")


@lru_cache(maxsize=4096)
def kind_of(token: str) -> str:
    """A type's one spelling: without Azure's API version, and AWS types with their file's name."""
    token = _API_VERSION.sub(r"azure-native:\1:", token)
    if short := _SHORT.match(token):
        name = short[3]
        return f"aws:{short[2]}/{name[0].lower()}{name[1:]}:{name}"
    return token


@dataclass(frozen=True)
class Provider:
    """The explicit or default provider that makes a resource, with its settings."""

    type: str
    """``pulumi:providers:aws`` and the like."""
    properties: Mapping[str, Any]
    name: str = ""
    urn: str = ""


@dataclass(frozen=True)
class Options:
    """The options of a resource that rules read."""

    protect: bool = False
    retain_on_delete: bool = False
    ignore_changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resource:
    """One resource; `properties` are plain values with `Unknown` where they can't be seen."""

    type: str
    """As the engine writes it, such as ``aws:s3/bucket:Bucket``."""
    name: str
    properties: Mapping[str, Any]
    urn: str = ""
    provider: Provider | None = None
    options: Options = field(default_factory=Options)
    parent: str = ""
    """URN of the parent, where known."""
    dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """URNs that a property's value was made from, by top-level property; known for whole stacks
    in previews and states only."""
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the cloud answered (ids, ARNs), where known: states, and whole stacks after an
    update."""
    id: str = ""
    custom: bool = True
    """False for components."""
    source: str = ""
    """Where the program declared it, as ``path:line``; empty where nobody said."""

    @cached_property
    def kind(self) -> str:
        """The type in its one spelling (`kind_of`): what rules compare."""
        return kind_of(self.type)

    @property
    def package(self) -> str:
        """``aws``, ``azure-native``, ``kubernetes`` …"""
        return self.kind.partition(":")[0]

    def get(self, path: str) -> Any:
        """What is at a path of the properties, or ABSENT (`values.get`)."""
        return get(self.properties, path)

    @property
    def tags(self) -> Mapping[str, Any]:
        """Its tags (labels on Kubernetes); empty where it has none or they can't be seen."""
        for path in ("tags", "tagsAll", "metadata.labels"):
            found = get(self.properties, path)
            if is_mapping(found):
                return found
        return {}

    def __str__(self) -> str:
        return f"{self.type} {self.name!r}"


@dataclass(frozen=True)
class Stack:
    """All resources of a stack, to look up what one says about another."""

    resources: tuple[Resource, ...]
    name: str = ""
    project: str = ""

    @cached_property
    def by_urn(self) -> Mapping[str, Resource]:
        """Resources by URN."""
        return {each.urn: each for each in self.resources if each.urn}

    @cached_property
    def _by_kind(self) -> Mapping[str, list[Resource]]:
        found: dict[str, list[Resource]] = {}
        for each in self.resources:
            found.setdefault(each.kind, []).append(each)
        return found

    @cached_property
    def _by_identifier(self) -> Mapping[str, list[Resource]]:
        """Resources by everything that others may call them: id, ARN, name, bucket, URL …"""
        found: dict[str, list[Resource]] = {}
        for each in self.resources:
            for identifier in set(_identifiers(each)):
                found.setdefault(identifier.lower(), []).append(each)
        return found

    def of_kind(self, *kinds: str) -> list[Resource]:
        """Resources of these types, in the stack's order."""
        return [each for kind in kinds for each in self._by_kind.get(kind, [])]

    def called(self, identifier: object) -> list[Resource]:
        """Resources whose id, ARN or name it is; without letter case, as Azure's ids are."""
        return list(self._by_identifier.get(text(identifier).lower(), []))

    def referred(self, resource: Resource, path: str) -> list[Resource]:
        """The resources that a property refers to: by value, else by what it was made from.

        Args:
            resource: whose property.
            path: as in findings, ``rules[0].destination.bucket``; unknown values are followed
                through the engine's record of dependencies of the top-level property.
        """
        keys = re.sub(r"\[\d+\]", "", path)
        found = [
            each for value in items(get(resource.properties, keys)) for each in self.called(value)
        ]
        if found:
            return found
        top = re.split(r"[.\[]", path, maxsplit=1)[0]
        urns = resource.dependencies.get(top, ())
        return [self.by_urn[urn] for urn in urns if urn in self.by_urn]

    @cached_property
    def _references(self) -> dict[tuple[str, str], dict[str, list[Resource]]]:
        """Who refers to whom (by URN), for each type and path that was asked for."""
        return {}

    def referring(self, resource: Resource, kind: str, path: str) -> list[Resource]:
        """Resources of a type whose property at `path` refers to this one: its companions."""
        known = self._references.get((kind, path))
        if known is None:
            known = dict[str, list[Resource]]()
            for each in self.of_kind(kind):
                for urn in {one.urn for one in self.referred(each, path)}:
                    known.setdefault(urn, []).append(each)
            self._references[kind, path] = known
        return list(known.get(resource.urn, ()))


def _identifiers(resource: Resource) -> Iterator[str]:
    if resource.id:
        yield resource.id
    for source in (resource.outputs, resource.properties):
        for key in ("arn", "id", "name", "bucket", "bucketName", "keyId", "accountName", "url"):
            if found := text(source.get(key)):
                yield found


# A memory for what several rules read of a resource or a stack.

Given = TypeVar("Given")
Found = TypeVar("Found")


def remembered(size: int) -> Callable[[Callable[[Given], Found]], Callable[[Given], Found]]:
    """Remember a function's last answers by the identity of its argument.

    Resources and stacks hold mappings, so they can't be hashed; rules look at one resource after
    the other, so few answers need be kept. An argument is kept alive along with its answer, which
    makes its identity unique for as long.

    Args:
        size: answers that are kept.
    """

    def decorate(function: Callable[[Given], Found]) -> Callable[[Given], Found]:
        kept: OrderedDict[int, tuple[Given, Found]] = OrderedDict()

        @wraps(function)
        def ask(given: Given) -> Found:
            known = kept.get(id(given))
            if known is not None and known[0] is given:
                return known[1]
            found = function(given)
            kept[id(given)] = (given, found)
            while len(kept) > size:
                kept.popitem(last=False)
            return found

        return ask

    return decorate
