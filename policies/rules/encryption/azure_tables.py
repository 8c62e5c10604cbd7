"""Azure: what each storing type says about encryption at rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from falaj.policies.model import ABSENT, Context, Resource, get, is_true, is_unknown, text
from falaj.policies.model.values import Unknown
from falaj.policies.reading.azure_children import children, names
from falaj.policies.reading.types import azure
from falaj.policies.rules.encryption.stores import (
    Part,
    Reader,
    Readers,
    State,
    Stores,
    merged,
    parts_of,
    read_key,
    readers,
)
from falaj.wire.documents import is_mapping

# Azure's types that keep data and take a customer's key, with where the key is named.
#
# Paths are the inputs of azure-native 3.29. Azure encrypts all that it keeps by default, with a
# key of Microsoft's: https://learn.microsoft.com/azure/security/fundamentals/encryption-atrest.
# What is asked here is whose key it is.

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


# Azure's types whose key another resource names: SQL servers, workspaces of logs.

_LINKS: Final = azure("operationalinsights:LinkedService")
_CLUSTERS: Final = azure("operationalinsights:Cluster")


def _server(protector: str, parent: str) -> Reader:
    """A server of Azure SQL: its own `keyId`, else what its encryption protector says."""

    def read(resource: Resource, context: Context) -> Iterator[Part]:
        state, why = read_key(resource, "keyId", resource.get("keyId"), context, KEYS)
        if state != "absent":
            yield Part(state, "keyId", "keyId", why, text(resource.get("keyId")), surely=True)
            return
        if context.stack is None:
            why = "keyId isn't given; a protector with a customer's key may be a resource apart"
            yield Part("unknown", "keyId", "keyId", why, surely=True, given=False)
            return
        for each in children(context, resource, frozenset({protector}), parent):
            kind = get(each.properties, "serverKeyType")
            if is_unknown(kind):
                why = f"serverKeyType of {each.name} can't be seen"
                yield Part("unknown", "keyId", "keyId", why, surely=True)
                return
            if text(kind).lower() == "azurekeyvault":
                yield Part("customer key", "keyId", "keyId", f"{each.name} names a key")
                return
        why = (
            "neither keyId nor an encryption protector with a key is given, and by default "
            "the key is the service's own"
        )
        yield Part("service key", "keyId", "keyId", why, given=False)

    return read


SERVERS: Final[dict[str, tuple[Reader, ...]]] = {
    "azure-native:sql:Server": (
        _server("azure-native:sql:EncryptionProtector", "serverName"),
    ),
    "azure-native:sql:ManagedInstance": (
        _server(
            "azure-native:sql:ManagedInstanceEncryptionProtector", "managedInstanceName"
        ),
    ),
}  # fmt: skip


def _workspace(resource: Resource, context: Context) -> Iterator[Part]:
    """A workspace of logs has a customer's key only in a dedicated cluster."""
    path = "features.clusterResourceId"
    state, why = read_key(resource, path, resource.get(path), context, _CLUSTERS)
    if state != "absent":
        yield Part(state, path, path, why, surely=True)
    elif context.stack is None:
        why = f"{path} isn't given; a link to a cluster may be a resource apart"
        yield Part("unknown", path, path, why, surely=True, given=False)
    elif links := [
        each
        for each in children(context, resource, _LINKS, "workspaceName")
        if get(each.properties, "writeAccessResourceId") is not ABSENT
    ]:
        yield Part("customer key", path, path, f"{links[0].name} links it to a cluster")
    else:
        why = f"neither {path} nor a link to a cluster is given, and the key is the service's own"
        yield Part("service key", path, path, why, given=False)


def _component(resource: Resource, context: Context) -> Iterator[Part]:
    """Application Insights keeps its data in a workspace; where it names none, in its own store,
    under a key of the service."""
    if resource.get("workspaceResourceId") is ABSENT:
        why = "workspaceResourceId isn't given, and data outside of a workspace has no own key"
        yield Part("service key", "workspaceResourceId", "workspaceResourceId", why, given=False)


