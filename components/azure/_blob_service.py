"""How long objects can be had back after they were replaced or deleted."""

from __future__ import annotations

import pulumi
from pulumi_azure_native import storage


def blob_service(
    name: str,
    account: storage.StorageAccount,
    group: pulumi.Input[str],
    days: int,
    opts: pulumi.ResourceOptions,
) -> storage.BlobServiceProperties:
    """Keep versions; keep what is deleted, containers too, for ``days``; no web pages (CORS)."""
    removed = storage.DeleteRetentionPolicyArgs(
        enabled=True, days=days, allow_permanent_delete=False
    )
    return storage.BlobServiceProperties(
        name,
        account_name=account.name,
        resource_group_name=group,
        blob_services_name="default",
        is_versioning_enabled=True,
        delete_retention_policy=removed,
        container_delete_retention_policy=storage.DeleteRetentionPolicyArgs(
            enabled=True, days=days
        ),
        cors=storage.CorsRulesArgs(cors_rules=[]),
        opts=opts,
    )


def lifecycle(
    name: str,
    account: storage.StorageAccount,
    group: pulumi.Input[str],
    days: int,
    opts: pulumi.ResourceOptions,
) -> storage.ManagementPolicy:
    """Let versions and snapshots go after ``days``. Versions that are immutable stay longer."""
    gone = storage.DateAfterCreationArgs(days_after_creation_greater_than=days)
    return storage.ManagementPolicy(
        name,
        account_name=account.name,
        resource_group_name=group,
        management_policy_name="default",
        policy=storage.ManagementPolicySchemaArgs(
            rules=[
                storage.ManagementPolicyRuleArgs(
                    name="old-versions",
                    type=storage.RuleType.LIFECYCLE,
                    enabled=True,
                    definition=storage.ManagementPolicyDefinitionArgs(
                        filters=storage.ManagementPolicyFilterArgs(blob_types=["blockBlob"]),
                        actions=storage.ManagementPolicyActionArgs(
                            version=storage.ManagementPolicyVersionArgs(delete=gone),
                            snapshot=storage.ManagementPolicySnapShotArgs(delete=gone),
                        ),
                    ),
                )
            ]
        ),
        opts=opts,
    )
