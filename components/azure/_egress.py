"""The one way out of a network: a firewall that lets named domains through."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import monitor, network

from falaj.components.azure._component import titled
from falaj.components.specification.address_plan import CONTAINERS, FIREWALL, AddressPlan
from falaj.components.specification.placed import REGIONAL, Placed

#: Azure finds the firewall's subnet by this name:
#: https://learn.microsoft.com/azure/firewall/firewall-faq
SUBNET = "AzureFirewallSubnet"
#: Data for which traffic is searched for intrusions, which only the firewall's tier Premium does.
_INSPECTED = ("restricted",)

_MONITOR = "AzureMonitor"
#: Service tags that the machines of Container Apps call: for images of the platform, tokens of
#: identities, and logs. They have no form for one region:
#: https://learn.microsoft.com/azure/container-apps/firewall-integration
CONTAINER_TAGS = (
    "MicrosoftContainerRegistry",
    "AzureFrontDoor.FirstParty",
    "AzureActiveDirectory",
    _MONITOR,
)
#: The same by their hosts, as a firewall lets them through. Registry and vault have private
#: endpoints, and with these a registry's layers don't come from `*.blob.core.windows.net`:
#: https://learn.microsoft.com/azure/container-apps/use-azure-firewall
CONTAINER_HOSTS = (
    "mcr.microsoft.com",
    "*.data.mcr.microsoft.com",
    "packages.aks.azure.com",
    "acs-mirror.azureedge.net",
    "login.microsoft.com",
    "*.login.microsoft.com",
    "login.microsoftonline.com",
    "*.login.microsoftonline.com",
    "*.identity.azure.net",
)


@dataclass(frozen=True)
class Outlet:
    """What a firewall needs of its network."""

    group: pulumi.Input[str]
    vnet: network.VirtualNetwork
    plan: AddressPlan
    zones: Sequence[str]
    domains: Sequence[str]
    tags: Mapping[str, str]


@dataclass(frozen=True)
class WayOut:
    """What leads out of a network."""

    routes: network.RouteTable
    firewall: network.AzureFirewall


def way_out(name: str, placed: Placed, outlet: Outlet, opts: pulumi.ResourceOptions) -> WayOut:
    """Make a firewall and the routes that lead everything to it.

    The firewall needs a public address for what it sends on: the only one in the network. It
    answers nothing that comes from outside: it has no rule for it.
    """
    subnet = network.Subnet(
        f"{name}-firewall-subnet",
        subnet_name=SUBNET,
        resource_group_name=outlet.group,
        virtual_network_name=outlet.vnet.name,
        address_prefix=str(outlet.plan.subnet(REGIONAL, FIREWALL)),
        opts=opts,
    )
    tier = "Premium" if placed.data_class in _INSPECTED else "Standard"
    policy = _policy(name, placed, outlet, tier, opts)
    zones = [zone for zone in outlet.zones if zone != REGIONAL]
    address = network.PublicIPAddress(
        f"{name}-firewall-address",
        public_ip_address_name=titled(placed, name, "firewall"),
        resource_group_name=outlet.group,
        location=placed.region,
        sku=network.PublicIPAddressSkuArgs(
            name=network.PublicIPAddressSkuName.STANDARD,
            tier=network.PublicIPAddressSkuTier.REGIONAL,
        ),
        public_ip_allocation_method=network.IPAllocationMethod.STATIC,
        public_ip_address_version=network.IPVersion.I_PV4,
        zones=zones or None,
        tags=dict(outlet.tags),
        opts=opts,
    )
    firewall = network.AzureFirewall(
        f"{name}-firewall",
        azure_firewall_name=titled(placed, name, "firewall"),
        resource_group_name=outlet.group,
        location=placed.region,
        sku=network.AzureFirewallSkuArgs(
            name=network.AzureFirewallSkuName.AZF_W_V_NET, tier=network.AzureFirewallSkuTier(tier)
        ),
        firewall_policy=network.SubResourceArgs(id=policy.id),
        ip_configurations=[
            network.AzureFirewallIPConfigurationArgs(
                name="outlet",
                subnet=network.SubResourceArgs(id=subnet.id),
                public_ip_address=network.SubResourceArgs(id=address.id),
            )
        ],
        zones=zones or None,
        tags=dict(outlet.tags),
        opts=opts,
    )
    routes = network.RouteTable(
        f"{name}-routes",
        route_table_name=titled(placed, name, "outlet"),
        resource_group_name=outlet.group,
        location=placed.region,
        disable_bgp_route_propagation=True,
        routes=[
            network.RouteArgs(
                name="through-the-firewall",
                address_prefix="0.0.0.0/0",
                next_hop_type=network.RouteNextHopType.VIRTUAL_APPLIANCE,
                next_hop_ip_address=firewall.ip_configurations.apply(_private_address),
            )
        ],
        tags=dict(outlet.tags),
        opts=opts,
    )
    return WayOut(routes, firewall)


def keep_records(
    name: str, way: WayOut, account: pulumi.Input[str], opts: pulumi.ResourceOptions
) -> None:
    """What the firewall let through or refused is kept in a storage account.

    Azure Monitor writes there as a trusted service:
    https://learn.microsoft.com/azure/azure-monitor/essentials/diagnostic-settings
    """
    monitor.DiagnosticSetting(
        f"{name}-firewall-records",
        name="records",
        resource_uri=way.firewall.id,
        storage_account_id=account,
        logs=[monitor.DiagnosticsLogSettingsArgs(category_group="allLogs", enabled=True)],
        opts=opts,
    )


def _private_address(
    found: Sequence[network.outputs.AzureFirewallIPConfigurationResponse] | None,
) -> str:
    return found[0].private_ip_address if found else ""


def _policy(
    name: str, placed: Placed, outlet: Outlet, tier: str, opts: pulumi.ResourceOptions
) -> network.FirewallPolicy:
    inspected = tier == "Premium"
    containers = outlet.plan.subnet(REGIONAL, CONTAINERS)
    policy = network.FirewallPolicy(
        f"{name}-firewall-policy",
        firewall_policy_name=titled(placed, name, "firewall"),
        resource_group_name=outlet.group,
        location=placed.region,
        sku=network.FirewallPolicySkuArgs(tier=network.FirewallPolicySkuTier(tier)),
        threat_intel_mode=network.AzureFirewallThreatIntelMode.DENY,
        intrusion_detection=network.FirewallPolicyIntrusionDetectionArgs(
            mode=network.FirewallPolicyIntrusionDetectionStateType.DENY
        )
        if inspected
        else None,
        tags=dict(outlet.tags),
        opts=opts,
    )
    network.FirewallPolicyRuleCollectionGroup(
        f"{name}-firewall-rules",
        rule_collection_group_name="outlet",
        firewall_policy_name=policy.name,
        resource_group_name=outlet.group,
        priority=100,
        rule_collections=[
            network.FirewallPolicyFilterRuleCollectionArgs(
                rule_collection_type="FirewallPolicyFilterRuleCollection",
                name="domains",
                priority=100,
                action=network.FirewallPolicyFilterRuleCollectionActionArgs(
                    type=network.FirewallPolicyFilterRuleCollectionActionType.ALLOW
                ),
                rules=[
                    _https("https", outlet.plan.network, map(fqdn, outlet.domains)),
                    _https("container-apps", containers, CONTAINER_HOSTS),
                ],
            ),
            network.FirewallPolicyFilterRuleCollectionArgs(
                rule_collection_type="FirewallPolicyFilterRuleCollection",
                name="logs",
                priority=200,
                action=network.FirewallPolicyFilterRuleCollectionActionArgs(
                    type=network.FirewallPolicyFilterRuleCollectionActionType.ALLOW
                ),
                rules=[
                    network.NetworkRuleArgs(
                        rule_type="NetworkRule",
                        name="container-apps",
                        source_addresses=[str(containers)],
                        destination_addresses=[_MONITOR],
                        destination_ports=["443"],
                        ip_protocols=[network.FirewallPolicyRuleNetworkProtocol.TCP],
                    )
                ],
            ),
        ],
        opts=opts,
    )
    return policy


def _https(
    name: str, source: ipaddress.IPv4Network, hosts: Iterable[str]
) -> network.ApplicationRuleArgs:
    return network.ApplicationRuleArgs(
        rule_type="ApplicationRule",
        name=name,
        source_addresses=[str(source)],
        target_fqdns=list(hosts),
        protocols=[
            network.FirewallPolicyRuleApplicationProtocolArgs(
                protocol_type=network.FirewallPolicyRuleApplicationProtocolType.HTTPS, port=443
            )
        ],
    )


def fqdn(domain: str) -> str:
    """A domain as the firewall writes it: ``.example.ae`` is ``*.example.ae``."""
    return f"*{domain}" if domain.startswith(".") else domain
