"""What each duty may do in Azure, operation by operation.

https://learn.microsoft.com/azure/role-based-access-control/resource-provider-operations
"""

from __future__ import annotations

from falaj.components.azure._custom_roles import Permissions
from falaj.components.azure._roles import ROLES

_BLOBS = "Microsoft.Storage/storageAccounts/blobServices"
_REGISTRY = "Microsoft.ContainerRegistry/registries"
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
    actions=(f"{_BLOBS}/containers/read", f"{_REGISTRY}/read", f"{_REGISTRY}/pull/read"),
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
        f"{_REGISTRY}/read",
        f"{_REGISTRY}/pull/read",
        f"{_REGISTRY}/push/write",
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
