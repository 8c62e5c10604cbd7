"""VPCs, subnets and what belongs to them; the ways in and out, and the record of what passed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import kinds as t
from falaj.sandbox.clouds.aws import relations
from falaj.sandbox.clouds.aws.default_networks import default_subnet, default_vpc
from falaj.sandbox.clouds.aws.documents import ENDPOINT, policy
from falaj.sandbox.clouds.aws.kinds import AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.naming import ACCOUNT, hexdigits, letters, marked
from falaj.sandbox.clouds.aws.regions import (
    address,
    cidr,
    dns_suffix,
    inside,
    network,
    region_of,
    zone,
    zone_id,
    zone_ids,
    zone_name,
)
from falaj.sandbox.clouds.inputs import Inputs, Resource, as_list
from falaj.sandbox.clouds.kinds import (
    Reference,
    between,
    equals,
    exactly_one,
    matches,
    not_together,
    sized,
    when,
)
from falaj.sandbox.clouds.model import Problem


def default_security_group(vpc_id: str) -> str:
    """The id of the security group that every VPC begins with."""
    return "sg-" + marked(17, vpc_id, "default security group")


def default_route_table(vpc_id: str) -> str:
    """The id of the route table that every VPC begins with."""
    return "rtb-" + marked(17, vpc_id, "main route table")


def default_network_acl(vpc_id: str) -> str:
    """The id of the network ACL that every VPC begins with."""
    return "acl-" + marked(17, vpc_id, "default network ACL")


def _vpc(resource: Resource) -> Mapping[str, Any]:
    found: dict[str, Any] = {
        "ownerId": ACCOUNT,
        "defaultSecurityGroupId": default_security_group(resource.id),
        "defaultRouteTableId": default_route_table(resource.id),
        "mainRouteTableId": default_route_table(resource.id),
        "defaultNetworkAclId": default_network_acl(resource.id),
        "dhcpOptionsId": "dopt-" + marked(17, region_of(resource), "default DHCP options"),
        "ipv6AssociationId": "",
    }
    if resource.get("assignGeneratedIpv6CidrBlock") is True:
        digits = marked(17, resource.id, "ipv6")
        found["ipv6CidrBlock"] = f"2a05:d000:{digits[4:8]}:{digits[8:10]}00::/56"
        found["ipv6AssociationId"] = "vpc-cidr-assoc-" + marked(17, resource.id, "ipv6")
    return found


def _default_table(resource: Resource) -> Mapping[str, Any]:
    """Whose VPC begins with it."""
    own = (made.id for made in resource.world.all(t.VPC)
           if default_route_table(made.id) == resource.id)  # fmt: skip
    return {"ownerId": ACCOUNT, "vpcId": next(own, "")}


def _subnet(resource: Resource) -> Mapping[str, Any]:
    region = region_of(resource)
    found: dict[str, Any] = {"ownerId": ACCOUNT, "ipv6CidrBlockAssociationId": ""}
    by_id, by_name = (
        resource.string("availabilityZoneId"),
        resource.string("availabilityZone"),
    )
    if by_id and not by_name:
        found["availabilityZone"] = zone_name(region, by_id)
    elif by_name and not by_id:
        found["availabilityZoneId"] = zone_id(region, by_name) or ""
    elif not by_name and not by_id and region:
        chosen = zone_ids(region)[0]
        found["availabilityZoneId"] = chosen
        found["availabilityZone"] = zone_name(region, chosen)
    if resource.is_given("ipv6CidrBlock"):
        found["ipv6CidrBlockAssociationId"] = "subnet-cidr-assoc-" + marked(
            17, resource.id, "ipv6"
        )
    return found


def _default_subnet(inputs: Inputs) -> str:
    region = region_of(inputs)
    return default_subnet(region, zone_id(region, inputs.string("availabilityZone")) or "")


def _as_given(token: str, resource: Resource) -> Mapping[str, Any]:
    """What is true of a default VPC or subnet that a stack takes over."""
    found = resource.world.by_id(token, resource.id)
    answered: Mapping[str, Any] = {} if found is None else found.outputs
    return {key: value for key, value in answered.items() if key != "tagsAll"}


def _inside_vpc(resource: Resource) -> Iterator[Problem]:
    """A subnet lies inside its VPC's networks, and overlaps none of its siblings."""
    vpc_id, block = resource.string("vpcId"), network(resource.get("cidrBlock"))
    vpc = resource.world.by_id(t.VPC, vpc_id)
    if vpc is None or block is None:
        return
    blocks = [vpc.outputs.get("cidrBlock")]
    for added in resource.world.find(_SECOND_BLOCK, vpcId=vpc_id):
        blocks.append(added.outputs.get("cidrBlock"))
    homes = [found for found in map(network, blocks) if found is not None]
    if not any(inside(block, one) for one in homes):
        yield Problem(
            "cidrBlock",
            f"{block} is not inside the VPC {vpc_id}, which has "
            f"{', '.join(map(str, homes))}; choose a part of that",
        )
    for sibling in resource.world.find(t.SUBNET, vpcId=vpc_id):
        other = network(sibling.outputs.get("cidrBlock"))
        if sibling.id != resource.id and other is not None and block.overlaps(other):
            yield Problem(
                "cidrBlock",
                f"{block} overlaps {other} of the subnet {sibling.id} in the same VPC; "
                "choose a free block",
            )