WORKSPACES: Final[dict[str, tuple[Reader, ...]]] = {
    **dict.fromkeys(azure("operationalinsights:Workspace"), (_workspace,)),
    **dict.fromkeys(azure("applicationinsights:Component"), (_component,)),
}


# Azure's disks: whose key encrypts those of machines, scale sets, images, snapshots and
# clusters.
#
# A disk takes a customer's key through a disk encryption set, or through Azure Disk Encryption
# with a key of a vault. Without either the key is Microsoft's own
# (https://learn.microsoft.com/azure/virtual-machines/disk-encryption).

#: Words for a disk's encryption.
_TYPES: Final[dict[str, State]] = {
    **modes_of("EncryptionAtRestWithCustomerKey", "EncryptionAtRestWithPlatformKey"),
    "encryptionatrestwithplatformandcustomerkeys": "customer key",
}
#: Of a disk in a machine's profile: its own set, that of a confidential machine, and the key of
#: Azure Disk Encryption.
_OF_MACHINES: Final = (
    "managedDisk.diskEncryptionSet.id",
    "managedDisk.securityProfile.diskEncryptionSet.id",
    "encryptionSettings.keyEncryptionKey.keyUrl",
    "encryptionSettings.diskEncryptionKey.secretUrl",
)
#: Types with a machine's storage profile, and where it is.
PROFILES: Final = {
    token: path
    for names, path in (
        (("compute:VirtualMachine", "compute:VirtualMachineScaleSetVM"), "storageProfile"),
        (("compute:VirtualMachineScaleSet",), "virtualMachineProfile.storageProfile"),
        (("azurefleet:Fleet",), "computeProfile.baseVirtualMachineProfile.storageProfile"),
        (
            ("computebulkactions:BulkAction",),
            "properties.computeProfile.virtualMachineProfile.storageProfile",
        ),
    )
    for token in azure(*names)
}

DISKS: Final = (
    *keyed(
        "compute:Disk",
        "encryption.diskEncryptionSetId", "securityProfile.secureVMDiskEncryptionSetId",
        "encryptionSettingsCollection.encryptionSettings.keyEncryptionKey.keyUrl",
        "encryptionSettingsCollection.encryptionSettings.diskEncryptionKey.secretUrl",
        mode="encryption.type", modes=_TYPES,
    ),
    # A snapshot has its disk's key: https://learn.microsoft.com/azure/virtual-machines/
    # disk-encryption#restrictions
    *keyed(
        "compute:Snapshot",
        "encryption.diskEncryptionSetId", "securityProfile.secureVMDiskEncryptionSetId",
        "encryptionSettingsCollection.encryptionSettings.keyEncryptionKey.keyUrl",
        "encryptionSettingsCollection.encryptionSettings.diskEncryptionKey.secretUrl",
        mode="encryption.type", modes=_TYPES, copies=("creationData.sourceResourceId",),
    ),
    *keyed(
        "compute:Image", "diskEncryptionSet.id", parts="storageProfile.osDisk",
        copies=("managedDisk.id", "snapshot.id"),
    ),
    *keyed(
        "compute:Image", "diskEncryptionSet.id", parts="storageProfile.dataDisks",
        copies=("managedDisk.id", "snapshot.id"),
    ),
    *keyed(
        "compute:Image", "storageProfile.osDisk.diskEncryptionSet.id",
        when="sourceVirtualMachine.id", copies=("sourceVirtualMachine.id",),
    ),
    *keyed(
        "compute:GalleryImageVersion",
        "encryption.osDiskImage.diskEncryptionSetId",
        "encryption.osDiskImage.securityProfile.secureVMDiskEncryptionSetId",
        parts="publishingProfile.targetRegions",
    ),
    *keyed(
        "compute:GalleryImageVersion", "diskEncryptionSetId",
        parts="publishingProfile.targetRegions.encryption.dataDiskImages",
    ),
    *(
        entry
        for name in sorted(PROFILES)
        for disks in ("osDisk", "dataDisks")
        for entry in keyed(
            name.removeprefix("azure-native:"), *_OF_MACHINES, parts=f"{PROFILES[name]}.{disks}",
            copies=("managedDisk.id", "vhd.uri"),
        )
    ),
    *keyed("containerservice:ManagedCluster", "diskEncryptionSetID"),
    *keyed("redhatopenshift:OpenShiftCluster", "masterProfile.diskEncryptionSetId"),
    *keyed(
        "redhatopenshift:OpenShiftCluster", "diskEncryptionSetId", parts="workerProfiles"
    ),
)  # fmt: skip


