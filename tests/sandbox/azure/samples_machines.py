"""Machines, gateways, a cluster with a GPU pool, and containers."""

from __future__ import annotations

from tests.sandbox.azure.samples import Samples


def machines(samples: Samples) -> None:
    add, group = samples.add, {"resourceGroupName": "rg"}
    identity = {"type": "UserAssigned", "userAssignedIdentities": [samples.id("identity")]}
    add(
        "disks",
        "compute:DiskEncryptionSet",
        **group,
        diskEncryptionSetName="disks",
        activeKey={"keyUrl": samples.out("key", "keyUriWithVersion")},
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
        frontendIPConfigurations=[{"name": "in", "subnet": {"id": samples.id("nodes")}}],
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
                        "diskEncryptionSet": {"id": samples.id("disks")},
                    },
                },
            },
            "networkProfile": {
                "networkInterfaceConfigurations": [
                    {
                        "name": "nic",
                        "ipConfigurations": [
                            {"name": "ip", "subnet": {"id": samples.id("nodes")}}
                        ],
                    }
                ]
            },
        },
    )
    gateway = f"{samples.id('rg')}/providers/Microsoft.Network/applicationGateways/gw"
    add(
        "gw",
        "network:ApplicationGateway",
        **group,
        applicationGatewayName="gw",
        sku={"name": "Standard_v2", "tier": "Standard_v2", "capacity": 2},
        gatewayIPConfigurations=[{"name": "g", "subnet": {"id": samples.id("gateway")}}],
        frontendIPConfigurations=[{"name": "in", "subnet": {"id": samples.id("gateway")}}],
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
        diskEncryptionSetID=samples.id("disks"),
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
                "vnetSubnetID": samples.id("nodes"),
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
        vnetSubnetID=samples.id("nodes"),
        capacityReservationGroupID=samples.id("reserved"),
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
        vnetConfiguration={"infrastructureSubnetId": samples.id("apps"), "internal": True},
    )
    add(
        "app",
        "app:ContainerApp",
        **group,
        containerAppName="inference",
        environmentId=samples.id("environment"),
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
