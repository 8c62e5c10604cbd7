"""A pause after permissions, for what would be refused before they hold everywhere."""

from __future__ import annotations

import asyncio
import os

import pulumi

from falaj.components.catalogue.settling import SETTLING_SECONDS, SETTLING_VARIABLE


def seconds() -> float:
    """How long to wait.

    Raises:
        ValueError: the environment variable holds no number of seconds, 0 or more.
    """
    given = os.environ.get(SETTLING_VARIABLE, "")
    if not given:
        return SETTLING_SECONDS
    try:
        found = float(given)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise ValueError(
            f"environment variable {SETTLING_VARIABLE}: given {given!r}; allowed: seconds, 0 or "
            f"more; leave it out for {SETTLING_SECONDS:g}"
        )
    return found


def settling(name: str) -> pulumi.ResourceHookBinding | None:
    """What waits after a permission was made or changed in this run; never in previews.

    Args:
        name: the hook's, once in a program.

    Returns:
        What goes into a resource's options; None where nothing is to be waited for.

    Raises:
        ValueError: as `seconds` does.
    """
    pause = seconds()
    if not pause:
        return None

    async def settle(made: pulumi.ResourceHookArgs) -> None:
        """Wait until what was granted just now holds everywhere."""
        pulumi.log.info(f"waiting {pause:g} s until {made.name} holds for the services that ask")
        await asyncio.sleep(pause)

    hook = pulumi.ResourceHook(f"{name}-settles", settle)
    return pulumi.ResourceHookBinding(after_create=[hook], after_update=[hook])
