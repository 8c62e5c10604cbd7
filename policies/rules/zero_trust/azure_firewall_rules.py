"""Addresses that databases and other services let in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    get,
    indeterminate,
    is_unknown,
    rule,
    scalar,
    select,
    text,
    violation,
)
from falaj.policies.reading.cidr import is_open, is_range_open
from falaj.policies.reading.types import azure

#: Firewall rules from one address to another, by the names of the two.
_RANGES: Final[dict[tuple[str, str], frozenset[str]]] = {
    ("startIpAddress", "endIpAddress"): azure(
        "cosmosdb:MongoClusterFirewallRule", "datalakeanalytics:FirewallRule",
        "datalakestore:FirewallRule", "dbformariadb:FirewallRule", "dbformysql:FirewallRule",
        "dbformysql:SingleServerFirewallRule", "dbforpostgresql:FirewallRule",
        "dbforpostgresql:ServerGroupFirewallRule", "dbforpostgresql:SingleServerFirewallRule",
        "sql:FirewallRule", "synapse:IpFirewallRule",
    ),
    ("properties.startIpAddress", "properties.endIpAddress"): azure(
        "databasefleetmanager:FirewallRule", "horizondb:HorizonDbFirewallRule",
        "mongocluster:FirewallRule",
    ),
    ("startIP", "endIP"): azure("redis:FirewallRule", "redis:RedisFirewallRule"),
    ("startIPv6Address", "endIPv6Address"): azure("sql:IPv6FirewallRule"),
    ("firewallRules.startIpAddress", "firewallRules.endIpAddress"): azure(
        "datalakeanalytics:Account", "datalakestore:Account"
    ),
    ("ipV4FirewallSettings.firewallRules.rangeStart",
     "ipV4FirewallSettings.firewallRules.rangeEnd"): azure("analysisservices:ServerDetails"),
}  # fmt: skip
_OF_RANGES: Final = {kind: keys for keys, kinds in _RANGES.items() for kind in kinds}
#: Azure's word for "every service of Azure, of every customer"
#: (https://learn.microsoft.com/azure/azure-sql/database/firewall-configure).
_ALL_AZURE: Final = "0.0.0.0"  # noqa: S104
_CONTROLS: Final = ("uae-ia:T4.5.3", "iso27001:A.8.20", "nist-800-207:2")


@rule(
    "zero-trust-azure-open-firewall-rule",
    "Firewall rules of databases don't let the Internet in",
    Severity.CRITICAL,
    frozenset(_OF_RANGES),
    _CONTROLS,
    "Delete the rule and connect through a private endpoint, or name the few addresses that need "
    "it.",
)
def open_firewall_rule(resource: Resource, view: View) -> Iterator[Finding]:
    """A range that is the world, or much of it; in one rule."""
    for where, first, last in _ends(resource):
        if is_unknown(first) or is_unknown(last):
            yield indeterminate(where, "the addresses that it lets in can't be seen")
        elif is_range_open(first, last):
            yield violation(where, f"addresses from {text(first)} to {text(last)} are let in")


@rule(
    "zero-trust-azure-all-azure-services",
    "Databases don't let in the machines of every customer of Azure",
    Severity.HIGH,
    frozenset(_OF_RANGES),
    _CONTROLS,
    "Delete the rule from 0.0.0.0 to 0.0.0.0 and connect through private endpoints.",
)
def all_azure_services(resource: Resource, view: View) -> Iterator[Finding]:
    """Any machine in Azure, other tenants' included, may then try to sign in."""
    for where, first, last in _ends(resource):
        if is_unknown(first) or is_unknown(last):
            if text(first) in {"", _ALL_AZURE} and text(last) in {"", _ALL_AZURE}:
                yield indeterminate(where, "the addresses that it lets in can't be seen")
        elif text(first) == text(last) == _ALL_AZURE:
            yield violation(where, "every service of Azure is let in, of every customer")


