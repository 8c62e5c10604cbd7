"""Public addresses: load balancers, machines, subnets, and routes to the Internet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    get,
    indeterminate,
    is_unknown,
    items,
    requirement_rule,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.addresses import is_open
from falaj.policies.reading.azure_children import mentions
from falaj.policies.reading.types import AWS_BALANCERS, aws, aws_type, azure
from falaj.policies.rules.zero_trust.networks import CONTROLS

# Public addresses on AWS: load balancers, machines, subnets, and routes to the internet.

_PRIVATE: Final = "machines get no public address"
_SUBNET: Final = aws_type("ec2/subnet")
_DEFAULT_SUBNET: Final = aws_type("ec2/defaultSubnet")
_INTERNET_GATEWAY: Final = aws_type("ec2/internetGateway")
_ROUTE: Final = aws_type("ec2/route")


@rule(
    "zero-trust-aws-public-load-balancer",
    "Load balancers are internal",
    Severity.HIGH,
    aws(*AWS_BALANCERS),
    CONTROLS,
    "Set internal to true and put the load balancer into private subnets; callers outside come "
    "by VPN, Direct Connect or PrivateLink.",
)
def public_load_balancer(resource: Resource, context: Context) -> Iterator[Finding]:
    """Load balancers are internet-facing unless they say otherwise; gateway ones never are."""
    if text(resource.get("loadBalancerType")).lower() != "gateway":
        yield from Requirement(
            "internal",
            allowed=("true",),
            absent="without this setting it faces the internet",
            hint="it has to be internal",
        ).findings(resource.properties)


_AWS_MACHINES: Final = {
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

aws_public_address: Final = requirement_rule(
    "zero-trust-aws-public-address",
    "Machines and tasks have no public address",
    Severity.HIGH,
    {
        types: (Requirement(path, denied=("true", "1", "enabled"), hint=_PRIVATE),)
        for types, path in _AWS_MACHINES.items()
    },
    (*CONTROLS, "cis-eks:5.4.3"),
    "Set it to false and place the machine in a private subnet; reach it through an internal "
    "load balancer or Session Manager.",
)


@rule(
    "zero-trust-aws-elastic-address",
    "Elastic addresses belong to NAT gateways only",
    Severity.HIGH,
    aws("ec2/eip", "ec2/eipAssociation"),
    CONTROLS,
    "Remove the address from the machine; reach it through an internal load balancer or Session "
    "Manager.",
)
def elastic_address(resource: Resource, context: Context) -> Iterator[Finding]:
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
    (*CONTROLS, "cis-eks:5.4.3"),
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
def default_network(resource: Resource, context: Context) -> Iterator[Finding]:
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
    CONTROLS,
    "Send traffic that has to leave through a Network Firewall to a NAT gateway; only the NAT "
    "gateway's own subnet has a route to the internet gateway.",
)
def route_to_internet(resource: Resource, context: Context) -> Iterator[Finding]:
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
        if not known and not _is_internet(resource, f"{base}gatewayId", context):
            continue
        yield from _judge_route(resource, f"{base}gatewayId", gateway, context)


def _each(value: object) -> Iterator[tuple[str, object]]:
    if is_unknown(value):
        yield "routes", value
        return
    for index, each in enumerate(items(value)):
        yield f"routes[{index}]", each


def _is_internet(resource: Resource, path: str, context: Context) -> bool:
    return any(each.kind == _INTERNET_GATEWAY for each in context.referred(resource, path))


def _judge_route(
    resource: Resource, path: str, gateway: object, context: Context
) -> Iterator[Finding]:
    clause = "machines behind this route are reachable from the internet"
    if context.stack is None:
        yield indeterminate(path, f"{clause}, unless only NAT gateways are behind it")
        return
    makers = context.referred(resource, path)
    if is_unknown(gateway) and not _is_internet(resource, path, context):
        if not makers:
            yield indeterminate(path, f"the gateway can't be known yet; {clause} if it is public")
        return
    if not _is_outlet(resource, context):
        yield violation(
            path, f"{clause}; only NAT gateways behind a Network Firewall may have such a route"
        )


def _is_outlet(resource: Resource, context: Context) -> bool:
    """Whether all subnets of the route's table hold a NAT gateway, and a firewall is there."""
    stack = context.stack
    if stack is None or not stack.of_kind(aws_type("networkfirewall/firewall")):
        return False
    tables = context.referred(resource, "routeTableId") if resource.kind == _ROUTE else [resource]
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


# Public addresses, and what has one.

