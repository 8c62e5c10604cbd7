"""Endpoints outside of the cloud that data is sent to or fetched from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.components.catalogue.region_names import AZURE_LOCATIONS
from falaj.policies.model import (
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_path,
    indeterminate,
    is_unknown,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.hosts import foreign_service, host_of, may_talk_to
from falaj.policies.reading.place import format_places
from falaj.policies.reading.types import azure
from falaj.policies.reading.walk import walk
from falaj.policies.rules.residency import destinations
from falaj.policies.rules.residency.azure_places import (
    allowed,
    azure_place_of,
    refers_to,
    where_allowed,
)
from falaj.policies.rules.residency.destinations import AZURE_CONTROLS, judge_target
from falaj.policies.rules.residency.everywhere import CONTROLS
from falaj.policies.rules.residency.streams import EVENT_SUBSCRIPTIONS

# Data that services of AWS send to hosts of others.

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
def outlet(resource: Resource, context: Context) -> Iterator[Finding]:
    """Endpoints of webhooks, streams, connectors and proxies."""
    if _sends(resource):
        for path in _OUTLETS[resource.kind]:
            yield from destinations.host(resource, context, path, "the host that gets data")


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
def transfer_location(resource: Resource, context: Context) -> Iterator[Finding]:
    """Destinations of tasks, and servers that aren't only the source of one."""
    if resource.kind == _TASK:
        yield from destinations.arn(resource, context, "destinationLocationArn", "the destination")
        return
    found = list(destinations.host(resource, context, _LOCATIONS[resource.kind], "the server"))
    if found and context.stack is None:
        yield indeterminate("", "whether the location is a source needs the whole stack")
        return
    is_source = context.stack and context.stack.referring(resource, _TASK, "sourceLocationArn")
    is_target = context.stack and context.stack.referring(
        resource, _TASK, "destinationLocationArn"
    )
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
def flow_destination(resource: Resource, context: Context) -> Iterator[Finding]:
    """The kinds of connectors that flows end in."""
    for at, value in select(resource.properties, "destinationFlowConfigs.connectorType"):
        if is_unknown(value):
            yield indeterminate(at, "the service that gets data can't be known")
        elif text(value) and text(value).lower() not in _REGIONAL:
            yield violation(
                at, f"data goes to {text(value)}, a service abroad; {format_places(context)}"
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
def notification(resource: Resource, context: Context) -> Iterator[Finding]:
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


# Hosts that Azure's services call: webhooks, exporters of telemetry, and hosts of regions.

#: Properties that hold the address of somebody who is told what happens.
CALLED: Final[dict[str, tuple[str, ...]]] = {
    "monitor:ActionGroup": (
        "webhookReceivers.serviceUri",
        "azureFunctionReceivers.httpTriggerUrl",
        "logicAppReceivers.callbackUrl",
    ),
    "monitor:TenantActionGroup": ("webhookReceivers.serviceUri",),
    "containerregistry:Webhook": ("serviceUri",),
    **dict.fromkeys(
        EVENT_SUBSCRIPTIONS,
        (
            "destination.endpointUrl",
            "deliveryWithResourceIdentity.destination.endpointUrl",
            "deliveryConfiguration.push.destination.endpointUrl",
            "deliveryConfiguration.push.deliveryWithResourceIdentity.destination.endpointUrl",
        ),
    ),
    "app:ManagedEnvironment": (
        "openTelemetryConfiguration.destinationsConfiguration.dataDogConfiguration.site",
        "openTelemetryConfiguration.destinationsConfiguration.otlpConfigurations.endpoint",
    ),
    "cognitiveservices:RaiExternalSafetyProvider": ("properties.url",),
    "cognitiveservices:AccountConnection": ("properties.target",),
    "cognitiveservices:ProjectConnection": ("properties.target",),
    "machinelearningservices:WorkspaceConnection": ("properties.target",),
}
_BY_KIND: Final = {kind: paths for name, paths in CALLED.items() for kind in azure(name)}


@rule(
    "residency-azure-webhook",
    "Services tell only hosts in the country what happens",
    Severity.HIGH,
    frozenset(_BY_KIND),
    AZURE_CONTROLS,
    "Deliver to a function, logic app, queue or event hub in the country, or to a host that the "
    "setting allowedHosts names.",
)
def webhook(resource: Resource, context: Context) -> Iterator[Finding]:
    """Addresses that are called with what happened: host and place, never the whole address."""
    for path in _BY_KIND.get(resource.kind, ()):
        for where, value in select(resource.properties, path):
            yield from _judge(resource, where, value, context)


def _judge(resource: Resource, path: str, value: Any, context: Context) -> Iterator[Finding]:
    if text(value).lower().startswith("/subscriptions/"):
        yield from judge_target(resource, path, value, context, "the service that it calls")
        return
    host = host_of(value)
    if not is_unknown(value) and (not host or may_talk_to(host, context.settings)):
        return
    if named := _foreign(host, context):
        yield violation(path, f"it calls {named}; {where_allowed(context)}")
        return
    places = [azure_place_of(each, context) for each in refers_to(resource, path, value, context)]
    abroad = next((each for each in places if each and each not in allowed(context)), None)
    if abroad:
        yield violation(path, f"it calls a resource in {abroad}; {where_allowed(context)}")
    elif places and None not in places:
        return
    elif is_unknown(value):
        yield indeterminate(path, "the host that is called can't be seen")
    elif _AZURE_HOST.search(host):
        yield indeterminate(path, f"where {host} is can't be seen; {where_allowed(context)}")
    else:
        yield violation(path, f"{host} is neither in the country nor one of allowedHosts")


# Names within Azure's own domains, in URLs and in the middle of connection strings.
_AZURE_HOST: Final = re.compile(
    r"(?<![\w.-])((?:[a-z0-9-]+\.)+)(?:azure\.(?:com|net|cn|us)|windows\.net|azurecr\.io"
    r"|azmk8s\.io|azurecontainer\.io|azurecontainerapps\.io|azurewebsites\.net|azure-api\.net"
    r"|azurestaticapps\.net|microsoft\.com|azuredatabricks\.net|azurehdinsight\.net)(?![\w-])",
    re.IGNORECASE,
)
_NUMBERED: Final = re.compile(r"-\d+$|-\w{2}\d?$")


def _regions_in(value: str) -> Iterator[str]:
    """The locations that hosts of Azure within a text name in one of their labels."""
    for found in _AZURE_HOST.finditer(value):
        for label in found[1].lower().split("."):
            name = label if label in AZURE_LOCATIONS else _NUMBERED.sub("", label)
            if name in AZURE_LOCATIONS:
                yield name


def _foreign(host: str, context: Context) -> str:
    """What is abroad about a host; empty where nothing is known to be."""
    if service := foreign_service(host):
        return service
    abroad = [each for each in _regions_in(host) if each not in allowed(context)]
    return f"a service in {abroad[0]}" if abroad else ""


@rule(
    "residency-azure-foreign-host",
    "No resource of Azure names a host abroad",
    Severity.CRITICAL,
    {"azure-native:*"},
    AZURE_CONTROLS,
    "Use the endpoint of the same service in the country, whose host names no location or one of "
    "the country.",
)
def foreign_host(resource: Resource, context: Context) -> Iterator[Finding]:
    """Hosts of regions abroad in any text, and addresses of services known to keep data there."""
    for leaf in walk(resource):
        value = text(leaf.value)
        if "." not in value or ".".join(leaf.keys) in _BY_KIND.get(resource.kind, ()):
            continue
        abroad = next((each for each in _regions_in(value) if each not in allowed(context)), "")
        service = foreign_service(host_of(value)) if _calls(leaf.key) else ""
        if abroad or service:
            named = f"a host of {abroad}" if abroad else service
            yield violation(format_path(leaf.path), f"it names {named}; {where_allowed(context)}")


def _calls(key: str) -> bool:
    """Whether a key says that what it holds is called, rather than shown or read about."""
    given = key.lower()
    return given.endswith(("endpoint", "url", "uri", "host", "server", "site", "value", "target"))


RULES: tuple[Rule, ...] = (
    outlet,
    transfer_location,
    flow_destination,
    notification,
    webhook,
    foreign_host,
)
