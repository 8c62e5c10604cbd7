"""A private EKS cluster."""

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components.aws._cluster_addons import install
from falaj.components.aws._cluster_roles import ClusterRoles
from falaj.components.aws._component import account_of, child, named, stateful, token
from falaj.components.specification.cluster import ClusterArgs, ClusterSpec, check
from falaj.components.specification.machine_choice import subnets_of
from falaj.components.specification.property_names import engine_inputs

__all__ = ["Cluster", "ClusterArgs"]

#: All that a control plane can log:
#: docs.aws.amazon.com/eks/latest/userguide/control-plane-logs.html
LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
_ACCESS_POLICY = "arn:aws:eks::aws:cluster-access-policy/"
ADMINISTRATOR_POLICY = f"{_ACCESS_POLICY}AmazonEKSClusterAdminPolicy"
#: Reads everything but secrets.
VIEWER_POLICY = f"{_ACCESS_POLICY}AmazonEKSViewPolicy"
#: docs.aws.amazon.com/eks/latest/userguide/network-reqs.html
_LEAST_SUBNETS = 2


class Cluster(pulumi.ComponentResource):
    """A private EKS cluster: no public endpoint, secrets under our key, everything logged.

    ::

        cluster = Cluster("main", {
            "region": "me-central-1", "tenant": "acme", "owner": "platform@acme.example",
            "data_class": "restricted", "cost_center": "ai-42",
            "acknowledge_degraded": "2026-04-30",
            "network_id": network.network_id,
            "node_subnet_ids": network.node_subnet_ids,
            "security_group_id": network.security_group_ids["control-plane"],
            "cluster_key_id": keys.key_ids["cluster"], "log_key_id": keys.key_ids["logs"],
            "disk_encryption_id": keys.disk_encryption_id,
            "administrators": ["arn:aws:iam::000000000000:role/platform"],
        }, pulumi.ResourceOptions(providers=[provider]))

    Makes a `cloudwatch.LogGroup` with the logs' key before the cluster, so that EKS doesn't make
    one without; an `eks.Cluster` with all five logs, envelope encryption of secrets, access
    entries as the only way in, and standard support; an `iam.Role` each for the control plane, for
    nodes (join and pull images, nothing else), for the network plugin and for the disks' driver;
    an `eks.Addon` each for vpc-cni with network policies, kube-proxy, coredns,
    eks-pod-identity-agent, aws-ebs-csi-driver and eks-node-monitoring-agent, in EKS's default
    version for the cluster's; an `eks.AccessEntry` for each administrator and viewer.

    Who makes the cluster gets no rights in it. In production the cluster can't be deleted until
    its protection is lifted, and its logs are retained.

    coredns and the disks' driver become ready with the first nodes: declare a `CpuNodePool` in
    the same program, and don't make it depend on the whole component. EKS makes a security group
    of its own, whose outgoing rule is open and isn't this program's; nodes aren't in it.
    """

    cluster_id: pulumi.Output[str]
    """Name of the cluster, which is its id."""
    cluster_name: pulumi.Output[str]
    """Name of the cluster."""
    endpoint: pulumi.Output[str]
    """URL of the API, reached from inside the network only."""
    certificate_authority: pulumi.Output[str]
    """Certificate of the API's authority, PEM in base64."""
    issuer_url: pulumi.Output[str]
    """Issuer of service accounts' tokens."""
    node_identity_id: pulumi.Output[str]
    """ARN of the nodes' role."""
    security_group_id: pulumi.Output[str]
    """The security group that EKS made for the control plane."""
    kubernetes_version: str
    """Minor version."""

    def __init__(
        self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("aws", name, args)
        super().__init__(token("Cluster"), name, engine_inputs(args), opts)
        roles = ClusterRoles(self, spec.placed, name, account_of(self), args.get("boundary_id"))
        cluster = self._cluster(spec, args, roles)
        install(self, spec, cluster, roles, args["disk_encryption_id"])
        for position, principal in enumerate(spec.administrators):
            self._let_in(f"administrator-{position}", spec, cluster, principal)
        for position, principal in enumerate(spec.viewers):
            self._let_in(f"viewer-{position}", spec, cluster, principal)
        self.cluster_id = cluster.name
        self.cluster_name = cluster.name
        self.endpoint = cluster.endpoint
        self.certificate_authority = cluster.certificate_authority.data
        self.issuer_url = cluster.identities[0].oidcs[0].issuer
        self.node_identity_id = roles.nodes()
        self.security_group_id = cluster.vpc_config.cluster_security_group_id
        self.kubernetes_version = spec.kubernetes_version
        outputs: dict[str, Any] = {
            "clusterId": self.cluster_id,
            "clusterName": self.cluster_name,
            "endpoint": self.endpoint,
            "certificateAuthority": self.certificate_authority,
            "issuerUrl": self.issuer_url,
            "nodeIdentityId": self.node_identity_id,
            "securityGroupId": self.security_group_id,
            "kubernetesVersion": self.kubernetes_version,
        }
        self.register_outputs(outputs)

    def _cluster(
        self, spec: ClusterSpec, args: ClusterArgs, roles: ClusterRoles
    ) -> aws.eks.Cluster:
        cluster_name = named(spec.placed, spec.name, limit=100)
        tags = spec.placed.tags(spec.name)
        log = aws.cloudwatch.LogGroup(
            spec.name,
            # The name that EKS writes to, whether it is there or not.
            name=f"/aws/eks/{cluster_name}/cluster",
            kms_key_id=args["log_key_id"],
            retention_in_days=spec.log_days,
            tags=tags,
            opts=stateful(self, spec.placed),
        )

        def subnets(known: Mapping[str, str]) -> list[str]:
            where = f"node_subnet_ids of cluster {spec.name!r}"
            found = subnets_of(known, spec.zones, where=where, all_needed=spec.zones_named)
            if len(found) < _LEAST_SUBNETS:
                raise ValueError(
                    f"{where} has a subnet in {', '.join(sorted(known))} only; EKS needs two "
                    "zones or more: add one to the network's 'zones' (pools need not use it)"
                )
            return found

        return aws.eks.Cluster(
            spec.name,
            name=cluster_name,
            role_arn=roles.control_plane(args["cluster_key_id"]),
            version=spec.kubernetes_version,
            access_config=aws.eks.ClusterAccessConfigArgs(
                authentication_mode="API", bootstrap_cluster_creator_admin_permissions=False
            ),
            bootstrap_self_managed_addons=False,
            deletion_protection=spec.placed.retained,
            enabled_cluster_log_types=list(LOG_TYPES),
            encryption_config=aws.eks.ClusterEncryptionConfigArgs(
                provider=aws.eks.ClusterEncryptionConfigProviderArgs(
                    key_arn=args["cluster_key_id"]
                ),
                resources=["secrets"],
            ),
            kubernetes_network_config=aws.eks.ClusterKubernetesNetworkConfigArgs(
                ip_family="ipv4", service_ipv4_cidr=spec.service_cidr
            ),
            upgrade_policy=aws.eks.ClusterUpgradePolicyArgs(support_type="STANDARD"),
            vpc_config=aws.eks.ClusterVpcConfigArgs(
                subnet_ids=pulumi.Output.from_input(args["node_subnet_ids"]).apply(subnets),
                security_group_ids=[args["security_group_id"]],
                endpoint_private_access=True,
                endpoint_public_access=False,
            ),
            tags=tags,
            opts=child(self, depends_on=[log], protect=spec.placed.retained or None),
        )

    def _let_in(
        self, who: str, spec: ClusterSpec, cluster: aws.eks.Cluster, principal: str
    ) -> None:
        entry = aws.eks.AccessEntry(
            f"{spec.name}-{who}",
            cluster_name=cluster.name,
            principal_arn=principal,
            type="STANDARD",
            tags=spec.placed.tags(spec.name),
            opts=child(self),
        )
        administers = who.startswith("administrator")
        aws.eks.AccessPolicyAssociation(
            f"{spec.name}-{who}",
            cluster_name=cluster.name,
            principal_arn=entry.principal_arn,
            policy_arn=ADMINISTRATOR_POLICY if administers else VIEWER_POLICY,
            access_scope=aws.eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
            opts=child(self),
        )
