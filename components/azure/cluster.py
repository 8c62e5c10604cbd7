"""A private AKS cluster whose secrets, disks and images stay under our keys and in the network.

Before the component stand the parts of its profile, its identities and exactly what each may do,
and what runs it: maintenance windows, logs of the control plane, who may look at it.
"""

import base64
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_azure_native as azure_native
from pulumi_azure_native import containerservice as aks
from pulumi_azure_native import monitor

from falaj.components.azure._component import component_options, resource_group
from falaj.components.azure._ids import (
    IdError,
    KeyIdentifier,
    key_identifier,
    resource_id,
    subnet_id,
)
from falaj.components.azure._private_endpoint import api_server_zone, zone_id
from falaj.components.azure._roles import Grant, grant
from falaj.components.specification.address_plan import BALANCERS, CONTROL_PLANE
from falaj.components.specification.cluster import POD_CIDR, ClusterArgs, ClusterSpec, check
from falaj.components.specification.machine_choice import subnets_of
from falaj.components.specification.names import physical_name
from falaj.components.specification.node_pools import (
    AKS_SYSTEM_MACHINE,
    AKS_SYSTEM_POOL,
    AKS_SYSTEM_SURGE,
    aks_system_nodes,
)
from falaj.components.specification.placed import REGIONAL
from falaj.components.specification.property_names import engine_inputs

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
    network_id: pulumi.Input[str], region: str
) -> aks.ManagedClusterAPIServerAccessProfileArgs:
    """The API server stands in the network itself: the only way in which AKS can reach a vault
    that is closed to the public (learn.microsoft.com/azure/aks/use-kms-etcd-encryption).

    Its name is written into the network's own zone. One that AKS makes would lie in the locked
    group of the nodes, where nobody can link it to joined networks
    (learn.microsoft.com/azure/aks/node-resource-group-lockdown)."""
    return aks.ManagedClusterAPIServerAccessProfileArgs(
        enable_private_cluster=True,
        enable_private_cluster_public_fqdn=False,
        private_dns_zone=zone_id(network_id, api_server_zone(region)),
        enable_vnet_integration=True,
        subnet_id=subnet_id(network_id, CONTROL_PLANE),
        # `az aks command invoke` would be a way past the network.
        disable_run_command=True,
    )


@dataclass(frozen=True)
class ClusterKey:
    """The key of the cluster's secrets."""

    vault_id: pulumi.Output[str]
    identifier: pulumi.Output[str]
    """Identifier of its current version: AKS takes no other."""
    scope: pulumi.Output[str]
    """Resource id of the key, for grants."""


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
    """People come in by Entra only; what they may do is decided by Azure's roles, and by the
    cluster's own for administrators: AKS binds the groups that are named here to
    ``cluster-admin``. Whoever else has the subscription, its owner too, has no right in it:
    https://learn.microsoft.com/azure/aks/entra-id-authorization"""
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
        count=aks_system_nodes(zones) if spec.placed.retained else 1,
        vm_size=AKS_SYSTEM_MACHINE,
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
        upgrade_settings=aks.AgentPoolUpgradeSettingsArgs(max_surge=str(AKS_SYSTEM_SURGE)),
        tags=dict(tags),
    )


@dataclass(frozen=True)
class Identities:
    """Who acts for a cluster."""

    control_plane: azure_native.managedidentity.UserAssignedIdentity
    kubelet: azure_native.managedidentity.UserAssignedIdentity
    grants: tuple[pulumi.Resource, ...]
    """What has to be there before the cluster is made."""


def cluster_key(args: ClusterArgs, opts: pulumi.InvokeOutputOptions) -> ClusterKey:
    """The key of the cluster's secrets, in its current version.

    A rotated key has a new version: the next ``up`` hands it to AKS. Secrets that were written
    before are encrypted anew when they are written again.
    """
    vault = pulumi.Output.from_input(args.get("key_ring_id", "")).apply(
        lambda text: resource_id(text, "Microsoft.KeyVault/vaults")
    )
    vault_id = vault.apply(lambda found: found.parent)
    key = pulumi.Output.from_input(args["cluster_key_id"]).apply(_key_of_vault)

    def current(known: list[Any]) -> pulumi.Output[str]:
        # Asked with plain values: a preview doesn't ask what depends on a StackReference, whose
        # own id it doesn't know, though all its outputs are known.
        of_vault, of_key = known
        return azure_native.keyvault.get_key_output(
            key_name=of_key.name,
            resource_group_name=of_vault.group,
            vault_name=of_vault.name,
            opts=opts,
        ).key_uri_with_version

    return ClusterKey(
        vault_id,
        pulumi.Output.all(vault, key).apply(current),
        pulumi.Output.concat(vault_id, "/keys/", key.apply(lambda found: found.name)),
    )


