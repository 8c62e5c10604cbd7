"""CloudTrail, CloudWatch, EventBridge, GuardDuty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.sandbox.clouds.aws import links
from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.arns import ACCOUNT, region_of
from falaj.sandbox.clouds.aws.documents import RESOURCE, json_text, policy, statements
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.services.trust import trusts
from falaj.sandbox.clouds.inputs import Inputs, Resource, as_list, as_map
from falaj.sandbox.clouds.kinds import Reference
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import (
    between,
    exactly_one,
    forbids,
    matches,
    needs,
    sized,
)

_BUCKET_POLICY: Final = "aws:s3/bucketPolicy:BucketPolicy"


def _bucket_lets_trail_write(resource: Resource) -> Iterator[Problem]:
    """CloudTrail checks the bucket's policy when a trail is made."""
    name = resource.string("s3BucketName")
    if resource.world.by_id(t.BUCKET, name) is None:
        return
    for made in resource.world.find(_BUCKET_POLICY, bucket=name):
        for statement in statements(made.outputs.get("policy")):
            service = as_map(statement.get("Principal")).get("Service")
            named = {service} if isinstance(service, str) else set(map(str, as_list(service)))
            if statement.get("Effect") == "Allow" and "cloudtrail.amazonaws.com" in named:
                return
    yield Problem(
        "s3BucketName",
        f"the policy of {name!r} doesn't let cloudtrail.amazonaws.com write; add a BucketPolicy "
        "that allows it s3:GetBucketAcl and s3:PutObject (and let the trail depend on it)",
    )


def _one_detector(resource: Resource) -> Iterator[Problem]:
    """GuardDuty has one detector in each region of an account.

    https://docs.aws.amazon.com/guardduty/latest/APIReference/API_CreateDetector.html
    """
    for made in resource.world.all(t.DETECTOR):
        if made.id != resource.id and made.region == region_of(resource):
            yield Problem(
                "",
                f"a detector already exists for the account in {region_of(resource)}: "
                f"{made.id} of "
                f"{made.urn}; use it (falaj:audit.detectorId: {made.id})",
            )
            return


def _key_lets_logs_use_it(resource: Resource) -> Iterator[Problem]:
    """CloudWatch Logs checks that the key's policy names it."""
    arn = resource.string("kmsKeyId")
    for key in resource.world.find(t.KEY, arn=arn) if arn else ():
        text = key.outputs.get("policy")
        wanted = ("logs.amazonaws.com", f"logs.{region_of(resource)}.amazonaws.com")
        if isinstance(text, str) and text and not any(service in text for service in wanted):
            yield Problem(
                "kmsKeyId",
                f"the policy of the key {key.id} doesn't let "
                f"logs.{region_of(resource)}.amazonaws.com "
                "use it; allow it kms:Encrypt*, kms:Decrypt*, kms:ReEncrypt*, "
                "kms:GenerateDataKey* and kms:Describe*",
            )


def _events(inputs: Inputs) -> Iterator[Problem]:
    if not inputs.is_given("eventPattern") and not inputs.is_given("scheduleExpression"):
        yield Problem("eventPattern", "is missing; give eventPattern or scheduleExpression")


_RULE_NAME: Final = r"[.\-_A-Za-z0-9]{1,64}"

