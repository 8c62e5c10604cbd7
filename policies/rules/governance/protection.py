"""Data that outlives a mistake: what holds any can't be deleted by one command."""

from __future__ import annotations

from collections.abc import Iterator
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
    is_true,
    is_unknown,
    number,
    requirement_rule,
    rule,
    scalar,
    text,
    violation,
)
from falaj.policies.reading.tags import environment
from falaj.policies.reading.types import azure

_CONTROLS: Final = ("uae-ia:T3.5.1", "iso27001:A.5.33", "iso27001:A.8.13", "pdpl:20")
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


def _token(name: str) -> str:
    last = name.rpartition("/")[2]
    return f"aws:{name}:{last[0].upper()}{last[1:]}"


_PROPERTY: Final = {_token(name): path for name, path in _AWS.items()}
#: Copies, which are made anew from what they copy.
_COPIES: Final = ("replicateSourceDb", "replicationSourceIdentifier")


@rule(
    "governance-stateful-protected",
    "What holds data in production is protected against deletion",
    Severity.MEDIUM,
    frozenset(_PROPERTY) | _AZURE,
    _CONTROLS,
    "Set the option protect (or retainOnDelete) on the resource, or switch on the service's own "
    "protection against deletion; on Azure a lock CanNotDelete will do.",
)
def stateful_protected(resource: Resource, view: View) -> Iterator[Finding]:
    """By the engine, by the service, or by a lock. Buckets and registries aren't judged here: a
    service deletes none that holds anything, unless it is told to (`forced_destruction`)."""
    if resource.options.protect or resource.options.retain_on_delete:
        return
    if any(text(resource.get(each)) for each in _COPIES):
        return
    where = environment(resource, view)
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
    elif resource.kind in _AZURE and view.stack is None:
        yield indeterminate("", "whether a lock forbids its deletion isn't known yet")
    elif resource.kind not in _AZURE or not _is_locked(resource, view):
        given = (
            f"neither protect nor {path.rpartition('.')[2]} is set"
            if path
            else ("the option protect isn't set")
        )
        kind = indeterminate if is_unknown(where) else violation
        yield kind(path, f"{given}, so that one command deletes its data")


def _is_locked(resource: Resource, view: View) -> bool:
    locks = view.stack.of_kind(*sorted(_LOCKS)) if view.stack else []
    for lock in locks:
        if scalar(lock.get("level")) not in {"cannotdelete", "readonly"}:
            continue
        scope = text(lock.get("scope")).lower().rstrip("/")
        if scope and resource.id and (resource.id.lower() + "/").startswith(scope + "/"):
            return True
        group = text(lock.get("resourceGroupName"))
        if not scope and group and group == text(resource.get("resourceGroupName")):
            return True
        if any(each.urn == resource.urn for each in view.referred(lock, "scope")):
            return True
    return False


_FORCED: Final = {
    path: frozenset(_token(name) for name in names)
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
    _CONTROLS,
    "Leave forceDestroy (forceDelete) out, or set it to false.",
)
def forced_destruction(resource: Resource, view: View) -> Iterator[Finding]:
    """In production; elsewhere data is destroyed with its stack."""
    where = environment(resource, view)
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
        _token(name): "skipFinalSnapshot"
        for name in (
            "docdb/cluster", "neptune/cluster", "rds/cluster", "rds/instance", "redshift/cluster",
        )
    },
    **{
        _token(name): "skipFinalBackup"
        for name in ("fsx/lustreFileSystem", "fsx/openZfsFileSystem", "fsx/windowsFileSystem")
    },
}  # fmt: skip


@rule(
    "governance-final-snapshot",
    "Databases leave a last snapshot",
    Severity.MEDIUM,
    frozenset(_SNAPSHOTS),
    _CONTROLS,
    "Leave skipFinalSnapshot (skipFinalBackup) out or set it to false, and name the snapshot.",
)
def final_snapshot(resource: Resource, view: View) -> Iterator[Finding]:
    """In production. Copies leave none; FSx for Lustre leaves none of scratch file systems, and
    skips it by default, which isn't judged."""
    where = environment(resource, view)
    if not is_unknown(where) and where != "production":
        return
    if any(text(resource.get(each)) for each in _COPIES):
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
    frozenset(map(_token, ("kms/key", "kms/externalKey", "secretsmanager/secret"))),
    ("uae-ia:T7.4.2", "iso27001:A.8.13", "iso27001:A.8.24", "pdpl:20"),
    "Leave deletionWindowInDays (recoveryWindowInDays) out, which is 30 days, or give at least 7.",
)
def deletion_window(resource: Resource, view: View) -> Iterator[Finding]:
    """KMS takes no less than 7 days; a secret may be deleted at once, with 0, which is right where
    everything goes with its stack: outside of production."""
    where = environment(resource, view)
    if not is_unknown(where) and where != "production":
        return
    for path in ("deletionWindowInDays", "recoveryWindowInDays"):
        value = resource.get(path)
        days = number(value)
        if is_unknown(value):
            yield indeterminate(path, "how long it waits can't be seen; at least 7 days")
        elif days is not None and days < 7:
            yield violation(path, f"it waits {days:g} days; at least 7 are needed")


RULES: tuple[Rule, ...] = (
    stateful_protected,
    forced_destruction,
    final_snapshot,
    _vault_purge,
    deletion_window,
)
