"""Records of traffic, of calls and of access, and what watches them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Requirement,
    Requirements,
    Resource,
    Rule,
    Severity,
    check_of,
    get,
    holds_unknown,
    indeterminate,
    is_false,
    is_true,
    is_unknown,
    items,
    number,
    requirement_rule,
    rule,
    scalar,
    select,
    text,
    unmet,
    violation,
)
from falaj.policies.reading.azure_children import children, entries
from falaj.policies.reading.types import AWS_BALANCERS, aws, aws_type, azure
from falaj.policies.rules.zero_trust import audit_logs
from falaj.policies.rules.zero_trust.audit_logs import OFF, WANTED
from falaj.wire.documents import is_mapping

# Records on AWS: traffic of networks, calls of the API, access to services.

_LOGGING: Final = ("iso27001:A.8.15", "uae-ia:T3.6.2", "nist-800-207:7", "pdpl:9")
_AWS_FLOW_LOG: Final = aws_type("ec2/flowLog")


@rule(
    "zero-trust-aws-flow-log",
    "Every network records its traffic",
    Severity.MEDIUM,
    aws("ec2/vpc", "ec2/defaultVpc", "ec2/flowLog"),
    ("cis-aws:4.7", *_LOGGING),
    "Declare aws.ec2.FlowLog for the VPC with trafficType ALL (or REJECT at least).",
)
def flow_log(resource: Resource, context: Context) -> Iterator[Finding]:
    """Networks without a record, and records of accepted traffic alone."""
    if resource.kind == _AWS_FLOW_LOG:
        for path, value in select(resource.properties, "trafficType"):
            if is_unknown(value):
                yield indeterminate(path, "which traffic is recorded can't be known yet")
            elif text(value).upper() == "ACCEPT":
                yield violation(path, "refused traffic isn't recorded; it has to be ALL")
    elif context.stack is None:
        yield indeterminate("", "whether its traffic is recorded, the whole stack says")
    elif not context.stack.referring(resource, _AWS_FLOW_LOG, "vpcId"):
        yield violation("", "the network has no flow log; its traffic has to be recorded")


def _management(resource: Resource) -> Iterator[Finding]:
    """Findings where a trail leaves out calls that manage the account."""
    selectors = resource.get("advancedEventSelectors")
    if is_unknown(selectors) or is_unknown(resource.get("eventSelectors")):
        yield indeterminate("eventSelectors", "which calls are recorded can't be known yet")
        return
    if items(selectors):
        if not any(map(_selects_management, items(selectors))):
            reason = "calls that manage the account aren't recorded"
            hides = holds_unknown(selectors)
            yield (indeterminate if hides else violation)("advancedEventSelectors", reason)
        return
    found = [each for each in items(resource.get("eventSelectors")) if is_mapping(each)]
    whole = [
        each
        for each in found
        if not is_false(each.get("includeManagementEvents"))
        and text(each.get("readWriteType")).lower() in {"", "all"}
        and not is_unknown(each.get("includeManagementEvents"))
        and not is_unknown(each.get("readWriteType"))
    ]
    if found and not whole:
        hides = holds_unknown(found)
        reason = "not all calls that manage the account are recorded (All)"
        yield (indeterminate if hides else violation)("eventSelectors", reason)


def _selects_management(selector: object) -> bool:
    fields = [
        (text(get(each, "field")), [text(one) for one in items(get(each, "equals"))])
        for each in items(get(selector, "fieldSelectors"))
        if is_mapping(each)
    ]
    names = {name for name, _ in fields}
    return "readOnly" not in names and any(
        name == "eventCategory" and "Management" in values for name, values in fields
    )


_TRAIL: Final = (
    Requirement("enableLogging", denied=("false",), hint="it has to be on"),
    Requirement("enableLogFileValidation", ("true",), hint="it has to be on",
                absent="changed files can't be told by default"),
    Requirement("isMultiRegionTrail", ("true",), hint="calls of all regions have to be recorded",
                absent="a trail is of one region by default"),
    Requirement("includeGlobalServiceEvents", denied=("false",), hint="calls to IAM belong to it"),
)  # fmt: skip


@rule(
    "zero-trust-aws-trail",
    "Trails record every call, in all regions, and can be proved",
    Severity.HIGH,
    aws("cloudtrail/trail"),
    ("cis-aws:4.1", "cis-aws:4.2", "uae-ia:T3.6.3", *_LOGGING),
    "Set enableLogging, enableLogFileValidation, isMultiRegionTrail and "
    "includeGlobalServiceEvents to true, and record all management events. A trail of all "
    "regions collects inwards; its bucket stays in the country.",
)
def trail(resource: Resource, context: Context) -> Iterator[Finding]:
    """Trails that are off, can be changed unseen, or leave something out."""
    yield from unmet(resource, _TRAIL)
    yield from _management(resource)


_DETECTION: Final[Requirements] = {
    aws("guardduty/detector"): (Requirement("enable", denied=("false",), hint="it has to be on"),),
    aws("guardduty/detectorFeature"): (
        Requirement("status", allowed=("ENABLED",), hint="it has to be ENABLED"),
    ),
    aws("cfg/recorderStatus"): (
        Requirement("isEnabled", allowed=("true",), hint="it has to be on"),
    ),
    aws("cfg/recorder"): (
        Requirement(
            "recordingGroup.allSupported", denied=("false",), hint="all types have to be recorded"
        ),
    ),
    aws("cloudtrail/eventDataStore"): (
        Requirement("terminationProtectionEnabled", denied=("false",), hint="it has to be on"),
    ),
}

detection: Final = requirement_rule(
    "zero-trust-aws-detection",
    "What watches the account is on",
    Severity.MEDIUM,
    _DETECTION,
    ("iso27001:A.8.16", "uae-ia:T3.6.2", "nist-800-207:5", "nist-800-207:7", "pdpl:9"),
    "Switch it on, or remove it where another one watches.",
)

_ACCESS_LOGS: Final[Requirements] = {
    aws("apigateway/stage"): (
        Requirement("accessLogSettings.destinationArn", absent=OFF, hint=WANTED),
    ),
    aws("apigatewayv2/stage"): (
        Requirement("accessLogSettings.destinationArn", absent=OFF, hint=WANTED),
    ),
    aws("opensearch/domain", "elasticsearch/domain"): (
        Requirement("logPublishingOptions", absent=OFF, hint=WANTED),
        Requirement("logPublishingOptions.enabled", denied=("false",), hint=WANTED),
    ),
    aws("mq/broker"): (Requirement("logs.general", allowed=("true",), absent=OFF, hint=WANTED),),
    aws("cloudfront/distribution"): (
        Requirement("loggingConfig.bucket", absent=OFF, hint=WANTED),
    ),
    **audit_logs.REQUIREMENTS,
}


_ACCESS_LOGGED: Final = check_of(_ACCESS_LOGS)


@rule(
    "zero-trust-aws-access-log",
    "Access to services is recorded",
    Severity.LOW,
    aws(*AWS_BALANCERS).union(audit_logs.TYPES, *_ACCESS_LOGS),
    _LOGGING,
    "Switch the service's access or audit log on, to a group or bucket in the country.",
)
def access_log(resource: Resource, context: Context) -> Iterator[Finding]:
    """Logs of access, audit or queries that are off by default."""
    yield from _ACCESS_LOGGED(resource, context)
    yield from audit_logs.unrecorded(resource, context)
    if resource.kind not in aws(*AWS_BALANCERS):
        return
    # Network load balancers record TLS listeners only, gateway ones nothing:
    # https://docs.aws.amazon.com/elasticloadbalancing/latest/network/load-balancer-access-logs.html
    if text(resource.get("loadBalancerType")).lower() in {"network", "gateway"}:
        return
    path = "accessLogs.enabled"
    value = resource.get(path)
    classic = "elb/" in resource.kind or "elasticloadbalancing/" in resource.kind
    if is_unknown(value):
        yield indeterminate(path, f"its value can't be known yet; {WANTED}")
    elif is_false(value) or not (
        is_true(value) or (classic and resource.get("accessLogs") is not ABSENT)
    ):
        yield violation(path, f"access isn't recorded; {WANTED}")


# What is recorded on Azure: operations, connections, and what threatens.

_CONTROLS: Final = ("uae-ia:T3.6.2", "iso27001:A.8.15", "iso27001:A.8.16", "nist-800-207:7",
                    "pdpl:9")  # fmt: skip
_SETTING: Final = azure("monitor:DiagnosticSetting")
_ALL: Final = frozenset(("audit", "alllogs"))
#: What must be recorded of each type: categories of which one will do; none means any category.
#: https://learn.microsoft.com/azure/azure-monitor/reference/logs-index
_RECORDED: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(azure("keyvault:Vault", "keyvault:ManagedHsm"), ("auditevent",)),
    **dict.fromkeys(
        azure("containerservice:ManagedCluster"), ("kube-audit", "kube-audit-admin")
    ),
    **dict.fromkeys(
        azure(
            "network:AzureFirewall", "network:ApplicationGateway", "network:BastionHost",
            "network:VirtualNetworkGateway", "containerregistry:Registry",
            "apimanagement:ApiManagementService",
        ),
        (),
    ),
}  # fmt: skip


@rule(
    "zero-trust-azure-diagnostics",
    "Who did what with keys, clusters, registries and gateways is recorded",
    Severity.MEDIUM,
    frozenset(_RECORDED),
    (*_CONTROLS, "cis-azure:6.1.1.4", "cis-aks:2.1.1"),
    "Add a monitor.DiagnosticSetting for the resource, with its audit logs and a destination in "
    "the country.",
)
def diagnostics(resource: Resource, context: Context) -> Iterator[Finding]:
    """Nothing is recorded of a resource until a diagnostic setting says so."""
    if context.stack is None:
        yield indeterminate("", "whether its operations are recorded isn't known yet")
        return
    wanted = _RECORDED.get(resource.kind, ())
    found = children(context, resource, _SETTING, "resourceUri")
    if any(_records(each, wanted) for each in found):
        return
    if any(is_unknown(each.get("logs")) for each in found):
        yield indeterminate("", "which of its operations are recorded can't be seen")
        return
    what = f"no setting records {' or '.join(wanted)}" if wanted else "no setting records its logs"
    yield violation("", f"{what}; the default is to record nothing")


def _records(setting: Resource, wanted: tuple[str, ...]) -> bool:
    for log in items(setting.get("logs")):
        if is_false(get(log, "enabled")):
            continue
        if scalar(get(log, "categoryGroup")) in _ALL:
            return True
        category = scalar(get(log, "category"))
        if category in wanted or (not wanted and category):
            return True
    return False


_DESTINATIONS: Final = (
    "eventHubAuthorizationRuleId", "marketplacePartnerId", "serviceBusRuleId", "storageAccountId",
    "workspaceId",
)  # fmt: skip
_SUBSCRIPTION: Final = azure("monitor:SubscriptionDiagnosticSetting")


@rule(
    "zero-trust-azure-empty-diagnostics",
    "Settings that record have something to record, and a place for it",
    Severity.MEDIUM,
    _SETTING | _SUBSCRIPTION,
    _CONTROLS,
    "Switch on the logs and name a workspace or storage account.",
)
def empty_diagnostics(resource: Resource, context: Context) -> Iterator[Finding]:
    """A setting may be of metrics alone, but not of logs that are all switched off."""
    logs = resource.get("logs")
    given = items(logs)
    if is_unknown(logs):
        yield indeterminate("logs", "which logs are recorded can't be seen")
    elif given and all(is_false(get(each, "enabled")) for each in given):
        yield violation("logs", "every log is switched off")
    elif given and not any(is_true(get(each, "enabled")) for each in given):
        yield indeterminate("logs", "whether any log is switched on can't be seen")
    elif not given and not items(resource.get("metrics")):
        yield violation("logs", "nothing is recorded")
    if not any(items(resource.get(each)) for each in _DESTINATIONS):
        yield violation("workspaceId", "no destination is given")


#: https://learn.microsoft.com/azure/azure-monitor/platform/activity-log-schema#categories
_ACTIVITIES: Final = ("administrative", "alert", "policy", "security")


@rule(
    "zero-trust-azure-activity-log",
    "The subscription's record holds who changed, who decided and what was found",
    Severity.MEDIUM,
    _SUBSCRIPTION,
    _CONTROLS,
    "Switch on the categories Administrative, Alert, Policy and Security.",
)
def activity_log(resource: Resource, context: Context) -> Iterator[Finding]:
    """Categories that are switched off, or not named."""
    logs = resource.get("logs")
    if is_unknown(logs) or any(is_unknown(each) for each in items(logs)):
        yield indeterminate("logs", "which categories are recorded can't be seen")
        return
    on: set[str] = set()
    for _, each in entries(logs, "logs"):
        enabled, name = get(each, "enabled"), get(each, "category")
        if is_unknown(enabled) or is_unknown(name):
            yield indeterminate("logs", "which categories are recorded can't be seen")
            return
        if is_true(enabled):
            on |= {scalar(name), scalar(get(each, "categoryGroup"))}
    missing = [each for each in _ACTIVITIES if each not in on]
    if missing and not on & _ALL:
        yield violation("logs", f"not recorded: {', '.join(missing)}")


_NETWORK: Final = azure("network:VirtualNetwork")
_GROUP: Final = azure("network:NetworkSecurityGroup")
_AZURE_FLOW_LOG: Final = azure("network:FlowLog")


@rule(
    "zero-trust-azure-flow-logs",
    "Connections in networks are recorded",
    Severity.MEDIUM,
    _NETWORK,
    _CONTROLS,
    "Add a network.FlowLog with the network's id as its target.",
)
def flow_logs(resource: Resource, context: Context) -> Iterator[Finding]:
    """Of the network, of a part of it, or of its security groups, which is the older way:
    https://learn.microsoft.com/azure/network-watcher/vnet-flow-logs-overview."""
    if context.stack is None:
        yield indeterminate("", "whether its connections are recorded isn't known yet")
        return
    logs = [
        each
        for each in context.stack.of_kind(*sorted(_AZURE_FLOW_LOG))
        if not is_false(each.get("enabled"))
    ]
    for log in logs:
        target = text(log.get("targetResourceId")).lower()
        if resource.id and (target + "/").startswith(resource.id.lower() + "/"):
            return
        made_from = context.referred(log, "targetResourceId")
        if any(each.urn == resource.urn or each.kind in _GROUP for each in made_from):
            return
    yield violation("", "no flow log records its connections, which is the default")


