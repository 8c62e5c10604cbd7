"""Templates of AWS and Azure: what they make is judged as if a program had made it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, cast

import yaml

from falaj.policies.model import (
    ABSENT,
    UNKNOWN,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    Stack,
    get,
    indeterminate,
    is_list,
    rule,
    text,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.azure_children import entries
from falaj.policies.reading.types import azure
from falaj.policies.rules.encryption import at_rest, plain_text, tls_versions
from falaj.policies.rules.encryption import keys as key_rules
from falaj.policies.rules.encryption.aws_tables import TEMPLATE_STORES
from falaj.policies.rules.encryption.stores import Part, demands_customer_key
from falaj.wire.documents import is_mapping, mapping

# What CloudFormation and Cloud Control make on AWS is encrypted as well.
#
# A template, or a resource of any type in CloudFormation's words, makes services that no other
# rule sees. Those that keep data are read and judged here; what can't be read is said to be so.

_AWS_TEMPLATED: Final = frozenset((
    "aws:cloudformation/stack:Stack",
    "aws:cloudformation/stackSet:StackSet",
))  # fmt: skip
_AWS_GENERIC: Final = "aws:cloudcontrol/resource:Resource"
#: Templates of others, which nobody sees from here.
_FOREIGN: Final = frozenset((
    "aws:serverlessrepository/cloudFormationStack:CloudFormationStack",
    "aws:servicecatalog/provisionedProduct:ProvisionedProduct",
))  # fmt: skip
#: CloudFormation takes no template longer than 1 MB.
_LONGEST: Final = 1_048_576
#: Values of a template that are looked at, at most: aliases may make a short text endless.
_MOST: Final = 50_000
#: No property that is asked for stands deeper.
_DEEPEST: Final = 40
_KEYS: Final = ("AWS::KMS::Key", "AWS::KMS::Alias", "AWS::KMS::ReplicaKey")
_COMPUTED: Final = Unknown("is computed when the template is deployed")


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms, ``!Ref`` and the like."""