def _same_vpc(resource: Resource) -> Iterator[Problem]:
    """A route table and the subnet that it serves belong to one VPC."""
    subnet = resource.world.by_id(t.SUBNET, resource.string("subnetId"))
    table = resource.world.by_id(t.ROUTE_TABLE, resource.string("routeTableId"))
    if subnet is not None and table is not None:
        one, other = subnet.outputs.get("vpcId"), table.outputs.get("vpcId")
        if one != other:
            yield Problem(
                "routeTableId",
                f"{table.id} belongs to {other}, the subnet {subnet.id} to {one}; "
                "use a route table of the subnet's VPC",
            )


def _one_table_per_subnet(resource: Resource) -> Iterator[Problem]:
    subnet = resource.string("subnetId")
    for other in resource.world.find(_TABLE_ASSOCIATION, subnetId=subnet) if subnet else ():
        if other.id != resource.id:
            yield Problem(
                "subnetId",
                f"{subnet} is already associated with {other.outputs.get('routeTableId')}; "
                "a subnet has one route table: remove the other association",
            )


def _endpoint_of_route(resource: Resource) -> Iterator[Problem]:
    """A route may lead to a VPC endpoint or to an endpoint that a firewall has made."""
    endpoint = resource.string("vpcEndpointId")
    if not endpoint or resource.world.by_id(t.VPC_ENDPOINT, endpoint) is not None:
        return
    made = {
        attachment["endpointId"]
        for firewall in resource.world.all(t.FIREWALL)
        for status in firewall.outputs.get("firewallStatuses", [])
        for state in status["syncStates"]
        for attachment in state["attachments"]
    }
    if endpoint not in made:
        yield Problem(
            "vpcEndpointId",
            f"{endpoint!r} does not exist: the sandbox has no VpcEndpoint of that id, and no "
            "Firewall that made it; create it first, in this stack or another",
        )


_TABLE_ASSOCIATION: Final = "aws:ec2/routeTableAssociation:RouteTableAssociation"
_SECOND_BLOCK: Final = "aws:ec2/vpcIpv4CidrBlockAssociation:VpcIpv4CidrBlockAssociation"