PUBLIC_CONTROLS: Final = ("uae-ia:T4.5.3", "iso27001:A.8.20", "nist-800-207:2")
_ADDRESS: Final = azure("network:PublicIPAddress", "network:PublicIPPrefix")
#: What sends and is controlled, or lets people in by name: by type, the properties that hold an
#: address.
_CONTROLLED: Final = {
    "network:AzureFirewall": ("ipConfigurations", "managementIpConfiguration", "hubIPAddresses"),
    "network:NatGateway": (
        "publicIpAddresses", "publicIpPrefixes", "publicIpAddressesV6", "publicIpPrefixesV6",
    ),
    "network:VirtualNetworkGateway": ("ipConfigurations",),
    "network:BastionHost": ("ipConfigurations",),
    "network:VirtualHubIpConfiguration": ("publicIPAddress",),
    "network:PublicIPAddress": ("publicIPPrefix",),
}  # fmt: skip
_AZURE_BALANCER: Final = azure("network:LoadBalancer")


@rule(
    "zero-trust-azure-public-address",
    "Public addresses belong to what controls the way out",
    Severity.HIGH,
    _ADDRESS,
    PUBLIC_CONTROLS,
    "Delete the address and reach the service over a private endpoint or a private line. A "
    "firewall, a NAT gateway, a VPN gateway or Bastion may have one.",
)
def azure_public_address(resource: Resource, context: Context) -> Iterator[Finding]:
    """An address says nothing about its use: what uses it decides."""
    if text(resource.get("natGateway.id")):
        return
    if context.stack is None:
        yield indeterminate("", "what uses the public address isn't known yet")
        return
    for name, paths in _CONTROLLED.items():
        for user in context.stack.of_kind(*sorted(azure(name))):
            if user.urn != resource.urn and any(
                mentions(context, user, path, resource) for path in paths
            ):
                return
    for user in context.stack.of_kind(*sorted(_AZURE_BALANCER)):
        if mentions(context, user, "frontendIPConfigurations", resource) and _only_sends(user):
            return
    yield violation("", "no firewall, NAT gateway, VPN gateway or Bastion uses the public address")


def _only_sends(balancer: Resource) -> bool:
    inward = ("loadBalancingRules", "inboundNatRules", "inboundNatPools")
    return bool(items(balancer.get("outboundRules"))) and not any(
        items(balancer.get(each)) for each in inward
    )


_CONFIGURATIONS: Final = "networkInterfaceConfigurations.ipConfigurations"
_AZURE_MACHINES: Final[dict[str, frozenset[str]]] = {
    "ipConfigurations.publicIPAddress": azure("network:NetworkInterface"),
    f"networkProfile.{_CONFIGURATIONS}.publicIPAddressConfiguration": azure(
        "compute:VirtualMachine"
    ),
    f"virtualMachineProfile.networkProfile.{_CONFIGURATIONS}.publicIPAddressConfiguration": azure(
        "compute:VirtualMachineScaleSet"
    ),
}


@rule(
    "zero-trust-azure-public-machine",
    "Machines have no public addresses",
    Severity.HIGH,
    frozenset(kind for kinds in _AZURE_MACHINES.values() for kind in kinds),
    PUBLIC_CONTROLS,
    "Remove the public address; let administrators in through Bastion and traffic out through a "
    "firewall or a NAT gateway.",
)
def public_machine(resource: Resource, context: Context) -> Iterator[Finding]:
    """Network interfaces, and machines that bring their own."""
    for path, kinds in _AZURE_MACHINES.items():
        if resource.kind in kinds:
            for where, value in select(resource.properties, path):
                if is_unknown(value):
                    yield indeterminate(where, "whether it has a public address can't be seen")
                else:
                    yield violation(where, "a public address is given to the machine")


_FRONTENDS: Final = _AZURE_BALANCER | azure("network:ApplicationGateway")


@rule(
    "zero-trust-azure-public-frontend",
    "Balancers and gateways listen on private addresses",
    Severity.HIGH,
    _FRONTENDS,
    PUBLIC_CONTROLS,
    "Give the frontend a subnet and a private address.",
)
def public_frontend(resource: Resource, context: Context) -> Iterator[Finding]:
    """A balancer that has rules for what is sent alone lets nobody in."""
    if resource.kind in _AZURE_BALANCER and _only_sends(resource):
        return
    for key in ("publicIPAddress", "publicIPPrefix"):
        for where, value in select(resource.properties, f"frontendIPConfigurations.{key}"):
            if is_unknown(value):
                yield indeterminate(where, "whether the frontend is public can't be seen")
            else:
                yield violation(where, "the frontend listens on a public address")


_GROUP: Final = azure("containerinstance:ContainerGroup")
_APP: Final = azure("app:ContainerApp")
_ENVIRONMENT: Final = azure("app:ManagedEnvironment")

