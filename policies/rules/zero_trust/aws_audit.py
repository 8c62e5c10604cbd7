"""Records on AWS: traffic of networks, calls of the API, access to services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Requirement,
    Requirements,
    Resource,
    Rule,
    Severity,
    View,
    check_of,
    get,
    holds_unknown,
    indeterminate,
    is_false,
    is_true,
    is_unknown,
    items,
    requirement_rule,
    rule,
    select,
    text,
    unmet,
    violation,
)
from falaj.policies.reading.types import aws, aws_type

_LOGGING: Final = ("iso27001:A.8.15", "uae-ia:T3.6.2", "nist-800-207:7", "pdpl:9")
_FLOW_LOG: Final = aws_type("ec2/flowLog")


@rule(
    "zero-trust-aws-flow-log",
    "Every network records its traffic",
    Severity.MEDIUM,
    aws("ec2/vpc", "ec2/defaultVpc", "ec2/flowLog"),
    ("cis-aws:4.7", *_LOGGING),
    "Declare aws.ec2.FlowLog for the VPC with trafficType ALL (or REJECT at least).",
)
def flow_log(resource: Resource, view: View) -> Iterator[Finding]:
    """Networks without a record, and records of accepted traffic alone."""
    if resource.kind == _FLOW_LOG:
        for path, value in select(resource.properties, "trafficType"):
            if is_unknown(value):
                yield indeterminate(path, "which traffic is recorded can't be known yet")
            elif text(value).upper() == "ACCEPT":
                yield violation(path, "refused traffic isn't recorded; it has to be ALL")
    elif view.stack is None:
        yield indeterminate("", "whether its traffic is recorded, the whole stack says")
    elif not view.stack.referring(resource, _FLOW_LOG, "vpcId"):
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
    found = [each for each in items(resource.get("eventSelectors")) if isinstance(each, Mapping)]
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
        if isinstance(each, Mapping)
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
def trail(resource: Resource, view: View) -> Iterator[Finding]:
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

_BALANCERS: Final = (
    "lb/loadBalancer", "alb/loadBalancer", "applicationloadbalancing/loadBalancer",
    "elasticloadbalancingv2/loadBalancer", "elb/loadBalancer", "elasticloadbalancing/loadBalancer",
)  # fmt: skip
_WANTED: Final = "access has to be recorded"
_OFF: Final = "access isn't recorded by default"
_ACCESS_LOGS: Final[Requirements] = {
    aws("apigateway/stage"): (
        Requirement("accessLogSettings.destinationArn", absent=_OFF, hint=_WANTED),
    ),
    aws("apigatewayv2/stage"): (
        Requirement("accessLogSettings.destinationArn", absent=_OFF, hint=_WANTED),
    ),
    aws("opensearch/domain", "elasticsearch/domain"): (
        Requirement("logPublishingOptions", absent=_OFF, hint=_WANTED),
        Requirement("logPublishingOptions.enabled", denied=("false",), hint=_WANTED),
    ),
    aws("mq/broker"): (Requirement("logs.general", allowed=("true",), absent=_OFF, hint=_WANTED),),
    aws("neptune/cluster"): (
        Requirement("enableCloudwatchLogsExports", absent=_OFF, hint=_WANTED),
    ),
    aws("docdb/cluster"): (
        Requirement("enabledCloudwatchLogsExports", absent=_OFF, hint=_WANTED),
    ),
    aws("rds/cluster"): (Requirement("enabledCloudwatchLogsExports", absent=_OFF, hint=_WANTED),),
    aws("appsync/graphQLApi"): (Requirement("logConfig", absent=_OFF, hint=_WANTED),),
    aws("cloudfront/distribution"): (
        Requirement("loggingConfig.bucket", absent=_OFF, hint=_WANTED),
    ),
}


_ACCESS_LOGGED: Final = check_of(_ACCESS_LOGS)


@rule(
    "zero-trust-aws-access-log",
    "Access to services is recorded",
    Severity.LOW,
    aws(*_BALANCERS).union(*_ACCESS_LOGS),
    _LOGGING,
    "Switch the service's access or audit log on, to a group or bucket in the country.",
)
def access_log(resource: Resource, view: View) -> Iterator[Finding]:
    """Logs of access, audit or queries that are off by default."""
    yield from _ACCESS_LOGGED(resource, view)
    if resource.kind not in aws(*_BALANCERS):
        return
    # Network load balancers record TLS listeners only, gateway ones nothing:
    # https://docs.aws.amazon.com/elasticloadbalancing/latest/network/load-balancer-access-logs.html
    if text(resource.get("loadBalancerType")).lower() in {"network", "gateway"}:
        return
    path = "accessLogs.enabled"
    value = resource.get(path)
    classic = "elb/" in resource.kind or "elasticloadbalancing/" in resource.kind
    if is_unknown(value):
        yield indeterminate(path, f"its value can't be known yet; {_WANTED}")
    elif is_false(value) or not (
        is_true(value) or (classic and resource.get("accessLogs") is not ABSENT)
    ):
        yield violation(path, f"access isn't recorded; {_WANTED}")


RULES: tuple[Rule, ...] = (flow_log, trail, detection, access_log)
