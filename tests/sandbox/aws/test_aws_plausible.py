"""What AWS takes, the sandbox takes; what it makes up has the documented form."""

from __future__ import annotations

import re

import pytest

from falaj.sandbox.clouds.aws.model import kinds
from falaj.sandbox.inprocess import Sandbox
from tests.sandbox.aws.plausible import CHAIN, Made, build, cloud

ARN = re.compile(r"arn:aws:[a-z0-9-]+:(me-central-1)?:(000000000000)?:[^\s]+")
IDS = {
    "aws:ec2/vpc:Vpc": r"vpc-[0-9a-f]{17}",
    "aws:ec2/subnet:Subnet": r"subnet-[0-9a-f]{17}",
    "aws:ec2/securityGroup:SecurityGroup": r"sg-[0-9a-f]{17}",
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": r"sg-[0-9a-f]{17}",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": r"sgr-[0-9a-f]{17}",
    "aws:ec2/routeTable:RouteTable": r"rtb-[0-9a-f]{17}",
    "aws:ec2/natGateway:NatGateway": r"nat-[0-9a-f]{17}",
    "aws:ec2/eip:Eip": r"eipalloc-[0-9a-f]{17}",
    "aws:ec2/vpcEndpoint:VpcEndpoint": r"vpce-[0-9a-f]{17}",
    "aws:ec2/launchTemplate:LaunchTemplate": r"lt-[0-9a-f]{17}",
    "aws:ec2/capacityReservation:CapacityReservation": r"cr-[0-9a-f]{17}",
    "aws:ec2/flowLog:FlowLog": r"fl-[0-9a-f]{17}",
    "aws:kms/key:Key": r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}",
    "aws:kms/alias:Alias": r"alias/[a-zA-Z0-9/_-]+",
    "aws:s3/bucket:Bucket": r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
    "aws:fsx/lustreFileSystem:LustreFileSystem": r"fs-[0-9a-f]{17}",
    "aws:efs/fileSystem:FileSystem": r"fs-[0-9a-f]{17}",
    "aws:efs/mountTarget:MountTarget": r"fsmt-[0-9a-f]{17}",
    "aws:efs/accessPoint:AccessPoint": r"fsap-[0-9a-f]{17}",
    "aws:guardduty/detector:Detector": r"[0-9a-f]{32}",
    "aws:route53/zone:Zone": r"Z[0-9A-Z]{20}",
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": r"a-[0-9a-z]{17}",
    "aws:iam/policy:Policy": r"arn:aws:iam::000000000000:policy/[\w+=,.@-]{1,128}",
    "aws:lb/loadBalancer:LoadBalancer": (
        r"arn:aws:elasticloadbalancing:me-central-1:000000000000:"
        r"loadbalancer/app/[A-Za-z0-9-]{1,32}/[0-9a-f]{16}"
    ),
    "aws:lb/listener:Listener": (
        r"arn:aws:elasticloadbalancing:me-central-1:000000000000:"
        r"listener/app/[A-Za-z0-9-]{1,32}/[0-9a-f]{16}/[0-9a-f]{16}"
    ),
}


@pytest.fixture(scope="module")
def world() -> tuple[Sandbox, Made]:
    sandbox = cloud()
    return sandbox, build(sandbox)


def test_every_plausible_resource_is_taken(world: tuple[Sandbox, Made]) -> None:
    assert len(world[1]) == len(CHAIN)


@pytest.mark.parametrize("position", range(len(CHAIN)), ids=[name for name, _, _ in CHAIN])
def test_ids_and_arns_have_the_documented_form(world: tuple[Sandbox, Made], position: int) -> None:
    name, token, _ = CHAIN[position]
    id, outputs = world[1][name]
    if token in IDS:
        assert re.fullmatch(IDS[token], id)
    arn = outputs.get("arn")
    if arn is not None:
        assert ARN.fullmatch(arn)


def test_the_same_program_gets_the_same_ids() -> None:
    names = ("key", "vpc", "a", "bucket", "role", "cluster", "b", "group", "table")
    assert {name: made[0] for name, made in build(cloud(), *names).items()} == {
        name: made[0] for name, made in build(cloud(), *names).items()
    }


def test_services_keep_their_regions_out_of_global_arns(world: tuple[Sandbox, Made]) -> None:
    made = world[1]
    assert made["role"][1]["arn"].startswith("arn:aws:iam::000000000000:role/")
    assert made["nodes"][1]["arn"].startswith("arn:aws:iam::000000000000:role/falaj/")
    assert made["bucket"][1]["arn"] == f"arn:aws:s3:::{made['bucket'][0]}"
    assert made["budget"][0].startswith("000000000000:")


def test_outputs_that_other_resources_build_on(world: tuple[Sandbox, Made]) -> None:
    made = {name: outputs for name, (_, outputs) in world[1].items()}
    assert made["a"]["availabilityZone"] == "me-central-1a"
    assert made["b"]["availabilityZone"] == "me-central-1c"
    assert made["vpc"]["defaultSecurityGroupId"] == world[1]["default"][0]
    assert made["cluster"]["identities"][0]["oidcs"][0]["issuer"].startswith(
        "https://oidc.eks.me-central-1.amazonaws.com/id/"
    )
    assert made["cluster"]["vpcConfig"]["vpcId"] == world[1]["vpc"][0]
    assert made["cluster"]["certificateAuthority"]["data"]
    assert made["repository"]["repositoryUrl"].startswith(
        "000000000000.dkr.ecr.me-central-1.amazonaws.com/"
    )
    assert made["lustre"]["dnsName"].endswith(".fsx.me-central-1.amazonaws.com")
    assert made["firewall"]["firewallStatuses"][0]["syncStates"][0]["attachments"][0][
        "endpointId"
    ].startswith("vpce-")
    assert made["template"]["latestVersion"] == 1
    assert made["task"]["arn"].endswith(":task-definition/inference:1")


def test_every_described_type_exists_in_the_sdk(world: tuple[Sandbox, Made]) -> None:
    known = set(world[0].cloud.tables.tokens())
    assert set(kinds()) <= known