@rule(
    "zero-trust-azure-flow-log-off",
    "Flow logs are on, and kept for 90 days",
    Severity.MEDIUM,
    _AZURE_FLOW_LOG,
    _CONTROLS,
    "Set enabled to true, and retentionPolicy.days to 90 or more, or to 0 for ever.",
)
def flow_log_off(resource: Resource, context: Context) -> Iterator[Finding]:
    """Without a policy the storage account's own rules decide how long they are kept."""
    enabled = resource.get("enabled")
    if is_false(enabled):
        yield violation("enabled", "the flow log is switched off")
    elif is_unknown(enabled):
        yield indeterminate("enabled", "whether the flow log is on can't be seen")
    days = resource.get("retentionPolicy.days")
    if not is_true(resource.get("retentionPolicy.enabled")):
        return
    if is_unknown(days):
        yield indeterminate("retentionPolicy.days", "how long they are kept can't be seen")
    elif 0 < (number(days) or 0) < 90:
        yield violation("retentionPolicy.days", f"it is {number(days):g} days; at least 90")


_defender = requirement_rule(
    "zero-trust-azure-defender",
    "Plans of Defender that are declared are on",
    Severity.MEDIUM,
    {azure("security:Pricing"): (Requirement("pricingTier", ("Standard",), "Free"),)},
    ("uae-ia:T3.6.1", "iso27001:A.8.16", "nist-800-207:5"),
    "Set pricingTier to Standard.",
)


