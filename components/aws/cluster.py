"""A private EKS cluster, with the roles and the add-ons that belong to it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components.aws._cluster_addons import (
    CONTROLLERS,
    HOMES,
    HOMES_ON_NODES,
    LUSTRE,
    ClusterScope,
    PodRole,
)
from falaj.components.aws._component import (
    ROLE_LIMIT,
    account_of,
    after,
    child,
    named,
    stateful,
    token,
)
from falaj.components.aws._iam import Statement, document, iam_arn, pod_trust
from falaj.components.catalogue.clusters import (
    EKS_ADDONS,
    EKS_SNAPSHOT_ADDON,
    EKS_STORAGE_ADDONS,
)
from falaj.components.catalogue.propagation import AWS_SECONDS
from falaj.components.specification.cluster import ClusterArgs, ClusterSpec, check
from falaj.components.specification.machine_choice import subnets_of
from falaj.components.specification.placed import Placed
from falaj.components.specification.propagation import after_grant
from falaj.components.specification.property_names import engine_inputs
from falaj.components.specification.resolver import (
    CLUSTER_DOMAIN,
    OFF,
    Names,
    cloud_domains,
    corefile,
    searched_domains,
)

#: Policies of AWS itself, by their path.
CLUSTER_POLICY = "AmazonEKSClusterPolicy"
#: The least that a node needs; the network plugin's rights are the plugin's own role's:
#: docs.aws.amazon.com/eks/latest/userguide/create-node-role.html. The "minimal" policy is Auto
#: Mode's: without ec2:DescribeInstances a node of Amazon Linux doesn't learn its name, and never
#: joins (github.com/awslabs/amazon-eks-ami/pull/1715).
NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly")
NETWORK_POLICY = "AmazonEKS_CNI_Policy"
DISK_POLICY = "service-role/AmazonEBSCSIDriverPolicy"


class ClusterRoles:
    """Makes the roles of one cluster, all under the same boundary."""

    def __init__(
        self,
        parent: pulumi.Resource,
        placed: Placed,
        name: str,
        account: pulumi.Output[str],
        boundary: pulumi.Input[str] | None,
    ) -> None:
        self._parent = parent
        self._placed = placed
        self._name = name
        self._account = account
        self._boundary = boundary

    def control_plane(self, key_id: pulumi.Input[str]) -> pulumi.Output[str]:
        """ARN of the control plane's role, which may use the key of the cluster's secrets."""
        # EKS looks at once whether it can use the key, and the provider doesn't ask it twice.
        hooks = after_grant(f"{self._name}-control-plane", AWS_SECONDS, changes=True)
        role = self._role("control-plane", self._by_service("eks.amazonaws.com", confused=True))
        granted = self._attach("control-plane", role, [CLUSTER_POLICY], hooks=hooks)
        secrets = Statement(
            "Secrets",
            ["kms:Encrypt", "kms:Decrypt", "kms:DescribeKey", "kms:ListGrants"],
            [key_id],
        )
        granted.append(self._allow("control-plane", role, secrets, hooks=hooks))
        return after(role.arn, granted)

    def nodes(self) -> pulumi.Output[str]:
        """ARN of the nodes' role: join the cluster, pull images; nothing else."""
        # EC2 names no account when it takes a role, so that there is nothing to compare.
        role = self._role("node", self._by_service("ec2.amazonaws.com", confused=False))
        return after(role.arn, self._attach("node", role, NODE_POLICIES))

    def network_plugin(self) -> pulumi.Output[str]:
        """ARN of the role of the network plugin, which gives addresses to pods."""
        role = self._role("vpc-cni", self._by_pods())
        return after(role.arn, self._attach("vpc-cni", role, [NETWORK_POLICY]))

    def disk_driver(self, key_id: pulumi.Input[str]) -> pulumi.Output[str]:
        """ARN of the role of the disks' driver, which may use the key of disks for volumes."""
        role = self._role("ebs-csi", self._by_pods())
        granted = self._attach("ebs-csi", role, [DISK_POLICY])
        volumes = Statement(
            "EncryptVolumes",
            [
                "kms:Decrypt",
                "kms:DescribeKey",
                "kms:Encrypt",
                "kms:GenerateDataKeyWithoutPlaintext",
                "kms:ReEncryptFrom",
                "kms:ReEncryptTo",
            ],
            [key_id],
        )
        grants = Statement(
            "LetVolumesUseTheKey",
            ["kms:CreateGrant", "kms:ListGrants", "kms:RevokeGrant"],
            [key_id],
            conditions={"Bool": {"kms:GrantIsForAWSResource": "true"}},
        )
        granted.append(self._allow("ebs-csi", role, volumes, grants))
        return after(role.arn, granted)

    def pods(
        self, of: PodRole, cluster: pulumi.Input[str], args: ClusterArgs
    ) -> pulumi.Output[str]:
        """ARN of a role that pods of one service account of the cluster take."""
        known = pulumi.Output.all(
            self._account, cluster, args["network_id"], args["disk_encryption_id"]
        ).apply(lambda found: ClusterScope(found[0], self._placed.region, *found[1:]))

        def may_be_taken(found: ClusterScope) -> pulumi.Output[str]:
            return pod_trust(
                found.account,
                found.arn("eks", f"cluster/{found.cluster}"),
                of.namespace,
                of.service_account,
            )

        role = self._role(of.duty, known.apply(may_be_taken))
        granted = self._attach(of.duty, role, of.policies)
        if (statements := of.statements) is not None:
            may = known.apply(lambda found: document(*statements(found)))
            granted.append(self._policy(of.duty, role, may))
        return after(role.arn, granted)

    def _by_service(self, service: str, *, confused: bool) -> pulumi.Output[str]:
        """Trust in a service; ``confused`` where it says for which account it asks."""
        conditions = {"StringEquals": {"aws:SourceAccount": self._account}} if confused else {}
        return document(
            Statement(
                "Service",
                ["sts:AssumeRole"],
                principals={"Service": [service]},
                conditions=conditions,
            )
        )

    def _by_pods(self) -> pulumi.Output[str]:
        """Trust in Pod Identity for this account's clusters.

        https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html
        """
        return document(
            Statement(
                "Pods",
                ["sts:AssumeRole", "sts:TagSession"],
                principals={"Service": ["pods.eks.amazonaws.com"]},
                conditions={"StringEquals": {"aws:SourceAccount": self._account}},
            )
        )

    def _role(self, duty: str, trust: pulumi.Output[str]) -> aws.iam.Role:
        return aws.iam.Role(
            f"{self._name}-{duty}",
            name=named(self._placed, self._name, duty, limit=ROLE_LIMIT),
            assume_role_policy=trust,
            permissions_boundary=self._boundary,
            tags=self._placed.tags(self._name),
            opts=child(self._parent),
        )

    def _attach(
        self,
        duty: str,
        role: aws.iam.Role,
        policies: Sequence[str],
        hooks: pulumi.ResourceHookBinding | None = None,
    ) -> list[pulumi.CustomResource]:
        return [
            aws.iam.RolePolicyAttachment(
                f"{self._name}-{duty}-{policy.rpartition('/')[2]}",
                role=role.name,
                policy_arn=iam_arn("aws", f"policy/{policy}"),
                opts=child(self._parent, hooks=hooks),
            )
            for policy in policies
        ]

    def _allow(
        self,
        duty: str,
        role: aws.iam.Role,
        *statements: Statement,
        hooks: pulumi.ResourceHookBinding | None = None,
    ) -> pulumi.CustomResource:
        return self._policy(duty, role, document(*statements), hooks)

    def _policy(
        self,
        duty: str,
        role: aws.iam.Role,
        policy: pulumi.Output[str],
        hooks: pulumi.ResourceHookBinding | None = None,
    ) -> pulumi.CustomResource:
        return aws.iam.RolePolicy(
            f"{self._name}-{duty}",
            role=role.name,
            policy=policy,
            opts=child(self._parent, hooks=hooks),
        )


