"""The resources of a stack, from what the engine writes: a preview, or an exported state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from falaj.policies.model import PolicyError, Stack
from falaj.policies.state import stack_of_states
from falaj.stacks.errors import StackError
from falaj.wire.documents import is_mapping, mapping

State = Mapping[str, Any]
"""One resource as the engine writes it: ``urn``, ``type``, ``inputs``, ``outputs``, ``parent``,
``propertyDependencies`` and more."""


def of_preview(document: Any) -> list[State]:
    """The resources that a stack would have, from what `pulumi preview --json` wrote.

    Without its option `--show-sames` the engine leaves out what stays as it is.

    Raises:
        StackError: it isn't such a document.
    """
    if not isinstance(document, Mapping):
        raise StackError(
            "the preview is no object; expected what `pulumi preview --json` writes, with 'steps'"
        )
    steps: Any = cast("Mapping[str, Any]", document).get("steps", [])
    if not isinstance(steps, list):
        raise StackError("the preview's 'steps' are no list; write it with: pulumi preview --json")
    found: dict[str, State] = {}
    for each in cast("list[Any]", steps):
        known = mapping(each).get("newState")
        if is_mapping(known) and not str(mapping(each).get("op", "")).startswith("delete"):
            # What is replaced has several steps; the last one says what will be.
            found[str(known.get("urn"))] = known
    return list(found.values())


def of_export(document: Any) -> list[State]:
    """The resources that a stack has, from what `pulumi stack export` wrote.

    Raises:
        StackError: it isn't such a document.
    """
    deployment = mapping(document).get("deployment")
    states: Any = deployment.get("resources", []) if is_mapping(deployment) else None
    if not isinstance(states, list):
        raise StackError(
            "the state has no 'deployment' with a list of 'resources'; "
            "write it with: pulumi stack export"
        )
    return cast("list[State]", states)


def stack_of(resources: Iterable[State]) -> Stack:
    """The stack of resources as the engine writes them.

    Raises:
        StackError: one has no type or no URN, or is nested too deep to be read.
    """
    try:
        return stack_of_states(resources)
    except PolicyError as error:
        raise StackError(
            f"the stack's resources can't be read: {error}\n  give them as `pulumi preview "
            "--json` (newState of each step) or `pulumi stack export` writes them"
        ) from None


def made_by_others(resources: Iterable[State]) -> frozenset[str]:
    """URNs of resources that the stack only reads: others make them and pay for them."""
    return frozenset(str(each.get("urn")) for each in resources if each.get("external") is True)