def _key_of_vault(text: str) -> KeyIdentifier:
    found = key_identifier(text)
    if found.hardware_module:
        raise IdError(
            f"cluster_key_id: given {text!r}, a key of a Managed HSM; allowed: a key of a vault, "
            "from which alone AKS encrypts secrets over a private link; leave managed_hsm of the "
            "key ring out, or give the cluster a key ring of its own"
        )
    return found


def make_identities(
    name: str,
    args: ClusterArgs,
    key: ClusterKey,
    *,
    group: azure_native.resources.ResourceGroup,
    node_subnet: pulumi.Input[str],
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> Identities:
    """Make both identities and grant what they need, on single resources.

    The control plane joins three subnets, writes its name into one DNS zone, wraps and unwraps
    with one key, lets AKS make the vault's private endpoint, reads the disk encryption set, and
    gives nodes their identity. Nodes pull images, and nothing else.
    """
    control_plane, kubelet = (
        azure_native.managedidentity.UserAssignedIdentity(
            f"{name}-{role}",
            resource_group_name=group.name,
            resource_name_=pulumi.Output.concat(group.name, "-", role),
            location=args["region"],
            tags=dict(tags),
            opts=opts,
        )
        for role in ("control-plane", "kubelet")
    )
    acting = control_plane.principal_id
    wanted = {
        "node-subnet": Grant("Network Contributor", node_subnet, acting),
        "control-plane-subnet": Grant(
            "Network Contributor", subnet_id(args["network_id"], CONTROL_PLANE), acting
        ),
        "balancer-subnet": Grant(
            "Network Contributor", subnet_id(args["network_id"], BALANCERS), acting
        ),
        # AKS checks both before it makes the cluster: that it may write into the zone, and link it
        # to the network: https://learn.microsoft.com/azure/aks/private-clusters
        "names": Grant(
            "Private DNS Zone Contributor",
            zone_id(args["network_id"], api_server_zone(args["region"])),
            acting,
        ),
        "names-of-network": Grant("Private DNS Zone Contributor", args["network_id"], acting),
        "key": Grant("Key Vault Crypto User", key.scope, acting),
        "vault": Grant("Key Vault Contributor", key.vault_id, acting),
        "disks": Grant("Reader", args["disk_encryption_id"], acting),
        "kubelet": Grant("Managed Identity Operator", kubelet.id, acting),
        "images": Grant("AcrPull", args.get("registry_id", ""), kubelet.principal_id),
    }
    grants = tuple(grant(f"{name}-{purpose}", what, opts) for purpose, what in wanted.items())
    return Identities(control_plane, kubelet, grants)


#: Names that AKS gives to the windows of Kubernetes' and of the nodes' images' upgrades:
#: https://learn.microsoft.com/azure/aks/planned-maintenance
_WINDOWS = {
    "aksManagedAutoUpgradeSchedule": aks.WeekDay.SATURDAY,
    "aksManagedNodeOSUpgradeSchedule": aks.WeekDay.SUNDAY,
}
#: https://learn.microsoft.com/azure/aks/monitor-aks-reference#resource-logs
_LOGS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "cluster-autoscaler",
    "cloud-controller-manager",
    "guard",
    "csi-azuredisk-controller",
    "csi-azurefile-controller",
    "csi-snapshot-controller",
)
#: Classes of data where it matters who has read, and not only who has changed.
_READS_MATTER = ("confidential", "restricted")


def audit_category(data_class: str) -> str:
    """Category of audit logs: with reads (``kube-audit``, many times larger) where the data ask
    for it, else changes only (``kube-audit-admin``)."""
    return "kube-audit" if data_class in _READS_MATTER else "kube-audit-admin"


