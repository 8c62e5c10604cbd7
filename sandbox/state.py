"""Tells a stack's state of the sandbox from a real one, for who moves states between backends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from falaj.engine.errors import EngineError
from falaj.sandbox.cloud import MARK

_SHOWN = 3


def made_in_sandbox(deployment: Mapping[str, Any]) -> list[str]:
    """URNs of the resources that the sandbox made, in what `pulumi stack export` prints."""
    return [
        str(resource.get("urn"))
        for resource in _resources(deployment)
        if isinstance(outputs := resource.get("outputs"), Mapping) and MARK in outputs
    ]


def refuse_sandbox_state(deployment: Mapping[str, Any]) -> None:
    """Refuse a real run on the sandbox's state: names in it may belong to something real.

    Raises:
        EngineError: some of the resources were made in the sandbox.
    """
    found = made_in_sandbox(deployment)
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise EngineError(
            f"this state was made in the sandbox ({', '.join(found[:_SHOWN])}{more}), but the run "
            "would be a real one: what has the same name in a real account would be changed or "
            "deleted; start with an empty stack, or run in the sandbox with `falaj up --sandbox`"
        )


def _resources(deployment: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    inner = deployment.get("deployment")
    resources = inner.get("resources") if isinstance(inner, Mapping) else None
    return [each for each in resources or [] if isinstance(each, Mapping)]