def _endpoint(resource: Resource) -> Mapping[str, Any]:
    kind = resource.string("vpcEndpointType") or "Gateway"
    found: dict[str, Any] = {"ownerId": ACCOUNT, "state": "available", "requesterManaged": False}
    if kind == "Gateway":
        found["prefixListId"] = "pl-" + marked(
            8, region_of(resource), resource.string("serviceName")
        )
        found["cidrBlocks"] = ["198.51.100.0/24"]
        return found
    found["prefixListId"] = ""
    service = resource.string("serviceName").rsplit(".", 1)[-1]
    host = f"{service}.{region_of(resource)}.vpce.{dns_suffix(region_of(resource))}"
    subnets = [item for item in as_list(resource.values.get("subnetIds")) if isinstance(item, str)]
    found["networkInterfaceIds"] = ["eni-" + marked(17, resource.id, subnet) for subnet in subnets]
    found["dnsEntries"] = [
        {
            "dnsName": f"{resource.id}-{hexdigits(8, resource.id)}.{host}",
            "hostedZoneId": "Z" + letters(13, host),
        }
    ]
    if resource.get("privateDnsEnabled") is True:
        found["dnsEntries"].append(
            {
                "dnsName": f"{service}.{region_of(resource)}.{dns_suffix(region_of(resource))}",
                "hostedZoneId": "Z" + letters(13, resource.id),
            }
        )
    return found


def _endpoint_inputs(inputs: Inputs) -> Iterator[Problem]:
    """What each type of endpoint takes."""
    kind = inputs.get("vpcEndpointType") if inputs.is_given("vpcEndpointType") else "Gateway"
    if kind == "Gateway":
        wrong = ("subnetIds", "securityGroupIds", "privateDnsEnabled", "dnsOptions")
    elif kind == "Interface":
        wrong = ("routeTableIds",)
    else:
        wrong = ()
    for path in wrong:
        value = inputs.values.get(path)
        if value is not None and value is not False and value != []:
            yield Problem(
                path, f"doesn't apply to a {kind} endpoint; remove it, or change the type"
            )


def _service_region(inputs: Inputs) -> Iterator[Problem]:
    """An endpoint's service is in the endpoint's region unless serviceRegion says otherwise."""
    name, region = inputs.string("serviceName"), region_of(inputs)
    parts = name.split(".")
    if inputs.is_given("serviceRegion") or not region or not name.startswith("com.amazonaws."):
        return
    if len(parts) > 3 and parts[2] not in (region, "vpce", "s3-global") and "-" in parts[2]:
        yield Problem(
            "serviceName",
            f"{name!r} is a service of {parts[2]}, but the endpoint is in {region}; "
            f"use com.amazonaws.{region}.{'.'.join(parts[3:])}",
        )


#: Services with several endpoints, none of which has the service's plain name:
#: docs.aws.amazon.com/vpc/latest/privatelink/aws-services-privatelink-support.html
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "ecr": ("ecr.api", "ecr.dkr"),
    "sagemaker": ("sagemaker.api", "sagemaker.runtime"),
    "cloudwatch": ("monitoring", "logs"),
    "ecs-tasks": ("ecs", "ecs-agent", "ecs-telemetry"),
    "efs": ("elasticfilesystem",),
    "elb": ("elasticloadbalancing",),
    "iot": ("iot.data", "iot.credentials"),
    "aps": ("aps", "aps-workspaces"),
}


def _offered_service(inputs: Inputs) -> Iterator[Problem]:
    """The endpoint is of a service that there is, and that the region has."""
    region = region_of(inputs)
    prefix, name = f"com.amazonaws.{region}.", inputs.string("serviceName")
    if not region or not name.startswith(prefix):
        return
    service = name.removeprefix(prefix)
    parts = _PARTS.get(service, (service,))
    if service not in parts:
        allowed = " or ".join(prefix + part for part in parts)
        yield Problem("serviceName", f"{name!r} is no endpoint; the service's are {allowed}")
    elif service.split(".")[0] in t.load_table("absent_services")["regions"].get(region, ()):
        yield Problem("serviceName", f"{region} hasn't the service {service!r}; leave it out")


