"""Grants of Azure's built-in roles, each for one resource and one principal."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_azure_native as azure_native

from falaj.components.azure._ids import IdError

#: Built-in roles, the same in every tenant:
#: https://learn.microsoft.com/azure/role-based-access-control/built-in-roles
ROLES = {
    "AcrPull": "7f951dda-4ed3-4680-a7ca-43fe172d538d",
    "Azure Kubernetes Service Cluster User Role": "4abbcc35-e782-43d8-92c5-2d3f1bd2253f",
    "Azure Kubernetes Service RBAC Reader": "7f6c6a51-bcf8-42ba-9220-52d62157d7db",
    "Key Vault Contributor": "f25e0fa2-a7c8-4377-a976-54943a77a395",
    "Key Vault Crypto Service Encryption User": "e147488a-f6f5-4113-8e2d-b22465e65bf6",
    "Key Vault Crypto User": "12338af0-0e69-4776-bea7-57ae8d297424",
    "Key Vault Secrets User": "4633458b-17de-408a-b874-0445c86b69e6",
    "Managed Identity Operator": "f1a07417-d97a-45cb-824c-7a7467783830",
    "Network Contributor": "4d97b98b-1d4f-4787-a291-c67834d212e7",
    "Virtual Machine Contributor": "9980e02c-c2be-4d73-94e8-173b1dc7cf3c",
    "Reader": "acdd72a7-3385-48ef-bd42-f606fba81ae7",
    "Storage Blob Data Contributor": "ba92f5b4-2d11-453d-a403-e96b0029c9fe",
    "Storage Blob Data Reader": "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1",
}


@dataclass(frozen=True)
class Grant:
    """A role that somebody has on a resource."""

    role: str
    """Name of a built-in role, one of `ROLES`."""
    scope: pulumi.Input[str]
    """Id of the resource: the smallest that serves."""
    principal_id: pulumi.Input[str]
    principal_type: str = "ServicePrincipal"
    """``ServicePrincipal`` for managed identities, ``Group`` for people."""


def grant(
    name: str, what: Grant, opts: pulumi.ResourceOptions
) -> azure_native.authorization.RoleAssignment:
    """Assign a built-in role.

    ``principal_type`` is always given: without it Entra looks the principal up, and doesn't find
    an identity that was made a moment ago:
    https://learn.microsoft.com/azure/role-based-access-control/troubleshooting
    """
    definition = pulumi.Output.from_input(what.scope).apply(
        lambda scope: (
            f"/subscriptions/{_subscription(scope)}/providers/Microsoft.Authorization"
            f"/roleDefinitions/{ROLES[what.role]}"
        )
    )
    return azure_native.authorization.RoleAssignment(
        name,
        scope=what.scope,
        principal_id=what.principal_id,
        principal_type=what.principal_type,
        role_definition_id=definition,
        opts=opts,
    )


def _subscription(scope: str) -> str:
    parts = scope.split("/")
    if parts[:2] != ["", "subscriptions"] or len(parts) < len(("", "subscriptions", "id")):
        raise IdError(f"given {scope!r} to grant a role on; allowed: an id, /subscriptions/<id>/…")
    return parts[2]
