"""What holds data is protected, backed up and recorded for long enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    indeterminate,
    is_true,
    is_unknown,
    items,
    number,
    requirement_rule,
    rule,
    scalar,
    text,
    unmet,
    violation,
)
from falaj.policies.reading.azure_children import mentions
from falaj.policies.reading.tags import environment
from falaj.policies.reading.types import aws_type, azure

# Data that outlives a mistake: what holds any can't be deleted by one command.

_PROTECTION_CONTROLS: Final = ("uae-ia:T3.5.1", "iso27001:A.5.33", "iso27001:A.8.13", "pdpl:20")
#: What holds data on AWS, with the property that forbids its deletion, and its default.
_AWS: Final = {
    "cognito/userPool": "deletionProtection",
    "docdb/cluster": "deletionProtection",
    "docdb/elasticCluster": "",
    "dsql/cluster": "deletionProtectionEnabled",
    "dynamodb/table": "deletionProtectionEnabled",
    "ebs/volume": "",
    "efs/fileSystem": "",
    "elasticache/replicationGroup": "",
    "elasticsearch/domain": "",
    "fsx/lustreFileSystem": "",
    "fsx/ontapFileSystem": "",
    "fsx/openZfsFileSystem": "",
    "fsx/windowsFileSystem": "",
    "keyspaces/table": "",
    "memorydb/cluster": "",
    "msk/cluster": "",
    "neptune/cluster": "deletionProtection",
    "opensearch/domain": "",
    "rds/cluster": "deletionProtection",
    "rds/globalCluster": "deletionProtection",
    "rds/instance": "deletionProtection",
    "redshift/cluster": "",
    "redshiftserverless/namespace": "",
    "timestreamwrite/table": "",
}
_AZURE: Final = azure(
    "compute:Disk", "containerregistry:Registry", "cosmosdb:DatabaseAccount",
    "dataprotection:BackupVault", "dbformysql:Server", "dbforpostgresql:Server",
    "elasticsan:ElasticSan", "keyvault:ManagedHsm", "keyvault:Vault", "kusto:Cluster",
    "machinelearningservices:Workspace", "mongocluster:MongoCluster",
    "netapp:CapacityPoolVolume", "operationalinsights:Workspace", "recoveryservices:Vault",
    "sql:Database", "sql:ManagedInstance", "sql:Server", "storage:StorageAccount",
    "storagecache:AmlFilesystem", "synapse:Workspace",
)  # fmt: skip
_VAULTS: Final = azure("keyvault:Vault", "keyvault:ManagedHsm")
_LOCKS: Final = azure(
    "authorization:ManagementLockByScope",
    "authorization:ManagementLockAtResourceGroupLevel",
    "authorization:ManagementLockAtResourceLevel",
    "authorization:ManagementLockAtSubscriptionLevel",
)


_PROPERTY: Final = {aws_type(name): path for name, path in _AWS.items()}
#: Copies, which are made anew from what they copy.
_PROTECTION_COPIES: Final = ("replicateSourceDb", "replicationSourceIdentifier")


@rule(
    "governance-stateful-protected",
    "What holds data in production is protected against deletion",
    Severity.MEDIUM,
    frozenset(_PROPERTY) | _AZURE,
    _PROTECTION_CONTROLS,
    "Set the option protect (or retainOnDelete) on the resource, or switch on the service's own "
    "protection against deletion; on Azure a lock CanNotDelete will do.",
)
def stateful_protected(resource: Resource, context: Context) -> Iterator[Finding]:
    """By the engine, by the service, or by a lock. Buckets and registries aren't judged here: a
    service deletes none that holds anything, unless it is told to (`forced_destruction`)."""
    if resource.options.protect or resource.options.retain_on_delete:
        return
    if any(text(resource.get(each)) for each in _PROTECTION_COPIES):
        return
    where = environment(resource, context)
    if not is_unknown(where) and where != "production":
        return
    path = _PROPERTY.get(resource.kind, "")
    if resource.kind in _VAULTS:
        path = "properties.enablePurgeProtection"
    value = resource.get(path) if path else ABSENT
    if is_true(value) or scalar(value) == "active":
        return
    if is_unknown(value):
        yield indeterminate(path, "whether its deletion is forbidden can't be seen")
    elif resource.kind in _AZURE and context.stack is None:
        yield indeterminate("", "whether a lock forbids its deletion isn't known yet")
    elif resource.kind not in _AZURE or not _is_locked(resource, context):
        given = (
            f"neither protect nor {path.rpartition('.')[2]} is set"
            if path
            else ("the option protect isn't set")
        )
        kind = indeterminate if is_unknown(where) else violation
        yield kind(path, f"{given}, so that one command deletes its data")


def _is_locked(resource: Resource, context: Context) -> bool:
    locks = context.stack.of_kind(*sorted(_LOCKS)) if context.stack else []
    for lock in locks:
        if scalar(lock.get("level")) not in {"cannotdelete", "readonly"}:
            continue
        scope = text(lock.get("scope")).lower().rstrip("/")
        if scope and resource.id and (resource.id.lower() + "/").startswith(scope + "/"):
            return True
        group = text(lock.get("resourceGroupName"))
        if not scope and group and group == text(resource.get("resourceGroupName")):
            return True
        if any(each.urn == resource.urn for each in context.referred(lock, "scope")):
            return True
    return False


_FORCED: Final = {
    path: frozenset(aws_type(name) for name in names)
    for path, names in {
        "forceDestroy": (
            "athena/database", "backup/vault", "ecrpublic/repository", "s3/bucket", "s3/bucketV2",
            "s3/directoryBucket", "s3tables/tableBucket",
        ),
        "forceDelete": ("ecr/repository",),
    }.items()
}  # fmt: skip


@rule(
    "governance-no-forced-destruction",
    "Nothing that still holds data is emptied to be deleted",
    Severity.MEDIUM,
    frozenset(kind for kinds in _FORCED.values() for kind in kinds),
    _PROTECTION_CONTROLS,
    "Leave forceDestroy (forceDelete) out, or set it to false.",
)
def forced_destruction(resource: Resource, context: Context) -> Iterator[Finding]:
    """In production; elsewhere data is destroyed with its stack."""
    where = environment(resource, context)
    if not is_unknown(where) and where != "production":
        return
    for path, kinds in _FORCED.items():
        value = resource.get(path)
        if resource.kind not in kinds or value is ABSENT:
            continue
        if is_true(value):
            yield violation(path, "everything in it is deleted together with it")
        elif is_unknown(value):
            yield indeterminate(path, "whether it is emptied to be deleted can't be seen")


_SNAPSHOTS: Final = {
    **{
        aws_type(name): "skipFinalSnapshot"
        for name in (
            "docdb/cluster", "neptune/cluster", "rds/cluster", "rds/instance", "redshift/cluster",
        )
    },
    **{
        aws_type(name): "skipFinalBackup"
        for name in ("fsx/lustreFileSystem", "fsx/openZfsFileSystem", "fsx/windowsFileSystem")
    },
}  # fmt: skip


@rule(
    "governance-final-snapshot",
    "Databases leave a last snapshot",
    Severity.MEDIUM,
    frozenset(_SNAPSHOTS),
    _PROTECTION_CONTROLS,
    "Leave skipFinalSnapshot (skipFinalBackup) out or set it to false, and name the snapshot.",
)
def final_snapshot(resource: Resource, context: Context) -> Iterator[Finding]:
    """In production. Copies leave none; FSx for Lustre leaves none of scratch file systems, and
    skips it by default, which isn't judged."""
    where = environment(resource, context)
    if not is_unknown(where) and where != "production":
        return
    if any(text(resource.get(each)) for each in _PROTECTION_COPIES):
        return
    path = _SNAPSHOTS.get(resource.kind, "skipFinalSnapshot")
    value = resource.get(path)
    if is_unknown(value):
        yield indeterminate(path, "whether a last snapshot is left can't be seen")
    elif is_true(value):
        yield violation(path, "it is deleted without a last snapshot")


