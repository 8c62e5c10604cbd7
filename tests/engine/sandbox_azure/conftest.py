"""An estate in the sandbox's Azure: one plausible resource of each type that the table knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from engine.sandbox.inprocess import Sandbox

REGION = "uaenorth"
GUID = "11111111-2222-3333-4444-555555555555"
SCOPE = "/subscriptions/00000000-0000-0000-0000-000000000000"
READER = f"{SCOPE}/providers/Microsoft.Authorization/roleDefinitions/{GUID}"
PURGEABLE = {"enablePurgeProtection": True, "enableRbacAuthorization": True}


class Resource(NamedTuple):
    token: str
    inputs: dict[str, Any]
    id: str
    outputs: dict[str, Any]


class Estate:
    """What was made, by a short name; each resource sees those before it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.made: dict[str, Resource] = {}

    def add(self, key: str, token: str, **inputs: Any) -> Resource:
        whole = f"azure-native:{token}"
        id, outputs = self.sandbox.create(whole, key, inputs)
        self.made[key] = Resource(whole, inputs, id, outputs)
        return self.made[key]

    def id(self, key: str) -> str:
        return self.made[key].id

    def out(self, key: str, *path: str) -> Any:
        value: Any = self.made[key].outputs
        for step in path:
            value = value[step]
        return value


def network(estate: Estate) -> None:
    add = estate.add
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
        remoteVirtualNetwork={"id": estate.id("vnet2")},
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
        virtualNetwork={"id": estate.id("vnet")},
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
        firewallPolicy={"id": estate.id("policy")},
        ipConfigurations=[
            {
                "name": "main",
                "subnet": {"id": estate.id("AzureFirewallSubnet")},
                "publicIPAddress": {"id": estate.id("pip")},
            }
        ],
    )


def keys(estate: Estate) -> None:
    add, group = estate.add, {"resourceGroupName": "rg"}
    add(
        "vault",
        "keyvault:Vault",
        **group,
        vaultName="vault-1",
        properties={
            "tenantId": GUID,
            "sku": {"family": "A", "name": "premium"},
            **PURGEABLE,
        },
    )
    add(
        "key",
        "keyvault:Key",
        **group,
        vaultName="vault-1",
        keyName="disks",
        properties={"kty": "RSA-HSM", "keySize": 4096},
    )
    add(
        "secret",
        "keyvault:Secret",
        **group,
        vaultName="vault-1",
        secretName="s",
        properties={"value": "x"},
    )
    add(
        "hsm",
        "keyvault:ManagedHsm",
        **group,
        name="hsm-1",
        properties={"tenantId": GUID, "initialAdminObjectIds": [GUID]},
        sku={"family": "B", "name": "Standard_B1"},
    )
    add(
        "vault-connection",
        "keyvault:PrivateEndpointConnection",
        **group,
        vaultName="vault-1",
        privateEndpointConnectionName="c",
    )
    add(
        "hsm-connection",
        "keyvault:MHSMPrivateEndpointConnection",
        **group,
        name="hsm-1",
        privateEndpointConnectionName="c",
    )
    add(
        "hsm-key",
        "resources:Resource",
        **group,
        resourceProviderNamespace="Microsoft.KeyVault",
        parentResourcePath="managedHSMs/hsm-1",
        resourceType="keys",
        resourceName="disks",
        apiVersion="2024-11-01",
        properties={"kty": "RSA-HSM"},
    )
    add(
        "endpoint",
        "network:PrivateEndpoint",
        **group,
        privateEndpointName="vault",
        subnet={"id": estate.id("links")},
        privateLinkServiceConnections=[
            {
                "name": "vault",
                "privateLinkServiceId": estate.id("vault"),
                "groupIds": ["vault"],
            }
        ],
    )
    add(
        "zones",
        "network:PrivateDnsZoneGroup",
        **group,
        privateEndpointName="vault",
        privateDnsZoneGroupName="default",
        privateDnsZoneConfigs=[{"name": "vault", "privateDnsZoneId": estate.id("zone")}],
    )
    add("identity", "managedidentity:UserAssignedIdentity", **group, resourceName="identity")
    add(
        "federated",
        "managedidentity:FederatedIdentityCredential",
        **group,
        resourceName="identity",
        federatedIdentityCredentialResourceName="trainer",
        issuer="https://uaenorth.oic.prod-aks.azure.com/x/y/",
        subject="system:serviceaccount:training:trainer",
        audiences=["api://AzureADTokenExchange"],
    )
    add(
        "role",
        "authorization:RoleDefinition",
        scope=SCOPE,
        roleName="trainer",
        assignableScopes=[SCOPE],
        permissions=[{"actions": ["Microsoft.Storage/storageAccounts/read"]}],
    )
    add(
        "assignment",
        "authorization:RoleAssignment",
        scope=estate.id("vault"),
        principalId=estate.out("identity", "principalId"),
        principalType="ServicePrincipal",
        roleDefinitionId=READER,
    )
    add(
        "eligible",
        "authorization:PimRoleEligibilitySchedule",
        scope=estate.id("rg"),
        principalId=GUID,
        roleDefinitionId=READER,
    )
    add(
        "governed",
        "authorization:PolicyAssignment",
        scope=estate.id("rg"),
        policyAssignmentName="regions",
        policyDefinitionId=f"/providers/Microsoft.Authorization/policyDefinitions/{GUID}",
    )
    add(
        "policydef",
        "authorization:PolicyDefinition",
        policyDefinitionName="regions",
        policyRule={"if": {}, "then": {"effect": "deny"}},
    )


