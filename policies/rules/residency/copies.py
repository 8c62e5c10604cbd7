"""Copies in other regions: of objects, backups, snapshots, keys and secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_path,
    format_value,
    get,
    indeterminate,
    is_true,
    is_unknown,
    rule,
    scalar,
    select,
    text,
    violation,
)
from falaj.policies.reading.place import format_places
from falaj.policies.reading.types import azure
from falaj.policies.reading.walk import walk
from falaj.policies.rules.residency import destinations
from falaj.policies.rules.residency.azure_places import geo_copies_stay, no_geo_copies
from falaj.policies.rules.residency.everywhere import CONTROLS
from falaj.wire.documents import is_mapping

# Copies of objects abroad: replication, access points of several regions, edges, exports.

_BUCKET = frozenset(("aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2"))
_SPANNING = "aws:s3control/multiRegionAccessPoint:MultiRegionAccessPoint"
#: Lists of a replication's rules.
_RULES = ("rules", "replicationConfiguration.rules", "replicationConfigurations.rules")


def _destinations(resource: Resource, *keys: str) -> Iterator[tuple[str, Any]]:
    """What rules that aren't disabled say under any of the keys of their destination."""
    for path in _RULES:
        for at, each in select(resource.properties, path):
            if is_unknown(each):
                yield at, each
            elif is_mapping(each) and text(each.get("status")).lower() != "disabled":
                for key in keys:
                    for name in ("destination", "destinations"):
                        for below, value in select(each, f"{name}.{key}"):
                            yield f"{at}.{below}", value


@rule(
    "residency-aws-s3-replication",
    "Objects are replicated to buckets in the country only",
    Severity.CRITICAL,
    _BUCKET | {"aws:s3/bucketReplicationConfig:BucketReplicationConfig"},
    (*CONTROLS, "iso27001:A.8.13"),
    "Replicate to a bucket of an allowed region that this stack declares, so that its region can "
    "be told: names and ARNs of buckets say none. There is one AWS region in the country, so a "
    "replica of another region always is abroad.",
)
def replication(resource: Resource, context: Context) -> Iterator[Finding]:
    """Every destination's bucket; one that nobody can place is a violation, for it gets all."""
    for at, value in _destinations(resource, "bucket"):
        yield from destinations.bucket_at(
            resource, context, at, value, "the destination bucket", certain=True
        )


@rule(
    "residency-aws-s3-replica-account",
    "Objects are replicated to accounts that the settings allow",
    Severity.HIGH,
    _BUCKET | {"aws:s3/bucketReplicationConfig:BucketReplicationConfig"},
    (*CONTROLS, "iso27001:A.8.12"),
    "Add the account to the setting allowedAccounts, or replicate within the account.",
)
def replica_account(resource: Resource, context: Context) -> Iterator[Finding]:
    """The account that owns the replicas, where one is named."""
    for at, value in _destinations(resource, "account", "accountId"):
        if is_unknown(value):
            yield indeterminate(at, "the account that owns replicas can't be known")
        elif text(value) and text(value) not in context.settings.allowed_accounts:
            yield violation(
                at,
                f"replicas are owned by the account {text(value)}, which the setting "
                "allowedAccounts lacks",
            )


@rule(
    "residency-aws-s3-multi-region-access-point",
    "No access point of S3 spans regions",
    Severity.CRITICAL,
    {_SPANNING, "aws:s3/accessPoint:AccessPoint"},
    CONTROLS,
    "Use an access point of the bucket's own region (aws.s3.AccessPoint).",
)
def multi_region_access_point(resource: Resource, context: Context) -> Iterator[Finding]:
    """Requests pass the edges of Global Accelerator, whatever the regions behind are.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/MultiRegionAccessPoints.html
    """
    if resource.kind == _SPANNING and resource.custom:
        yield violation(
            "", f"requests pass edges of AWS, which are abroad as well; {format_places(context)}"
        )


