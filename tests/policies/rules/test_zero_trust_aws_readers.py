"""Openness in any spelling, and IAM documents in any shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.policies.model import UNKNOWN, Context, Resource
from falaj.policies.model.judge import evaluate
from falaj.policies.reading.addresses import (
    EVERY_PORT,
    Ports,
    are_open,
    is_open,
    is_range_open,
    ports_of,
)
from falaj.policies.reading.iam import is_any_resource, open_statements, read
from falaj.policies.rules.zero_trust import RULES as ZERO_TRUST
from tests.policies.strategies import values

RULES = {each.id: each for each in ZERO_TRUST}
WORLD = (
    "0.0.0.0/0", "::/0", "0::/0", "0:0:0:0:0:0:0:0/0", "0.0.0.0/00", "000.0.0.0/0",
    "0.0.0.0/0.0.0.0", "1.2.3.4/0", "0.0.0.0/1", "128.0.0.0/1", "2000::/3", "::ffff:0:0/96",
    "0.0.0.0", "::", "*", "Any", "Internet", "0.0.0.0-255.255.255.255",  # noqa: S104
)  # fmt: skip
CLOSED = (
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fe80::/10",
    "224.0.0.0/4", "8.0.0.0/8", "0.0.0.0/32", "198.51.100.7", "VirtualNetwork", "", "x/0",
)  # fmt: skip
PRIVATE = st.sampled_from(CLOSED[:6])


@pytest.mark.parametrize("value", WORLD)
def test_the_world_is_open(value: str) -> None:
    assert is_open(value)


@pytest.mark.parametrize("value", CLOSED)
def test_parts_are_not(value: str) -> None:
    assert not is_open(value)


@given(st.sampled_from(WORLD), st.lists(PRIVATE, max_size=3), st.sampled_from([",", ", ", " "]))
def test_it_is_found_anywhere_in_a_list(world: str, others: list[str], separator: str) -> None:
    if "-" not in world:
        assert is_open(separator.join([*others, world]))
    assert are_open([*others, world])
    assert not are_open(others)


@given(st.integers(0, 2**32 - 1), st.integers(0, 7))
def test_large_public_ranges_are_open(address: int, prefix: int) -> None:
    spelled = ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0))
    multicast = prefix >= 3 and address >> 29 == 7
    assert is_open(f" {spelled}/{prefix} ") is not multicast


def test_the_world_in_pieces() -> None:
    assert are_open(f"{each}.0.0.0/8" for each in range(64, 192))
    assert not are_open(["1.0.0.0/8", "10.0.0.0/8", None, 3, UNKNOWN])
    assert is_range_open("1.0.0.0", "223.255.255.255")
    assert not is_range_open("10.0.0.0", "10.255.255.255")
    assert not is_range_open("0.0.0.0", "0.0.0.0")  # noqa: S104


def test_ports() -> None:
    assert ports_of("*") == ports_of(-1) == [EVERY_PORT]
    assert ports_of("20-30,80") == [Ports(20, 30), Ports(80, 80)]
    assert Ports(20, 30).admin.startswith("20")
    assert not Ports(443, 443).admin


@given(values(st.sampled_from(["cidrBlock", "x"])))
def test_addresses_are_read_whatever_they_are(value: Any) -> None:
    assert is_open(value) in {True, False}
    assert is_range_open(value, value) is False


def listed(value: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([value, [value], [value, value]])


@st.composite
def everything(draw: st.DrawFn) -> Any:
    """A document that allows everything, in a random shape."""
    key = draw(st.sampled_from([str.lower, str.title]))
    statement = {
        key("Effect"): draw(st.sampled_from(["Allow", "allow"])),
        key("Action"): draw(listed(draw(st.sampled_from(["*", "*:*", "**"])))),
        key("Resource"): draw(listed(draw(st.sampled_from(["*", "arn:aws:*:*:*:*"])))),
        key("Principal"): draw(
            st.sampled_from(["*", ["*"], {"AWS": "*"}, {"AWS": ["*"]}, {"*": "*"}])
        ),
    }
    harmless = {"Effect": "Deny", "Action": "s3:*", "Resource": "*", "Principal": "*"}
    statements = draw(st.sampled_from([statement, [statement], [harmless, statement]]))
    document = {"Version": "2012-10-17", "Statement": statements}
    return draw(st.sampled_from([document, json.dumps(document)]))


@given(everything())
def test_everything_is_found_in_any_shape(document: Any) -> None:
    found = list(read(document, "policy").allowing)
    assert len(found) == 1
    assert found[0].grants("iam:PassRole")
    assert found[0].is_on_everything
    assert [certain for _, certain in open_statements(read(document, "policy"))] == [True]
    grants = Resource("aws:iam/rolePolicy:RolePolicy", "it", {"policy": document})
    lets_in = Resource("aws:s3/bucketPolicy:BucketPolicy", "it", {"policy": document})
    assert evaluate(RULES["zero-trust-aws-iam-every-action"], grants, Context()).findings
    assert evaluate(RULES["zero-trust-aws-public-policy"], lets_in, Context()).findings


KEYS = st.sampled_from(["Statement", "Effect", "Action", "Principal", "Condition", "Resource"])


@given(values(KEYS))
def test_documents_are_read_whatever_they_are(value: Any) -> None:
    for statement in read(value, "policy").statements:
        assert statement.path.startswith("policy")


def test_what_is_every_resource() -> None:
    assert all(map(is_any_resource, ["*", "**", "arn:*", "arn:aws:*:*:*:*", "arn:aws:*:::*"]))
    assert not any(map(is_any_resource, ["", "arn:aws:s3:::*", "arn:aws:s3:::b/*"]))


OPENINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("aws:ec2/securityGroup:SecurityGroup", {"key": "cidrBlocks", "inline": "ingress"}),
    ("aws:ec2/securityGroupRule:SecurityGroupRule", {"key": "cidrBlocks", "type": "ingress"}),
    ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", {"key": "cidrIpv4"}),
)


@given(st.sampled_from(OPENINGS), st.sampled_from(WORLD[:10]), st.integers(1, 21))
def test_shells_are_never_open(how: tuple[str, dict[str, Any]], cidr: str, below: int) -> None:
    kind, given_ = how
    rule = {
        "type": given_.get("type"), "protocol": "tcp", "ipProtocol": "tcp",
        "fromPort": 22 - below, "toPort": 22 + below, given_["key"]: cidr,
    }  # fmt: skip
    properties = {given_["inline"]: [rule]} if "inline" in given_ else rule
    found = evaluate(
        RULES["zero-trust-aws-admin-port-open"], Resource(kind, "it", properties), Context()
    )
    assert [each.kind.value for each in found.findings] == ["violation"]
