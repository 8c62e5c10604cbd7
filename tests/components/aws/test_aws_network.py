"""The network: private, split by role, with named ways out only."""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest

from falaj.components.aws._egress import public_ranges
from falaj.components.aws._endpoints import GATEWAYS, INTERFACES, interfaces
from falaj.components.aws.network import FLOWS, Network
from falaj.components.aws.serving.cloud_init import program

ZONES = ["mec1-az1", "mec1-az3"]


@pytest.fixture(scope="module")
def args(placed: dict[str, Any]) -> dict[str, Any]:
    return {**placed, "zones": ZONES}


def network(args: dict[str, Any]) -> Any:
    """Builds the network with a real key for its logs."""

    def build(opts: pulumi.ResourceOptions, keys: dict[str, Any]) -> Network:
        return Network("core", {**args, "log_key_id": keys["logs"]}, opts)

    return build


def test_another_cloud_s_zone_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match=r"zones\[0\]: given '1'"):
        Network("core", {**args, "log_key_id": "key", "zones": ["1"]})


def test_zones_that_are_reported_as_impaired_are_left_out(
    deploy: Any, args: dict[str, Any]
) -> None:
    given = {key: value for key, value in args.items() if key != "zones"}
    made = deploy(network(given))
    assert list(made.returned["node_subnet_ids"]) == ["mec1-az1"]


@pytest.fixture(scope="module")
def core(deploy: Any, args: dict[str, Any]) -> Any:
    return deploy(network(args))


def test_private_subnets_for_each_zone_and_role(core: Any) -> None:
    subnets = core.of_type("aws:ec2/subnet:Subnet")
    assert len(subnets) == len(ZONES) * 4
    (vpc,) = core.of_type("aws:ec2/vpc:Vpc")
    assert vpc.inputs["cidrBlock"] == "10.64.0.0/16"
    assert vpc.inputs["enableDnsHostnames"] is True
    for subnet in subnets:
        assert subnet.inputs["mapPublicIpOnLaunch"] is False
        assert subnet.inputs["availabilityZoneId"] in ZONES
        inside = ipaddress.IPv4Network(subnet.inputs["cidrBlock"])
        assert inside.subnet_of(ipaddress.IPv4Network("10.64.0.0/16"))
    for output in ("node", "endpoint", "storage", "serving"):
        assert sorted(core.returned[f"{output}_subnet_ids"]) == ZONES


def test_nothing_leads_out(core: Any) -> None:
    types = {each.type for each in core.resources}
    assert not types & {
        "aws:ec2/internetGateway:InternetGateway",
        "aws:ec2/natGateway:NatGateway",
        "aws:ec2/eip:Eip",
        "aws:ec2/route:Route",
        "aws:networkfirewall/firewall:Firewall",
    }
    (group,) = core.of_type("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup")
    assert group.inputs["ingress"] == group.inputs["egress"] == []
    (table,) = core.of_type("aws:ec2/defaultRouteTable:DefaultRouteTable")
    assert table.inputs["routes"] == []


