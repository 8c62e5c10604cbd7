"""Storage and a vault in plain azure-native; `mistakes: true` makes it as people often do."""

import pulumi
import pulumi_azure_native as azure

mistakes = pulumi.Config().get_bool("mistakes") or False
tags = {
    "falaj-owner": "data@example.ae",
    "falaj-tenant": "shop",
    "falaj-data-class": "confidential",
    "falaj-cost-center": "data",
    "falaj-environment": "production",
}
protected = pulumi.ResourceOptions(protect=True)
group = azure.resources.ResourceGroup("shop", location="uaenorth", tags=tags)
common = {"resource_group_name": group.name, "location": "UAE North", "tags": tags}
identity = azure.managedidentity.UserAssignedIdentity("keys", **common)
vault = azure.keyvault.Vault(
    "keys",
    **common,
    properties={
        "tenant_id": azure.authorization.get_client_config_output().tenant_id,
        "sku": {"family": "A", "name": "premium"},
        "enable_rbac_authorization": True,
        "enable_soft_delete": True,
        "soft_delete_retention_in_days": 90,
        "enable_purge_protection": True,
        "public_network_access": "Disabled",
        "network_acls": {"default_action": "Deny", "bypass": "AzureServices"},
    },
    opts=protected,
)
key = azure.keyvault.Key(
    "data",
    resource_group_name=group.name,
    vault_name=vault.name,
    properties={
        "kty": "RSA-HSM",
        "key_size": 3072,
        "rotation_policy": {
            "attributes": {"expiry_time": "P1Y"},
            "lifetime_actions": [
                {"action": {"type": "rotate"}, "trigger": {"time_before_expiry": "P30D"}}
            ],
        },
    },
    tags=tags,
    opts=protected,
)
encryption = {
    "key_source": "Microsoft.Keyvault",
    "encryption_identity": {"encryption_user_assigned_identity": identity.id},
    "key_vault_properties": {
        "key_name": key.name,
        "key_vault_uri": vault.properties.vault_uri,
    },
    "require_infrastructure_encryption": True,
    "services": {
        service: {"enabled": True, "key_type": "Account"}
        for service in ("blob", "file", "queue", "table")
    },
}
account = azure.storage.StorageAccount(
    "data",
    **common,
    kind="StorageV2",
    sku={"name": "Standard_RAGRS" if mistakes else "Standard_ZRS"},
    identity={"type": "UserAssigned", "user_assigned_identities": [identity.id]},
    encryption=None if mistakes else encryption,
    minimum_tls_version="TLS1_0" if mistakes else "TLS1_2",
    enable_https_traffic_only=True,
    allow_blob_public_access=False,
    allow_shared_key_access=False,
    allow_cross_tenant_replication=False,
    allowed_copy_scope="AAD",
    public_network_access="Enabled" if mistakes else "Disabled",
    network_rule_set={"default_action": "Deny", "bypass": "AzureServices"},
    opts=protected,
)
azure.storage.BlobServiceProperties(
    "data",
    resource_group_name=group.name,
    account_name=account.name,
    blob_services_name="default",
    is_versioning_enabled=True,
    delete_retention_policy={"enabled": True, "days": 30},
    container_delete_retention_policy={"enabled": True, "days": 30},
)
azure.monitor.DiagnosticSetting(
    "keys",
    resource_uri=vault.id,
    storage_account_id=account.id,
    logs=[{"category": "AuditEvent", "enabled": True}],
)
azure.network.NetworkSecurityGroup(
    "web",
    **common,
    security_rules=[
        {
            "name": "clients",
            "priority": 200,
            "direction": "Inbound",
            "access": "Allow",
            "protocol": "Tcp",
            "source_port_range": "*",
            "source_address_prefix": "Internet" if mistakes else "10.30.0.0/16",
            "destination_address_prefix": "*",
            "destination_port_range": "443",
        }
    ],
)
