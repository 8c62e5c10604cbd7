"""Events, logs and metrics that are sent on: to other regions, buses, streams and buckets."""

from __future__ import annotations

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

#: ARNs that get what happened, by type. A bare name is one of the same region.
_TARGETS: Final[dict[str, tuple[str, ...]]] = {
    "aws:cloudwatch/eventTarget:EventTarget": ("arn", "deadLetterConfig.arn"),
    "aws:scheduler/schedule:Schedule": ("target.arn", "target.deadLetterConfig.arn"),
    "aws:pipes/pipe:Pipe": ("target", "enrichment"),
    "aws:lambda/functionEventInvokeConfig:FunctionEventInvokeConfig": (
        "destinationConfig.onFailure.destination", "destinationConfig.onSuccess.destination",
    ),
    "aws:lambda/eventSourceMapping:EventSourceMapping": (
        "destinationConfig.onFailure.destinationArn",
    ),
    "aws:lambda/function:Function": ("deadLetterConfig.targetArn",),
    "aws:ses/eventDestination:EventDestination": (
        "kinesisDestination.streamArn", "snsDestination.topicArn",
    ),
    "aws:sesv2/configurationSetEventDestination:ConfigurationSetEventDestination": (
        "eventDestination.kinesisFirehoseDestination.deliveryStreamArn",
        "eventDestination.snsDestination.topicArn",
        "eventDestination.eventBridgeDestination.eventBusArn",
    ),
}  # fmt: skip


@rule(
    "residency-aws-event-target",
    "Events go to targets in allowed regions",
    Severity.CRITICAL,
    frozenset(_TARGETS),
    CONTROLS,
    "Send events to a target of an allowed region: an ARN says the region.",
)
def event_target(resource: Resource, view: View) -> Iterator[Finding]:
    """Targets, destinations and dead-letter queues."""
    for path in _TARGETS[resource.kind]:
        yield from aws_targets.arn(resource, view, path, "the target")


#: ARNs that get logs, metrics and traces, by type.
_SINKS: Final[dict[str, tuple[str, ...]]] = {
    "aws:cloudwatch/logSubscriptionFilter:LogSubscriptionFilter": ("destinationArn",),
    "aws:cloudwatch/logDestination:LogDestination": ("targetArn",),
    "aws:cloudwatch/logDeliveryDestination:LogDeliveryDestination": (
        "deliveryDestinationConfiguration.destinationResourceArn",
    ),
    "aws:cloudwatch/logDelivery:LogDelivery": ("deliveryDestinationArn",),
    "aws:cloudwatch/metricStream:MetricStream": ("firehoseArn",),
    "aws:oam/link:Link": ("sinkIdentifier",),
    "aws:ec2/flowLog:FlowLog": ("logDestination",),
    "aws:wafv2/webAclLoggingConfiguration:WebAclLoggingConfiguration": (
        "logDestinationConfigs",
    ),
    "aws:cloudtrail/trail:Trail": ("cloudWatchLogsGroupArn",),
    "aws:route53/resolverQueryLogConfig:ResolverQueryLogConfig": ("destinationArn",),
}  # fmt: skip


@rule(
    "residency-aws-log-destination",
    "Logs and metrics go to destinations in allowed regions",
    Severity.CRITICAL,
    frozenset(_SINKS),
    (*CONTROLS, "iso27001:A.8.15", "uae-ia:T3.6.3"),
    "Keep logs in a group, stream or bucket of an allowed region. A bucket must be one of this "
    "stack, or its place be shown in a waiver: names of buckets say no region.",
)
def log_destination(resource: Resource, view: View) -> Iterator[Finding]:
    """Log groups, streams, sinks, and buckets by their ARNs."""
    for path in _SINKS[resource.kind]:
        yield from aws_targets.arn(resource, view, path, "the destination")


