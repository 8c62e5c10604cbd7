"""Networks that reach into other regions, and names that point there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.place import is_allowed, place_of, places_said
from falaj.policies.rules.residency import aws_targets
from falaj.policies.rules.residency.everywhere import CONTROLS

_CONTROLS: Final = (*CONTROLS, "iso27001:A.8.20")
#: Regions at the other end, by type; absent ones are the resource's own.
_ENDS: Final[dict[str, tuple[str, ...]]] = {
    "aws:ec2/vpcPeeringConnection:VpcPeeringConnection": ("peerRegion",),
    "aws:ec2transitgateway/peeringAttachment:PeeringAttachment": ("peerRegion",),
    "aws:ec2/vpcEndpoint:VpcEndpoint": ("serviceRegion",),
    "aws:ec2/vpcEndpointService:VpcEndpointService": ("supportedRegions",),
    "aws:networkmanager/coreNetwork:CoreNetwork": ("basePolicyRegions",),
    "aws:ec2/vpcIpam:VpcIpam": ("operatingRegions.regionName",),
}


@rule(
    "residency-aws-network-peer",
    "Networks are joined within allowed regions",
    Severity.CRITICAL,
    frozenset(_ENDS),
    _CONTROLS,
    "Remove the peering, endpoint or edge of the region abroad. Traffic between regions leaves "
    "the country.",
)
def network_peer(resource: Resource, view: View) -> Iterator[Finding]:
    """The other end's region."""
    for path in _ENDS[resource.kind]:
        yield from aws_targets.region(resource, view, path, "the other end")
    if "s3-global" in text(resource.get("serviceName")):
        yield violation(
            "serviceName", f"it leads to access points of several regions; {places_said(view)}"
        )


#: What accepts a peering: by its attachment or connection, and the type of that.
_ACCEPTERS: Final[dict[str, tuple[str, frozenset[str]]]] = {
    "aws:ec2/vpcPeeringConnectionAccepter:VpcPeeringConnectionAccepter": (
        "vpcPeeringConnectionId",
        frozenset(("aws:ec2/vpcPeeringConnection:VpcPeeringConnection",)),
    ),
    "aws:ec2transitgateway/peeringAttachmentAccepter:PeeringAttachmentAccepter": (
        "transitGatewayAttachmentId",
        frozenset(("aws:ec2transitgateway/peeringAttachment:PeeringAttachment",)),
    ),
}


@rule(
    "residency-aws-peering-accepter",
    "Peerings that are accepted come from allowed regions",
    Severity.CRITICAL,
    frozenset(_ACCEPTERS),
    _CONTROLS,
    "Declare the peering in the same stack, so that its region can be told, or don't accept it: "
    "the id of a peering doesn't say where the other network is.",
)
def peering_accepter(resource: Resource, view: View) -> Iterator[Finding]:
    """The region of whoever asked for the peering."""
    path, kinds = _ACCEPTERS[resource.kind]
    asked = [each for each in view.referred(resource, path) if each.kind in kinds]
    for each in asked:
        place = place_of(each, view.stack)
        if place == "unknown":
            yield indeterminate(path, "where the peering was asked for can't be known")
        elif not is_allowed(place, view):
            yield violation(path, f"the other network is in {place}; {places_said(view)}")
    if not asked:
        yield indeterminate(path, f"the other network may be in any region; {places_said(view)}")


#: Regions that names point to, or that answer for them, by type.
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "aws:route53/record:Record": (
        "latencyRoutingPolicies.region", "geoproximityRoutingPolicy.awsRegion",
        "geoproximityRoutingPolicy.localZoneGroup",
    ),
    "aws:route53/zone:Zone": ("vpcs.vpcRegion",),
    "aws:route53/zoneAssociation:ZoneAssociation": ("vpcRegion",),
    "aws:route53/vpcAssociationAuthorization:VpcAssociationAuthorization": ("vpcRegion",),
    "aws:route53/healthCheck:HealthCheck": ("cloudwatchAlarmRegion",),
}  # fmt: skip
#: Ends of names that edges answer for.
_EDGE_NAMES: Final = (
    ".cloudfront.net", ".awsglobalaccelerator.com", ".fastly.net", ".akamaiedge.net",
    ".cdn.cloudflare.net", ".azurefd.net", ".azureedge.net", ".trafficmanager.net",
)  # fmt: skip


@rule(
    "residency-aws-name",
    "Names point into allowed regions, and not to edges",
    Severity.HIGH,
    frozenset(_NAMES),
    _CONTROLS,
    "Point the name to an endpoint of an allowed region, such as a load balancer, and associate "
    "private zones with networks there only.",
)
def name(resource: Resource, view: View) -> Iterator[Finding]:
    """Regions of records and zones, and targets that are content delivery networks."""
    for path in _NAMES[resource.kind]:
        yield from aws_targets.region(resource, view, path, "the name's target")
    if resource.kind == "aws:route53/record:Record":
        yield from aws_targets.arn(resource, view, "aliases.name", "the name's target")
        yield from _edges(resource, view)


def _edges(resource: Resource, view: View) -> Iterator[Finding]:
    for path in ("records", "aliases.name"):
        for at, value in select(resource.properties, path):
            if text(value).lower().rstrip(".").endswith(_EDGE_NAMES):
                yield violation(at, f"{text(value)} is answered at edges; {places_said(view)}")


RULES: tuple[Rule, ...] = (network_peer, peering_accepter, name)