def _not_given(holder: str, block: str, key: str) -> Reader:
    """A reader for what Azure makes by itself: data without a block where its holder is given."""

    def read(resource: Resource, context: Context) -> Iterator[Part]:
        held = resource.get(holder)
        if is_mapping(held) and not held.get(block):
            path = f"{holder}.{block}.{key}"
            why = f"{path} isn't given, and by default the key is the service's own"
            yield Part("service key", path, path, why, given=False)

    return read


def _settled(value: Any, path: Sequence[str]) -> Any:
    """Properties without what isn't turned on at a path: a block counts where its `enabled` is
    true, and nobody knows where that can't be seen."""
    if not is_mapping(value) or path[0] not in value:
        return value
    held: Any = value[path[0]]
    if len(path) > 1:
        return {**value, path[0]: _settled(held, path[1:])}
    switch = get(held, "enabled")
    if isinstance(switch, Unknown):
        return {**value, path[0]: switch}
    return value if is_true(switch) else {**value, path[0]: None}


def _where_on(entry: Stores) -> Reader:
    """A reader of an entry for which Azure Disk Encryption counts only where it is on."""
    holder = PROFILES.get(entry.type)
    path = f"{holder}.osDisk.encryptionSettings" if holder else "encryptionSettingsCollection"

    def read(resource: Resource, context: Context) -> Iterator[Part]:
        settled = _settled(resource.properties, path.split("."))
        yield from entry.read(replace(resource, properties=settled), context)

    return read


#: Disks and images that are made although nobody describes them: a machine's disk for its
#: system, an image's copy in the gallery's own region.
_UNDESCRIBED: Final[dict[str, tuple[Reader, ...]]] = {
    **{
        token: (_not_given(path, "osDisk", _OF_MACHINES[0]),)
        for token, path in PROFILES.items()
        if not token.endswith("ScaleSetVM")
    },
    "azure-native:compute:GalleryImageVersion": (
        _not_given(
            "publishingProfile", "targetRegions", "encryption.osDiskImage.diskEncryptionSetId"
        ),
    ),
}
READERS: Final = merged(*({each.type: (_where_on(each),)} for each in DISKS), _UNDESCRIBED)


# Azure's types that name no key of their own: no rule judges them, but maps show them.
#
# Some keep data under the service's key alone, for their service takes no customer's. Others keep
# it inside of another resource, and have what that one has.

