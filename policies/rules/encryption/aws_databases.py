"""AWS databases, caches and search: where their data is encrypted, and with whose key.

Defaults are those that the types' own documentation states (pulumi-aws 7.51) unless a line says
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from falaj.policies.model import ABSENT, Resource, View, get, text
from falaj.policies.model.values import Unknown
from falaj.policies.rules.encryption.table import Part, Reader, Stores, readers

_RESTORED: Final = ("snapshotIdentifier", "restoreToPointInTime")
_INSIGHTS: Final = "performanceInsightsEnabled"
_MASTER: Final = "manageMasterUserPassword"

_RDS_CLUSTER: Final = Stores(
    "aws:rds/cluster:Cluster",
    "kmsKeyId",
    "storageEncrypted",
    "none",
    copies=(*_RESTORED, "replicationSourceIdentifier"),
)
_REPLICATION_GROUP: Final = Stores(
    "aws:elasticache/replicationGroup:ReplicationGroup",
    "kmsKeyId",
    "atRestEncryptionEnabled",
    "none",
    copies=("globalReplicationGroupId",),
)
_CACHE_CLUSTER: Final = Stores("aws:elasticache/cluster:Cluster", default="none")

DATABASES: Final = (
    Stores(
        "aws:rds/instance:Instance",
        "kmsKeyId",
        "storageEncrypted",
        "none",
        copies=("replicateSourceDb", *_RESTORED),
    ),
    Stores("aws:rds/instance:Instance", "performanceInsightsKmsKeyId", when=_INSIGHTS),
    Stores("aws:rds/instance:Instance", "masterUserSecretKmsKeyId", when=_MASTER),
    Stores("aws:rds/cluster:Cluster", "performanceInsightsKmsKeyId", when=_INSIGHTS),
    Stores("aws:rds/cluster:Cluster", "masterUserSecretKmsKeyId", when=_MASTER),
    Stores("aws:rds/clusterInstance:ClusterInstance", "performanceInsightsKmsKeyId",
           when=_INSIGHTS),
    Stores("aws:rds/globalCluster:GlobalCluster", "", "storageEncrypted", "none",
           copies=("sourceDbClusterIdentifier",)),
    Stores("aws:rds/snapshotCopy:SnapshotCopy", "kmsKeyId",
           copies=("sourceDbSnapshotIdentifier",)),
    Stores("aws:rds/clusterSnapshotCopy:ClusterSnapshotCopy", "kmsKeyId",
           copies=("sourceDbClusterSnapshotIdentifier",)),
    Stores("aws:rds/exportTask:ExportTask", "kmsKeyId"),
    Stores("aws:rds/clusterActivityStream:ClusterActivityStream", "kmsKeyId"),
    Stores("aws:rds/integration:Integration", "kmsKeyId"),
    Stores("aws:rds/instanceAutomatedBackupsReplication:InstanceAutomatedBackupsReplication",
           "kmsKeyId"),
    Stores("aws:docdb/cluster:Cluster", "kmsKeyId", "storageEncrypted", "none", copies=_RESTORED),
    Stores("aws:docdb/clusterInstance:ClusterInstance", "performanceInsightsKmsKeyId",
           when="enablePerformanceInsights"),
    Stores("aws:docdb/elasticCluster:ElasticCluster", "kmsKeyId"),
    Stores("aws:docdb/globalCluster:GlobalCluster", "", "storageEncrypted", "none",
           copies=("sourceDbClusterIdentifier",)),
    Stores("aws:neptune/cluster:Cluster", "kmsKeyArn", "storageEncrypted", "none",
           copies=("snapshotIdentifier", "replicationSourceIdentifier")),
    Stores("aws:neptune/globalCluster:GlobalCluster", "", "storageEncrypted", "none",
           copies=("sourceDbClusterIdentifier",)),
    Stores("aws:neptunegraph/graph:Graph", "kmsKeyIdentifier"),
    Stores("aws:redshift/cluster:Cluster", "kmsKeyId", "encrypted",
           copies=("snapshotIdentifier", "snapshotArn")),
    Stores("aws:redshift/cluster:Cluster", "masterPasswordSecretKmsKeyId",
           when="manageMasterPassword"),
    Stores("aws:redshift/snapshotCopyGrant:SnapshotCopyGrant", "kmsKeyId"),
    Stores("aws:redshift/integration:Integration", "kmsKeyId"),
    Stores("aws:redshiftserverless/namespace:Namespace", "kmsKeyId"),
    Stores("aws:redshiftserverless/namespace:Namespace", "adminPasswordSecretKmsKeyId",
           when="manageAdminPassword"),
    Stores("aws:dynamodb/table:Table", "serverSideEncryption.kmsKeyArn",
           mode="serverSideEncryption.enabled", modes={"false": "service key"}),
    Stores("aws:dynamodb/table:Table", "kmsKeyArn", parts="replicas"),
    Stores("aws:dynamodb/tableReplica:TableReplica", "kmsKeyArn"),
    Stores("aws:dynamodb/tableExport:TableExport", "s3SseKmsKeyId", mode="s3SseAlgorithm",
           modes={"aes256": "service key"}),
    Stores("aws:dax/cluster:Cluster", "", "serverSideEncryption.enabled", "none"),
    Stores("aws:elasticache/serverlessCache:ServerlessCache", "kmsKeyId"),
    Stores("aws:memorydb/cluster:Cluster", "kmsKeyArn"),
    Stores("aws:memorydb/snapshot:Snapshot", "kmsKeyArn", copies=("clusterName",)),
    Stores("aws:keyspaces/table:Table", "encryptionSpecification.kmsKeyIdentifier",
           mode="encryptionSpecification.type", modes={"aws_owned_kms_key": "service key"}),
    Stores("aws:timestreamwrite/database:Database", "kmsKeyId"),
    Stores("aws:timestreamquery/scheduledQuery:ScheduledQuery", "kmsKeyId"),
    # Takes no customer's key: https://docs.aws.amazon.com/timestream/latest/developerguide/
    # timestream-for-influxdb-encryption.html
    Stores("aws:timestreaminfluxdb/dbInstance:DbInstance"),
    Stores("aws:timestreaminfluxdb/dbCluster:DbCluster"),
    Stores("aws:qldb/ledger:Ledger", "kmsKey"),
    Stores("aws:dsql/cluster:Cluster", "kmsEncryptionKey"),
    Stores("aws:opensearch/domain:Domain", "encryptAtRest.kmsKeyId", "encryptAtRest.enabled",
           "none"),
    Stores("aws:elasticsearch/domain:Domain", "encryptAtRest.kmsKeyId", "encryptAtRest.enabled",
           "none"),
    Stores("aws:opensearch/application:Application", "kmsKeyArn"),
    Stores("aws:opensearchingest/pipeline:Pipeline", "encryptionAtRestOptions.kmsKeyArn"),
    Stores("aws:finspace/kxEnvironment:KxEnvironment", "kmsKeyId"),
    Stores("aws:dms/replicationInstance:ReplicationInstance", "kmsKeyArn"),
    Stores("aws:dms/replicationConfig:ReplicationConfig", "computeConfig.kmsKeyId"),
    Stores("aws:dms/instanceProfile:InstanceProfile", "kmsKeyArn"),
    Stores("aws:dms/endpoint:Endpoint", "kmsKeyArn"),
    Stores("aws:dms/endpoint:Endpoint", "redshiftSettings.serverSideEncryptionKmsKeyId",
           when="redshiftSettings", mode="redshiftSettings.encryptionMode",
           modes={"sse_s3": "service key"}),
    Stores("aws:dms/s3Endpoint:S3Endpoint", "kmsKeyArn"),
    Stores("aws:dms/s3Endpoint:S3Endpoint", "serverSideEncryptionKmsKeyId", mode="encryptionMode",
           modes={"sse_s3": "service key"}, only=("endpointType", ("target",))),
    Stores("aws:customerprofiles/domain:Domain", "defaultEncryptionKey"),
    Stores("aws:odb/autonomousDatabase:AutonomousDatabase", "kmsKeyId"),
)  # fmt: skip


def _rds_cluster(resource: Resource, view: View) -> Iterator[Part]:
    """Aurora's serverless engine mode is encrypted unless told otherwise; others aren't."""
    mode = text(get(resource.properties, "engineMode")).lower()
    entry = _RDS_CLUSTER
    if mode == "serverless":
        entry = replace(entry, default="service key")
    yield from entry.read(resource, view)


def _replication_group(resource: Resource, view: View) -> Iterator[Part]:
    """Valkey is encrypted unless told otherwise; Redis isn't."""
    entry = _REPLICATION_GROUP
    if text(get(resource.properties, "engine")).lower() == "valkey":
        entry = replace(entry, default="service key")
    yield from entry.read(resource, view)


