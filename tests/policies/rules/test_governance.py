"""Governance: tags of any shape, machines by name, classes, and what may be added."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.policies.model import UNKNOWN, Context, FindingKind, Provider, Resource, Settings
from falaj.policies.reading.tags import as_given, tags_of
from falaj.policies.rules.governance.costs import has_gpu
from falaj.policies.rules.governance.restricted_data import restricted_spot, shares_gpu
from falaj.policies.rules.governance.tags import TAGGABLE, missing_tags, required_tags

CONFIG = {
    "falaj:owner": "it@bank.ae",
    "falaj:tenant": "bank",
    "falaj:dataClass": "internal",
    "falaj:costCenter": "42",
    "falaj:environment": "test",
}
REQUIRED = Settings().required_tags
NAMES = (
    st.sampled_from(REQUIRED)
    | st.sampled_from(["falaj-owner", "falaj-tenant"])
    | st.text(min_size=1, max_size=12)
)
VALUES = st.text(min_size=1, max_size=8).filter(str.strip) | st.just(UNKNOWN)
KINDS = st.sampled_from(sorted(TAGGABLE - {"aws:autoscaling/group:Group"}))


@given(KINDS, st.dictionaries(NAMES, VALUES, max_size=6))
def test_what_is_added_meets_the_rule_and_changes_nothing(kind: str, tags: dict[str, Any]) -> None:
    resource = Resource(kind, "it", {"tags": tags})
    added = missing_tags(resource, Settings(), CONFIG)
    assert not set(added) & set(tags)
    assert set(added) <= {as_given(resource, each) for each in REQUIRED}
    whole = Resource(kind, "it", {"tags": {**tags, **added}})
    assert not list(required_tags.check(whole, Context()))


@given(KINDS, st.sets(st.sampled_from(REQUIRED), min_size=1))
def test_each_missing_tag_is_named(kind: str, missing: set[str]) -> None:
    tags = {each: "x" for each in REQUIRED if each not in missing}
    resource = Resource(kind, "it", {"tags": tags})
    (found,) = required_tags.check(resource, Context())
    assert found.kind is FindingKind.VIOLATION
    assert all(as_given(resource, each) in found.reason for each in missing)


def test_tags_that_are_added_have_the_clouds_form() -> None:
    vault = Resource("azure-native:keyvault:Vault", "it", {"tags": {"falaj:tenant": "bank"}})
    added = missing_tags(vault, Settings(), CONFIG)
    assert set(added) == {
        "falaj-owner", "falaj-data-class", "falaj-cost-center", "falaj-environment"
    }  # fmt: skip
    bucket = Resource("aws:s3/bucket:Bucket", "it", {"tags": {"falaj-tenant": "bank"}})
    assert set(missing_tags(bucket, Settings(), CONFIG)) == set(REQUIRED)


def test_nothing_is_added_where_tags_cannot_be_seen_or_are_a_list() -> None:
    bucket = "aws:s3/bucket:Bucket"
    assert not missing_tags(Resource(bucket, "it", {"tags": UNKNOWN}), Settings(), CONFIG)
    group = Resource("aws:autoscaling/group:Group", "it", {})
    assert not missing_tags(group, Settings(), CONFIG)
    assert not missing_tags(Resource("kubernetes:core/v1:Pod", "it", {}), Settings(), CONFIG)
    assert not missing_tags(Resource(bucket, "it", {}), Settings(), {})


@pytest.mark.parametrize(
    "given_", [{"tags": {"a": "1"}}, json.dumps({"tags": {"a": "1"}})], ids=["object", "text"]
)
def test_the_provider_adds_its_tags(given_: Any) -> None:
    provider = Provider("pulumi:providers:aws", {"defaultTags": given_})
    bucket = Resource("aws:s3/bucket:Bucket", "it", {"tags": {"b": "2"}}, provider=provider)
    assert tags_of(bucket) == {"a": "1", "b": "2"}
    hidden = Provider("pulumi:providers:aws", {"defaultTags": UNKNOWN})
    assert tags_of(Resource("aws:s3/bucket:Bucket", "it", {}, provider=hidden)) is None


def test_types_that_take_tags_are_those_of_the_sdks() -> None:
    assert len(TAGGABLE) > 1_800
    for kind in ("aws:s3/bucket:Bucket", "aws:eks/nodeGroup:NodeGroup"):
        assert kind in TAGGABLE
    for kind in ("aws:s3/bucketPolicy:BucketPolicy", "azure-native:network:Subnet"):
        assert kind not in TAGGABLE


@pytest.mark.parametrize(
    "name",
    [
        "p4d.24xlarge", "p5en.48xlarge", "p6-b200.48xlarge", "g4dn.xlarge", "g5g.metal",
        "gr6.4xlarge",
        "g6f.large", "inf2.xlarge", "trn1n.32xlarge", "dl1.24xlarge", "ml.g5.2xlarge",
        "Standard_NC40ads_H100_v5", "Standard_ND96isr_H200_v5", "standard_nv36ads_a10_v5",
        "Standard_NC24ads_A100_v4",
    ],
)  # fmt: skip
def test_machines_with_gpus(name: str) -> None:
    assert has_gpu(name)


@pytest.mark.parametrize(
    "name",
    ["m7g.large", "c7gn.large", "t3.micro", "hpc7g.16xlarge", "i4g.large", "x2gd.large",
     "r6gd.large",
     "Standard_D4s_v5", "Standard_L8s_v3", "Standard_E4ads_v5", "", "p", "vt1.3xlarge"],
)  # fmt: skip
def test_machines_without_gpus(name: str) -> None:
    assert not has_gpu(name)


@pytest.mark.parametrize(
    ("name", "shared"),
    [
        ("Standard_NV6ads_A10_v5", True), ("Standard_NV12ads_A10_v5", True),
        ("Standard_NV18ads_A10_v5", True), ("Standard_NV36ads_A10_v5", False),
        ("Standard_NV36adms_A10_v5", False), ("Standard_NV72ads_A10_v5", False),
        ("Standard_NV4as_v4", True), ("Standard_NV32as_v4", False), ("g6f.xlarge", True),
        ("gr6f.4xlarge", True), ("g6.xlarge", False), ("p5.48xlarge", False),
    ],
)  # fmt: skip
def test_machines_with_a_part_of_a_gpu(name: str, shared: bool) -> None:
    assert shares_gpu(name) is shared


@given(st.sampled_from(["public", "internal", "confidential"]), st.sampled_from(["", "falaj:"]))
def test_the_resource_s_own_class_decides(data_class: str, prefix: str) -> None:
    context = Context(Settings(data_class="restricted"))
    tags = {f"{prefix}data-class": data_class}
    spot = Resource("aws:eks/nodeGroup:NodeGroup", "it", {"capacityType": "SPOT", "tags": tags})
    assert not list(restricted_spot.check(spot, context))
    untagged = Resource(spot.type, "it", {"capacityType": "SPOT"})
    assert [each.kind for each in restricted_spot.check(untagged, context)] == [
        FindingKind.VIOLATION
    ]
