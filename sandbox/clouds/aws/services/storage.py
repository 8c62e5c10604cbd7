"""S3: buckets, and the settings that are resources of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import links
from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.arns import region_of
from falaj.sandbox.clouds.aws.documents import RESOURCE, policy
from falaj.sandbox.clouds.aws.hashes import hexdigits
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.regions import dns_suffix
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import Reference
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import (
    between,
    exactly_one,
    forbids,
    matches,
    not_together,
    sized,
)

_VERSIONING: Final = "aws:s3/bucketVersioning:BucketVersioning"
_OBJECT_LOCK: Final = "aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration"
_LIFECYCLE: Final = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"


def bucket_name(path: str) -> tuple[Any, ...]:
    """The rules for names ("General purpose bucket naming rules", Amazon S3 user guide)."""
    return (
        matches(path, r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
                "3 to 63 of a-z, 0-9, '.' and '-', beginning and ending with a letter or digit"),
        forbids(path, r"\.\.", "two dots may not stand next to each other"),
        forbids(path, r"^\d+\.\d+\.\d+\.\d+$", "it has the form of an IP address"),
        forbids(path, r"^(xn--|sthree-|amzn-s3-demo-)", "this beginning is kept by S3"),
        forbids(path, r"(-s3alias|--ol-s3|\.mrap|--x-s3|--table-s3)$", "S3 keeps this ending"),
    )  # fmt: skip


def _bucket(resource: Resource) -> Mapping[str, Any]:
    suffix = dns_suffix(region_of(resource))
    return {
        "bucketDomainName": f"{resource.id}.s3.{suffix}",
        "bucketRegionalDomainName": f"{resource.id}.s3.{region_of(resource)}.{suffix}",
        "bucketRegion": region_of(resource),
        # Made up as the rest: real zone ids of S3 endpoints are a fixed table of AWS.
        "hostedZoneId": "Z" + hexdigits(13, "s3", region_of(resource)).upper(),
    }


def _lifecycle(inputs: Inputs) -> Iterator[Problem]:
    """Each rule has its own id, and does something."""
    seen: set[str] = set()
    for path, rule in inputs.each("rules[]"):
        if not isinstance(rule, Mapping):
            continue
        name = rule.get("id")
        if isinstance(name, str):
            if name in seen:
                yield Problem(f"{path}.id", f"{name!r} is used twice; give each rule its own")
            seen.add(name)
        actions = ("expiration", "transitions", "noncurrentVersionExpiration",
                   "noncurrentVersionTransitions", "abortIncompleteMultipartUpload")  # fmt: skip
        if not any(_given(rule.get(action)) for action in actions):
            yield Problem(path, f"does nothing; give at least one of {', '.join(actions)}")


def _given(value: object) -> bool:
    return value not in (None, [], {})


def _infrequent_access(inputs: Inputs) -> Iterator[Problem]:
    """Objects stay 30 days before they move to an infrequent-access class."""
    for path, move in inputs.each("rules[].transitions[]"):
        days = move.get("days") if isinstance(move, Mapping) else None
        if (
            isinstance(days, int | float)
            and days < 30
            and move.get("storageClass") in ("STANDARD_IA", "ONEZONE_IA")
        ):
            yield Problem(
                f"{path}.days", f"{days:g} is too soon for {move['storageClass']}; at least 30"
            )


def _versioned(resource: Resource) -> Iterator[Problem]:
    """Object lock needs a versioned bucket."""
    name = resource.string("bucket")
    found = resource.world.by_id(t.BUCKET, name)
    if found is None or found.outputs.get("objectLockEnabled") is True:
        return
    for versioning in resource.world.find(_VERSIONING, bucket=name):
        settings = versioning.outputs.get("versioningConfiguration")
        if isinstance(settings, Mapping) and settings.get("status") == "Enabled":
            return
    yield Problem(
        "bucket",
        f"{name!r} is not versioned, which object lock needs; enable versioning first "
        "(and let this resource depend on it)",
    )


def _setting(*rules: Any, more: tuple[Reference, ...] = ()) -> AwsKind:
    """A setting of a bucket: one of each kind per bucket, and its id is the bucket's name."""
    return AwsKind(
        id="{bucket}",
        replaces=("bucket",),
        rules=rules,
        references=(links.bucket(), *more),
        unique=("bucket",),
    )


