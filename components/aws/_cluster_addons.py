"""Roles of a cluster's own pods on AWS: who of them may do what, each by Pod Identity alone.

A role is of one service account in one cluster, and may do what its program needs for what our
components ask of it; AWS's own policies for these programs often allow more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from falaj.components.aws._iam import MOUNT_FILES, Statement, arn, iam_arn, service_host
from falaj.components.catalogue.clusters import CLUSTER_AUTOSCALER, LOAD_BALANCER_CONTROLLER

KUBE_SYSTEM: Final = "kube-system"
"""Where EKS installs its managed add-ons."""


@dataclass(frozen=True)
class ClusterScope:
    """What the roles of a cluster are about, by name and ARN."""

    account: str
    region: str
    cluster: str
    """Name of the cluster."""
    vpc: str
    """Id of its network."""
    disk_key: str
    """ARN of the key of disks, which storage classes name."""

    def arn(self, service: str, resource: str) -> str:
        """ARN of something in the cluster's account and region."""
        return arn(service, self.region, self.account, resource)


@dataclass(frozen=True)
class PodRole:
    """The role of one service account."""

    duty: str
    """Last part of the role's name."""
    namespace: str
    service_account: str
    policies: tuple[str, ...] = ()
    """Policies of AWS itself, by their path."""
    statements: Callable[[ClusterScope], Sequence[Statement]] | None = None
    """Of a policy of its own."""


#: What the driver writes on file systems that it makes:
#: github.com/kubernetes-sigs/aws-fsx-csi-driver, pkg/cloud/cloud.go
_FSX_VOLUME: Final = "CSIVolumeName"


def _lustre(around: ClusterScope) -> Sequence[Statement]:
    """Finds file systems, makes one for a claim, and deletes only what it made for claims.

    The actions are those of github.com/kubernetes-sigs/aws-fsx-csi-driver, docs/install.md,
    without imports from buckets; what FSx needs of a key is in
    https://docs.aws.amazon.com/fsx/latest/LustreGuide/encryption-at-rest.html
    """
    systems = around.arn("fsx", "file-system/*")
    return (
        Statement("Find", ["fsx:DescribeFileSystems"], ["*"]),
        Statement(
            "MakeForClaims",
            ["fsx:CreateFileSystem", "fsx:TagResource"],
            [systems],
            conditions={"Null": {f"aws:RequestTag/{_FSX_VOLUME}": "false"}},
        ),
        Statement(
            "DeleteOwn",
            ["fsx:DeleteFileSystem"],
            [systems],
            conditions={"Null": {f"aws:ResourceTag/{_FSX_VOLUME}": "false"}},
        ),
        Statement(
            "ServiceRole",
            ["iam:CreateServiceLinkedRole"],
            [iam_arn(around.account, "role/aws-service-role/fsx.amazonaws.com/*")],
            conditions={"StringEquals": {"iam:AWSServiceName": "fsx.amazonaws.com"}},
        ),
        Statement(
            "EncryptByFsx",
            [
                "kms:CreateGrant",
                "kms:Decrypt",
                "kms:DescribeKey",
                "kms:GenerateDataKeyWithoutPlaintext",
            ],
            [around.disk_key],
            conditions={
                "StringEquals": {"kms:ViaService": service_host("fsx", around.region)},
            },
        ),
    )


LUSTRE: Final = PodRole("fsx-csi", KUBE_SYSTEM, "fsx-csi-controller-sa", statements=_lustre)


