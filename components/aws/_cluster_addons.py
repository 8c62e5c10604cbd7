"""Roles of a cluster's own pods on AWS: who of them may do what, each by Pod Identity alone.

A role is of one service account in one cluster, and may do what its program needs for what our
components ask of it; AWS's own policies for these programs often allow more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from falaj.components.aws._iam import Statement, arn, iam_arn, service_host
from falaj.components.catalogue.clusters import CLUSTER_AUTOSCALER

KUBE_SYSTEM: Final = "kube-system"
"""Where EKS installs its managed add-ons."""


@dataclass(frozen=True)
class Surroundings:
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
    statements: Callable[[Surroundings], Sequence[Statement]] | None = None
    """Of a policy of its own."""


#: What the driver writes on file systems that it makes:
#: github.com/kubernetes-sigs/aws-fsx-csi-driver, pkg/cloud/cloud.go
_FSX_VOLUME: Final = "CSIVolumeName"


def _lustre(around: Surroundings) -> Sequence[Statement]:
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


def _homes(around: Surroundings) -> Sequence[Statement]:
    """Mounts with ``tls,iam``; the file system's own policy has the last word.

    https://docs.aws.amazon.com/efs/latest/ug/iam-access-control-nfs-efs.html
    """
    return (
        Statement(
            "Mount",
            [
                "elasticfilesystem:ClientMount",
                "elasticfilesystem:ClientRootAccess",
                "elasticfilesystem:ClientWrite",
            ],
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


def _autoscaler(around: Surroundings) -> Sequence[Statement]:
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


#: Of what `components.kubernetes` installs; a role is there before its pods are.
CONTROLLERS: Final = (
    PodRole(
        "autoscaler",
        CLUSTER_AUTOSCALER.namespace,
        CLUSTER_AUTOSCALER.name,
        statements=_autoscaler,
    ),
)
