"""Azure's types that name no key of their own: no rule judges them, but maps show them.

Some keep data under the service's key alone, for their service takes no customer's. Others keep it
inside of another resource, and have what that one has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import Resource, View, text
from falaj.policies.reading.azure_children import names
from falaj.policies.reading.types import azure
from falaj.policies.rules.encryption.azure_stores import KEYS, keyed
from falaj.policies.rules.encryption.demands import Readers, parts_of
from falaj.policies.rules.encryption.table import Part, Reader, read_key, readers

#: Types whose service takes no customer's key.
SERVICE_KEYED: Final = tuple(
    entry
    for name in (
        "apimanagement:ApiManagementService",
        "app:ManagedEnvironment",
        "communication:CommunicationService",
        "communication:EmailService",
        "dashboard:Grafana",
        "dbformariadb:Server",
        "dbformysql:SingleServer",
        "dbforpostgresql:SingleServer",
        "deviceprovisioningservices:IotDpsResource",
        "devtestlab:Lab",
        "digitaltwins:DigitalTwin",
        "durabletask:Scheduler",
        "eventgrid:Domain",
        "eventgrid:Namespace",
        "eventgrid:PartnerNamespace",
        "eventgrid:Topic",
        "fileshares:FileShare",
        "healthdataaiservices:DeidService",
        "iotcentral:App",
        "iothub:IotHubResource",
        "keyvault:Secret",
        "logic:IntegrationAccount",
        "logic:Workflow",
        "machinelearningservices:Registry",
        "mongocluster:MongoCluster",
        "monitor:AzureMonitorWorkspace",
        "notificationhubs:Namespace",
        "purview:Account",
        "redis:Redis",
        "relay:Namespace",
        "servicefabric:ManagedCluster",
        "storagesync:StorageSyncService",
        "streamanalytics:StreamingJob",
        "timeseriesinsights:Gen2Environment",
        "web:StaticSite",
        "web:WebApp",
    )
    for entry in keyed(name)
)
#: Types inside of another: theirs, the property that names it, and its type.
_INSIDE: Final = (
    (("storage:BlobContainer", "storage:FileShare", "storage:Queue", "storage:Table"),
     "accountName", "storage:StorageAccount"),
    (("sql:Database", "sql:ElasticPool"), "serverName", "sql:Server"),
    (("sql:ManagedDatabase",), "managedInstanceName", "sql:ManagedInstance"),
    (("dbforpostgresql:Database",), "serverName", "dbforpostgresql:Server"),
    (("dbformysql:Database",), "serverName", "dbformysql:Server"),
    (
        (
            "cosmosdb:SqlResourceSqlDatabase", "cosmosdb:SqlResourceSqlContainer",
            "cosmosdb:MongoDBResourceMongoDBDatabase", "cosmosdb:TableResourceTable",
            "cosmosdb:CassandraResourceCassandraKeyspace",
            "cosmosdb:GremlinResourceGremlinDatabase",
        ),
        "accountName", "cosmosdb:DatabaseAccount",
    ),
    (("kusto:ReadWriteDatabase",), "clusterName", "kusto:Cluster"),
    (("redisenterprise:Database",), "clusterName", "redisenterprise:RedisEnterprise"),
    (("servicebus:Queue", "servicebus:Topic"), "namespaceName", "servicebus:Namespace"),
    (("eventhub:EventHub",), "namespaceName", "eventhub:Namespace"),
    (("containerservice:AgentPool",), "resourceName", "containerservice:ManagedCluster"),
    (("netapp:CapacityPool",), "accountName", "netapp:Account"),
    (("elasticsan:Volume",), "volumeGroupName", "elasticsan:VolumeGroup"),
    (("operationalinsights:Table",), "workspaceName", "operationalinsights:Workspace"),
    (("synapse:SqlPool", "synapse:BigDataPool"), "workspaceName", "synapse:Workspace"),
    (("batch:Pool",), "accountName", "batch:BatchAccount"),
)  # fmt: skip


def _inside(path: str, holders: frozenset[str], known: Readers) -> Reader:
    """A reader for what is inside of another resource, which is judged by itself."""

    def read(resource: Resource, view: View) -> Iterator[Part]:
        own = resource.get("encryptionProtector")
        state, why = read_key(resource, "encryptionProtector", own, view, KEYS)
        if state != "absent":
            yield Part(state, "encryptionProtector", "encryptionProtector", why, text(own), True)
            return
        found = _holders(resource, view, path, holders)
        for each in found:
            for part in parts_of(each, view, known):
                why = f"it is inside of {each.name}: {part.why}"
                yield Part(part.state, path, path, why, part.key, part.surely, elsewhere=True)
        if not found:
            why = f"it is inside of what {path} names, which isn't of this stack"
            yield Part("unknown", path, path, why, surely=True, given=False, elsewhere=True)

    return read


def _holders(resource: Resource, view: View, path: str, holders: frozenset[str]) -> list[Resource]:
    if view.stack is None:
        return []
    name = text(resource.get(path)).lower()
    named = [each for each in view.stack.of_kind(*sorted(holders)) if name and name in names(each)]
    return named or [each for each in view.referred(resource, path) if each.kind in holders]


def contained(known: Readers) -> Readers:
    """Readers of all types that name no key of their own.

    Args:
        known: readers of the types that others are inside of.
    """
    found: dict[str, tuple[Reader, ...]] = readers(SERVICE_KEYED)
    for kinds, path, holder in _INSIDE:
        for kind in azure(*kinds):
            found[kind] = (*found.get(kind, ()), _inside(path, azure(holder), known))
    return found
