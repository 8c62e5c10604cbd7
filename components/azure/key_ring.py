"""Keys of a tenant, one for each purpose, in hardware modules in the country."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pulumi
import pulumi_azure_native as azure_native
from pulumi_azure_native import keyvault, resources

from falaj.components.azure._component import (
    client_of,
    component_options,
    dashed,
    kept,
    left_to_its_vault,
    resource_group,
    titled,
)
from falaj.components.azure._roles import (
    KEY_ADMINISTRATOR,
    KEY_ENCRYPTER,
    KEY_USER,
    Grant,
    define_role,
    grant,
)
from falaj.components.azure._vault import (
    AUTOMATIC,
    FIXED,
    OVERLAP_DAYS,
    RSA_BITS,
    key_properties,
    vault_properties,
)
from falaj.components.catalogue.tag_names import tag_name
from falaj.components.specification.key_ring import KeyRingArgs, KeyRingSpec, check
from falaj.components.specification.names import physical_name
from falaj.components.specification.property_names import engine_inputs
from falaj.wire.documents import mapping, sequence

#: Keys of a module are no type of the SDK; Resource Manager has them under this version:
#: https://learn.microsoft.com/rest/api/keyvault/managedhsm/managed-hsm-keys/create-if-not-exist
_HSM_API_VERSION = "2024-11-01"


def managed_hsm(
    name: str,
    spec: KeyRingSpec,
    *,
    group: pulumi.Input[str],
    tenant_id: pulumi.Input[str],
    administrators: Sequence[pulumi.Input[str]],
    purposes: Sequence[str],
    opts: pulumi.ResourceOptions,
    key_opts: pulumi.ResourceOptions,
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
        key_opts: options of keys.

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
            api_version=_HSM_API_VERSION,
            resource_group_name=group,
            properties=_hsm_key(spec.rotation_days),
            tags=tags,
            opts=key_opts,
        )
    return {
        purpose: module.name.apply(
            lambda hsm, purpose=purpose: f"https://{hsm}.managedhsm.azure.net/keys/{purpose}"
        )
        for purpose in purposes
    }


def _hsm_key(rotation_days: int) -> dict[str, object]:
    """A key that services can wrap and unwrap with, and that gets new versions by itself."""
    rotate = {
        "action": {"type": "rotate"},
        "trigger": {"timeAfterCreate": f"P{rotation_days}D"},
    }
    return {
        "kty": "RSA-HSM",
        "keySize": RSA_BITS,
        "keyOps": ["wrapKey", "unwrapKey"],
        "attributes": {"enabled": True, "exportable": False},
        "rotationPolicy": {
            "attributes": {"expiryTime": f"P{rotation_days + OVERLAP_DAYS}D"},
            "lifetimeActions": [rotate],
        },
    }


__all__ = ["KeyRing", "KeyRingArgs"]

#: These stay in the vault where there is a module of one's own: AKS reaches no such module over a
#: private link, and disk encryption sets need a key's version, which a module's key has only
#: after people have activated it. That of the state is used by people, by a role that they take up
#: in Azure, and a module knows only roles of its own:
#: https://learn.microsoft.com/azure/key-vault/managed-hsm/access-control
_VAULT_ONLY = ("disks", "cluster", "state")
#: Versions of these don't expire: AKS stays with the version that it was given until an update
#: gives it the next one, then uses both, and its API server stops where one of them has expired:
#: https://learn.microsoft.com/azure/aks/use-kms-etcd-encryption
_LASTING = ("cluster",)


def _key_options(name: str, opts: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
    """Options of the keys of a ring."""
    rotation = pulumi.ResourceHook(
        f"{name}-rotation", refuse_rotation, pulumi.ResourceHookOptions(on_dry_run=True)
    )
    return pulumi.ResourceOptions.merge(
        left_to_its_vault(opts),
        pulumi.ResourceOptions(
            ignore_changes=list(FIXED),
            hooks=pulumi.ResourceHookBinding(before_update=[rotation]),
        ),
    )


def refuse_rotation(key: pulumi.ResourceHookArgs) -> None:
    """Refuse another rotation of a key that exists, before it is sent.

    Resource Manager answers as if it had written it
    (https://github.com/Azure/azure-service-operator/issues/3188).

    Raises:
        pulumi.RunError: the rotation policy isn't the one that the key has.
    """
    had, wanted = (_rotation(each) for each in (key.old_inputs, key.new_inputs))
    if had != wanted:
        raise pulumi.RunError(
            f"rotation_days of the key {key.name!r}: it rotates after {had or 'nothing'}, and "
            f"{wanted or 'nothing'} was given; Azure changes this of no key that exists, except "
            "at its own address, from inside of the network: az keyvault key rotation-policy "
            f"update --id https://VAULT.vault.azure.net/keys/{_key_name(key)} --value FILE (which "
            f"is PUT /keys/{_key_name(key)}/rotationpolicy), then falaj refresh; or give "
            "rotation_days as it was"
        )


def _rotation(inputs: Mapping[str, Any] | None) -> str | None:
    """After how long a key gets a new version, such as ``P365D``; None: never."""
    policy = mapping(mapping(mapping(inputs).get("properties")).get("rotationPolicy"))
    triggers = [mapping(each.get("trigger")) for each in sequence(policy.get("lifetimeActions"))]
    return next((each.get("timeAfterCreate") for each in triggers), None)


def _key_name(key: pulumi.ResourceHookArgs) -> str:
    """Its name in the vault, or in the module."""
    inputs = key.new_inputs or {}
    return str(inputs.get("keyName") or inputs.get("resourceName"))


class KeyRing(pulumi.ComponentResource):
    """Keys of a tenant: one for each purpose, in hardware modules, in one region of the country.

    A Key Vault of the tier Premium holds 4096-bit RSA keys in FIPS 140 validated modules. It can't
    be purged, has no public address, and takes roles of Azure only. Administrators manage keys and
    can't use them; services use them through one identity that can wrap and unwrap, and with the
    key of data encrypt and decrypt, which Azure NetApp Files does. A key gets a new version every
    ``rotation_days`` by itself, and disks follow; Azure changes neither this nor the tags of a key
    that exists, so that another ``rotation_days`` is refused with what to do. Versions expire some
    months after their successor was made, but for the key ``cluster``: AKS stops where one expires
    that it still uses. Azure keeps a copy
    of a vault in the paired region, which is in the country as well.

    With ``managed_hsm`` the keys of data, logs and registry are in a module of the tenant's
    own. Azure needs people for its activation: the first ``up`` makes the module and stops at
    its keys; then its administrators open it to their own address, download the security
    domain, give the identity ``…-user`` the module's role ``Managed HSM Crypto Service
    Encryption User``, and run ``up`` again, which also closes it.

    Example:
        ``keys = KeyRing("keys", {"region": "uaenorth", "tenant": "bank", "owner": "it@bank.ae",
        "data_class": "confidential", "cost_center": "42"}, opts)``

    Makes: a resource group, a vault, its keys, a disk encryption set, a user-assigned identity
    with its roles, a role for administrators and its assignments; optionally a Managed HSM with
    its keys.

    In ``production`` all of it is protected and retained. Elsewhere it is destroyed; a vault under
    an automatic name, because Azure gives the name of a deleted vault free only after
    ``deletion_window_days``. Keys are retained everywhere: they go with their vault, and come back
    with it where it is recovered within that time.
    """

    key_ring_id: pulumi.Output[str]
    """Id of the vault."""
    key_ids: pulumi.Output[dict[str, str]]
    """Identifier of each key by purpose, without a version: services follow the newest."""
    disk_encryption_id: pulumi.Output[str]
    """Id of the disk encryption set: the key ``disks``, or the first where there is none."""
    key_identity_id: pulumi.Output[str | None]
    """Id of the identity that may wrap and unwrap with the keys."""

    def __init__(
        self, name: str, args: KeyRingArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("azure", name, args)
        super().__init__(
            "falaj-azure:index:KeyRing", name, engine_inputs(args), component_options(opts)
        )
        self._spec = spec
        self._name = name
        self._tags = spec.placed.tags(name)
        self._opts = pulumi.ResourceOptions(parent=self)
        self._kept = kept(self._opts, spec.placed.retained)
        self._of_keys = _key_options(name, self._kept)
        self._group = resource_group(name, spec.placed, self._opts, stateful=True)
        client = client_of(self)
        administrators: list[pulumi.Input[str]] = list(spec.administrators) or [client.object_id]
        vault = self._vault(client.tenant_id)
        identity, allowed = self._user(vault)
        self._administrate(vault, administrators)
        in_module = [each for each in spec.purposes if each not in _VAULT_ONLY]
        in_module = in_module if spec.managed_hsm else []
        keys = {
            purpose: self._key(vault, purpose)
            for purpose in spec.purposes
            if purpose not in in_module
        }
        uris = {purpose: key.key_uri for purpose, key in keys.items()}
        if spec.managed_hsm:
            uris |= managed_hsm(
                name,
                spec,
                group=self._group.name,
                tenant_id=client.tenant_id,
                administrators=administrators,
                purposes=in_module,
                opts=self._kept,
                key_opts=self._of_keys,
            )
        granted: list[pulumi.Resource] = [allowed]
        if "data" in keys:
            granted.append(self._encrypt(keys["data"], identity))
        of_disks = keys.get("disks") or next(iter(keys.values()))
        disks = self._disk_encryption(vault, of_disks, identity, allowed)
        self.key_ring_id = vault.id
        self.key_ids = pulumi.Output.all(**{each: uris[each] for each in spec.purposes})
        self.disk_encryption_id = disks.id
        # Who gets the identity may rely on its role.
        self.key_identity_id = pulumi.Output.all(
            identity.id, *(each.urn for each in granted)
        ).apply(lambda found: cast("str | None", found[0]))
        self.register_outputs(
            {
                "keyRingId": self.key_ring_id,
                "keyIds": self.key_ids,
                "diskEncryptionId": self.disk_encryption_id,
                "keyIdentityId": self.key_identity_id,
            }
        )

    def _vault(self, tenant_id: pulumi.Input[str]) -> keyvault.Vault:
        placed = self._spec.placed
        return keyvault.Vault(
            physical_name(self._name, "vault", limit=AUTOMATIC),
            vault_name=dashed(placed, self._name) if placed.retained else None,
            resource_group_name=self._group.name,
            location=placed.region,
            properties=vault_properties(tenant_id, self._spec.deletion_window_days),
            tags=self._tags,
            opts=self._kept,
        )

    def _user(
        self, vault: keyvault.Vault
    ) -> tuple[
        azure_native.managedidentity.UserAssignedIdentity,
        azure_native.authorization.RoleAssignment,
    ]:
        """The identity with which services use the keys, and its role."""
        identity = azure_native.managedidentity.UserAssignedIdentity(
            f"{self._name}-user",
            resource_group_name=self._group.name,
            resource_name_=titled(self._spec.placed, self._name, "user"),
            location=self._spec.placed.region,
            tags=self._tags,
            # Data are lost to who loses the identity that may decrypt them.
            opts=self._kept,
        )
        allowed = grant(
            f"{self._name}-use", Grant(KEY_USER, vault.id, identity.principal_id), self._kept
        )
        return identity, allowed

    def _encrypt(
        self, key: keyvault.Key, identity: azure_native.managedidentity.UserAssignedIdentity
    ) -> azure_native.authorization.RoleAssignment:
        """Azure NetApp Files doesn't wrap, it encrypts with the key of data itself."""
        role = define_role(
            f"{self._name}-encrypter",
            self._spec.placed,
            KEY_ENCRYPTER,
            self._group.id,
            self._kept,
        )
        return azure_native.authorization.RoleAssignment(
            f"{self._name}-encrypt",
            scope=key.id,
            principal_id=identity.principal_id,
            principal_type=azure_native.authorization.PrincipalType.SERVICE_PRINCIPAL,
            role_definition_id=role.id,
            opts=self._kept,
        )

    def _administrate(
        self, vault: keyvault.Vault, administrators: list[pulumi.Input[str]]
    ) -> None:
        role = define_role(
            f"{self._name}-administrator",
            self._spec.placed,
            KEY_ADMINISTRATOR,
            self._group.id,
            self._opts,
        )
        for position, principal in enumerate(administrators):
            named = self._spec.administrators
            label = named[position] if named else "deployer"
            # Whether it is a group, a person or a service isn't known here; it exists already, so
            # that Entra finds it.
            azure_native.authorization.RoleAssignment(
                f"{self._name}-administrator-{label}",
                scope=vault.id,
                principal_id=principal,
                role_definition_id=role.id,
                opts=self._opts,
            )

    def _key(self, vault: keyvault.Vault, purpose: str) -> keyvault.Key:
        return keyvault.Key(
            f"{self._name}-{purpose}",
            key_name=purpose,
            vault_name=vault.name,
            resource_group_name=self._group.name,
            properties=key_properties(self._spec.rotation_days, lasting=purpose in _LASTING),
            tags={**self._tags, tag_name("azure", "purpose"): purpose},
            opts=self._of_keys,
        )

    def _disk_encryption(
        self,
        vault: keyvault.Vault,
        key: keyvault.Key,
        identity: azure_native.managedidentity.UserAssignedIdentity,
        allowed: azure_native.authorization.RoleAssignment,
    ) -> azure_native.compute.DiskEncryptionSet:
        compute = azure_native.compute
        return compute.DiskEncryptionSet(
            f"{self._name}-disks-set",
            disk_encryption_set_name=titled(self._spec.placed, self._name, "disks"),
            resource_group_name=self._group.name,
            location=self._spec.placed.region,
            # Twice: with our key, and below it with one of the platform.
            encryption_type=(
                compute.DiskEncryptionSetType.ENCRYPTION_AT_REST_WITH_PLATFORM_AND_CUSTOMER_KEYS
            ),
            identity=compute.EncryptionSetIdentityArgs(
                type=compute.DiskEncryptionSetIdentityType.USER_ASSIGNED,
                user_assigned_identities=[identity.id],
            ),
            active_key=compute.KeyForDiskEncryptionSetArgs(
                key_url=key.key_uri_with_version,
                source_vault=compute.SourceVaultArgs(id=vault.id),
            ),
            rotation_to_latest_key_version_enabled=True,
            tags=self._tags,
            opts=pulumi.ResourceOptions.merge(
                self._kept,
                # Azure itself moves the set to new versions of the key.
                pulumi.ResourceOptions(depends_on=[allowed], ignore_changes=["activeKey.keyUrl"]),
            ),
        )
