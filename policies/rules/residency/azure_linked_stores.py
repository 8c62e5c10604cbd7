"""Stores and streams that services of Azure write to: captures, audits, outputs, mounts."""

from __future__ import annotations

from typing import Final

from falaj.policies.model import Rule
from falaj.policies.rules.residency.azure_targets import Target, targets

_ACCOUNT: Final = "the storage account"
_REMEDIATION: Final = (
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
    _REMEDIATION,
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
    _REMEDIATION,
)

RULES: Final[tuple[Rule, ...]] = (stores, streams)