def _cache_cluster(resource: Resource, view: View) -> Iterator[Part]:
    """A cache outside of a replication group can't be encrypted at rest; Memcached keeps nothing.

    https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/at-rest-encryption.html
    """
    engine = get(resource.properties, "engine")
    if get(resource.properties, "replicationGroupId") is not ABSENT:
        return
    if isinstance(engine, Unknown):
        why = f"engine {engine.reason}, and Redis by itself can't be encrypted at rest"
        yield Part("unknown", "engine", "engine", why, given=False, takes_key=False)
    elif text(engine).lower() in {"redis", "valkey"}:
        why = f"{text(engine)} outside of a replication group can't be encrypted at rest"
        yield Part("none", "engine", "engine", why, given=False, takes_key=False)


READERS: Final[dict[str, tuple[Reader, ...]]] = readers(DATABASES)
READERS[_RDS_CLUSTER.type] = (_rds_cluster, *READERS[_RDS_CLUSTER.type])
READERS[_REPLICATION_GROUP.type] = (_replication_group,)
READERS[_CACHE_CLUSTER.type] = (_cache_cluster,)
#: The entries that the readers above vary, for lists of what is known.
VARIED: Final = (_RDS_CLUSTER, _REPLICATION_GROUP, _CACHE_CLUSTER)