_vault_purge = requirement_rule(
    "governance-vault-recoverable",
    "Vaults and their keys can be had back after a deletion",
    Severity.HIGH,
    {
        azure("keyvault:Vault"): (
            Requirement("properties.enableSoftDelete", ("true",)),
            Requirement("properties.enablePurgeProtection", ("true",), "false"),
        ),
        azure("keyvault:ManagedHsm"): (
            Requirement("properties.enableSoftDelete", ("true",)),
            Requirement("properties.enablePurgeProtection", ("true",), "false"),
        ),
    },
    ("uae-ia:T7.4.2", "iso27001:A.8.13", "iso27001:A.8.24", "pdpl:20"),
    "Set properties.enablePurgeProtection to true and leave enableSoftDelete on.",
)


@rule(
    "governance-key-deletion-window",
    "Keys and secrets wait before they are gone",
    Severity.MEDIUM,
    frozenset(map(aws_type, ("kms/key", "kms/externalKey", "secretsmanager/secret"))),
    ("uae-ia:T7.4.2", "iso27001:A.8.13", "iso27001:A.8.24", "pdpl:20"),
    "Leave deletionWindowInDays (recoveryWindowInDays) out, which is 30 days, or give at least 7.",
)
def deletion_window(resource: Resource, context: Context) -> Iterator[Finding]:
    """KMS takes no less than 7 days; a secret may be deleted at once, with 0, which is right where
    everything goes with its stack: outside of production."""
    where = environment(resource, context)
    if not is_unknown(where) and where != "production":
        return
    for path in ("deletionWindowInDays", "recoveryWindowInDays"):
        value = resource.get(path)
        days = number(value)
        if is_unknown(value):
            yield indeterminate(path, "how long it waits can't be seen; at least 7 days")
        elif days is not None and days < 7:
            yield violation(path, f"it waits {days:g} days; at least 7 are needed")


