"""Queries, answered from the catalogue and from what was made."""

from __future__ import annotations

import json

import pytest

from falaj.components import catalogue
from falaj.sandbox.clouds.aws.documents import IDENTITY, complaints
from falaj.sandbox.errors import SandboxError
from falaj.sandbox.inprocess import Sandbox
from tests.sandbox.aws.plausible import Made, build, cloud


@pytest.fixture(scope="module")
def world() -> tuple[Sandbox, Made]:
    sandbox = cloud()
    names = ("vpc", "a", "b", "role", "key", "cluster", "policy", "repository", "parameter")
    return sandbox, build(sandbox, *names)


def test_a_query_that_is_not_known_says_which_are(world: tuple[Sandbox, Made]) -> None:
    with pytest.raises(SandboxError, match=r"no answer to the query .* getCallerIdentity"):
        world[0].invoke("aws:ec2/getSpotPrice:getSpotPrice", {})


def test_what_does_not_exist_is_said_so(world: tuple[Sandbox, Made]) -> None:
    for token, args in (
        ("aws:ec2/getVpc:getVpc", {"id": "vpc-0123456789abcdef0"}),
        ("aws:eks/getCluster:getCluster", {"name": "nowhere"}),
        ("aws:ssm/getParameter:getParameter", {"name": "/nowhere"}),
        ("aws:ec2/getPrefixList:getPrefixList", {"name": "nowhere"}),
        ("aws:index/getAvailabilityZone:getAvailabilityZone", {"zoneId": "use1-az1"}),
        ("aws:ec2/getInstanceType:getInstanceType", {"instanceType": "p4d.24xlarge"}),
        ("aws:organizations/getOrganization:getOrganization", {}),
    ):
        with pytest.raises(SandboxError):
            world[0].invoke(token, args)


def test_who_and_where(world: tuple[Sandbox, Made]) -> None:
    ask = world[0].invoke
    caller = ask("aws:index/getCallerIdentity:getCallerIdentity", {})
    assert caller["accountId"] == "000000000000"
    assert caller["arn"].startswith("arn:aws:sts::000000000000:assumed-role/")
    assert ask("aws:index/getPartition:getPartition", {})["dnsSuffix"] == "amazonaws.com"
    assert ask("aws:index/getRegion:getRegion", {})["region"] == "me-central-1"
    principal = ask("aws:index/getServicePrincipal:getServicePrincipal", {"serviceName": "s3"})
    assert principal["name"] == "s3.amazonaws.com"


def test_zones_are_those_of_the_catalogue(world: tuple[Sandbox, Made]) -> None:
    ask = world[0].invoke
    zones = ask("aws:index/getAvailabilityZones:getAvailabilityZones", {"state": "available"})
    place = catalogue.place("aws", "me-central-1")
    assert zones["zoneIds"] == [zone.id for zone in place.zones]
    assert zones["names"] == ["me-central-1a", "me-central-1b", "me-central-1c"]
    one = ask("aws:index/getAvailabilityZone:getAvailabilityZone", {"zoneId": "mec1-az2"})
    assert one["name"] == "me-central-1b"


def test_other_regions_have_zones_as_well(world: tuple[Sandbox, Made]) -> None:
    token = "aws:index/getAvailabilityZones:getAvailabilityZones"
    assert world[0].invoke(token, {"region": "us-east-1"})["zoneIds"][0] == "use1-az1"
    assert world[0].invoke(token, {"region": "ap-southeast-2"})["zoneIds"][0] == "apse2-az1"
    assert world[0].invoke(token, {"region": "us-gov-west-1"})["zoneIds"][0] == "usgw1-az1"


@pytest.mark.parametrize(
    "machine", [m.name for m in catalogue.place("aws", "me-central-1").machines("gpu")]
)
def test_offerings_agree_with_the_catalogue(world: tuple[Sandbox, Made], machine: str) -> None:
    known = catalogue.place("aws", "me-central-1").machine(machine)
    filters = [{"name": "instance-type", "values": [machine]}]
    found = world[0].invoke(
        "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings",
        {"locationType": "availability-zone-id", "filters": filters},
    )
    assert found["locations"] == list(known.zone_ids)
    assert set(found["instanceTypes"]) == {machine}
    described = world[0].invoke(
        "aws:ec2/getInstanceType:getInstanceType", {"instanceType": machine}
    )
    assert described["defaultVcpus"] == known.vcpu
    assert described["efaMaximumInterfaces"] == known.efa_interfaces
    assert described["gpuses"][0]["count"] == int(known.gpu_count)