KINDS: Final[AwsKinds] = {
    t.TRAIL: AwsKind(
        id="arn:{partition}:cloudtrail:{region}:{account}:trail/{name}",
        arn="*",
        name=AutoName(longest=128),
        replaces=("name",),
        rules=(
            matches("name", r"[a-zA-Z0-9]([a-zA-Z0-9._-]{1,126})[a-zA-Z0-9]",
                    "3 to 128 letters, digits and ._- , with a letter or digit at both ends"),
            forbids("name", r"[._-]{2}", "two of . _ - may not stand next to each other"),
            needs("cloudWatchLogsGroupArn", "cloudWatchLogsRoleArn"),
            needs("cloudWatchLogsRoleArn", "cloudWatchLogsGroupArn"),
            matches("cloudWatchLogsGroupArn", r"arn:[^:]+:logs:[^:]+:\d{12}:log-group:[^:]+:\*",
                    "the log group's ARN with ':*' at its end"),
            sized("s3KeyPrefix", 0, 200, "characters"),
        ),
        references=(
            links.bucket("s3BucketName"),
            links.log_group("cloudWatchLogsGroupArn"),
            links.role("cloudWatchLogsRoleArn"),
            links.key(),
        ),
        crosschecks=(
            _bucket_lets_trail_write,
            trusts("cloudWatchLogsRoleArn", "cloudtrail.amazonaws.com", "trail's role"),
        ),
        unique=("name",),
        computed=lambda resource: {"homeRegion": region_of(resource), "snsTopicArn": ""},
        defaults={"enableLogFileValidation": False, "enableLogging": True,
                  "includeGlobalServiceEvents": True, "isMultiRegionTrail": False,
                  "isOrganizationTrail": False},
    ),
    t.LOG_GROUP: AwsKind(
        id="{name}",
        arn="logs:{region}:{account}:log-group:{name}",
        name=AutoName(longest=512),
        replaces=("logGroupClass", "name", "namePrefix"),
        rules=(
            matches("name", r"[.\-_/#A-Za-z0-9]{1,512}", "up to 512 letters, digits and .-_/#"),
            forbids("name", r"^aws/", "names beginning with 'aws/' are kept for AWS"),
            matches("kmsKeyId", r"arn:[^:]+:kms:[^:]+:\d{12}:(key|alias)/.+", "a key's ARN"),
        ),
        references=(links.key(),),
        crosschecks=(_key_lets_logs_use_it,),
        unique=("name",),
        defaults={"retentionInDays": 0, "logGroupClass": "STANDARD", "skipDestroy": False},
    ),
    "aws:cloudwatch/logStream:LogStream": AwsKind(
        id="{name}",
        arn="logs:{region}:{account}:log-group:{logGroupName}:log-stream:{name}",
        name=AutoName(longest=512),
        replaces=("logGroupName", "name"),
        rules=(forbids("name", r"[:*]", "':' and '*' may not stand in it"),),
        references=(Reference("logGroupName", (t.LOG_GROUP,), by=("name",), holds=False),),
        unique=("logGroupName", "name"),
    ),
    "aws:cloudwatch/logResourcePolicy:LogResourcePolicy": AwsKind(
        id="{policyName}",
        replaces=("policyName", "resourceArn"),
        rules=(policy("policyDocument", RESOURCE, longest=5120, sids=False),),
        unique=("policyName",),
    ),
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": AwsKind(
        id="{name}",
        name=AutoName(longest=512),
        replaces=("logGroupName", "name"),
        rules=(sized("pattern", 0, 1024, "characters"),),
        references=(Reference("logGroupName", (t.LOG_GROUP,), by=("name",), holds=False),),
        unique=("logGroupName", "name"),
    ),
    "aws:cloudwatch/metricAlarm:MetricAlarm": AwsKind(
        id="{name}",
        arn="cloudwatch:{region}:{account}:alarm:{name}",
        name=AutoName(longest=255),
        replaces=("name",),
        rules=(
            sized("name", 1, 255, "characters"),
            sized("alarmActions", 0, 5), sized("okActions", 0, 5),
            between("evaluationPeriods", 1, 8640),
            exactly_one("metricName", "metricQueries", "evaluationCriteria"),
        ),
        references=(links.topic("alarmActions[]"), links.topic("okActions[]")),
        unique=("name",),
        defaults={"actionsEnabled": True, "treatMissingData": "missing"},
    ),
    t.EVENT_RULE: AwsKind(
        id="{name}",
        arn="events:{region}:{account}:rule/{name}",
        name=AutoName(longest=64),
        replaces=("eventBusName", "name", "namePrefix"),
        rules=(
            matches("name", _RULE_NAME, "up to 64 letters, digits and . - _"),
            matches("scheduleExpression", r"(rate|cron)\(.+\)", "rate(…) or cron(…)"),
            json_text("eventPattern"),
            _events,
        ),
        references=(links.role("roleArn"),),
        unique=("eventBusName", "name"),
        defaults={"eventBusName": "default", "state": "ENABLED"},
    ),
    "aws:cloudwatch/eventTarget:EventTarget": AwsKind(
        id="{rule}-{targetId}",
        name=AutoName(property="targetId", longest=64, unless=()),
        replaces=("eventBusName", "rule", "targetId"),
        rules=(
            matches("targetId", _RULE_NAME, "up to 64 letters, digits and . - _"),
            matches("arn", r"arn:.+", "the target's ARN"),
        ),
        references=(
            Reference("rule", (t.EVENT_RULE,), by=("name",)),
            links.role("roleArn"),
        ),
        unique=("rule", "targetId"),
    ),
    t.DETECTOR: AwsKind(
        id="{hex32}",
        arn="guardduty:{region}:{account}:detector/{id}",
        crosschecks=(_one_detector,),
        computed=lambda _: {"accountId": ACCOUNT},
        defaults={"enable": True, "findingPublishingFrequency": "SIX_HOURS"},
    ),
    "aws:guardduty/detectorFeature:DetectorFeature": AwsKind(
        id="{detectorId}/{name}",
        replaces=("detectorId", "name"),
        references=(Reference("detectorId", (t.DETECTOR,), holds=False),),
        unique=("detectorId", "name"),
    ),
    "aws:guardduty/publishingDestination:PublishingDestination": AwsKind(
        id="{detectorId}:{hex32}",
        replaces=("destinationType", "detectorId"),
        references=(
            Reference("detectorId", (t.DETECTOR,), holds=False),
            Reference("kmsKeyArn", (t.KEY,), by=("arn",), holds=False),
        ),
    ),
}  # fmt: skip
