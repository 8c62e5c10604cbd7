"""Microsoft.Network: virtual networks, their subnets and peerings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, checks, invented, known, naming
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.model import Made, Problem, World

VIRTUAL_NETWORK: Final = "azure-native:network:VirtualNetwork"
SUBNET: Final = "azure-native:network:Subnet"

# Names that belong to a service, with the smallest block (longest prefix) that it accepts.
# Sources: learn.microsoft.com firewall/firewall-faq (/26), bastion/configuration-settings (/26),
# vpn-gateway/vpn-gateway-about-vpn-gateway-settings (/29 at least), route-server/overview (/26).
_RESERVED: Final = {
    "AzureFirewallSubnet": 26,
    "AzureFirewallManagementSubnet": 26,
    "AzureBastionSubnet": 26,
    "GatewaySubnet": 29,
    "RouteServerSubnet": 26,
}
# What can't have a network security group of its own.
# Source: firewall/firewall-faq (platform-managed), vpn-gateway settings (not supported).
_NO_SECURITY_GROUP: Final = frozenset(
    {"AzureFirewallSubnet", "AzureFirewallManagementSubnet", "GatewaySubnet"}
)
# Azure keeps five addresses of each subnet; /29 is the smallest.
# Source: virtual-network/virtual-networks-faq.
_LONGEST_PREFIX: Final = 29
_POLICIES: Final = ("Enabled", "Disabled")


def prefixes(ask: Ask, path: str = "") -> list[tuple[str, str]]:
    """The path and text of each address block of a subnet."""
    base = f"{path}." if path else ""
    return [*ask.texts(f"{base}addressPrefix"), *ask.texts(f"{base}addressPrefixes")]


def _network_problems(ask: Ask) -> Iterator[Problem]:
    blocks = ask.texts("addressSpace.addressPrefixes")
    for path, text in blocks:
        yield from checks.cidr(path, text)
    if (
        not blocks
        and ask.is_absent("addressSpace.addressPrefixes[0]")
        and ask.is_absent("addressSpace.ipamPoolPrefixAllocations")
    ):
        yield Problem(
            "addressSpace.addressPrefixes",
            "is missing: a virtual network needs at least one block, such as 10.0.0.0/16",
        )
    yield from _overlaps(blocks)
    inside = [item for _, text in blocks if (item := checks.address_range(text))]
    subnets = [(path, item) for path, item in ask.items("subnets") if isinstance(item, Mapping)]
    for path, _ in subnets:
        yield from _subnet_rules(ask, path)
        if inside:
            yield from _outside(prefixes(ask, path), inside)
    yield from _overlaps([pair for path, _ in subnets for pair in prefixes(ask, path)])


def _subnet_problems(ask: Ask) -> Iterator[Problem]:
    if (
        ask.is_absent("addressPrefix")
        and ask.is_absent("addressPrefixes")
        and ask.is_absent("ipamPoolPrefixAllocations")
    ):
        yield Problem(
            "addressPrefix",
            "is missing: a subnet needs a block of its network, such as 10.0.1.0/24",
        )
    yield from _subnet_rules(ask, "")


def _subnet_rules(ask: Ask, path: str) -> Iterator[Problem]:
    base = f"{path}." if path else ""
    name = ask.text(f"{base}name") if path else ask.text("subnetName")
    if path and name:
        yield from naming.NETWORK.check(f"{base}name", name)
    blocks = prefixes(ask, path)
    for where, text in blocks:
        block = checks.address_range(text)
        if block is None:
            yield from checks.cidr(where, text)
            continue
        if block.version == 4 and block.prefixlen > _LONGEST_PREFIX:
            yield Problem(
                where,
                f"{text} is too small: Azure keeps five addresses of each subnet, so that "
                f"/{_LONGEST_PREFIX} is the smallest",
            )
        least = _RESERVED.get(name or "")
        if least is not None and block.version == 4 and block.prefixlen > least:
            yield Problem(where, f"{name} needs a block of /{least} or larger; given is {text}")
    if name in _NO_SECURITY_GROUP and ask.is_given(f"{base}networkSecurityGroup"):
        yield Problem(
            f"{base}networkSecurityGroup",
            f"{name} can't have a network security group; leave it out",
        )
    for policy in ("privateLinkServiceNetworkPolicies",):
        yield from checks.one_of(f"{base}{policy}", ask.text(f"{base}{policy}"), _POLICIES)
    for where, item in ask.items(f"{base}delegations"):
        if isinstance(item, Mapping) and ask.is_absent(f"{where}.serviceName"):
            yield Problem(
                f"{where}.serviceName",
                "is missing: name the service, such as Microsoft.Netapp/volumes",
            )
    delegations = ask.items(f"{base}delegations")
    if len(delegations) > 1:
        yield Problem(f"{base}delegations", "a subnet can be delegated to one service only")
    if name == "AzureFirewallSubnet" and delegations:
        yield Problem(f"{base}delegations", "AzureFirewallSubnet can't be delegated; leave it out")


def _overlaps(blocks: list[tuple[str, str]]) -> Iterator[Problem]:
    seen: list[tuple[str, checks.Range]] = []
    for path, text in blocks:
        block = checks.address_range(text)
        if block is None:
            continue
        for other, taken in seen:
            if block.version == taken.version and block.overlaps(taken):
                yield Problem(path, f"{text} overlaps {taken} of {other}; choose a free block")
        seen.append((path, block))


def _outside(blocks: list[tuple[str, str]], inside: list[checks.Range]) -> Iterator[Problem]:
    for path, text in blocks:
        block = checks.address_range(text)
        if block is None or any(_contains(whole, block) for whole in inside):
            continue
        yield Problem(
            path,
            f"{text} isn't inside the network's address space "
            f"({', '.join(str(item) for item in inside)}); choose a block inside it",
        )


def _contains(whole: checks.Range, part: checks.Range) -> bool:
    # Two blocks are disjoint or one holds the other: the larger one that overlaps holds it.
    return (
        whole.version == part.version
        and whole.prefixlen <= part.prefixlen
        and whole.overlaps(part)
    )


def subnets_of(world: World, network: Made) -> Iterator[tuple[str, str, list[str]]]:
    """The id, name and blocks of each subnet of a network, declared inline or by itself."""
    asked = Ask(VIRTUAL_NETWORK, network.inputs, {})
    for path, _ in asked.items("subnets"):
        name = asked.text(f"{path}.name")
        if name:
            yield f"{network.id}/subnets/{name}", name, [text for _, text in prefixes(asked, path)]
    for made in world.all(SUBNET):
        if arm.is_below(made.id, network.id):
            subnet = Ask(SUBNET, made.inputs, {})
            name = made.id.rpartition("/")[2]
            yield made.id, name, [text for _, text in prefixes(subnet)]


def _subnet_conflicts(ask: Ask) -> Iterator[Problem]:
    world, id = ask.world, ask.id
    if world is None or id is None:
        return
    network = known.by_id(world, id.rsplit("/", 2)[0])
    if network is None:
        return
    blocks = prefixes(ask)
    space = Ask(VIRTUAL_NETWORK, network.inputs, {}).texts("addressSpace.addressPrefixes")
    inside = [item for _, text in space if (item := checks.address_range(text))]
    if inside:
        yield from _outside(blocks, inside)
    for other, name, taken in subnets_of(world, network):
        if arm.same(other, id):
            continue
        for path, text in blocks:
            block = checks.address_range(text)
            for theirs in taken:
                used = checks.address_range(theirs)
                if block and used and block.version == used.version and block.overlaps(used):
                    yield Problem(
                        path,
                        f"{text} overlaps {theirs} of the subnet {name!r}; choose a free block",
                    )


def _peering_problems(ask: Ask) -> Iterator[Problem]:
    yield from checks.resource_id(
        "remoteVirtualNetwork.id",
        ask.text("remoteVirtualNetwork.id"),
        "Microsoft.Network/virtualNetworks",
    )
    if ask.flag("useRemoteGateways") and ask.flag("allowGatewayTransit"):
        yield Problem(
            "useRemoteGateways", "can't be set together with allowGatewayTransit; set one of them"
        )


def _peering_conflicts(ask: Ask) -> Iterator[Problem]:
    remote = ask.text("remoteVirtualNetwork.id")
    if ask.world is None or ask.id is None or remote is None:
        return
    own = known.by_id(ask.world, ask.id.rsplit("/", 2)[0])
    other = known.by_id(ask.world, remote)
    if own is None or other is None:
        return
    if arm.same(own.id, other.id):
        yield Problem("remoteVirtualNetwork.id", "is the network itself; name another network")
        return
    path = "addressSpace.addressPrefixes"
    for _, mine in Ask(VIRTUAL_NETWORK, own.inputs, {}).texts(path):
        for _, theirs in Ask(VIRTUAL_NETWORK, other.inputs, {}).texts(path):
            one, two = checks.address_range(mine), checks.address_range(theirs)
            if one and two and one.version == two.version and one.overlaps(two):
                yield Problem(
                    "remoteVirtualNetwork.id",
                    f"its block {theirs} overlaps {mine} of "
                    "this network; peered networks need disjoint blocks",
                )


def _network_obstacles(ask: Ask) -> Iterator[Problem]:
    world, id = ask.world, ask.id
    if world is None or id is None:
        return
    for made in known.azure(world):
        if arm.is_below(made.id, id):
            continue
        for path, reference in known.references(made.inputs):
            if arm.is_below(reference, f"{id}/subnets"):
                yield Problem(
                    "",
                    f"its subnet {reference.rpartition('/')[2]!r} is in use by "
                    f"{made.id} ({path}); delete that first",
                )


def _network_outputs(ask: Ask) -> dict[str, Any]:
    id = ask.id or ""
    subnets = [
        {**item, "id": f"{id}/subnets/{item.get('name')}", "provisioningState": "Succeeded"}
        for _, item in ask.items("subnets")
        if isinstance(item, Mapping)
    ]
    return {
        "resourceGuid": invented.guid("guid", id),
        "subnets": subnets,
        "virtualNetworkPeerings": [],
    }


def _peering_outputs(ask: Ask) -> dict[str, Any]:
    return {
        "peeringState": "Initiated",
        "peeringSyncLevel": "FullyInSync",
        "resourceGuid": invented.guid("guid", ask.id or ""),
    }


KINDS: Final = (
    Kind(
        VIRTUAL_NETWORK,
        "Microsoft.Network/virtualNetworks/{virtualNetworkName}",
        name=naming.VIRTUAL_NETWORK,
        problems=_network_problems,
        obstacles=_network_obstacles,
        outputs=_network_outputs,
    ),
    Kind(
        SUBNET,
        "Microsoft.Network/virtualNetworks/{virtualNetworkName}/subnets/{subnetName}",
        name=naming.NETWORK,
        inline=("subnets", "name"),
        is_held_by_references=True,
        problems=_subnet_problems,
        conflicts=_subnet_conflicts,
    ),
    Kind(
        "azure-native:network:VirtualNetworkPeering",
        "Microsoft.Network/virtualNetworks/{virtualNetworkName}/virtualNetworkPeerings/"
        "{virtualNetworkPeeringName}",
        name=naming.NETWORK,
        problems=_peering_problems,
        conflicts=_peering_conflicts,
        outputs=_peering_outputs,
    ),
)