@rule(
    "residency-aws-s3-acceleration",
    "Uploads don't pass edges of CloudFront",
    Severity.CRITICAL,
    _BUCKET
    | {
        "aws:s3/bucketAccelerateConfigurationV2:BucketAccelerateConfigurationV2",
        "aws:s3/bucketAccelerateConfiguration:BucketAccelerateConfiguration",
    },
    CONTROLS,
    "Suspend transfer acceleration: it takes objects in at the edge nearest to the sender.",
)
def acceleration(resource: Resource, context: Context) -> Iterator[Finding]:
    """Transfer acceleration, inline or by itself; off unless it is switched on."""
    key = "accelerationStatus" if resource.kind in _BUCKET else "status"
    value = resource.get(key)
    if is_unknown(value):
        yield indeterminate(key, "whether transfer acceleration is on can't be known")
    elif text(value).lower() == "enabled":
        yield violation(
            key,
            f"objects are taken in at edges, which are abroad as well; {format_places(context)}",
        )


# How storage and backups of Azure are copied: within the region, or to its pair.
#
# The pair of UAE North is UAE Central, so a geo-redundant copy can stay in the country. It is a
# choice all the same: allowed where the settings say ``geoRedundancy: paired`` and both regions
# are allowed.

COPY_CONTROLS: Final = (
    "health-data:13", "cbuae-outsourcing:6.1", "uae-ia:T3.5.1", "pdpl:22", "gdpr:44",
    "iso27001:A.8.13",
)  # fmt: skip
REMEDIATION: Final = (
    "Choose local or zone redundancy. Where copies in UAE Central are wanted, set geoRedundancy "
    "to paired and allow both regions of the country in the settings of the policies."
)


LOCAL_STORAGE: Final = (
    "Standard_LRS", "Standard_ZRS", "Premium_LRS", "Premium_ZRS", "PremiumV2_LRS",
    "PremiumV2_ZRS", "StandardV2_LRS", "StandardV2_ZRS",
)  # fmt: skip


@dataclass(frozen=True)
class Copies:
    """A property that says where copies of data are kept.

    Attributes:
        path: keys with dots.
        local: values that keep all copies within the region.
        default: what the service takes where nothing is given.
        source: where that default is documented.
        unless: a property and its value, in small letters, with which it has no such copies.
    """

    path: str
    local: tuple[str, ...]
    default: str
    source: str
    unless: tuple[str, str] = ("", "")

    def judge(self, resource: Resource, context: Context) -> Iterator[Finding]:
        """Copies in another region that the settings don't allow, or that can't be seen."""
        path, value = self.unless
        if geo_copies_stay(context) or (path and scalar(resource.get(path)) == value):
            return
        found = list(select(resource.properties, self.path, absent=True)) or [(self.path, ABSENT)]
        local = {each.lower() for each in self.local}
        for path, value in found:
            if is_unknown(value):
                yield indeterminate(path, f"where copies are can't be seen; use {self.wanted}")
            elif value is ABSENT or value == "":
                if self.default.lower() not in local:
                    yield violation(
                        path,
                        f"it isn't given, and the default, {self.default}, copies to another "
                        f"region ({self.source}); it must be {self.wanted}: "
                        f"{no_geo_copies(context)}",
                    )
            elif scalar(value) not in local:
                yield violation(
                    path,
                    f"{format_value(value)} copies to another region; it must be "
                    f"{self.wanted}: {no_geo_copies(context)}",
                )

    @property
    def wanted(self) -> str:
        """The values that are fine, as a reason says them."""
        if self.local == LOCAL_STORAGE:
            return "one that ends in _LRS or _ZRS"
        return " or ".join(self.local)