def _ends(resource: Resource) -> Iterator[tuple[str, object, object]]:
    """Where each range starts, with its first and last address."""
    if resource.kind not in _OF_RANGES:
        return
    start, end = _OF_RANGES[resource.kind]
    holder, _, key = start.rpartition(".")
    last = end.rpartition(".")[2]
    holders = select(resource.properties, holder) if holder else [("", resource.properties)]
    for path, each in holders:
        yield (f"{path}.{key}" if path else key), get(each, key), get(each, last)


#: Lists of addresses that a service lets in, with the key inside of an entry (empty: the entry
#: itself), and the key that may say Deny.
_LISTS: Final[dict[str, frozenset[str]]] = {
    "networkRuleSet.ipRules.iPAddressOrRange": azure(
        "containerregistry:Registry", "storage:StorageAccount"
    ),
    "properties.networkAcls.ipRules.value": azure(
        "cognitiveservices:Account", "keyvault:ManagedHsm", "keyvault:Vault"
    ),
    "ipRules.ipAddressOrRange": azure("cosmosdb:DatabaseAccount"),
    "ipRules.ipMask": azure(
        "eventhub:NamespaceNetworkRuleSet", "servicebus:NamespaceNetworkRuleSet"
    ),
    "ipMask": azure("eventhub:NamespaceIpFilterRule", "servicebus:NamespaceIpFilterRule"),
    "inboundIpRules.ipMask": azure(
        "eventgrid:Domain", "eventgrid:Namespace", "eventgrid:PartnerNamespace", "eventgrid:Topic"
    ),
    "networkRuleSet.ipRules.value": azure("search:Service"),
    "networkACLs.ipRules.value": azure("signalrservice:SignalR", "webpubsub:WebPubSub"),
    "networkRuleSets.ipRules.ipMask": azure("iotcentral:App"),
    "properties.networkRuleSets.ipRules.ipMask": azure("iothub:IotHubResource"),
    "properties.ipFilterRules.ipMask": azure(
        "deviceprovisioningservices:IotDpsResource", "iothub:IotHubResource"
    ),
    "networkProfile.accountAccess.ipRules.value": azure("batch:BatchAccount"),
    "networkAcls.ipRules.ipMask": azure("notificationhubs:Namespace"),
    "networkAcls.ipRules.addressPrefix": azure("network:BastionHost"),
    "allowedIpRangeList": azure("kusto:Cluster"),
    "properties.ipAllowlist": azure("durabletask:Scheduler"),
    "configuration.ingress.ipSecurityRestrictions.ipAddressRange": azure("app:ContainerApp"),
    "siteConfig.ipSecurityRestrictions.ipAddress": azure("web:WebApp", "web:WebAppSlot"),
    "siteConfig.scmIpSecurityRestrictions.ipAddress": azure("web:WebApp", "web:WebAppSlot"),
}  # fmt: skip


@rule(
    "zero-trust-azure-open-address-list",
    "Lists of addresses that services let in don't name the Internet",
    Severity.HIGH,
    frozenset(kind for kinds in _LISTS.values() for kind in kinds),
    _CONTROLS,
    "Name the ranges that need the service, or leave the list empty and use a private endpoint.",
)
def open_address_list(resource: Resource, view: View) -> Iterator[Finding]:
    """``0.0.0.0/0`` and its like among addresses that are let in; entries that deny are fine."""
    for path, kinds in _LISTS.items():
        if resource.kind not in kinds:
            continue
        holder, _, key = path.rpartition(".")
        for where, entry in select(resource.properties, path):
            index = where.removesuffix(f".{key}")
            if _denies(resource, index, holder):
                continue
            if is_unknown(entry):
                yield indeterminate(where, "the addresses that it lets in can't be seen")
            elif is_open(entry):
                yield violation(where, f"{text(entry)} is let in, which is the Internet")


def _denies(resource: Resource, where: str, holder: str) -> bool:
    if not holder:
        return scalar(resource.get("action")) in {"deny", "reject"}
    return any(
        scalar(get(entry, "action")) in {"deny", "reject"}
        for path, entry in select(resource.properties, holder)
        if path == where and not is_unknown(entry)
    )


RULES: tuple[Rule, ...] = (open_firewall_rule, all_azure_services, open_address_list)
