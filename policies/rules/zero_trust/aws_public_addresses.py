"""Public addresses on AWS: load balancers, machines, subnets, and routes to the internet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    View,
    get,
    indeterminate,
    is_unknown,
    items,
    requirement_rule,
    rule,
    text,
    violation,
)
from falaj.policies.reading.cidr import is_open
from falaj.policies.reading.types import aws, aws_type

_BALANCER: Final = (
    "lb/loadBalancer", "alb/loadBalancer", "applicationloadbalancing/loadBalancer",
    "elasticloadbalancingv2/loadBalancer", "elb/loadBalancer", "elasticloadbalancing/loadBalancer",
)  # fmt: skip
_PRIVATE: Final = "machines get no public address"
_CONTROLS: Final = ("iso27001:A.8.20", "iso27001:A.8.22", "uae-ia:T4.5.3", "nist-800-207:2")
_SUBNET: Final = aws_type("ec2/subnet")
_DEFAULT_SUBNET: Final = aws_type("ec2/defaultSubnet")
_INTERNET_GATEWAY: Final = aws_type("ec2/internetGateway")
_ROUTE: Final = aws_type("ec2/route")


@rule(
    "zero-trust-aws-public-load-balancer",
    "Load balancers are internal",
    Severity.HIGH,
    aws(*_BALANCER),
    _CONTROLS,
    "Set internal to true and put the load balancer into private subnets; callers outside come "
    "by VPN, Direct Connect or PrivateLink.",
)
def public_load_balancer(resource: Resource, view: View) -> Iterator[Finding]:
    """Load balancers are internet-facing unless they say otherwise; gateway ones never are."""
    if text(resource.get("loadBalancerType")).lower() != "gateway":
        yield from Requirement(
            "internal",
            allowed=("true",),
            absent="without this setting it faces the internet",
            hint="it has to be internal",
        ).findings(resource.properties)


_MACHINES: Final = {
    aws("ec2/instance", "ec2/spotInstanceRequest", "ec2/launchConfiguration"):
        "associatePublicIpAddress",
    aws("ec2/launchTemplate"): "networkInterfaces.associatePublicIpAddress",
    aws("ec2/spotFleetRequest"): "launchSpecifications.associatePublicIpAddress",
    aws("ecs/service", "ecs/taskSet"): "networkConfiguration.assignPublicIp",
    aws("cloudwatch/eventTarget"): "ecsTarget.networkConfiguration.assignPublicIp",
    aws("scheduler/schedule"): "target.ecsParameters.networkConfiguration.assignPublicIp",
    aws("pipes/pipe"): "targetParameters.ecsTaskParameters.networkConfiguration"
    ".awsVpcConfiguration.assignPublicIp",
    aws("drs/replicationConfigurationTemplate"): "createPublicIp",
}  # fmt: skip
_INSTANCES: Final = aws("ec2/instance", "ec2/spotInstanceRequest")

public_address: Final = requirement_rule(
    "zero-trust-aws-public-address",
    "Machines and tasks have no public address",
    Severity.HIGH,
    {
        types: (Requirement(path, denied=("true", "1", "enabled"), hint=_PRIVATE),)
        for types, path in _MACHINES.items()
    },
    (*_CONTROLS, "cis-eks:5.4.3"),
    "Set it to false and place the machine in a private subnet; reach it through an internal "
    "load balancer or Session Manager.",
)


@rule(
    "zero-trust-aws-elastic-address",
    "Elastic addresses belong to NAT gateways only",
    Severity.HIGH,
    aws("ec2/eip", "ec2/eipAssociation"),
    _CONTROLS,
    "Remove the address from the machine; reach it through an internal load balancer or Session "
    "Manager.",
)
def elastic_address(resource: Resource, view: View) -> Iterator[Finding]:
    """An elastic address on a machine or its interface."""
    for key in ("instance", "instanceId", "networkInterface", "networkInterfaceId"):
        value = resource.get(key)
        # Whatever the machine's id is, there is one.
        if value is not ABSENT and (is_unknown(value) or text(value)):
            yield violation(key, "the address is a machine's; machines get no public address")


public_subnet: Final = requirement_rule(
    "zero-trust-aws-public-subnet",
    "Subnets give out no public addresses",
    Severity.MEDIUM,
    {
        frozenset((_SUBNET,)): (Requirement("mapPublicIpOnLaunch", ("false",), hint=_PRIVATE),),
        frozenset((_DEFAULT_SUBNET,)): (
            Requirement(
                "mapPublicIpOnLaunch",
                ("false",),
                absent="default subnets give out public addresses",
                hint=_PRIVATE,
            ),
        ),
    },
    (*_CONTROLS, "cis-eks:5.4.3"),
    "Set mapPublicIpOnLaunch to false. Use subnets of your own in place of the default ones.",
)


@rule(
    "zero-trust-aws-default-network",
    "Nothing uses the account's default network",
    Severity.LOW,
    {*_INSTANCES, _DEFAULT_SUBNET, aws_type("ec2/defaultVpc")},
    ("iso27001:A.8.22", "uae-ia:T4.5.3"),
    "Make a VPC of your own, whose subnets are private unless you say otherwise, and place "
    "machines in them.",
)
def default_network(resource: Resource, view: View) -> Iterator[Finding]:
    """Its subnets give out public addresses:
    https://docs.aws.amazon.com/vpc/latest/userguide/default-vpc-components.html."""
    if resource.kind not in _INSTANCES:
        yield violation("", "the default network is public by design; use one of your own")
        return
    places = ("subnetId", "networkInterfaces", "primaryNetworkInterface", "launchTemplate")
    if all(resource.get(key) is ABSENT for key in places):
        yield violation(
            "subnetId",
            "without a subnet it is placed in the default network, which gives out public "
            "addresses; name a private subnet",
        )