def copies(
    id: str, title: str, table: dict[str, Sequence[Copies]], remediation: str = REMEDIATION
) -> Rule:
    """One rule over a table of types (as ``module:Type``) and what says where their copies are."""
    by_kind = {kind: found for name, found in table.items() for kind in azure(name)}

    @rule(id, title, Severity.CRITICAL, frozenset(by_kind), COPY_CONTROLS, remediation)
    def check(resource: Resource, context: Context) -> Iterator[Finding]:
        for each in by_kind.get(resource.kind, ()):
            yield from each.judge(resource, context)

    return check


STORAGE: Final[dict[str, Sequence[Copies]]] = {
    "storage:StorageAccount": [
        Copies(
            "sku.name",
            LOCAL_STORAGE,
            "Standard_RAGRS",
            "https://learn.microsoft.com/cli/azure/storage/account",
        )
    ],
    "databricks:Workspace": [
        Copies(
            "parameters.storageAccountSkuName.value",
            LOCAL_STORAGE,
            "Standard_GRS",
            "https://learn.microsoft.com/azure/templates/microsoft.databricks/workspaces",
            # A serverless workspace has no account of its own.
            unless=("computeMode", "serverless"),
        )
    ],
    "machinelearningservices:Registry": [
        Copies(
            "registryProperties.regionDetails.storageAccountDetails.systemCreatedStorageAccount"
            ".storageAccountType",
            LOCAL_STORAGE,
            "Standard_LRS",
            "https://learn.microsoft.com/azure/machine-learning/how-to-manage-registries",
        ),
        Copies(
            "regionDetails.storageAccountDetails.systemCreatedStorageAccount.storageAccountType",
            LOCAL_STORAGE,
            "Standard_LRS",
            "https://learn.microsoft.com/azure/machine-learning/how-to-manage-registries",
        ),
    ],
    "fileshares:FileShare": [
        Copies(
            "properties.redundancy",
            ("Local", "Zone"),
            "Local",
            "https://learn.microsoft.com/azure/storage/files/files-redundancy",
        )
    ],
}

storage: Final = copies(
    "residency-azure-storage-redundancy",
    "Storage keeps its copies within the region",
    STORAGE,
)


# Backups and snapshots that are copied to other regions.

_CONTROLS: Final = (*CONTROLS, "iso27001:A.8.13", "uae-ia:T3.5.1")
#: Regions that copies go to, by type.
_COPIES: Final[dict[str, tuple[str, ...]]] = {
    "aws:rds/snapshotCopy:SnapshotCopy": ("destinationRegion",),
    "aws:rds/clusterSnapshotCopy:ClusterSnapshotCopy": ("destinationRegion",),
    "aws:redshift/snapshotCopy:SnapshotCopy": ("destinationRegion",),
    "aws:redshift/cluster:Cluster": ("snapshotCopy.destinationRegion",),
    "aws:dlm/lifecyclePolicy:LifecyclePolicy": (
        "policyDetails.schedules.crossRegionCopyRules.target",
        "policyDetails.schedules.crossRegionCopyRules.targetRegion",
        "policyDetails.action.crossRegionCopies.target",
    ),
    "aws:efs/replicationConfiguration:ReplicationConfiguration": ("destination.region",),
    "aws:imagebuilder/distributionConfiguration:DistributionConfiguration": (
        "distributions.region",
    ),
}  # fmt: skip

#: Its source and destination always differ, so that one of them is abroad.
_AUTOMATED: Final = (
    "aws:rds/instanceAutomatedBackupsReplication:InstanceAutomatedBackupsReplication"
)


@rule(
    "residency-aws-snapshot-copy",
    "Snapshots, images and file systems are copied within allowed regions",
    Severity.CRITICAL,
    frozenset(_COPIES) | {_AUTOMATED},
    _CONTROLS,
    "Remove the copy to another region, or give it an allowed one. Keep a second copy in another "
    "vault or account of the same region instead.",
)
def snapshot_copy(resource: Resource, context: Context) -> Iterator[Finding]:
    """Destinations of copies; where none is given the copy stays in its region."""
    if resource.kind == _AUTOMATED and resource.custom:
        yield violation(
            "", f"backups are replicated from one region to another; {format_places(context)}"
        )
    for path in _COPIES.get(resource.kind, ()):
        yield from destinations.region(resource, context, path, "the copy")


