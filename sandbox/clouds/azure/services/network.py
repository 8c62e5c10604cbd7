"""Microsoft.Network: networks, subnets, peerings, security groups, routes and flow logs."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, kinds, naming, relations, resources
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.resources import location
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import (
    absent,
    all_of,
    between,
    is_on,
    one_of,
    refused,
    required,
    texts,
)
from falaj.sandbox.clouds.model import Made, Problem, World
from falaj.wire.documents import is_mapping

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
    subnets = [(path, item) for path, item in inputs.items("subnets") if is_mapping(item)]
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
        yield from kinds.NETWORK.check(f"{base}name", name)
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
        if is_mapping(item) and inputs.is_absent(f"{where}.serviceName"):
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
        if naming.is_below(made.id, network.id):
            subnet = Inputs(made.inputs)
            name = made.id.rpartition("/")[2]
            yield made.id, name, [text for _, text in prefixes(subnet)]


def _subnet_conflicts(resource: Resource) -> Iterator[Problem]:
    world, id = resource.world, resource.id
    network = resources.by_id(world, id.rsplit("/", 2)[0])
    if network is None:
        return
    blocks = prefixes(resource)
    space = Inputs(network.inputs).strings("addressSpace.addressPrefixes")
    inside = [item for _, text in space if (item := checks.address_range(text))]
    if inside:
        yield from _outside(blocks, inside)
    for other, name, taken in subnets_of(world, network):
        if naming.same(other, id):
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
    own = resources.by_id(resource.world, resource.id.rsplit("/", 2)[0])
    other = resources.by_id(resource.world, remote)
    if own is None or other is None:
        return
    if naming.same(own.id, other.id):
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


def _network_blockers(resource: Resource) -> Iterator[Problem]:
    world, id = resource.world, resource.id
    for made in resources.azure(world):
        if naming.is_below(made.id, id):
            continue
        for path, reference in resources.references(made.inputs):
            if naming.is_below(reference, f"{id}/subnets"):
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
        if is_mapping(item)
    ]
    return {
        "resourceGuid": naming.guid("guid", id),
        "subnets": subnets,
        "virtualNetworkPeerings": [],
    }


def _peering_outputs(resource: Resource) -> dict[str, Any]:
    return {
        "peeringState": "Initiated",
        "peeringSyncLevel": "FullyInSync",
        "resourceGuid": naming.guid("guid", resource.id),
    }


RULE: Final = "azure-native:network:SecurityRule"

# Rules that Azure adds to each group, and that can't be removed.
# Source: virtual-network/network-security-groups-overview (default security rules).
_DEFAULTS: Final = (
    ("AllowVnetInBound", 65000, "Inbound", "Allow", "VirtualNetwork", "VirtualNetwork"),
    ("AllowAzureLoadBalancerInBound", 65001, "Inbound", "Allow", "AzureLoadBalancer", "*"),
    ("DenyAllInBound", 65500, "Inbound", "Deny", "*", "*"),
    ("AllowVnetOutBound", 65000, "Outbound", "Allow", "VirtualNetwork", "VirtualNetwork"),
    ("AllowInternetOutBound", 65001, "Outbound", "Allow", "*", "Internet"),
    ("DenyAllOutBound", 65500, "Outbound", "Deny", "*", "*"),
)
_TAG: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:\.[A-Za-z0-9]+)?")
_PORTS: Final = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
# Source: virtual-network/virtual-networks-udr-overview (next hop types).
_APPLIANCE: Final = "VirtualAppliance"


def ports(path: str, text: str) -> Iterator[Problem]:
    """A problem when the text isn't ``*``, a port, or a range of ports."""
    if text == "*":
        return
    matched = _PORTS.fullmatch(text)
    low = int(matched[1]) if matched else -1
    high = int(matched[2]) if matched and matched[2] else low
    if matched is None or high > 65535:
        yield Problem(path, f"{text!r} isn't a port; allowed are *, 443, 8000-8100 (to 65535)")
    elif low > high:
        yield Problem(path, f"{text!r} runs backwards; put the lower port first")