def _etag(resource: Resource) -> Mapping[str, Any]:
    return {"etag": hexdigits(32, resource.id, str(resource.get("content")))}


KINDS: Final[AwsKinds] = {
    t.BUCKET: AwsKind(
        id="{bucket}",
        arn="s3:::{bucket}",
        name=AutoName(property="bucket", longest=63, lower=True, unless=("bucketPrefix",)),
        replaces=("bucket", "bucketPrefix", "bucketNamespace", "objectLockEnabled"),
        rules=(
            *bucket_name("bucket"),
            not_together("bucket", "bucketPrefix"),
            sized("bucketPrefix", 0, 37, "characters"),
        ),
        unique=("bucket",),
        everywhere=True,
        computed=_bucket,
        defaults={"forceDestroy": False, "objectLockEnabled": False},
    ),
    _VERSIONING: _setting(),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration":
        _setting(more=(links.key("rules[].applyServerSideEncryptionByDefault.kmsMasterKeyId"),)),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _setting(),
    "aws:s3/bucketPolicy:BucketPolicy": _setting(
        policy("policy", RESOURCE, longest=20480, sids=False)
    ),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": _setting(),
    "aws:s3/bucketAcl:BucketAcl": AwsKind(
        id="{bucket}",
        replaces=("bucket", "expectedBucketOwner"),
        rules=(exactly_one("acl", "accessControlPolicy"),),
        references=(links.bucket(),),
    ),
    _LIFECYCLE: _setting(
        _lifecycle,
        _infrequent_access,
        sized("rules", 1, 1000, "rules"),
        sized("rules[].id", 1, 255, "characters"),
        between("rules[].abortIncompleteMultipartUpload.daysAfterInitiation", 1, 36500, "days"),
    ),
    _OBJECT_LOCK: AwsKind(
        id="{bucket}",
        replaces=("bucket", "expectedBucketOwner", "objectLockEnabled"),
        rules=(
            not_together("rule.defaultRetention.days", "rule.defaultRetention.years"),
            between("rule.defaultRetention.days", 1, 36500, "days"),
            between("rule.defaultRetention.years", 1, 100, "years"),
        ),
        references=(links.bucket(),),
        crosschecks=(_versioned,),
        unique=("bucket",),
        defaults={"objectLockEnabled": "Enabled"},
    ),
    "aws:s3/bucketLogging:BucketLogging": _setting(more=(links.bucket("targetBucket"),)),
    "aws:s3/bucketNotification:BucketNotification": AwsKind(
        id="{bucket}", replaces=("bucket",), references=(links.bucket(),), unique=("bucket",)
    ),
    "aws:s3/bucketReplicationConfig:BucketReplicationConfig": AwsKind(
        id="{bucket}",
        replaces=("bucket",),
        references=(links.bucket(), links.role("role")),
        unique=("bucket",),
    ),
    "aws:s3/bucketObjectv2:BucketObjectv2": AwsKind(
        id="{bucket}/{key}",
        arn="s3:::{bucket}/{key}",
        replaces=("bucket", "key"),
        rules=(
            sized("key", 1, 1024, "characters"),
            not_together("content", "contentBase64", "source"),
        ),
        references=(links.bucket(), links.key()),
        computed=_etag,
    ),
    "aws:s3/bucketObject:BucketObject": AwsKind(
        id="{key}",
        arn="s3:::{bucket}/{key}",
        replaces=("bucket", "key"),
        rules=(sized("key", 1, 1024, "characters"),),
        references=(links.bucket(), links.key()),
        computed=_etag,
    ),
    "aws:s3/accountPublicAccessBlock:AccountPublicAccessBlock": AwsKind(
        id="{account}", replaces=("accountId",)
    ),
    "aws:s3/accessPoint:AccessPoint": AwsKind(
        id="{account}:{name}",
        arn="s3:{region}:{account}:accesspoint/{name}",
        name=AutoName(longest=50, lower=True),
        replaces=("accountId", "bucket", "name", "vpcConfiguration"),
        rules=(
            matches("name", r"[a-z0-9][a-z0-9-]{1,48}[a-z0-9]", "3 to 50 of a-z, 0-9 and '-'"),
            policy("policy", RESOURCE, longest=20480, sids=False),
        ),
        references=(Reference("bucket", (t.BUCKET,), by=("bucket",)),),
    ),
}  # fmt: skip
