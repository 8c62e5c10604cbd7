"""A private AKS cluster whose secrets, disks and images stay under our keys and in the network."""

import base64
import re

import pulumi
from pulumi_azure_native import containerservice as aks

from falaj.components.azure import _cluster_profile
from falaj.components.azure._aliases import of_component
from falaj.components.azure._cluster_profile import cluster_key, make_identities
from falaj.components.azure._groups import resource_group
from falaj.components.specification.cluster import ClusterArgs, check
from falaj.components.specification.machine_choice import subnets_of
from falaj.components.specification.names import physical_name
from falaj.components.specification.placed import REGIONAL
from falaj.components.specification.property_names import engine_inputs

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

    Makes: a resource group; identities of the control plane and of the nodes with seven role
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
            "falaj-azure:index:Cluster", name, engine_inputs(args), of_component(opts)
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
            aad_profile=_cluster_profile.entra_profile(spec),
            public_network_access=aks.PublicNetworkAccess.DISABLED,
            api_server_access_profile=_cluster_profile.api_server_access(args["network_id"]),
            network_profile=_cluster_profile.network_profile(spec.service_cidr),
            bootstrap_profile=aks.ManagedClusterBootstrapProfileArgs(
                artifact_source=aks.ArtifactSource.CACHE,
                container_registry_id=args.get("registry_id"),
            ),
            security_profile=_cluster_profile.security_profile(key),
            oidc_issuer_profile=aks.ManagedClusterOIDCIssuerProfileArgs(enabled=True),
            disk_encryption_set_id=args["disk_encryption_id"],
            node_resource_group=physical_name(physical, "nodes", limit=80),
            node_resource_group_profile=aks.ManagedClusterNodeResourceGroupProfileArgs(
                restriction_level=aks.RestrictionLevel.READ_ONLY
            ),
            auto_upgrade_profile=_cluster_profile.upgrade_profile(),
            auto_scaler_profile=_cluster_profile.autoscaler_profile(),
            storage_profile=_cluster_profile.storage_profile(),
            agent_pool_profiles=[_cluster_profile.system_pool(args, spec, zones, subnet, tags)],
            tags=tags,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(who.grants)),
        )
        _cluster_profile.open_windows(name, group.name, cluster.name, child)
        _cluster_profile.keep_logs(name, spec, args, cluster.id, child)
        _cluster_profile.admit_people(name, spec, cluster.id, child)

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
        told = aks.list_managed_cluster_user_credentials_output(
            resource_group_name=group,
            resource_name=cluster,
            opts=pulumi.InvokeOutputOptions(parent=self),
        )
        return told.kubeconfigs.apply(
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
