"""Microsoft.Network: virtual networks, their subnets and peerings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, checks, existing, generated, links, naming
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Made, Problem, World
from falaj.sandbox.clouds.rules import absent, all_of, is_on, refused

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


def prefixes(inputs: Inputs, path: str = "") -> list[tuple[str, str]]:
    """The path and text of each address block of a subnet."""
    base = f"{path}." if path else ""
    return [*inputs.strings(f"{base}addressPrefix"), *inputs.strings(f"{base}addressPrefixes")]


def _network_problems(inputs: Inputs) -> Iterator[Problem]:
    blocks = inputs.strings("addressSpace.addressPrefixes")
    for path, text in blocks:
        yield from checks.cidr(path, text)
    if (
        not blocks
        and inputs.is_absent("addressSpace.addressPrefixes[0]")
        and inputs.is_absent("addressSpace.ipamPoolPrefixAllocations")
    ):
        yield Problem(
            "addressSpace.addressPrefixes",
            "is missing: a virtual network needs at least one block, such as 10.0.0.0/16",
        )
    yield from _overlaps(blocks)
    inside = [item for _, text in blocks if (item := checks.address_range(text))]
    subnets = [(path, item) for path, item in inputs.items("subnets") if isinstance(item, Mapping)]
    for path, _ in subnets:
        yield from _subnet_rules(inputs, path)
        if inside:
            yield from _outside(prefixes(inputs, path), inside)
    yield from _overlaps([pair for path, _ in subnets for pair in prefixes(inputs, path)])


def _subnet_problems(inputs: Inputs) -> Iterator[Problem]:
    yield from _subnet_rules(inputs, "")


def _subnet_rules(inputs: Inputs, path: str) -> Iterator[Problem]:
    base = f"{path}." if path else ""
    name = inputs.optional_string(f"{base}name") if path else inputs.optional_string("subnetName")
    if path and name:
        yield from naming.NETWORK.check(f"{base}name", name)
    blocks = prefixes(inputs, path)
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
    if name in _NO_SECURITY_GROUP and inputs.is_given(f"{base}networkSecurityGroup"):
        yield Problem(
            f"{base}networkSecurityGroup",
            f"{name} can't have a network security group; leave it out",
        )
    for policy in ("privateLinkServiceNetworkPolicies",):
        yield from checks.one_of(
            f"{base}{policy}", inputs.optional_string(f"{base}{policy}"), _POLICIES
        )
    for where, item in inputs.items(f"{base}delegations"):
        if isinstance(item, Mapping) and inputs.is_absent(f"{where}.serviceName"):
            yield Problem(
                f"{where}.serviceName",
                "is missing: name the service, such as Microsoft.Netapp/volumes",
            )
    delegations = inputs.items(f"{base}delegations")
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
    asked = Inputs(network.inputs)
    for path, _ in asked.items("subnets"):
        name = asked.optional_string(f"{path}.name")
        if name:
            yield f"{network.id}/subnets/{name}", name, [text for _, text in prefixes(asked, path)]
    for made in world.all(SUBNET):
        if arm.is_below(made.id, network.id):
            subnet = Inputs(made.inputs)
            name = made.id.rpartition("/")[2]
            yield made.id, name, [text for _, text in prefixes(subnet)]


def _subnet_conflicts(resource: Resource) -> Iterator[Problem]:
    world, id = resource.world, resource.id
    network = existing.by_id(world, id.rsplit("/", 2)[0])
    if network is None:
        return
    blocks = prefixes(resource)
    space = Inputs(network.inputs).strings("addressSpace.addressPrefixes")
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


def _peering_conflicts(resource: Resource) -> Iterator[Problem]:
    remote = resource.optional_string("remoteVirtualNetwork.id")
    if remote is None:
        return
    own = existing.by_id(resource.world, resource.id.rsplit("/", 2)[0])
    other = existing.by_id(resource.world, remote)
    if own is None or other is None:
        return
    if arm.same(own.id, other.id):
        yield Problem("remoteVirtualNetwork.id", "is the network itself; name another network")
        return
    path = "addressSpace.addressPrefixes"
    for _, mine in Inputs(own.inputs).strings(path):
        for _, theirs in Inputs(other.inputs).strings(path):
            one, two = checks.address_range(mine), checks.address_range(theirs)
            if one and two and one.version == two.version and one.overlaps(two):
                yield Problem(
                    "remoteVirtualNetwork.id",
                    f"its block {theirs} overlaps {mine} of "
                    "this network; peered networks need disjoint blocks",
                )


def _network_obstacles(resource: Resource) -> Iterator[Problem]:
    world, id = resource.world, resource.id
    for made in existing.azure(world):
        if arm.is_below(made.id, id):
            continue
        for path, reference in existing.references(made.inputs):
            if arm.is_below(reference, f"{id}/subnets"):
                yield Problem(
                    "",
                    f"its subnet {reference.rpartition('/')[2]!r} is in use by "
                    f"{made.id} ({path}); delete that first",
                )


def _network_outputs(resource: Resource) -> dict[str, Any]:
    id = resource.id
    subnets = [
        {**item, "id": f"{id}/subnets/{item.get('name')}", "provisioningState": "Succeeded"}
        for _, item in resource.items("subnets")
        if isinstance(item, Mapping)
    ]
    return {
        "resourceGuid": generated.guid("guid", id),
        "subnets": subnets,
        "virtualNetworkPeerings": [],
    }


def _peering_outputs(resource: Resource) -> dict[str, Any]:
    return {
        "peeringState": "Initiated",
        "peeringSyncLevel": "FullyInSync",
        "resourceGuid": generated.guid("guid", resource.id),
    }


KINDS: Final = (
    AzureKind(
        VIRTUAL_NETWORK,
        "Microsoft.Network/virtualNetworks/{virtualNetworkName}",
        name=naming.VIRTUAL_NETWORK,
        rules=(_network_problems,),
        delete_blockers=(_network_obstacles,),
        computed=_network_outputs,
    ),
    AzureKind(
        SUBNET,
        "Microsoft.Network/virtualNetworks/{virtualNetworkName}/subnets/{subnetName}",
        name=naming.NETWORK,
        inline=("subnets", "name"),
        is_held_by_references=True,
        rules=(
            refused(
                "addressPrefix",
                "is missing: a subnet needs a block of its network, such as 10.0.1.0/24",
                absent("addressPrefix", "addressPrefixes", "ipamPoolPrefixAllocations"),
            ),
            _subnet_problems,
        ),
        crosschecks=(_subnet_conflicts,),
    ),
    AzureKind(
        "azure-native:network:VirtualNetworkPeering",
        "Microsoft.Network/virtualNetworks/{virtualNetworkName}/virtualNetworkPeerings/"
        "{virtualNetworkPeeringName}",
        name=naming.NETWORK,
        rules=(
            refused(
                "useRemoteGateways",
                "can't be set together with allowGatewayTransit; set one of them",
                all_of(is_on("useRemoteGateways"), is_on("allowGatewayTransit")),
            ),
        ),
        references=(links.to("remoteVirtualNetwork.id", "Microsoft.Network/virtualNetworks"),),
        crosschecks=(_peering_conflicts,),
        computed=_peering_outputs,
    ),
)  # fmt: skip