# What Azure's databases record, and who hears of it.

_SERVER: Final = azure("sql:Server")
_AUDITING: Final = azure("sql:ExtendedServerBlobAuditingPolicy", "sql:ServerBlobAuditingPolicy")
_OF_DATABASES: Final = azure(
    "sql:DatabaseBlobAuditingPolicy", "sql:ExtendedDatabaseBlobAuditingPolicy"
)
#: What CIS' benchmark asks for.
LEAST_DAYS: Final = 90


@rule(
    "zero-trust-azure-sql-auditing",
    "SQL servers record who asked what",
    Severity.MEDIUM,
    _SERVER,
    _CONTROLS,
    "Add a sql.ExtendedServerBlobAuditingPolicy with state Enabled for the server.",
)
def sql_auditing(resource: Resource, context: Context) -> Iterator[Finding]:
    """Off by default: https://learn.microsoft.com/azure/azure-sql/database/auditing-overview."""
    if context.stack is None:
        yield indeterminate("", "whether the server is audited isn't known yet")
        return
    found = children(context, resource, _AUDITING, "serverName")
    if not found:
        yield violation("", "no policy audits the server, which is the default")


_policies = requirement_rule(
    "zero-trust-azure-sql-auditing-off",
    "Policies that audit SQL are on",
    Severity.MEDIUM,
    {
        _AUDITING | _OF_DATABASES: (Requirement("state", ("Enabled",), "Disabled"),),
        azure("sql:ServerSecurityAlertPolicy", "sql:DatabaseSecurityAlertPolicy"): (
            Requirement("state", ("Enabled",), "Disabled"),
        ),
    },
    _CONTROLS,
    "Set state to Enabled.",
)


