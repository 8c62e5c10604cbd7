"""Microsoft.Network: private endpoints and the private DNS zones that answer for them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import (
    arm,
    checks,
    data,
    invented,
    known,
    naming,
    places,
    subnets,
)
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.model import Problem

ENDPOINT: Final = "azure-native:network:PrivateEndpoint"
ZONE: Final = "azure-native:privatedns:PrivateZone"
LINK: Final = "azure-native:privatedns:VirtualNetworkLink"
_LISTS: Final = ("privateLinkServiceConnections", "manualPrivateLinkServiceConnections")


def groups(arm_type: str) -> dict[str, str]:
    """The parts of a service that an endpoint can reach, each with its private DNS zone."""
    rows: dict[str, dict[str, str]] = data.load("private_link")["types"]
    return next((row for name, row in rows.items() if name.lower() == arm_type.lower()), {})


def _endpoint_problems(ask: Ask) -> Iterator[Problem]:
    yield from checks.needs(ask, "subnet.id", "an endpoint takes its address from a subnet")
    if all(ask.is_absent(f"{name}[0]") for name in _LISTS):
        yield Problem(_LISTS[0], "is missing: name the resource that the endpoint leads to")
    for name in _LISTS:
        for path, _ in ask.items(name):
            yield from checks.needs(ask, f"{path}.name", "each connection needs a name")
            yield from checks.needs(
                ask, f"{path}.privateLinkServiceId", "give the id of the resource to reach"
            )
            yield from _connection(ask, path)


def _connection(ask: Ask, path: str) -> Iterator[Problem]:
    target = ask.text(f"{path}.privateLinkServiceId")
    if target is None:
        return
    reference = arm.parse(target)
    if reference is None:
        yield from checks.resource_id(f"{path}.privateLinkServiceId", target)
        return
    allowed = groups(reference.type)
    given = ask.texts(f"{path}.groupIds")
    for where, text in given if allowed else ():
        yield from checks.one_of(where, text, allowed)
    if allowed and ask.is_absent(f"{path}.groupIds[0]"):
        yield Problem(
            f"{path}.groupIds", f"is missing: {reference.type} needs one of {', '.join(allowed)}"
        )
    if allowed and len(given) > 1:
        yield Problem(
            f"{path}.groupIds",
            "names several parts; an endpoint reaches one, so make an endpoint for each",
        )


def _endpoint_conflicts(ask: Ask) -> Iterator[Problem]:
    where = location(ask)
    yield from subnets.fits(ask, "subnet.id", where=where, may_be_delegated=True)
    subnet_id = ask.text("subnet.id")
    subnet = subnets.find(ask.world, subnet_id) if ask.world and subnet_id else None
    if subnet and "microsoft.netapp/volumes" in subnets.delegations(subnet):
        yield Problem(
            "subnet.id",
            "the subnet is delegated to Azure NetApp Files, which allows "
            "no private endpoints in it; choose another subnet",
        )
    for path, _ in ask.items("ipConfigurations"):
        text = ask.text(f"{path}.privateIPAddress")
        if subnet and text and not subnets.is_inside(subnet, text):
            yield Problem(f"{path}.privateIPAddress", f"{text} isn't an address of the subnet")


def _endpoint_outputs(ask: Ask) -> dict[str, Any]:
    id = ask.id or ""
    configs: list[dict[str, Any]] = []
    for name in _LISTS:
        for path, _ in ask.items(name):
            target = arm.parse(ask.text(f"{path}.privateLinkServiceId") or "")
            for _, part in ask.texts(f"{path}.groupIds") if target else ():
                zone = groups(target.type).get(part, "") if target else ""
                address = subnets.address(ask.world, ask.text("subnet.id") or "", id, part)
                if zone and target:
                    host = f"{target.name}.{zone.removeprefix('privatelink.')}".lower()
                    configs.append({"fqdn": host, "ipAddresses": [address] if address else []})
    name = ask.text("customNetworkInterfaceName") or f"{id.rpartition('/')[2]}.nic"
    group = id.partition("/providers/")[0]
    nic = f"{group}/providers/Microsoft.Network/networkInterfaces/{arm.segment(name)}"
    return {
        "networkInterfaces": [{"id": nic}],
        "customDnsConfigs": ask.known("customDnsConfigs", configs),
    }


def _zone_group_problems(ask: Ask) -> Iterator[Problem]:
    if ask.is_absent("privateDnsZoneConfigs[0]"):
        yield Problem("privateDnsZoneConfigs", "is missing: name at least one private DNS zone")
    for path, _ in ask.items("privateDnsZoneConfigs"):
        yield from checks.needs(ask, f"{path}.name", "each zone's configuration needs a name")
        yield from checks.resource_id(
            f"{path}.privateDnsZoneId",
            ask.text(f"{path}.privateDnsZoneId"),
            "Microsoft.Network/privateDnsZones",
        )


def _zone_group_conflicts(ask: Ask) -> Iterator[Problem]:
    # A zone that doesn't answer for the endpoint's part is accepted by Azure, but the name then
    # leads to the public address; Azure refuses only two groups for one endpoint.
    if ask.world is None or ask.id is None:
        return
    endpoint = ask.id.rsplit("/", 2)[0]
    for made in ask.world.all("azure-native:network:PrivateDnsZoneGroup"):
        if arm.is_below(made.id, endpoint) and not arm.same(made.id, ask.id):
            yield Problem(
                "privateEndpointName",
                "the endpoint has a zone group already; add the zone to that one",
            )


def _record_problems(ask: Ask) -> Iterator[Problem]:
    kind = ask.text("recordType")
    yield from checks.one_of(
        "recordType", kind, ("A", "AAAA", "CNAME", "MX", "PTR", "SOA", "SRV", "TXT")
    )
    yield from checks.needs(ask, "ttl", "give the seconds that an answer may be kept")
    yield from checks.between(ask, "ttl", 1, 2147483647, "seconds")
    for path, _ in ask.items("aRecords"):
        text = ask.text(f"{path}.ipv4Address")
        try:
            ipaddress.IPv4Address(text or "0.0.0.0")  # noqa: S104 - no address is bound
        except ValueError:
            yield Problem(f"{path}.ipv4Address", f"{text!r} isn't an IPv4 address")


def _link_conflicts(ask: Ask) -> Iterator[Problem]:
    world, id, network = ask.world, ask.id, ask.text("virtualNetwork.id")
    if world is None or id is None or network is None:
        return
    zone = id.rsplit("/", 2)[0]
    name = zone.rpartition("/")[2].lower()
    for made in world.all(LINK):
        other = Ask(LINK, made.inputs, {})
        if arm.same(made.id, id) or not arm.same(other.text("virtualNetwork.id") or "", network):
            continue
        taken = made.id.rsplit("/", 2)[0]
        if arm.same(taken, zone):
            yield Problem(
                "virtualNetwork.id",
                f"the network is linked to the zone already, by "
                f"{made.id.rpartition('/')[2]!r}; use that link",
            )
        elif taken.rpartition("/")[2].lower() == name:
            yield Problem(
                "virtualNetwork.id",
                f"the network is linked to another zone called "
                f"{name}; a network can be linked to one zone of a name",
            )
        elif ask.flag("registrationEnabled") and other.flag("registrationEnabled"):
            yield Problem(
                "registrationEnabled",
                "the network registers its machines in another zone; it can do so in one only",
            )


def _link_problems(ask: Ask) -> Iterator[Problem]:
    yield from checks.needs(ask, "virtualNetwork.id", "name the network that may ask the zone")
    yield from checks.resource_id(
        "virtualNetwork.id", ask.text("virtualNetwork.id"), "Microsoft.Network/virtualNetworks"
    )


def _zone_outputs(ask: Ask) -> dict[str, Any]:
    # Limits from azure-subscription-service-limits, Azure DNS (private zones).
    return {
        "location": places.GLOBAL,
        "internalId": invented.guid("zone", ask.id or ""),
        "maxNumberOfRecordSets": 25000,
        "maxNumberOfVirtualNetworkLinks": 1000,
        "maxNumberOfVirtualNetworkLinksWithRegistration": 100,
        "numberOfRecordSets": 1,
        "numberOfVirtualNetworkLinks": 0,
        "numberOfVirtualNetworkLinksWithRegistration": 0,
    }


def _link_outputs(ask: Ask) -> dict[str, Any]:
    del ask
    return {"location": places.GLOBAL, "virtualNetworkLinkState": "Completed"}


def _record_outputs(ask: Ask) -> dict[str, Any]:
    zone = ask.text("privateZoneName") or ""
    own = ask.text("relativeRecordSetName") or "@"
    host = f"{zone}." if own == "@" else f"{own}.{zone}."
    kind = ask.text("recordType") or "A"
    return {
        "fqdn": host,
        "isAutoRegistered": False,
        "type": f"Microsoft.Network/privateDnsZones/{kind}",
    }


def _zone_obstacles(ask: Ask) -> Iterator[Problem]:
    for made in (
        known.of_type(ask.world, "Microsoft.Network/privateDnsZones/virtualNetworkLinks")
        if ask.world
        else ()
    ):
        if ask.id and arm.is_below(made.id, ask.id):
            yield Problem(
                "",
                f"the network link {made.id.rpartition('/')[2]!r} stands below it; "
                "delete that first",
            )


KINDS: Final = (
    Kind(
        ENDPOINT,
        "Microsoft.Network/privateEndpoints/{privateEndpointName}",
        name=naming.NameRule(2, 64, naming.NETWORK.pattern, naming.NETWORK.text),
        replaces=frozenset({"subnet"}),
        problems=_endpoint_problems,
        conflicts=_endpoint_conflicts,
        outputs=_endpoint_outputs,
    ),
    Kind(
        "azure-native:network:PrivateDnsZoneGroup",
        "Microsoft.Network/privateEndpoints/{privateEndpointName}/privateDnsZoneGroups/"
        "{privateDnsZoneGroupName}",
        name=naming.NETWORK,
        problems=_zone_group_problems,
        conflicts=_zone_group_conflicts,
    ),
    Kind(
        ZONE,
        "Microsoft.Network/privateDnsZones/{privateZoneName}",
        name=naming.ZONE,
        location="global",
        obstacles=_zone_obstacles,
        outputs=_zone_outputs,
    ),
    Kind(
        LINK,
        "Microsoft.Network/privateDnsZones/{privateZoneName}/virtualNetworkLinks/"
        "{virtualNetworkLinkName}",
        name=naming.NETWORK,
        location="global",
        replaces=frozenset({"virtualNetwork"}),
        problems=_link_problems,
        conflicts=_link_conflicts,
        outputs=_link_outputs,
    ),
    Kind(
        "azure-native:privatedns:PrivateRecordSet",
        "Microsoft.Network/privateDnsZones/{privateZoneName}/{recordType}/{relativeRecordSetName}",
        problems=_record_problems,
        outputs=_record_outputs,
    ),
)
