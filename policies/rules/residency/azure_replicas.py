"""Replicas and failover partners of stores on Azure, by where the partner is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_false,
    is_true,
    is_unknown,
    rule,
    text,
    violation,
)
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency.azure_targets import CONTROLS, Target, targets

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
    CONTROLS,
    "Set allowCrossTenantReplication to false: a policy of replication may otherwise name an "
    "account of another organisation, wherever it is.",
)
def cross_tenant(resource: Resource, view: View) -> Iterator[Finding]:
    """Off for new accounts since API 2023-01-01; before that absence meant yes.

    https://learn.microsoft.com/azure/storage/blobs/object-replication-prevent-cross-tenant-policies
    """
    del view
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
    CONTROLS,
    "Set allowedCopyScope to PrivateLink or AAD: otherwise whoever may read the account can have "
    "Azure copy its blobs into any account of the world.",
)
def copy_scope(resource: Resource, view: View) -> Iterator[Finding]:
    """Without a scope, blobs may be copied between any accounts.

    https://learn.microsoft.com/azure/storage/common/security-restrict-copy-operations
    """
    del view
    scope = resource.get("allowedCopyScope")
    if is_unknown(scope):
        yield indeterminate("allowedCopyScope", "who may copy can't be seen")
    elif text(scope).lower() not in {"aad", "privatelink"}:
        given = text(scope) or "not given, and so any account"
        yield violation("allowedCopyScope", f"it is {given}; it must be AAD or PrivateLink")


RULES: Final[tuple[Rule, ...]] = (replicas, cross_tenant, copy_scope)
