"""Who did what: logs of the subscription and of what holds data, searchable and archived.

They are searched in a workspace that is reached through a private link only. Defender for Cloud
watches the subscription.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_azure_native as azure_native
from pulumi_azure_native import monitor, operationalinsights, security

from falaj.components.azure._component import (
    client_of,
    component_options,
    kept,
    resource_group,
    titled,
)
from falaj.components.azure._ids import key_identifier
from falaj.components.azure._private_endpoint import Door, private_endpoint
from falaj.components.azure._storage import vault_of
from falaj.components.azure._vault import RSA_BITS
from falaj.components.specification.audit_trail import AuditTrailArgs, check
from falaj.components.specification.placed import Placed
from falaj.components.specification.property_names import engine_inputs

#: Least that is paid for a cluster, GB a day:
#: https://learn.microsoft.com/azure/azure-monitor/logs/logs-dedicated-clusters
_LEAST_GB = 100


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
            key_rsa_size=RSA_BITS,
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


@dataclass(frozen=True)
class _Plan:
    name: str
    sub_plan: str | None
    extensions: dict[str, bool]
    """What the plan may do besides; what would look into data or copy disks is off."""


#: https://learn.microsoft.com/azure/defender-for-cloud/defender-for-cloud-introduction
_PLANS = (
    _Plan("Arm", "PerSubscription", {}),
    _Plan("KeyVaults", "PerKeyVault", {}),
    _Plan(
        "StorageAccounts",
        "DefenderForStorageV2",
        {"OnUploadMalwareScanning": False, "SensitiveDataDiscovery": False},
    ),
    _Plan(
        "Containers",
        None,
        {
            "ContainerRegistriesVulnerabilityAssessments": True,
            # These come into the cluster from outside of the network.
            "AgentlessDiscoveryForKubernetes": False,
            "AgentlessVmScanning": False,
            "ContainerSensor": False,
        },
    ),
    _Plan("VirtualMachines", "P1", {"MdeDesignatedSubscription": False}),
)


def threat_detection(
    name: str,
    subscription: pulumi.Input[str],
    *,
    on: bool,
    emails: Sequence[str],
    opts: pulumi.ResourceOptions,
) -> None:
    """Switch the plans on or off, one after the other, and name who is told of findings.

    Plans are the subscription's, whichever stack sets them: they stay as they are after it is
    destroyed. Azure deletes none, and refuses to be asked
    (https://github.com/Azure/terraform-provider-azapi/issues/818); a plan that is off is one of
    the tier Free. Two at once are refused as well: "Another update operation is in progress"
    (https://github.com/Azure/azure-powershell/issues/10842).

    They are told by Defender itself: an action group's messages may be worked on in any region of
    the world (https://learn.microsoft.com/azure/azure-monitor/alerts/action-groups).
    """
    scope = pulumi.Output.concat("subscriptions/", subscription)
    before: list[pulumi.Resource] = []
    for plan in _PLANS:
        made = security.Pricing(
            f"{name}-{plan.name}",
            pricing_name=plan.name,
            scope_id=scope,
            pricing_tier=security.PricingTier.STANDARD if on else security.PricingTier.FREE,
            sub_plan=plan.sub_plan if on else None,
            extensions=_extensions(plan) if on else None,
            opts=pulumi.ResourceOptions.merge(
                opts, pulumi.ResourceOptions(depends_on=before, retain_on_delete=True)
            ),
        )
        before = [made]
    if not emails:
        return
    security.SecurityContact(
        f"{name}-contact",
        security_contact_name="default",
        emails=";".join(emails),
        is_enabled=True,
        notifications_by_role=security.SecurityContactPropertiesNotificationsByRoleArgs(
            state=security.State.OFF, roles=[]
        ),
        notifications_sources=[
            security.NotificationsSourceAlertArgs(
                source_type="Alert", minimal_severity=security.MinimalSeverity.MEDIUM
            )
        ],
        opts=opts,
    )


def _extensions(plan: _Plan) -> list[security.ExtensionArgs] | None:
    return [
        security.ExtensionArgs(
            name=title,
            is_enabled=security.IsEnabled.TRUE if on else security.IsEnabled.FALSE,
        )
        for title, on in plan.extensions.items()
    ] or None


__all__ = ["AuditTrail", "AuditTrailArgs"]

#: https://learn.microsoft.com/azure/azure-monitor/platform/activity-log-schema
_ACTIVITIES = (
    *("Administrative", "Security", "ServiceHealth", "Alert"),
    *("Recommendation", "Policy", "Autoscale", "ResourceHealth"),
)
_KEY_WARNING = (
    "dedicated_logs: Azure's documentation says that a cluster of logs takes no key as a "
    "user-assigned identity from a vault with private endpoints (learn.microsoft.com/azure/"
    "azure-monitor/logs/customer-managed-keys); where Azure refuses it, set dedicated_logs to "
    "false: logs are then encrypted with keys of the platform"
)
_ACCESSES = ("StorageRead", "StorageWrite", "StorageDelete")


class AuditTrail(pulumi.ComponentResource):
    """Logs of all that happens in the subscription, and of who used keys and read data.

    The subscription's activity log, the vault's log and the accesses to the audit store (and to
    ``data_store_id``) go into a Log Analytics workspace in the region and into the audit store, an
    archive under our key. The workspace is searched through a private link only, and Entra decides
    by whom. With ``dedicated_logs`` it is in a cluster of its own, under our key and once more
    encrypted below it; a commitment of 100 GB a day has to be paid for that, and Azure's
    documentation says that such a cluster takes no key as a user-assigned identity from a vault
    with private endpoints. It is therefore off unless asked for, or data are restricted: a warning
    tells to try it, and to set ``dedicated_logs`` to false where it is so.

    With ``threat_detection`` Defender for Cloud watches the subscription: operations on resources,
    keys, storage, images and machines. It looks into no data and copies no disks.
    ``alert_emails`` are told by Defender; there are no action groups, whose messages may be worked
    on abroad. Without it the plans are declared as well, with the tier Free: it is how Azure is
    told that they are off. Plans and contact are the subscription's, whichever stack sets them:
    the last one's values hold, and the plans stay as they are, and are billed, when the stack
    goes.

    Example:
        ``trail = AuditTrail("audit", {"region": "uaenorth", "tenant": "bank", "owner":
        "it@bank.ae", "data_class": "confidential", "cost_center": "42", "log_key_id":
        keys.key_ids["logs"], "key_identity_id": keys.key_identity_id, "key_ring_id":
        keys.key_ring_id, "audit_bucket_name": store.bucket_names["audit"], "audit_store_id":
        store.store_ids["audit"], "data_store_id": store.store_ids["datasets"], "network_id":
        network.network_id, "endpoint_subnet_id": network.endpoint_subnet_ids["1"]}, opts)``

    Makes: a resource group, a workspace, a private link scope with endpoint and names, diagnostic
    settings of the subscription, the vault and the stores, Defender's plans and a contact;
    optionally a cluster. In ``production`` the workspace and its cluster are protected and
    retained, and a lock keeps anybody from deleting the workspace.
    """

    trail_id: pulumi.Output[str]
    """Id of the subscription's diagnostic setting."""
    log_destination_id: pulumi.Output[str]
    """Id of the workspace."""

    def __init__(
        self, name: str, args: AuditTrailArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("azure", name, args)
        super().__init__(
            "falaj-azure:index:AuditTrail", name, engine_inputs(args), component_options(opts)
        )
        if spec.dedicated_logs:
            pulumi.log.warn(_KEY_WARNING, self)
        self._spec = spec
        self._name = name
        self._args = args
        self._opts = pulumi.ResourceOptions(parent=self)
        placed = spec.placed
        group = resource_group(name, placed, self._opts, stateful=True)
        workspace = log_workspace(
            name,
            placed,
            Logs(
                group=group.name,
                retention_days=spec.retention_days,
                dedicated=spec.dedicated_logs,
                key_id=args["log_key_id"],
                identity_id=args.get("key_identity_id", ""),
                door=Door(
                    args.get("network_id", ""),
                    args.get("endpoint_subnet_id", ""),
                    group.name,
                    placed.region,
                    placed.tags(name),
                ),
            ),
            self._opts,
        )
        trail = self._activities(workspace.id)
        self._resources(workspace.id)
        client = client_of(self)
        threat_detection(
            f"{name}-defender",
            client.subscription_id,
            on=spec.threat_detection,
            emails=spec.alert_emails,
            opts=self._opts,
        )
        if placed.retained:
            azure_native.authorization.ManagementLockByScope(
                f"{name}-lock",
                lock_name="audit",
                # Not the whole group: what isn't evidence goes with the stack.
                scope=workspace.id,
                level=azure_native.authorization.LockLevel.CAN_NOT_DELETE,
                notes="Logs are evidence: nobody deletes them by mistake.",
                opts=kept(self._opts, True),
            )
        self.trail_id = trail.id
        self.log_destination_id = workspace.id
        self.register_outputs(
            {"trailId": self.trail_id, "logDestinationId": self.log_destination_id}
        )

    def _activities(self, workspace: pulumi.Input[str]) -> monitor.SubscriptionDiagnosticSetting:
        placed = self._spec.placed
        return monitor.SubscriptionDiagnosticSetting(
            f"{self._name}-activities",
            # One subscription may have trails of several stacks.
            name=titled(placed, self._name),
            workspace_id=workspace,
            storage_account_id=self._args["audit_store_id"],
            logs=[
                monitor.SubscriptionLogSettingsArgs(category=category, enabled=True)
                for category in _ACTIVITIES
            ],
            opts=self._opts,
        )

    def _resources(self, workspace: pulumi.Input[str]) -> None:
        """The vault, and the stores, whose own accesses are recorded as well.

        What the audit store records of itself goes into the workspace only: an archive that
        records each of its own writes would never end.
        """
        archive = self._args["audit_store_id"]
        vault = self._args.get("key_ring_id", "")
        self._recorded("keys", vault, ("AuditEvent",), workspace, archive)
        data = self._args.get("data_store_id")
        if data is not None:
            self._recorded("data", _objects(data), _ACCESSES, workspace, archive)
        self._recorded("archive", _objects(archive), _ACCESSES, workspace, None)

    def _recorded(
        self,
        title: str,
        resource: pulumi.Input[str],
        categories: tuple[str, ...],
        workspace: pulumi.Input[str],
        archive: pulumi.Input[str] | None,
    ) -> None:
        monitor.DiagnosticSetting(
            f"{self._name}-{title}",
            name="audit",
            resource_uri=resource,
            workspace_id=workspace,
            storage_account_id=archive,
            logs=[
                monitor.DiagnosticsLogSettingsArgs(category=category, enabled=True)
                for category in categories
            ],
            opts=self._opts,
        )


def _objects(store: pulumi.Input[str]) -> pulumi.Output[str]:
    """The part of a storage account whose accesses are recorded."""
    return pulumi.Output.concat(store, "/blobServices/default")
