"""What AWS refuses because of what exists, and what keeps things from being deleted."""

from __future__ import annotations

from typing import Any

import pytest

from falaj.sandbox.clouds.aws import MODEL
from falaj.sandbox.clouds.model import Made as Existing
from falaj.sandbox.errors import SandboxError
from falaj.sandbox.inprocess import Sandbox
from tests.sandbox.aws.plausible import (
    REGION,
    Made,
    build,
    cloud,
    inputs_of,
    resolved,
    token_of,
)
from tests.sandbox.aws.test_aws_refusals import changed

IAM = "arn:aws:iam::000000000000"


def clouds(*names: str) -> tuple[Sandbox, Made]:
    sandbox = cloud()
    return sandbox, build(sandbox, *names) if names else {}


# what exists, the plausible resource, path to change, what to put there, the refusal's text
WRONG: list[tuple[tuple[str, ...], str, str, Any, str]] = [
    (("vpc",), "a", "cidrBlock", "10.1.0.0/20", "not inside the VPC"),
    (("vpc", "b"), "a", "cidrBlock", "10.0.16.0/24", "overlaps 10.0.16.0/20"),
    ((), "a", "vpcId", "vpc-0000aaaaaaaaaaaaa", "does not exist"),
    (("vpc",), "group", "vpcId", "vpc-0000aaaaaaaaaaaaa", "does not exist"),
    (("vpc", "group"), "ingress", "securityGroupId", "sg-0000aaaaaaaaaaaaa", "does not exist"),
    (("vpc", "a", "table", "association"), "association", "subnetId", "{a}", "already associated"),
    (("vpc", "a", "b", "group"), "ecrApi", "vpcId", "{vpc}", ""),
    (("vpc", "a", "b", "group"), "ecrApi", "subnetIds.1", "{a}", "one subnet a zone"),
    ((), "alias", "targetKeyId", "0000aaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa", "does not exist"),
    (("role",), "attachment", "policyArn", f"{IAM}:policy/no", "does not exist"),
    ((), "versioning", "bucket", "falaj-nowhere", "does not exist"),
    (("bucket",), "lock", "bucket", "{bucket}", "is not versioned"),
    (("bucket", "key", "logs", "writer"), "trail", "name", "falaj", "doesn't let cloudtrail"),
    (("vpc", "a", "b", "role", "key"), "cluster", "vpcConfig.subnetIds", ["{a}"], "two zones"),
    (("vpc", "a", "b", "nodes", "key"), "cluster", "roleArn", "{nodes.arn}", "eks.amazonaws.com"),
    (("vpc", "a", "nodes", "key", "placement", "template"), "pool", "clusterName", "nowhere",
     "does not exist"),
    (
        ("vpc", "a", "b", "role", "key", "cluster", "pods", "placement", "template"),
        "pool", "nodeRoleArn", "{pods.arn}", "ec2.amazonaws.com",
    ),
    (
        ("vpc", "a", "b", "role", "key", "cluster", "nodes", "placement", "template"),
        "pool", "instanceTypes", ["p5en.48xlarge"], "leave one of them out",
    ),
    (("vpc", "a", "b", "role", "key", "cluster", "pods"), "view", "policyArn",
     "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy", "no access entry"),
    (("vpc", "a", "group"), "balancer", "subnets", ["{a}"], "two zones"),
    (("logs",), "logs", "name", "/falaj/audit", "is taken"),
    (("key", "alias"), "alias", "name", "alias/falaj/data", "is taken"),
    (("detector",), "detector", "enable", True, "'Detectors per Region' is 1"),
    (("vpc", "a", "b", "targets", "small"), "scaling", "instanceRefresh",
     {"strategy": "Rolling", "preferences": {"autoRollback": True}}, r"version '\$Latest'"),
    (("tasks",), "task", "executionRoleArn", f"{IAM}:role/no", "does not exist"),
]  # fmt: skip


