"""A hardware module of the tenant's own, and the keys in it."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
from pulumi_azure_native import keyvault, resources

from falaj.components.azure._names import dashed
from falaj.components.specification.key_ring import KeyRingSpec

#: Keys of a module are no type of the SDK; Resource Manager has them under this version:
#: https://learn.microsoft.com/rest/api/keyvault/managedhsm/managed-hsm-keys/create-if-not-exist
_API_VERSION = "2024-11-01"
_RSA_BITS = 4096


def managed_hsm(
    name: str,
    spec: KeyRingSpec,
    *,
    group: pulumi.Input[str],
    tenant_id: pulumi.Input[str],
    administrators: Sequence[pulumi.Input[str]],
    purposes: Sequence[str],
    opts: pulumi.ResourceOptions,
) -> dict[str, pulumi.Output[str]]:
    """Make a module and its keys.

    Args:
        name: the key ring's name.
        spec: its arguments.
        group: its resource group.
        tenant_id: the Entra tenant.
        administrators: who activates the module and grants its roles, object ids.
        purposes: which keys.
        opts: options of resources with data.

    Returns:
        Identifiers of the keys by purpose, without a version.
    """
    placed = spec.placed
    tags = placed.tags(name)
    module = keyvault.ManagedHsm(
        f"{name}-module",
        name=dashed(placed, name, "hsm"),
        resource_group_name=group,
        location=placed.region,
        sku=keyvault.ManagedHsmSkuArgs(
            family=keyvault.ManagedHsmSkuFamily.B, name=keyvault.ManagedHsmSkuName.STANDARD_B1
        ),
        properties=keyvault.ManagedHsmPropertiesArgs(
            tenant_id=tenant_id,
            initial_admin_object_ids=list(administrators),
            enable_soft_delete=True,
            soft_delete_retention_in_days=spec.deletion_window_days,
            enable_purge_protection=True,
            public_network_access=keyvault.PublicNetworkAccess.DISABLED,
            network_acls=keyvault.MHSMNetworkRuleSetArgs(
                default_action=keyvault.NetworkRuleAction.DENY,
                bypass=keyvault.NetworkRuleBypassOptions.AZURE_SERVICES,
                ip_rules=[],
                virtual_network_rules=[],
            ),
            # No further regions: a module can be extended to any in the world.
            regions=[],
        ),
        tags=tags,
        opts=opts,
    )
    for purpose in purposes:
        resources.Resource(
            f"{name}-{purpose}",
            resource_provider_namespace="Microsoft.KeyVault",
            parent_resource_path=module.name.apply(lambda hsm: f"managedHSMs/{hsm}"),
            resource_type="keys",
            resource_name_=purpose,
            api_version=_API_VERSION,
            resource_group_name=group,
            properties=_key(spec.rotation_days),
            tags=tags,
            opts=opts,
        )
    return {
        purpose: module.name.apply(
            lambda hsm, purpose=purpose: f"https://{hsm}.managedhsm.azure.net/keys/{purpose}"
        )
        for purpose in purposes
    }


def _key(rotation_days: int) -> dict[str, object]:
    """A key that services can wrap and unwrap with, and that gets new versions by itself."""
    rotate = {
        "action": {"type": "rotate"},
        "trigger": {"timeAfterCreate": f"P{rotation_days}D"},
    }
    return {
        "kty": "RSA-HSM",
        "keySize": _RSA_BITS,
        "keyOps": ["wrapKey", "unwrapKey"],
        "attributes": {"enabled": True, "exportable": False},
        "rotationPolicy": {
            "attributes": {"expiryTime": f"P{rotation_days + 90}D"},
            "lifetimeActions": [rotate],
        },
    }