def _short_form(loader: _Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        given: Any = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        given = loader.construct_sequence(node, deep=True)
    else:
        given = loader.construct_mapping(node, deep=True)  # pyright: ignore[reportArgumentType]
    return {"Ref" if suffix == "Ref" else f"Fn::{suffix}": given}


# The class's types say nothing of what makes a value.
cast("Any", _Loader).add_multi_constructor("!", _short_form)


def _yaml(given: str) -> Any:
    return yaml.load(given, _Loader)  # noqa: S506 - _Loader is the safe one


def _parsed(value: Any) -> Any:
    """A template or a resource's state as its mapping; ABSENT where it is none."""
    if is_mapping(value):
        return value
    given = text(value)
    if not given or len(given) > _LONGEST:
        return ABSENT
    try:
        found = json.loads(given) if given.startswith("{") else _yaml(given)
    except (ValueError, RecursionError, yaml.YAMLError):
        return ABSENT
    return found if is_mapping(found) else ABSENT


def _named(value: Any) -> str:
    """The resource that an intrinsic function names; empty for other functions and values."""
    if not is_mapping(value) or len(value) != 1:
        return ""
    function, given = next(iter(value.items()))
    if function == "Ref":
        return text(given)
    if function == "Fn::GetAtt":
        return text(given[0] if is_list(given) and given else given).partition(".")[0]
    return ""


def _is_function(value: Mapping[Any, Any]) -> bool:
    return len(value) == 1 and str(next(iter(value))).startswith(("Ref", "Fn::"))


def _aws_settled(value: Any, keys: frozenset[str], left: list[int], depth: int = 0) -> Any:
    """A value with its functions settled: a key of the template, or unknown."""
    left[0] -= 1
    if left[0] < 0 or depth > _DEEPEST:
        return _COMPUTED
    if is_mapping(value):
        if _is_function(value):
            return f"key {_named(value)}" if _named(value) in keys else _COMPUTED
        return {
            str(name): _aws_settled(each, keys, left, depth + 1) for name, each in value.items()
        }
    if is_list(value):
        return [_aws_settled(each, keys, left, depth + 1) for each in value]
    return value


def _parts(template: Mapping[Any, Any], context: Context) -> Iterator[tuple[str, Part]]:
    """What each resource of a template keeps, with its name there."""
    resources = get(template, "Resources")
    if not is_mapping(resources):
        return
    keys = frozenset(
        str(name) for name, each in resources.items() if text(get(each, "Type")) in _KEYS
    )
    left = [_MOST]
    for name, each in resources.items():
        kind = text(get(each, "Type"))
        entries = [entry for entry in TEMPLATE_STORES if entry.type == kind]
        if entries:
            properties = get(each, "Properties")
            settled = _aws_settled(mapping(properties), keys, left)
            made = Resource(kind, str(name), settled)
            for entry in entries:
                yield from ((f"{name} ({kind})", part) for part in entry.read(made, context))


def _judged(
    resource: Resource, context: Context, path: str, template: Mapping[Any, Any]
) -> Iterator[Finding]:
    keyed = demands_customer_key(resource, context)
    for name, part in _parts(template, context):
        if part.state == "none":
            yield violation(path, f"{name}: {part.why}; data at rest must be encrypted")
        elif part.state == "service key" and keyed:
            demand = f"{context.data_class(resource)} data needs a customer-managed key"
            yield violation(path, f"{name}: {part.why}; {demand}")
        elif part.state == "unknown" and (keyed or not part.surely):
            yield indeterminate(path, f"{name}: {part.why}")


@rule(
    "encryption-aws-template",
    "What CloudFormation makes on AWS is encrypted, with a customer-managed key",
    Severity.HIGH,
    _AWS_TEMPLATED | _FOREIGN | {_AWS_GENERIC},
    ("iso27001:A.8.24", "uae-ia:T7.4.1", "uae-ia:T7.4.2", "pdpl:20", "gdpr:32"),
    "Encrypt the resource that the finding names, in the template; better, declare it in the "
    "program, where every rule sees it.",
)
def template(resource: Resource, context: Context) -> Iterator[Finding]:
    """A template is read as far as it keeps data; one that can't be seen proves nothing."""
    if resource.kind in _FOREIGN:
        yield indeterminate("", "it deploys a template of somebody else, which can't be seen here")
        return
    path = "desiredState" if resource.kind == _AWS_GENERIC else "templateBody"
    value = get(resource.properties, path)
    given = _parsed(value)
    if isinstance(value, Unknown) or given is ABSENT:
        reason = (
            value.reason if isinstance(value, Unknown) else "holds no template that can be read"
        )
        if value is ABSENT and get(resource.properties, "templateUrl") is not ABSENT:
            path, reason = "templateUrl", "names a template that can't be seen here"
        yield indeterminate(path, f"{path} {reason}, so nobody knows what it encrypts")
        return
    if resource.kind == _AWS_GENERIC:
        kind = get(resource.properties, "typeName")
        if isinstance(kind, Unknown):
            yield indeterminate("typeName", f"typeName {kind.reason}")
            return
        given = {"Resources": {"it": {"Type": text(kind), "Properties": given}}}
    yield from _judged(resource, context, path, given)


# Azure: what templates and generic resources make is encrypted as well.
#
# A template of Azure Resource Manager, or a resource of any type in Azure's own words, makes
# services that no other rule sees. Those that keep data or take connections are read into the
# types that rules know, and judged by them.

_AZURE_TEMPLATED: Final = azure(
    "resources:Deployment",
    "resources:DeploymentAtScope",
    "resources:DeploymentAtManagementGroupScope",
    "resources:DeploymentAtSubscriptionScope",
    "resources:DeploymentAtTenantScope",
    "resources:DeploymentStackAtManagementGroup",
    "resources:DeploymentStackAtResourceGroup",
    "resources:DeploymentStackAtSubscription",
)
_AZURE_GENERIC: Final = azure("resources:Resource")
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
_COMPANIONS: Final = {
    "encryption-azure-queue-key", "encryption-azure-log-workspace-key",
    "encryption-azure-key-pinned", "encryption-azure-key-shared", "encryption-azure-network",
    "encryption-azure-cluster-transport", "encryption-azure-synapse-pool", "encryption-azure-vpn",
}  # fmt: skip
#: Where a template is, or a link to one.
_UNSEEN: Final = (
    "properties.template", "properties.templateLink", "template", "templateLink",
)  # fmt: skip
_SERVERS: Final = azure("sql:Server", "sql:ManagedInstance")


def _judging() -> dict[str, tuple[Rule, ...]]:
    found: dict[str, tuple[Rule, ...]] = {}
    for module in (at_rest, key_rules, plain_text, tls_versions):
        for each in module.RULES:
            for kind in each.types if each.id not in _COMPANIONS else ():
                if kind not in _SERVERS or each.id != "encryption-azure-database-key":
                    found[kind] = (*found.get(kind, ()), each)
    return found


_RULES: Final = _judging()


def _azure_settled(value: Any, parameters: Mapping[str, Any]) -> Any:
    """A template's value with its parameters put in; other expressions can't be known."""
    if is_mapping(value):
        return {str(key): _azure_settled(each, parameters) for key, each in value.items()}
    if is_list(value):
        return [_azure_settled(each, parameters) for each in value]
    given = text(value)
    if not (given.startswith("[") and given.endswith("]")) or given.startswith("[["):
        return value
    name = given[1:-1].strip()
    if name.lower().startswith("parameters('") and name.endswith("')"):
        return parameters.get(name[len("parameters('") : -2], UNKNOWN)
    return UNKNOWN


def _parameters(resource: Resource, holder: str) -> dict[str, Any]:
    """Values of a template's parameters: those given, else their defaults."""
    defaults = resource.get(f"{holder}template.parameters")
    given = resource.get(f"{holder}parameters")
    found: dict[str, Any] = {}
    for source, key in ((defaults, "defaultValue"), (given, "value")):
        if is_mapping(source):
            for name, each in source.items():
                if (value := get(each, key)) is not ABSENT and not text(value).startswith("["):
                    found[str(name)] = value
    return found


def _made(resource: Resource) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Resources in Azure's own words: their path, themselves and their type in small letters."""
    if resource.kind in _AZURE_GENERIC:
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
        if is_mapping(value)
        else entries(value, path)
    )
    for at, each in found:
        if not is_mapping(each):
            continue
        kind = text(each.get("type")).lower()
        kind = f"{parent}/{kind}" if parent and "." not in kind else kind
        yield at, _azure_settled(each, parameters), kind
        yield from _listed(each.get("resources"), f"{at}.resources", kind, parameters)
        if kind == "microsoft.resources/deployments":
            inner = "properties.template.resources"
            yield from _listed(get(each, inner), f"{at}.{inner}", "", {})


