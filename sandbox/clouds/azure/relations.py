"""How resources depend on each other: references, names taken, locks, what stands in the way."""

from __future__ import annotations

from collections.abc import Iterator

from falaj.sandbox.clouds.azure import arm, existing, quotas, table
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Resource
from falaj.sandbox.clouds.model import Made, Problem, World

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
        yield from quotas.check(kind, resource)


def _container(kind: AzureKind, resource: Resource) -> Iterator[Problem]:
    reference = arm.parse(resource.id)
    if reference is None or not reference.is_made_up:
        return
    group = resource.optional_string("resourceGroupName")
    if kind.is_in_group and group and not existing.has_group(resource.world, group):
        yield Problem(
            "resourceGroupName",
            f"the resource group {group!r} doesn't exist; make it first, and name it by its "
            "output so that it is made before",
        )
        return
    # The path of a type that isn't in the table is derived: its parents may be called otherwise.
    parent = reference.parent if table.kind(kind.token) else None
    if parent and kind.is_in_group and not existing.exists(resource.world, parent):
        path = kind.parameters[-2] if len(kind.parameters) > 1 else ""
        yield Problem(path, f"{parent} doesn't exist; make it first, and name it by its output")


def _references(kind: AzureKind, resource: Resource) -> Iterator[Problem]:
    for path, id in existing.references(resource.values):
        if arm.is_below(id, resource.id) or existing.exists(resource.world, id):
            continue
        if path in kind.parameters and path not in arm.SCOPES:
            continue
        yield Problem(path, f"{id} doesn't exist; give the id of what was made, by its output")


def _locks(resource: Resource) -> Iterator[Problem]:
    if resource.token in _LOCKS:
        return
    for lock, scope in locks(resource):
        if arm.is_below(resource.id, scope) and lock == "ReadOnly":
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
        existing.by_id(resource.world, resource.id)
        or existing.inline(resource.world, resource.id) is not None
    ):
        yield Problem(
            path,
            f"{resource.id} exists already; choose another name, or import what exists",
        )
        return
    name = resource.optional_string(path) if path else None
    if not kind.is_global_name or name is None:
        return
    for made in existing.of_type(resource.world, kind.arm_type):
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
            if arm.is_below(made.id, scope):
                yield Problem(
                    "", f"the lock {level} on {scope} keeps it; take the lock away first"
                )
    if not (kind.is_held_by_references or kind.is_held_by_children):
        return
    for other in existing.azure(world):
        if arm.same(other.id, made.id):
            continue
        if arm.is_below(other.id, made.id):
            if kind.is_held_by_children:
                yield Problem("", f"{other.id} stands below it; delete that first")
            continue
        if not kind.is_held_by_references:
            continue
        for path, id in existing.references(other.inputs):
            if arm.is_below(id, made.id):
                yield Problem("", f"{other.id} uses it ({path}); delete or change that first")
                break