def _address(path: str, text: str) -> Iterator[Problem]:
    # An address prefix may be a block, one address, * or a service tag.
    if text == "*" or _TAG.fullmatch(text):
        return
    try:
        ipaddress.ip_address(text)
    except ValueError:
        if "-" in text or "/" not in text:
            yield Problem(
                path,
                f"{text!r} is no address; allowed are *, a block such as 10.0.0.0/16, an address, "
                "or a service tag such as VirtualNetwork",
            )
        else:
            yield from checks.cidr(path, text)


def rule(inputs: Inputs, path: str) -> Iterator[Problem]:
    """Problems of one rule, standing alone or in its group's list."""
    base = f"{path}." if path else ""
    number = inputs.number(f"{base}priority")
    if number is not None and (not 100 <= number <= 4096 or number != int(number)):
        yield Problem(f"{base}priority", f"{number:g} isn't allowed; allowed is 100 to 4096")
    if path:
        yield from required(f"{base}priority", "give each rule its own, 100 to 4096")(inputs)
        name = inputs.optional_string(f"{base}name")
        if name:
            yield from kinds.NETWORK.check(f"{base}name", name)
    for side in ("source", "destination"):
        for where, text in inputs.strings(f"{base}{side}PortRange"):
            yield from ports(where, text)
        for where, text in inputs.strings(f"{base}{side}PortRanges"):
            yield from ports(where, text)
        for where, text in inputs.strings(f"{base}{side}AddressPrefix"):
            yield from _address(where, text)
        many = inputs.strings(f"{base}{side}AddressPrefixes")
        for where, text in many:
            if text == "*" or _TAG.fullmatch(text):
                yield Problem(
                    where,
                    f"{text!r} can't stand in a list: a list takes blocks only; "
                    f"use {side}AddressPrefix",
                )
            else:
                yield from _address(where, text)
        yield from _one_way(inputs, base, side)


def _one_way(inputs: Inputs, base: str, side: str) -> Iterator[Problem]:
    kinds = ("AddressPrefix", "AddressPrefixes", "ApplicationSecurityGroups")
    given = [kind for kind in kinds if _is_filled(inputs, f"{base}{side}{kind}")]
    if len(given) > 1:
        yield Problem(
            f"{base}{side}{given[1]}", f"is given together with {side}{given[0]}; give one of them"
        )
    if not given:
        yield Problem(
            f"{base}{side}AddressPrefix",
            "is missing: say whom the rule is for, such as a block or VirtualNetwork",
        )
    if not any(_is_filled(inputs, f"{base}{side}Port{kind}") for kind in ("Range", "Ranges")):
        yield Problem(f"{base}{side}PortRange", "is missing: name a port, a range or *")


def _is_filled(inputs: Inputs, path: str) -> bool:
    value = inputs.at(path)
    return value is not None and value not in ("", [])


def _rule_problems(inputs: Inputs) -> Iterator[Problem]:
    yield from rule(inputs, "")


def _group_problems(inputs: Inputs) -> Iterator[Problem]:
    taken: dict[tuple[str, float], str] = {}
    for path, item in inputs.items("securityRules"):
        if not is_mapping(item):
            continue
        yield from rule(inputs, path)
        direction, number = (
            inputs.optional_string(f"{path}.direction"),
            inputs.number(f"{path}.priority"),
        )
        if direction is None or number is None:
            continue
        if (direction.lower(), number) in taken:
            yield Problem(
                f"{path}.priority",
                f"{number:g} is taken by "
                f"{taken[direction.lower(), number]} in the same direction; choose another",
            )
        taken.setdefault((direction.lower(), number), path)


def _rule_conflicts(resource: Resource) -> Iterator[Problem]:
    world, id = resource.world, resource.id
    number, direction = resource.number("priority"), resource.optional_string("direction")
    if number is None or direction is None:
        return
    group = id.rsplit("/", 2)[0]
    for made in world.all(RULE):
        if naming.same(made.id, id) or not naming.is_below(made.id, group):
            continue
        other = Inputs(made.inputs)
        if (other.number("priority"), (other.optional_string("direction") or "").lower()) == (
            number,
            direction.lower(),
        ):
            yield Problem(
                "priority",
                f"{number:g} is taken by {made.id.rpartition('/')[2]!r} in "
                "the same direction; choose another",
            )
    parent = resources.by_id(world, group)
    declared = Inputs(parent.inputs) if parent else None
    for path, _ in declared.items("securityRules") if declared else ():
        if declared is None or naming.same(
            f"{group}/securityRules/{declared.optional_string(f'{path}.name')}", id
        ):
            continue
        if (
            declared.number(f"{path}.priority"),
            declared.optional_string(f"{path}.direction"),
        ) == (
            number,
            direction,
        ):
            yield Problem(
                "priority",
                f"{number:g} is taken by a rule of the group itself in the "
                "same direction; choose another",
            )


