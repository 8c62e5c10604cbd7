"""The buckets of a foundation on AWS."""

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import account_of, child, stateful, token, written
from falaj.components.aws._iam import Statement, arn, bucket_arn, document
from falaj.components.catalogue.tag_names import tag_name
from falaj.components.specification.names import unique_name
from falaj.components.specification.object_store import ObjectStoreArgs, ObjectStoreSpec, check
from falaj.components.specification.property_names import engine_inputs

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
    """The policy of a bucket: it refuses strangers, old TLS and other keys, whoever asks.

    ``audit`` lets CloudTrail deliver to it.
    """
    statements = _refusals(owner)
    if audit:
        statements.extend(_trail_delivery(owner))
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


def _trail_delivery(owner: BucketOwner) -> list[Statement]:
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


__all__ = ["ObjectStore", "ObjectStoreArgs"]

#: Which key the objects of a bucket lie under.
_KEY = {"audit": "log_key_id", "state": "state_key_id"}


class ObjectStore(pulumi.ComponentResource):
    """Buckets for datasets, models, checkpoints, audit logs and state.

    ::

        store = ObjectStore("store", {
            "region": "me-central-1", "tenant": "acme", "owner": "platform@acme.example",
            "data_class": "restricted", "cost_center": "ai-42",
            "acknowledge_degraded": "2026-04-30",
            "data_key_id": keys.key_ids["data"], "log_key_id": keys.key_ids["logs"],
            "state_key_id": keys.key_ids["state"],
        }, pulumi.ResourceOptions(providers=[provider]))

    Makes for each purpose an S3 bucket with public access blocked, access lists switched off,
    versions, its own key (as bucket key), a policy and a lifecycle. The policy refuses other
    accounts, plain HTTP, TLS below 1.3 (AWS services excepted) and other keys. Replaced and
    deleted objects can be had back for ``old_version_days``; parts of broken uploads go after a
    week. Nothing is replicated.

    Objects of ``audit`` can't be changed or deleted for ``audit_retention_days``: in production
    by nobody at all (compliance mode, which not even the account's root user can end early);
    elsewhere by nobody without ``s3:BypassGovernanceRetention``, so that a test can be destroyed.

    Buckets are protected and retained in production; elsewhere they are emptied and deleted.
    """

    bucket_names: pulumi.Output[dict[str, str]]
    """Names of the buckets by purpose."""
    bucket_ids: pulumi.Output[dict[str, str]]
    """ARNs of the buckets by purpose."""
    store_ids: pulumi.Output[dict[str, str]]
    """The same on AWS, where a bucket belongs to no account of its own."""

    def __init__(
        self, name: str, args: ObjectStoreArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("aws", name, args)
        super().__init__(token("ObjectStore"), name, engine_inputs(args), opts)
        given: dict[str, Any] = {**args}
        account = account_of(self)
        buckets = {
            purpose: self._bucket(
                name, purpose, spec, given[_KEY.get(purpose, "data_key_id")], account
            )
            for purpose in spec.buckets
        }
        # Names and ARNs by way of the policies: who writes to a bucket waits for what it refuses
        # and admits. CloudTrail can't be pointed at the audit bucket before.
        self.bucket_names = pulumi.Output.all(
            **{purpose: policy.bucket for purpose, policy in buckets.items()}
        )
        self.bucket_ids = pulumi.Output.all(
            **{purpose: policy.bucket.apply(bucket_arn) for purpose, policy in buckets.items()}
        )
        self.store_ids = self.bucket_ids
        outputs: dict[str, Any] = {
            "bucket_names": self.bucket_names,
            "bucket_ids": self.bucket_ids,
            "store_ids": self.store_ids,
        }
        self.register_outputs(written(outputs))

    def _bucket(
        self,
        name: str,
        purpose: str,
        spec: ObjectStoreSpec,
        key_id: pulumi.Input[str],
        account: pulumi.Output[str],
    ) -> aws.s3.BucketPolicy:
        """A bucket and all that belongs to it; the policy stands for it."""
        label = f"{name}-{purpose}"
        tenant, stack = spec.placed.tenant, pulumi.get_stack()

        def bucket_name(number: str) -> str:
            # The whole world shares these names; the digest is of the account, too.
            return unique_name(tenant, stack, name, purpose, number, limit=63)

        bucket = aws.s3.Bucket(
            label,
            bucket=account.apply(bucket_name),
            object_lock_enabled=purpose == "audit",
            force_destroy=not spec.placed.retained,
            tags={**spec.placed.tags(name), tag_name("aws", "purpose"): purpose},
            opts=stateful(self, spec.placed),
        )
        access = aws.s3.BucketPublicAccessBlock(
            label,
            bucket=bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=child(self),
        )
        ownership = aws.s3.BucketOwnershipControls(
            label,
            bucket=bucket.id,
            rule={"object_ownership": "BucketOwnerEnforced"},
            # S3 takes one change of a bucket at a time and refuses the others.
            opts=child(self, depends_on=[access]),
        )
        policy = aws.s3.BucketPolicy(
            label,
            bucket=bucket.id,
            policy=_policy(purpose, spec.placed.region, bucket, key_id, account),
            opts=child(self, depends_on=[ownership]),
        )
        aws.s3.BucketServerSideEncryptionConfiguration(
            label,
            bucket=bucket.id,
            rules=[
                {
                    "apply_server_side_encryption_by_default": {
                        "sse_algorithm": "aws:kms",
                        "kms_master_key_id": key_id,
                    },
                    "bucket_key_enabled": True,
                }
            ],
            opts=child(self),
        )
        versions = aws.s3.BucketVersioning(
            label,
            bucket=bucket.id,
            versioning_configuration={"status": "Enabled"},
            opts=child(self),
        )
        self._lifecycle(label, spec, bucket, versions)
        if purpose == "audit":
            self._lock(label, spec, bucket, versions)
        return policy

    def _lifecycle(
        self,
        label: str,
        spec: ObjectStoreSpec,
        bucket: aws.s3.Bucket,
        versions: aws.s3.BucketVersioning,
    ) -> None:
        aws.s3.BucketLifecycleConfiguration(
            label,
            bucket=bucket.id,
            rules=[
                {
                    "id": "old-versions",
                    "status": "Enabled",
                    "filter": {"prefix": ""},
                    "noncurrent_version_expiration": {"noncurrent_days": spec.old_version_days},
                    "expiration": {"expired_object_delete_marker": True},
                    "abort_incomplete_multipart_upload": {"days_after_initiation": 7},
                }
            ],
            opts=child(self, depends_on=[versions]),
        )

    def _lock(
        self,
        label: str,
        spec: ObjectStoreSpec,
        bucket: aws.s3.Bucket,
        versions: aws.s3.BucketVersioning,
    ) -> None:
        mode = "COMPLIANCE" if spec.placed.retained else "GOVERNANCE"
        aws.s3.BucketObjectLockConfiguration(
            label,
            bucket=bucket.id,
            object_lock_enabled="Enabled",
            rule={"default_retention": {"mode": mode, "days": spec.audit_retention_days}},
            opts=child(self, depends_on=[versions]),
        )


def _policy(
    purpose: str,
    region: str,
    bucket: aws.s3.Bucket,
    key_id: pulumi.Input[str],
    account: pulumi.Output[str],
) -> pulumi.Output[str]:
    def policy(known: dict[str, str]) -> pulumi.Output[str]:
        owner = BucketOwner(known["bucket"], known["account"], region, known["key"])
        return bucket_policy(owner, audit=purpose == "audit")

    return pulumi.Output.all(bucket=bucket.bucket, account=account, key=key_id).apply(policy)