def test_images_by_parameter_and_by_search(world: tuple[Sandbox, Made]) -> None:
    ask = world[0].invoke
    name = (
        "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/nvidia/recommended/image_id"
    )
    parameter = ask("aws:ssm/getParameter:getParameter", {"name": name})
    assert parameter["value"].startswith("ami-0000")
    assert parameter["value"] == ask("aws:ssm/getParameter:getParameter", {"name": name})["value"]
    image = ask(
        "aws:ec2/getAmi:getAmi",
        {"owners": ["amazon"], "filters": [{"name": "name", "values": ["al2023-ami-*-arm64"]}]},
    )
    assert image["architecture"] == "arm64"
    assert image["id"] == image["imageId"]


def test_what_was_made_is_found(world: tuple[Sandbox, Made]) -> None:
    sandbox, made = world
    assert sandbox.invoke("aws:ec2/getVpc:getVpc", {"id": made["vpc"][0]})["cidrBlock"] == (
        "10.0.0.0/16"
    )
    cluster = made["cluster"][1]
    found = sandbox.invoke("aws:eks/getCluster:getCluster", {"name": cluster["name"]})
    assert found["endpoint"] == cluster["endpoint"]
    assert found["accessConfigs"] == [cluster["accessConfig"]]
    assert sandbox.invoke("aws:iam/getPolicy:getPolicy", {"arn": made["policy"][0]})["policy"]
    managed = "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"
    assert sandbox.invoke("aws:iam/getPolicy:getPolicy", {"arn": managed})["name"] == (
        "AmazonEKSClusterPolicy"
    )
    assert sandbox.invoke("aws:ssm/getParameter:getParameter", {"name": "/falaj/state"})["value"]


def test_tokens_and_versions_say_that_they_are_of_the_sandbox(
    world: tuple[Sandbox, Made],
) -> None:
    ask = world[0].invoke
    token = ask("aws:eks/getClusterAuth:getClusterAuth", {"name": "falaj"})["token"]
    assert token.startswith("k8s-aws-v1.sandbox")
    args = {"addonName": "vpc-cni", "kubernetesVersion": "1.34", "mostRecent": True}
    assert ask("aws:eks/getAddonVersion:getAddonVersion", args)["version"].startswith("v1.")


def test_the_prefix_list_of_a_gateway_endpoint(world: tuple[Sandbox, Made]) -> None:
    sandbox, made = world
    found = sandbox.invoke(
        "aws:ec2/getPrefixList:getPrefixList", {"name": "com.amazonaws.me-central-1.s3"}
    )
    _, endpoint = sandbox.create(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        "s3",
        {"vpcId": made["vpc"][0], "serviceName": "com.amazonaws.me-central-1.s3"},
    )
    assert endpoint["prefixListId"] == found["id"]


def test_a_document_that_is_written_as_arguments(world: tuple[Sandbox, Made]) -> None:
    found = world[0].invoke(
        "aws:iam/getPolicyDocument:getPolicyDocument",
        {
            "statements": [
                {
                    "sid": "Read",
                    "actions": ["s3:GetObject", "s3:ListBucket"],
                    "resources": ["arn:aws:s3:::falaj"],
                    "conditions": [
                        {
                            "test": "StringEquals",
                            "variable": "aws:PrincipalAccount",
                            "values": ["000000000000"],
                        }
                    ],
                }
            ]
        },
    )
    assert list(complaints(found["json"], IDENTITY)) == []
    assert json.loads(found["minifiedJson"])["Statement"][0]["Condition"] == {
        "StringEquals": {"aws:PrincipalAccount": "000000000000"}
    }


GET_VPC = "aws:ec2/getVpc:getVpc"
GET_SUBNETS = "aws:ec2/getSubnets:getSubnets"


