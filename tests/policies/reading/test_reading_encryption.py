"""What encrypts a resource, for reports' maps."""

from __future__ import annotations

from typing import Any

import pytest

from falaj.policies.model import UNKNOWN, Resource, Stack
from falaj.policies.rules.encryption.at_rest import Encryption, encryption_of

KEY = "arn:aws:kms:me-central-1:123456789012:key/k"
SSE = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"


@pytest.mark.parametrize(
    ("kind", "properties", "expected"),
    [
        ("aws:iam/role:Role", {}, Encryption("not stored here")),
        ("aws:ssm/parameter:Parameter", {"type": "String"}, Encryption("not stored here")),
        ("aws:efs/fileSystem:FileSystem", {}, Encryption("none")),
        ("aws:efs/fileSystem:FileSystem", {"encrypted": True}, Encryption("service key")),
        (
            "aws:efs/fileSystem:FileSystem",
            {"encrypted": True, "kmsKeyId": KEY},
            Encryption("customer key", KEY),
        ),
        (
            "aws:efs/fileSystem:FileSystem",
            {"encrypted": True, "kmsKeyId": UNKNOWN},
            Encryption("unknown"),
        ),
        # The worst of its parts counts.
        (
            "aws:rds/instance:Instance",
            {"storageEncrypted": True, "kmsKeyId": KEY, "performanceInsightsEnabled": True},
            Encryption("service key", KEY),
        ),
        (
            "azure-native:storage:StorageAccount",
            {"encryption": {"keySource": "Microsoft.Storage"}},
            Encryption("service key"),
        ),
    ],
)
def test_by_itself(kind: str, properties: dict[str, Any], expected: Encryption) -> None:
    resource = Resource(kind, "it", properties, urn="urn:it")
    assert encryption_of(resource, Stack((resource,))) == expected


def test_a_buckets_companion_says_for_it() -> None:
    bucket = Resource("aws:s3/bucket:Bucket", "data", {"bucket": "data"}, urn="urn:bucket")
    by_default = {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": KEY}
    rules = [{"applyServerSideEncryptionByDefault": by_default}]
    beside = Resource(SSE, "data", {"bucket": "data", "rules": rules}, urn="urn:sse")
    assert encryption_of(bucket, Stack((bucket, beside))) == Encryption("customer key", KEY)
    assert encryption_of(bucket, Stack((bucket,))) == Encryption("service key")
    assert encryption_of(bucket) == Encryption("unknown")