def storage(estate: Estate) -> None:
    add, group = estate.add, {"resourceGroupName": "rg"}
    add(
        "account",
        "storage:StorageAccount",
        **group,
        accountName="datasets1",
        kind="StorageV2",
        sku={"name": "Standard_ZRS"},
        minimumTlsVersion="TLS1_2",
        allowSharedKeyAccess=False,
        identity={"type": "UserAssigned", "userAssignedIdentities": [estate.id("identity")]},
        encryption={
            "keySource": "Microsoft.Keyvault",
            "requireInfrastructureEncryption": True,
            "keyVaultProperties": {
                "keyName": "disks",
                "keyVaultUri": estate.out("vault", "properties", "vaultUri"),
            },
            "encryptionIdentity": {"encryptionUserAssignedIdentity": estate.id("identity")},
        },
    )
    of = {**group, "accountName": "datasets1"}
    add("container", "storage:BlobContainer", **of, containerName="audit", publicAccess="None")
    add(
        "blobs",
        "storage:BlobServiceProperties",
        **of,
        blobServicesName="default",
        isVersioningEnabled=True,
        deleteRetentionPolicy={"enabled": True, "days": 30},
    )
    add("fileservice", "storage:FileServiceProperties", **of, fileServicesName="default")
    add(
        "immutable",
        "storage:BlobContainerImmutabilityPolicy",
        **of,
        containerName="audit",
        immutabilityPolicyName="default",
        immutabilityPeriodSinceCreationInDays=365,
    )
    add(
        "lifecycle",
        "storage:ManagementPolicy",
        **of,
        managementPolicyName="default",
        policy={
            "rules": [
                {
                    "name": "old",
                    "type": "Lifecycle",
                    "definition": {
                        "filters": {"blobTypes": ["blockBlob"]},
                        "actions": {
                            "version": {"delete": {"daysAfterCreationGreaterThan": 90}},
                        },
                    },
                }
            ]
        },
    )
    add(
        "scope",
        "storage:EncryptionScope",
        **of,
        encryptionScopeName="own",
        source="Microsoft.KeyVault",
        keyVaultProperties={"keyUri": estate.out("key", "keyUri")},
    )
    add(
        "fileaccount",
        "storage:StorageAccount",
        **group,
        accountName="homes1",
        kind="FileStorage",
        sku={"name": "Premium_LRS"},
    )
    add(
        "share",
        "storage:FileShare",
        **group,
        accountName="homes1",
        shareName="homes",
        shareQuota=100,
        enabledProtocols="NFS",
        rootSquash="RootSquash",
    )
    add("netapp-account", "netapp:Account", **group, accountName="anf")
    add(
        "pool",
        "netapp:CapacityPool",
        **group,
        accountName="anf",
        poolName="pool",
        serviceLevel="Premium",
        size=4 * 1024**4,
    )
    add(
        "volume",
        "netapp:CapacityPoolVolume",
        **group,
        accountName="anf",
        poolName="pool",
        volumeName="scratch",
        creationToken="scratch",
        usageThreshold=1024**4,
        subnetId=estate.id("netapp"),
        protocolTypes=["NFSv4.1"],
        serviceLevel="Premium",
    )
    add(
        "lustre-fs",
        "storagecache:AmlFilesystem",
        **group,
        amlFilesystemName="lustre",
        sku={"name": "AMLFS-Durable-Premium-250"},
        storageCapacityTiB=8,
        zones=["1"],
        filesystemSubnet=estate.id("lustre"),
        maintenanceWindow={"dayOfWeek": "Saturday", "timeOfDayUTC": "22:00"},
    )


