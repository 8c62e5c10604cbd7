"""Networks of Azure: peers, circuits, and rules that let traffic out to services abroad."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.components.catalogue.region_names import AZURE_LOCATIONS, normalise_azure
from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    get,
    indeterminate,
    is_unknown,
    items,
    leaves,
    rule,
    select,
    spell,
    text,
    violation,
)
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency.azure_places import allowed, where_allowed
from falaj.policies.rules.residency.azure_targets import CONTROLS, Target, targets

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
    CONTROLS,
    "Choose a peering location in the country (Dubai, Dubai2, Abu Dhabi), and the tier Standard "
    "or Local: Premium announces routes to regions of all geographies.",
)  # fmt: skip
def circuit(resource: Resource, view: View) -> Iterator[Finding]:
    """The site of a circuit, and the tier that opens the routes to regions abroad."""
    del view
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
    CONTROLS,
    "Let traffic out to the service's tag of a location in the country, such as Storage.UAENorth, "
    "or reach the service through a private endpoint.",
)
def service_tag(resource: Resource, view: View) -> Iterator[Finding]:
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
            if region in AZURE_LOCATIONS and region not in allowed(view):
                where = spell((*prefix, *path))
                yield violation(where, f"it is {text(value)}; {where_allowed(view)}")


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
    CONTROLS,
    "Leave the locations of service endpoints out, or list only locations in the country, and "
    "prefer private endpoints. Microsoft.Storage.Global leads to accounts in all regions.",
)
def service_endpoint(resource: Resource, view: View) -> Iterator[Finding]:
    """Endpoints to the storage of all regions; listed regions are read as all locations are."""
    del view
    for prefix in ("serviceEndpoints", "subnets.serviceEndpoints"):
        for path, value in select(resource.properties, f"{prefix}.service"):
            if is_unknown(value):
                yield indeterminate(path, "which service it leads to can't be seen")
            elif text(value).lower() == "microsoft.storage.global":
                yield violation(path, "it leads to storage in all regions")


RULES: Final[tuple[Rule, ...]] = (peerings, circuit, service_tag, service_endpoint)
