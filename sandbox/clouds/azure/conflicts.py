"""Conflicts that any type can have with what exists."""

from __future__ import annotations

from collections.abc import Iterator

from falaj.sandbox.clouds.azure import arm, known, quotas, table
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.model import Problem

_LOCKS = (
    "azure-native:authorization:ManagementLockByScope",
    "azure-native:authorization:ManagementLockAtResourceGroupLevel",
    "azure-native:authorization:ManagementLockAtResourceLevel",
    "azure-native:authorization:ManagementLockAtSubscriptionLevel",
)


def common(kind: Kind, ask: Ask, *, is_new: bool) -> Iterator[Problem]:
    """The group and parent exist, references point at something, the name is free."""
    if ask.world is None or ask.id is None:
        return
    yield from _container(kind, ask)
    yield from _references(kind, ask)
    yield from _locks(ask)
    if is_new:
        yield from _name(kind, ask)
        yield from quotas.check(kind, ask)


def _container(kind: Kind, ask: Ask) -> Iterator[Problem]:
    reference = arm.parse(ask.id or "")
    if ask.world is None or reference is None or not reference.is_made_up:
        return
    group = ask.text("resourceGroupName")
    if kind.is_in_group and group and not known.has_group(ask.world, group):
        yield Problem(
            "resourceGroupName",
            f"the resource group {group!r} doesn't exist; make it first, and name it by its "
            "output so that it is made before",
        )
        return
    # The path of a type that isn't in the table is derived: its parents may be called otherwise.
    parent = reference.parent if table.kind(kind.token) else None
    if parent and kind.is_in_group and not known.exists(ask.world, parent):
        path = kind.parameters[-2] if len(kind.parameters) > 1 else ""
        yield Problem(path, f"{parent} doesn't exist; make it first, and name it by its output")


def _references(kind: Kind, ask: Ask) -> Iterator[Problem]:
    if ask.world is None or ask.id is None:
        return
    for path, id in known.references(ask.inputs):
        if arm.is_below(id, ask.id) or known.exists(ask.world, id):
            continue
        if path in kind.parameters and path not in arm.SCOPES:
            continue
        yield Problem(path, f"{id} doesn't exist; give the id of what was made, by its output")


def _locks(ask: Ask) -> Iterator[Problem]:
    if ask.world is None or ask.id is None or ask.token in _LOCKS:
        return
    for lock, scope in locks(ask):
        if arm.is_below(ask.id, scope) and lock == "ReadOnly":
            yield Problem("", f"the lock on {scope} allows reading only; take the lock away first")


def locks(ask: Ask) -> Iterator[tuple[str, str]]:
    """The level and the scope of each management lock."""
    for token in _LOCKS if ask.world else ():
        for made in ask.world.all(token) if ask.world else ():
            level = made.inputs.get("level")
            scope = made.id.lower().split("/providers/microsoft.authorization/locks/")[0]
            yield str(level), scope


def _name(kind: Kind, ask: Ask) -> Iterator[Problem]:
    if ask.world is None or ask.id is None or kind.is_always_there:
        return
    path = kind.own_name or ""
    if known.by_id(ask.world, ask.id) or known.inline(ask.world, ask.id) is not None:
        yield Problem(
            path,
            f"{ask.id} exists already; choose another name, or import what exists",
        )
        return
    name = ask.text(path) if path else None
    if not kind.is_global_name or name is None:
        return
    for made in known.of_type(ask.world, kind.arm_type):
        if made.id.rpartition("/")[2].lower() == name.lower():
            yield Problem(
                path,
                f"the name {name!r} is taken: such names are unique in all of "
                "Azure; choose another",
            )
