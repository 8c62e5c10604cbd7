"""Backups: how long the past of a database, bucket or file system can be had back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    items,
    number,
    rule,
    scalar,
    text,
    unmet,
    violation,
)
from falaj.policies.reading.azure_children import mentions
from falaj.policies.reading.tags import environment
from falaj.policies.reading.types import azure

_CONTROLS: Final = ("uae-ia:T3.5.1", "iso27001:A.8.13", "pdpl:20", "gdpr:32")
#: A week: what AWS Foundational Security Best Practices (RDS.11) ask for
#: (https://docs.aws.amazon.com/securityhub/latest/userguide/rds-controls.html), and what Azure's
#: databases keep by default.
LEAST_DAYS: Final = 7


@dataclass(frozen=True)
class Kept:
    """Where a type says how many days backups are kept, and the service's default."""

    path: str
    default: int


def _aws(name: str) -> str:
    last = name.rpartition("/")[2]
    return f"aws:{name}:{last[0].upper()}{last[1:]}"


#: Defaults as the SDKs document them (pulumi_aws 7.51.1, pulumi_azure_native 3.29.0).
_KEPT: Final[dict[str, Kept]] = {
    _aws("rds/instance"): Kept("backupRetentionPeriod", 0),
    _aws("rds/cluster"): Kept("backupRetentionPeriod", 1),
    _aws("docdb/cluster"): Kept("backupRetentionPeriod", 1),
    _aws("neptune/cluster"): Kept("backupRetentionPeriod", 1),
    _aws("redshift/cluster"): Kept("automatedSnapshotRetentionPeriod", 1),
    _aws("elasticache/cluster"): Kept("snapshotRetentionLimit", 0),
    _aws("elasticache/replicationGroup"): Kept("snapshotRetentionLimit", 0),
    _aws("memorydb/cluster"): Kept("snapshotRetentionLimit", 0),
    _aws("fsx/windowsFileSystem"): Kept("automaticBackupRetentionDays", 7),
    _aws("fsx/ontapFileSystem"): Kept("automaticBackupRetentionDays", 0),
    _aws("fsx/openZfsFileSystem"): Kept("automaticBackupRetentionDays", 0),
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
_COPIES: Final = ("replicateSourceDb", "replicationSourceIdentifier", "globalReplicationGroupId")
#: Members of a cluster, whose backups are the cluster's.
_MEMBERS: Final = ("aurora", "aurora-mysql", "aurora-postgresql", "docdb", "neptune")


def _is_production(resource: Resource, view: View) -> bool:
    where = environment(resource, view)
    return is_unknown(where) or where == "production"


@rule(
    "governance-backup-retention",
    "Backups of databases are kept for a week at least",
    Severity.MEDIUM,
    frozenset(_KEPT),
    _CONTROLS,
    "Set the retention of backups to 7 days or more, as long as the data's class asks for.",
)
def backup_retention(resource: Resource, view: View) -> Iterator[Finding]:
    """In production; copies have the backups of what they copy."""
    kept = _KEPT.get(resource.kind)
    if kept is None or not _is_production(resource, view):
        return
    if any(text(resource.get(each)) for each in _COPIES):
        return
    if resource.kind == _aws("rds/instance") and scalar(resource.get("engine")) in _MEMBERS:
        return
    if resource.kind == _aws("elasticache/cluster") and (
        scalar(resource.get("engine")) == "memcached" or text(resource.get("replicationGroupId"))
    ):
        return  # keeps nothing, or is a member of a group
    value = resource.get(kept.path)
    days = float(kept.default) if value is ABSENT else number(value)
    if is_unknown(value):
        yield indeterminate(
            kept.path, f"how long is kept can't be seen; {LEAST_DAYS} days at least"
        )
    elif days is None or days < LEAST_DAYS:
        given = f"the default is {kept.default} days" if value is ABSENT else f"{days or 0:g} days"
        yield violation(kept.path, f"{given}; backups are kept for {LEAST_DAYS} days at least")


#: Switches that bring the past back.
_SWITCHES: Final[dict[str, tuple[Requirement, ...]]] = {
    _aws("dynamodb/table"): (Requirement("pointInTimeRecovery.enabled", ("true",), "false"),),
    _aws("keyspaces/table"): (
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
    _CONTROLS,
    "Switch on recovery to a point in time, or soft deletion.",
)
def past_can_be_had_back(resource: Resource, view: View) -> Iterator[Finding]:
    """In production. Copies of tables and tables that hold what expires are judged as well."""
    if _is_production(resource, view):
        yield from unmet(resource, _SWITCHES.get(resource.kind, ()))


_COSMOS: Final = azure("cosmosdb:DatabaseAccount")


@rule(
    "governance-cosmos-backups",
    "Backups of Cosmos DB are kept for a week at least",
    Severity.MEDIUM,
    _COSMOS,
    _CONTROLS,
    "Set backupPolicy.type to Continuous, or backupRetentionIntervalInHours to 168 or more.",
)
def cosmos_backups(resource: Resource, view: View) -> Iterator[Finding]:
    """By default the last two copies are kept, for 8 hours:
    https://learn.microsoft.com/azure/cosmos-db/periodic-backup-restore-introduction."""
    kind = resource.get("backupPolicy.type")
    if not _is_production(resource, view) or scalar(kind) == "continuous":
        return
    path = "backupPolicy.periodicModeProperties.backupRetentionIntervalInHours"
    value = resource.get(path)
    hours = 8.0 if value is ABSENT else number(value)
    if is_unknown(kind) or is_unknown(value):
        yield indeterminate(path, "how long backups are kept can't be seen")
    elif hours is None or hours < LEAST_DAYS * 24:
        given = "the default is 8 hours" if value is ABSENT else f"{hours or 0:g} hours"
        yield violation(path, f"{given}; backups are kept for {LEAST_DAYS * 24} hours at least")


_FILES: Final = _aws("efs/fileSystem")


@rule(
    "governance-file-system-backups",
    "File systems are backed up",
    Severity.MEDIUM,
    frozenset((_FILES,)),
    _CONTROLS,
    "Add an aws.efs.BackupPolicy with status ENABLED, or select the file system in AWS Backup.",
)
def file_system_backups(resource: Resource, view: View) -> Iterator[Finding]:
    """Off by default for those that aren't made in the console:
    https://docs.aws.amazon.com/efs/latest/ug/automatic-backups.html."""
    if not _is_production(resource, view):
        return
    if view.stack is None:
        yield indeterminate("", "whether the file system is backed up isn't known yet")
        return
    for policy in view.stack.referring(resource, _aws("efs/backupPolicy"), "fileSystemId"):
        if scalar(policy.get("backupPolicy.status")) != "disabled":
            return
    for selection in view.stack.of_kind(_aws("backup/selection")):
        by_tags = selection.get("selectionTags") is not ABSENT
        if by_tags or mentions(view, selection, "resources", resource):
            return
        named = {text(each) for each in items(selection.get("resources"))}
        if named & {"*", text(resource.outputs.get("arn"))}:
            return
    yield violation("", "nothing backs the file system up, which is the default")


_BUCKETS: Final = frozenset((_aws("s3/bucket"), _aws("s3/bucketV2")))
_VERSIONS: Final = (_aws("s3/bucketVersioning"), _aws("s3/bucketVersioningV2"))


@rule(
    "governance-bucket-versions",
    "Buckets keep what is overwritten and deleted",
    Severity.MEDIUM,
    _BUCKETS | frozenset(_VERSIONS),
    _CONTROLS,
    "Add an aws.s3.BucketVersioning with status Enabled for the bucket.",
)
def bucket_versions(resource: Resource, view: View) -> Iterator[Finding]:
    """In the bucket's own properties, or in a resource beside it. Off by default:
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/Versioning.html."""
    if resource.kind in _VERSIONS:
        status = resource.get("versioningConfiguration.status")
        path = "versioningConfiguration.status"
        if is_unknown(status):
            yield indeterminate(path, "whether versions are kept can't be seen")
        elif scalar(status) != "enabled" and _is_production(resource, view):
            yield violation(path, f"it is {scalar(status) or 'not given'}; it must be Enabled")
        return
    if not _is_production(resource, view):
        return
    for path in ("versioning.enabled", "versionings.enabled"):
        value = resource.get(path)
        if scalar(value) == "true":
            return
        if is_unknown(value):
            yield indeterminate(path, "whether versions are kept can't be seen")
            return
    if view.stack is None:
        yield indeterminate("versioning", "whether versions are kept isn't known yet")
        return
    for kind in _VERSIONS:
        if view.stack.referring(resource, kind, "bucket"):
            return
    yield violation("versioning", "no versions are kept, which is the default")


RULES: tuple[Rule, ...] = (
    backup_retention,
    past_can_be_had_back,
    cosmos_backups,
    file_system_backups,
    bucket_versions,
)
