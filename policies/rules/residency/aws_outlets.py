"""Data that services of AWS send to hosts of others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.place import places_said
from falaj.policies.rules.residency import aws_targets
from falaj.policies.rules.residency.everywhere import CONTROLS

_CONTROLS: Final = (*CONTROLS, "iso27001:A.8.12")
#: URLs and hosts that get data, by type.
_OUTLETS: Final[dict[str, tuple[str, ...]]] = {
    "aws:cloudwatch/eventApiDestination:EventApiDestination": ("invocationEndpoint",),
    "aws:cloudwatch/eventConnection:EventConnection": (
        "authParameters.oauth.authorizationEndpoint",
    ),
    "aws:kinesis/firehoseDeliveryStream:FirehoseDeliveryStream": (
        "httpEndpointConfiguration.url", "splunkConfiguration.hecEndpoint",
        "snowflakeConfiguration.accountUrl", "elasticsearchConfiguration.clusterEndpoint",
        "opensearchConfiguration.clusterEndpoint",
        "opensearchserverlessConfiguration.collectionEndpoint",
        "redshiftConfiguration.clusterJdbcurl",
    ),
    "aws:transfer/connector:Connector": ("url",),
    "aws:appsync/dataSource:DataSource": ("httpConfig.endpoint",),
    "aws:iot/topicRule:TopicRule": ("https.url",),
    "aws:dms/endpoint:Endpoint": (
        "serverName", "kafkaSettings.broker", "elasticsearchSettings.endpointUri",
        "redisSettings.serverName",
    ),
    "aws:msk/replicator:Replicator": ("kafkaClusters.apacheKafkaCluster.bootstrapBrokerString",),
    "aws:sns/topicSubscription:TopicSubscription": ("endpoint",),
    "aws:apigateway/integration:Integration": ("uri",),
    "aws:apigatewayv2/integration:Integration": ("integrationUri",),
}  # fmt: skip


def _sends(resource: Resource) -> bool:
    """Whether the type's host gets data at all, rather than giving it or naming a header."""
    kind = resource.kind
    if kind.startswith("aws:dms/"):
        return text(resource.get("endpointType")).lower() != "source"
    if kind.startswith("aws:sns/"):
        return text(resource.get("protocol")).lower() in {"http", "https"}
    if kind.startswith("aws:apigateway"):
        # Through a link into one's own network the URL is but the host's header.
        return text(resource.get("connectionType")).upper() != "VPC_LINK" and text(
            resource.get("type") or resource.get("integrationType")
        ).upper() in {"HTTP", "HTTP_PROXY"}
    return True


@rule(
    "residency-aws-outlet",
    "Services send data to allowed hosts only",
    Severity.CRITICAL,
    frozenset(_OUTLETS),
    _CONTROLS,
    "Send data to a host of an allowed region or of one's own network, or add the host to the "
    "setting allowedHosts once it is sure that it is in the country.",
)
def outlet(resource: Resource, view: View) -> Iterator[Finding]:
    """Endpoints of webhooks, streams, connectors and proxies."""
    if _sends(resource):
        for path in _OUTLETS[resource.kind]:
            yield from aws_targets.host(resource, view, path, "the host that gets data")


#: Locations of DataSync outside of AWS.
_LOCATIONS: Final[dict[str, str]] = {
    "aws:datasync/locationAzureBlob:LocationAzureBlob": "containerUrl",
    "aws:datasync/locationObjectStorage:LocationObjectStorage": "serverHostname",
    "aws:datasync/locationSmb:LocationSmb": "serverHostname",
    "aws:datasync/nfsLocation:NfsLocation": "serverHostname",
    "aws:datasync/locationHdfs:LocationHdfs": "nameNodes.hostname",
}
_TASK: Final = "aws:datasync/task:Task"