@pytest.mark.parametrize(("existing", "name", "path", "value", "text"), WRONG)
def test_what_contradicts_the_world_is_refused(
    existing: tuple[str, ...], name: str, path: str, value: Any, text: str
) -> None:
    sandbox, made = clouds(*existing)
    inputs = changed(inputs_of(name, made), path, resolved(value, made))
    if not text:
        sandbox.create(token_of(name), "another", inputs)
        return
    with pytest.raises(SandboxError, match=text):
        sandbox.create(token_of(name), "another", inputs)


@pytest.mark.parametrize(
    ("image", "text"),
    [
        ("resolve:ssm:/acme/image", "an image that is an SSM parameter"),
        ("ami-0123456789abcdef0", ""),
    ],
)
def test_a_refresh_is_taken_back_only_to_what_is_fixed(image: str, text: str) -> None:
    sandbox, made = clouds("vpc", "a", "b", "targets")
    template, _ = sandbox.create(
        token_of("small"), "small", {"instanceType": "m7i.large", "imageId": image}
    )
    inputs = {
        **inputs_of("scaling", {**made, "small": (template, {})}),
        "launchTemplate": {"id": template, "version": "1"},
        "instanceRefresh": {"strategy": "Rolling", "preferences": {"autoRollback": True}},
    }
    if text:
        with pytest.raises(SandboxError, match=text):
            sandbox.create(token_of("scaling"), "scaling", inputs)
    else:
        sandbox.create(token_of("scaling"), "scaling", inputs)


def test_a_machine_type_is_sold_in_the_subnets_zones() -> None:
    names = ("vpc", "a", "b", "role", "key", "cluster", "nodes", "placement", "template")
    sandbox, made = clouds(*names)
    third = sandbox.create(
        token_of("a"),
        "third",
        {"vpcId": made["vpc"][0], "cidrBlock": "10.0.32.0/20", "availabilityZoneId": "mec1-az2"},
    )[0]
    # A template without the placement group, which lies in one zone.
    loose = sandbox.create(
        token_of("template"), "loose", changed(inputs_of("template", made), "placement", None)
    )[0]
    inputs = {**inputs_of("pool", made), "launchTemplate": {"id": loose, "version": "1"}}
    with pytest.raises(SandboxError, match="sold in mec1-az1, mec1-az3"):
        sandbox.create(token_of("pool"), "pool", {**inputs, "subnetIds": [third]})
    # Some of the zones are enough: the group runs there.
    sandbox.create(token_of("pool"), "pool", {**inputs, "subnetIds": [third, made["a"][0]]})


def test_a_key_of_another_region_is_refused() -> None:
    sandbox, _ = clouds()
    _, key = sandbox.create(token_of("key"), "key", {"region": "eu-west-1"})
    with pytest.raises(SandboxError, match="is in eu-west-1, this resource in me-central-1"):
        sandbox.create(token_of("homes"), "homes", {"encrypted": True, "kmsKeyId": key["arn"]})


def test_what_belongs_to_other_accounts_is_none_of_the_sandbox_s_business() -> None:
    sandbox, _ = clouds()
    sandbox.create(
        token_of("homes"),
        "homes",
        {
            "encrypted": True,
            "kmsKeyId": "arn:aws:kms:me-central-1:111122223333:key/"
            "1234abcd-12ab-34cd-56ef-1234567890ab",
        },
    )
    sandbox.create(
        token_of("a"), "a", {"vpcId": "vpc-0123456789abcdef0", "cidrBlock": "10.0.0.0/20"}
    )


def test_the_sixth_vpc_exceeds_the_quota() -> None:
    sandbox, _ = clouds()
    for number in range(5):
        sandbox.create(token_of("vpc"), f"v{number}", {"cidrBlock": "10.0.0.0/16"})
    with pytest.raises(SandboxError, match="'VPCs per Region' is 5"):
        sandbox.create(token_of("vpc"), "v5", {"cidrBlock": "10.0.0.0/16"})
    sandbox.create(token_of("vpc"), "abroad", {"cidrBlock": "10.0.0.0/16", "region": "eu-west-1"})