def test_rules_name_groups_and_prefix_lists_only(core: Any) -> None:
    groups = core.returned["security_group_ids"]
    assert sorted(groups) == ["control-plane", "endpoints", "nodes", "serving", "storage"]
    inward = core.of_type("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
    outward = core.of_type("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule")
    assert len(inward) == len(FLOWS)
    for rule in (*inward, *outward):
        assert not {"cidrIpv4", "cidrIpv6"} & set(rule.inputs)
        other = rule.inputs.get("referencedSecurityGroupId")
        assert other in groups.values() or rule.inputs["prefixListId"].startswith("pl-")
        first, last = rule.inputs.get("fromPort", 0), rule.inputs.get("toPort", 65535)
        if rule.inputs["ipProtocol"] == "-1":
            # EFA: the group of nodes with itself.
            assert other == rule.inputs["securityGroupId"] == groups["nodes"]
        else:
            assert not any(first <= port <= last for port in (22, 3389))


def test_what_stands_in_a_group_waits_for_its_rules(deploy: Any, args: dict[str, Any]) -> None:
    def program(opts: pulumi.ResourceOptions, keys: dict[str, Any]) -> Network:
        made = network(args)(opts, keys)
        own = pulumi.ResourceOptions(provider=opts.providers[0])  # pyright: ignore
        aws.ec2.NetworkInterface(
            "inside",
            subnet_id=made.storage_subnet_ids["mec1-az1"],
            security_groups=[made.security_group_ids["storage"]],
            opts=own,
        )
        return made

    done = deploy(program)
    (inside,) = [each for each in done.requests if each.name == "inside"]
    rules = {
        each.name for each in done.of_type("aws:vpc/securityGroupIngressRule:"
                                           "SecurityGroupIngressRule")
    }  # fmt: skip
    waited = {urn.rpartition("::")[2] for urn in inside.dependencies}
    assert len(rules) == len(FLOWS)
    assert rules <= waited


def test_named_networks_and_groups_reach_the_api(deploy: Any, placed: dict[str, Any]) -> None:
    callers = ["10.20.0.0/16", "100.64.8.0/24", "sg-0123456789abcdef0"]

    def build(opts: pulumi.ResourceOptions, keys: dict[str, Any]) -> Network:
        args = {**placed, "log_key_id": keys["logs"], "api_callers": callers}
        return Network("core", args, opts)

    made = deploy(build)
    own = made.returned["security_group_ids"]
    rules = [
        each.inputs
        for each in made.of_type("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
        if "cidrIpv4" in each.inputs or each.inputs["referencedSecurityGroupId"] in callers
    ]
    assert len(rules) == len(callers)
    found = [each.get("cidrIpv4") or each["referencedSecurityGroupId"] for each in rules]
    assert sorted(found) == sorted(callers)
    for each in rules:
        assert each["securityGroupId"] == own["control-plane"]
        assert (each["ipProtocol"], each["fromPort"], each["toPort"]) == ("tcp", 443, 443)


@pytest.mark.parametrize(
    ("callers", "said"),
    [
        (["0.0.0.0/0"], r"api_callers\[0\]: given '0.0.0.0/0'; allowed: .*nothing public"),
        (["10.1.0.0/16", "8.8.8.0/24"], r"api_callers\[1\]: .*nothing public"),
        (["10.0.0.0/7"], "nothing public"),
        (["172.0.0.0/8"], "nothing public"),
        (["10.20.0.1/16"], "has host bits set"),
        (["::/0"], "or a security group's id"),
        (["sg-nodes"], "such as sg-0123456789abcdef0"),
        (["10.20.0.0/16", "10.20.0.0/16"], "each only once"),
        ([f"10.{number}.0.0/16" for number in range(51)], "50 at most"),
    ],
)
def test_who_may_not_call_the_api(
    deploy: Any, placed: dict[str, Any], callers: list[str], said: str
) -> None:
    args = {**placed, "log_key_id": "k", "api_callers": callers}
    with pytest.raises(pulumi.InputPropertiesError, match=said):
        deploy(lambda opts: Network("core", args, opts))


def test_nobody_calls_an_api_where_no_cluster_stands(placed: dict[str, Any]) -> None:
    args = {**placed, "log_key_id": "k", "purpose": "serving", "api_callers": ["10.20.0.0/16"]}
    with pytest.raises(pulumi.InputPropertiesError, match="'serving', where no cluster stands"):
        Network("core", args)  # pyright: ignore[reportArgumentType]


def test_every_flow_is_allowed_on_both_sides(core: Any) -> None:
    def ends(token: str, source: str, target: str) -> set[tuple[Any, ...]]:
        return {
            (
                rule.inputs[source],
                rule.inputs[target],
                rule.inputs["ipProtocol"],
                rule.inputs.get("fromPort"),
                rule.inputs.get("toPort"),
            )
            for rule in core.of_type(token)
            if "referencedSecurityGroupId" in rule.inputs
        }

    own, other = "securityGroupId", "referencedSecurityGroupId"
    outward = ends("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", own, other)
    inward = ends("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", other, own)
    assert outward == inward


def test_endpoints_are_in_every_zone_with_their_services_names(core: Any) -> None:
    endpoints = core.of_type("aws:ec2/vpcEndpoint:VpcEndpoint")
    gateways = [each for each in endpoints if each.inputs["vpcEndpointType"] == "Gateway"]
    interfaces = [each for each in endpoints if each.inputs["vpcEndpointType"] == "Interface"]
    names = {each.inputs["serviceName"] for each in gateways}
    assert names == {"com.amazonaws.me-central-1.s3", "com.amazonaws.me-central-1.dynamodb"}
    assert len(interfaces) == len(INTERFACES)
    for each in interfaces:
        assert each.inputs["privateDnsEnabled"] is True
        assert sorted(each.inputs["subnetIds"]) == sorted(
            core.returned["endpoint_subnet_ids"].values()
        )
        assert each.inputs["securityGroupIds"] == [
            core.returned["security_group_ids"]["endpoints"]
        ]
    assert all("policy" in each.inputs for each in endpoints)


def test_a_network_for_serving_has_what_the_tier_calls_and_no_more(
    deploy: Any, args: dict[str, Any]
) -> None:
    made = deploy(network({**args, "purpose": "serving"}))
    services = {
        each.inputs["serviceName"].removeprefix("com.amazonaws.me-central-1.")
        for each in made.of_type("aws:ec2/vpcEndpoint:VpcEndpoint")
    }
    assert services == {"ecr.api", "ecr.dkr", "logs", "secretsmanager", "s3"}
    roles = {each.inputs["tags"]["falaj:role"] for each in made.of_type("aws:ec2/subnet:Subnet")}
    assert roles == {"endpoints", "serving"}
    assert made.returned["node_subnet_ids"] == {}
    assert made.returned["storage_subnet_ids"] == {}
    assert sorted(made.returned["serving_subnet_ids"]) == ZONES
    tables = made.of_type("aws:ec2/routeTableAssociation:RouteTableAssociation")
    assert len({each.inputs["routeTableId"] for each in tables}) == 1
    assert len(tables) == 2 * len(ZONES)


def test_sessions_with_machines_have_endpoints_only_where_they_are_asked_for(
    deploy: Any, args: dict[str, Any]
) -> None:
    made = deploy(network({**args, "purpose": "serving", "session_manager": True}))
    services = {
        each.inputs["serviceName"].removeprefix("com.amazonaws.me-central-1.")
        for each in made.of_type("aws:ec2/vpcEndpoint:VpcEndpoint")
    }
    assert services == {*interfaces("serving"), *GATEWAYS["serving"], "kms", "ssm", "ssmmessages"}
    # All of them are there anyway where a cluster may stand.
    assert interfaces("cluster", sessions=True) == interfaces("cluster")


def test_the_tier_calls_no_service_without_an_endpoint() -> None:
    # Signed calls are made by `Service(name, …)` in the program that machines start with.
    text = program("fetch.py") + program("tell.py")
    called = set(re.findall(r'Service\("([a-z0-9]+)"', text))
    prefixes = {INTERFACES[each] for each in interfaces("serving")} | set(GATEWAYS["serving"])
    assert called == {"ecr", "logs", "secretsmanager"}
    assert called <= prefixes


def test_image_layers_can_be_read_from_here(core: Any) -> None:
    layers = core.statements("core-s3")["ImageLayers"]
    assert layers["Action"] == ["s3:GetObject"]
    assert layers["Resource"] == ["arn:aws:s3:::prod-me-central-1-starport-layer-bucket/*"]
    assert layers["Condition"]["StringEquals"] == {"aws:SourceVpc": core.returned["network_id"]}


def test_a_network_for_serving_reaches_no_bucket_but_those_of_layers_and_packages(
    deploy: Any, args: dict[str, Any]
) -> None:
    made = deploy(network({**args, "purpose": "serving"}))
    statements = made.statements("core-s3")
    assert set(statements) == {"ImageLayers", "LinuxPackages"}
    assert {action for each in statements.values() for action in each["Action"]} == {
        "s3:GetObject"
    }


def test_an_organisation_widens_what_endpoints_reach(deploy: Any, args: dict[str, Any]) -> None:
    given = {**args, "organization_id": "o-a1b2c3d4e5"}
    made = deploy(network(given))
    own = made.statements("core-kms")["OwnResources"]
    assert own["Condition"] == {
        "StringEquals": {
            "aws:PrincipalOrgID": "o-a1b2c3d4e5",
            "aws:ResourceOrgID": "o-a1b2c3d4e5",
        }
    }


def test_all_traffic_is_logged_under_the_key(deploy: Any, args: dict[str, Any]) -> None:
    made = deploy(network({**args, "flow_log_days": 400.0}))
    (log,) = made.of_type("aws:ec2/flowLog:FlowLog")
    (group,) = made.of_type("aws:cloudwatch/logGroup:LogGroup")
    assert log.inputs["trafficType"] == "ALL"
    assert group.inputs["name"] == "/falaj/acme/dev/core/flow"
    assert group.inputs["kmsKeyId"] == made.one("aws:kms/key:Key", "keys-logs").outputs["arn"]
    assert group.inputs["retentionInDays"] == 400
    writes = made.statements("core-logs", "aws:iam/rolePolicy:RolePolicy")
    assert writes["FindGroup"]["Resource"] == [
        "arn:aws:logs:me-central-1:000000000000:log-group:*"
    ]
    assert writes["WriteOwnGroup"]["Resource"] == [f"{group.outputs['arn']}:*"]
    trust = made.one("aws:iam/role:Role", "core-logs").inputs["assumeRolePolicy"]
    (statement,) = json.loads(trust)["Statement"]
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": "000000000000"}}


def test_logs_are_kept_in_production_only(deploy: Any, args: dict[str, Any]) -> None:
    for environment, kept in (("production", True), ("test", False)):
        given = {**args, "environment": environment}
        made = deploy(network(given))
        assert made.kept()["aws:cloudwatch/logGroup:LogGroup core-flow"] == (kept, kept)


def test_public_ranges_leave_private_ones_out() -> None:
    ranges = public_ranges()
    # A security group has room for sixty rules, and a prefix list counts with each entry:
    # https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html
    assert len(ranges) <= 50
    for private in ("10.1.2.3", "172.20.0.1", "192.168.7.7", "100.64.1.1", "224.0.0.1"):
        assert not any(ipaddress.IPv4Address(private) in each for each in ranges)
    for public in ("1.1.1.1", "93.184.216.34", "172.15.255.255", "223.255.255.255"):
        assert any(ipaddress.IPv4Address(public) in each for each in ranges)


@pytest.fixture(scope="module")
def open_core(deploy: Any, args: dict[str, Any]) -> Any:
    domains = ["models.example.ae", ".acme.example"]
    return deploy(network({**args, "egress_domains": domains}))


def test_named_domains_are_let_through_by_tls_only(open_core: Any) -> None:
    (rules,) = open_core.of_type("aws:networkfirewall/ruleGroup:RuleGroup")
    listed = rules.inputs["ruleGroup"]["rulesSource"]["rulesSourceList"]
    assert listed["generatedRulesType"] == "ALLOWLIST"
    assert listed["targetTypes"] == ["TLS_SNI"]
    assert listed["targets"] == ["models.example.ae", ".acme.example"]
    (policy,) = open_core.of_type("aws:networkfirewall/firewallPolicy:FirewallPolicy")
    rule = policy.inputs["firewallPolicy"]
    assert "aws:drop_established" in rule["statefulDefaultActions"]
    assert rule["statefulEngineOptions"]["ruleOrder"] == "STRICT_ORDER"


def test_only_nodes_go_out_and_only_through_the_firewall(open_core: Any) -> None:
    tables = {each.id: each.name for each in open_core.of_type("aws:ec2/routeTable:RouteTable")}
    ways = {
        (tables[each.inputs["routeTableId"]], key)
        for each in open_core.of_type("aws:ec2/route:Route")
        for key in ("vpcEndpointId", "natGatewayId", "gatewayId")
        if key in each.inputs and each.inputs["destinationCidrBlock"] == "0.0.0.0/0"
    }
    assert ways == {
        way
        for zone in ZONES
        for way in (
            (f"core-{zone}-nodes", "vpcEndpointId"),
            (f"core-{zone}-firewall", "natGatewayId"),
            (f"core-{zone}-outlet", "gatewayId"),
        )
    }
    rule = open_core.named("core-nodes-to-domains")
    assert rule.inputs["securityGroupId"] == open_core.returned["security_group_ids"]["nodes"]
    assert (rule.inputs["fromPort"], rule.inputs["toPort"]) == (443, 443)
    assert "cidrIpv4" not in rule.inputs


def test_answers_come_back_through_the_firewall(open_core: Any) -> None:
    nodes = {
        each.inputs["cidrBlock"]
        for each in open_core.of_type("aws:ec2/subnet:Subnet")
        if each.inputs["tags"]["falaj:role"] == "nodes"
    }
    back = {
        each.inputs["destinationCidrBlock"]
        for each in open_core.of_type("aws:ec2/route:Route")
        if each.inputs["destinationCidrBlock"] != "0.0.0.0/0"
    }
    assert back == nodes
