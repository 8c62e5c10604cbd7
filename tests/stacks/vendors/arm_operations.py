"""Which operation of Azure makes a resource, and how the provider names what it is given.

Properties of the same name are found by `arm_judge.arranged`; only what differs stands here. What
the provider's types are made of is the same specifications as the libraries':
https://github.com/pulumi/pulumi-azure-native.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.stacks.vendors.arm_judge import Operation, arranged, problems

_COMPUTE = "compute.v2024_11_01"
_MONITOR = "monitor.v2021_05_01_preview"
_LINKS = "monitor.v2021_07_01_preview"
_VAULTS = "keyvault.v2024_11_01"


@dataclass(frozen=True)
class Made:
    """How a resource is made."""

    operation: Operation
    kept: tuple[str, ...] = ()
    """Inputs that the provider keeps: the address always has them, or they are never sent."""
    sent: Mapping[str, Any] = field(default_factory=dict)
    """What the provider says itself."""


def _made(module: str, method: str, *kept: str, **sent: Any) -> Made:
    return Made(Operation(module, method), kept, sent)


_CREATE = "create_or_update"
_BEGIN = f"begin_{_CREATE}"

#: By type of resource: the provider's, or Azure's where the provider has none.
OPERATIONS: Final[Mapping[str, Made]] = {
    "azure-native:app:ContainerApp": _made("appcontainers", f"ContainerAppsOperations.{_BEGIN}"),
    "azure-native:app:ManagedEnvironment": _made(
        "appcontainers", f"ManagedEnvironmentsOperations.{_BEGIN}"
    ),
    "azure-native:authorization:ManagementLockByScope": _made(
        "resource.locks", f"ManagementLocksOperations.{_CREATE}_by_scope"
    ),
    "azure-native:authorization:PimRoleEligibilitySchedule": _made(
        "authorization.v2020_10_01",
        "RoleEligibilityScheduleRequestsOperations.create",
        requestType="AdminAssign",
    ),
    "azure-native:authorization:RoleAssignment": _made(
        "authorization.v2022_04_01", "RoleAssignmentsOperations.create"
    ),
    "azure-native:authorization:RoleDefinition": _made(
        "authorization.v2022_05_01_preview", f"RoleDefinitionsOperations.{_CREATE}"
    ),
    "azure-native:compute:DiskEncryptionSet": _made(
        "compute.v2024_03_02", f"DiskEncryptionSetsOperations.{_BEGIN}"
    ),
    "azure-native:compute:ProximityPlacementGroup": _made(
        _COMPUTE, f"ProximityPlacementGroupsOperations.{_CREATE}"
    ),
    "azure-native:compute:VirtualMachineScaleSet": _made(
        _COMPUTE, f"VirtualMachineScaleSetsOperations.{_BEGIN}"
    ),
    "azure-native:consumption:Budget": _made("consumption", f"BudgetsOperations.{_CREATE}"),
    "azure-native:containerregistry:CacheRule": _made(
        "containerregistry.v2024_11_01_preview", "CacheRulesOperations.begin_create"
    ),
    "azure-native:containerregistry:Registry": _made(
        "containerregistry.v2023_01_01_preview", "RegistriesOperations.begin_create"
    ),
    "azure-native:containerservice:AgentPool": _made(
        "containerservice", f"AgentPoolsOperations.{_BEGIN}"
    ),
    "azure-native:containerservice:MaintenanceConfiguration": _made(
        "containerservice", f"MaintenanceConfigurationsOperations.{_CREATE}"
    ),
    "azure-native:containerservice:ManagedCluster": _made(
        "containerservice", f"ManagedClustersOperations.{_BEGIN}"
    ),
    "azure-native:keyvault:Key": _made(_VAULTS, "KeysOperations.create_if_not_exist"),
    "azure-native:keyvault:ManagedHsm": _made(_VAULTS, f"ManagedHsmsOperations.{_BEGIN}"),
    "azure-native:keyvault:Vault": _made(_VAULTS, f"VaultsOperations.{_BEGIN}"),
    "azure-native:managedidentity:FederatedIdentityCredential": _made(
        "msi.v2023_01_31", f"FederatedIdentityCredentialsOperations.{_CREATE}"
    ),
    "azure-native:managedidentity:UserAssignedIdentity": _made(
        "msi.v2023_01_31", f"UserAssignedIdentitiesOperations.{_CREATE}"
    ),
    "azure-native:monitor:AutoscaleSetting": _made(
        _MONITOR, f"AutoscaleSettingsOperations.{_CREATE}"
    ),
    "azure-native:monitor:DiagnosticSetting": _made(
        _MONITOR, f"DiagnosticSettingsOperations.{_CREATE}"
    ),
    "azure-native:monitor:PrivateLinkScope": _made(
        _LINKS, f"PrivateLinkScopesOperations.{_CREATE}"
    ),
    "azure-native:monitor:PrivateLinkScopedResource": _made(
        _LINKS, f"PrivateLinkScopedResourcesOperations.{_BEGIN}"
    ),
    "azure-native:monitor:SubscriptionDiagnosticSetting": _made(
        _MONITOR, f"SubscriptionDiagnosticSettingsOperations.{_CREATE}"
    ),
    "azure-native:netapp:Account": _made("netapp", f"AccountsOperations.{_BEGIN}"),
    "azure-native:netapp:CapacityPool": _made("netapp", f"PoolsOperations.{_BEGIN}"),
    "azure-native:netapp:CapacityPoolVolume": _made("netapp", f"VolumesOperations.{_BEGIN}"),
    "azure-native:network:AzureFirewall": _made("network", f"AzureFirewallsOperations.{_BEGIN}"),
    "azure-native:network:FirewallPolicy": _made(
        "network", f"FirewallPoliciesOperations.{_BEGIN}"
    ),
    "azure-native:network:FirewallPolicyRuleCollectionGroup": _made(
        "network", f"FirewallPolicyRuleCollectionGroupsOperations.{_BEGIN}"
    ),
    "azure-native:network:FlowLog": _made("network", f"FlowLogsOperations.{_BEGIN}"),
    "azure-native:network:LoadBalancer": _made("network", f"LoadBalancersOperations.{_BEGIN}"),
    "azure-native:network:NetworkSecurityGroup": _made(
        "network", f"NetworkSecurityGroupsOperations.{_BEGIN}"
    ),
    "azure-native:network:PrivateDnsZoneGroup": _made(
        "network", f"PrivateDnsZoneGroupsOperations.{_BEGIN}"
    ),
    "azure-native:network:PrivateEndpoint": _made(
        "network", f"PrivateEndpointsOperations.{_BEGIN}"
    ),
    "azure-native:network:PublicIPAddress": _made(
        "network", f"PublicIPAddressesOperations.{_BEGIN}"
    ),
    "azure-native:network:RouteTable": _made("network", f"RouteTablesOperations.{_BEGIN}"),
    "azure-native:network:Subnet": _made("network", f"SubnetsOperations.{_BEGIN}"),
    "azure-native:network:VirtualNetwork": _made("network", f"VirtualNetworksOperations.{_BEGIN}"),
    "azure-native:operationalinsights:Cluster": _made(
        "loganalytics", f"ClustersOperations.{_BEGIN}"
    ),
    "azure-native:operationalinsights:LinkedService": _made(
        "loganalytics", f"LinkedServicesOperations.{_BEGIN}"
    ),
    "azure-native:operationalinsights:Workspace": _made(
        "loganalytics", f"WorkspacesOperations.{_BEGIN}"
    ),
    "azure-native:privatedns:PrivateRecordSet": _made(
        "privatedns", f"RecordSetsOperations.{_CREATE}"
    ),
    "azure-native:privatedns:PrivateZone": _made("privatedns", f"PrivateZonesOperations.{_BEGIN}"),
    "azure-native:privatedns:VirtualNetworkLink": _made(
        "privatedns", f"VirtualNetworkLinksOperations.{_BEGIN}"
    ),
    "azure-native:resources:ResourceGroup": _made(
        "resource.resources", f"ResourceGroupsOperations.{_CREATE}"
    ),
    "azure-native:security:Pricing": _made("security.v2024_01_01", "PricingsOperations.update"),
    "azure-native:storage:BlobContainer": _made("storage", "BlobContainersOperations.create"),
    "azure-native:storage:BlobServiceProperties": _made(
        "storage", "BlobServicesOperations.set_service_properties", "blobServicesName"
    ),
    "azure-native:storage:FileServiceProperties": _made(
        "storage", "FileServicesOperations.set_service_properties", "fileServicesName"
    ),
    "azure-native:storage:FileShare": _made("storage", "FileSharesOperations.create"),
    "azure-native:storage:ManagementPolicy": _made(
        "storage", f"ManagementPoliciesOperations.{_CREATE}"
    ),
    "azure-native:storage:StorageAccount": _made(
        "storage", "StorageAccountsOperations.begin_create"
    ),
    "Microsoft.KeyVault/managedHSMs/keys": _made(
        _VAULTS, "ManagedHsmKeysOperations.create_if_not_exist"
    ),
}


#: Types that components make and nobody judges here, and why.
UNJUDGED: Final[Mapping[str, str]] = {
    "azure-native:security:SecurityContact": (
        "azure-mgmt-security ends at 2020-01-01-preview, which has other properties than the "
        "provider's 2023-12-01-preview"
    ),
    "azure-native:storagecache:AmlFilesystem": (
        "no stack makes one: the catalogue knows of no region in the country that sells it"
    ),
}
#: What the provider's API version has, and the library's hasn't yet.
NEWER: Final[Mapping[str, tuple[str, ...]]] = {
    "azure-native:app:ManagedEnvironment": (
        ".properties.workloadProfiles[0].enableFips is unknown to WorkloadProfile",
    ),
    "azure-native:monitor:PrivateLinkScopedResource": (".kind is unknown to ScopedResource",),
}
_GENERIC = "azure-native:resources:Resource"


@dataclass(frozen=True)
class Request:
    """What makes a resource."""

    operation: Operation
    address: str
    """Empty: a part of it is missing."""
    version: str
    body: Mapping[str, Any]
    said: tuple[str, ...]
    """All that Microsoft's description says against it."""


