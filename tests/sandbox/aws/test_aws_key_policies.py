"""What the policies of keys let services and people do, and what is refused where they don't."""

from __future__ import annotations

import json
from typing import Any

import pytest

from falaj.sandbox.clouds.aws.key_policies import Caller, allows, deployer
from falaj.sandbox.errors import SandboxError
from falaj.sandbox.inprocess import Sandbox
from tests.sandbox.aws.plausible import Made, build, cloud, inputs_of, token_of

ROOT = "arn:aws:iam::000000000000:root"
SOMEBODY = "arn:aws:iam::000000000000:role/platform"
SCALING = (
    "arn:aws:iam::000000000000:role/aws-service-role/autoscaling.amazonaws.com/"
    "AWSServiceRoleForAutoScaling"
)
FOR_RESOURCES = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
OWN = {"StringEquals": {"kms:CallerAccount": "000000000000"}}
HANDS_ON = ["kms:CreateGrant", "kms:DescribeKey"]


def allow(who: Any, actions: Any, **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Principal": who, "Action": actions, "Resource": "*", **more}


def document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


MANAGE = allow({"AWS": ROOT}, ["kms:PutKeyPolicy", "kms:DescribeKey"])
NO_CONDITION = deployer({"kms:GrantIsForAWSResource": None})
LOGS = Caller(
    "logs", services=("logs.me-central-1.amazonaws.com",),
    context={"kms:EncryptionContext:aws:logs:arn": "arn:aws:logs:me-central-1:0:log-group:a"},
)  # fmt: skip
BY_GROUP = {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": "arn:aws:logs:*:0:log-group:*"}}


@pytest.mark.parametrize(
    ("statements", "caller", "expected"),
    [
        ([allow({"AWS": ROOT}, "kms:*")], NO_CONDITION, True),
        ([allow({"AWS": "000000000000"}, "kms:Create*")], NO_CONDITION, True),
        ([allow("*", "kms:CreateGrant", Condition=OWN)], NO_CONDITION, True),
        ([allow({"AWS": ROOT}, "kms:CreateGrant", Condition=FOR_RESOURCES)], NO_CONDITION, False),
        (
            [allow({"AWS": ROOT}, "kms:CreateGrant", Condition={"BoolIfExists": {
                "kms:GrantIsForAWSResource": "true"}})],
            NO_CONDITION, True,
        ),
        (
            [allow({"AWS": ROOT}, "kms:CreateGrant",
                   Condition={"Null": {"kms:GrantIsForAWSResource": "true"}})],
            NO_CONDITION, True,
        ),
        # Who it is, by which service, and what KMS would compare with, isn't known.
        ([allow({"AWS": SOMEBODY}, "kms:CreateGrant")], NO_CONDITION, None),
        (
            [allow({"AWS": ROOT}, "kms:CreateGrant",
                   Condition={"StringEquals": {"kms:ViaService": "eks.amazonaws.com"}})],
            NO_CONDITION, None,
        ),
        (
            [allow({"AWS": ROOT}, "kms:CreateGrant",
                   Condition={"NumericLessThan": {"kms:CallerAccount": "1"}})],
            NO_CONDITION, None,
        ),
        ([allow({"AWS": "arn:aws:iam::111122223333:root"}, "kms:*")], NO_CONDITION, False),
        ([allow({"Service": "eks.amazonaws.com"}, "kms:*")], NO_CONDITION, False),
        (
            [allow({"AWS": ROOT}, "kms:*"),
             {**allow("*", "kms:CreateGrant"), "Effect": "Deny"}],
            NO_CONDITION, False,
        ),
        (
            [allow({"AWS": ROOT}, "kms:*"),
             {**allow("*", "kms:CreateGrant", Condition={"StringNotEquals": {
                 "aws:PrincipalArn": SOMEBODY}}), "Effect": "Deny"}],
            NO_CONDITION, None,
        ),
        (
            [{"Effect": "Allow", "Principal": {"AWS": ROOT}, "NotAction": "kms:Create*",
              "Resource": "*"}],
            NO_CONDITION, False,
        ),
        ([allow({"Service": "logs.me-central-1.amazonaws.com"}, "kms:*")], LOGS, True),
        (
            [allow({"Service": ["logs.me-central-1.amazonaws.com"]}, "kms:*",
                   Condition=BY_GROUP)],
            LOGS, True,
        ),
        (
            [allow({"Service": "logs.me-central-1.amazonaws.com"}, "kms:*", Condition={
                "ArnLike": {"kms:EncryptionContext:aws:logs:arn": "arn:aws:logs:*:0:stream:*"}})],
            LOGS, False,
        ),
        ([allow({"AWS": ROOT}, "kms:*")], LOGS, False),
        ([allow("*", "kms:*")], LOGS, True),
        ([allow({"AWS": "*"}, "kms:*")], LOGS, None),
        # An account that is named leaves it to IAM's policies: none speaks for such a role.
        ([allow({"AWS": ROOT}, "kms:*")], Caller("scaling", arn=SCALING), False),
        ([allow({"AWS": SCALING}, "kms:*")], Caller("scaling", arn=SCALING), True),
    ],
)  # fmt: skip
def test_what_a_policy_allows_as_far_as_it_is_known(
    statements: list[dict[str, Any]], caller: Caller, expected: bool | None
) -> None:
    assert allows(document(*statements), "kms:CreateGrant", caller) is expected


@pytest.mark.parametrize("text", [None, "", "{", object(), '{"Statement": []}'])
def test_of_what_is_no_policy_nothing_is_known(text: object) -> None:
    assert allows(text, "kms:CreateGrant", NO_CONDITION) is None


def world(policy: str, *names: str) -> tuple[Sandbox, Made]:
    """A sandbox with a key of that policy, and what else is named of the plausible chain."""
    sandbox = cloud()
    made = build(sandbox, *names)
    made["key"] = sandbox.create(token_of("key"), "own", {"policy": policy})
    return sandbox, made


GROUND = ("vpc", "a", "b", "role", "bucket", "bucketPolicy", "writer", "logs")


@pytest.mark.parametrize(
    "grants",
    [
        # As EKS is refused it: the condition is on a key that the request doesn't have.
        allow({"AWS": ROOT}, "kms:CreateGrant", Condition={**OWN, **FOR_RESOURCES}),
        allow({"AWS": ROOT}, "kms:Encrypt"),
        allow({"Service": "eks.amazonaws.com"}, HANDS_ON),
    ],
)
def test_eks_makes_no_cluster_with_a_key_that_its_maker_cant_hand_on(
    grants: dict[str, Any],
) -> None:
    sandbox, made = world(document(MANAGE, grants), *GROUND)
    with pytest.raises(
        SandboxError, match=r"refuses kms:CreateGrant; EKS answers .*Access denied to KMS key"
    ):
        sandbox.create(token_of("cluster"), "cluster", inputs_of("cluster", made))


@pytest.mark.parametrize(
    "grants",
    [
        allow({"AWS": ROOT}, HANDS_ON, Condition=OWN),
        # Whether it is this role that deploys isn't known.
        allow({"AWS": SOMEBODY}, HANDS_ON),
        allow({"AWS": ROOT}, HANDS_ON, Condition={"StringLike": {"aws:PrincipalArn": "*"}}),
    ],
)
def test_eks_takes_a_key_that_may_be_handed_on(grants: dict[str, Any]) -> None:
    sandbox, made = world(document(MANAGE, grants), *GROUND)
    sandbox.create(token_of("cluster"), "cluster", inputs_of("cluster", made))


def test_a_policy_that_was_set_afterwards_holds() -> None:
    sandbox, made = world(document(MANAGE), *GROUND)
    text = document(MANAGE, allow({"AWS": ROOT}, HANDS_ON))
    sandbox.create(
        "aws:kms/keyPolicy:KeyPolicy", "later", {"keyId": made["key"][0], "policy": text}
    )
    sandbox.create(token_of("cluster"), "cluster", inputs_of("cluster", made))


@pytest.mark.parametrize(
    ("name", "service", "actions"),
    [
        ("logs", "logs.me-central-1.amazonaws.com",
         ["kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey", "kms:DescribeKey"]),
        ("trail", "cloudtrail.amazonaws.com", ["kms:GenerateDataKey*", "kms:DescribeKey"]),
    ],
)  # fmt: skip
def test_a_service_that_encrypts_on_its_own_stands_in_the_policy(
    name: str, service: str, actions: list[str]
) -> None:
    for left_out in actions:
        sandbox, made = world(
            document(MANAGE, allow({"Service": service}, [e for e in actions if e != left_out])),
            *GROUND,
        )
        inputs = {**inputs_of(name, made), "name": "other", "kmsKeyId": made["key"][1]["arn"]}
        with pytest.raises(SandboxError, match=f"refuses {left_out.removesuffix('*')}"):
            sandbox.create(token_of(name), name, inputs)
    sandbox, made = world(document(MANAGE, allow({"Service": service}, actions)), *GROUND)
    inputs = {**inputs_of(name, made), "name": "other", "kmsKeyId": made["key"][1]["arn"]}
    sandbox.create(token_of(name), name, inputs)


def test_disks_of_scaling_groups_are_encrypted_by_their_own_role() -> None:
    names = (*GROUND, "nodes", "placement")
    no_grant = ["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey*"]
    refused = [
        document(allow({"AWS": ROOT}, "kms:*")),
        document(MANAGE, allow({"AWS": SCALING}, no_grant)),
    ]
    own = {"kms:CallerAccount": "000000000000"}
    taken = [
        document(MANAGE, allow({"AWS": SCALING}, "kms:*")),
        document(MANAGE, allow({"AWS": "*"}, "kms:*", Condition={
            "StringEquals": own, "ArnEquals": {"aws:PrincipalArn": [SCALING]}})),
    ]  # fmt: skip
    for text in (*refused, *taken):
        sandbox, made = world(document(MANAGE, allow({"AWS": ROOT}, "kms:*")), *names)
        made["cluster"] = sandbox.create(
            token_of("cluster"), "cluster", inputs_of("cluster", made)
        )
        made["key"] = sandbox.create(token_of("key"), "disks", {"policy": text})
        made["template"] = sandbox.create(
            token_of("template"), "template", inputs_of("template", made)
        )
        if text in taken:
            sandbox.create(token_of("pool"), "pool", inputs_of("pool", made))
            continue
        with pytest.raises(SandboxError, match=r"AWSServiceRoleForAutoScaling.*kms:CreateGrant"):
            sandbox.create(token_of("pool"), "pool", inputs_of("pool", made))


@pytest.mark.parametrize(
    "statement",
    [
        allow({"AWS": ROOT}, ["kms:Decrypt", "kms:Encrypt"]),
        allow({"AWS": "arn:aws:iam::111122223333:root"}, "kms:*"),
        allow({"Service": "cloudtrail.amazonaws.com"}, "kms:*"),
    ],
)
def test_a_policy_that_nobody_can_change_again_is_refused(statement: dict[str, Any]) -> None:
    sandbox = cloud()
    inputs = {"policy": document(statement)}
    with pytest.raises(SandboxError, match="locks everybody out; allow kms:PutKeyPolicy"):
        sandbox.create(token_of("key"), "key", inputs)
    sandbox.create(token_of("key"), "key", {**inputs, "bypassPolicyLockoutSafetyCheck": True})


def test_an_administrator_by_name_locks_nobody_out() -> None:
    for who in (SOMEBODY, ROOT):
        text = document(allow({"AWS": who}, "kms:Put*"))
        cloud().create(token_of("key"), "key", {"policy": text})
