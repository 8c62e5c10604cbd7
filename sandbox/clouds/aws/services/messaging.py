"""SNS and SQS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.sandbox.clouds.aws import links
from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.arns import ACCOUNT, region_of
from falaj.sandbox.clouds.aws.documents import RESOURCE, json_text, policy
from falaj.sandbox.clouds.aws.hashes import uuid
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.kinds import Reference, Rule
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import between, matches, sized

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
        references=(links.topic("arn"),),
        unique=("arn",),
        computed=lambda _: {"owner": ACCOUNT},
    ),
    "aws:sns/topicSubscription:TopicSubscription": AwsKind(
        id=_subscription,
        arn="*",
        replaces=("endpoint", "protocol", "topic"),
        rules=(_endpoint, json_text("filterPolicy"), json_text("redrivePolicy")),
        references=(links.topic("topic"),),
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
