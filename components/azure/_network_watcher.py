"""The network watcher of a region, which flow logs belong to: found, never made.

A subscription has one in each region (``NetworkWatcherCountLimitReached`` for a second). Azure
makes it by itself with the region's first network, in its own time, and it is everybody's: a stack
that had made it would take other stacks' flow logs away when it goes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import pulumi

from falaj.components.azure._ids import resource_id

KIND: Final = "Microsoft.Network/networkWatchers"
#: Where Azure makes them: https://learn.microsoft.com/azure/network-watcher/network-watcher-create
GROUP: Final = "NetworkWatcherRG"
_TOKEN: Final = "azure-native:network:getNetworkWatcher"  # noqa: S105 - a function's name
_WAIT_S: Final = 300
_PAUSE_S: Final = 10


@dataclass(frozen=True)
class Watcher:
    """A region's network watcher."""

    group: pulumi.Output[str]
    name: pulumi.Output[str]


def network_watcher(
    given: str | None,
    region: str,
    network_id: pulumi.Input[str],
    opts: pulumi.InvokeOptions,
) -> Watcher:
    """The watcher that is named, else the one that Azure makes with the first network.

    Args:
        given: its id, where it isn't where Azure makes it.
        region: of the network.
        network_id: known once the network is there, and Azure begins to make the watcher.
        opts: how Azure is asked.

    Raises:
        pulumi.RunError: (in the outputs) there is none after five minutes.
    """
    if given is not None:
        found = resource_id(given, KIND)
        return Watcher(pulumi.Output.from_input(found.group), pulumi.Output.from_input(found.name))
    name = f"NetworkWatcher_{region}"
    there = pulumi.Output.from_input(network_id).apply(lambda _: awaited(name, region, opts))
    return Watcher(there.apply(lambda _: GROUP), there)


async def awaited(name: str, region: str, opts: pulumi.InvokeOptions) -> str:
    """The watcher's name, once it is there. A preview makes nothing that could be waited for."""
    waits = 0 if pulumi.runtime.is_dry_run() else _WAIT_S // _PAUSE_S
    for left in range(waits, -1, -1):
        if await _exists(name, opts):
            return name
        if left:
            await asyncio.sleep(_PAUSE_S)
    if pulumi.runtime.is_dry_run():
        return name
    raise pulumi.RunError(
        f"there is no network watcher {name} in the group {GROUP}, to which flow logs belong; "
        "where the subscription has one of another name (az network watcher list), give its id as "
        "network_watcher_id (falaj:network.networkWatcherId); else make it, once for all: az "
        f"network watcher configure --locations {region} --enabled true --resource-group {GROUP}"
    )


async def _exists(name: str, opts: pulumi.InvokeOptions) -> bool:
    asked = {"networkWatcherName": name, "resourceGroupName": GROUP}
    try:
        await pulumi.runtime.invoke_async(_TOKEN, asked, opts)
    except Exception as error:  # the SDK raises nothing narrower
        if not _is_missing(str(error)):
            raise
        return False
    return True


def _is_missing(error: str) -> bool:
    """Whether Azure said that it, or its group, isn't there, and not anything else."""
    return any(
        code in error
        for code in ("ResourceNotFound", "ResourceGroupNotFound", "Status=404", "doesn't exist")
    )
