"""Records of every connection in a network, in a storage account under our key."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import managedidentity, network, storage

from falaj.components.azure._groups import kept
from falaj.components.azure._names import compact, titled
from falaj.components.azure._roles import Grant, grant
from falaj.components.azure._storage import SKUS, Account, storage_account
from falaj.components.specification.placed import Placed


@dataclass(frozen=True)
class Records:
    """What flow logs need."""

    group: pulumi.Input[str]
    network_id: pulumi.Input[str]
    key_id: pulumi.Input[str]
    identity_id: pulumi.Input[str]
    days: int


def flow_logs(
    name: str, placed: Placed, records: Records, opts: pulumi.ResourceOptions
) -> storage.StorageAccount:
    """Record the network's connections; they are deleted after their days.

    The flow log belongs to the region's network watcher, which Azure makes by itself together
    with the first network: https://learn.microsoft.com/azure/network-watcher/network-watcher-create
    """
    stored = kept(opts, placed.retained)
    account = storage_account(
        f"{name}-flows-account",
        placed,
        Account(
            title=compact(placed, "storage", name, "flows"),
            group=records.group,
            key_id=records.key_id,
            identity_id=records.identity_id,
            sku=SKUS["zone" if placed.place.zones else "local"],
            tags=placed.tags(name),
            trusted_services=True,
        ),
        stored,
    )
    storage.ManagementPolicy(
        f"{name}-flows-lifecycle",
        account_name=account.name,
        resource_group_name=records.group,
        management_policy_name="default",
        policy=storage.ManagementPolicySchemaArgs(rules=[_forget(records.days)]),
        opts=stored,
    )
    writer = managedidentity.UserAssignedIdentity(
        f"{name}-flows-writer",
        resource_name_=titled(placed, name, "flows"),
        resource_group_name=records.group,
        location=placed.region,
        tags=placed.tags(name),
        opts=opts,
    )
    allowed = grant(
        f"{name}-flows-write",
        Grant("Storage Blob Data Contributor", account.id, writer.principal_id),
        opts,
    )
    network.FlowLog(
        f"{name}-flow-log",
        flow_log_name=titled(placed, name, "flows"),
        network_watcher_name=f"NetworkWatcher_{placed.region}",
        resource_group_name="NetworkWatcherRG",
        location=placed.region,
        target_resource_id=records.network_id,
        storage_id=account.id,
        enabled=True,
        format=network.FlowLogFormatParametersArgs(type=network.FlowLogFormatType.JSON, version=2),
        # The account has no keys to write with.
        identity=network.ManagedServiceIdentityArgs(
            type=network.ResourceIdentityType.USER_ASSIGNED, user_assigned_identities=[writer.id]
        ),
        tags=placed.tags(name),
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[allowed])),
    )
    return account


def _forget(days: int) -> storage.ManagementPolicyRuleArgs:
    return storage.ManagementPolicyRuleArgs(
        name="forget",
        type=storage.RuleType.LIFECYCLE,
        enabled=True,
        definition=storage.ManagementPolicyDefinitionArgs(
            filters=storage.ManagementPolicyFilterArgs(blob_types=["blockBlob", "appendBlob"]),
            actions=storage.ManagementPolicyActionArgs(
                base_blob=storage.ManagementPolicyBaseBlobArgs(
                    delete=storage.DateAfterModificationArgs(
                        days_after_modification_greater_than=days
                    )
                )
            ),
        ),
    )