# Backups: how long the past of a database, bucket or file system can be had back.

_BACKUP_CONTROLS: Final = ("uae-ia:T3.5.1", "iso27001:A.8.13", "pdpl:20", "gdpr:32")
#: A week: what AWS Foundational Security Best Practices (RDS.11) ask for
#: (https://docs.aws.amazon.com/securityhub/latest/userguide/rds-controls.html), and what Azure's
#: databases keep by default.
BACKUP_LEAST_DAYS: Final = 7


@dataclass(frozen=True)
class Kept:
    """Where a type says how many days backups are kept, and the service's default."""

    path: str
    default: int


#: Defaults as the SDKs document them (pulumi_aws 7.51.1, pulumi_azure_native 3.29.0).
_KEPT: Final[dict[str, Kept]] = {
    aws_type("rds/instance"): Kept("backupRetentionPeriod", 0),
    aws_type("rds/cluster"): Kept("backupRetentionPeriod", 1),
    aws_type("docdb/cluster"): Kept("backupRetentionPeriod", 1),
    aws_type("neptune/cluster"): Kept("backupRetentionPeriod", 1),
    aws_type("redshift/cluster"): Kept("automatedSnapshotRetentionPeriod", 1),
    aws_type("elasticache/cluster"): Kept("snapshotRetentionLimit", 0),
    aws_type("elasticache/replicationGroup"): Kept("snapshotRetentionLimit", 0),
    aws_type("memorydb/cluster"): Kept("snapshotRetentionLimit", 0),
    aws_type("fsx/windowsFileSystem"): Kept("automaticBackupRetentionDays", 7),
    aws_type("fsx/ontapFileSystem"): Kept("automaticBackupRetentionDays", 0),
    aws_type("fsx/openZfsFileSystem"): Kept("automaticBackupRetentionDays", 0),
    **dict.fromkeys(
        azure("dbformysql:Server", "dbforpostgresql:Server"),
        Kept("backup.backupRetentionDays", 7),
    ),
    **dict.fromkeys(azure("sql:BackupShortTermRetentionPolicy"), Kept("retentionDays", 7)),
    **dict.fromkeys(
        azure("dbformysql:SingleServer", "dbforpostgresql:SingleServer", "dbformariadb:Server"),
        Kept("properties.storageProfile.backupRetentionDays", 7),
    ),
}
_BACKUP_COPIES: Final = (
    "replicateSourceDb",
    "replicationSourceIdentifier",
    "globalReplicationGroupId",
)
#: Members of a cluster, whose backups are the cluster's.
_MEMBERS: Final = ("aurora", "aurora-mysql", "aurora-postgresql", "docdb", "neptune")


def _is_production(resource: Resource, context: Context) -> bool:
    where = environment(resource, context)
    return is_unknown(where) or where == "production"


@rule(
    "governance-backup-retention",
    "Backups of databases are kept for a week at least",
    Severity.MEDIUM,
    frozenset(_KEPT),
    _BACKUP_CONTROLS,
    "Set the retention of backups to 7 days or more, as long as the data's class asks for.",
)
def backup_retention(resource: Resource, context: Context) -> Iterator[Finding]:
    """In production; copies have the backups of what they copy."""
    kept = _KEPT.get(resource.kind)
    if kept is None or not _is_production(resource, context):
        return
    if any(text(resource.get(each)) for each in _BACKUP_COPIES):
        return
    if resource.kind == aws_type("rds/instance") and scalar(resource.get("engine")) in _MEMBERS:
        return
    if resource.kind == aws_type("elasticache/cluster") and (
        scalar(resource.get("engine")) == "memcached" or text(resource.get("replicationGroupId"))
    ):
        return  # keeps nothing, or is a member of a group
    value = resource.get(kept.path)
    days = float(kept.default) if value is ABSENT else number(value)
    if is_unknown(value):
        yield indeterminate(
            kept.path, f"how long is kept can't be seen; {BACKUP_LEAST_DAYS} days at least"
        )
    elif days is None or days < BACKUP_LEAST_DAYS:
        given = f"the default is {kept.default} days" if value is ABSENT else f"{days or 0:g} days"
        yield violation(
            kept.path, f"{given}; backups are kept for {BACKUP_LEAST_DAYS} days at least"
        )


