"""Storage accounts: under a key of ours, without keys of their own, without public addresses.

How long objects can be had back after they were replaced or deleted is said here as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import storage

from falaj.components.azure._ids import IdError, key_identifier
from falaj.components.specification.placed import Placed

#: Redundancies by their argument, for accounts with objects; ``geo`` with zones and without.
SKUS = {
    "local": storage.SkuName.STANDARD_LRS,
    "zone": storage.SkuName.STANDARD_ZRS,
    "geo": storage.SkuName.STANDARD_GZRS,
}


@dataclass(frozen=True, kw_only=True)
class Account:
    """What differs between our storage accounts."""

    title: str
    """Its name in Azure, which the whole world shares."""
    group: pulumi.Input[str]
    key_id: pulumi.Input[str]
    """Identifier of its key, without a version, so that it follows the newest."""
    identity_id: pulumi.Input[str]
    """Identity that may wrap and unwrap with the key."""
    sku: storage.SkuName
    tags: Mapping[str, str]
    kind: storage.Kind = storage.Kind.STORAGE_V2
    trusted_services: bool = False
    """Whether services that Azure vouches for may write: for logs."""
    immutable_days: int | None = None
    """Days for which nothing in it can be changed or deleted. None: no such rule."""


def storage_account(
    name: str, placed: Placed, account: Account, opts: pulumi.ResourceOptions
) -> storage.StorageAccount:
    """Make a storage account that is reached through private endpoints and by Entra only.

    Data are encrypted twice: by the service with our key, and below it with one of the platform.
    """
    identity = pulumi.Output.from_input(account.identity_id)
    files = account.kind == storage.Kind.FILE_STORAGE
    of_account = storage.EncryptionServiceArgs(enabled=True, key_type=storage.KeyType.ACCOUNT)
    return storage.StorageAccount(
        name,
        account_name=account.title,
        resource_group_name=account.group,
        location=placed.region,
        kind=account.kind,
        sku=storage.SkuArgs(name=account.sku),
        access_tier=None if files else storage.AccessTier.HOT,
        identity=storage.IdentityArgs(
            type=storage.IdentityType.USER_ASSIGNED, user_assigned_identities=[identity]
        ),
        encryption=storage.EncryptionArgs(
            key_source=storage.KeySource.MICROSOFT_KEYVAULT,
            key_vault_properties=_key(account.key_id),
            encryption_identity=storage.EncryptionIdentityArgs(
                encryption_user_assigned_identity=identity
            ),
            require_infrastructure_encryption=True,
            services=storage.EncryptionServicesArgs(file=of_account)
            if files
            else storage.EncryptionServicesArgs(
                blob=of_account, file=of_account, queue=of_account, table=of_account
            ),
        ),
        # Clients that can do 1.3 get it; a floor of 1.3 is in the SDK, and the service doesn't
        # enforce it yet (2025-09-24): https://learn.microsoft.com/azure/storage/common/
        # transport-layer-security-configure-minimum-version
        minimum_tls_version=storage.MinimumTlsVersion.TLS1_2,
        enable_https_traffic_only=True,
        allow_shared_key_access=False,
        default_to_o_auth_authentication=True,
        allow_blob_public_access=False,
        allow_cross_tenant_replication=False,
        # Copies come and go only between accounts with endpoints in the same network.
        allowed_copy_scope=storage.AllowedCopyScope.PRIVATE_LINK,
        is_local_user_enabled=False,
        is_sftp_enabled=False,
        is_hns_enabled=False,
        enable_nfs_v3=False,
        public_network_access=storage.PublicNetworkAccess.DISABLED,
        network_rule_set=storage.NetworkRuleSetArgs(
            default_action=storage.DefaultAction.DENY,
            bypass=(
                storage.Bypass.AZURE_SERVICES if account.trusted_services else storage.Bypass.NONE
            ),
            ip_rules=[],
            virtual_network_rules=[],
        ),
        sas_policy=storage.SasPolicyArgs(
            expiration_action=storage.ExpirationAction.BLOCK, sas_expiration_period="00.01:00:00"
        ),
        immutable_storage_with_versioning=_immutability(account.immutable_days),
        tags=dict(account.tags),
        opts=opts,
    )


def _key(key_id: pulumi.Input[str]) -> pulumi.Output[storage.KeyVaultPropertiesArgs]:
    return pulumi.Output.from_input(key_id).apply(
        lambda text: storage.KeyVaultPropertiesArgs(
            key_name=key_identifier(text).name, key_vault_uri=vault_uri(text)
        )
    )


def vault_uri(key_id: str) -> str:
    """Address of the vault of a key. Raises IdError for what is no key's identifier."""
    key_identifier(key_id)
    return key_id.partition("/keys/")[0]


def vault_of(key_id: str) -> str:
    """Like `vault_uri`, for services that take no key of a Managed HSM. Raises IdError."""
    if key_identifier(key_id).hardware_module:
        raise IdError(
            f"given {key_id!r}, a key of a Managed HSM; allowed: a key of a vault; leave "
            "managed_hsm of the key ring out"
        )
    return vault_uri(key_id)


def _immutability(days: int | None) -> storage.ImmutableStorageAccountArgs | None:
    if days is None:
        return None
    return storage.ImmutableStorageAccountArgs(
        enabled=True,
        immutability_policy=storage.AccountImmutabilityPolicyPropertiesArgs(
            immutability_period_since_creation_in_days=days,
            # The only state, beside none, in which Azure makes such a rule. Who is to be bound by
            # it for good locks it afterwards; a lock can't be undone.
            state=storage.AccountImmutabilityPolicyState.UNLOCKED,
            # Logs grow at their end.
            allow_protected_append_writes=True,
        ),
    )


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
