"""Azure's types that keep data and take a customer's key, with where the key is named.

Paths are the inputs of azure-native 3.29. Azure encrypts all that it keeps by default, with a key
of Microsoft's: https://learn.microsoft.com/azure/security/fundamentals/encryption-atrest. What is
asked here is whose key it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.reading.types import azure
from falaj.policies.rules.encryption.table import State, Stores

#: Types that are a customer's key in Azure, or stand for one. A key's address is often put
#: together from its vault's address and a name.
KEYS: Final = azure(
    "keyvault:Key",
    "keyvault:Vault",
    "keyvault:ManagedHsm",
    "keyvault:MHSMKey",
    "compute:DiskEncryptionSet",
    "storage:EncryptionScope",
    "sql:ServerKey",
    "sql:ManagedInstanceKey",
)

_OWN: Final[State] = "customer key"
_VAULT: Final[dict[str, State]] = {"microsoft.keyvault": _OWN}
_SWITCH: Final[dict[str, State]] = {"enabled": _OWN, "disabled": "service key"}


def modes_of(own: str, *service: str) -> dict[str, State]:
    """Words of a mode: the one for a customer's key, and those for the service's."""
    return {own.lower(): _OWN, **dict.fromkeys((each.lower() for each in service), "service key")}


def keyed(
    name: str,
    *keys: str,
    mode: str = "",
    modes: dict[str, State] | None = None,
    exact: bool = False,
    vault: str = "keyVaultUri",
    parts: str = "",
    when: str = "",
    only: tuple[str, tuple[str, ...]] = ("", ()),
    copies: tuple[str, ...] = (),
) -> Iterator[Stores]:
    """An entry for each of the type's tokens; a key's name counts beside its `vault` only."""
    holder, _, last = keys[0].rpartition(".") if keys else ("", "", "")
    beside = f"{holder}.{vault}" if last == "keyName" else ""
    for token in sorted(azure(name)):
        yield Stores(
            token, keys or "", mode=mode, modes=modes or {}, exact=exact, beside=beside,
            parts=parts, when=when,
            only=only, copies=copies, by=KEYS,
        )  # fmt: skip


STORAGE: Final = (
    *keyed(
        "storage:StorageAccount", "encryption.keyVaultProperties.keyName",
        mode="encryption.keySource", exact=True,
        modes=modes_of("Microsoft.Keyvault", "Microsoft.Storage"),
    ),
    *keyed(
        "storage:EncryptionScope", "keyVaultProperties.keyUri", mode="source", exact=True,
        modes=modes_of("Microsoft.KeyVault", "Microsoft.Storage"),
    ),
    *keyed(
        "netapp:Account", "encryption.keyVaultProperties.keyName", mode="encryption.keySource",
        exact=True, modes=modes_of("Microsoft.KeyVault", "Microsoft.NetApp"),
    ),
    *keyed(
        "netapp:ElasticAccount", "properties.encryption.keyVaultProperties.keyName",
        mode="properties.encryption.keySource", exact=True,
        modes=modes_of("Microsoft.KeyVault", "Microsoft.NetApp"),
    ),
    *keyed(
        "netapp:CapacityPoolVolume", mode="encryptionKeySource",
        modes=modes_of("Microsoft.KeyVault", "Microsoft.NetApp"),
    ),
    *keyed(
        "netapp:Volume", mode="encryptionKeySource",
        modes=modes_of("Microsoft.KeyVault", "Microsoft.NetApp"),
    ),
    *keyed(
        "netapp:VolumeGroup", parts="volumes", mode="encryptionKeySource",
        modes=modes_of("Microsoft.KeyVault", "Microsoft.NetApp"),
    ),
    *keyed(
        "netapp:CapacityPoolCache", mode="properties.encryptionKeySource",
        modes=modes_of("Microsoft.KeyVault", "Microsoft.NetApp"),
    ),
    *keyed(
        "netapp:ElasticCapacityPool",
        mode="properties.encryption.elasticPoolEncryptionKeySource",
        modes=modes_of("KeyVault", "NetApp"),
    ),
    *keyed(
        "elasticsan:VolumeGroup", "encryptionProperties.keyVaultProperties.keyName",
        mode="encryption", exact=True,
        modes=modes_of(
            "EncryptionAtRestWithCustomerManagedKey", "EncryptionAtRestWithPlatformKey"
        ),
    ),
    *keyed("storagecache:AmlFilesystem", "encryptionSettings.keyEncryptionKey.keyUrl"),
    *keyed("storagecache:Cache", "encryptionSettings.keyEncryptionKey.keyUrl"),
    *keyed(
        "datalakestore:Account", "encryptionConfig.keyVaultMetaInfo.encryptionKeyName",
        mode="encryptionConfig.type", exact=True, modes=modes_of("UserManaged", "ServiceManaged"),
    ),
)  # fmt: skip

DATABASES: Final = (
    *keyed(
        "dbforpostgresql:Server", "dataEncryption.primaryKeyURI", mode="dataEncryption.type",
        exact=True, modes=modes_of("AzureKeyVault", "SystemAssigned", "SystemManaged"),
    ),
    *keyed(
        "dbforpostgresql:ServerGroupCluster", "dataEncryption.primaryKeyUri",
        mode="dataEncryption.type", exact=True,
        modes=modes_of("AzureKeyVault", "SystemAssigned", "SystemManaged"),
    ),
    *keyed(
        "dbformysql:Server", "dataEncryption.primaryKeyURI", mode="dataEncryption.type",
        exact=True, modes=modes_of("AzureKeyVault", "SystemAssigned", "SystemManaged"),
    ),
    *keyed(
        "sql:EncryptionProtector", mode="serverKeyType",
        modes=modes_of("AzureKeyVault", "ServiceManaged"),
    ),
    *keyed(
        "sql:ManagedInstanceEncryptionProtector", mode="serverKeyType",
        modes=modes_of("AzureKeyVault", "ServiceManaged"),
    ),
    *keyed("cosmosdb:DatabaseAccount", "keyVaultKeyUri"),
    *keyed("cosmosdb:CassandraDataCenter", "properties.managedDiskCustomerKeyUri"),
    *keyed("cosmosdb:CassandraDataCenter", "properties.backupStorageCustomerKeyUri"),
    *keyed(
        "redisenterprise:RedisEnterprise",
        "encryption.customerManagedKeyEncryption.keyEncryptionKeyUrl",
    ),
    *keyed("kusto:Cluster", "keyVaultProperties.keyName"),
)  # fmt: skip

MESSAGING: Final = (
    *keyed(
        "servicebus:Namespace", "encryption.keyVaultProperties.keyName",
        mode="encryption.keySource", modes=_VAULT,
    ),
    *keyed(
        "eventhub:Namespace", "encryption.keyVaultProperties.keyName",
        mode="encryption.keySource", modes=_VAULT,
    ),
    *keyed("deviceupdate:Account", "encryption.keyVaultKeyUri"),
)  # fmt: skip

CONTAINERS: Final = (
    *keyed(
        "containerregistry:Registry", "encryption.keyVaultProperties.keyIdentifier",
        mode="encryption.status", modes=_SWITCH, exact=True,
    ),
    *(
        entry
        for name in ("ContainerGroup", "ContainerGroupProfile", "CGProfile")
        for entry in keyed(
            f"containerinstance:{name}", "encryptionProperties.keyName", vault="vaultBaseUrl"
        )
    ),
)  # fmt: skip

CLUSTER_SECRETS: Final = (
    *keyed(
        "containerservice:ManagedCluster", "securityProfile.azureKeyVaultKms.keyId",
        mode="securityProfile.azureKeyVaultKms.enabled", exact=True,
        modes={"true": _OWN, "false": "service key"},
    ),
)  # fmt: skip

#: A workspace without machines of its own has neither disks nor a storage account.
_WITH_MACHINES: Final = ("computeMode", ("", "hybrid"))

ANALYTICS: Final = (
    *keyed("datafactory:Factory", "encryption.keyName", vault="vaultBaseUrl"),
    *keyed("synapse:Workspace", "encryption.cmk.key.keyVaultUrl"),
    *keyed(
        "databricks:Workspace", "encryption.entities.managedServices.keyVaultProperties.keyName"
    ),
    *keyed(
        "databricks:Workspace", "encryption.entities.managedDisk.keyVaultProperties.keyName",
        only=_WITH_MACHINES,
    ),
    *keyed(
        "databricks:Workspace", "parameters.encryption.value.keyName",
        mode="parameters.encryption.value.keySource", exact=True, only=_WITH_MACHINES,
        modes=modes_of("Microsoft.Keyvault", "Default"),
    ),
    *keyed(
        "hdinsight:Cluster", "properties.diskEncryptionProperties.keyName", vault="vaultUri"
    ),
)  # fmt: skip

INTELLIGENCE: Final = (
    *keyed(
        "cognitiveservices:Account", "properties.encryption.keyVaultProperties.keyName",
        mode="properties.encryption.keySource",
        modes=modes_of("Microsoft.KeyVault", "Microsoft.CognitiveServices"),
    ),
    *keyed(
        "cognitiveservices:EncryptionScope", "properties.keyVaultProperties.keyName",
        mode="properties.keySource",
        modes=modes_of("Microsoft.KeyVault", "Microsoft.CognitiveServices"),
    ),
    *keyed(
        "machinelearningservices:Workspace", "encryption.keyVaultProperties.keyIdentifier",
        mode="encryption.status", modes=_SWITCH, exact=True, copies=("hubResourceId",),
    ),
    *keyed("search:Service", mode="encryptionWithCmk.enforcement", modes=_SWITCH),
    *keyed("healthbot:Bot", "properties.keyVaultProperties.keyName"),
    *keyed(
        "botservice:Bot", "properties.cmekKeyVaultUrl", mode="properties.isCmekEnabled",
        modes={"true": _OWN, "false": "service key"},
    ),
    *keyed("healthcareapis:Service", "properties.cosmosDbConfiguration.keyVaultKeyUri"),
    *keyed(
        "healthcareapis:FhirService", "encryption.customerManagedKeyEncryption.keyEncryptionKeyUrl"
    ),
    *keyed(
        "healthcareapis:DicomService",
        "encryption.customerManagedKeyEncryption.keyEncryptionKeyUrl",
    ),
    *keyed(
        "discovery:Bookshelf", "properties.keyVaultProperties.keyName",
        mode="properties.customerManagedKeys", modes=_SWITCH, exact=True,
    ),
    *keyed(
        "discovery:Workspace", "properties.keyVaultProperties.keyName",
        mode="properties.customerManagedKeys", modes=_SWITCH, exact=True,
    ),
    *keyed(
        "discovery:Supercomputer", "properties.diskEncryptionSetId",
        mode="properties.customerManagedKeys", modes=_SWITCH, exact=True,
    ),
    *keyed(
        "onlineexperimentation:OnlineExperimentationWorkspace",
        "properties.encryption.customerManagedKeyEncryption.keyEncryptionKeyUrl",
    ),
    *keyed("manufacturingplatform:ManufacturingDataService", "properties.cmkProfile.keyUri"),
)  # fmt: skip

BACKUPS: Final = (
    *keyed("recoveryservices:Vault", "properties.encryption.keyVaultProperties.keyUri"),
    *keyed(
        "dataprotection:BackupVault",
        "properties.securitySettings.encryptionSettings.keyVaultProperties.keyUri",
        mode="properties.securitySettings.encryptionSettings.state", modes=_SWITCH,
    ),
)  # fmt: skip

LOG_CLUSTERS: Final = (*keyed("operationalinsights:Cluster", "keyVaultProperties.keyName"),)

PLATFORM: Final = (
    *keyed("appconfiguration:ConfigurationStore", "encryption.keyVaultProperties.keyIdentifier"),
    *keyed(
        "automation:AutomationAccount", "encryption.keyVaultProperties.keyName",
        mode="encryption.keySource", exact=True, vault="keyvaultUri",
        modes=modes_of("Microsoft.Keyvault", "Microsoft.Automation"),
    ),
    *keyed(
        "batch:BatchAccount", "encryption.keyVaultProperties.keyIdentifier",
        mode="encryption.keySource", exact=True,
        modes=modes_of("Microsoft.KeyVault", "Microsoft.Batch"),
    ),
    *keyed(
        "maps:Account", "properties.encryption.customerManagedKeyEncryption.keyEncryptionKeyUrl"
    ),
    *keyed(
        "fluidrelay:FluidRelayServer",
        "encryption.customerManagedKeyEncryption.keyEncryptionKeyUrl",
    ),
    *keyed("loadtestservice:LoadTest", "encryption.keyUrl"),
    *keyed(
        "devcenter:DevCenter", "encryption.customerManagedKeyEncryption.keyEncryptionKeyUrl"
    ),
    *keyed(
        "logic:IntegrationServiceEnvironment",
        "properties.encryptionConfiguration.encryptionKeyReference.keyName", vault="keyVault.id",
    ),
    *keyed(
        "avs:PrivateCloud", "encryption.keyVaultProperties.keyName", mode="encryption.status",
        modes=_SWITCH, exact=True, vault="keyVaultUrl",
    ),
)  # fmt: skip