def machines(estate: Estate) -> None:
    add, group = estate.add, {"resourceGroupName": "rg"}
    identity = {"type": "UserAssigned", "userAssignedIdentities": [estate.id("identity")]}
    add(
        "disks",
        "compute:DiskEncryptionSet",
        **group,
        diskEncryptionSetName="disks",
        activeKey={"keyUrl": estate.out("key", "keyUriWithVersion")},
        identity={"type": "SystemAssigned"},
    )
    add(
        "reserved",
        "compute:CapacityReservationGroup",
        **group,
        capacityReservationGroupName="reserved",
        zones=["1"],
    )
    add(
        "reservation",
        "compute:CapacityReservation",
        **group,
        capacityReservationGroupName="reserved",
        capacityReservationName="h200",
        sku={"name": "Standard_ND96isr_H200_v5", "capacity": 1},
        zones=["1"],
    )
    add(
        "near",
        "compute:ProximityPlacementGroup",
        **group,
        proximityPlacementGroupName="near",
        proximityPlacementGroupType="Standard",
    )
    add(
        "balancer",
        "network:LoadBalancer",
        **group,
        loadBalancerName="lb",
        sku={"name": "Standard"},
        frontendIPConfigurations=[{"name": "in", "subnet": {"id": estate.id("nodes")}}],
        backendAddressPools=[{"name": "pool"}],
        probes=[{"name": "up", "port": 8080, "protocol": "Tcp"}],
    )
    add(
        "tier",
        "compute:VirtualMachineScaleSet",
        **group,
        vmScaleSetName="tier",
        sku={"name": "Standard_D8s_v6", "capacity": 2},
        upgradePolicy={"mode": "Manual"},
        virtualMachineProfile={
            "storageProfile": {
                "imageReference": {"publisher": "p", "offer": "o", "sku": "s", "version": "1"},
                "osDisk": {
                    "createOption": "FromImage",
                    "managedDisk": {
                        "storageAccountType": "Premium_LRS",
                        "diskEncryptionSet": {"id": estate.id("disks")},
                    },
                },
            },
            "networkProfile": {
                "networkInterfaceConfigurations": [
                    {
                        "name": "nic",
                        "ipConfigurations": [{"name": "ip", "subnet": {"id": estate.id("nodes")}}],
                    }
                ]
            },
        },
    )
    gateway = f"{estate.id('rg')}/providers/Microsoft.Network/applicationGateways/gw"
    add(
        "gw",
        "network:ApplicationGateway",
        **group,
        applicationGatewayName="gw",
        sku={"name": "Standard_v2", "tier": "Standard_v2", "capacity": 2},
        gatewayIPConfigurations=[{"name": "g", "subnet": {"id": estate.id("gateway")}}],
        frontendIPConfigurations=[{"name": "in", "subnet": {"id": estate.id("gateway")}}],
        frontendPorts=[{"name": "p80", "port": 80}],
        backendAddressPools=[{"name": "pool"}],
        backendHttpSettingsCollection=[{"name": "http", "port": 8080, "protocol": "Http"}],
        httpListeners=[
            {
                "name": "l",
                "protocol": "Http",
                "frontendIPConfiguration": {"id": f"{gateway}/frontendIPConfigurations/in"},
                "frontendPort": {"id": f"{gateway}/frontendPorts/p80"},
            }
        ],
        requestRoutingRules=[
            {
                "name": "r",
                "priority": 10,
                "ruleType": "Basic",
                "httpListener": {"id": f"{gateway}/httpListeners/l"},
                "backendAddressPool": {"id": f"{gateway}/backendAddressPools/pool"},
                "backendHttpSettings": {"id": f"{gateway}/backendHttpSettingsCollection/http"},
            }
        ],
    )
    add(
        "cluster",
        "containerservice:ManagedCluster",
        **group,
        resourceName="cluster",
        dnsPrefix="cluster",
        identity=identity,
        kubernetesVersion="1.34",
        disableLocalAccounts=True,
        aadProfile={"managed": True, "enableAzureRBAC": True},
        apiServerAccessProfile={"enablePrivateCluster": True, "privateDNSZone": "system"},
        oidcIssuerProfile={"enabled": True},
        securityProfile={"workloadIdentity": {"enabled": True}},
        diskEncryptionSetID=estate.id("disks"),
        networkProfile={
            "networkPlugin": "azure",
            "networkPluginMode": "overlay",
            "networkDataplane": "cilium",
            "networkPolicy": "cilium",
            "podCidr": "10.244.0.0/16",
            "serviceCidr": "10.200.0.0/16",
            "dnsServiceIP": "10.200.0.10",
        },
        agentPoolProfiles=[
            {
                "name": "system",
                "mode": "System",
                "count": 2,
                "vmSize": "Standard_D4s_v6",
                "vnetSubnetID": estate.id("nodes"),
            }
        ],
    )
    add(
        "gpu",
        "containerservice:AgentPool",
        **group,
        resourceName="cluster",
        agentPoolName="h200",
        vmSize="Standard_ND96isr_H200_v5",
        mode="User",
        count=0,
        gpuInstanceProfile="MIG1g",
        vnetSubnetID=estate.id("nodes"),
        capacityReservationGroupID=estate.id("reserved"),
        nodeTaints=["nvidia.com/gpu=present:NoSchedule"],
    )
    add(
        "window",
        "containerservice:MaintenanceConfiguration",
        **group,
        resourceName="cluster",
        configName="aksManagedAutoUpgradeSchedule",
        maintenanceWindow={
            "durationHours": 4,
            "startTime": "02:00",
            "utcOffset": "+04:00",
            "schedule": {"weekly": {"dayOfWeek": "Saturday", "intervalWeeks": 1}},
        },
    )
    add(
        "environment",
        "app:ManagedEnvironment",
        **group,
        environmentName="environment",
        workloadProfiles=[{"name": "Consumption", "workloadProfileType": "Consumption"}],
        vnetConfiguration={"infrastructureSubnetId": estate.id("apps"), "internal": True},
    )
    add(
        "app",
        "app:ContainerApp",
        **group,
        containerAppName="inference",
        environmentId=estate.id("environment"),
        configuration={"ingress": {"targetPort": 8080, "external": False}},
        template={
            "containers": [
                {"name": "server", "image": "x.azurecr.io/inference:1",
                 "resources": {"cpu": 2, "memory": "4Gi"}}
            ],
            "scale": {"minReplicas": 1, "maxReplicas": 4},
        },
    )  # fmt: skip
    add(
        "mount",
        "app:ManagedEnvironmentsStorage",
        **group,
        environmentName="environment",
        storageName="models",
    )