@rule(
    "zero-trust-azure-sql-auditing-days",
    "Records of SQL are kept for 90 days",
    Severity.LOW,
    _AUDITING | _OF_DATABASES,
    _CONTROLS,
    "Set retentionDays to 90 or more, or to 0 for ever.",
)
def sql_auditing_days(resource: Resource, context: Context) -> Iterator[Finding]:
    """0, which is the default, keeps them until somebody deletes them."""
    days = resource.get("retentionDays")
    if is_unknown(days):
        yield indeterminate("retentionDays", "how long records are kept can't be seen")
    elif 0 < (number(days) or 0) < LEAST_DAYS:
        yield violation("retentionDays", f"it is {number(days):g} days; at least {LEAST_DAYS}")


_CONFIGURATION: Final = azure(
    "dbforpostgresql:Configuration", "dbforpostgresql:SingleServerConfiguration",
    "dbformysql:Configuration", "dbformysql:SingleServerConfiguration",
)  # fmt: skip
#: Parameters that record, or slow down who guesses passwords.
_ON: Final = frozenset(
    (
        "audit_log_enabled", "connection_throttle.enable", "connection_throttling",
        "log_checkpoints", "log_connections", "log_disconnections", "log_duration",
    )
)  # fmt: skip


@rule(
    "zero-trust-azure-database-logs-off",
    "Databases record connections",
    Severity.LOW,
    _CONFIGURATION,
    _CONTROLS,
    "Set the parameter to on.",
)
def database_logs_off(resource: Resource, context: Context) -> Iterator[Finding]:
    """Parameters of PostgreSQL and MySQL that are switched off."""
    value = resource.get("value")
    name = scalar(resource.get("configurationName")) or resource.name.lower()
    if name not in _ON:
        return
    if is_unknown(value):
        yield indeterminate("value", f"whether {name} is on can't be seen")
    elif scalar(value) in {"off", "false", "0"}:
        yield violation("value", f"{name} is switched off")