def test_bucket_names_are_taken_in_every_region() -> None:
    sandbox, _ = clouds()
    sandbox.create(token_of("bucket"), "one", {"bucket": "falaj-models"})
    with pytest.raises(SandboxError, match=r"falaj-models.* (is taken|already exists)"):
        sandbox.create(
            token_of("bucket"), "two", {"bucket": "falaj-models", "region": "eu-west-1"}
        )


@pytest.mark.parametrize(
    ("target", "user"),
    [
        ("vpc", "a"),
        ("vpc", "group"),
        ("vpc", "gateway"),
        ("a", "nat"),
        ("group", "mount"),
        ("cluster", "pool"),
        ("role", "attachment"),
        ("policy", "attachment"),
        ("homes", "mount"),
        ("certificate", "listener"),
        ("targets", "listener"),
        ("tier", "service"),
        ("firewallPolicy", "firewall"),
        ("domains", "firewallPolicy"),
        ("plan", "selection"),
    ],
)
def test_what_is_used_can_not_be_deleted(
    whole: tuple[Sandbox, Made], target: str, user: str
) -> None:
    sandbox, made = whole
    found = delete_blockers(sandbox, target, made)
    assert any(made[user][0] in reason for reason in found), found


@pytest.mark.parametrize("name", ["key", "logs", "pool", "topic", "s3", "lustre", "listener"])
def test_what_nobody_holds_can_be_deleted(whole: tuple[Sandbox, Made], name: str) -> None:
    sandbox, made = whole
    assert delete_blockers(sandbox, name, made) == []


@pytest.fixture(scope="module")
def whole() -> tuple[Sandbox, Made]:
    sandbox = cloud()
    return sandbox, build(sandbox)


def delete_blockers(sandbox: Sandbox, name: str, made: Made) -> list[str]:
    store = sandbox.cloud.store
    found: Existing | None = store.by_id(token_of(name), made[name][0])
    assert found is not None
    return [problem.reason for problem in MODEL.delete_blockers(token_of(name), found, store)]


def test_an_update_does_not_collide_with_itself(whole: tuple[Sandbox, Made]) -> None:
    sandbox, made = whole
    config = {"region": REGION}
    for name, (id, outputs) in made.items():
        token = token_of(name)
        known = sandbox.cloud.store.by_id(token, id)
        assert known is not None, outputs
        assert MODEL.conflicts(token, known.inputs, config, sandbox.cloud.store, id) == []


def test_a_launch_template_counts_its_versions() -> None:
    sandbox, made = clouds("small")
    id, _ = made["small"]
    store, token = sandbox.cloud.store, token_of("small")
    config = {"region": REGION}
    same = MODEL.outputs(token, id, {**store.by_id(token, id).inputs, "tags": {"a": "b"}},  # type: ignore[union-attr]
                         config, store)  # fmt: skip
    other = MODEL.outputs(token, id, {"instanceType": "m7i.xlarge"}, config, store)
    assert (same["latestVersion"], other["latestVersion"]) == (1, 2)


def test_a_type_is_one_type_under_each_of_its_names() -> None:
    sandbox, made = clouds("vpc", "a", "b", "group")
    balancer = sandbox.create(
        "aws:alb/loadBalancer:LoadBalancer", "balancer", inputs_of("balancer", made)
    )
    targets = sandbox.create("aws:alb/targetGroup:TargetGroup", "t", inputs_of("targets", made))
    forward = {"type": "forward", "targetGroupArn": targets[1]["arn"]}
    sandbox.create(
        "aws:lb/listener:Listener",
        "listener",
        {"loadBalancerArn": balancer[0], "port": 80, "protocol": "HTTP",
         "defaultActions": [forward]},
    )  # fmt: skip
    store = sandbox.cloud.store
    known = store.by_id("aws:alb/targetGroup:TargetGroup", targets[0])
    assert known is not None
    assert MODEL.delete_blockers(known.token, known, store)
    with pytest.raises(SandboxError, match="is taken"):
        sandbox.create(
            "aws:lb/targetGroup:TargetGroup",
            "other",
            {**inputs_of("targets", made), "name": targets[1]["name"]},
        )
