"""Services that answer from the Internet, by what each says about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    items,
    rule,
    scalar,
    text,
    violation,
)
from falaj.policies.reading.azure_children import children
from falaj.policies.reading.types import azure

#: ``SecuredByPerimeter``: a network security perimeter decides
#: (https://learn.microsoft.com/azure/private-link/network-security-perimeter-concepts).
_CLOSED: Final = frozenset(("disabled", "securedbyperimeter", "false"))
#: What closes a service as well: a property with its values. None: a list that isn't empty.
Closer = tuple[str, tuple[str, ...]]
_DENY: Final = ("deny",)
#: Whatever is given, known or not: the id of a subnet.
_GIVEN: Final = ("*",)


@dataclass(frozen=True)
class Door:
    """The property that opens a service to the Internet. All are open by default
    (https://learn.microsoft.com/azure/private-link/availability and the SDK's own words)."""

    path: str
    closers: tuple[Closer, ...] = ()
    rule_sets: str = ""
    """The type of a companion that holds the service's network rules, by ``namespaceName``."""


_PLAIN: Final = Door("publicNetworkAccess")
_NESTED: Final = Door("properties.publicNetworkAccess")
_FILTERED: Final = Door("publicNetworkAccess", (("inboundIpRules", ()),))
_TABLE: Final[dict[Door, frozenset[str]]] = {
    _PLAIN: azure(
        "agfoodplatform:DataManagerForAgricultureResource", "appconfiguration:ConfigurationStore",
        "automation:AutomationAccount", "communication:CommunicationService",
        "databricks:Workspace", "datafactory:Factory", "desktopvirtualization:HostPool",
        "desktopvirtualization:Workspace", "deviceupdate:Account", "digitaltwins:DigitalTwin",
        "elasticsan:ElasticSan", "machinelearningservices:Registry",
        "machinelearningservices:Workspace", "monitor:AzureMonitorWorkspace", "purview:Account",
        "redisenterprise:RedisEnterprise", "relay:Namespace", "sql:Server", "synapse:Workspace",
        "notificationhubs:Namespace",
    ),
    _NESTED: azure(
        "attestation:AttestationProvider", "botservice:Bot", "dashboard:Grafana",
        "dbformariadb:Server", "dbformysql:SingleServer", "dbforpostgresql:SingleServer",
        "deviceprovisioningservices:IotDpsResource", "durabletask:Scheduler",
        "fileshares:FileShare", "healthcareapis:Service", "healthdataaiservices:DeidService",
        "machinelearningservices:OnlineEndpoint", "mongocluster:MongoCluster",
        "recoveryservices:Vault",
    ),
    _FILTERED: azure(
        "eventgrid:Domain", "eventgrid:Namespace", "eventgrid:PartnerNamespace", "eventgrid:Topic"
    ),
    Door("publicNetworkAccess", (("networkRuleSet.defaultAction", _DENY),)): azure(
        "containerregistry:Registry", "storage:StorageAccount"
    ),
    Door("properties.publicNetworkAccess", (("properties.networkAcls.defaultAction", _DENY),)):
        azure("cognitiveservices:Account", "keyvault:ManagedHsm", "keyvault:Vault"),
    Door("publicNetworkAccess", (("networkACLs.defaultAction", _DENY),)): azure(
        "signalrservice:SignalR", "webpubsub:WebPubSub"
    ),
    Door("properties.publicNetworkAccess", (("properties.networkRuleSets.defaultAction", _DENY),)):
        azure("iothub:IotHubResource"),
    Door("publicNetworkAccess", (("networkRuleSets.defaultAction", _DENY),)): azure(
        "iotcentral:App"
    ),
    Door("publicNetworkAccess", (("networkProfile.accountAccess.defaultAction", _DENY),)): azure(
        "batch:BatchAccount"
    ),
    Door("publicNetworkAccess", (("networkRuleSet.ipRules", ()),)): azure("search:Service"),
    Door("publicNetworkAccess", (
        ("ipRules", ()), ("isVirtualNetworkFilterEnabled", ("true",)),
    )): azure("cosmosdb:DatabaseAccount"),
    Door("publicNetworkAccess", (("subnetId", _GIVEN),)): azure("redis:Redis"),
    Door("publicNetworkAccess", (
        ("virtualNetworkConfiguration.subnetId", _GIVEN), ("allowedIpRangeList", ()),
    )): azure("kusto:Cluster"),
    Door("network.publicNetworkAccess", (("network.delegatedSubnetResourceId", _GIVEN),)): azure(
        "dbformysql:Server", "dbforpostgresql:Server"
    ),
    Door("publicNetworkAccess", (("virtualNetworkType", ("internal",)),)): azure(
        "apimanagement:ApiManagementService"
    ),
    Door("publicNetworkAccess", rule_sets="eventhub:NamespaceNetworkRuleSet"): azure(
        "eventhub:Namespace"
    ),
    Door("publicNetworkAccess", rule_sets="servicebus:NamespaceNetworkRuleSet"): azure(
        "servicebus:Namespace"
    ),
}  # fmt: skip
_DOORS: Final = {kind: door for door, kinds in _TABLE.items() for kind in kinds}


def _closes(value: Any, values: tuple[str, ...]) -> bool:
    if values == _GIVEN:
        return is_unknown(value) or bool(text(value))
    if is_unknown(value):
        return False
    return scalar(value) in values if values else bool(items(value))


@rule(
    "zero-trust-azure-public-access",
    "Services don't answer from every network",
    Severity.HIGH,
    frozenset(_DOORS),
    ("uae-ia:T4.5.3", "iso27001:A.8.20", "nist-800-207:2", "cis-azure:9.3.2.2"),
    "Set publicNetworkAccess to Disabled and add a private endpoint; where that can't be, deny by "
    "default and name the subnets and ranges that may connect.",
)
def public_access(resource: Resource, view: View) -> Iterator[Finding]:
    """Closed by the switch itself, or by network rules that deny by default."""
    door = _DOORS.get(resource.kind, _PLAIN)
    value = resource.get(door.path)
    if scalar(value) in _CLOSED:
        return
    closers = [(resource.get(path), values) for path, values in door.closers]
    if any(_closes(*each) for each in closers):
        return
    if door.rule_sets:
        if view.stack is None:
            yield indeterminate(door.path, "its network rules may be a resource of their own")
            return
        if _has_closing_rules(resource, view, door.rule_sets):
            return
    if is_unknown(value) or any(is_unknown(each) for each, _ in closers):
        reason = "whether it answers from every network can't be seen"
        yield indeterminate(door.path, reason)
    elif value is ABSENT:
        reason = "it isn't given, and the default is Enabled; it must be Disabled"
        yield violation(door.path, reason)
    else:
        reason = f"it is {scalar(value) or 'no plain value'}, and nothing denies by default; "
        yield violation(door.path, reason + "it must be Disabled")


def _has_closing_rules(resource: Resource, view: View, kind: str) -> bool:
    found = children(view, resource, azure(kind), "namespaceName")
    return any(
        scalar(each.get("defaultAction")) == "deny"
        or scalar(each.get("publicNetworkAccess")) in _CLOSED
        for each in found
    )


_RULE_SETS: Final = azure("eventhub:NamespaceNetworkRuleSet", "servicebus:NamespaceNetworkRuleSet")


@rule(
    "zero-trust-azure-open-rule-set",
    "Network rules of messaging deny by default",
    Severity.HIGH,
    _RULE_SETS,
    ("uae-ia:T4.5.3", "iso27001:A.8.20", "nist-800-207:2"),
    "Set defaultAction to Deny and name the subnets and ranges that may connect, or set "
    "publicNetworkAccess to Disabled.",
)
def open_rule_set(resource: Resource, view: View) -> Iterator[Finding]:
    """The default is to allow: https://learn.microsoft.com/azure/event-hubs/network-security."""
    action, access = resource.get("defaultAction"), resource.get("publicNetworkAccess")
    if scalar(access) in _CLOSED or scalar(action) == "deny":
        return
    if is_unknown(action) or is_unknown(access):
        yield indeterminate("defaultAction", "whether it denies by default can't be seen")
    else:
        given = "isn't given, and the default is Allow" if action is ABSENT else "isn't Deny"
        yield violation("defaultAction", f"it {given}; it must be Deny")


#: Where telemetry comes in and is asked for.
_MONITOR: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        azure("applicationinsights:Component", "operationalinsights:Workspace"),
        ("publicNetworkAccessForIngestion", "publicNetworkAccessForQuery"),
    ),
    **dict.fromkeys(azure("monitor:DataCollectionEndpoint"), ("networkAcls.publicNetworkAccess",)),
}


