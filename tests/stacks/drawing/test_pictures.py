"""The two pictures: the text fits, the SVG is well-formed and shut, each box is in its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from falaj.stacks import drawing
from falaj.stacks.drawing import Drawing
from falaj.stacks.drawing.layout import Box, bottom, places, width
from falaj.stacks.lettering import columns
from tests.examples import examples
from tests.stacks.states import ALL, UNKNOWN_TEXT, resource, states

#: What the drawing is made of; everything else of SVG 2 is refused, scripts and links above all
#: (https://www.w3.org/TR/SVG2/eltindex.html).
ELEMENTS: Final = {"svg", "title", "desc", "style", "rect", "text", "tspan", "g", "line", "path"}
SPACE: Final = "{http://www.w3.org/2000/svg}"
BIDI: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
HOSTILE: Final = (
    "<script>alert(1)</script>", "]]></style><script>", '" onload="x', "&amp;<!--", "\x00\x1b[31m",
    "\u202eevil\u202c", "مفتاح البيانات", "\ud800", "名" * 60, "e\u0301" * 40, "a" * 400, "",
    "javascript:alert(1)", "\n\r\t", "\ufffe\uffff",
)  # fmt: skip
KINDS: Final = (
    "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/instance:Instance",
    "aws:ec2/securityGroup:SecurityGroup", "aws:s3/bucket:Bucket", "aws:kms/key:Key",
    "aws:ec2/launchTemplate:LaunchTemplate", "aws:eks/nodeGroup:NodeGroup",
    "aws:lb/listener:Listener", "aws:iam/rolePolicy:RolePolicy", "aws:ec2/route:Route",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    "azure-native:network:VirtualNetwork", "azure-native:network:Subnet",
    "azure-native:network:NetworkSecurityGroup", "azure-native:network:PrivateEndpoint",
    "azure-native:storage:StorageAccount", "azure-native:keyvault:Key",
    "azure-native:authorization:RoleAssignment", "kubernetes:core/v1:Namespace",
    "kubernetes:apps/v1:Deployment", "kubernetes:networking.k8s.io/v1:NetworkPolicy",
    "kubernetes:gateway.networking.k8s.io/v1:Gateway", "kubernetes:core/v1:Service",
    "kubernetes:storage.k8s.io/v1:StorageClass", "falaj-local:index:InferenceService",
    "falaj-local:index:Dataset", "kubernetes:helm.sh/v3:Release", "x:y:Z",
)  # fmt: skip
WORDS: Final = (
    "vpcId", "subnetId", "cidrBlock", "ingress", "egress", "cidrBlocks", "protocol", "fromPort",
    "securityGroupId", "vpcSecurityGroupIds", "kmsKeyId", "policy", "role", "addressSpace",
    "addressPrefix", "securityRules", "metadata", "spec", "name", "namespace", "labels", "ports",
    "podSelector", "matchLabels", "from", "to", "kind", "apiVersion", "keyring", "host", "port",
    "privateLinkServiceConnections", "scope", "routes", "template", "parameters", "listeners",
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-1, 70_000), st.floats(allow_nan=True),
    st.sampled_from([
        UNKNOWN_TEXT, "0.0.0.0/0", "10.0.0.0/8", "vpc-1", "subnet-1", "sg-1", "NetworkPolicy",
        "Deployment", "r0", "r1", "{}", "443", "Inbound", "arn:aws:kms:me-central-1:1:key/a",
        *HOSTILE,
    ]),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
STACKS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.sampled_from(("r0", "r1", "r2", "r3", *HOSTILE)),
        VALUES | st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=6),
        st.sampled_from(("", "vpc-1", "subnet-1", "sg-1")),
        st.lists(st.integers(0, 7), max_size=3),
    ),
    max_size=8,
)


def made_of(found: list[tuple[str, str, Any, str, list[int]]]) -> Drawing:
    states = [resource(kind, name) for kind, name, *_ in found]
    for state, (_, _, inputs, id, origins) in zip(states, found, strict=True):
        state["inputs"] = inputs
        if id:
            state["id"] = id
        urns = [states[each % len(states)]["urn"] for each in origins]
        keys = list(inputs) if isinstance(inputs, dict) else []
        state["propertyDependencies"] = dict.fromkeys(keys, urns)
    return drawing.of(states)


def require_shut(svg: str) -> ET.Element:
    """Refuse an SVG that isn't well-formed, or that runs or loads anything."""
    root = ET.fromstring(svg.encode())  # noqa: S314 - our own drawing
    assert root.tag == f"{SPACE}svg"
    for each in root.iter():
        assert each.tag.removeprefix(SPACE) in ELEMENTS, each.tag
        for name, value in each.attrib.items():
            assert not name.lower().startswith("on"), name
            assert "href" not in name.lower()
            assert "url(" not in value
    (style,) = root.iter(f"{SPACE}style")
    assert "@import" not in (style.text or "")
    assert "url(" not in (style.text or "")
    return root


def require_fitting(text: str, room: int) -> None:
    for line in text.splitlines():
        assert columns(line) <= room, line


