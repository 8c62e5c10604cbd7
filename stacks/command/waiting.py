"""Runs an update again where all that keeps it is a cluster that isn't ready to count yet.

A quota on a kind of resource that is new to a cluster, such as job sets, is refused as unknown
until Kubernetes' quota controller has looked for new kinds, which it does every few minutes:
https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

from falaj.stacks.command.console import say
from falaj.stacks.command.operation import Outcome

#: Seconds between two tries.
PAUSE: Final = 30.0
#: Seconds for which an update is tried again: new kinds are looked for every five minutes.
PATIENCE: Final = 330.0
_UNKNOWN: Final = re.compile(r"status unknown for quota: ([^,\s]+), resources: ([^\s]+)")


def not_counted(outcome: Outcome) -> tuple[str, str] | None:
    """The quota and the resources that the cluster doesn't count yet; None where it isn't that.

    An update that ended well, that was interrupted, or that a policy stopped is never tried again.
    """
    if outcome.status == 0 or outcome.was_interrupted or outcome.violations:
        return None
    found = _UNKNOWN.search(outcome.printed)
    return (found[1], found[2]) if found else None


def until_counted(
    update: Callable[[], Outcome],
    *,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Run an update, and again while a quota isn't counted yet; returns how the last one ended.

    Args:
        update: runs it.
        pause: waits for some seconds.
        clock: seconds that pass.
    """
    began = clock()
    while True:
        outcome = update()
        waiting = not_counted(outcome)
        if waiting is None:
            return outcome
        quota, resources = waiting
        if clock() - began + PAUSE > PATIENCE:
            say(
                f"      the cluster doesn't count {resources} (quota {quota}) after "
                f"{clock() - began:.0f} s; look at its quota controller "
                "(kubectl -n kube-system logs, kube-controller-manager), then run this again"
            )
            return outcome
        say(
            f"      the cluster doesn't count {resources} yet (quota {quota}): waiting "
            f"{PAUSE:.0f} s, then going on; it does within five minutes"
        )
        pause(PAUSE)