def kind_of(token: str, inputs: Mapping[str, Any]) -> str:
    """The key in `OPERATIONS`: what a resource of no type of the provider's is of Azure's."""
    if token != _GENERIC:
        return token
    parents = inputs["parentResourcePath"].split("/")[::2]
    return "/".join((inputs["resourceProviderNamespace"], *parents, inputs["resourceType"]))


def request(token: str, inputs: Mapping[str, Any], made_id: str) -> Request:
    """What the provider sends to make a resource, judged.

    Args:
        made_id: id of the resource, whose end is its name where the provider gives it one.

    Raises:
        KeyError: nothing is known of the type.
    """
    made = OPERATIONS[kind_of(token, inputs)]
    operation = made.operation
    if token == _GENERIC:
        inputs = _addressed(operation, inputs)
    given = {name: value for name, value in inputs.items() if name not in made.kept}
    parts: dict[str, str] = {}
    for part in operation.parts:
        low = part.replace("_", "")
        name = next((each for each in given if each.lower() == low), None)
        if name is not None:
            parts[part] = given.pop(name)
        elif part == operation.parts[-1]:
            # What has no name, the provider gives one.
            parts[part] = made_id.rpartition("/")[2]
    # Libraries put the slash before it themselves.
    parts |= {name: parts[name].strip("/") for name in ("scope", "resource_uri") if name in parts}
    missing = [f"{part} is missing" for part in operation.parts if part not in parts]
    address, version, said = ("", "", missing) if missing else operation.request(parts)
    wanted = given.pop("apiVersion", version)
    if wanted != version:
        said.append(f"API version {wanted} isn't {version}")
    body = arranged(operation.takes, given | made.sent)
    newer = NEWER.get(token, ())
    said.extend(each for each in problems(operation.takes, body) if each not in newer)
    return Request(operation, address, version, body, tuple(said))


def _addressed(operation: Operation, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What a resource of no type is given, with what its address consists of by name."""
    of_address = (
        "resourceProviderNamespace",
        "parentResourcePath",
        "resourceType",
        "resourceName",
    )
    names = [*inputs["parentResourcePath"].split("/")[1::2], inputs["resourceName"]]
    parts = [part.replace("_", "") for part in operation.parts if part != "resource_group_name"]
    given = {name: value for name, value in inputs.items() if name not in of_address}
    return given | dict(zip(parts, names, strict=True))
