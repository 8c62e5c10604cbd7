"""The ways in and out of a VPC: gateways, addresses, endpoints; and the record of what passed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import links
from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.arns import ACCOUNT, region_of
from falaj.sandbox.clouds.aws.documents import ENDPOINT, policy
from falaj.sandbox.clouds.aws.hashes import hexdigits, letters, marked
from falaj.sandbox.clouds.aws.kinds import AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.regions import dns_suffix
from falaj.sandbox.clouds.inputs import Inputs, Resource, as_list
from falaj.sandbox.clouds.kinds import Reference
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import equals, exactly_one, matches, not_together, when


def _endpoint(resource: Resource) -> Mapping[str, Any]:
    kind = resource.string("vpcEndpointType") or "Gateway"
    found: dict[str, Any] = {"ownerId": ACCOUNT, "state": "available", "requesterManaged": False}
    if kind == "Gateway":
        found["prefixListId"] = "pl-" + marked(
            8, region_of(resource), resource.string("serviceName")
        )
        found["cidrBlocks"] = ["198.51.100.0/24"]
        return found
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


def _private_dns(resource: Resource) -> Iterator[Problem]:
    """Private DNS needs both of the VPC's DNS settings."""
    vpc = resource.world.by_id(t.VPC, resource.string("vpcId"))
    if vpc is None or resource.get("privateDnsEnabled") is not True:
        return
    for setting in ("enableDnsSupport", "enableDnsHostnames"):
        if vpc.outputs.get(setting) is not True:
            yield Problem(
                "privateDnsEnabled", f"needs {setting} on the VPC {vpc.id}; set it to true there"
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
    t.INTERNET_GATEWAY: AwsKind(
        id="igw-{hex17}",
        arn="ec2:{region}:{account}:internet-gateway/{id}",
        references=(links.vpc(),),
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
            links.subnet("subnetId"),
            links.vpc(),
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
        ),
        references=(
            links.vpc(),
            links.subnet(),
            links.security_group(),
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
            links.route_table(), Reference("vpcEndpointId", (t.VPC_ENDPOINT,), holds=False)
        ),
    ),
    "aws:ec2/vpcEndpointSubnetAssociation:VpcEndpointSubnetAssociation": AwsKind(
        id="a-{vpcEndpointId}{digits10}",
        replaces=("subnetId", "vpcEndpointId"),
        references=(
            links.subnet("subnetId"), Reference("vpcEndpointId", (t.VPC_ENDPOINT,), holds=False)
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
            links.vpc(),
            links.subnet("subnetId"),
            links.role("iamRoleArn"),
            Reference("logDestination", (t.LOG_GROUP, t.BUCKET), by=("arn",), holds=False,
                      regional=False),
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
        references=(links.vpc(),),
    ),
    "aws:ec2/egressOnlyInternetGateway:EgressOnlyInternetGateway": AwsKind(
        id="eigw-{hex17}", replaces=("vpcId",), references=(links.vpc(),)
    ),
}  # fmt: skip