def _private_dns(resource: Resource) -> Iterator[Problem]:
    if resource.get("privateDnsEnabled") is True:
        yield from relations.resolves(
            "privateDnsEnabled", resource.string("vpcId"), resource.world
        )


def _subnets_of_vpc(resource: Resource) -> Iterator[Problem]:
    """An endpoint's subnets belong to its VPC, one in each zone."""
    zones: dict[object, str] = {}
    for path, own in resource.each("subnetIds[]"):
        subnet = resource.world.by_id(t.SUBNET, own) if isinstance(own, str) else None
        if subnet is None:
            continue
        if subnet.outputs.get("vpcId") != resource.get("vpcId"):
            yield Problem(
                path, f"{own} belongs to {subnet.outputs.get('vpcId')}, the endpoint to "
                f"{resource.get('vpcId')}; use subnets of one VPC",
            )  # fmt: skip
        zone = subnet.outputs.get("availabilityZoneId")
        if zone in zones:
            yield Problem(
                path,
                f"{own} is in {zone} as is {zones[zone]}; an endpoint has one subnet a zone",
            )
        zones[zone] = own


def _nat(resource: Resource) -> Mapping[str, Any]:
    number = int(hexdigits(4, resource.id), 16)
    return {
        "networkInterfaceId": "eni-" + marked(17, resource.id),
        "privateIp": f"10.{number >> 8}.{number & 255}.10",
        "publicIp": ""
        if resource.get("connectivityType") == "private"
        else _public_address(resource.id),
    }


def _address(resource: Resource) -> Mapping[str, Any]:
    return {"allocationId": resource.id, "publicIp": _public_address(resource.id), "domain": "vpc"}


def _public_address(seed: str) -> str:
    """An address of a block that is kept for documents (RFC 5737), so that it is nobody's."""
    return f"203.0.113.{1 + int(hexdigits(2, seed), 16) % 254}"


