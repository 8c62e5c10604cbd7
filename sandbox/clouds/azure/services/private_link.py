"""Microsoft.Network: private endpoints and the private DNS zones that answer for them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import (
    checks,
    kinds,
    naming,
    regions,
    relations,
    resources,
    subnets,
)
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.resources import location
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import absent, between, one_of, refused, required
from falaj.sandbox.clouds.model import Problem

ENDPOINT: Final = "azure-native:network:PrivateEndpoint"
ZONE: Final = "azure-native:privatedns:PrivateZone"
LINK: Final = "azure-native:privatedns:VirtualNetworkLink"
_LISTS: Final = ("privateLinkServiceConnections", "manualPrivateLinkServiceConnections")


def groups(arm_type: str) -> dict[str, str]:
    """The parts of a service that an endpoint can reach, each with its private DNS zone."""
    rows: dict[str, dict[str, str]] = kinds.load_table("private_link")["types"]
    of_type = (row for name, row in rows.items() if name.lower() == arm_type.lower())
    return next(of_type, dict[str, str]())


def _endpoint_problems(inputs: Inputs) -> Iterator[Problem]:
    if all(inputs.is_absent(f"{name}[0]") for name in _LISTS):
        yield Problem(_LISTS[0], "is missing: name the resource that the endpoint leads to")
    for name in _LISTS:
        for path, _ in inputs.items(name):
            yield from required(f"{path}.name", "each connection needs a name")(inputs)
            yield from required(
                f"{path}.privateLinkServiceId", "give the id of the resource to reach"
            )(inputs)
            yield from _connection(inputs, path)


def _connection(inputs: Inputs, path: str) -> Iterator[Problem]:
    target = inputs.optional_string(f"{path}.privateLinkServiceId")
    if target is None:
        return
    reference = naming.parse(target)
    if reference is None:
        yield from checks.resource_id(f"{path}.privateLinkServiceId", target)
        return
    allowed = groups(reference.type)
    given = inputs.strings(f"{path}.groupIds")
    for where, text in given if allowed else ():
        yield from checks.one_of(where, text, allowed)
    if allowed and inputs.is_absent(f"{path}.groupIds[0]"):
        yield Problem(
            f"{path}.groupIds", f"is missing: {reference.type} needs one of {', '.join(allowed)}"
        )
    if allowed and len(given) > 1:
        yield Problem(
            f"{path}.groupIds",
            "names several parts; an endpoint reaches one, so make an endpoint for each",
        )


def _endpoint_conflicts(resource: Resource) -> Iterator[Problem]:
    where = location(resource)
    yield from subnets.fits(resource, "subnet.id", where=where, may_be_delegated=True)
    subnet_id = resource.optional_string("subnet.id")
    subnet = subnets.find(resource.world, subnet_id) if subnet_id else None
    if subnet and "microsoft.netapp/volumes" in subnets.delegations(subnet):
        yield Problem(
            "subnet.id",
            "the subnet is delegated to Azure NetApp Files, which allows "
            "no private endpoints in it; choose another subnet",
        )
    for path, _ in resource.items("ipConfigurations"):
        text = resource.optional_string(f"{path}.privateIPAddress")
        if subnet and text and not subnets.is_inside(subnet, text):
            yield Problem(f"{path}.privateIPAddress", f"{text} isn't an address of the subnet")


def _endpoint_outputs(resource: Resource) -> dict[str, Any]:
    id = resource.id
    configs: list[dict[str, Any]] = []
    for name in _LISTS:
        for path, _ in resource.items(name):
            target = naming.parse(resource.optional_string(f"{path}.privateLinkServiceId") or "")
            for _, part in resource.strings(f"{path}.groupIds") if target else ():
                zone = groups(target.type).get(part, "") if target else ""
                address = subnets.address(
                    resource.world, resource.optional_string("subnet.id") or "", id, part
                )
                if zone and target:
                    host = f"{target.name}.{zone.removeprefix('privatelink.')}".lower()
                    configs.append({"fqdn": host, "ipAddresses": [address] if address else []})
    name = resource.optional_string("customNetworkInterfaceName") or f"{id.rpartition('/')[2]}.nic"
    group = id.partition("/providers/")[0]
    nic = f"{group}/providers/Microsoft.Network/networkInterfaces/{naming.segment(name)}"
    return {
        "networkInterfaces": [{"id": nic}],
        "customDnsConfigs": resource.get("customDnsConfigs", configs),
    }


def _zone_group_conflicts(resource: Resource) -> Iterator[Problem]:
    endpoint = resource.id.rsplit("/", 2)[0]
    for made in resource.world.all("azure-native:network:PrivateDnsZoneGroup"):
        if naming.is_below(made.id, endpoint) and not naming.same(made.id, resource.id):
            yield Problem(
                "privateEndpointName",
                "the endpoint has a zone group already; add the zone to that one",
            )


def _zone_of_service(resource: Resource) -> Iterator[Problem]:
    """The zone is the one by which the service is called.

    Azure takes any zone; names then lead to the public address (private-endpoint-dns).
    """
    endpoint = resources.by_id(resource.world, resource.id.rsplit("/", 2)[0])
    if endpoint is None:
        return
    own = Inputs(endpoint.inputs)
    wanted: set[str] = set()
    for path, _ in own.items("privateLinkServiceConnections"):
        target = naming.parse(own.optional_string(f"{path}.privateLinkServiceId") or "")
        known = groups(target.type) if target else {}
        asked = [text for _, text in own.strings(f"{path}.groupIds")]
        if not known or any(each not in known for each in asked):
            return
        wanted |= {known[each] for each in asked}
    ids = [
        resource.optional_string(f"{path}.privateDnsZoneId")
        for path, _ in resource.items("privateDnsZoneConfigs")
    ]
    zones = {id.rpartition("/")[2].lower() for id in ids if id}
    if None in ids or any("{" in each for each in wanted):
        return
    # A service may be called by further names, as Azure Monitor is.
    for missing in sorted(wanted - zones):
        yield Problem(
            "privateDnsZoneConfigs[0].privateDnsZoneId",
            f"{', '.join(sorted(zones)) or 'nothing'} isn't the zone by which the endpoint's "
            f"service is called; add {missing}",
        )


def _record_problems(inputs: Inputs) -> Iterator[Problem]:
    for path, _ in inputs.items("aRecords"):
        text = inputs.optional_string(f"{path}.ipv4Address")
        try:
            ipaddress.IPv4Address(text or "0.0.0.0")  # noqa: S104 - no address is bound
        except ValueError:
            yield Problem(f"{path}.ipv4Address", f"{text!r} isn't an IPv4 address")


def _link_conflicts(resource: Resource) -> Iterator[Problem]:
    world, id, network = resource.world, resource.id, resource.optional_string("virtualNetwork.id")
    if network is None:
        return
    zone = id.rsplit("/", 2)[0]
    name = zone.rpartition("/")[2].lower()
    for made in world.all(LINK):
        other = Inputs(made.inputs)
        if naming.same(made.id, id) or not naming.same(
            other.optional_string("virtualNetwork.id") or "", network
        ):
            continue
        taken = made.id.rsplit("/", 2)[0]
        if naming.same(taken, zone):
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
        elif resource.flag("registrationEnabled") and other.flag("registrationEnabled"):
            yield Problem(
                "registrationEnabled",
                "the network registers its machines in another zone; it can do so in one only",
            )


def _zone_outputs(resource: Resource) -> dict[str, Any]:
    # Limits from azure-subscription-service-limits, Azure DNS (private zones).
    return {
        "location": regions.GLOBAL,
        "internalId": naming.guid("zone", resource.id),
        "maxNumberOfRecordSets": 25000,
        "maxNumberOfVirtualNetworkLinks": 1000,
        "maxNumberOfVirtualNetworkLinksWithRegistration": 100,
        "numberOfRecordSets": 1,
        "numberOfVirtualNetworkLinks": 0,
        "numberOfVirtualNetworkLinksWithRegistration": 0,
    }


def _link_outputs(inputs: Inputs) -> dict[str, Any]:
    del inputs
    return {"location": regions.GLOBAL, "virtualNetworkLinkState": "Completed"}


def _record_outputs(inputs: Inputs) -> dict[str, Any]:
    zone = inputs.optional_string("privateZoneName") or ""
    own = inputs.optional_string("relativeRecordSetName") or "@"
    host = f"{zone}." if own == "@" else f"{own}.{zone}."
    kind = inputs.optional_string("recordType") or "A"
    return {
        "fqdn": host,
        "isAutoRegistered": False,
        "type": f"Microsoft.Network/privateDnsZones/{kind}",
    }


def _zone_blockers(resource: Resource) -> Iterator[Problem]:
    for made in (
        resources.of_type(resource.world, "Microsoft.Network/privateDnsZones/virtualNetworkLinks")
        if resource.world
        else ()
    ):
        if naming.is_below(made.id, resource.id):
            yield Problem(
                "",
                f"the network link {made.id.rpartition('/')[2]!r} stands below it; "
                "delete that first",
            )


_DROPPED: Final = re.compile(r"[:() ]|^\d")


def _dropped_tags(inputs: Inputs) -> Iterator[Problem]:
    """Tags that zones, their links and records take and don't keep.

    Sources: github.com/Azure/azure-rest-api-specs/issues/11748; azure-resource-manager/management/
    tag-resources (limitations); github.com/MicrosoftDocs/azure-docs/pull/124115.
    """
    for name in inputs.keys("tags"):
        if _DROPPED.search(name):
            yield Problem(
                f'tags["{name}"]',
                "private DNS takes such a tag and drops it, so that every `up` would bring it "
                "back; leave out colons, spaces, parentheses and a leading digit "
                f"({_DROPPED.sub('-', name)!r})",
            )


KINDS: Final = (
    AzureKind(
        ENDPOINT,
        "Microsoft.Network/privateEndpoints/{privateEndpointName}",
        name=kinds.NameRule(2, 64, kinds.NETWORK.pattern, kinds.NETWORK.text),
        replaces=("subnet",),
        rules=(
            required("subnet.id", "an endpoint takes its address from a subnet"),
            _endpoint_problems,
        ),
        crosschecks=(_endpoint_conflicts,),
        computed=_endpoint_outputs,
    ),
    AzureKind(
        "azure-native:network:PrivateDnsZoneGroup",
        "Microsoft.Network/privateEndpoints/{privateEndpointName}/privateDnsZoneGroups/"
        "{privateDnsZoneGroupName}",
        name=kinds.NETWORK,
        rules=(
            refused(
                "privateDnsZoneConfigs", "is missing: name at least one private DNS zone",
                absent("privateDnsZoneConfigs[0]"),
            ),
            required("privateDnsZoneConfigs[].name", "each zone's configuration needs a name"),
        ),
        references=(
            relations.to(
                "privateDnsZoneConfigs[].privateDnsZoneId", "Microsoft.Network/privateDnsZones",
            ),
        ),
        crosschecks=(_zone_group_conflicts, _zone_of_service),
    ),
    AzureKind(
        ZONE,
        "Microsoft.Network/privateDnsZones/{privateZoneName}",
        name=kinds.ZONE,
        location="global",
        rules=(_dropped_tags,),
        delete_blockers=(_zone_blockers,),
        computed=_zone_outputs,
    ),
    AzureKind(
        LINK,
        "Microsoft.Network/privateDnsZones/{privateZoneName}/virtualNetworkLinks/"
        "{virtualNetworkLinkName}",
        name=kinds.NETWORK,
        location="global",
        replaces=("virtualNetwork",),
        rules=(
            required("virtualNetwork.id", "name the network that may inputs the zone"),
            _dropped_tags,
        ),
        references=(relations.to("virtualNetwork.id", "Microsoft.Network/virtualNetworks"),),
        crosschecks=(_link_conflicts,),
        computed=_link_outputs,
    ),
    AzureKind(
        "azure-native:privatedns:PrivateRecordSet",
        "Microsoft.Network/privateDnsZones/{privateZoneName}/{recordType}/{relativeRecordSetName}",
        rules=(
            one_of("recordType", ("A", "AAAA", "CNAME", "MX", "PTR", "SOA", "SRV", "TXT")),
            required("ttl", "give the seconds that an answer may be kept"),
            between("ttl", 1, 2147483647, "seconds"),
            _record_problems,
        ),
        computed=_record_outputs,
    ),
)  # fmt: skip
