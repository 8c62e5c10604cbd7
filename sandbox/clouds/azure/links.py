"""Inputs that name other resources by their ids."""

from __future__ import annotations

from collections.abc import Iterator

from falaj.sandbox.clouds.azure import checks, existing
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import Reference, ResourceKind
from falaj.sandbox.clouds.model import Problem


def to(path: str, *types: str, regional: bool = False) -> Reference:
    """An input with the id of a resource of one of the types of Resource Manager.

    That every id names something that exists is checked of all inputs, with or without this.
    """
    return Reference(path, types, regional=regional)


def ill_formed(kind: ResourceKind, inputs: Inputs) -> Iterator[Problem]:
    """Inputs that can't name what they are meant to."""
    for reference in kind.references:
        for where, value in inputs.each(reference.path):
            if isinstance(value, str) and value:
                yield from checks.resource_id(where, value, *reference.to)


def elsewhere(kind: ResourceKind, resource: Resource, region: str | None) -> Iterator[Problem]:
    """Resources that must be in this one's region, and aren't."""
    for reference in kind.references:
        if reference.regional:
            yield from same_region(resource, reference.path, region)


def same_region(resource: Resource, path: str, region: str | None) -> Iterator[Problem]:
    """A problem when the resource whose id stands at a path is in another region."""
    for where, id in resource.each(path):
        found = existing.by_id(resource.world, id) if isinstance(id, str) else None
        place = existing.region_of(found)
        if region and place and place != region:
            yield Problem(
                where, f"is in {place}, this resource in {region}; they must be in the same region"
            )