KINDS: Final[AwsKinds] = {
    t.VPC: AwsKind(
        id="vpc-{hex17}",
        arn="ec2:{region}:{account}:vpc/{id}",
        replaces=("cidrBlock", "ipv4IpamPoolId", "ipv4NetmaskLength"),
        # VPC and subnet sizes: Amazon VPC user guide, "VPC CIDR blocks".
        rules=(
            cidr("cidrBlock", largest=16, smallest=28),
            cidr("ipv6CidrBlock", version=6, largest=44, smallest=60),
            not_together("cidrBlock", "ipv4NetmaskLength"),
            between("ipv4NetmaskLength", 16, 28),
        ),
        computed=_vpc,
        defaults={
            "enableDnsSupport": True,
            "enableDnsHostnames": False,
            "instanceTenancy": "default",
            "enableNetworkAddressUsageMetrics": False,
            "assignGeneratedIpv6CidrBlock": False,
        },
    ),
    "aws:ec2/defaultVpc:DefaultVpc": AwsKind(
        id=lambda inputs: default_vpc(region_of(inputs)),
        is_always_there=True,
        computed=lambda resource: _as_given(t.VPC, resource),
    ),
    "aws:ec2/defaultSubnet:DefaultSubnet": AwsKind(
        id=_default_subnet,
        replaces=("availabilityZone",),
        rules=(zone("availabilityZone", by="name"),),
        is_always_there=True,
        computed=lambda resource: _as_given(t.SUBNET, resource),
    ),
    _SECOND_BLOCK: AwsKind(
        id="vpc-cidr-assoc-{hex17}",
        replaces=("cidrBlock", "vpcId", "ipv4IpamPoolId", "ipv4NetmaskLength"),
        rules=(cidr("cidrBlock", largest=16, smallest=28),),
        references=(relations.vpc(),),
    ),
    t.SUBNET: AwsKind(
        id="subnet-{hex17}",
        arn="ec2:{region}:{account}:subnet/{id}",
        replaces=(
            "vpcId", "cidrBlock", "availabilityZone", "availabilityZoneId", "outpostArn",
            "ipv6Native", "ipv4IpamPoolId", "ipv4NetmaskLength", "ipv6IpamPoolId",
            "ipv6NetmaskLength",
        ),
        rules=(
            cidr("cidrBlock", largest=16, smallest=28),
            cidr("ipv6CidrBlock", version=6, largest=44, smallest=64),
            zone("availabilityZoneId"),
            zone("availabilityZone", by="name"),
            not_together("availabilityZoneId", "availabilityZone"),
        ),
        references=(relations.vpc(),),
        crosschecks=(_inside_vpc,),
        computed=_subnet,
        defaults={
            "assignIpv6AddressOnCreation": False,
            "mapPublicIpOnLaunch": False,
            "enableDns64": False,
            "ipv6Native": False,
            "privateDnsHostnameTypeOnLaunch": "ip-name",
        },
    ),
    t.ROUTE_TABLE: AwsKind(
        id="rtb-{hex17}",
        arn="ec2:{region}:{account}:route-table/{id}",
        replaces=("vpcId",),
        rules=(cidr("routes[].cidrBlock"), cidr("routes[].ipv6CidrBlock", version=6)),
        references=(
            relations.vpc(),
            Reference("routes[].natGatewayId", (t.NAT_GATEWAY,)),
            Reference("routes[].gatewayId", (t.INTERNET_GATEWAY,)),
            Reference("routes[].vpcEndpointId", (t.VPC_ENDPOINT,), holds=False),
        ),
        computed=lambda _: {"ownerId": ACCOUNT},
        defaults={"routes": [], "propagatingVgws": []},
    ),
    t.DEFAULT_ROUTE_TABLE: AwsKind(
        id="{defaultRouteTableId}",
        arn="ec2:{region}:{account}:route-table/{id}",
        replaces=("defaultRouteTableId",),
        references=(relations.route_table("defaultRouteTableId"),),
        computed=_default_table,
    ),
    "aws:ec2/route:Route": AwsKind(
        id="r-{routeTableId}{hex10}",
        replaces=("routeTableId", "destinationCidrBlock", "destinationIpv6CidrBlock",
                  "destinationPrefixListId"),
        rules=(
            exactly_one(
                "destinationCidrBlock", "destinationIpv6CidrBlock", "destinationPrefixListId"
            ),
            exactly_one(
                "carrierGatewayId", "coreNetworkArn", "egressOnlyGatewayId", "gatewayId",
                "localGatewayId", "natGatewayId", "networkInterfaceId", "odbNetworkArn",
                "transitGatewayId", "vpcEndpointId", "vpcPeeringConnectionId",
            ),
            cidr("destinationCidrBlock"),
            cidr("destinationIpv6CidrBlock", version=6),
        ),
        references=(
            relations.route_table(),
            Reference("natGatewayId", (t.NAT_GATEWAY,), holds=False),
            Reference("gatewayId", (t.INTERNET_GATEWAY,), holds=False),
        ),
        crosschecks=(_endpoint_of_route,),
        unique=("routeTableId", "destinationCidrBlock", "destinationIpv6CidrBlock",
                "destinationPrefixListId"),
        computed=lambda _: {"origin": "CreateRoute", "state": "active"},
    ),
    _TABLE_ASSOCIATION: AwsKind(
        id="rtbassoc-{hex17}",
        replaces=("subnetId", "gatewayId"),
        rules=(exactly_one("subnetId", "gatewayId"),),
        references=(
            relations.route_table(),
            Reference("subnetId", (t.SUBNET,), holds=False),
            Reference("gatewayId", (t.INTERNET_GATEWAY,), holds=False),
        ),
        crosschecks=(_same_vpc, _one_table_per_subnet),
    ),
    "aws:ec2/mainRouteTableAssociation:MainRouteTableAssociation": AwsKind(
        id="rtbassoc-{hex17}",
        replaces=("vpcId",),
        references=(relations.vpc(), relations.route_table()),
        computed=lambda resource: {
            "originalRouteTableId": default_route_table(resource.string("vpcId"))
        },
    ),
    t.DHCP_OPTIONS: AwsKind(
        id="dopt-{hex17}",
        arn="ec2:{region}:{account}:dhcp-options/{id}",
        replaces=("domainName", "domainNameServers", "ipv6AddressPreferredLeaseTime",
                  "netbiosNameServers", "netbiosNodeType", "ntpServers"),
        rules=(sized("domainNameServers", 1, 4, "servers"), sized("ntpServers", 1, 4, "servers")),
        computed=lambda _: {"ownerId": ACCOUNT},
    ),
    "aws:ec2/vpcDhcpOptionsAssociation:VpcDhcpOptionsAssociation": AwsKind(
        id="{dhcpOptionsId}-{vpcId}",
        replaces=("vpcId",),
        references=(relations.vpc(), Reference("dhcpOptionsId", (t.DHCP_OPTIONS,))),
    ),
    t.NETWORK_ACL: AwsKind(
        id="acl-{hex17}",
        arn="ec2:{region}:{account}:network-acl/{id}",
        replaces=("vpcId",),
        rules=(
            cidr("ingress[].cidrBlock"), cidr("egress[].cidrBlock"),
            between("ingress[].ruleNo", 1, 32766), between("egress[].ruleNo", 1, 32766),
            between("ingress[].fromPort", 0, 65535), between("ingress[].toPort", 0, 65535),
            between("egress[].fromPort", 0, 65535), between("egress[].toPort", 0, 65535),
        ),
        references=(relations.vpc(), Reference("subnetIds[]", (t.SUBNET,), holds=False)),
        computed=lambda _: {"ownerId": ACCOUNT},
    ),
    "aws:ec2/defaultNetworkAcl:DefaultNetworkAcl": AwsKind(
        id="{defaultNetworkAclId}",
        arn="ec2:{region}:{account}:network-acl/{id}",
        replaces=("defaultNetworkAclId",),
    ),
    t.NETWORK_INTERFACE: AwsKind(
        id="eni-{hex17}",
        arn="ec2:{region}:{account}:network-interface/{id}",
        replaces=("subnetId", "interfaceType"),
        rules=(address("privateIps[]"), address("privateIp")),
        references=(relations.subnet("subnetId"), relations.security_group("securityGroups[]")),
    ),
    t.INTERNET_GATEWAY: AwsKind(
        id="igw-{hex17}",
        arn="ec2:{region}:{account}:internet-gateway/{id}",
        references=(relations.vpc(),),
        unique=("vpcId",),
        computed=lambda _: {"ownerId": ACCOUNT},
    ),
    t.NAT_GATEWAY: AwsKind(
        id="nat-{hex17}",
        replaces=("allocationId", "availabilityMode", "connectivityType", "privateIp", "subnetId",
                  "vpcId"),
        rules=(
            when(equals("connectivityType", "private"), not_together("connectivityType",
                                                                     "allocationId")),
        ),
        references=(
            relations.subnet("subnetId"),
            relations.vpc(),
            Reference("allocationId", (t.ELASTIC_IP,), by=("id", "allocationId")),
        ),
        computed=_nat,
        defaults={"connectivityType": "public"},
    ),
    t.ELASTIC_IP: AwsKind(
        id="eipalloc-{hex17}",
        arn="ec2:{region}:{account}:elastic-ip/{id}",
        replaces=("address", "customerOwnedIpv4Pool", "domain", "ipamPoolId",
                  "networkBorderGroup", "publicIpv4Pool"),
        computed=_address,
    ),
    t.VPC_ENDPOINT: AwsKind(
        id="vpce-{hex17}",
        arn="ec2:{region}:{account}:vpc-endpoint/{id}",
        replaces=("serviceName", "vpcEndpointType", "vpcId", "serviceRegion",
                  "resourceConfigurationArn", "serviceNetworkArn"),
        rules=(
            policy("policy", ENDPOINT, longest=20480),
            exactly_one("serviceName", "resourceConfigurationArn", "serviceNetworkArn"),
            matches("serviceName", r"[A-Za-z0-9._-]+",
                    "a service's name such as com.amazonaws.me-central-1.s3"),
            _endpoint_inputs,
            _service_region,
            _offered_service,
        ),
        references=(
            relations.vpc(),
            relations.subnet(),
            relations.security_group(),
            Reference("routeTableIds[]", (t.ROUTE_TABLE, t.DEFAULT_ROUTE_TABLE)),
        ),
        crosschecks=(_private_dns, _subnets_of_vpc),
        computed=_endpoint,
        defaults={"vpcEndpointType": "Gateway", "privateDnsEnabled": False},
    ),
    "aws:ec2/vpcEndpointPolicy:VpcEndpointPolicy": AwsKind(
        id="{vpcEndpointId}",
        replaces=("vpcEndpointId",),
        rules=(policy("policy", ENDPOINT, longest=20480),),
        references=(Reference("vpcEndpointId", (t.VPC_ENDPOINT,), holds=False),),
    ),
    "aws:ec2/vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation": AwsKind(
        id="a-{vpcEndpointId}{digits10}",
        replaces=("routeTableId", "vpcEndpointId"),
        references=(
            relations.route_table(), Reference("vpcEndpointId", (t.VPC_ENDPOINT,), holds=False)
        ),
    ),
    "aws:ec2/vpcEndpointSubnetAssociation:VpcEndpointSubnetAssociation": AwsKind(
        id="a-{vpcEndpointId}{digits10}",
        replaces=("subnetId", "vpcEndpointId"),
        references=(
            relations.subnet("subnetId"),
            Reference("vpcEndpointId", (t.VPC_ENDPOINT,), holds=False),
        ),
    ),
    "aws:ec2/flowLog:FlowLog": AwsKind(
        id="fl-{hex17}",
        arn="ec2:{region}:{account}:vpc-flow-log/{id}",
        replaces=("deliverCrossAccountRole", "destinationOptions", "eniId", "iamRoleArn",
                  "logDestination", "logDestinationType", "logFormat",
                  "maxAggregationInterval", "regionalNatGatewayId", "subnetId", "trafficType",
                  "transitGatewayAttachmentId", "transitGatewayId", "vpcId"),
        rules=(
            exactly_one("eniId", "regionalNatGatewayId", "subnetId", "transitGatewayAttachmentId",
                        "transitGatewayId", "vpcId"),
        ),
        references=(
            relations.vpc(),
            relations.subnet("subnetId"),
            relations.role("iamRoleArn"),
            Reference("logDestination", (t.LOG_GROUP, t.BUCKET), by=("arn",), holds=False,
                      regional=False),
        ),
        crosschecks=(
            relations.trusts("iamRoleArn", "vpc-flow-logs.amazonaws.com", "flow log's role"),
        ),
        defaults={"logDestinationType": "cloud-watch-logs", "maxAggregationInterval": 600},
    ),
    t.PREFIX_LIST: AwsKind(
        id="pl-{hex17}",
        arn="ec2:{region}:{account}:prefix-list/{id}",
        replaces=("addressFamily",),
        computed=lambda _: {"ownerId": ACCOUNT, "version": 1},
    ),
    "aws:ec2/vpcPeeringConnection:VpcPeeringConnection": AwsKind(
        id="pcx-{hex17}",
        replaces=("peerOwnerId", "peerRegion", "peerVpcId", "vpcId"),
        references=(relations.vpc(),),
    ),
    "aws:ec2/egressOnlyInternetGateway:EgressOnlyInternetGateway": AwsKind(
        id="eigw-{hex17}", replaces=("vpcId",), references=(relations.vpc(),)
    ),
}  # fmt: skip