@rule(
    "zero-trust-azure-public-telemetry",
    "Logs are neither sent nor read over the Internet",
    Severity.MEDIUM,
    frozenset(_MONITOR),
    ("uae-ia:T4.5.3", "iso27001:A.8.15", "iso27001:A.8.20", "nist-800-207:2"),
    "Set public access for ingestion and query to Disabled, and put the resource into an Azure "
    "Monitor private link scope.",
)
def public_telemetry(resource: Resource, view: View) -> Iterator[Finding]:
    """Both are open by default:
    https://learn.microsoft.com/azure/azure-monitor/logs/private-link-security."""
    for path in _MONITOR.get(resource.kind, ()):
        value = resource.get(path)
        if is_unknown(value):
            yield indeterminate(path, "whether it is open to the Internet can't be seen")
        elif scalar(value) not in _CLOSED:
            given = "isn't given, and the default is Enabled" if value is ABSENT else "is enabled"
            yield violation(path, f"it {given}; it must be Disabled")


_DISKS: Final = azure("compute:Disk", "compute:Snapshot")


@rule(
    "zero-trust-azure-disk-export",
    "Disks and snapshots can't be exported over the Internet",
    Severity.MEDIUM,
    _DISKS,
    ("uae-ia:T4.5.3", "iso27001:A.8.12", "nist-800-207:2"),
    "Set networkAccessPolicy to DenyAll, or to AllowPrivate with a disk access, and "
    "publicNetworkAccess to Disabled.",
)
def disk_export(resource: Resource, view: View) -> Iterator[Finding]:
    """By default whoever may make a link exports a disk from anywhere:
    https://learn.microsoft.com/azure/virtual-machines/disks-enable-private-links-for-import-export-portal.
    """
    policy, access = resource.get("networkAccessPolicy"), resource.get("publicNetworkAccess")
    if scalar(policy) in {"denyall", "allowprivate"} or scalar(access) == "disabled":
        return
    if is_unknown(policy) or is_unknown(access):
        yield indeterminate("networkAccessPolicy", "whether it can be exported can't be seen")
    else:
        given = "isn't given, and the default is AllowAll" if policy is ABSENT else "is AllowAll"
        yield violation("networkAccessPolicy", f"it {given}; it must be DenyAll or AllowPrivate")


RULES: tuple[Rule, ...] = (public_access, open_rule_set, public_telemetry, disk_export)
