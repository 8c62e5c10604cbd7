"""What keeps Azure from deleting a resource of any type."""

from __future__ import annotations

from collections.abc import Iterator

from falaj.sandbox.clouds.azure import arm, conflicts, known
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.model import Made, Problem, World


def common(kind: Kind, made: Made, world: World) -> Iterator[Problem]:
    """Locks at or above it, resources that refer to it, resources that stand below it."""
    if "/providers/microsoft.authorization/locks/" not in made.id.lower():
        for level, scope in conflicts.locks(Ask(made.token, made.inputs, {}, world, made.id)):
            if arm.is_below(made.id, scope):
                yield Problem(
                    "", f"the lock {level} on {scope} keeps it; take the lock away first"
                )
    if not (kind.is_held_by_references or kind.is_held_by_children):
        return
    for other in known.azure(world):
        if arm.same(other.id, made.id):
            continue
        if arm.is_below(other.id, made.id):
            if kind.is_held_by_children:
                yield Problem("", f"{other.id} stands below it; delete that first")
            continue
        if not kind.is_held_by_references:
            continue
        for path, id in known.references(other.inputs):
            if arm.is_below(id, made.id):
                yield Problem("", f"{other.id} uses it ({path}); delete or change that first")
                break
