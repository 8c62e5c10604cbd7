"""Where logs are searched: a workspace that is reached through a private link only."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import monitor, operationalinsights

from falaj.components.azure._groups import kept
from falaj.components.azure._ids import key_identifier
from falaj.components.azure._names import titled
from falaj.components.azure._private_endpoint import Door, private_endpoint
from falaj.components.azure._storage import vault_of
from falaj.components.specification.placed import Placed

#: Least that is paid for a cluster, GB a day:
#: https://learn.microsoft.com/azure/azure-monitor/logs/logs-dedicated-clusters
_LEAST_GB = 100
_RSA_BITS = 4096


@dataclass(frozen=True)
class Logs:
    """What a workspace needs."""

    group: pulumi.Input[str]
    retention_days: int
    dedicated: bool
    """Whether it is in a cluster of its own, under our key."""
    key_id: pulumi.Input[str]
    identity_id: pulumi.Input[str]
    door: Door


def log_workspace(
    name: str, placed: Placed, logs: Logs, opts: pulumi.ResourceOptions
) -> operationalinsights.Workspace:
    """Make a workspace; its own cluster where that is asked for; its private link."""
    stored = kept(opts, placed.retained)
    on = operationalinsights.PublicNetworkAccessType.DISABLED
    workspace = operationalinsights.Workspace(
        f"{name}-workspace",
        workspace_name=titled(placed, name, "logs"),
        resource_group_name=logs.group,
        location=placed.region,
        sku=operationalinsights.WorkspaceSkuArgs(
            name=operationalinsights.WorkspaceSkuNameEnum.PER_GB2018
        ),
        retention_in_days=logs.retention_days,
        # Logs of the platform itself come in by another way.
        public_network_access_for_ingestion=on,
        public_network_access_for_query=on,
        force_cmk_for_query=False,
        features=operationalinsights.WorkspaceFeaturesArgs(
            disable_local_auth=True,
            # Who may see a resource may see its logs, not everybody's.
            enable_log_access_using_only_resource_permissions=True,
            immediate_purge_data_on30_days=False,
        ),
        tags=placed.tags(name),
        # Azure changes the price tier of a workspace that joins a cluster.
        opts=pulumi.ResourceOptions.merge(
            stored, pulumi.ResourceOptions(ignore_changes=["sku"] if logs.dedicated else [])
        ),
    )
    if logs.dedicated:
        _cluster(name, placed, logs, workspace, stored)
    _private_link(name, placed, logs, workspace, opts)
    return workspace


def _cluster(
    name: str,
    placed: Placed,
    logs: Logs,
    workspace: operationalinsights.Workspace,
    opts: pulumi.ResourceOptions,
) -> None:
    key = pulumi.Output.from_input(logs.key_id)
    cluster = operationalinsights.Cluster(
        f"{name}-cluster",
        cluster_name=titled(placed, name),
        resource_group_name=logs.group,
        location=placed.region,
        identity=operationalinsights.ManagedServiceIdentityArgs(
            type=operationalinsights.ManagedServiceIdentityType.USER_ASSIGNED,
            user_assigned_identities=[logs.identity_id],
        ),
        sku=operationalinsights.ClusterSkuArgs(
            name=operationalinsights.ClusterSkuNameEnum.CAPACITY_RESERVATION, capacity=_LEAST_GB
        ),
        billing_type=operationalinsights.BillingType.CLUSTER,
        is_double_encryption_enabled=True,
        is_availability_zones_enabled=bool(placed.place.zones),
        key_vault_properties=operationalinsights.KeyVaultPropertiesArgs(
            key_vault_uri=key.apply(vault_of),
            key_name=key.apply(lambda text: key_identifier(text).name),
            # None: the newest.
            key_version="",
            key_rsa_size=_RSA_BITS,
        ),
        tags=placed.tags(name),
        opts=opts,
    )
    operationalinsights.LinkedService(
        f"{name}-cluster-link",
        linked_service_name="Cluster",
        workspace_name=workspace.name,
        resource_group_name=logs.group,
        write_access_resource_id=cluster.id,
        tags=placed.tags(name),
        opts=opts,
    )


def _private_link(
    name: str,
    placed: Placed,
    logs: Logs,
    workspace: operationalinsights.Workspace,
    opts: pulumi.ResourceOptions,
) -> None:
    """The network reaches this workspace and no other.

    The scope itself is a setting without a region; what is asked and answered stays in the
    workspace's.
    """
    scope = monitor.PrivateLinkScope(
        f"{name}-scope",
        scope_name=titled(placed, name),
        resource_group_name=logs.group,
        location="global",
        access_mode_settings=monitor.AccessModeSettingsArgs(
            ingestion_access_mode=monitor.AccessMode.PRIVATE_ONLY,
            query_access_mode=monitor.AccessMode.PRIVATE_ONLY,
        ),
        tags=placed.tags(name),
        opts=opts,
    )
    member = monitor.PrivateLinkScopedResource(
        f"{name}-scope-member",
        name="logs",
        scope_name=scope.name,
        resource_group_name=logs.group,
        kind=monitor.ScopedResourceKind.RESOURCE,
        linked_resource_id=workspace.id,
        opts=opts,
    )
    private_endpoint(
        f"{name}-endpoint",
        "monitor",
        scope.id,
        logs.door,
        pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[member])),
    )
