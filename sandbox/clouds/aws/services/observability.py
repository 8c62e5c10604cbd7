"""CloudTrail, CloudWatch, EventBridge and GuardDuty; SNS and SQS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.sandbox.clouds.aws import kinds as t
from falaj.sandbox.clouds.aws import relations
from falaj.sandbox.clouds.aws.documents import RESOURCE, json_text, policy, statements
from falaj.sandbox.clouds.aws.key_policies import Caller, Need, usable
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.naming import ACCOUNT, arn_of, uuid
from falaj.sandbox.clouds.aws.regions import dns_suffix, region_of
from falaj.sandbox.clouds.inputs import Inputs, Resource, as_list, as_map
from falaj.sandbox.clouds.kinds import (
    Reference,
    Rule,
    between,
    exactly_one,
    forbids,
    matches,
    needs,
    sized,
)
from falaj.sandbox.clouds.model import Problem

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


def _logs(resource: Resource) -> Caller:
    """CloudWatch Logs, which says for which group it asks.

    https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/encrypt-log-data-kms.html
    """
    region = region_of(resource)
    context: dict[str, str | None] = {}
    if resource.string("name"):
        own = arn_of(resource, "logs", f"log-group:{resource.string('name')}")
        context["kms:EncryptionContext:aws:logs:arn"] = own
    hosts = (f"logs.{region}.{dns_suffix(region)}", f"logs.{dns_suffix(region)}")
    return Caller(hosts[0], services=hosts, context=context)


def _trail(resource: Resource) -> Caller:
    """CloudTrail, which says for which trail it asks.

    https://docs.aws.amazon.com/awscloudtrail/latest/userguide/create-kms-key-policy-for-cloudtrail.html
    """
    context: dict[str, str | None] = {"aws:SourceAccount": ACCOUNT}
    if resource.string("name"):
        own = arn_of(resource, "cloudtrail", f"trail/{resource.string('name')}")
        context |= {"aws:SourceArn": own, "kms:EncryptionContext:aws:cloudtrail:arn": own}
    return Caller("CloudTrail", services=("cloudtrail.amazonaws.com",), context=context)


def _events(inputs: Inputs) -> Iterator[Problem]:
    if not inputs.is_given("eventPattern") and not inputs.is_given("scheduleExpression"):
        yield Problem("eventPattern", "is missing; give eventPattern or scheduleExpression")


_RULE_NAME: Final = r"[.\-_A-Za-z0-9]{1,64}"


_CONFIRMED: Final = ("email", "email-json", "http", "https")
_NAME: Final = r"[A-Za-z0-9_-]{1,%d}(\.fifo)?"


def _fifo(flag: str) -> Rule:
    def rule(inputs: Inputs) -> Iterator[Problem]:
        name, first = inputs.string("name"), inputs.get(flag) is True
        if first and name and not name.endswith(".fifo"):
            yield Problem("name", f"{name!r} has to end with '.fifo' as {flag} is true")
        if not first and name.endswith(".fifo") and not inputs.is_given(flag):
            yield Problem("name", f"{name!r} ends with '.fifo', which needs {flag} to be true")

    return rule


def _endpoint(inputs: Inputs) -> Iterator[Problem]:
    protocol, endpoint = inputs.get("protocol"), inputs.string("endpoint")
    if not endpoint:
        return
    if protocol in ("sqs", "lambda", "firehose", "application") and not endpoint.startswith(
        "arn:"
    ):
        yield Problem("endpoint", f"{endpoint!r} is no ARN, which {protocol} needs")
    if protocol in ("http", "https") and not endpoint.startswith(f"{protocol}://"):
        yield Problem("endpoint", f"{endpoint!r} has to begin with {protocol}://")
    if protocol in ("email", "email-json") and "@" not in endpoint:
        yield Problem("endpoint", f"{endpoint!r} is no e-mail address")


def _subscription(inputs: Inputs) -> str:
    topic = inputs.string("topic")
    if not topic:
        return ""
    return f"{topic}:{uuid(topic, str(inputs.get('protocol')), inputs.string('endpoint'))}"


_KEY: Final = Reference("kmsMasterKeyId", (t.KEY, t.KEY_ALIAS), by=("arn", "keyId", "name"),
                        holds=False)  # fmt: skip


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
            relations.bucket("s3BucketName"),
            relations.log_group("cloudWatchLogsGroupArn"),
            relations.role("cloudWatchLogsRoleArn"),
            relations.key(),
        ),
        crosschecks=(
            _bucket_lets_trail_write,
            relations.trusts("cloudWatchLogsRoleArn", "cloudtrail.amazonaws.com", "trail's role"),
            usable(
                "kmsKeyId",
                _trail,
                Need(
                    ("kms:GenerateDataKey", "kms:DescribeKey"),
                    "CloudTrail answers InsufficientEncryptionPolicyException; allow "
                    "cloudtrail.amazonaws.com kms:GenerateDataKey* and kms:DescribeKey for this "
                    "trail",
                ),
            ),
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
        references=(relations.key(),),
        crosschecks=(
            usable(
                "kmsKeyId",
                _logs,
                Need(
                    ("kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey", "kms:DescribeKey"),
                    "allow that service kms:Encrypt*, kms:Decrypt*, kms:ReEncrypt*, "
                    "kms:GenerateDataKey* and kms:Describe*",
                ),
            ),
        ),
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
        references=(relations.topic("alarmActions[]"), relations.topic("okActions[]")),
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
        references=(relations.role("roleArn"),),
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
            relations.role("roleArn"),
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
    t.TOPIC: AwsKind(
        id="arn:{partition}:sns:{region}:{account}:{name}",
        arn="*",
        name=AutoName(longest=256),
        replaces=("fifoTopic", "name", "namePrefix"),
        rules=(
            matches("name", _NAME % 256, "up to 256 letters, digits, '-' and '_'"),
            _fifo("fifoTopic"),
            policy("policy", RESOURCE, longest=30720, sids=False),
            sized("displayName", 0, 100, "characters"),
        ),
        references=(_KEY,),
        unique=("name",),
        computed=lambda _: {"owner": ACCOUNT, "beginningArchiveTime": ""},
    ),
    "aws:sns/topicPolicy:TopicPolicy": AwsKind(
        id="{arn}",
        replaces=("arn",),
        rules=(policy("policy", RESOURCE, longest=30720, sids=False),),
        references=(relations.topic("arn"),),
        unique=("arn",),
        computed=lambda _: {"owner": ACCOUNT},
    ),
    "aws:sns/topicSubscription:TopicSubscription": AwsKind(
        id=_subscription,
        arn="*",
        replaces=("endpoint", "protocol", "topic"),
        rules=(_endpoint, json_text("filterPolicy"), json_text("redrivePolicy")),
        references=(relations.topic("topic"),),
        computed=lambda resource: {
            "ownerId": ACCOUNT,
            "pendingConfirmation": resource.get("protocol") in _CONFIRMED,
            "confirmationWasAuthenticated": False,
        },
    ),
    t.QUEUE: AwsKind(
        id=lambda inputs: (
            f"https://sqs.{region_of(inputs)}.amazonaws.com/{ACCOUNT}/{inputs.string('name')}"
        ),
        arn="sqs:{region}:{account}:{name}",
        name=AutoName(longest=80),
        replaces=("fifoQueue", "name", "namePrefix"),
        rules=(
            matches("name", _NAME % 80, "up to 80 letters, digits, '-' and '_'"),
            _fifo("fifoQueue"),
            policy("policy", RESOURCE, longest=8192, sids=False),
            json_text("redrivePolicy"),
            between("visibilityTimeoutSeconds", 0, 43200, "seconds"),
            between("messageRetentionSeconds", 60, 1209600, "seconds"),
            between("delaySeconds", 0, 900, "seconds"),
            between("receiveWaitTimeSeconds", 0, 20, "seconds"),
            between("kmsDataKeyReusePeriodSeconds", 60, 86400, "seconds"),
        ),
        references=(_KEY,),
        unique=("name",),
        computed=lambda resource: {"url": resource.id},
    ),
    "aws:sqs/queuePolicy:QueuePolicy": AwsKind(
        id="{queueUrl}",
        replaces=("queueUrl",),
        rules=(policy("policy", RESOURCE, longest=8192, sids=False),),
        unique=("queueUrl",),
    ),
}  # fmt: skip