@rule(
    "residency-aws-backup-copy",
    "Recovery points are copied to vaults in the country only",
    Severity.CRITICAL,
    {"aws:backup/plan:Plan"},
    _CONTROLS,
    "Copy to a vault of an allowed region: the ARN of the vault says its region.",
)
def backup_copy(resource: Resource, context: Context) -> Iterator[Finding]:
    """The vaults of copy actions, and the air-gapped ones."""
    for path in (
        "rules.copyActions.destinationVaultArn",
        "rules.targetLogicallyAirGappedBackupVaultArn",
    ):
        yield from destinations.arn(resource, context, path, "the vault")


# Keys and secrets that exist in several regions.

_KEYS: Final = (*CONTROLS, "iso27001:A.8.24", "uae-ia:T7.4.2")
_REPLICAS: Final = frozenset((
    "aws:kms/replicaKey:ReplicaKey", "aws:kms/replicaExternalKey:ReplicaExternalKey",
))  # fmt: skip
_MAY_SPAN: Final = frozenset(("aws:kms/key:Key", "aws:kms/externalKey:ExternalKey"))


@rule(
    "residency-aws-multi-region-key",
    "Key material stays in its region",
    Severity.CRITICAL,
    _REPLICAS | _MAY_SPAN,
    _KEYS,
    "Leave multiRegion off, and use a key of its own in each allowed region. Whether a key spans "
    "regions can't be changed later: make a new key and encrypt anew.",
)
def multi_region_key(resource: Resource, context: Context) -> Iterator[Finding]:
    """A replica has its primary, which holds the same key material, in another region."""
    if resource.kind in _REPLICAS:
        if resource.custom:
            yield violation(
                "", f"it shares its key material with another region; {format_places(context)}"
            )
        return
    value = resource.get("multiRegion")
    if is_unknown(value):
        yield indeterminate("multiRegion", "whether the key may be replicated can't be known")
    elif is_true(value):
        yield violation(
            "multiRegion", f"the key may be replicated to other regions; {format_places(context)}"
        )


@rule(
    "residency-aws-secret-replica",
    "Secrets are replicated within allowed regions",
    Severity.CRITICAL,
    {"aws:secretsmanager/secret:Secret"},
    _KEYS,
    "Remove the replicas of other regions.",
)
def secret_replica(resource: Resource, context: Context) -> Iterator[Finding]:
    """Regions of replicas."""
    yield from destinations.region(resource, context, "replicas.region", "the replica")


# Backups and recovery on Azure: where databases' backups, vaults and recovered machines are.

_SQL: Final = "https://learn.microsoft.com/azure/azure-sql/database/automated-backups-overview"
_POSTGRES: Final = (
    "https://learn.microsoft.com/azure/postgresql/flexible-server/concepts-backup-restore"
)
_MYSQL: Final = "https://learn.microsoft.com/azure/mysql/flexible-server/concepts-backup-restore"
_VAULT: Final = "https://learn.microsoft.com/azure/backup/backup-create-recovery-services-vault"

