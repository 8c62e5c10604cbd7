"""Records on AWS: traffic of networks, calls of the API, access to services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    get,
    holds_unknown,
    indeterminate,
    is_false,
    is_true,
    is_unknown,
    items,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.rules.zero_trust._demands import (
    Setting,
    ask,
    aws,
    check_of,
    given,
    one_of,
    token,
    true,
)

_LOGGING: Final = ("iso27001:A.8.15", "uae-ia:T3.6.2", "nist-800-207:7", "pdpl:9")
_FLOW_LOG: Final = token("ec2/flowLog")


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


def _not_false(value: object) -> bool:
    return not is_false(value)


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
    for setting in (
        Setting("enableLogging", _not_false, "it has to be on"),
        Setting("enableLogFileValidation", true, "it has to be on",
                "changed files can't be told by default"),
        Setting("isMultiRegionTrail", true, "calls of all regions have to be recorded",
                "a trail is of one region by default"),
        Setting("includeGlobalServiceEvents", _not_false, "calls to IAM belong to it"),
    ):  # fmt: skip
        yield from ask(resource.properties, setting)
    yield from _management(resource)


_DETECTION: Final[Mapping[str, tuple[Setting, ...]]] = {
    token("guardduty/detector"): (Setting("enable", _not_false, "it has to be on"),),
    token("guardduty/detectorFeature"): (Setting("status", one_of("ENABLED"),
                                                 "it has to be ENABLED"),),
    token("cfg/recorderStatus"): (Setting("isEnabled", true, "it has to be on"),),
    token("cfg/recorder"): (Setting("recordingGroup.allSupported",
                                    _not_false, "all types have to be recorded"),),
    token("cloudtrail/eventDataStore"): (
        Setting("terminationProtectionEnabled", _not_false, "it has to be on"),
    ),
}  # fmt: skip

detection: Final = Rule(
    id="zero-trust-aws-detection",
    pack="zero_trust",
    title="What watches the account is on",
    severity=Severity.MEDIUM,
    types=frozenset(_DETECTION),
    controls=("iso27001:A.8.16", "uae-ia:T3.6.2", "nist-800-207:5", "nist-800-207:7", "pdpl:9"),
    remediation="Switch it on, or remove it where another one watches.",
    check=check_of(_DETECTION),
)

_BALANCERS: Final = (
    "lb/loadBalancer", "alb/loadBalancer", "applicationloadbalancing/loadBalancer",
    "elasticloadbalancingv2/loadBalancer", "elb/loadBalancer", "elasticloadbalancing/loadBalancer",
)  # fmt: skip
_WANTED: Final = "access has to be recorded"
_OFF: Final = "access isn't recorded by default"
_ACCESS_LOGS: Final[Mapping[str, tuple[Setting, ...]]] = {
    token("apigateway/stage"): (
        Setting("accessLogSettings.destinationArn", given, _WANTED, _OFF),
    ),
    token("apigatewayv2/stage"): (
        Setting("accessLogSettings.destinationArn", given, _WANTED, _OFF),
    ),
    **{
        token(each): (
            Setting("logPublishingOptions", given, _WANTED, _OFF),
            Setting("logPublishingOptions.enabled", _not_false, _WANTED),
        )
        for each in ("opensearch/domain", "elasticsearch/domain")
    },
    token("mq/broker"): (Setting("logs.general", true, _WANTED, _OFF),),
    token("neptune/cluster"): (Setting("enableCloudwatchLogsExports", given, _WANTED, _OFF),),
    token("docdb/cluster"): (Setting("enabledCloudwatchLogsExports", given, _WANTED, _OFF),),
    token("rds/cluster"): (Setting("enabledCloudwatchLogsExports", given, _WANTED, _OFF),),
    token("appsync/graphQLApi"): (Setting("logConfig", given, _WANTED, _OFF),),
    token("cloudfront/distribution"): (Setting("loggingConfig.bucket", given, _WANTED, _OFF),),
}


@rule(
    "zero-trust-aws-access-log",
    "Access to services is recorded",
    Severity.LOW,
    {*_ACCESS_LOGS, *aws(*_BALANCERS)},
    _LOGGING,
    "Switch the service's access or audit log on, to a group or bucket in the country.",
)
def access_log(resource: Resource, view: View) -> Iterator[Finding]:
    """Logs of access, audit or queries that are off by default."""
    for setting in _ACCESS_LOGS.get(resource.kind, ()):
        yield from ask(resource.properties, setting)
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
