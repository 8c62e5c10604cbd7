"""The interface between the sandbox and what it knows of a cloud."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Properties = Mapping[str, Any]
"""Plain Python values by the engine's names (camelCase); `wire.UNKNOWN` where not known yet."""


@dataclass(frozen=True)
class Problem:
    """Why a service would refuse a resource: the property's path and the reason."""

    path: str
    """Such as ``rules[0].fromPort``; empty when the resource as a whole is meant."""
    reason: str
    """What is wrong, what was given, what is allowed, what to change."""

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


@dataclass(frozen=True)
class Made:
    """A resource that exists in the sandbox."""

    urn: str
    token: str
    id: str
    inputs: Properties
    outputs: Properties
    region: str
    stack: str


class World(Protocol):
    """All that exists in the sandbox now, in every stack."""

    def by_id(self, token: str, id: str) -> Made | None:
        """The resource of that type and id; None when there is none."""
        ...

    def all(self, token: str | None = None) -> Iterable[Made]:
        """Every resource, or every one of a type, in the order in which they were made."""
        ...

    def find(self, token: str, **equal: Any) -> Iterable[Made]:
        """The resources of a type whose outputs equal all that is given."""
        ...


class CloudModel(Protocol):
    """What one cloud knows beyond the types of its SDK."""

    package: str
    """``aws``, ``azure-native`` or ``kubernetes``."""

    def check_configuration(self, given: Properties) -> list[Problem]:
        """Problems of the provider's own settings (its region, its subscription)."""
        ...

    def defaults(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> Properties:
        """What the vendor's provider fills in at Check, as inputs to be added.

        Automatic names are made from the URN, so that they are the same in each run.
        """
        ...

    def problems(self, token: str, inputs: Properties, config: Properties) -> list[Problem]:
        """What is wrong with the inputs by themselves; runs in previews and skips unknowns."""
        ...

    def conflicts(
        self,
        token: str,
        inputs: Properties,
        config: Properties,
        world: World,
        id: str | None,
    ) -> list[Problem]:
        """What is wrong given all that exists; `id` is the resource's own in an update."""
        ...

    def creation_problems(
        self, token: str, inputs: Properties, config: Properties
    ) -> list[Problem]:
        """What only a resource that exists already may ask for."""
        ...

    def delete_blockers(self, token: str, made: Made, world: World) -> list[Problem]:
        """What still stands in the way of deleting `made`."""
        ...

    def identity(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> str:
        """The id that a new resource gets: well-formed, and the same in each run.

        Empty for a type that the model doesn't know. A resource that is made while an older one
        of the same URN still exists (it is about to be replaced) comes with another URN, so that
        ids made from the URN differ.
        """
        ...

    def outputs(
        self,
        token: str,
        id: str,
        inputs: Properties,
        config: Properties,
        world: World,
    ) -> Properties:
        """All output properties worth having: the inputs, and what the service computes."""
        ...

    def is_guessed(self, token: str) -> bool:
        """Whether of a type only the SDK speaks, so that what it computes is made up."""
        ...

    def is_shared(self, token: str) -> bool:
        """Whether resources of a type are settings that are always there: making one sets it,
        though another stack has, and what the last of them doesn't need any more goes."""
        ...

    def taken_along(self, token: str, made: Made, world: World) -> list[Made]:
        """What ceases to exist when `made` is deleted, without being asked for."""
        ...

    def replacements(self, token: str) -> frozenset[str]:
        """Property paths, top level or ``a.b``, a change of which replaces the resource."""
        ...

    def invoke(self, token: str, args: Properties, config: Properties, world: World) -> Properties:
        """The answer to a query.

        Raises:
            LookupError: the query isn't known to this model, with a text for people.
        """
        ...


class GenericModel:
    """Takes what the types allow, answers no query; ids come from the resource's name.

    Models of clouds build on it where they have nothing to say.
    """

    def __init__(self, package: str) -> None:
        self.package = package

    def check_configuration(self, given: Properties) -> list[Problem]:
        """Every setting of the provider is taken."""
        del given
        return []

    def defaults(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> Properties:
        """Nothing is filled in."""
        del token, name, inputs, config, urn
        return {}

    def problems(self, token: str, inputs: Properties, config: Properties) -> list[Problem]:
        """Nothing is wrong beyond the types."""
        del token, inputs, config
        return []

    def conflicts(
        self,
        token: str,
        inputs: Properties,
        config: Properties,
        world: World,
        id: str | None,
    ) -> list[Problem]:
        """Nothing stands against a resource."""
        del token, inputs, config, world, id
        return []

    def creation_problems(
        self, token: str, inputs: Properties, config: Properties
    ) -> list[Problem]:
        """What may be asked of a resource may be asked of a new one."""
        del token, inputs, config
        return []

    def delete_blockers(self, token: str, made: Made, world: World) -> list[Problem]:
        """Nothing stands in the way of a deletion."""
        del token, made, world
        return []

    def identity(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> str:
        """The sandbox makes the id."""
        del token, name, inputs, config, urn
        return ""

    def outputs(
        self,
        token: str,
        id: str,
        inputs: Properties,
        config: Properties,
        world: World,
    ) -> Properties:
        """The inputs; the sandbox adds what the types promise."""
        del token, id, config, world
        return inputs

    def is_guessed(self, token: str) -> bool:
        """Nothing more is to be known."""
        del token
        return False

    def is_shared(self, token: str) -> bool:
        """Nothing is, as far as is known here."""
        del token
        return False

    def taken_along(self, token: str, made: Made, world: World) -> list[Made]:
        """Nothing is, as far as is known here."""
        del token, made, world
        return []

    def replacements(self, token: str) -> frozenset[str]:
        """Everything can be changed in place."""
        del token
        return frozenset()

    def invoke(self, token: str, args: Properties, config: Properties, world: World) -> Properties:
        """No query is known. Raises LookupError."""
        del args, config, world
        raise LookupError(f"the sandbox doesn't know the query {token}")