def open_windows(
    name: str,
    group: pulumi.Input[str],
    cluster: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> None:
    """Upgrades happen in the night of the country's weekend, within four hours."""
    for window, day in _WINDOWS.items():
        aks.MaintenanceConfiguration(
            f"{name}-{window}",
            resource_group_name=group,
            resource_name_=cluster,
            config_name=window,
            maintenance_window=aks.MaintenanceWindowArgs(
                duration_hours=4,
                start_time="00:00",
                utc_offset=UTC_OFFSET,
                schedule=aks.ScheduleArgs(
                    weekly=aks.WeeklyScheduleArgs(day_of_week=day, interval_weeks=1)
                ),
            ),
            opts=opts,
        )


def keep_logs(
    name: str,
    spec: ClusterSpec,
    args: ClusterArgs,
    cluster: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> monitor.DiagnosticSetting:
    """Every log of the control plane goes to the workspace, into tables of its own."""
    categories = (*_LOGS, audit_category(spec.placed.data_class))
    return monitor.DiagnosticSetting(
        f"{name}-logs",
        name="audit",
        resource_uri=cluster,
        workspace_id=args.get("log_destination_id"),
        log_analytics_destination_type="Dedicated",
        logs=[
            monitor.DiagnosticsLogSettingsArgs(category=category, enabled=True)
            for category in categories
        ],
        metrics=[monitor.DiagnosticsMetricSettingsArgs(category="AllMetrics", enabled=True)],
        opts=opts,
    )


def admit_people(
    name: str, spec: ClusterSpec, cluster: pulumi.Input[str], opts: pulumi.ResourceOptions
) -> None:
    """Groups may fetch the cluster's address; viewers may read in it, secrets excepted.

    Administrators get their rights inside the cluster from its Entra profile.
    """
    for group in (*spec.administrators, *spec.viewers):
        role = "Azure Kubernetes Service Cluster User Role"
        grant(f"{name}-user-{group}", Grant(role, cluster, group, "Group"), opts)
    for group in spec.viewers:
        role = "Azure Kubernetes Service RBAC Reader"
        grant(f"{name}-viewer-{group}", Grant(role, cluster, group, "Group"), opts)


__all__ = ["Cluster", "ClusterArgs"]

#: A kubeconfig is YAML, of which JSON is a part.
_AUTHORITY = re.compile(r"""certificate-authority-data["']?\s*:\s*["']?([A-Za-z0-9+/]+=*)""")


class Cluster(pulumi.ComponentResource):
    """A private AKS cluster.

    Its API server stands in the network's ``control-plane`` subnet, without a public name; nodes
    have no way out and start from the registry; secrets are encrypted with our key, disks with the
    disk encryption set and on their hosts; people come in by Entra only, and every log of the
    control plane goes to the workspace. It has one pool, of system nodes, for the cluster's own
    add-ons: GPU and CPU pools are components of their own.

    Example::

        cluster = Cluster("ai", {
            "region": "uaenorth", "tenant": "acme", "owner": "platform@acme.ae",
            "data_class": "confidential", "cost_center": "4711",
            "network_id": network.network_id,
            "node_subnet_ids": network.node_subnet_ids,
            "security_group_id": network.security_group_ids["control-plane"],
            "cluster_key_id": keys.key_ids["cluster"], "log_key_id": keys.key_ids["logs"],
            "disk_encryption_id": keys.disk_encryption_id, "key_ring_id": keys.key_ring_id,
            "key_identity_id": keys.key_identity_id, "registry_id": registry.registry_id,
            "log_destination_id": audit.log_destination_id,
            "administrators": ["00000000-0000-0000-0000-00000000a1b2"],
        })

    Makes: a resource group; identities of the control plane and of the nodes with ten role
    assignments, each on one resource; the managed cluster; two maintenance windows (night of
    Saturday and of Sunday, Dubai time); a diagnostic setting; role assignments for administrators
    and viewers. The cluster's nodes are in a second group, locked against changes by hand.

    Before the first one in a subscription, the feature ``EncryptionAtHost`` of
    ``Microsoft.Compute`` has to be registered. ``log_days`` is the workspace's to decide
    (`AuditTrail.retention_days`), and ``security_group_id`` is the subnet's, not the cluster's.
    Pods have addresses in 10.244.0.0/16, which must be free in the network.
    """

    cluster_id: pulumi.Output[str]
    """Id of the managed cluster."""
    cluster_name: pulumi.Output[str]
    """Its name."""
    endpoint: pulumi.Output[str]
    """URL of the API server, reached from the network only."""
    certificate_authority: pulumi.Output[str]
    """Authority of the API server's certificate, PEM in base64."""
    issuer_url: pulumi.Output[str]
    """Issuer of service accounts' tokens."""
    node_identity_id: pulumi.Output[str]
    """Id of the identity that nodes have."""
    security_group_id: pulumi.Output[str]
    """Security group of the control plane's subnet."""
    kubernetes_version: str
    """Minor version."""

    def __init__(
        self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("azure", name, args)
        super().__init__(
            "falaj-azure:index:Cluster", name, engine_inputs(args), component_options(opts)
        )
        offered = spec.placed.place.service("AKS")
        if not offered.available:
            pulumi.log.warn(f"whether {spec.placed.region} has AKS: {offered}", self)
        child = pulumi.ResourceOptions(parent=self)
        tags = spec.placed.tags(name)
        zones = () if spec.zones == (REGIONAL,) else spec.zones
        physical = physical_name(spec.placed.tenant, pulumi.get_stack(), name, limit=63)
        group = resource_group(name, spec.placed, child)
        subnet = pulumi.Output.from_input(args["node_subnet_ids"]).apply(
            lambda subnets: subnets_of(
                subnets,
                spec.zones,
                where=f"node_subnet_ids of Cluster {name!r}",
                all_needed=spec.zones_named,
            )[0]
        )
        key = cluster_key(args, pulumi.InvokeOutputOptions(parent=self))
        who = make_identities(
            name, args, key, group=group, node_subnet=subnet, tags=tags, opts=child
        )
        cluster = aks.ManagedCluster(
            name,
            resource_group_name=group.name,
            resource_name_=physical,
            location=spec.placed.region,
            sku=aks.ManagedClusterSKUArgs(
                name=aks.ManagedClusterSKUName.BASE, tier=aks.ManagedClusterSKUTier.STANDARD
            ),
            kubernetes_version=spec.kubernetes_version,
            support_plan=aks.KubernetesSupportPlan.KUBERNETES_OFFICIAL,
            dns_prefix=physical_name(spec.placed.tenant, pulumi.get_stack(), name, limit=54),
            identity=aks.ManagedClusterIdentityArgs(
                type=aks.ResourceIdentityType.USER_ASSIGNED,
                user_assigned_identities=[who.control_plane.id],
            ),
            identity_profile={
                "kubeletidentity": aks.UserAssignedIdentityArgs(
                    resource_id=who.kubelet.id,
                    client_id=who.kubelet.client_id,
                    object_id=who.kubelet.principal_id,
                )
            },
            enable_rbac=True,
            disable_local_accounts=True,
            aad_profile=entra_profile(spec),
            public_network_access=aks.PublicNetworkAccess.DISABLED,
            api_server_access_profile=api_server_access(args["network_id"], spec.placed.region),
            network_profile=network_profile(spec.service_cidr),
            bootstrap_profile=aks.ManagedClusterBootstrapProfileArgs(
                artifact_source=aks.ArtifactSource.CACHE,
                container_registry_id=args.get("registry_id"),
            ),
            security_profile=security_profile(key),
            oidc_issuer_profile=aks.ManagedClusterOIDCIssuerProfileArgs(enabled=True),
            disk_encryption_set_id=args["disk_encryption_id"],
            node_resource_group=physical_name(physical, "nodes", limit=80),
            node_resource_group_profile=aks.ManagedClusterNodeResourceGroupProfileArgs(
                restriction_level=aks.RestrictionLevel.READ_ONLY
            ),
            auto_upgrade_profile=upgrade_profile(),
            auto_scaler_profile=autoscaler_profile(),
            storage_profile=storage_profile(),
            agent_pool_profiles=[system_pool(args, spec, zones, subnet, tags)],
            tags=tags,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(who.grants)),
        )
        open_windows(name, group.name, cluster.name, child)
        keep_logs(name, spec, args, cluster.id, child)
        admit_people(name, spec, cluster.id, child)

        self.cluster_id = cluster.id
        self.cluster_name = cluster.name
        self.endpoint = pulumi.Output.concat("https://", cluster.private_fqdn)
        self.certificate_authority = self._authority(group.name, cluster.name)
        self.issuer_url = cluster.oidc_issuer_profile.apply(
            lambda profile: (profile.issuer_url if profile else None) or ""
        )
        self.node_identity_id = who.kubelet.id
        self.security_group_id = pulumi.Output.from_input(args["security_group_id"])
        self.kubernetes_version = spec.kubernetes_version
        self.register_outputs(
            {
                "clusterId": self.cluster_id,
                "clusterName": self.cluster_name,
                "endpoint": self.endpoint,
                "certificateAuthority": self.certificate_authority,
                "issuerUrl": self.issuer_url,
                "nodeIdentityId": self.node_identity_id,
                "securityGroupId": self.security_group_id,
                "kubernetesVersion": self.kubernetes_version,
            }
        )

    def _authority(
        self, group: pulumi.Output[str], cluster: pulumi.Output[str]
    ) -> pulumi.Output[str]:
        """Authority of the API server's certificate; it is told only in kubeconfigs, and that of a
        user holds no credentials where local accounts are off."""
        credentials = aks.list_managed_cluster_user_credentials_output(
            resource_group_name=group,
            resource_name=cluster,
            opts=pulumi.InvokeOutputOptions(parent=self),
        )
        return credentials.kubeconfigs.apply(
            lambda files: authority_of(base64.b64decode(files[0].value).decode())
        )


def authority_of(kubeconfig: str) -> str:
    """The authority's certificate out of a kubeconfig.

    Raises:
        ValueError: it names none.
    """
    found = _AUTHORITY.search(kubeconfig)
    if found is None:
        raise ValueError("the cluster's kubeconfig has no certificate-authority-data")
    return found[1]
