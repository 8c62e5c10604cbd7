"""Roles: those that Azure has, those of our own, and what each duty's role allows.

A built-in role is granted on one resource to one principal. A role of our own allows exactly the
operations that a duty needs, never all of anything.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import pulumi
import pulumi_azure_native as azure_native

from falaj.components.azure._ids import IdError
from falaj.components.catalogue.azure_roles import BUILT_IN_ROLES
from falaj.components.specification.names import physical_name
from falaj.components.specification.placed import Placed

#: What services wrap and unwrap with.
KEY_USER = "Key Vault Crypto Service Encryption User"
#: Built-in roles that components give, by their names.
ROLES = {
    name: BUILT_IN_ROLES[name]
    for name in (
        "AcrPull",
        "Azure Kubernetes Service Cluster User Role",
        "Azure Kubernetes Service RBAC Reader",
        "Key Vault Contributor",
        KEY_USER,
        "Key Vault Crypto User",
        "Key Vault Secrets User",
        "Managed Identity Operator",
        "Network Contributor",
        "Private DNS Zone Contributor",
        "Virtual Machine Contributor",
        "Reader",
        "Storage Blob Data Contributor",
        "Storage Blob Data Reader",
    )
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


#: Longest name of a role:
#: https://learn.microsoft.com/azure/role-based-access-control/custom-roles
_ROLE_NAME_LIMIT = 128
#: Digits of a role's id in its name, which tell those of two subscriptions apart.
_OF_SUBSCRIPTION = 8
#: Ids of roles follow from their names and subscriptions, so that every run makes the same; any
#: fixed UUID serves.
_NAMESPACE = uuid.UUID("6f3f8a52-6c0e-4d0b-9c58-0f6d0c5f3b11")


@dataclass(frozen=True)
class Permissions:
    """Operations that a role allows."""

    description: str
    actions: tuple[str, ...] = ()
    """On resources themselves."""
    data_actions: tuple[str, ...] = field(default=())
    """On what resources hold."""

    def __post_init__(self) -> None:
        """Raises ValueError for a role that allows everything."""
        for operation in (*self.actions, *self.data_actions):
            if operation.strip() in ("*", "*/*", "*/write", "*/delete", "*/action"):
                raise ValueError(
                    f"{operation!r} allows everything; allowed: operations of single resource "
                    "types, and '*/read' for auditors; name what the duty needs"
                )


def role_id(title: str, scope: str) -> str:
    """The id of a role of our own.

    Ids and names are unique in a tenant, which has many subscriptions, each with a stack of that
    name: https://learn.microsoft.com/azure/role-based-access-control/custom-roles; Azure answers
    ``RoleDefinitionWithSameNameExists`` to the second.
    """
    return str(uuid.uuid5(_NAMESPACE, f"{_subscription(scope).lower()}/{title}"))


def define_role(
    name: str,
    placed: Placed,
    permissions: Permissions,
    scope: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> azure_native.authorization.RoleDefinition:
    """Define a role that can be assigned inside ``scope`` only.

    Args:
        name: in the program; with tenant, stack and some digits the role's name in Entra.
        placed: the component's place and owner.
        permissions: what it allows.
        scope: id of a resource group or subscription.
        opts: options of the component's resources.
    """
    limit = _ROLE_NAME_LIMIT - len("-") - _OF_SUBSCRIPTION
    title = physical_name(placed.tenant, pulumi.get_stack(), name, limit=limit)
    own = pulumi.Output.from_input(scope).apply(lambda scope: role_id(title, scope))
    return azure_native.authorization.RoleDefinition(
        name,
        role_definition_id=own,
        role_name=own.apply(lambda own: f"{title}-{own[:_OF_SUBSCRIPTION]}"),
        role_type="CustomRole",
        description=permissions.description,
        scope=scope,
        assignable_scopes=[scope],
        permissions=[
            azure_native.authorization.PermissionArgs(
                actions=list(permissions.actions),
                data_actions=list(permissions.data_actions),
                not_actions=[],
                not_data_actions=[],
            )
        ],
        # Names of roles are unique in a tenant: a new one can't stand beside the old.
        opts=pulumi.ResourceOptions.merge(
            opts, pulumi.ResourceOptions(delete_before_replace=True)
        ),
    )


# What each duty may do in Azure, operation by operation.
#
# https://learn.microsoft.com/azure/role-based-access-control/resource-provider-operations

_BLOBS = "Microsoft.Storage/storageAccounts/blobServices"
REGISTRY_TYPE = "Microsoft.ContainerRegistry/registries"
_KEYS = "Microsoft.KeyVault/vaults/keys"

#: Manage keys, and never use one: no encrypt, decrypt, wrap, unwrap, sign, verify, release; no
#: backup, which would carry keys away; no purge, which would end what they encrypt.
KEY_ADMINISTRATOR = Permissions(
    "Manages keys and can't use them.",
    actions=("Microsoft.KeyVault/vaults/read",),
    data_actions=(
        f"{_KEYS}/read",
        f"{_KEYS}/create/action",
        f"{_KEYS}/update/action",
        f"{_KEYS}/rotate/action",
        f"{_KEYS}/delete",
        f"{_KEYS}/recover/action",
        "Microsoft.KeyVault/vaults/keyrotationpolicies/read",
        "Microsoft.KeyVault/vaults/keyrotationpolicies/write",
    ),
)

#: For Azure NetApp Files, which encrypts with the key itself:
#: https://learn.microsoft.com/azure/azure-netapp-files/configure-customer-managed-keys
KEY_ENCRYPTER = Permissions(
    "Encrypts and decrypts with keys.",
    data_actions=(f"{_KEYS}/read", f"{_KEYS}/encrypt/action", f"{_KEYS}/decrypt/action"),
)

#: Reads data and hands in models and checkpoints; older versions stay, so that what is overwritten
#: can be had back. Who pushes images is another: Azure's registry has no narrower grant than the
#: registry itself.
TRAINER = Permissions(
    "Reads and writes objects; pulls images.",
    actions=(f"{_BLOBS}/containers/read", f"{REGISTRY_TYPE}/read", f"{REGISTRY_TYPE}/pull/read"),
    data_actions=(
        f"{_BLOBS}/containers/blobs/read",
        f"{_BLOBS}/containers/blobs/write",
        f"{_BLOBS}/containers/blobs/add/action",
    ),
)

DEPLOYER = Permissions(
    "Reads models; pulls and pushes images.",
    actions=(
        f"{_BLOBS}/containers/read",
        f"{REGISTRY_TYPE}/read",
        f"{REGISTRY_TYPE}/pull/read",
        f"{REGISTRY_TYPE}/push/write",
    ),
    data_actions=(f"{_BLOBS}/containers/blobs/read",),
)

#: Sees every setting, and no data: what reads data or shows a secret is another kind of operation.
AUDITOR = Permissions(
    "Sees all settings and logs; reads no data.",
    actions=(
        "*/read",
        "Microsoft.OperationalInsights/workspaces/search/action",
        "Microsoft.OperationalInsights/workspaces/analytics/query/action",
        "Microsoft.PolicyInsights/policyStates/queryResults/action",
    ),
)

#: What stacks are made of. A stack's provisioner makes and changes it, and deletes what holds
#: nothing. Role definitions, locks, Defender's plans and modules are for who sets up the
#: subscription.
_MANAGED = (
    "Microsoft.Network/virtualNetworks",
    "Microsoft.Network/virtualNetworks/subnets",
    "Microsoft.Network/networkSecurityGroups",
    "Microsoft.Network/networkSecurityGroups/securityRules",
    "Microsoft.Network/routeTables",
    "Microsoft.Network/privateEndpoints",
    "Microsoft.Network/privateEndpoints/privateDnsZoneGroups",
    "Microsoft.Network/privateDnsZones",
    "Microsoft.Network/privateDnsZones/virtualNetworkLinks",
    "Microsoft.Network/privateDnsZones/A",
    "Microsoft.Network/loadBalancers",
    "Microsoft.Network/azureFirewalls",
    "Microsoft.Network/firewallPolicies",
    "Microsoft.Network/firewallPolicies/ruleCollectionGroups",
    "Microsoft.Network/networkWatchers/flowLogs",
    "Microsoft.ContainerService/managedClusters",
    "Microsoft.ContainerService/managedClusters/agentPools",
    "Microsoft.ContainerService/managedClusters/maintenanceConfigurations",
    "Microsoft.ContainerRegistry/registries/cacheRules",
    "Microsoft.Compute/virtualMachineScaleSets",
    "Microsoft.Compute/proximityPlacementGroups",
    "Microsoft.App/managedEnvironments",
    "Microsoft.App/containerApps",
    "Microsoft.ManagedIdentity/userAssignedIdentities",
    "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials",
    "Microsoft.Insights/privateLinkScopes",
    "Microsoft.Insights/privateLinkScopes/scopedResources",
    "Microsoft.Insights/autoscaleSettings",
    "Microsoft.Consumption/budgets",
)
#: What holds data, keys or evidence: made and changed, never deleted.
_HOLDING = (
    # Who may delete a group deletes all that is in it, whatever else he may not delete:
    # https://learn.microsoft.com/azure/azure-resource-manager/management/delete-resource-group
    "Microsoft.Resources/subscriptions/resourceGroups",
    "Microsoft.Storage/storageAccounts",
    "Microsoft.Storage/storageAccounts/blobServices",
    "Microsoft.Storage/storageAccounts/blobServices/containers",
    "Microsoft.Storage/storageAccounts/fileServices",
    "Microsoft.Storage/storageAccounts/fileServices/shares",
    "Microsoft.Storage/storageAccounts/managementPolicies",
    "Microsoft.StorageCache/amlFilesystems",
    "Microsoft.NetApp/netAppAccounts",
    "Microsoft.NetApp/netAppAccounts/capacityPools",
    "Microsoft.NetApp/netAppAccounts/capacityPools/volumes",
    "Microsoft.ContainerRegistry/registries",
    "Microsoft.KeyVault/vaults",
    "Microsoft.KeyVault/vaults/keys",
    "Microsoft.Compute/diskEncryptionSets",
    "Microsoft.OperationalInsights/workspaces",
    "Microsoft.Insights/diagnosticSettings",
    # The one public address, of the firewall: it is known to others, who let it in.
    "Microsoft.Network/publicIPAddresses",
)
_STEPS = (
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.Network/virtualNetworks/join/action",
    "Microsoft.Network/networkSecurityGroups/join/action",
    "Microsoft.Network/routeTables/join/action",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/privateDnsZones/join/action",
    "Microsoft.Network/loadBalancers/backendAddressPools/join/action",
    "Microsoft.Network/firewallPolicies/join/action",
    "Microsoft.App/managedEnvironments/join/action",
    "Microsoft.Compute/capacityReservationGroups/read",
    "Microsoft.Compute/capacityReservationGroups/deploy/action",
    # Tells the authority of the API server; no credentials, where local accounts are off.
    "Microsoft.ContainerService/managedClusters/listClusterUserCredential/action",
    # Asked for by diagnostic settings that write to a workspace, which itself takes no keys.
    "Microsoft.OperationalInsights/workspaces/sharedKeys/action",
    "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
    "Microsoft.Storage/storageAccounts/privateEndpointConnectionsApproval/action",
    "Microsoft.KeyVault/vaults/PrivateEndpointConnectionsApproval/action",
    "Microsoft.KeyVault/vaults/deploy/action",
    "Microsoft.ContainerRegistry/registries/privateEndpointConnectionsApproval/action",
    "Microsoft.Insights/privateLinkScopes/privateEndpointConnectionsApproval/action",
    "Microsoft.Authorization/roleDefinitions/read",
)

#: Makes infrastructure and sees no data. Grants what components grant (`GRANTS_ONLY`).
PROVISIONER = Permissions(
    "Makes and changes infrastructure; reads no data.",
    actions=tuple(
        dict.fromkeys(
            (
                *(f"{each}/{verb}" for each in _MANAGED for verb in ("read", "write", "delete")),
                *(f"{each}/{verb}" for each in _HOLDING for verb in ("read", "write")),
                *_STEPS,
                "Microsoft.Authorization/roleAssignments/read",
                "Microsoft.Authorization/roleAssignments/write",
                "Microsoft.Authorization/roleAssignments/delete",
            )
        )
    ),
)

#: Roles that components give to groups of people; the others of `ROLES` are for services.
_OF_PEOPLE = (
    "Azure Kubernetes Service Cluster User Role",
    "Azure Kubernetes Service RBAC Reader",
)
_OF_SERVICES = tuple(sorted(set(ROLES) - set(_OF_PEOPLE)))


def _only(verb: str, source: str) -> str:
    attribute = f"@{source}[Microsoft.Authorization/roleAssignments"

    def given(kind: str, roles: tuple[str, ...]) -> str:
        ids = ", ".join(ROLES[role] for role in roles)
        return (
            f"({attribute}:PrincipalType] ForAnyOfAnyValues:StringEqualsIgnoreCase {{'{kind}'}} "
            f"AND {attribute}:RoleDefinitionId] ForAnyOfAnyValues:GuidEquals {{{ids}}})"
        )

    return (
        f"((!(ActionMatches{{'Microsoft.Authorization/roleAssignments/{verb}'}})) OR "
        f"{given('ServicePrincipal', _OF_SERVICES)} OR {given('Group', _OF_PEOPLE)})"
    )


#: Condition of the provisioner's own assignment: it grants what components grant and nothing else,
#: and to groups no more than to reach a cluster and read in it:
#: https://learn.microsoft.com/azure/role-based-access-control/delegate-role-assignments-examples
GRANTS_ONLY = f"{_only('write', 'Request')} AND {_only('delete', 'Resource')}"
