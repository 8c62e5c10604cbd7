"""Names that are made up, the provider's region and tags, and what forces a replacement."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.sandbox.clouds.aws import MODEL
from falaj.sandbox.clouds.aws.model import merged_tags
from falaj.sandbox.inprocess import Sandbox
from falaj.wire import UNKNOWN
from tests.sandbox.aws.plausible import REGION

URN = "urn:pulumi:stack::project::aws:iam/role:Role::trainer"


def defaults(token: str, name: str = "trainer", **inputs: Any) -> dict[str, Any]:
    return dict(MODEL.defaults(token, name, inputs, {"region": REGION}, URN))


@pytest.mark.parametrize(
    ("token", "property", "longest"),
    [
        ("aws:iam/role:Role", "name", 64),
        ("aws:iam/policy:Policy", "name", 128),
        ("aws:lb/loadBalancer:LoadBalancer", "name", 32),
        ("aws:lb/targetGroup:TargetGroup", "name", 32),
        ("aws:alb/targetGroup:TargetGroup", "name", 32),
        ("aws:s3/bucket:Bucket", "bucket", 63),
        ("aws:eks/cluster:Cluster", "name", 100),
        ("aws:eks/nodeGroup:NodeGroup", "nodeGroupName", 63),
        ("aws:cloudtrail/trail:Trail", "name", 128),
        ("aws:cloudwatch/logGroup:LogGroup", "name", 512),
        ("aws:ecr/repository:Repository", "name", 256),
        ("aws:lambda/function:Function", "name", 255),
    ],
)
def test_made_up_names_keep_within_the_limit(token: str, property: str, longest: int) -> None:
    for name in ("t", "trainer", "x" * 700):
        found = defaults(token, name)[property]
        assert len(found) <= longest
        assert re.search(r"-[0-9a-f]{7}$", found)
        assert found.startswith(name[:20])


def test_nothing_is_made_up_where_a_name_is_given_or_required() -> None:
    assert "name" not in defaults("aws:iam/role:Role", name="x", namePrefix="y")
    assert "name" not in MODEL.defaults("aws:iam/role:Role", "r", {"name": "given"}, {}, URN)
    assert "name" not in defaults("aws:route53/record:Record")
    assert "name" not in defaults("aws:ec2/vpc:Vpc")
    assert defaults("aws:unknown/thing:Thing") == {}


def test_names_of_buckets_are_in_lower_case_and_of_aliases_have_their_prefix() -> None:
    assert defaults("aws:s3/bucket:Bucket", "Models")["bucket"].startswith("models-")
    assert defaults("aws:kms/alias:Alias", "data")["name"].startswith("alias/data-")


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,80}", fullmatch=True))
def test_made_up_names_are_names_that_the_service_takes(name: str) -> None:
    for token in ("aws:iam/role:Role", "aws:s3/bucket:Bucket", "aws:eks/nodeGroup:NodeGroup"):
        inputs = defaults(token, name)
        found = MODEL.problems(token, inputs, {"region": REGION})
        # The part that is kept of a bucket's name may end in '--' as its author wrote it.
        reserved = token == "aws:s3/bucket:Bucket" and name.lower().startswith(("xn--", "sthree-"))
        assert found == [] or reserved


def test_the_region_comes_from_the_provider_unless_the_resource_names_one() -> None:
    assert defaults("aws:ec2/vpc:Vpc")["region"] == REGION
    own = MODEL.defaults("aws:ec2/vpc:Vpc", "v", {"region": "eu-west-1"}, {"region": REGION}, URN)
    assert "region" not in own
    for token in ("aws:iam/role:Role", "aws:budgets/budget:Budget", "aws:route53/zone:Zone"):
        assert "region" not in defaults(token)


def test_default_tags_are_merged_and_overridden() -> None:
    config = {"defaultTags": {"tags": {"owner": "ministry", "tenant": "a"}}}
    assert merged_tags({"tags": {"tenant": "b"}}, config) == {"owner": "ministry", "tenant": "b"}
    assert merged_tags({}, {}) == {}
    assert merged_tags({"tags": UNKNOWN}, config) is UNKNOWN
    assert merged_tags({"tags": {"tenant": UNKNOWN}}, config) is UNKNOWN
    as_text = {"defaultTags": '{"tags": {"owner": "ministry"}}'}
    assert merged_tags({}, as_text) == {"owner": "ministry"}
    ignoring = {**config, "ignoreTags": {"keys": ["owner"], "keyPrefixes": ["ten"]}}
    assert merged_tags({"tags": {"x": "y"}}, ignoring) == {"x": "y"}


def test_outputs_carry_all_tags() -> None:
    settings = {"region": REGION, "defaultTags": {"tags": {"owner": "ministry"}}}
    _, made = Sandbox(cloud="aws", config=settings).create(
        "aws:ec2/vpc:Vpc", "v", {"cidrBlock": "10.0.0.0/16", "tags": {"a": "b"}}
    )
    assert made["tagsAll"] == {"owner": "ministry", "a": "b"}
    assert made["tags"] == {"a": "b"}


@pytest.mark.parametrize(
    ("token", "replacing", "kept"),
    [
        ("aws:ec2/vpc:Vpc", "cidrBlock", "enableDnsSupport"),
        ("aws:ec2/subnet:Subnet", "availabilityZoneId", "mapPublicIpOnLaunch"),
        ("aws:ec2/securityGroup:SecurityGroup", "description", "ingress"),
        ("aws:eks/cluster:Cluster", "roleArn", "version"),
        ("aws:eks/nodeGroup:NodeGroup", "instanceTypes", "scalingConfig"),
        ("aws:s3/bucket:Bucket", "bucket", "forceDestroy"),
        ("aws:kms/key:Key", "multiRegion", "policy"),
        ("aws:fsx/lustreFileSystem:LustreFileSystem", "deploymentType", "storageCapacity"),
        ("aws:efs/fileSystem:FileSystem", "kmsKeyId", "throughputMode"),
        ("aws:ecr/repository:Repository", "encryptionConfigurations", "imageTagMutability"),
        ("aws:iam/role:Role", "name", "assumeRolePolicy"),
        ("aws:lb/listener:Listener", "loadBalancerArn", "sslPolicy"),
    ],
)
def test_what_forces_a_replacement(token: str, replacing: str, kept: str) -> None:
    found = MODEL.replacements(token)
    assert replacing in found
    assert kept not in found
    assert "tags" not in found


def test_a_move_to_another_region_replaces_every_regional_resource() -> None:
    assert "region" in MODEL.replacements("aws:ec2/vpc:Vpc")
    assert "region" in MODEL.replacements("aws:rds/instance:Instance")
    assert "region" not in MODEL.replacements("aws:iam/role:Role")


def test_ids_follow_from_the_urn() -> None:
    def identity(urn: str) -> str:
        return MODEL.identity("aws:ec2/vpc:Vpc", "v", {}, {"region": REGION}, urn)

    assert identity(URN) == identity(URN)
    assert identity(URN) != identity(URN + "2")
