"""Duties: who may take them, what bounds them, and the pods' own identities."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest

from falaj.components.aws.identity import Identity
from falaj.components.aws.workload_identity import WorkloadIdentity
from falaj.components.specification.identity import DUTIES

AMAL = "arn:aws:iam::000000000000:user/amal"
NOOR = "arn:aws:iam::000000000000:user/noor"
PIPELINE = "arn:aws:iam::000000000000:role/ci/pipeline"
BUCKETS = {
    each: f"arn:aws:s3:::acme-dev-{each}"
    for each in ("datasets", "models", "checkpoints", "audit", "state")
}
RELATED: dict[str, Any] = {
    "bucket_ids": BUCKETS,
    "repository_ids": {},
    "key_ids": {"data": "arn:aws:kms:me-central-1:000000000000:key/1"},
}


@pytest.mark.parametrize(
    "pair",
    [
        ("trainer", "deployer"),
        ("trainer", "provisioner"),
        ("auditor", "trainer"),
        ("auditor", "provisioner"),
        ("auditor", "deployer"),
        ("auditor", "key-administrator"),
        ("key-administrator", "trainer"),
        ("key-administrator", "deployer"),
        ("key-administrator", "provisioner"),
    ],
)
def test_nobody_holds_two_duties_that_conflict(
    placed: dict[str, Any], pair: tuple[str, str]
) -> None:
    members = {pair[0]: [AMAL], pair[1]: [NOOR, AMAL]}
    with pytest.raises(pulumi.InputPropertiesError, match=f"{AMAL} is .*: .*; give one"):
        Identity("people", {**placed, **RELATED, "members": members})


def people(args: dict[str, Any]) -> Any:
    return lambda opts: Identity("people", {**RELATED, **args}, opts)


@pytest.fixture(scope="module")
def made(deploy: Any, placed: dict[str, Any]) -> Any:
    members = {"provisioner": [AMAL, PIPELINE], "deployer": [AMAL], "auditor": [NOOR]}
    return deploy(people({**placed, "members": members}))


def _trust(made: Any, duty: str) -> dict[str, Any]:
    role = made.one("aws:iam/role:Role", f"people-{duty}")
    statements = json.loads(role.inputs["assumeRolePolicy"])["Statement"]
    return {each["Sid"]: each for each in statements}


def test_every_duty_is_a_bounded_role_for_an_hour(made: Any) -> None:
    boundary = made.one("aws:iam/policy:Policy")
    assert sorted(made.returned["role_ids"]) == sorted(DUTIES)
    assert made.returned["boundary_id"] == boundary.outputs["arn"]
    roles = made.of_type("aws:iam/role:Role")
    assert len(roles) == len(DUTIES)
    for role in roles:
        assert role.inputs["permissionsBoundary"] == boundary.outputs["arn"]
        assert role.inputs["maxSessionDuration"] == 3600
        assert role.inputs["tags"]["falaj:duty"] in DUTIES


def test_users_need_a_second_factor_and_roles_bring_theirs(made: Any) -> None:
    trust = _trust(made, "provisioner")
    assert trust["Users"]["Principal"] == {"AWS": [AMAL]}
    assert trust["Users"]["Condition"] == {"Bool": {"aws:MultiFactorAuthPresent": "true"}}
    assert trust["Roles"]["Principal"] == {"AWS": [PIPELINE]}
    assert "Condition" not in trust["Roles"]


def test_a_duty_that_nobody_has_cannot_be_taken(made: Any) -> None:
    assert list(_trust(made, "trainer")) == ["Nobody"]
    assert _trust(made, "trainer")["Nobody"]["Effect"] == "Deny"


def test_a_second_factor_and_the_session_can_be_chosen(
    deploy: Any, placed: dict[str, Any]
) -> None:
    args = {
        **placed,
        "members": {"trainer": [AMAL]},
        "require_mfa": False,
        "session_minutes": 240.0,
    }
    made = deploy(people(args))
    assert "Condition" not in _trust(made, "trainer")["Users"]
    role = made.one("aws:iam/role:Role", "people-trainer")
    assert role.inputs["maxSessionDuration"] == 14400


def test_the_boundary_keeps_the_audit_bucket_and_the_duties(made: Any) -> None:
    statements = made.statements("people-boundary")
    assert statements["KeepAudit"]["Resource"] == [
        "arn:aws:s3:::acme-dev-audit",
        "arn:aws:s3:::acme-dev-audit/*",
    ]
    assert sorted(statements["KeepDuties"]["Resource"]) == sorted(
        made.returned["role_ids"].values()
    )
    own = statements["NewRolesHaveIt"]["Condition"]["StringNotEquals"]["iam:PermissionsBoundary"]
    assert own == made.returned["boundary_id"]


def test_the_provisioner_hands_the_key_of_secrets_to_clusters(
    deploy: Any, placed: dict[str, Any]
) -> None:
    keys = {
        each: f"arn:aws:kms:me-central-1:000000000000:key/{each}"
        for each in ("cluster", "data", "disks", "registry", "state")
    }
    made = deploy(people({**placed, "key_ids": keys}))
    statements = made.statements("people-provisioner", "aws:iam/rolePolicy:RolePolicy")
    assert statements["HandKeyToClusters"] == {
        "Sid": "HandKeyToClusters",
        "Effect": "Allow",
        "Action": ["kms:CreateGrant", "kms:DescribeKey", "kms:ListGrants"],
        "Resource": [keys["cluster"]],
    }
    services = statements["HandKeysToServices"]
    assert services["Condition"] == {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    assert keys["cluster"] not in services["Resource"]


def pods(args: dict[str, Any]) -> Any:
    """Builds a pod identity in a cluster."""

    def build(opts: pulumi.ResourceOptions, keys: dict[str, Any]) -> WorkloadIdentity:
        own = pulumi.ResourceOptions(provider=opts.providers[0])  # pyright: ignore
        vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16", opts=own)
        subnets = [
            aws.ec2.Subnet(
                zone,
                vpc_id=vpc.id,
                cidr_block=f"10.0.{number}.0/24",
                availability_zone_id=zone,
                opts=own,
            ).id
            for number, zone in enumerate(("mec1-az1", "mec1-az2"))
        ]
        trust = {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": {"Service": "eks.amazonaws.com"},
                    "Action": "sts:AssumeRole",
                }
            ],
        }
        role = aws.iam.Role("cluster", assume_role_policy=json.dumps(trust), opts=own)
        cluster = aws.eks.Cluster(
            "cluster",
            name="acme-dev",
            role_arn=role.arn,
            vpc_config={"subnet_ids": subnets, "endpoint_private_access": True},
            opts=own,
        )
        given = {
            **args,
            "cluster_id": cluster.name,
            "issuer_url": "https://issuer.example",
            "bucket_ids": BUCKETS,
            "data_key_id": keys["data"],
        }
        return WorkloadIdentity("pods", given, opts)

    return build


@pytest.mark.parametrize(
    ("duty", "read", "written"),
    [
        ("trainer", {"datasets", "checkpoints", "models"}, {"checkpoints", "models"}),
        ("deployer", {"models"}, set[str]()),
    ],
)
def test_pods_do_what_their_duty_needs(
    deploy: Any, placed: dict[str, Any], duty: str, read: set[str], written: set[str]
) -> None:
    args = {**placed, "namespace": "ml", "service_account": "worker", "duty": duty}
    made = deploy(pods(args))
    statements = made.statements("pods", kind="aws:iam/rolePolicy:RolePolicy")
    assert set(statements["Read"]["Resource"]) == {f"{BUCKETS[each]}/*" for each in read}
    found = statements.get("Write", {"Resource": []})["Resource"]
    assert set(found) == {f"{BUCKETS[each]}/*" for each in written}
    assert statements["DataKey"]["Condition"] == {
        "StringEquals": {"kms:ViaService": "s3.me-central-1.amazonaws.com"}
    }
    association = made.one("aws:eks/podIdentityAssociation:PodIdentityAssociation")
    assert association.inputs["clusterName"] == "acme-dev"
    assert association.inputs["roleArn"] == made.returned["identity_id"]


def test_only_the_named_service_account_gets_the_role(deploy: Any, placed: dict[str, Any]) -> None:
    boundary = "arn:aws:iam::000000000000:policy/boundary"

    def build(opts: pulumi.ResourceOptions, keys: dict[str, Any]) -> Any:
        own = pulumi.ResourceOptions(provider=opts.providers[0])  # pyright: ignore
        document = {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}],
        }
        limit = aws.iam.Policy("b", name="boundary", policy=json.dumps(document), opts=own)
        args = {**placed, "namespace": "ml", "service_account": "worker", "duty": "trainer"}
        return pods({**args, "boundary_id": limit.arn})(opts, keys)

    made = deploy(build)
    role = made.one("aws:iam/role:Role", "pods")
    assert role.inputs["permissionsBoundary"] == boundary
    (statement,) = json.loads(role.inputs["assumeRolePolicy"])["Statement"]
    assert statement["Principal"] == {"Service": ["pods.eks.amazonaws.com"]}
    assert statement["Condition"] == {
        "StringEquals": {
            "aws:SourceAccount": "000000000000",
            "aws:RequestTag/kubernetes-namespace": "ml",
            "aws:RequestTag/kubernetes-service-account": "worker",
        },
        "ArnEquals": {"aws:SourceArn": "arn:aws:eks:me-central-1:000000000000:cluster/acme-dev"},
    }