def registry(estate: Estate) -> None:
    add, group = estate.add, {"resourceGroupName": "rg"}
    add(
        "registry",
        "containerregistry:Registry",
        **group,
        registryName="images1",
        sku={"name": "Premium"},
        publicNetworkAccess="Disabled",
        policies={"exportPolicy": {"status": "disabled"}},
        identity={"type": "UserAssigned", "userAssignedIdentities": {estate.id("identity"): {}}},
        encryption={
            "status": "enabled",
            "keyVaultProperties": {
                "identity": estate.out("identity", "clientId"),
                "keyIdentifier": estate.out("key", "keyUri"),
            },
        },
    )
    of = {**group, "registryName": "images1"}
    add(
        "replica",
        "containerregistry:Replication",
        **of,
        replicationName="uaecentral",
        location="uaecentral",
    )
    add("credentials", "containerregistry:CredentialSet", **of, credentialSetName="docker")
    add(
        "cache",
        "containerregistry:CacheRule",
        **of,
        cacheRuleName="busybox",
        sourceRepository="docker.io/library/busybox",
        targetRepository="mirror/busybox",
        credentialSetResourceId=estate.id("credentials"),
    )
    add(
        "map",
        "containerregistry:ScopeMap",
        **of,
        scopeMapName="readers",
        actions=["repositories/models/content/read"],
    )
    add(
        "token",
        "containerregistry:Token",
        **of,
        tokenName="reader",
        scopeMapId=estate.id("map"),
    )


