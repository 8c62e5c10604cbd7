"""Microsoft.Network: network watchers and flow logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, checks, existing, generated, links, naming
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import between, one_of, texts

WATCHER: Final = "azure-native:network:NetworkWatcher"
FLOW_LOG: Final = "azure-native:network:FlowLog"
# Source: network-watcher/vnet-flow-logs-overview. Flow logs of security groups can't be made since
# 30 June 2025 (network-watcher/nsg-flow-logs-overview).
_TARGETS: Final = (
    "Microsoft.Network/virtualNetworks",
    "Microsoft.Network/virtualNetworks/subnets",
    "Microsoft.Network/networkInterfaces",
)


def _flow_log_problems(inputs: Inputs) -> Iterator[Problem]:
    target = inputs.optional_string("targetResourceId")
    reference = arm.parse(target) if target else None
    if reference and reference.type.lower() == "microsoft.network/networksecuritygroups":
        yield Problem(
            "targetResourceId",
            "flow logs of security groups can't be made since 30 "
            "June 2025; log the virtual network",
        )
    else:
        yield from checks.resource_id("targetResourceId", target, *_TARGETS)


def _flow_log_conflicts(resource: Resource) -> Iterator[Problem]:
    region = location(resource)
    target, storage = (
        resource.optional_string("targetResourceId"),
        resource.optional_string("storageId"),
    )
    top = "/".join((target or "").split("/")[:9])
    for path, id in (("targetResourceId", top), ("storageId", storage or "")):
        place = existing.region_of(existing.by_id(resource.world, id))
        if region and place and place != region:
            yield Problem(
                path, f"is in {place}, the flow log in {region}; they must be in the same region"
            )
    for made in resource.world.all(FLOW_LOG):
        other = made.inputs.get("targetResourceId")
        if (
            target
            and isinstance(other, str)
            and arm.same(other, target)
            and not arm.same(made.id, resource.id)
        ):
            yield Problem(
                "targetResourceId",
                f"is logged by {made.id.rpartition('/')[2]!r} already; change that one",
            )


def _watcher_conflicts(resource: Resource) -> Iterator[Problem]:
    region = location(resource)
    for made in resource.world.all(WATCHER):
        if region and existing.region_of(made) == region and not arm.same(made.id, resource.id):
            yield Problem(
                "location",
                f"{region} has a network watcher already, and there can be "
                f"one in a region: {made.id}",
            )


def _flow_log_outputs(inputs: Inputs) -> dict[str, Any]:
    return {
        "targetResourceGuid": generated.guid(
            "guid", inputs.optional_string("targetResourceId") or ""
        )
    }


KINDS: Final = (
    AzureKind(
        WATCHER,
        "Microsoft.Network/networkWatchers/{networkWatcherName}",
        name=naming.NETWORK,
        is_held_by_children=True,
        crosschecks=(_watcher_conflicts,),
    ),
    AzureKind(
        FLOW_LOG,
        "Microsoft.Network/networkWatchers/{networkWatcherName}/flowLogs/{flowLogName}",
        name=naming.NETWORK,
        replaces=("targetResourceId",),
        rules=(
            between("retentionPolicy.days", 0, 365, "days"),
            one_of("format.version", (1, 2)),
            one_of(
                "flowAnalyticsConfiguration.networkWatcherFlowAnalyticsConfiguration.trafficAnalyticsInterval",
                (10, 60),
            ),
            texts(
                "flowAnalyticsConfiguration.networkWatcherFlowAnalyticsConfiguration.workspaceId",
                checks.guid,
            ),
            _flow_log_problems,
        ),
        references=(links.to("storageId", "Microsoft.Storage/storageAccounts"),),
        crosschecks=(_flow_log_conflicts,),
        computed=_flow_log_outputs,
    ),
)  # fmt: skip