def require_inside(made: Drawing) -> None:
    """Refuse a drawing in which a box leaves its own, or stands on another one beside it."""
    tops = places(made, 32, 100, 1216)
    everything = Box(made.nodes[0], 32, 100, 1216, bottom(tops) - 100, inner=tops)
    for box in everything.walk():
        for each in box.inner:
            assert each.x >= box.x - 0.01
            assert each.y >= box.y - 0.01
            assert each.x + each.w <= box.x + box.w + 0.01
            assert each.y + each.h <= box.y + box.h + 0.01
            for line in each.title:
                assert width(line, 13, bold=True) <= each.w
        for one, other in _pairs(box.inner):
            beside = one.x + one.w <= other.x + 0.01 or other.x + other.w <= one.x + 0.01
            below = one.y + one.h <= other.y + 0.01 or other.y + other.h <= one.y + 0.01
            assert beside or below, (one.node.label, other.node.label)


def _pairs(boxes: list[Box]) -> Iterator[tuple[Box, Box]]:
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            yield one, other


def require_in_page(root: ET.Element) -> None:
    page_w, page_h = float(root.attrib["width"]), float(root.attrib["height"])
    for each in root.iter(f"{SPACE}rect"):
        x, y = float(each.get("x", 0)), float(each.get("y", 0))
        w, h = float(each.attrib["width"]), float(each.attrib["height"])
        assert min(x, y, w, h) >= 0
        assert x + w <= page_w + 0.1
        assert y + h <= page_h + 0.1
    for each in root.iter(f"{SPACE}text"):
        assert 0 <= float(each.attrib["x"]) <= page_w
        assert 0 <= float(each.attrib["y"]) <= page_h


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STACKS, st.integers(40, 200))
def test_any_stack_has_both_pictures(
    found: list[tuple[str, str, Any, str, list[int]]], room: int
) -> None:
    made = made_of(found)
    require_fitting(made.as_text(room), room)
    root = require_shut(made.as_svg())
    require_in_page(root)
    if made.nodes:
        require_inside(made)
    shown = {each.get("data-node") for each in root.iter(f"{SPACE}g")}
    assert len(shown) <= len(made.nodes)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_cant_steer_the_pictures(name: str) -> None:
    kinds = ("aws:s3/bucket:Bucket", "aws:ec2/securityGroup:SecurityGroup")
    opening = [{"protocol": "-1", "cidrBlocks": ["0.0.0.0/0"], "securityGroups": [name]}]
    made = drawing.of([resource(kind, name, ingress=opening, description=name) for kind in kinds])
    svg, text = made.as_svg(), made.as_text()
    require_shut(svg)
    require_fitting(text, 80)
    assert "<script" not in svg
    # What runs from right to left is isolated in whole, and turns nothing else.
    loose = BIDI.sub(lambda each: "" if each[0] in "\u2068\u2069" else each[0], text)
    assert not BIDI.search(loose)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


@pytest.mark.parametrize("room", [40, 80, 132])
@pytest.mark.parametrize("stack", ALL)
def test_shipped_stacks_fit(stack: str, room: int) -> None:
    made = drawing.of(states(stack))
    require_fitting(made.as_text(room), room)
    require_in_page(require_shut(made.as_svg()))
    require_inside(made)


def test_every_thing_that_is_placed_is_in_both_pictures() -> None:
    made = drawing.of(states("azure-cluster"))
    text, svg = made.as_text(200), made.as_svg()
    root = ET.fromstring(svg.encode())  # noqa: S314 - our own drawing
    shown = {each.get("data-node") for each in root.iter(f"{SPACE}g")}
    for each in made.nodes:
        if each.urn:
            assert each.label in text
            assert each.id in shown or each.kind == "group"


def test_a_narrow_terminal_still_gets_boxes_that_can_be_read() -> None:
    made = drawing.of(states("aws-smb"))
    assert made.as_text(5) == made.as_text(drawing.NARROWEST)


def test_ten_thousand_resources_have_pictures() -> None:
    """Quadratic time here would be beyond the time limit of every test."""
    number = 2_000
    group, rule = "aws:ec2/securityGroup:SecurityGroup", "SecurityGroupIngressRule"
    found = [
        *({**resource(group, f"g{each}"), "id": f"sg-{each:05}"} for each in range(number)),
        *(
            resource(
                f"aws:vpc/securityGroupIngressRule:{rule}", f"r{each}", ipProtocol="tcp",
                securityGroupId=f"sg-{each:05}", cidrIpv4="0.0.0.0/0", fromPort=each, toPort=each,
            )
            for each in range(number)
        ),
        *(
            resource(
                "aws:ec2/instance:Instance", f"i{each}", vpcSecurityGroupIds=[f"sg-{each:05}"]
            )
            for each in range(number)
        ),
        *(resource("aws:s3/bucket:Bucket", f"b{each}") for each in range(number)),
        *(resource("kubernetes:core/v1:Namespace", f"n{each}") for each in range(number)),
    ]  # fmt: skip
    made = drawing.of(found)
    assert len(made.nodes) > 4 * number
    assert sum(each.is_open for each in made.edges) == number
    require_fitting(made.as_text(), 80)
    require_shut(made.as_svg())