def watching(estate: Estate) -> None:
    add, group = estate.add, {"resourceGroupName": "rg"}
    add("logs", "operationalinsights:Workspace", **group, workspaceName="logs", retentionInDays=90)
    of = {**group, "workspaceName": "logs"}
    add(
        "logs-cluster",
        "operationalinsights:Cluster",
        **group,
        clusterName="logs",
        identity={"type": "SystemAssigned"},
        sku={"name": "CapacityReservation", "capacity": 100},
        keyVaultProperties={
            "keyVaultUri": estate.out("vault", "properties", "vaultUri"),
            "keyName": "disks",
            "keyVersion": "",
        },
    )
    add(
        "linked",
        "operationalinsights:LinkedService",
        **of,
        linkedServiceName="Cluster",
        writeAccessResourceId=estate.id("logs-cluster"),
    )
    add("table", "operationalinsights:Table", **of, tableName="AzureActivity", retentionInDays=90)
    add(
        "export",
        "operationalinsights:DataExport",
        **of,
        dataExportName="audit",
        resourceId=estate.id("account"),
        tableNames=["AzureActivity"],
    )
    add(
        "diagnostics",
        "monitor:DiagnosticSetting",
        resourceUri=estate.id("vault"),
        name="audit",
        workspaceId=estate.id("logs"),
        logs=[{"categoryGroup": "audit", "enabled": True}],
    )
    add(
        "activity",
        "monitor:SubscriptionDiagnosticSetting",
        name="activity",
        workspaceId=estate.id("logs"),
        logs=[{"category": "Administrative", "enabled": True}],
    )
    add(
        "people",
        "monitor:ActionGroup",
        **group,
        actionGroupName="people",
        groupShortName="people",
        enabled=True,
        location="global",
        emailReceivers=[{"name": "a", "emailAddress": "a@example.ae"}],
    )
    rule = {
        "metricTrigger": {
            "metricName": "Percentage CPU",
            "metricResourceUri": estate.id("tier"),
            "operator": "GreaterThan",
            "statistic": "Average",
            "threshold": 60,
            "timeAggregation": "Average",
            "timeGrain": "PT1M",
            "timeWindow": "PT5M",
        },
        "scaleAction": {
            "cooldown": "PT5M",
            "direction": "Increase",
            "type": "ChangeCount",
            "value": "1",
        },
    }
    add(
        "scaling",
        "monitor:AutoscaleSetting",
        **group,
        autoscaleSettingName="tier",
        targetResourceUri=estate.id("tier"),
        profiles=[
            {
                "name": "load",
                "capacity": {"minimum": "1", "default": "2", "maximum": "4"},
                "rules": [rule],
            }
        ],
    )
    add(
        "alert",
        "monitor:ActivityLogAlert",
        **group,
        activityLogAlertName="deleted",
        location="global",
        scopes=[SCOPE],
        condition={"allOf": [{"field": "category", "equals": "Administrative"}]},
        actions={"actionGroups": [{"actionGroupId": estate.id("people")}]},
    )
    add(
        "metric",
        "monitor:MetricAlert",
        **group,
        ruleName="cpu",
        location="global",
        enabled=True,
        severity=2,
        evaluationFrequency="PT5M",
        windowSize="PT5M",
        scopes=[estate.id("tier")],
        criteria={"odataType": "Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria"},
    )
    add("query", "monitor:ScheduledQueryRule", **group, ruleName="query")
    add(
        "dce",
        "monitor:DataCollectionEndpoint",
        **group,
        dataCollectionEndpointName="dce",
    )
    add(
        "dcr",
        "monitor:DataCollectionRule",
        **group,
        dataCollectionRuleName="dcr",
        dataCollectionEndpointId=estate.id("dce"),
        destinations={
            "logAnalytics": [{"name": "logs", "workspaceResourceId": estate.id("logs")}]
        },
        dataFlows=[{"streams": ["Microsoft-Syslog"], "destinations": ["logs"]}],
    )
    add(
        "dcra",
        "monitor:DataCollectionRuleAssociation",
        resourceUri=estate.id("cluster"),
        associationName="logs",
        dataCollectionRuleId=estate.id("dcr"),
    )
    add(
        "ampls",
        "monitor:PrivateLinkScope",
        **group,
        scopeName="scope",
        location="global",
        accessModeSettings={
            "ingestionAccessMode": "PrivateOnly",
            "queryAccessMode": "PrivateOnly",
        },
    )
    add(
        "scoped",
        "monitor:PrivateLinkScopedResource",
        **group,
        scopeName="scope",
        name="logs",
        linkedResourceId=estate.id("logs"),
    )
    add("metrics", "monitor:AzureMonitorWorkspace", **group, azureMonitorWorkspaceName="metrics")
    add(
        "flows",
        "network:FlowLog",
        resourceGroupName="NetworkWatcherRG",
        networkWatcherName="NetworkWatcher_uaenorth",
        flowLogName="flows",
        targetResourceId=estate.id("vnet"),
        storageId=estate.id("account"),
        enabled=True,
        location=REGION,
    )
    add("watcher", "network:NetworkWatcher", **group, networkWatcherName="watcher")
    notifications = {
        "eighty": {
            "enabled": True,
            "operator": "GreaterThan",
            "threshold": 80,
            "contactEmails": ["a@example.ae"],
        }
    }
    for key, module in (("budget", "consumption"), ("cost-budget", "costmanagement")):
        add(
            key,
            f"{module}:Budget",
            scope=estate.id("rg"),
            budgetName="monthly",
            amount=1000,
            category="Cost",
            timeGrain="Monthly",
            timePeriod={"startDate": "2026-12-01T00:00:00Z"},
            notifications=notifications,
        )
    add(
        "contact",
        "security:SecurityContact",
        securityContactName="default",
        emails="a@example.ae",
        isEnabled=True,
    )
    add(
        "defender",
        "security:Pricing",
        scopeId=SCOPE,
        pricingName="Containers",
        pricingTier="Standard",
    )