#: Switches that bring the past back.
_SWITCHES: Final[dict[str, tuple[Requirement, ...]]] = {
    aws_type("dynamodb/table"): (Requirement("pointInTimeRecovery.enabled", ("true",), "false"),),
    aws_type("keyspaces/table"): (
        Requirement("pointInTimeRecovery.status", ("ENABLED",), "DISABLED"),
    ),
    **dict.fromkeys(
        azure("storage:BlobServiceProperties"),
        (
            Requirement("deleteRetentionPolicy.enabled", ("true",), "false"),
            Requirement("containerDeleteRetentionPolicy.enabled", ("true",), "false"),
        ),
    ),
    **dict.fromkeys(
        azure("recoveryservices:Vault"),
        (
            Requirement(
                "properties.securitySettings.softDeleteSettings.softDeleteState",
                ("Enabled", "AlwaysON"),
            ),
        ),
    ),
    **dict.fromkeys(
        azure("dataprotection:BackupVault"),
        (Requirement("properties.securitySettings.softDeleteSettings.state", ("On", "AlwaysOn")),),
    ),
}


@rule(
    "governance-past-can-be-had-back",
    "Stores can be set back to an earlier moment",
    Severity.MEDIUM,
    frozenset(_SWITCHES),
    _BACKUP_CONTROLS,
    "Switch on recovery to a point in time, or soft deletion.",
)
def past_can_be_had_back(resource: Resource, context: Context) -> Iterator[Finding]:
    """In production. Copies of tables and tables that hold what expires are judged as well."""
    if _is_production(resource, context):
        yield from unmet(resource, _SWITCHES.get(resource.kind, ()))


_COSMOS: Final = azure("cosmosdb:DatabaseAccount")


@rule(
    "governance-cosmos-backups",
    "Backups of Cosmos DB are kept for a week at least",
    Severity.MEDIUM,
    _COSMOS,
    _BACKUP_CONTROLS,
    "Set backupPolicy.type to Continuous, or backupRetentionIntervalInHours to 168 or more.",
)
def cosmos_backups(resource: Resource, context: Context) -> Iterator[Finding]:
    """By default the last two copies are kept, for 8 hours:
    https://learn.microsoft.com/azure/cosmos-db/periodic-backup-restore-introduction."""
    kind = resource.get("backupPolicy.type")
    if not _is_production(resource, context) or scalar(kind) == "continuous":
        return
    path = "backupPolicy.periodicModeProperties.backupRetentionIntervalInHours"
    value = resource.get(path)
    hours = 8.0 if value is ABSENT else number(value)
    if is_unknown(kind) or is_unknown(value):
        yield indeterminate(path, "how long backups are kept can't be seen")
    elif hours is None or hours < BACKUP_LEAST_DAYS * 24:
        given = "the default is 8 hours" if value is ABSENT else f"{hours or 0:g} hours"
        yield violation(
            path, f"{given}; backups are kept for {BACKUP_LEAST_DAYS * 24} hours at least"
        )


_FILES: Final = aws_type("efs/fileSystem")


@rule(
    "governance-file-system-backups",
    "File systems are backed up",
    Severity.MEDIUM,
    frozenset((_FILES,)),
    _BACKUP_CONTROLS,
    "Add an aws.efs.BackupPolicy with status ENABLED, or select the file system in AWS Backup.",
)
def file_system_backups(resource: Resource, context: Context) -> Iterator[Finding]:
    """Off by default for those that aren't made in the console:
    https://docs.aws.amazon.com/efs/latest/ug/automatic-backups.html."""
    if not _is_production(resource, context):
        return
    if context.stack is None:
        yield indeterminate("", "whether the file system is backed up isn't known yet")
        return
    for policy in context.stack.referring(resource, aws_type("efs/backupPolicy"), "fileSystemId"):
        if scalar(policy.get("backupPolicy.status")) != "disabled":
            return
    for selection in context.stack.of_kind(aws_type("backup/selection")):
        by_tags = selection.get("selectionTags") is not ABSENT
        if by_tags or mentions(context, selection, "resources", resource):
            return
        named = {text(each) for each in items(selection.get("resources"))}
        if named & {"*", text(resource.outputs.get("arn"))}:
            return
    yield violation("", "nothing backs the file system up, which is the default")


