"""What vaults and their keys are like, wherever a component makes them."""

from __future__ import annotations

import pulumi
from pulumi_azure_native import keyvault

#: The largest that every service takes which encrypts with a key of ours.
RSA_BITS = 4096
#: How long a version is good after its successor was made: services take up a new version within
#: a day, and what is not in use for a quarter can still be read.
OVERLAP_DAYS = 90
_OPERATIONS = (
    keyvault.JsonWebKeyOperation.ENCRYPT,
    keyvault.JsonWebKeyOperation.DECRYPT,
    keyvault.JsonWebKeyOperation.WRAP_KEY,
    keyvault.JsonWebKeyOperation.UNWRAP_KEY,
)
#: What Resource Manager changes of no key that exists, tags among it: it answers 400
#: KeyCreationParametersDidNotMatchExistingKey (https://github.com/Azure/bicep/issues/8283).
FIXED = ("tags", *(f"properties.{each}" for each in ("attributes", "keyOps", "keySize", "kty")))
#: Azure adds eight digits to an automatic name, and vaults' names have up to 24 characters.
AUTOMATIC = 16


def vault_properties(
    tenant_id: pulumi.Input[str], deletion_window_days: int, *, closed: bool = True
) -> keyvault.VaultPropertiesArgs:
    """A vault with hardware modules that takes roles of Azure only and can't be purged.

    Args:
        tenant_id: the Entra tenant.
        deletion_window_days: for how long it can be had back once it was deleted.
        closed: whether no address reaches it, but for services that Azure vouches for. Default:
            True.
    """
    action = keyvault.NetworkRuleAction
    return keyvault.VaultPropertiesArgs(
        tenant_id=tenant_id,
        sku=keyvault.SkuArgs(family=keyvault.SkuFamily.A, name=keyvault.SkuName.PREMIUM),
        enable_rbac_authorization=True,
        enable_soft_delete=True,
        soft_delete_retention_in_days=deletion_window_days,
        # Services refuse to encrypt with keys that could be purged, so that this can't be left
        # out anywhere.
        enable_purge_protection=True,
        enabled_for_deployment=False,
        enabled_for_disk_encryption=False,
        enabled_for_template_deployment=False,
        public_network_access="Disabled" if closed else "Enabled",
        # Storage, disks and the registry are the only ones to come in otherwise, as services that
        # Azure vouches for, and with a role:
        # https://learn.microsoft.com/azure/key-vault/general/overview-vnet-service-endpoints
        network_acls=keyvault.NetworkRuleSetArgs(
            default_action=action.DENY if closed else action.ALLOW,
            bypass=keyvault.NetworkRuleBypassOptions.AZURE_SERVICES,
            ip_rules=[],
            virtual_network_rules=[],
        ),
    )


def key_properties(rotation_days: int, *, lasting: bool = False) -> keyvault.KeyPropertiesArgs:
    """An RSA key in a hardware module that gets new versions by itself.

    Args:
        rotation_days: days after which it gets a new version.
        lasting: whether versions never expire. Default: False, they do some months after their
            successor was made.
    """
    expiry = keyvault.KeyRotationPolicyAttributesArgs(
        expiry_time=f"P{rotation_days + OVERLAP_DAYS}D"
    )
    return keyvault.KeyPropertiesArgs(
        kty=keyvault.JsonWebKeyType.RS_A_HSM,
        key_size=RSA_BITS,
        key_ops=list(_OPERATIONS),
        attributes=keyvault.KeyAttributesArgs(enabled=True, exportable=False),
        rotation_policy=keyvault.RotationPolicyArgs(
            attributes=None if lasting else expiry,
            lifetime_actions=[
                keyvault.LifetimeActionArgs(
                    action=keyvault.ActionArgs(type=keyvault.KeyRotationPolicyActionType.ROTATE),
                    trigger=keyvault.TriggerArgs(time_after_create=f"P{rotation_days}D"),
                )
            ],
        ),
    )