# Single servers, which had the names of today's flexible ones in older versions of the API.
_SINGLE: Final = (
    Copies("properties.storageProfile.geoRedundantBackup", ("Disabled",), "Disabled", _MYSQL),
    Copies("storageProfile.geoRedundantBackup", ("Disabled",), "Disabled", _MYSQL),
)
DATABASES: Final[dict[str, Sequence[Copies]]] = {
    "sql:Database": [
        Copies(
            "requestedBackupStorageRedundancy",
            ("Local", "Zone"),
            "Geo",
            _SQL,
            # A named replica reads its primary's files, and is backed up with them.
            unless=("secondaryType", "named"),
        )
    ],
    "sql:ManagedInstance": [
        Copies("requestedBackupStorageRedundancy", ("Local", "Zone"), "Geo", _SQL)
    ],
    "sql:GeoBackupPolicy": [
        Copies(
            "state",
            ("Disabled",),
            "Enabled",
            "https://learn.microsoft.com/azure/synapse-analytics/sql-data-warehouse/backup-and-restore",
        )
    ],
    "synapse:SqlPool": [
        Copies(
            "storageAccountType",
            ("LRS", "ZRS"),
            "GRS",
            "https://learn.microsoft.com/azure/templates/microsoft.synapse/workspaces/sqlpools",
        )
    ],
    "dbforpostgresql:Server": [
        Copies("backup.geoRedundantBackup", ("Disabled",), "Disabled", _POSTGRES),
        *_SINGLE,
    ],
    "dbforpostgresql:SingleServer": _SINGLE,
    "dbforpostgresql:ServerGroupCluster": [
        Copies("enableGeoBackup", ("false",), "false", _POSTGRES)
    ],
    "dbformysql:Server": [
        Copies("backup.geoRedundantBackup", ("Disabled",), "Disabled", _MYSQL),
        *_SINGLE,
    ],
    "dbformysql:SingleServer": _SINGLE,
    "dbformariadb:Server": _SINGLE,
}

database_backups: Final = copies(
    "residency-azure-database-backup",
    "Backups of databases stay within the region",
    DATABASES,
)

VAULTS: Final[dict[str, Sequence[Copies]]] = {
    "recoveryservices:Vault": [
        Copies(
            "properties.redundancySettings.standardTierStorageRedundancy",
            ("LocallyRedundant", "ZoneRedundant"),
            "GeoRedundant",
            _VAULT,
        ),
        Copies(
            "properties.redundancySettings.crossRegionRestore", ("Disabled",), "Disabled", _VAULT
        ),
    ],
    "dataprotection:BackupVault": [
        Copies(
            "properties.storageSettings.type",
            ("LocallyRedundant", "ZoneRedundant"),
            "GeoRedundant",
            "https://learn.microsoft.com/azure/backup/create-manage-backup-vault",
        ),
        Copies(
            "properties.featureSettings.crossRegionRestoreSettings.state",
            ("Disabled",),
            "Disabled",
            "https://learn.microsoft.com/azure/backup/create-manage-backup-vault",
        ),
    ],
}

vaults: Final = copies(
    "residency-azure-backup-vault",
    "Vaults keep backups within the region, and restore them there only",
    VAULTS,
)


@rule(
    "residency-azure-cosmos-backup",
    "Backups of Cosmos DB stay within the region",
    Severity.CRITICAL,
    azure("cosmosdb:DatabaseAccount"),
    COPY_CONTROLS,
    "Set backupPolicy to Continuous, which keeps backups beside the data, or to Periodic with "
    "backupStorageRedundancy Local or Zone.",
)
def cosmos_backup(resource: Resource, context: Context) -> Iterator[Finding]:
    """Periodic backups are the default, and Geo is theirs; continuous ones stay beside the data.

    https://learn.microsoft.com/azure/cosmos-db/periodic-backup-storage-redundancy
    """
    if geo_copies_stay(context):
        return
    path = "backupPolicy.periodicModeProperties.backupStorageRedundancy"
    mode = resource.get("backupPolicy.type")
    if is_unknown(mode):
        yield indeterminate("backupPolicy.type", "how backups are made can't be seen")
    elif text(mode).lower() != "continuous":
        copied = get(resource.properties, path)
        if is_unknown(copied):
            yield indeterminate(path, "where backups are kept can't be seen")
        elif scalar(copied) not in {"local", "zone"}:
            given = text(copied) or "not given, and so Geo"
            yield violation(
                path, f"it is {given}, which copies to another region: {no_geo_copies(context)}"
            )


