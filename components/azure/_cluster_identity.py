"""Identities of an AKS cluster, and exactly what each may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_azure_native as azure_native

from falaj.components.azure._ids import IdError, KeyIdentifier, key_identifier, resource_id
from falaj.components.azure._roles import Grant, grant
from falaj.components.azure._subnets import CONTROL_PLANE, subnet_id
from falaj.components.specification.cluster import ClusterArgs


@dataclass(frozen=True)
class ClusterKey:
    """The key of the cluster's secrets."""

    vault_id: pulumi.Output[str]
    identifier: pulumi.Output[str]
    """Identifier of its current version: AKS takes no other."""
    scope: pulumi.Output[str]
    """Resource id of the key, for grants."""


@dataclass(frozen=True)
class Identities:
    """Who acts for a cluster."""

    control_plane: azure_native.managedidentity.UserAssignedIdentity
    kubelet: azure_native.managedidentity.UserAssignedIdentity
    grants: tuple[pulumi.Resource, ...]
    """What has to be there before the cluster is made."""


def cluster_key(args: ClusterArgs, opts: pulumi.InvokeOutputOptions) -> ClusterKey:
    """The key of the cluster's secrets, in its current version.

    A rotated key has a new version: the next ``up`` hands it to AKS. Secrets that were written
    before are encrypted anew when they are written again.
    """
    vault = pulumi.Output.from_input(args.get("key_ring_id", "")).apply(
        lambda text: resource_id(text, "Microsoft.KeyVault/vaults")
    )
    vault_id = vault.apply(lambda found: found.parent)
    key = pulumi.Output.from_input(args["cluster_key_id"]).apply(_key_of_vault)

    def current(known: list[Any]) -> pulumi.Output[str]:
        # Asked with plain values: a preview doesn't ask what depends on a StackReference, whose
        # own id it doesn't know, though all its outputs are known.
        of_vault, of_key = known
        return azure_native.keyvault.get_key_output(
            key_name=of_key.name,
            resource_group_name=of_vault.group,
            vault_name=of_vault.name,
            opts=opts,
        ).key_uri_with_version

    return ClusterKey(
        vault_id,
        pulumi.Output.all(vault, key).apply(current),
        pulumi.Output.concat(vault_id, "/keys/", key.apply(lambda found: found.name)),
    )


def _key_of_vault(text: str) -> KeyIdentifier:
    found = key_identifier(text)
    if found.hardware_module:
        raise IdError(
            f"cluster_key_id: given {text!r}, a key of a Managed HSM; allowed: a key of a vault, "
            "from which alone AKS encrypts secrets over a private link; leave managed_hsm of the "
            "key ring out, or give the cluster a key ring of its own"
        )
    return found


def make_identities(
    name: str,
    args: ClusterArgs,
    key: ClusterKey,
    *,
    group: azure_native.resources.ResourceGroup,
    node_subnet: pulumi.Input[str],
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> Identities:
    """Make both identities and grant what they need, on single resources.

    The control plane joins two subnets, wraps and unwraps with one key, lets AKS make the vault's
    private endpoint, reads the disk encryption set, and gives nodes their identity. Nodes pull
    images, and nothing else.
    """
    control_plane, kubelet = (
        azure_native.managedidentity.UserAssignedIdentity(
            f"{name}-{role}",
            resource_group_name=group.name,
            resource_name_=pulumi.Output.concat(group.name, "-", role),
            location=args["region"],
            tags=dict(tags),
            opts=opts,
        )
        for role in ("control-plane", "kubelet")
    )
    acting = control_plane.principal_id
    wanted = {
        "node-subnet": Grant("Network Contributor", node_subnet, acting),
        "control-plane-subnet": Grant(
            "Network Contributor", subnet_id(args["network_id"], CONTROL_PLANE), acting
        ),
        "key": Grant("Key Vault Crypto User", key.scope, acting),
        "vault": Grant("Key Vault Contributor", key.vault_id, acting),
        "disks": Grant("Reader", args["disk_encryption_id"], acting),
        "kubelet": Grant("Managed Identity Operator", kubelet.id, acting),
        "images": Grant("AcrPull", args.get("registry_id", ""), kubelet.principal_id),
    }
    grants = tuple(grant(f"{name}-{purpose}", what, opts) for purpose, what in wanted.items())
    return Identities(control_plane, kubelet, grants)
