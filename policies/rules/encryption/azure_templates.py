"""Azure: what templates and generic resources make is encrypted as well.

A template of Azure Resource Manager, or a resource of any type in Azure's own words, makes
services that no other rule sees. Those that keep data or take connections are read into the
types that rules know, and judged by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    UNKNOWN,
    Finding,
    Resource,
    Rule,
    Severity,
    Stack,
    View,
    get,
    indeterminate,
    is_list,
    rule,
    text,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.azure_children import entries
from falaj.policies.reading.types import azure
from falaj.policies.rules.encryption import (
    azure_at_rest,
    azure_customer_keys,
    azure_gateways,
    azure_keys,
    azure_plain_text,
    azure_tls,
)

_TEMPLATED: Final = azure(
    "resources:Deployment",
    "resources:DeploymentAtScope",
    "resources:DeploymentAtManagementGroupScope",
    "resources:DeploymentAtSubscriptionScope",
    "resources:DeploymentAtTenantScope",
    "resources:DeploymentStackAtManagementGroup",
    "resources:DeploymentStackAtResourceGroup",
    "resources:DeploymentStackAtSubscription",
)
_GENERIC: Final = azure("resources:Resource")
#: Types in Azure's own words, in small letters, with their name in the SDK.
_TYPES: Final = {
    "microsoft.storage/storageaccounts": "storage:StorageAccount",
    "microsoft.storage/storageaccounts/encryptionscopes": "storage:EncryptionScope",
    "microsoft.netapp/netappaccounts": "netapp:Account",
    "microsoft.netapp/netappaccounts/capacitypools/volumes": "netapp:CapacityPoolVolume",
    "microsoft.compute/disks": "compute:Disk",
    "microsoft.compute/snapshots": "compute:Snapshot",
    "microsoft.compute/virtualmachines": "compute:VirtualMachine",
    "microsoft.compute/virtualmachinescalesets": "compute:VirtualMachineScaleSet",
    "microsoft.compute/diskencryptionsets": "compute:DiskEncryptionSet",
    "microsoft.containerservice/managedclusters": "containerservice:ManagedCluster",
    "microsoft.containerservice/managedclusters/agentpools": "containerservice:AgentPool",
    "microsoft.containerregistry/registries": "containerregistry:Registry",
    "microsoft.containerinstance/containergroups": "containerinstance:ContainerGroup",
    "microsoft.app/containerapps": "app:ContainerApp",
    "microsoft.sql/servers": "sql:Server",
    "microsoft.sql/managedinstances": "sql:ManagedInstance",
    "microsoft.sql/servers/databases/transparentdataencryption": "sql:TransparentDataEncryption",
    "microsoft.dbforpostgresql/flexibleservers": "dbforpostgresql:Server",
    "microsoft.dbforpostgresql/servers": "dbforpostgresql:SingleServer",
    "microsoft.dbformysql/flexibleservers": "dbformysql:Server",
    "microsoft.dbformysql/servers": "dbformysql:SingleServer",
    "microsoft.dbformariadb/servers": "dbformariadb:Server",
    "microsoft.documentdb/databaseaccounts": "cosmosdb:DatabaseAccount",
    "microsoft.cache/redis": "redis:Redis",
    "microsoft.cache/redisenterprise": "redisenterprise:RedisEnterprise",
    "microsoft.cache/redisenterprise/databases": "redisenterprise:Database",
    "microsoft.kusto/clusters": "kusto:Cluster",
    "microsoft.servicebus/namespaces": "servicebus:Namespace",
    "microsoft.eventhub/namespaces": "eventhub:Namespace",
    "microsoft.datafactory/factories": "datafactory:Factory",
    "microsoft.synapse/workspaces": "synapse:Workspace",
    "microsoft.databricks/workspaces": "databricks:Workspace",
    "microsoft.cognitiveservices/accounts": "cognitiveservices:Account",
    "microsoft.machinelearningservices/workspaces": "machinelearningservices:Workspace",
    "microsoft.search/searchservices": "search:Service",
    "microsoft.recoveryservices/vaults": "recoveryservices:Vault",
    "microsoft.dataprotection/backupvaults": "dataprotection:BackupVault",
    "microsoft.operationalinsights/clusters": "operationalinsights:Cluster",
    "microsoft.appconfiguration/configurationstores": "appconfiguration:ConfigurationStore",
    "microsoft.automation/automationaccounts": "automation:AutomationAccount",
    "microsoft.automation/automationaccounts/variables": "automation:Variable",
    "microsoft.batch/batchaccounts": "batch:BatchAccount",
    "microsoft.web/sites": "web:WebApp",
    "microsoft.web/sites/slots": "web:WebAppSlot",
    "microsoft.keyvault/vaults": "keyvault:Vault",
    "microsoft.keyvault/vaults/keys": "keyvault:Key",
    "microsoft.network/applicationgateways": "network:ApplicationGateway",
    "microsoft.cdn/profiles/endpoints": "cdn:Endpoint",
    "microsoft.apimanagement/service/apis": "apimanagement:Api",
}
#: Names that the SDK gave to properties: Azure's own, and the SDK's.
_RENAMED: Final = {"supportsHttpsTrafficOnly": "enableHttpsTrafficOnly"}
#: Rules that ask of companions, which a template names by expressions.
_COMPANIONS: Final = {"encryption-azure-queue-key", "encryption-azure-log-workspace-key"}
#: Where a template is, or a link to one.
_UNSEEN: Final = (
    "properties.template", "properties.templateLink", "template", "templateLink",
)  # fmt: skip
_SERVERS: Final = azure("sql:Server", "sql:ManagedInstance")


def _judging() -> dict[str, tuple[Rule, ...]]:
    found: dict[str, tuple[Rule, ...]] = {}
    for module in (
        azure_at_rest,
        azure_customer_keys,
        azure_gateways,
        azure_keys,
        azure_plain_text,
        azure_tls,
    ):
        for each in module.RULES:
            for kind in each.types if each.id not in _COMPANIONS else ():
                if kind not in _SERVERS or each.id != "encryption-azure-database-key":
                    found[kind] = (*found.get(kind, ()), each)
    return found


_RULES: Final = _judging()


def _settled(value: Any, parameters: Mapping[str, Any]) -> Any:
    """A template's value with its parameters put in; other expressions can't be known."""
    if isinstance(value, Mapping):
        return {str(key): _settled(each, parameters) for key, each in value.items()}
    if is_list(value):
        return [_settled(each, parameters) for each in value]
    said = text(value)
    if not (said.startswith("[") and said.endswith("]")) or said.startswith("[["):
        return value
    name = said[1:-1].strip()
    if name.lower().startswith("parameters('") and name.endswith("')"):
        return parameters.get(name[len("parameters('") : -2], UNKNOWN)
    return UNKNOWN


def _parameters(resource: Resource, holder: str) -> dict[str, Any]:
    """Values of a template's parameters: those given, else their defaults."""
    defaults = resource.get(f"{holder}template.parameters")
    given = resource.get(f"{holder}parameters")
    found: dict[str, Any] = {}
    for source, key in ((defaults, "defaultValue"), (given, "value")):
        if isinstance(source, Mapping):
            for name, each in source.items():
                if (value := get(each, key)) is not ABSENT and not text(value).startswith("["):
                    found[str(name)] = value
    return found