#: Buckets that services write to in any region, by type. Services that demand a bucket of their
#: own region (access logs of load balancers and of S3, exports of RDS, inventories, Athena's
#: results) aren't here: what they write stays where they are.
#: https://docs.aws.amazon.com/awscloudtrail/latest/userguide/create-s3-bucket-policy-for-cloudtrail.html
#: https://docs.aws.amazon.com/config/latest/developerguide/s3-bucket-policy.html
#: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.HowItWorks.html
_BUCKETS: Final[dict[str, tuple[str, ...]]] = {
    "aws:cloudtrail/trail:Trail": ("s3BucketName",),
    "aws:cfg/deliveryChannel:DeliveryChannel": ("s3BucketName",),
    "aws:dynamodb/tableExport:TableExport": ("s3Bucket",),
    "aws:kinesis/firehoseDeliveryStream:FirehoseDeliveryStream": (
        "extendedS3Configuration.bucketArn",
        "extendedS3Configuration.s3BackupConfiguration.bucketArn",
        "redshiftConfiguration.s3BackupConfiguration.bucketArn",
        *(
            f"{each}Configuration.s3Configuration.bucketArn"
            for each in (
                "elasticsearch", "opensearch", "opensearchserverless", "redshift", "splunk",
                "httpEndpoint", "snowflake", "iceberg",
            )
        ),
    ),
    "aws:emr/cluster:Cluster": ("logUri",),
    "aws:datasync/s3Location:S3Location": ("s3BucketArn",),
    "aws:pipes/pipe:Pipe": ("logConfiguration.s3LogDestination.bucketName",),
    "aws:ssm/resourceDataSync:ResourceDataSync": (),
    "aws:ssm/association:Association": (),
}  # fmt: skip
#: Regions that are given along with the bucket, and say where it is.
_SAID: Final[dict[str, str]] = {
    "aws:ssm/resourceDataSync:ResourceDataSync": "s3Destination.region",
    "aws:ssm/association:Association": "outputLocation.s3Region",
}


@rule(
    "residency-aws-log-bucket",
    "Services write to buckets in allowed regions",
    Severity.CRITICAL,
    frozenset(_BUCKETS),
    (*CONTROLS, "iso27001:A.8.15"),
    "Write to a bucket of an allowed region that this stack declares, so that its region can be "
    "told. A trail may record all regions, as long as its bucket is in the country.",
)
def log_bucket(resource: Resource, view: View) -> Iterator[Finding]:
    """Buckets of trails, deliveries and exports."""
    if said := _SAID.get(resource.kind):
        yield from aws_targets.region(resource, view, said, "the bucket")
        return
    for path in _BUCKETS[resource.kind]:
        yield from aws_targets.bucket(resource, view, path, "the bucket")


#: Collections of what several regions record, and the regions that they keep in step.
_LINKS: Final[dict[str, tuple[str, str]]] = {
    "aws:securityhub/findingAggregator:FindingAggregator": ("linkingMode", "specifiedRegions"),
    "aws:securityhub/aggregatorV2:AggregatorV2": ("regionLinkingMode", "linkedRegions"),
}
#: Regions that copies go to.
_COPIES: Final[dict[str, tuple[str, ...]]] = {
    "aws:securitylake/dataLake:DataLake": (
        "configuration.region", "configuration.replicationConfiguration.regions",
    ),
    "aws:observabilityadmin/centralizationRuleForOrganization:CentralizationRuleForOrganization": (
        "rule.destination.region",
        "rule.destination.destinationLogsConfiguration.backupConfiguration.region",
        "rule.destination.destinationMetricsConfiguration.backupConfiguration.region",
    ),
    "aws:cfg/aggregateAuthorization:AggregateAuthorization": ("authorizedAwsRegion", "region"),
    "aws:ssmincidents/replicationSet:ReplicationSet": ("regions.name", "region.name"),
}  # fmt: skip


@rule(
    "residency-aws-collection",
    "Security and audit records are collected in allowed regions",
    Severity.CRITICAL,
    frozenset({**_LINKS, **_COPIES}),
    (*CONTROLS, "iso27001:A.8.15", "uae-ia:T3.6.3"),
    "Collect records in an allowed region, and name no region abroad. An aggregator may collect "
    "what other regions record where they are only a source.",
)
def collection(resource: Resource, view: View) -> Iterator[Finding]:
    """Where collections are kept, and what they are kept in step with."""
    for path in _COPIES.get(resource.kind, ()):
        yield from aws_targets.region(resource, view, path, "the collection")
    mode, regions = _LINKS.get(resource.kind, ("", ""))
    for at, value in select(resource.properties, mode) if mode else ():
        if is_unknown(value):
            yield indeterminate(at, "which regions it is kept in step with can't be known")
        elif text(value).upper() in {"ALL_REGIONS", "ALL_REGIONS_EXCEPT_SPECIFIED"}:
            yield violation(
                at,
                f"findings and what people note on them are kept in step with every region; "
                f"{places_said(view)}",
            )
        elif text(value).upper() == "SPECIFIED_REGIONS":
            yield from aws_targets.region(resource, view, regions, "a linked region")


RULES: tuple[Rule, ...] = (event_target, log_destination, log_bucket, collection)
