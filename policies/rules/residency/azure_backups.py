"""Backups and recovery on Azure: where databases' backups, vaults and recovered machines are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    get,
    indeterminate,
    is_unknown,
    rule,
    scalar,
    text,
    violation,
)
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency.azure_places import geo_copies_stay, no_geo_copies
from falaj.policies.rules.residency.azure_redundancy import CONTROLS, REMEDIATION, Copies, copies

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
    CONTROLS,
    "Set backupPolicy to Continuous, which keeps backups beside the data, or to Periodic with "
    "backupStorageRedundancy Local or Zone.",
)
def cosmos_backup(resource: Resource, view: View) -> Iterator[Finding]:
    """Periodic backups are the default, and Geo is theirs; continuous ones stay beside the data.

    https://learn.microsoft.com/azure/cosmos-db/periodic-backup-storage-redundancy
    """
    if geo_copies_stay(view):
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
                path, f"it is {given}, which copies to another region: {no_geo_copies(view)}"
            )


#: Hubs of devices keep a copy of themselves in the pair unless told not to
#: (https://learn.microsoft.com/azure/iot-hub/iot-hub-ha-dr).
IOT: Final = azure("iothub:IotHubResource", "deviceprovisioningservices:IotDpsResource")


@rule(
    "residency-azure-service-copies",
    "Services keep no copy of themselves in another region",
    Severity.HIGH,
    IOT | azure("notificationhubs:Namespace", "web:WebApp", "web:WebAppSlot"),
    CONTROLS,
    "Set enableDataResidency of hubs of devices, replicationRegion None of notification hubs and "
    "redundancyMode None of web applications. " + REMEDIATION,
)
def service_copies(resource: Resource, view: View) -> Iterator[Finding]:
    """What a service copies by itself so that it can move to the pair."""
    if geo_copies_stay(view):
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
            path, f"it is {given}, which copies to another region: {no_geo_copies(view)}"
        )


RULES: Final[tuple[Rule, ...]] = (database_backups, vaults, cosmos_backup, service_copies)
