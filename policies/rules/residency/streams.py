"""Streams, logs, metrics and jobs: where what they carry ends up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from falaj.components.catalogue.region_names import normalise_azure
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    indeterminate,
    is_false,
    is_true,
    is_unknown,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.place import format_places
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency import destinations
from falaj.policies.rules.residency.azure_places import allowed, where_allowed
from falaj.policies.rules.residency.destinations import (
    AZURE_CONTROLS,
    Target,
    judge_target,
    targets,
)
from falaj.policies.rules.residency.everywhere import CONTROLS

# Events, logs and metrics that are sent on: to other regions, buses, streams and buckets.

#: ARNs that get what happened, by type. A bare name is one of the same region.
_TARGETS: Final[dict[str, tuple[str, ...]]] = {
    "aws:cloudwatch/eventTarget:EventTarget": ("arn", "deadLetterConfig.arn"),
    "aws:scheduler/schedule:Schedule": ("target.arn", "target.deadLetterConfig.arn"),
    "aws:pipes/pipe:Pipe": ("target", "enrichment"),
    "aws:lambda/functionEventInvokeConfig:FunctionEventInvokeConfig": (
        "destinationConfig.onFailure.destination", "destinationConfig.onSuccess.destination",
    ),
    "aws:lambda/eventSourceMapping:EventSourceMapping": (
        "destinationConfig.onFailure.destinationArn",
    ),
    "aws:lambda/function:Function": ("deadLetterConfig.targetArn",),
    "aws:ses/eventDestination:EventDestination": (
        "kinesisDestination.streamArn", "snsDestination.topicArn",
    ),
    "aws:sesv2/configurationSetEventDestination:ConfigurationSetEventDestination": (
        "eventDestination.kinesisFirehoseDestination.deliveryStreamArn",
        "eventDestination.snsDestination.topicArn",
        "eventDestination.eventBridgeDestination.eventBusArn",
    ),
}  # fmt: skip


@rule(
    "residency-aws-event-target",
    "Events go to targets in allowed regions",
    Severity.CRITICAL,
    frozenset(_TARGETS),
    CONTROLS,
    "Send events to a target of an allowed region: an ARN says the region.",
)
def event_target(resource: Resource, context: Context) -> Iterator[Finding]:
    """Targets, destinations and dead-letter queues."""
    for path in _TARGETS[resource.kind]:
        yield from destinations.arn(resource, context, path, "the target")


#: ARNs that get logs, metrics and traces, by type.
_SINKS: Final[dict[str, tuple[str, ...]]] = {
    "aws:cloudwatch/logSubscriptionFilter:LogSubscriptionFilter": ("destinationArn",),
    "aws:cloudwatch/logDestination:LogDestination": ("targetArn",),
    "aws:cloudwatch/logDeliveryDestination:LogDeliveryDestination": (
        "deliveryDestinationConfiguration.destinationResourceArn",
    ),
    "aws:cloudwatch/logDelivery:LogDelivery": ("deliveryDestinationArn",),
    "aws:cloudwatch/metricStream:MetricStream": ("firehoseArn",),
    "aws:oam/link:Link": ("sinkIdentifier",),
    "aws:ec2/flowLog:FlowLog": ("logDestination",),
    "aws:wafv2/webAclLoggingConfiguration:WebAclLoggingConfiguration": (
        "logDestinationConfigs",
    ),
    "aws:cloudtrail/trail:Trail": ("cloudWatchLogsGroupArn",),
    "aws:route53/resolverQueryLogConfig:ResolverQueryLogConfig": ("destinationArn",),
}  # fmt: skip


@rule(
    "residency-aws-log-destination",
    "Logs and metrics go to destinations in allowed regions",
    Severity.CRITICAL,
    frozenset(_SINKS),
    (*CONTROLS, "iso27001:A.8.15", "uae-ia:T3.6.3"),
    "Keep logs in a group, stream or bucket of an allowed region. A bucket must be one of this "
    "stack, or its place be shown in a waiver: names of buckets say no region.",
)
def log_destination(resource: Resource, context: Context) -> Iterator[Finding]:
    """Log groups, streams, sinks, and buckets by their ARNs."""
    for path in _SINKS[resource.kind]:
        yield from destinations.arn(resource, context, path, "the destination")


#: Buckets that services write to in any region, by type. Services that demand a bucket of their
#: own region (access logs of load balancers and of S3, exports of RDS, inventories, Athena's
#: results) aren't here: what they write stays where they are.
#: https://docs.aws.amazon.com/awscloudtrail/latest/userguide/create-s3-bucket-policy-for-cloudtrail.html
#: https://docs.aws.amazon.com/config/latest/developerguide/s3-bucket-policy.html
#: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.HowItWorks.html
_BUCKETS: Final[dict[str, tuple[str, ...]]] = {
    "aws:cloudtrail/trail:Trail": ("s3BucketName",),
    "aws:cfg/deliveryChannel:DeliveryChannel": ("s3BucketName",),
    "aws:dynamodb/tableExport:TableExport": ("s3Bucket",),
    "aws:kinesis/firehoseDeliveryStream:FirehoseDeliveryStream": (
        "extendedS3Configuration.bucketArn",
        "extendedS3Configuration.s3BackupConfiguration.bucketArn",
        "redshiftConfiguration.s3BackupConfiguration.bucketArn",
        *(
            f"{each}Configuration.s3Configuration.bucketArn"
            for each in (
                "elasticsearch", "opensearch", "opensearchserverless", "redshift", "splunk",
                "httpEndpoint", "snowflake", "iceberg",
            )
        ),
    ),
    "aws:emr/cluster:Cluster": ("logUri",),
    "aws:datasync/s3Location:S3Location": ("s3BucketArn",),
    "aws:pipes/pipe:Pipe": ("logConfiguration.s3LogDestination.bucketName",),
    "aws:ssm/resourceDataSync:ResourceDataSync": (),
    "aws:ssm/association:Association": (),
}  # fmt: skip
#: Regions that are given along with the bucket, and say where it is.
_SAID: Final[dict[str, str]] = {
    "aws:ssm/resourceDataSync:ResourceDataSync": "s3Destination.region",
    "aws:ssm/association:Association": "outputLocation.s3Region",
}


@rule(
    "residency-aws-log-bucket",
    "Services write to buckets in allowed regions",
    Severity.CRITICAL,
    frozenset(_BUCKETS),
    (*CONTROLS, "iso27001:A.8.15"),
    "Write to a bucket of an allowed region that this stack declares, so that its region can be "
    "told. A trail may record all regions, as long as its bucket is in the country.",
)
def log_bucket(resource: Resource, context: Context) -> Iterator[Finding]:
    """Buckets of trails, deliveries and exports."""
    if given := _SAID.get(resource.kind):
        yield from destinations.region(resource, context, given, "the bucket")
        return
    for path in _BUCKETS[resource.kind]:
        yield from destinations.bucket(resource, context, path, "the bucket")


#: Collections of what several regions record, and the regions that they keep in step.
_LINKS: Final[dict[str, tuple[str, str]]] = {
    "aws:securityhub/findingAggregator:FindingAggregator": ("linkingMode", "specifiedRegions"),
    "aws:securityhub/aggregatorV2:AggregatorV2": ("regionLinkingMode", "linkedRegions"),
}
#: Regions that copies go to.
_COPIES: Final[dict[str, tuple[str, ...]]] = {
    "aws:securitylake/dataLake:DataLake": (
        "configuration.region", "configuration.replicationConfiguration.regions",
    ),
    "aws:observabilityadmin/centralizationRuleForOrganization:CentralizationRuleForOrganization": (
        "rule.destination.region",
        "rule.destination.destinationLogsConfiguration.backupConfiguration.region",
        "rule.destination.destinationMetricsConfiguration.backupConfiguration.region",
    ),
    "aws:cfg/aggregateAuthorization:AggregateAuthorization": ("authorizedAwsRegion", "region"),
    "aws:ssmincidents/replicationSet:ReplicationSet": ("regions.name", "region.name"),
}  # fmt: skip


@rule(
    "residency-aws-collection",
    "Security and audit records are collected in allowed regions",
    Severity.CRITICAL,
    frozenset({**_LINKS, **_COPIES}),
    (*CONTROLS, "iso27001:A.8.15", "uae-ia:T3.6.3"),
    "Collect records in an allowed region, and name no region abroad. An aggregator may collect "
    "what other regions record where they are only a source.",
)
def aws_collection(resource: Resource, context: Context) -> Iterator[Finding]:
    """Where collections are kept, and what they are kept in step with."""
    for path in _COPIES.get(resource.kind, ()):
        yield from destinations.region(resource, context, path, "the collection")
    mode, regions = _LINKS.get(resource.kind, ("", ""))
    for at, value in select(resource.properties, mode) if mode else ():
        if is_unknown(value):
            yield indeterminate(at, "which regions it is kept in step with can't be known")
        elif text(value).upper() in {"ALL_REGIONS", "ALL_REGIONS_EXCEPT_SPECIFIED"}:
            yield violation(
                at,
                f"findings and what people note on them are kept in step with every region; "
                f"{format_places(context)}",
            )
        elif text(value).upper() == "SPECIFIED_REGIONS":
            yield from destinations.region(resource, context, regions, "a linked region")


# Logs and metrics of Azure: the workspaces, accounts, hubs and partners that they go to.

_WORKSPACE: Final = "the workspace"
_ACCOUNT: Final = "the storage account"
_HUB: Final = "the event hub"
_MONITORING_REMEDIATION: Final = (
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
    _MONITORING_REMEDIATION,
)

monitoring_collection: Final = targets(
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
    _MONITORING_REMEDIATION,
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
    _MONITORING_REMEDIATION,
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
    AZURE_CONTROLS,
    "Send logs to a Log Analytics workspace in the country, and use a service that runs there.",
)
def partner_service(resource: Resource, context: Context) -> Iterator[Finding]:
    """Services of partners collect into their own accounts, which have sites of their own."""
    if resource.kind in PARTNERS:
        yield violation("", "the partner's service, which takes in data, has no site here")
        return
    partner = resource.get("marketplacePartnerId")
    if _PARTNER_ID.search(text(partner)):
        yield violation("marketplacePartnerId", "the logs go to a partner without a site here")
    else:
        yield from judge_target(resource, "marketplacePartnerId", partner, context, "the partner")


@rule(
    "residency-azure-workspace-replication",
    "Log Analytics workspaces aren't replicated abroad",
    Severity.CRITICAL,
    azure("operationalinsights:Workspace", "operationalinsights:Cluster"),
    AZURE_CONTROLS,
    "Leave replication off, or set its location to one in the country.",
)
def workspace_replication(resource: Resource, context: Context) -> Iterator[Finding]:
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
        elif normalise_azure(place) not in allowed(context):
            given = f"{place!r}" if text(place) else "not given, and so the service's choice"
            yield violation(
                f"{prefix}.location", f"the location is {given}; {where_allowed(context)}"
            )


@rule(
    "residency-azure-export-location",
    "Continuous export of Application Insights names a location in the country",
    Severity.CRITICAL,
    azure("applicationinsights:ExportConfiguration"),
    AZURE_CONTROLS,
    "Set destinationStorageLocationId to a location in the country.",
)
def export_location(resource: Resource, context: Context) -> Iterator[Finding]:
    """Its key ends in an id, but it is the name of a location."""
    for path, place in select(resource.properties, "destinationStorageLocationId"):
        if is_unknown(place):
            yield indeterminate(path, f"the location can't be seen; {where_allowed(context)}")
        elif text(place) and normalise_azure(place) not in allowed(context):
            yield violation(path, f"the location is {text(place)!r}; {where_allowed(context)}")


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
    AZURE_CONTROLS,
    "Remove ITSM receivers, which exist in regions abroad only; let alerts start functions, logic "
    "apps and runbooks in the country.",
)
def action_group(resource: Resource, context: Context) -> Iterator[Finding]:
    """Receivers: what starts within Azure must be in the country; webhooks are judged by host.

    The list of regions for ITSM holds none of the country
    (https://learn.microsoft.com/dotnet/api/azure.resourcemanager.monitor.models.monitoritsmreceiver.region).
    """
    for path, value in select(resource.properties, "itsmReceivers.region", absent=True):
        if is_unknown(value):
            yield indeterminate(path, f"the location can't be seen; {where_allowed(context)}")
        elif normalise_azure(value) not in allowed(context):
            yield violation(path, f"ITSM connections exist abroad only; {where_allowed(context)}")
    for receiver, what in _RECEIVERS.items():
        for path, value in select(resource.properties, receiver):
            yield from judge_target(resource, path, value, context, what)


# Data Factory and Synapse: where copies run, and to whom a workspace may send.

_AUTO: Final = frozenset(("autoresolve", "autoresolveintegrationruntime", ""))


@rule(
    "residency-azure-integration-runtime",
    "Integration runtimes run in the country",
    Severity.CRITICAL,
    azure("datafactory:IntegrationRuntime", "synapse:IntegrationRuntime"),
    AZURE_CONTROLS,
    "Set computeProperties.location to a location in the country: AutoResolve runs next to the "
    "sink of a copy, wherever that is.",
)
def runtime(resource: Resource, context: Context) -> Iterator[Finding]:
    """Runtimes of Azure resolve their region by themselves unless one is given.

    https://learn.microsoft.com/azure/data-factory/concepts-integration-runtime#azure-ir-location
    """
    kind = resource.get("properties.type")
    if text(kind).lower() in {"selfhosted", "self-hosted"}:
        return
    path = "properties.typeProperties.computeProperties.location"
    if resource.get("properties.typeProperties") is ABSENT:
        path = "properties.computeProperties.location"
    place = resource.get(path)
    if is_unknown(place) or is_unknown(kind):
        where = path if is_unknown(place) else "properties.type"
        yield indeterminate(where, f"where it runs can't be seen; {where_allowed(context)}")
    elif normalise_azure(place) in _AUTO:
        given = text(place) or "not given, and so AutoResolve"
        yield violation(
            path, f"it is {given}, which is next to the sink; {where_allowed(context)}"
        )
    elif normalise_azure(place) not in allowed(context):
        yield violation(path, f"the location is {text(place)!r}; {where_allowed(context)}")


#: Services that no runtime connects to.
_WITHOUT_RUNTIME: Final = frozenset(
    ("azurekeyvault", "azurebatch", "hdinsightondemand", "azuredatalakeanalytics")
)


@rule(
    "residency-azure-linked-service",
    "Services of a data factory are reached by a runtime of a known place",
    Severity.HIGH,
    azure("datafactory:LinkedService"),
    AZURE_CONTROLS,
    "Name in connectVia an integration runtime whose location is in the country: without one the "
    "factory resolves the region by itself.",
)
def linked_service(resource: Resource, context: Context) -> Iterator[Finding]:
    """Without `connectVia` it is AutoResolveIntegrationRuntime.

    https://learn.microsoft.com/azure/data-factory/concepts-integration-runtime
    """
    del context
    if text(resource.get("properties.type")).lower() in _WITHOUT_RUNTIME:
        return
    path = "properties.connectVia.referenceName"
    name = resource.get(path)
    if is_unknown(name):
        yield indeterminate(path, "which runtime connects to it can't be seen")
    elif text(name).lower() in _AUTO:
        given = text(name) or "not given, and so AutoResolveIntegrationRuntime"
        yield violation(path, f"it is {given}, which runs next to the sink of a copy")


@rule(
    "residency-azure-synapse-exfiltration",
    "Synapse sends data to approved tenants only",
    Severity.MEDIUM,
    azure("synapse:Workspace"),
    AZURE_CONTROLS,
    "Set managedVirtualNetwork to default and managedVirtualNetworkSettings."
    "preventDataExfiltration to true. It can only be chosen when the workspace is made.",
)
def synapse(resource: Resource, context: Context) -> Iterator[Finding]:
    """Off unless asked for.

    https://learn.microsoft.com/azure/synapse-analytics/security/workspace-data-exfiltration-protection
    """
    del context
    path = "managedVirtualNetworkSettings.preventDataExfiltration"
    prevented = resource.get(path)
    if is_unknown(prevented):
        yield indeterminate(path, "whether data may go to other tenants can't be seen")
    elif not is_true(prevented):
        given = "not given, and so false" if prevented is ABSENT else "false"
        yield violation(path, f"it is {given}: data may be sent to any tenant, wherever it is")


# Stores and streams that services of Azure write to: captures, audits, outputs, mounts.

_LINKED_STORES_REMEDIATION: Final = (
    "Write to a store in the country: declare it in this stack, or name its subscription in the "
    "setting allowedAccounts."
)

_AUDIT: Final = (Target("storageEndpoint", _ACCOUNT),)

stores: Final = targets(
    "residency-azure-linked-store",
    "Services write to stores in the country",
    {
        "eventhub:EventHub": [
            Target("captureDescription.destination.storageAccountResourceId", _ACCOUNT)
        ],
        "batch:BatchAccount": [Target("autoStorage.storageAccountId", _ACCOUNT)],
        "synapse:Workspace": [
            Target("defaultDataLakeStorage.resourceId", _ACCOUNT),
            Target("defaultDataLakeStorage.accountUrl", _ACCOUNT),
        ],
        "videoindexer:Account": [Target("storageServices.resourceId", _ACCOUNT)],
        "healthcareapis:Service": [
            Target("properties.exportConfiguration.storageAccountName", _ACCOUNT)
        ],
        "healthcareapis:FhirService": [Target("exportConfiguration.storageAccountName", _ACCOUNT)],
        "cognitiveservices:Account": [
            Target("properties.userOwnedStorage.resourceId", _ACCOUNT),
            Target("properties.amlWorkspace.resourceId", "the ML workspace"),
            Target("properties.raiMonitorConfig.adxStorageResourceId", "the Data Explorer"),
        ],
        "containerinstance:ContainerGroup": [
            Target("volumes.azureFile.storageAccountName", _ACCOUNT),
        ],
        "app:ManagedEnvironmentsStorage": [
            Target("properties.azureFile.accountName", _ACCOUNT),
            Target("properties.nfsAzureFile.server", _ACCOUNT),
        ],
        "machinelearningservices:Datastore": [Target("properties.accountName", _ACCOUNT)],
        "storagecache:AmlFilesystem": [
            Target("hsm.settings.container", _ACCOUNT),
            Target("hsm.settings.loggingContainer", _ACCOUNT),
        ],
        "healthcareapis:IotConnectorFhirDestination": [
            Target("fhirServiceResourceId", "the FHIR service")
        ],
        "storagemover:Endpoint": [Target("properties.storageAccountResourceId", _ACCOUNT)],
        "storagesync:CloudEndpoint": [Target("storageAccountResourceId", _ACCOUNT)],
        "datafactory:ManagedPrivateEndpoint": [
            Target("properties.privateLinkResourceId", "the service behind the endpoint")
        ],
        "sql:DatabaseBlobAuditingPolicy": _AUDIT,
        "sql:ExtendedDatabaseBlobAuditingPolicy": _AUDIT,
        "sql:ServerBlobAuditingPolicy": _AUDIT,
        "sql:ExtendedServerBlobAuditingPolicy": _AUDIT,
        "sql:DatabaseSecurityAlertPolicy": _AUDIT,
        "sql:ServerSecurityAlertPolicy": _AUDIT,
        "sql:DatabaseVulnerabilityAssessment": [Target("storageContainerPath", _ACCOUNT)],
        "sql:ServerVulnerabilityAssessment": [Target("storageContainerPath", _ACCOUNT)],
        "sql:ManagedInstanceVulnerabilityAssessment": [Target("storageContainerPath", _ACCOUNT)],
        "containerregistry:ExportPipeline": [Target("target.uri", _ACCOUNT)],
        "compute:VirtualMachine": [
            Target("diagnosticsProfile.bootDiagnostics.storageUri", _ACCOUNT)
        ],
        "compute:VirtualMachineScaleSet": [
            Target("virtualMachineProfile.diagnosticsProfile.bootDiagnostics.storageUri", _ACCOUNT)
        ],
    },
    _LINKED_STORES_REMEDIATION,
)

_PATHS: Final = (
    "destination",
    "deliveryWithResourceIdentity.destination",
    "deadLetterDestination",
    "deadLetterWithResourceIdentity.deadLetterDestination",
    "deliveryConfiguration.push.destination",
    "deliveryConfiguration.push.deliveryWithResourceIdentity.destination",
    "deliveryConfiguration.push.deadLetterDestinationWithResourceIdentity.deadLetterDestination",
)
#: Subscriptions of Event Grid, all with the same destinations.
EVENT_SUBSCRIPTIONS: Final = (
    "eventgrid:EventSubscription",
    "eventgrid:DomainEventSubscription",
    "eventgrid:DomainTopicEventSubscription",
    "eventgrid:NamespaceTopicEventSubscription",
    "eventgrid:PartnerTopicEventSubscription",
    "eventgrid:SystemTopicEventSubscription",
    "eventgrid:TopicEventSubscription",
)

_OUTPUT: Final = {
    "storageAccounts.accountName": _ACCOUNT,
    "serviceBusNamespace": "the namespace",
    "accountId": "the Cosmos DB account",
    "accountName": "the account",
    "server": "the server",
    "functionAppName": "the function app",
    "cluster": "the Data Explorer",
}


def _outputs(prefix: str) -> list[Target]:
    return [
        Target(f"{prefix}{holder}.{path}", what)
        for holder in ("datasource", "datasource.properties")
        for path, what in _OUTPUT.items()
    ]


streams: Final = targets(
    "residency-azure-event-destination",
    "Events and streams are delivered to places in the country",
    {
        **{
            name: [Target(f"{path}.resourceId", "the destination") for path in _PATHS]
            for name in EVENT_SUBSCRIPTIONS
        },
        "eventgrid:Namespace": [
            Target("topicSpacesConfiguration.routeTopicResourceId", "the topic")
        ],
        "streamanalytics:Output": _outputs(""),
        "streamanalytics:StreamingJob": [
            *_outputs("outputs."),
            Target("jobStorageAccount.accountName", _ACCOUNT),
        ],
    },
    _LINKED_STORES_REMEDIATION,
)


RULES: tuple[Rule, ...] = (
    event_target,
    log_destination,
    log_bucket,
    aws_collection,
    diagnostics,
    monitoring_collection,
    exports,
    partner_service,
    workspace_replication,
    export_location,
    action_group,
    runtime,
    linked_service,
    synapse,
    stores,
    streams,
)
