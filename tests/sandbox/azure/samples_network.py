"""A plausible network: groups, subnets, rules, zones and a firewall."""

from __future__ import annotations

from tests.sandbox.azure.samples import REGION, Samples


def network(samples: Samples) -> None:
    add = samples.add
    add("rg", "resources:ResourceGroup", resourceGroupName="rg", location=REGION)
    group = {"resourceGroupName": "rg"}
    add("nsg", "network:NetworkSecurityGroup", **group, networkSecurityGroupName="nsg")
    add(
        "rule",
        "network:SecurityRule",
        **group,
        networkSecurityGroupName="nsg",
        securityRuleName="https",
        priority=100,
        direction="Inbound",
        access="Allow",
        protocol="Tcp",
        sourceAddressPrefix="VirtualNetwork",
        sourcePortRange="*",
        destinationAddressPrefix="10.0.0.0/24",
        destinationPortRange="443",
    )
    add("routes", "network:RouteTable", **group, routeTableName="routes")
    add(
        "route",
        "network:Route",
        **group,
        routeTableName="routes",
        routeName="out",
        addressPrefix="0.0.0.0/0",
        nextHopType="VirtualAppliance",
        nextHopIpAddress="10.0.255.4",
    )
    add(
        "vnet",
        "network:VirtualNetwork",
        **group,
        virtualNetworkName="vnet",
        addressSpace={"addressPrefixes": ["10.0.0.0/16"]},
    )
    add(
        "vnet2",
        "network:VirtualNetwork",
        **group,
        virtualNetworkName="vnet2",
        addressSpace={"addressPrefixes": ["10.1.0.0/16"]},
        subnets=[{"name": "inline", "addressPrefix": "10.1.0.0/24"}],
    )
    blocks = {
        "nodes": ("10.0.0.0/22", None),
        "control": ("10.0.4.0/28", "Microsoft.ContainerService/managedClusters"),
        "netapp": ("10.0.5.0/26", "Microsoft.Netapp/volumes"),
        "apps": ("10.0.6.0/26", "Microsoft.App/environments"),
        "lustre": ("10.0.7.0/24", None),
        "links": ("10.0.8.0/24", None),
        "gateway": ("10.0.9.0/24", None),
        "AzureFirewallSubnet": ("10.0.255.0/26", None),
    }
    for name, (block, service) in blocks.items():
        delegations = [{"name": "to", "serviceName": service}] if service else []
        add(
            name,
            "network:Subnet",
            **group,
            virtualNetworkName="vnet",
            subnetName=name,
            addressPrefix=block,
            delegations=delegations,
        )
    add(
        "peering",
        "network:VirtualNetworkPeering",
        **group,
        virtualNetworkName="vnet",
        virtualNetworkPeeringName="to-vnet2",
        remoteVirtualNetwork={"id": samples.id("vnet2")},
    )
    add("asg", "network:ApplicationSecurityGroup", **group, applicationSecurityGroupName="asg")
    add(
        "pip",
        "network:PublicIPAddress",
        **group,
        publicIpAddressName="pip",
        sku={"name": "Standard"},
        publicIPAllocationMethod="Static",
    )
    add("nat", "network:NatGateway", **group, natGatewayName="nat", sku={"name": "Standard"})
    add("ipgroup", "network:IpGroup", **group, ipGroupsName="ips", ipAddresses=["10.0.0.0/16"])
    add(
        "zone",
        "privatedns:PrivateZone",
        **group,
        privateZoneName="privatelink.vaultcore.azure.net",
    )
    add(
        "link",
        "privatedns:VirtualNetworkLink",
        **group,
        privateZoneName="privatelink.vaultcore.azure.net",
        virtualNetworkLinkName="vnet",
        virtualNetwork={"id": samples.id("vnet")},
        registrationEnabled=False,
    )
    add(
        "record",
        "privatedns:PrivateRecordSet",
        **group,
        privateZoneName="privatelink.vaultcore.azure.net",
        recordType="A",
        relativeRecordSetName="x",
        ttl=300,
        aRecords=[{"ipv4Address": "10.0.8.9"}],
    )
    add(
        "policy",
        "network:FirewallPolicy",
        **group,
        firewallPolicyName="policy",
        sku={"tier": "Standard"},
    )
    add(
        "collection",
        "network:FirewallPolicyRuleCollectionGroup",
        **group,
        firewallPolicyName="policy",
        ruleCollectionGroupName="allowed",
        priority=200,
        ruleCollections=[
            {
                "ruleCollectionType": "FirewallPolicyFilterRuleCollection",
                "name": "hosts",
                "priority": 100,
                "action": {"type": "Allow"},
                "rules": [
                    {
                        "ruleType": "ApplicationRule",
                        "name": "mcr",
                        "sourceAddresses": ["10.0.0.0/22"],
                        "protocols": [{"protocolType": "Https", "port": 443}],
                        "targetFqdns": ["mcr.microsoft.com"],
                    }
                ],
            }
        ],
    )
    add(
        "firewall",
        "network:AzureFirewall",
        **group,
        azureFirewallName="firewall",
        sku={"name": "AZFW_VNet", "tier": "Standard"},
        firewallPolicy={"id": samples.id("policy")},
        ipConfigurations=[
            {
                "name": "main",
                "subnet": {"id": samples.id("AzureFirewallSubnet")},
                "publicIPAddress": {"id": samples.id("pip")},
            }
        ],
    )