def _made(resource: Resource) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Resources in Azure's own words: their path, themselves and their type in small letters."""
    if resource.kind in _GENERIC:
        parts = ("resourceProviderNamespace", "parentResourcePath", "resourceType")
        words = [text(resource.get(each)).strip("/") for each in parts]
        # Of the parent's path, types and names by turns, the types count.
        words[1] = "/".join(words[1].split("/")[::2])
        yield "", resource.properties, "/".join(each for each in words if each).lower()
        return
    for holder in ("properties.", ""):
        parameters = _parameters(resource, holder)
        listed = resource.get(f"{holder}template.resources")
        yield from _listed(listed, f"{holder}template.resources", "", parameters)


def _listed(
    value: Any, path: str, parent: str, parameters: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    # A list, or in templates of the newer kind a map by symbolic names.
    found = (
        [(f"{path}.{key}", each) for key, each in value.items()]
        if isinstance(value, Mapping)
        else entries(value, path)
    )
    for at, each in found:
        if not isinstance(each, Mapping):
            continue
        kind = text(each.get("type")).lower()
        kind = f"{parent}/{kind}" if parent and "." not in kind else kind
        yield at, _settled(each, parameters), kind
        yield from _listed(each.get("resources"), f"{at}.resources", kind, parameters)
        if kind == "microsoft.resources/deployments":
            inner = "properties.template.resources"
            yield from _listed(get(each, inner), f"{at}.{inner}", "", {})


def _as_known(resource: Resource, at: str, made: Mapping[str, Any], name: str) -> Resource:
    """A resource of the SDK's type; its inputs are Azure's, whose properties stand on top."""
    inner = made.get("properties")
    merged: dict[str, Any] = {**inner, **made} if isinstance(inner, Mapping) else dict(made)
    for azures, ours in _RENAMED.items():
        if azures in merged:
            merged.setdefault(ours, merged[azures])
    merged.setdefault("tags", resource.properties.get("tags"))
    token = f"azure-native:{name}"
    return Resource(token, resource.name, merged, urn=f"{resource.urn}#{at}")


@rule(
    "encryption-azure-template",
    "What templates and generic resources make is encrypted",
    Severity.HIGH,
    _TEMPLATED | _GENERIC,
    ("iso27001:A.8.24", "uae-ia:T7.4.1", "pdpl:20", "gdpr:32"),
    "Declare the resource in the program instead of the template, or change it where the finding "
    "points, as the rule that it names says.",
)
def _template(resource: Resource, view: View) -> Iterator[Finding]:
    for path in _UNSEEN if resource.kind in _TEMPLATED else ():
        hidden = resource.get(path)
        if isinstance(hidden, Unknown) or (hidden is not ABSENT and path.endswith("Link")):
            yield indeterminate(path, "what the template makes can't be seen")
    for at, made, kind in _made(resource):
        if (name := _TYPES.get(kind)) is None:
            continue
        known = _as_known(resource, at, made, name)
        alone = View(view.settings, Stack((known,)))
        for each in _RULES.get(known.kind, ()):
            for found in each.check(known, alone):
                path = ".".join(part for part in (at, found.path) if part)
                yield replace(found, path=path, reason=f"{found.reason} ({each.id})")


RULES: tuple[Rule, ...] = (_template,)