@rule(
    "residency-aws-transfer-location",
    "Files are moved to allowed places only",
    Severity.CRITICAL,
    frozenset({*_LOCATIONS, _TASK}),
    _CONTROLS,
    "Move files to a location in an allowed region or in one's own network. A location elsewhere "
    "may be a task's source, in the same stack as the task.",
)
def transfer_location(resource: Resource, view: View) -> Iterator[Finding]:
    """Destinations of tasks, and servers that aren't only the source of one."""
    if resource.kind == _TASK:
        yield from aws_targets.arn(resource, view, "destinationLocationArn", "the destination")
        return
    found = list(aws_targets.host(resource, view, _LOCATIONS[resource.kind], "the server"))
    if found and view.stack is None:
        yield indeterminate("", "whether the location is a source needs the whole stack")
        return
    is_source = view.stack and view.stack.referring(resource, _TASK, "sourceLocationArn")
    is_target = view.stack and view.stack.referring(resource, _TASK, "destinationLocationArn")
    if not is_source or is_target:
        yield from found


#: Connectors of AppFlow that keep data in the region; others are services abroad.
_REGIONAL: Final = frozenset((
    "s3", "redshift", "eventbridge", "customerprofiles", "lookoutmetrics",
))  # fmt: skip


@rule(
    "residency-aws-flow-destination",
    "Flows of AppFlow end in services of the region",
    Severity.CRITICAL,
    {"aws:appflow/flow:Flow"},
    _CONTROLS,
    "Let the flow end in S3, Redshift or EventBridge of the region.",
)
def flow_destination(resource: Resource, view: View) -> Iterator[Finding]:
    """The kinds of connectors that flows end in."""
    for at, value in select(resource.properties, "destinationFlowConfigs.connectorType"):
        if is_unknown(value):
            yield indeterminate(at, "the service that gets data can't be known")
        elif text(value) and text(value).lower() not in _REGIONAL:
            yield violation(
                at, f"data goes to {text(value)}, a service abroad; {places_said(view)}"
            )


#: Public mail, whose servers are abroad.
_WEBMAIL: Final = frozenset((
    "gmail.com", "googlemail.com", "outlook.com", "hotmail.com", "live.com", "yahoo.com",
    "icloud.com", "proton.me", "protonmail.com", "gmx.com", "mail.ru", "qq.com", "zoho.com",
))  # fmt: skip


#: Chats, whose services keep what is said abroad.
_CHATS: Final[dict[str, str]] = {
    "aws:chatbot/slackChannelConfiguration:SlackChannelConfiguration": "Slack",
    "aws:chatbot/teamsChannelConfiguration:TeamsChannelConfiguration": "Microsoft Teams",
}


@rule(
    "residency-aws-notification",
    "Notifications aren't sent to mail services, chats or phones abroad",
    Severity.MEDIUM,
    frozenset(_CHATS) | {"aws:sns/topicSubscription:TopicSubscription"},
    _CONTROLS,
    "Send notifications to an address of one's own mail domain, or to a number of the country "
    "(+971).",
)
def notification(resource: Resource, view: View) -> Iterator[Finding]:
    """Mail, chats and text messages."""
    if (chat := _CHATS.get(resource.kind)) and resource.custom:
        yield violation("", f"messages go to {chat}, which keeps them abroad")
    protocol = text(resource.get("protocol")).lower()
    value = resource.get("endpoint")
    if protocol not in {"email", "email-json", "sms"}:
        return
    if is_unknown(value):
        yield indeterminate("endpoint", "who is notified can't be known")
        return
    domain = text(value).rpartition("@")[2].lower()
    if protocol.startswith("email") and domain in _WEBMAIL:
        yield violation("endpoint", f"messages go to {domain}, which keeps them abroad")
    number = re.sub(r"[^\d+]", "", text(value))
    if protocol == "sms" and number and not re.match(r"(\+|00)?971", number):
        yield violation("endpoint", "messages go to a number outside of the country (+971)")


RULES: tuple[Rule, ...] = (outlet, transfer_location, flow_destination, notification)