_BUCKETS: Final = frozenset((aws_type("s3/bucket"), aws_type("s3/bucketV2")))
_VERSIONS: Final = (aws_type("s3/bucketVersioning"), aws_type("s3/bucketVersioningV2"))


@rule(
    "governance-bucket-versions",
    "Buckets keep what is overwritten and deleted",
    Severity.MEDIUM,
    _BUCKETS | frozenset(_VERSIONS),
    _BACKUP_CONTROLS,
    "Add an aws.s3.BucketVersioning with status Enabled for the bucket.",
)
def bucket_versions(resource: Resource, context: Context) -> Iterator[Finding]:
    """In the bucket's own properties, or in a resource beside it. Off by default:
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/Versioning.html."""
    if resource.kind in _VERSIONS:
        status = resource.get("versioningConfiguration.status")
        path = "versioningConfiguration.status"
        if is_unknown(status):
            yield indeterminate(path, "whether versions are kept can't be seen")
        elif scalar(status) != "enabled" and _is_production(resource, context):
            yield violation(path, f"it is {scalar(status) or 'not given'}; it must be Enabled")
        return
    if not _is_production(resource, context):
        return
    for path in ("versioning.enabled", "versionings.enabled"):
        value = resource.get(path)
        if scalar(value) == "true":
            return
        if is_unknown(value):
            yield indeterminate(path, "whether versions are kept can't be seen")
            return
    if context.stack is None:
        yield indeterminate("versioning", "whether versions are kept isn't known yet")
        return
    for kind in _VERSIONS:
        if context.stack.referring(resource, kind, "bucket"):
            return
    yield violation("versioning", "no versions are kept, which is the default")


# Logs: kept as long as somebody decided, no shorter than evidence is needed.

_LOG_GROUP: Final = "aws:cloudwatch/logGroup:LogGroup"
_WORKSPACE: Final = azure("operationalinsights:Workspace")
#: How long a workspace keeps logs by default:
#: https://learn.microsoft.com/azure/azure-monitor/logs/data-retention-configure
_WORKSPACE_DAYS: Final = 30
#: What CIS' benchmarks ask of logs of activity at the least.
LOG_LEAST_DAYS: Final = 90


@rule(
    "governance-log-retention",
    "Somebody decided how long logs are kept",
    Severity.LOW,
    _WORKSPACE | {_LOG_GROUP},
    (
        "uae-ia:T3.6.2",
        "uae-ia:T3.6.3",
        "iso27001:A.5.33",
        "iso27001:A.8.10",
        "iso27001:A.8.15",
        "pdpl:5",
    ),
    "Set retentionInDays: neither for ever, which no purpose justifies, nor too short to "
    "investigate; 90 days in a workspace at the least.",
)
def log_retention(resource: Resource, context: Context) -> Iterator[Finding]:
    """Groups of CloudWatch keep for ever by default, and for 0; workspaces for 30 days."""
    path = "retentionInDays"
    value = resource.get(path)
    days = number(value)
    if is_unknown(value):
        yield indeterminate(path, "how long logs are kept can't be seen")
    elif resource.kind == _LOG_GROUP:
        if resource.get("logGroupClass") == "DELIVERY":
            return  # its retention is fixed
        if value is ABSENT or not days or days < 0:
            given = "isn't given" if value is ABSENT else "is 0"
            yield violation(path, f"it {given}, so that logs are kept for ever")
    elif value is ABSENT:
        reason = f"it isn't given, and the default is {_WORKSPACE_DAYS} days; "
        yield violation(path, f"{reason}{LOG_LEAST_DAYS} days at least")
    elif days is None or days < LOG_LEAST_DAYS:
        yield violation(path, f"logs are kept {days or 0:g} days; {LOG_LEAST_DAYS} days at least")


RULES: tuple[Rule, ...] = (
    stateful_protected,
    forced_destruction,
    final_snapshot,
    _vault_purge,
    deletion_window,
    backup_retention,
    past_can_be_had_back,
    cosmos_backups,
    file_system_backups,
    bucket_versions,
    log_retention,
)
