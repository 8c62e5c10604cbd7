"""How resources depend on each other: references, names, quotas, locks, blocked deletions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from falaj.sandbox.clouds.azure import checks, kinds, naming, resources
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import Reference, ResourceKind
from falaj.sandbox.clouds.model import Made, Problem, World

# Inputs that name other resources by their ids.


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
        found = resources.by_id(resource.world, id) if isinstance(id, str) else None
        place = resources.region_of(found)
        if region and place and place != region:
            yield Problem(
                where, f"is in {place}, this resource in {region}; they must be in the same region"
            )


# Quotas: limits of a subscription, from a table with its sources.


@dataclass(frozen=True)
class Quota:
    """How many resources of a type may exist."""

    most: int
    per: str
    """``subscription``, ``region`` or ``parent``."""
    source: str


@cache
def quotas() -> dict[str, Quota]:
    """The limits by the type's token."""
    return {
        token: Quota(int(row["most"]), str(row["per"]), str(row["source"]))
        for token, row in kinds.load_table("quotas")["types"].items()
    }


def exceeded(kind: AzureKind, resource: Resource) -> Iterator[Problem]:
    """A problem when one more of the type would exceed its limit."""
    quota = quotas().get(kind.token)
    if quota is None:
        return
    exists = list(resources.of_type(resource.world, kind.arm_type))
    if quota.per == "parent":
        parent = resource.id.rsplit("/", 2)[0]
        exists = [made for made in exists if naming.is_below(made.id, parent)]
    elif quota.per == "region":
        region = resources.location(resource)
        exists = [made for made in exists if resources.region_of(made) == region]
    if len(exists) >= quota.most:
        yield Problem(
            "",
            f"there are {len(exists)} of these in this {quota.per} already, and Azure allows "
            f"{quota.most} ({quota.source}); remove one or resource Azure for more",
        )


_LOCKS = (
    "azure-native:authorization:ManagementLockByScope",
    "azure-native:authorization:ManagementLockAtResourceGroupLevel",
    "azure-native:authorization:ManagementLockAtResourceLevel",
    "azure-native:authorization:ManagementLockAtSubscriptionLevel",
)


def common(kind: AzureKind, resource: Resource, *, is_new: bool) -> Iterator[Problem]:
    """The group and parent exist, references point at something, the name is free."""
    yield from _container(kind, resource)
    yield from _references(kind, resource)
    yield from _locks(resource)
    if is_new:
        yield from _name(kind, resource)
        yield from exceeded(kind, resource)


def _container(kind: AzureKind, resource: Resource) -> Iterator[Problem]:
    reference = naming.parse(resource.id)
    if reference is None or not reference.is_made_up:
        return
    group = resource.optional_string("resourceGroupName")
    if kind.is_in_group and group and not resources.has_group(resource.world, group):
        yield Problem(
            "resourceGroupName",
            f"the resource group {group!r} doesn't exist; make it first, and name it by its "
            "output so that it is made before",
        )
        return
    # The path of a type that isn't in the table is derived: its parents may be called otherwise.
    parent = reference.parent if kinds.kind_of(kind.token) else None
    if parent and kind.is_in_group and not resources.exists(resource.world, parent):
        path = kind.parameters[-2] if len(kind.parameters) > 1 else ""
        yield Problem(path, f"{parent} doesn't exist; make it first, and name it by its output")


def _references(kind: AzureKind, resource: Resource) -> Iterator[Problem]:
    for path, id in resources.references(resource.values):
        if naming.is_below(id, resource.id) or resources.exists(resource.world, id):
            continue
        if path in kind.parameters and path not in naming.SCOPES:
            continue
        yield Problem(path, f"{id} doesn't exist; give the id of what was made, by its output")


def _locks(resource: Resource) -> Iterator[Problem]:
    if resource.token in _LOCKS:
        return
    for lock, scope in locks(resource):
        if naming.is_below(resource.id, scope) and lock == "ReadOnly":
            yield Problem("", f"the lock on {scope} allows reading only; take the lock away first")


def locks(resource: Resource) -> Iterator[tuple[str, str]]:
    """The level and the scope of each management lock."""
    for token in _LOCKS:
        for made in resource.world.all(token):
            level = made.inputs.get("level")
            scope = made.id.lower().split("/providers/microsoft.authorization/locks/")[0]
            yield str(level), scope


def _name(kind: AzureKind, resource: Resource) -> Iterator[Problem]:
    if kind.is_always_there:
        return
    path = kind.own_name or ""
    if (
        resources.by_id(resource.world, resource.id)
        or resources.inline(resource.world, resource.id) is not None
    ):
        yield Problem(
            path,
            f"{resource.id} exists already; choose another name, or import what exists",
        )
        return
    name = resource.optional_string(path) if path else None
    if not kind.is_global_name or name is None:
        return
    for made in resources.of_type(resource.world, kind.arm_type):
        if made.id.rpartition("/")[2].lower() == name.lower():
            yield Problem(
                path,
                f"the name {name!r} is taken: such names are unique in all of "
                "Azure; choose another",
            )


def delete_blockers(kind: AzureKind, made: Made, world: World) -> Iterator[Problem]:
    """Locks at or above it, resources that refer to it, resources that stand below it."""
    if "/providers/microsoft.authorization/locks/" not in made.id.lower():
        for level, scope in locks(Resource.of(made, world)):
            if naming.is_below(made.id, scope):
                yield Problem(
                    "", f"the lock {level} on {scope} keeps it; take the lock away first"
                )
    if not (kind.is_held_by_references or kind.is_held_by_children):
        return
    for other in resources.azure(world):
        if naming.same(other.id, made.id):
            continue
        if naming.is_below(other.id, made.id):
            if kind.is_held_by_children:
                yield Problem("", f"{other.id} stands below it; delete that first")
            continue
        if not kind.is_held_by_references:
            continue
        for path, id in resources.references(other.inputs):
            if naming.is_below(id, made.id):
                yield Problem("", f"{other.id} uses it ({path}); delete or change that first")
                break