#: Hubs of devices keep a copy of themselves in the pair unless told not to
#: (https://learn.microsoft.com/azure/iot-hub/iot-hub-ha-dr).
IOT: Final = azure("iothub:IotHubResource", "deviceprovisioningservices:IotDpsResource")


@rule(
    "residency-azure-service-copies",
    "Services keep no copy of themselves in another region",
    Severity.HIGH,
    IOT | azure("notificationhubs:Namespace", "web:WebApp", "web:WebAppSlot"),
    COPY_CONTROLS,
    "Set enableDataResidency of hubs of devices, replicationRegion None of notification hubs and "
    "redundancyMode None of web applications. " + REMEDIATION,
)
def service_copies(resource: Resource, context: Context) -> Iterator[Finding]:
    """What a service copies by itself so that it can move to the pair."""
    if geo_copies_stay(context):
        return
    if resource.kind in IOT:
        path, wanted, default = "properties.enableDataResidency", {"true"}, "false"
    elif resource.kind.endswith(":Namespace"):
        # Its documentation doesn't say what is taken where nothing is given.
        path, wanted, default = "replicationRegion", {"none"}, ""
    else:
        path, wanted, default = "redundancyMode", {"none", "manual"}, "None"
    value = resource.get(path)
    if is_unknown(value) or (value is ABSENT and not default):
        yield indeterminate(path, "whether it is copied to another region can't be seen")
    elif (default.lower() if value is ABSENT else scalar(value)) not in wanted:
        given = f"not given, and so {default}" if value is ABSENT else text(value) or scalar(value)
        yield violation(
            path, f"it is {given}, which copies to another region: {no_geo_copies(context)}"
        )


# Geo-redundancy under any key of a sku, in types that no table of copies knows.

#: Types whose own rules judge their copies.
KNOWN: Final = storage.types | database_backups.types | vaults.types | cosmos_backup.types

# Standard_RAGRS and the like, GeoRedundant, GeoZone: as skus and settings of every service.
_GEO: Final = re.compile(
    r"(?:(?:standard|premium)(?:v2)?[_-])?(?:ra-?)?gz?rs"
    r"|(?:readaccess)?geo(?:zone)?(?:redundant)?(?:storage)?",
    re.IGNORECASE,
)
#: Keys (their last words) that say how storage is copied.
_COPYING: Final = re.compile(
    r"(?:sku|skuname|redundancy|replicationtype|storageaccounttype|storagetype|accounttype"
    r"|storageaccountskuname|storagesku)$",
    re.IGNORECASE,
)


@rule(
    "residency-azure-geo-redundancy",
    "No setting of any service asks for geo-redundant storage",
    Severity.CRITICAL,
    {"azure-native:*"},
    COPY_CONTROLS,
    REMEDIATION,
)
def geo_redundancy(resource: Resource, context: Context) -> Iterator[Finding]:
    """Values such as Standard_GRS under any key of a sku, of types that no table knows."""
    module = resource.kind.rpartition(":")[0]
    # Migrate only calculates what storage would cost.
    if geo_copies_stay(context) or module == "azure-native:migrate" or resource.kind in KNOWN:
        return
    for leaf in walk(resource):
        name = "".join(leaf.keys[-2:]) if leaf.key in {"name", "value"} else leaf.key
        stem = re.sub(r"(?:name|value)$", "", name)
        if not _COPYING.search(stem):
            continue
        if _GEO.fullmatch(text(leaf.value)):
            yield violation(
                format_path(leaf.path),
                f"{text(leaf.value)} copies to another region: {no_geo_copies(context)}",
            )


RULES: tuple[Rule, ...] = (
    replication,
    replica_account,
    multi_region_access_point,
    acceleration,
    storage,
    geo_redundancy,
    snapshot_copy,
    backup_copy,
    multi_region_key,
    secret_replica,
    database_backups,
    vaults,
    cosmos_backup,
    service_copies,
)
