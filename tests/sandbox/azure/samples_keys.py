"""Vaults, keys and identities, and who may do what."""

from __future__ import annotations

from tests.sandbox.azure.samples import GUID, PURGEABLE, READER, SCOPE, Samples


def keys(samples: Samples) -> None:
    add, group = samples.add, {"resourceGroupName": "rg"}
    add(
        "vault",
        "keyvault:Vault",
        **group,
        vaultName="vault-1",
        properties={
            "tenantId": GUID,
            "sku": {"family": "A", "name": "premium"},
            **PURGEABLE,
        },
    )
    add(
        "key",
        "keyvault:Key",
        **group,
        vaultName="vault-1",
        keyName="disks",
        properties={"kty": "RSA-HSM", "keySize": 4096},
    )
    add(
        "secret",
        "keyvault:Secret",
        **group,
        vaultName="vault-1",
        secretName="s",
        properties={"value": "x"},
    )
    add(
        "hsm",
        "keyvault:ManagedHsm",
        **group,
        name="hsm-1",
        properties={"tenantId": GUID, "initialAdminObjectIds": [GUID]},
        sku={"family": "B", "name": "Standard_B1"},
    )
    add(
        "vault-connection",
        "keyvault:PrivateEndpointConnection",
        **group,
        vaultName="vault-1",
        privateEndpointConnectionName="c",
    )
    add(
        "hsm-connection",
        "keyvault:MHSMPrivateEndpointConnection",
        **group,
        name="hsm-1",
        privateEndpointConnectionName="c",
    )
    add(
        "hsm-key",
        "resources:Resource",
        **group,
        resourceProviderNamespace="Microsoft.KeyVault",
        parentResourcePath="managedHSMs/hsm-1",
        resourceType="keys",
        resourceName="disks",
        apiVersion="2024-11-01",
        properties={"kty": "RSA-HSM"},
    )
    add(
        "endpoint",
        "network:PrivateEndpoint",
        **group,
        privateEndpointName="vault",
        subnet={"id": samples.id("links")},
        privateLinkServiceConnections=[
            {
                "name": "vault",
                "privateLinkServiceId": samples.id("vault"),
                "groupIds": ["vault"],
            }
        ],
    )
    add(
        "zones",
        "network:PrivateDnsZoneGroup",
        **group,
        privateEndpointName="vault",
        privateDnsZoneGroupName="default",
        privateDnsZoneConfigs=[{"name": "vault", "privateDnsZoneId": samples.id("zone")}],
    )
    add("identity", "managedidentity:UserAssignedIdentity", **group, resourceName="identity")
    add(
        "federated",
        "managedidentity:FederatedIdentityCredential",
        **group,
        resourceName="identity",
        federatedIdentityCredentialResourceName="trainer",
        issuer="https://uaenorth.oic.prod-aks.azure.com/x/y/",
        subject="system:serviceaccount:training:trainer",
        audiences=["api://AzureADTokenExchange"],
    )
    add(
        "role",
        "authorization:RoleDefinition",
        scope=SCOPE,
        roleName="trainer",
        assignableScopes=[SCOPE],
        permissions=[{"actions": ["Microsoft.Storage/storageAccounts/read"]}],
    )
    add(
        "assignment",
        "authorization:RoleAssignment",
        scope=samples.id("vault"),
        principalId=samples.out("identity", "principalId"),
        principalType="ServicePrincipal",
        roleDefinitionId=READER,
    )
    add(
        "eligible",
        "authorization:PimRoleEligibilitySchedule",
        scope=samples.id("rg"),
        principalId=GUID,
        roleDefinitionId=READER,
    )
    add(
        "governed",
        "authorization:PolicyAssignment",
        scope=samples.id("rg"),
        policyAssignmentName="regions",
        policyDefinitionId=f"/providers/Microsoft.Authorization/policyDefinitions/{GUID}",
    )
    add(
        "policydef",
        "authorization:PolicyDefinition",
        policyDefinitionName="regions",
        policyRule={"if": {}, "then": {"effect": "deny"}},
    )


def locks(samples: Samples) -> None:
    add = samples.add
    level = {"level": "CanNotDelete"}
    add(
        "lock",
        "authorization:ManagementLockByScope",
        scope=samples.id("vault"),
        lockName="k",
        **level,
    )
    add(
        "lock-group",
        "authorization:ManagementLockAtResourceGroupLevel",
        resourceGroupName="rg",
        lockName="g",
        **level,
    )
    add("lock-all", "authorization:ManagementLockAtSubscriptionLevel", lockName="s", **level)
    add(
        "lock-one",
        "authorization:ManagementLockAtResourceLevel",
        resourceGroupName="rg",
        resourceProviderNamespace="Microsoft.KeyVault",
        parentResourcePath="",
        apiVersion="2024-11-01",
        resourceType="vaults",
        resourceName="vault-1",
        lockName="r",
        **level,
    )
