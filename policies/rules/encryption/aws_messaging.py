"""AWS queues, topics, streams, event buses and workflows: what encrypts what passes through.

Defaults are those that the types' own documentation states (pulumi-aws 7.51) unless a line says
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import ABSENT, Resource, View, get, is_unknown
from falaj.policies.rules.encryption.table import Part, Reader, State, Stores, readers

_STATES_MODES: Final[dict[str, State]] = {
    "aws_owned_key": "service key",
    "customer_managed_kms_key": "customer key",
}
_FIREHOSE: Final = Stores(
    "aws:kinesis/firehoseDeliveryStream:FirehoseDeliveryStream",
    "serverSideEncryption.keyArn",
    "serverSideEncryption.enabled",
    "none",
    mode="serverSideEncryption.keyType",
    modes={"aws_owned_cmk": "service key", "": "service key"},
)

MESSAGING: Final = (
    # Encryption with SQS's own key is on by default since 2022:
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-sqs-sse-queue.html
    Stores("aws:sqs/queue:Queue", "kmsMasterKeyId", "sqsManagedSseEnabled", key_wins=True),
    Stores("aws:sns/topic:Topic", "kmsMasterKeyId", default="none",
           note="kmsMasterKeyId isn't given, and without it a topic isn't encrypted by SNS"),
    Stores("aws:kinesis/stream:Stream", "kmsKeyId", default="none", mode="encryptionType",
           modes={"none": "none", "kms": "customer key"}),
    Stores("aws:kinesis/videoStream:VideoStream", "kmsKeyId"),
    Stores("aws:kinesisanalyticsv2/application:Application",
           "applicationConfiguration.applicationEncryptionConfiguration.keyId",
           mode="applicationConfiguration.applicationEncryptionConfiguration.keyType",
           modes={"aws_owned_key": "service key", "customer_managed_key": "customer key"}),
    Stores("aws:msk/cluster:Cluster", "encryptionInfo.encryptionAtRestKmsKeyArn"),
    Stores("aws:msk/channel:Channel", "encryptionConfiguration.kmsKeyArn"),
    # Takes no customer's key: https://docs.aws.amazon.com/msk/latest/developerguide/serverless.html
    Stores("aws:msk/serverlessCluster:ServerlessCluster"),
    Stores("aws:mq/broker:Broker", "encryptionOptions.kmsKeyId",
           mode="encryptionOptions.useAwsOwnedKey", modes={"true": "service key"}),
    Stores("aws:cloudwatch/eventBus:EventBus", "kmsKeyIdentifier"),
    Stores("aws:cloudwatch/eventArchive:EventArchive", "kmsKeyIdentifier"),
    Stores("aws:cloudwatch/eventConnection:EventConnection", "kmsKeyIdentifier"),
    Stores("aws:pipes/pipe:Pipe", "kmsKeyIdentifier"),
    Stores("aws:scheduler/schedule:Schedule", "kmsKeyArn"),
    Stores("aws:sfn/stateMachine:StateMachine", "encryptionConfiguration.kmsKeyId",
           mode="encryptionConfiguration.type", modes=_STATES_MODES),
    Stores("aws:sfn/activity:Activity", "encryptionConfiguration.kmsKeyId",
           mode="encryptionConfiguration.type", modes=_STATES_MODES),
    Stores("aws:mwaa/environment:Environment", "kmsKey"),
    Stores("aws:appflow/flow:Flow", "kmsArn"),
    Stores("aws:appflow/connectorProfile:ConnectorProfile", "kmsArn"),
    Stores("aws:appintegrations/dataIntegration:DataIntegration", "kmsKey"),
    Stores("aws:mailmanager/archive:Archive", "kmsKeyArn"),
    Stores("aws:workmail/organization:Organization", "kmsKeyArn"),
    # What is received is written to a bucket, whose own encryption holds unless a key is named.
    Stores("aws:ses/receiptRule:ReceiptRule", "kmsKeyArn", parts="s3Actions", when="kmsKeyArn"),
)  # fmt: skip


def _firehose(resource: Resource, view: View) -> Iterator[Part]:
    """A delivery stream that reads from another stream keeps nothing of its own.

    https://docs.aws.amazon.com/firehose/latest/APIReference/API_StartDeliveryStreamEncryption.html
    """
    sources = ("kinesisSourceConfiguration", "mskSourceConfiguration")
    given = [get(resource.properties, each) for each in sources]
    if all(each is ABSENT or is_unknown(each) for each in given):
        yield from _FIREHOSE.read(resource, view)


READERS: Final[dict[str, tuple[Reader, ...]]] = readers(MESSAGING)
READERS[_FIREHOSE.type] = (_firehose,)
#: The entry that the reader above varies, for lists of what is known.
VARIED: Final = (_FIREHOSE,)