def route(inputs: Inputs, path: str) -> Iterator[Problem]:
    """Problems of one route, standing alone or in its table's list."""
    base = f"{path}." if path else ""
    prefix = inputs.optional_string(f"{base}addressPrefix")
    if prefix and not _TAG.fullmatch(prefix):
        yield from checks.cidr(f"{base}addressPrefix", prefix)
    hop, address = (
        inputs.optional_string(f"{base}nextHopType"),
        inputs.at(f"{base}nextHopIpAddress"),
    )
    if hop == _APPLIANCE and address is None:
        yield Problem(
            f"{base}nextHopIpAddress", "is missing: a route to an appliance needs its address"
        )
    if hop not in (None, _APPLIANCE) and address is not None:
        yield Problem(
            f"{base}nextHopIpAddress", f"goes with nextHopType {_APPLIANCE} only; given is {hop}"
        )
    if isinstance(address, str):
        try:
            ipaddress.ip_address(address)
        except ValueError:
            yield Problem(f"{base}nextHopIpAddress", f"{address!r} isn't an IP address")


def _route_problems(inputs: Inputs) -> Iterator[Problem]:
    yield from route(inputs, "")


def _table_problems(inputs: Inputs) -> Iterator[Problem]:
    for path, item in inputs.items("routes"):
        if is_mapping(item):
            yield from route(inputs, path)


def _group_outputs(resource: Resource) -> dict[str, Any]:
    id = resource.id
    defaults = [
        {
            "id": f"{id}/defaultSecurityRules/{name}",
            "name": name,
            "priority": priority,
            "direction": direction,
            "access": access,
            "protocol": "*",
            "sourceAddressPrefix": source,
            "sourcePortRange": "*",
            "destinationAddressPrefix": target,
            "destinationPortRange": "*",
            "provisioningState": "Succeeded",
        }
        for name, priority, direction, access, source, target in _DEFAULTS
    ]
    return {"defaultSecurityRules": defaults, "resourceGuid": naming.guid("guid", id)}


WATCHER: Final = "azure-native:network:NetworkWatcher"
FLOW_LOG: Final = "azure-native:network:FlowLog"
# Source: network-watcher/vnet-flow-logs-overview. Flow logs of security groups can't be made since
# 30 June 2025 (network-watcher/nsg-flow-logs-overview).
_TARGETS: Final = (
    "Microsoft.Network/virtualNetworks",
    "Microsoft.Network/virtualNetworks/subnets",
    "Microsoft.Network/networkInterfaces",
)


def _flow_log_problems(inputs: Inputs) -> Iterator[Problem]:
    target = inputs.optional_string("targetResourceId")
    reference = naming.parse(target) if target else None
    if reference and reference.type.lower() == "microsoft.network/networksecuritygroups":
        yield Problem(
            "targetResourceId",
            "flow logs of security groups can't be made since 30 "
            "June 2025; log the virtual network",
        )
    else:
        yield from checks.resource_id("targetResourceId", target, *_TARGETS)


def _flow_log_conflicts(resource: Resource) -> Iterator[Problem]:
    region = location(resource)
    target, storage = (
        resource.optional_string("targetResourceId"),
        resource.optional_string("storageId"),
    )
    top = "/".join((target or "").split("/")[:9])
    for path, id in (("targetResourceId", top), ("storageId", storage or "")):
        place = resources.region_of(resources.by_id(resource.world, id))
        if region and place and place != region:
            yield Problem(
                path, f"is in {place}, the flow log in {region}; they must be in the same region"
            )
    for made in resource.world.all(FLOW_LOG):
        other = made.inputs.get("targetResourceId")
        if (
            target
            and isinstance(other, str)
            and naming.same(other, target)
            and not naming.same(made.id, resource.id)
        ):
            yield Problem(
                "targetResourceId",
                f"is logged by {made.id.rpartition('/')[2]!r} already; change that one",
            )


