"""What a bucket refuses whoever asks: strangers, old TLS, other keys; what CloudTrail delivers."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from falaj.components.aws._arn import arn, bucket_arn
from falaj.components.aws._iam import Statement, document

_ANYBODY = {"AWS": ["*"]}
_NOT_A_SERVICE = {"aws:PrincipalIsAWSService": "false"}


@dataclass(frozen=True)
class BucketOwner:
    """Whose bucket it is, and under which key its objects lie."""

    bucket: str
    account: str
    region: str
    key_arn: str


def bucket_policy(owner: BucketOwner, *, audit: bool) -> pulumi.Output[str]:
    """The policy of a bucket; ``audit`` lets CloudTrail deliver to it."""
    statements = _refusals(owner)
    if audit:
        statements.extend(_trail(owner))
    return document(*statements)


def _refusals(owner: BucketOwner) -> list[Statement]:
    everywhere = [bucket_arn(owner.bucket), bucket_arn(owner.bucket, "*")]
    objects = [bucket_arn(owner.bucket, "*")]
    scheme = "s3:x-amz-server-side-encryption"
    key = "s3:x-amz-server-side-encryption-aws-kms-key-id"
    return [
        Statement(
            "OnlyThisAccount",
            ["s3:*"],
            everywhere,
            effect="Deny",
            principals=_ANYBODY,
            conditions={
                "StringNotEquals": {"aws:PrincipalAccount": owner.account},
                "Bool": _NOT_A_SERVICE,
            },
        ),
        Statement(
            "OnlyTls",
            ["s3:*"],
            everywhere,
            effect="Deny",
            principals=_ANYBODY,
            conditions={"Bool": {"aws:SecureTransport": "false"}},
        ),
        # The highest that S3 offers; its own services choose for themselves, 1.2 at least:
        # https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingEncryptionInTransit.html
        Statement(
            "OnlyTls13",
            ["s3:*"],
            everywhere,
            effect="Deny",
            principals=_ANYBODY,
            conditions={"NumericLessThan": {"s3:TlsVersion": "1.3"}, "Bool": _NOT_A_SERVICE},
        ),
        # Without the headers the bucket's own key is used; with them it has to be the same. The
        # trail's digests come with the header AES256, whatever key its logs have:
        # https://docs.aws.amazon.com/awscloudtrail/latest/userguide/
        # encrypting-cloudtrail-log-files-with-aws-kms.html
        Statement(
            "OnlyKms",
            ["s3:PutObject"],
            objects,
            effect="Deny",
            principals=_ANYBODY,
            conditions={
                "StringNotEquals": {scheme: "aws:kms"},
                "Null": {scheme: "false"},
                "Bool": _NOT_A_SERVICE,
            },
        ),
        Statement(
            "OnlyOwnKey",
            ["s3:PutObject"],
            objects,
            effect="Deny",
            principals=_ANYBODY,
            conditions={"StringNotEquals": {key: owner.key_arn}, "Null": {key: "false"}},
        ),
    ]


def _trail(owner: BucketOwner) -> list[Statement]:
    """https://docs.aws.amazon.com/awscloudtrail/latest/userguide/
    create-s3-bucket-policy-for-cloudtrail.html
    """
    service = {"Service": ["cloudtrail.amazonaws.com"]}
    trails = arn("cloudtrail", owner.region, owner.account, "trail/*")
    own_trails = {
        "StringEquals": {"aws:SourceAccount": owner.account},
        "ArnLike": {"aws:SourceArn": trails},
    }
    return [
        Statement(
            "TrailLooksAtBucket",
            ["s3:GetBucketAcl"],
            [bucket_arn(owner.bucket)],
            principals=service,
            conditions=own_trails,
        ),
        Statement(
            "TrailDelivers",
            ["s3:PutObject"],
            [bucket_arn(owner.bucket, f"AWSLogs/{owner.account}/*")],
            principals=service,
            conditions={
                **own_trails,
                "StringEquals": {
                    "aws:SourceAccount": owner.account,
                    "s3:x-amz-acl": "bucket-owner-full-control",
                },
            },
        ),
    ]
