"""Rights take effect some time after they were granted: what waits for that, and for how long.

A cloud says that a grant was made before all of its services know of it, so that to depend on the
grant isn't enough. What was granted in this run is therefore given some seconds before anything
that depends on it begins, and what is refused nevertheless, in words that mean a right that isn't
known yet, is tried again. Previews wait for nothing, nor does what was granted before.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import pulumi

from falaj.components.catalogue.propagation import VARIABLE

PAUSE: Final = 30.0
"""Seconds between two tries."""
PATIENCE: Final = 600.0
"""Seconds for which what is refused is tried again: Azure says that grants take up to ten minutes,
https://learn.microsoft.com/azure/role-based-access-control/troubleshooting."""

_Sleep: TypeAlias = "Callable[[float], Awaitable[None]]"

#: URNs of the identities and grants that this process made.
_granted: set[str] = set()


def seconds(usual: float) -> float:
    """How long to wait: what the environment says, else what is usual.

    Raises:
        ValueError: the environment variable holds no number of seconds, 0 or more.
    """
    given = os.environ.get(VARIABLE, "")
    if not given:
        return usual
    try:
        found = float(given)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise ValueError(
            f"environment variable {VARIABLE}: given {given!r}; allowed: seconds, 0 or more; "
            "leave it out for what is usual"
        )
    return found


async def settle(
    made: pulumi.ResourceHookArgs, pause: float, sleep: _Sleep = asyncio.sleep
) -> None:
    """Give what was granted some time.

    Args:
        made: a grant, or an identity, that was made.
        pause: seconds that it is given.
        sleep: waits for some seconds.
    """
    _granted.add(made.urn)
    await sleep(seconds(pause))


async def is_tried_again(
    failed: pulumi.ErrorHookArgs,
    answers: Sequence[str],
    tell: Callable[[str], None],
    sleep: _Sleep = asyncio.sleep,
    *,
    earlier: bool = False,
) -> bool:
    """Whether to try again what may rely on a right that isn't known yet; waits before it.

    Only where an identity or a grant was made in this run, or may have been right before it: a
    right that is missing for another reason is said at once.

    Args:
        failed: what was refused, with the service's answers, the last one first.
        answers: codes or words of an answer that may mean a right not known yet.
        tell: says why it is waited.
        sleep: waits for some seconds.
        earlier: whether the run before this one may have granted it. Default: False.
    """
    answer = next((each for each in answers if each in failed.errors[0]), None)
    pause = seconds(PAUSE)
    # Where nobody waits, as often as with the usual pauses; where one pause is longer, once.
    most = max(PATIENCE / (pause or PAUSE), 1)
    if answer is None or not (_granted or earlier) or len(failed.errors) > most:
        return False
    tell(
        f"{failed.name}: {answer}, which may mean that a new right isn't known everywhere "
        f"yet: trying again in {pause:.0f} s"
    )
    await sleep(pause)
    return True


def after_grant(name: str, pause: float, *, changes: bool = False) -> pulumi.ResourceHookBinding:
    """Hooks of a grant or an identity: what depends on it begins some time after it was made.

    Args:
        name: its name in the program; no two hooks of a program have the same.
        pause: seconds that it is given.
        changes: whether a change of it is given them as well, as of a policy that grants.

    Raises:
        ValueError: as `seconds` does.
    """
    # What can't be read is told before anything is made.
    seconds(pause)

    # Hooks are called outside of the program's own context, without the engine to tell.
    context = contextvars.copy_context()

    async def settled(made: pulumi.ResourceHookArgs) -> None:
        if found := seconds(pause):
            context.run(
                pulumi.log.info,
                f"waiting {found:g} s until {made.name} holds for the services that ask",
            )
        await settle(made, pause)

    hook = pulumi.ResourceHook(f"{name}-settles", settled)
    return pulumi.ResourceHookBinding(
        after_create=[hook], after_update=[hook] if changes else None
    )


def until_granted(
    name: str, answers: Sequence[str], *, earlier: bool = False
) -> pulumi.ResourceHookBinding:
    """Hooks of what relies on grants: it is tried again while its service doesn't know of them.

    Args:
        name: the resource's name in the program; no two hooks of a program have the same.
        answers: codes or words of the service's answer that may mean a right not known yet.
        earlier: as of `is_tried_again`. Default: False.
    """
    # Hooks are called outside of the program's own context, without the engine to tell.
    context = contextvars.copy_context()

    async def again(failed: pulumi.ErrorHookArgs) -> bool:
        return await is_tried_again(
            failed,
            answers,
            lambda text: context.run(pulumi.log.warn, text),
            earlier=earlier,
        )

    return pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook(f"{name}-granted", again)])
