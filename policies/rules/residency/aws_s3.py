"""Copies of objects abroad: replication, access points of several regions, edges, exports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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

_BUCKET = frozenset(("aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2"))
_SPANNING = "aws:s3control/multiRegionAccessPoint:MultiRegionAccessPoint"
#: Lists of a replication's rules.
_RULES = ("rules", "replicationConfiguration.rules", "replicationConfigurations.rules")


def _destinations(resource: Resource, *keys: str) -> Iterator[tuple[str, Any]]:
    """What rules that aren't disabled say under any of the keys of their destination."""
    for path in _RULES:
        for at, each in select(resource.properties, path):
            if is_unknown(each):
                yield at, each
            elif isinstance(each, Mapping) and text(each.get("status")).lower() != "disabled":
                for key in keys:
                    for name in ("destination", "destinations"):
                        for below, value in select(each, f"{name}.{key}"):
                            yield f"{at}.{below}", value


@rule(
    "residency-aws-s3-replication",
    "Objects are replicated to buckets in the country only",
    Severity.CRITICAL,
    _BUCKET | {"aws:s3/bucketReplicationConfig:BucketReplicationConfig"},
    (*CONTROLS, "iso27001:A.8.13"),
    "Replicate to a bucket of an allowed region that this stack declares, so that its region can "
    "be told: names and ARNs of buckets say none. There is one AWS region in the country, so a "
    "replica of another region always is abroad.",
)
def replication(resource: Resource, view: View) -> Iterator[Finding]:
    """Every destination's bucket; one that nobody can place is a violation, for it gets all."""
    for at, value in _destinations(resource, "bucket"):
        yield from aws_targets.bucket_at(
            resource, view, at, value, "the destination bucket", certain=True
        )


@rule(
    "residency-aws-s3-replica-account",
    "Objects are replicated to accounts that the settings allow",
    Severity.HIGH,
    _BUCKET | {"aws:s3/bucketReplicationConfig:BucketReplicationConfig"},
    (*CONTROLS, "iso27001:A.8.12"),
    "Add the account to the setting allowedAccounts, or replicate within the account.",
)
def replica_account(resource: Resource, view: View) -> Iterator[Finding]:
    """The account that owns the replicas, where one is named."""
    for at, value in _destinations(resource, "account", "accountId"):
        if is_unknown(value):
            yield indeterminate(at, "the account that owns replicas can't be known")
        elif text(value) and text(value) not in view.settings.allowed_accounts:
            yield violation(
                at,
                f"replicas are owned by the account {text(value)}, which the setting "
                "allowedAccounts lacks",
            )


@rule(
    "residency-aws-s3-multi-region-access-point",
    "No access point of S3 spans regions",
    Severity.CRITICAL,
    {_SPANNING, "aws:s3/accessPoint:AccessPoint"},
    CONTROLS,
    "Use an access point of the bucket's own region (aws.s3.AccessPoint).",
)
def multi_region_access_point(resource: Resource, view: View) -> Iterator[Finding]:
    """Requests pass the edges of Global Accelerator, whatever the regions behind are.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/MultiRegionAccessPoints.html
    """
    if resource.kind == _SPANNING and resource.custom:
        yield violation(
            "", f"requests pass edges of AWS, which are abroad as well; {places_said(view)}"
        )


@rule(
    "residency-aws-s3-acceleration",
    "Uploads don't pass edges of CloudFront",
    Severity.CRITICAL,
    _BUCKET
    | {
        "aws:s3/bucketAccelerateConfigurationV2:BucketAccelerateConfigurationV2",
        "aws:s3/bucketAccelerateConfiguration:BucketAccelerateConfiguration",
    },
    CONTROLS,
    "Suspend transfer acceleration: it takes objects in at the edge nearest to the sender.",
)
def acceleration(resource: Resource, view: View) -> Iterator[Finding]:
    """Transfer acceleration, inline or by itself; off unless it is switched on."""
    key = "accelerationStatus" if resource.kind in _BUCKET else "status"
    value = resource.get(key)
    if is_unknown(value):
        yield indeterminate(key, "whether transfer acceleration is on can't be known")
    elif text(value).lower() == "enabled":
        yield violation(
            key, f"objects are taken in at edges, which are abroad as well; {places_said(view)}"
        )


RULES: tuple[Rule, ...] = (replication, replica_account, multi_region_access_point, acceleration)
