"""Logs and metrics of Azure: the workspaces, accounts, hubs and partners that they go to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from falaj.components.catalogue.region_names import normalise_azure
from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_false,
    is_unknown,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency.azure_places import allowed, where_allowed
from falaj.policies.rules.residency.azure_targets import CONTROLS, Target, judge_target, targets

_WORKSPACE: Final = "the workspace"
_ACCOUNT: Final = "the storage account"
_HUB: Final = "the event hub"
_REMEDIATION: Final = (
    "Send logs to a workspace, storage account or event hub in the country: declare it in this "
    "stack, or name its subscription in the setting allowedAccounts."
)

_SETTING: Final = (
    Target("workspaceId", _WORKSPACE),
    Target("storageAccountId", _ACCOUNT),
    Target("eventHubAuthorizationRuleId", _HUB),
    Target("serviceBusRuleId", "the service bus"),
)
DIAGNOSTICS: Final = (
    "monitor:DiagnosticSetting",
    "monitor:SubscriptionDiagnosticSetting",
    "monitor:ManagementGroupDiagnosticSetting",
    "aadiam:DiagnosticSetting",
)

diagnostics: Final = targets(
    "residency-azure-diagnostic-setting",
    "Diagnostic settings send logs to places in the country",
    dict.fromkeys(DIAGNOSTICS, _SETTING),
    _REMEDIATION,
)

collection: Final = targets(
    "residency-azure-data-collection",
    "Rules of collection send telemetry to places in the country",
    {
        "monitor:DataCollectionRule": [
            Target("destinations.logAnalytics.workspaceResourceId", _WORKSPACE),
            Target("destinations.monitoringAccounts.accountResourceId", "the metrics' workspace"),
            Target("destinations.eventHubs.eventHubResourceId", _HUB),
            Target("destinations.eventHubsDirect.eventHubResourceId", _HUB),
            Target("destinations.storageAccounts.storageAccountResourceId", _ACCOUNT),
            Target("destinations.storageBlobsDirect.storageAccountResourceId", _ACCOUNT),
            Target("destinations.storageTablesDirect.storageAccountResourceId", _ACCOUNT),
            Target("destinations.azureDataExplorer.resourceId", "the Data Explorer"),
        ],
        # A rule works where it is, whatever its destinations.
        "monitor:DataCollectionRuleAssociation": [
            Target("dataCollectionRuleId", "the rule"),
            Target("dataCollectionEndpointId", "the endpoint"),
        ],
    },
    _REMEDIATION,
)

exports: Final = targets(
    "residency-azure-log-export",
    "Logs are kept in, linked with and exported to places in the country",
    {
        "operationalinsights:DataExport": [
            Target("resourceId", "the destination"),
            Target("destination.resourceId", "the destination"),
        ],
        "operationalinsights:LinkedStorageAccount": [Target("storageAccountIds", _ACCOUNT)],
        "operationalinsights:LinkedService": [Target("resourceId", "the linked service")],
        "applicationinsights:Component": [Target("workspaceResourceId", _WORKSPACE)],
        "applicationinsights:ExportConfiguration": [Target("destinationAccountId", _ACCOUNT)],
        "applicationinsights:ComponentLinkedStorageAccount": [
            Target("linkedStorageAccount", _ACCOUNT)
        ],
        "network:FlowLog": [
            Target("storageId", _ACCOUNT),
            Target(
                "flowAnalyticsConfiguration.networkWatcherFlowAnalyticsConfiguration"
                ".workspaceResourceId",
                _WORKSPACE,
            ),
        ],
        "monitor:LogProfile": [
            Target("storageAccountId", _ACCOUNT),
            Target("serviceBusRuleId", "the service bus"),
        ],
        "operationalinsights:Workspace": [
            Target("features.clusterResourceId", "the cluster of the workspace")
        ],
        "security:DefenderForStorage": [
            Target("properties.malwareScanning.scanResultsEventGridTopicResourceId", "the topic")
        ],
        "app:ManagedEnvironment": [
            Target("appLogsConfiguration.logAnalyticsConfiguration.customerId", _WORKSPACE)
        ],
        "containerinstance:ContainerGroup": [
            Target("diagnostics.logAnalytics.workspaceResourceId", _WORKSPACE),
            Target("diagnostics.logAnalytics.workspaceId", _WORKSPACE),
        ],
        "compute:VirtualMachineExtension": [Target("settings.workspaceId", _WORKSPACE)],
        "network:PacketCapture": [Target("storageLocation.storageId", _ACCOUNT)],
        "network:ConnectionMonitor": [
            Target("outputs.workspaceSettings.workspaceResourceId", _WORKSPACE)
        ],
        "security:WorkspaceSetting": [Target("workspaceId", _WORKSPACE)],
        "security:Automation": [
            Target("actions.workspaceResourceId", _WORKSPACE),
            Target("actions.eventHubResourceId", _HUB),
            Target("actions.logicAppResourceId", "the logic app"),
        ],
        "security:IotSecuritySolution": [Target("workspace", _WORKSPACE)],
        "containerservice:ManagedCluster": [
            Target("addonProfiles.omsagent.config.logAnalyticsWorkspaceResourceID", _WORKSPACE),
            Target("addonProfiles.omsAgent.config.logAnalyticsWorkspaceResourceID", _WORKSPACE),
            Target("securityProfile.defender.logAnalyticsWorkspaceResourceId", _WORKSPACE),
        ],
        "machinelearningservices:Workspace": [
            Target("storageAccount", _ACCOUNT),
            Target("containerRegistry", "the registry"),
            Target("applicationInsights", "the Application Insights"),
        ],
        "operationsmanagement:Solution": [Target("properties.workspaceResourceId", _WORKSPACE)],
    },
    _REMEDIATION,
)

#: Partners whose service has no site in the country (their own lists of sites:
#: https://docs.datadoghq.com/getting_started/site/,
#: https://docs.newrelic.com/docs/accounts/accounts-billing/account-setup/choose-your-data-center/,
#: https://docs.logz.io/docs/user-guide/admin/hosting-regions/account-region/).
PARTNERS: Final = azure(
    "datadog:Monitor", "datadog:MonitoredSubscription", "newrelic:Monitor", "logz:Monitor"
)
_PARTNER_ID: Final = re.compile(r"/providers/(?:microsoft\.(?:datadog|logz)|newrelic\.)", re.I)


@rule(
    "residency-azure-partner-service",
    "No telemetry goes to partners' services abroad",
    Severity.CRITICAL,
    PARTNERS | azure(*DIAGNOSTICS),
    CONTROLS,
    "Send logs to a Log Analytics workspace in the country, and use a service that runs there.",
)
def partner_service(resource: Resource, view: View) -> Iterator[Finding]:
    """Services of partners collect into their own accounts, which have sites of their own."""
    if resource.kind in PARTNERS:
        yield violation("", "the partner's service, which takes in data, has no site here")
        return
    partner = resource.get("marketplacePartnerId")
    if _PARTNER_ID.search(text(partner)):
        yield violation("marketplacePartnerId", "the logs go to a partner without a site here")
    else:
        yield from judge_target(resource, "marketplacePartnerId", partner, view, "the partner")


@rule(
    "residency-azure-workspace-replication",
    "Log Analytics workspaces aren't replicated abroad",
    Severity.CRITICAL,
    azure("operationalinsights:Workspace", "operationalinsights:Cluster"),
    CONTROLS,
    "Leave replication off, or set its location to one in the country.",
)
def workspace_replication(resource: Resource, view: View) -> Iterator[Finding]:
    """Off unless asked for; then at a location of the workspace's geography that must be named.

    https://learn.microsoft.com/azure/azure-monitor/logs/workspace-replication
    """
    for prefix in ("replication", "properties.replication"):
        enabled = resource.get(f"{prefix}.enabled")
        place = resource.get(f"{prefix}.location")
        if (enabled is ABSENT and place is ABSENT) or is_false(enabled):
            continue
        if is_unknown(enabled) or is_unknown(place):
            which = "enabled" if is_unknown(enabled) else "location"
            yield indeterminate(f"{prefix}.{which}", "where it is replicated can't be seen")
        elif normalise_azure(place) not in allowed(view):
            given = f"{place!r}" if text(place) else "not given, and so the service's choice"
            yield violation(
                f"{prefix}.location", f"the location is {given}; {where_allowed(view)}"
            )


@rule(
    "residency-azure-export-location",
    "Continuous export of Application Insights names a location in the country",
    Severity.CRITICAL,
    azure("applicationinsights:ExportConfiguration"),
    CONTROLS,
    "Set destinationStorageLocationId to a location in the country.",
)
def export_location(resource: Resource, view: View) -> Iterator[Finding]:
    """Its key ends in an id, but it is the name of a location."""
    for path, place in select(resource.properties, "destinationStorageLocationId"):
        if is_unknown(place):
            yield indeterminate(path, f"the location can't be seen; {where_allowed(view)}")
        elif text(place) and normalise_azure(place) not in allowed(view):
            yield violation(path, f"the location is {text(place)!r}; {where_allowed(view)}")


#: What an alert may start, by the path of its receiver's id.
_RECEIVERS: Final = {
    "automationRunbookReceivers.automationAccountId": "the automation account",
    "azureFunctionReceivers.functionAppResourceId": "the function app",
    "logicAppReceivers.resourceId": "the logic app",
}


@rule(
    "residency-azure-action-group",
    "Alerts start actions in the country only",
    Severity.HIGH,
    azure("monitor:ActionGroup", "monitor:TenantActionGroup"),
    CONTROLS,
    "Remove ITSM receivers, which exist in regions abroad only; let alerts start functions, logic "
    "apps and runbooks in the country.",
)
def action_group(resource: Resource, view: View) -> Iterator[Finding]:
    """Receivers: what starts within Azure must be in the country; webhooks are judged by host.

    The list of regions for ITSM holds none of the country
    (https://learn.microsoft.com/dotnet/api/azure.resourcemanager.monitor.models.monitoritsmreceiver.region).
    """
    for path, value in select(resource.properties, "itsmReceivers.region", absent=True):
        if is_unknown(value):
            yield indeterminate(path, f"the location can't be seen; {where_allowed(view)}")
        elif normalise_azure(value) not in allowed(view):
            yield violation(path, f"ITSM connections exist abroad only; {where_allowed(view)}")
    for receiver, what in _RECEIVERS.items():
        for path, value in select(resource.properties, receiver):
            yield from judge_target(resource, path, value, view, what)


RULES: Final[tuple[Rule, ...]] = (
    diagnostics,
    collection,
    exports,
    partner_service,
    workspace_replication,
    export_location,
    action_group,
)
