"""What clusters, pools and tiers stand on, declared as bare resources of the sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_azure_native as azure_native
from pulumi_azure_native import (
    compute,
    containerregistry,
    keyvault,
    network,
    operationalinsights,
    privatedns,
)

from tests.components.azure.conftest import PLACED

TENANT = "00000000-0000-0000-0000-0000000000ff"
SUBNETS = {
    "nodes": ("10.64.0.0/20", None),
    "serving": ("10.64.16.0/24", None),
    "control-plane": ("10.64.17.0/28", "Microsoft.ContainerService/managedClusters"),
    "containers": ("10.64.18.0/24", "Microsoft.App/environments"),
    "balancers": ("10.64.19.0/24", None),
}
IMAGE = f"acmeregistry.azurecr.io/inference@sha256:{'a' * 64}"
ZONES = ("1", "2", "3")


@dataclass(frozen=True)
class Foundation:
    """Ids of what was made, as outputs."""

    provider: pulumi.ProviderResource
    region: str
    network_id: pulumi.Output[str]
    subnets: dict[str, pulumi.Output[str]]
    security_group_id: pulumi.Output[str]
    vault_id: pulumi.Output[str]
    disk_encryption_id: pulumi.Output[str]
    registry_id: pulumi.Output[str]
    workspace_id: pulumi.Output[str]
    secret_ids: dict[str, pulumi.Output[str]]

    def by_zone(self, subnet: str) -> pulumi.Output[dict[str, str]]:
        """A subnet as a network tells it: the same one for every zone."""
        zones = ZONES if self.region == "uaenorth" else ("regional",)
        return self.subnets[subnet].apply(lambda found: dict.fromkeys(zones, found))

    def cluster_args(self, **changes: Any) -> dict[str, Any]:
        """Arguments of a cluster that is made."""
        return _changed(
            {
                **PLACED,
                "region": self.region,
                "network_id": self.network_id,
                "node_subnet_ids": self.by_zone("nodes"),
                "security_group_id": self.security_group_id,
                "cluster_key_id": "https://acme-keys.vault.azure.net/keys/cluster",
                "log_key_id": "https://acme-keys.vault.azure.net/keys/logs",
                "disk_encryption_id": self.disk_encryption_id,
                "key_ring_id": self.vault_id,
                "registry_id": self.registry_id,
                "log_destination_id": self.workspace_id,
            },
            changes,
        )

    def pool_args(self, cluster: Any, **changes: Any) -> dict[str, Any]:
        """Arguments of a pool of ``cluster``."""
        return _changed(
            {
                **PLACED,
                "region": self.region,
                "cluster_id": cluster.cluster_id,
                "node_subnet_ids": self.by_zone("nodes"),
                "node_identity_id": cluster.node_identity_id,
                "security_group_id": self.security_group_id,
                "disk_encryption_id": self.disk_encryption_id,
            },
            changes,
        )

    def tier_args(self, **changes: Any) -> dict[str, Any]:
        """Arguments of an inference tier."""
        return _changed(
            {
                **PLACED,
                "region": self.region,
                "network_id": self.network_id,
                "serving_subnet_ids": self.by_zone("serving"),
                "security_group_id": self.security_group_id,
                "disk_encryption_id": self.disk_encryption_id,
                "data_key_id": "https://acme-keys.vault.azure.net/keys/data",
                "log_key_id": "https://acme-keys.vault.azure.net/keys/logs",
                "registry_id": self.registry_id,
                "log_destination_id": self.workspace_id,
                "image": IMAGE,
                "package_repository": "acmeregistry.azurecr.io/models/churn",
                "model": "churn",
                "version": 3,
                "package_digest": "sha256:" + "b" * 64,
                "keys_digest": "sha256:" + "c" * 64,
                "keyring_secret_id": self.secret_ids["keyring"],
                "certificate_id": self.secret_ids["certificate"],
            },
            changes,
        )


def _changed(args: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """``changes`` over ``args``; None takes an argument away."""
    return {key: value for key, value in {**args, **changes}.items() if value is not None}


def foundation(provider: pulumi.ResourceOptions, region: str = "uaenorth") -> Foundation:
    """Make everything in ``region``, with the provider in ``provider``."""
    providers: Any = provider.providers
    opts = pulumi.ResourceOptions(provider=providers[0])
    group = azure_native.resources.ResourceGroup(
        "base", resource_group_name="acme-base", location=region, opts=opts
    )
    place: dict[str, Any] = {"resource_group_name": group.name, "location": region}
    rules = network.NetworkSecurityGroup(
        "base", network_security_group_name="acme-rules", **place, opts=opts
    )
    made = network.VirtualNetwork(
        "base",
        virtual_network_name="acme-network",
        address_space=network.AddressSpaceArgs(address_prefixes=["10.64.0.0/16"]),
        **place,
        opts=opts,
    )
    subnets: dict[str, pulumi.Output[str]] = {}
    for name, (cidr, service) in SUBNETS.items():
        subnets[name] = network.Subnet(
            f"base-{name}",
            resource_group_name=group.name,
            virtual_network_name=made.name,
            subnet_name=name,
            address_prefix=cidr,
            network_security_group=network.NetworkSecurityGroupArgs(id=rules.id),
            delegations=(
                [network.DelegationArgs(name="service", service_name=service)] if service else None
            ),
            opts=opts,
        ).id
    privatedns.PrivateZone(
        "base",
        private_zone_name=f"private.{region}.azmk8s.io",
        resource_group_name=group.name,
        location="global",
        opts=opts,
    )
    vault = keyvault.Vault(
        "base",
        vault_name="acme-keys",
        properties=keyvault.VaultPropertiesArgs(
            tenant_id=TENANT,
            sku=keyvault.SkuArgs(family=keyvault.SkuFamily.A, name=keyvault.SkuName.PREMIUM),
            enable_rbac_authorization=True,
            enable_purge_protection=True,
        ),
        **place,
        opts=opts,
    )
    key = keyvault.Key(
        "base-cluster",
        resource_group_name=group.name,
        vault_name=vault.name,
        key_name="cluster",
        properties=keyvault.KeyPropertiesArgs(kty=keyvault.JsonWebKeyType.RS_A_HSM, key_size=3072),
        opts=opts,
    )
    disks = compute.DiskEncryptionSet(
        "base",
        disk_encryption_set_name="acme-disks",
        identity=compute.EncryptionSetIdentityArgs(
            type=compute.DiskEncryptionSetIdentityType.SYSTEM_ASSIGNED
        ),
        active_key=compute.KeyForDiskEncryptionSetArgs(
            key_url=key.key_uri_with_version,
            source_vault=compute.SourceVaultArgs(id=vault.id),
        ),
        **place,
        opts=opts,
    )
    registry = containerregistry.Registry(
        "base",
        registry_name="acmeregistry",
        sku=containerregistry.SkuArgs(name=containerregistry.SkuName.PREMIUM),
        **place,
        opts=opts,
    )
    workspace = operationalinsights.Workspace(
        "base", workspace_name="acme-logs", **place, opts=opts
    )
    secrets = {
        name: keyvault.Secret(
            f"base-{name}",
            resource_group_name=group.name,
            vault_name=vault.name,
            secret_name=name,
            properties=keyvault.SecretPropertiesArgs(value="set by a key administrator"),
            opts=opts,
        ).id
        for name in ("keyring", "certificate")
    }
    return Foundation(
        providers[0],
        region,
        made.id,
        subnets,
        rules.id,
        # The vault is there when its key is.
        pulumi.Output.all(vault.id, key.id).apply(lambda both: both[0]),
        disks.id,
        registry.id,
        workspace.id,
        secrets,
    )
