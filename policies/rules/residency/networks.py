"""Networks that are joined to others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.components.catalogue.region_names import AZURE_LOCATIONS, normalise_azure
from falaj.policies.model import (
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_path,
    get,
    indeterminate,
    is_unknown,
    items,
    leaves,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.place import format_places, is_allowed, place_of
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency import destinations
from falaj.policies.rules.residency.azure_places import allowed, where_allowed
from falaj.policies.rules.residency.destinations import AZURE_CONTROLS, Target, targets
from falaj.policies.rules.residency.everywhere import CONTROLS

# Networks that reach into other regions, and names that point there.

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
def network_peer(resource: Resource, context: Context) -> Iterator[Finding]:
    """The other end's region."""
    for path in _ENDS[resource.kind]:
        yield from destinations.region(resource, context, path, "the other end")
    if "s3-global" in text(resource.get("serviceName")):
        yield violation(
            "serviceName",
            f"it leads to access points of several regions; {format_places(context)}",
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
def peering_accepter(resource: Resource, context: Context) -> Iterator[Finding]:
    """The region of whoever asked for the peering."""
    path, kinds = _ACCEPTERS[resource.kind]
    asked = [each for each in context.referred(resource, path) if each.kind in kinds]
    for each in asked:
        place = place_of(each, context.stack)
        if place == "unknown":
            yield indeterminate(path, "where the peering was asked for can't be known")
        elif not is_allowed(place, context):
            yield violation(path, f"the other network is in {place}; {format_places(context)}")
    if not asked:
        yield indeterminate(
            path, f"the other network may be in any region; {format_places(context)}"
        )


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
def name(resource: Resource, context: Context) -> Iterator[Finding]:
    """Regions of records and zones, and targets that are content delivery networks."""
    for path in _NAMES[resource.kind]:
        yield from destinations.region(resource, context, path, "the name's target")
    if resource.kind == "aws:route53/record:Record":
        yield from destinations.arn(resource, context, "aliases.name", "the name's target")
        yield from _edges(resource, context)


def _edges(resource: Resource, context: Context) -> Iterator[Finding]:
    for path in ("records", "aliases.name"):
        for at, value in select(resource.properties, path):
            if text(value).lower().rstrip(".").endswith(_EDGE_NAMES):
                yield violation(
                    at, f"{text(value)} is answered at edges; {format_places(context)}"
                )


# Networks of Azure: peers, circuits, and rules that let traffic out to services abroad.

_PEER: Final = "the peer network"

peerings: Final = targets(
    "residency-azure-network-peer",
    "Networks are joined with networks in the country only",
    {
        "network:VirtualNetworkPeering": [
            Target("remoteVirtualNetwork.id", _PEER),
            Target("properties.remoteVirtualNetwork.id", _PEER),
        ],
        "network:VirtualNetwork": [
            Target("virtualNetworkPeerings.remoteVirtualNetwork.id", _PEER)
        ],
        "network:HubVirtualNetworkConnection": [Target("remoteVirtualNetwork.id", _PEER)],
        "network:VirtualHub": [Target("virtualNetworkConnections.remoteVirtualNetwork.id", _PEER)],
        "network:VirtualNetworkGatewayConnection": [
            Target("virtualNetworkGateway2.id", "the other gateway"),
            Target("peer.id", "the circuit"),
        ],
        "network:ExpressRouteConnection": [Target("expressRouteCircuitPeering.id", "the circuit")],
        "network:ExpressRouteCircuitConnection": [
            Target("peerExpressRouteCircuitPeering.id", "the peer circuit")
        ],
        "avs:GlobalReachConnection": [Target("peerExpressRouteCircuit", "the peer circuit")],
        "avs:CloudLink": [Target("linkedCloud", "the linked cloud")],
        "databricks:VNetPeering": [Target("remoteVirtualNetwork.id", _PEER)],
    },
    "Peer with a network in the country: declare it in this stack, or name its subscription in "
    "the setting allowedAccounts. Traffic to a peer in another region leaves the country.",
)

#: Sites of ExpressRoute in the country are named by their city, those of ports with the hall
#: (https://learn.microsoft.com/azure/expressroute/expressroute-locations-providers).
_SITES: Final = ("dubai", "abudhabi", "fujairah", "uae", "unitedarabemirates")


@rule(
    "residency-azure-circuit",
    "Circuits meet Azure at sites in the country, and don't reach other geographies",
    Severity.HIGH,
    azure(
        "network:ExpressRouteCircuit", "network:ExpressRoutePort", "peering:Peering",
        "peering:PeeringService",
    ),
    AZURE_CONTROLS,
    "Choose a peering location in the country (Dubai, Dubai2, Abu Dhabi), and the tier Standard "
    "or Local: Premium announces routes to regions of all geographies.",
)  # fmt: skip
def circuit(resource: Resource, context: Context) -> Iterator[Finding]:
    """The site of a circuit, and the tier that opens the routes to regions abroad."""
    del context
    for key in (
        "serviceProviderProperties.peeringLocation", "peeringLocation", "peeringServiceLocation",
        "providerPrimaryPeeringLocation", "providerBackupPeeringLocation",
    ):  # fmt: skip
        for path, value in select(resource.properties, key):
            if is_unknown(value):
                yield indeterminate(path, "the site can't be seen; it must be in the country")
            elif text(value) and not _is_site(text(value)):
                yield violation(
                    path,
                    f"the site is {text(value)!r}; sites in the country are Dubai, "
                    "Dubai2 and Abu Dhabi",
                )
    tier = resource.get("sku.tier")
    if is_unknown(tier):
        yield indeterminate("sku.tier", "the tier can't be seen; it must be Standard or Local")
    elif text(tier).lower() == "premium":
        yield violation("sku.tier", "Premium opens routes to regions of all geographies")


def _is_site(value: str) -> bool:
    return any(each in normalise_azure(value) for each in _SITES)


# Storage.WestEurope, AzureCloud.eastus2, Sql.NorthEurope: a service's addresses in one region.
_SERVICE_TAG: Final = re.compile(r"[A-Za-z][A-Za-z0-9]+\.([A-Za-z][A-Za-z0-9 ]+)")
RULED: Final = azure(
    "network:NetworkSecurityGroup", "network:SecurityRule", "network:AzureFirewall",
    "network:FirewallPolicyRuleCollectionGroup", "network:FirewallPolicyRuleGroup",
    "network:FirewallPolicyRuleCollectionGroupDraft", "network:AdminRule", "network:RouteTable",
    "network:Route", "network:UserRule",
)  # fmt: skip
_DESTINATIONS: Final = frozenset(
    ("destinationAddressPrefix", "destinationAddressPrefixes", "destinationAddresses",
     "addressPrefix", "destinations", "destination")
)  # fmt: skip


@rule(
    "residency-azure-service-tag",
    "Rules don't let traffic out to services in regions abroad",
    Severity.HIGH,
    RULED,
    AZURE_CONTROLS,
    "Let traffic out to the service's tag of a location in the country, such as Storage.UAENorth, "
    "or reach the service through a private endpoint.",
)
def service_tag(resource: Resource, context: Context) -> Iterator[Finding]:
    """Outbound rules that allow, and routes, whose destination is a regional tag abroad."""
    for holder, prefix in _rules(resource):
        if text(get(holder, "direction")).lower() == "inbound":
            continue
        if text(get(holder, "access")).lower() == "deny":
            continue
        for path, value in leaves(holder):
            keys = [each for each in path if isinstance(each, str)]
            denies = any("action" in each.lower() for each in keys)
            if denies or not keys or not any(each in _DESTINATIONS for each in keys):
                continue
            found = _SERVICE_TAG.fullmatch(text(value))
            region = normalise_azure(found[1]) if found else ""
            if region in AZURE_LOCATIONS and region not in allowed(context):
                where = format_path((*prefix, *path))
                yield violation(where, f"it is {text(value)}; {where_allowed(context)}")


def _rules(resource: Resource) -> Iterator[tuple[Any, tuple[str | int, ...]]]:
    """Each rule or route with its path; the resource itself where it is one."""
    for key in ("securityRules", "routes", "ruleCollections", "networkRuleCollections", "rules"):
        found = resource.get(key)
        for index, each in enumerate(items(found)):
            if text(get(each, "action.type")).lower() == "deny":
                continue
            yield each, (key, index)
    if resource.kind.endswith(("Rule", "Route")):
        yield resource.properties, ()


@rule(
    "residency-azure-service-endpoint",
    "Service endpoints lead to services in the country",
    Severity.HIGH,
    azure("network:Subnet", "network:VirtualNetwork"),
    AZURE_CONTROLS,
    "Leave the locations of service endpoints out, or list only locations in the country, and "
    "prefer private endpoints. Microsoft.Storage.Global leads to accounts in all regions.",
)
def service_endpoint(resource: Resource, context: Context) -> Iterator[Finding]:
    """Endpoints to the storage of all regions; listed regions are read as all locations are."""
    del context
    for prefix in ("serviceEndpoints", "subnets.serviceEndpoints"):
        for path, value in select(resource.properties, f"{prefix}.service"):
            if is_unknown(value):
                yield indeterminate(path, "which service it leads to can't be seen")
            elif text(value).lower() == "microsoft.storage.global":
                yield violation(path, "it leads to storage in all regions")


RULES: tuple[Rule, ...] = (
    network_peer,
    peering_accepter,
    name,
    peerings,
    circuit,
    service_tag,
    service_endpoint,
)