_ROUTE_TYPES: Final = aws("ec2/route", "ec2/routeTable", "ec2/defaultRouteTable")
_DESTINATIONS: Final = (
    "cidrBlock", "ipv6CidrBlock", "destinationCidrBlock", "destinationIpv6CidrBlock",
)  # fmt: skip


@rule(
    "zero-trust-aws-route-to-internet",
    "No subnet of machines has a route from and to the internet",
    Severity.MEDIUM,
    _ROUTE_TYPES,
    _CONTROLS,
    "Send traffic that has to leave through a Network Firewall to a NAT gateway; only the NAT "
    "gateway's own subnet has a route to the internet gateway.",
)
def route_to_internet(resource: Resource, view: View) -> Iterator[Finding]:
    """Routes of the world to an internet gateway, except from subnets of NAT gateways alone,
    in networks with a firewall."""
    routes = (
        [("", resource.properties)]
        if resource.kind == _ROUTE
        else list(_each(resource.get("routes")))
    )
    for at, route in routes:
        if is_unknown(route):
            yield indeterminate(at, "its routes can't be known yet; none may be to the internet")
            continue
        base = f"{at}." if at else ""
        wide = [get(route, key) for key in _DESTINATIONS]
        gateway = get(route, "gatewayId")
        if gateway is ABSENT or not any(is_open(each) or is_unknown(each) for each in wide):
            continue
        known = is_unknown(gateway) or text(gateway).startswith("igw-")
        if not known and not _is_internet(resource, f"{base}gatewayId", view):
            continue
        yield from _judge_route(resource, f"{base}gatewayId", gateway, view)


def _each(value: object) -> Iterator[tuple[str, object]]:
    if is_unknown(value):
        yield "routes", value
        return
    for index, each in enumerate(items(value)):
        yield f"routes[{index}]", each


def _is_internet(resource: Resource, path: str, view: View) -> bool:
    return any(each.kind == _INTERNET_GATEWAY for each in view.referred(resource, path))


def _judge_route(resource: Resource, path: str, gateway: object, view: View) -> Iterator[Finding]:
    said = "machines behind this route are reachable from the internet"
    if view.stack is None:
        yield indeterminate(path, f"{said}, unless only NAT gateways are behind it")
        return
    makers = view.referred(resource, path)
    if is_unknown(gateway) and not _is_internet(resource, path, view):
        if not makers:
            yield indeterminate(path, f"the gateway can't be known yet; {said} if it is public")
        return
    if not _is_outlet(resource, view):
        yield violation(
            path, f"{said}; only NAT gateways behind a Network Firewall may have such a route"
        )


def _is_outlet(resource: Resource, view: View) -> bool:
    """Whether all subnets of the route's table hold a NAT gateway, and a firewall is there."""
    stack = view.stack
    if stack is None or not stack.of_kind(aws_type("networkfirewall/firewall")):
        return False
    tables = view.referred(resource, "routeTableId") if resource.kind == _ROUTE else [resource]
    subnets = {
        subnet.urn
        for table in tables
        for each in stack.referring(table, aws_type("ec2/routeTableAssociation"), "routeTableId")
        for subnet in stack.referred(each, "subnetId")
        if subnet.kind == _SUBNET
    }
    outlets = {
        subnet.urn
        for each in stack.of_kind(aws_type("ec2/natGateway"))
        for subnet in stack.referred(each, "subnetId")
    }
    return bool(subnets) and subnets <= outlets


RULES: tuple[Rule, ...] = (
    public_load_balancer,
    public_address,
    elastic_address,
    public_subnet,
    default_network,
    route_to_internet,
)
