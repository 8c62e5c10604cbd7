"""Storage accounts, file systems and a registry."""

from __future__ import annotations

from tests.sandbox.azure.samples import Samples


def storage(samples: Samples) -> None:
    add, group = samples.add, {"resourceGroupName": "rg"}
    add(
        "account",
        "storage:StorageAccount",
        **group,
        accountName="datasets1",
        kind="StorageV2",
        sku={"name": "Standard_ZRS"},
        minimumTlsVersion="TLS1_2",
        allowSharedKeyAccess=False,
        identity={"type": "UserAssigned", "userAssignedIdentities": [samples.id("identity")]},
        encryption={
            "keySource": "Microsoft.Keyvault",
            "requireInfrastructureEncryption": True,
            "keyVaultProperties": {
                "keyName": "disks",
                "keyVaultUri": samples.out("vault", "properties", "vaultUri"),
            },
            "encryptionIdentity": {"encryptionUserAssignedIdentity": samples.id("identity")},
        },
    )
    of = {**group, "accountName": "datasets1"}
    add("container", "storage:BlobContainer", **of, containerName="audit", publicAccess="None")
    add(
        "blobs",
        "storage:BlobServiceProperties",
        **of,
        blobServicesName="default",
        isVersioningEnabled=True,
        deleteRetentionPolicy={"enabled": True, "days": 30},
    )
    add("fileservice", "storage:FileServiceProperties", **of, fileServicesName="default")
    add(
        "immutable",
        "storage:BlobContainerImmutabilityPolicy",
        **of,
        containerName="audit",
        immutabilityPolicyName="default",
        immutabilityPeriodSinceCreationInDays=365,
    )
    add(
        "lifecycle",
        "storage:ManagementPolicy",
        **of,
        managementPolicyName="default",
        policy={
            "rules": [
                {
                    "name": "old",
                    "type": "Lifecycle",
                    "definition": {
                        "filters": {"blobTypes": ["blockBlob"]},
                        "actions": {
                            "version": {"delete": {"daysAfterCreationGreaterThan": 90}},
                        },
                    },
                }
            ]
        },
    )
    add(
        "scope",
        "storage:EncryptionScope",
        **of,
        encryptionScopeName="own",
        source="Microsoft.KeyVault",
        keyVaultProperties={"keyUri": samples.out("key", "keyUri")},
    )
    add(
        "fileaccount",
        "storage:StorageAccount",
        **group,
        accountName="homes1",
        kind="FileStorage",
        sku={"name": "Premium_LRS"},
    )
    add(
        "share",
        "storage:FileShare",
        **group,
        accountName="homes1",
        shareName="homes",
        shareQuota=100,
        enabledProtocols="NFS",
        rootSquash="RootSquash",
    )
    add("netapp-account", "netapp:Account", **group, accountName="anf")
    add(
        "pool",
        "netapp:CapacityPool",
        **group,
        accountName="anf",
        poolName="pool",
        serviceLevel="Premium",
        size=4 * 1024**4,
    )
    add(
        "volume",
        "netapp:CapacityPoolVolume",
        **group,
        accountName="anf",
        poolName="pool",
        volumeName="scratch",
        creationToken="scratch",
        usageThreshold=1024**4,
        subnetId=samples.id("netapp"),
        protocolTypes=["NFSv4.1"],
        serviceLevel="Premium",
    )
    add(
        "lustre-fs",
        "storagecache:AmlFilesystem",
        **group,
        amlFilesystemName="lustre",
        sku={"name": "AMLFS-Durable-Premium-250"},
        storageCapacityTiB=8,
        zones=["1"],
        filesystemSubnet=samples.id("lustre"),
        maintenanceWindow={"dayOfWeek": "Saturday", "timeOfDayUTC": "22:00"},
    )


def registry(samples: Samples) -> None:
    add, group = samples.add, {"resourceGroupName": "rg"}
    add(
        "registry",
        "containerregistry:Registry",
        **group,
        registryName="images1",
        sku={"name": "Premium"},
        publicNetworkAccess="Disabled",
        policies={"exportPolicy": {"status": "disabled"}},
        identity={"type": "UserAssigned", "userAssignedIdentities": {samples.id("identity"): {}}},
        encryption={
            "status": "enabled",
            "keyVaultProperties": {
                "identity": samples.out("identity", "clientId"),
                "keyIdentifier": samples.out("key", "keyUri"),
            },
        },
    )
    of = {**group, "registryName": "images1"}
    add(
        "replica",
        "containerregistry:Replication",
        **of,
        replicationName="uaecentral",
        location="uaecentral",
    )
    add("credentials", "containerregistry:CredentialSet", **of, credentialSetName="docker")
    add(
        "cache",
        "containerregistry:CacheRule",
        **of,
        cacheRuleName="busybox",
        sourceRepository="docker.io/library/busybox",
        targetRepository="mirror/busybox",
        credentialSetResourceId=samples.id("credentials"),
    )
    add(
        "map",
        "containerregistry:ScopeMap",
        **of,
        scopeMapName="readers",
        actions=["repositories/models/content/read"],
    )
    add(
        "token",
        "containerregistry:Token",
        **of,
        tokenName="reader",
        scopeMapId=samples.id("map"),
    )