#: What has to wait for the first nodes: until there are some, EKS calls these degraded.
_NEEDS_NODES = ("coredns", EKS_SNAPSHOT_ADDON, *EKS_STORAGE_ADDONS.values())
#: What takes settings or a role of its own.
_SET_UP = ("coredns", "vpc-cni", *EKS_STORAGE_ADDONS.values())
_PATIENCE = pulumi.CustomTimeouts(create="60m", update="60m")


def network_plugin_settings(*, strict: bool) -> dict[str, Any]:
    """Settings of the network plugin: enforces network policies; a prefix of addresses at once.

    ``strict`` denies everything from a pod's first packet on, the cluster's own pods included:
    docs.aws.amazon.com/eks/latest/userguide/cni-network-policy-configure.html
    """
    return {
        "enableNetworkPolicy": "true",
        "env": {
            "ENABLE_PREFIX_DELEGATION": "true",
            "NETWORK_POLICY_ENFORCING_MODE": "strict" if strict else "standard",
            "WARM_PREFIX_TARGET": "1",
        },
    }


def resolver_settings(
    spec: ClusterSpec, allowed_domains: pulumi.Input[Sequence[str]]
) -> dict[str, pulumi.Output[str]]:
    """Settings of the resolver: a configuration of its own, unless it stays as EKS has it.

    The key ``corefile`` is of the add-on's schema (aws eks describe-addon-configuration):
    aws.amazon.com/blogs/containers/recent-changes-to-the-coredns-add-on
    """
    if spec.resolver == OFF:
        return {}

    def written(found: Sequence[str]) -> str:
        own = cloud_domains("eks", spec.placed.region)
        domains = (*own, *spec.resolver_domains, *found)
        names = Names.of(domains, searched_domains("eks"), CLUSTER_DOMAIN)
        return json.dumps({"corefile": corefile(names, spec.resolver)})

    return {"configuration_values": pulumi.Output.from_input(allowed_domains).apply(written)}


