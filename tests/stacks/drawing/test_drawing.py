"""What drawings say of a stack: where things are, what is open, what encrypts what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Any

import pytest

from falaj.stacks import drawing
from falaj.stacks.drawing import Drawing, Edge
from falaj.stacks.errors import StackError
from tests.stacks.states import ALL, UNKNOWN_TEXT, Form, resource, states

BUCKET = "aws:s3/bucket:Bucket"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
KEY = "aws:kms/key:Key"
LOCAL = "falaj-local:index:"


def of(*resources: dict[str, Any]) -> Drawing:
    return drawing.of(resources)


def made_from(given: dict[str, Any], **dependencies: list[dict[str, Any]]) -> dict[str, Any]:
    urns = {key: [each["urn"] for each in found] for key, found in dependencies.items()}
    return {**given, "propertyDependencies": urns}


def with_id(given: dict[str, Any], id: str) -> dict[str, Any]:
    return {**given, "id": id}


def labels(made: Drawing, kind: str) -> set[tuple[str, str, str]]:
    """The edges of a kind as source, target and label, by the names of the nodes."""
    return {
        (made.by_id[each.source].label, made.by_id[each.target].label, each.label)
        for each in made.edges
        if each.kind == kind
    }


def named(made: Drawing, label: str, kind: str = "") -> Any:
    (found,) = [
        each for each in made.nodes if each.label == label and (not kind or each.kind == kind)
    ]
    return found


def above(made: Drawing, label: str, kind: str = "") -> list[str]:
    """Labels of what a thing is in, the innermost first."""
    node, found = named(made, label, kind), []
    while node.container:
        node = made.by_id[node.container]
        found.append(node.label)
    return found


def open_ways(made: Drawing) -> list[Edge]:
    return [each for each in made.edges if each.is_open]


@pytest.mark.parametrize("wrong", [None, 5, "x", {}, {"urn": 5, "type": BUCKET}])
def test_what_isnt_a_resource_is_refused(wrong: Any) -> None:
    with pytest.raises(StackError, match="pulumi stack export"):
        drawing.of([wrong])


def test_an_empty_stack_has_a_drawing() -> None:
    made = drawing.of([])
    assert made.as_text() == "An empty stack: nothing to draw.\n"
    assert "An empty stack: nothing to draw." in made.as_svg()
    assert not made.nodes


def test_a_stack_of_settings_alone_is_not_called_empty() -> None:
    made = of(resource("aws:ssm/parameter:Parameter"))
    for text in (made.as_text(), made.as_svg()):
        assert "Nothing of this stack is drawn." in text
        assert "1 resource" in text
        assert "Parameter" in text
        assert "empty" not in text


@pytest.mark.parametrize("kind", [BUCKET, GROUP, KEY, "aws:ec2/instance:Instance"])
@pytest.mark.parametrize(
    "inputs", [{}, {"bucket": None}, {"ingress": None}, {"ingress": [None, 5, {}, []]},
               {"vpcSecurityGroupIds": [None, "", {}]}, {"kmsKeyId": ""}, {"tags": {"a": [[]]}}],
)  # fmt: skip
def test_absent_and_empty_properties_are_nothing(kind: str, inputs: Mapping[str, Any]) -> None:
    made = of({**resource(kind), "inputs": dict(inputs)})
    assert named(made, "it").urn.endswith("::it")


def test_the_same_resource_twice_is_drawn_once() -> None:
    made = of(resource(BUCKET), resource(BUCKET))
    assert [each.label for each in made.nodes if each.kind == "store"] == ["it"]


def test_the_order_of_the_resources_changes_nothing() -> None:
    given = states("aws-smb")
    assert drawing.of(reversed(given)).as_svg() == drawing.of(given).as_svg()


def test_a_type_that_nobody_knows_is_drawn() -> None:
    made = of(resource("vendor:shop/thing:Thing", "kiosk"))
    assert named(made, "kiosk").kind in {"store", "other"}


def test_everything_of_the_stack_is_drawn_or_counted() -> None:
    given = states("azure-smb")
    made = drawing.of(given)
    drawn = {each.urn for each in made.nodes} | {urn for each in made.edges for urn in each.urns}
    custom = [each for each in given if each["custom"] and not each["type"].startswith("pulumi:")]
    rest = [each for each in custom if each["urn"] not in drawn]
    assert sum(made.left_out.values()) == len(rest) > 0
    assert f"{len(rest)} resources" in " ".join(made.as_text().split())


@pytest.mark.parametrize("cidr", ["0.0.0.0/0", "::/0", "0.0.0.0/1"])
def test_a_group_open_to_everybody_is_said_first(cidr: str) -> None:
    ipv6 = ":" in cidr
    rule = {"protocol": "tcp", "fromPort": 22, "toPort": 22}
    rule |= {"ipv6CidrBlocks" if ipv6 else "cidrBlocks": [cidr]}
    group = with_id(resource(GROUP, "door", ingress=[rule]), "sg-1")
    machine = resource("aws:ec2/instance:Instance", "box", vpcSecurityGroupIds=["sg-1"])
    made = of(group, machine)
    text = made.as_text()
    if cidr == "0.0.0.0/1":
        # Half of all addresses is no list of callers either: it is drawn as what the rule says.
        assert ("0.0.0.0/1" in text) or open_ways(made)
        return
    assert "OPEN TO THE INTERNET (1)" in text.split("WHERE THINGS ARE")[0]
    assert "the internet may reach group door: tcp 22" in text
    assert "from the internet: tcp 22" in made.opened[named(made, "box").id]
    assert "OPEN from the internet: tcp 22" in text
    assert "the internet may reach group door: tcp 22" in made.as_svg()


def test_a_closed_stack_says_so_and_no_more_than_it_knows() -> None:
    text = " ".join(of(resource(BUCKET)).as_text().split())
    assert "Nothing is open to the internet, as far as these resources say" in text
    assert "may be: look again" not in text


def test_addresses_that_cant_be_seen_leave_it_open() -> None:
    rule = {"protocol": "tcp", "fromPort": 443, "toPort": 443, "cidrBlocks": [UNKNOWN_TEXT]}
    made = of(resource(GROUP, "door", ingress=[rule]))
    assert ("addresses that can't be seen yet", "door", "tcp 443") in labels(made, "flow")
    assert "What can't be seen yet may be" in " ".join(made.as_text().split())
    assert 'class="panel unsure"' in made.as_svg()


def test_a_public_machine_is_open_by_its_own_switch() -> None:
    made = of(resource("aws:ec2/instance:Instance", "box", associatePublicIpAddress=True))
    assert [made.by_id[each.target].label for each in open_ways(made)] == ["box"]


def test_a_rule_that_the_other_end_forbids_is_half() -> None:
    rule = {"protocol": "tcp", "fromPort": 443, "toPort": 443, "securityGroups": ["sg-b"]}
    made = of(
        with_id(resource(GROUP, "a", egress=[rule]), "sg-a"),
        with_id(resource(GROUP, "b", ingress=[]), "sg-b"),
    )
    (edge,) = [each for each in made.edges if each.kind == "flow"]
    assert edge.is_half
    assert "the other end's rules forbid it" in " ".join(made.as_text().split())


def test_groups_without_rules_are_said_to_let_nothing_through() -> None:
    made = of(
        with_id(resource(GROUP, "shut"), "sg-1"),
        resource("aws:ec2/instance:Instance", "box", vpcSecurityGroupIds=["sg-1"]),
    )
    said = " ".join(made.as_text().split())
    assert "No rule of these groups lets anything through: shut (box)." in said


def test_a_group_of_another_stack_is_named_with_its_members() -> None:
    made = of(resource("aws:ec2/instance:Instance", "box", vpcSecurityGroupIds=["sg-0abc"]))
    for text in (made.as_text(), made.as_svg()):
        said = " ".join(text.split())
        assert "Rules of groups that aren't of this stack decide too: sg-0abc" in said
        assert "(box)" in said


def test_one_of_several_keys_isnt_guessed() -> None:
    keys = [resource(KEY, name) for name in ("one", "two")]
    disk = resource("aws:ebs/volume:Volume", "disk", kmsKeyId=UNKNOWN_TEXT)
    made = of(*keys, made_from(disk, kmsKeyId=keys))
    assert labels(made, "encrypts") == {("one of one, two", "disk", "")}
    certain = of(*keys, made_from(disk, kmsKeyId=keys[:1]))
    assert labels(certain, "encrypts") == {("one", "disk", "")}


def test_one_of_several_groups_isnt_guessed() -> None:
    groups = [
        resource(GROUP, name, ingress=[{"protocol": "-1", "self": True}]) for name in ("a", "b")
    ]
    box = resource("aws:ec2/instance:Instance", "box", vpcSecurityGroupIds=[UNKNOWN_TEXT])
    unsure = of(*groups, made_from(box, vpcSecurityGroupIds=groups))
    assert all(not each.members and each.possible for each in unsure.nodes if each.kind == "group")
    assert "a (perhaps box)" in unsure.as_text()
    certain = of(*groups, made_from(box, vpcSecurityGroupIds=groups[:1]))
    assert [bool(each.members) for each in certain.nodes if each.kind == "group"] == [True, False]
    two = {**box, "inputs": {"vpcSecurityGroupIds": [UNKNOWN_TEXT, UNKNOWN_TEXT]}}
    both = of(*groups, made_from(two, vpcSecurityGroupIds=groups))
    assert all(each.members and not each.possible for each in both.nodes if each.kind == "group")


def test_a_rule_of_one_of_several_groups_opens_none_of_them_for_sure() -> None:
    groups = [resource(GROUP, name) for name in ("a", "b")]
    rule = resource(
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "rule",
        securityGroupId=UNKNOWN_TEXT, cidrIpv4="0.0.0.0/0", ipProtocol="-1",
    )  # fmt: skip
    made = of(*groups, made_from(rule, securityGroupId=groups))
    assert labels(made, "flow") == {("The internet", "one of a, b", "everything")}


def test_policies_that_arent_known_yet_are_named() -> None:
    role = resource("aws:iam/role:Role", "role")
    policy = resource("aws:iam/rolePolicy:RolePolicy", "duty", policy=UNKNOWN_TEXT, role="x")
    said = " ".join(of(role, made_from(policy, role=[role])).as_text().split())
    assert "Not known before it is made: what a policy of a role allows (duty)." in said


def test_pods_that_talk_among_themselves_have_a_target() -> None:
    def policy(name: str) -> dict[str, Any]:
        return resource(
            "kubernetes:networking.k8s.io/v1:NetworkPolicy", name,
            apiVersion="networking.k8s.io/v1", kind="NetworkPolicy",
            metadata={"name": name, "namespace": name},
            spec={"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]},
        )  # fmt: skip

    text = of(*map(policy, ("a", "b", "c"))).as_text()
    assert "3 together: a, b, c\n  ──▶ each to itself" in text


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("127.0.0.1", "callers on this machine"),
        ("::1", "callers on this machine"),
        ("localhost", "callers on this machine"),
        (str(IPv4Address(0)), "whoever reaches any address of this machine"),
        ("::", "whoever reaches any address of this machine"),
        ("10.1.2.3", "whoever reaches 10.1.2.3"),
        (UNKNOWN_TEXT, "callers that can't be seen yet"),
    ],
)
def test_who_calls_the_local_service_is_told_by_its_address(host: str, said: str) -> None:
    service = resource(f"{LOCAL}InferenceService", "service", host=host, port=8443)
    assert labels(of(service), "flow") == {(said, "service", "tcp 8443")}


def test_the_local_key_ring_encrypts_what_is_kept() -> None:
    keys = resource(f"{LOCAL}KeyRing", "keys")
    sealed = {"Dataset", "TrainingRun", "ModelPackage", "BatchInference"}
    kept = [
        made_from(resource(f"{LOCAL}{kind}", kind, keyring="/k"), keyring=[keys])
        for kind in (*sorted(sealed), "InferenceService")
    ]
    encrypted = {target for _, target, _ in labels(of(keys, *kept), "encrypts")}
    assert encrypted == sealed


@pytest.mark.parametrize(
    ("action", "on", "said"),
    [
        ("s3:GetObject", "arn:aws:s3:::shop-data/*", {("role", "data", "reads")}),
        ("s3:PutObject", "arn:aws:s3:::shop-*", {("role", "data", "writes")}),
        ("s3:*", "arn:aws:s3:::sh?p-data", {("role", "data", "writes")}),
        ("s3:GetObject", "arn:aws:s3:::other", set[tuple[str, str, str]]()),
        ("s3:GetObject", "*", {("role", "every bucket", "reads")}),
        ("s3:GetBucket*", "*", set[tuple[str, str, str]]()),
        ("s3:*", "*", {("role", "every bucket", "reads, writes")}),
        ("*", "*", {
            ("role", f"every {each}", "reads, writes")
            for each in ("bucket", "secret", "registry", "table")
        }),
        ("ecr:GetAuthorizationToken", "*", set[tuple[str, str, str]]()),
        ("secretsmanager:GetSecretValue",
         "arn:aws:secretsmanager:me-central-1:1:secret:shop-keys-AbC123",
         {("role", "keys", "reads")}),
    ],
)  # fmt: skip
def test_what_a_role_may_use_is_told_by_its_policy(
    action: str, on: str, said: set[tuple[str, str, str]]
) -> None:
    statement = {"Effect": "Allow", "Action": action, "Resource": on}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    made = of(
        resource(BUCKET, "data", bucket="shop-data"),
        resource("aws:secretsmanager/secret:Secret", "keys", name="shop-keys"),
        {**resource("aws:iam/role:Role", "role"), "id": "role-1"},
        resource("aws:iam/rolePolicy:RolePolicy", "duty", role="role-1", policy=policy),
    )
    assert labels(made, "reads") == said


@pytest.mark.parametrize("form", ["state", "preview", "unknown"])
@pytest.mark.parametrize("stack", ALL)
def test_nothing_of_a_shipped_stack_is_open_to_the_internet(stack: str, form: Form) -> None:
    made = drawing.of(states(stack, form))
    assert not open_ways(made)
    assert made.name == stack
    assert all(each.encryption != "none" for each in made.nodes)


@pytest.mark.parametrize("stack", ALL)
def test_the_sandboxs_preview_is_drawn_as_what_will_be(stack: str) -> None:
    before, after = (drawing.of(states(stack, form)) for form in ("preview", "state"))
    assert before.as_text() == after.as_text()


def test_the_clusters_machines_are_in_their_subnets() -> None:
    made = drawing.of(states("aws-cluster"))
    assert above(made, "cluster", "cluster") == ["network"]
    for pool in ("cpu", "h200", "l40s"):
        assert above(made, pool) == ["network-mec1-az1-nodes", "mec1-az1", "network"]
    assert above(made, "files") == ["network-mec1-az1-storage", "mec1-az1", "network"]
    assert named(made, "network-nodes").members == tuple(
        sorted(named(made, each).id for each in ("cpu", "h200", "l40s"))
    )
    azure = drawing.of(states("azure-cluster"))
    assert above(azure, "h200") == ["network-nodes", "network-vnet"]
    assert above(azure, "registry-endpoint") == ["network-endpoints", "network-vnet"]


def test_each_key_encrypts_its_own_kind_of_data() -> None:
    found = labels(drawing.of(states("aws-cluster")), "encrypts")
    assert {(source, target) for source, target, _ in found} == {
        ("keys-cluster", "cluster"),
        *(("keys-data", each) for each in (
            "files", "files-homes", "store-checkpoints", "store-datasets", "store-models",
        )),
        *(("keys-disks", each) for each in ("cpu", "h200", "l40s")),
        *(("keys-logs", each) for each in (
            "audit", "audit-trail", "cluster", "network-flow", "store-audit",
        )),
        *(("keys-registry", f"registry-{each}") for each in (
            "inference", "platform", "training",
        )),
        ("keys-state", "store-state"),
    }  # fmt: skip


def test_who_may_call_the_smb_tier_is_drawn() -> None:
    flows = labels(drawing.of(states("aws-smb")), "flow")
    assert ("inference", "inference", "tcp 8443") in flows
    assert any(target == "inference-callers" for _, target, _ in flows)
    reads = labels(drawing.of(states("aws-cluster")), "reads")
    assert ("server", "store-models", "reads") in reads
    assert not any(source == "server" and "writes" in label for source, _, label in reads)


def test_workloads_are_in_their_namespaces() -> None:
    made = drawing.of(states("aws-workloads"))
    assert above(made, "credit-v7")[0] == "acme-serving"
    assert ("falaj", "credit-v7", "tcp 8443 /v2/models/credit") in labels(made, "flow")


def test_plain_data_is_json_with_every_end_of_every_edge() -> None:
    made = drawing.of(states("azure-smb"))
    data = json.loads(json.dumps(made.as_json()))
    ids = {each["id"] for each in data["nodes"]}
    assert len(ids) == len(data["nodes"]) == len(made.nodes)
    for each in data["edges"]:
        assert {each["source"], each["target"]} <= ids
    for each in data["nodes"]:
        assert each["container"] in {None, *ids}
        assert {*each["members"], *each["possible"]} <= ids
