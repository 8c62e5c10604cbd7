"""Settings of an AKS cluster: its network, its security, its upgrades, its system pool."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

import pulumi
from pulumi_azure_native import containerservice as aks

from falaj.components.azure._cluster_identity import ClusterKey
from falaj.components.azure._subnets import CONTROL_PLANE, subnet_id
from falaj.components.specification.cluster import POD_CIDR, ClusterArgs, ClusterSpec
from falaj.components.specification.node_pools import AKS_SYSTEM_POOL

#: Machine of the system pool: four virtual CPUs, as AKS recommends for its own add-ons, sold in
#: both regions. A fixed type: a cheaper one in a later catalogue must not replace a running pool.
#: https://learn.microsoft.com/azure/aks/use-system-pools
SYSTEM_MACHINE = "Standard_D4as_v6"
_SYSTEM_DISK_GIB = 128
#: Days of a week, hours in Dubai. Clusters and nodes change in the country's weekend, by night.
UTC_OFFSET = "+04:00"


def network_profile(service_cidr: str) -> aks.ContainerServiceNetworkProfileArgs:
    """Pods in an overlay, policies by Cilium, and no way out.

    With ``outboundType: none`` AKS opens no path to the Internet, and nodes start from the
    registry: https://learn.microsoft.com/azure/aks/concepts-network-isolated. What the network
    itself allows through its firewall still works.
    """
    return aks.ContainerServiceNetworkProfileArgs(
        network_plugin=aks.NetworkPlugin.AZURE,
        network_plugin_mode=aks.NetworkPluginMode.OVERLAY,
        network_dataplane=aks.NetworkDataplane.CILIUM,
        network_policy=aks.NetworkPolicy.CILIUM,
        outbound_type=aks.OutboundType.NONE,
        load_balancer_sku=aks.LoadBalancerSku.STANDARD,
        pod_cidr=POD_CIDR,
        service_cidr=service_cidr,
        # By custom the tenth address; it has to lie inside the range of services.
        dns_service_ip=str(ipaddress.IPv4Network(service_cidr)[10]),
        ip_families=[aks.IpFamily.I_PV4],
    )


def api_server_access(
    network_id: pulumi.Input[str],
) -> aks.ManagedClusterAPIServerAccessProfileArgs:
    """The API server stands in the network itself: the only way in which AKS can reach a vault
    that is closed to the public (learn.microsoft.com/azure/aks/use-kms-etcd-encryption)."""
    return aks.ManagedClusterAPIServerAccessProfileArgs(
        enable_private_cluster=True,
        enable_private_cluster_public_fqdn=False,
        private_dns_zone="system",
        enable_vnet_integration=True,
        subnet_id=subnet_id(network_id, CONTROL_PLANE),
        # `az aks command invoke` would be a way past the network.
        disable_run_command=True,
    )


def security_profile(key: ClusterKey) -> aks.ManagedClusterSecurityProfileArgs:
    """Secrets under our key; pods with identities of their own; unused images removed.

    The sensor of Defender for Containers sends what it sees out of the network, and so is left
    out; audit logs go to the workspace, where Defender for Cloud can read them.
    """
    return aks.ManagedClusterSecurityProfileArgs(
        azure_key_vault_kms=aks.AzureKeyVaultKmsArgs(
            enabled=True,
            key_id=key.identifier,
            key_vault_network_access=aks.KeyVaultNetworkAccessTypes.PRIVATE,
            key_vault_resource_id=key.vault_id,
        ),
        workload_identity=aks.ManagedClusterSecurityProfileWorkloadIdentityArgs(enabled=True),
        image_cleaner=aks.ManagedClusterSecurityProfileImageCleanerArgs(
            enabled=True, interval_hours=7 * 24
        ),
    )


def entra_profile(spec: ClusterSpec) -> aks.ManagedClusterAADProfileArgs:
    """People come in by Entra only; what they may do is decided by Azure's roles."""
    return aks.ManagedClusterAADProfileArgs(
        managed=True,
        enable_azure_rbac=True,
        admin_group_object_ids=list(spec.administrators),
    )


def upgrade_profile() -> aks.ManagedClusterAutoUpgradeProfileArgs:
    """Patches of Kubernetes and new node images come by themselves, in the maintenance window.

    ``SecurityPatch`` fetches packages on the nodes, which have no way out.
    """
    return aks.ManagedClusterAutoUpgradeProfileArgs(
        upgrade_channel=aks.UpgradeChannel.PATCH,
        node_os_upgrade_channel=aks.NodeOSUpgradeChannel.NODE_IMAGE,
    )


def autoscaler_profile() -> aks.ManagedClusterPropertiesAutoScalerProfileArgs:
    """GPU nodes come when a pod waits for one and leave ten minutes after the last has ended."""
    return aks.ManagedClusterPropertiesAutoScalerProfileArgs(
        expander=aks.Expander.LEAST_WASTE,
        balance_similar_node_groups="true",
        scale_down_unneeded_time="10m",
        scale_down_delay_after_add="10m",
        # GPU nodes take long: driver, fabric, images of several gigabytes.
        max_node_provision_time="25m",
        # Training keeps scratch on local disks; such a node may still leave once it is idle.
        skip_nodes_with_local_storage="false",
        skip_nodes_with_system_pods="true",
    )


def storage_profile() -> aks.ManagedClusterStorageProfileArgs:
    """Drivers for disks, files and snapshots; none for blobs, which workloads reach directly."""
    return aks.ManagedClusterStorageProfileArgs(
        disk_csi_driver=aks.ManagedClusterStorageProfileDiskCSIDriverArgs(enabled=True),
        file_csi_driver=aks.ManagedClusterStorageProfileFileCSIDriverArgs(enabled=True),
        snapshot_controller=aks.ManagedClusterStorageProfileSnapshotControllerArgs(enabled=True),
        blob_csi_driver=aks.ManagedClusterStorageProfileBlobCSIDriverArgs(enabled=False),
    )


def system_pool(
    args: ClusterArgs,
    spec: ClusterSpec,
    zones: Sequence[str],
    subnet: pulumi.Input[str],
    tags: Mapping[str, str],
) -> aks.ManagedClusterAgentPoolProfileArgs:
    """The one pool that is part of the cluster: AKS demands it, and a change of any pool written
    here would put all of them to work. It takes the cluster's own add-ons and nothing else."""
    return aks.ManagedClusterAgentPoolProfileArgs(
        name=AKS_SYSTEM_POOL,
        mode=aks.AgentPoolMode.SYSTEM,
        type=aks.AgentPoolType.VIRTUAL_MACHINE_SCALE_SETS,
        count=max(2, len(zones)) if spec.placed.retained else 1,
        vm_size=SYSTEM_MACHINE,
        availability_zones=list(zones) or None,
        vnet_subnet_id=subnet,
        os_type=aks.OSType.LINUX,
        os_sku=aks.OSSKU.UBUNTU,
        os_disk_type=aks.OSDiskType.MANAGED,
        os_disk_size_gb=_SYSTEM_DISK_GIB,
        orchestrator_version=spec.kubernetes_version,
        enable_auto_scaling=False,
        enable_encryption_at_host=True,
        enable_fips=False,
        enable_node_public_ip=False,
        node_taints=["CriticalAddonsOnly=true:NoSchedule"],
        security_profile=aks.AgentPoolSecurityProfileArgs(
            ssh_access=aks.AgentPoolSSHAccess.DISABLED,
            enable_secure_boot=True,
            enable_vtpm=True,
        ),
        upgrade_settings=aks.AgentPoolUpgradeSettingsArgs(max_surge="1"),
        tags=dict(tags),
    )
