"""Outputs have the form that the clouds' documentation says, and stand for nothing that isn't."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from falaj.sandbox.inprocess import Declared, Sandbox
from tests.stacks.in_mocks import declare, shipped

HEX32 = "[0-9A-F]{32}"
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
REGION = "me-central-1"


@cache
def made(stack: str) -> tuple[Declared, ...]:
    given = shipped(stack)
    if stack == "aws-smb":
        more = {"sessionManager": True, "privateAuthority": True}
        given["falaj:inference"] = {**given["falaj:inference"], **more}
    return tuple(declare(given, "s").resources)


def one(stack: str, token: str, name: str = "") -> Declared:
    return next(
        each for each in made(stack) if each.type.endswith(f"/{token}") and name in each.name
    )


# stack, type, part of the name, output, form
SHAPES = [
    ("aws-smb", "loadBalancer:LoadBalancer", "", "dnsName",
     rf"inference-[0-9a-f]{{7}}-[0-9a-f]{{16}}\.elb\.{REGION}\.amazonaws\.com"),
    ("aws-smb", "certificate:Certificate", "authority", "certificateChain", ""),
    ("aws-smb", "zone:Zone", "", "primaryNameServer", r"ns-0\.awsdns-00\.com"),
    ("aws-smb", "document:Document", "", "hash", "[0-9a-f]{64}"),
    ("aws-smb", "document:Document", "", "schemaVersion", r"1\.0"),
    ("aws-smb", "document:Document", "", "owner", r"\d{12}"),
    ("aws-smb", "document:Document", "", "createdDate", MOMENT),
    ("aws-smb", "document:Document", "", "latestVersion", "1"),
    ("aws-smb", "defaultRouteTable:DefaultRouteTable", "", "vpcId", "vpc-[0-9a-f]{17}"),
    ("aws-smb", "defaultRouteTable:DefaultRouteTable", "", "ownerId", r"\d{12}"),
    ("aws-smb", "vpc:Vpc", "", "ipv6AssociationId", ""),
    ("aws-smb", "subnet:Subnet", "", "ipv6CidrBlockAssociationId", ""),
    ("aws-smb", "bucket:Bucket", "", "websiteEndpoint", ""),
    ("aws-smb", "vpcEndpoint:VpcEndpoint", "secretsmanager", "prefixListId", ""),
    ("aws-smb", "defaultSecurityGroup:DefaultSecurityGroup", "", "namePrefix", ""),
    ("aws-cluster", "cluster:Cluster", "", "endpoint",
     rf"https://{HEX32}\.gr7\.{REGION}\.eks\.amazonaws\.com"),
    ("aws-cluster", "cluster:Cluster", "", "clusterId", ""),
    ("aws-cluster", "podIdentityAssociation:PodIdentityAssociation", "", "associationId",
     "a-[a-z0-9]{17}"),
    ("aws-cluster", "podIdentityAssociation:PodIdentityAssociation", "", "externalId", ""),
]  # fmt: skip


@pytest.mark.parametrize(("stack", "token", "name", "output", "form"), SHAPES)
def test_an_output_has_its_form(stack: str, token: str, name: str, output: str, form: str) -> None:
    found = one(stack, token, name).outputs[output]
    assert re.fullmatch(form, found), found


def test_a_certificate_says_from_when_until_when_it_holds() -> None:
    found = next(
        each.outputs for each in made("aws-smb") if each.type == "aws:acm/certificate:Certificate"
    )
    assert re.fullmatch(MOMENT, found["notBefore"])
    assert found["notBefore"] < found["notAfter"]


def test_a_clusters_endpoint_and_issuer_have_one_id() -> None:
    outputs = one("aws-cluster", "cluster:Cluster").outputs
    issuer = outputs["identities"][0]["oidcs"][0]["issuer"]
    assert re.fullmatch(rf"https://oidc\.eks\.{REGION}\.amazonaws\.com/id/{HEX32}", issuer)
    assert issuer.rpartition("/")[2] in outputs["endpoint"]


@pytest.mark.parametrize(
    ("kind", "internal", "host"),
    [
        ("application", True, rf"internal-web-\d+\.{REGION}\.elb\.amazonaws\.com"),
        ("application", False, rf"web-\d+\.{REGION}\.elb\.amazonaws\.com"),
        ("network", False, rf"web-[0-9a-f]{{16}}\.elb\.{REGION}\.amazonaws\.com"),
    ],
)
def test_names_of_balancers(kind: str, internal: bool, host: str) -> None:
    sandbox = Sandbox("aws", config={"region": REGION})
    vpc, _ = sandbox.create("aws:ec2/vpc:Vpc", "vpc", {"cidrBlock": "10.0.0.0/16"})
    subnets = [
        sandbox.create(
            "aws:ec2/subnet:Subnet", zone,
            {"vpcId": vpc, "cidrBlock": f"10.0.{at}.0/24", "availabilityZone": f"{REGION}{zone}"},
        )[0]
        for at, zone in enumerate("ab")
    ]  # fmt: skip
    given = {"name": "web", "internal": internal, "loadBalancerType": kind, "subnets": subnets}
    _, balancer = sandbox.create("aws:lb/loadBalancer:LoadBalancer", "web", given)
    assert re.fullmatch(host, balancer["dnsName"]), balancer["dnsName"]


def stand_ins(each: Declared) -> Iterator[str]:
    """Outputs that are named after the resource and themselves: the model gave none."""
    for output, value in each.outputs.items():
        if isinstance(value, str) and value == f"{each.name}-{output}":
            yield f"{each.type} {output}"


#: What nothing in a program reads, and no documentation gives a form for.
UNTOLD = {"aws:acmpca/permission:Permission policy"}


@pytest.mark.parametrize("stack", ["aws-smb", "aws-cluster"])
def test_no_output_on_aws_is_a_stand_in(stack: str) -> None:
    found: set[str] = {text for each in made(stack) for text in stand_ins(each)}
    assert found - UNTOLD == set()


AZURE: list[tuple[str, str, Any]] = [
    ("storage:StorageAccount", "secondaryLocation", ""),
    ("storage:StorageAccount", "statusOfSecondary", ""),
    ("storage:BlobContainer", "leaseDuration", ""),
]


@pytest.mark.parametrize(("token", "output", "value"), AZURE)
def test_azure_says_nothing_of_what_is_not(token: str, output: str, value: str) -> None:
    found = next(each for each in made("azure-foundation") if each.type == f"azure-native:{token}")
    assert found.outputs[output] == value