def _as_known(resource: Resource, at: str, made: Mapping[str, Any], name: str) -> Resource:
    """A resource of the SDK's type; its inputs are Azure's, whose properties stand on top."""
    inner = made.get("properties")
    merged: dict[str, Any] = {**inner, **made} if is_mapping(inner) else dict(made)
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
    _AZURE_TEMPLATED | _AZURE_GENERIC,
    ("iso27001:A.8.24", "uae-ia:T7.4.1", "pdpl:20", "gdpr:32"),
    "Declare the resource in the program instead of the template, or change it where the finding "
    "points, as the rule that it names says.",
)
def _template(resource: Resource, context: Context) -> Iterator[Finding]:
    for path in _UNSEEN if resource.kind in _AZURE_TEMPLATED else ():
        hidden = resource.get(path)
        if isinstance(hidden, Unknown) or (hidden is not ABSENT and path.endswith("Link")):
            yield indeterminate(path, "what the template makes can't be seen")
    for at, made, kind in _made(resource):
        if (name := _TYPES.get(kind)) is None:
            continue
        known = _as_known(resource, at, made, name)
        alone = Context(context.settings, Stack((known,)))
        for each in _RULES.get(known.kind, ()):
            for found in each.check(known, alone):
                path = ".".join(part for part in (at, found.path) if part)
                yield replace(found, path=path, reason=f"{found.reason} ({each.id})")


RULES: tuple[Rule, ...] = (
    template,
    _template,
)
