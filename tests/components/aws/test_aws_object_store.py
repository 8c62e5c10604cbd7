"""The object store: own keys, versions, nothing public, audit logs that nobody changes."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from falaj.components.aws.object_store import ObjectStore

PURPOSES = ["audit", "checkpoints", "datasets", "models", "state"]


def store(args: dict[str, Any]) -> Any:
    def build(opts: pulumi.ResourceOptions, keys: dict[str, Any]) -> ObjectStore:
        own = {f"{key}_key_id": keys[purpose] for key, purpose in
               (("data", "data"), ("log", "logs"), ("state", "state"))}  # fmt: skip
        return ObjectStore("store", {**args, **own}, opts)

    return build


@pytest.fixture(scope="module")
def made(deploy: Any, placed: dict[str, Any]) -> Any:
    return deploy(store(placed))


@pytest.mark.parametrize("redundancy", ["local", "geo"])
def test_redundancy_that_aws_lacks_is_refused(placed: dict[str, Any], redundancy: str) -> None:
    keys = {"data_key_id": "k", "log_key_id": "k", "state_key_id": "k"}
    with pytest.raises(pulumi.InputPropertiesError, match="redundancy"):
        ObjectStore("store", {**placed, **keys, "redundancy": redundancy})


def test_each_purpose_has_a_bucket_of_a_name_of_its_own(made: Any) -> None:
    names = made.returned["bucket_names"]
    assert sorted(names) == PURPOSES
    assert len(set(names.values())) == len(PURPOSES)
    for purpose, name in names.items():
        assert name.startswith("acme-dev-store-")
        assert len(name) <= 63
        assert made.returned["bucket_ids"][purpose] == f"arn:aws:s3:::{name}"
    assert made.returned["store_ids"] == made.returned["bucket_ids"]


def test_nothing_is_public_and_lists_are_off(made: Any) -> None:
    blocks = made.of_type("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock")
    assert len(blocks) == len(PURPOSES)
    for block in blocks:
        for key in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls"):
            assert block.inputs[key] is True
        assert block.inputs["restrictPublicBuckets"] is True
    for each in made.of_type("aws:s3/bucketOwnershipControls:BucketOwnershipControls"):
        assert each.inputs["rule"] == {"objectOwnership": "BucketOwnerEnforced"}


@pytest.mark.parametrize(
    ("bucket", "key"),
    [("datasets", "data"), ("models", "data"), ("audit", "logs"), ("state", "state")],
)
def test_objects_lie_under_the_key_of_their_purpose(made: Any, bucket: str, key: str) -> None:
    token = (
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
    )
    (rule,) = made.one(token, f"store-{bucket}").inputs["rules"]
    assert rule["bucketKeyEnabled"] is True
    assert rule["applyServerSideEncryptionByDefault"] == {
        "sseAlgorithm": "aws:kms",
        "kmsMasterKeyId": made.one("aws:kms/key:Key", f"keys-{key}").outputs["arn"],
    }


def test_versions_are_kept_for_a_while(made: Any) -> None:
    versions = made.of_type("aws:s3/bucketVersioning:BucketVersioning")
    assert len(versions) == len(PURPOSES)
    assert all(each.inputs["versioningConfiguration"]["status"] == "Enabled" for each in versions)
    for each in made.of_type("aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"):
        (rule,) = each.inputs["rules"]
        assert rule["noncurrentVersionExpiration"] == {"noncurrentDays": 30}
        assert rule["abortIncompleteMultipartUpload"] == {"daysAfterInitiation": 7}
        assert "days" not in rule["expiration"]


def test_nothing_is_replicated(made: Any) -> None:
    assert not [each for each in made.resources if "eplication" in each.type]


@pytest.mark.parametrize(
    ("environment", "mode"), [("production", "COMPLIANCE"), ("development", "GOVERNANCE")]
)
def test_audit_logs_are_locked(
    deploy: Any, placed: dict[str, Any], environment: str, mode: str
) -> None:
    args = {
        **placed,
        "environment": environment,
        "buckets": ["audit"],
        "audit_retention_days": 730.0,
        "old_version_days": 7,
    }
    made = deploy(store(args))
    lock = made.one("aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration")
    assert lock.inputs["rule"]["defaultRetention"] == {"mode": mode, "days": 730}
    bucket = made.one("aws:s3/bucket:Bucket")
    assert bucket.inputs["objectLockEnabled"] is True
    kept = environment == "production"
    assert made.kept()["aws:s3/bucket:Bucket store-audit"] == (kept, kept)
    assert bucket.inputs["forceDestroy"] is not kept


def test_only_the_trail_delivers_to_the_audit_bucket(made: Any) -> None:
    token = "aws:s3/bucketPolicy:BucketPolicy"
    for each, _, document in made.documents():
        if each.type == token:
            allowed = [it["Sid"] for it in document["Statement"] if it["Effect"] == "Allow"]
            expected = ["TrailLooksAtBucket", "TrailDelivers"]
            assert allowed == (expected if each.name == "store-audit" else [])
