"""Who did what: logs of the subscription and of what holds data, searchable and archived."""

import pulumi
import pulumi_azure_native as azure_native
from pulumi_azure_native import monitor

from falaj.components.azure._aliases import of_component
from falaj.components.azure._groups import kept, resource_group
from falaj.components.azure._log_workspace import Logs, log_workspace
from falaj.components.azure._names import titled
from falaj.components.azure._private_endpoint import Door
from falaj.components.azure._threat_detection import threat_detection
from falaj.components.specification.audit_trail import AuditTrailArgs, check
from falaj.components.specification.property_names import engine_inputs

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
    on abroad. Plans and contact are the subscription's, whichever stack sets them: the last
    one's values hold, and the plans stay on when the stack goes.

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
            "falaj-azure:index:AuditTrail", name, engine_inputs(args), of_component(opts)
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
        if spec.threat_detection:
            client = azure_native.authorization.get_client_config_output(
                opts=pulumi.InvokeOutputOptions(parent=self)
            )
            threat_detection(
                f"{name}-defender", client.subscription_id, spec.alert_emails, self._opts
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
