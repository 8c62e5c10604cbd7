"""VPCs, subnets and what belongs to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import links
from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.addresses import address, cidr, inside, network, zone
from falaj.sandbox.clouds.aws.arns import ACCOUNT, region_of
from falaj.sandbox.clouds.aws.hashes import marked
from falaj.sandbox.clouds.aws.kinds import AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.regions import zone_id, zone_ids, zone_name
from falaj.sandbox.clouds.inputs import Resource
from falaj.sandbox.clouds.kinds import Reference
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import between, exactly_one, not_together, sized


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
    }
    if resource.get("assignGeneratedIpv6CidrBlock") is True:
        digits = marked(17, resource.id, "ipv6")
        found["ipv6CidrBlock"] = f"2a05:d000:{digits[4:8]}:{digits[8:10]}00::/56"
        found["ipv6AssociationId"] = "vpc-cidr-assoc-" + marked(17, resource.id, "ipv6")
    return found


def _subnet(resource: Resource) -> Mapping[str, Any]:
    region = region_of(resource)
    found: dict[str, Any] = {"ownerId": ACCOUNT}
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


def _inside_vpc(resource: Resource) -> Iterator[Problem]:
    """A subnet lies inside its VPC's networks, and overlaps none of its siblings."""
    vpc_id, block = resource.string("vpcId"), network(resource.get("cidrBlock"))
    home = resource.world.by_id(t.VPC, vpc_id)
    if home is None or block is None:
        return
    blocks = [home.outputs.get("cidrBlock")]
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
    _SECOND_BLOCK: AwsKind(
        id="vpc-cidr-assoc-{hex17}",
        replaces=("cidrBlock", "vpcId", "ipv4IpamPoolId", "ipv4NetmaskLength"),
        rules=(cidr("cidrBlock", largest=16, smallest=28),),
        references=(links.vpc(),),
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
        references=(links.vpc(),),
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
            links.vpc(),
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
        references=(links.route_table("defaultRouteTableId"),),
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
            links.route_table(),
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
            links.route_table(),
            Reference("subnetId", (t.SUBNET,), holds=False),
            Reference("gatewayId", (t.INTERNET_GATEWAY,), holds=False),
        ),
        crosschecks=(_same_vpc, _one_table_per_subnet),
    ),
    "aws:ec2/mainRouteTableAssociation:MainRouteTableAssociation": AwsKind(
        id="rtbassoc-{hex17}",
        replaces=("vpcId",),
        references=(links.vpc(), links.route_table()),
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
        references=(links.vpc(), Reference("dhcpOptionsId", (t.DHCP_OPTIONS,))),
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
        references=(links.vpc(), Reference("subnetIds[]", (t.SUBNET,), holds=False)),
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
        references=(links.subnet("subnetId"), links.security_group("securityGroups[]")),
    ),
}  # fmt: skip