#: Types whose service takes no customer's key.
SERVICE_KEYED: Final = tuple(
    entry
    for name in (
        "apimanagement:ApiManagementService",
        "app:ManagedEnvironment",
        "communication:CommunicationService",
        "communication:EmailService",
        "dashboard:Grafana",
        "dbformariadb:Server",
        "dbformysql:SingleServer",
        "dbforpostgresql:SingleServer",
        "deviceprovisioningservices:IotDpsResource",
        "devtestlab:Lab",
        "digitaltwins:DigitalTwin",
        "durabletask:Scheduler",
        "eventgrid:Domain",
        "eventgrid:Namespace",
        "eventgrid:PartnerNamespace",
        "eventgrid:Topic",
        "fileshares:FileShare",
        "healthdataaiservices:DeidService",
        "iotcentral:App",
        "iothub:IotHubResource",
        "keyvault:Secret",
        "logic:IntegrationAccount",
        "logic:Workflow",
        "machinelearningservices:Registry",
        "mongocluster:MongoCluster",
        "monitor:AzureMonitorWorkspace",
        "notificationhubs:Namespace",
        "purview:Account",
        "redis:Redis",
        "relay:Namespace",
        "servicefabric:ManagedCluster",
        "storagesync:StorageSyncService",
        "streamanalytics:StreamingJob",
        "timeseriesinsights:Gen2Environment",
        "web:StaticSite",
        "web:WebApp",
    )
    for entry in keyed(name)
)
#: Types inside of another: theirs, the property that names it, and its type.
_INSIDE: Final = (
    (("storage:BlobContainer", "storage:FileShare", "storage:Queue", "storage:Table"),
     "accountName", "storage:StorageAccount"),
    (("sql:Database", "sql:ElasticPool"), "serverName", "sql:Server"),
    (("sql:ManagedDatabase",), "managedInstanceName", "sql:ManagedInstance"),
    (("dbforpostgresql:Database",), "serverName", "dbforpostgresql:Server"),
    (("dbformysql:Database",), "serverName", "dbformysql:Server"),
    (
        (
            "cosmosdb:SqlResourceSqlDatabase", "cosmosdb:SqlResourceSqlContainer",
            "cosmosdb:MongoDBResourceMongoDBDatabase", "cosmosdb:TableResourceTable",
            "cosmosdb:CassandraResourceCassandraKeyspace",
            "cosmosdb:GremlinResourceGremlinDatabase",
        ),
        "accountName", "cosmosdb:DatabaseAccount",
    ),
    (("kusto:ReadWriteDatabase",), "clusterName", "kusto:Cluster"),
    (("redisenterprise:Database",), "clusterName", "redisenterprise:RedisEnterprise"),
    (("servicebus:Queue", "servicebus:Topic"), "namespaceName", "servicebus:Namespace"),
    (("eventhub:EventHub",), "namespaceName", "eventhub:Namespace"),
    (("containerservice:AgentPool",), "resourceName", "containerservice:ManagedCluster"),
    (("netapp:CapacityPool",), "accountName", "netapp:Account"),
    (("elasticsan:Volume",), "volumeGroupName", "elasticsan:VolumeGroup"),
    (("operationalinsights:Table",), "workspaceName", "operationalinsights:Workspace"),
    (("synapse:SqlPool", "synapse:BigDataPool"), "workspaceName", "synapse:Workspace"),
    (("batch:Pool",), "accountName", "batch:BatchAccount"),
)  # fmt: skip


def _inside(path: str, holders: frozenset[str], known: Readers) -> Reader:
    """A reader for what is inside of another resource, which is judged by itself."""

    def read(resource: Resource, context: Context) -> Iterator[Part]:
        own = resource.get("encryptionProtector")
        state, why = read_key(resource, "encryptionProtector", own, context, KEYS)
        if state != "absent":
            yield Part(state, "encryptionProtector", "encryptionProtector", why, text(own), True)
            return
        found = _holders(resource, context, path, holders)
        for each in found:
            for part in parts_of(each, context, known):
                why = f"it is inside of {each.name}: {part.why}"
                yield Part(part.state, path, path, why, part.key, part.surely, elsewhere=True)
        if not found:
            why = f"it is inside of what {path} names, which isn't of this stack"
            yield Part("unknown", path, path, why, surely=True, given=False, elsewhere=True)

    return read


def _holders(
    resource: Resource, context: Context, path: str, holders: frozenset[str]
) -> list[Resource]:
    if context.stack is None:
        return []
    name = text(resource.get(path)).lower()
    named = [
        each for each in context.stack.of_kind(*sorted(holders)) if name and name in names(each)
    ]
    return named or [each for each in context.referred(resource, path) if each.kind in holders]


def contained(known: Readers) -> Readers:
    """Readers of all types that name no key of their own.

    Args:
        known: readers of the types that others are inside of.
    """
    found: dict[str, tuple[Reader, ...]] = readers(SERVICE_KEYED)
    for kinds, path, holder in _INSIDE:
        for kind in azure(*kinds):
            found[kind] = (*found.get(kind, ()), _inside(path, azure(holder), known))
    return found