_public_containers = requirement_rule(
    "zero-trust-azure-public-machines-of-services",
    "Machines that services run have no public addresses",
    Severity.HIGH,
    {
        _GROUP: (Requirement("ipAddress.type", ("Private",)),),
        azure("machinelearningservices:Compute"): (
            Requirement("properties.properties.enableNodePublicIp", ("false",)),
        ),
        azure("batch:Pool"): (
            Requirement(
                "networkConfiguration.publicIPAddressConfiguration.provision",
                ("NoPublicIPAddresses",),
                "BatchManaged",
            ),
        ),
        azure("databricks:Workspace"): (
            Requirement("parameters.enableNoPublicIp.value", ("true",)),
        ),
        azure("web:AppServiceEnvironment"): (
            Requirement(
                "internalLoadBalancingMode",
                ("Web, Publishing", "Web,Publishing", "Publishing, Web", "Web"),
                "none",
            ),
        ),
        azure("sql:ManagedInstance"): (Requirement("publicDataEndpointEnabled", ("false",)),),
        azure("devtestlab:VirtualMachine"): (
            Requirement("disallowPublicIpAddress", ("true",), "false"),
        ),
    },
    PUBLIC_CONTROLS,
    "Put the machines into a subnet, without public addresses.",
)


@rule(
    "zero-trust-azure-public-container-app",
    "Container apps are reached from inside",
    Severity.HIGH,
    _APP,
    PUBLIC_CONTROLS,
    "Set configuration.ingress.external to false, or put the app into an environment whose "
    "vnetConfiguration.internal is true.",
)
def public_container_app(resource: Resource, context: Context) -> Iterator[Finding]:
    """External means: from outside of the environment. Of an internal one, that is its network
    (https://learn.microsoft.com/azure/container-apps/networking)."""
    for path in (
        "configuration.ingress.external",
        "configuration.ingress.additionalPortMappings.external",
    ):
        for where, value in select(resource.properties, path):
            if value is False or str(value).lower() == "false":
                continue
            if context.stack is None:
                yield indeterminate(where, "whether its environment is internal isn't known yet")
            elif not _is_inside(resource, context):
                kind = indeterminate if is_unknown(value) else violation
                yield kind(where, "the app answers from outside of its environment")


def _is_inside(resource: Resource, context: Context) -> bool:
    found = [
        each
        for path in ("managedEnvironmentId", "environmentId")
        for each in context.referred(resource, path)
        if each.kind in _ENVIRONMENT
    ]
    return bool(found) and all(
        get(each.properties, "vnetConfiguration.internal") is True
        or str(each.get("publicNetworkAccess")).lower() == "disabled"
        for each in found
    )


@rule(
    "zero-trust-azure-public-environment",
    "Environments of container apps are internal",
    Severity.HIGH,
    _ENVIRONMENT,
    PUBLIC_CONTROLS,
    "Set vnetConfiguration.internal to true, which only a new environment can have, or "
    "publicNetworkAccess to Disabled with a private endpoint.",
)
def public_environment(resource: Resource, context: Context) -> Iterator[Finding]:
    """Without a network of its own it has a public address."""
    internal = resource.get("vnetConfiguration.internal")
    access = resource.get("publicNetworkAccess")
    if str(internal).lower() == "true" or str(access).lower() == "disabled":
        return
    if is_unknown(internal) or is_unknown(access):
        yield indeterminate("vnetConfiguration.internal", "whether it is internal can't be seen")
    else:
        yield violation("vnetConfiguration.internal", "the environment has a public address")


_bastion_links = requirement_rule(
    "zero-trust-azure-bastion-links",
    "Nobody enters through Bastion with a link alone",
    Severity.HIGH,
    {azure("network:BastionHost"): (Requirement("enableShareableLink", ("false",)),)},
    ("uae-ia:T5.2.2", "iso27001:A.8.2", "iso27001:A.8.5", "nist-800-207:6"),
    "Leave enableShareableLink out, or set it to false.",
)

_forwarding = requirement_rule(
    "zero-trust-azure-ip-forwarding",
    "Machines don't forward what isn't theirs",
    Severity.MEDIUM,
    {azure("network:NetworkInterface"): (Requirement("enableIPForwarding", ("false",)),)},
    ("uae-ia:T4.5.3", "iso27001:A.8.20", "iso27001:A.8.22", "nist-800-207:2"),
    "Leave enableIPForwarding out, or set it to false; use Azure Firewall to forward and inspect.",
)


RULES: tuple[Rule, ...] = (
    public_load_balancer,
    aws_public_address,
    elastic_address,
    public_subnet,
    default_network,
    route_to_internet,
    azure_public_address,
    public_machine,
    public_frontend,
    _public_containers,
    public_container_app,
    public_environment,
    _bastion_links,
    _forwarding,
)