def install_addons(
    parent: pulumi.Resource,
    spec: ClusterSpec,
    cluster: aws.eks.Cluster,
    roles: ClusterRoles,
    args: ClusterArgs,
) -> None:
    """Install the add-ons that EKS patches; their images come from the region's own registry.

    They are on nobody's way: node pools of the same program are made meanwhile, and the add-ons
    that need nodes come up with them.
    """

    def addon(name: str, upon: Sequence[pulumi.Resource] = (), **settings: Any) -> None:
        patience = _PATIENCE if name in _NEEDS_NODES else None
        aws.eks.Addon(
            f"{spec.name}-{name}",
            cluster_name=cluster.name,
            addon_name=name,
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            tags=spec.placed.tags(spec.name),
            opts=child(parent, custom_timeouts=patience, depends_on=list(upon) or None),
            **settings,
        )

    def identity(
        service_account: str, role: pulumi.Output[str]
    ) -> list[aws.eks.AddonPodIdentityAssociationArgs]:
        return [
            aws.eks.AddonPodIdentityAssociationArgs(role_arn=role, service_account=service_account)
        ]

    def associated(of: PodRole) -> pulumi.Resource:
        return aws.eks.PodIdentityAssociation(
            f"{spec.name}-{of.duty}",
            cluster_name=cluster.name,
            namespace=of.namespace,
            service_account=of.service_account,
            role_arn=roles.pods(of, cluster.name, args),
            tags=spec.placed.tags(spec.name),
            opts=child(parent),
        )

    for name in EKS_ADDONS:
        if name not in _SET_UP:
            addon(name)
    addon("coredns", (), **resolver_settings(spec, args.get("allowed_domains", ())))
    addon(
        "vpc-cni",
        configuration_values=json.dumps(
            network_plugin_settings(strict=spec.strict_network_policy)
        ),
        pod_identity_associations=identity("aws-node", roles.network_plugin()),
    )
    addon(
        EKS_STORAGE_ADDONS["ebs.csi.aws.com"],
        pod_identity_associations=identity(
            "ebs-csi-controller-sa", roles.disk_driver(args["disk_encryption_id"])
        ),
    )
    for each in CONTROLLERS:
        associated(each)
    for driver, of, upon in (
        ("fsx.csi.aws.com", LUSTRE, ()),
        # A pod gets its role when it is made: the nodes' pods come after what gives them theirs.
        ("efs.csi.aws.com", HOMES, [associated(HOMES_ON_NODES)]),
    ):
        addon(
            EKS_STORAGE_ADDONS[driver],
            upon,
            pod_identity_associations=identity(
                of.service_account, roles.pods(of, cluster.name, args)
            ),
        )


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
    nodes (join and pull images, nothing else), for the network plugin, for the drivers of disks,
    FSx for Lustre and EFS, and for controllers of `Platform` that manage what is AWS's; an
    `eks.Addon` each for vpc-cni with network policies, kube-proxy, coredns, which resolves allowed
    domains alone, eks-pod-identity-agent, aws-ebs-csi-driver, aws-fsx-csi-driver,
    aws-efs-csi-driver, snapshot-controller and eks-node-monitoring-agent, in EKS's default version
    for the cluster's; an `eks.AccessEntry` for each administrator and viewer.

    EKS makes a grant on the key of secrets in the name of whoever makes the cluster, who needs
    kms:CreateGrant and kms:DescribeKey on it, as the provisioner of `Identity` has. After the
    control plane's permissions were made or changed, half a minute passes before the cluster is
    made: EKS would call the key denied (``FALAJ_PROPAGATION_SECONDS`` changes that).

    Who makes the cluster gets no rights in it. In production the cluster can't be deleted until
    its protection is lifted, and its logs are retained.

    coredns and the storage drivers become ready with the first nodes: declare a `CpuNodePool` in
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
        install_addons(self, spec, cluster, roles, args)
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