_CONTACT: Final = azure("security:SecurityContact")


@rule(
    "zero-trust-azure-security-contact",
    "Somebody hears of it when Defender finds something",
    Severity.LOW,
    _CONTACT,
    ("uae-ia:T3.6.1", "iso27001:A.8.16", "nist-800-207:7", "pdpl:9"),
    "Switch notifications on, with people's addresses.",
)
def security_contact(resource: Resource, context: Context) -> Iterator[Finding]:
    """Switches of today's contacts and of older ones, which are objects or texts."""
    switches = [
        (path, resource.get(f"{path}.state") if is_mapping(value) else value)
        for path in ("isEnabled", "notificationsByRole", "alertNotifications", "alertsToAdmins")
        if (value := resource.get(path)) is not ABSENT
    ]
    for path, value in switches:
        if is_unknown(value):
            yield indeterminate(path, "whether anybody is told can't be seen")
        elif scalar(value) in {"false", "off"}:
            yield violation(path, f"it is {scalar(value)}, so that nobody is told")


RULES: tuple[Rule, ...] = (
    flow_log,
    trail,
    detection,
    access_log,
    diagnostics,
    empty_diagnostics,
    activity_log,
    flow_logs,
    flow_log_off,
    _defender,
    sql_auditing,
    _policies,
    sql_auditing_days,
    database_logs_off,
    security_contact,
)