def locks(estate: Estate) -> None:
    add = estate.add
    level = {"level": "CanNotDelete"}
    add(
        "lock",
        "authorization:ManagementLockByScope",
        scope=estate.id("vault"),
        lockName="k",
        **level,
    )
    add(
        "lock-group",
        "authorization:ManagementLockAtResourceGroupLevel",
        resourceGroupName="rg",
        lockName="g",
        **level,
    )
    add("lock-all", "authorization:ManagementLockAtSubscriptionLevel", lockName="s", **level)
    add(
        "lock-one",
        "authorization:ManagementLockAtResourceLevel",
        resourceGroupName="rg",
        resourceProviderNamespace="Microsoft.KeyVault",
        parentResourcePath="",
        apiVersion="2024-11-01",
        resourceType="vaults",
        resourceName="vault-1",
        lockName="r",
        **level,
    )


PARTS: tuple[Callable[[Estate], None], ...] = (
    network,
    keys,
    storage,
    machines,
    registry,
    watching,
)


@pytest.fixture
def new_sandbox() -> Sandbox:
    """An empty Azure, set to the region of the estate."""
    return Sandbox("azure", config={"location": REGION})


@pytest.fixture(scope="session")
def whole_estate() -> Estate:
    """All of it; read only."""
    estate = Estate(Sandbox("azure", config={"location": REGION}))
    for part in (*PARTS, locks):
        part(estate)
    return estate


@pytest.fixture
def estate(new_sandbox: Sandbox) -> Estate:
    """Networks, keys and identities, for tests that add to them."""
    own = Estate(new_sandbox)
    network(own)
    keys(own)
    return own


@pytest.fixture
def large_estate(estate: Estate) -> Estate:
    """Storage and machines too."""
    storage(estate)
    machines(estate)
    return estate
