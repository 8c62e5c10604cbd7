"""Where a pool's machines stand: near each other, or in capacity that was reserved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_azure_native as azure_native
from pulumi_azure_native import containerservice as aks

from falaj.components.azure._agent_pool import Home
from falaj.components.azure._roles import Grant, grant
from falaj.components.specification.gpu_node_pool import GpuNodePoolSpec


def proximity_group(
    name: str,
    spec: GpuNodePoolSpec,
    home: Home,
    zones: Sequence[str],
    opts: pulumi.ResourceOptions,
) -> pulumi.Output[str] | None:
    """Id of the proximity placement group: made here, given, or none."""
    if spec.args["placement_group"] == "existing":
        return pulumi.Output.from_input(spec.args["placement_group_name"])
    if spec.args["placement_group"] == "none":
        return None
    made = azure_native.compute.ProximityPlacementGroup(
        f"{name}-placement",
        resource_group_name=home.group,
        location=spec.placed.region,
        proximity_placement_group_type=(azure_native.compute.ProximityPlacementGroupType.STANDARD),
        # The group looks for a data hall that has the machine, before the first one starts.
        intent=azure_native.compute.ProximityPlacementGroupPropertiesIntentArgs(
            vm_sizes=[spec.machine.name]
        ),
        zones=list(zones) or None,
        tags=spec.placed.tags(name),
        opts=opts,
    )
    return made.id


def admit_cluster(
    name: str,
    home: Home,
    places: Mapping[str, pulumi.Input[str] | None],
    parent: pulumi.Resource,
) -> list[pulumi.Resource]:
    """Let the cluster's control plane put machines into groups that aren't its own.

    There is no narrower built-in role that may join either kind of group.

    Args:
        name: of the pool.
        home: its cluster.
        places: ids of groups by what they are; those that are None aren't used.
        parent: the pool.
    """
    used = {what: place for what, place in places.items() if place is not None}
    if not used:
        return []
    cluster = aks.get_managed_cluster_output(
        resource_group_name=home.group,
        resource_name=home.cluster,
        opts=pulumi.InvokeOutputOptions(parent=parent),
    )
    principal = cluster.identity.apply(_principal)
    opts = pulumi.ResourceOptions(parent=parent)
    return [
        grant(f"{name}-{what}-right", Grant("Virtual Machine Contributor", place, principal), opts)
        for what, place in used.items()
    ]


def _principal(identity: aks.outputs.ManagedClusterIdentityResponse | None) -> str:
    acting = dict(identity.user_assigned_identities or {}) if identity else {}
    found = [each.principal_id for each in acting.values()]
    if len(found) != 1:
        raise ValueError(
            f"the cluster acts as {len(found)} user-assigned identities; allowed: one, which gets "
            "the right to use placement groups and reservations; make it with Cluster"
        )
    return found[0]