def test_every_region_has_a_default_network_in_which_things_can_be_made() -> None:
    sandbox = cloud()
    vpc = sandbox.invoke(GET_VPC, {"default": True})
    assert vpc["cidrBlock"] == "172.31.0.0/16"
    assert vpc["default"] is True
    by_vpc = [{"name": "vpc-id", "values": [vpc["id"]]}]
    subnets = sandbox.invoke(GET_SUBNETS, {"filters": by_vpc})["ids"]
    assert len(subnets) == 3
    zone = sandbox.invoke(
        "aws:ec2/getSubnet:getSubnet",
        {"vpcId": vpc["id"], "availabilityZone": "me-central-1b", "defaultForAz": True},
    )
    assert zone["id"] == subnets[1]
    assert zone["availabilityZoneId"] == "mec1-az2"
    group = sandbox.invoke(
        "aws:ec2/getSecurityGroup:getSecurityGroup", {"name": "default", "vpcId": vpc["id"]}
    )
    assert group["id"] == vpc["defaultSecurityGroupId"]
    own, _ = sandbox.create(
        "aws:ec2/securityGroup:SecurityGroup", "web", {"vpcId": vpc["id"], "description": "web"}
    )
    sandbox.create(
        "aws:lb/loadBalancer:LoadBalancer",
        "web",
        {"subnets": subnets, "securityGroups": [own, group["id"]]},
    )
    # Nothing that was made, and another region's is another one.
    assert {made.token for made in sandbox.store.all()} == {
        "aws:ec2/securityGroup:SecurityGroup",
        "aws:lb/loadBalancer:LoadBalancer",
    }
    abroad = sandbox.invoke(GET_VPC, {"default": True, "region": "eu-west-1"})
    assert abroad["id"] != vpc["id"]


def test_networks_are_found_by_tags_and_filters() -> None:
    sandbox = cloud()
    vpc = "aws:ec2/vpc:Vpc"
    one, _ = sandbox.create(vpc, "one", {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "one"}})
    sandbox.create(vpc, "two", {"cidrBlock": "10.1.0.0/16", "tags": {"Name": "two"}})
    assert sandbox.invoke(GET_VPC, {"tags": {"Name": "one"}})["id"] == one
    for name, value in (
        ("tag:Name", "o*"), ("cidr", "10.0.*"), ("vpc-id", one), ("cidr-block", "10.0.0.0/16"),
    ):  # fmt: skip
        asked = {"filters": [{"name": name, "values": [value]}]}
        assert sandbox.invoke(GET_VPC, asked)["id"] == one
        assert sandbox.invoke("aws:ec2/getVpcs:getVpcs", asked)["ids"] == [one]
    none = {"filters": [{"name": "tag:Name", "values": ["three"]}]}
    assert sandbox.invoke("aws:ec2/getVpcs:getVpcs", none)["ids"] == []
    with pytest.raises(SandboxError, match=r"no Vpc with filters .*falaj sandbox add"):
        sandbox.invoke(GET_VPC, none)
    with pytest.raises(SandboxError, match=r"can't filter Vpc by 'colour'"):
        sandbox.invoke(GET_VPC, {"filters": [{"name": "colour", "values": ["red"]}]})
    assert sandbox.invoke(GET_VPC, {"cidrBlock": "10.0.0.0/16"})["id"] == one


def test_a_zone_of_names_is_found_with_and_without_its_last_dot() -> None:
    sandbox = cloud()
    token = "aws:route53/getZone:getZone"
    id, _ = sandbox.create("aws:route53/zone:Zone", "z", {"name": "shop.ae"})
    for name in ("shop.ae", "shop.ae."):
        assert sandbox.invoke(token, {"name": name})["zoneId"] == id
    with pytest.raises(SandboxError, match="falaj sandbox add"):
        sandbox.invoke(token, {"name": "shop.ae", "privateZone": True})


def test_the_default_network_can_be_taken_over_by_a_stack() -> None:
    sandbox = cloud()
    vpc, outputs = sandbox.create("aws:ec2/defaultVpc:DefaultVpc", "d", {"tags": {"a": "b"}})
    assert vpc == sandbox.invoke(GET_VPC, {"default": True})["id"]
    assert outputs["cidrBlock"] == "172.31.0.0/16"
    assert outputs["tagsAll"] == {"a": "b"}
    subnet, outputs = sandbox.create(
        "aws:ec2/defaultSubnet:DefaultSubnet", "s", {"availabilityZone": "me-central-1a"}
    )
    assert outputs["vpcId"] == vpc
    assert subnet in sandbox.invoke(GET_SUBNETS, {})["ids"]
