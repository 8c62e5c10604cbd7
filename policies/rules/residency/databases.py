"""Databases whose replicas and members are in other regions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
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
    text,
    violation,
)
from falaj.policies.reading.place import format_places
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency import destinations
from falaj.policies.rules.residency.destinations import AZURE_CONTROLS, Target, targets
from falaj.policies.rules.residency.everywhere import CONTROLS

# Databases that span regions: global clusters, replicas, replication to others.

#: Types whose purpose is a database of several regions.
_GLOBAL: Final[dict[str, str]] = {
    "aws:rds/globalCluster:GlobalCluster": "a global cluster of Aurora",
    "aws:docdb/globalCluster:GlobalCluster": "a global cluster of DocumentDB",
    "aws:neptune/globalCluster:GlobalCluster": "a global cluster of Neptune",
    "aws:elasticache/globalReplicationGroup:GlobalReplicationGroup": "a global datastore",
    "aws:memorydb/multiRegionCluster:MultiRegionCluster": "a cluster of several regions",
    "aws:dsql/clusterPeering:ClusterPeering": "a peering of clusters in several regions",
}
#: Properties that make a database a member of such a one.
_MEMBERS: Final[dict[str, tuple[str, ...]]] = {
    "aws:rds/cluster:Cluster": ("globalClusterIdentifier",),
    "aws:docdb/cluster:Cluster": ("globalClusterIdentifier",),
    "aws:neptune/cluster:Cluster": ("globalClusterIdentifier",),
    "aws:elasticache/replicationGroup:ReplicationGroup": ("globalReplicationGroupId",),
    "aws:memorydb/cluster:Cluster": ("multiRegionClusterName",),
    "aws:dsql/cluster:Cluster": ("multiRegionProperties",),
}


@rule(
    "residency-aws-global-database",
    "No database spans regions",
    Severity.CRITICAL,
    frozenset({**_GLOBAL, **_MEMBERS}),
    CONTROLS,
    "Use a cluster of one region with several zones: every further region of AWS is abroad.",
)
def global_database(resource: Resource, context: Context) -> Iterator[Finding]:
    """Global clusters, and the clusters that join them."""
    if (what := _GLOBAL.get(resource.kind)) and resource.custom:
        yield violation("", f"it is {what}, which spans regions; {format_places(context)}")
    for path in _MEMBERS.get(resource.kind, ()):
        if is_unknown(resource.get(path)):
            yield indeterminate(path, "whether it belongs to a global database can't be known")
        elif destinations.is_set(resource, path):
            yield violation(path, f"it belongs to a global database; {format_places(context)}")


#: Where data is replicated to, by type.
_REPLICAS: Final[dict[str, tuple[str, ...]]] = {
    "aws:dynamodb/table:Table": ("replicas.regionName", "globalTableWitness.regionName"),
    "aws:dynamodb/globalTable:GlobalTable": ("replicas.regionName",),
    "aws:keyspaces/keyspace:Keyspace": ("replicationSpecification.regionLists",),
    "aws:dsql/cluster:Cluster": ("multiRegionProperties.witnessRegion",),
    "aws:redshift/dataShareConsumerAssociation:DataShareConsumerAssociation": ("consumerRegion",),
    "aws:rds/cluster:Cluster": ("sourceRegion",),
}


@rule(
    "residency-aws-database-replica",
    "Databases are replicated within allowed regions",
    Severity.CRITICAL,
    frozenset(_REPLICAS),
    CONTROLS,
    "Remove the replicas of other regions. A table needs none for availability: it is kept in "
    "several zones of its region.",
)
def database_replica(resource: Resource, context: Context) -> Iterator[Finding]:
    """Regions of replicas and witnesses."""
    for path in _REPLICAS[resource.kind]:
        yield from destinations.region(resource, context, path, "the replica")


#: ARNs of the database that one is a replica of, or is replicated to.
_PEERS: Final[dict[str, tuple[str, ...]]] = {
    "aws:rds/instance:Instance": ("replicateSourceDb",),
    "aws:rds/cluster:Cluster": ("replicationSourceIdentifier",),
    "aws:docdb/cluster:Cluster": ("replicationSourceIdentifier",),
    "aws:neptune/cluster:Cluster": ("replicationSourceIdentifier",),
    "aws:dynamodb/tableReplica:TableReplica": ("globalTableArn",),
    "aws:dynamodb/kinesisStreamingDestination:KinesisStreamingDestination": ("streamArn",),
    "aws:redshift/integration:Integration": ("sourceArn", "targetArn"),
    "aws:rds/integration:Integration": ("sourceArn", "targetArn"),
    "aws:msk/replicator:Replicator": (
        "kafkaClusters.amazonMskCluster.mskClusterArn",
        "replicationInfoList.sourceKafkaClusterArn",
        "replicationInfoList.targetKafkaClusterArn",
    ),
    "aws:mq/broker:Broker": ("dataReplicationPrimaryBrokerArn",),
}


@rule(
    "residency-aws-database-peer",
    "What data is replicated from and to is in allowed regions",
    Severity.CRITICAL,
    frozenset(_PEERS),
    CONTROLS,
    "Replicate within an allowed region: a replica's other end, which holds the same data, "
    "must be in the country as well.",
)
def database_peer(resource: Resource, context: Context) -> Iterator[Finding]:
    """The other end of a replication; a bare identifier is one of the same region."""
    for path in _PEERS[resource.kind]:
        yield from destinations.arn(resource, context, path, "the replication's other end")
    if resource.kind == "aws:dynamodb/tableReplica:TableReplica" and resource.custom:
        # The table's own region always is another one.
        yield violation("", f"it replicates a table of another region; {format_places(context)}")


@rule(
    "residency-aws-broker-replication",
    "Brokers aren't replicated to another region",
    Severity.CRITICAL,
    {"aws:mq/broker:Broker"},
    CONTROLS,
    "Set dataReplicationMode to NONE, and use a deployment of several zones.",
)
def broker_replication(resource: Resource, context: Context) -> Iterator[Finding]:
    """Cross-region data replication of Amazon MQ; off unless it is switched on."""
    value = resource.get("dataReplicationMode")
    if is_unknown(value):
        yield indeterminate("dataReplicationMode", "whether it is replicated can't be known")
    elif text(value).upper() == "CRDR":
        yield violation(
            "dataReplicationMode", f"CRDR replicates to another region; {format_places(context)}"
        )


# Replicas and failover partners of stores on Azure, by where the partner is.

_PARTNER: Final = "the partner"

replicas: Final = targets(
    "residency-azure-replica",
    "Replicas and partners for failover are in the country",
    {
        "storage:ObjectReplicationPolicy": [
            Target("destinationAccount", "the destination account"),
            Target("properties.destinationAccount", "the destination account"),
        ],
        "sql:FailoverGroup": [
            Target("partnerServers.id", "the partner server"),
            Target("properties.partnerServers.id", "the partner server"),
            Target("readOnlyEndpoint.targetServer", "the server of the read-only endpoint"),
        ],
        "sql:InstanceFailoverGroup": [
            Target("managedInstancePairs.partnerManagedInstanceId", "the partner instance")
        ],
        "sql:ServerCommunicationLink": [Target("partnerServer", "the partner server")],
        "redis:LinkedServer": [Target("linkedRedisCacheId", "the linked cache")],
        "redis:RedisLinkedServer": [Target("linkedRedisCacheId", "the linked cache")],
        "redisenterprise:Database": [
            Target("geoReplication.linkedDatabases.id", "the linked database")
        ],
        "servicebus:DisasterRecoveryConfig": [Target("partnerNamespace", "the partner namespace")],
        "servicebus:MigrationConfig": [Target("targetNamespace", "the target namespace")],
        "eventhub:DisasterRecoveryConfig": [Target("partnerNamespace", "the partner namespace")],
        "netapp:CapacityPoolVolume": [
            Target("dataProtection.replication.remoteVolumeResourceId", "the other volume")
        ],
        "netapp:VolumeGroup": [
            Target("volumes.dataProtection.replication.remoteVolumeResourceId", "the other volume")
        ],
        "recoveryservices:ReplicationNetworkMapping": [
            Target("properties.recoveryNetworkId", "the network of the recovery")
        ],
        "recoveryservices:ReplicationProtectedItem": [
            Target("properties.providerSpecificDetails.recoveryResourceGroupId", _PARTNER),
            Target("properties.providerSpecificDetails.recoveryAzureNetworkId", _PARTNER),
            Target(
                "properties.providerSpecificDetails.vmManagedDisks"
                ".primaryStagingAzureStorageAccountId",
                "the account in between",
            ),
            Target(
                "properties.providerSpecificDetails.vmDisks.recoveryAzureStorageAccountId",
                "the account of the recovery",
            ),
        ],
        "recoveryservices:ReplicationProtectionContainerMapping": [
            Target("properties.targetProtectionContainerId", "the container of the recovery")
        ],
    },
    "Replicate to a resource in the country: declare it in this stack, or name its subscription "
    "in the setting allowedAccounts.",
)


@rule(
    "residency-azure-cross-tenant-copy",
    "Storage can't be copied to accounts of other organisations",
    Severity.HIGH,
    azure("storage:StorageAccount"),
    AZURE_CONTROLS,
    "Set allowCrossTenantReplication to false: a policy of replication may otherwise name an "
    "account of another organisation, wherever it is.",
)
def cross_tenant(resource: Resource, context: Context) -> Iterator[Finding]:
    """Off for new accounts since API 2023-01-01; before that absence meant yes.

    https://learn.microsoft.com/azure/storage/blobs/object-replication-prevent-cross-tenant-policies
    """
    del context
    replication = resource.get("allowCrossTenantReplication")
    if is_unknown(replication):
        yield indeterminate("allowCrossTenantReplication", "whether it is allowed can't be seen")
    elif is_true(replication):
        yield violation(
            "allowCrossTenantReplication",
            "objects may be replicated to accounts of other tenants, wherever they are",
        )
    elif not is_false(replication) and _is_before_2023(resource.type):
        yield violation(
            "allowCrossTenantReplication",
            "it isn't given, and in this version of the API the default is true",
        )


def _is_before_2023(token: str) -> bool:
    version = token.rpartition("/v")[2][:8]
    return version.isdigit() and version < "20230101"


@rule(
    "residency-azure-copy-scope",
    "Blobs can be copied within the organisation only",
    Severity.MEDIUM,
    azure("storage:StorageAccount"),
    AZURE_CONTROLS,
    "Set allowedCopyScope to PrivateLink or AAD: otherwise whoever may read the account can have "
    "Azure copy its blobs into any account of the world.",
)
def copy_scope(resource: Resource, context: Context) -> Iterator[Finding]:
    """Without a scope, blobs may be copied between any accounts.

    https://learn.microsoft.com/azure/storage/common/security-restrict-copy-operations
    """
    del context
    scope = resource.get("allowedCopyScope")
    if is_unknown(scope):
        yield indeterminate("allowedCopyScope", "who may copy can't be seen")
    elif text(scope).lower() not in {"aad", "privatelink"}:
        given = text(scope) or "not given, and so any account"
        yield violation("allowedCopyScope", f"it is {given}; it must be AAD or PrivateLink")


RULES: tuple[Rule, ...] = (
    global_database,
    database_replica,
    database_peer,
    broker_replication,
    replicas,
    cross_tenant,
    copy_scope,
)