def _watcher_conflicts(resource: Resource) -> Iterator[Problem]:
    region = location(resource)
    for made in resource.world.all(WATCHER):
        if (
            region
            and resources.region_of(made) == region
            and not naming.same(made.id, resource.id)
        ):
            yield Problem(
                "location",
                f"{region} has a network watcher already, and there can be "
                f"one in a region: {made.id}",
            )


def _flow_log_outputs(inputs: Inputs) -> dict[str, Any]:
    return {
        "targetResourceGuid": naming.guid("guid", inputs.optional_string("targetResourceId") or "")
    }


KINDS: Final = (
    AzureKind(
        VIRTUAL_NETWORK,
        "Microsoft.Network/virtualNetworks/{virtualNetworkName}",
        name=kinds.VIRTUAL_NETWORK,
        rules=(_network_problems,),
        delete_blockers=(_network_blockers,),
        computed=_network_outputs,
    ),
    AzureKind(
        SUBNET,
        "Microsoft.Network/virtualNetworks/{virtualNetworkName}/subnets/{subnetName}",
        name=kinds.NETWORK,
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
        name=kinds.NETWORK,
        rules=(
            refused(
                "useRemoteGateways",
                "can't be set together with allowGatewayTransit; set one of them",
                all_of(is_on("useRemoteGateways"), is_on("allowGatewayTransit")),
            ),
        ),
        references=(relations.to("remoteVirtualNetwork.id", "Microsoft.Network/virtualNetworks"),),
        crosschecks=(_peering_conflicts,),
        computed=_peering_outputs,
    ),
    AzureKind(
        "azure-native:network:NetworkSecurityGroup",
        "Microsoft.Network/networkSecurityGroups/{networkSecurityGroupName}",
        name=kinds.NETWORK,
        is_held_by_references=True,
        rules=(_group_problems,),
        computed=_group_outputs,
    ),
    AzureKind(
        RULE,
        "Microsoft.Network/networkSecurityGroups/{networkSecurityGroupName}/securityRules/"
        "{securityRuleName}",
        name=kinds.NETWORK,
        inline=("securityRules", "name"),
        rules=(_rule_problems,),
        crosschecks=(_rule_conflicts,),
    ),
    AzureKind(
        "azure-native:network:ApplicationSecurityGroup",
        "Microsoft.Network/applicationSecurityGroups/{applicationSecurityGroupName}",
        name=kinds.NETWORK,
        is_held_by_references=True,
    ),
    AzureKind(
        "azure-native:network:RouteTable",
        "Microsoft.Network/routeTables/{routeTableName}",
        name=kinds.NETWORK,
        is_held_by_references=True,
        rules=(_table_problems,),
    ),
    AzureKind(
        "azure-native:network:Route",
        "Microsoft.Network/routeTables/{routeTableName}/routes/{routeName}",
        name=kinds.NETWORK,
        inline=("routes", "name"),
        rules=(_route_problems,),
    ),
    AzureKind(
        WATCHER,
        "Microsoft.Network/networkWatchers/{networkWatcherName}",
        name=kinds.NETWORK,
        is_held_by_children=True,
        crosschecks=(_watcher_conflicts,),
    ),
    AzureKind(
        FLOW_LOG,
        "Microsoft.Network/networkWatchers/{networkWatcherName}/flowLogs/{flowLogName}",
        name=kinds.NETWORK,
        replaces=("targetResourceId",),
        rules=(
            between("retentionPolicy.days", 0, 365, "days"),
            # 0 is what the SDK's class says by itself: the first one.
            one_of("format.version", (0, 1, 2)),
            one_of(
                "flowAnalyticsConfiguration.networkWatcherFlowAnalyticsConfiguration.trafficAnalyticsInterval",
                (10, 60),
            ),
            texts(
                "flowAnalyticsConfiguration.networkWatcherFlowAnalyticsConfiguration.workspaceId",
                checks.guid,
            ),
            _flow_log_problems,
        ),
        references=(relations.to("storageId", "Microsoft.Storage/storageAccounts"),),
        crosschecks=(_flow_log_conflicts,),
        computed=_flow_log_outputs,
    ),
)  # fmt: skip