def _homes(around: ClusterScope) -> Sequence[Statement]:
    """Mounts with ``tls,iam``; the file system's own policy has the last word.

    https://docs.aws.amazon.com/efs/latest/ug/iam-access-control-nfs-efs.html
    """
    return (
        Statement(
            "Mount",
            MOUNT_FILES,
            [around.arn("elasticfilesystem", "file-system/*")],
            conditions={"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}},
        ),
    )


HOMES: Final = PodRole(
    "efs-csi",
    KUBE_SYSTEM,
    "efs-csi-controller-sa",
    policies=("service-role/AmazonEFSCSIDriverPolicy",),
)
#: The add-on takes no association for this account, so that it is one of its own:
#: github.com/kubernetes-sigs/aws-efs-csi-driver/issues/1759
HOMES_ON_NODES: Final = PodRole("efs-csi-node", KUBE_SYSTEM, "efs-csi-node-sa", statements=_homes)


def _autoscaler(around: ClusterScope) -> Sequence[Statement]:
    """Sees all scaling groups and changes the size of the cluster's own, which EKS marks.

    Source: github.com/kubernetes/autoscaler, cluster-autoscaler/cloudprovider/aws/README.md
    """
    return (
        Statement(
            "Look",
            [
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeAutoScalingInstances",
                "autoscaling:DescribeLaunchConfigurations",
                "autoscaling:DescribeScalingActivities",
                "ec2:DescribeImages",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeLaunchTemplateVersions",
                "ec2:GetInstanceTypesFromInstanceRequirements",
            ],
            ["*"],
        ),
        Statement(
            "LookAtPools",
            ["eks:DescribeNodegroup"],
            [around.arn("eks", f"nodegroup/{around.cluster}/*")],
        ),
        Statement(
            "Scale",
            ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
            [around.arn("autoscaling", "autoScalingGroup:*:autoScalingGroupName/*")],
            conditions={
                "StringEquals": {
                    f"aws:ResourceTag/k8s.io/cluster-autoscaler/{around.cluster}": "owned"
                }
            },
        ),
    )


#: What the controller writes on everything that it makes, with the cluster's name as its value:
#: github.com/kubernetes-sigs/aws-load-balancer-controller, docs/install/iam_policy.json
_BALANCED: Final = "elbv2.k8s.aws/cluster"


def _balancers(around: ClusterScope) -> Sequence[Statement]:
    """Makes private NLBs for the cluster's Services, and changes what it made for them.

    It is that project's own policy (the same page) without application balancers and their rules,
    certificates, logins, WAF and Shield; with the cluster's name where that asks for any, and
    groups of the cluster's network alone:
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ExamplePolicies_EC2.html
    https://docs.aws.amazon.com/elasticloadbalancing/latest/userguide/security_iam_service-with-iam.html
    """
    groups = around.arn("ec2", "security-group/*")
    vpc = around.arn("ec2", f"vpc/{around.vpc}")
    balancers = around.arn("elasticloadbalancing", "loadbalancer/net/*")
    listeners = around.arn("elasticloadbalancing", "listener/net/*")
    targets = around.arn("elasticloadbalancing", "targetgroup/*")
    asked = {f"aws:RequestTag/{_BALANCED}": around.cluster}
    own = {f"aws:ResourceTag/{_BALANCED}": around.cluster}
    # Whose it is can't be changed afterwards.
    kept = {"Null": {f"aws:RequestTag/{_BALANCED}": "true"}, "StringEquals": own}
    return (
        Statement(
            "ServiceRole",
            ["iam:CreateServiceLinkedRole"],
            [
                iam_arn(
                    around.account,
                    "role/aws-service-role/elasticloadbalancing.amazonaws.com/*",
                )
            ],
            conditions={
                "StringEquals": {"iam:AWSServiceName": "elasticloadbalancing.amazonaws.com"}
            },
        ),
        Statement(
            "Look",
            [
                "ec2:DescribeAccountAttributes",
                "ec2:DescribeAddresses",
                "ec2:DescribeAvailabilityZones",
                "ec2:DescribeInstances",
                "ec2:DescribeInternetGateways",
                "ec2:DescribeNetworkInterfaces",
                "ec2:DescribeRouteTables",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSubnets",
                "ec2:DescribeTags",
                "ec2:DescribeVpcPeeringConnections",
                "ec2:DescribeVpcs",
                "ec2:GetSecurityGroupsForVpc",
                "elasticloadbalancing:DescribeListenerAttributes",
                "elasticloadbalancing:DescribeListenerCertificates",
                "elasticloadbalancing:DescribeListeners",
                "elasticloadbalancing:DescribeLoadBalancerAttributes",
                "elasticloadbalancing:DescribeLoadBalancers",
                "elasticloadbalancing:DescribeSSLPolicies",
                "elasticloadbalancing:DescribeTags",
                "elasticloadbalancing:DescribeTargetGroupAttributes",
                "elasticloadbalancing:DescribeTargetGroups",
                "elasticloadbalancing:DescribeTargetHealth",
            ],
            ["*"],
        ),
        # It opens the nodes' group to its balancers, whose groups it makes.
        Statement(
            "OpenGroupsOfTheNetwork",
            ["ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress"],
            [groups],
            conditions={"ArnEquals": {"ec2:Vpc": vpc}},
        ),
        Statement("MakeGroups", ["ec2:CreateSecurityGroup"], [groups, vpc]),
        Statement(
            "NameNewGroups",
            ["ec2:CreateTags"],
            [groups],
            conditions={"StringEquals": {"ec2:CreateAction": "CreateSecurityGroup", **asked}},
        ),
        Statement("NameGroups", ["ec2:CreateTags", "ec2:DeleteTags"], [groups], conditions=kept),
        Statement(
            "DeleteGroups",
            ["ec2:DeleteSecurityGroup"],
            [groups],
            conditions={"StringEquals": own},
        ),
        Statement(
            "MakeBalancers",
            ["elasticloadbalancing:CreateLoadBalancer"],
            [balancers],
            conditions={"StringEquals": {"elasticloadbalancing:Scheme": "internal", **asked}},
        ),
        Statement(
            "MakeTargets",
            ["elasticloadbalancing:CreateTargetGroup"],
            [targets],
            conditions={"StringEquals": asked},
        ),
        Statement(
            "Listen",
            [
                "elasticloadbalancing:AddTags",
                "elasticloadbalancing:CreateListener",
                "elasticloadbalancing:DeleteListener",
                "elasticloadbalancing:ModifyListener",
                "elasticloadbalancing:RemoveTags",
            ],
            [listeners],
        ),
        Statement("ListenOn", ["elasticloadbalancing:CreateListener"], [balancers]),
        Statement(
            "NameNew",
            ["elasticloadbalancing:AddTags"],
            [balancers, targets],
            conditions={
                "StringEquals": {
                    "elasticloadbalancing:CreateAction": [
                        "CreateLoadBalancer",
                        "CreateTargetGroup",
                    ],
                    **asked,
                }
            },
        ),
        Statement(
            "Name",
            ["elasticloadbalancing:AddTags", "elasticloadbalancing:RemoveTags"],
            [balancers, targets],
            conditions=kept,
        ),
        Statement(
            "ChangeOwn",
            [
                "elasticloadbalancing:DeleteLoadBalancer",
                "elasticloadbalancing:DeleteTargetGroup",
                "elasticloadbalancing:DeregisterTargets",
                "elasticloadbalancing:ModifyListenerAttributes",
                "elasticloadbalancing:ModifyLoadBalancerAttributes",
                "elasticloadbalancing:ModifyTargetGroup",
                "elasticloadbalancing:ModifyTargetGroupAttributes",
                "elasticloadbalancing:RegisterTargets",
                "elasticloadbalancing:SetIpAddressType",
                "elasticloadbalancing:SetSecurityGroups",
                "elasticloadbalancing:SetSubnets",
            ],
            [balancers, listeners, targets],
            conditions={"StringEquals": own},
        ),
    )


#: Of what `components.kubernetes` installs; a role is there before its pods are.
CONTROLLERS: Final = (
    PodRole(
        "autoscaler",
        CLUSTER_AUTOSCALER.namespace,
        CLUSTER_AUTOSCALER.name,
        statements=_autoscaler,
    ),
    PodRole(
        "balancers",
        LOAD_BALANCER_CONTROLLER.namespace,
        LOAD_BALANCER_CONTROLLER.name,
        statements=_balancers,
    ),
)
