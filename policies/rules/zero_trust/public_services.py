"""Services that a setting puts on the Internet, and the firewalls of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Requirement,
    Requirements,
    Resource,
    Rule,
    Severity,
    get,
    indeterminate,
    is_unknown,
    items,
    requirement_rule,
    rule,
    scalar,
    select,
    text,
    violation,
)
from falaj.policies.reading.addresses import are_open, is_open, is_range_open
from falaj.policies.reading.azure_children import children
from falaj.policies.reading.types import aws, aws_type, azure
from falaj.policies.rules.zero_trust.public_addresses import PUBLIC_CONTROLS

# AWS services that can be put on the internet by a setting.

_AWS_CONTROLS: Final = ("iso27001:A.8.20", "iso27001:A.8.3", "uae-ia:T4.5.3", "nist-800-207:2")
_PRIVATE: Final = "it may be reached from private networks only"


#: A switch that is off by default.
_NOT_PUBLIC: Final = (Requirement("publiclyAccessible", denied=("true", "1"), hint=_PRIVATE),)


_DATA_STORES: Final[Requirements] = {
    aws(
        "rds/instance",
        "rds/clusterInstance",
        "rds/cluster",
        "rds/shardGroup",
        "neptune/clusterInstance",
        "docdb/clusterInstance",
        "redshift/cluster",
        "redshiftserverless/workgroup",
        "dms/replicationInstance",
        "mq/broker",
        "lightsail/database",
        "timestreaminfluxdb/dbInstance",
        "timestreaminfluxdb/dbCluster",
        "m2/environment",
    ): _NOT_PUBLIC,
    aws("dms/instanceProfile"): (
        Requirement(
            "publiclyAccessible",
            ("false",),
            hint=_PRIVATE,
            absent="without this setting it is public",
        ),
    ),
    aws("neptunegraph/graph"): (
        Requirement("publicConnectivity", denied=("true", "1"), hint=_PRIVATE),
    ),
    aws("msk/cluster"): (
        Requirement(
            "brokerNodeGroupInfo.connectivityInfo.publicAccess.type",
            allowed=("DISABLED",),
            hint=_PRIVATE,
        ),
    ),
    # Without a network of one's own a domain's endpoint is on the internet:
    # https://docs.aws.amazon.com/opensearch-service/latest/developerguide/vpc.html
    aws("opensearch/domain", "elasticsearch/domain"): (
        Requirement(
            "vpcOptions", absent="a domain without vpcOptions is on the internet", hint=_PRIVATE
        ),
    ),
}

public_data_store: Final = requirement_rule(
    "zero-trust-aws-public-data-store",
    "Databases, brokers and search domains are private",
    Severity.CRITICAL,
    _DATA_STORES,
    ("cis-aws:3.2.3", *_AWS_CONTROLS),
    "Switch public access off and place it in private subnets of a VPC.",
)


_SERVICES: Final[Requirements] = {
    aws("sagemaker/notebookInstance"): (
        Requirement(
            "directInternetAccess",
            allowed=("Disabled",),
            absent="notebooks are on the internet by default",
            hint="it has to be Disabled",
        ),
        Requirement("subnetId", absent="it is in no VPC", hint="it has to be in a private subnet"),
    ),
    aws("sagemaker/domain"): (
        Requirement(
            "appNetworkAccessType",
            allowed=("VpcOnly",),
            absent="apps reach the internet directly by default",
            hint="it has to be VpcOnly",
        ),
    ),
    aws("transfer/server"): (
        Requirement(
            "endpointType",
            denied=("PUBLIC",),
            absent="servers are public by default",
            hint=_PRIVATE,
        ),
    ),
    aws("apprunner/service"): (
        Requirement(
            "networkConfiguration.ingressConfiguration.isPubliclyAccessible",
            allowed=("false",),
            absent="services are public by default",
            hint=_PRIVATE,
        ),
    ),
    aws("codebuild/project"): (
        Requirement(
            "projectVisibility", denied=("PUBLIC_READ",), hint="builds have to be private"
        ),
    ),
    aws("grafana/workspace"): (
        Requirement(
            "networkAccessControl", absent="workspaces are public by default", hint=_PRIVATE
        ),
    ),
    aws("mwaa/environment"): (
        Requirement("webserverAccessMode", denied=("PUBLIC_ONLY",), hint=_PRIVATE),
    ),
    aws("emr/blockPublicAccessConfiguration"): (
        Requirement(
            "blockPublicSecurityGroupRules",
            allowed=("true",),
            hint="clusters with public security groups have to be blocked",
        ),
    ),
    aws("apigateway/restApi"): (
        Requirement(
            "endpointConfiguration.types",
            allowed=("PRIVATE",),
            absent="APIs are EDGE by default, which is on the internet",
            hint="it has to be PRIVATE",
        ),
    ),
    aws("apigateway/domainName"): (
        Requirement(
            "endpointConfiguration.types",
            allowed=("PRIVATE",),
            absent="domains are EDGE by default, which is on the internet",
            hint="it has to be PRIVATE",
        ),
    ),
}


public_service: Final = requirement_rule(
    "zero-trust-aws-public-service",
    "Services are reached from private networks",
    Severity.HIGH,
    _SERVICES,
    _AWS_CONTROLS,
    "Choose the service's private mode: a VPC's subnets, a VPC endpoint, or the "
    "setting that the finding names.",
)


# These APIs have no private form; only their default address can be switched off.
public_http_api: Final = requirement_rule(
    "zero-trust-aws-public-http-api",
    "HTTP and WebSocket APIs aren't on the internet",
    Severity.MEDIUM,
    {
        aws("apigatewayv2/api"): (
            Requirement(
                "disableExecuteApiEndpoint",
                ("true",),
                absent="HTTP and WebSocket APIs are on the internet by default",
                hint="its default address has to be off",
            ),
        )
    },
    _AWS_CONTROLS,
    "Use a REST API of type PRIVATE, or an internal load balancer. Where it stays, set "
    "disableExecuteApiEndpoint and offer it under a domain that demands client certificates.",
)


@rule(
    "zero-trust-aws-beanstalk-public",
    "Elastic Beanstalk environments are private",
    Severity.HIGH,
    aws("elasticbeanstalk/environment", "elasticbeanstalk/configurationTemplate"),
    _AWS_CONTROLS,
    "In the namespace aws:ec2:vpc, set ELBScheme to internal and AssociatePublicIpAddress to "
    "false.",
)
def beanstalk_public(resource: Resource, context: Context) -> Iterator[Finding]:
    """Option settings that make an environment public."""
    public = {"elbscheme": "public", "associatepublicipaddress": "true"}
    for path, setting in select(resource.properties, "settings"):
        if is_unknown(setting):
            yield indeterminate(path, f"its options can't be known yet; {_PRIVATE}")
            continue
        found = {key: next(select(setting, key), ("", ""))[1] for key in ("name", "value")}
        refused = public.get(text(found["name"]).lower())
        if refused is None:
            continue
        if is_unknown(found["value"]):
            yield indeterminate(f"{path}.value", f"its value can't be known yet; {_PRIVATE}")
        elif refused in (text(found["value"]).lower(), str(found["value"]).lower()):
            yield violation(f"{path}.value", f"{text(found['name'])} is {refused}; {_PRIVATE}")


_ALLOW_LISTS: Final = {
    aws_type("lightsail/instancePublicPorts"): ("portInfos", ("cidrs", "ipv6Cidrs")),
    aws_type("workspaces/ipGroup"): ("rules", ("source",)),
}


@rule(
    "zero-trust-aws-open-allow-list",
    "Lists of allowed addresses don't name the world",
    Severity.HIGH,
    frozenset(_ALLOW_LISTS),
    _AWS_CONTROLS,
    "Name the addresses of those who need access.",
)
def open_allow_list(resource: Resource, context: Context) -> Iterator[Finding]:
    """The firewalls of services that have one of their own."""
    holder, keys = _ALLOW_LISTS[resource.kind]
    for path, entry in select(resource.properties, holder):
        if is_unknown(entry):
            yield indeterminate(path, "its addresses can't be known yet")
            continue
        found = [(key, each) for key in keys for _, each in select(entry, key)]
        if not found:
            yield violation(path, "without addresses the world may come in; name them")
        for key, each in found:
            if is_unknown(each):
                yield indeterminate(f"{path}.{key}", "its addresses can't be known yet")
            elif are_open(items(each)):
                yield violation(f"{path}.{key}", f"{text(each)} is the world; name who may")


@rule(
    "zero-trust-aws-cloudfront-origin",
    "CloudFront signs its requests to buckets",
    Severity.MEDIUM,
    aws("cloudfront/distribution"),
    ("iso27001:A.8.3", "nist-800-207:6"),
    "Set originAccessControlId on the origin, and let the bucket's policy admit that "
    "distribution alone.",
)
def cloudfront_origin(resource: Resource, context: Context) -> Iterator[Finding]:
    """Without it the bucket itself would have to be public."""
    for path, origin in select(resource.properties, "origins"):
        if is_unknown(origin):
            yield indeterminate(path, "the origin can't be known yet")
            continue
        named = {
            key: next(select(origin, key), ("", None))[1]
            for key in (
                "domainName", "originAccessControlId", "s3OriginConfig.originAccessIdentity",
                "customOriginConfig", "vpcOriginConfig",
            )
        }  # fmt: skip
        domain = named.pop("domainName")
        if any(each is not None and each != "" for each in named.values()):
            continue
        known = not is_unknown(domain)
        bucket = ".s3" in text(domain) and text(domain).endswith((".amazonaws.com", ".cn"))
        made_of = context.referred(resource, f"{path}.domainName")
        if bucket or (
            not known
            and any(each.package == "aws" and "s3/bucket" in each.kind for each in made_of)
        ):
            yield violation(f"{path}.domainName", "the bucket is read without a signature")
        elif not known:
            yield indeterminate(f"{path}.domainName", "whether it is a bucket can't be known yet")


# Services that answer from the Internet, by what each says about it.

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
def public_access(resource: Resource, context: Context) -> Iterator[Finding]:
    """Closed by the switch itself, or by network rules that deny by default."""
    door = _DOORS.get(resource.kind, _PLAIN)
    value = resource.get(door.path)
    if scalar(value) in _CLOSED:
        return
    closers = [(resource.get(path), values) for path, values in door.closers]
    if any(_closes(*each) for each in closers):
        return
    if door.rule_sets:
        if context.stack is None:
            yield indeterminate(door.path, "its network rules may be a resource of their own")
            return
        if _has_closing_rules(resource, context, door.rule_sets):
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


def _has_closing_rules(resource: Resource, context: Context, kind: str) -> bool:
    found = children(context, resource, azure(kind), "namespaceName")
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
def open_rule_set(resource: Resource, context: Context) -> Iterator[Finding]:
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
def public_telemetry(resource: Resource, context: Context) -> Iterator[Finding]:
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
def disk_export(resource: Resource, context: Context) -> Iterator[Finding]:
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


# Addresses that databases and other services let in.

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


@rule(
    "zero-trust-azure-open-firewall-rule",
    "Firewall rules of databases don't let the Internet in",
    Severity.CRITICAL,
    frozenset(_OF_RANGES),
    PUBLIC_CONTROLS,
    "Delete the rule and connect through a private endpoint, or name the few addresses that need "
    "it.",
)
def open_firewall_rule(resource: Resource, context: Context) -> Iterator[Finding]:
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
    PUBLIC_CONTROLS,
    "Delete the rule from 0.0.0.0 to 0.0.0.0 and connect through private endpoints.",
)
def all_azure_services(resource: Resource, context: Context) -> Iterator[Finding]:
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
    PUBLIC_CONTROLS,
    "Name the ranges that need the service, or leave the list empty and use a private endpoint.",
)
def open_address_list(resource: Resource, context: Context) -> Iterator[Finding]:
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


RULES: tuple[Rule, ...] = (
    public_data_store,
    public_service,
    public_http_api,
    beanstalk_public,
    open_allow_list,
    cloudfront_origin,
    public_access,
    open_rule_set,
    public_telemetry,
    disk_export,
    open_firewall_rule,
    all_azure_services,
    open_address_list,
)
